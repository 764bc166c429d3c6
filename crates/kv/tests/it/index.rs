//! Index queries over a covering set against a model: nodes of several shards that fail, stop and come back, pages that
//! are lost, late and doubled. What ends without an error has every row once, in order; page by page too.

#![allow(clippy::unwrap_used, reason = "a test")]

use base::Monotonic;
use bytes::Bytes;
use kv::coverage::{Plan, Source};
use kv::index::{
    IndexScan, KeyOrder, PrefixSet, Query, Row, RowList, RowRef, Rows, RowsAsk, RowsPage, Span, Telling,
    Terms,
};
use kv::{Bucket, Error, IndexRequest, NodeId, Response};
use proptest::prelude::*;
use ring::{Partition, Ring, RingSize, RingVersion};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const SHARDS: u16 = 3;
const PAGE: usize = 3;
const HERE: NodeId = NodeId(0);

fn ring(nodes: u32) -> Ring {
    Ring::round_robin(RingVersion(1), RingSize::new(8).unwrap(), nodes).unwrap()
}

/// Keys are ordered more finely than there are partitions.
fn prefixes() -> RingSize {
    RingSize::new(16).unwrap()
}

/// How many rows each of 16 prefixes has. Row i of prefix p has the term i and the key `p`, so that rows of all
/// prefixes alternate.
type Counts = [u8];

fn row(prefix: u16, at: u8) -> Row {
    Row { term: Bytes::from(vec![at]), key: Bytes::from(format!("{prefix:02}")) }
}

fn rows(counts: &Counts, of: &PrefixSet) -> BTreeSet<Row> {
    of.iter().flat_map(|prefix| (0..counts[usize::from(prefix)]).map(move |at| row(prefix, at))).collect()
}

/// What a node of several shards does with a question.
fn read(ask: &RowsAsk, counts: &Counts) -> RowsPage {
    let first = ring::shard_of(ask.prefixes.first().unwrap(), SHARDS);
    let mut shards: BTreeMap<u16, PrefixSet> = BTreeMap::new();
    for prefix in ask.prefixes.iter() {
        shards.entry(ring::shard_of(prefix, SHARDS)).or_default().insert(prefix);
    }
    let own = shards.remove(&first).unwrap();
    let mut all = rows(counts, &own).into_iter().filter(|row| ask.after.as_ref().is_none_or(|it| row > it));
    let rows: RowList = all.by_ref().take(PAGE.min(ask.rows_max as usize)).collect();
    let next = all.next().and(rows.last().map(RowRef::to_row));
    RowsPage { rows, next, others: shards.into_values().collect() }
}

#[derive(Clone, Debug)]
enum Step {
    /// One of the questions under way is answered.
    Answer(usize),
    /// An answer comes again.
    Double(usize),
    /// A question or its answer is lost.
    Lose(usize),
    /// A shard refuses, or says that it cannot.
    Refuse(usize, bool),
    Down(u16),
    Up(u16),
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => any::<usize>().prop_map(Step::Answer),
        2 => any::<usize>().prop_map(Step::Double),
        1 => any::<usize>().prop_map(Step::Lose),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(at, busy)| Step::Refuse(at, busy)),
        1 => (1u16..5).prop_map(Step::Down),
        1 => (1u16..5).prop_map(Step::Up),
        2 => Just(Step::Wait),
    ]
}

fn request(stream: bool, max_results: Option<u32>, continuation: Option<Bytes>) -> IndexRequest {
    let terms = Terms::Range(Bytes::new(), Bytes::from_static(b"\xFF"));
    let bucket = Bucket::untyped(Bytes::from_static(b"b"));
    IndexRequest {
        return_terms: true,
        stream,
        max_results,
        continuation,
        ..IndexRequest::new(bucket, Bytes::from_static(b"f_bin"), terms)
    }
}

struct Bed {
    ring: Ring,
    n_val: u32,
    up: BTreeSet<NodeId>,
    now: Monotonic,
    last: u64,
    asked: Vec<(u64, Source, RowsAsk)>,
    answered: Vec<(u64, RowsPage)>,
    told: Vec<Row>,
    end: Option<Rows>,
}

impl Bed {
    fn new(nodes: u32, n_val: u32) -> Bed {
        let up = (0..5).map(NodeId).filter(|node| u32::from(node.0) < nodes).collect();
        let (asked, answered, told) = (Vec::new(), Vec::new(), Vec::new());
        Bed { ring: ring(nodes), n_val, up, now: Monotonic(0), last: 0, asked, answered, told, end: None }
    }

    fn with_plan<T>(&self, then: impl FnOnce(&Plan<'_>) -> T) -> T {
        let is_up = |node| self.up.contains(&node);
        let (ring, prefixes) = (&self.ring, prefixes());
        let shard_of = &|prefix| ring::shard_of(prefix, SHARDS);
        then(&Plan { ring, n_val: self.n_val, prefixes, here: HERE, shard_of, is_up: &is_up })
    }

    fn start(&self, request: IndexRequest) -> Result<IndexScan, Error> {
        let (query, after, telling) = request.plan()?;
        self.with_plan(|plan| IndexScan::start(query, after, telling, plan))
    }

    fn take(&mut self, answers: Vec<Response>) {
        for answer in answers {
            let Response::Rows(rows) = answer else { panic!("rows") };
            assert!(self.end.is_none(), "nothing comes after the end");
            let told = rows.rows.iter().map(|(term, key)| RowRef { term: term.unwrap(), key }.to_row());
            self.told.extend(told);
            if rows.done {
                self.end = Some(rows);
            }
        }
    }

    fn ask(&mut self, search: &mut IndexScan) {
        let last = &mut self.last;
        let asked = search.ask(self.now, || {
            *last += 1;
            *last
        });
        for (_, source, ask) in &asked {
            let is_primary = |node| {
                ask.prefixes.iter().all(|prefix| {
                    let partition = Partition(u32::from(prefix) / 2);
                    self.ring.preflist(partition, self.n_val as usize).any(|entry| entry.node == node)
                })
            };
            match source {
                Source::Here(shard) => {
                    assert!(is_primary(HERE));
                    assert!(ask.prefixes.iter().all(|it| ring::shard_of(it, SHARDS) == *shard));
                }
                Source::Node(node) => assert!(is_primary(*node) && self.up.contains(node)),
            }
        }
        self.asked.extend(asked);
    }

    fn pick(&mut self, at: usize) -> Option<(u64, Source, RowsAsk)> {
        let len = self.asked.len();
        (len > 0).then(|| self.asked.swap_remove(at % len))
    }

    /// One step; an error ends the query.
    fn step(&mut self, search: &mut IndexScan, step: Step, counts: &Counts) -> Result<(), Error> {
        match step {
            Step::Answer(at) => {
                let Some((name, _, ask)) = self.pick(at) else { return Ok(()) };
                let page = read(&ask, counts);
                self.answered.push((name, page.clone()));
                let answers = self.with_plan(|plan| search.on_page(name, Ok(page), plan))?;
                self.take(answers);
            }
            Step::Double(at) if !self.answered.is_empty() => {
                let (name, page) = self.answered[at % self.answered.len()].clone();
                let answers = self.with_plan(|plan| search.on_page(name, Ok(page), plan))?;
                assert!(answers.is_empty(), "a page counts once");
            }
            Step::Lose(at) => {
                // This node loses nothing of its own.
                if !self.asked.is_empty() && matches!(self.asked[at % self.asked.len()].1, Source::Node(_)) {
                    self.pick(at);
                }
            }
            Step::Refuse(at, busy) => {
                let Some((name, ..)) = self.pick(at) else { return Ok(()) };
                let error = if busy { Error::Overload } else { Error::Damaged("page".into()) };
                let answers = self.with_plan(|plan| search.on_page(name, Err(error), plan))?;
                self.take(answers);
            }
            Step::Down(node) => {
                let node = NodeId(node);
                self.up.remove(&node);
                self.asked.retain(|(_, source, _)| *source != Source::Node(node));
                self.with_plan(|plan| search.on_down(node, plan))?;
            }
            Step::Up(node) if self.ring.owning().contains(NodeId(node)) => {
                self.up.insert(NodeId(node));
            }
            Step::Wait | Step::Up(_) => {
                self.now = self.now + Duration::from_millis(1700);
                self.with_plan(|plan| search.tick(self.now, plan))?;
            }
            Step::Double(_) => {}
        }
        self.ask(search);
        Ok(())
    }

    /// Runs a query; after the script everything goes well, and it comes to an end.
    fn run(&mut self, request: IndexRequest, script: &[Step], counts: &Counts) -> Result<Rows, Error> {
        (self.told, self.end) = (Vec::new(), None);
        (self.asked, self.answered) = (Vec::new(), Vec::new());
        let mut search = self.start(request)?;
        self.ask(&mut search);
        let well = (0..2000).map(|at| if at % 3 == 2 { Step::Wait } else { Step::Answer(at) });
        for step in script.iter().cloned().chain(well) {
            if let Some(end) = self.end.take() {
                return Ok(end);
            }
            self.step(&mut search, step, counts)?;
        }
        panic!("it comes to an end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_query_is_whole_or_fails(
        nodes in 1u32..6,
        n_val in 1u32..4,
        stream in any::<bool>(),
        counts in prop::collection::vec(0u8..12, 16),
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let mut bed = Bed::new(nodes, n_val);
        let all: Vec<Row> = rows(&counts, &(0..16).collect()).into_iter().collect();
        if let Ok(end) = bed.run(request(stream, None, None), &steps, &counts) {
            prop_assert_eq!(&bed.told, &all);
            prop_assert!(end.continuation.is_none() && (!stream || end.rows.is_empty()));
        } else {
            prop_assert!(all.starts_with(&bed.told));
        }
    }

    #[test]
    fn page_by_page_it_is_the_same(
        nodes in 1u32..6,
        n_val in 1u32..4,
        stream in any::<bool>(),
        max_results in 1u32..30,
        counts in prop::collection::vec(0u8..8, 16),
        steps in prop::collection::vec(step(), 0..30),
    ) {
        let mut bed = Bed::new(nodes, n_val);
        let all: Vec<Row> = rows(&counts, &(0..16).collect()).into_iter().collect();
        let mut told = Vec::new();
        let mut place = None;
        loop {
            let Ok(end) = bed.run(request(stream, Some(max_results), place), &steps, &counts) else {
                prop_assert!(all.starts_with(&told));
                return Ok(());
            };
            let size = bed.told.len();
            prop_assert!(size <= max_results as usize);
            prop_assert_eq!(end.continuation.is_some(), size == max_results as usize, "exactly as many came");
            told.append(&mut bed.told);
            place = end.continuation;
            if place.is_none() {
                break;
            }
        }
        prop_assert_eq!(told, all);
    }
}

fn plan_of(request: IndexRequest) -> Result<(Query, Option<Row>, Telling), String> {
    request.plan().map_err(|error| error.to_string())
}

fn of_field(field: &'static str, terms: Terms) -> IndexRequest {
    IndexRequest::new(Bucket::untyped(Bytes::from_static(b"b")), Bytes::from_static(field.as_bytes()), terms)
}

#[test]
fn what_is_wrong_is_told_in_riaks_words() {
    let exact = |term: &'static str| Terms::Exact(Bytes::from_static(term.as_bytes()));
    let text = |request| plan_of(request).unwrap_err();
    assert_eq!(text(of_field("f", exact("v"))), r#"Invalid query: {unknown_field_type,<<"f">>}"#);
    assert_eq!(
        text(of_field("n_int", exact("abc"))),
        r#"Invalid query: {field_parsing_failed,{<<"n_int">>,<<"abc">>}}"#
    );
    let regex = |field, pattern: &'static str| {
        let term_regex = Some(Bytes::from_static(pattern.as_bytes()));
        IndexRequest { term_regex, ..of_field(field, exact("1")) }
    };
    assert_eq!(text(regex("n_int", "1")), "Can not use term regular expression in integer query");
    assert!(text(regex("f_bin", "(")).starts_with(r#"Invalid term regular expression <<"(">> : "#));
    assert!(
        text(IndexRequest { max_results: Some(0), ..of_field("f_bin", exact("v")) }).contains("max_results")
    );
    let place = Some(Bytes::from_static(b"nonsense"));
    assert_eq!(
        text(IndexRequest { continuation: place, ..of_field("f_bin", exact("v")) }),
        "Invalid continuation"
    );
}

#[test]
fn a_place_is_of_its_query() {
    let counts = [4; 16];
    let mut bed = Bed::new(1, 1);
    let end = bed.run(request(false, Some(5), None), &[], &counts).unwrap();
    let other =
        IndexRequest { continuation: end.continuation, ..of_field("g_bin", Terms::Exact(Bytes::new())) };
    assert_eq!(plan_of(other).unwrap_err(), "Invalid continuation: it is of another query");
}

#[test]
fn keys_are_ordered_by_name_where_they_are_paged() {
    let order = |request| match plan_of(request).unwrap().0.span {
        Span::Keys { order, last, .. } => (order, last.is_some()),
        Span::Terms { .. } => panic!("it is about keys"),
    };
    let all = || of_field("$bucket", Terms::Exact(Bytes::from_static(b"_")));
    let some = || of_field("$key", Terms::Range(Bytes::from_static(b"a"), Bytes::from_static(b"b")));
    assert_eq!(order(all()), (KeyOrder::Place, false));
    assert_eq!(order(some()), (KeyOrder::Place, true));
    assert_eq!(order(IndexRequest { sort: true, ..some() }).0, KeyOrder::Name);
    assert_eq!(order(IndexRequest { max_results: Some(1), ..all() }).0, KeyOrder::Name);
}

#[test]
fn a_page_that_makes_no_sense_is_not_believed() {
    let counts = [4; 16];
    let bad: [&dyn Fn(&RowsAsk) -> RowsPage; 5] = [
        &|_| RowsPage { rows: [row(1, 2), row(1, 1)].into_iter().collect(), ..RowsPage::default() },
        &|_| RowsPage { rows: [row(1, 2)].into_iter().collect(), next: Some(row(1, 1)), others: Vec::new() },
        &|_| RowsPage { others: vec![[99].into_iter().collect()], ..RowsPage::default() },
        &|ask| RowsPage { others: vec![ask.prefixes.clone()], ..RowsPage::default() },
        &|ask| {
            let half: PrefixSet = ask.prefixes.iter().take(1).collect();
            RowsPage { others: vec![half.clone(), half], ..RowsPage::default() }
        },
    ];
    for page in bad {
        let mut bed = Bed::new(5, 3);
        let mut search = bed.start(request(false, None, None)).unwrap();
        bed.ask(&mut search);
        let at = bed.asked.iter().position(|(_, source, _)| matches!(source, Source::Node(_))).unwrap();
        let (name, node, ask) = bed.asked.swap_remove(at);
        let answers = bed.with_plan(|plan| search.on_page(name, Ok(page(&ask)), plan)).unwrap();
        assert!(answers.is_empty());
        bed.ask(&mut search);
        assert!(bed.asked.iter().all(|(_, source, _)| *source != node), "others are asked in its place");
        for _ in 0..500 {
            bed.step(&mut search, Step::Answer(0), &counts).unwrap();
        }
        assert_eq!(bed.told.len(), 64);
    }
}

#[test]
fn an_answer_in_one_piece_has_a_bound() {
    let mut bed = Bed::new(1, 1);
    let long = |at: u8| Row { term: Bytes::from(vec![at; 1]), key: Bytes::from(vec![b'k'; 9 << 20]) };
    let mut search = bed.start(request(false, None, None)).unwrap();
    bed.ask(&mut search);
    let mut result = Ok(Vec::new());
    for at in 0..20u8 {
        while let Some((name, ..)) = bed.pick(0) {
            let page =
                RowsPage { rows: [long(at)].into_iter().collect(), next: Some(long(at)), others: Vec::new() };
            result = bed.with_plan(|plan| search.on_page(name, Ok(page), plan));
            if result.is_err() {
                assert!(matches!(result, Err(Error::AnswerTooLong { .. })));
                return;
            }
        }
        bed.ask(&mut search);
    }
    panic!("it holds everything: {result:?}");
}

/// Whether the pages of a query over several nodes, put together, are what there is.
#[cfg(feature = "planted")]
fn is_whole(max_results: Option<u32>) -> bool {
    let counts = [7; 16];
    let mut bed = Bed::new(5, 3);
    let all: Vec<Row> = rows(&counts, &(0..16).collect()).into_iter().collect();
    let (mut told, mut place) = (Vec::new(), None);
    for _ in 0..2 * all.len() {
        let end = bed.run(request(true, max_results, place), &[], &counts).unwrap();
        told.append(&mut bed.told);
        place = end.continuation;
        if place.is_none() {
            break;
        }
    }
    told == all
}

/// `cargo test -p kv --features planted --test it planted`
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_caught() {
    use base::planted::{Planted, plant};
    for bug in [Planted::RowsToldTwice, Planted::RowsSkippedAtAPage] {
        assert!(is_whole(None) && is_whole(Some(5)));
        plant(Some(bug));
        assert!(!is_whole(None) && !is_whole(Some(5)), "{bug:?}");
        plant(None);
    }
}
