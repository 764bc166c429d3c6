//! Walking against the order: the newest version of each key, from the last key to the first.

use super::{Item, Run};
use crate::Seq;
use crate::error::Error;
use crate::memtable::{Cursor, MemtableReader};
use crate::table::TableIter;
use base::Disk;

/// A cursor that goes back: of each key it shows the newest version only. It is at no entry until it seeks, and
/// after an error.
pub trait BackSource: Send {
    /// Goes to the last key before `key`, or to the last of all.
    fn seek_before(&mut self, disk: &mut dyn Disk, key: Option<&[u8]>) -> Result<(), Error>;

    /// Goes one key back. Panics before the first.
    fn prev(&mut self, disk: &mut dyn Disk) -> Result<(), Error>;

    /// The entry it is at; `None` before the first.
    fn item(&self) -> Option<Item<'_>>;
}

impl BackSource for TableIter {
    fn seek_before(&mut self, disk: &mut dyn Disk, key: Option<&[u8]>) -> Result<(), Error> {
        TableIter::seek_before(self, disk, key)
    }

    fn prev(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        TableIter::prev(self, disk)
    }

    fn item(&self) -> Option<Item<'_>> {
        super::Source::item(self)
    }
}

impl BackSource for Run {
    fn seek_before(&mut self, disk: &mut dyn Disk, key: Option<&[u8]>) -> Result<(), Error> {
        Run::seek_before(self, disk, key)
    }

    fn prev(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        Run::prev(self, disk)
    }

    fn item(&self) -> Option<Item<'_>> {
        super::Source::item(self)
    }
}

/// A memtable's keys, each with its newest version up to a seq. A step back is two searches: nodes lead forward only.
pub struct MemtableBack {
    cursor: Cursor,
    seq_max: Seq,
    key: Vec<u8>,
}

impl MemtableBack {
    /// The versions of `memtable` that are not newer than `seq_max`.
    pub fn new(memtable: &MemtableReader, seq_max: Seq) -> MemtableBack {
        MemtableBack { cursor: memtable.cursor(), seq_max, key: Vec::new() }
    }

    /// Goes to the newest version shown of the last key before `self.key`, or of all.
    fn settle(&mut self, mut bounded: bool) {
        loop {
            self.cursor.seek_before(bounded.then_some(&self.key));
            if !self.cursor.valid() {
                return;
            }
            self.key.clear();
            self.key.extend_from_slice(self.cursor.key());
            self.cursor.seek_seq(&self.key, self.seq_max.0);
            if self.cursor.valid() && self.cursor.key() == self.key {
                return;
            }
            // Every version of that key is newer.
            bounded = true;
        }
    }
}

impl BackSource for MemtableBack {
    fn seek_before(&mut self, _disk: &mut dyn Disk, key: Option<&[u8]>) -> Result<(), Error> {
        self.key.clear();
        self.key.extend_from_slice(key.unwrap_or_default());
        self.settle(key.is_some());
        Ok(())
    }

    fn prev(&mut self, _disk: &mut dyn Disk) -> Result<(), Error> {
        assert!(self.cursor.valid(), "there is nothing before the first");
        self.settle(true);
        Ok(())
    }

    fn item(&self) -> Option<Item<'_>> {
        self.cursor.valid().then(|| Item {
            key: self.cursor.key(),
            seq: Seq(self.cursor.seq()),
            entry: self.cursor.entry(),
        })
    }
}

/// Several sources as one. It shows deletions; its caller leaves them out.
pub struct BackIter {
    sources: Vec<Box<dyn BackSource>>,
    winner: Option<usize>,
    key: Vec<u8>,
}

impl BackIter {
    /// A cursor at no entry until it seeks.
    pub fn new(sources: Vec<Box<dyn BackSource>>) -> BackIter {
        BackIter { sources, winner: None, key: Vec::new() }
    }

    /// The first source whose key is greatest and, among those, whose seq is.
    fn greatest(&self) -> Option<usize> {
        let mut best: Option<(usize, Item<'_>)> = None;
        for (index, source) in self.sources.iter().enumerate() {
            let Some(item) = source.item() else { continue };
            if best.is_none_or(|(_, best)| (item.key, item.seq) > (best.key, best.seq)) {
                best = Some((index, item));
            }
        }
        best.map(|(index, _)| index)
    }
}

impl BackSource for BackIter {
    fn seek_before(&mut self, disk: &mut dyn Disk, key: Option<&[u8]>) -> Result<(), Error> {
        self.winner = None;
        for source in &mut self.sources {
            source.seek_before(disk, key)?;
        }
        self.winner = self.greatest();
        Ok(())
    }

    fn prev(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        let winner = self.winner.take().expect("there is nothing before the first");
        let item = self.sources[winner].item().expect("the winner is at an entry");
        self.key.clear();
        self.key.extend_from_slice(item.key);
        for source in &mut self.sources {
            if source.item().is_some_and(|item| item.key == self.key) {
                source.prev(disk)?;
            }
        }
        self.winner = self.greatest();
        Ok(())
    }

    fn item(&self) -> Option<Item<'_>> {
        self.sources[self.winner?].item()
    }
}
