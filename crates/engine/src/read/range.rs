//! A range of keys, from either end: an iterator whose two ends meet.

use super::{Newest, Snapshot};
use crate::drops::is_before_end;
use crate::entry::{Entry, Seq};
use crate::error::Error;
use crate::merge::{BackIter, BackSource, Item, MergeIter, Source};
use crate::store::{Found, Want};
use base::Disk;
use bytes::Bytes;

/// A key and its newest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeItem {
    /// The key.
    pub key: Bytes,
    /// Its newest version.
    pub found: Found,
}

/// The keys of a range with their newest versions: ascending from the front, descending from the back. An error ends
/// it. Every item is as of the moment at which the range was made.
pub struct Range<'a> {
    snapshot: Snapshot,
    disk: &'a mut dyn Disk,
    start: Bytes,
    end: Bytes,
    want: Want,
    front: Option<MergeIter>,
    back: Option<BackIter>,
    /// The last keys given from either end; what is beyond them is left.
    given_front: Option<Bytes>,
    given_back: Option<Bytes>,
    over: bool,
}

impl<'a> Range<'a> {
    /// The keys from `start` up to `end`, which is not among them; an empty `end` is none.
    pub(super) fn new(
        snapshot: Snapshot,
        disk: &'a mut dyn Disk,
        start: &[u8],
        end: &[u8],
        want: Want,
    ) -> Result<Range<'a>, Error> {
        snapshot.lost.check_range(start, end)?;
        let (start, end) = (Bytes::copy_from_slice(start), Bytes::copy_from_slice(end));
        let (front, back, given_front, given_back) = (None, None, None, None);
        Ok(Range { snapshot, disk, start, end, want, front, back, given_front, given_back, over: false })
    }

    fn step_front(&mut self) -> Result<Option<RangeItem>, Error> {
        let mut iter = match self.front.take() {
            Some(iter) => iter,
            None => {
                let mut iter = self.snapshot.iter();
                iter.seek(self.disk, &self.start)?;
                iter
            }
        };
        while let Some(item) = iter.item().filter(|item| self.is_left_of_back(item.key)) {
            let newest = shown(&self.snapshot, item)?;
            let key = newest.is_some().then(|| Bytes::copy_from_slice(item.key));
            iter.next(self.disk)?;
            if let (Some(newest), Some(key)) = (newest, key) {
                self.front = Some(iter);
                self.given_front = Some(key.clone());
                return self.give(key, newest).map(Some);
            }
        }
        Ok(None)
    }

    fn step_back(&mut self) -> Result<Option<RangeItem>, Error> {
        let mut iter = match self.back.take() {
            Some(iter) => iter,
            None => {
                let mut iter = self.snapshot.iter_back();
                iter.seek_before(self.disk, (!self.end.is_empty()).then_some(&self.end))?;
                iter
            }
        };
        while let Some(item) = iter.item().filter(|item| self.is_right_of_front(item.key)) {
            let newest = shown(&self.snapshot, item)?;
            let key = newest.is_some().then(|| Bytes::copy_from_slice(item.key));
            iter.prev(self.disk)?;
            if let (Some(newest), Some(key)) = (newest, key) {
                self.back = Some(iter);
                self.given_back = Some(key.clone());
                return self.give(key, newest).map(Some);
            }
        }
        Ok(None)
    }

    fn is_left_of_back(&self, key: &[u8]) -> bool {
        is_before_end(key, &self.end) && self.given_back.as_ref().is_none_or(|given| key < &given[..])
    }

    fn is_right_of_front(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && self.given_front.as_ref().is_none_or(|given| key > &given[..])
    }

    fn give(&mut self, key: Bytes, newest: Newest) -> Result<RangeItem, Error> {
        let found = newest.into_found(&key, self.want, &self.snapshot.segments, self.disk)?;
        Ok(RangeItem { key, found })
    }

    fn end_after(&mut self, step: Result<Option<RangeItem>, Error>) -> Option<Result<RangeItem, Error>> {
        self.over |= !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}

fn shown(snapshot: &Snapshot, item: Item<'_>) -> Result<Option<Newest>, Error> {
    let entry = Entry::decode(item.entry)?;
    if snapshot.is_gone(item.key, item.seq, &entry) {
        return Ok(None);
    }
    let Entry { jsn, location, head, inline, expires_ms } = entry;
    let (head, inline) = (Bytes::copy_from_slice(head), Bytes::copy_from_slice(inline));
    let seq: Seq = item.seq;
    Ok(Some(Newest { seq, jsn, location, head, inline, expires_ms }))
}

impl Iterator for Range<'_> {
    type Item = Result<RangeItem, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let step = self.step_front();
        self.end_after(step)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let step = self.step_back();
        self.end_after(step)
    }
}

impl std::iter::FusedIterator for Range<'_> {}
