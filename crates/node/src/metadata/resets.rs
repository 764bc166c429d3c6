//! Resets of bucket properties: remembered until no member can have earlier properties of the bucket, then forgotten.
//!
//! A reset ends the properties that a bucket had. Forgotten while a member has not taken it, that member would bring
//! them back. The shard that keeps the properties therefore forgets a reset only after two confirmations by every
//! member:
//!
//! 1. A member *confirms* when its ping says that it has the same properties in force as this node, resets aside, and
//!    that all it knows is on its disk. This node has no properties of a bucket that is reset, so that member has none
//!    either.
//! 2. When all members have confirmed, they must confirm again after [`Reaping::grave`](crate::Reaping): longer than a
//!    message may be on its way. What was sent before the first confirmation has arrived by then, and the second one
//!    finds it.
//! 3. The resets that were known at the first confirmation are deleted from the disk, some each tick, and from the
//!    memory of all shards.
//!
//! A member that says something else confirms nothing by it; while changes go on that is common, and the earlier
//! confirmation holds for the changes that it was about. A member that is down or started again begins anew with its
//! first confirmation. Members whose program is older than version 8 of the protocol do not confirm. A node alone
//! forgets at once.
//!
//! A change of another node that cannot be written here holds in memory only. While there is one, this node confirms
//! nothing, and tries to write it again.
//!
//! Left out: a disk that is restored from a copy brings back properties that were reset since.

use super::keeper::{KEEPER, write_props};
use crate::hop::{Hop, ShardId};
use crate::peer::NodeId;
use crate::shard::env::Env;
use crate::shard::output::Output;
use base::Monotonic;
use engine::{Seq, Write};
use kv::PropsChange;
use kv::props::PropsSums;
use std::collections::BTreeMap;
use std::time::Duration;

/// Resets that are deleted in one tick: ten thousand are gone within seconds, and clients do not notice.
const FORGET_MAX: usize = 1_024;

/// Changes that are written again in one tick, where they could not be written before.
const REWRITE_MAX: usize = 64;

/// When a member last confirmed, and which changes.
#[derive(Clone, Copy, Debug)]
struct Confirmation {
    /// How many changes had been put in force here by then.
    applied: u64,
    at: Monotonic,
}

/// All members have confirmed once.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The changes that they have confirmed.
    applied: u64,
    since: Monotonic,
}

/// Who has confirmed, and the changes that are not on the disk.
#[derive(Debug, Default)]
pub(crate) struct ResetMemory {
    confirmed: BTreeMap<NodeId, Confirmation>,
    round: Option<Round>,
    /// By ledger key; with the position of the write, once it was written again.
    unkept: BTreeMap<Vec<u8>, (PropsChange, Option<Seq>)>,
}

impl ResetMemory {
    /// A member has said that it has the same properties as this node, after so many changes here.
    fn confirm(&mut self, node: NodeId, applied: u64, at: Monotonic) {
        self.confirmed.insert(node, Confirmation { applied, at });
    }

    /// A member has to confirm anew.
    pub(crate) fn revoke(&mut self, node: NodeId) {
        if self.confirmed.remove(&node).is_some() {
            self.round = None;
        }
    }

    /// How many of the changes here are confirmed by all of these members; `None` if one has confirmed nothing since
    /// `since`.
    fn confirmed_by(&self, members: impl Iterator<Item = NodeId>, since: Monotonic) -> Option<u64> {
        let mut all = u64::MAX;
        for node in members {
            let confirmation = self.confirmed.get(&node).filter(|it| it.at >= since)?;
            all = all.min(confirmation.applied);
        }
        Some(all)
    }

    /// A change holds in memory and could not be written.
    pub(crate) fn keep_later(&mut self, change: PropsChange) {
        self.unkept.insert(change.ledger_key(), (change, None));
    }

    /// Whether all that holds here is on the disk, or on its way to it.
    pub fn are_kept(&self) -> bool {
        self.unkept.is_empty()
    }

    /// A member has said what it knows.
    pub(crate) fn note_sums(&mut self, env: &mut Env, node: NodeId, theirs: PropsSums) {
        if theirs.sets.is_some() && theirs.is_kept && env.props.agrees(theirs) {
            self.confirm(node, env.props.applied(), env.now());
        }
    }

    /// Whether every member has confirmed the changes of now, so that a bucket without properties here has none
    /// anywhere.
    pub(crate) fn all_know_the_same(&self, env: &Env) -> bool {
        let confirmed = self.confirmed_by(env.peers.all(), Monotonic(0));
        env.peers.all_up() && confirmed.is_some_and(|applied| applied >= env.props.applied())
    }

    /// Forgets the resets that all members have confirmed twice.
    pub(crate) fn tick_resets(&mut self, env: &mut Env, now: Monotonic) {
        if env.knobs.id != KEEPER {
            return;
        }
        self.rewrite_unkept(env);
        if env.props.resets() == 0 {
            self.round = None;
            return;
        }
        if !env.peers.all_up() {
            return;
        }
        let grave = if env.peers.is_alone() { Duration::ZERO } else { env.knobs.reaping.grave };
        let Some(round) = self.round else {
            let confirmed = self.confirmed_by(env.peers.all(), Monotonic(0));
            let round =
                confirmed.map(|applied| Round { applied: applied.min(env.props.applied()), since: now });
            self.round = round;
            return;
        };
        let is_over = now.since(round.since) >= grave;
        let again = self.confirmed_by(env.peers.all(), round.since + grave);
        if is_over && again.is_some_and(|applied| applied >= round.applied) {
            self.forget_resets(env, round.applied);
        }
    }

    fn forget_resets(&mut self, env: &mut Env, applied: u64) {
        let due = env.props.resets_up_to(applied, FORGET_MAX);
        if due.is_empty() {
            self.round = None;
            return;
        }
        let keys: Vec<Vec<u8>> = due.iter().map(PropsChange::ledger_key).collect();
        let deletes: Vec<Write<'_>> = keys.iter().map(|key| Write::Delete { key }).collect();
        // A store that takes no writes for now is asked again at the next tick.
        if env.store.write(&deletes).is_err() {
            return;
        }
        due.iter().for_each(|reset| env.props.forget(reset));
        for shard in (0..env.knobs.layout.shards).map(ShardId).filter(|&shard| shard != KEEPER) {
            env.out.push(Output::Hop { to: shard, message: Hop::ForgetResets { resets: due.clone() } });
        }
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        let applied = env.props.applied();
        assert!(
            self.round.is_none_or(|round| round.applied <= applied),
            "a round is of changes that are known"
        );
        let confirmed = self.confirmed.values();
        assert!(confirmed.map(|it| it.applied).all(|it| it <= applied), "so are confirmations");
        assert!(!self.confirmed.contains_key(&env.peers.here()), "other members confirm");
        assert!(self.unkept.is_empty() || env.knobs.id == KEEPER, "one shard writes changes");
    }

    /// Writes again the changes that could not be written, as they are in force now.
    fn rewrite_unkept(&mut self, env: &mut Env) {
        if self.unkept.is_empty() {
            return;
        }
        let (acknowledged, held_up) = (env.store.acknowledged(), env.store.held_up().is_some());
        self.unkept.retain(|_, (_, written)| written.is_none_or(|seq| seq > acknowledged));
        if held_up || env.store.refuses_writes().is_some() {
            self.unkept.values_mut().for_each(|(_, written)| *written = None);
            return;
        }
        let due = self.unkept.values().filter(|(_, written)| written.is_none());
        let due: Vec<PropsChange> = due.map(|(change, _)| change.clone()).take(REWRITE_MAX).collect();
        for change in due {
            let Some(current) = env.props.in_force(&change) else { continue };
            let Ok(seq) = write_props(env, &current) else { return };
            self.unkept.insert(current.ledger_key(), (current, Some(seq)));
        }
    }
}
