//! The operations of a worker: the state of each, and the meaning of its answer.
//!
//! An operation holds a slot from its first request to its end; `answers.rs` takes what comes back. An update is two
//! requests, another attempt begins anew; a read that was too old is looked at again, some time later, in a slot of the
//! same kind ([`Suspects`]).
//!
//! On a consistent bucket type a put is an update. A compare-and-set or a conditional delete carries the context of the
//! worker's last read or write of the key ([`Known`]); it reads first if it knows none. With a history each request on
//! a key is recorded ([`Recorder`]).

mod answers;
mod asking;

use super::audit::Reservoir;
use super::entries::Entries;
use super::known::Known;
use super::person;
use super::recorder::{Recorder, Sent};
use super::resume::State as Resume;
use super::suspects::{Suspect, Suspects};
use super::tally::Tally;
use super::worker::Message;
use crate::Error;
use crate::check::{Counts, Key, ReadTicket, Table, WriteTicket};
use crate::driver::{Command, Driver, Request};
use crate::history;
use crate::keys::{Inserted, Keys, Shape, unique_parts};
use crate::names::Naming;
use crate::rng::{Rng, mix};
use crate::values::{Pool, STAMP_LEN_MIN, Stamp};
use crate::workload::{CheckPlan, Index, Indexes, Op, Operation, Retry};
use asking::Asking;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;
use std::time::Instant;

const SECOND_NS: u64 = 1_000_000_000;

/// How often another operation is drawn where the first has nothing to ask for.
const DRAWS_MAX: u32 = 16;

/// What all workers of a run share.
pub struct Shared<'a> {
    pub operations: &'a [Operation],
    pub naming: &'a Naming,
    pub indexes: &'a [Index],
    pub table: &'a Table,
    pub counts: &'a Counts,
    pub check: &'a CheckPlan,
    pub retry: &'a Retry,
    pub pool: &'a Pool,
    /// Whether the bucket type is consistent.
    pub is_consistent: bool,
    /// Whether operations carry the contexts of earlier answers.
    pub keeps_contexts: bool,
    /// The next process of the history, if one is written.
    pub processes: Option<&'a AtomicU64>,
    /// The number that values of this run carry.
    pub run: u32,
    /// Keys are dealt out: this one's share is every `owners`th, from `owner` on.
    pub owner: u64,
    pub owners: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The only request, or the one behind the read of an update.
    Single,
    /// The read of an update, or that of another operation without the context that it is to carry.
    UpdateRead,
    /// Another look at a suspect.
    Look,
    /// A read at the end.
    Audit,
    /// A query once more, that has found too little.
    AskAgain,
}

struct Slot {
    step: Step,
    operation: usize,
    id: u64,
    key: Key,
    name: Vec<u8>,
    /// Context of the write of an update or of a conditional delete; empty where there is none.
    context: Vec<u8>,
    /// The value of that context, as the history has it.
    expected: u64,
    write: Option<WriteTicket>,
    read: ReadTicket,
    suspect: Option<Suspect>,
    asking: Asking,
    attempt: u32,
    due: u64,
    sent: u64,
    written: u64,
    not_found: bool,
    /// Whether the condition of its write did not hold.
    condition_failed: bool,
}

/// A worker's operations.
pub struct State<'a> {
    shared: Shared<'a>,
    pub worker: u32,
    pub rng: Rng,
    /// Of this moment, as near as it matters.
    pub now: u64,
    begin: Instant,
    second: u64,
    /// How many there were.
    pub answers: u64,
    pub tally: Tally,
    keys: Vec<Option<Keys>>,
    /// Weights that are left: 0 of those that have ended.
    weights: Vec<u64>,
    total: u64,
    inserted: Inserted,
    slots: Vec<Slot>,
    free: Vec<u32>,
    outstanding: usize,
    outstanding_since: u64,
    follow: VecDeque<u32>,
    later: BinaryHeap<Reverse<(u64, u32)>>,
    suspects: Suspects,
    known: Known,
    recorder: Option<Recorder<'a>>,
    audit: Reservoir,
    audited: Option<Vec<(usize, u64)>>,
    value: Vec<u8>,
    entries: Entries<'a>,
    indexes: Vec<(&'a str, Vec<u8>)>,
    /// How often it has told of what.
    told: BTreeMap<(usize, &'static str), u32>,
    out: Sender<Message>,
}

/// What a worker begins with.
pub struct Part {
    pub worker: u32,
    /// Its operations out of all: `None` of those that are another's.
    pub keys: Vec<Option<Keys>>,
    /// Their weights.
    pub weights: Vec<u64>,
    /// Operations outstanding at most.
    pub slots: usize,
    pub inserted: Inserted,
    pub rng: Rng,
}

impl<'a> State<'a> {
    /// A worker that has done nothing.
    pub fn new(shared: Shared<'a>, part: Part, begin: Instant, out: Sender<Message>) -> State<'a> {
        let audit = Reservoir::new(shared.check.audit as usize);
        let entries = Entries::new(shared.indexes);
        let recorder = shared.processes.map(|next| Recorder::new(next, part.slots, out.clone()));
        State {
            tally: Tally::new(shared.operations.len()),
            shared,
            worker: part.worker,
            rng: part.rng,
            now: 0,
            begin,
            second: 0,
            answers: 0,
            keys: part.keys,
            total: part.weights.iter().sum(),
            weights: part.weights,
            inserted: part.inserted,
            slots: (0..part.slots).map(|_| Slot::new()).collect(),
            free: (0..part.slots as u32).rev().collect(),
            outstanding: 0,
            outstanding_since: 0,
            follow: VecDeque::new(),
            later: BinaryHeap::new(),
            suspects: Suspects::default(),
            known: Known::default(),
            recorder,
            audit,
            audited: None,
            value: Vec::new(),
            entries,
            indexes: Vec::new(),
            told: BTreeMap::new(),
            out,
        }
    }

    /// Whether another operation can be under way.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether all sequences have ended and nothing else is in the mix.
    pub fn is_exhausted(&self) -> bool {
        self.total == 0
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len() && self.suspects.is_empty()
    }

    /// Takes the time, and hands over the seconds that are over.
    pub fn tick(&mut self) {
        self.now = self.begin.elapsed().as_nanos() as u64;
        while (self.second + 1) * SECOND_NS <= self.now {
            self.hand_over((self.second + 1) * SECOND_NS);
        }
    }

    /// Notes how far its sequence of inserts has come.
    pub fn save(&self, resume: &Resume) {
        for (operation, keys) in self.shared.operations.iter().zip(&self.keys) {
            let is_insert =
                matches!(operation.keys, Some(Shape::Sequential { .. })) && operation.op == Op::Put;
            if is_insert && keys.is_some() {
                resume.set(&operation.label, self.worker, self.inserted.sequence.done);
            }
        }
    }

    /// Hands over the second that is not over.
    pub fn end(&mut self) {
        self.tick();
        if let Some(recorder) = &mut self.recorder {
            recorder.end(self.now);
        }
        self.hand_over(self.now);
    }

    fn hand_over(&mut self, until: u64) {
        self.settle_outstanding(until);
        let second = self.tally.take(self.worker as usize, self.second);
        self.second += 1;
        // Nobody listens only where the collector has failed, which it tells itself.
        self.out.send(Message::Second(Box::new(second))).ok();
    }

    /// Counts what was outstanding until then.
    fn settle_outstanding(&mut self, until: u64) {
        self.tally.outstanding(self.outstanding, until.saturating_sub(self.outstanding_since));
        self.outstanding_since = until.max(self.outstanding_since);
    }

    fn change_outstanding(&mut self, begins: bool) {
        self.settle_outstanding(self.now);
        self.outstanding = if begins { self.outstanding + 1 } else { self.outstanding - 1 };
    }

    /// The next slot with a request to send.
    pub fn next_follow_up(&mut self, now: u64) -> Option<u32> {
        if let Some(token) = self.follow.pop_front() {
            return Some(token);
        }
        if self.later.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            return self.later.pop().map(|Reverse((_, token))| token);
        }
        if self.free.is_empty() {
            return None;
        }
        let suspect = self.suspects.due(now)?;
        let token = self.free.pop()?;
        self.fill(token, Step::Look, suspect.operation, suspect.id, now);
        self.slots[token as usize].suspect = Some(suspect);
        Some(token)
    }

    /// When something waits to be sent again or looked at.
    pub fn next_later(&self) -> Option<u64> {
        let retry = self.later.peek().map(|Reverse((at, _))| *at);
        match (retry, self.suspects.next_at()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The load is over: what is suspect will be judged.
    pub fn end_load(&mut self) {
        self.suspects.end_load(self.now);
    }

    /// Begins the audit, or goes on with it; false when it is over.
    pub fn begin_audit(&mut self) -> bool {
        if self.audited.is_none() {
            self.audited = Some(if self.shared.check.reads { self.audit.take() } else { Vec::new() });
        }
        let Some(left) = &mut self.audited else { return false };
        let count = left.len().min(self.free.len());
        let batch = left.split_off(left.len() - count);
        for (operation, id) in batch {
            let Some(token) = self.free.pop() else { break };
            self.fill(token, Step::Audit, operation, id, self.now);
            self.follow.push_back(token);
        }
        count > 0
    }

    /// Draws the next operation, which was due at `due`. None if there is nothing to ask for at the moment.
    pub fn start(&mut self, due: u64) -> Option<u32> {
        for _ in 0..DRAWS_MAX {
            if self.total == 0 {
                return None;
            }
            let operation = self.pick();
            let shape = self.shared.operations[operation].keys.as_ref();
            let id = match &mut self.keys[operation] {
                None => 0,
                Some(keys) => match keys.draw(&mut self.rng, &self.inserted) {
                    Some(id) => own(shape, id, self.shared.owner, self.shared.owners),
                    None => {
                        if matches!(shape, Some(Shape::Sequential { .. })) {
                            self.total -= std::mem::take(&mut self.weights[operation]);
                        }
                        continue;
                    }
                },
            };
            let op = self.shared.operations[operation].op;
            if (op.writes_value() || op.deletes()) && self.shared.table.is_frozen(self.key_of(operation, id))
            {
                continue;
            }
            if shape == Some(&Shape::OwnOldest) {
                self.inserted.deleted = id + 1;
            }
            let token = self.free.pop()?;
            self.fill(token, Step::Single, operation, id, due);
            self.begin_attempt(token);
            self.change_outstanding(true);
            return Some(token);
        }
        None
    }

    /// Sets the first step of an attempt, and the context that it carries if that is known.
    fn begin_attempt(&mut self, token: u32) {
        let slot = &mut self.slots[token as usize];
        slot.context.clear();
        let reads_first = match self.shared.operations[slot.operation].op {
            Op::Update => true,
            Op::Put => self.shared.is_consistent,
            op if op.keeps_context() => match self.known.get(slot.key) {
                Some(version) => {
                    slot.context.extend_from_slice(&version.context);
                    slot.expected = version.value;
                    false
                }
                None => true,
            },
            _ => false,
        };
        slot.step = if reads_first { Step::UpdateRead } else { Step::Single };
    }

    fn pick(&mut self) -> usize {
        let mut at = if self.total == 1 { 0 } else { self.rng.below(self.total) };
        for (operation, weight) in self.weights.iter().enumerate() {
            if at < *weight {
                return operation;
            }
            at -= weight;
        }
        unreachable!("the draw is below the sum of all weights")
    }

    fn key_of(&self, operation: usize, id: u64) -> Key {
        let bucket = self.shared.operations[operation].bucket.as_bytes();
        mix(u64::from(base::checksum::crc32c(bucket)) << 32 ^ mix(id))
    }

    fn fill(&mut self, token: u32, step: Step, operation: usize, id: u64, due: u64) {
        let key = self.key_of(operation, id);
        let slot = &mut self.slots[token as usize];
        slot.step = step;
        slot.operation = operation;
        slot.id = id;
        slot.key = key;
        slot.context.clear();
        (slot.write, slot.suspect) = (None, None);
        slot.asking.clear();
        (slot.attempt, slot.due, slot.sent, slot.written) = (1, due, 0, 0);
        (slot.not_found, slot.condition_failed, slot.expected) = (false, false, history::VALUE_WRONG);
        match self.shared.operations[operation].op.has_key() {
            true => self.shared.naming.write(id, self.shared.run, &mut slot.name),
            false => slot.name.clear(),
        }
    }

    /// Sends the next request of a slot.
    pub fn submit(&mut self, token: u32, driver: &mut dyn Driver) -> Result<(), Error> {
        let slot = &mut self.slots[token as usize];
        let operation = &self.shared.operations[slot.operation];
        if slot.sent == 0 {
            slot.sent = self.now.max(1);
        }
        let command = match (slot.step, operation.op) {
            (Step::Look | Step::Audit | Step::UpdateRead, _) | (_, Op::Get) => {
                slot.read = self.shared.table.begin_read(slot.key);
                Command::Get
            }
            (_, Op::Head) => Command::Head,
            (_, op) if op.writes_value() => {
                let write = self.shared.table.begin_write(slot.key, false);
                slot.write = Some(write);
                let len = operation.size.draw(&mut self.rng);
                let is_stamped = self.shared.check.reads;
                let len = if is_stamped { len.max(STAMP_LEN_MIN) } else { len };
                self.shared.pool.write(len, &mut self.rng, &mut self.value);
                if is_stamped {
                    let stamp = Stamp { run: self.shared.run, key: slot.key, sequence: write.sequence };
                    stamp.put(&mut self.value);
                }
                slot.written = (slot.name.len() + len) as u64;
                match operation.indexes {
                    Indexes::None => self.indexes.clear(),
                    Indexes::Person => person::indexes(&mut self.rng, &mut self.indexes),
                    Indexes::Listed => self.entries.write(slot.id, &mut self.rng, &mut self.indexes),
                }
                Command::Put {
                    value: &self.value,
                    context: context_of(&slot.context),
                    indexes: &self.indexes,
                }
            }
            (_, op) if op.deletes() => {
                slot.write = Some(self.shared.table.begin_write(slot.key, true));
                Command::Delete { context: context_of(&slot.context) }
            }
            (_, Op::Query) => match &operation.query {
                Some(query) => Command::Query(slot.asking.ask(query, &self.entries, &mut self.rng)),
                None => Command::Ping,
            },
            (_, Op::ListKeys) => Command::ListKeys,
            (_, Op::ListBuckets) => Command::ListBuckets,
            (_, Op::Reconnect) => Command::Reconnect,
            (_, _) => Command::Ping,
        };
        let bucket = operation.bucket.as_bytes();
        if let Some(recorder) = &mut self.recorder
            && let Some(sent) = recorded(&command, (slot.write, slot.expected), self.shared.is_consistent)
        {
            recorder.sent(token, sent, (bucket, &slot.name), self.now);
        }
        driver.submit(&Request { token, bucket, key: &slot.name, command })
    }
}

/// A context that is there.
fn context_of(context: &[u8]) -> Option<&[u8]> {
    Some(context).filter(|context| !context.is_empty())
}

/// A request as the history has it; none if it is not one on a value.
///
/// Only a consistent bucket type makes conditions of contexts.
fn recorded(
    command: &Command<'_>,
    (write, expected): (Option<WriteTicket>, u64),
    is_consistent: bool,
) -> Option<Sent> {
    let value = write.map(|write| write.sequence.into());
    let expected = |context: Option<&[u8]>| context.filter(|_| is_consistent).map(|_| expected);
    let (op, value, expected) = match command {
        Command::Get => (history::Op::Get, None, None),
        Command::Put { context, .. } => match expected(*context) {
            Some(expected) => (history::Op::Cas, value, Some(expected)),
            None if is_consistent => (history::Op::PutOnce, value, None),
            None => (history::Op::Put, value, None),
        },
        Command::Delete { context } => match expected(*context) {
            Some(expected) => (history::Op::DeleteIf, None, Some(expected)),
            None => (history::Op::Delete, None, None),
        },
        _ => return None,
    };
    Some(Sent { op, value, expected })
}

impl Slot {
    fn new() -> Slot {
        Slot {
            step: Step::Single,
            operation: 0,
            id: 0,
            key: 0,
            name: Vec::new(),
            context: Vec::new(),
            expected: history::VALUE_WRONG,
            write: None,
            read: ReadTicket::default(),
            suspect: None,
            asking: Asking::default(),
            attempt: 1,
            due: 0,
            sent: 0,
            written: 0,
            not_found: false,
            condition_failed: false,
        }
    }
}

/// The key of a draw that is this one's own, where several write without knowing of each other: the nearest of every
/// `owners`th. Sequences and unique keys are cut into parts anyhow.
fn own(shape: Option<&Shape>, id: u64, owner: u64, owners: u64) -> u64 {
    let is_cut = matches!(shape, Some(Shape::Sequential { .. } | Shape::Latest { .. } | Shape::File { .. }));
    if owners == 1 || is_cut || unique_parts(id).is_some() { id } else { id / owners * owners + owner }
}
