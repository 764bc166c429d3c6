//! An index query under way: the terms that it asks for, the page that it has come to, and whether what it finds is
//! right.
//!
//! 1. [`Asking::ask`] draws the terms, once, and makes the request for the next page.
//! 2. [`Asking::judge`] looks at each row: by [`rows`](crate::check::rows), and, of the workload's own fields, whether
//!    the object can have had such an entry.
//! 3. [`Asking::goes_on`] says whether another page is to be read.
//! 4. Where each term has its object for certain, [`Asking::rows_min`] says how many rows there must be. A query that
//!    finds fewer is asked some times more, from its beginning: a store that asks one replica finds a write a moment
//!    later.

use crate::check::rows::{Asked, Rows as Judge};
use crate::driver::{IndexRange, Rows};
use crate::names::Naming;
use crate::rng::Rng;
use crate::run::entries::{Entries, put_term, term_number};
use crate::run::person;
use crate::workload::{Operation, Query, Wanted};

/// How often a query that has found too little is asked again.
const AGAIN_MAX: u8 = 5;

/// An index query under way.
#[derive(Default)]
pub struct Asking {
    from: Vec<u8>,
    to: Vec<u8>,
    /// Of a query of terms: the number of the first.
    first: u64,
    continuation: Vec<u8>,
    /// Pages that were answered.
    pages: u32,
    judge: Judge,
    is_drawn: bool,
    agains: u8,
}

impl Asking {
    /// Forgets everything: another query follows.
    pub fn clear(&mut self) {
        (self.is_drawn, self.agains) = (false, 0);
        self.begin();
    }

    fn begin(&mut self) {
        self.continuation.clear();
        self.pages = 0;
        self.judge.clear();
    }

    /// The request for the next page.
    pub fn ask<'a>(&'a mut self, query: &'a Query, entries: &Entries<'a>, rng: &mut Rng) -> IndexRange<'a> {
        if !std::mem::replace(&mut self.is_drawn, true) {
            self.draw(query, entries, rng);
        }
        IndexRange {
            index: field(query, entries),
            from: &self.from,
            to: &self.to,
            return_terms: query.return_terms,
            term_regex: query.term_regex.as_deref(),
            max_results: query.max_results,
            continuation: Some(&*self.continuation).filter(|_| self.pages > 0),
        }
    }

    fn draw(&mut self, query: &Query, entries: &Entries<'_>, rng: &mut Rng) {
        self.from.clear();
        self.to.clear();
        match &query.of {
            Wanted::Postcode { to } => person::postcodes(*to, rng, [&mut self.from, &mut self.to]),
            Wanted::DateOfBirth { days } => person::dates(*days, rng, [&mut self.from, &mut self.to]),
            Wanted::Range { from, to, .. } => {
                self.from.extend_from_slice(from.as_bytes());
                self.to.extend_from_slice(to.as_bytes());
            }
            Wanted::Terms { index, count, span, .. } => {
                self.first = rng.below(count - span + 1);
                put_term(entries.field(*index), self.first, &mut self.from);
                put_term(entries.field(*index), self.first + span - 1, &mut self.to);
            }
        }
    }

    /// Looks at the rows of a page.
    ///
    /// # Errors
    /// What is wrong, in words; of several mistakes the first.
    pub fn judge(
        &mut self,
        query: &Query,
        rows: Rows<'_>,
        naming: &Naming,
        entries: &mut Entries<'_>,
    ) -> Result<(), String> {
        if query.max_results.is_some_and(|max| rows.places.len() > max as usize) {
            return Err(format!("a page of {} rows", rows.places.len()));
        }
        let asked = Asked { from: &self.from, to: &self.to, is_int: field(query, entries).ends_with("_int") };
        let own = match query.of {
            Wanted::Terms { index, span, .. } => Some((index, self.first, self.first + span - 1)),
            _ => None,
        };
        let mut wrong = Ok(());
        for (term, key) in rows.iter() {
            let mut judged = match term {
                None if query.return_terms && self.from != self.to => Err("a row without its term"),
                term => self.judge.take(asked, term, key),
            };
            if let (Some((index, from, to)), Some(id)) = (own, naming.number(key)) {
                let may_be = match term.map(term_number) {
                    Some(Some(term)) => entries.may_have(index, id, term),
                    Some(None) => false,
                    None => entries.may_have_one(index, id, from, to),
                };
                judged = judged.and(if may_be { Ok(()) } else { Err("a term that the object never had") });
            }
            let text = |what| {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                format!("{what}: {:?} of {:?}, asked from {:?}", text(key), term.map(text), text(asked.from))
            };
            wrong = wrong.and(judged.map_err(text));
        }
        wrong
    }

    /// Counts the rows of a page, and judges nothing.
    pub fn count(&mut self, rows: Rows<'_>) {
        self.judge.skip(rows.places.len() as u64);
    }

    /// Whether another page follows, which begins there.
    pub fn goes_on(&mut self, query: &Query, continuation: Option<&[u8]>) -> bool {
        self.pages += 1;
        let Some(place) = continuation.filter(|_| self.pages < query.pages) else { return false };
        self.continuation.clear();
        self.continuation.extend_from_slice(place);
        true
    }

    /// Rows that all pages had.
    pub fn rows(&self) -> u64 {
        self.judge.count()
    }

    /// Rows that there must be.
    pub fn rows_min(&self, query: &Query) -> u64 {
        match query.of {
            Wanted::Terms { whole: true, span, .. } => span.min(query.rows_max()),
            _ => 0,
        }
    }

    /// Begins the same query anew, if it has not been asked often enough.
    pub fn again(&mut self) -> bool {
        let may = self.agains < AGAIN_MAX;
        if may {
            self.agains += 1;
            self.begin();
        }
        may
    }

    /// How much too little was found.
    pub fn shortage(&self, operation: &Operation) -> String {
        let min = operation.query.as_ref().map_or(0, |query| self.rows_min(query));
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        format!("{} rows instead of {min}, from {} to {}", self.rows(), text(&self.from), text(&self.to))
    }
}

fn field<'a>(query: &'a Query, entries: &Entries<'a>) -> &'a str {
    match &query.of {
        Wanted::Postcode { .. } => person::POSTCODE,
        Wanted::DateOfBirth { .. } => person::DATE_OF_BIRTH,
        Wanted::Range { index, .. } => index,
        Wanted::Terms { index, .. } => &entries.field(*index).field,
    }
}
