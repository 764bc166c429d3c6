//! How much of a shard's time copies get while it serves clients.
//!
//! What a copy takes of the processors, the disks and the link at once, some client waits for. So while clients ask for
//! something, keys of copies are sent in *slices*, one at a time from a shard:
//!
//! 1. A slice is at most [`SLICE_KEYS`] keys, or as many as will be [`SLICE_BYTES`].
//! 2. It takes until the last of them is confirmed: until the receiver has read, joined, written and synced it.
//! 3. For [`REST`] times as long nothing is sent; then the next copy that waits has its turn.
//!
//! So a busy part - this node, the receiver, a disk, the link - makes slices longer and the pauses with them:
//! copies take a fixed share of the time, and less work in it the more others have to do. (LEDBAT, RFC 6817, takes
//! delay as the sign to yield, too.) When nobody has asked for [`QUIET`](crate::shard::env::QUIET), copies go on as
//! fast as they can.
//!
//! Left out: clients of the receiver who ask for nothing that the sender holds, and so are not seen here.

use base::Monotonic;
use std::time::Duration;

/// Keys of a slice: few enough for a small part of a pass over the connections (10 ms) where they are sent and where
/// they come, and enough to share a sync.
const SLICE_KEYS: usize = 32;

/// Bytes of a slice: four milliseconds of a gigabit, which requests on the link wait for.
const SLICE_BYTES: u64 = 512 << 10;

/// How long a pause is, in slices: copies get an eighth of the time, which still is ten million keys in an hour from a
/// shard whose slices take a millisecond and a half.
const REST: u32 = 7;

/// The longest pause. Where a slice takes longer than a seventh of it something is broken rather than busy, and the
/// wait of one key (10 s) is not to become a minute.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// What is under way.
#[derive(Clone, Copy, Debug)]
struct Slice {
    /// The copy that it is a part of.
    of: u64,
    began: Monotonic,
    /// Keys that may yet be sent.
    left: usize,
}

/// What copies may take now.
#[derive(Debug, Default)]
pub(crate) struct HandoffThrottle {
    slice: Option<Slice>,
    /// When the next slice may begin.
    next: Monotonic,
    /// Whose turn it was last.
    last: u64,
}

impl HandoffThrottle {
    /// Begins a slice of a copy, if its turn may come now. So far it has sent so many keys, with so many bytes.
    pub fn begin(&mut self, copy: u64, (keys, bytes): (u64, u64), now: Monotonic) {
        if self.slice.is_none() && self.next <= now {
            self.slice = Some(Slice { of: copy, began: now, left: slice_keys(keys, bytes) });
            self.last = copy;
        }
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self) {
        let Some(slice) = &self.slice else { return };
        assert_eq!(slice.of, self.last, "the turn is that of the slice");
        assert!(slice.left <= SLICE_KEYS, "a slice is a few keys");
        assert!(self.next <= slice.began, "a slice begins after the pause");
    }

    /// Whether this copy may send one more key of its slice, which is then counted as sent.
    pub fn take(&mut self, copy: u64) -> bool {
        let slice = self.slice.as_mut().filter(|slice| slice.of == copy && slice.left > 0);
        slice.map(|slice| slice.left -= 1).is_some()
    }

    /// All that this copy has sent is confirmed: if it was a slice, it is over.
    pub fn end(&mut self, copy: u64, now: Monotonic) {
        if let Some(slice) = self.slice.take_if(|slice| slice.of == copy) {
            let pause = now.since(slice.began).saturating_mul(REST);
            self.next = now + pause.min(PAUSE_MAX);
        }
    }

    /// The copy that a slice is sent of.
    pub fn under_way(&self) -> Option<u64> {
        self.slice.map(|slice| slice.of)
    }

    /// The copy whose turn it is, of those that wait, in the order of their names.
    pub fn turn(&self, mut waiting: impl Iterator<Item = u64> + Clone, now: Monotonic) -> Option<u64> {
        if self.slice.is_some() || self.next > now {
            return None;
        }
        waiting.clone().find(|&copy| copy > self.last).or_else(|| waiting.next())
    }
}

/// Keys of the next slice, if they are as large as those before; of the first ones nothing is known.
fn slice_keys(keys: u64, bytes: u64) -> usize {
    let fit = SLICE_BYTES.saturating_mul(keys).checked_div(bytes).unwrap_or(u64::MAX);
    usize::try_from(fit).unwrap_or(SLICE_KEYS).clamp(1, SLICE_KEYS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::env::Activity;
    use base::Rng;
    use base::rng::SplitMix64;

    /// Runs copies for ten seconds whose slices take as long as `takes` says, while clients ask every `client`. What
    /// share of the time slices took, and how many keys each copy has sent.
    fn run(copies: u64, client: Duration, mut takes: impl FnMut() -> Duration) -> (f64, Vec<usize>) {
        let (mut share, mut activity, mut now) =
            (HandoffThrottle::default(), Activity::default(), Monotonic(1));
        let (end, step) = (now + Duration::from_secs(10), Duration::from_micros(500));
        let (mut asked, mut busy, mut sent) = (now, Duration::ZERO, vec![0; copies as usize]);
        activity.note_client(now);
        while now < end {
            if now.since(asked) >= client {
                asked = now;
                activity.note_client(now);
            }
            assert!(activity.yields(now));
            if let Some(copy) = share.turn(0..copies, now) {
                share.begin(copy, (0, 0), now);
                assert_eq!(share.turn(0..copies, now), None, "one at a time");
                while share.take(copy) {
                    sent[copy as usize] += 1;
                }
                let took = takes();
                (now, busy) = (now + took, busy + took);
                share.end(copy, now);
            }
            now = now + step;
        }
        (busy.as_secs_f64() / 10.0, sent)
    }

    #[test]
    fn copies_take_an_eighth_of_the_time_while_clients_ask() {
        for millis in [2_u64, 5, 20, 35] {
            let (share, sent) = run(3, Duration::from_millis(100), || Duration::from_millis(millis));
            assert!((0.09..=0.126).contains(&share), "{share} with slices of {millis} ms");
            assert!(sent.iter().all(|&keys| keys.abs_diff(sent[0]) <= SLICE_KEYS), "{sent:?}");
        }
        let mut rng = SplitMix64::new(7);
        let (share, _) =
            run(1, Duration::from_millis(900), || Duration::from_micros(rng.next_u64() % 30_000));
        assert!((0.09..=0.13).contains(&share), "{share}");
    }

    #[test]
    fn a_slow_disk_does_not_stop_a_copy() {
        let (_, sent) = run(1, Duration::from_millis(100), || Duration::from_millis(750));
        assert_eq!(sent, [10 * SLICE_KEYS]);
    }

    #[test]
    fn what_waits_has_its_turn_in_order() {
        let mut share = HandoffThrottle::default();
        let now = Monotonic(1);
        let order: Vec<u64> = (0..5)
            .map(|_| {
                let copy = share.turn([2, 5, 9].into_iter(), now).unwrap();
                share.begin(copy, (0, 0), now);
                share.end(copy, now);
                copy
            })
            .collect();
        assert_eq!(order, [2, 5, 9, 2, 5]);
    }

    #[test]
    fn slices_of_large_values_are_few_keys() {
        assert_eq!([(0, 0), (1, 0), (10, 10_000)].map(|(keys, bytes)| slice_keys(keys, bytes)), [32; 3]);
        assert_eq!(slice_keys(4, 4 * (64 << 10)), 8);
        assert_eq!((slice_keys(1, 100 << 20), slice_keys(u64::MAX, 1)), (1, 32));
    }
}
