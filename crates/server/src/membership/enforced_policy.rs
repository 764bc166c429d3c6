//! The security policy that this node's doors go by, and the mark of the data folder that security is on.
//!
//! 1. A start finds the mark, and closes the doors by it ([`EnforcedPolicy::find`]).
//! 2. When the agreed state is another one, the doors go by its policy, and the mark follows
//!    ([`EnforcedPolicy::follow`]). The caller of a change is answered afterwards.
//!
//! Left out: the rules for a log that is older than the mark ([`PolicyFollower`]).

use super::files::FilesError;
use super::mark::SecurityMark;
use crate::security::{Policies, PolicyFollower};
use ::membership::state::State;
use ::security::Mode;
use std::path::Path;
use std::sync::Arc;

/// The policy in force, with its mark.
pub(super) struct EnforcedPolicy {
    follower: PolicyFollower,
    mark: SecurityMark,
}

impl EnforcedPolicy {
    /// By the mark of the data folder.
    pub(super) fn find(data: &Path, policies: &Arc<Policies>) -> EnforcedPolicy {
        let mark = SecurityMark::find(data);
        let follower = PolicyFollower::new(Arc::clone(policies), mark.is_set(), mark.enabled_at());
        EnforcedPolicy { follower, mark }
    }

    /// The reader of the policy in the log.
    pub(super) fn follower(&self) -> &PolicyFollower {
        &self.follower
    }

    /// Has the log count with this version of the policy, though the mark is newer; from the next
    /// [`EnforcedPolicy::follow`] on.
    pub(super) fn accept_log(&mut self, version: u64) {
        self.follower.accept_log(version);
    }

    /// Has the doors go by the policy of a state, and marks the data folder.
    pub(super) fn follow(&mut self, state: &State) -> Result<(), FilesError> {
        self.follower.follow(state);
        match (self.follower.logged_mode(), self.follower.enabled_at()) {
            (Some(Mode::Off | Mode::Permissive), _) => self.mark.clear(),
            (_, Some(enabled_at)) => self.mark.set(enabled_at),
            (_, None) => Ok(()),
        }
    }
}
