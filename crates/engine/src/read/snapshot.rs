//! The ledger at one moment.

use crate::drops::DroppedRanges;
use crate::entry::{Entry, Seq};
use crate::key_segments::KeySegments;
use crate::lost::LostRanges;
use crate::manifest::Version;
use crate::memtable::MemtableReader;
use crate::merge::{BackIter, BackSource, LedgerSource, MemtableBack, MemtableSource, MergeIter, Run};
use crate::store::Segments;
use crate::table::TableIter;
use std::sync::Arc;

/// What may be acknowledged at one moment, and nothing else. A clone is the same moment.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) seq: Seq,
    /// Versions that end by now, in milliseconds since 1970, are not shown.
    pub(crate) now_ms: u64,
    pub(crate) dropped: Arc<DroppedRanges>,
    /// Newest first.
    pub(crate) memtables: Vec<MemtableReader>,
    pub(crate) version: Arc<Version>,
    pub(crate) segments: Arc<Segments>,
    /// Where versions were lost.
    pub(crate) lost: Arc<LostRanges>,
}

impl Snapshot {
    /// The newest version that it shows.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// A cursor over the newest version of each key, in key order.
    pub(crate) fn iter(&self) -> MergeIter {
        let mut sources: Vec<LedgerSource> = Vec::new();
        for memtable in &self.memtables {
            sources.push(MemtableSource::new(memtable, self.seq).into());
        }
        for table in self.version.level(0) {
            sources.push(TableIter::new(Arc::clone(table)).into());
        }
        for level in self.version.populated() {
            sources.push(Run::of_level(self.version.share_level(level)).into());
        }
        MergeIter::new(sources)
    }

    /// The same, but for blocks of tables that hold no key of `segments`: of those it shows all keys, and some others.
    pub(crate) fn iter_of(&self, segments: &KeySegments) -> MergeIter {
        let mut sources: Vec<LedgerSource> = Vec::new();
        for memtable in &self.memtables {
            sources.push(MemtableSource::new(memtable, self.seq).into());
        }
        for table in self.version.level(0) {
            sources.push(TableIter::of_segments(Arc::clone(table), segments.clone()).into());
        }
        for level in self.version.populated() {
            let run = Run::of_level(self.version.share_level(level));
            sources.push(run.of_segments(segments.clone()).into());
        }
        MergeIter::new(sources)
    }

    /// [`Snapshot::iter`] against the order.
    pub(crate) fn iter_back(&self) -> BackIter {
        let mut sources: Vec<Box<dyn BackSource>> = Vec::new();
        for memtable in &self.memtables {
            sources.push(Box::new(MemtableBack::new(memtable, self.seq)));
        }
        for table in self.version.level(0) {
            sources.push(Box::new(TableIter::new(Arc::clone(table))));
        }
        for level in self.version.populated() {
            sources.push(Box::new(Run::of_level(self.version.share_level(level))));
        }
        BackIter::new(sources)
    }

    /// Whether the newest version of `key` is no item: deleted, ended, or dropped with its range.
    pub(crate) fn is_gone(&self, key: &[u8], seq: Seq, entry: &Entry<'_>) -> bool {
        entry.is_gone(self.now_ms) || self.dropped.covers(key, seq)
    }
}
