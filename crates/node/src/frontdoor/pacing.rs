//! Writes that come faster than the store can put them away are slowed, so that it never has to refuse them or stall.
//!
//! The store says how long a write should wait ([`engine::Store::pace`]): nothing while it is well below its limits,
//! then more with the square of what is used of them. Each write that is begun makes the next one wait for so long;
//! until then writes of clients, of this shard and of others, are held back in their order. Reads go on as ever, and so
//! do writes for other nodes, which are part of something begun. What has been held for [`HELD_MAX`] is refused. Where
//! nothing but the journal's size is why they wait ([`engine::Store::must_be_paced`]), what has been held for
//! [`HELD_FOR_SPACE_MAX`] begins: many clients that overwrite what they have would be refused otherwise, for a store
//! that could take what they write.
//!
//! Invariants: nothing of a held write was done; what is held counts as work, with its bytes. Left out: a share for
//! each client.

use crate::hop::RequestId;
use crate::request::place::Ready;
use crate::shard::env::Env;
use crate::shard::gauges::Gauges;
use crate::shard::reply_to::ReplyTo;
use base::Monotonic;
use kv::Error;
use std::collections::VecDeque;
use std::time::Duration;

/// How long a write is held at most: an answer that refuses it is to come within 50 ms, and it may wait elsewhere, too.
pub const HELD_MAX: Duration = Duration::from_millis(25);

/// How long a write is held at most to keep the journal small: what that may cost a client.
const HELD_FOR_SPACE_MAX: Duration = Duration::from_millis(5);

/// What turns may come late by: writes that could have begun meanwhile begin together. The shell looks at what waits so
/// often.
const BURST: Duration = Duration::from_millis(5);

/// A write that is held back.
struct Held<W> {
    write: W,
    bytes: usize,
    since: Monotonic,
}

/// What becomes of a write that was held.
#[derive(Debug, PartialEq)]
enum PacedWrite<W> {
    Begin(W),
    Refuse(W),
}

/// What is held back, and until when.
pub(crate) struct Pacer<W = Ready> {
    /// How long each write is to wait, as of the last turn.
    pace: Duration,
    /// The next write may begin then.
    next_at: Monotonic,
    held: VecDeque<Held<W>>,
    bytes: usize,
    /// How long writes were made to wait for one another, in all.
    pub owed: Duration,
}

impl<W> Default for Pacer<W> {
    fn default() -> Pacer<W> {
        Pacer {
            pace: Duration::ZERO,
            next_at: Monotonic::default(),
            held: VecDeque::new(),
            bytes: 0,
            owed: Duration::ZERO,
        }
    }
}

impl<W> Pacer<W> {
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

    fn push(&mut self, write: W, bytes: usize, now: Monotonic) {
        self.bytes += bytes;
        self.held.push_back(Held { write, bytes, since: now });
    }

    /// The first write that is held no longer, and why. One that has waited for too long is refused if the store
    /// `must_be_paced`.
    fn next(&mut self, must_be_paced: bool, now: Monotonic) -> Option<PacedWrite<W>> {
        let first = self.held.front()?;
        let waited = now.since(first.since);
        let is_due = self.next_at <= now;
        let held_max = if must_be_paced { HELD_MAX } else { HELD_FOR_SPACE_MAX };
        if !is_due && waited < held_max {
            return None;
        }
        let Held { write, bytes, .. } = self.held.pop_front().expect("it was just looked at");
        self.bytes -= bytes;
        if !is_due && must_be_paced {
            return Some(PacedWrite::Refuse(write));
        }
        if is_due {
            self.pass(now);
        }
        Some(PacedWrite::Begin(write))
    }
}

impl Pacer {
    /// Forgets a write whose client is gone.
    pub fn forget(&mut self, id: RequestId, gauges: &mut Gauges) {
        let Some(at) = self.held.iter().position(|held| held.write.reply_to == ReplyTo::Client(id)) else {
            return;
        };
        self.bytes -= self.held.remove(at).expect("it was just found").bytes;
        (gauges.held, gauges.held_bytes) = (self.len(), self.bytes());
    }

    /// Holds back a write that comes too soon; one that may begin now, or never waits, is returned.
    #[inline]
    pub fn hold(&mut self, ready: Ready, env: &mut Env) -> Option<Ready> {
        // That is nearly always so.
        if self.pace.is_zero() && self.held.is_empty() {
            return Some(ready);
        }
        self.hold_paced(ready, env)
    }

    fn hold_paced(&mut self, ready: Ready, env: &mut Env) -> Option<Ready> {
        let is_clients = matches!(ready.reply_to, ReplyTo::Client(_) | ReplyTo::Shard(..));
        if !is_clients || !ready.coordinator.writes() {
            return Some(ready);
        }
        let now = env.now();
        if self.held.is_empty() && self.next_at <= now {
            self.pass(now);
            return Some(ready);
        }
        let bytes = ready.coordinator.bytes();
        self.push(ready, bytes, now);
        self.publish(&mut env.gauges);
        None
    }

    /// Once in a turn: asks the store how long writes are to wait.
    pub fn begin_turn(&mut self, env: &Env) {
        // A store that takes no writes says so to each of them. One that takes deletions alone is nearly full: these
        // wait for merges.
        let refuses = env.store.refuses_deletions().is_some();
        self.pace = if refuses { Duration::ZERO } else { env.store.pace() };
    }

    /// The next write whose time has come; those that it comes too late for are refused.
    pub fn next_ready(&mut self, env: &mut Env) -> Option<Ready> {
        if self.held.is_empty() {
            return None;
        }
        let (must_be_paced, now) = (env.store.must_be_paced(), env.now());
        while let Some(next) = self.next(must_be_paced, now) {
            self.publish(&mut env.gauges);
            match next {
                PacedWrite::Begin(write) => return Some(write),
                PacedWrite::Refuse(write) => {
                    env.counters.refused += 1;
                    env.reply(write.reply_to, Err(Error::Overload));
                }
            }
        }
        None
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        assert_eq!(env.gauges.held, self.held.len(), "all that are held are counted");
        let bytes: usize = self.held.iter().map(|held| held.bytes).sum();
        assert_eq!(self.bytes, bytes, "their bytes are counted");
        assert_eq!(env.gauges.held_bytes, self.bytes, "the gauge has their bytes");
        let in_order = self.held.iter().is_sorted_by_key(|held| held.since);
        assert!(in_order, "the first was held for longest");
    }

    fn publish(&self, gauges: &mut Gauges) {
        (gauges.held, gauges.held_bytes) = (self.len(), self.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_pass_at_the_pace() {
        let mut pacer = Pacer::<u32> { pace: Duration::from_micros(250), ..Pacer::default() };
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

    /// What becomes of a hundred writes that come at once, while one may begin each millisecond; all of them are over
    /// after `end_ms`.
    fn outcome(must_be_paced: bool, end_ms: u64) -> [usize; 2] {
        let at = |ms: u64| Monotonic(0) + Duration::from_millis(1000 + ms);
        let mut pacer = Pacer::<u32> { pace: Duration::from_millis(1), next_at: at(1), ..Pacer::default() };
        (0..100).for_each(|number| pacer.push(number, 10, at(0)));
        let mut turns = Vec::new();
        for ms in 0..=end_ms {
            while let Some(turn) = pacer.next(must_be_paced, at(ms)) {
                turns.push(turn);
            }
            assert!(ms == end_ms || pacer.len() > 0, "all are over after {ms} ms");
        }
        assert_eq!((turns.len(), pacer.len(), pacer.bytes()), (100, 0, 0));
        let begun = turns.iter().filter(|turn| matches!(turn, PacedWrite::Begin(_))).count();
        [begun, turns.len() - begun]
    }

    #[test]
    fn nobody_is_refused_for_the_size_of_the_journal() {
        assert_eq!(outcome(true, 25), [25, 75]);
        assert_eq!(outcome(false, 5), [100, 0]);
    }
}
