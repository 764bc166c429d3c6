//! The log's lines about stores that take no writes: a full disk, or a failed write.
//!
//! Invariant: a refusal is logged when it begins, every [`AGAIN_EVERY`] while it lasts, and when it ends.
//!
//! Left out: deletions, which a nearly full disk still takes.

use base::Monotonic;
use std::time::Duration;

/// How often the same refusal is logged again.
const AGAIN_EVERY: Duration = Duration::from_secs(300);

/// A change that is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WritesSaid {
    /// Writes are refused, for these reasons.
    Refused(String),
    /// Writes are taken again.
    Taken,
}

/// The last line about refused writes.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    said: Option<Monotonic>,
}

impl RefusalLog {
    /// The line that is due, with `reasons` why stores take no writes now.
    pub(super) fn look(&mut self, reasons: &[String], now: Monotonic) -> Option<WritesSaid> {
        if reasons.is_empty() {
            return self.said.take().map(|_| WritesSaid::Taken);
        }
        if self.said.is_some_and(|said| now.since(said) < AGAIN_EVERY) {
            return None;
        }
        self.said = Some(now);
        Some(WritesSaid::Refused(reasons.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_logged_at_once_and_when_it_has_room_again() {
        let at = |seconds: u64| Monotonic(0) + Duration::from_secs(seconds);
        let reasons = |bytes: u64| vec![format!("no room: {bytes} bytes are free")];
        let said = |bytes| Some(WritesSaid::Refused(format!("no room: {bytes} bytes are free")));
        let mut log = RefusalLog::default();
        assert_eq!(log.look(&[], at(0)), None);
        assert_eq!(log.look(&reasons(9), at(1)), said(9));
        assert_eq!(log.look(&reasons(8), at(300)), None, "the number of bytes is no news");
        assert_eq!(log.look(&reasons(7), at(301)), said(7));
        assert_eq!(log.look(&[], at(302)), Some(WritesSaid::Taken));
        assert_eq!(log.look(&[], at(303)), None);
        assert_eq!(log.look(&reasons(6), at(304)), said(6), "full again");
    }
}
