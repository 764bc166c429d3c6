//! The security policy of a state: its version, and changes of its records, in one order at all nodes.
//!
//! [`Command::ChangePolicy`] makes all of its changes or none, by compare-and-set on the version of the whole policy
//! (`docs/decisions/0107-changes-of-the-security-policy.md`).
//!
//! Invariants: the version grows with each change, also over a recovery of the log; records that were there once leave
//! the section behind, so that no program that cannot read it comes back.
//!
//! [`Command::ChangePolicy`]: super::Command::ChangePolicy

use std::sync::Arc;

use bytes::Bytes;

use super::bounds::POLICY_CHANGES_BYTES_MAX;
use super::command::Rejected;
use super::policy_records::{PolicyChange, PolicyRecords, changes_bytes, is_record};
use super::{EPOCH_SHIFT, State};

/// The version of a policy that was replaced, in its epoch: half of all that an epoch has.
const REPLACED_FROM: u64 = 1 << (EPOCH_SHIFT - 1);

impl State {
    /// The version of the security policy, which a change of it names; 0 before the first change. After a recovery of
    /// the log it is higher than all versions that the lost members may have made.
    pub fn policy_version(&self) -> u64 {
        self.policy.as_ref().map_or(0, |policy| policy.version()).max(self.policy_base())
    }

    /// The records of the security policy; none before its first change.
    pub fn policy(&self) -> Option<&Arc<PolicyRecords>> {
        self.policy.as_ref()
    }

    /// Replaces all records, by ascending key, as a restored cluster begins with. The version is above all that changes
    /// of this epoch reach, and below those of the next: it does not depend on the records before.
    pub fn replace_policy(&mut self, records: &[(Bytes, Bytes)]) {
        let version = self.policy_base() + REPLACED_FROM;
        self.policy = Some(Arc::new(PolicyRecords::of(version, records)));
    }

    /// The version from which changes in this epoch count.
    fn policy_base(&self) -> u64 {
        let epoch = self.ring_version.0 >> EPOCH_SHIFT;
        epoch.saturating_sub(1) << EPOCH_SHIFT
    }

    /// Makes all changes, if the policy has the expected version. What changes nothing has no version.
    pub(super) fn change_policy(&mut self, expected: u64, changes: &[PolicyChange]) -> Result<(), Rejected> {
        let version = self.policy_version();
        if expected != version {
            return Err(Rejected::Stale);
        }
        let can_be = |(key, value): &PolicyChange| value.as_ref().is_none_or(|value| is_record(key, value));
        if !changes.iter().all(can_be) || changes_bytes(changes) > POLICY_CHANGES_BYTES_MAX {
            return Err(Rejected::Policy);
        }

        let before = self.policy.clone().unwrap_or_default();
        let mut after = before.with(changes).ok_or(Rejected::Policy)?;
        if !after.iter().eq(before.iter()) {
            after.set_version(version.checked_add(1).ok_or(Rejected::Policy)?);
            self.policy = Some(Arc::new(after));
        }
        Ok(())
    }
}
