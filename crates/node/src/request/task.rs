//! What is under way for one key, and the tables that it is found by.

use crate::anti_entropy::head_change::HeadChange;
use crate::frontdoor::slow::{SlowStage, StageClock};
use crate::shard::gauges::Gauges;
use crate::shard::knobs::WORK_MAX;
use crate::shard::reply_to::ReplyTo;
use crate::topology::Epoch;
use base::{FastMap, Monotonic};
use bytes::Bytes;
use engine::store::LookupId;
use engine::{Before, Found, Seq, Want};
use kv::{
    Action, Answer, Bucket, BucketProps, DeleteRequest, Error, Event, GetRequest, Next, PutRequest, Request,
    Response, StepContext,
};
use object::HeadView;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Requests answered after one that still waits for its last replicas, after which it is told to wait no longer. A node
/// that is paused holds up a second of them until it counts as down.
pub const LINGERING_MAX: usize = 4096;

/// Tasks up to which the invariants look at each of them.
const CHECKED_MAX: usize = 64;

/// A coordinator of any kind.
pub(crate) enum Coordinator {
    Get(Box<kv::Get>),
    Put(kv::Put),
    Delete(Box<kv::Delete>),
    /// Another node's read.
    Read(kv::replica::Read),
    /// Another node's write, repair or handoff.
    Merge(kv::Merge),
    /// A hint on its way home.
    Deliver(kv::Deliver),
    /// A version that is confirmed when others have it too.
    DualWrite(kv::DualWrite),
    /// A key of a copy.
    TransferKey(kv::TransferKey),
    /// A tombstone that is to go.
    Reap(Box<kv::Reap>),
    /// The part in a reaping that another node coordinates.
    ReapPart(Box<kv::reap::Part>),
}

impl Coordinator {
    /// Checks relations that hold after each step.
    fn invariants(&self) {
        match self {
            Coordinator::Get(get) => get.invariants(),
            Coordinator::Put(put) => put.invariants(),
            Coordinator::Delete(delete) => delete.invariants(),
            Coordinator::Merge(merge) => merge.invariants(),
            Coordinator::Reap(reap) => reap.invariants(),
            // They have none between two steps.
            Coordinator::Read(_)
            | Coordinator::Deliver(_)
            | Coordinator::DualWrite(_)
            | Coordinator::TransferKey(_)
            | Coordinator::ReapPart(_) => {}
        }
    }

    pub(crate) fn get(request: GetRequest) -> Coordinator {
        Coordinator::Get(Box::new(kv::Get::new(request)))
    }

    pub(crate) fn put(request: Box<PutRequest>) -> Coordinator {
        Coordinator::Put(kv::Put::new(request))
    }

    pub(crate) fn delete(request: DeleteRequest) -> Coordinator {
        Coordinator::Delete(Box::new(kv::Delete::new(request)))
    }

    /// What a client's request is about.
    pub(crate) fn names(&self) -> (&Bucket, &[u8]) {
        match self {
            Coordinator::Get(get) => (&get.request().bucket, &get.request().key),
            Coordinator::Put(put) => {
                let key = put.request().key.as_ref().expect("a missing key was invented");
                (&put.request().bucket, key)
            }
            Coordinator::Delete(delete) => (&delete.request().bucket, &delete.request().key),
            _ => {
                unreachable!("it was made with its ledger key")
            }
        }
    }

    /// The client's request again.
    pub(crate) fn into_request(self) -> Request {
        match self {
            Coordinator::Get(get) => Request::Get(get.request().clone()),
            Coordinator::Put(put) => Request::put(put.request().clone()),
            Coordinator::Delete(delete) => Request::Delete(delete.request().clone()),
            _ => {
                unreachable!("it is no client's request")
            }
        }
    }

    /// Whether it is a client's request, or a read that looks for what differs.
    pub(crate) fn is_clients(&self) -> bool {
        matches!(self, Coordinator::Get(_) | Coordinator::Put(_) | Coordinator::Delete(_))
    }

    /// Bytes of values that came with it.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Coordinator::Put(put) => put.request().value.len(),
            Coordinator::Merge(merge) => merge.value_len(),
            _ => 0,
        }
    }

    /// Whether what it writes is to be passed on while its partition moves.
    pub(crate) fn is_passed_on(&self) -> bool {
        match self {
            Coordinator::Merge(merge) => !merge.reason().is_of_move(),
            Coordinator::Put(_) | Coordinator::Delete(_) => true,
            _ => false,
        }
    }

    /// Whether it may write, and so needs the key to itself from its first read.
    pub(crate) fn writes(&self) -> bool {
        !matches!(self, Coordinator::Get(_) | Coordinator::Read(_) | Coordinator::TransferKey(_))
    }

    pub(crate) fn step(&mut self, event: Event, turn: &mut StepContext<'_>) -> Next {
        match self {
            Coordinator::Get(get) => get.step(event, turn),
            Coordinator::Put(put) => put.step(event, turn),
            Coordinator::Delete(delete) => delete.step(event, turn),
            Coordinator::Read(read) => read.step(event, turn),
            Coordinator::Merge(merge) => merge.step(event, turn),
            Coordinator::Deliver(deliver) => deliver.step(event, turn),
            Coordinator::DualWrite(pass) => pass.step(event, turn),
            Coordinator::TransferKey(carry) => carry.step(event, turn),
            Coordinator::Reap(reap) => reap.step(event, turn),
            Coordinator::ReapPart(part) => part.step(event, turn),
        }
    }
}

/// One piece of work.
pub(crate) struct Task {
    pub reply_to: ReplyTo,
    pub coordinator: Coordinator,
    /// The ledger key.
    pub key: Bytes,
    pub props: Arc<BucketProps>,
    pub deadline: Monotonic,
    /// When it began, if it is a client's.
    pub begun: Option<Monotonic>,
    /// When a client's request came to its node.
    pub came: Monotonic,
    /// The stages of a client's request, from its first wait on.
    stages: Option<StageClock>,
    /// Whether a line says that it is slow.
    pub is_slow: bool,
    /// By which epoch it chose whom it asks, if it chose.
    pub epoch: Option<Epoch>,
    /// The version that it has written, or was sent, while partitions move: to be passed on before it is confirmed.
    pub unpassed: Option<Box<(Bytes, Bytes)>>,
    /// The newest version that the answer will rest on.
    pub rests_on: Seq,
    /// Bytes of values that it holds.
    pub bytes: usize,
    /// Whether it keeps other writes of its key waiting.
    pub holds_key: bool,
    /// What it has found under the key, to be taken out of the index when that is replaced.
    pub prior: PreviousVersion,
    /// Whether it looks for a hint, and not under the key.
    pub reads_hint: bool,
    /// What it waits for here, besides other nodes.
    pub waits: BlockedOn,
    /// Its answer, until what it rests on may be acknowledged.
    pub parting: Option<PendingReply>,
    pub next: Next,
    /// Whether it has asked another node, so that it is to be told when that takes long.
    pub asks: bool,
    /// Whether it has answered.
    pub answered: bool,
    /// Whether its write is an event of the actor of those who stand in.
    pub stands_in: bool,
    /// Whether the key's context has so many entries that it is to be folded.
    pub folds: bool,
}

impl Task {
    pub fn new(
        reply_to: ReplyTo,
        coordinator: Coordinator,
        key: Bytes,
        props: Arc<BucketProps>,
        deadline: Monotonic,
    ) -> Task {
        let bytes = coordinator.bytes();
        Task {
            reply_to,
            coordinator,
            bytes,
            key,
            props,
            deadline,
            begun: None,
            came: deadline,
            stages: None,
            is_slow: false,
            epoch: None,
            unpassed: None,
            rests_on: Seq(0),
            holds_key: false,
            prior: PreviousVersion::Unread,
            reads_hint: false,
            waits: BlockedOn::Nothing,
            parting: None,
            next: Next::Wait,
            asks: false,
            answered: false,
            stands_in: false,
            folds: false,
        }
    }

    /// The change of the head that it has replaced.
    pub fn head_change(&self, new: Option<Bytes>, seq: Seq) -> HeadChange {
        let (old, is_unsure) = match &self.prior {
            PreviousVersion::Plain { head } => (head.clone(), false),
            PreviousVersion::Indexed { head, .. } => (Some(head.clone()), false),
            // The replaced head is not known. If there is one, the next exchange finds that the tree is wrong.
            PreviousVersion::Unread | PreviousVersion::Damaged => (None, true),
        };
        HeadChange { key: self.key.clone(), seq, n_val: self.props.n_val, old, new, is_unsure }
    }

    /// Whether a client waits for its answer.
    pub fn has_client(&self) -> bool {
        self.begun.is_some() && !self.answered
    }

    /// The stage that it is in while it is parked.
    pub fn stage(&self) -> SlowStage {
        match self.waits {
            BlockedOn::Key(_) => SlowStage::Key,
            BlockedOn::Lookup(Want::Head) => SlowStage::Head,
            BlockedOn::Lookup(Want::Value) => SlowStage::Disk,
            BlockedOn::Written(_) => SlowStage::Sync,
            BlockedOn::Nothing if self.parting.is_some() => SlowStage::Sync,
            BlockedOn::Nothing => SlowStage::Replicas,
        }
    }

    /// The stages of a client's request. Those before its first wait are made of its times.
    pub fn stages(&mut self) -> &mut StageClock {
        let (came, begun) = (self.came, self.begun.unwrap_or(self.came));
        self.stages.get_or_insert_with(|| StageClock::begun(came, begun))
    }

    /// Whether it is another node's repair.
    pub fn is_repair(&self) -> bool {
        matches!(&self.coordinator, Coordinator::Merge(merge) if merge.reason() == kv::Reason::Repair)
    }

    /// Whether nothing more is to come.
    pub fn is_over(&self) -> bool {
        self.next == Next::Over && self.parting.is_none()
    }
}

/// The prefix and the bucket in an object's ledger key.
pub(crate) fn placed(key: &Bytes) -> Result<(u16, Bucket), object::Error> {
    let parts = object::key::decode_object_key(key)?;
    let name = |part: Cow<'_, [u8]>| match part {
        Cow::Borrowed(part) => key.slice_ref(part),
        Cow::Owned(part) => Bytes::from(part),
    };
    Ok((parts.prefix, Bucket { bucket_type: name(parts.bucket_type), name: name(parts.bucket) }))
}

/// What work has found under its key.
#[derive(Clone, Debug)]
pub(crate) enum PreviousVersion {
    Unread,
    /// Nothing that has index entries.
    Plain {
        head: Option<Bytes>,
    },
    Indexed {
        head: Bytes,
        expires_ms: Option<u64>,
    },
    Damaged,
}

impl PreviousVersion {
    /// The head that was found.
    pub fn head(&self) -> Option<&Bytes> {
        match self {
            PreviousVersion::Plain { head } => head.as_ref(),
            PreviousVersion::Indexed { head, .. } => Some(head),
            PreviousVersion::Unread | PreviousVersion::Damaged => None,
        }
    }

    /// Of what a lookup has answered, for work that writes.
    pub fn of(answer: &Result<Option<Found>, engine::Error>, writes: bool) -> PreviousVersion {
        match answer {
            _ if !writes => PreviousVersion::Unread,
            Ok(Some(found)) if HeadView::may_have_indexes(&found.head) => {
                PreviousVersion::Indexed { head: found.head.clone(), expires_ms: found.expires_ms }
            }
            Ok(found) => PreviousVersion::Plain { head: found.as_ref().map(|found| found.head.clone()) },
            Err(_) => PreviousVersion::Damaged,
        }
    }

    /// What a store is told that replaces it. Where nothing has entries it need not have been read.
    pub fn before(&self, has_entries: bool) -> Before<'_> {
        match self {
            PreviousVersion::Indexed { head, expires_ms } => {
                Before::Version { head, expires_ms: *expires_ms }
            }
            PreviousVersion::Plain { .. } => Before::Nothing,
            PreviousVersion::Unread if !has_entries => Before::Nothing,
            PreviousVersion::Unread | PreviousVersion::Damaged => Before::Unknown,
        }
    }
}

/// What work waits for on this node.
pub(crate) enum BlockedOn {
    Nothing,
    /// A lookup of a head, or of a value.
    Lookup(Want),
    /// The acknowledgement of its write.
    Written(Seq),
    /// Another write of its key; then it does this.
    Key(Action),
}

/// An answer that is held back.
pub(crate) enum PendingReply {
    Client(Box<Result<Response, Error>>),
    Replica(Result<Answer, Error>),
}

impl PendingReply {
    /// This error in its place.
    pub fn failed(&self, error: Error) -> PendingReply {
        match self {
            PendingReply::Client(_) => PendingReply::Client(Box::new(Err(error))),
            PendingReply::Replica(_) => PendingReply::Replica(Err(error)),
        }
    }
}

/// All work that is parked.
#[derive(Default)]
pub(crate) struct TaskTable {
    /// In boxes, since it is moved in and out, and the table stays as large as it ever was.
    parked: FastMap<u64, Box<Task>>,
    pub lookups: FastMap<LookupId, u64>,
    /// Keys on which a write has begun and waits for the disk, and the writes behind it, in order. Keyed by
    /// what clients choose, so not hashed.
    pub busy: BTreeMap<Bytes, VecDeque<u64>>,
    /// Tasks that have asked other nodes, in the order in which it is told that they take long.
    pub late: VecDeque<(Monotonic, u64)>,
    /// Tasks that have been answered and wait for others, the oldest first; some of it is over.
    pub lingering: VecDeque<u64>,
    /// Room for what a step asks for.
    pub actions: Vec<Action>,
    /// Room for a ledger key.
    pub key: Vec<u8>,
}

impl TaskTable {
    pub fn insert(&mut self, id: u64, work: Box<Task>, gauges: &mut Gauges) {
        gauges.tasks += 1;
        gauges.task_bytes += work.bytes;
        gauges.replied += usize::from(work.answered);
        let before = self.parked.insert(id, work);
        debug_assert!(before.is_none(), "work has one name");
        debug_assert!(self.parked.len() <= 2 * WORK_MAX, "requests are refused before");
    }

    pub fn remove(&mut self, id: u64, gauges: &mut Gauges) -> Option<Box<Task>> {
        let work = self.parked.remove(&id)?;
        gauges.tasks -= 1;
        gauges.task_bytes -= work.bytes;
        gauges.replied -= usize::from(work.answered);
        Some(work)
    }

    pub fn get(&self, id: u64) -> Option<&Task> {
        self.parked.get(&id).map(Box::as_ref)
    }

    pub fn get_mut(&mut self, id: u64) -> Option<&mut Task> {
        self.parked.get_mut(&id).map(Box::as_mut)
    }

    /// All work that a client waits for.
    pub fn of_clients(&self) -> impl Iterator<Item = &Task> {
        self.parked.values().map(Box::as_ref).filter(|work| work.has_client())
    }

    /// The names of the work for which it holds, in the order in which they were given.
    pub fn names(&self, which: impl Fn(&Task) -> bool) -> Vec<u64> {
        let mut names: Vec<u64> =
            self.parked.iter().filter(|(_, work)| which(work)).map(|(&id, _)| id).collect();
        names.sort_unstable();
        names
    }

    /// The deadlines of all of it, and when what waits for other nodes is told that they take long.
    pub fn deadlines(&self) -> impl Iterator<Item = Monotonic> {
        self.parked.values().map(|work| work.deadline).chain(self.late.front().map(|(at, _)| *at))
    }

    /// The keys that there is work for, reaping aside.
    pub fn keys(&self) -> BTreeSet<Bytes> {
        let remembers =
            |work: &Task| !matches!(work.coordinator, Coordinator::Reap(_) | Coordinator::ReapPart(_));
        self.parked.values().filter(|work| remembers(work)).map(|work| work.key.clone()).collect()
    }

    /// Whether some of it is a client's, of this node or another.
    pub fn have_clients(&self) -> bool {
        self.parked.values().any(|work| work.begun.is_some())
    }

    /// Whether a client's write of this key is under way.
    pub fn is_written(&self, key: &Bytes) -> bool {
        let writes = |work: &Task| matches!(work.coordinator, Coordinator::Put(_) | Coordinator::Delete(_));
        self.parked.values().any(|work| writes(work) && work.key == *key)
    }

    /// Whether another write of the key has begun; then this one, of the identifier `id`, is behind it from now on.
    pub fn queues_behind(&mut self, work: &Task, id: impl FnOnce() -> u64) -> bool {
        if work.holds_key || self.busy.is_empty() {
            return false;
        }
        let Some(waiting) = self.busy.get_mut(&work.key) else { return false };
        waiting.push_back(id());
        true
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, gauges: &Gauges) {
        assert_eq!(gauges.tasks, self.parked.len(), "all tasks are counted");
        assert!(gauges.replied <= gauges.tasks, "tasks that have replied are tasks");
        assert!(self.lingering.len() <= LINGERING_MAX, "the oldest that linger are told to wait no longer");
        assert!(self.actions.is_empty(), "actions are executed in the step that asks for them");
        // Each of a few: with many this would cost more than the tasks.
        if self.parked.len() <= CHECKED_MAX {
            self.parked.values().for_each(|task| task.coordinator.invariants());
            let held = self.parked.values().filter(|task| task.holds_key).count();
            assert_eq!(held, self.busy.len(), "a busy key is held by one task");
            let replied = self.parked.values().filter(|task| task.answered).count();
            assert_eq!(replied, gauges.replied, "all that have replied are counted");
            let bytes: usize = self.parked.values().map(|task| task.bytes).sum();
            assert_eq!(bytes, gauges.task_bytes, "bytes of values are counted");
            let asking = self.parked.values().filter(|task| task.asks).count();
            assert!(asking <= self.late.len(), "a task that asks is told when that takes long");
            self.parked.iter().for_each(|(id, task)| self.check_parked(*id, task));
        }
    }

    fn check_parked(&self, id: u64, task: &Task) {
        assert!(!task.is_over(), "a task that is over is parked no more");
        if let BlockedOn::Key(_) = task.waits {
            assert!(!task.holds_key, "a task does not wait for its own write");
            let waiting = self.busy.get(&task.key);
            assert!(
                waiting.is_some_and(|waiting| waiting.contains(&id)),
                "a write behind another is in its queue"
            );
        }
    }

    /// Some of the tasks that wait for their writes, for the invariants: each write, the name of its task, and the
    /// deadline of that.
    pub fn awaited(&self) -> impl Iterator<Item = (Seq, u64, Monotonic)> {
        self.parked.iter().take(CHECKED_MAX).filter_map(|(id, task)| match task.waits {
            BlockedOn::Written(seq) => Some((seq, *id, task.deadline)),
            _ => None,
        })
    }

    /// The oldest epoch that parked work goes by.
    pub fn oldest(&self) -> Option<Epoch> {
        self.parked.values().filter_map(|work| work.epoch).min()
    }

    /// The name of the work that began first, of what is parked.
    pub fn oldest_name(&self) -> Option<u64> {
        self.parked.keys().min().copied()
    }
}
