//! Walks several sources as one, the newest version of each key only.

use super::{Item, LedgerSource, Source};
use crate::compaction::DeadRecord;
use crate::drops::is_before_end;
use crate::error::Error;
use crate::lost::LostRange;
use crate::table::{Block, common_prefix, hint};
use base::Disk;

/// A cursor over the newest versions of the keys of all sources. It shows deletions; its caller leaves them out.
///
/// The sources stand in the order of their entries, so that what comes next is known without a search: the one that
/// has moved on is put where it belongs now, one place after the other. Where one run is much larger than the others,
/// that is mostly where it was; and there are a few sources, not many. What comes behind that with which all keys of
/// the walk have begun so far, as those of one bucket or one field do, stands beside them as a number, which mostly
/// decides without a look at the keys.
pub struct MergeIter {
    sources: Vec<LedgerSource>,
    /// The sources that are at an entry, by their entries: (key ascending, seq descending), the earlier source first.
    /// The first one's is shown.
    order: Vec<Place>,
    /// What all keys since the last seek began with; those of the order do.
    prefix: Vec<u8>,
    /// Nothing is shown from this key on, unless it is empty.
    end: Vec<u8>,
    /// What a key has before the end if it has a lesser hint.
    end_hint: u64,
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
    pub fn new(sources: Vec<LedgerSource>) -> MergeIter {
        MergeIter {
            order: Vec::with_capacity(sources.len()),
            sources,
            prefix: Vec::new(),
            end: Vec::new(),
            end_hint: u64::MAX,
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
        let key = |place: Place| self.sources[place.source].key().map(|(key, _)| key);
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
        let source = self.order[0].source;
        self.step(disk, 0)?;
        self.pass_older(disk, source)
    }

    /// Moves a source, which has stood first and gone on, past older versions of the same key. Nothing else is at the
    /// key any more: what the source has of it stands first again.
    #[inline]
    fn pass_older(&mut self, disk: &mut dyn Disk, source: usize) -> Result<(), Error> {
        while self.source() == Some(source) && self.sources[source].is_older() {
            if let (Some(replaced), Some(item)) = (&mut self.replaced, self.sources[source].item()) {
                replaced.extend(DeadRecord::of(item.entry)?);
            }
            self.step(disk, 0)?;
        }
        Ok(())
    }

    /// Moves the source at `place` one entry on, and to its new place.
    #[inline]
    fn step(&mut self, disk: &mut dyn Disk, place: usize) -> Result<(), Error> {
        let MergeIter { sources, order, prefix, end_hint, read, .. } = self;
        let source = order[place].source;
        let key = sources[source].next_key(disk)?;
        *read += 1;
        match key {
            // Its last key began with the prefix.
            Some((key, shared)) if shared >= prefix.len() || key.starts_with(prefix) => {
                debug_assert!(key.starts_with(prefix), "a source says rightly what keys share");
                let hint = hint(&key[prefix.len()..]);
                if hint < *end_hint {
                    put_in_order(sources, &mut order[place..], Place { hint, source });
                    return Ok(());
                }
            }
            _ => {}
        }
        self.settle(place);
        Ok(())
    }

    /// Puts the source at `place`, whose entry is another now, behind those that come before it; or takes it out, if it
    /// has come to its end.
    fn settle(&mut self, place: usize) {
        let source = self.order[place].source;
        let Some((key, _)) = self.sources[source].key() else {
            self.order.remove(place);
            return;
        };
        let has_prefix = key.starts_with(&self.prefix);
        let hint = if has_prefix { hint(&key[self.prefix.len()..]) } else { u64::MAX };
        if hint >= self.end_hint && !is_before_end(key, &self.end) {
            self.order.remove(place);
            return;
        }
        if !has_prefix {
            let len = common_prefix(&self.prefix, key);
            self.shorten_prefix(len);
            return self.settle(place);
        }
        put_in_order(&self.sources, &mut self.order[place..], Place { hint, source });
    }

    /// Keys begin with less in common from now on.
    #[cold]
    fn shorten_prefix(&mut self, len: usize) {
        let MergeIter { sources, order, prefix, end, end_hint, .. } = self;
        prefix.truncate(len);
        for place in order.iter_mut() {
            let (key, _) = sources[place.source].key().expect("what has ended is not in the order");
            place.hint = hint(&key[prefix.len()..]);
        }
        *end_hint = hint_of_end(end, prefix);
    }
}

/// Puts a source where it belongs among those behind the first, whose place it had.
#[inline]
fn put_in_order(sources: &[LedgerSource], order: &mut [Place], put: Place) {
    let mut at = 0;
    while let Some(&next) = order.get(at + 1)
        && (next.hint < put.hint || next.hint == put.hint && is_before(sources, next.source, put.source))
    {
        order[at] = next;
        at += 1;
    }
    order[at] = put;
}

/// The least hint that a key behind `end` can have, where all keys begin with `prefix`. An empty end is none.
fn hint_of_end(end: &[u8], prefix: &[u8]) -> u64 {
    match end.strip_prefix(prefix) {
        _ if end.is_empty() => u64::MAX,
        Some(rest) => hint(rest),
        None if prefix < end => u64::MAX,
        None => 0,
    }
}

/// Whether the entry of source `a` comes before that of source `b`, where the hints of their keys do not tell.
#[cold]
fn is_before(sources: &[LedgerSource], a: usize, b: usize) -> bool {
    let item = |source: usize| sources[source].item().expect("what has ended is not in the order");
    let (first, second) = (item(a), item(b));
    let order = first.key.cmp(second.key).then_with(|| second.seq.cmp(&first.seq)).then(a.cmp(&b));
    order.is_lt()
}

impl Source for MergeIter {
    fn seek(&mut self, disk: &mut dyn Disk, key: &[u8]) -> Result<(), Error> {
        self.order.clear();
        for source in &mut self.sources {
            source.seek(disk, key)?;
        }
        self.prefix.clear();
        let keys = self.sources.iter().filter_map(|source| Some(source.key()?.0));
        let mut keys = keys.filter(|key| is_before_end(key, &self.end));
        if let Some(first) = keys.next() {
            let len = keys.fold(first.len(), |len, key| common_prefix(&first[..len], key));
            self.prefix.extend_from_slice(&first[..len]);
        }
        self.end_hint = hint_of_end(&self.end, &self.prefix);
        for source in 0..self.sources.len() {
            let is_shown = |(key, _): (&[u8], usize)| is_before_end(key, &self.end);
            if self.sources[source].key().is_some_and(is_shown) {
                self.order.insert(0, Place { hint: 0, source });
                self.settle(0);
            }
        }
        Ok(())
    }

    #[inline]
    fn next(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        let passed = match self.order[..] {
            [first, second, ..] if first.hint == second.hint => self.pass_key(disk),
            // Nothing else is at its key.
            [first, ..] => match self.step(disk, 0) {
                // Only what is still the first can be at an older version of its key.
                Ok(()) if self.source() == Some(first.source) => self.pass_older(disk, first.source),
                stepped => stepped,
            },
            [] => panic!("there is nothing after the end"),
        };
        passed.inspect_err(|_| self.order.clear())
    }

    #[inline]
    fn item(&self) -> Option<Item<'_>> {
        self.item_at(0)
    }

    /// Unlike other sources it shows nothing from there on.
    fn expect_end(&mut self, key: &[u8]) {
        self.end = key.to_vec();
        self.sources.iter_mut().for_each(|source| source.expect_end(key));
    }

    fn block(&self) -> Option<(u32, &Block)> {
        self.sources[self.order.first()?.source].block()
    }
}
