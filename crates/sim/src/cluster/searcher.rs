//! Somebody who asks for objects by their index entries while everything happens, one query at a time and page by page:
//! each page of whatever node, and a page that was lost once more. As the lister it needs no network; what it is told
//! is checked as it leaves the node. In the end it asks each kind of query of each bucket once more, and what it is
//! told is what there is.

use super::ending::Phase;
use super::{BUCKETS, SEARCHER, World, auditor};
use crate::check::cluster::{Row, Told, Wanted};
use crate::check::history::KeyName;
use crate::check::siblings::{NUMBERS, TEXTS};
use crate::check::{Verdict, Violation, index};
use crate::seed::{duration_between, index_below};
use crate::show;
use base::Rng;
use base::rng::SplitMix64;
use bytes::Bytes;
use kv::index::Terms;
use kv::{Error, IndexRequest, Request, Response};
use node::RequestId;
use object::Head;
use ring::Ring;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Of so many ticks, one begins a query if none is under way.
const EVERY: u64 = 64;
/// While partitions move: what a query is told by whoever gives something up is what is most likely wrong.
const EVERY_WHILE_MOVING: u64 = 12;
/// Of so many questions of one node to another, then one comes late, and how late: when everybody goes by another ring
/// perhaps, but before somebody else is asked.
const LATE_EVERY: u64 = 4;
const LATE_MAX: Duration = Duration::from_secs(5);
/// How long a page may take: as a listing.
const TIMEOUT: Duration = Duration::from_secs(8);
/// How often a page may be lost before the query is given up.
const LOST_MAX: u32 = 3;
/// Queries in the end of each bucket.
const LAST: usize = 6;

#[derive(Debug)]
pub(super) struct Searcher {
    rng: SplitMix64,
    under_way: Option<Search>,
    /// In the end: the query that is next.
    last: usize,
    /// Queries that were answered as a whole while everything happened.
    pub(super) whole: u64,
}

#[derive(Debug)]
struct Search {
    /// Of the page that is next, or under way.
    request: IndexRequest,
    /// The node and the request, while one is under way.
    asked: Option<(usize, u64)>,
    lost: u32,
    /// Whether all that a script writes was there when it began, and nothing else is written.
    is_all_there: bool,
}

impl Searcher {
    pub(super) fn new(rng: SplitMix64) -> Searcher {
        Searcher { rng, under_way: None, last: 0, whole: 0 }
    }

    /// Whether this is the request of its page.
    pub(super) fn awaits(&self, id: RequestId) -> bool {
        let asked = self.under_way.as_ref().and_then(|search| search.asked);
        asked.is_some_and(|(_, request)| request == id.0)
    }

    /// A query; only of keys where there are no entries.
    fn draw(&mut self, has_entries: bool, buckets: usize) -> IndexRequest {
        let rng = &mut self.rng;
        // As clients do, it asks most of the bucket that is checked best.
        let bucket = index_below(rng, 2 * buckets - 2).saturating_sub(buckets - 2);
        let which = if has_entries { rng.below(6) } else { 4 + rng.below(2) };
        let (field, terms) = match which {
            0 | 1 => ("n_int", between(rng, &NUMBERS)),
            2 | 3 => ("t_bin", between(rng, &TEXTS)),
            4 => ("$key", between(rng, &["k0", "k1", "k2", "k3", "k4", "k9"])),
            _ => ("$bucket", Terms::Exact(Bytes::from_static(b"_"))),
        };
        let request = request(bucket, field, terms);
        IndexRequest {
            return_terms: rng.chance(1, 2),
            max_results: rng.chance(1, 2).then(|| 1 + u32::try_from(rng.below(4)).expect("few")),
            sort: rng.chance(1, 2),
            // Not often: each shard compiles it.
            term_regex: (field != "n_int" && rng.chance(1, 12)).then(|| Bytes::from_static(EVEN)),
            stream: rng.chance(1, 2),
            ..request
        }
    }
}

/// A pattern that some terms and some keys match.
const EVEN: &[u8] = b"[02468]$";

fn request(bucket: usize, field: &'static str, terms: Terms) -> IndexRequest {
    let timeout = u32::try_from(TIMEOUT.as_millis()).expect("seconds");
    let field = Bytes::from_static(field.as_bytes());
    IndexRequest { timeout: Some(timeout), ..IndexRequest::new(super::client::bucket(bucket), field, terms) }
}

/// One of these terms, which ascend, or a range.
fn between(rng: &mut SplitMix64, terms: &[&'static str]) -> Terms {
    let text = |at: usize| Bytes::from_static(terms[at].as_bytes());
    let (one, other) = (index_below(rng, terms.len()), index_below(rng, terms.len()));
    match rng.below(8) {
        0 | 1 => Terms::Exact(text(one)),
        // The wrong way round, where they differ.
        2 => Terms::Range(text(one.max(other)), text(one.min(other))),
        _ => Terms::Range(text(one.min(other)), text(one.max(other))),
    }
}

/// The queries of the end, of all terms and keys that there can be.
fn last(bucket: usize, at: usize) -> IndexRequest {
    let all = |terms: &[&'static str]| {
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        Terms::Range(text(terms[0]), text(terms[terms.len() - 1]))
    };
    let numbers = request(bucket, "n_int", all(&NUMBERS));
    let texts = request(bucket, "t_bin", all(&TEXTS));
    match at {
        0 => IndexRequest { return_terms: true, max_results: Some(1), ..numbers },
        1 => IndexRequest { stream: true, max_results: Some(3), ..numbers },
        2 => IndexRequest { return_terms: true, stream: true, ..texts },
        3 => IndexRequest { term_regex: Some(Bytes::from_static(EVEN)), max_results: Some(2), ..texts },
        4 => IndexRequest { max_results: Some(2), ..request(bucket, "$key", all(&["k", "l"])) },
        _ => request(bucket, "$bucket", Terms::Exact(Bytes::from_static(b"_"))),
    }
}

/// The rows that have to be told and those that may be, as they are told; with each, whether it has to be.
fn there(wanted: &Wanted, must: &BTreeSet<Row>, may: &BTreeSet<Row>) -> Vec<(Told, bool)> {
    let rows: BTreeSet<Row> = must.union(may).cloned().collect();
    let has_to_be = rows.iter().map(|row| must.contains(row));
    wanted.told(&rows).into_iter().zip(has_to_be).collect()
}

impl World {
    /// Goes on with a query, or now and then begins one.
    pub(super) fn search_something(&mut self) -> Verdict {
        if self.searcher.under_way.is_some() {
            return self.ask_page();
        }
        let every = match self.mover.is_moving() {
            true => EVERY_WHILE_MOVING,
            false => EVERY,
        };
        if !self.phase.has_clients() || !self.searcher.rng.chance(1, every) {
            return Ok(());
        }
        let mut request = self.searcher.draw(self.plan.backend.is_ordered(), self.plan.buckets());
        if self.script.is_some() {
            // Of many objects: keys in order, and small pages, cost a look at each prefix.
            if request.field.starts_with(b"$") {
                return Ok(());
            }
            request.max_results = None;
        }
        self.begin_search(request)
    }

    /// Asks the queries of the end, one after the other. True when all are answered.
    pub(super) fn search_all(&mut self) -> Result<bool, Violation> {
        let at = self.searcher.last;
        if at == LAST * self.plan.buckets() {
            self.searcher.last = 0;
            return Ok(true);
        }
        let query = last(at / LAST, at % LAST);
        if !self.plan.backend.is_ordered() && !query.field.starts_with(b"$") {
            self.searcher.last += 1;
        } else if self.searcher.under_way.is_none() {
            self.begin_search(query)?;
        }
        Ok(false)
    }

    fn begin_search(&mut self, request: IndexRequest) -> Verdict {
        let rings: Vec<Arc<Ring>> = self.mover.rings().cloned().collect();
        let primaries = |key: &KeyName| super::primaries_by(&rings, key);
        self.checks.on_search(&request, self.events.now(), primaries);
        let is_all_there = self.is_all_loaded();
        self.searcher.under_way = Some(Search { request, asked: None, lost: 0, is_all_there });
        self.ask_page()
    }

    /// Asks some node for the next page, unless that is under way. A query that life is over for is given up.
    fn ask_page(&mut self) -> Verdict {
        let Some(search) = &mut self.searcher.under_way else { return Ok(()) };
        if search.asked.is_some() {
            return Ok(());
        }
        if !self.phase.has_clients() && self.phase != Phase::Searching {
            self.give_up_search();
            return Ok(());
        }
        let rng = &mut self.searcher.rng;
        let at = index_below(rng, self.hosts.len());
        let shard = index_below(rng, usize::from(self.hosts[at].machine.layout.shards));
        if self.hosts[at].held.is_some() || !self.listens(at, shard) {
            return Ok(());
        }
        let search = self.searcher.under_way.as_mut().expect("just seen");
        // The number that it will have.
        search.asked = Some((at, self.numbers + 1));
        let request = Request::Index(Box::new(search.request.clone()));
        self.on_ask((SEARCHER, 0), (at, shard), request, TIMEOUT)
    }

    /// Whether a query is under way.
    pub(super) fn is_searching(&self) -> bool {
        self.searcher.under_way.is_some()
    }

    /// How late a question for rows comes, if it does.
    pub(super) fn draw_late_question(&mut self) -> Option<Duration> {
        let is_late =
            self.phase.has_trouble() && self.mover.is_moving() && self.searcher.rng.chance(1, LATE_EVERY);
        is_late.then(|| duration_between(&mut self.searcher.rng, Duration::ZERO, LATE_MAX))
    }

    fn give_up_search(&mut self) {
        self.searcher.under_way = None;
        self.checks.on_search_given_up();
    }

    /// The process of a node has died, and will answer nothing.
    pub(super) fn on_searched_node_death(&mut self, node: usize) {
        let asked = self.searcher.under_way.as_ref().and_then(|search| search.asked);
        if asked.is_some_and(|(at, _)| at == node) {
            self.on_page_lost();
        }
    }

    fn on_page_lost(&mut self) {
        self.checks.on_page_lost();
        let Some(search) = &mut self.searcher.under_way else { return };
        search.asked = None;
        search.lost += 1;
        if search.lost > LOST_MAX {
            self.give_up_search();
        }
    }

    /// A node has told a part of a page.
    pub(super) fn on_search_reply(
        &mut self,
        (at, shard): (usize, usize),
        to: RequestId,
        result: Result<Response, Error>,
        more: bool,
    ) -> Verdict {
        match &result {
            Ok(Response::Rows(rows)) => {
                self.checks.on_rows(rows)?;
                if rows.done {
                    self.on_page(rows.continuation.clone())?;
                }
            }
            other if self.phase == Phase::Searching => {
                return Err(Violation::new("a quiet cluster is searched", show::answer(other)));
            }
            _ => self.on_page_lost(),
        }
        if !more {
            return self.on_reply(at, to, result);
        }
        self.trace.line(format_args!("n{at} tells for request {}: {}", to.0, show::answer(&result)));
        self.proceed(at, shard, to);
        Ok(())
    }

    /// A page has ended, and the query with it unless it is to be continued.
    fn on_page(&mut self, continuation: Option<Bytes>) -> Verdict {
        let search = self.searcher.under_way.as_mut().expect("it is awaited");
        search.asked = None;
        if continuation.is_some() {
            search.request.continuation = continuation;
            return Ok(());
        }
        let is_all_there = search.is_all_there;
        self.searcher.under_way = None;
        let (wanted, told) = self.checks.on_searched()?;
        if self.phase != Phase::Searching {
            self.searcher.whole += 1;
            if !is_all_there {
                return Ok(());
            }
            let there = there(&wanted, &self.rows_loaded(&wanted), &BTreeSet::new());
            return index::check_told(wanted.bucket(), wanted.field(), &there, &wanted.in_order(told));
        }
        let bucket = self.searcher.last / LAST;
        self.searcher.last += 1;
        let (must, may) = self.rows_there(bucket, &wanted);
        let there = there(&wanted, &must, &may);
        index::check_told(BUCKETS[bucket], wanted.field(), &there, &wanted.in_order(told))
    }

    /// Whether what a script has written is all there is, and nobody else writes.
    fn is_all_loaded(&self) -> bool {
        self.plan.clients == 0 && self.places().all(|place| self.auditor.loaded.contains_key(&place))
    }

    /// The rows of what a script has written.
    fn rows_loaded(&self, wanted: &Wanted) -> BTreeSet<Row> {
        let of_bucket =
            self.auditor.loaded.iter().filter(|((bucket, _), _)| BUCKETS[*bucket] == wanted.bucket());
        of_bucket.flat_map(|((_, key), number)| wanted.rows_of(&super::key_name(*key), *number)).collect()
    }

    /// The rows of the objects that all replicas have come to agree on; and those that may be told, of siblings that
    /// have ended: beside a tombstone they stay (decision 62), and one that came home late is where it came.
    fn rows_there(&self, bucket: usize, wanted: &Wanted) -> (BTreeSet<Row>, BTreeSet<Row>) {
        let (mut must, mut may) = (BTreeSet::new(), BTreeSet::new());
        if wanted.is_of_keys() {
            must.extend(self.auditor.found(bucket).iter().flat_map(|key| wanted.rows(key, [])));
            return (must, may);
        }
        for (place, copies) in self.auditor.copies.iter().filter(|((of, _), _)| *of == bucket) {
            let (name, key) = (auditor::name(*place), super::key_name(place.1));
            for head in copies.of_nodes().filter_map(|(_, head)| head) {
                let head = Head::decode(head).expect("it was compared");
                let is_beside = head.siblings().iter().any(|sibling| sibling.metadata.deleted);
                for sibling in head.siblings().iter().filter(|sibling| !sibling.metadata.deleted) {
                    let metadata = &sibling.metadata;
                    let has_ended = is_beside && self.checks.has_ended(&name, metadata.expires_ms);
                    let entries = metadata.indexes.iter().map(|entry| (&entry.field[..], &entry.value[..]));
                    let rows = if has_ended { &mut may } else { &mut must };
                    rows.extend(wanted.rows(&key, entries));
                }
            }
        }
        (must, may)
    }
}
