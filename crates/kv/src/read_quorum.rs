//! The reading half of a coordinator: replicas' heads, whether they are enough, which of them count, and the
//! values of those.
//!
//! 1. [`ReadQuorum::start`] asks every replica, by the strategy of the step context.
//! 2. [`ReadQuorum::on_reply`] takes the replies; [`ReadQuorum::verdict`] says whether they are enough.
//! 3. [`ReadQuorum::latest`] joins the heads: the *frontier* is those that no other one descends from, nearly always
//!    one.
//! 4. [`ReadQuorum::value`] has the frontier's values fetched, each from a replica that has it, and joins them.
//! 5. [`ReadQuorum::stale`] names those that lack something, once everybody has replied.
//!
//! Invariants: a reply counts once, however often it comes; a value is believed only with the head that came with
//! it. A replica whose value is lost or damaged still counts with its head; its value is taken from another.
//! Follows Riak's `riak_kv_get_core` in the count of replies; asks for heads where that asks for objects.

use bytes::Bytes;
use object::{HeadView, Object};
use ring::NodeId;

use crate::error::Error;
use crate::needs::Needs;
use crate::placement::Placement;
use crate::reap::{self, FoldGrave};
use crate::replica::{Ask, ReadStrategy, Reason};
use crate::replies::{Replica, Replies, State};
use crate::step::{Action, StepContext};
use crate::stored::{Stored, Want};
use crate::stored_head::{checked_values, damaged, decode, encode, view};

/// How replies without an object count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotFoundRules {
    /// They are good replies.
    pub ok: bool,
    /// A majority of them, with failures, ends the read, where they are not.
    pub basic_quorum: bool,
}

/// The reply of one replica.
#[derive(Clone, Debug)]
struct ReplicaReply {
    stored: Option<Stored>,
    /// It has been asked for the value.
    fetching: bool,
    /// It has no value to give.
    valueless: Option<Error>,
}

/// A read under way.
#[derive(Clone, Debug)]
pub(crate) struct ReadQuorum {
    needs: Needs,
    replies: Replies<ReplicaReply>,
    rules: NotFoundRules,
    /// The tombstone that this node has promised to reap: what it has deleted does not count as found.
    grave: Option<Bytes>,
    /// What this node remembers of a fold of the key's context.
    fold: Option<FoldGrave>,
    /// Whether it is reaped: all had promised.
    is_reaped: bool,
}

/// Whether the replies are enough.
#[derive(Debug)]
pub(crate) enum Verdict {
    Wait,
    Enough,
    NotFound,
    Failed(Error),
}

impl ReadQuorum {
    /// Asks everybody.
    pub fn start(
        needs: Needs,
        placement: Placement,
        want: Want,
        rules: NotFoundRules,
        ctx: &mut StepContext<'_>,
    ) -> ReadQuorum {
        let replies = Replies::new(&placement);
        let (here, there) = match (want, ctx.form) {
            (Want::Head, _) => (Want::Head, Want::Head),
            (Want::Value, ReadStrategy::Values) => (Want::Value, Want::Value),
            (Want::Value, ReadStrategy::LocalValue) => (Want::Value, Want::Head),
            // A node alone has nobody to choose among.
            (Want::Value, ReadStrategy::Heads) if replies.iter().count() == 1 => (Want::Value, Want::Value),
            (Want::Value, ReadStrategy::Heads) => (Want::Head, Want::Head),
        };
        // A node that does not hold the key has the first of those that do send its value at once.
        let is_here = replies.iter().any(|replica| replica.node.is_none());
        let mut first = if is_here { there } else { here };
        for replica in replies.iter() {
            ctx.out.push(match replica.node {
                Some(to) => Action::Ask { to, ask: Ask::Read { want: std::mem::replace(&mut first, there) } },
                None => Action::Read { want: here, hold: false },
            });
        }
        let mut gather = ReadQuorum { needs, replies, rules, grave: None, fold: None, is_reaped: false };
        gather.remember(ctx);
        gather
    }

    /// Asserts relations that hold after each step.
    pub fn invariants(&self) {
        self.needs.invariants();
        self.replies.invariants();
        assert!(self.grave.is_none() || self.fold.is_none(), "a grave is of a tombstone or of a fold");
        for ReplicaReply { stored, fetching, valueless } in self.replies.iter().filter_map(Replica::ok) {
            assert!(!fetching || valueless.is_none(), "a value that cannot be had is not awaited");
            let has_value = stored.as_ref().is_some_and(|stored| stored.value.is_some());
            assert!(!has_value || !fetching, "a value that is here is not awaited");
        }
    }

    /// What this node has promised to reap or to fold by now.
    pub fn remember(&mut self, ctx: &StepContext<'_>) {
        if ctx.grave.is_in_empty_yard() {
            (self.grave, self.fold, self.is_reaped) = (None, None, false);
            return;
        }
        self.fold = ctx.grave.fold().cloned();
        if let Some(fold) = &self.fold {
            for replica in self.replies.iter_mut() {
                let State::Ok(said) = &mut replica.state else { continue };
                let Some(stored) = said.stored.take() else { continue };
                match fold.clear_reply(stored) {
                    Ok(left) => said.stored = left,
                    Err(error) => replica.state = State::Failed(error),
                }
            }
        }
        self.grave = ctx.grave.tombstone().cloned();
        self.is_reaped = self.grave.as_ref().is_some_and(|grave| ctx.grave.is_reaped(grave));
    }

    /// Takes a reply, or why there will be none.
    pub fn on_reply(&mut self, from: Option<NodeId>, mut result: Result<Option<Stored>, Error>) {
        let Some(replica) = self.replies.of(from) else { return };
        if let Some(fold) = &self.fold {
            result = result.and_then(|stored| stored.map_or(Ok(None), |it| fold.clear_reply(it)));
        }
        match &mut replica.state {
            State::Waiting => {
                replica.state = match result {
                    Ok(stored) => State::Ok(ReplicaReply { stored, fetching: false, valueless: None }),
                    Err(error) => State::Failed(error),
                };
            }
            State::Ok(said) if said.fetching => match result {
                // The first answer once more.
                Ok(Some(Stored { value: None, .. })) => {}
                Ok(stored) => *said = ReplicaReply { stored, fetching: false, valueless: None },
                Err(error) => {
                    said.fetching = false;
                    said.valueless = Some(error);
                }
            },
            State::Ok(_) | State::Failed(_) => {}
        }
    }

    /// Waits no longer for those that have not replied.
    pub fn give_up(&mut self) {
        for replica in self.replies.iter_mut() {
            match &mut replica.state {
                State::Waiting => replica.state = State::Failed(Error::Timeout),
                State::Ok(said) if said.fetching => {
                    said.fetching = false;
                    said.valueless = Some(Error::Timeout);
                }
                State::Ok(_) | State::Failed(_) => {}
            }
        }
    }

    /// Whether this node's store has yet to answer.
    pub fn awaits_here(&self) -> bool {
        self.replies.iter().any(|replica| replica.node.is_none() && replica.is_waiting())
    }

    /// Whether nobody but this node was asked.
    pub fn is_alone(&self) -> bool {
        self.replies.is_here_alone()
    }

    /// Whether everybody has replied.
    pub fn complete(&self) -> bool {
        self.replies.complete()
    }

    /// Whether the replies are enough.
    pub fn verdict(&self) -> Verdict {
        let good = |said: &ReplicaReply| self.rules.ok || said.stored.is_some();
        let failure = match self.replies.meet(&self.needs, good) {
            Ok(true) => return Verdict::Enough,
            Ok(false) if self.negatives() < self.negatives_max() => return Verdict::Wait,
            Ok(false) => self.replies.shortfall(&self.needs, good),
            Err(error) => error,
        };
        if self.is_nothing() { Verdict::NotFound } else { Verdict::Failed(failure) }
    }

    /// Whether all who replied, and nobody failed, have nothing or a tombstone: then there is nothing to be found,
    /// although such replies meet no quorum.
    fn is_nothing(&self) -> bool {
        let is_tombstone = |stored: &Stored| view(&stored.head).is_ok_and(|head| head.is_tombstone());
        let mut replied = self.replies.iter().filter(|replica| !replica.is_waiting()).peekable();
        let is_nothing = |replica: &Replica<ReplicaReply>| match replica.ok() {
            Some(said) => said.stored.as_ref().map_or(!self.rules.ok, is_tombstone),
            None => false,
        };
        replied.peek().is_some() && replied.all(is_nothing)
    }

    /// Vnodes that have failed or have no object.
    fn negatives(&self) -> u32 {
        let negative = |replica: &&Replica<ReplicaReply>| match &replica.state {
            State::Waiting => false,
            State::Ok(said) => said.stored.is_none() && !self.rules.ok,
            State::Failed(_) => true,
        };
        self.replies.iter().filter(negative).map(|replica| u32::from(replica.roles.vnodes)).sum()
    }

    fn negatives_max(&self) -> u32 {
        let hopeless = self.needs.n - self.needs.replies_max() + 1;
        if self.rules.basic_quorum { hopeless.min(self.needs.n / 2 + 1) } else { hopeless }
    }

    fn found(&self) -> impl Iterator<Item = (&Replica<ReplicaReply>, &Stored)> + Clone {
        self.replies.iter().filter_map(|replica| Some((replica, replica.ok()?.stored.as_ref()?)))
    }

    /// The tombstone that this node remembers, if somebody has what it has deleted.
    fn grave_needed(&self) -> Option<&Bytes> {
        let grave = self.grave.as_ref()?;
        let is_needed = |stored: &Stored| reap::has_deleted(grave, &stored.head).unwrap_or(false);
        self.found().any(|(_, stored)| is_needed(stored)).then_some(grave)
    }

    /// The head that all have who have one; `None` if they differ.
    fn only_head(&self) -> Option<Option<&Bytes>> {
        if self.grave_needed().is_some() {
            return None;
        }
        let mut heads = self.found().map(|(_, stored)| &stored.head);
        let first = heads.next();
        let same = base::planted!(FrontierIgnored) || heads.all(|head| Some(head) == first);
        same.then_some(first)
    }

    /// The heads on the frontier, each once, in the order of the replicas.
    fn frontier(&self) -> Result<Vec<Bytes>, Error> {
        if let Some(only) = self.only_head() {
            return Ok(only.into_iter().cloned().collect());
        }
        let mut heads = Vec::from_iter(self.grave_needed().cloned());
        for (_, stored) in self.found() {
            if !heads.contains(&stored.head) {
                heads.push(stored.head.clone());
            }
        }
        let views: Vec<HeadView<'_>> = heads.iter().map(|head| view(head)).collect::<Result<_, _>>()?;
        let contexts: Vec<_> = views.iter().map(|view| view.context().to_context()).collect();
        let passed = |at: usize| {
            (0..contexts.len()).any(|other| other != at && contexts[other].dominates(&contexts[at]))
        };
        let kept: Vec<Bytes> =
            (0..heads.len()).filter(|&at| !passed(at)).map(|at| heads[at].clone()).collect();
        debug_assert_eq!(kept.is_empty(), heads.is_empty(), "of some heads one is on the frontier");
        Ok(kept)
    }

    /// The head that the replies so far come to; `None` if nobody has an object.
    pub fn latest(&self) -> Result<Option<Bytes>, Error> {
        if let Some(only) = self.only_head() {
            return Ok(only.cloned());
        }
        let mut frontier = self.frontier()?.into_iter();
        let Some(first) = frontier.next() else { return Ok(None) };
        if frontier.len() == 0 {
            return Ok(Some(first));
        }
        let mut joined = decode(&first)?;
        for head in frontier {
            let plan = object::plan_merge(&joined, &decode(&head)?).map_err(damaged)?;
            joined = plan.head().clone();
        }
        Ok(Some(encode(&joined)))
    }

    /// Takes note of the time of the [`latest`](ReadQuorum::latest) version, and returns it; 0 if there is none.
    pub fn see_time(&self, latest: Option<&Bytes>, ctx: &mut StepContext<'_>) -> Result<u64, Error> {
        let time = latest.map(|head| view(head)).transpose()?.map_or(0, |head| head.newest_time());
        ctx.clock.see(time, ctx.wall, None);
        Ok(time)
    }

    /// The values under [`latest`](ReadQuorum::latest), so many bytes. `None` while some of them are being fetched; an
    /// error when one cannot be had from anybody.
    pub fn value(
        &mut self,
        latest: &Bytes,
        values_len: u64,
        ctx: &mut StepContext<'_>,
    ) -> Result<Option<Bytes>, Error> {
        if self.only_head().is_some() {
            return self.value_of(latest, values_len, ctx);
        }
        let mut objects = Vec::with_capacity(2);
        let mut fetching = false;
        for head in self.frontier()? {
            let values_len = view(&head)?.values_len();
            match self.value_of(&head, values_len, ctx)? {
                Some(value) => objects.push(Object::new(decode(&head)?, value).map_err(damaged)?),
                None => fetching = true,
            }
        }
        let mut objects = objects.into_iter();
        let Some(mut joined) = objects.next().filter(|_| !fetching) else { return Ok(None) };
        for other in objects {
            joined = object::merge(&joined, &other).map_err(damaged)?;
        }
        Ok(Some(joined.values().clone()))
    }

    /// The value under a head, or `None` when somebody has been asked for it.
    fn value_of(
        &mut self,
        head: &Bytes,
        values_len: u64,
        ctx: &mut StepContext<'_>,
    ) -> Result<Option<Bytes>, Error> {
        let here = |stored: &Stored| stored.head == *head;
        if values_len == 0 {
            return Ok(Some(Bytes::new()));
        }
        let value = self.found().filter(|(_, stored)| here(stored)).find_map(|(_, it)| it.value.clone());
        if let Some(value) = value {
            return checked_values(values_len, value).map(Some);
        }
        let holds = |replica: &Replica<ReplicaReply>| {
            replica.ok().is_some_and(|said| said.stored.as_ref().is_some_and(here))
        };
        let fetching = |replica: &Replica<ReplicaReply>| replica.ok().is_some_and(|said| said.fetching);
        if self.replies.iter().any(|replica| holds(replica) && fetching(replica)) {
            return Ok(None);
        }
        let mut holders: Vec<_> = self.replies.iter_mut().filter(|replica| holds(replica)).collect();
        // Where this node's disk has too much to do, the others are asked first.
        holders.sort_by_key(|replica| ctx.form == ReadStrategy::Heads && replica.node.is_none());
        let mut failure = None;
        for Replica { node, state, .. } in holders {
            let State::Ok(said) = state else { continue };
            let Some(error) = &said.valueless else {
                said.fetching = true;
                ctx.out.push(match *node {
                    Some(to) => Action::Ask { to, ask: Ask::Read { want: Want::Value } },
                    None => Action::Read { want: Want::Value, hold: false },
                });
                return Ok(None);
            };
            failure = Some(error.clone());
        }
        Err(failure.expect("a head on the frontier is somebody's"))
    }

    /// Whether a primary lacks what `head` has, or has it damaged.
    pub fn is_stale(&self, head: &Bytes) -> bool {
        self.replies.iter().any(|replica| self.lacks(replica, head).is_some())
    }

    /// Whether all n primaries have exactly this tombstone, or have reaped it.
    pub fn is_only(&self, tombstone: &Bytes, n: u32) -> bool {
        let has = |replica: &Replica<ReplicaReply>| match replica.ok() {
            Some(ReplicaReply { stored: Some(stored), .. }) => stored.head == *tombstone,
            Some(_) => self.grave.as_ref() == Some(tombstone),
            None => false,
        };
        let primaries = self.replies.iter().map(|replica| u32::from(replica.roles.primaries)).sum::<u32>();
        primaries >= n && self.replies.iter().all(|replica| replica.hints.is_empty() && has(replica))
    }

    /// Why a replica is to be sent `head`, if it is. One that only stands in keeps nothing but hints, and a tombstone
    /// that is reaped is not sent to those that have nothing. One that is only promised is sent: a replica that has
    /// lost it would not promise in its turn, and one that has reaped it by now drops it.
    fn lacks(&self, replica: &Replica<ReplicaReply>, head: &Bytes) -> Option<Reason> {
        if replica.roles.primaries == 0 {
            return None;
        }
        match &replica.state {
            State::Ok(ReplicaReply { valueless: Some(Error::Damaged(_)), .. })
            | State::Failed(Error::Damaged(_)) => Some(Reason::Heal),
            State::Ok(ReplicaReply { stored: Some(stored), .. }) => {
                (stored.head != *head).then_some(Reason::Repair)
            }
            State::Ok(_) => {
                let is_reaped = self.is_reaped && self.grave.as_ref() == Some(head);
                (!is_reaped).then_some(Reason::Repair)
            }
            State::Waiting | State::Failed(_) => None,
        }
    }

    /// Sends the version to the primaries that lack it.
    pub fn repair(&self, head: &Bytes, value: &Bytes, ctx: &mut StepContext<'_>) {
        debug_assert!(self.complete(), "a repair follows the last reply");
        for replica in self.replies.iter() {
            let Some(reason) = self.lacks(replica, head) else { continue };
            let (head, value) = (head.clone(), value.clone());
            ctx.out.push(match replica.node {
                Some(to) => Action::Ask { to, ask: Ask::Merge { head, value, hints: Vec::new(), reason } },
                None => Action::MergeHere { head, value, heal: reason == Reason::Heal, hints: Vec::new() },
            });
        }
    }
}
