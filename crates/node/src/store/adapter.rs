//! A backend, whose calls wait, as a store of the shape that a shard needs.
//!
//! 1. A write goes into memory ([`Unwritten`]), and gets a number. It may be acknowledged once the backend has it.
//! 2. The backend is at home, or with a call ([`Call`]), which is a job: all that is looked up together, all that is to
//!    be written together (a group commit), or a part of a page. They take turns, so that none keeps another waiting
//!    for more than two.
//! 3. What is looked up is answered with what was written meanwhile, if something was.
//! 4. Index entries are written with their objects ([`Entries`]), where a fold finds the first key of its range:
//!    otherwise a query would cost a pass over everything.
//!
//! A backend that waits for nothing is called at once, but for scans.
//!
//! Invariants
//! * What the backend has may be acknowledged: it returns from a write when that is as safe as was asked for.
//! * What was not written when a call fails is never acknowledged: from then on no writes are taken, as with the
//!   engine.
//! * Nothing here outlives the process but what the backend has. Numbers of versions begin anew; no dot is given twice
//!   ([`Life`]).
//!
//! A version that ends says so in its head, and is not shown from then on; the backend keeps it until it is overwritten
//! or deleted.
//!
//! Left out: several calls at a time, as some engines would allow; a wait between writes that the backend cannot keep
//! up with (at [`UNWRITTEN_BYTES_MAX`] they are refused); giving back disk space when there is none (a write that fails
//! for it is as any that fails).

use super::call::{Answer, Call, CallJob, Called, Wanted};
use super::entries::{self, Entries};
use super::life::Life;
use super::page::Page;
use super::unwritten::{Batch, Content, Unwritten};
use crate::indexing::INDEXING;
use backends::{Backend, Item, Kind, Limits, Object, Settings, What};
use base::disk::{self, Disk, DiskOp};
use base::spawn::Outcome;
use base::{Clock, Progress, Spawn};
use bytes::Bytes;
use engine::fold::{ScanId, ScanRequest};
use engine::index::Change;
use engine::store::{Event, LOOKUPS_PARKED_MAX, LookupId, OpenReport, SCANS_MAX, StoreStats};
use engine::{Before, Durability, Error, Found, Lookup, Machine, Seq, Want, Write};
use object::HeadView;
use object::key::KeyRange;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// Bytes that may wait for the backend, beyond which writes are refused: a quarter of what requests may hold
/// ([`WORK_BYTES_MAX`](kv::limits::WORK_BYTES_MAX)), and a second's work of a disk.
pub const UNWRITTEN_BYTES_MAX: usize = 128 << 20;

/// Bytes of batches that are written together, unless one has more: what is behind them waits no longer than that
/// takes.
const GROUP_BYTES: usize = 4 << 20;

/// Keys that are looked up together.
const LOOKUPS_MAX: usize = 256;

/// What is told of a page that was begun before its index entries were dropped.
const VOID: Error = Error::Refused("index entries that are being made anew");

/// Which kinds of calls there are, in the order of their turns.
const KINDS: usize = 4;

/// How far the clean stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    No,
    /// What waits is done first.
    Draining,
    /// The backend takes nothing more.
    Closed,
}

/// A backend, as a store.
pub struct Adapter {
    kind: Kind,
    limits: Limits,
    durability: Durability,
    spawn: Arc<dyn Spawn>,
    clock: Arc<dyn Clock>,
    life: Life,
    /// `None` while a call has it, and after the stop.
    backend: Option<Box<dyn Backend>>,
    /// The call that is under way.
    calling: Option<Outcome<Called>>,
    /// The kind of the next call, if something of it waits.
    turn: usize,
    unwritten: Unwritten,
    /// `None` where none are kept.
    entries: Option<Entries>,
    last_written: Seq,
    acknowledged: Seq,
    lookups: VecDeque<Wanted>,
    scans: VecDeque<Box<Page>>,
    /// How many lookups and scans a call has.
    away: usize,
    fence: Option<String>,
    closing: Closing,
    last_id: u64,
    user_bytes: u64,
}

impl Adapter {
    /// Opens the store of `kind` in `folder`, or makes one. Blocks. Calls go to `spawn`, and run on `machine`.
    pub fn open(
        kind: Kind,
        folder: &Path,
        settings: &Settings,
        machine: Machine,
        (spawn, clock): (Arc<dyn Spawn>, Arc<dyn Clock>),
    ) -> Result<(Adapter, OpenReport), Error> {
        let fresh = machine.rng().next_u64();
        let created = if kind.is_kept() { prepare(&mut *machine.disk(), folder)? } else { true };
        let mut backend = kind.open(folder, settings, machine)?;
        let durability = if kind.is_kept() { settings.durability } else { Durability::None };
        let life = if durability == Durability::Sync {
            Life::next(&mut *backend, fresh)?
        } else {
            Life::first(fresh)
        };
        let found = kind.is_ordered().then(|| Entries::find(&mut *backend)).transpose()?;
        let (entries, are_whole) = found.unzip();
        let mut adapter = Adapter::over((kind, backend), durability, life, (spawn, clock));
        adapter.entries = entries;
        if are_whole == Some(false) {
            adapter.make_entries();
        }
        // What a backend makes good at a start it does not tell.
        Ok((adapter, OpenReport { created, clean: true, ..OpenReport::default() }))
    }

    fn over(
        (kind, backend): (Kind, Box<dyn Backend>),
        durability: Durability,
        life: Life,
        (spawn, clock): (Arc<dyn Spawn>, Arc<dyn Clock>),
    ) -> Adapter {
        Adapter {
            kind,
            limits: backend.limits(),
            durability,
            spawn,
            clock,
            life,
            backend: Some(backend),
            calling: None,
            turn: 0,
            unwritten: Unwritten::default(),
            entries: None,
            last_written: Seq(0),
            acknowledged: Seq(0),
            lookups: VecDeque::new(),
            scans: VecDeque::new(),
            away: 0,
            fence: None,
            closing: Closing::No,
            last_id: 0,
            user_bytes: 0,
        }
    }

    /// Everything in a range, at once and in memory: for start-up. Blocks.
    pub fn read_all(&mut self, range: &KeyRange) -> Result<Vec<(Bytes, Bytes)>, Error> {
        let backend = self.backend.as_mut().expect("it was just opened");
        let (mut items, copy) = (Vec::new(), Bytes::copy_from_slice);
        backend.fold(&range.start, &range.end, What::Heads, &mut |item: Item<'_>| {
            items.push((copy(item.key), copy(item.head)));
            ControlFlow::Continue(())
        })?;
        Ok(items)
    }

    /// Checks relations that hold after each input.
    pub(super) fn invariants(&self) {
        assert!(self.backend.is_none() || self.calling.is_none(), "the backend is at home or with a call");
        assert!(self.away == 0 || self.calling.is_some(), "lookups and scans are away with a call");
        assert!(self.acknowledged <= self.last_written, "a version is written before it is acknowledged");
        self.unwritten.invariants();
    }

    /// The backend's name.
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// What is known of its index entries; `None` if it keeps none.
    pub(super) fn entries(&self) -> Option<&Entries> {
        self.entries.as_ref()
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.life.incarnation()
    }

    pub(super) fn next_counter(&mut self) -> Result<u64, Error> {
        self.life.next_counter()
    }

    pub(super) fn durability(&self) -> Durability {
        self.durability
    }

    pub(super) fn acknowledged(&self) -> Seq {
        if base::planted!(AckBeforeSync) {
            return self.last_written;
        }
        self.acknowledged
    }

    pub(super) fn last_written(&self) -> Seq {
        self.last_written
    }

    pub(super) fn fenced(&self) -> Option<Error> {
        self.fence.clone().map(Error::Fenced)
    }

    pub(super) fn is_maintaining(&self) -> bool {
        self.calling.is_some()
    }

    pub(super) fn tick(&mut self) {
        if let Some(entries) = &mut self.entries {
            entries.tick();
        }
    }

    pub(super) fn wants_turn(&self) -> bool {
        self.backend.is_some() && (0..KINDS).any(|kind| self.waits(kind))
    }

    pub(super) fn write(&mut self, writes: &[Write<'_>]) -> Result<Seq, Error> {
        assert!(!writes.is_empty(), "a batch without a write");
        if let Some(fenced) = self.fenced() {
            return Err(fenced);
        }
        if self.closing == Closing::Closed {
            return Err(Error::Closing);
        }
        let seq = Seq(self.last_written.0 + 1);
        let batch = Batch::of(seq, writes, &self.limits)?;
        // One that is larger goes when nothing else waits.
        let waiting = self.unwritten.bytes();
        if waiting > 0 && waiting + batch.bytes > UNWRITTEN_BYTES_MAX {
            return Err(Error::Full { what: "what waits for the backend", limit: UNWRITTEN_BYTES_MAX });
        }
        self.push(batch);
        Ok(seq)
    }

    /// [`Adapter::write`] of a batch whose first write is that of an object which was `before`, with what changes among
    /// its entries.
    pub(super) fn write_over(&mut self, batch: &[Write<'_>], before: Before<'_>) -> Result<Seq, Error> {
        let (Some(entries), Some(first)) = (&self.entries, batch.first()) else { return self.write(batch) };
        // There may be entries of which nobody knows.
        let is_lost = before == Before::Unknown && entries.may_be();
        let change = Change::of(&INDEXING, first, before, false);
        if change.is_none() && !is_lost {
            return self.write(batch);
        }
        let unmark = is_lost.then_some(Write::Delete { key: INDEXING.mark() });
        let change_writes = change.iter().flat_map(Change::writes);
        let writes: Vec<Write<'_>> = batch.iter().copied().chain(unmark).chain(change_writes).collect();
        let seq = self.write(&writes)?;
        if let Some(entries) = &mut self.entries {
            entries.come();
        }
        if is_lost {
            self.make_entries();
        }
        Ok(seq)
    }

    /// Drops all entries, and has them made anew.
    fn make_entries(&mut self) {
        let (start, end) = INDEXING.entries;
        let seq = Seq(self.last_written.0 + 1);
        let batch = Batch::of(seq, &[Write::DropRange { start, end }], &self.limits);
        self.push(batch.expect("it drops one range"));
        if let Some(entries) = &mut self.entries {
            entries.make(seq);
        }
    }

    /// Takes the next batch.
    fn push(&mut self, batch: Batch) {
        assert_eq!(batch.seq.0, self.last_written.0 + 1, "versions are numbered one after the other");
        self.last_written = batch.seq;
        self.user_bytes += batch.bytes as u64;
        self.unwritten.push(Batch { drops_entries: self.entries.is_some(), ..batch });
        if self.kind.is_immediate() && self.backend.is_some() {
            let all = self.unwritten.take(usize::MAX);
            self.call_at_once(Call::Write(all, Ok(())), &mut Vec::new());
        }
    }

    pub(super) fn lookup(&mut self, key: &[u8], want: Want) -> Lookup {
        if let Some(found) = self.find_unwritten(key, want) {
            return Lookup::Done(found);
        }
        let id = LookupId(self.next_id());
        let wanted = Wanted { id, key: Bytes::copy_from_slice(key), want };
        if self.kind.is_immediate() && self.backend.is_some() {
            let mut events = Vec::with_capacity(1);
            self.call_at_once(Call::Look(vec![wanted], Vec::new()), &mut events);
            match events.pop() {
                Some(Event::Lookup(_, found)) => return Lookup::Done(found),
                other => unreachable!("a lookup was answered by {other:?}"),
            }
        }
        if self.lookups.len() + self.away >= LOOKUPS_PARKED_MAX {
            let (what, limit) = ("the list of waiting lookups", LOOKUPS_PARKED_MAX);
            return Lookup::Done(Err(Error::Full { what, limit }));
        }
        self.lookups.push_back(wanted);
        Lookup::NeedsIo(id)
    }

    pub(super) fn scan(&mut self, request: ScanRequest) -> Result<ScanId, Error> {
        if self.scans.len() + self.away >= SCANS_MAX {
            return Err(Error::Full { what: "the list of scans", limit: SCANS_MAX });
        }
        let id = ScanId(self.next_id());
        let clock = Arc::clone(&self.clock);
        let shows = move |key: &[u8], head: &[u8]| end_of(key, head).is_none_or(|end| end > now_ms(&*clock));
        let mut page = Page::new(id, request, Box::new(shows), self.kind.is_ordered());
        if page.is_of_entries() {
            page.dropped = self.entries.as_ref().map(Entries::dropped);
        }
        self.scans.push_back(Box::new(page));
        Ok(id)
    }

    /// Takes what a call has brought, and makes the next.
    pub(super) fn turn(&mut self, events: &mut Vec<Event>) {
        if let Some((backend, call)) = self.calling.as_ref().and_then(Outcome::take) {
            self.calling = None;
            self.backend = backend;
            self.take(call, events);
        }
        while self.backend.is_some()
            && let Some(call) = self.next_call()
        {
            match &call {
                Call::Look(..) | Call::Write(..) if self.kind.is_immediate() => {
                    self.call_at_once(call, events);
                }
                _ => self.call(call),
            }
        }
        if self.backend.is_some() && self.closing == Closing::Draining {
            self.closing = Closing::Closed;
            match self.fenced() {
                Some(fenced) => events.push(Event::Closed(Err(fenced))),
                None => self.call(Call::Close(Ok(()))),
            }
        }
    }

    pub(super) fn begin_close(&mut self) {
        if self.closing == Closing::No {
            self.closing = Closing::Draining;
        }
    }

    pub(super) fn stats(&self) -> StoreStats {
        let mut stats = StoreStats::default();
        stats.counters.user_bytes = self.user_bytes;
        stats.pressure = (self.unwritten.bytes() as u64 * 1000) / UNWRITTEN_BYTES_MAX as u64;
        stats.memtable_bytes = self.unwritten.bytes();
        stats.lookups_parked = self.lookups.len();
        stats
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Whether something waits for a call of this kind.
    fn waits(&self, kind: usize) -> bool {
        match kind {
            0 => !self.lookups.is_empty(),
            1 => self.unwritten.waits() && self.fence.is_none(),
            2 => !self.scans.is_empty(),
            _ => {
                let is_open = self.fence.is_none() && self.closing == Closing::No;
                is_open && self.entries.as_ref().is_some_and(|entries| entries.waits(self.acknowledged))
            }
        }
    }

    /// The next call, of the kind whose turn it is.
    fn next_call(&mut self) -> Option<Call> {
        let kind = (self.turn..self.turn + KINDS).map(|kind| kind % KINDS).find(|&kind| self.waits(kind))?;
        self.turn = kind + 1;
        Some(match kind {
            0 => {
                let count = self.lookups.len().min(LOOKUPS_MAX);
                Call::Look(self.lookups.drain(..count).collect(), Vec::new())
            }
            1 => {
                let bytes_max = GROUP_BYTES.min(self.limits.batch_bytes);
                Call::Write(self.unwritten.take(bytes_max), Ok(()))
            }
            2 => Call::Scan(self.scans.pop_front()?, Ok(Progress::More)),
            _ => Call::Make(self.entries.as_ref()?.part()),
        })
    }

    fn call(&mut self, call: Call) {
        let backend = self.backend.take().expect("one call at a time");
        self.away = match &call {
            Call::Look(wanted, _) => wanted.len(),
            Call::Scan(..) => 1,
            _ => 0,
        };
        let outcome = Outcome::new();
        self.calling = Some(outcome.clone());
        self.spawn.spawn(Box::new(CallJob::new(backend, call, outcome)));
    }

    fn call_at_once(&mut self, mut call: Call, events: &mut Vec<Event>) {
        while call.step(&mut self.backend) == Progress::More {}
        self.take(call, events);
    }

    /// Takes what a call has brought.
    fn take(&mut self, call: Call, events: &mut Vec<Event>) {
        self.away = 0;
        match call {
            Call::Look(wanted, answers) => {
                for (wanted, answer) in wanted.into_iter().zip(answers) {
                    // A write that came meanwhile counts.
                    let found = self.find_unwritten(&wanted.key, wanted.want);
                    let found = found.unwrap_or_else(|| self.found(&wanted, answer));
                    events.push(Event::Lookup(wanted.id, found));
                }
            }
            Call::Write(batches, Ok(())) => {
                self.unwritten.written(&batches);
                self.acknowledged = batches.last().map_or(self.acknowledged, |batch| batch.seq);
            }
            Call::Write(_, Err(error)) => self.fence = Some(error.to_string()),
            Call::Scan(page, Ok(_)) if self.is_void(&page) => events.push(Event::Scan(page.id, Err(VOID))),
            Call::Scan(page, Ok(Progress::More)) => self.scans.push_back(page),
            Call::Scan(mut page, Ok(Progress::Done)) => events.push(Event::Scan(page.id, Ok(page.take()))),
            Call::Scan(page, Err(error)) => events.push(Event::Scan(page.id, Err(error))),
            Call::Make(part) => {
                if let Some(entries) = &mut self.entries {
                    entries.take(part);
                }
            }
            Call::Close(closed) => events.push(Event::Closed(closed)),
        }
    }

    /// Whether a page is of index entries that were dropped since it was begun: it has not all that it is to have.
    fn is_void(&self, page: &Page) -> bool {
        page.dropped.is_some() && page.dropped != self.entries.as_ref().map(Entries::dropped)
    }

    /// What was written under a key and the backend has not; `None` if nothing was.
    fn find_unwritten(&self, key: &[u8], want: Want) -> Option<Result<Option<Found>, Error>> {
        let (seq, content) = self.unwritten.find(key)?;
        if let Some(fenced) = self.fenced() {
            return Some(Err(fenced));
        }
        let found = content.map(|Content { head, value }| Found {
            seq,
            head: head.clone(),
            value: (want == Want::Value).then(|| value.clone()),
            expires_ms: None,
        });
        Some(Ok(found.and_then(|found| self.shown(key, found))))
    }

    /// What the backend has, which may be acknowledged.
    fn found(&self, wanted: &Wanted, answer: Answer) -> Result<Option<Found>, Error> {
        let Some(Object { head, value }) = answer? else { return Ok(None) };
        let value = (wanted.want == Want::Value).then_some(value);
        Ok(self.shown(&wanted.key, Found { seq: Seq(0), head, value, expires_ms: None }))
    }

    /// A version that has not ended, and when it does.
    fn shown(&self, key: &[u8], found: Found) -> Option<Found> {
        let expires_ms = end_of(key, &found.head);
        expires_ms.is_none_or(|end| end > now_ms(&*self.clock)).then_some(Found { expires_ms, ..found })
    }
}

/// When the version of a key ends: its head says so.
fn end_of(key: &[u8], head: &[u8]) -> Option<u64> {
    if INDEXING.is_entry(key) {
        return entries::end_of(head);
    }
    // Cheaper first: hardly any head says so.
    (HeadView::may_end(head) && INDEXING.is_object(key)).then(|| HeadView::expiry_of(head)).flatten()
}

fn now_ms(clock: &dyn Clock) -> u64 {
    clock.wall().0 / 1000
}

/// Makes a store's folder if it is not there, and tells whether it was empty.
fn prepare(disk: &mut dyn Disk, folder: &Path) -> Result<bool, Error> {
    disk::run(disk, DiskOp::CreateDir { path: folder.to_path_buf() })?;
    if let Some(parent) = folder.parent() {
        disk::run(disk, DiskOp::SyncDir { path: parent.to_path_buf() })?;
    }
    Ok(disk::list(disk, folder)?.is_empty())
}

#[cfg(test)]
mod entry_tests;
#[cfg(test)]
mod tests;
