//! An index query over a covering set: its sources, and the merge of their rows into one answer in order.
//!
//! 1. Every prefix is given to one node that can be reached and is a primary of it ([`Plan::cover`]). What one shard is
//!    asked is a *part*; where a node of several shards is asked, the first answer says which shards there are.
//! 2. Each part is asked for a page of about as many rows as it will have to tell ([`IndexScan::ask`]).
//! 3. Rows are merged while each part that is not at its end has one. When one has none left, its next page is asked
//!    for, once the client has taken the earlier ones.
//! 4. A node that fails, or does not answer for long, is left out: its untold rows are asked of others, from there on.
//! 5. When all parts are at their end, or the client's page is full, the answer is complete. Where nobody is left for
//!    a prefix the query fails: it never ends as if it were whole.
//!
//! Invariants: each prefix that was not read to its end is in exactly one part; a page counts once, as the answer to
//! the last question about its part; so each row is told once and none is missing, in order.
//!
//! Memory: one page of each part, [`BUFFERED_ROWS`] or so in all, and what an answer in one piece may hold.
//!
//! Left out: more than one replica for each prefix, as in Riak; see [`crate::coverage`].

use std::collections::BTreeSet;
use std::mem;
use std::time::Duration;

use base::Monotonic;
use ring::NodeId;

use super::merge::{Brought, merge};
use super::{PAGE_ROWS_MAX, PrefixSet, Query, Row, RowList, RowsAsk, RowsPage, Telling};
use crate::coverage::parts::{Parts, Place};
use crate::coverage::plan::{Plan, Source};
use crate::error::Error;
use crate::response::Response;

/// How long a page of another node may take before it is asked for again. A page may look through half a million
/// entries for the few that match a regex, behind other pages; a node that has stopped is noticed otherwise, and
/// sooner.
const PAGE_PATIENCE: Duration = Duration::from_secs(5);

/// Rows that the pages of all parts together are meant to hold: with rows of a hundred bytes a few megabytes.
const BUFFERED_ROWS: usize = 32_768;

/// The least page: below it a question costs more than its rows.
const PAGE_ROWS_MIN: usize = 64;

/// Bytes of the rows in an answer in one piece. Whoever wants more has it by page or as a stream.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// What a row takes beside its bytes, as an answer's bytes are counted.
const ROW_BYTES: usize = 64;

/// The place of a part.
#[derive(Debug)]
struct RowsPlace {
    prefixes: PrefixSet,
    /// The row behind which the next page begins.
    after: Option<Row>,
    brought: Brought,
}

/// A query under way.
#[derive(Debug)]
pub struct IndexScan {
    query: Query,
    telling: Telling,
    /// Rows that the client's page has room for.
    room: Option<usize>,
    parts: Parts<RowsPlace>,
    /// Prefixes that keys are ordered by.
    prefixes: usize,
    /// The last row that was merged.
    last: Option<Row>,
    /// What is answered in one piece, and its bytes.
    gathered: RowList,
    bytes: usize,
}

impl IndexScan {
    /// A query over the whole ring, of the rows behind `after`.
    ///
    /// # Errors
    /// [`Error::NotCovered`] if there is no covering set.
    pub fn start(
        query: Query,
        after: Option<Row>,
        telling: Telling,
        plan: &Plan<'_>,
    ) -> Result<IndexScan, Error> {
        let parts = plan.cover(plan.all_prefixes(), &BTreeSet::new())?;
        let parts = parts.into_iter().map(|(source, prefixes)| (source, prefixes.into_iter().collect()));
        Ok(IndexScan::over(parts.collect(), query, after, telling, plan))
    }

    /// A query over a covering set that is known.
    pub fn over(
        cover: Vec<(Source, PrefixSet)>,
        query: Query,
        after: Option<Row>,
        telling: Telling,
        plan: &Plan<'_>,
    ) -> IndexScan {
        let max_results = telling.max_results;
        let mut scan = IndexScan {
            query,
            telling,
            room: max_results.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX)),
            parts: Parts::new(PAGE_PATIENCE),
            prefixes: usize::try_from(plan.prefixes.partitions()).unwrap_or(usize::MAX),
            last: after.clone(),
            gathered: RowList::default(),
            bytes: 0,
        };
        for (source, prefixes) in cover {
            scan.parts.add(source, RowsPlace::new(prefixes, after.clone()));
        }
        scan
    }

    /// The questions for all pages that may be asked for now, each named by `next`.
    pub fn ask(&mut self, now: Monotonic, next: impl FnMut() -> u64) -> Vec<(u64, Source, RowsAsk)> {
        let (count, prefixes, room, query) = (self.parts.len(), self.prefixes, self.room, &self.query);
        let questions = self.parts.ask(now, next, |place| {
            let rows = rows_of(place.prefixes.len(), prefixes, count, room);
            RowsAsk {
                query: query.clone(),
                prefixes: place.prefixes.clone(),
                after: place.after.clone(),
                rows_max: u32::try_from(rows).expect("a page is not that long"),
            }
        });
        self.check();
        questions
    }

    fn check(&self) {
        if cfg!(debug_assertions) {
            self.invariants();
        }
    }

    /// Asserts relations that hold after each step.
    pub fn invariants(&self) {
        self.parts.invariants();
        for place in self.parts.places() {
            let is_behind = place.after.as_ref() >= self.last.as_ref();
            let is_awaited = place.is_awaited();
            assert!(!is_awaited || is_behind, "no row is told behind the place where a part goes on");
        }
        assert!(!self.telling.stream || self.bytes == 0, "a stream gathers no rows");
        let wanted = self.telling.max_results.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
        assert!(self.room <= wanted, "the room left is part of the client's page");
    }

    /// Bytes of the rows that wait to be answered in one piece.
    pub fn gathered_bytes(&self) -> usize {
        self.bytes
    }

    /// The questions that have no answer.
    pub fn asked(&self) -> impl Iterator<Item = u64> {
        self.parts.asked()
    }

    /// Whether this question has no answer and is waited for.
    pub fn asks(&self, question: u64) -> bool {
        self.parts.asks(question)
    }

    /// Takes the answer to a question, and tells what is to be answered now. An answer to what is no longer asked is
    /// none.
    ///
    /// # Errors
    /// Why the query cannot be answered as a whole, or not in one piece. It is over then.
    pub fn on_page(
        &mut self,
        question: u64,
        page: Result<RowsPage, Error>,
        plan: &Plan<'_>,
    ) -> Result<Vec<Response>, Error> {
        let Some(part) = self.parts.answered(question) else { return Ok(Vec::new()) };
        match page {
            Ok(page) if self.parts.place(part).takes(&page) => self.take(part, page),
            Ok(_) => self.parts.fail(part, Error::NotCovered, plan)?,
            Err(error) => self.parts.refused(part, error, plan)?,
        }
        let answers = self.answers();
        self.check();
        answers
    }

    fn take(&mut self, part: u64, page: RowsPage) {
        let source = self.parts.source(part);
        let place = self.parts.go_on(part);
        let after = place.after.clone();
        for others in &page.others {
            place.prefixes = place.prefixes.difference(others);
        }
        let more = page.next.is_some();
        let end = page.next;
        let end = if base::planted!(RowsSkippedAtAPage) { end.map(skipped) } else { end };
        place.after = end.or_else(|| place.after.take());
        place.brought.take(page.rows, more);
        for others in page.others {
            self.parts.add(source, RowsPlace::new(others, after.clone()));
        }
    }

    /// What can be answered now.
    fn answers(&mut self) -> Result<Vec<Response>, Error> {
        let rows = self.merge();
        let is_full = self.room == Some(0);
        self.parts.drop_done();
        let is_over = is_full || self.parts.is_empty();
        if self.telling.stream {
            let mut answers = Vec::new();
            if !rows.is_empty() {
                answers.push(Response::Rows(self.telling.rows(rows, None, false)));
            }
            if is_over {
                answers.push(self.end(RowList::default(), is_full));
            }
            return Ok(answers);
        }
        self.bytes += rows.bytes() + rows.len() * ROW_BYTES;
        if self.bytes > ANSWER_BYTES_MAX {
            return Err(Error::AnswerTooLong { limit: ANSWER_BYTES_MAX });
        }
        if self.gathered.is_empty() {
            self.gathered = rows;
        } else {
            self.gathered.extend_from(&rows, 0..rows.len());
        }
        let gathered = self.gathered.bytes() + self.gathered.len() * ROW_BYTES;
        let is_counted = gathered == 0 || self.bytes == gathered;
        debug_assert!(is_counted, "the bytes counted are those of the rows gathered");
        if !is_over {
            return Ok(Vec::new());
        }
        let rows = mem::take(&mut self.gathered);
        Ok(vec![self.end(rows, is_full)])
    }

    fn end(&self, rows: RowList, is_full: bool) -> Response {
        let end = self.last.clone().filter(|_| is_full);
        let end = if base::planted!(RowsSkippedAtAPage) { end.map(skipped) } else { end };
        Response::Rows(self.telling.rows(rows, end.as_ref().map(Row::as_ref), true))
    }

    fn merge(&mut self) -> RowList {
        let parts = self.parts.places_mut().map(|place| &mut place.brought);
        let merged = merge(parts, self.last.as_ref(), self.room);
        self.room = self.room.map(|room| room.saturating_sub(merged.len()));
        if let Some(last) = merged.last() {
            let before = self.last.as_ref().map(Row::as_ref);
            debug_assert!(before.is_none_or(|before| before <= last), "rows are told in order");
            self.last = Some(last.to_row());
        }
        merged
    }

    /// A node can no longer be reached.
    ///
    /// # Errors
    /// As for [`IndexScan::on_page`].
    pub fn on_down(&mut self, node: NodeId, plan: &Plan<'_>) -> Result<(), Error> {
        let given = self.parts.on_down(node, plan);
        self.check();
        given
    }

    /// Has pages asked for again that have not come for long, or that a node had no room for a while ago.
    ///
    /// # Errors
    /// As for [`IndexScan::on_page`].
    pub fn tick(&mut self, now: Monotonic, plan: &Plan<'_>) -> Result<(), Error> {
        let given = self.parts.tick(now, plan);
        self.check();
        given
    }
}

impl Place for RowsPlace {
    fn is_awaited(&self) -> bool {
        self.brought.is_awaited()
    }

    fn is_done(&self) -> bool {
        !self.brought.more && !self.brought.has_rows()
    }

    fn unread(&self) -> usize {
        if self.brought.more { self.prefixes.len() } else { 0 }
    }

    fn give_up(&mut self) -> Vec<u16> {
        self.brought.more = false;
        mem::take(&mut self.prefixes).iter().collect()
    }

    fn given(&self, prefixes: Vec<u16>, _: Option<u16>) -> RowsPlace {
        RowsPlace::new(prefixes.into_iter().collect(), self.after.clone())
    }

    fn invariants(&self) {
        self.brought.invariants();
        let has_prefix = !self.prefixes.is_empty();
        assert!(!self.brought.more || has_prefix, "a part that goes on has a prefix to read");
    }
}

impl RowsPlace {
    fn new(prefixes: PrefixSet, after: Option<Row>) -> RowsPlace {
        RowsPlace { prefixes, after, brought: Brought::nothing() }
    }

    /// Whether a page is an answer to the question: its rows ascend behind those told, it goes on behind them, and the
    /// part that it leaves to others is smaller than this one; so a query comes to an end with any answers.
    fn takes(&self, page: &RowsPage) -> bool {
        let after = self.after.as_ref();
        let ascend = page.rows.iter().is_sorted_by(|a, b| a < b);
        let behind = page.rows.first().is_none_or(|first| after.is_none_or(|after| first > after.as_ref()));
        let goes_on = page.next.as_ref().is_none_or(|next| {
            after.is_none_or(|after| next > after)
                && page.rows.last().is_none_or(|last| next.as_ref() >= last)
        });
        let mut left = self.prefixes.clone();
        let disjoint = page.others.iter().all(|others| {
            let before = left.len();
            left = left.difference(others);
            !others.is_empty() && before - left.len() == others.len()
        });
        ascend && behind && goes_on && disjoint && (!left.is_empty() || page.others.is_empty())
    }
}

/// How many rows to ask of a part with so many of all `prefixes`, where there are so many parts: its share of what is
/// wanted and a bit more, since shares are uneven by chance: four standard deviations.
fn rows_of(own: usize, prefixes: usize, parts: usize, room: Option<usize>) -> usize {
    let buffered = (BUFFERED_ROWS / parts.max(1)).max(PAGE_ROWS_MIN);
    let wanted = room.map_or(usize::MAX, |room| {
        let share = (room.saturating_mul(own) / prefixes.max(1)) + 1;
        share.saturating_add(4 * share.isqrt() + 8).min(room)
    });
    wanted.min(buffered).min(PAGE_ROWS_MAX)
}

/// A mutant's: a place a little too far on, behind all of the row's term.
fn skipped(row: Row) -> Row {
    Row { key: vec![u8::MAX].into(), ..row }
}
