//! Comparison of objects with those of other nodes by trees of hashes, and repair of differences.
//!
//! 1. *Trees* are kept of all keys of this shard ([`Trees`]), and made anew from the heads now and then.
//! 2. *Exchanges* compare them with other nodes', and have keys that differ read ([`Exchanges`]).
//! 3. Keys whose values are found damaged here are read, too ([`HealQueue`]).
//!
//! Invariant: trees decide which keys are compared and nothing else. An object is changed by the reads of its key only.

pub(crate) mod change;
pub(crate) mod checkpoints;
pub(crate) mod compare;
pub(crate) mod exchange;
pub(crate) mod head_change;
pub(crate) mod heal;
pub(crate) mod kept;
pub(crate) mod n_vals;
pub(crate) mod parts;
pub(crate) mod rebuilds;
pub(crate) mod status;
pub(crate) mod trees;

use crate::peer::{AskId, NodeId};
use crate::shard::env::Env;
use crate::shard::owners::FoldOwner;
use base::Monotonic;
use engine::fold::{FoldEnd, FoldId, JournalCheck};
use exchange::Exchanges;
use head_change::HeadChange;
use heal::HealQueue;
use kv::Error;
use kv::aae::{TreeAnswer, TreeAsk};
use ring::Partition;
use status::TreesStatus;
use trees::Trees;

/// Anti-entropy of a shard.
#[derive(Default)]
pub(crate) struct AntiEntropy {
    trees: Trees,
    exchanges: Exchanges,
    heals: HealQueue,
}

impl AntiEntropy {
    /// Begins with the trees that an earlier process has left, if they are of use.
    pub fn begin(&mut self, env: &mut Env) {
        self.trees.begin(env);
    }

    /// The partitions, or the numbers of replicas, may have changed.
    pub fn look_at_partitions(&mut self, env: &mut Env) {
        self.trees.look_at_partitions(env);
    }

    /// Has keys that are damaged healed, and trees of lost keys made anew. To be called a few times a second.
    pub fn tick_heals(&mut self, env: &mut Env) {
        self.heals.tick(env);
        self.trees.rebuild_lost(env);
    }

    /// Begins rebuilds and exchanges that are due. To be called a few times a second.
    pub fn tick(&mut self, env: &mut Env, now: Monotonic) {
        self.trees.look_at_partitions(env);
        self.trees.look_at_timers(env, now);
        self.exchanges.tick(env, &mut self.trees, now);
    }

    /// Goes on with making trees. To be called once in a turn.
    pub fn make_trees(&mut self, env: &mut Env, now: Monotonic) {
        self.trees.make(env, self.heals.has_room(), now);
    }

    /// Goes on with exchanges. To be called once in a turn.
    pub fn take_turn(&mut self, env: &mut Env, now: Monotonic) {
        self.exchanges.take_turn(env, &mut self.trees, now);
    }

    /// Keeps trees on disk as of the memtables that were put aside. To be called at the end of a turn.
    pub fn keep_trees(&mut self, env: &mut Env) {
        self.trees.keep(env);
    }

    /// Takes the end of a fold, of which anti-entropy is the only user.
    pub fn on_fold(&mut self, env: &mut Env, id: FoldId, end: Result<FoldEnd, engine::Error>) {
        let Some(owner) = env.fold_owners.take(id) else { unreachable!("{id:?} was begun by a component") };
        match owner {
            FoldOwner::TreeReplay => self.trees.on_replayed(env, id, end),
            FoldOwner::TreeRebuild => {
                let damaged = self.trees.on_part(env, id, end);
                self.heals.want(damaged);
                self.make_trees(env, env.now());
            }
            FoldOwner::BranchKeys => self.exchanges.on_fold(env, &mut self.trees, id, end),
        }
    }

    /// A write has replaced a head.
    pub fn on_head_changed(&mut self, env: &mut Env, change: &HeadChange) {
        self.trees.on_head_changed(env, change);
    }

    /// A key that differs could be read.
    pub fn on_key_read(&mut self) {
        self.exchanges.note_repair(&mut self.trees);
    }

    /// A key that differs has been read, and its replicas were sent all that they lacked.
    pub fn on_key_repaired(&mut self) {
        self.exchanges.on_key_repaired();
    }

    /// Another node asks about trees.
    pub fn on_ask(&mut self, env: &mut Env, from: (NodeId, AskId), partitions: u32, ask: TreeAsk) {
        self.exchanges.on_ask(env, &mut self.trees, from, partitions, ask);
    }

    /// The answer to a question about trees.
    pub fn on_answer(&mut self, env: &mut Env, from: NodeId, id: u64, answer: Result<TreeAnswer, Error>) {
        self.exchanges.on_answer(env, &mut self.trees, from, id, answer);
    }

    /// Another node will not answer.
    pub fn fail(&mut self, env: &mut Env, node: NodeId) {
        self.exchanges.fail(env, node);
    }

    /// Has trees compared with other nodes' now. Tells of how many partitions.
    pub fn compare(&mut self, env: &Env, partition: Option<Partition>) -> usize {
        self.exchanges.compare(env, &self.trees, partition)
    }

    /// Has trees made anew, as soon as they can be. Tells of how many partitions.
    pub fn rebuild(&mut self, env: &Env, partition: Option<Partition>, check: JournalCheck) -> usize {
        self.trees.rebuild(env, partition, check)
    }

    /// How it stands with the trees of each partition.
    pub fn statuses(&self, env: &Env) -> Vec<TreesStatus> {
        let comparing = self.exchanges.under_way();
        self.trees.statuses(env, &comparing)
    }

    /// Partitions whose trees are yet to be made, or completed.
    pub fn due(&self) -> usize {
        self.trees.due()
    }

    /// Bytes of memory that trees take, and the keys in them.
    pub fn sizes(&self) -> (usize, u64) {
        self.trees.sizes()
    }

    /// The relations of its fields, and of the gauge.
    pub fn invariants(&self, env: &Env) {
        self.trees.invariants(env);
        self.exchanges.invariants(env);
        self.heals.invariants();
    }
}
