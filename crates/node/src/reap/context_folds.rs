//! Contexts that are to be folded: when, and how often.
//!
//! 1. A read, write or delete that finds more entries in the key's context than
//!    [`Reaping::fold_actors`](crate::Reaping) proposes the key.
//! 2. At the next tick, if this node is a primary of the key and all members can be reached, a [`kv::Reap`] asks them
//!    all.
//! 3. Folded or refused, the key is not proposed again for [`PAUSE`]: a context that cannot be folded, or that a client
//!    brings back, costs no more than that.
//!
//! As with tombstones nothing is folded while the partition moves, or where a crash may take what was acknowledged.

use crate::request::task::{Coordinator, Task, placed};
use crate::shard::effect::Effect;
use crate::shard::env::Env;
use crate::shard::reply_to::ReplyTo;
use base::Monotonic;
use bytes::Bytes;
use kv::reap::{REAP_MAX, Reap};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Keys that wait, are under way or pause. What is dropped is proposed again when the key is used.
const KEYS_MAX: usize = 1_024;

/// Folds under way: few enough that clients do not notice the values that they read and write.
const UNDER_WAY_MAX: usize = 4;

/// How long a key is left alone after a fold.
const PAUSE: Duration = Duration::from_secs(5);

/// The keys that are to be folded, or were lately.
#[derive(Debug, Default)]
pub(crate) struct ContextFolds {
    waiting: VecDeque<Bytes>,
    under_way: usize,
    /// Until when each is left alone, in order.
    pausing: VecDeque<(Monotonic, Bytes)>,
    /// All of these, and those under way.
    keys: BTreeSet<Bytes>,
}

impl ContextFolds {
    fn propose(&mut self, key: &Bytes) {
        if self.keys.len() < KEYS_MAX && self.keys.insert(key.clone()) {
            self.waiting.push_back(key.clone());
        }
    }

    /// The next to be begun.
    fn next(&mut self) -> Option<Bytes> {
        if self.under_way >= UNDER_WAY_MAX {
            return None;
        }
        let key = self.waiting.pop_front()?;
        self.under_way += 1;
        Some(key)
    }

    fn end(&mut self, key: &Bytes, now: Monotonic) {
        self.under_way -= 1;
        self.pausing.push_back((now + PAUSE, key.clone()));
    }

    fn expire(&mut self, now: Monotonic) {
        while let Some((_, key)) = self.pausing.pop_front_if(|(until, _)| *until <= now) {
            self.keys.remove(&key);
        }
    }

    /// The context of this key has many entries.
    pub(crate) fn propose_fold(&mut self, env: &mut Env, key: &Bytes) {
        if env.can_reap(key) {
            self.propose(key);
        }
    }

    /// Begins folds.
    pub(crate) fn tick_folds(&mut self, env: &mut Env, now: Monotonic) {
        self.expire(now);
        while let Some(key) = self.next() {
            self.begin_fold(env, key);
        }
    }

    fn begin_fold(&mut self, env: &mut Env, key: Bytes) {
        let table = &env.props;
        let made = placed(&key)
            .ok()
            .and_then(|(prefix, bucket)| Some((prefix, Arc::clone(table.get_as_replica(&bucket).ok()?))));
        let is_primary = |prefix, n_val| env.ownership().is_primary(prefix, n_val);
        let made = made.filter(|(prefix, props)| {
            env.peers.all_up()
                && !env.ownership().is_moving(*prefix, props.n_val)
                && is_primary(*prefix, props.n_val)
        });
        let Some((_, props)) = made else {
            return env.raise(Effect::ContextFolded { key, is_agreed: false });
        };
        let reap = Reap::of_context(true, env.topology.members.others().collect());
        let deadline = env.now() + REAP_MAX;
        let mut work = Task::new(ReplyTo::Nobody, Coordinator::Reap(Box::new(reap)), key, props, deadline);
        // It asks the members of now.
        work.epoch = Some(env.topology.epoch);
        env.start(work);
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self) {
        let known = self.waiting.len() + self.under_way + self.pausing.len();
        assert_eq!(self.keys.len(), known, "a key waits, is folded, or pauses");
        assert!(self.under_way <= UNDER_WAY_MAX, "few folds are under way");
        assert!(known <= KEYS_MAX, "keys are bounded");
        let ends = self.pausing.front().zip(self.pausing.back());
        assert!(ends.is_none_or(|((first, _), (last, _))| first <= last), "the first pause ends first");
    }

    /// A fold is over.
    pub(crate) fn on_folded(&mut self, env: &mut Env, key: &Bytes, agreed: bool) {
        self.end(key, env.now());
        match agreed {
            true => env.counters.folds += 1,
            false => env.counters.folds_refused += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_proposed_once_and_then_left_alone() {
        let mut folds = ContextFolds::default();
        let (a, now) = (Bytes::from_static(b"a"), Monotonic(0));
        folds.propose(&a);
        folds.propose(&a);
        assert_eq!((folds.next(), folds.next()), (Some(a.clone()), None));
        folds.propose(&a);
        assert_eq!(folds.next(), None, "it is under way");
        folds.end(&a, now);
        folds.propose(&a);
        assert_eq!(folds.next(), None, "it pauses");
        folds.expire(now + PAUSE);
        folds.propose(&a);
        assert_eq!(folds.next(), Some(a));
    }

    #[test]
    fn keys_are_bounded() {
        let mut folds = ContextFolds::default();
        (0..2 * KEYS_MAX).for_each(|at| folds.propose(&Bytes::from(at.to_string())));
        assert_eq!(folds.keys.len(), KEYS_MAX);
        let begun = std::iter::from_fn(|| folds.next()).count();
        assert_eq!(begun, UNDER_WAY_MAX);
    }
}
