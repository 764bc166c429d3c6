//! The rows of an answer to a query: terms in the words of the client, and keys.

use bytes::Bytes;

use super::row::{RowList, RowRef};

/// Rows for a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// The rows.
    pub rows: EncodedRows,
    /// Where the next page begins, once this one is complete and may not be the last.
    pub continuation: Option<Bytes>,
    /// Whether this is the last answer.
    pub done: bool,
}

/// Terms, in the client's words, and keys; without terms where they were not asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedRows {
    list: RowList,
    with_terms: bool,
}

impl EncodedRows {
    /// Rows whose terms are in the client's words, or are not told.
    pub(super) fn new(list: RowList, with_terms: bool) -> EncodedRows {
        EncodedRows { list, with_terms }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Bytes of terms and keys.
    pub fn bytes(&self) -> usize {
        self.list.bytes()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Terms and keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Option<&[u8]>, &[u8])> {
        self.list.iter().map(|row| (self.with_terms.then_some(row.term), row.key))
    }
}

/// All of them have terms, or none.
impl FromIterator<(Option<Bytes>, Bytes)> for EncodedRows {
    fn from_iter<I: IntoIterator<Item = (Option<Bytes>, Bytes)>>(rows: I) -> EncodedRows {
        let mut told = EncodedRows::default();
        for (term, key) in rows {
            told.with_terms = term.is_some();
            told.list.push(RowRef { term: term.as_deref().unwrap_or_default(), key: &key });
        }
        told
    }
}
