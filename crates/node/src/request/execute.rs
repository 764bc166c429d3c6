//! Tasks on objects: each is a coordinator, stepped until it is over.
//!
//! A coordinator whose lookup is answered from memory, whose write may be acknowledged at once and which asks no
//! other node is never parked, and costs no entry in any table: that is the common case of a read on a node alone.

use super::actors::Actors;
use super::dual_write::{is_unpassed, pass_on};
use super::hint_writer::{UnkeptHints, hint_keys};
use super::place::{Ready, placement};
use super::replica::answer;
use super::task::TaskTable;
use super::task::{BlockedOn, Coordinator, LINGERING_MAX, PendingReply, PreviousVersion, Task};
use super::unsent::UnsentAsks;
use crate::frontdoor::latency::Timed;
use crate::frontdoor::slow::SlowLooks;
use crate::shard::awaiting::Waiter;
use crate::shard::effect::Effect;
use crate::shard::env::Env;
use crate::shard::knobs::TIMEOUT_DEFAULT;
use crate::shard::reply_to::ReplyTo;
use crate::shard::store_error::store_error;
use base::Monotonic;
use bytes::Bytes;
use engine::store::LookupId;
use engine::{Found, Lookup, Seq, Want, Write};
use kv::{Action, Answer, Error, Event, Graveyard, Next, NodeId, ReadStrategy, Reason, StepContext, Stored};
use object::{Dot, HeadView, key};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long other nodes may take before work is told that they do: far above a round trip and a sync, and short
/// enough that what they miss has its hint soon.
const PATIENCE: Duration = Duration::from_millis(500);

/// Lookups that wait for this node's disk beyond which its values are left to others: about what its readers can
/// do within the time of one more read.
pub const LOOKUPS_BUSY: usize = 64;

/// Hints in one batch with the version they are for.
const HINTS_MAX: usize = kv::props::N_VAL_MAX as usize;
const _: () = assert!(HINTS_MAX < engine::store::BATCH_WRITES_MAX, "they are one batch");

/// Tasks of a shard, and what their writes need.
pub(crate) struct Requests {
    pub(super) tasks: TaskTable,
    pub(super) looks: SlowLooks,
    /// The actors of the writes of this process.
    actors: Actors,
    /// Tombstones that were reaped lately.
    pub(super) graveyard: Graveyard,
    unkept_hints: UnkeptHints,
    pub(super) unsent: UnsentAsks,
}

impl Requests {
    /// Those of a process whose writes have these actors; graves are remembered for so long.
    pub fn new(actors: Actors, grave: Duration) -> Requests {
        Requests {
            tasks: TaskTable::default(),
            looks: SlowLooks::default(),
            actors,
            graveyard: Graveyard::new(grave),
            unkept_hints: UnkeptHints::default(),
            unsent: UnsentAsks::default(),
        }
    }

    /// All tasks that are parked.
    pub fn tasks(&self) -> &TaskTable {
        &self.tasks
    }

    /// Tombstones that are remembered.
    pub fn graves(&self) -> usize {
        self.graveyard.len()
    }

    /// Whether tasks are to be told in the next turn that a question was not sent.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Other actors from now on.
    pub fn set_actors(&mut self, actors: Actors) {
        self.actors = actors;
    }

    /// Ranges of keys were dropped here.
    pub fn on_ranges_dropped(&mut self) {
        self.actors.forget_all();
    }

    /// Writes hints that there is room for now, and forgets graves that are old enough. To be called a few times a
    /// second.
    pub fn tick(&mut self, env: &mut Env, now: Monotonic) {
        self.unkept_hints.tick(env);
        self.graveyard.tick(now);
        if self.graveyard.has_due() {
            let busy = self.tasks.keys();
            self.graveyard.expire(|key| busy.contains(key));
        }
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        self.tasks.invariants(&env.gauges);
        self.looks.invariants();
        let (now, wakes) = (env.clock.now(), env.deadlines.earliest());
        for (seq, id, deadline) in self.tasks.awaited() {
            assert!(env.awaiting.has(seq, Waiter::Task(id)), "a task that waits for its write is told of it");
            let is_in_time = deadline <= now || wakes.is_some_and(|wakes| wakes <= deadline);
            assert!(is_in_time, "the shard wakes at the deadline of a task");
        }
    }

    /// Begins a client's request.
    pub fn begin(&mut self, env: &mut Env, ready: Ready) {
        let Ready { reply_to, coordinator, prefix, props, times } = ready;
        let (bucket, key) = coordinator.names();
        self.tasks.key.clear();
        key::encode_object_key(prefix, &bucket.bucket_type, &bucket.name, key, &mut self.tasks.key);
        // Exactly as long as it is, so that it is one allocation.
        let ledger_key = Bytes::copy_from_slice(&self.tasks.key);
        match &coordinator {
            Coordinator::Get(_) => env.counters.gets += 1,
            Coordinator::Put(_) => env.counters.puts += 1,
            Coordinator::Delete(_) => env.counters.deletes += 1,
            _ => {}
        }
        let mut work = Task::new(reply_to, coordinator, ledger_key, props, times.deadline);
        let now = env.now();
        work.begun = Some(now);
        work.came = times.came;
        work.epoch = Some(env.topology.epoch);
        env.activity.note_client(now);
        self.start(env, work);
    }

    /// Begins work, and steps its coordinator until it is over or has to wait.
    pub fn start(&mut self, env: &mut Env, mut work: Task) {
        let mut id = None;
        self.drive(env, &mut id, &mut work, Event::Start);
        if work.is_over() { self.finish(env, &mut work) } else { self.park(env, id, Box::new(work)) }
    }

    /// The same for work that was parked.
    fn resume_parked(&mut self, env: &mut Env, mut id: Option<u64>, mut work: Box<Task>, event: Event) {
        self.drive(env, &mut id, &mut work, event);
        self.end_or_park(env, id, work);
    }

    fn end_or_park(&mut self, env: &mut Env, id: Option<u64>, mut work: Box<Task>) {
        if work.is_over() { self.finish(env, &mut work) } else { self.park(env, id, work) }
    }

    /// Steps a coordinator until it is over or has to wait.
    fn drive(&mut self, env: &mut Env, id: &mut Option<u64>, work: &mut Task, event: Event) {
        work.bytes += bytes_of(&event);
        if let Event::Answer { from, .. } = &event {
            work.note_answer(env, *from);
        }
        let mut next = Some(event);
        while let Some(event) = next.take() {
            if work.unpassed.is_some() && matches!(event, Event::Written(Ok(()))) && pass_on(env, id, work) {
                break;
            }
            let mut actions = std::mem::take(&mut self.tasks.actions);
            self.step(env, work, event, &mut actions);
            for action in actions.drain(..) {
                if let Some(event) = self.execute(env, id, work, action) {
                    debug_assert!(next.is_none(), "the store does one thing at a time for a coordinator");
                    next = Some(event);
                }
            }
            self.tasks.actions = actions;
        }
    }

    fn step(&mut self, env: &mut Env, work: &mut Task, event: Event, out: &mut Vec<Action>) {
        let form = match work.reply_to {
            // What is to be healed is this node's own value.
            ReplyTo::Nobody | ReplyTo::Exchange | ReplyTo::Sweep => ReadStrategy::LocalValue,
            _ => read_form(self.tasks.lookups.len(), env),
        };
        let can_write = !work.coordinator.writes()
            || env.peers.is_alone()
            || env.can_write(matches!(work.coordinator, Coordinator::Delete(_)));
        let at = env.ownership().position(key::prefix_of(&work.key));
        let asker = match work.reply_to {
            ReplyTo::Replica(node, _) => Some(node),
            _ => None,
        };
        let Requests { actors, graveyard, .. } = self;
        let Env { store, peers, version_clock, rng, clock, .. } = env;
        let (ring, limits) = (&env.topology.ring, &env.knobs.limits);
        // A tree is kept by what a write replaces, too.
        let may_replace_entries = store.has_entries() || env.gauges.keeps_trees;
        let mut stands_in = false;
        let mut next_dot = |is_primary: bool| {
            let actor = if is_primary {
                actors.own_write(&work.key, &mut **rng)
            } else {
                stands_in = true;
                actors.begin_write(&work.key, &mut **rng)
            };
            store.next_counter().map(|counter| Dot { actor, counter }).map_err(store_error)
        };
        let place = |n, sloppy| placement(ring, peers, at, n, sloppy, can_write);
        let mut turn = StepContext {
            here: peers.here(),
            wall: clock.wall(),
            clock: version_clock,
            asker,
            next_dot: &mut next_dot,
            place: &place,
            grave: graveyard.plot(&work.key),
            may_replace_entries,
            form,
            props: &work.props,
            limits,
            out,
        };
        work.next = work.coordinator.step(event, &mut turn);
        work.stands_in |= stands_in;
    }

    /// Does what a coordinator asks for; what comes of it at once is returned.
    fn execute(
        &mut self,
        env: &mut Env,
        id: &mut Option<u64>,
        work: &mut Task,
        action: Action,
    ) -> Option<Event> {
        match action {
            Action::Read { hold: true, .. } | Action::Write { .. }
                if self.tasks.queues_behind(work, || *id.get_or_insert_with(|| env.next_id())) =>
            {
                work.waits = BlockedOn::Key(action);
                None
            }
            Action::Read { want, hold } => {
                work.reads_hint = false;
                let found = env.store.lookup(&work.key, engine_want(want));
                self.looked_up(env, id, work, found, (engine_want(want), hold))
            }
            Action::ReadHint { node } => {
                work.reads_hint = true;
                let found = env.store.lookup(&key::hint(node.0, &work.key), Want::Head);
                self.looked_up(env, id, work, found, (Want::Head, true))
            }
            Action::Write { head, value, hints } => {
                let written = self.write(env, id, work, &head, &value, &hints);
                if !env.topology.is_at_rest() && work.coordinator.is_passed_on() {
                    work.unpassed = Some(Box::new((head, value)));
                }
                written
            }
            Action::Hint { nodes, confirm } => {
                let written = self.unkept_hints.keep(env, work, &nodes);
                if confirm { await_written(env, id, work, written) } else { None }
            }
            Action::Ask { to, ask } => {
                let id = *id.get_or_insert_with(|| env.next_id());
                self.note_asking(env, id, work);
                work.note_ask(env, to);
                self.ask(env, to, id, work.deadline, work.key.clone(), ask);
                None
            }
            Action::MergeHere { head, value, heal, hints } => {
                merge_here(env, work, (head, value), heal, hints);
                None
            }
            Action::Settle => {
                self.release_key(env, work);
                let last = env.store.last_written();
                await_written(env, id, work, Ok(last))
            }
            Action::Remove => self.remove(env, id, work),
            Action::Propose { tombstone } => {
                env.raise(Effect::ProposeReap { key: work.key.clone(), tombstone });
                None
            }
            Action::Forget { node, object } => {
                // A write that waits for another replica may yet leave a hint about what is stored here. Then this one
                // stays too, and the next round looks again.
                let is_of_use = self.tasks.is_written(&work.key) || self.unkept_hints.are_about(&work.key);
                if !object || !is_of_use {
                    self.forget_hint(env, work, node, object);
                }
                None
            }
            Action::Reply(result) => {
                self.reply_when_durable(env, id, work, PendingReply::Client(Box::new(result)));
                None
            }
            Action::Answer(Ok(Answer::Merged)) if is_unpassed(env, work) => {
                self.pass_before_answer(env, id, work)
            }
            Action::Answer(result) => {
                self.reply_when_durable(env, id, work, PendingReply::Replica(result));
                None
            }
        }
    }

    /// A task asks another node: it is to be told when that takes long.
    fn note_asking(&mut self, env: &mut Env, id: u64, work: &mut Task) {
        if !std::mem::replace(&mut work.asks, true) {
            let late = env.now() + PATIENCE;
            self.tasks.late.push_back((late, id));
            env.deadlines.note(late);
        }
    }

    /// Removes the object under the task's key.
    fn remove(&mut self, env: &mut Env, id: &mut Option<u64>, work: &mut Task) -> Option<Event> {
        let before = work.prior.before(env.store.has_entries());
        let written = env.store.write_over(&[Write::Delete { key: &work.key }], before);
        note_written(env, work, None, &written);
        self.actors.forget(&work.key);
        self.release_key(env, work);
        work.rests_on = Seq(0);
        await_written(env, id, work, written)
    }

    fn looked_up(
        &mut self,
        env: &mut Env,
        id: &mut Option<u64>,
        work: &mut Task,
        found: Lookup,
        (want, hold): (Want, bool),
    ) -> Option<Event> {
        match found {
            Lookup::Done(answer) => Some(Event::Read(stored(work, answer, env.knobs.reaping.fold_actors))),
            Lookup::NeedsIo(lookup) => {
                let id = *id.get_or_insert_with(|| env.next_id());
                self.tasks.lookups.insert(lookup, id);
                work.waits = BlockedOn::Lookup(want);
                // What it has read must still be there when it writes.
                if hold && !work.holds_key {
                    work.holds_key = true;
                    let before = self.tasks.busy.insert(work.key.clone(), VecDeque::new());
                    assert!(before.is_none(), "two writes of one key have begun");
                }
                None
            }
        }
    }

    fn write(
        &mut self,
        env: &mut Env,
        id: &mut Option<u64>,
        work: &mut Task,
        head: &Bytes,
        value: &[u8],
        hints: &[NodeId],
    ) -> Option<Event> {
        let (key, value) = (&work.key[..], &[value][..]);
        let object = match HeadView::expiry_of(head) {
            None => Write::Put { key, head, value },
            Some(expires_ms) => Write::PutUntil { key, head, value, expires_ms },
        };
        let before = work.prior.before(env.store.has_entries());
        let written = if hints.is_empty() {
            env.store.write_over(&[object], before)
        } else {
            let keys = hint_keys(env, hints, &work.key);
            let hints = keys.iter().map(|key| Write::Put { key, head: &[], value: &[] });
            let batch: Vec<_> = std::iter::once(object).chain(hints).collect();
            env.store.write_over(&batch, before)
        };
        note_written(env, work, Some(head.clone()), &written);
        work.folds = HeadView::has_more_actors(head, env.knobs.reaping.fold_actors);
        if written.is_err() || matches!(work.prior, PreviousVersion::Damaged) {
            self.actors.lose(&work.key, &mut *env.rng);
        } else if work.stands_in {
            self.actors.keep(&work.key);
        }
        self.release_key(env, work);
        // What the write was planned on goes with it.
        work.rests_on = Seq(0);
        await_written(env, id, work, written)
    }

    /// Answers, now or when what the answer rests on may be acknowledged.
    pub(crate) fn reply_when_durable(
        &mut self,
        env: &mut Env,
        id: &mut Option<u64>,
        work: &mut Task,
        parting: PendingReply,
    ) {
        self.release_key(env, work);
        if work.rests_on <= env.store.acknowledged() {
            return self.send_reply(env, work, parting);
        }
        if let Some(error) = env.store.fenced() {
            // What it rests on will never be durable; it was read before the store failed, and others were asked since.
            self.send_reply(env, work, parting.failed(store_error(error)));
        } else {
            let id = *id.get_or_insert_with(|| env.next_id());
            env.awaiting.insert(work.rests_on, Waiter::Task(id));
            work.parting = Some(parting);
        }
    }

    fn send_reply(&mut self, env: &mut Env, work: &mut Task, parting: PendingReply) {
        work.answered = true;
        match (parting, work.reply_to) {
            // A key that was to be repaired. If it cannot be, it is found again.
            (PendingReply::Client(result), ReplyTo::Exchange) => {
                if result.is_ok() {
                    env.raise(Effect::KeyRead);
                }
            }
            (PendingReply::Client(_), ReplyTo::Sweep) => {}
            // A key that was to be healed.
            (PendingReply::Client(result), ReplyTo::Nobody) => {
                env.counters.heals_failed += u64::from(result.is_err());
            }
            (PendingReply::Client(result), reply_to) => {
                if let Some(now) = count_latency(env, work) {
                    work.note_end(env, &result, now);
                }
                env.reply(reply_to, *result);
            }
            (PendingReply::Replica(result), ReplyTo::Replica(to, id)) => answer(env, to, id, result),
            (PendingReply::Replica(result), ReplyTo::DualWrite(id)) => {
                self.resume(env, id, Event::Written(result.map(drop)))
            }
            (PendingReply::Replica(result), _) => env.counters.repairs_failed += u64::from(result.is_err()),
        }
    }

    fn park(&mut self, env: &mut Env, id: Option<u64>, mut work: Box<Task>) {
        let id = id.expect("work that waits for something has a name");
        self.note_wait(env, &mut work);
        if work.answered {
            self.tasks.lingering.push_back(id);
        }
        env.deadlines.note(work.deadline);
        self.tasks.insert(id, work, &mut env.gauges);
        while self.tasks.lingering.len() > LINGERING_MAX {
            let oldest = self.tasks.lingering.pop_front().expect("it is not empty");
            self.resume(env, oldest, Event::Late);
        }
    }

    /// Tells parked work what happened, if it is still there.
    pub(crate) fn resume(&mut self, env: &mut Env, id: u64, event: Event) {
        let Some(work) = self.tasks.get(id) else { return };
        // It is over but for its answer, which waits for the disk.
        if work.next == Next::Over {
            return;
        }
        let work = self.tasks.remove(id, &mut env.gauges).expect("just seen");
        self.resume_parked(env, Some(id), work, event);
    }

    fn finish(&mut self, env: &mut Env, work: &mut Task) {
        self.release_key(env, work);
        if work.folds && work.coordinator.is_clients() {
            env.raise(Effect::ProposeContextFold { key: work.key.clone() });
        }
        let key = || work.key.clone();
        let ended = match &work.coordinator {
            Coordinator::Deliver(deliver) => Effect::HintDelivered(deliver.to()),
            Coordinator::TransferKey(carry) => {
                Effect::KeyTransferred { transfer: carry.copy(), key: key(), result: carry.end() }
            }
            Coordinator::Reap(reap) if reap.folds() => {
                Effect::ContextFolded { key: key(), is_agreed: reap.is_agreed() }
            }
            Coordinator::Reap(reap) => Effect::Reaped { key: key(), is_agreed: reap.is_agreed() },
            Coordinator::Get(_) if work.reply_to == ReplyTo::Exchange => Effect::KeyRepaired,
            Coordinator::Get(_) if work.reply_to == ReplyTo::Sweep => Effect::TombstoneRead,
            _ => return,
        };
        env.raise(ended);
    }

    /// Lets the next write of the key begin.
    pub(crate) fn release_key(&mut self, env: &mut Env, work: &mut Task) {
        if !std::mem::take(&mut work.holds_key) {
            return;
        }
        let waiting = self.tasks.busy.remove(&work.key).expect("a key that is held is busy");
        for id in waiting {
            // It may have been answered by its deadline.
            let Some(mut next) = self.tasks.remove(id, &mut env.gauges) else { continue };
            match std::mem::replace(&mut next.waits, BlockedOn::Nothing) {
                BlockedOn::Key(action) => self.take_key(env, id, next, action),
                waits => {
                    next.waits = waits;
                    self.tasks.insert(id, next, &mut env.gauges);
                }
            }
        }
    }

    // In order: the first that has to wait for the disk holds the key, and the rest queue behind it again.
    fn take_key(&mut self, env: &mut Env, id: u64, mut work: Box<Task>, action: Action) {
        let mut name = Some(id);
        match self.execute(env, &mut name, &mut work, action) {
            Some(event) => self.resume_parked(env, name, work, event),
            None => self.park(env, name, work),
        }
    }

    pub(crate) fn on_lookup(
        &mut self,
        env: &mut Env,
        lookup: LookupId,
        answer: Result<Option<Found>, engine::Error>,
    ) {
        let id = self.tasks.lookups.remove(&lookup).expect("a lookup is answered once");
        if let Some(mut work) = self.tasks.remove(id, &mut env.gauges) {
            work.waits = BlockedOn::Nothing;
            let event = Event::Read(stored(&mut work, answer, env.knobs.reaping.fold_actors));
            self.resume_parked(env, Some(id), work, event);
        }
    }

    pub(crate) fn on_acknowledged(&mut self, env: &mut Env, id: u64, seq: Seq, result: Result<(), Error>) {
        let Some(mut work) = self.tasks.remove(id, &mut env.gauges) else { return };
        if matches!(work.waits, BlockedOn::Written(written) if written == seq) {
            work.waits = BlockedOn::Nothing;
            return self.resume_parked(env, Some(id), work, Event::Written(result));
        }
        if let Some(parting) = work.parting.take() {
            let parting = match result {
                Ok(()) => parting,
                Err(error) => parting.failed(error),
            };
            self.send_reply(env, &mut work, parting);
        }
        self.end_or_park(env, Some(id), work);
    }

    /// Forgets a hint that is home, and with `object` the key that was kept for it alone.
    fn forget_hint(&mut self, env: &mut Env, work: &Task, node: NodeId, object: bool) {
        let hint = key::hint(node.0, &work.key);
        // It may have become this node's to keep since.
        let object = object && !env.ownership().keeps(&work.key, work.props.n_val);
        let both = [Write::Delete { key: &work.key }, Write::Delete { key: &hint }];
        let written = match object {
            true => env.store.write_over(&both, work.prior.before(env.store.has_entries())),
            false => env.store.write(&both[1..]),
        };
        if object {
            self.actors.forget(&work.key);
            // It may be in a tree: that of the partition, which this node has for buckets with more replicas.
            note_written(env, work, None, &written);
        }
        // A hint that cannot be removed is brought once more.
        if written.is_ok() {
            env.counters.hints_home += 1;
        }
    }

    /// A node will not answer.
    pub fn fail(&mut self, env: &mut Env, node: NodeId) {
        for id in self.tasks.names(|work| work.asks) {
            self.resume(env, id, Event::Answer { from: node, result: Err(Error::Unreachable) });
        }
    }

    /// Nobody waits for the tasks of an outbound transfer any more.
    pub(crate) fn cancel_transfer(&mut self, env: &mut Env, transfer: u64) {
        let is_its_own = |task: &Task| match &task.coordinator {
            Coordinator::TransferKey(key) => key.copy() == transfer,
            _ => false,
        };
        for id in self.tasks.names(is_its_own) {
            self.resume(env, id, Event::Expired);
        }
    }

    /// Tells work whose time is up, and work whose replicas take long.
    pub fn expire(&mut self, env: &mut Env, now: Monotonic) {
        let due = |work: &Task| work.deadline <= now;
        for id in self.tasks.names(due) {
            let Some(mut work) = self.tasks.remove(id, &mut env.gauges) else { continue };
            if let Some(parting) = work.parting.take() {
                self.send_reply(env, &mut work, parting.failed(Error::Timeout));
            }
            match work.next {
                Next::Over => self.finish(env, &mut work),
                Next::Wait => self.resume_parked(env, Some(id), work, Event::Expired),
            }
        }
        while let Some(&(at, id)) = self.tasks.late.front().filter(|(at, _)| *at <= now) {
            self.tasks.late.pop_front();
            self.resume(env, id, Event::Late);
            if self.tasks.get(id).is_some() {
                self.tasks.late.push_back((at.max(now) + PATIENCE, id));
            }
        }
        self.look_for_slow(env, now);
    }
}

/// How reads ask: by heads first where this node's disk has too much to do.
fn read_form(lookups: usize, env: &Env) -> ReadStrategy {
    if lookups >= LOOKUPS_BUSY { ReadStrategy::Heads } else { env.knobs.read_form }
}

/// Counts how long a client's request took. Returns when it ends.
fn count_latency(env: &mut Env, work: &Task) -> Option<Monotonic> {
    let begun = work.begun?;
    let now = env.now();
    match work.coordinator {
        Coordinator::Get(_) => env.latency.add_get(begun, now),
        Coordinator::Put(_) => env.latency.add_put(begun, now),
        Coordinator::Delete(_) => env.latency.add(Timed::Delete, begun, now),
        _ => {}
    }
    Some(now)
}

/// Has the work told when its write may be acknowledged.
fn await_written(
    env: &mut Env,
    id: &mut Option<u64>,
    work: &mut Task,
    written: Result<Seq, engine::Error>,
) -> Option<Event> {
    match written {
        Ok(seq) if seq > env.store.acknowledged() => {
            let id = *id.get_or_insert_with(|| env.next_id());
            work.waits = BlockedOn::Written(seq);
            env.awaiting.insert(seq, Waiter::Task(id));
            None
        }
        Ok(_) => Some(Event::Written(Ok(()))),
        Err(error) => Some(Event::Written(Err(store_error(error)))),
    }
}

/// The head that was under the task's key as of its last read was replaced by this one.
#[inline]
fn note_written(env: &mut Env, work: &Task, new: Option<Bytes>, written: &Result<Seq, engine::Error>) {
    if let Ok(seq) = written
        && env.gauges.keeps_trees
        && !(work.is_repair() && base::planted!(TreeNotUpdatedOnRepair))
    {
        env.raise(Effect::HeadChanged(work.head_change(new, *seq)));
    }
}

/// Has a version joined with the one that is here.
fn merge_here(env: &mut Env, work: &Task, (head, value): (Bytes, Bytes), heal: bool, hints: Vec<NodeId>) {
    let reason = match (heal, hints.is_empty()) {
        (true, _) => Reason::Heal,
        (false, true) => Reason::Repair,
        (false, false) => Reason::Write,
    };
    env.counters.repairs += u64::from(hints.is_empty());
    let merge = Coordinator::Merge(kv::Merge::new(head, value, hints, reason));
    let deadline = env.now() + TIMEOUT_DEFAULT;
    env.start(Task::new(ReplyTo::Nobody, merge, work.key.clone(), Arc::clone(&work.props), deadline));
}

/// Bytes of values that come with an event.
fn bytes_of(event: &Event) -> usize {
    match event {
        Event::Read(Ok(Some(stored))) | Event::Answer { result: Ok(Answer::Read(Some(stored))), .. } => {
            stored.value.as_ref().map_or(0, Bytes::len)
        }
        _ => 0,
    }
}

fn engine_want(want: kv::Want) -> Want {
    match want {
        kv::Want::Head => Want::Head,
        kv::Want::Value => Want::Value,
    }
}

fn stored(
    work: &mut Task,
    answer: Result<Option<Found>, engine::Error>,
    fold_actors: usize,
) -> Result<Option<Stored>, Error> {
    if !work.reads_hint {
        work.prior = PreviousVersion::of(&answer, work.coordinator.writes());
    }
    match answer {
        Ok(None) => Ok(None),
        Ok(Some(found)) => {
            work.rests_on = work.rests_on.max(found.seq);
            work.folds |= HeadView::has_more_actors(&found.head, fold_actors);
            Ok(Some(Stored { head: found.head, value: found.value }))
        }
        Err(error) => Err(store_error(error)),
    }
}
