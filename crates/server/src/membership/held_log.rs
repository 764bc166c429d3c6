//! The hold of a restored metadata log, as operators see it: the mark, and the lines of the log.
//!
//! A restore marks the log of a member. The log takes no part before it has compared with those of all other members
//! (`hold.rs` in the crate `membership`).
//!
//! Invariant: a wait that lasts longer than the start of a cluster is logged, and then once in [`AGAIN_EVERY`].

use super::files::{FOLDER, LOG};
use ::backup::Error;
use ::membership::Membership;
use ::membership::log::Log;
use base::Monotonic;
use bytes::Bytes;
use ring::NodeId;
use std::time::Duration;

/// The wait that is not logged: the nodes of a restored cluster start one after the other.
const QUIET: Duration = Duration::from_secs(10);

/// How often a wait is logged again.
const AGAIN_EVERY: Duration = Duration::from_secs(60);

/// The bytes of a file of a backup, of its name and its bytes, with the mark that a restored log is held.
///
/// # Errors
/// [`Error::Damaged`] if the log cannot be read, or a newer program wrote it.
pub fn mark_restored(name: &str, data: Bytes) -> Result<Bytes, Error> {
    if name.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix('/')) != Some(LOG) {
        return Ok(data);
    }
    let damaged = |what: String| Error::Damaged { file: name.to_owned(), what };
    Log::restored(&data).map_err(|cause| damaged(cause.to_string()))
}

/// The names of the members that the log of a voter waits for. Nothing waits for the log of another member.
pub(super) fn awaited(membership: &Membership) -> Vec<String> {
    let log = membership.log();
    if !log.voters().contains(&log.identity().node) {
        return Vec::new();
    }
    let members = membership.state().map(|state| state.members());
    let name = |node: NodeId| {
        let record = members.and_then(|members| members.get(&node));
        record.map_or_else(|| node.to_string(), |record| record.member.name.to_string())
    };
    log.awaited().into_iter().map(name).collect()
}

/// The lines of the log about the wait.
#[derive(Debug, Default)]
pub(super) struct HoldLog {
    next: Option<Monotonic>,
}

impl HoldLog {
    /// The line that is due, with the names of the members that are waited for.
    pub(super) fn look(&mut self, awaited: &[String], now: Monotonic) -> Option<String> {
        if awaited.is_empty() {
            self.next = None;
            return None;
        }
        if now < *self.next.get_or_insert(now + QUIET) {
            return None;
        }
        self.next = Some(now + AGAIN_EVERY);
        Some(format!(
            "this node was restored: its metadata log waits for those of {}. Until then members, bucket types and \
             users cannot be changed. If one is lost for good, see `annulet admin cluster recover`",
            awaited.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn a_long_wait_is_logged_every_minute() {
        let at = |seconds: u64| Monotonic(0) + Duration::from_secs(seconds);
        let names = ["b@h".to_owned(), "c@h".to_owned()];
        let mut log = HoldLog::default();
        assert_eq!(log.look(&names, at(0)), None);
        assert_eq!(log.look(&names, at(9)), None, "the others may be about to start");
        let text = log.look(&names, at(10)).unwrap();
        assert!(text.contains("b@h, c@h") && text.contains("`annulet admin cluster recover`"), "{text}");
        assert_eq!(log.look(&names[..1], at(69)), None);
        assert!(log.look(&names[..1], at(70)).is_some());
        assert_eq!(log.look(&[], at(71)), None);
        assert_eq!(log.look(&names, at(140)), None, "another wait");
    }

    #[test]
    fn only_the_log_is_marked() {
        let bytes = || Bytes::from_static(b"no log");
        assert_eq!(mark_restored("membership/standing", bytes()).unwrap(), bytes());
        assert_eq!(mark_restored("log", bytes()).unwrap(), bytes());
        assert!(matches!(mark_restored("membership/log", bytes()), Err(Error::Damaged { .. })));
    }
}
