//! A client's index query: its meaning, and the form of its answer.
//!
//! In Riak's terms: a field is `…_bin` (terms are bytes), `…_int` (terms are integers), `$key` (the key itself) or
//! `$bucket` (all keys). `max_results` implies order and a continuation. Rows come by term and then by key, whether or
//! not that was asked for; only all keys that nobody wants by page come in the order in which they lie.

use std::convert::Infallible;

use bytes::Bytes;
use object::index::{self, Binary};

use super::pattern::Pattern;
use super::place::QuerySum;
use super::{EncodedRows, KeyOrder, Pick, Query, Row, RowList, RowRef, Rows, Span, place};
use crate::bucket::Bucket;
use crate::error::Error;

const FIELD_KEY: &[u8] = b"$key";
const FIELD_BUCKET: &[u8] = b"$bucket";

/// Which terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Terms {
    /// One.
    Exact(Bytes),
    /// From one to another, both included.
    Range(Bytes, Bytes),
}

/// An index query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRequest {
    /// The bucket.
    pub bucket: Bucket,
    /// The field.
    pub field: Bytes,
    /// Which terms, in the client's words.
    pub terms: Terms,
    /// Whether a range's terms are told with the keys.
    pub return_terms: bool,
    /// The size of a page; `None` for everything at once.
    pub max_results: Option<u32>,
    /// Where the page before ended.
    pub continuation: Option<Bytes>,
    /// Whether keys are to come in order without being paged.
    pub sort: bool,
    /// Only terms, or keys of a query for keys, that match this.
    pub term_regex: Option<Bytes>,
    /// Answer in pieces rather than in one.
    pub stream: bool,
    /// Milliseconds.
    pub timeout: Option<u32>,
}

impl IndexRequest {
    /// A query with every option at its default.
    pub fn new(bucket: Bucket, field: Bytes, terms: Terms) -> IndexRequest {
        IndexRequest {
            bucket,
            field,
            terms,
            return_terms: false,
            max_results: None,
            continuation: None,
            sort: false,
            term_regex: None,
            stream: false,
            timeout: None,
        }
    }

    /// Whether terms are told with the keys: only of a range of a field.
    pub fn tells_terms(&self) -> bool {
        let is_of_field = self.field != FIELD_KEY && self.field != FIELD_BUCKET;
        self.return_terms && is_of_field && matches!(self.terms, Terms::Range(..))
    }

    /// What is to be found, behind which row, and how it is told.
    ///
    /// # Errors
    /// [`Error::BadQuery`], in Riak's words.
    pub fn plan(self) -> Result<(Query, Option<Row>, Telling), Error> {
        if self.max_results == Some(0) {
            return Err(Error::BadQuery("Invalid max_results: it is to be at least 1".to_owned()));
        }
        if let Some(pattern) = &self.term_regex {
            if index::is_of_integers(&self.field) {
                let text = "Can not use term regular expression in integer query";
                return Err(Error::BadQuery(text.to_owned()));
            }
            Pattern::new(pattern)?;
        }
        let is_sorted = self.sort || self.max_results.is_some() || self.continuation.is_some();
        let span = self.span(is_sorted)?;
        let with_terms = self.tells_terms();
        let pick = self.term_regex.map_or(Pick::All, Pick::Matching);
        let query = Query { bucket: self.bucket, span, pick };

        let after = self.continuation.map(|after| place::decode(&query, &self.field, after)).transpose()?;
        let telling = Telling {
            query: QuerySum::of(&query),
            of_integers: index::is_of_integers(&self.field),
            with_terms,
            max_results: self.max_results,
            stream: self.stream,
        };
        Ok((query, after, telling))
    }

    fn span(&self, is_sorted: bool) -> Result<Span, Error> {
        let order = if is_sorted { KeyOrder::Name } else { KeyOrder::Place };
        if self.field == FIELD_BUCKET {
            return Ok(Span::Keys { first: Bytes::new(), last: None, order });
        }
        let (first, last) = match &self.terms {
            Terms::Exact(term) => (term, term),
            Terms::Range(first, last) => (first, last),
        };
        if self.field == FIELD_KEY {
            return Ok(Span::Keys { first: first.clone(), last: Some(last.clone()), order });
        }
        if !self.field.ends_with(b"_bin") && !index::is_of_integers(&self.field) {
            let text = format!("Invalid query: {{unknown_field_type,{}}}", Binary(&self.field));
            return Err(Error::BadQuery(text));
        }
        let term = |text: &Bytes| {
            index::term(&self.field, text).ok_or_else(|| {
                let (field, text) = (Binary(&self.field), Binary(text));
                Error::BadQuery(format!("Invalid query: {{field_parsing_failed,{{{field},{text}}}}}"))
            })
        };
        Ok(Span::Terms { field: self.field.clone(), first: term(first)?, last: term(last)? })
    }
}

/// How rows are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telling {
    /// The query, for its continuation.
    query: QuerySum,
    /// Whether terms are integers, which clients write otherwise than they are ordered.
    of_integers: bool,
    with_terms: bool,
    /// The size of a page; `None` for everything.
    pub max_results: Option<u32>,
    /// Whether rows are told as they are found.
    pub stream: bool,
}

impl Telling {
    /// Terms and keys, as they are found, to be gathered.
    pub(crate) fn of_rows(query: &Query, max_results: Option<u32>) -> Telling {
        let of_integers = matches!(&query.span, Span::Terms { field, .. } if index::is_of_integers(field));
        Telling { query: QuerySum::of(query), of_integers, with_terms: true, max_results, stream: true }
    }

    /// An answer with these rows. `end` is the last row of a page that may not be the last one.
    pub fn rows(&self, rows: RowList, end: Option<RowRef<'_>>, done: bool) -> Rows {
        let continuation = end.map(|row| place::encode(self.query, row));
        let told = if self.with_terms { self.in_words(rows) } else { rows };
        Rows { rows: EncodedRows::new(told, self.with_terms), continuation, done }
    }

    /// The rows with terms as clients write them.
    fn in_words(&self, rows: RowList) -> RowList {
        if !self.of_integers {
            return rows;
        }
        let mut told = RowList::with_capacity(rows.len(), rows.bytes() + rows.len() * NUMBER_BYTES);
        for row in rows.iter() {
            let written = told.push_with(|out| {
                let start = out.len();
                index::put_integer(row.term, out);
                let len = out.len() - start;
                out.extend_from_slice(row.key);
                Ok::<usize, Infallible>(len)
            });
            let Ok(()) = written;
        }
        told
    }
}

/// By how much the longest number is longer in words.
const NUMBER_BYTES: usize = 12;
