//! Exchanges between two nodes that are a map each.

use super::*;
use crate::aae::{BITS_MAX, BITS_MIN, leaf};
use base::Rng;
use base::rng::SplitMix64;

const TREE: TreeId = TreeId { first: 0, n_val: 3, day: 0 };

/// A node: its heads by key, and its tree.
#[derive(Clone)]
struct Node {
    heads: BTreeMap<Bytes, (u32, u32)>,
    tree: Tree,
}

impl Node {
    fn new(bits: u32) -> Node {
        Node { heads: BTreeMap::new(), tree: Tree::new(bits) }
    }

    fn put(&mut self, key: u64, head: &[u8]) {
        let place = SplitMix64::new(key).next_u64() as u32;
        let name = Bytes::from(key.to_be_bytes().to_vec());
        let hash = leaf(place, head);
        let old = self.heads.insert(name, (place, hash));
        self.tree.change(place, old.map(|(_, hash)| hash), Some(hash));
    }

    fn differ(&self, by: Grouping, groups: &[(u32, u32)]) -> Vec<u32> {
        let by = Grouping { bits: by.bits.min(self.tree.bits()), ..by };
        let hash = |at: u32| self.tree.group_by(by, at);
        groups.iter().filter(|(at, theirs)| hash(*at) != *theirs).map(|(at, _)| *at).collect()
    }

    fn keys(&self, range: &Range, most: usize) -> KeyPage {
        let is_in = |place: u32| range.segments.contains(&(place >> (32 - range.bits)));
        let from = range.from.clone().unwrap_or_default();
        let mut found = self.heads.range(from..).filter(|(_, (place, _))| is_in(*place));
        let keys = found.by_ref().take(most).map(|(key, (_, hash))| (key.clone(), *hash)).collect();
        KeyPage { keys, next: found.next().map(|(key, _)| key.clone()) }
    }
}

/// Has `one` compare itself with `other`, which has no more than so many keys on a page; the keys that it is to repair,
/// and its end.
fn exchange(one: &Node, other: &Node, most: usize) -> (Vec<u64>, Outcome) {
    let mut exchange = Exchange::new(TREE);
    let mut repaired = Vec::new();
    let mut input = Input::Start;
    for _ in 0..10_000 {
        input = match exchange.step(input, &one.tree) {
            Output::Ask(TreeAsk::Groups { by, groups, .. }) => {
                assert!(groups.len() <= BRANCHES_MAX << BRANCH_BITS);
                Input::Groups { bits: other.tree.bits(), differ: other.differ(by, &groups) }
            }
            Output::Pause => Input::Resumed,
            Output::Keys(range) => {
                assert!(range.segments.len() <= SEGMENTS_MAX);
                assert_eq!(exchange.step(Input::Ours(one.keys(&range, KEYS_MAX)), &one.tree), Output::Wait);
                Input::Theirs(other.keys(&range, most))
            }
            Output::Repair(keys) => {
                let number = |key: &Bytes| u64::from_be_bytes(key[..].try_into().unwrap());
                repaired.extend(keys.iter().map(number));
                Input::Repaired
            }
            Output::Over(outcome) => return (repaired, outcome),
            output => panic!("{output:?}"),
        };
    }
    panic!("it does not end")
}

fn pair(bits: (u32, u32), keys: u64) -> (Node, Node) {
    let (mut one, mut other) = (Node::new(bits.0), Node::new(bits.1));
    for key in 0..keys {
        one.put(key, b"same");
        other.put(key, b"same");
    }
    (one, other)
}

#[test]
fn equal_nodes_have_nothing_to_repair() {
    for bits in [(BITS_MIN, BITS_MIN), (12, 12), (BITS_MAX, 9), (8, 15)] {
        let (one, other) = pair(bits, 1_000);
        assert_eq!(exchange(&one, &other, KEYS_MAX), (vec![], Outcome::default()), "{bits:?}");
    }
}

#[test]
fn exactly_what_differs_is_found() {
    for bits in [(BITS_MIN, BITS_MIN), (12, 12), (BITS_MAX, 9), (8, 15), (BITS_MAX, BITS_MAX), (BITS_MIN, 16)]
    {
        for most in [1, 7, KEYS_MAX] {
            let (mut one, mut other) = pair(bits, 2_000);
            one.put(17, b"newer");
            other.put(23, b"newer");
            one.put(5_000, b"here");
            other.put(6_000, b"there");
            let (mut found, outcome) = exchange(&one, &other, most);
            found.sort_unstable();
            assert_eq!(found, [17, 23, 5_000, 6_000], "{bits:?}, {most}");
            assert_eq!(outcome.keys, 4);
        }
    }
}

/// All keys that both nodes look at, of 100,000 of which ten differ.
#[test]
fn few_keys_are_looked_at_beside_those_that_differ() {
    let (mut one, other) = pair((14, 14), 100_000);
    (0..10).for_each(|at| one.put(at * 9_973, b"newer"));
    let (mut exchange, mut input, mut looked_at, mut found) = (Exchange::new(TREE), Input::Start, 0, 0);
    loop {
        input = match exchange.step(input, &one.tree) {
            Output::Ask(TreeAsk::Groups { by, groups, .. }) => {
                Input::Groups { bits: 14, differ: other.differ(by, &groups) }
            }
            Output::Pause => Input::Resumed,
            Output::Keys(range) => {
                let ours = one.keys(&range, KEYS_MAX);
                looked_at += ours.keys.len();
                exchange.step(Input::Ours(ours), &one.tree);
                Input::Theirs(other.keys(&range, KEYS_MAX))
            }
            Output::Repair(keys) => {
                found += keys.len();
                Input::Repaired
            }
            Output::Over(_) => break,
            output => panic!("{output:?}"),
        };
    }
    assert_eq!(found, 10);
    assert!(looked_at <= 20, "{looked_at}, of rows with some 70 keys");
}

/// Two keys of one column change by the same, so that it looks as it did: the rows are gone through.
#[test]
fn differences_that_cancel_each_other_in_a_column_are_found() {
    let (mut one, mut other) = (Node::new(10), Node::new(10));
    for (number, place) in [(1_u64, 0x0800_0000_u32), (2, 0x8800_0000), (3, 0x1234_5678)] {
        for (node, hash) in [(&mut one, 5), (&mut other, if number < 3 { 6 } else { 5 })] {
            node.heads.insert(Bytes::from(number.to_be_bytes().to_vec()), (place, hash));
            node.tree.change(place, None, Some(hash));
        }
    }
    assert_eq!(exchange(&one, &other, KEYS_MAX).0, [1, 2]);
}

#[test]
fn a_node_that_has_nothing_gets_all_in_some_exchanges() {
    let (full, _) = pair((13, 13), 3_000);
    let mut empty = Node::new(BITS_MIN);
    let mut rounds = 0;
    while empty.tree.root() != full.tree.root() {
        let (found, outcome) = exchange(&empty, &full, KEYS_MAX);
        assert_eq!(outcome.keys, found.len() as u64);
        found.into_iter().for_each(|key| empty.put(key, b"same"));
        rounds += 1;
        assert!(rounds < 40, "{} keys", empty.heads.len());
    }
    assert_eq!(empty.heads.len(), 3_000);
}

#[test]
fn what_becomes_equal_in_the_pause_is_not_looked_at() {
    let (mut one, mut other) = pair((10, 10), 500);
    one.put(3, b"newer");
    let mut exchange = Exchange::new(TREE);
    let Output::Ask(TreeAsk::Groups { by, groups, .. }) = exchange.step(Input::Start, &one.tree) else {
        panic!()
    };
    let differ = other.differ(by, &groups);
    assert_eq!(differ.len(), 1);
    assert_eq!(exchange.step(Input::Groups { bits: 10, differ }, &one.tree), Output::Pause);
    other.put(3, b"newer");
    let Output::Ask(TreeAsk::Groups { by, groups, .. }) = exchange.step(Input::Resumed, &one.tree) else {
        panic!()
    };
    let differ = other.differ(by, &groups);
    let over = Output::Over(Outcome::default());
    assert_eq!(exchange.step(Input::Groups { bits: 10, differ }, &one.tree), over);
}

#[test]
fn what_nobody_asked_for_is_not_believed() {
    let (mut one, _) = pair((12, 12), 100);
    one.put(1, b"newer");
    let mut exchange = Exchange::new(TREE);
    exchange.step(Input::Start, &one.tree);
    assert_eq!(exchange.step(Input::Theirs(KeyPage::default()), &one.tree), Output::Wait);
    let answer = Input::Groups { bits: 12, differ: vec![u32::MAX, 1 << 10] };
    assert_eq!(exchange.step(answer, &one.tree), Output::Over(Outcome::default()));
    // Pages that come no further.
    let mut exchange = Exchange::new(TREE);
    let range = Range { bits: 7, segments: vec![1], from: Some(Bytes::from_static(b"k")) };
    exchange.phase = Phase::Keys { range, ours: Some(KeyPage::default()), theirs: None };
    let stuck = KeyPage { keys: Vec::new(), next: Some(Bytes::from_static(b"k")) };
    assert_eq!(exchange.step(Input::Theirs(stuck), &one.tree), Output::Over(Outcome::default()));
}
