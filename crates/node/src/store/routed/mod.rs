//! Several stores as one: objects of some bucket types have stores of their own, of other backends; the first store has
//! all else.
//!
//! * What is about an object goes where its bucket type says: the object itself, its index entries, its hints. So what
//!   is written together is in one store, and each batch is as whole as its store makes it. Only a range is dropped in
//!   all of them.
//! * Dots, the properties of buckets and types, and how far copies have come are the first store's.
//! * Versions are numbered in one row over all stores (`numbers.rs`): a shard waits for one number.
//! * A scan of what one type has is its store's; any other visits the keys of all stores in their order (`merge.rs`).
//! * Names of what is under way have the store's number in their uppermost byte.
//!
//! Invariants
//! * A key is in the store of its type and in no other.
//! * When one store takes no writes, the shard takes none: what is behind a write that waits would wait with it.
//!
//! Left out: trees, and what else needs snapshots, which the other stores have not; backups.

mod merge;
mod numbers;

use super::{Adapter, Store};
use base::Monotonic;
use engine::fold::{ScanId, ScanPage, ScanRequest};
use engine::store::{Event, LookupId, StoreStats};
use engine::{Before, Durability, Error, Lookup, Seq, Want, Write};
use merge::{Merge, Step};
use numbers::Numbers;
use object::key;
use std::collections::BTreeMap;
use std::time::Duration;

/// The uppermost byte of the name of a scan over all stores.
const MERGED: usize = 0xFF;

/// Where the byte is.
const STORE_SHIFT: u32 = 56;

/// Scans over all stores at a time: each may hold a page of each store.
const MERGES_MAX: usize = 64;

/// Why a batch is refused that no shard makes.
const MIXED: Error = Error::Refused("a batch for several stores");

/// A store for each of some bucket types, and one for all others.
pub struct Routed {
    /// The one for all others is the first.
    stores: Vec<Store>,
    /// The types of those behind it.
    types: Vec<String>,
    numbers: Numbers,
    /// Pages of scans over all stores.
    merges: BTreeMap<ScanId, Merge>,
    /// The page that a scan of one store is for.
    parts: BTreeMap<ScanId, ScanId>,
    last_merge: u64,
    events: Vec<Event>,
    /// How each store has closed, once it has.
    closed: Vec<Option<Result<(), Error>>>,
}

impl Routed {
    /// What is of none of these types is in `first`.
    pub fn new(first: Store, of_types: impl IntoIterator<Item = (String, Adapter)>) -> Routed {
        let (mut stores, mut types) = (vec![first], Vec::new());
        for (name, store) in of_types {
            types.push(name);
            stores.push(store.into());
        }
        assert!(stores.len() < MERGED, "there are at most {} types", super::TYPE_STORES_MAX);
        Routed {
            numbers: Numbers::new(stores.len()),
            closed: vec![None; stores.len()],
            stores,
            types,
            merges: BTreeMap::new(),
            parts: BTreeMap::new(),
            last_merge: 0,
            events: Vec::new(),
        }
    }

    /// Checks relations that hold after each input.
    pub(super) fn invariants(&self) {
        assert_eq!(self.stores.len(), self.types.len() + 1, "each type has a store behind the first");
        assert!(self.merges.len() <= MERGES_MAX, "scans over all stores are bounded");
        self.numbers.invariants();
        self.stores.iter().for_each(Store::invariants);
    }

    /// The store of all that is of no type with one of its own.
    pub fn first(&mut self) -> &mut Store {
        &mut self.stores[0]
    }

    /// The store of a bucket type.
    pub(super) fn of_type(&self, bucket_type: &[u8]) -> &Store {
        &self.stores[self.store_of_type(bucket_type)]
    }

    /// The store that has a key.
    pub(super) fn of_key(&self, key: &[u8]) -> &Store {
        &self.stores[self.store_of(key)]
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.stores[0].incarnation()
    }

    pub(super) fn next_counter(&mut self) -> Result<u64, Error> {
        self.stores[0].next_counter()
    }

    pub(super) fn durability(&self) -> Durability {
        self.stores[0].durability()
    }

    pub(super) fn engine_of_first(&self) -> Option<&engine::Store> {
        self.stores[0].engine_part()
    }

    pub(super) fn engine_of_first_mut(&mut self) -> Option<&mut engine::Store> {
        self.stores[0].engine_part_mut()
    }

    pub(super) fn turn(&mut self, now: Monotonic, events: &mut Vec<Event>) {
        let mut found = std::mem::take(&mut self.events);
        loop {
            let mut has_read = false;
            for store in 0..self.stores.len() {
                // One that has closed is called no more.
                if self.closed[store].is_some() {
                    continue;
                }
                self.stores[store].turn(now, &mut found);
                self.numbers.acknowledge(store, self.stores[store].acknowledged());
                for event in found.drain(..) {
                    has_read |= matches!(event, Event::Scan(..));
                    self.take(store, event, events);
                }
            }
            // What a page wants to be read next need not wait for another turn.
            if !has_read || self.parts.is_empty() {
                break;
            }
        }
        self.events = found;
    }

    pub(super) fn wants_turn(&self) -> bool {
        let is_open = |store: usize| self.closed[store].is_none();
        self.stores.iter().enumerate().any(|(store, it)| is_open(store) && it.wants_turn())
    }

    pub(super) fn tick(&mut self) {
        self.stores.iter_mut().for_each(Store::tick);
    }

    pub(super) fn is_maintaining(&self) -> bool {
        self.stores.iter().any(Store::is_maintaining)
    }

    pub(super) fn lookup(&mut self, key: &[u8], want: Want) -> Lookup {
        let store = self.store_of(key);
        match self.stores[store].lookup(key, want) {
            Lookup::Done(found) => {
                let acknowledged = self.stores[store].acknowledged();
                Lookup::Done(self.numbers.found(store, found, acknowledged))
            }
            Lookup::NeedsIo(id) => Lookup::NeedsIo(LookupId(name_of(store, id.0))),
        }
    }

    pub(super) fn write(&mut self, batch: &[Write<'_>]) -> Result<Seq, Error> {
        if batch.iter().all(|write| matches!(write, Write::DropRange { .. })) {
            return self.drop_ranges(batch);
        }
        let store = self.store_of_batch(batch)?;
        let own = self.stores[store].write(batch)?;
        Ok(self.took(store, own))
    }

    pub(super) fn write_over(&mut self, batch: &[Write<'_>], before: Before<'_>) -> Result<Seq, Error> {
        let store = self.store_of_batch(batch)?;
        let own = self.stores[store].write_over(batch, before)?;
        Ok(self.took(store, own))
    }

    /// A store that fails leaves a range dropped in some and not in others: whoever dropped it looks again.
    fn drop_ranges(&mut self, drops: &[Write<'_>]) -> Result<Seq, Error> {
        let (mut taken, mut failed) = (Vec::new(), None);
        for (store, it) in self.stores.iter_mut().enumerate() {
            match it.write(drops) {
                Ok(own) => taken.push((store, own)),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let seq = self.numbers.take(taken);
        for (store, it) in self.stores.iter().enumerate() {
            self.numbers.acknowledge(store, it.acknowledged());
        }
        failed.map_or(Ok(seq), Err)
    }

    pub(super) fn has_entries(&self) -> bool {
        self.stores.iter().any(Store::has_entries)
    }

    pub(super) fn acknowledged(&self) -> Seq {
        self.numbers.acknowledged(|store| self.stores[store].acknowledged())
    }

    pub(super) fn last_written(&self) -> Seq {
        self.numbers.last()
    }

    pub(super) fn fenced(&self) -> Option<Error> {
        first_of(&self.stores, &self.types, Store::fenced)
    }

    pub(super) fn held_up(&self) -> Option<Error> {
        first_of(&self.stores, &self.types, Store::held_up)
    }

    pub(super) fn refuses_writes(&self) -> Option<Error> {
        first_of(&self.stores, &self.types, Store::refuses_writes)
    }

    pub(super) fn refuses_deletions(&self) -> Option<Error> {
        first_of(&self.stores, &self.types, Store::refuses_deletions)
    }

    pub(super) fn pace(&self) -> Duration {
        self.stores.iter().map(Store::pace).max().unwrap_or_default()
    }

    pub(super) fn must_be_paced(&self) -> bool {
        self.stores.iter().any(Store::must_be_paced)
    }

    /// A scan over what all stores have.
    pub(super) fn scan(&mut self, request: ScanRequest) -> Result<ScanId, Error> {
        if request.start >= request.end {
            return self.scan_in(0, request);
        }
        if self.merges.len() >= MERGES_MAX {
            return Err(Error::Full { what: "the list of scans over all stores", limit: MERGES_MAX });
        }
        self.last_merge += 1;
        let id = ScanId(name_of(MERGED, self.last_merge));
        self.merges.insert(id, Merge::new(request, self.stores.len()));
        let begun = self.go_on(id)?;
        assert!(begun.is_none(), "a page that has read nothing is not done");
        Ok(id)
    }

    /// A scan over what the store of a bucket type has.
    pub(super) fn scan_of(&mut self, bucket_type: &[u8], request: ScanRequest) -> Result<ScanId, Error> {
        self.scan_in(self.store_of_type(bucket_type), request)
    }

    /// The same, which goes ahead where it can.
    pub(super) fn scan_ahead_of(
        &mut self,
        bucket_type: &[u8],
        request: ScanRequest,
    ) -> Result<ScanId, Error> {
        let store = self.store_of_type(bucket_type);
        Ok(ScanId(name_of(store, self.stores[store].scan_ahead_of(bucket_type, request)?.0)))
    }

    fn scan_in(&mut self, store: usize, request: ScanRequest) -> Result<ScanId, Error> {
        Ok(ScanId(name_of(store, self.stores[store].scan(request)?.0)))
    }

    pub(super) fn begin_close(&mut self) {
        self.stores.iter_mut().for_each(Store::begin_close);
    }

    /// Those of the first, with what the others add to them.
    pub(super) fn stats(&self) -> StoreStats {
        let mut sum = self.stores[0].stats();
        for stats in self.stores[1..].iter().map(Store::stats) {
            sum.counters.user_bytes += stats.counters.user_bytes;
            sum.pressure = sum.pressure.max(stats.pressure);
            sum.memtable_bytes += stats.memtable_bytes;
            sum.lookups_parked += stats.lookups_parked;
        }
        sum
    }

    fn store_of_type(&self, bucket_type: &[u8]) -> usize {
        self.types.iter().position(|name| name.as_bytes() == bucket_type).map_or(0, |at| at + 1)
    }

    fn store_of(&self, key: &[u8]) -> usize {
        key::bucket_type_of(key).map_or(0, |bucket_type| self.store_of_type(&bucket_type))
    }

    fn store_of_batch(&self, batch: &[Write<'_>]) -> Result<usize, Error> {
        let store_of = |write: &Write<'_>| match *write {
            Write::Put { key, .. } | Write::PutUntil { key, .. } | Write::Delete { key } => {
                Some(self.store_of(key))
            }
            Write::DropRange { .. } => None,
        };
        let first = batch.first().and_then(store_of);
        first.filter(|_| batch.iter().all(|write| store_of(write) == first)).ok_or(MIXED)
    }

    /// The number of a write that a store has taken.
    fn took(&mut self, store: usize, own: Seq) -> Seq {
        let seq = self.numbers.take([(store, own)]);
        self.numbers.acknowledge(store, self.stores[store].acknowledged());
        seq
    }

    /// Takes what a store tells.
    fn take(&mut self, store: usize, event: Event, events: &mut Vec<Event>) {
        match event {
            Event::Lookup(id, found) => {
                let found = self.numbers.found(store, found, self.stores[store].acknowledged());
                events.push(Event::Lookup(LookupId(name_of(store, id.0)), found));
            }
            Event::Scan(id, page) => {
                let id = ScanId(name_of(store, id.0));
                match self.parts.remove(&id) {
                    Some(of) => self.take_part(of, store, page, events),
                    None => events.push(Event::Scan(id, page)),
                }
            }
            Event::Fold(..) => unreachable!("none is begun"),
            Event::Closed(result) => {
                self.closed[store] = Some(result);
                if let Some(all) = self.closed.iter().cloned().collect::<Option<Vec<_>>>() {
                    events.push(Event::Closed(all.into_iter().collect()));
                }
            }
        }
    }

    /// Takes what a store has read for a page; nobody waits for it any more if the page has failed.
    fn take_part(
        &mut self,
        of: ScanId,
        store: usize,
        page: Result<ScanPage, Error>,
        events: &mut Vec<Event>,
    ) {
        let Some(merge) = self.merges.get_mut(&of) else { return };
        let taken = page.map(|page| merge.take(store, page));
        let went_on = taken.and_then(|()| self.go_on(of));
        match went_on {
            Ok(None) => {}
            Ok(Some(page)) => events.push(Event::Scan(of, Ok(page))),
            Err(error) => {
                self.merges.remove(&of);
                events.push(Event::Scan(of, Err(error)));
            }
        }
    }

    /// Has a page go on; it, once it is done.
    fn go_on(&mut self, id: ScanId) -> Result<Option<ScanPage>, Error> {
        let step = self.merges.get_mut(&id).map(Merge::step);
        match step {
            Some(Step::Done(page)) => {
                self.merges.remove(&id);
                Ok(Some(page))
            }
            Some(Step::Read(reads)) => {
                for (store, request) in reads {
                    let part = self.scan_in(store, request).inspect_err(|_| drop(self.merges.remove(&id)))?;
                    self.parts.insert(part, id);
                }
                Ok(None)
            }
            Some(Step::Wait) | None => Ok(None),
        }
    }
}

/// What something of a store is called.
fn name_of(store: usize, name: u64) -> u64 {
    debug_assert!(name >> STORE_SHIFT == 0, "a store has not begun so much");
    (store as u64) << STORE_SHIFT | name
}

/// The error of the first store that has one, with the bucket type of that store.
fn first_of(stores: &[Store], types: &[String], says: impl Fn(&Store) -> Option<Error>) -> Option<Error> {
    stores.iter().enumerate().find_map(|(store, it)| match (says(it)?, store) {
        (Error::Fenced(cause), 1..) => {
            Some(Error::Fenced(format!("that of bucket type {}: {cause}", types[store - 1])))
        }
        (error, _) => Some(error),
    })
}

#[cfg(test)]
mod tests;
