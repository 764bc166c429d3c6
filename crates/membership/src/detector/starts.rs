//! Which processes have spoken for one node, and which of them is believed.
//!
//! A process that was started again is silent for good once its successor speaks. So two that speak in turn are two
//! live processes with one data folder: a copy. The one heard first is the original; whoever came later is refused for
//! as long as the original is heard. A copy of a node that is gone is thus an ordinary start.
//!
//! Who is heard for the first time is no successor before it speaks with a higher generation than all others: it may be
//! one that ended before they began, whose only word was late.

use std::time::Duration;

use base::Monotonic;

/// How long a datagram may be on its way: one of an earlier process that comes later than this, counted from the first
/// of its successor, was sent by a live one.
pub const STRAY_MAX: Duration = Duration::from_secs(5);

/// A process that is silent for so long is gone, and no other is refused for its sake.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);

const _: () =
    assert!(STRAY_MAX.as_nanos() < SILENCE_MAX.as_nanos(), "a process is remembered while its strays come");

/// Processes remembered of a node; more at once than an original, two copies and one that was just started are not told
/// apart from strays.
const STARTS_MAX: usize = 4;

/// What to do with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// It is the node's.
    Believed,
    /// It is of a process that has ended, or the sign that it has not comes later.
    Stray,
    /// It is a copy's: the process `original` is alive.
    Copy { original: u64 },
    /// It is the node's, but another process spoke with a higher generation; the sender must go above it first.
    Superseded { start: u64, generation: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    start: u64,
    generation: u64,
    first: Monotonic,
    last: Monotonic,
    /// Whether it spoke although a later one had.
    outlived: bool,
}

/// The processes of one node, in the order in which they were first heard above those before.
#[derive(Clone, Debug, Default)]
pub(super) struct Starts {
    heard: Vec<Heard>,
}

impl Starts {
    /// Takes note of a datagram that came at `now`.
    pub(super) fn judge(&mut self, start: u64, generation: u64, now: Monotonic) -> Judgement {
        self.heard.retain(|heard| now.since(heard.last) <= SILENCE_MAX || heard.start == start);
        let others = self.heard.iter().filter(|heard| heard.start != start);
        let above =
            others.max_by_key(|heard| heard.generation).filter(|other| other.generation >= generation);
        let superseded = above.map(|it| Judgement::Superseded { start: it.start, generation: it.generation });
        if let Some(superseded) = superseded
            && !self.heard.iter().any(|heard| heard.start == start)
        {
            return superseded;
        }
        let at = self.note(start, generation, now);
        self.invariants();
        if let Some(original) = self.heard.iter().find(|heard| heard.outlived).map(|heard| heard.start)
            && original != start
        {
            return Judgement::Copy { original };
        }
        let newest = self.heard[self.heard.len() - 1];
        if at + 1 < self.heard.len() && !self.heard[at].outlived {
            if now.since(newest.first) <= STRAY_MAX {
                return Judgement::Stray;
            }
            self.heard[at].outlived = true;
        }
        superseded.unwrap_or(Judgement::Believed)
    }

    /// Relations that hold after each datagram.
    fn invariants(&self) {
        for (at, heard) in self.heard.iter().enumerate() {
            let (before, after) = (self.heard[..at].last(), &self.heard[at + 1..]);
            debug_assert!(heard.first <= heard.last, "a first datagram is not later than the last");
            debug_assert!(
                before.is_none_or(|it| it.first <= heard.first),
                "processes are ordered by their first datagrams"
            );
            debug_assert!(after.iter().all(|it| it.start != heard.start), "a process is remembered once");
        }
    }

    /// Forgets all processes but one: they have ended. What they raised the generation to is remembered elsewhere.
    pub(super) fn forget_all_but(&mut self, start: u64) {
        self.heard.retain(|heard| heard.start == start);
    }

    fn note(&mut self, start: u64, generation: u64, now: Monotonic) -> usize {
        if let Some(at) = self.heard.iter().position(|heard| heard.start == start) {
            self.heard[at].last = now;
            self.heard[at].generation = self.heard[at].generation.max(generation);
            return at;
        }
        if self.heard.len() == STARTS_MAX {
            let quietest = (0..STARTS_MAX).min_by_key(|&at| (self.heard[at].outlived, self.heard[at].last));
            self.heard.remove(quietest.expect("there are STARTS_MAX"));
        }
        self.heard.push(Heard { start, generation, first: now, last: now, outlived: false });
        self.heard.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::Judgement::*;
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn a_restart_is_believed_and_its_predecessor_a_stray() {
        let mut starts = Starts::default();
        assert_eq!(starts.judge(1, 10, at(0)), Believed);
        assert_eq!(starts.judge(2, 20, at(1)), Believed);
        assert_eq!(starts.judge(1, 10, at(3)), Stray);
        assert_eq!(starts.judge(2, 20, at(100)), Believed);
    }

    #[test]
    fn a_copy_is_refused_while_its_original_is_heard() {
        let mut starts = Starts::default();
        assert_eq!(starts.judge(1, 10, at(0)), Believed);
        assert_eq!(starts.judge(2, 20, at(1)), Believed);
        // The original goes above the copy's generation and stays.
        assert_eq!(starts.judge(1, 10, at(7)), Superseded { start: 2, generation: 20 });
        assert_eq!(starts.judge(1, 21, at(8)), Believed);
        assert_eq!(starts.judge(2, 20, at(8)), Copy { original: 1 });
        assert_eq!(starts.judge(3, 30, at(9)), Copy { original: 1 });
        // It dies: a minute later the copy is the node.
        assert_eq!(starts.judge(2, 31, at(68)), Copy { original: 1 });
        assert_eq!(starts.judge(2, 31, at(69)), Believed);
    }

    #[test]
    fn a_restored_folder_with_an_old_generation_is_told_to_go_above() {
        let mut starts = Starts::default();
        assert_eq!(starts.judge(1, 50, at(0)), Believed);
        assert_eq!(starts.judge(2, 40, at(20)), Superseded { start: 1, generation: 50 });
        assert_eq!(starts.judge(2, 51, at(20)), Believed);
    }

    /// Of the second process nothing was heard before the third spoke; then what it had said comes late.
    #[test]
    fn a_late_word_makes_no_copies() {
        let mut starts = Starts::default();
        assert_eq!(starts.judge(1, 10, at(0)), Believed);
        assert_eq!(starts.judge(3, 30, at(10)), Believed);
        assert_eq!(starts.judge(2, 20, at(12)), Superseded { start: 3, generation: 30 });
        assert_eq!(starts.judge(3, 30, at(20)), Believed);
        assert_eq!(starts.judge(4, 40, at(30)), Believed, "it was started again");
    }

    /// The original outlived a copy, ended, and was started again: nobody is refused for the sake of what has ended.
    #[test]
    fn a_restart_is_believed_at_once_when_the_others_are_known_to_have_ended() {
        let mut starts = Starts::default();
        assert_eq!(starts.judge(1, 10, at(0)), Believed);
        assert_eq!(starts.judge(2, 20, at(1)), Believed);
        starts.judge(1, 21, at(8));
        assert_eq!(starts.judge(3, 30, at(9)), Copy { original: 1 });
        starts.forget_all_but(3);
        assert_eq!(starts.judge(3, 30, at(9)), Believed);
    }

    #[test]
    fn few_starts_are_remembered() {
        let mut starts = Starts::default();
        for start in 0..100 {
            starts.judge(start, start, at(0));
            assert!(starts.heard.len() <= STARTS_MAX);
        }
    }
}
