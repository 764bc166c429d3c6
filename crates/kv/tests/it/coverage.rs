//! Listings over a covering set against a model: nodes that fail, stop and come back, pages that are lost, late and
//! doubled. What ends without an error has every key once.

#![allow(clippy::unwrap_used, reason = "a test")]

use base::Monotonic;
use bytes::Bytes;
use kv::coverage::{Plan, Source};
use kv::{Bucket, Error, KeyScan, Listed, NodeId, Page, PageAsk, Response};
use object::key;
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

/// What a replica does with a question: the keys of prefix p are `p:0`, `p:1` and so on.
fn read(ask: &PageAsk, counts: &[u8]) -> Page {
    let mut rest = ask.partitions.clone();
    let (mut names, mut next) = (Vec::new(), ask.start.clone());
    while let Some(&partition) = rest.first() {
        let start = next.take().map_or(0, |key| key[3]);
        for at in start..counts[usize::from(partition)] {
            if names.len() == PAGE {
                let mut place = key::objects_at(partition).start;
                place.push(at);
                return Page { names, sum: None, rest, next: Some(place.into()) };
            }
            names.push(Bytes::from(format!("{partition}:{at}")));
        }
        rest.remove(0);
        // Other shards' partitions are for another page.
        if names.len() == PAGE {
            break;
        }
    }
    Page { names, sum: None, rest, next: None }
}

#[derive(Clone, Debug)]
enum Step {
    /// One of the questions under way is answered.
    Answer(usize),
    /// An answer comes again.
    Double(usize),
    /// A question or its answer is lost.
    Lose(usize),
    /// A replica refuses, or says that it cannot.
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

struct Bed {
    ring: Ring,
    n_val: u32,
    up: BTreeSet<NodeId>,
    now: Monotonic,
    last: u64,
    asked: Vec<(u64, Source, PageAsk)>,
    answered: Vec<(u64, Page)>,
    told: Vec<Bytes>,
    done: bool,
}

impl Bed {
    fn with_plan<T>(&self, then: impl FnOnce(&Plan<'_>) -> T) -> T {
        let is_up = |node| self.up.contains(&node);
        let (ring, prefixes) = (&self.ring, prefixes());
        let shard_of = &|prefix| ring::shard_of(prefix, SHARDS);
        then(&Plan { ring, n_val: self.n_val, prefixes, here: HERE, shard_of, is_up: &is_up })
    }

    fn take(&mut self, answers: Vec<Response>) {
        for answer in answers {
            let Response::Keys { keys, done } = answer else { panic!("keys") };
            assert!(!self.done, "nothing comes after the end");
            self.told.extend(keys);
            self.done = done;
        }
    }

    fn ask(&mut self, coverage: &mut KeyScan) {
        let last = &mut self.last;
        let asked = coverage.ask(self.now, || {
            *last += 1;
            *last
        });
        for (_, source, ask) in &asked {
            let is_primary = |node| {
                let holds = |prefix: &u16| {
                    let partition = Partition(u32::from(*prefix) / 2);
                    let mut list = self.ring.preflist(partition, self.n_val as usize);
                    list.any(|entry| entry.node == node)
                };
                ask.partitions.iter().all(holds)
            };
            match source {
                Source::Here(shard) => {
                    assert!(is_primary(HERE));
                    assert!(ask.partitions.iter().all(|&it| ring::shard_of(it, SHARDS) == *shard));
                }
                Source::Node(node) => assert!(is_primary(*node) && self.up.contains(node)),
            }
        }
        self.asked.extend(asked);
    }

    /// One step; an error ends the listing.
    fn step(&mut self, coverage: &mut KeyScan, step: Step, counts: &[u8]) -> Result<(), Error> {
        let pick = |bed: &mut Bed, at: usize| {
            let len = bed.asked.len();
            (len > 0).then(|| bed.asked.swap_remove(at % len))
        };
        match step {
            Step::Answer(at) => {
                let Some((name, _, ask)) = pick(self, at) else { return Ok(()) };
                let page = read(&ask, counts);
                self.answered.push((name, page.clone()));
                let answers = self.with_plan(|plan| coverage.on_page(name, Ok(page), plan))?;
                self.take(answers);
            }
            Step::Double(at) if !self.answered.is_empty() => {
                let (name, page) = self.answered[at % self.answered.len()].clone();
                let answers = self.with_plan(|plan| coverage.on_page(name, Ok(page), plan))?;
                assert!(answers.is_empty(), "a page counts once");
            }
            Step::Lose(at) => {
                // This node loses nothing of its own.
                if !self.asked.is_empty() && matches!(self.asked[at % self.asked.len()].1, Source::Node(_)) {
                    pick(self, at);
                }
            }
            Step::Refuse(at, busy) => {
                let Some((name, ..)) = pick(self, at) else { return Ok(()) };
                let error = if busy { Error::Overload } else { Error::Damaged("page".into()) };
                let answers = self.with_plan(|plan| coverage.on_page(name, Err(error), plan))?;
                assert!(answers.is_empty());
            }
            Step::Down(node) => {
                let node = NodeId(node);
                self.up.remove(&node);
                self.asked.retain(|(_, source, _)| *source != Source::Node(node));
                self.with_plan(|plan| coverage.on_down(node, plan))?;
            }
            Step::Up(node) => {
                self.up.insert(NodeId(node));
            }
            Step::Wait => {
                self.now = self.now + Duration::from_millis(700);
                self.with_plan(|plan| coverage.tick(self.now, plan))?;
            }
            Step::Double(_) => {}
        }
        self.ask(coverage);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_listing_is_whole_or_fails(
        nodes in 1u32..6,
        n_val in 1u32..4,
        counts in prop::collection::vec(0u8..12, 16),
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let ring = ring(nodes);
        let up = (0..5).map(NodeId).filter(|node| u32::from(node.0) < nodes).collect();
        let mut bed = Bed {
            ring, n_val, up, now: Monotonic(0), last: 0, asked: Vec::new(), answered: Vec::new(),
            told: Vec::new(), done: false,
        };
        let listed = Listed::Keys(Bucket::untyped(Bytes::from_static(b"b")));
        let mut coverage = bed.with_plan(|plan| KeyScan::start(listed, true, plan)).unwrap();
        bed.ask(&mut coverage);
        // After the script everything goes well, and the listing comes to an end.
        let script = steps.into_iter().chain((0..400).map(|at| if at % 3 == 2 { Step::Wait } else { Step::Answer(at) }));
        let mut failed = false;
        for step in script {
            if bed.done || failed {
                break;
            }
            let step = match step {
                Step::Up(node) if u32::from(node) >= nodes => Step::Wait,
                step => step,
            };
            failed = bed.step(&mut coverage, step, &counts).is_err();
        }
        let mut counted: BTreeMap<&[u8], u32> = BTreeMap::new();
        bed.told.iter().for_each(|name| *counted.entry(name).or_default() += 1);
        prop_assert!(counted.values().all(|&count| count == 1), "each name once");
        prop_assert!(bed.done || failed, "it comes to an end");
        if bed.done {
            let all: usize = counts.iter().map(|&count| usize::from(count)).sum();
            prop_assert_eq!(counted.len(), all, "nothing is missing");
        }
    }
}

#[test]
fn this_node_goes_first_and_few_others_are_asked() {
    let is_up = |_| true;
    let sources = |nodes: u32, n_val: u32| {
        let ring = ring(nodes);
        let prefixes = prefixes();
        let plan = Plan { ring: &ring, n_val, prefixes, here: HERE, shard_of: &|_| 0, is_up: &is_up };
        let parts = plan.cover(0..16, &BTreeSet::new()).unwrap();
        assert_eq!(parts.iter().map(|(_, partitions)| partitions.len()).sum::<usize>(), 16);
        parts.into_iter().map(|(source, _)| source).collect::<Vec<_>>()
    };
    assert_eq!(sources(3, 3), [Source::Here(0)], "nobody else need be asked");
    assert_eq!(sources(5, 3).len(), 2);
    assert_eq!(sources(5, 1).len(), 5);
}

#[test]
fn an_answer_that_makes_no_sense_is_not_believed() {
    let ring = ring(5);
    let prefixes = prefixes();
    let plan = Plan { ring: &ring, n_val: 3, prefixes, here: HERE, shard_of: &|_| 0, is_up: &|_| true };
    let listed = || Listed::Buckets(Bytes::from_static(b"default"));
    let foreign = Page { rest: vec![99], ..Page::default() };
    let twice = |ask: &PageAsk| Page { rest: vec![ask.partitions[0]; 2], ..Page::default() };
    let again = |ask: &PageAsk| Page { rest: ask.partitions.clone(), ..Page::default() };
    let pages: [&dyn Fn(&PageAsk) -> Page; 3] = [&|_| foreign.clone(), &twice, &again];
    for page in pages {
        let mut coverage = KeyScan::start(listed(), false, &plan).unwrap();
        let mut last = 0;
        let asked = coverage.ask(Monotonic(0), || {
            last += 1;
            last
        });
        let (name, source, ask) =
            asked.into_iter().find(|(_, source, _)| matches!(source, Source::Node(_))).unwrap();
        assert_eq!(coverage.on_page(name, Ok(page(&ask)), &plan), Ok(Vec::new()));
        let again = coverage.ask(Monotonic(0), || 100);
        assert!(!again.is_empty() && again.iter().all(|(_, other, _)| *other != source), "others are asked");
    }
}
