//! Reads and writes of objects: each is a coordinator, stepped until it replies.
//!
//! A coordinator whose lookup is answered from memory and whose write may be acknowledged at once is never
//! parked, and costs no entry in any table: that is the common case of a read.

use super::{Origin, Shard, WORK_MAX, Waiter, store_error};
use base::{FastMap, Monotonic};
use engine::store::LookupId;
use engine::{Found, Lookup, Seq, Want, Write};
use kv::{
    Action, Bucket, BucketProps, DeleteRequest, Error, Event, GetRequest, PutRequest, Request, Response,
};
use kv::{Stored, Turn};
use object::{Actor, Dot};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A coordinator of any kind.
#[expect(
    clippy::large_enum_variant,
    reason = "moved a few times; a box would cost an allocation per request"
)]
pub(super) enum Coordinator {
    Get(kv::Get),
    Put(kv::Put),
    Delete(kv::Delete),
}

impl Coordinator {
    pub(super) fn get(request: GetRequest) -> Coordinator {
        Coordinator::Get(kv::Get::new(request))
    }

    pub(super) fn put(request: PutRequest) -> Coordinator {
        Coordinator::Put(kv::Put::new(request))
    }

    pub(super) fn delete(request: DeleteRequest) -> Coordinator {
        Coordinator::Delete(kv::Delete::new(request))
    }

    fn names(&self) -> (&Bucket, &[u8]) {
        match self {
            Coordinator::Get(get) => (&get.request().bucket, &get.request().key),
            Coordinator::Put(put) => {
                let key = put.request().key.as_ref().expect("a missing key was invented");
                (&put.request().bucket, key)
            }
            Coordinator::Delete(delete) => (&delete.request().bucket, &delete.request().key),
        }
    }

    fn into_request(self) -> Request {
        match self {
            Coordinator::Get(get) => Request::Get(get.request().clone()),
            Coordinator::Put(put) => Request::Put(put.request().clone()),
            Coordinator::Delete(delete) => Request::Delete(delete.request().clone()),
        }
    }

    fn writes(&self) -> bool {
        !matches!(self, Coordinator::Get(_))
    }

    fn step(&mut self, event: Event, turn: &mut Turn<'_>) -> Action {
        match self {
            Coordinator::Get(get) => get.step(event, turn),
            Coordinator::Put(put) => put.step(event, turn),
            Coordinator::Delete(delete) => delete.step(event, turn),
        }
    }
}

/// One request under way.
struct Work {
    origin: Origin,
    coordinator: Coordinator,
    /// The ledger key.
    key: Vec<u8>,
    props: Arc<BucketProps>,
    deadline: Monotonic,
    /// The newest version that the answer will rest on.
    rests_on: Seq,
    /// Whether it keeps other writes of its key waiting.
    holds_key: bool,
    waits: Waits,
}

/// What a parked request waits for.
enum Waits {
    Lookup,
    /// The acknowledgement of its write.
    Written,
    /// The acknowledgement of what its answer rests on.
    Reply(Box<Result<Response, Error>>),
    /// Another write of its key.
    Turn,
}

/// All requests under way.
#[derive(Default)]
pub(super) struct Objects {
    parked: FastMap<u64, Work>,
    lookups: FastMap<LookupId, u64>,
    /// Keys on which a write has begun and waits for the disk, and the writes behind it, in order. Keyed by
    /// what clients choose, so not hashed.
    busy: BTreeMap<Vec<u8>, VecDeque<u64>>,
}

impl Objects {
    pub(super) fn len(&self) -> usize {
        self.parked.len()
    }
}

impl Shard {
    pub(super) fn start_object(&mut self, origin: Origin, coordinator: Coordinator, deadline: Monotonic) {
        let (bucket, key) = coordinator.names();
        let (prefix, shard) = self.place(bucket, key);
        if shard != self.config.id {
            return self.forward(shard, origin, coordinator.into_request(), deadline);
        }
        let props = match self.table.get(bucket) {
            Ok(props) => Arc::clone(props),
            Err(error) => return self.reply(origin, Err(error)),
        };
        let mut ledger_key = Vec::new();
        object::key::encode_object_key(prefix, &bucket.bucket_type, &bucket.name, key, &mut ledger_key);
        match &coordinator {
            Coordinator::Get(_) => self.counters.gets += 1,
            Coordinator::Put(_) => self.counters.puts += 1,
            Coordinator::Delete(_) => self.counters.deletes += 1,
        }
        let work = Work {
            origin,
            coordinator,
            key: ledger_key,
            props,
            deadline,
            rests_on: Seq(0),
            holds_key: false,
            waits: Waits::Turn,
        };
        self.begin(work);
    }

    fn begin(&mut self, work: Work) {
        if work.coordinator.writes() && self.objects.busy.contains_key(&work.key) {
            let id = self.next_work();
            let queue = self.objects.busy.get_mut(&work.key).expect("just looked");
            queue.push_back(id);
            self.objects.parked.insert(id, work);
            return;
        }
        self.drive(None, work, Event::Start);
    }

    /// Steps a coordinator until it replies or has to wait.
    fn drive(&mut self, id: Option<u64>, mut work: Work, mut event: Event) {
        loop {
            match self.step(&mut work, event) {
                Action::Read { want } => match self.store.lookup(&work.key, engine_want(want)) {
                    Lookup::Done(answer) => event = Event::Read(stored(&mut work, answer)),
                    Lookup::NeedsIo(lookup) => {
                        let id = self.park(id, work, Waits::Lookup);
                        self.objects.lookups.insert(lookup, id);
                        return;
                    }
                },
                Action::Write { head, value } => {
                    match self.store.write(&[Write::Put { key: &work.key, head: &head, value: &[&value] }]) {
                        Ok(seq) => {
                            work.rests_on = seq;
                            self.release_key(&mut work);
                            if seq > self.store.acknowledged() {
                                return self.park_until(seq, id, work, Waits::Written);
                            }
                            event = Event::Written(Ok(()));
                        }
                        Err(error) => event = Event::Written(Err(store_error(error))),
                    }
                }
                Action::Reply(result) => {
                    self.release_key(&mut work);
                    let rests_on = work.rests_on;
                    if rests_on > self.store.acknowledged() && self.store.fenced().is_none() {
                        return self.park_until(rests_on, id, work, Waits::Reply(Box::new(result)));
                    }
                    return self.reply(work.origin, result);
                }
            }
        }
    }

    fn step(&mut self, work: &mut Work, event: Event) -> Action {
        let actor = Actor(self.store.incarnation());
        let store = &mut self.store;
        let mut next_dot = || store.next_counter().map(|counter| Dot { actor, counter }).map_err(store_error);
        let mut turn = Turn {
            wall: self.config.clock.wall(),
            next_dot: &mut next_dot,
            props: &work.props,
            limits: &self.config.limits,
        };
        work.coordinator.step(event, &mut turn)
    }

    /// Puts work aside. A write that waits for a read keeps other writes of its key waiting: what it has read
    /// must still be there when it writes.
    fn park(&mut self, id: Option<u64>, mut work: Work, waits: Waits) -> u64 {
        let id = id.unwrap_or_else(|| self.next_work());
        if matches!(waits, Waits::Lookup) && work.coordinator.writes() && !work.holds_key {
            work.holds_key = true;
            let before = self.objects.busy.insert(work.key.clone(), VecDeque::new());
            assert!(before.is_none(), "two writes of one key have begun");
        }
        work.waits = waits;
        self.objects.parked.insert(id, work);
        debug_assert!(self.objects.parked.len() <= WORK_MAX + 1, "requests are refused before");
        id
    }

    fn park_until(&mut self, seq: Seq, id: Option<u64>, work: Work, waits: Waits) {
        let id = self.park(id, work, waits);
        self.awaiting.insert((seq, Waiter::Object(id)));
    }

    /// Lets the next write of the key begin.
    fn release_key(&mut self, work: &mut Work) {
        if !std::mem::take(&mut work.holds_key) {
            return;
        }
        let waiting = self.objects.busy.remove(&work.key).expect("a key that is held is busy");
        for id in waiting {
            // It may have been answered by its deadline.
            if let Some(next) = self.objects.parked.remove(&id) {
                self.begin_again(id, next);
            }
        }
    }

    // In order: the first that has to wait for the disk holds the key, and the rest queue behind it again.
    fn begin_again(&mut self, id: u64, work: Work) {
        match self.objects.busy.get_mut(&work.key) {
            Some(queue) => {
                queue.push_back(id);
                self.objects.parked.insert(id, work);
            }
            None => self.drive(Some(id), work, Event::Start),
        }
    }

    pub(super) fn on_lookup(&mut self, lookup: LookupId, answer: Result<Option<Found>, engine::Error>) {
        let id = self.objects.lookups.remove(&lookup).expect("a lookup is answered once");
        if let Some(mut work) = self.objects.parked.remove(&id) {
            let event = Event::Read(stored(&mut work, answer));
            self.drive(Some(id), work, event);
        }
    }

    pub(super) fn on_acknowledged(&mut self, id: u64, result: Result<(), Error>) {
        let Some(work) = self.objects.parked.remove(&id) else { return };
        match work.waits {
            Waits::Reply(ref reply) => {
                let reply = result.and_then(|()| (**reply).clone());
                self.reply(work.origin, reply);
            }
            Waits::Written => self.drive(Some(id), work, Event::Written(result)),
            Waits::Lookup | Waits::Turn => unreachable!("it waits for something else"),
        }
    }

    pub(super) fn expire_objects(&mut self, now: Monotonic) {
        let due = |work: &Work| work.deadline <= now;
        let mut expired: Vec<u64> =
            self.objects.parked.iter().filter(|(_, work)| due(work)).map(|(&id, _)| id).collect();
        expired.sort_unstable();
        for id in expired {
            if let Some(mut work) = self.objects.parked.remove(&id) {
                self.release_key(&mut work);
                self.reply(work.origin, Err(Error::Timeout));
            }
        }
    }
}

fn engine_want(want: kv::Want) -> Want {
    match want {
        kv::Want::Head => Want::Head,
        kv::Want::Value => Want::Value,
    }
}

fn stored(work: &mut Work, answer: Result<Option<Found>, engine::Error>) -> Result<Option<Stored>, Error> {
    match answer {
        Ok(None) => Ok(None),
        Ok(Some(found)) => {
            work.rests_on = work.rests_on.max(found.seq);
            Ok(Some(Stored { head: found.head, value: found.value }))
        }
        Err(error) => Err(store_error(error)),
    }
}
