//! Tasks on objects: each is a coordinator, stepped until it is over.
//!
//! A coordinator whose lookup is answered from memory, whose write may be acknowledged at once and which asks no
//! other node is never parked, and costs no entry in any table: that is the common case of a read on a node alone.

use crate::liveness::peers::Peers;
use crate::peer::Load;
use crate::request::hint_writer::hint_keys;
use crate::request::task::{BlockedOn, Coordinator, LINGERING_MAX, PendingReply, PreviousVersion, Task};
use crate::shard::Shard;
use crate::shard::awaiting::Waiter;
use crate::shard::effect::Effect;
use crate::shard::env::Env;
use crate::shard::reply_to::ReplyTo;
use crate::shard::store_error::store_error;
use base::Monotonic;
use bytes::Bytes;
use engine::store::LookupId;
use engine::{Found, Lookup, Seq, Want, Write};
use kv::{
    Action, Answer, BucketProps, Error, Event, Next, NodeId, Placement, ReadForm, Reason, Stored, Turn,
};
use object::{Dot, HeadView, key};
use ring::{Position, Ring};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long other nodes may take before work is told that they do: far above a round trip and a sync, and short
/// enough that what they miss has its hint soon.
const PATIENCE: Duration = Duration::from_millis(500);

/// Lookups that wait for this node's disk beyond which its values are left to others: about what its readers can
/// do within the time of one more read.
pub const LOOKUPS_BUSY: usize = 64;

/// Load beyond which a write is given to a node that has less than half of it.
const LOAD_BUSY: Load = Load(1024);

/// Hints in one batch with the version they are for.
const HINTS_MAX: usize = kv::props::N_VAL_MAX as usize;
const _: () = assert!(HINTS_MAX < engine::store::BATCH_WRITES_MAX, "they are one batch");

/// A client's request that is to begin on this shard.
pub(crate) struct Ready {
    pub reply_to: ReplyTo,
    pub coordinator: Coordinator,
    /// Of its ledger key.
    pub prefix: u16,
    pub props: Arc<BucketProps>,
    pub deadline: Monotonic,
}

impl Shard {
    /// Begins a client's request, here or wherever it belongs.
    pub(crate) fn start_object(&mut self, reply_to: ReplyTo, coordinator: Coordinator, deadline: Monotonic) {
        self.place_object(reply_to, coordinator, deadline, None);
    }

    /// The same, but not at the node that it could not be sent to.
    pub(crate) fn place_object(
        &mut self,
        reply_to: ReplyTo,
        coordinator: Coordinator,
        deadline: Monotonic,
        avoids: Option<NodeId>,
    ) {
        let (bucket, key) = coordinator.names();
        let (prefix, shard) = self.env.place(bucket, key);
        if shard != self.env.knobs.id {
            return self.env.forward_to_shard(shard, reply_to, coordinator.into_request(), deadline);
        }
        let props = match self.env.props.get(bucket) {
            Ok(props) => Arc::clone(props),
            Err(error) => return self.env.reply(reply_to, Err(error)),
        };
        // What is written once is written without reading, so any node will do; and what a hook refuses is not written.
        let needs_replica = match &coordinator {
            Coordinator::Put(_) => !props.write_once && props.precommit.is_empty(),
            _ => coordinator.writes() && props.precommit.is_empty(),
        };
        if needs_replica && let Some(node) = self.better_coordinator(prefix, props.n_val, &reply_to, avoids) {
            return self.forward_to_node(node, reply_to, coordinator.into_request(), deadline, avoids);
        }
        let ready = Ready { reply_to, coordinator, prefix, props, deadline };
        if let Some(ready) = self.frontdoor.pacer.hold(ready, &mut self.env) {
            self.begin_object(ready);
        }
    }

    /// Begins it.
    pub(crate) fn begin_object(&mut self, ready: Ready) {
        let Ready { reply_to, coordinator, prefix, props, deadline } = ready;
        let (bucket, key) = coordinator.names();
        self.objects.key.clear();
        key::encode_object_key(prefix, &bucket.bucket_type, &bucket.name, key, &mut self.objects.key);
        // Exactly as long as it is, so that it is one allocation.
        let ledger_key = Bytes::copy_from_slice(&self.objects.key);
        match &coordinator {
            Coordinator::Get(_) => self.env.counters.gets += 1,
            Coordinator::Put(_) => self.env.counters.puts += 1,
            Coordinator::Delete(_) => self.env.counters.deletes += 1,
            _ => {}
        }
        let mut work = Task::new(reply_to, coordinator, ledger_key, props, deadline);
        let now = self.env.now();
        work.begun = Some(now);
        work.epoch = Some(self.env.topology.epoch);
        self.env.activity.note_client(now);
        self.start_work(work);
    }

    /// The node that is to coordinate a write, if it is not this one: where this one is not to hold the key, cannot
    /// write, or has far more to do. A write that was passed on is not passed on again.
    fn better_coordinator(
        &self,
        prefix: u16,
        n_val: u32,
        reply_to: &ReplyTo,
        avoids: Option<NodeId>,
    ) -> Option<NodeId> {
        let is_forwarded = matches!(reply_to, ReplyTo::Coordinator(..)) && !base::planted!(ForwardingLoop);
        if self.env.peers.is_alone() || is_forwarded {
            return None;
        }
        let can_write = self.env.can_write(false);
        let at = self.env.ownership().position(prefix);
        let placement = placement(&self.env.topology.ring, &self.env.peers, at, n_val, true, can_write);
        let here = placement.here.as_ref();
        let (node, _) = placement
            .others
            .iter()
            .filter(|(node, roles)| Some(*node) != avoids && (roles.primaries > 0 || here.is_none()))
            .min_by_key(|(node, _)| self.env.peers.load(*node))?;
        let load = self.env.gauges.load();
        let busy = load >= LOAD_BUSY && self.env.peers.load(*node).0 < load.0 / 2;
        (here.is_none_or(|roles| roles.primaries == 0) || busy).then_some(*node)
    }

    /// How reads ask: by heads first where this node's disk has too much to do.
    fn read_form(&self) -> ReadForm {
        if self.objects.lookups.len() >= LOOKUPS_BUSY { ReadForm::Heads } else { self.env.knobs.read_form }
    }

    /// Begins work, and steps its coordinator until it is over or has to wait.
    pub(crate) fn start_work(&mut self, mut work: Task) {
        let mut id = None;
        self.drive(&mut id, &mut work, Event::Start);
        if work.is_over() { self.finish(&mut work) } else { self.park(id, Box::new(work)) }
    }

    /// The same for work that was parked.
    fn resume_parked(&mut self, mut id: Option<u64>, mut work: Box<Task>, event: Event) {
        self.drive(&mut id, &mut work, event);
        self.end_or_park(id, work);
    }

    fn end_or_park(&mut self, id: Option<u64>, mut work: Box<Task>) {
        if work.is_over() { self.finish(&mut work) } else { self.park(id, work) }
    }

    /// Steps a coordinator until it is over or has to wait.
    fn drive(&mut self, id: &mut Option<u64>, work: &mut Task, event: Event) {
        work.bytes += bytes_of(&event);
        let mut next = Some(event);
        while let Some(event) = next.take() {
            if work.unpassed.is_some() && matches!(event, Event::Written(Ok(()))) && self.pass_on(id, work) {
                break;
            }
            let mut actions = std::mem::take(&mut self.objects.actions);
            self.step(work, event, &mut actions);
            for action in actions.drain(..) {
                if let Some(event) = self.execute(id, work, action) {
                    debug_assert!(next.is_none(), "the store does one thing at a time for a coordinator");
                    next = Some(event);
                }
            }
            self.objects.actions = actions;
        }
    }

    fn step(&mut self, work: &mut Task, event: Event, out: &mut Vec<Action>) {
        let form = match work.reply_to {
            // What is to be healed is this node's own value.
            ReplyTo::Nobody | ReplyTo::Exchange | ReplyTo::Sweep => ReadForm::LocalValue,
            _ => self.read_form(),
        };
        let can_write = !work.coordinator.writes()
            || self.env.peers.is_alone()
            || self.env.can_write(matches!(work.coordinator, Coordinator::Delete(_)));
        let at = self.env.ownership().position(key::prefix_of(&work.key));
        let asker = match work.reply_to {
            ReplyTo::Replica(node, _) => Some(node),
            _ => None,
        };
        let Shard { env, actors, graveyard, .. } = self;
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
        let mut turn = Turn {
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
    fn execute(&mut self, id: &mut Option<u64>, work: &mut Task, action: Action) -> Option<Event> {
        match action {
            Action::Read { hold: true, .. } | Action::Write { .. } if self.must_queue(id, work) => {
                work.waits = BlockedOn::Key(action);
                None
            }
            Action::Read { want, hold } => {
                work.reads_hint = false;
                let found = self.env.store.lookup(&work.key, engine_want(want));
                self.looked_up(id, work, found, hold)
            }
            Action::ReadHint { node } => {
                work.reads_hint = true;
                let found = self.env.store.lookup(&key::hint(node.0, &work.key), Want::Head);
                self.looked_up(id, work, found, true)
            }
            Action::Write { head, value, hints } => {
                let written = self.write(id, work, &head, &value, &hints);
                if !self.env.topology.is_at_rest() && work.coordinator.is_passed_on() {
                    work.unpassed = Some(Box::new((head, value)));
                }
                written
            }
            Action::Hint { nodes, confirm } => {
                let written = self.unkept_hints.keep(&mut self.env, work, &nodes);
                if confirm { self.written(id, work, written) } else { None }
            }
            Action::Ask { to, ask } => {
                let id = *id.get_or_insert_with(|| self.env.next_id());
                if !std::mem::replace(&mut work.asks, true) {
                    let now = self.env.now();
                    self.objects.late.push_back((now + PATIENCE, id));
                    self.env.deadlines.note(now + PATIENCE);
                }
                self.ask(to, id, work.deadline, work.key.clone(), ask);
                None
            }
            Action::MergeHere { head, value, heal, hints } => {
                let reason = match (heal, hints.is_empty()) {
                    (true, _) => Reason::Heal,
                    (false, true) => Reason::Repair,
                    (false, false) => Reason::Write,
                };
                self.env.counters.repairs += u64::from(hints.is_empty());
                let merge = Coordinator::Merge(kv::Merge::new(head, value, hints, reason));
                let deadline = self.env.now() + crate::shard::knobs::TIMEOUT_DEFAULT;
                let merge =
                    Task::new(ReplyTo::Nobody, merge, work.key.clone(), Arc::clone(&work.props), deadline);
                self.env.start(merge);
                None
            }
            Action::Settle => {
                self.release_key(work);
                self.written(id, work, Ok(self.env.store.last_written()))
            }
            Action::Remove => {
                let before = work.prior.before(self.env.store.has_entries());
                let written = self.env.store.write_over(&[Write::Delete { key: &work.key }], before);
                self.note_written(work, None, &written);
                self.actors.forget(&work.key);
                self.release_key(work);
                work.rests_on = Seq(0);
                self.written(id, work, written)
            }
            Action::Propose { tombstone } => {
                self.env.raise(Effect::ProposeReap { key: work.key.clone(), tombstone });
                None
            }
            Action::Forget { node, object } => {
                // A write that waits for another replica may yet leave a hint about what is stored here. Then this one
                // stays too, and the next round looks again.
                let may_be_of_use =
                    self.objects.is_written(&work.key) || self.unkept_hints.are_about(&work.key);
                if !object || !may_be_of_use {
                    self.forget_hint(work, node, object);
                }
                None
            }
            Action::Reply(result) => {
                self.reply_when_durable(id, work, PendingReply::Client(Box::new(result)));
                None
            }
            Action::Answer(Ok(Answer::Merged)) if self.is_unpassed(work) => self.pass_before_answer(id, work),
            Action::Answer(result) => {
                self.reply_when_durable(id, work, PendingReply::Replica(result));
                None
            }
        }
    }

    /// Whether another write of the key has begun; then this one is behind it from now on.
    fn must_queue(&mut self, id: &mut Option<u64>, work: &Task) -> bool {
        if work.holds_key || self.objects.busy.is_empty() || !self.objects.busy.contains_key(&work.key) {
            return false;
        }
        let id = *id.get_or_insert_with(|| self.env.next_id());
        self.objects.busy.get_mut(&work.key).expect("just looked").push_back(id);
        true
    }

    fn looked_up(
        &mut self,
        id: &mut Option<u64>,
        work: &mut Task,
        found: Lookup,
        hold: bool,
    ) -> Option<Event> {
        match found {
            Lookup::Done(answer) => {
                Some(Event::Read(stored(work, answer, self.env.knobs.reaping.fold_actors)))
            }
            Lookup::NeedsIo(lookup) => {
                let id = *id.get_or_insert_with(|| self.env.next_id());
                self.objects.lookups.insert(lookup, id);
                work.waits = BlockedOn::Lookup;
                // What it has read must still be there when it writes.
                if hold && !work.holds_key {
                    work.holds_key = true;
                    let before = self.objects.busy.insert(work.key.clone(), VecDeque::new());
                    assert!(before.is_none(), "two writes of one key have begun");
                }
                None
            }
        }
    }

    fn write(
        &mut self,
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
        let before = work.prior.before(self.env.store.has_entries());
        let written = if hints.is_empty() {
            self.env.store.write_over(&[object], before)
        } else {
            let keys = hint_keys(&mut self.env, hints, &work.key);
            let hints = keys.iter().map(|key| Write::Put { key, head: &[], value: &[] });
            let batch: Vec<_> = std::iter::once(object).chain(hints).collect();
            self.env.store.write_over(&batch, before)
        };
        self.note_written(work, Some(head.clone()), &written);
        work.folds = HeadView::has_more_actors(head, self.env.knobs.reaping.fold_actors);
        if written.is_err() || matches!(work.prior, PreviousVersion::Damaged) {
            self.actors.lose(&work.key, &mut *self.env.rng);
        } else if work.stands_in {
            self.actors.keep(&work.key);
        }
        self.release_key(work);
        // What the write was planned on goes with it.
        work.rests_on = Seq(0);
        self.written(id, work, written)
    }

    /// Has the work told when its write may be acknowledged.
    fn written(
        &mut self,
        id: &mut Option<u64>,
        work: &mut Task,
        written: Result<Seq, engine::Error>,
    ) -> Option<Event> {
        match written {
            Ok(seq) if seq > self.env.store.acknowledged() => {
                let id = *id.get_or_insert_with(|| self.env.next_id());
                work.waits = BlockedOn::Written(seq);
                self.env.awaiting.insert(seq, Waiter::Task(id));
                None
            }
            Ok(_) => Some(Event::Written(Ok(()))),
            Err(error) => Some(Event::Written(Err(store_error(error)))),
        }
    }

    /// Answers, now or when what the answer rests on may be acknowledged.
    pub(crate) fn reply_when_durable(
        &mut self,
        id: &mut Option<u64>,
        work: &mut Task,
        parting: PendingReply,
    ) {
        self.release_key(work);
        if work.rests_on <= self.env.store.acknowledged() {
            return self.send_reply(work, parting);
        }
        if let Some(error) = self.env.store.fenced() {
            // What it rests on will never be durable; it was read before the store failed, and others were asked since.
            self.send_reply(work, parting.failed(store_error(error)));
        } else {
            let id = *id.get_or_insert_with(|| self.env.next_id());
            self.env.awaiting.insert(work.rests_on, Waiter::Task(id));
            work.parting = Some(parting);
        }
    }

    fn send_reply(&mut self, work: &mut Task, parting: PendingReply) {
        work.answered = true;
        match (parting, work.reply_to) {
            // A key that was to be repaired. If it cannot be, it is found again.
            (PendingReply::Client(result), ReplyTo::Exchange) => {
                if result.is_ok() {
                    self.env.raise(Effect::KeyRead);
                }
            }
            (PendingReply::Client(_), ReplyTo::Sweep) => {}
            // A key that was to be healed.
            (PendingReply::Client(result), ReplyTo::Nobody) => {
                self.env.counters.heals_failed += u64::from(result.is_err());
            }
            (PendingReply::Client(result), reply_to) => {
                self.time(work);
                self.env.reply(reply_to, *result);
            }
            (PendingReply::Replica(result), ReplyTo::Replica(to, id)) => self.answer(to, id, result),
            (PendingReply::Replica(result), ReplyTo::DualWrite(id)) => {
                self.resume(id, Event::Written(result.map(drop)))
            }
            (PendingReply::Replica(result), _) => {
                self.env.counters.repairs_failed += u64::from(result.is_err())
            }
        }
    }

    /// Counts how long a client's request took.
    fn time(&mut self, work: &Task) {
        let Some(begun) = work.begun else { return };
        match work.coordinator {
            Coordinator::Get(_) => self.latency.add_get(begun, self.env.now()),
            Coordinator::Put(_) => self.latency.add_put(begun, self.env.now()),
            _ => {}
        }
    }

    fn park(&mut self, id: Option<u64>, work: Box<Task>) {
        let id = id.expect("work that waits for something has a name");
        if work.answered {
            self.objects.lingering.push_back(id);
        }
        self.env.deadlines.note(work.deadline);
        self.objects.insert(id, work, &mut self.env.gauges);
        while self.objects.lingering.len() > LINGERING_MAX {
            let oldest = self.objects.lingering.pop_front().expect("it is not empty");
            self.resume(oldest, Event::Late);
        }
    }

    /// Tells parked work what happened, if it is still there.
    pub(crate) fn resume(&mut self, id: u64, event: Event) {
        let Some(work) = self.objects.get(id) else { return };
        // It is over but for its answer, which waits for the disk.
        if work.next == Next::Over {
            return;
        }
        let work = self.objects.remove(id, &mut self.env.gauges).expect("just seen");
        self.resume_parked(Some(id), work, event);
    }

    fn finish(&mut self, work: &mut Task) {
        self.release_key(work);
        if work.folds && work.coordinator.is_clients() {
            self.env.raise(Effect::ProposeContextFold { key: work.key.clone() });
        }
        let key = || work.key.clone();
        let ended = match &work.coordinator {
            Coordinator::Deliver(deliver) => Effect::HintDelivered(deliver.to()),
            Coordinator::Carry(carry) => {
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
        self.env.raise(ended);
    }

    /// Lets the next write of the key begin.
    pub(crate) fn release_key(&mut self, work: &mut Task) {
        if !std::mem::take(&mut work.holds_key) {
            return;
        }
        let waiting = self.objects.busy.remove(&work.key).expect("a key that is held is busy");
        for id in waiting {
            // It may have been answered by its deadline.
            let Some(mut next) = self.objects.remove(id, &mut self.env.gauges) else { continue };
            match std::mem::replace(&mut next.waits, BlockedOn::Nothing) {
                BlockedOn::Key(action) => self.take_key(id, next, action),
                waits => {
                    next.waits = waits;
                    self.objects.insert(id, next, &mut self.env.gauges);
                }
            }
        }
    }

    // In order: the first that has to wait for the disk holds the key, and the rest queue behind it again.
    fn take_key(&mut self, id: u64, mut work: Box<Task>, action: Action) {
        let mut name = Some(id);
        match self.execute(&mut name, &mut work, action) {
            Some(event) => self.resume_parked(name, work, event),
            None => self.park(name, work),
        }
    }

    pub(crate) fn on_lookup(&mut self, lookup: LookupId, answer: Result<Option<Found>, engine::Error>) {
        let id = self.objects.lookups.remove(&lookup).expect("a lookup is answered once");
        if let Some(mut work) = self.objects.remove(id, &mut self.env.gauges) {
            work.waits = BlockedOn::Nothing;
            let event = Event::Read(stored(&mut work, answer, self.env.knobs.reaping.fold_actors));
            self.resume_parked(Some(id), work, event);
        }
    }

    pub(crate) fn on_acknowledged(&mut self, id: u64, seq: Seq, result: Result<(), Error>) {
        let Some(mut work) = self.objects.remove(id, &mut self.env.gauges) else { return };
        if matches!(work.waits, BlockedOn::Written(written) if written == seq) {
            work.waits = BlockedOn::Nothing;
            return self.resume_parked(Some(id), work, Event::Written(result));
        }
        if let Some(parting) = work.parting.take() {
            let parting = match result {
                Ok(()) => parting,
                Err(error) => parting.failed(error),
            };
            self.send_reply(&mut work, parting);
        }
        self.end_or_park(Some(id), work);
    }

    /// Forgets a hint that is home, and with `object` the key that was kept for it alone.
    fn forget_hint(&mut self, work: &Task, node: NodeId, object: bool) {
        let hint = key::hint(node.0, &work.key);
        // It may have become this node's to keep since.
        let object = object && !self.env.ownership().keeps(&work.key, work.props.n_val);
        let both = [Write::Delete { key: &work.key }, Write::Delete { key: &hint }];
        let written = match object {
            true => self.env.store.write_over(&both, work.prior.before(self.env.store.has_entries())),
            false => self.env.store.write(&both[1..]),
        };
        if object {
            self.actors.forget(&work.key);
            // It may be in a tree: that of the partition, which this node has for buckets with more replicas.
            self.note_written(work, None, &written);
        }
        // A hint that cannot be removed is brought once more.
        if written.is_ok() {
            self.env.counters.hints_home += 1;
        }
    }

    /// The head that was under the task's key as of its last read was replaced by this one.
    #[inline]
    pub(crate) fn note_written(
        &mut self,
        work: &Task,
        new: Option<Bytes>,
        written: &Result<Seq, engine::Error>,
    ) {
        if let Ok(seq) = written
            && self.env.gauges.keeps_trees
            && !(work.is_repair() && base::planted!(TreeNotUpdatedOnRepair))
        {
            self.env.raise(Effect::HeadChanged(work.head_change(new, *seq)));
        }
    }

    /// A node will not answer.
    pub(crate) fn fail_tasks(&mut self, node: NodeId) {
        for id in self.objects.names(|work| work.asks) {
            self.resume(id, Event::Answer { from: node, result: Err(Error::Unreachable) });
        }
    }

    /// Nobody waits for the tasks of an outbound transfer any more.
    pub(crate) fn cancel_transfer(&mut self, transfer: u64) {
        let is_its_own =
            |work: &Task| matches!(&work.coordinator, Coordinator::Carry(carry) if carry.copy() == transfer);
        for id in self.objects.names(is_its_own) {
            self.resume(id, Event::Expired);
        }
    }

    /// Tells work whose time is up, and work whose replicas take long.
    pub(crate) fn expire_objects(&mut self, now: Monotonic) {
        let due = |work: &Task| work.deadline <= now;
        for id in self.objects.names(due) {
            let Some(mut work) = self.objects.remove(id, &mut self.env.gauges) else { continue };
            if let Some(parting) = work.parting.take() {
                self.send_reply(&mut work, parting.failed(Error::Timeout));
            }
            match work.next {
                Next::Over => self.finish(&mut work),
                Next::Wait => self.resume_parked(Some(id), work, Event::Expired),
            }
        }
        while let Some(&(at, id)) = self.objects.late.front().filter(|(at, _)| *at <= now) {
            self.objects.late.pop_front();
            self.resume(id, Event::Late);
            if self.objects.get(id).is_some() {
                self.objects.late.push_back((at.max(now) + PATIENCE, id));
            }
        }
    }
}

/// Who takes part in a request for the keys at this position.
fn placement(ring: &Ring, peers: &Peers, at: Position, n: u32, sloppy: bool, can_write: bool) -> Placement {
    if peers.is_alone() {
        return Placement::alone(n);
    }
    let n_val = usize::try_from(n).unwrap_or(usize::MAX);
    let list = ring.preflist_with_fallbacks(ring.size().partition(at), n_val);
    let here = peers.here();
    let is_up = |node| if node == here { can_write } else { peers.is_up(node) };
    let mut placement = Placement::of(list, here, sloppy, is_up);
    placement.others.sort_by_key(|(node, _)| peers.load(*node));
    placement
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
