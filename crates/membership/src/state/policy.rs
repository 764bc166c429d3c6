//! The records of the security policy: opaque here, in one order at all nodes.
//!
//! [`Command::ChangePolicy`] makes all of its changes or none, by compare-and-set on the version of the whole policy
//! (`docs/decisions/0107-changes-of-the-security-policy.md`).
//!
//! Invariants: the version grows with each change, also over a recovery of the log; records stay within their bounds,
//! and a policy beyond them can only become smaller; records that were there once leave the section behind, so that no
//! program that cannot read it comes back.
//!
//! Left out: the meaning of records, which the crate `security` has.
//!
//! [`Command::ChangePolicy`]: super::Command::ChangePolicy

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_bytes, put_varint};

use super::bounds::{
    POLICY_BYTES_MAX, POLICY_CHANGES_BYTES_MAX, POLICY_RECORD_BYTES_MAX, POLICY_RECORDS_MAX,
};
use super::command::Rejected;
use super::fields::{count, option, put_option};
use super::{EPOCH_SHIFT, State};

/// The version of a policy that was replaced, in its epoch: half of all that an epoch has.
const REPLACED_FROM: u64 = 1 << (EPOCH_SHIFT - 1);

/// A change of one record: its key, and the value that it is to have, or none.
pub type PolicyChange = (Bytes, Option<Bytes>);

/// The records, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRecords {
    version: u64,
    records: BTreeMap<Bytes, Bytes>,
    /// Bytes of all values.
    bytes: usize,
}

impl PolicyRecords {
    /// The key and the value of each record, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.records.iter()
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.records.get(key)
    }

    /// Bytes of all values. A key is no longer than its value, so that all take twice as many at most.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn set(&mut self, (key, value): &PolicyChange) {
        // A copy: a slice would keep the message that it came in.
        let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        let before = match value {
            Some(value) => {
                self.bytes += value.len();
                self.records.insert(copy(key), copy(value))
            }
            None => self.records.remove(key),
        };
        self.bytes -= before.map_or(0, |before| before.len());
    }

    fn is_within_bounds(&self) -> bool {
        self.bytes <= POLICY_BYTES_MAX && self.records.len() <= POLICY_RECORDS_MAX
    }

    pub(super) fn put(&self, out: &mut BytesMut) {
        out.put_u64_le(self.version);
        put_varint(out, self.records.len() as u64);
        for (key, value) in &self.records {
            put_bytes(out, key);
            put_bytes(out, value);
        }
    }

    pub(super) fn read(fields: &mut Reader) -> Result<PolicyRecords, Malformed> {
        let mut policy = PolicyRecords { version: fields.u64()?, ..PolicyRecords::default() };
        for _ in 0..count(fields, POLICY_RECORDS_MAX)? {
            let (key, value) = (fields.bytes()?, fields.bytes()?);
            if policy.records.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(Malformed("records out of order"));
            }
            if !is_record(&key, &value) {
                return Err(Malformed("a record of a policy that cannot be"));
            }
            policy.set(&(key, Some(value)));
        }
        if policy.version == 0 || !policy.is_within_bounds() {
            return Err(Malformed("a policy that cannot be"));
        }
        Ok(policy)
    }
}

/// Whether a record can have this key and this value.
fn is_record(key: &Bytes, value: &Bytes) -> bool {
    (1..=value.len()).contains(&key.len()) && value.len() <= POLICY_RECORD_BYTES_MAX
}

/// Bytes of changes, as their bound counts them.
pub fn changes_bytes(changes: &[PolicyChange]) -> usize {
    changes.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Bytes::len)).sum()
}

pub(super) fn put_changes(out: &mut BytesMut, changes: &[PolicyChange]) {
    put_varint(out, changes.len() as u64);
    for (key, value) in changes {
        put_bytes(out, key);
        put_option(out, value.as_ref());
    }
}

/// Takes changes off the front; those beyond the bounds of a command are refused.
pub(super) fn read_changes(fields: &mut Reader) -> Result<Vec<PolicyChange>, Malformed> {
    let count = count(fields, POLICY_CHANGES_BYTES_MAX)?;
    let mut changes: Vec<PolicyChange> = Vec::new();
    let mut bytes = 0;
    for _ in 0..count {
        let change = (fields.bytes()?, option(fields)?);
        bytes += changes_bytes(std::slice::from_ref(&change));
        // An empty key would not count.
        if bytes > POLICY_CHANGES_BYTES_MAX || change.0.is_empty() {
            return Err(Malformed("changes of a policy that cannot be"));
        }
        changes.push(change);
    }
    Ok(changes)
}

impl State {
    /// The version of the security policy, which a change of it names; 0 before the first change. After a recovery of
    /// the log it is higher than all versions that the lost members may have made.
    pub fn policy_version(&self) -> u64 {
        self.policy.as_ref().map_or(0, |policy| policy.version).max(self.policy_base())
    }

    /// The records of the security policy; none before its first change.
    pub fn policy(&self) -> Option<&Arc<PolicyRecords>> {
        self.policy.as_ref()
    }

    /// Replaces all records, by ascending key, as a restored cluster begins with. The version is above all that changes
    /// of this epoch reach, and below those of the next: it does not depend on the records before.
    pub fn replace_policy(&mut self, records: &[(Bytes, Bytes)]) {
        let mut policy = PolicyRecords { version: self.policy_base() + REPLACED_FROM, ..Default::default() };
        for (key, value) in records {
            assert!(is_record(key, value), "the program makes records that it reads");
            policy.set(&(key.clone(), Some(value.clone())));
        }
        self.policy = Some(Arc::new(policy));
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
        let mut after = PolicyRecords::clone(&before);
        changes.iter().for_each(|change| after.set(change));
        let is_smaller = after.bytes <= before.bytes && after.records.len() <= before.records.len();
        if !after.is_within_bounds() && !is_smaller {
            return Err(Rejected::Policy);
        }
        if after.records != before.records {
            after.version = version.checked_add(1).ok_or(Rejected::Policy)?;
            self.policy = Some(Arc::new(after));
        }
        Ok(())
    }
}
