//! Bucket properties and bucket types: changes and their spread to all shards and nodes, their sync, and resets.
//!
//! 1. [`spread`]: the keeper decides what the properties will be, writes the change, and tells all.
//! 2. [`sync`]: nodes that find that they know different properties tell each other the rest.
//! 3. [`resets`]: a reset is remembered until no member can have earlier properties of the bucket.
//!
//! The properties in force are in the environment, as all components read them.

pub(crate) mod keeper;
pub(crate) mod resets;
pub(crate) mod spread;
pub(crate) mod sync;

use crate::hop::{Hop, RequestTimes, ShardId};
use crate::peer::{AskId, NodeId};
use crate::shard::env::Env;
use crate::shard::output::Output;
use crate::shard::reply_to::ReplyTo;
use base::Monotonic;
use bytes::Bytes;
use keeper::KEEPER;
use kv::props::PropsSums;
use kv::{Bucket, Error, Prop, PropsChange, Request, TypeChange};
use resets::ResetMemory;
use spread::PropsSpread;
use sync::PropsSync;

/// The metadata of a shard: all of it at the keeper, the properties in force at others.
#[derive(Default)]
pub(crate) struct Metadata {
    spread: PropsSpread,
    sync: PropsSync,
    resets: ResetMemory,
}

impl Metadata {
    /// Changes a bucket's properties, or with `None` gives it its type's again.
    pub fn set_props(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        bucket: Bucket,
        changes: Option<Vec<Prop>>,
        times: RequestTimes,
    ) {
        if env.knobs.id != KEEPER {
            let request = match changes {
                Some(changes) => Request::SetProps(bucket, changes),
                None => Request::ResetProps(bucket),
            };
            return env.forward_to_shard(KEEPER, reply_to, request, times);
        }
        let all_agree = self.resets.all_know_the_same(env);
        let unkept = self.spread.set_props(env, reply_to, bucket, changes, all_agree, times.deadline);
        self.keep_later(unkept);
    }

    /// Creates, changes or activates a bucket type.
    pub fn change_type(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        name: Bytes,
        change: TypeChange,
        times: RequestTimes,
    ) {
        if env.knobs.id != KEEPER {
            return env.forward_to_shard(KEEPER, reply_to, Request::ChangeType(name, change), times);
        }
        let unkept = self.spread.change_type(env, reply_to, name, change, times.deadline);
        self.keep_later(unkept);
    }

    /// The keeper's change is in force from now on.
    pub fn on_props(&mut self, env: &mut Env, from: ShardId, change: u64, props: PropsChange) {
        env.version_clock.see(props.stamp(), env.clock.wall(), None);
        env.props.apply(props);
        env.out.push(Output::Hop { to: from, message: Hop::PropsInForce { change } });
    }

    /// The keeper has forgotten resets.
    pub fn on_forget_resets(&mut self, env: &mut Env, resets: &[PropsChange]) {
        resets.iter().for_each(|reset| env.props.forget(reset));
    }

    /// Another shard has a change in force.
    pub fn on_in_force(&mut self, env: &mut Env, change: u64) {
        self.spread.on_in_force(env, change);
    }

    /// Takes a change from another node.
    pub fn on_peer_props(&mut self, env: &mut Env, from: NodeId, id: AskId, change: PropsChange) {
        self.sync.note_told(env, from, env.props.is_news(&change));
        let unkept = self.spread.on_peer_props(env, from, id, change);
        self.keep_later(unkept);
    }

    /// Another node has a change in force.
    pub fn on_peer_in_force(&mut self, env: &mut Env, from: NodeId, id: u64) {
        if !self.spread.on_peer_in_force(env, from, id) {
            self.sync.on_told(env, from, id);
        }
    }

    /// Another node asks for the properties that it lacks.
    pub fn on_ask_props(&mut self, env: &mut Env, from: NodeId, leaves: &[u64]) {
        self.sync.on_ask_props(env, from, leaves);
    }

    /// A change may be acknowledged, or could not be written.
    pub fn on_written(&mut self, env: &mut Env, id: u64, result: Result<(), Error>) {
        let unkept = self.spread.on_written(env, id, result);
        self.keep_later(unkept);
    }

    /// Sums over the properties that are known here, for other nodes.
    pub fn known(&self, env: &Env) -> Option<PropsSums> {
        Some(env.props.sums(self.resets.are_kept() && self.spread.are_written()))
    }

    /// Another node has said what it knows.
    pub fn on_known(&mut self, env: &mut Env, node: NodeId, theirs: Option<PropsSums>) {
        if let Some(theirs) = theirs.filter(|_| env.knobs.id == KEEPER) {
            self.resets.note_sums(env, node, theirs);
        }
        self.sync.on_known_props(env, node, theirs);
    }

    /// A node can be reached. One that `compares` finds out by itself what it lacks.
    pub fn on_up(&mut self, env: &mut Env, node: NodeId, compares: bool) {
        self.sync.bring_props(env, node, compares);
    }

    /// A node cannot be reached any more.
    pub fn on_down(&mut self, node: NodeId) {
        self.sync.end_telling(node);
    }

    /// A node has forgotten its questions.
    pub fn fail(&mut self, env: &mut Env, node: NodeId) {
        self.sync.fail_asking(env, node);
        self.resets.revoke(node);
        self.spread.fail(env, node);
    }

    /// To be called a few times a second.
    pub fn tick(&mut self, env: &mut Env, now: Monotonic) {
        self.spread.tick(env, now);
        self.sync.tell_again(env, now);
        self.resets.tick_resets(env, now);
    }

    /// Answers clients whose changes are past their deadline.
    pub fn expire(&mut self, env: &mut Env, now: Monotonic) {
        self.spread.expire(env, now);
    }

    /// The deadlines of all changes.
    pub fn deadlines(&self) -> impl Iterator<Item = Monotonic> {
        self.spread.deadlines()
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        self.spread.invariants(env);
        self.resets.invariants(env);
    }

    fn keep_later(&mut self, change: Option<PropsChange>) {
        if let Some(change) = change {
            self.resets.keep_later(change);
        }
    }
}
