//! What a shard keeps its objects in: a store of the engine, another backend behind an adapter, or one of these with
//! adapters beside it, for some bucket types.
//!
//! A shard asks any for the same things. What only the engine has is in the second half: another backend has no
//! snapshots that a tree could be made of, and nothing to tell of damage but the answer to whoever asks. Then a shard
//! refuses what needs it with a typed error, or goes without.
//!
//! * `adapter.rs`: a backend, whose calls wait, as a store of the shape that a shard needs.
//! * `unwritten.rs`: what it was told and has not written. `call.rs`: its calls, as jobs. `page.rs`: a page of a scan.
//!   `life.rs`: its dots.
//! * `entries.rs`: its index entries.
//! * `routed/`: several stores, of which each bucket type has one. `type_backends.rs`: which types have one of their
//!   own.
//! * `founding.rs`: which backends a data folder is of.

mod adapter;
mod call;
mod entries;
pub mod founding;
mod life;
mod page;
mod routed;
#[cfg(test)]
mod testing;
mod type_backends;
mod unwritten;

pub use adapter::{Adapter, UNWRITTEN_BYTES_MAX};
pub use entries::check_entries;
pub use routed::Routed;
pub use type_backends::{TYPE_STORES_MAX, TypeBackends};

use base::Monotonic;
use base::spawn::Outcome;
use bytes::Bytes;
use engine::backup::StoreFiles;
use engine::checkpoint::{CheckpointWanted, FoundCheckpoint, JoinRecords};
use engine::fold::{
    FoldId, FoldRequest, FoldVisitor, KeyRange, ReplacedVisitor, Replayed, ScanId, ScanRequest,
};
use engine::lost::LostRanges;
use engine::store::{Event, Reclaimed, StoreStats};
use engine::{
    AppliedRange, Before, Damage, Durability, Error, FoundGroup, GroupBatch, GroupNumber, Jsn, Lookup, Seq,
    Want, Write,
};
use entries::Entries;
use std::sync::Arc;
use std::time::Duration;

/// Why a backup is refused.
const NO_BACKUP: Error = Error::Refused("a backup of a node with another backend than annulet");

/// Why a compaction is refused.
const NO_RECLAIM: Error = Error::Refused("a compaction of a store with another backend than annulet");

/// The reason why a consistent group is refused.
const NO_GROUPS: Error = Error::Refused("a consistent group in a store of another backend than annulet");

/// A shard's store.
#[expect(clippy::large_enum_variant, reason = "one for each shard, and most are of the first kind")]
pub enum Store {
    /// Of the engine.
    Engine(engine::Store),
    /// Another backend.
    Adapter(Box<Adapter>),
    /// One of these, and others for some bucket types.
    Routed(Box<Routed>),
}

impl From<engine::Store> for Store {
    fn from(store: engine::Store) -> Store {
        Store::Engine(store)
    }
}

impl From<Adapter> for Store {
    fn from(adapter: Adapter) -> Store {
        Store::Adapter(Box::new(adapter))
    }
}

impl From<Routed> for Store {
    fn from(routed: Routed) -> Store {
        Store::Routed(Box::new(routed))
    }
}

/// The same of any.
macro_rules! of_any {
    ($store:expr, $it:ident => $what:expr) => {
        match $store {
            Store::Engine($it) => $what,
            Store::Adapter($it) => $what,
            Store::Routed($it) => $what,
        }
    };
}

/// What all have.
impl Store {
    /// Checks relations that hold after each input, of other backends than the engine.
    pub fn invariants(&self) {
        match self {
            Store::Engine(_) => {}
            Store::Adapter(adapter) => adapter.invariants(),
            Store::Routed(routed) => routed.invariants(),
        }
    }

    /// The random id of its life, of which nobody else has dots.
    pub fn incarnation(&self) -> u64 {
        of_any!(self, it => it.incarnation())
    }

    /// The next number of its dots.
    #[inline]
    pub fn next_counter(&mut self) -> Result<u64, Error> {
        of_any!(self, it => it.next_counter())
    }

    /// When a write may be acknowledged, unless it is one of a type with a store of its own.
    pub fn durability(&self) -> Durability {
        of_any!(self, it => it.durability())
    }

    /// When a write of this key may be acknowledged.
    pub fn durability_of(&self, key: &[u8]) -> Durability {
        match self {
            Store::Routed(routed) => routed.of_key(key).durability(),
            _ => self.durability(),
        }
    }

    /// Ends a turn; what it has to tell is appended to `events`.
    pub fn turn(&mut self, now: Monotonic, events: &mut Vec<Event>) {
        match self {
            Store::Engine(store) => store.turn(now, events),
            Store::Adapter(adapter) => adapter.turn(events),
            Store::Routed(routed) => routed.turn(now, events),
        }
    }

    /// Whether something waits for a turn to end.
    #[inline]
    pub fn wants_turn(&self) -> bool {
        of_any!(self, it => it.wants_turn())
    }

    /// To be called a few times a second.
    pub fn tick(&mut self) {
        of_any!(self, it => it.tick())
    }

    /// Whether it has work of its own under way.
    pub fn is_maintaining(&self) -> bool {
        of_any!(self, it => it.is_maintaining())
    }

    /// Finds the newest version of `key`.
    #[inline]
    pub fn lookup(&mut self, key: &[u8], want: Want) -> Lookup {
        of_any!(self, it => it.lookup(key, want))
    }

    /// [`Store::lookup`] of a key that was dropped with the version `dropped_at` ([`engine::Store::lookup_since`]).
    /// Only the engine knows of losses.
    pub fn lookup_since(&mut self, key: &[u8], want: Want, dropped_at: Seq) -> Lookup {
        match self {
            Store::Engine(store) => store.lookup_since(key, want, dropped_at),
            _ => self.lookup(key, want),
        }
    }

    /// Applies a batch, all of it or nothing, and tells the version of its last write.
    #[inline]
    pub fn write(&mut self, batch: &[Write<'_>]) -> Result<Seq, Error> {
        of_any!(self, it => it.write(batch))
    }

    /// [`Store::write`] of a batch whose first write is that of an object which was `before`, with its index entries,
    /// if any are kept.
    #[inline]
    pub fn write_over(&mut self, batch: &[Write<'_>], before: Before<'_>) -> Result<Seq, Error> {
        of_any!(self, it => it.write_over(batch, before))
    }

    /// The name of the backend that has a bucket type, if it keeps no index entries; `None` of one that does.
    pub fn without_indexes(&self, bucket_type: &[u8]) -> Option<&'static str> {
        match self {
            Store::Engine(_) => None,
            Store::Adapter(adapter) => adapter.entries().is_none().then(|| adapter.name()),
            Store::Routed(routed) => routed.of_type(bucket_type).without_indexes(bucket_type),
        }
    }

    /// Whether there may be index entries.
    #[inline]
    pub fn has_entries(&self) -> bool {
        match self {
            Store::Engine(store) => store.has_entries(),
            Store::Adapter(adapter) => adapter.entries().is_some_and(Entries::may_be),
            Store::Routed(routed) => routed.has_entries(),
        }
    }

    /// Whether the entries of all objects of a bucket type are there.
    pub fn is_indexed(&self, bucket_type: &[u8]) -> bool {
        match self {
            Store::Engine(store) => store.is_indexed(),
            Store::Adapter(adapter) => adapter.entries().is_some_and(Entries::are_whole),
            Store::Routed(routed) => routed.of_type(bucket_type).is_indexed(bucket_type),
        }
    }

    /// Everything up to this version may be acknowledged, and shown to whoever reads.
    #[inline]
    pub fn acknowledged(&self) -> Seq {
        of_any!(self, it => it.acknowledged())
    }

    /// The version of the last write.
    #[inline]
    pub fn last_written(&self) -> Seq {
        of_any!(self, it => it.last_written())
    }

    /// Why it takes no more writes, if one has failed.
    pub fn fenced(&self) -> Option<Error> {
        of_any!(self, it => it.fenced())
    }

    /// Why what has been written is not acknowledged, if there is no telling when it will be.
    pub fn held_up(&self) -> Option<Error> {
        match self {
            Store::Engine(store) => store.held_up(),
            Store::Adapter(adapter) => adapter.fenced(),
            Store::Routed(routed) => routed.held_up(),
        }
    }

    /// Why it takes no writes for now, or at all.
    pub fn refuses_writes(&self) -> Option<Error> {
        match self {
            Store::Engine(store) => store.refuses_writes(),
            Store::Adapter(adapter) => adapter.fenced(),
            Store::Routed(routed) => routed.refuses_writes(),
        }
    }

    /// The same of batches without a value.
    pub fn refuses_deletions(&self) -> Option<Error> {
        match self {
            Store::Engine(store) => store.refuses_deletions(),
            Store::Adapter(adapter) => adapter.fenced(),
            Store::Routed(routed) => routed.refuses_deletions(),
        }
    }

    /// How long a write should wait before it is made.
    pub fn pace(&self) -> Duration {
        match self {
            Store::Engine(store) => store.pace(),
            Store::Adapter(_) => Duration::ZERO,
            Store::Routed(routed) => routed.pace(),
        }
    }

    /// Whether a write that has waited for long must not go ahead all the same ([`engine::Store::must_be_paced`]).
    pub fn must_be_paced(&self) -> bool {
        match self {
            Store::Engine(store) => store.must_be_paced(),
            Store::Adapter(_) => false,
            Store::Routed(routed) => routed.must_be_paced(),
        }
    }

    /// Starts a scan; an event will bring its page.
    pub fn scan(&mut self, request: ScanRequest) -> Result<ScanId, Error> {
        of_any!(self, it => it.scan(request))
    }

    /// [`Store::scan`] of keys that were dropped with the version `dropped_at` ([`engine::Store::scan_since`]).
    pub fn scan_since(&mut self, request: ScanRequest, dropped_at: Seq) -> Result<ScanId, Error> {
        match self {
            Store::Engine(store) => store.scan_since(request, dropped_at),
            _ => self.scan(request),
        }
    }

    /// [`Store::scan`] of what buckets of one type have, or their index entries.
    pub fn scan_of(&mut self, bucket_type: &[u8], request: ScanRequest) -> Result<ScanId, Error> {
        match self {
            Store::Routed(routed) => routed.scan_of(bucket_type, request),
            _ => self.scan(request),
        }
    }

    /// [`Store::scan_of`] of what is likely to be short, and whose visitor is quick ([`engine::Store::scan_ahead`]).
    pub fn scan_ahead_of(&mut self, bucket_type: &[u8], request: ScanRequest) -> Result<ScanId, Error> {
        match self {
            Store::Engine(store) => store.scan_ahead(request),
            Store::Adapter(adapter) => adapter.scan(request),
            Store::Routed(routed) => routed.scan_ahead_of(bucket_type, request),
        }
    }

    /// Begins the clean stop; turns go on until [`Event::Closed`].
    pub fn begin_close(&mut self) {
        of_any!(self, it => it.begin_close())
    }

    /// What it is doing.
    pub fn stats(&self) -> StoreStats {
        of_any!(self, it => it.stats())
    }
}

/// What only the engine has.
impl Store {
    /// Whether trees can be made of it: it has snapshots, of which the number is known.
    pub fn has_snapshots(&self) -> bool {
        matches!(self, Store::Engine(_))
    }

    /// The version up to which a snapshot would show all now, with values that can be read.
    pub fn readable(&self) -> Seq {
        match self {
            Store::Engine(store) => store.readable(),
            Store::Adapter(adapter) => adapter.acknowledged(),
            Store::Routed(routed) => routed.acknowledged(),
        }
    }

    /// Starts a fold over what [`Store::readable`] says, and tells which version that was.
    pub fn fold_readable(
        &mut self,
        request: FoldRequest,
        visitor: FoldVisitor,
    ) -> Result<(FoldId, Seq), Error> {
        let store = self.engine()?;
        let snapshot = store.readable_snapshot();
        let shows = snapshot.seq();
        Ok((store.fold_at(request, snapshot, visitor)?, shows))
    }

    /// Starts a fold over what may be acknowledged.
    pub fn fold_acknowledged(&mut self, request: FoldRequest, visitor: FoldVisitor) -> Result<FoldId, Error> {
        let store = self.engine()?;
        let snapshot = store.snapshot();
        store.fold_at(request, snapshot, visitor)
    }

    /// Ends a fold before its time.
    pub fn cancel_fold(&mut self, id: FoldId) {
        if let Store::Engine(store) = self {
            store.cancel_fold(id);
        }
    }

    /// Visits what a start has replayed.
    ///
    /// # Panics
    /// If it is not the store that told of it.
    pub fn fold_replayed(&mut self, replayed: Replayed, range: KeyRange, visitor: ReplacedVisitor) -> FoldId {
        self.engine()
            .expect("only the engine's has replayed something")
            .fold_replayed(replayed, range, visitor)
    }

    /// Takes what the shard kept as of the tables that the start has found.
    pub fn take_checkpoint(&mut self) -> Option<FoundCheckpoint> {
        self.engine().ok()?.take_checkpoint()
    }

    /// From now on a memtable is flushed with a checkpoint.
    pub fn keep_checkpoints(&mut self, join: JoinRecords) {
        if let Store::Engine(store) = self {
            store.keep_checkpoints(join);
        }
    }

    /// The next checkpoint that is wanted.
    #[inline]
    pub fn wants_checkpoint(&self) -> Option<CheckpointWanted> {
        match self {
            Store::Engine(store) => store.wants_checkpoint(),
            Store::Adapter(_) | Store::Routed(_) => None,
        }
    }

    /// Gives the one that is wanted.
    ///
    /// # Panics
    /// If none is.
    pub fn checkpoint(&mut self, record: Bytes) {
        self.engine().expect("only the engine's wants one").checkpoint(record);
    }

    /// Whether versions of keys from `start` up to `end` may have been lost.
    pub fn check_range(&self, start: &[u8], end: &[u8]) -> Result<(), Error> {
        self.check_range_since(start, end, Seq(0))
    }

    /// The same of keys that were dropped with the version `dropped_at` ([`engine::Store::check_range_since`]).
    pub fn check_range_since(&self, start: &[u8], end: &[u8], dropped_at: Seq) -> Result<(), Error> {
        self.engine_part().map_or(Ok(()), |store| store.check_range_since(start, end, dropped_at))
    }

    /// Takes the ranges that background work has found to have lost something since the last call.
    pub fn take_lost(&mut self) -> Arc<LostRanges> {
        self.engine_part_mut().map(engine::Store::take_lost).unwrap_or_default()
    }

    /// Takes what background work has found damaged since the last call.
    pub fn take_damage(&mut self) -> Vec<Damage> {
        self.engine_part_mut().map(engine::Store::take_damage).unwrap_or_default()
    }

    /// Takes the keys whose values it has found damaged since the last call.
    pub fn take_damaged_keys(&mut self) -> Vec<Bytes> {
        self.engine_part_mut().map(engine::Store::take_damaged_keys).unwrap_or_default()
    }

    /// Asks for the files that make it up; `asked` is told them.
    ///
    /// # Errors
    /// [`Error::Refused`] of another backend.
    pub fn begin_backup(&mut self, asked: Outcome<Result<StoreFiles, Error>>) -> Result<(), Error> {
        match self {
            Store::Engine(store) => store.begin_backup(asked),
            Store::Adapter(_) | Store::Routed(_) => Err(NO_BACKUP),
        }
    }

    /// Begins a compaction of all waste ([`engine::Store::reclaim`]), of the engine's part if there are other backends.
    ///
    /// # Errors
    /// [`Error::Refused`] of another backend, and those of the engine.
    pub fn reclaim(&mut self) -> Result<(), Error> {
        self.engine_part_mut().ok_or(NO_RECLAIM)?.reclaim()
    }

    /// The state of the last compaction; an empty one of another backend.
    pub fn reclaimed(&self) -> Reclaimed {
        self.engine_part().map(engine::Store::reclaimed).unwrap_or_default()
    }

    /// Appends a batch of a consistent group ([`engine::Store::propose`]).
    ///
    /// # Errors
    /// [`Error::Refused`] of another backend, and those of the engine.
    pub fn propose(&mut self, batch: &GroupBatch<'_>) -> Result<Jsn, Error> {
        self.engine_part_mut().ok_or(NO_GROUPS)?.propose(batch)
    }

    /// Applies entries of consistent groups ([`engine::Store::apply_proposals`]).
    ///
    /// # Errors
    /// [`Error::Refused`] of another backend, and those of the engine.
    pub fn apply_proposals(&mut self, applied: &[AppliedRange<'_>]) -> Result<Option<Seq>, Error> {
        self.engine_part_mut().ok_or(NO_GROUPS)?.apply_proposals(applied)
    }

    /// All records with a number below this one are synced; zero of another backend.
    pub fn synced_jsn(&self) -> Jsn {
        self.engine_part().map_or(Jsn(0), engine::Store::synced_jsn)
    }

    /// The consistent groups that the open found. They are told once.
    pub fn take_groups(&mut self) -> Vec<FoundGroup> {
        self.engine_part_mut().map(engine::Store::take_groups).unwrap_or_default()
    }

    /// A consistent group as it is now.
    pub fn group(&self, group: GroupNumber) -> Option<FoundGroup> {
        self.engine_part()?.group(group)
    }

    /// Removes a consistent group's state and entries ([`engine::Store::remove_group`]).
    ///
    /// # Errors
    /// [`Error::Refused`] of another backend, and those of the engine.
    pub fn remove_group(&mut self, group: GroupNumber) -> Result<Jsn, Error> {
        self.engine_part_mut().ok_or(NO_GROUPS)?.remove_group(group)
    }

    fn engine(&mut self) -> Result<&mut engine::Store, Error> {
        match self {
            Store::Engine(store) => Ok(store),
            _ => Err(Error::Refused("what only annulet's own backend can do")),
        }
    }

    /// The store of the engine that it is, or that it has beside others.
    fn engine_part(&self) -> Option<&engine::Store> {
        match self {
            Store::Engine(store) => Some(store),
            Store::Adapter(_) => None,
            Store::Routed(routed) => routed.engine_of_first(),
        }
    }

    fn engine_part_mut(&mut self) -> Option<&mut engine::Store> {
        match self {
            Store::Engine(store) => Some(store),
            Store::Adapter(_) => None,
            Store::Routed(routed) => routed.engine_of_first_mut(),
        }
    }
}
