//! Which segments to compact next, and whether at all.

use super::account::Account;
use std::ops::Range;

/// Segments of one compaction: more would be read before the first is gone.
pub(crate) const RUN_SEGMENTS_MAX: usize = 16;

/// And at most one part in so many of the journal, of more segments than one: until the last input is copied all of
/// them take space beside the output.
const RUN_SHARE: u64 = 16;

/// A segment of which so little is left is compacted whatever the target: it costs next to nothing.
const NEARLY_EMPTY_PERCENT: u64 = 10;

/// A segment of which more than this is left is never compacted: the gain would be less than a twentieth.
const NEARLY_FULL_PERCENT: u64 = 95;

/// Waste of so many outputs is left where it is while clients write, whatever the target. As much may be in the segment
/// that is written, where it cannot go; a small store would move all it has time and again to make up for that.
pub(crate) const WASTE_OUTPUTS_MIN: u64 = 2;

/// Heads of records are taken to be this part of them.
const HEADS_SHARE: u64 = 8;

/// A segment as a candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    pub account: Account,
    /// Of the log-only bytes, those that were found to be needed.
    pub pinned_bytes: u64,
    /// Whether it may be compacted now: all of its records are in tables, and nobody writes it.
    pub eligible: bool,
}

impl Choice {
    /// Bytes that are of no use, as far as is known.
    pub fn waste(&self) -> u64 {
        if !self.eligible {
            return self.account.dead_bytes;
        }
        self.account.dead_bytes + self.account.log_bytes.saturating_sub(self.pinned_bytes)
    }

    /// Bytes of the disk for its compaction, until the segment goes: live records and their heads.
    pub fn needs(&self) -> u64 {
        with_heads(self.left())
    }

    fn left(&self) -> u64 {
        self.account.bytes().saturating_sub(self.waste())
    }

    fn left_percent(&self) -> u64 {
        self.left().saturating_mul(100) / self.account.bytes().max(1)
    }
}

/// Bytes of a segment that holds so many bytes of records.
pub(super) fn with_heads(bytes: u64) -> u64 {
    bytes + bytes / HEADS_SHARE
}

/// The run of segments that gains the most for each byte that has to be moved, once all of them take more than
/// `target_percent` of what is of use, and more than `waste_min` is of none. `hidden_bytes` are of no use either,
/// though nobody knows which they are. The output is about `output_bytes_max` large at most, and takes `room` at most.
pub(crate) fn choose(
    segments: &[Choice],
    (hidden_bytes, target_percent, waste_min): (u64, u64, u64),
    output_bytes_max: u64,
    room: u64,
) -> Option<Range<usize>> {
    let total: u64 = segments.iter().map(|segment| segment.account.bytes()).sum();
    let waste = segments.iter().map(Choice::waste).sum::<u64>() + hidden_bytes;
    let over = waste > waste_min
        && total.saturating_mul(100) > total.saturating_sub(waste).saturating_mul(target_percent);
    let limit = if over { NEARLY_FULL_PERCENT } else { NEARLY_EMPTY_PERCENT };
    let candidate = |segment: &Choice| {
        let is_any = segment.eligible && segment.account.bytes() > 0;
        is_any && segment.left_percent() <= limit && segment.needs() <= room
    };
    let (best, _) = segments
        .iter()
        .enumerate()
        .filter(|(_, segment)| candidate(segment))
        .min_by_key(|(_, segment)| segment.left_percent())?;
    let left_max = output_bytes_max.min(room - room / (HEADS_SHARE + 1));
    Some(extend(segments, best, left_max, output_bytes_max, total / RUN_SHARE))
}

/// Takes neighbours in that are emptier than the limit or small, as long as no more than `left_max` is left, and all
/// fits `run_bytes_max`.
fn extend(
    segments: &[Choice],
    best: usize,
    left_max: u64,
    output_bytes_max: u64,
    run_bytes_max: u64,
) -> Range<usize> {
    let limit = segments[best].left_percent().midpoint(100).min(NEARLY_FULL_PERCENT);
    let joins = |segment: &Choice| {
        let small = segment.account.bytes() < output_bytes_max / RUN_SEGMENTS_MAX as u64;
        segment.eligible && (small || segment.left_percent() <= limit)
    };
    let mut run = best..best + 1;
    let (mut left, mut bytes) = (segments[best].left(), segments[best].account.bytes());
    let fits = |left: u64, bytes: u64, next: &Choice| {
        left + next.left() <= left_max && bytes + next.account.bytes() <= run_bytes_max
    };
    while run.len() < RUN_SEGMENTS_MAX {
        let after = segments.get(run.end).filter(|segment| joins(segment));
        let before = run.start.checked_sub(1).map(|at| &segments[at]).filter(|segment| joins(segment));
        match (before, after) {
            (_, Some(next)) if fits(left, bytes, next) => {
                left += next.left();
                bytes += next.account.bytes();
                run.end += 1;
            }
            (Some(next), _) if fits(left, bytes, next) => {
                left += next.left();
                bytes += next.account.bytes();
                run.start -= 1;
            }
            _ => break,
        }
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(bytes: u64, dead: u64) -> Choice {
        let account = Account { value_bytes: bytes, log_bytes: 0, dead_bytes: dead };
        Choice { account, pinned_bytes: 0, eligible: true }
    }

    #[test]
    fn nothing_is_done_within_the_target() {
        let segments = [segment(100, 20), segment(100, 20), segment(100, 0)];
        assert_eq!(choose(&segments, (0, 130, 0), 100, u64::MAX), None);
        assert_eq!(choose(&segments, (0, 110, 0), 100, u64::MAX), Some(0..1));
        assert_eq!(choose(&[], (0, 110, 0), 100, u64::MAX), None);
    }

    #[test]
    fn little_waste_stays() {
        let segments = [segment(100, 60), segment(100, 60)];
        assert_eq!(choose(&segments, (0, 130, 120), 100, u64::MAX), None);
        assert!(choose(&segments, (1, 130, 120), 100, u64::MAX).is_some());
        assert_eq!(
            choose(&[segment(100, 95)], (0, 130, 120), 100, u64::MAX),
            Some(0..1),
            "what costs nothing is done"
        );
    }

    #[test]
    fn what_is_hidden_counts_as_waste() {
        let segments = [segment(100, 20), segment(100, 20), segment(100, 0)];
        assert_eq!(choose(&segments, (29, 130, 0), 100, u64::MAX), None);
        assert_eq!(choose(&segments, (30, 130, 0), 100, u64::MAX), Some(0..1));
    }

    #[test]
    fn an_empty_segment_goes_at_once() {
        let segments = [segment(1000, 0), segment(100, 95), segment(1000, 0)];
        assert_eq!(choose(&segments, (0, 130, 0), 1000, u64::MAX), Some(1..2));
    }

    #[test]
    fn the_emptiest_goes_first_with_neighbours_that_fit() {
        let mut segments =
            vec![segment(100, 0), segment(100, 60), segment(100, 80), segment(100, 70), segment(100, 10)];
        segments.resize(48, segment(100, 30));
        assert_eq!(choose(&segments, (0, 130, 0), 100, u64::MAX), Some(1..4));
        assert_eq!(choose(&segments, (0, 130, 0), 55, u64::MAX), Some(2..4));
    }

    #[test]
    fn a_run_is_a_small_part_of_the_journal() {
        let of = |count: usize| choose(&vec![segment(100, 90); count], (0, 130, 0), 1000, u64::MAX);
        assert_eq!([8, 32, 64, 1000].map(of), [Some(0..1), Some(0..2), Some(0..4), Some(0..16)]);
    }

    #[test]
    fn a_segment_is_taken_only_if_what_is_left_of_it_fits() {
        let mut segments = vec![segment(100, 10), segment(100, 50), segment(100, 100), segment(100, 70)];
        let of = |segments: &[Choice], room| choose(segments, (0, 100, 0), 100, room);
        assert_eq!(of(&segments, 0), Some(2..3), "a segment without live records takes no room");
        segments.remove(2);
        assert_eq!(of(&segments, 32), None, "thirty bytes and their heads");
        assert_eq!(of(&segments, 33), Some(2..3));
        segments.resize(64, segment(100, 70));
        let run = of(&segments, 70).expect("two fit");
        assert!(run.len() == 2, "{run:?}");
    }

    #[test]
    fn what_is_still_written_is_no_candidate_and_what_is_pinned_is_no_waste() {
        let mut segments = [segment(100, 90), segment(100, 90)];
        segments[0].eligible = false;
        assert_eq!(choose(&segments, (0, 130, 0), 100, u64::MAX), Some(1..2));
        let account = Account { value_bytes: 0, log_bytes: 100, dead_bytes: 0 };
        let log = |pinned_bytes| Choice { account, pinned_bytes, eligible: true };
        assert_eq!(choose(&[log(0)], (0, 130, 0), 100, u64::MAX), Some(0..1));
        assert_eq!(choose(&[log(100)], (0, 130, 0), 100, u64::MAX), None);
    }
}
