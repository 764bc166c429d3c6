//! Requests at the leader: planned, decided by the group, answered.
//!
//! 1. A write looks its key's head up. In the same step, in which nothing is applied, it is proposed with that version.
//!    A lookup that had to wait for the disk is made again if entries were applied meanwhile.
//! 2. A read looks its key up at once where this leader has a lease. Else it is confirmed by a majority before. A
//!    follower serves it, too: its leader confirms it.
//! 3. An answer of the group ends its request. One that was not proposed may go to another leader.
//!
//! Invariant: a request whose write may be applied ends as *timeout*, and never as *unavailable*.

use std::collections::BTreeMap;

use bytes::Bytes;
use engine::store::LookupId;
use engine::{Found, Lookup, Want};
use kv::consistent::{Current, Plan, check_get, error_of, get_response, join_object};
use kv::{Error, Request, Response};
use object::key;
use strong::group::{Answer, Cause, Input, Proposal, Write};

use super::ConsistentGroups;
use super::dispatch::Pending;
use super::group::GroupKey;
use crate::frontdoor::slow::SlowStage;
use crate::shard::env::Env;
use crate::shard::reply_to::ReplyTo;
use crate::shard::store_error::store_error;

/// A request that its group has.
pub(super) struct Serving {
    pending: Pending,
    /// The plan of a write, and the object that was proposed.
    write: Option<Box<(Plan, Bytes, Bytes)>>,
}

/// A lookup that waits for the disk.
pub(super) enum WaitingLookup {
    /// Of a confirmed read; with the epoch of its group then.
    Read { pending: Box<Pending>, epoch: u16 },
    /// Of a write that is not proposed; with the applied index of its group then.
    Write { pending: Box<Pending>, plan: Box<Plan>, applied: u64 },
    /// Of a key whose entry is to be applied.
    Apply { group: GroupKey, key: Bytes },
    /// Of a key of a catch-up's part.
    Part { part: u64, key: Bytes },
    /// Of a key of the part that a group receives.
    Incoming { group: GroupKey, key: Bytes },
    /// Of a tombstone that is to be reaped.
    Reap { key: Bytes, through: u64 },
    /// Of nothing any more.
    Nobody,
}

/// Requests that groups of this store have.
#[derive(Default)]
pub(super) struct Served {
    tokens: BTreeMap<u64, Serving>,
    last: u64,
    lookups: BTreeMap<LookupId, WaitingLookup>,
    /// Lookups of requests.
    looking: usize,
}

impl Served {
    pub fn len(&self) -> usize {
        self.tokens.len() + self.looking
    }

    pub fn take(&mut self, token: u64) -> Option<Serving> {
        self.tokens.remove(&token)
    }

    pub fn take_all(&mut self) -> Vec<Serving> {
        std::mem::take(&mut self.tokens).into_values().collect()
    }

    pub fn wait_for(&mut self, id: LookupId, lookup: WaitingLookup) {
        self.looking += usize::from(lookup.is_of_request());
        self.lookups.insert(id, lookup);
    }

    /// Whether no lookup waits for the disk.
    #[inline]
    pub fn has_no_lookups(&self) -> bool {
        self.lookups.is_empty()
    }

    pub fn take_lookup(&mut self, id: LookupId) -> Option<WaitingLookup> {
        let lookup = self.lookups.remove(&id)?;
        self.looking -= usize::from(lookup.is_of_request());
        Some(lookup)
    }

    /// Lets a lookup end without an effect.
    pub fn ignore(&mut self, id: LookupId) {
        self.lookups.insert(id, WaitingLookup::Nobody);
    }

    /// The request of a token.
    pub fn pending_mut(&mut self, token: u64) -> Option<&mut Pending> {
        self.tokens.get_mut(&token).map(|serving| &mut serving.pending)
    }

    /// Whether a request of a group is served, or an entry of it waits for a lookup.
    pub fn has_request_of(&self, key: GroupKey) -> bool {
        let is_of = |lookup: &WaitingLookup| match lookup {
            WaitingLookup::Read { pending, .. } | WaitingLookup::Write { pending, .. } => {
                pending.group == key
            }
            WaitingLookup::Apply { group, .. } | WaitingLookup::Incoming { group, .. } => *group == key,
            WaitingLookup::Part { .. } | WaitingLookup::Reap { .. } | WaitingLookup::Nobody => false,
        };
        self.tokens.values().any(|serving| serving.pending.group == key) || self.lookups.values().any(is_of)
    }

    /// All requests.
    pub fn pendings_mut(&mut self) -> impl Iterator<Item = &mut Pending> {
        let looking = self.lookups.values_mut().filter_map(|lookup| match lookup {
            WaitingLookup::Read { pending, .. } | WaitingLookup::Write { pending, .. } => {
                Some(&mut **pending)
            }
            _ => None,
        });
        self.tokens.values_mut().map(|serving| &mut serving.pending).chain(looking)
    }

    fn add(&mut self, serving: Serving) -> u64 {
        self.last += 1;
        self.tokens.insert(self.last, serving);
        self.last
    }
}

impl WaitingLookup {
    fn is_of_request(&self) -> bool {
        matches!(self, WaitingLookup::Read { .. } | WaitingLookup::Write { .. })
    }
}

impl Pending {
    /// Whether it only reads.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.request, Request::Get(_))
    }

    /// The ledger key that it is about.
    fn ledger_key(&self) -> Bytes {
        let bucket = self.request.bucket().expect("it is about a key");
        let name = self.request.key().expect("a missing key was invented");
        let mut out = Vec::new();
        key::encode_object_key(self.group.prefix, &bucket.bucket_type, &bucket.name, name, &mut out);
        out.into()
    }
}

impl ConsistentGroups {
    /// Has this store's group, which follows, execute a read. If it is not confirmed, the leader's node is asked.
    pub(super) fn read_as_follower(&mut self, env: &mut Env, mut pending: Pending) {
        pending.asked += 1;
        self.serve(env, pending);
    }

    /// Has this store's group execute a request: one that leads, or for a read one that follows.
    pub(super) fn serve(&mut self, env: &mut Env, pending: Pending) {
        match &pending.request {
            Request::Get(get) => match check_get(get, &env.knobs.limits) {
                Ok(()) => self.read(env, pending),
                Err(error) => pending.reply(env, Err(error)),
            },
            request => {
                let plan = match request {
                    Request::Put(put) => Plan::put((**put).clone(), &pending.props, &env.knobs.limits),
                    Request::Delete(delete) => Plan::delete(delete.clone(), &pending.props),
                    _ => unreachable!("only gets, puts and deletes come here"),
                };
                match plan {
                    Ok(plan) => self.write(env, pending, plan),
                    Err(error) => pending.reply(env, Err(error)),
                }
            }
        }
    }

    fn read(&mut self, env: &mut Env, mut pending: Pending) {
        let (group, deadline) = (pending.group, pending.gives_up);
        if self.is_leased(env, group) {
            env.counters.consistent_lease_reads += 1;
            return self.look_up(env, pending);
        }
        self.note_wait(env, &mut pending, SlowStage::Majority);
        let token = self.served.add(Serving { pending, write: None });
        self.step(env, group, Input::Read { token, deadline });
    }

    fn write(&mut self, env: &mut Env, mut pending: Pending, plan: Plan) {
        let refusal = match plan.is_deletion() {
            true => env.store.refuses_deletions(),
            false => env.store.refuses_writes(),
        };
        if let Some(error) = refusal {
            return pending.reply(env, Err(store_error(error)));
        }
        match env.store.lookup_since(&pending.ledger_key(), Want::Head, self.dropped_at(pending.group)) {
            Lookup::Done(found) => self.propose(env, pending, plan, found),
            Lookup::NeedsIo(id) => {
                self.note_lookup(env, &mut pending, Want::Head);
                let applied = self.groups[&pending.group].group.applied();
                let (pending, plan) = (Box::new(pending), Box::new(plan));
                self.served.wait_for(id, WaitingLookup::Write { pending, plan, applied });
            }
        }
    }

    /// Proposes a write over the head of its key, which no entry was applied to since it was looked up.
    fn propose(
        &mut self,
        env: &mut Env,
        mut pending: Pending,
        plan: Plan,
        found: Result<Option<Found>, engine::Error>,
    ) {
        self.note_damage(pending.group, &found);
        let current = found.map_err(store_error);
        let epoch = self.epoch(pending.group);
        let current =
            current.and_then(|found| Current::of(found.as_ref().map(|found| &found.head[..]), epoch));
        let current = match current {
            Ok(current) => current,
            Err(error) => return pending.reply(env, Err(error)),
        };
        let group = pending.group;
        let Some(version) = self.groups.get(&group).and_then(|held| held.group.next_version()) else {
            return self.wait(env, pending);
        };

        let (head, value) = plan.object(version, env.clock.wall());
        let object = (!plan.is_deletion()).then(|| join_object(&head, &value));
        let write = Write { key: pending.ledger_key(), object };
        let (condition, deadline) = (plan.condition(), pending.times.deadline);
        self.note_wait(env, &mut pending, SlowStage::Sync);
        let token = self.served.add(Serving { pending, write: Some(Box::new((plan, head, value))) });
        let (index, head, version) = (version.index(), current.version, Some(version));
        let proposal = Proposal { token, condition, write, head, version, deadline };
        self.step(env, group, Input::Propose(proposal));
        self.note_proposed(env, group, index, token);
    }

    /// Goes on with a lookup that the disk has answered.
    pub(super) fn on_found(
        &mut self,
        env: &mut Env,
        lookup: WaitingLookup,
        found: Result<Option<Found>, engine::Error>,
    ) {
        match lookup {
            WaitingLookup::Read { pending, epoch } => self.end_read(env, *pending, epoch, found),
            WaitingLookup::Write { pending, plan, applied } => {
                let held = self.groups.get(&pending.group);
                let is_ready = held.is_some_and(|held| held.group.is_ready() && !held.is_held());
                match held.map(|held| held.group.applied()) {
                    Some(now) if is_ready && now == applied => self.propose(env, *pending, *plan, found),
                    Some(_) if is_ready => self.write(env, *pending, *plan),
                    _ => self.dispatch(env, *pending),
                }
            }
            WaitingLookup::Apply { group, key } => {
                let head = found.ok().flatten().map(|found| found.head);
                self.on_known(env, group, key, head.as_ref());
            }
            WaitingLookup::Part { part, key } => self.on_part_found(env, part, key, found),
            WaitingLookup::Incoming { group, key } => self.on_incoming_found(env, group, &key, found),
            WaitingLookup::Reap { key, through } => self.reap_key(env, key, through, true),
            WaitingLookup::Nobody => {}
        }
    }

    /// Ends a request with the answer of its group.
    pub(super) fn end_served(&mut self, env: &mut Env, served: Serving, answer: Answer) {
        let Serving { pending, write } = served;
        match (answer, write) {
            (Answer::Written(_), Some(write)) => {
                let (plan, head, value) = *write;
                pending.reply(env, Ok(plan.response(&head, &value)));
            }
            (Answer::Readable, _) if self.is_in_catch_up(pending.group) => {
                self.todo.push_back(super::Todo::Dispatch(Box::new(pending)));
            }
            (Answer::Readable, _) => {
                env.counters.consistent_index_reads += 1;
                self.look_up(env, pending);
            }
            // Nothing was proposed, or another entry took its place: it may be decided anew.
            (Answer::Unavailable(Cause::NotLeader { .. } | Cause::NotReady | Cause::LeaderChanged), _) => {
                self.todo.push_back(super::Todo::Dispatch(Box::new(pending)));
            }
            (answer, _) => {
                let error = match answer {
                    Answer::Unavailable(Cause::Overload) => Error::Overload,
                    answer => error_of(answer).unwrap_or(Error::Unavailable),
                };
                pending.reply(env, Err(error));
            }
        }
    }

    /// Whether this store leads a group with a lease, by a reading of the clock that is taken now: the read has come.
    ///
    /// The voters' promises are needed from now on, so their nodes are asked often for a while.
    fn is_leased(&mut self, env: &mut Env, key: GroupKey) -> bool {
        let Some(held) = self.groups.get_mut(&key).filter(|held| !held.is_held()) else { return false };
        let clock = &env.clock;
        if !held.group.serves_read(self.turn_began, || clock.lease()) {
            return false;
        }
        held.was_used = true;
        let others = held.voters.iter().filter(|voter| **voter != held.voter);
        others.for_each(|voter| env.peers.note_needed(voter.node));
        true
    }

    /// Looks the key of a confirmed read up.
    fn look_up(&mut self, env: &mut Env, mut pending: Pending) {
        let epoch = self.epoch(pending.group);
        let want = want_of(&pending);
        match env.store.lookup_since(&pending.ledger_key(), want, self.dropped_at(pending.group)) {
            Lookup::Done(found) => self.end_read(env, pending, epoch, found),
            Lookup::NeedsIo(id) => {
                self.note_lookup(env, &mut pending, want);
                let pending = Box::new(pending);
                self.served.wait_for(id, WaitingLookup::Read { pending, epoch });
            }
        }
    }

    /// Whether a group follows, and its keys are those of no index. A catch-up may begin behind the confirmation of a
    /// read.
    fn is_in_catch_up(&self, key: GroupKey) -> bool {
        self.groups.get(&key).is_some_and(|held| held.checkpoint.is_some() && !held.group.leads())
    }

    /// Ends a confirmed read. A follower with damage asks its leader. Damage at a leader is the client's answer, and
    /// another voter leads next.
    ///
    /// `epoch`: the group's at the confirmation. It may have been unloaded since.
    fn end_read(
        &mut self,
        env: &mut Env,
        pending: Pending,
        epoch: u16,
        found: Result<Option<Found>, engine::Error>,
    ) {
        self.note_damage(pending.group, &found);
        let leads = self.groups.get(&pending.group).is_some_and(|held| held.group.leads());
        let is_unusable = found.is_err() || self.is_in_catch_up(pending.group);
        if is_unusable && !leads && !matches!(pending.reply_to, ReplyTo::Leader(..)) {
            return self.todo.push_back(super::Todo::Dispatch(Box::new(pending)));
        }
        respond(env, &pending, found, epoch);
    }

    /// The epoch of a group that executes a request now.
    fn epoch(&self, key: GroupKey) -> u16 {
        self.groups[&key].group.epoch()
    }

    /// Ends a request of a group that this store has left: its write may be applied.
    pub(super) fn end_unknown(&mut self, env: &mut Env, served: Serving) {
        let error = if served.write.is_some() { Error::Timeout } else { Error::Unavailable };
        served.pending.reply(env, Err(error));
    }
}

/// The part of an object that a read wants.
fn want_of(pending: &Pending) -> Want {
    match &pending.request {
        Request::Get(get) if get.head => Want::Head,
        _ => Want::Value,
    }
}

/// Answers a confirmed read.
fn respond(env: &mut Env, pending: &Pending, found: Result<Option<Found>, engine::Error>, epoch: u16) {
    let Request::Get(get) = &pending.request else { unreachable!("only reads are answered with an object") };
    let response = found.map_err(store_error).and_then(|found| {
        let object = found.map(|found| (found.head, found.value.unwrap_or_default()));
        get_response(get, object, epoch)
    });
    let result: Result<Response, Error> = response;
    pending.reply(env, result);
}
