//! A scan: a client's request that is answered from pages of all partitions.
//!
//! * A key scan lists keys or buckets, or gathers the sums of a fold ([`kv::KeyScan`]).
//! * An index scan merges rows in order ([`kv::index::IndexScan`]). A query gathers the rows of one part after another
//!   ([`Tally`]); each part is an index scan of its own.
//!
//! Invariant: while the client has an answer to take, no further page is asked for. So a slow client holds at most one
//! page of each part, wherever they are.

use super::gathered::Gathered;
use super::scan_clock::ScanClock;
use super::scan_kind::ScanKind;
use crate::hop::{CoverageAsk, CoveragePage};
use crate::shard::env::Env;
use base::Monotonic;
use base::budget::Budget;
use kv::coverage::{Plan, Source};
use kv::index::{IndexScan, Query, Row, Telling};
use kv::query::{Findings, Tally};
use kv::{Error, KeyScan, Response};
use std::sync::Arc;

/// A scan that is answered here.
pub(super) struct Scan {
    gathering: Gathering,
    kind: ScanKind,
    n_val: u32,
    deadline: Monotonic,
    /// When it was begun; none once it has answered.
    begun: Option<Monotonic>,
    /// Whether the client has still to take the last answer.
    is_sending: bool,
    memory: Gathered,
    /// Its times, for the log of slow requests.
    pub(super) slow: Option<Box<ScanClock>>,
}

/// The coordinator of a scan's pages.
pub(super) enum Gathering {
    /// Names, or sums.
    Keys(KeyScan),
    /// Rows as they are.
    Rows(IndexScan),
    /// Rows for a query.
    Query(IndexScan, Box<Tally>),
}

/// The rows that a query's part is to find: the query, the row behind which it begins, and the form of its answers.
pub(super) type QueryPart = (Query, Option<Row>, Telling);

/// The state of a query after a step.
pub(super) enum QueryStep {
    /// The part under way has more pages.
    MorePages,
    /// The next part begins.
    NextPart(Box<QueryPart>),
    /// All parts are done.
    Complete,
}

impl Scan {
    /// A scan that has asked for nothing yet.
    pub fn new(kind: ScanKind, gathering: Gathering, n_val: u32, deadline: Monotonic) -> Scan {
        let (begun, is_sending, memory, slow) = (None, false, Gathered::default(), None);
        Scan { gathering, kind, n_val, deadline, begun, is_sending, memory, slow }
    }

    /// It was begun now.
    pub fn set_begun(&mut self, now: Monotonic) {
        self.begun = Some(now);
    }

    /// The begin of a query that has its first answer now; `None` of a later answer, or of another scan.
    pub fn take_begun(&mut self) -> Option<Monotonic> {
        self.begun.take().filter(|_| self.kind == ScanKind::Query)
    }

    /// Its kind.
    pub fn kind(&self) -> ScanKind {
        self.kind
    }

    /// Replicas of the objects that it reads.
    pub fn n_val(&self) -> u32 {
        self.n_val
    }

    /// When its client stops waiting.
    pub fn deadline(&self) -> Monotonic {
        self.deadline
    }

    /// Whether the client has still to take the last answer.
    pub fn is_sending(&self) -> bool {
        self.is_sending
    }

    /// An answer is on its way to the client, or was taken.
    pub fn set_sending(&mut self, is_sending: bool) {
        self.is_sending = is_sending;
    }

    /// Whether its rows are gathered for a query.
    pub fn is_query(&self) -> bool {
        matches!(self.gathering, Gathering::Query(..))
    }

    /// It ends with an answer or an error.
    pub fn note_end(&mut self, env: &mut Env, error: Option<&Error>) {
        if let Some(clock) = &mut self.slow {
            clock.end(env, self.kind, error);
        }
    }

    /// The questions for all pages that may be asked for now.
    pub fn ask(&mut self, now: Monotonic, next: impl FnMut() -> u64) -> Vec<(u64, Source, CoverageAsk)> {
        debug_assert!(!self.is_sending, "pages are asked for when the client has taken the earlier ones");
        match &mut self.gathering {
            Gathering::Keys(keys) => {
                let asks = keys.ask(now, next).into_iter();
                asks.map(|(question, source, ask)| (question, source, CoverageAsk::Keys(ask))).collect()
            }
            Gathering::Rows(rows) | Gathering::Query(rows, _) => {
                let asks = rows.ask(now, next).into_iter();
                let boxed = |(question, source, ask)| (question, source, CoverageAsk::Rows(Box::new(ask)));
                asks.map(boxed).collect()
            }
        }
    }

    /// The questions without an answer.
    pub fn asked(&self) -> Vec<u64> {
        match &self.gathering {
            Gathering::Keys(keys) => keys.asked().collect(),
            Gathering::Rows(rows) | Gathering::Query(rows, _) => rows.asked().collect(),
        }
    }

    /// Whether this question has no answer yet.
    pub fn asks(&self, question: u64) -> bool {
        match &self.gathering {
            Gathering::Keys(keys) => keys.asks(question),
            Gathering::Rows(rows) | Gathering::Query(rows, _) => rows.asks(question),
        }
    }

    /// Takes an answer to a question. A page of the other kind is no answer: the part goes to another node.
    ///
    /// # Errors
    /// Why the scan cannot be answered as a whole. It is over then.
    pub fn on_page(
        &mut self,
        question: u64,
        page: CoveragePage,
        plan: &Plan<'_>,
    ) -> Result<Vec<Response>, Error> {
        match (&mut self.gathering, page) {
            (Gathering::Keys(keys), CoveragePage::Keys(page)) => keys.on_page(question, page, plan),
            (Gathering::Keys(keys), CoveragePage::Rows(_)) => {
                keys.on_page(question, Err(Error::NotCovered), plan)
            }
            (Gathering::Rows(rows) | Gathering::Query(rows, _), CoveragePage::Rows(page)) => {
                rows.on_page(question, page, plan)
            }
            (Gathering::Rows(rows) | Gathering::Query(rows, _), CoveragePage::Keys(_)) => {
                rows.on_page(question, Err(Error::NotCovered), plan)
            }
        }
    }

    /// Gives the missing pages of a node that cannot be reached to others.
    ///
    /// # Errors
    /// As for [`Scan::on_page`].
    pub fn on_down(&mut self, node: ring::NodeId, plan: &Plan<'_>) -> Result<Vec<Response>, Error> {
        match &mut self.gathering {
            Gathering::Keys(keys) => keys.on_down(node, plan)?,
            Gathering::Rows(rows) | Gathering::Query(rows, _) => rows.on_down(node, plan)?,
        }
        Ok(Vec::new())
    }

    /// Has late pages asked for again.
    ///
    /// # Errors
    /// As for [`Scan::on_page`].
    pub fn tick(&mut self, now: Monotonic, plan: &Plan<'_>) -> Result<Vec<Response>, Error> {
        match &mut self.gathering {
            Gathering::Keys(keys) => keys.tick(now, plan)?,
            Gathering::Rows(rows) | Gathering::Query(rows, _) => rows.tick(now, plan)?,
        }
        Ok(Vec::new())
    }

    /// Reserves memory for the part of an answer in one piece that is gathered so far.
    ///
    /// # Errors
    /// [`Error::Overload`] if there is no room for it now.
    pub fn reserve(&mut self, budget: &Arc<Budget>) -> Result<(), Error> {
        let bytes = match &self.gathering {
            Gathering::Keys(keys) => keys.gathered_bytes(),
            Gathering::Rows(rows) => rows.gathered_bytes(),
            Gathering::Query(rows, tally) => rows.gathered_bytes() + tally.gathered_bytes(),
        };
        self.memory.grow(budget, bytes)
    }

    /// Has a query take rows.
    ///
    /// # Errors
    /// As for [`Scan::on_page`].
    pub fn take_rows(&mut self, answers: Vec<Response>, budget: &Arc<Budget>) -> Result<QueryStep, Error> {
        let mut is_part_done = false;
        for answer in answers {
            let Gathering::Query(_, tally) = &mut self.gathering else { unreachable!("it is a query") };
            let Response::Rows(rows) = answer else { unreachable!("{answer:?} is no rows") };
            debug_assert!(!is_part_done, "a part ends with its last rows");
            is_part_done = rows.done;
            tally.take(rows)?;
            self.reserve(budget)?;
        }
        if !is_part_done {
            return Ok(QueryStep::MorePages);
        }
        let Gathering::Query(_, tally) = &mut self.gathering else { unreachable!("it is a query") };
        Ok(match tally.next_part()? {
            Some(part) => QueryStep::NextPart(Box::new(part)),
            None => QueryStep::Complete,
        })
    }

    /// The findings of a query whose parts are all done.
    pub fn into_findings(self) -> Findings {
        let Gathering::Query(_, tally) = self.gathering else { unreachable!("it is a query") };
        tally.end()
    }

    /// Begins the next part of a query.
    pub fn begin_part(&mut self, search: IndexScan) {
        let Gathering::Query(rows, _) = &mut self.gathering else { unreachable!("it is a query") };
        *rows = search;
    }
}

/// Whether a scan goes on after this answer.
pub(super) fn has_more(answer: &Response) -> bool {
    match answer {
        Response::Keys { done, .. } | Response::Buckets { done, .. } => !done,
        Response::Folded(folded) => !folded.done,
        Response::Rows(rows) => !rows.done,
        other => unreachable!("{other:?} is no answer to a scan"),
    }
}
