//! Liveness: which other nodes can be reached, and how busy they are.
//!
//! This shard pings peers. A peer is *up* while it answers: an answer proves both ways between the two, as a request
//! needs them; a third node's way to it would not help. A peer is *down* when its link is, or when it has left
//! questions unanswered for 1.5 s.
//!
//! 1. A peer that this shard has had to do with lately, or that has not answered, is pinged every 250 ms.
//! 2. The others are pinged in turn, a few every second: an idle node costs its wake-ups, and each ping is two. Peers
//!    that are down are pinged in turn as well, a few every 250 ms.
//! 3. A peer that is said to be down ([`doubt`]), or that speaks as another process than before, is pinged at
//!    once.
//! 4. A peer that says that it stops ([`Load::STOPPING`]), in a message that names its process, is not chosen any more,
//!    and answers earlier questions: it *can be reached* until its link is down, and counts for no quorum.
//! 5. Pings and pongs carry the promises between the two processes (`promises.rs`).
//!
//! Invariant: silence counts from a question, so a peer that is asked seldom does not count as silent the sooner.
//!
//! Left out: membership ([`crate::topology`]), and the view of other nodes.

pub(crate) mod lease_config;
pub(crate) mod peers;
pub(crate) mod promises;

use crate::peer::{AskId, Load, NodeId, PeerMessage};
use crate::shard::effect::Effect;
use crate::shard::env::Env;
use base::Monotonic;
use kv::props::PropsSums;
use peers::SignOfLife;

/// Sums over the bucket properties that are known here, which each ping tells.
pub(crate) type Sums<'a> = &'a dyn Fn(&Env) -> Option<PropsSums>;

/// Pings those that are due, and counts those as down that have been silent.
pub(crate) fn tick(env: &mut Env, props: Sums<'_>, now: Monotonic) {
    env.peers.look(now);
    env.peers.due(now).into_iter().for_each(|node| ping(env, props, node));
    env.peers.silent(now).into_iter().for_each(|node| on_down(env, node));
}

fn ping(env: &mut Env, props: Sums<'_>, to: NodeId) {
    let (id, life, load) = (env.ping_id(), env.peers.life(), env.gauges.reported_load());
    let (props, now) = (props(env), env.now());
    env.peers.note_asked(to, now);
    let promise = promises::ping_block_to(env, to, env.peers.life_of(to));
    env.send(to, PeerMessage::Ping { id, life, load, props, promise });
}

/// Pings all that can be reached, which so hear what this shard says of itself.
pub(crate) fn ping_all(env: &mut Env, props: Sums<'_>) {
    env.peers.reached().into_iter().for_each(|node| ping(env, props, node));
}

/// Another source says that a peer is not there, or not the one it was. Only its answers to this shard count: it is
/// pinged, and often until it answers or is silent.
pub(crate) fn doubt(env: &mut Env, props: Sums<'_>, node: NodeId) {
    if env.peers.is_unasked(node) {
        ping(env, props, node);
    }
}

/// A link to another node is there, or is no more. Without links, as in simulation, silence tells.
pub(crate) fn link(env: &mut Env, props: Sums<'_>, node: NodeId, is_up: bool) {
    match is_up {
        true => ping(env, props, node),
        false => on_down(env, node),
    }
}

/// Answers a ping.
pub(crate) fn on_ping(
    env: &mut Env,
    props: Sums<'_>,
    (from, id): (NodeId, AskId),
    (their_life, their_load): (u64, Load),
    theirs: Option<PropsSums>,
) {
    let (life, load) = (env.peers.life(), env.gauges.reported_load());
    let promise = promises::ping_block_to(env, from, their_life);
    let pong = PeerMessage::Pong { id, life, load, props: props(env), promise };
    env.send(from, pong);

    match env.peers.life_if_up(from) {
        Some(life) if life == their_life => {
            env.peers.note_ping(from, their_load, theirs);
            env.raise(Effect::PropsKnown { node: from, sums: theirs });
        }
        // It was started again, unless this is late.
        Some(_) => doubt(env, props, from),
        None => {}
    }
}

/// Takes the answer to a ping.
pub(crate) fn on_pong(env: &mut Env, from: NodeId, life: u64, load: Load, theirs: Option<PropsSums>) {
    env.peers.note_pong(from, theirs);
    on_sign_of_life(env, from, Some(life), Some(load));
    env.raise(Effect::PropsKnown { node: from, sums: theirs });
}

/// A peer has answered something.
pub(crate) fn on_sign_of_life(env: &mut Env, node: NodeId, life: Option<u64>, load: Option<Load>) {
    let sign = env.peers.note_alive(node, life, load);
    if sign == SignOfLife::Restarted {
        env.raise(Effect::QuestionsLost(node));
    }
    if sign != SignOfLife::Known {
        let compares_props = env.peers.compares_props(node);
        env.raise(Effect::PeerUp { node, compares_props });
    }
}

fn on_down(env: &mut Env, node: NodeId) {
    if env.peers.set_down(node) {
        env.raise(Effect::PeerDown(node));
        env.raise(Effect::QuestionsLost(node));
    }
}
