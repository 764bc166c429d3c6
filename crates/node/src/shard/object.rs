//! Work on objects: each piece is a coordinator, stepped until it is over.
//!
//! A coordinator whose lookup is answered from memory, whose write may be acknowledged at once and which asks no
//! other node is never parked, and costs no entry in any table: that is the common case of a read on a node alone.

use super::peers::Peers;
use super::work::{Coordinator, LINGERING_MAX, Parting, Prior, Waits, Work};
use super::{Origin, Shard, ShardConfig, Waiter, store_error};
use crate::peer::Load;
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
pub(super) struct Ready {
    pub origin: Origin,
    pub coordinator: Coordinator,
    /// Of its ledger key.
    pub prefix: u16,
    pub props: Arc<BucketProps>,
    pub deadline: Monotonic,
}

impl Shard {
    /// Begins a client's request, here or wherever it belongs.
    pub(super) fn start_object(&mut self, origin: Origin, coordinator: Coordinator, deadline: Monotonic) {
        self.place_object(origin, coordinator, deadline, None);
    }

    /// The same, but not at the node that it could not be sent to.
    pub(super) fn place_object(
        &mut self,
        origin: Origin,
        coordinator: Coordinator,
        deadline: Monotonic,
        avoids: Option<NodeId>,
    ) {
        let (bucket, key) = coordinator.names();
        let (prefix, shard) = self.place(bucket, key);
        if shard != self.config.id {
            return self.forward(shard, origin, coordinator.into_request(), deadline);
        }
        let props = match self.table.get(bucket) {
            Ok(props) => Arc::clone(props),
            Err(error) => return self.reply(origin, Err(error)),
        };
        // What is written once is written without reading, so any node will do; and what a hook refuses is not written.
        let needs_replica = match &coordinator {
            Coordinator::Put(_) => !props.write_once && props.precommit.is_empty(),
            _ => coordinator.writes() && props.precommit.is_empty(),
        };
        if needs_replica && let Some(node) = self.better_coordinator(prefix, props.n_val, &origin, avoids) {
            return self.forward_to_node(node, origin, coordinator.into_request(), deadline, avoids);
        }
        self.begin_or_hold(Ready { origin, coordinator, prefix, props, deadline });
    }

    /// Begins it.
    pub(super) fn begin_object(&mut self, ready: Ready) {
        let Ready { origin, coordinator, prefix, props, deadline } = ready;
        let (bucket, key) = coordinator.names();
        self.objects.key.clear();
        key::encode_object_key(prefix, &bucket.bucket_type, &bucket.name, key, &mut self.objects.key);
        // Exactly as long as it is, so that it is one allocation.
        let ledger_key = Bytes::copy_from_slice(&self.objects.key);
        match &coordinator {
            Coordinator::Get(_) => self.counters.gets += 1,
            Coordinator::Put(_) => self.counters.puts += 1,
            Coordinator::Delete(_) => self.counters.deletes += 1,
            _ => {}
        }
        let mut work = Work::new(origin, coordinator, ledger_key, props, deadline);
        let now = self.config.clock.now();
        work.begun = Some(now);
        work.epoch = Some(self.moves.epoch());
        self.moves.gifts.share.note_client(now);
        self.start_work(work);
    }

    /// The node that is to coordinate a write, if it is not this one: where this one is not to hold the key, cannot
    /// write, or has far more to do. A write that was passed on is not passed on again.
    fn better_coordinator(
        &self,
        prefix: u16,
        n_val: u32,
        origin: &Origin,
        avoids: Option<NodeId>,
    ) -> Option<NodeId> {
        let is_forwarded = matches!(origin, Origin::Forwarded(..)) && !base::planted!(ForwardingLoop);
        if self.peers.is_alone() || is_forwarded {
            return None;
        }
        let can_write = self.can_write(false);
        let at = self.position(prefix);
        let placement = placement(&self.config.ring, &self.peers, at, n_val, true, can_write);
        let here = placement.here.as_ref();
        let (node, _) = placement
            .others
            .iter()
            .filter(|(node, roles)| Some(*node) != avoids && (roles.primaries > 0 || here.is_none()))
            .min_by_key(|(node, _)| self.peers.load(*node))?;
        let load = self.load();
        let busy = load >= LOAD_BUSY && self.peers.load(*node).0 < load.0 / 2;
        (here.is_none_or(|roles| roles.primaries == 0) || busy).then_some(*node)
    }

    /// Whether the store takes writes; deletions go on for longer on a disk that is nearly full.
    fn can_write(&self, is_deletion: bool) -> bool {
        let refusal = if is_deletion { self.store.refuses_deletions() } else { self.store.refuses_writes() };
        refusal.is_none()
    }

    /// How reads ask: by heads first where this node's disk has too much to do.
    fn read_form(&self) -> ReadForm {
        if self.objects.lookups.len() >= LOOKUPS_BUSY { ReadForm::Heads } else { self.config.read_form }
    }

    /// Begins work, and steps its coordinator until it is over or has to wait.
    pub(super) fn start_work(&mut self, mut work: Work) {
        let mut id = None;
        self.drive(&mut id, &mut work, Event::Start);
        if work.is_over() { self.end(&mut work) } else { self.park(id, Box::new(work)) }
    }

    /// The same for work that was parked.
    fn go_on(&mut self, mut id: Option<u64>, mut work: Box<Work>, event: Event) {
        self.drive(&mut id, &mut work, event);
        self.end_or_park(id, work);
    }

    fn end_or_park(&mut self, id: Option<u64>, mut work: Box<Work>) {
        if work.is_over() { self.end(&mut work) } else { self.park(id, work) }
    }

    /// Steps a coordinator until it is over or has to wait.
    fn drive(&mut self, id: &mut Option<u64>, work: &mut Work, event: Event) {
        work.bytes += bytes_of(&event);
        let mut next = Some(event);
        while let Some(event) = next.take() {
            if work.unpassed.is_some() && matches!(event, Event::Written(Ok(()))) && self.pass_on(id, work) {
                break;
            }
            let mut actions = std::mem::take(&mut self.objects.actions);
            self.step(work, event, &mut actions);
            for action in actions.drain(..) {
                if let Some(event) = self.act(id, work, action) {
                    debug_assert!(next.is_none(), "the store does one thing at a time for a coordinator");
                    next = Some(event);
                }
            }
            self.objects.actions = actions;
        }
    }

    fn step(&mut self, work: &mut Work, event: Event, out: &mut Vec<Action>) {
        let form = match work.origin {
            // What is to be healed is this node's own value.
            Origin::Nobody | Origin::Exchange | Origin::Sweep => ReadForm::LocalValue,
            _ => self.read_form(),
        };
        let can_write = !work.coordinator.writes()
            || self.peers.is_alone()
            || self.can_write(matches!(work.coordinator, Coordinator::Delete(_)));
        let at = self.position(key::prefix_of(&work.key));
        let asker = match work.origin {
            Origin::Replica(node, _) => Some(node),
            _ => None,
        };
        let Shard { store, config, peers, actors, version_clock, graveyard, trees, .. } = self;
        let ShardConfig { rng, ring, limits, clock, .. } = config;
        // A tree is kept by what a write replaces, too.
        let may_replace_entries = store.has_entries() || trees.are_kept();
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
    fn act(&mut self, id: &mut Option<u64>, work: &mut Work, action: Action) -> Option<Event> {
        match action {
            Action::Read { hold: true, .. } | Action::Write { .. } if self.must_queue(id, work) => {
                work.waits = Waits::Key(action);
                None
            }
            Action::Read { want, hold } => {
                work.reads_hint = false;
                let found = self.store.lookup(&work.key, engine_want(want));
                self.looked_up(id, work, found, hold)
            }
            Action::ReadHint { node } => {
                work.reads_hint = true;
                let found = self.store.lookup(&key::hint(node.0, &work.key), Want::Head);
                self.looked_up(id, work, found, true)
            }
            Action::Write { head, value, hints } => {
                let written = self.write(id, work, &head, &value, &hints);
                if self.moves.is_moving() && work.coordinator.is_passed_on() {
                    work.unpassed = Some(Box::new((head, value)));
                }
                written
            }
            Action::Hint { nodes, confirm } => {
                let written = self.keep_hints(work, &nodes);
                if confirm { self.written(id, work, written) } else { None }
            }
            Action::Ask { to, ask } => {
                let id = *id.get_or_insert_with(|| self.next_work());
                if !std::mem::replace(&mut work.asks, true) {
                    let now = self.config.clock.now();
                    self.objects.late.push_back((now + PATIENCE, id));
                    self.deadlines.note(now + PATIENCE);
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
                self.counters.repairs += u64::from(hints.is_empty());
                let merge = Coordinator::Merge(kv::Merge::new(head, value, hints, reason));
                let deadline = self.config.clock.now() + super::TIMEOUT_DEFAULT;
                let merge =
                    Work::new(Origin::Nobody, merge, work.key.clone(), Arc::clone(&work.props), deadline);
                self.start_work(merge);
                None
            }
            Action::Settle => {
                self.release_key(work);
                self.written(id, work, Ok(self.store.last_written()))
            }
            Action::Remove => {
                let before = work.prior.before(self.store.has_entries());
                let written = self.store.write_over(&[Write::Delete { key: &work.key }], before);
                self.note_written(work, None, &written);
                self.actors.forget(&work.key);
                self.release_key(work);
                work.rests_on = Seq(0);
                self.written(id, work, written)
            }
            Action::Propose { tombstone } => {
                self.propose_reap(&work.key, tombstone);
                None
            }
            Action::Forget { node, object } => {
                // A write that waits for another replica may yet leave a hint about what is stored here. Then this one
                // stays too, and the next round looks again.
                let may_be_of_use = self.objects.is_written(&work.key) || self.has_unkept(&work.key);
                if !object || !may_be_of_use {
                    self.forget_hint(work, node, object);
                }
                None
            }
            Action::Reply(result) => {
                self.part(id, work, Parting::Client(Box::new(result)));
                None
            }
            Action::Answer(Ok(Answer::Merged)) if self.is_unpassed(work) => self.pass_before_answer(id, work),
            Action::Answer(result) => {
                self.part(id, work, Parting::Replica(result));
                None
            }
        }
    }

    /// Whether another write of the key has begun; then this one is behind it from now on.
    fn must_queue(&mut self, id: &mut Option<u64>, work: &Work) -> bool {
        if work.holds_key || self.objects.busy.is_empty() || !self.objects.busy.contains_key(&work.key) {
            return false;
        }
        let id = *id.get_or_insert_with(|| self.next_work());
        self.objects.busy.get_mut(&work.key).expect("just looked").push_back(id);
        true
    }

    fn looked_up(
        &mut self,
        id: &mut Option<u64>,
        work: &mut Work,
        found: Lookup,
        hold: bool,
    ) -> Option<Event> {
        match found {
            Lookup::Done(answer) => Some(Event::Read(stored(work, answer, self.config.reaping.fold_actors))),
            Lookup::NeedsIo(lookup) => {
                let id = *id.get_or_insert_with(|| self.next_work());
                self.objects.lookups.insert(lookup, id);
                work.waits = Waits::Lookup;
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
        work: &mut Work,
        head: &[u8],
        value: &[u8],
        hints: &[NodeId],
    ) -> Option<Event> {
        let (key, value) = (&work.key[..], &[value][..]);
        let object = match HeadView::expiry_of(head) {
            None => Write::Put { key, head, value },
            Some(expires_ms) => Write::PutUntil { key, head, value, expires_ms },
        };
        let before = work.prior.before(self.store.has_entries());
        let written = if hints.is_empty() {
            self.store.write_over(&[object], before)
        } else {
            let keys = self.hint_keys(hints, &work.key);
            let hints = keys.iter().map(|key| Write::Put { key, head: &[], value: &[] });
            let batch: Vec<_> = std::iter::once(object).chain(hints).collect();
            self.store.write_over(&batch, before)
        };
        self.note_written(work, Some(head), &written);
        work.folds = HeadView::has_more_actors(head, self.config.reaping.fold_actors);
        if written.is_err() || matches!(work.prior, Prior::Damaged) {
            self.actors.lose(&work.key, &mut *self.config.rng);
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
        work: &mut Work,
        written: Result<Seq, engine::Error>,
    ) -> Option<Event> {
        match written {
            Ok(seq) if seq > self.store.acknowledged() => {
                let id = *id.get_or_insert_with(|| self.next_work());
                work.waits = Waits::Written(seq);
                self.awaiting.insert((seq, Waiter::Object(id)));
                None
            }
            Ok(_) => Some(Event::Written(Ok(()))),
            Err(error) => Some(Event::Written(Err(store_error(error)))),
        }
    }

    /// Answers, now or when what the answer rests on may be acknowledged.
    pub(super) fn part(&mut self, id: &mut Option<u64>, work: &mut Work, parting: Parting) {
        self.release_key(work);
        if work.rests_on <= self.store.acknowledged() {
            return self.send_parting(work, parting);
        }
        if let Some(error) = self.store.fenced() {
            // What it rests on will never be durable; it was read before the store failed, and others were asked since.
            self.send_parting(work, parting.failed(store_error(error)));
        } else {
            let id = *id.get_or_insert_with(|| self.next_work());
            self.awaiting.insert((work.rests_on, Waiter::Object(id)));
            work.parting = Some(parting);
        }
    }

    fn send_parting(&mut self, work: &mut Work, parting: Parting) {
        work.answered = true;
        match (parting, work.origin) {
            // A key that was to be repaired. If it cannot be, it is found again.
            (Parting::Client(result), Origin::Exchange) => self.note_repair(result.is_ok()),
            (Parting::Client(_), Origin::Sweep) => {}
            // A key that was to be healed.
            (Parting::Client(result), Origin::Nobody) => {
                self.counters.heals_failed += u64::from(result.is_err());
            }
            (Parting::Client(result), origin) => {
                self.time(work);
                self.reply(origin, *result);
            }
            (Parting::Replica(result), Origin::Replica(to, id)) => self.answer(to, id, result),
            (Parting::Replica(result), Origin::Passed(id)) => {
                self.resume(id, Event::Written(result.map(drop)))
            }
            (Parting::Replica(result), _) => self.counters.repairs_failed += u64::from(result.is_err()),
        }
    }

    /// Counts how long a client's request took.
    fn time(&mut self, work: &Work) {
        let times = match work.coordinator {
            Coordinator::Get(_) => &mut self.times.0,
            Coordinator::Put(_) => &mut self.times.1,
            _ => return,
        };
        if let Some(begun) = work.begun {
            times.add(begun, self.config.clock.now());
        }
    }

    fn park(&mut self, id: Option<u64>, work: Box<Work>) {
        let id = id.expect("work that waits for something has a name");
        if work.answered {
            self.objects.lingering.push_back(id);
        }
        self.deadlines.note(work.deadline);
        self.objects.insert(id, work);
        while self.objects.lingering.len() > LINGERING_MAX {
            let oldest = self.objects.lingering.pop_front().expect("it is not empty");
            self.resume(oldest, Event::Late);
        }
    }

    /// Tells parked work what happened, if it is still there.
    pub(super) fn resume(&mut self, id: u64, event: Event) {
        let Some(work) = self.objects.get(id) else { return };
        // It is over but for its answer, which waits for the disk.
        if work.next == Next::Over {
            return;
        }
        let work = self.objects.remove(id).expect("just seen");
        self.go_on(Some(id), work, event);
    }

    fn end(&mut self, work: &mut Work) {
        self.release_key(work);
        if work.folds && work.coordinator.is_clients() {
            self.propose_fold(&work.key);
        }
        match &work.coordinator {
            Coordinator::Deliver(deliver) => self.on_delivered(deliver.to()),
            Coordinator::Carry(carry) => self.on_carried(carry.copy(), &work.key, carry.end()),
            Coordinator::Reap(reap) if reap.folds() => self.on_folded(&work.key, reap.is_agreed()),
            Coordinator::Reap(reap) => self.on_reaped(&work.key, reap.is_agreed()),
            Coordinator::Get(_) if work.origin == Origin::Exchange => self.on_key_repaired(),
            Coordinator::Get(_) if work.origin == Origin::Sweep => self.on_swept(),
            _ => {}
        }
    }

    /// Lets the next write of the key begin.
    pub(super) fn release_key(&mut self, work: &mut Work) {
        if !std::mem::take(&mut work.holds_key) {
            return;
        }
        let waiting = self.objects.busy.remove(&work.key).expect("a key that is held is busy");
        for id in waiting {
            // It may have been answered by its deadline.
            let Some(mut next) = self.objects.remove(id) else { continue };
            match std::mem::replace(&mut next.waits, Waits::Nothing) {
                Waits::Key(action) => self.take_key(id, next, action),
                waits => {
                    next.waits = waits;
                    self.objects.insert(id, next);
                }
            }
        }
    }

    // In order: the first that has to wait for the disk holds the key, and the rest queue behind it again.
    fn take_key(&mut self, id: u64, mut work: Box<Work>, action: Action) {
        let mut name = Some(id);
        match self.act(&mut name, &mut work, action) {
            Some(event) => self.go_on(name, work, event),
            None => self.park(name, work),
        }
    }

    pub(super) fn on_lookup(&mut self, lookup: LookupId, answer: Result<Option<Found>, engine::Error>) {
        let id = self.objects.lookups.remove(&lookup).expect("a lookup is answered once");
        if let Some(mut work) = self.objects.remove(id) {
            work.waits = Waits::Nothing;
            let event = Event::Read(stored(&mut work, answer, self.config.reaping.fold_actors));
            self.go_on(Some(id), work, event);
        }
    }

    pub(super) fn on_acknowledged(&mut self, id: u64, seq: Seq, result: Result<(), Error>) {
        let Some(mut work) = self.objects.remove(id) else { return };
        if matches!(work.waits, Waits::Written(written) if written == seq) {
            work.waits = Waits::Nothing;
            return self.go_on(Some(id), work, Event::Written(result));
        }
        if let Some(parting) = work.parting.take() {
            let parting = match result {
                Ok(()) => parting,
                Err(error) => parting.failed(error),
            };
            self.send_parting(&mut work, parting);
        }
        self.end_or_park(Some(id), work);
    }

    /// Tells work whose time is up, and work whose replicas take long.
    pub(super) fn expire_objects(&mut self, now: Monotonic) {
        let due = |work: &Work| work.deadline <= now;
        for id in self.objects.names(due) {
            let Some(mut work) = self.objects.remove(id) else { continue };
            if let Some(parting) = work.parting.take() {
                self.send_parting(&mut work, parting.failed(Error::Timeout));
            }
            match work.next {
                Next::Over => self.end(&mut work),
                Next::Wait => self.go_on(Some(id), work, Event::Expired),
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
    work: &mut Work,
    answer: Result<Option<Found>, engine::Error>,
    fold_actors: usize,
) -> Result<Option<Stored>, Error> {
    if !work.reads_hint {
        work.prior = Prior::of(&answer, work.coordinator.writes());
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
