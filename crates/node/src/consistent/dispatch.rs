//! The way of a request to the leader of its group.
//!
//! 1. If this store leads and is ready, the request is served here.
//! 2. If another one leads, a follower here serves reads, which the leader confirms, unless leaders have leases.
//!    Writes, and other reads, go to the leader's node. A node without a voter of the group asks the voters in turn.
//! 3. If no leader is known, the first voter of the list that can be reached is to lead from the begin on: the request
//!    goes there once, opens the group, and waits for its election. If that voter is here, the next one is asked once:
//!    after a start of this node it may lead, and is to tell of that later. A leader that it names is asked, too.
//! 4. Without a leader that reaches a majority the request waits until there is one, for [`LEADER_WAIT_MAX`] or until
//!    its deadline.
//!
//! A request of another node that came to a store which does not lead goes back with the leader's name. Where no leader
//! is known it waits once, so that an election of this store can serve it.
//!
//! Invariant: a request that waits was not proposed, so it may end as *unavailable*.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base::Monotonic;
use kv::{BucketProps, Error, Request, Response};
use strong::group::{Input, StrongReads};
use strong::wake::Urgency;

use super::group::{GroupKey, HeldGroup};
use super::{ConsistentGroups, Todo};
use crate::frontdoor::latency::Timed;
use crate::frontdoor::slow::{SlowStage, StageClock};
use crate::hop::RequestTimes;
use crate::peer::{LeaderAnswer, NodeId, PeerMessage};
use crate::request::place::Ready;
use crate::shard::env::Env;
use crate::shard::reply_to::ReplyTo;

/// The longest wait for a leader: a death is noticed in 1.5 s, and an election takes well below a second.
pub(super) const LEADER_WAIT_MAX: Duration = Duration::from_secs(10);

/// Interval at which requests without a leader look for one again: the first election of a group takes as long.
const RETRY_EVERY: Duration = Duration::from_millis(50);

/// Hints at another leader that a request follows at once, before it waits: leaders change seldom.
const HINTS_MAX: u32 = 3;

/// A request on its way.
pub(super) struct Pending {
    pub reply_to: ReplyTo,
    pub request: Request,
    pub props: Arc<BucketProps>,
    pub group: GroupKey,
    /// When it came to this node, and when its client stops waiting.
    pub times: RequestTimes,
    /// When it was begun here.
    pub begun: Monotonic,
    /// When it ends without a leader.
    pub gives_up: Monotonic,
    /// The node that another one has named as the leader.
    pub hint: Option<NodeId>,
    /// Nodes that were asked since it waited last.
    pub asked: u32,
    /// Voters that were asked and knew no leader. Another one is asked next: a voter without a link to the leader does
    /// not hear of it.
    pub turn: u32,
    /// The first voter of the list was asked to lead.
    pub has_sought: bool,
    /// Its stages, from its first wait on.
    pub stages: Option<Box<StageClock>>,
    /// Whether a line says that it is slow.
    pub is_slow: bool,
}

impl Pending {
    /// Whether it is of another node, which takes this one for the leader's.
    fn is_asked(&self) -> bool {
        matches!(self.reply_to, ReplyTo::Leader(..))
    }

    /// Answers it. Its time counts where its client is, and not at the leader that was asked for it.
    pub fn reply(&self, env: &mut Env, result: Result<Response, Error>) {
        let now = env.now();
        if !self.is_asked() {
            let timed = match self.request {
                Request::Get(_) => Timed::ConsistentGet,
                _ => Timed::ConsistentPut,
            };
            env.latency.add(timed, self.begun, now);
        }
        self.note_end(env, &result, now);
        env.reply(self.reply_to, result);
    }
}

/// Requests without a leader.
#[derive(Default)]
pub(super) struct Waiting {
    groups: BTreeMap<GroupKey, VecDeque<Pending>>,
    len: usize,
    retry_at: Option<Monotonic>,
}

impl Waiting {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn has(&self, key: GroupKey) -> bool {
        self.groups.contains_key(&key)
    }

    pub fn next_timer(&self) -> Option<Monotonic> {
        self.retry_at
    }

    /// All requests.
    pub fn pendings_mut(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.groups.values_mut().flatten()
    }

    /// Takes the requests of a group, in order.
    pub fn take(&mut self, key: GroupKey) -> VecDeque<Pending> {
        let taken = self.groups.remove(&key).unwrap_or_default();
        self.len -= taken.len();
        taken
    }

    /// Takes all.
    pub fn take_all(&mut self) -> Vec<Pending> {
        (self.len, self.retry_at) = (0, None);
        std::mem::take(&mut self.groups).into_values().flatten().collect()
    }

    fn push(&mut self, pending: Pending, now: Monotonic) {
        self.len += 1;
        self.retry_at.get_or_insert(now + RETRY_EVERY);
        self.groups.entry(pending.group).or_default().push_back(pending);
    }
}

impl ConsistentGroups {
    /// Begins a client's request on a key of a consistent type.
    pub fn begin(&mut self, env: &mut Env, ready: Ready) {
        let Ready { reply_to, coordinator, prefix, props, times } = ready;
        let request = coordinator.into_request();
        match &request {
            Request::Get(_) => env.counters.consistent_gets += 1,
            _ => env.counters.consistent_puts += 1,
        }
        self.accept(env, reply_to, request, prefix, props, times);
    }

    /// Takes a request of a client, here or of another node.
    pub(super) fn accept(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        request: Request,
        prefix: u16,
        props: Arc<BucketProps>,
        times: RequestTimes,
    ) {
        let now = env.now();
        env.activity.note_client(now);
        env.deadlines.note(times.deadline);
        let n_val = u8::try_from(props.n_val).unwrap_or(u8::MAX);
        let group = GroupKey { n_val, prefix };
        let pending = Pending {
            reply_to,
            request,
            props,
            group,
            times,
            begun: now,
            gives_up: times.deadline.min(now + LEADER_WAIT_MAX),
            hint: None,
            asked: 0,
            turn: 0,
            has_sought: false,
            stages: None,
            is_slow: false,
        };
        self.dispatch(env, pending);
        self.run(env);
    }

    /// Serves a request, asks its leader, or has it wait.
    pub(super) fn dispatch(&mut self, env: &mut Env, pending: Pending) {
        let key = pending.group;
        let is_asked = pending.is_asked();
        let was_open = self.groups.contains_key(&key);
        let is_open = self.open(env, key);
        if let Some(held) = self.groups.get(&key).filter(|_| is_open) {
            if held.group.leads() {
                let is_early = match pending.request.writes() {
                    true => base::planted!(ConditionBeforeNoop),
                    false => base::planted!(ReadBeforeNoop),
                };
                return match (held.group.can_serve() || is_early) && !held.is_held() {
                    true => self.serve(env, pending),
                    false => self.wait(env, pending),
                };
            }
            if held.group.leader().is_none() {
                return self.seek(env, pending, !was_open);
            }
            // The group of a dead leader is told at a pace, and its requests do not wait for that.
            let leader = held.group.leader().filter(|leader| held.group.reaches(*leader));
            let leader = leader.filter(|leader| self.reaches(env, key, *leader));
            let leader = leader.map(|leader| leader.node);
            return match leader.filter(|_| pending.asked < HINTS_MAX || is_asked) {
                _ if is_asked => refuse(env, &pending, leader),
                Some(_) if pending.asked == 0 && pending.is_read() && reads_as_follower(env, held) => {
                    self.read_as_follower(env, pending);
                }
                Some(leader) => self.ask(env, leader, pending),
                None => self.wait(env, pending),
            };
        }

        if is_asked {
            return refuse(env, &pending, None);
        }
        match self.voter_to_ask(env, &pending) {
            Some(node) if pending.asked < HINTS_MAX => self.ask(env, node, pending),
            _ => self.wait(env, pending),
        }
    }

    /// Has the first voter of the list that can be reached lead a group without a leader that is known here.
    fn seek(&mut self, env: &mut Env, mut pending: Pending, is_opened: bool) {
        let (key, is_asked) = (pending.group, pending.is_asked());
        let is_first_try = !std::mem::replace(&mut pending.has_sought, true);
        let held = &self.groups[&key];
        let here = held.voter;
        let reached = || held.voters.iter().copied().filter(|voter| self.reaches(env, key, *voter));
        let is_here = reached().next() == Some(here);
        let mut others = reached().filter(|voter| *voter != here).map(|voter| voter.node);
        // A node that was asked may have named a leader.
        let named = pending.hint.filter(|_| pending.asked < HINTS_MAX);
        let named = named.filter(|named| others.clone().any(|other| other == *named));
        let other = named.or_else(|| others.next().filter(|_| is_first_try));

        if is_here && is_opened {
            self.todo.push_back(Todo::Step(key, Input::Wanted));
        }
        match other {
            _ if is_asked && !(is_here && is_first_try) => refuse(env, &pending, None),
            Some(node) if !is_asked => self.ask(env, node, pending),
            _ => self.wait(env, pending),
        }
    }

    /// Whether a request follows the name of a leader that another node has given: none is known here.
    pub(super) fn follows_hint(&self, key: GroupKey) -> bool {
        self.groups.get(&key).is_none_or(|held| held.group.leader().is_none())
    }

    /// The node that a request without a voter here asks next.
    fn voter_to_ask(&self, env: &Env, pending: &Pending) -> Option<NodeId> {
        let voters = Self::voters(env, pending.group)?;
        let reached = voters
            .iter()
            .filter(|voter| voter.node != env.peers.here() && self.reaches(env, pending.group, **voter));
        let reached: Vec<NodeId> = reached.map(|voter| voter.node).collect();
        let hint = pending.hint.filter(|hint| reached.contains(hint));
        hint.or_else(|| reached.get(pending.turn as usize % reached.len().max(1)).copied())
    }

    /// Has a request wait for a leader.
    pub(super) fn wait(&mut self, env: &mut Env, mut pending: Pending) {
        let now = env.now();
        if pending.gives_up <= now {
            return pending.reply(env, Err(Error::Unavailable));
        }
        (pending.asked, pending.hint) = (0, None);
        self.note_wait(env, &mut pending, SlowStage::Leader);
        let key = pending.group;
        self.waiting.push(pending, now);
        // Its election comes before those that nobody waits for.
        let knows_dead_leader = self
            .groups
            .get(&key)
            .and_then(|it| it.group.leader())
            .is_some_and(|it| !self.reaches(env, key, it));
        if knows_dead_leader {
            self.leaderless.push(key, Urgency::Waiting);
        }
    }

    /// Has requests look for a leader again, and ends those that have waited long enough.
    pub(super) fn retry_waiting(&mut self, env: &mut Env, now: Monotonic) {
        if self.waiting.retry_at.is_none_or(|at| now < at) {
            return;
        }
        for pending in self.waiting.take_all() {
            match pending.gives_up <= now {
                true => pending.reply(env, Err(Error::Unavailable)),
                false => self.todo.push_back(Todo::Dispatch(Box::new(pending))),
            }
        }
    }
}

/// Whether a follower serves a read that its leader confirms. With leases the leader needs one lookup and no step of
/// its group, so the read goes there: it costs no more messages than the question would.
fn reads_as_follower(env: &Env, held: &HeldGroup) -> bool {
    env.leases.reads == StrongReads::Ask && held.serves_reads()
}

/// Sends a request of another node back: nothing was done.
fn refuse(env: &mut Env, pending: &Pending, leader: Option<NodeId>) {
    if let ReplyTo::Leader(to, id) = pending.reply_to {
        env.send(to, PeerMessage::LeaderAnswer { id, answer: LeaderAnswer::NotLeader { leader } });
    }
}
