//! The lines about slow requests: which are written, and the last of them.
//!
//! Invariants: within any second at most [`LINES_PER_SECOND`] lines are written; each line that is not is counted, and
//! the next one that is written has their number.

use super::SlowLine;
use base::Monotonic;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Lines within a second: enough to see the kind of trouble, and no burden for a log while all requests are slow.
pub const LINES_PER_SECOND: usize = 10;

/// Lines that are kept for operators: some hundred kilobytes with the longest names.
pub const LINES_KEPT: usize = 128;

const SECOND: Duration = Duration::from_secs(1);

/// The log.
#[derive(Debug, Default)]
pub struct SlowLog {
    /// When the last lines were written, at most [`LINES_PER_SECOND`], the oldest first.
    written: VecDeque<Monotonic>,
    kept: VecDeque<Arc<SlowLine>>,
    /// Lines that were left out since the last one, and all of them.
    missing: u64,
    left_out: u64,
}

impl SlowLog {
    /// Writes the line that `make` makes, or counts it as left out.
    pub fn write(&mut self, now: Monotonic, make: impl FnOnce() -> SlowLine) -> Option<Arc<SlowLine>> {
        if now < self.room_at() {
            self.missing += 1;
            self.left_out += 1;
            return None;
        }
        let left_out = std::mem::take(&mut self.missing);
        let line = Arc::new(SlowLine { left_out, ..make() });

        // The clock of another shard's turn may be a little behind.
        let now = self.written.back().map_or(now, |last| now.max(*last));
        push(&mut self.written, now, LINES_PER_SECOND);
        push(&mut self.kept, Arc::clone(&line), LINES_KEPT);
        debug_assert!(self.written.iter().is_sorted(), "the oldest line is the first");
        debug_assert!(self.kept.len() >= self.written.len(), "the last lines are kept");
        Some(line)
    }

    /// When there is room for a line; in the past if there is.
    pub fn room_at(&self) -> Monotonic {
        match self.written.front() {
            Some(first) if self.written.len() == LINES_PER_SECOND => *first + SECOND,
            _ => Monotonic(0),
        }
    }

    /// The last lines, the oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &Arc<SlowLine>> {
        self.kept.iter()
    }

    /// Lines that were left out, in all.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// Adds to a queue that keeps the last `most`.
fn push<T>(queue: &mut VecDeque<T>, new: T, most: usize) {
    if queue.len() == most {
        queue.pop_front();
    }
    queue.push_back(new);
    debug_assert!(queue.len() <= most, "a queue is within its bound");
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    fn line(bytes: usize) -> SlowLine {
        SlowLine { bytes, ..SlowLine::default() }
    }

    /// Random times, against a list of all lines.
    #[test]
    fn any_second_has_ten_lines_and_the_others_are_counted() {
        for seed in 0..50 {
            let mut rng = SplitMix64::new(seed);
            let (mut log, mut now, mut missing, mut left_out) = (SlowLog::default(), Monotonic(0), 0, 0);
            let mut all: Vec<(Monotonic, usize)> = Vec::new();
            for number in 0..2_000 {
                now = now + Duration::from_millis(rng.next_u64() % 120);
                let lately = all.iter().filter(|(at, _)| now.since(*at) < SECOND).count();
                let written = log.write(now, || line(number));

                assert_eq!(written.is_some(), lately < LINES_PER_SECOND, "{seed}: {now:?}");
                match written {
                    Some(line) => {
                        assert_eq!((line.bytes, line.left_out), (number, std::mem::take(&mut missing)));
                        all.push((now, number));
                    }
                    None => (missing, left_out) = (missing + 1, left_out + 1),
                }
                assert_eq!(log.left_out(), left_out);
                assert_eq!(log.room_at() <= now, lately + 1 < LINES_PER_SECOND, "{seed}: {now:?}");
            }
            let last: Vec<usize> =
                all.iter().rev().take(LINES_KEPT).rev().map(|(_, number)| *number).collect();
            assert_eq!(log.lines().map(|line| line.bytes).collect::<Vec<_>>(), last);
        }
    }

    #[test]
    fn a_clock_that_is_behind_makes_no_room() {
        let at = |ms: u64| Monotonic(0) + Duration::from_millis(ms);
        let mut log = SlowLog::default();
        for number in 0..LINES_PER_SECOND {
            let now = if number % 2 == 0 { at(5_000) } else { at(4_990) };
            assert!(log.write(now, || line(0)).is_some());
        }
        assert!(log.write(at(5_999), || line(0)).is_none());
        assert!(log.write(at(6_000), || line(0)).is_some());
    }
}
