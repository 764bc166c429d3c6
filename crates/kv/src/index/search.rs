//! An index query over a covering set: who is asked, and how what they find becomes one answer in order.
//!
//! 1. Every prefix is given to one node that can be reached and is a primary of it ([`Plan::cover`]). What one shard is
//!    asked is a *part*; where a node of several shards is asked, the first answer says which shards there are.
//! 2. Each part is asked for a page of about as many rows as it will have to tell ([`Search::ask`]).
//! 3. Rows are merged while each part that is not at its end has one. When one has none left, its next page is asked for,
//!    once the client has taken what came before.
//! 4. A node that fails, or does not answer for long, is left out: what it had not told is given to others, from there on.
//! 5. When all parts are at their end, or the client's page is full, the answer is complete. Where nobody is left for
//!    a prefix the query fails: it never ends as if it were whole.
//!
//! Invariants: each prefix that was not read to its end is in exactly one part; a page counts once, as the answer to the last
//! question about its part; so each row is told once and none is missing, in order.
//!
//! Memory: one page of each part, [`BUFFERED_ROWS`] or so in all, and what an answer in one piece may hold.
//!
//! Left out: more than one replica for each prefix, as in Riak; see [`crate::coverage`].

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use base::Monotonic;
use ring::NodeId;

use super::merge::{Brought, merge};
use super::{PAGE_ROWS_MAX, PrefixSet, Query, Row, RowList, RowsAsk, RowsPage, Telling};
use crate::coverage::{Plan, Source};
use crate::error::Error;
use crate::response::Response;

/// How long a page of another node may take before it is asked for again. A page may look through half a million entries
/// for the few that match a regex, behind other pages; a node that has stopped is noticed otherwise, and sooner.
const PAGE_PATIENCE: Duration = Duration::from_secs(5);

/// How often the same page is asked of a node before others are: once lost and once refused.
const PAGE_TRIES_MAX: u32 = 3;

/// Rows that the pages of all parts together are meant to hold: with rows of a hundred bytes a few megabytes.
const BUFFERED_ROWS: usize = 32_768;

/// The least page: below it a question costs more than its rows.
const PAGE_ROWS_MIN: usize = 64;

/// Bytes of the rows in an answer in one piece. Whoever wants more has it by page or as a stream.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// What a row takes beside its bytes, as an answer's bytes are counted.
const ROW_BYTES: usize = 64;

/// What one shard is to find.
#[derive(Debug)]
struct Part {
    source: Source,
    prefixes: PrefixSet,
    /// Behind what the next page begins.
    after: Option<Row>,
    brought: Brought,
    /// Questions for the same page so far.
    tries: u32,
    waits: Waits,
}

/// Whether a part is asked for its next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// It may be.
    No,
    /// It is, under this name, since then.
    Asked(u64, Monotonic),
    /// After a while.
    Later,
}

/// A query under way.
#[derive(Debug)]
pub struct Search {
    query: Query,
    telling: Telling,
    /// Rows that the client's page has room for.
    room: Option<usize>,
    parts: BTreeMap<u64, Part>,
    /// The part that each question is about.
    asked: BTreeMap<u64, u64>,
    last_part: u64,
    /// Prefixes that keys are ordered by.
    prefixes: usize,
    left_out: BTreeSet<NodeId>,
    /// The last row that was merged.
    last: Option<Row>,
    /// What is answered in one piece, and its bytes.
    gathered: RowList,
    bytes: usize,
}

impl Search {
    /// A query over the whole ring, of the rows behind `after`.
    ///
    /// # Errors
    /// [`Error::NotCovered`] if there is no covering set.
    pub fn start(
        query: Query,
        after: Option<Row>,
        telling: Telling,
        plan: &Plan<'_>,
    ) -> Result<Search, Error> {
        let all = plan.prefixes.all();
        let all = all.map(|prefix| u16::try_from(prefix.0).expect("a prefix has at most 16 bits"));
        let parts = plan.cover(all, &BTreeSet::new())?;
        let parts = parts.into_iter().map(|(source, prefixes)| (source, prefixes.into_iter().collect()));
        Ok(Search::over(parts.collect(), query, after, telling, plan))
    }

    /// A query over a covering set that is known.
    pub fn over(
        cover: Vec<(Source, PrefixSet)>,
        query: Query,
        after: Option<Row>,
        telling: Telling,
        plan: &Plan<'_>,
    ) -> Search {
        let max_results = telling.max_results;
        let mut search = Search {
            query,
            telling,
            room: max_results.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX)),
            parts: BTreeMap::new(),
            asked: BTreeMap::new(),
            last_part: 0,
            prefixes: usize::try_from(plan.prefixes.partitions()).unwrap_or(usize::MAX),
            left_out: BTreeSet::new(),
            last: after.clone(),
            gathered: RowList::default(),
            bytes: 0,
        };
        cover.into_iter().for_each(|(source, prefixes)| search.add(source, prefixes, after.clone()));
        search
    }

    fn add(&mut self, source: Source, prefixes: PrefixSet, after: Option<Row>) {
        self.last_part += 1;
        let brought = Brought::nothing();
        let part = Part { source, prefixes, after, brought, tries: 0, waits: Waits::No };
        self.parts.insert(self.last_part, part);
    }

    /// The questions for all pages that may be asked for now, each named by `next`.
    pub fn ask(&mut self, now: Monotonic, mut next: impl FnMut() -> u64) -> Vec<(u64, Source, RowsAsk)> {
        let mut questions = Vec::new();
        let (count, prefixes, room) = (self.parts.len(), self.prefixes, self.room);
        for (&name, part) in &mut self.parts {
            if !part.brought.is_awaited() || part.waits != Waits::No {
                continue;
            }
            let question = next();
            part.tries += 1;
            part.waits = Waits::Asked(question, now);
            self.asked.insert(question, name);
            let rows = rows_of(part.prefixes.len(), prefixes, count, room);
            let ask = RowsAsk {
                query: self.query.clone(),
                prefixes: part.prefixes.clone(),
                after: part.after.clone(),
                rows_max: u32::try_from(rows).expect("a page is not that long"),
            };
            questions.push((question, part.source, ask));
        }

        if cfg!(debug_assertions) {
            self.invariants();
        }
        questions
    }

    /// Asserts what holds after each step.
    pub fn invariants(&self) {
        let is_asked = |part: &&Part| matches!(part.waits, Waits::Asked(..));
        let asked = self.parts.values().filter(is_asked).count();
        debug_assert_eq!(self.asked.len(), asked, "a part that waits for a page has one question");
        for (question, name) in &self.asked {
            let waits = self.parts.get(name).map(|part| part.waits);
            let is_its = matches!(waits, Some(Waits::Asked(by, _)) if by == *question);
            debug_assert!(is_its, "a question is about the part that waits for its answer");
        }
        self.parts.values().for_each(|part| part.invariants(self.last.as_ref()));
        debug_assert!(!self.telling.stream || self.bytes == 0, "a stream gathers no rows");
        let wanted = self.telling.max_results.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
        debug_assert!(self.room <= wanted, "the room left is part of the client's page");
    }

    /// Bytes of the rows that wait to be answered in one piece.
    pub fn gathered_bytes(&self) -> usize {
        self.bytes
    }

    /// The questions that have no answer.
    pub fn asked(&self) -> impl Iterator<Item = u64> {
        self.asked.keys().copied()
    }

    /// Whether this question has no answer and is waited for.
    pub fn asks(&self, question: u64) -> bool {
        self.asked.contains_key(&question)
    }

    /// Takes the answer to a question, and tells what is to be answered now. An answer to what is no longer asked is none.
    ///
    /// # Errors
    /// Why the query cannot be answered as a whole, or not in one piece. It is over then.
    pub fn on_page(
        &mut self,
        question: u64,
        page: Result<RowsPage, Error>,
        plan: &Plan<'_>,
    ) -> Result<Vec<Response>, Error> {
        let Some(name) = self.asked.remove(&question) else { return Ok(Vec::new()) };
        let part = self.parts.get_mut(&name).expect("a question is about a part");
        part.waits = Waits::No;
        match page {
            Ok(page) if part.takes(&page) => self.take(name, page),
            Ok(_) => self.fail(name, Error::NotCovered, plan)?,
            // It may have room in a moment; the tick asks again.
            Err(Error::Overload) if part.tries < PAGE_TRIES_MAX => part.waits = Waits::Later,
            Err(error) => self.fail(name, error, plan)?,
        }
        let answers = self.answers();

        if cfg!(debug_assertions) {
            self.invariants();
        }
        answers
    }

    fn take(&mut self, name: u64, page: RowsPage) {
        let part = self.parts.get_mut(&name).expect("it was asked");
        let (source, after) = (part.source, part.after.clone());
        for others in &page.others {
            part.prefixes = part.prefixes.difference(others);
        }
        part.tries = 0;
        let more = page.next.is_some();
        let end = page.next;
        let end = if base::planted!(RowsSkippedAtAPage) { end.map(skipped) } else { end };
        part.after = end.or_else(|| part.after.take());
        part.brought.take(page.rows, more);
        page.others.into_iter().for_each(|others| self.add(source, others, after.clone()));
    }

    /// What can be answered now.
    fn answers(&mut self) -> Result<Vec<Response>, Error> {
        let rows = self.merge();
        let is_full = self.room == Some(0);
        self.parts.retain(|_, part| part.brought.more || part.brought.has_rows());
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
        let parts = self.parts.values_mut().map(|part| &mut part.brought);
        let merged = merge(parts, self.last.as_ref(), self.room);
        self.room = self.room.map(|room| room.saturating_sub(merged.len()));
        if let Some(last) = merged.last() {
            let before = self.last.as_ref().map(Row::as_ref);
            debug_assert!(before.is_none_or(|before| before <= last), "rows are told in order");
            self.last = Some(last.to_row());
        }
        merged
    }

    /// Gives what a part has not told to others. If there are none, the query fails for the `cause`, unless that is only that
    /// the node cannot be reached.
    fn fail(&mut self, name: u64, cause: Error, plan: &Plan<'_>) -> Result<(), Error> {
        let part = self.parts.get_mut(&name).expect("it is known");
        self.left_out.insert(match part.source {
            Source::Here(_) => plan.here,
            Source::Node(node) => node,
        });
        part.brought.more = false;
        let (prefixes, after) = (mem::take(&mut part.prefixes), part.after.clone());
        let parts = plan.cover(prefixes.iter(), &self.left_out).map_err(|error| match cause {
            Error::Unreachable | Error::Timeout | Error::NoType(_) => error,
            cause => cause,
        })?;
        for (source, prefixes) in parts {
            self.add(source, prefixes.into_iter().collect(), after.clone());
        }
        Ok(())
    }

    /// A node can no longer be reached.
    ///
    /// # Errors
    /// As for [`Search::on_page`].
    pub fn on_down(&mut self, node: NodeId, plan: &Plan<'_>) -> Result<(), Error> {
        let lost = self.names(|part| part.source == Source::Node(node) && part.brought.more);
        self.give_up(&lost, &Error::Unreachable, plan)
    }

    /// Has pages asked for again that have not come for long, or that a node had no room for a while ago.
    ///
    /// # Errors
    /// As for [`Search::on_page`].
    pub fn tick(&mut self, now: Monotonic, plan: &Plan<'_>) -> Result<(), Error> {
        let is_late = |part: &Part| match part.waits {
            Waits::Asked(_, at) => matches!(part.source, Source::Node(_)) && now.since(at) >= PAGE_PATIENCE,
            Waits::Later => true,
            Waits::No => false,
        };
        let late = self.names(is_late);
        let (mut again, mut given_up) = (Vec::new(), Vec::new());
        for name in late {
            let part = &self.parts[&name];
            if part.tries < PAGE_TRIES_MAX { again.push(name) } else { given_up.push(name) }
        }
        for name in again {
            self.forget_question(name);
        }
        self.give_up(&given_up, &Error::Timeout, plan)
    }

    fn give_up(&mut self, names: &[u64], cause: &Error, plan: &Plan<'_>) -> Result<(), Error> {
        for &name in names {
            self.forget_question(name);
            self.fail(name, cause.clone(), plan)?;
        }

        if cfg!(debug_assertions) {
            self.invariants();
        }
        Ok(())
    }

    fn forget_question(&mut self, name: u64) {
        let part = self.parts.get_mut(&name).expect("it is known");
        if let Waits::Asked(question, _) = mem::replace(&mut part.waits, Waits::No) {
            self.asked.remove(&question);
        }
    }

    fn names(&self, which: impl Fn(&Part) -> bool) -> Vec<u64> {
        self.parts.iter().filter(|(_, part)| which(part)).map(|(&name, _)| name).collect()
    }
}

impl Part {
    /// Asserts what holds of a part where the rows up to `last` were told.
    fn invariants(&self, last: Option<&Row>) {
        self.brought.invariants();
        let is_awaited = self.brought.is_awaited();
        debug_assert!(
            self.waits == Waits::No || is_awaited,
            "a page is asked for when the one before is told"
        );
        let is_tried = self.waits == Waits::No || self.tries > 0;
        debug_assert!(is_tried && self.tries <= PAGE_TRIES_MAX, "each question of a part is a try");
        let has_prefix = !self.prefixes.is_empty();
        debug_assert!(!self.brought.more || has_prefix, "a part that goes on has a prefix to read");
        let is_behind = self.after.as_ref() >= last;
        debug_assert!(!is_awaited || is_behind, "no row is told behind the place where a part goes on");
    }

    /// Whether a page is an answer to what was asked: its rows ascend behind what was told, it goes on behind them, and what
    /// it leaves to others is a smaller part of this one; so that a query comes to an end whatever others say.
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
