//! A key scan over a covering set: a listing of keys or buckets, or a fold.
//!
//! 1. Every partition is given to one node that can be reached and is a primary of it: to this one where it can be, the
//!    rest to as few others as that takes ([`Plan::cover`]).
//! 2. Each part is asked for a page: some names, and the rest of the part behind them ([`KeyScan::ask`]). The next page
//!    is asked for when the client has taken the earlier ones. Of a fold, a page has a sum instead of names.
//! 3. A node that fails, or does not answer for long, is left out. The prefixes that it has not told are given to
//!    others, from the same place on: every node orders its keys alike ([`Parts`]).
//! 4. When no part is left the listing is whole, and ends. Where no node is left for a partition it fails.
//!
//! Invariants: each partition that was not read to its end is in exactly one part; a page counts once, as the answer to
//! the last question about its part; so each name is told once, and an end means that all were.
//!
//! Left out: more than one replica for each partition. Objects that a node has missed while it was away it lists once
//! they have been brought home, as in Riak, which has coverage queries of this kind.

use base::Monotonic;
use bytes::Bytes;
use object::key;
use ring::NodeId;
use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::page::{Listed, Page, PageAsk};
use super::parts::{Parts, Place};
use super::plan::{Plan, Source};
use crate::error::Error;
use crate::list::ListCollector;
use crate::response::Response;

/// How long a page of another node may take before it is asked for again: a page is a few milliseconds of work, so
/// either question or answer is lost or that node has stopped.
const PAGE_PATIENCE: Duration = Duration::from_secs(2);

/// A key scan under way.
#[derive(Debug)]
pub struct KeyScan {
    listed: Listed,
    gather: ListCollector,
    parts: Parts<KeyPlace>,
}

/// The place of a part.
#[derive(Debug)]
struct KeyPlace {
    /// Prefixes that are not read to their end, the one to go on with first.
    prefixes: Vec<u16>,
    /// The ledger key in the first one to go on at; `None` for its start.
    start: Option<Bytes>,
}

impl KeyScan {
    /// A scan of the whole ring; `stream`: buckets, or the sum of a fold, are answered as they come, not all at once.
    ///
    /// # Errors
    /// [`Error::NotCovered`] if there is no covering set.
    pub fn start(listed: Listed, stream: bool, plan: &Plan<'_>) -> Result<KeyScan, Error> {
        let gather = match listed {
            Listed::Keys(_) => ListCollector::keys(),
            Listed::Buckets(_) => ListCollector::buckets(stream),
            Listed::Fold(ref fold) => ListCollector::sums(Arc::clone(fold), stream),
        };
        let mut parts = Parts::new(PAGE_PATIENCE);
        parts.give(plan.all_prefixes(), |prefixes| KeyPlace { prefixes, start: None }, plan)?;
        Ok(KeyScan { listed, gather, parts })
    }

    /// The questions for all pages that may be asked for now, each named by `next`.
    pub fn ask(&mut self, now: Monotonic, next: impl FnMut() -> u64) -> Vec<(u64, Source, PageAsk)> {
        let listed = &self.listed;
        let questions = self.parts.ask(now, next, |place| PageAsk {
            listed: listed.clone(),
            partitions: place.prefixes.clone(),
            start: place.start.clone(),
        });
        self.check();
        questions
    }

    /// Bytes that are held until the last answer.
    pub fn gathered_bytes(&self) -> usize {
        self.gather.gathered_bytes()
    }

    /// The questions that have no answer.
    pub fn asked(&self) -> impl Iterator<Item = u64> {
        self.parts.asked()
    }

    /// Whether this question has no answer and is waited for.
    pub fn asks(&self, question: u64) -> bool {
        self.parts.asks(question)
    }

    /// Takes the answer to a question, and returns the answers for the client. A question that is no longer asked has
    /// none.
    ///
    /// # Errors
    /// Why the listing cannot be whole, or is longer than is held. It is over then.
    pub fn on_page(
        &mut self,
        question: u64,
        page: Result<Page, Error>,
        plan: &Plan<'_>,
    ) -> Result<Vec<Response>, Error> {
        let before = self.parts.unread();
        let Some(part) = self.parts.answered(question) else { return Ok(Vec::new()) };
        let answers = match page {
            Ok(page) if self.parts.place(part).goes_on_with(&page) && self.is_answered_by(&page) => {
                self.take(part, page)
            }
            Ok(_) => self.parts.fail(part, Error::NotCovered, plan).map(|()| Vec::new()),
            Err(error) => self.parts.refused(part, error, plan).map(|()| Vec::new()),
        };
        self.check_step(before);
        answers
    }

    /// Whether a page is of the kind that was asked for.
    fn is_answered_by(&self, page: &Page) -> bool {
        match (&self.listed, &page.sum) {
            (Listed::Fold(fold), Some(sum)) => sum.is_of(fold) && page.names.is_empty(),
            (Listed::Keys(_) | Listed::Buckets(_), None) => true,
            _ => false,
        }
    }

    fn take(&mut self, part: u64, page: Page) -> Result<Vec<Response>, Error> {
        let mut answers = Vec::new();
        if let Some(sum) = page.sum {
            answers.extend(self.gather.on_sum(sum)?);
        }
        if !page.names.is_empty() {
            answers.extend(self.gather.on_piece(page.names)?);
        }

        *self.parts.go_on(part) = KeyPlace { prefixes: page.rest, start: page.next };
        self.parts.drop_done();
        if self.parts.is_empty() {
            answers.push(self.gather.end());
        }
        Ok(answers)
    }

    /// A node can no longer be reached.
    ///
    /// # Errors
    /// As for [`KeyScan::on_page`].
    pub fn on_down(&mut self, node: NodeId, plan: &Plan<'_>) -> Result<(), Error> {
        let before = self.parts.unread();
        let given = self.parts.on_down(node, plan);
        self.check_step(before);
        given
    }

    /// Has pages asked for again that have not come for long, or that a node had no room for a while ago.
    ///
    /// # Errors
    /// As for [`KeyScan::on_page`].
    pub fn tick(&mut self, now: Monotonic, plan: &Plan<'_>) -> Result<(), Error> {
        let before = self.parts.unread();
        let given = self.parts.tick(now, plan);
        self.check_step(before);
        given
    }

    fn check(&self) {
        if cfg!(debug_assertions) {
            self.invariants();
        }
    }

    /// Asserts the relations of a step, before which so many prefixes were unread.
    fn check_step(&self, before: usize) {
        debug_assert!(self.parts.unread() <= before, "a prefix that is given to others is in no second part");
        self.check();
    }

    /// Asserts relations that hold after each step.
    pub fn invariants(&self) {
        let is_kind = match self.gather {
            ListCollector::Keys => matches!(self.listed, Listed::Keys(_)),
            ListCollector::Buckets { .. } => matches!(self.listed, Listed::Buckets(_)),
            ListCollector::Sums(_) => matches!(self.listed, Listed::Fold(_)),
        };
        assert!(is_kind, "the answers gathered are of the kind that is listed");
        self.parts.invariants();
    }
}

impl KeyPlace {
    /// Whether a page's rest is a smaller part of this one, so the listing comes to an end with any answers.
    fn goes_on_with(&self, page: &Page) -> bool {
        let known: BTreeSet<u16> = self.prefixes.iter().copied().collect();
        let rest: BTreeSet<u16> = page.rest.iter().copied().collect();
        let is_part = rest.len() == page.rest.len() && rest.is_subset(&known);
        let place = match (&page.next, page.rest.first()) {
            (Some(next), Some(&first)) => {
                key::objects_at(first).contains(next)
                    && (first != self.prefixes[0]
                        || self.start.as_ref().is_none_or(|start| next > start)
                        || rest.len() < known.len())
            }
            (Some(_), None) => false,
            (None, _) => rest.len() < known.len(),
        };
        is_part && place
    }
}

impl Place for KeyPlace {
    fn is_awaited(&self) -> bool {
        !self.is_done()
    }

    fn is_done(&self) -> bool {
        self.prefixes.is_empty()
    }

    fn unread(&self) -> usize {
        self.prefixes.len()
    }

    fn give_up(&mut self) -> Vec<u16> {
        mem::take(&mut self.prefixes)
    }

    fn given(&self, mut prefixes: Vec<u16>, first: Option<u16>) -> KeyPlace {
        // The place is in the first prefix, which one source gets.
        let at = prefixes.iter().position(|prefix| Some(*prefix) == first);
        let start = at.and_then(|at| {
            prefixes.swap(0, at);
            self.start.clone()
        });
        KeyPlace { prefixes, start }
    }

    fn invariants(&self) {
        assert!(!self.is_done(), "a part has a prefix to read");
        let is_in = |start: &Bytes| key::objects_at(self.prefixes[0]).contains(start);
        assert!(self.start.as_ref().is_none_or(is_in), "the next page begins in the first prefix");
    }
}
