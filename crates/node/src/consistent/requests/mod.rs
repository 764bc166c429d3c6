//! The requests on keys of consistent types that this shard has.
//!
//! 1. A request looks for its leader ([`route`]). Without one it waits (`waiting.rs`).
//! 2. The node of the leader is asked (`asked.rs`), or the group here executes it (`serve.rs`, `served.rs`).
//! 3. A request that waits notes its stage, for the log of slow requests (`slow.rs`).
//!
//! Invariants: each request is answered once; one that waits for a leader was not proposed.

mod asked;
pub(super) mod route;
mod serve;
mod served;
mod slow;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use base::Monotonic;
use kv::{BucketProps, Error, Request};
use strong::Endpoint;
use strong::forward::{ForwardError, ForwardWindow};

use self::asked::{AskedRequests, is_over};
use self::served::ServedRequests;
use self::waiting::WaitingRequests;
use super::context::GroupContext;
use super::group::GroupKey;
use super::pending::Pending;
use super::voters::{endpoint_here, endpoint_of};
use super::work::{GroupWork, Todo};
use crate::frontdoor::slow::{SlowLooks, SlowStage};
use crate::hop::RequestTimes;
use crate::peer::{AskId, LeaderAnswer, NodeId, PeerMessage};
use crate::shard::env::Env;
use crate::shard::reply_to::ReplyTo;

/// The requests of a shard.
#[derive(Default)]
pub(super) struct GroupRequests {
    waiting: WaitingRequests,
    served: ServedRequests,
    asked: AskedRequests,
    /// When requests are looked at, to find those that have come to be slow.
    looks: SlowLooks,
    /// Writes that other nodes have passed on.
    window: ForwardWindow,
}

impl GroupRequests {
    /// Requests under way, but for those that wait for a lookup.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.served.len() + self.asked.len()
    }

    /// When a request has something to do.
    pub fn next_timer(&self) -> Option<Monotonic> {
        let timers = [self.waiting.next_timer(), self.asked.next_deadline(), self.looks.next()];
        timers.into_iter().flatten().min()
    }

    /// Whether requests wait for the leader of a group.
    pub fn wait_for(&self, key: GroupKey) -> bool {
        self.waiting.has(key)
    }

    /// Whether a group of this store executes a request.
    pub fn are_served_by(&self, key: GroupKey) -> bool {
        self.served.has_one_of(key)
    }

    /// Has a request wait for a leader, unless it has waited long enough; tells whether it does.
    pub fn wait(&mut self, env: &mut Env, mut pending: Pending) -> bool {
        let now = env.now();
        if pending.gives_up <= now {
            pending.reply(env, Err(Error::Unavailable));
            return false;
        }
        (pending.asked, pending.hint) = (0, None);
        self.note_wait(env, &mut pending, SlowStage::Leader);
        self.waiting.push(pending, now);
        true
    }

    /// Has the requests that wait for the leader of a group look for it again.
    pub fn look_for_leader(&mut self, key: GroupKey, work: &mut GroupWork) {
        self.waiting.take(key).into_iter().for_each(|pending| work.dispatch(pending));
    }

    /// Has all requests that wait look for a leader again.
    pub fn look_for_leaders(&mut self, work: &mut GroupWork) {
        self.waiting.take_all().into_iter().for_each(|pending| work.dispatch(pending));
    }

    /// The same where it is time for it. Those that have waited long enough end.
    pub fn retry_waiting(&mut self, env: &mut Env, work: &mut GroupWork, now: Monotonic) {
        if self.waiting.next_timer().is_none_or(|at| now < at) {
            return;
        }
        for pending in self.waiting.take_all() {
            match pending.gives_up <= now {
                true => pending.reply(env, Err(Error::Unavailable)),
                false => work.dispatch(pending),
            }
        }
    }

    /// Asks the node of a leader to execute a request; gives it back if the node has no registered process.
    pub fn ask(&mut self, env: &mut Env, to: NodeId, mut pending: Pending) -> Result<(), Box<Pending>> {
        let Some(there) = endpoint_of(env, to, pending.group.prefix) else { return Err(Box::new(pending)) };
        pending.asked += 1;
        self.note_wait(env, &mut pending, SlowStage::Replicas);
        pending.note_ask(env, to);
        let is_write = pending.request.writes();
        let number = is_write.then(|| (endpoint_here(env), self.asked.next_number(there)));
        let name = env.next_id();
        let (id, ttl_ms) = (env.ask_id(name), env.ttl_ms(pending.times.deadline));
        let request = Box::new(pending.request.clone());
        self.asked.insert(name, to, pending);
        env.counters.forwards += 1;
        env.send(to, PeerMessage::AskLeader { id, ttl_ms, life: there.life, number, request });
        Ok(())
    }

    /// Takes the answer of a node that was asked; tells whether a request has waited for it.
    pub fn on_answer(
        &mut self,
        cx: &mut GroupContext<'_>,
        from: NodeId,
        name: u64,
        answer: LeaderAnswer,
    ) -> bool {
        let Some(mut pending) = self.asked.take(from, name) else { return false };
        pending.note_answer(cx.env, from);
        match answer {
            LeaderAnswer::Done(result) => pending.reply(cx.env, *result),
            LeaderAnswer::NotLeader { leader } => {
                pending.hint = leader.filter(|leader| *leader != from);
                pending.turn += u32::from(pending.hint.is_none());
                // A name is followed where no leader is known.
                let held = cx.groups.get(pending.group);
                let knows_none = held.is_none_or(|held| held.group.leader().is_none());
                let follows = |hint| hint == cx.env.peers.here() || knows_none;
                let next = if pending.hint.is_some_and(follows) { Todo::Dispatch } else { Todo::Wait };
                cx.work.do_next(next(Box::new(pending)));
            }
        }
        true
    }

    /// A node has lost the questions that it was asked. A write may have been executed.
    pub fn on_lost(&mut self, env: &mut Env, work: &mut GroupWork, node: NodeId) {
        self.ask_others(env, work, node);
        for mut pending in self.asked.take_of(node, Request::writes) {
            pending.note_answer(env, node);
            pending.reply(env, Err(Error::Timeout));
        }
        let lives = self.asked.lives();
        let has_ended = |life: &u64| env.peers.all().all(|node| is_over(env, node, *life));
        for life in lives.into_iter().filter(has_ended) {
            self.asked.forget_life(life);
            self.window.retire(life);
        }
    }

    /// Lets the reads that a node has look for another leader. A late answer of the node is dropped.
    pub fn ask_others(&mut self, env: &Env, work: &mut GroupWork, node: NodeId) {
        for mut read in self.asked.take_of(node, |request| !request.writes()) {
            read.note_answer(env, node);
            work.dispatch(read);
        }
    }

    /// Ends requests past their deadline: another node may have executed them. Tells whether nodes were asked for some.
    pub fn expire(&mut self, env: &mut Env, now: Monotonic) -> bool {
        let have_asked = self.asked.len() > 0;
        while let Some(pending) = self.asked.take_expired(now) {
            let error = if pending.request.writes() { Error::Timeout } else { Error::Unavailable };
            pending.reply(env, Err(error));
        }
        have_asked
    }

    /// Admits a request of another node, which takes this one for the leader's. It is answered here, or dropped, if it
    /// is none to be executed.
    pub fn admit(
        &mut self,
        env: &mut Env,
        (from, id): (NodeId, AskId),
        (ttl_ms, life): (u32, u64),
        number: Option<(Endpoint, u64)>,
        request: Request,
    ) -> Option<Pending> {
        if life != env.peers.life() {
            // An earlier process was asked, and may have executed it.
            return None;
        }
        if number.is_some_and(|(origin, _)| is_over(env, from, origin.life)) {
            // Its numbers may be forgotten, and nobody waits for the answer.
            return None;
        }
        let now = env.now();
        let deadline = now + Duration::from_millis(ttl_ms.into());
        let reply_to = ReplyTo::Leader(from, id);
        let admitted = match number {
            Some((origin, number)) => self.window.admit(origin, number, deadline, now),
            None if request.writes() => Err(ForwardError::Seen),
            None => Ok(()),
        };
        let place = match admitted {
            Ok(()) => place_here(env, &request),
            // It was not seen before.
            Err(ForwardError::Full) => None,
            Err(ForwardError::Seen | ForwardError::Late) => return None,
        };
        let Some((prefix, props)) = place else {
            // Nothing was done.
            env.reply(reply_to, Err(Error::Unavailable));
            return None;
        };
        let times = RequestTimes { came: now, deadline };
        Some(Pending::begin(env, reply_to, request, prefix, props, times))
    }
}

/// The prefix of a request's key, and the properties of its bucket, if this shard has the key and knows of its
/// consistent type.
fn place_here(env: &Env, request: &Request) -> Option<(u16, Arc<BucketProps>)> {
    let (bucket, key) = request.bucket().zip(request.key())?;
    let (prefix, shard) = env.place(bucket, key);
    let props = env.props.get(bucket).map(Arc::clone).ok()?;
    (props.consistent && shard == env.knobs.id).then_some((prefix, props))
}
