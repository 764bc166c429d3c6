//! A query of one or several parts, as `POST …/query` asks it, and what it finds.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

use super::{Attributes, Name, Pipeline, SetExpression, Value};
use crate::bucket::Bucket;
use crate::error::Error;
use crate::index::{Pick, Picker, Query, Row, Rows, Span, Telling, place_of};

/// The most parts of a query: each is a scan of its own.
pub const PARTS_MAX: usize = 16;

/// Bytes of keys, terms and counts that a query holds until it is answered.
const HELD_BYTES_MAX: usize = 32 << 20;

/// What an entry of a set or a map takes beside its bytes, as held bytes are counted.
const ENTRY_BYTES: usize = 96;

/// What becomes of the matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accumulation {
    /// Their keys, each once.
    Keys,
    /// Their terms and keys.
    TermWithKeys,
    /// How many there are.
    MatchCount,
    /// How many keys they have.
    KeyCount,
    /// How many there are of each term.
    TermWithMatchCount,
    /// How many keys they have of each term.
    TermWithKeyCount,
}

impl Accumulation {
    /// All of them, with their names.
    pub const NAMES: [(&str, Accumulation); 6] = [
        ("keys", Accumulation::Keys),
        ("term_with_keys", Accumulation::TermWithKeys),
        ("match_count", Accumulation::MatchCount),
        ("key_count", Accumulation::KeyCount),
        ("term_with_matchcount", Accumulation::TermWithMatchCount),
        ("term_with_keycount", Accumulation::TermWithKeyCount),
    ];

    fn is_of_terms(self) -> bool {
        use Accumulation as A;
        matches!(self, A::TermWithKeys | A::TermWithMatchCount | A::TermWithKeyCount)
    }

    fn is_by_page(self) -> bool {
        matches!(self, Accumulation::Keys | Accumulation::TermWithKeys)
    }
}

/// One part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryPart {
    /// What a set expression calls it.
    pub tag: u32,
    /// The field; its terms are bytes.
    pub field: Bytes,
    /// The first term.
    pub first: Bytes,
    /// The last term, included.
    pub last: Bytes,
    /// Which terms between them.
    pub pick: Pick,
}

/// A query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRequest {
    /// The bucket.
    pub bucket: Bucket,
    /// Its parts; at least one.
    pub parts: Vec<QueryPart>,
    /// How the keys of several parts become one set.
    pub sets: Option<SetExpression>,
    /// What becomes of the matches.
    pub accumulation: Accumulation,
    /// The attribute that stands for the term; `None` for the term itself.
    pub term: Option<Name>,
    /// The size of a page, of keys or terms with keys of one part.
    pub max_results: Option<u32>,
    /// Where the page before ended.
    pub continuation: Option<Bytes>,
    /// Milliseconds.
    pub timeout: Option<u32>,
}

/// What a query finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Findings {
    /// Keys, and where the next page begins.
    Keys(Vec<Bytes>, Option<Bytes>),
    /// Terms and keys, and where the next page begins.
    Terms(Vec<(Bytes, Bytes)>, Option<Bytes>),
    /// How many.
    Count(Accumulation, u64),
    /// How many of each term.
    TermCounts(BTreeMap<Bytes, u64>),
}

/// A query under way: its parts are asked for one after the other, and what they find is gathered.
#[derive(Debug)]
pub struct Tally {
    request: QueryRequest,
    /// Parts that were begun.
    begun: usize,
    /// The pipeline of the part under way, if the term is an attribute that it makes.
    pipeline: Option<Pipeline>,
    /// The keys of each part, where they matter.
    keys: BTreeMap<u32, BTreeSet<Bytes>>,
    matches: u64,
    terms: Vec<(Bytes, Bytes)>,
    counts: BTreeMap<Bytes, u64>,
    term_keys: BTreeSet<(Bytes, Bytes)>,
    held: usize,
    continuation: Option<Bytes>,
}

impl Tally {
    /// Checks a query.
    ///
    /// # Errors
    /// [`Error::BadQuery`], in OpenRiak's words where it has some.
    pub fn new(request: QueryRequest) -> Result<Tally, Error> {
        request.check()?;
        Ok(Tally {
            request,
            begun: 0,
            pipeline: None,
            keys: BTreeMap::new(),
            matches: 0,
            terms: Vec::new(),
            counts: BTreeMap::new(),
            term_keys: BTreeSet::new(),
            held: 0,
            continuation: None,
        })
    }

    /// The bucket.
    pub fn bucket(&self) -> &Bucket {
        &self.request.bucket
    }

    /// The next part: what is to be found, behind which row, and how it is to be handed to [`Tally::take`]. `None` when
    /// all are done.
    ///
    /// # Errors
    /// [`Error::BadQuery`] if a continuation is none.
    pub fn next_part(&mut self) -> Result<Option<(Query, Option<Row>, Telling)>, Error> {
        let Some(part) = self.request.parts.get(self.begun) else { return Ok(None) };
        self.begun += 1;
        let bucket = self.request.bucket.clone();
        let span =
            Span::Terms { field: part.field.clone(), first: part.first.clone(), last: part.last.clone() };
        let query = Query { bucket, span, pick: part.pick.clone() };
        let after = self.request.continuation.clone();
        let after = after.map(|place| place_of(&query, &part.field, place)).transpose()?;
        self.pipeline = match (&self.request.term, &part.pick) {
            (Some(_), pick @ Pick::Where { .. }) => match Picker::new(pick)? {
                Picker::Where(pipeline, _) => Some(pipeline),
                Picker::All | Picker::Matching(_) => None,
            },
            _ => None,
        };
        let telling = Telling::of_rows(&query, self.request.max_results);
        Ok(Some((query, after, telling)))
    }

    /// Bytes of keys, terms and counts that wait to be answered.
    pub fn gathered_bytes(&self) -> usize {
        self.held
    }

    /// Asserts relations that hold after each page.
    pub fn invariants(&self) {
        debug_assert!(self.begun <= self.request.parts.len(), "the parts begun are among those of the query");
        debug_assert!(self.keys.len() <= self.begun, "keys are of parts that were begun");
        let has_term = self.request.term.is_some();
        debug_assert!(self.pipeline.is_none() || has_term, "a pipeline runs for a term that it makes");
        let told = self.terms.len() as u64;
        debug_assert!(self.terms.is_empty() || told == self.matches, "each match has its term");
        let is_counted = self.term_keys.is_empty() || self.counts.len() <= self.term_keys.len();
        debug_assert!(is_counted, "a term that is counted has a key");
        let entries = self.terms.len() + self.counts.len() + self.term_keys.len();
        debug_assert!(self.held >= entries * ENTRY_BYTES, "the bytes of each entry were counted");
    }

    /// Takes some of what the part under way finds.
    ///
    /// # Errors
    /// [`Error::AnswerTooLong`] if it is more than is held.
    pub fn take(&mut self, rows: Rows) -> Result<(), Error> {
        self.continuation = rows.continuation.or(self.continuation.take());
        for (term, key) in rows.rows.iter() {
            self.take_row(term.unwrap_or_default(), key);
        }

        if cfg!(debug_assertions) {
            self.invariants();
        }
        if self.held > HELD_BYTES_MAX {
            return Err(Error::AnswerTooLong { limit: HELD_BYTES_MAX });
        }
        Ok(())
    }

    fn take_row(&mut self, term: &[u8], key: &[u8]) {
        let accumulation = self.request.accumulation;
        let term = match accumulation.is_of_terms() {
            true => match self.projected(term, key) {
                Some(term) => term,
                None => return,
            },
            false => Bytes::new(),
        };
        self.matches += 1;
        let key = || Bytes::copy_from_slice(key);
        match accumulation {
            Accumulation::MatchCount if self.request.sets.is_none() => {}
            Accumulation::Keys | Accumulation::KeyCount | Accumulation::MatchCount => {
                let tag = self.request.parts[self.begun - 1].tag;
                let key = key();
                let len = key.len();
                if self.keys.entry(tag).or_default().insert(key) {
                    self.held += len + ENTRY_BYTES;
                }
            }
            Accumulation::TermWithKeys => {
                let key = key();
                self.held += term.len() + key.len() + ENTRY_BYTES;
                self.terms.push((term, key));
            }
            Accumulation::TermWithMatchCount => self.count(term),
            Accumulation::TermWithKeyCount => {
                let key = key();
                let len = term.len() + key.len();
                if self.term_keys.insert((term.clone(), key)) {
                    self.held += len + ENTRY_BYTES;
                    self.count(term);
                }
            }
        }
    }

    fn count(&mut self, term: Bytes) {
        let len = term.len();
        let count = self.counts.entry(term).or_insert_with(|| {
            self.held += len + ENTRY_BYTES;
            0
        });
        *count += 1;
    }

    /// The attribute that stands for the term; `None` if it is not there, or no text.
    fn projected(&self, term: &[u8], key: &[u8]) -> Option<Bytes> {
        let term = Bytes::copy_from_slice(term);
        let Some(name) = &self.request.term else { return Some(term) };
        let mut attributes = Attributes::new(term, Bytes::copy_from_slice(key));
        if let Some(pipeline) = &self.pipeline {
            pipeline.run(&mut attributes);
        }
        match attributes.get(name)? {
            Value::Text(text) => Some(text.clone()),
            Value::Number(_) | Value::List(_) => None,
        }
    }

    /// What was found, once all parts are done.
    pub fn end(mut self) -> Findings {
        let combined = |tally: &mut Tally| match &tally.request.sets {
            Some(sets) => {
                let keys = &tally.keys;
                sets.combine(&|tag| keys.get(&tag).cloned().unwrap_or_default())
            }
            None => std::mem::take(&mut tally.keys).into_values().next().unwrap_or_default(),
        };
        match self.request.accumulation {
            Accumulation::Keys => {
                let keys = combined(&mut self).into_iter().collect();
                Findings::Keys(keys, self.continuation)
            }
            Accumulation::TermWithKeys => Findings::Terms(self.terms, self.continuation),
            Accumulation::MatchCount if self.request.sets.is_none() => {
                Findings::Count(Accumulation::MatchCount, self.matches)
            }
            count @ (Accumulation::KeyCount | Accumulation::MatchCount) => {
                Findings::Count(count, combined(&mut self).len() as u64)
            }
            Accumulation::TermWithMatchCount | Accumulation::TermWithKeyCount => {
                Findings::TermCounts(self.counts)
            }
        }
    }
}

impl QueryRequest {
    fn check(&self) -> Result<(), Error> {
        let invalid = |stage: &str, why: &str| {
            Err(Error::BadQuery(format!("Validation failure at stage {stage} due to {why}")))
        };
        if self.parts.is_empty() || self.parts.len() > PARTS_MAX {
            return invalid("query_list", &format!("a list of 1 to {PARTS_MAX} queries is needed"));
        }
        for part in &self.parts {
            if !part.field.ends_with(b"_bin") {
                return invalid("query_evaluation", "Invalid index name");
            }
            if part.first > part.last {
                return invalid("query_evaluation", "Invalid query range");
            }
            match (Picker::new(&part.pick), &part.pick) {
                (Err(_), Pick::Matching(_)) => return invalid("query_evaluation", "Invalid regex"),
                (Err(error), _) => return Err(error),
                (Ok(_), _) => {}
            }
        }
        let tags: BTreeSet<u32> = self.parts.iter().map(|part| part.tag).collect();
        let stage = "aggregation_expression";
        match &self.sets {
            None if self.parts.len() > 1 => return invalid(stage, "several queries need one"),
            Some(_) if tags.len() < self.parts.len() => {
                return invalid(stage, "two queries have the same aggregation_tag");
            }
            Some(sets) if !sets.queries().is_subset(&tags) => {
                return invalid(stage, "it names a query that is not there");
            }
            Some(_) if self.accumulation.is_of_terms() => {
                return invalid("accumulation_option", "Unrecognised option of several queries");
            }
            _ => {}
        }
        let is_paged = self.max_results.is_some() || self.continuation.is_some();
        if self.max_results == Some(0) || is_paged && (self.sets.is_some() || !self.accumulation.is_by_page())
        {
            return invalid("max_results", "it is the size of a page of keys of one query");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
