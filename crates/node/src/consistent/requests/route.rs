//! The way of a request to the leader of its group.
//!
//! 1. If this store leads and is ready, the request is served here.
//! 2. If another one leads, a follower here serves reads, which the leader confirms, unless leaders have leases.
//!    Writes, and other reads, go to the leader's node. A node without a voter of the group asks the voters in turn.
//! 3. If no leader is known, the first voter of the list that can be reached is to lead from the begin on: the request
//!    goes there once, opens the group, and waits for its election. If that voter is here, the next one is asked once:
//!    after a start of this node it may lead, and is to tell of that later. A leader that it names is asked, too.
//! 4. Without a leader that reaches a majority the request waits until there is one, for a while or until its deadline.
//!
//! A request of another node that came to a store which does not lead goes back with the leader's name. Where no leader
//! is known it waits once, so that an election of this store can serve it.
//!
//! Invariant: a request that waits was not proposed, so it may end as *unavailable*.

use strong::group::{Input, StrongReads};

use crate::consistent::group::HeldGroup;
use crate::consistent::pending::Pending;
use crate::consistent::reach::Reachability;
use crate::consistent::voters::voters;
use crate::consistent::work::GroupWork;
use crate::peer::{LeaderAnswer, NodeId, PeerMessage};
use crate::shard::env::Env;
use crate::shard::reply_to::ReplyTo;

/// Hints at another leader that a request follows at once, before it waits: leaders change seldom.
const HINTS_MAX: u32 = 3;

/// The next step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::consistent) enum Route {
    /// The group here executes it.
    Serve,
    /// The group here, which follows, executes it, and its leader confirms it.
    ServeAsFollower,
    /// A node is asked.
    Ask(NodeId),
    /// It goes back to the node that it came from, with the leader's name.
    Refuse(Option<NodeId>),
    /// It waits for a leader.
    Wait,
}

/// Finds the way of a request. `held`: its group, if this store takes part in it, and whether it was opened for the
/// request.
pub(in crate::consistent) fn route(
    env: &Env,
    reach: &Reachability,
    work: &mut GroupWork,
    held: Option<(&HeldGroup, bool)>,
    pending: &mut Pending,
) -> Route {
    let is_asked = pending.is_asked();
    let Some((held, is_opened)) = held else {
        if is_asked {
            return Route::Refuse(None);
        }
        return match voter_to_ask(env, reach, pending) {
            Some(node) if pending.asked < HINTS_MAX => Route::Ask(node),
            _ => Route::Wait,
        };
    };
    if held.group.leads() {
        let is_early = match pending.request.writes() {
            true => base::planted!(ConditionBeforeNoop),
            false => base::planted!(ReadBeforeNoop),
        };
        let is_ready = (held.group.can_serve() || is_early) && !held.is_held();
        return if is_ready { Route::Serve } else { Route::Wait };
    }
    if held.group.leader().is_none() {
        return seek(env, reach, work, (held, is_opened), pending);
    }

    // The group of a dead leader is told at a pace, and its requests do not wait for that.
    let leader = held.group.leader().filter(|leader| held.group.reaches(*leader));
    let leader = leader.filter(|leader| reach.reaches(env, pending.group, *leader));
    let leader = leader.map(|leader| leader.node);
    match leader.filter(|_| pending.asked < HINTS_MAX) {
        _ if is_asked => Route::Refuse(leader),
        Some(_) if pending.asked == 0 && pending.is_read() && reads_as_follower(env, held) => {
            Route::ServeAsFollower
        }
        Some(leader) => Route::Ask(leader),
        None => Route::Wait,
    }
}

/// Has the first voter of the list that can be reached lead a group without a leader that is known here.
fn seek(
    env: &Env,
    reach: &Reachability,
    work: &mut GroupWork,
    (held, is_opened): (&HeldGroup, bool),
    pending: &mut Pending,
) -> Route {
    let (key, here, is_asked) = (pending.group, held.voter, pending.is_asked());
    let is_first_try = !std::mem::replace(&mut pending.has_sought, true);
    let reached = || held.voters.iter().copied().filter(|voter| reach.reaches(env, key, *voter));
    let is_here = reached().next() == Some(here);
    let mut others = reached().filter(|voter| *voter != here).map(|voter| voter.node);
    // A node that was asked may have named a leader.
    let named = pending.hint.filter(|_| pending.asked < HINTS_MAX);
    let named = named.filter(|named| others.clone().any(|other| other == *named));
    let other = named.or_else(|| others.next().filter(|_| is_first_try));

    if is_here && is_opened {
        work.step(key, Input::Wanted);
    }
    match other {
        _ if is_asked && !(is_here && is_first_try) => Route::Refuse(None),
        Some(node) if !is_asked => Route::Ask(node),
        _ => Route::Wait,
    }
}

/// The node that a request without a voter here asks next.
fn voter_to_ask(env: &Env, reach: &Reachability, pending: &Pending) -> Option<NodeId> {
    let voters = voters(env, pending.group)?;
    let reached = voters
        .iter()
        .filter(|voter| voter.node != env.peers.here() && reach.reaches(env, pending.group, **voter));
    let reached: Vec<NodeId> = reached.map(|voter| voter.node).collect();
    let hint = pending.hint.filter(|hint| reached.contains(hint));
    hint.or_else(|| reached.get(pending.turn as usize % reached.len().max(1)).copied())
}

/// Whether a follower serves a read that its leader confirms. With leases the leader needs one lookup and no step of
/// its group, so the read goes there: it costs no more messages than the question would.
fn reads_as_follower(env: &Env, held: &HeldGroup) -> bool {
    env.leases.reads == StrongReads::Ask && held.serves_reads()
}

/// Sends a request of another node back: nothing was done.
pub(in crate::consistent) fn refuse(env: &mut Env, pending: &Pending, leader: Option<NodeId>) {
    if let ReplyTo::Leader(to, id) = pending.reply_to {
        env.send(to, PeerMessage::LeaderAnswer { id, answer: LeaderAnswer::NotLeader { leader } });
    }
}
