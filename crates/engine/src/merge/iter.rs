//! Walks several sources as one, the newest version of each key only.

use super::{Item, Source};
use crate::compaction::DeadRecord;
use crate::error::Error;
use crate::lost::LostRange;
use crate::table::{Block, common_prefix, hint};
use base::Disk;

/// A cursor over the newest versions of the keys of all sources. It shows deletions; its caller leaves them out.
///
/// The sources stand in the order of their entries, so that what comes next is known without a search: the one that
/// has moved on is put where it belongs now. Where one run is much larger than the others, that is mostly where it
/// was, and one comparison tells so; otherwise its place is found by halving. What comes behind that with which all keys of the
/// walk have begun so far, as those of one bucket or one field do, stands beside them as a number, which mostly decides without
/// a look at the keys.
pub struct MergeIter {
    sources: Vec<Box<dyn Source>>,
    /// The sources that are at an entry, by their entries: (key ascending, seq descending), the earlier source first.
    /// The first one's is shown.
    order: Vec<Place>,
    /// What all keys since the last seek began with; those of the order do.
    prefix: Vec<u8>,
    /// A copy of the last key shown, for a source that has several versions of it.
    key: Vec<u8>,
    read: u64,
    /// The records of versions that were left behind, where somebody keeps account of them.
    replaced: Option<Vec<DeadRecord>>,
}

/// A source in the order.
#[derive(Clone, Copy)]
struct Place {
    /// What its key begins with, behind the prefix.
    hint: u64,
    source: usize,
}

impl MergeIter {
    /// A cursor at no entry until it seeks.
    pub fn new(sources: Vec<Box<dyn Source>>) -> MergeIter {
        MergeIter {
            order: Vec::with_capacity(sources.len()),
            sources,
            prefix: Vec::new(),
            key: Vec::new(),
            read: 0,
            replaced: None,
        }
    }

    /// Notes from now on which records belong to versions that a newer one has replaced.
    pub fn note_replaced(&mut self) {
        self.replaced = Some(Vec::new());
    }

    /// The records noted so far.
    pub fn take_replaced(&mut self) -> Vec<DeadRecord> {
        self.replaced.take().unwrap_or_default()
    }

    /// Leaves damaged blocks out from now on.
    pub fn cut_out(&mut self) {
        self.sources.iter_mut().for_each(|source| source.cut_out());
    }

    /// What was left out, at the end of the walk.
    pub fn take_lost(&mut self) -> Vec<LostRange> {
        self.sources.iter_mut().flat_map(|source| source.take_lost()).collect()
    }

    /// Which of the sources has the version that is shown: the first of those that have it.
    pub fn source(&self) -> Option<usize> {
        self.order.first().map(|place| place.source)
    }

    /// How many versions it has passed, superseded ones included.
    pub fn versions_read(&self) -> u64 {
        self.read
    }

    fn item_at(&self, place: usize) -> Option<Item<'_>> {
        self.sources[self.order.get(place)?.source].item()
    }

    /// Whether the second source in the order is at the key of the first, too.
    fn is_repeated(&self) -> bool {
        let [first, second, ..] = self.order[..] else { return false };
        // They are at entries: what has ended is not in the order.
        let key = |place: Place| self.sources[place.source].item().map(|item| item.key);
        first.hint == second.hint && key(first) == key(second)
    }

    /// Moves the source that stands first past its key, and every other that is at the same key.
    fn pass_key(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        while self.is_repeated() {
            if self.replaced.is_some()
                && let (Some(newest), Some(other)) = (self.item_at(0), self.item_at(1))
                // The same version in two sources is not left behind.
                && other.seq < newest.seq
            {
                let dead = DeadRecord::of(other.entry)?;
                self.replaced.iter_mut().for_each(|replaced| replaced.extend(dead));
            }
            self.step(disk, 1)?;
        }
        let first = &self.sources[self.order[0].source];
        if !first.repeats_keys() {
            return self.step(disk, 0);
        }
        let item = first.item().expect("the first source is at an entry");
        self.key.clear();
        self.key.extend_from_slice(item.key);
        self.step(disk, 0)?;
        while let Some(item) = self.item_at(0).filter(|item| item.key == self.key) {
            let dead = if self.replaced.is_some() { DeadRecord::of(item.entry)? } else { None };
            self.replaced.iter_mut().for_each(|replaced| replaced.extend(dead));
            self.step(disk, 0)?;
        }
        Ok(())
    }

    /// Moves the source at `place` one entry on, and to its new place.
    fn step(&mut self, disk: &mut dyn Disk, place: usize) -> Result<(), Error> {
        self.sources[self.order[place].source].next(disk)?;
        self.read += 1;
        self.settle(place);
        Ok(())
    }

    /// Puts the source at `place`, whose entry is another now, behind those that come before it.
    fn settle(&mut self, place: usize) {
        let source = self.order[place].source;
        let Some(item) = self.sources[source].item() else {
            self.order.remove(place);
            return;
        };
        if !item.key.starts_with(&self.prefix) {
            self.prefix.truncate(common_prefix(&self.prefix, item.key));
            for place in &mut self.order {
                let item = self.sources[place.source].item().expect("what has ended is not in the order");
                place.hint = hint(&item.key[self.prefix.len()..]);
            }
        }
        let hint = hint(&item.key[self.prefix.len()..]);
        self.order[place].hint = hint;
        let behind = &self.order[place + 1..];
        let comes_first = |other: &Place| {
            if other.hint != hint {
                return other.hint < hint;
            }
            let other_item = self.sources[other.source].item().expect("what has ended is not in the order");
            precedes(other_item, other.source, item, source)
        };
        let passed = match behind.first() {
            Some(next) if comes_first(next) => 1 + behind[1..].partition_point(comes_first),
            _ => return,
        };
        self.order[place..=place + passed].rotate_left(1);
    }
}

/// Whether entry `a` of source `at` comes before `b` of source `bt`.
#[inline]
fn precedes(a: Item<'_>, at: usize, b: Item<'_>, bt: usize) -> bool {
    let order = a.key.cmp(b.key).then_with(|| b.seq.cmp(&a.seq)).then(at.cmp(&bt));
    order.is_lt()
}

impl Source for MergeIter {
    fn seek(&mut self, disk: &mut dyn Disk, key: &[u8]) -> Result<(), Error> {
        self.order.clear();
        for source in &mut self.sources {
            source.seek(disk, key)?;
        }
        self.prefix.clear();
        let mut keys = self.sources.iter().filter_map(|source| Some(source.item()?.key));
        if let Some(first) = keys.next() {
            let len = keys.fold(first.len(), |len, key| common_prefix(&first[..len], key));
            self.prefix.extend_from_slice(&first[..len]);
        }
        for source in 0..self.sources.len() {
            if self.sources[source].item().is_some() {
                self.order.insert(0, Place { hint: 0, source });
                self.settle(0);
            }
        }
        Ok(())
    }

    fn next(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        assert!(!self.order.is_empty(), "there is nothing after the end");
        let passed = self.pass_key(disk);
        if passed.is_err() {
            self.order.clear();
        }
        passed
    }

    fn item(&self) -> Option<Item<'_>> {
        self.item_at(0)
    }

    fn expect_end(&mut self, key: &[u8]) {
        self.sources.iter_mut().for_each(|source| source.expect_end(key));
    }

    fn block(&self) -> Option<(u32, &Block)> {
        self.sources[self.order.first()?.source].block()
    }
}
