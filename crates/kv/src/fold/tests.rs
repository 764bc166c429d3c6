#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;
use object::{Actor, Dot, Metadata, Policy, Put, key};
use proptest::prelude::*;
use std::sync::Arc;

fn fold(finds: Finds) -> Fold {
    let scope = match finds {
        Finds::Root | Finds::Branches(_) | Finds::Buckets => Scope::NVal(3),
        _ => Scope::Bucket(bucket()),
    };
    Fold::new(scope, finds)
}

fn bucket() -> Bucket {
    Bucket::untyped(Bytes::from_static(b"b"))
}

/// A key at a prefix, which depends on the ring.
fn ledger_key(prefix: u16, name: &str) -> Vec<u8> {
    let mut key = Vec::new();
    key::encode_object_key(prefix, b"default", b"b", name.as_bytes(), &mut key);
    key
}

/// The head of an object that was written so often, the last time at a second, with so many bytes; a tombstone if with
/// none.
fn head(writes: u64, second: u64, len: usize) -> Vec<u8> {
    let metadata = Metadata { last_modified: second * 1_000_000, deleted: len == 0, ..Metadata::default() };
    let seen = (1..writes).map(|counter| Dot::new(Actor(7), counter)).collect();
    let put = Put { context: Some(seen), metadata, value: vec![0; len].into() };
    let object = object::update(None, put, Dot::new(Actor(7), writes), Policy::AllowMult).unwrap();
    let mut head = Vec::new();
    object.head().encode(&mut head);
    head
}

/// The head of an object with so many siblings.
fn siblings(count: u64) -> Vec<u8> {
    let mut object = None;
    for at in 1..=count {
        let put = Put { context: None, metadata: Metadata::default(), value: Bytes::from_static(b"v") };
        object = Some(object::update(object, put, Dot::new(Actor(at), 1), Policy::AllowMult).unwrap());
    }
    let mut head = Vec::new();
    object.unwrap().head().encode(&mut head);
    head
}

/// What these heads come to.
fn of(fold: &Fold, heads: &[(Vec<u8>, Vec<u8>)]) -> Folded {
    let mut adding = Adding::new(Arc::new(fold.clone()), false);
    // In pages of two.
    for page in heads.chunks(2) {
        let mut taker = FoldCollector::new(fold.clone(), 0);
        for (key, head) in page {
            taker.take(key, head).unwrap();
        }
        let sum = taker.end();
        assert!(sum.is_of(fold), "{sum:?}");
        assert_eq!(adding.add(sum), Ok(None));
    }
    adding.end()
}

fn some() -> Vec<(Vec<u8>, Vec<u8>)> {
    let keys = ["k1", "k2", "k3", "k4", "k5"].map(|name| ledger_key(0, name));
    let heads = [head(1, 10, 5), head(2, 20, 500), siblings(2), head(3, 30, 0), head(1, 40, 50)];
    keys.into_iter().zip(heads).collect()
}

#[test]
fn trees_do_not_depend_on_the_ring() {
    let at = |prefix: u16| -> Vec<_> {
        (0..50).map(|number| (ledger_key(prefix, &format!("k{number}")), head(number + 1, 1, 1))).collect()
    };
    for finds in [Finds::Root, Finds::Tree { size: TreeSize::Small, seed: None }] {
        let fold = fold(finds);
        assert_eq!(of(&fold, &at(3)), of(&fold, &at(60_000)));
    }
    let (ours, mut theirs) = (at(0), at(9));
    theirs[7].1 = head(9, 1, 1);
    let root = |heads: &[_]| of(&fold(Finds::Root), heads).tree;
    let branch = place(&ours[7].0) >> 20;
    let (one, other) = (root(&ours), root(&theirs));
    let differ: Vec<u32> =
        (0..TreeSize::Large.branches()).filter(|&at| one.get(at) != other.get(at)).collect();
    assert_eq!(differ, [branch]);

    let tree = |heads: &[_]| of(&fold(Finds::Branches(vec![branch])), heads).tree.of(branch);
    let (one, other) = (tree(&ours), tree(&theirs));
    let differ: Vec<usize> = (0..BRANCH).filter(|&at| one[at] != other[at]).collect();
    let [segment] = differ[..] else { panic!("{differ:?}") };
    let numbers = vec![branch * 256 + u32::try_from(segment).unwrap()];
    let segments = Some(Segments { size: TreeSize::Large, numbers });
    let clocks = Fold { segments, ..Fold::new(Scope::NVal(3), Finds::Clocks) };
    let Sum::Clocks(found) = of(&clocks, &ours).sum else { panic!("clocks") };
    assert!(found.iter().any(|found| found.key == "k7"), "{found:?}");
}

#[test]
fn the_hashes_are_these() {
    // Other clusters, and other programs, compute the same.
    let (key, clock) = (ledger_key(7, "key"), Bytes::from_static(b"clock"));
    assert_eq!(place(&key), PLACE);
    assert_eq!(
        [leaf(PLACE, &clock, None), leaf(PLACE, &clock, Some(0)), leaf(PLACE, &clock, Some(1))],
        LEAVES
    );
}

const PLACE: u32 = 2_367_738_394;
const LEAVES: [u32; 3] = [2_601_250_162, 912_809_868, 1_925_187_528];

#[test]
fn a_branch_is_the_xor_of_its_segments() {
    let heads: Vec<_> =
        (0..300u64).map(|number| (ledger_key(0, &format!("k{number}")), head(number + 1, 1, 1))).collect();
    let tree = of(&fold(Finds::Tree { size: TreeSize::Large, seed: None }), &heads).tree;
    let root = of(&fold(Finds::Root), &heads).tree;
    for branch in 0..TreeSize::Large.branches() {
        assert_eq!(tree.of(branch).iter().fold(0, |all, one| all ^ one), root.get(branch));
    }
    let other = of(&fold(Finds::Tree { size: TreeSize::Large, seed: Some(0) }), &heads).tree;
    assert_ne!(tree, other);
}

#[test]
fn what_is_found_of_a_bucket() {
    let keys = |finds, heads: &[_]| match of(&fold(finds), heads).sum {
        Sum::Keys(keys) => keys,
        Sum::Clocks(clocks) => clocks.into_iter().map(|clock| (clock.key, 0)).collect(),
        other => panic!("{other:?}"),
    };
    let name = |name: &'static str| Bytes::from(name);
    let len = |at: usize| some()[at].1.len() as u64;
    assert_eq!(keys(Finds::Siblings(1), &some()), [(name("k3"), 2)]);
    assert_eq!(keys(Finds::Sizes(100), &some()), [(name("k2"), 500 + len(1))]);
    assert_eq!(keys(Finds::Tombs, &some()), [(name("k4"), 0)]);
    assert_eq!((keys(Finds::Clocks, &some()).len(), keys(Finds::Objects, &some()).len()), (5, 4));
    let count = |purge| of(&fold(Finds::Count(purge)), &some()).sum;
    assert_eq!((count(Purge::Reap), count(Purge::Erase)), (Sum::Count(1), Sum::Count(4)));
    let Sum::Stats(stats) = of(&fold(Finds::Stats), &some()).sum else { panic!("stats") };
    assert_eq!((stats.count, stats.siblings), (4, [(1, 3), (2, 1)].into()));
    assert_eq!(stats.bytes, 5 + 500 + 2 + 50 + len(0) + len(1) + len(2) + len(4));
    assert_eq!(stats.sizes, [(2, 3), (3, 1)].into());
    let buckets = of(&fold(Finds::Buckets), &some()).sum;
    assert_eq!(buckets, Sum::Buckets([bucket()].into()));
}

#[test]
fn a_time_leaves_out_what_was_modified_otherwise() {
    let within = |from, to| {
        let modified = Some(Modified { from, to });
        let Sum::Clocks(found) = of(&Fold { modified, ..fold(Finds::Clocks) }, &some()).sum else {
            panic!("clocks")
        };
        found.into_iter().map(|found| found.key).collect::<Vec<_>>()
    };
    assert_eq!(within(20, 30), ["k2", "k4"]);
    assert_eq!(within(31, 39), Vec::<Bytes>::new());
}

#[test]
fn an_answer_is_bounded() {
    let mut adding = Adding::new(Arc::new(fold(Finds::Clocks)), false);
    let clock = KeyClock { bucket: bucket(), key: vec![0; 60_000].into(), clock: Bytes::new() };
    let ended = (0..1_000).find_map(|_| adding.add(Sum::Clocks(vec![clock.clone()])).err());
    assert_eq!(ended, Some(Error::AnswerTooLong { limit: ANSWER_BYTES_MAX }));
}

#[test]
fn a_stream_tells_each_page() {
    let mut adding = Adding::new(Arc::new(fold(Finds::Count(Purge::Reap))), true);
    for page in [3, 4] {
        let told = adding.add(Sum::Count(page)).unwrap().unwrap();
        assert_eq!((told.sum, told.done), (Sum::Count(page), false));
    }
    let end = adding.end();
    assert_eq!((end.sum, end.done), (Sum::Count(0), true));
}

#[test]
fn a_page_ends_when_it_tells_of_enough() {
    let mut taker = FoldCollector::new(fold(Finds::Clocks), 0);
    let (key, head) = (ledger_key(0, "k"), head(1, 1, 1));
    let taken = (1..=PAGE_ITEMS_MAX).find(|_| taker.take(&key, &head).unwrap() == Taken::Full).unwrap();
    assert!(taken > 1_000, "{taken}");
}

#[test]
fn what_cannot_be_is_refused() {
    let of = |scope, finds| Fold::new(scope, finds);
    let span = |first: &'static str, last: &'static str| KeySpan { first: first.into(), last: last.into() };
    for bad in [
        of(Scope::NVal(0), Finds::Root),
        of(Scope::NVal(3), Finds::Stats),
        of(Scope::Bucket(bucket()), Finds::Buckets),
        of(Scope::NVal(3), Finds::Branches(vec![0; SEGMENTS_MAX + 1])),
        Fold { keys: Some(span("b", "a")), ..fold(Finds::Stats) },
        Fold { keys: Some(span("a", "b")), ..fold(Finds::Root) },
        Fold { modified: Some(Modified { from: 2, to: 1 }), ..fold(Finds::Stats) },
    ] {
        assert!(matches!(bad.check(), Err(Error::BadQuery(_))), "{bad:?}");
    }
    assert_eq!(Fold { keys: Some(span("a", "a")), ..fold(Finds::Stats) }.check(), Ok(()));
    let root = fold(Finds::Root);
    assert!(Sum::Hashes(vec![(4_095, 1)]).is_of(&root) && !Sum::Hashes(vec![(4_096, 1)]).is_of(&root));
    assert!(!Sum::Count(1).is_of(&root));
    assert!(FoldCollector::new(root, 0).take(&ledger_key(0, "k"), b"no head").is_err());
}

proptest! {
    /// However keys are put on pages, and pages are ordered, the sum is the same.
    #[test]
    fn sums_can_be_added_in_any_order(order in Just((0..5).collect::<Vec<usize>>()).prop_shuffle(), seed in any::<Option<u32>>()) {
        let all = some();
        let shuffled: Vec<_> = order.iter().map(|&at| all[at].clone()).collect();
        for finds in [Finds::Root, Finds::Tree { size: TreeSize::XxSmall, seed }, Finds::Clocks, Finds::Stats] {
            prop_assert_eq!(of(&fold(finds.clone()), &all), of(&fold(finds), &shuffled));
        }
    }
}
