//! What a merge reads from.

use crate::Seq;
use crate::drops::is_before_end;
use crate::error::Error;
use crate::key_segments::KeySegments;
use crate::lost::LostRange;
use crate::memtable::{Cursor, MemtableReader};
use crate::table::{Block, Table, TableIter};
use base::Disk;
use std::sync::Arc;

/// One version of a key, borrowed from where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The key.
    pub key: &'a [u8],
    /// When the version became visible.
    pub seq: Seq,
    /// The ledger entry.
    pub entry: &'a [u8],
}

/// A cursor over entries in the order (key ascending, seq descending). It is past the end until it seeks, and
/// after an error.
pub trait Source: Send {
    /// Goes to the first entry whose key is `key` or after it.
    fn seek(&mut self, disk: &mut dyn Disk, key: &[u8]) -> Result<(), Error>;

    /// Goes one entry on. Panics past the end.
    fn next(&mut self, disk: &mut dyn Disk) -> Result<(), Error>;

    /// The entry it is at; `None` past the end.
    fn item(&self) -> Option<Item<'_>>;

    /// The key of the entry it is at, and how many of its first bytes are certainly those of the key that it was at
    /// before, if it has gone on by [`Source::next`].
    fn key(&self) -> Option<(&[u8], usize)> {
        self.item().map(|item| (item.key, 0))
    }

    /// What will be asked for after the next seek ends before `key`, unless that is empty: what lies further on is not
    /// to be read. Of that versions may be left out, so what is shown there means nothing.
    fn expect_end(&mut self, _key: &[u8]) {}

    /// The block of a table that the entry is in, and its number there; `None` of what is in memory, and past the end.
    fn block(&self) -> Option<(u32, &Block)> {
        None
    }

    /// Leaves out damaged blocks from now on, where it would fail, and remembers what was in them.
    fn cut_out(&mut self) {}

    /// What was left out so far.
    fn take_lost(&mut self) -> Vec<LostRange> {
        Vec::new()
    }

    /// Whether the entry is an older version of the key that it was at before, if it has gone on by [`Source::next`];
    /// most sources have the newest only.
    fn is_older(&self) -> bool {
        false
    }
}

/// Any source of the ledger. A walk asks its sources several times for each entry, so they are asked by name, not
/// through a table of functions.
pub enum LedgerSource {
    /// A memtable.
    Memtable(MemtableSource),
    /// A table.
    Table(TableIter),
    /// The tables of a level, or some of them.
    Run(Run),
}

macro_rules! each {
    ($self:expr, $source:ident => $call:expr) => {
        match $self {
            LedgerSource::Memtable($source) => $call,
            LedgerSource::Table($source) => $call,
            LedgerSource::Run($source) => $call,
        }
    };
}

impl LedgerSource {
    /// [`Source::next`], and then [`Source::key`].
    #[inline]
    pub(super) fn next_key(&mut self, disk: &mut dyn Disk) -> Result<Option<(&[u8], usize)>, Error> {
        each!(self, source => {
            Source::next(source, disk)?;
            Ok(Source::key(source))
        })
    }
}

impl Source for LedgerSource {
    fn seek(&mut self, disk: &mut dyn Disk, key: &[u8]) -> Result<(), Error> {
        each!(self, source => Source::seek(source, disk, key))
    }

    #[inline]
    fn next(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        each!(self, source => Source::next(source, disk))
    }

    #[inline]
    fn item(&self) -> Option<Item<'_>> {
        each!(self, source => Source::item(source))
    }

    #[inline]
    fn key(&self) -> Option<(&[u8], usize)> {
        each!(self, source => Source::key(source))
    }

    fn expect_end(&mut self, key: &[u8]) {
        each!(self, source => Source::expect_end(source, key));
    }

    fn block(&self) -> Option<(u32, &Block)> {
        each!(self, source => Source::block(source))
    }

    fn cut_out(&mut self) {
        each!(self, source => Source::cut_out(source));
    }

    fn take_lost(&mut self) -> Vec<LostRange> {
        each!(self, source => Source::take_lost(source))
    }

    #[inline]
    fn is_older(&self) -> bool {
        each!(self, source => Source::is_older(source))
    }
}

impl From<MemtableSource> for LedgerSource {
    fn from(source: MemtableSource) -> LedgerSource {
        LedgerSource::Memtable(source)
    }
}

impl From<TableIter> for LedgerSource {
    fn from(source: TableIter) -> LedgerSource {
        LedgerSource::Table(source)
    }
}

impl From<Run> for LedgerSource {
    fn from(source: Run) -> LedgerSource {
        LedgerSource::Run(source)
    }
}

impl Source for TableIter {
    fn seek(&mut self, disk: &mut dyn Disk, key: &[u8]) -> Result<(), Error> {
        TableIter::seek(self, disk, key)
    }

    #[inline]
    fn next(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        TableIter::next(self, disk)
    }

    #[inline]
    fn item(&self) -> Option<Item<'_>> {
        self.valid().then(|| Item { key: self.key(), seq: self.seq(), entry: self.entry() })
    }

    #[inline]
    fn key(&self) -> Option<(&[u8], usize)> {
        self.valid().then(|| (self.key(), self.shared()))
    }

    fn expect_end(&mut self, key: &[u8]) {
        TableIter::expect_end(self, key);
    }

    fn block(&self) -> Option<(u32, &Block)> {
        TableIter::block(self)
    }

    fn cut_out(&mut self) {
        TableIter::cut_out(self);
    }

    fn take_lost(&mut self) -> Vec<LostRange> {
        TableIter::take_lost(self)
    }
}

/// A memtable's entries, each version up to a seq.
pub struct MemtableSource {
    cursor: Cursor,
    seq_max: Seq,
    is_older: bool,
}

impl MemtableSource {
    /// The versions of `memtable` that are not newer than `seq_max`: `Seq(u64::MAX)` for all of a frozen one.
    pub fn new(memtable: &MemtableReader, seq_max: Seq) -> MemtableSource {
        MemtableSource { cursor: memtable.cursor(), seq_max, is_older: false }
    }

    fn skip_newer(&mut self) {
        while self.cursor.valid() && self.cursor.seq() > self.seq_max.0 {
            self.cursor.step();
            // No version of this key has been shown.
            self.is_older = false;
        }
    }
}

impl Source for MemtableSource {
    fn seek(&mut self, _disk: &mut dyn Disk, key: &[u8]) -> Result<(), Error> {
        self.cursor.seek(key);
        self.is_older = false;
        self.skip_newer();
        Ok(())
    }

    #[inline]
    fn next(&mut self, _disk: &mut dyn Disk) -> Result<(), Error> {
        self.is_older = self.cursor.step();
        self.skip_newer();
        Ok(())
    }

    #[inline]
    fn item(&self) -> Option<Item<'_>> {
        self.cursor.valid().then(|| Item {
            key: self.cursor.key(),
            seq: Seq(self.cursor.seq()),
            entry: self.cursor.entry(),
        })
    }

    #[inline]
    fn key(&self) -> Option<(&[u8], usize)> {
        self.cursor.valid().then(|| (self.cursor.key(), 0))
    }

    #[inline]
    fn is_older(&self) -> bool {
        self.is_older
    }
}

/// Tables whose keys ascend from one to the next, as one source: a level below 0, or a part of it.
pub struct Run {
    tables: Arc<[Arc<Table>]>,
    /// The table that `iter` is in.
    at: usize,
    iter: Option<TableIter>,
    /// What was left out of tables that it has left, where damaged blocks are.
    cut_out: Option<Vec<LostRange>>,
    /// The segments whose keys are wanted, if not all are.
    segments: Option<KeySegments>,
    /// What is wanted ends before this key; empty for nowhere.
    end: Vec<u8>,
}

impl Run {
    /// The tables in their order, which must be ascending and disjoint.
    pub fn new(tables: Vec<Arc<Table>>) -> Run {
        let disjoint = tables.is_sorted_by(|a, b| a.meta().max_key < b.meta().min_key);
        assert!(disjoint, "the tables of a run overlap");
        Run::of_level(tables.into())
    }

    /// The tables of a level below 0 of a version, which has looked at their order.
    pub fn of_level(tables: Arc<[Arc<Table>]>) -> Run {
        Run { tables, at: 0, iter: None, cut_out: None, segments: None, end: Vec::new() }
    }

    /// The same, but for blocks that hold no key of `segments`; it goes forward only.
    pub fn of_segments(self, segments: KeySegments) -> Run {
        Run { segments: Some(segments), ..self }
    }

    /// Leaves tables behind whose end was reached. One that has just been opened is at an entry, is damaged, or has
    /// nothing of the segments.
    fn settle(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        while self.iter.as_ref().is_some_and(|iter| !iter.valid()) {
            self.at += 1;
            self.enter(disk, &[])?;
        }
        Ok(())
    }

    /// Goes to the last key before `key`, or to the last of all.
    pub(super) fn seek_before(&mut self, disk: &mut dyn Disk, key: Option<&[u8]>) -> Result<(), Error> {
        let before = |table: &Arc<Table>| key.is_none_or(|key| *table.meta().min_key < *key);
        self.at = self.tables.partition_point(before);
        self.enter_before(disk, key)
    }

    /// Goes one key back. Panics before the first.
    pub(super) fn prev(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        let Some(mut iter) = self.iter.take() else { panic!("there is nothing before the first") };
        iter.prev(disk)?;
        if iter.valid() {
            self.iter = Some(iter);
            return Ok(());
        }
        self.enter_before(disk, None)
    }

    /// Goes to the last key before `key` of the table before `at`. That table has one, as its first key is before.
    fn enter_before(&mut self, disk: &mut dyn Disk, key: Option<&[u8]>) -> Result<(), Error> {
        self.iter = None;
        let Some(at) = self.at.checked_sub(1) else { return Ok(()) };
        self.at = at;
        let mut iter = TableIter::new(Arc::clone(&self.tables[at]));
        iter.seek_before(disk, key)?;
        self.iter = Some(iter).filter(TableIter::valid);
        Ok(())
    }

    fn enter(&mut self, disk: &mut dyn Disk, key: &[u8]) -> Result<(), Error> {
        self.leave();
        let is_wanted = |table: &&Arc<Table>| is_before_end(&table.meta().min_key, &self.end);
        let Some(table) = self.tables.get(self.at).filter(is_wanted) else { return Ok(()) };
        let mut iter = match &self.segments {
            Some(segments) => TableIter::of_segments(Arc::clone(table), segments.clone()),
            None => TableIter::new(Arc::clone(table)),
        };
        iter.expect_end(&self.end);
        if self.cut_out.is_some() {
            iter.cut_out();
        }
        let sought = iter.seek(disk, key);
        self.iter = Some(iter).filter(|_| sought.is_ok());
        sought
    }

    /// Lets go of the table that it is in.
    fn leave(&mut self) {
        if let (Some(lost), Some(mut iter)) = (&mut self.cut_out, self.iter.take()) {
            lost.append(&mut iter.take_lost());
        }
        self.iter = None;
    }
}

impl Source for Run {
    fn seek(&mut self, disk: &mut dyn Disk, key: &[u8]) -> Result<(), Error> {
        self.at = self.tables.partition_point(|table| *table.meta().max_key < *key);
        self.enter(disk, key)?;
        self.settle(disk)
    }

    #[inline]
    fn next(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        let Some(iter) = &mut self.iter else { panic!("there is nothing after the end") };
        if let Err(error) = iter.next(disk) {
            self.iter = None;
            return Err(error);
        }
        self.settle(disk)
    }

    #[inline]
    fn item(&self) -> Option<Item<'_>> {
        self.iter.as_ref().and_then(Source::item)
    }

    #[inline]
    fn key(&self) -> Option<(&[u8], usize)> {
        self.iter.as_ref().and_then(Source::key)
    }

    fn expect_end(&mut self, key: &[u8]) {
        self.end = key.to_vec();
    }

    fn block(&self) -> Option<(u32, &Block)> {
        self.iter.as_ref().and_then(TableIter::block)
    }

    fn cut_out(&mut self) {
        self.cut_out.get_or_insert_default();
    }

    fn take_lost(&mut self) -> Vec<LostRange> {
        self.leave();
        self.cut_out.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
