//! What a process does that is told by a member to be a copy: its data folder is another's, which is alive.
//!
//! A process that does not serve yet asks again for [`SURE_AFTER`], for the end of its predecessor may not have been
//! noticed, and ends. One that serves ends at once, unless the metadata log has it as the member's process and whoever
//! refuses it knows no better: then the other one is the copy, and is told so by those who know.

use super::AsOf;
use base::Monotonic;
use std::time::Duration;

/// How long a process that starts is told to be a copy before it believes it.
const SURE_AFTER: Duration = Duration::from_secs(2);

/// What a member says that refuses this process as a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRefusal {
    /// What that member knows of the cluster's decisions.
    pub as_of: AsOf,
    /// Whether the log has the other process as the member's, as of then.
    pub is_other_registered: bool,
}

/// What this process knows of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub(super) as_of: AsOf,
    /// Whether the log has this process as the member's, as of then.
    pub(super) is_registered: bool,
    /// Whether it serves clients.
    pub(super) serves: bool,
}

/// Since when this process is told that it is a copy.
#[derive(Debug, Default)]
pub(super) struct CopyWatch {
    since: Option<Monotonic>,
}

impl CopyWatch {
    /// Whether this process ends.
    pub(super) fn ends(&mut self, refusal: CopyRefusal, own: Own, now: Monotonic) -> bool {
        let since = *self.since.get_or_insert(now);
        if !own.serves {
            return now.since(since) >= SURE_AFTER;
        }
        let knows_better = refusal.is_other_registered && refusal.as_of >= own.as_of;
        !own.is_registered || knows_better
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_of(commit: u64) -> AsOf {
        AsOf { epoch: 1, commit }
    }

    fn at(millis: u64) -> Monotonic {
        Monotonic(0) + Duration::from_millis(millis)
    }

    #[test]
    fn a_start_asks_again_before_it_ends() {
        let own = Own { as_of: as_of(5), is_registered: false, serves: false };
        let refusal = CopyRefusal { as_of: as_of(5), is_other_registered: true };
        let mut watch = CopyWatch::default();
        assert!(!watch.ends(refusal, own, at(0)) && !watch.ends(refusal, own, at(1_900)));
        assert!(watch.ends(refusal, own, at(2_000)));
    }

    #[test]
    fn of_two_that_serve_the_registered_one_stays() {
        let ends = |is_registered, theirs, is_other_registered| {
            let own = Own { as_of: as_of(5), is_registered, serves: true };
            CopyWatch::default().ends(CopyRefusal { as_of: as_of(theirs), is_other_registered }, own, at(0))
        };
        assert!(ends(false, 5, true) && ends(false, 5, false) && ends(false, 4, false));
        assert!(!ends(true, 5, false), "the other one is the copy");
        assert!(!ends(true, 4, true), "that member has not heard of this start");
        assert!(ends(true, 6, true), "another process was registered meanwhile");
    }
}
