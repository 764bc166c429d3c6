//! Tombstones that are to be reaped: when, and what each shard remembers of it.
//!
//! 1. A delete or a read that has seen all primaries agree on a tombstone proposes it.
//! 2. When it is old enough, at once if there is no delay, and all members can be reached, a [`kv::Reap`] asks them
//!    all.
//! 3. A tombstone that took the place of one which waits, or is being reaped, is reaped in its turn.
//! 4. A sweep finds refused and dropped tombstones again (`sweeper.rs`).
//!
//! What this shard sends is held against its graveyard here; what it stores and answers, by the coordinators.
//!
//! A partition that moves counts as holding something older: none of its tombstones is reaped meanwhile.
//!
//! In a cluster whose crashes may take what was acknowledged nothing is reaped: a node that lost the tombstone but not
//! what that had deleted would bring it back.

use crate::request::task::{Coordinator, Task, placed};
use crate::shard::effect::Effect;
use crate::shard::env::Env;
use crate::shard::reply_to::ReplyTo;
use base::Monotonic;
use bytes::Bytes;
use kv::reap::{Part, REAP_MAX, Reap, Round};
use object::HeadView;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Tombstones that may wait until they are old enough: five thousand deletes a second for the default time. What is
/// dropped is found by the next sweep, or proposed again when it is read.
const WAITING_MAX: usize = 16_384;

/// Reapings under way: enough to keep up with a shard's deletes, few enough that clients do not notice.
const UNDER_WAY_MAX: usize = 32;

/// What waits and what is under way.
#[derive(Default)]
pub(crate) struct Reaper {
    /// When each is due, in order; one whose tombstone was replaced since comes again.
    waiting: VecDeque<(Monotonic, Bytes)>,
    /// These and those under way, by key.
    proposals: BTreeMap<Bytes, Proposal>,
    under_way: usize,
}

/// A tombstone that is to be reaped.
struct Proposal {
    tombstone: Bytes,
    due: Monotonic,
    is_under_way: bool,
    /// The tombstone that took its place meanwhile, and when that is due.
    newer: Option<(Bytes, Monotonic)>,
}

impl Reaper {
    /// Whether a tombstone of this key waits or is being reaped.
    pub fn knows(&self, key: &Bytes) -> bool {
        self.proposals.contains_key(key)
    }

    /// Whether sweeps may add to those that wait: deletes have the other half.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX / 2
    }

    /// Takes a tombstone that is to be reaped from `due` on; false if too many wait.
    fn propose(&mut self, key: &Bytes, tombstone: Bytes, due: Monotonic) -> bool {
        match self.proposals.get_mut(key) {
            Some(known) if known.tombstone == tombstone => {}
            Some(known) if known.is_under_way => known.newer = Some((tombstone, due)),
            Some(known) => (known.tombstone, known.due) = (tombstone, due),
            None if self.waiting.len() >= WAITING_MAX => return false,
            None => {
                let proposal = Proposal { tombstone, due, is_under_way: false, newer: None };
                self.proposals.insert(key.clone(), proposal);
                self.waiting.push_back((due, key.clone()));
            }
        }
        true
    }

    /// The next one that is due; it is under way from now on.
    fn begin_next(&mut self, now: Monotonic) -> Option<(Bytes, Bytes)> {
        while let Some((_, key)) = self.waiting.pop_front_if(|(due, _)| *due <= now) {
            let proposal = self.proposals.get_mut(&key).expect("what waits is a proposal");
            if proposal.due > now {
                self.waiting.push_back((proposal.due, key));
                continue;
            }
            proposal.is_under_way = true;
            self.under_way += 1;
            return Some((key, proposal.tombstone.clone()));
        }
        None
    }

    /// One is over. The tombstone that took its place waits now.
    fn end(&mut self, key: &Bytes) {
        self.under_way -= 1;
        let ended = self.proposals.remove(key);
        if let Some((tombstone, due)) = ended.and_then(|proposal| proposal.newer) {
            let proposal = Proposal { tombstone, due, is_under_way: false, newer: None };
            self.proposals.insert(key.clone(), proposal);
            self.waiting.push_back((due, key.clone()));
        }
    }

    /// When the next may begin, unless it waits for one that is under way to end.
    pub(crate) fn next_due(&self) -> Option<Monotonic> {
        self.waiting.front().map(|(due, _)| *due).filter(|_| self.under_way < UNDER_WAY_MAX)
    }

    /// All primaries have this tombstone. False if it was dropped, as too many wait.
    pub fn propose_reap(&mut self, env: &mut Env, key: &Bytes, tombstone: Bytes) -> bool {
        let Some(delay) = env.knobs.reaping.delay.filter(|_| env.can_reap(key)) else { return true };
        let now = env.now();
        env.counters.reaps_proposed += u64::from(!self.knows(key));
        let is_kept = self.propose(key, tombstone, now + delay);
        env.counters.reaps_dropped += u64::from(!is_kept);
        // Without a delay it is gone before the client that has deleted it can write the key again.
        match delay.is_zero() {
            true => self.begin_reaps(env, now),
            false => env.deadlines.note(now + delay),
        }
        is_kept
    }

    /// Begins reapings that are due: between ticks while no clients are served.
    pub(crate) fn go_on_reaping(&mut self, env: &mut Env, now: Monotonic) {
        if !self.waiting.is_empty() && !env.activity.yields(now) {
            self.begin_reaps(env, now);
        }
    }

    /// Begins reapings that are due.
    pub(crate) fn begin_reaps(&mut self, env: &mut Env, now: Monotonic) {
        // Those that are over at once count too.
        for _ in 0..UNDER_WAY_MAX {
            if self.under_way >= UNDER_WAY_MAX {
                return;
            }
            let Some((key, tombstone)) = self.begin_next(now) else { return };
            self.begin_reap(env, key, tombstone);
        }
    }

    fn begin_reap(&mut self, env: &mut Env, key: Bytes, tombstone: Bytes) {
        let table = &env.props;
        let made = placed(&key)
            .ok()
            .and_then(|(prefix, bucket)| Some((prefix, Arc::clone(table.get_as_replica(&bucket).ok()?))));
        let all_up = env.peers.all_up() || base::planted!(DownMemberCountsAsYes);
        let made = made.filter(|(prefix, props)| !env.ownership().is_moving(*prefix, props.n_val));
        let Some((prefix, props)) = made.filter(|_| all_up) else {
            return env.raise(Effect::Reaped { key, is_agreed: false });
        };
        let is_primary = env.ownership().is_primary(prefix, props.n_val);
        let reap = Reap::new(tombstone, is_primary, env.topology.members.others().collect());
        let deadline = env.now() + REAP_MAX;
        let mut work = Task::new(ReplyTo::Nobody, Coordinator::Reap(Box::new(reap)), key, props, deadline);
        // It asks the members of now.
        work.epoch = Some(env.topology.epoch);
        env.start(work);
    }

    /// A reaping is over.
    pub(crate) fn on_reaped(&mut self, env: &mut Env, key: &Bytes, agreed: bool) {
        self.end(key);
        if env.knobs.reaping.delay.is_some_and(|delay| delay.is_zero())
            && let Some(due) = self.next_due()
        {
            env.deadlines.note(due);
        }
        match agreed {
            true => env.counters.reaps += 1,
            false => env.counters.reaps_refused += 1,
        }
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self) {
        let known = self.waiting.len() + self.under_way;
        assert_eq!(self.proposals.len(), known, "a proposal waits or is under way");
        assert!(self.under_way <= UNDER_WAY_MAX, "few are under way");
        let begun = self.proposals.values().filter(|proposal| proposal.is_under_way).count();
        assert_eq!(begun, self.under_way, "those under way are known as such");
        let mut newer = self.proposals.values().filter(|proposal| proposal.newer.is_some());
        debug_assert!(newer.all(|proposal| proposal.is_under_way), "a tombstone that waits is the newest");
        assert!(known <= WAITING_MAX + UNDER_WAY_MAX, "proposals are bounded");
    }
}

/// This node's part in a reaping of another's; `None` if it takes part in none.
pub(crate) fn part(env: &Env, round: Round, tombstone: Bytes, key: &[u8], n_val: u32) -> Option<Part> {
    let prefix = object::key::prefix_of(key);
    // A context is folded also where tombstones are kept for ever.
    let is_fold = HeadView::parse(&tombstone).is_ok_and(|head| !head.is_tombstone());
    let takes_part = is_fold || env.knobs.reaping.delay.is_some();
    if !takes_part || !env.can_reap(key) || env.ownership().is_moving(prefix, n_val) {
        return None;
    }
    let is_primary = env.ownership().is_primary(prefix, n_val);
    Some(Part::new(round, tombstone, is_primary, env.topology.members.others().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn a_newer_tombstone_takes_the_place_of_one_that_waits() {
        let mut reaper = Reaper::default();
        assert!(reaper.propose(&name("k"), name("old"), at(3)));
        assert!(reaper.propose(&name("other"), name("t"), at(4)));
        assert!(reaper.propose(&name("k"), name("new"), at(5)));
        assert!(reaper.propose(&name("k"), name("new"), at(9)), "the same again changes nothing");
        assert_eq!(reaper.begin_next(at(3)), None, "it is kept as long as any");
        assert_eq!(reaper.begin_next(at(4)), Some((name("other"), name("t"))));
        assert_eq!(reaper.begin_next(at(5)), Some((name("k"), name("new"))));
        reaper.end(&name("k"));
        reaper.end(&name("other"));
        assert_eq!((reaper.begin_next(at(100)), reaper.under_way, reaper.proposals.len()), (None, 0, 0));
    }

    #[test]
    fn a_newer_tombstone_is_reaped_after_one_that_is_under_way() {
        let mut reaper = Reaper::default();
        reaper.propose(&name("k"), name("old"), at(3));
        assert_eq!(reaper.begin_next(at(3)), Some((name("k"), name("old"))));
        reaper.propose(&name("k"), name("old"), at(4));
        reaper.propose(&name("k"), name("new"), at(6));
        reaper.propose(&name("k"), name("old"), at(7));
        assert!(reaper.knows(&name("k")));
        reaper.end(&name("k"));
        assert_eq!(reaper.begin_next(at(5)), None);
        assert_eq!(reaper.begin_next(at(6)), Some((name("k"), name("new"))));
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut reaper = Reaper::default();
        let key = |at: usize| Bytes::from(at.to_string());
        assert!((0..WAITING_MAX).all(|at| reaper.propose(&key(at), name("t"), Monotonic(0))));
        assert!(!reaper.propose(&key(WAITING_MAX), name("t"), Monotonic(0)));
        assert!(reaper.propose(&key(7), name("newer"), Monotonic(0)), "what waits already has its place");
        assert!(!reaper.has_room());
    }
}
