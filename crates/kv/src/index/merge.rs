//! Merging the rows that the parts of a query bring, page by page, into one ascending list.
//!
//! It goes on while every part that may have more has a row, since a row that is to come could be the least.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::row::{Row, RowList, RowRef};

/// What a part has brought.
#[derive(Debug)]
pub(super) struct Brought {
    /// The page that came last; its rows ascend.
    rows: RowList,
    /// How many of them are merged.
    merged: usize,
    /// Whether there may be more behind them.
    pub more: bool,
}

impl Brought {
    /// Nothing yet.
    pub fn nothing() -> Brought {
        Brought { rows: RowList::default(), merged: 0, more: true }
    }

    /// Asserts relations that hold after each step.
    pub fn invariants(&self) {
        debug_assert!(self.merged <= self.rows.len(), "the rows merged are among those that came");
    }

    /// Takes a page, once all rows of the one before are merged.
    pub fn take(&mut self, rows: RowList, more: bool) {
        assert!(!self.has_rows(), "a page is asked for when the one before it is merged");
        *self = Brought { rows, merged: 0, more };
    }

    /// Whether there are rows to be merged.
    pub fn has_rows(&self) -> bool {
        self.merged < self.rows.len()
    }

    /// Whether nothing can be merged before the next page is here.
    pub fn is_awaited(&self) -> bool {
        self.more && !self.has_rows()
    }
}

/// The next row of a part; the least is the greatest, as heaps have it.
struct Head<'a> {
    row: RowRef<'a>,
    rows: &'a RowList,
    merged: &'a mut usize,
    more: bool,
}

impl<'a> Head<'a> {
    fn of(part: &'a mut Brought) -> Option<Head<'a>> {
        let Brought { rows, merged, more } = part;
        Some(Head { row: rows.get(*merged)?, rows, merged, more: *more })
    }

    /// Goes on to the next row; `false` if there is none.
    fn goes_on(&mut self, merged: usize) -> bool {
        *self.merged += merged;
        match self.rows.get(*self.merged) {
            Some(row) => {
                self.row = row;
                true
            }
            None => false,
        }
    }
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.row.cmp(&self.row)
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.row == other.row
    }
}

impl Eq for Head<'_> {}

/// The rows behind `last` that can be merged now, and no more than there is `room` for.
pub(super) fn merge<'a>(
    parts: impl Iterator<Item = &'a mut Brought>,
    last: Option<&Row>,
    room: Option<usize>,
) -> RowList {
    let mut heads = BinaryHeap::new();
    let mut found = (0, 0);
    for part in parts {
        if part.is_awaited() {
            return RowList::default();
        }
        found = (found.0 + part.rows.len() - part.merged, found.1 + part.rows.bytes());
        heads.extend(Head::of(part));
    }
    let mut left = room.unwrap_or(usize::MAX).min(found.0);
    let mut merged = RowList::with_capacity(left, found.1);
    while left > 0 {
        let is_alone = heads.len() == 1;
        let Some(mut least) = heads.peek_mut() else { break };
        // A row comes from one part only; a node that tells another's too must not have it told twice.
        let is_new = merged.last().or(last.map(Row::as_ref)).is_none_or(|last| last < least.row);
        let mut taken = 1;
        if is_alone {
            // Those behind it ascend, and nothing comes between them.
            let from = *least.merged + usize::from(!is_new);
            let to = least.rows.len().min(from + left);
            merged.extend_from(least.rows, from..to);
            left -= to - from;
            taken = to - *least.merged;
        } else if is_new {
            merged.push(least.row);
            left -= 1;
        }
        if least.goes_on(taken) {
            continue;
        }
        let ended = PeekMut::pop(least);
        if base::planted!(RowsToldTwice) && ended.more {
            merged.push(ended.row);
        }
        if ended.more {
            break;
        }
    }
    merged
}
