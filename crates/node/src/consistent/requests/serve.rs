//! Requests that a group of this store executes: planned, decided by the group, answered.
//!
//! 1. A write looks its key's head up. In the same step, in which nothing is applied, it is proposed with that version.
//!    A lookup that had to wait for the disk is made again if entries were applied meanwhile.
//! 2. A read looks its key up at once where this leader has a lease. Else it is confirmed by a majority before. A
//!    follower serves it, too: its leader confirms it.
//! 3. An answer of the group ends its request. One that was not proposed may go to another leader.
//!
//! Invariant: a request whose write may be applied ends as *timeout*, and never as *unavailable*.

use engine::{Found, Lookup, Want};
use kv::consistent::{Current, Plan, check_get, error_of, get_response, join_object};
use kv::{Error, Request, Response};
use strong::group::{Answer, Cause, Input, Proposal, Write};

use super::GroupRequests;
use super::served::ServedRequest;
use crate::consistent::context::GroupContext;
use crate::consistent::lookups::WaitingLookup;
use crate::consistent::pending::Pending;
use crate::consistent::work::Todo;
use crate::frontdoor::slow::SlowStage;
use crate::shard::env::Env;
use crate::shard::reply_to::ReplyTo;
use crate::shard::store_error::store_error;

impl GroupRequests {
    /// Has this store's group execute a request: one that leads, or for a read one that follows.
    pub fn serve(&mut self, cx: &mut GroupContext<'_>, pending: Pending) {
        match &pending.request {
            Request::Get(get) => match check_get(get, &cx.env.knobs.limits) {
                Ok(()) => self.read(cx, pending),
                Err(error) => pending.reply(cx.env, Err(error)),
            },
            request => {
                let plan = match request {
                    Request::Put(put) => Plan::put((**put).clone(), &pending.props, &cx.env.knobs.limits),
                    Request::Delete(delete) => Plan::delete(delete.clone(), &pending.props),
                    _ => unreachable!("only gets, puts and deletes come here"),
                };
                match plan {
                    Ok(plan) => self.write(cx, pending, plan),
                    Err(error) => pending.reply(cx.env, Err(error)),
                }
            }
        }
    }

    fn read(&mut self, cx: &mut GroupContext<'_>, mut pending: Pending) {
        let (group, deadline) = (pending.group, pending.gives_up);
        if cx.groups.serves_read_by_lease(cx.env, group) {
            cx.env.counters.consistent_lease_reads += 1;
            return self.look_up(cx, pending);
        }
        self.note_wait(cx.env, &mut pending, SlowStage::Majority);
        let token = self.served.add(ServedRequest { pending, write: None });
        cx.work.do_next(Todo::Step(group, Input::Read { token, deadline }));
    }

    fn write(&mut self, cx: &mut GroupContext<'_>, mut pending: Pending, plan: Plan) {
        let refusal = match plan.is_deletion() {
            true => cx.env.store.refuses_deletions(),
            false => cx.env.store.refuses_writes(),
        };
        if let Some(error) = refusal {
            return pending.reply(cx.env, Err(store_error(error)));
        }
        let dropped_at = cx.groups.dropped_at(pending.group);
        match cx.env.store.lookup_since(&pending.ledger_key(), Want::Head, dropped_at) {
            Lookup::Done(found) => self.propose(cx, pending, plan, found),
            Lookup::NeedsIo(id) => {
                self.note_lookup(cx.env, &mut pending, Want::Head);
                let applied = cx.groups.applied(pending.group);
                let (pending, plan) = (Box::new(pending), Box::new(plan));
                cx.lookups.add(id, WaitingLookup::Write { pending, plan, applied });
            }
        }
    }

    /// Proposes a write over the head of its key, which no entry was applied to since it was looked up.
    fn propose(
        &mut self,
        cx: &mut GroupContext<'_>,
        mut pending: Pending,
        plan: Plan,
        found: Result<Option<Found>, engine::Error>,
    ) {
        cx.work.note_damage(pending.group, &found);
        let current = found.map_err(store_error);
        let epoch = cx.groups.epoch(pending.group);
        let current =
            current.and_then(|found| Current::of(found.as_ref().map(|found| &found.head[..]), epoch));
        let current = match current {
            Ok(current) => current,
            Err(error) => return pending.reply(cx.env, Err(error)),
        };
        let group = pending.group;
        let Some(version) = cx.groups.get(group).and_then(|held| held.group.next_version()) else {
            return cx.work.do_next(Todo::Wait(Box::new(pending)));
        };

        let (head, value) = plan.object(version, cx.env.clock.wall());
        let object = (!plan.is_deletion()).then(|| join_object(&head, &value));
        let write = Write { key: pending.ledger_key(), object };
        let (condition, deadline) = (plan.condition(), pending.times.deadline);
        self.note_wait(cx.env, &mut pending, SlowStage::Sync);
        let token = self.served.add(ServedRequest { pending, write: Some(Box::new((plan, head, value))) });
        let (index, head, version) = (version.index(), current.version, Some(version));
        let proposal = Proposal { token, condition, write, head, version, deadline };
        cx.work.do_next(Todo::Propose { key: group, index, proposal });
    }

    /// Goes on with a write whose key the disk has found; with the applied index of its group when it was looked up.
    pub fn on_write_found(
        &mut self,
        cx: &mut GroupContext<'_>,
        pending: Box<Pending>,
        plan: Plan,
        applied: u64,
        found: Result<Option<Found>, engine::Error>,
    ) {
        let held = cx.groups.get(pending.group);
        let is_ready = held.is_some_and(|held| held.group.is_ready() && !held.is_held());
        match held.map(|held| held.group.applied()) {
            Some(now) if is_ready && now == applied => self.propose(cx, *pending, plan, found),
            Some(_) if is_ready => self.write(cx, *pending, plan),
            _ => cx.work.do_next(Todo::Dispatch(pending)),
        }
    }

    /// Ends a request with the answer of its group.
    pub fn end_served(&mut self, cx: &mut GroupContext<'_>, token: u64, answer: Answer) {
        let Some(ServedRequest { pending, write }) = self.served.take(token) else { return };
        match (answer, write) {
            (Answer::Written(_), Some(write)) => {
                let (plan, head, value) = *write;
                pending.reply(cx.env, Ok(plan.response(&head, &value)));
            }
            (Answer::Readable, _) if cx.groups.is_in_catch_up(pending.group) => {
                cx.work.dispatch(pending);
            }
            (Answer::Readable, _) => {
                cx.env.counters.consistent_index_reads += 1;
                self.look_up(cx, pending);
            }
            // Nothing was proposed, or another entry took its place: it may be decided anew.
            (Answer::Unavailable(Cause::NotLeader { .. } | Cause::NotReady | Cause::LeaderChanged), _) => {
                cx.work.dispatch(pending);
            }
            (answer, _) => {
                let error = match answer {
                    Answer::Unavailable(Cause::Overload) => Error::Overload,
                    answer => error_of(answer).unwrap_or(Error::Unavailable),
                };
                pending.reply(cx.env, Err(error));
            }
        }
    }

    /// Looks the key of a confirmed read up.
    fn look_up(&mut self, cx: &mut GroupContext<'_>, mut pending: Pending) {
        let epoch = cx.groups.epoch(pending.group);
        let want = want_of(&pending);
        let dropped_at = cx.groups.dropped_at(pending.group);
        match cx.env.store.lookup_since(&pending.ledger_key(), want, dropped_at) {
            Lookup::Done(found) => self.end_read(cx, pending, epoch, found),
            Lookup::NeedsIo(id) => {
                self.note_lookup(cx.env, &mut pending, want);
                let pending = Box::new(pending);
                cx.lookups.add(id, WaitingLookup::Read { pending, epoch });
            }
        }
    }

    /// Ends a confirmed read. A follower with damage asks its leader. Damage at a leader is the client's answer, and
    /// another voter leads next.
    ///
    /// `epoch`: the group's at the confirmation. It may have been unloaded since.
    pub fn end_read(
        &mut self,
        cx: &mut GroupContext<'_>,
        pending: Pending,
        epoch: u16,
        found: Result<Option<Found>, engine::Error>,
    ) {
        cx.work.note_damage(pending.group, &found);
        let leads = cx.groups.get(pending.group).is_some_and(|held| held.group.leads());
        let is_unusable = found.is_err() || cx.groups.is_in_catch_up(pending.group);
        if is_unusable && !leads && !matches!(pending.reply_to, ReplyTo::Leader(..)) {
            return cx.work.dispatch(pending);
        }
        respond(cx.env, &pending, found, epoch);
    }

    /// Ends the requests of groups that this store has left: their writes may be applied.
    pub fn end_unknown(&mut self, env: &mut Env) {
        for ServedRequest { pending, write } in self.served.take_all() {
            let error = if write.is_some() { Error::Timeout } else { Error::Unavailable };
            pending.reply(env, Err(error));
        }
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
    let response: Result<Response, Error> = found.map_err(store_error).and_then(|found| {
        let object = found.map(|found| (found.head, found.value.unwrap_or_default()));
        get_response(get, object, epoch)
    });
    pending.reply(env, response);
}
