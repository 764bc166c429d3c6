//! Rows: matches of a query, one by one ([`Row`]) or many in one buffer ([`RowList`]).
//!
//! A query has thousands of rows, on each of the ways from a store's page to a client's answer. To make two shared
//! names of each, and to count who shares them, cost more than finding it: so between these rows are bytes and places,
//! and are copied.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;

/// A match: ordered by term, then by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The term, as it is ordered ([`object::index::term`]); of a query for keys nothing, or what orders them before
    /// their names do.
    pub term: Bytes,
    /// The object's key.
    pub key: Bytes,
}

impl Row {
    /// As one of a list.
    pub fn as_ref(&self) -> RowRef<'_> {
        RowRef { term: &self.term, key: &self.key }
    }
}

/// A row that lies elsewhere: the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowRef<'a> {
    /// As [`Row::term`].
    pub term: &'a [u8],
    /// The object's key.
    pub key: &'a [u8],
}

impl RowRef<'_> {
    /// A copy of its own.
    pub fn to_row(self) -> Row {
        Row { term: Bytes::copy_from_slice(self.term), key: Bytes::copy_from_slice(self.key) }
    }
}

/// Rows in one buffer, in the order in which they came.
///
/// Invariant: ends ascend, and the last is the buffer's.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RowList {
    /// Terms and keys, behind each other.
    names: Vec<u8>,
    /// Of each row, where its term and its key end.
    ends: Vec<[u32; 2]>,
}

impl RowList {
    /// An empty one, with room for so many rows of as many bytes.
    pub fn with_capacity(rows: usize, bytes: usize) -> RowList {
        RowList { names: Vec::with_capacity(bytes), ends: Vec::with_capacity(rows) }
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of their names.
    pub fn bytes(&self) -> usize {
        self.names.len()
    }

    /// Asserts that the places fit the names.
    #[inline]
    pub fn invariants(&self) {
        debug_assert_eq!(self.start(self.len()), self.names.len(), "the last row ends where the names do");
    }

    /// Appends a row.
    pub fn push(&mut self, row: RowRef<'_>) {
        self.names.extend_from_slice(row.term);
        let term_end = self.end();
        self.names.extend_from_slice(row.key);
        self.ends.push([term_end, self.end()]);
        self.invariants();
    }

    /// Appends a row that `write` appends to the names: its term, then its key; it answers the term's length.
    ///
    /// # Errors
    /// As `write`; then there is no new row.
    pub fn push_with<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<usize, E>) -> Result<(), E> {
        let start = self.names.len();
        match write(&mut self.names) {
            Ok(term_len) => {
                let term_end = start + term_len;
                assert!(term_end <= self.names.len(), "a term is part of what was written");
                self.ends.push([place(term_end), self.end()]);
                Ok(())
            }
            Err(error) => {
                self.names.truncate(start);
                self.invariants();
                Err(error)
            }
        }
    }

    /// Appends these rows of another list.
    pub fn extend_from(&mut self, other: &RowList, rows: Range<usize>) {
        let (start, end) = (other.start(rows.start), other.start(rows.end));
        let (before, base) = (place(start), self.end());
        self.names.extend_from_slice(&other.names[start..end]);
        // The greatest of them has to be a place.
        self.end();
        self.ends.extend(other.ends[rows].iter().map(|ends| ends.map(|end| end - before + base)));
        self.invariants();
    }

    /// The rows.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = RowRef<'_>> + ExactSizeIterator + Clone {
        (0..self.len()).map(|at| self.row(at))
    }

    /// A row, if there are so many.
    pub fn get(&self, at: usize) -> Option<RowRef<'_>> {
        (at < self.len()).then(|| self.row(at))
    }

    /// The first one.
    pub fn first(&self) -> Option<RowRef<'_>> {
        self.get(0)
    }

    /// The last one.
    pub fn last(&self) -> Option<RowRef<'_>> {
        self.get(self.len().wrapping_sub(1))
    }

    fn row(&self, at: usize) -> RowRef<'_> {
        let start = self.start(at);
        let [term_end, end] = self.ends[at].map(|end| end as usize);
        RowRef { term: &self.names[start..term_end], key: &self.names[term_end..end] }
    }

    fn start(&self, at: usize) -> usize {
        if at == 0 { 0 } else { self.ends[at - 1][1] as usize }
    }

    fn end(&self) -> u32 {
        place(self.names.len())
    }
}

/// A page and an answer in one piece have far less ([`super::PAGE_ROWS_MAX`], and the bound of an answer's bytes).
fn place(at: usize) -> u32 {
    u32::try_from(at).expect("a list of rows has less than 4 GiB")
}

impl fmt::Debug for RowList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(RowRef::to_row)).finish()
    }
}

impl<'a> FromIterator<RowRef<'a>> for RowList {
    fn from_iter<I: IntoIterator<Item = RowRef<'a>>>(rows: I) -> RowList {
        let mut list = RowList::default();
        rows.into_iter().for_each(|row| list.push(row));
        list
    }
}

impl FromIterator<Row> for RowList {
    fn from_iter<I: IntoIterator<Item = Row>>(rows: I) -> RowList {
        let mut list = RowList::default();
        rows.into_iter().for_each(|row| list.push(row.as_ref()));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..4).prop_map(Bytes::from)
    }

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        prop::collection::vec((name(), name()).prop_map(|(term, key)| Row { term, key }), 0..8)
    }

    proptest! {
        #[test]
        fn a_list_is_its_rows(first in rows(), second in rows(), range in (0usize..9, 0usize..9)) {
            let mut list: RowList = first.iter().cloned().collect();
            let others: RowList = second.iter().map(Row::as_ref).collect();
            let to = range.1.min(second.len());
            let range = range.0.min(to)..to;
            list.extend_from(&others, range.clone());
            let refused = list.push_with(|names| {
                names.extend_from_slice(b"half a row");
                Err("damaged")
            });
            prop_assert_eq!(refused, Err("damaged"));
            let last = Row { term: Bytes::from_static(b"term"), key: Bytes::from_static(b"key") };
            list.push_with(|names| {
                names.extend_from_slice(b"termkey");
                Ok::<usize, ()>(4)
            }).unwrap();
            let model: Vec<Row> = [&first, &second[range], std::slice::from_ref(&last)].concat();
            prop_assert_eq!(list.iter().map(RowRef::to_row).collect::<Vec<_>>(), &model[..]);
            prop_assert_eq!(list.len(), model.len());
            prop_assert_eq!(list.bytes(), model.iter().map(|row| row.term.len() + row.key.len()).sum::<usize>());
            prop_assert_eq!(list.first().map(RowRef::to_row), model.first().cloned());
            prop_assert_eq!(list.last(), Some(last.as_ref()));
            prop_assert_eq!(list.get(model.len()), None);
            prop_assert_eq!(list, model.into_iter().collect::<RowList>());
        }

        #[test]
        fn rows_are_ordered_wherever_they_lie(a in rows(), b in rows()) {
            for (a, b) in a.iter().zip(&b) {
                prop_assert_eq!(a.cmp(b), a.as_ref().cmp(&b.as_ref()));
            }
        }
    }

    #[test]
    fn nothing_has_no_rows() {
        let list = RowList::with_capacity(2, 10);
        assert!(list.is_empty() && list.first().is_none() && list.last().is_none() && list.bytes() == 0);
    }
}
