//! Tombstones that are to be reaped: when, and what each shard remembers of it.
//!
//! 1. A delete or a read that has seen all primaries agree on a tombstone proposes it ([`Shard::propose_reap`]).
//! 2. When it is old enough, and all members can be reached, a [`kv::Reap`] asks them all.
//! 3. What is refused stays until it is read again.
//!
//! What this shard sends is held against its graveyard here; what it stores and answers, by the coordinators.
//!
//! A partition that moves counts as holding something older: none of its tombstones is reaped meanwhile.
//!
//! In a cluster whose crashes may take what was acknowledged nothing is reaped: a node that lost the tombstone but not what
//! that had deleted would bring it back.

use super::work::{Coordinator, Work, placed};
use super::{Origin, Shard};
use base::Monotonic;
use bytes::Bytes;
use engine::Durability;
use kv::Ask;
use kv::reap::{GRAVE_TIME, Part, REAP_MAX, Reap, Round};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Tombstones that may wait until they are old enough: five thousand deletes a second for the default time. What is
/// dropped is proposed again when it is read.
const WAITING_MAX: usize = 16_384;

/// Reapings under way: enough to keep up with a shard's deletes, few enough that clients do not notice.
const UNDER_WAY_MAX: usize = 32;

/// What becomes of tombstones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaping {
    /// How long one is kept at least; `None`: for ever, and no other node may reap it either.
    pub delay: Option<Duration>,
    /// How long its grave is remembered, while the process is awake; longer than anything may be on its way.
    pub grave: Duration,
}

impl Reaping {
    /// With the default for graves.
    pub fn after(delay: Option<Duration>) -> Reaping {
        Reaping { delay, grave: GRAVE_TIME }
    }
}

/// What waits and what is under way.
#[derive(Default)]
pub(super) struct Reaper {
    /// When each is due, in order.
    waiting: VecDeque<(Monotonic, Bytes, Bytes)>,
    /// The keys of these and of those under way.
    keys: BTreeSet<Bytes>,
    under_way: usize,
}

impl Shard {
    /// All primaries have this tombstone.
    pub(super) fn propose_reap(&mut self, key: &Bytes, tombstone: Bytes) {
        let Some(delay) = self.config.reaping.delay.filter(|_| self.can_reap(key)) else { return };
        if self.reaper.keys.contains(key) {
            return;
        }
        self.counters.reaps_proposed += 1;
        if self.reaper.waiting.len() >= WAITING_MAX {
            self.counters.reaps_dropped += 1;
            return;
        }
        self.reaper.keys.insert(key.clone());
        self.reaper.waiting.push_back((self.config.clock.now() + delay, key.clone(), tombstone));
    }

    fn can_reap(&self, key: &[u8]) -> bool {
        self.peers.is_alone() || self.store.durability_of(key) == Durability::Sync
    }

    /// Begins reapings that are due, and forgets graves that are old enough.
    pub(super) fn tick_reaps(&mut self, now: Monotonic) {
        self.graveyard.tick(now);
        if self.graveyard.has_due() {
            let busy = self.objects.keys();
            self.graveyard.expire(|key| busy.contains(key));
        }
        while self.reaper.under_way < UNDER_WAY_MAX
            && let Some((_, key, tombstone)) = self.reaper.waiting.pop_front_if(|(due, ..)| *due <= now)
        {
            self.reaper.under_way += 1;
            self.begin_reap(key, tombstone);
        }
    }

    fn begin_reap(&mut self, key: Bytes, tombstone: Bytes) {
        let table = &self.table;
        let made = placed(&key)
            .ok()
            .and_then(|(prefix, bucket)| Some((prefix, Arc::clone(table.get_as_replica(&bucket).ok()?))));
        let all_up = self.peers.all_up() || base::planted!(DownMemberCountsAsYes);
        let made = made.filter(|(prefix, props)| !self.is_moving(*prefix, props.n_val));
        let Some((prefix, props)) = made.filter(|_| all_up) else { return self.on_reaped(&key, false) };
        let is_primary = self.other_primaries(prefix, props.n_val, self.peers.here()).is_none();
        let reap = Reap::new(tombstone, is_primary, self.config.members.others().collect());
        let deadline = self.config.clock.now() + REAP_MAX;
        let mut work = Work::new(Origin::Nobody, Coordinator::Reap(Box::new(reap)), key, props, deadline);
        // It asks the members of now.
        work.epoch = Some(self.moves.epoch());
        self.drive(None, work, kv::Event::Start);
    }

    /// A reaping is over.
    pub(super) fn on_reaped(&mut self, key: &Bytes, agreed: bool) {
        self.reaper.keys.remove(key);
        self.reaper.under_way -= 1;
        match agreed {
            true => self.counters.reaps += 1,
            false => self.counters.reaps_refused += 1,
        }
    }

    /// This node's part in a reaping of another's; `None` if it takes part in none.
    pub(super) fn reap_part(&self, round: Round, tombstone: Bytes, key: &[u8], n_val: u32) -> Option<Part> {
        let prefix = object::key::prefix_of(key);
        self.config.reaping.delay.filter(|_| self.can_reap(key) && !self.is_moving(prefix, n_val))?;
        let is_primary = self.other_primaries(prefix, n_val, self.peers.here()).is_none();
        Some(Part::new(round, tombstone, is_primary, self.config.members.others().collect()))
    }

    /// What is to be asked, without what was deleted by a tombstone that is remembered here.
    pub(super) fn without_reaped(&self, key: &Bytes, ask: Ask) -> Ask {
        let Ask::Merge { head, value, hints, reason } = ask else { return ask };
        // What cannot be read is for the receiver to refuse.
        match self.graveyard.join(key, &head, &value) {
            Ok(Some((head, value))) => Ask::Merge { head, value, hints, reason },
            Ok(None) | Err(_) => Ask::Merge { head, value, hints, reason },
        }
    }
}
