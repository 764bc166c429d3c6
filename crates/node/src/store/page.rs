//! A page of a scan over a backend: a bounded fold at a time, from where the last one was left.
//!
//! A backend has what may be acknowledged and nothing else, so what a fold visits may be shown. Between two folds of
//! one page the backend may be written: each key is visited as it was at some moment since the scan was asked for.
//!
//! Left out: going past damage. A fold that comes upon it is an error.

use crate::indexing::INDEXING;
use backends::{Backend, Item, What};
use base::Progress;
use bytes::Bytes;
use engine::fold::{PAGE_BYTES_MAX, ScanId, ScanPage, ScanRequest, Visit};
use engine::{Error, Seq};
use std::ops::ControlFlow;

/// Items that one call visits, about: a millisecond or two from memory.
const CALL_ITEMS: usize = 4096;

/// A fold that is begun anew counts as so many items.
const SEEK_ITEMS: usize = 16;

/// Says whether a version is to be shown, by its key and head.
pub type Shows = Box<dyn Fn(&[u8], &[u8]) -> bool + Send>;

/// A page that is being read.
pub struct Page {
    pub id: ScanId,
    request: ScanRequest,
    shows: Shows,
    /// Whether a fold finds its first key without passing by others.
    is_ordered: bool,
    /// Of a page of index entries: the version that had dropped them last when it was begun.
    pub dropped: Option<Seq>,
    page: ScanPage,
    bytes: usize,
    /// The first key that was not visited.
    at: Vec<u8>,
}

impl Page {
    /// The first page of what was asked for.
    pub fn new(id: ScanId, request: ScanRequest, shows: Shows, is_ordered: bool) -> Page {
        let at = request.start.to_vec();
        Page { id, request, shows, is_ordered, dropped: None, page: ScanPage::default(), bytes: 0, at }
    }

    /// Whether it is of index entries.
    pub fn is_of_entries(&self) -> bool {
        INDEXING.is_entry(&self.request.start)
    }

    /// Goes on for a bounded while, where keys are in order; a pass over a store that has none costs the same whatever
    /// it brings.
    pub fn step(&mut self, backend: &mut dyn Backend) -> Result<Progress, Error> {
        let mut left = if self.is_ordered { CALL_ITEMS } else { usize::MAX };
        while left > 0 {
            if self.at[..] >= self.request.end[..] {
                return Ok(Progress::Done);
            }
            left = left.saturating_sub(SEEK_ITEMS);
            match self.fold(backend, &mut left)? {
                Some(next) if self.page.next.is_none() => self.at = next,
                _ => return Ok(Progress::Done),
            }
        }
        Ok(Progress::More)
    }

    /// The page, once it is done.
    pub fn take(&mut self) -> ScanPage {
        std::mem::take(&mut self.page)
    }

    fn is_full(&self) -> bool {
        self.page.items.len() >= self.request.items_max || self.bytes >= PAGE_BYTES_MAX
    }

    /// One fold, up to where it is to go on; `None` at the end of the range.
    fn fold(&mut self, backend: &mut dyn Backend, left: &mut usize) -> Result<Option<Vec<u8>>, Error> {
        let (mut from, end) = (std::mem::take(&mut self.at), self.request.end.clone());
        let mut next = None;
        backend.fold(&from.clone(), &end, What::Heads, &mut |item| {
            if item.key < &from[..] {
                return ControlFlow::Continue(());
            }
            let is_full = self.is_full();
            if is_full || *left == 0 {
                self.page.next = is_full.then(|| Bytes::copy_from_slice(item.key));
                next = Some(item.key.to_vec());
                return ControlFlow::Break(());
            }
            *left -= 1;
            match self.visit(item) {
                Visit::Seek(key) | Visit::TakeAndSeek(key) if &key[..] > item.key => {
                    if self.is_ordered {
                        next = Some(key);
                        return ControlFlow::Break(());
                    }
                    from = key;
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })?;
        Ok(next)
    }

    fn visit(&mut self, item: Item<'_>) -> Visit {
        if !(self.shows)(item.key, item.head) {
            return Visit::Skip;
        }
        let visit = (self.request.visitor)(item.key, item.head);
        if matches!(visit, Visit::Take | Visit::TakeAndSeek(_)) {
            self.bytes += item.key.len() + item.head.len();
            self.page.items.push(item.key, item.head);
        }
        visit
    }
}
