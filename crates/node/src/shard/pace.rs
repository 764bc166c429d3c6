//! Writes that come faster than the store can put them away are slowed, so that it never has to refuse them or stall.
//!
//! The store says how long a write should wait ([`engine::Store::pace`]): nothing while it is well below its limits,
//! then more with the square of what is used of them. Each write that is begun makes the next one wait for so long; until
//! then writes of clients, of this shard and of others, are held back in their order. Reads go on as ever, and so do
//! writes for other nodes, which are part of something begun. What has been held for [`HELD_MAX`] is refused.
//!
//! Invariants: nothing of a held write was done; what is held counts as work, with its bytes. Left out: a share for each
//! client.

use super::object::Ready;
use super::{Origin, RequestId, Shard};
use base::Monotonic;
use kv::Error;
use std::collections::VecDeque;
use std::time::Duration;

/// How long a write is held at most: an answer that refuses it is to come within 50 ms, and it may wait elsewhere, too.
pub const HELD_MAX: Duration = Duration::from_millis(25);

/// What turns may come late by: writes that could have begun meanwhile begin together. The shell looks at what waits so
/// often.
const BURST: Duration = Duration::from_millis(5);

/// A write that is held back.
struct Held {
    ready: Ready,
    bytes: usize,
    since: Monotonic,
}

/// What is held back, and until when.
#[derive(Default)]
pub(super) struct Pacer {
    /// How long each write is to wait, as of the last turn.
    pace: Duration,
    /// The next write may begin then.
    next_at: Monotonic,
    held: VecDeque<Held>,
    bytes: usize,
    /// How long writes were made to wait for one another, in all.
    pub owed: Duration,
}

impl Pacer {
    /// Writes that are held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Bytes of values that they hold.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Begins a write: the next waits.
    fn pass(&mut self, now: Monotonic) {
        let earliest = Monotonic(now.0.saturating_sub(BURST.as_nanos() as u64));
        self.next_at = self.next_at.max(earliest) + self.pace;
        self.owed += self.pace;
    }

    fn push(&mut self, held: Held) {
        self.bytes += held.bytes;
        self.held.push_back(held);
    }

    fn pop(&mut self) -> Option<Held> {
        let first = self.held.pop_front()?;
        self.bytes -= first.bytes;
        Some(first)
    }

    /// Forgets a write whose client is gone.
    pub fn forget(&mut self, id: RequestId) {
        let Some(at) = self.held.iter().position(|held| held.ready.origin == Origin::Here(id)) else {
            return;
        };
        self.bytes -= self.held.remove(at).expect("it was just found").bytes;
    }
}

impl Shard {
    /// Begins what is to begin now, and holds back a write that comes too soon.
    #[inline]
    pub(super) fn begin_or_hold(&mut self, ready: Ready) {
        // That is nearly always so.
        if self.pacer.pace.is_zero() && self.pacer.held.is_empty() {
            return self.begin_object(ready);
        }
        self.begin_or_hold_paced(ready);
    }

    fn begin_or_hold_paced(&mut self, ready: Ready) {
        let is_clients = matches!(ready.origin, Origin::Here(_) | Origin::There(..));
        if !is_clients || !ready.coordinator.writes() {
            return self.begin_object(ready);
        }
        let now = self.config.clock.now();
        if self.pacer.held.is_empty() && self.pacer.next_at <= now {
            self.pacer.pass(now);
            return self.begin_object(ready);
        }
        let bytes = ready.coordinator.bytes();
        self.pacer.push(Held { ready, bytes, since: now });
    }

    /// Once in a turn: asks the store how long writes are to wait, begins those whose time has come, and refuses those
    /// that it comes too late for.
    pub(super) fn pace_writes(&mut self) {
        // A store that takes no writes says so to each of them.
        let refuses = self.store.refuses_writes().is_some();
        self.pacer.pace = if refuses { Duration::ZERO } else { self.store.pace() };
        if self.pacer.held.is_empty() {
            return;
        }
        let now = self.config.clock.now();
        while self.pacer.next_at <= now
            && let Some(held) = self.pacer.pop()
        {
            self.pacer.pass(now);
            self.begin_object(held.ready);
        }
        while self.pacer.held.front().is_some_and(|first| now.since(first.since) >= HELD_MAX) {
            let first = self.pacer.pop().expect("it was just looked at");
            self.counters.refused += 1;
            self.reply(first.ready.origin, Err(Error::Overload));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_pass_at_the_pace() {
        let mut pacer = Pacer { pace: Duration::from_micros(250), ..Pacer::default() };
        let mut passed = Vec::new();
        // However far apart turns are, a quiet time saves up no more than a burst.
        for millis in [1000, 1005, 1006, 1006, 1008, 5000] {
            let now = Monotonic(0) + Duration::from_millis(millis);
            let before = pacer.owed;
            while pacer.next_at <= now {
                pacer.pass(now);
            }
            passed.push((pacer.owed - before).as_micros() / 250);
        }
        assert_eq!(passed, [21, 20, 4, 0, 8, 21]);
    }
}
