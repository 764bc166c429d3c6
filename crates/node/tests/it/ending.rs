//! Objects that end: found by all nodes until then, on no path after it, with no message and no tombstone for it.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::cluster::*;
use base::Clock;
use bytes::Bytes;
use engine::fold::JournalCheck;
use kv::fold::{Finds, Fold, FoldRequest, Scope, Stats, Sum};
use kv::index::Terms;
use kv::{IndexRequest, ListBucketsRequest, ListKeysRequest, Prop, PutRequest, Request, Response};
use object::{IndexEntry, Metadata};
use std::sync::atomic::Ordering;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

/// Three nodes that compare what they hold every second; what is written to the bucket ends after this time.
fn ending(data: &tempfile::TempDir, ttl: Duration) -> Cluster {
    let mut cluster = comparing(data);
    let ttl = u32::try_from(ttl.as_secs()).unwrap();
    cluster.ask(0, Request::SetProps(bucket(), vec![Prop::Ttl(ttl)])).unwrap();
    cluster.pass(Duration::from_secs(5));
    cluster
}

/// Lets time pass at once, of which nothing is noticed but that it is later.
fn leap(cluster: &mut Cluster, time: Duration) {
    cluster.clock.0.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
    cluster.pass(Duration::from_secs(5));
}

fn names_of(cluster: &mut Cluster, node: usize, request: Request) -> Vec<Bytes> {
    let id = cluster.begin(node, request);
    let last = cluster.answers.remove(&id).unwrap().unwrap();
    let pieces = cluster.pieces.remove(&id).unwrap_or_default().into_iter().chain([last]);
    pieces
        .flat_map(|piece| match piece {
            Response::Keys { keys: names, .. } | Response::Buckets { names, .. } => names,
            Response::Rows(rows) => rows.rows.iter().map(|(_, key)| Bytes::copy_from_slice(key)).collect(),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn sum_of(cluster: &mut Cluster, node: usize, finds: Finds) -> Sum {
    let fold = Fold::new(Scope::Bucket(bucket()), finds);
    let request = Request::Fold(Box::new(FoldRequest { fold, timeout: Some(30_000), stream: false }));
    match cluster.ask(node, request).unwrap() {
        Response::Folded(folded) => folded.sum,
        other => panic!("{other:?}"),
    }
}

/// How many keys each way of looking for them finds.
fn found(cluster: &mut Cluster, node: usize, keys: usize) -> [usize; 7] {
    let read = (0..keys).filter(|key| !cluster.values(node, &format!("k{key}")).is_empty()).count();
    let list = Request::ListKeys(ListKeysRequest { bucket: bucket(), timeout: Some(30_000) });
    let bucket_type = Bytes::from_static(b"default");
    let buckets = Request::ListBuckets(ListBucketsRequest { bucket_type, stream: false, timeout: None });
    let (listed, buckets) = (names_of(cluster, node, list).len(), names_of(cluster, node, buckets).len());
    let index = |field: &'static str, term: &'static str| {
        let terms = Terms::Exact(Bytes::from_static(term.as_bytes()));
        Request::Index(Box::new(IndexRequest::new(bucket(), Bytes::from_static(field.as_bytes()), terms)))
    };
    let by_term = names_of(cluster, node, index("n_int", "7")).len();
    let in_bucket = names_of(cluster, node, index("$bucket", "_")).len();
    let Sum::Stats(Stats { count, .. }) = sum_of(cluster, node, Finds::Stats) else { panic!() };
    let Sum::Clocks(tombs) = sum_of(cluster, node, Finds::Tombs) else { panic!() };
    let count = usize::try_from(count).unwrap();
    [read, listed, buckets, by_term, in_bucket, count, tombs.len()]
}

fn put_some(cluster: &mut Cluster, keys: usize) {
    for key in 0..keys {
        let indexes = vec![IndexEntry { field: Bytes::from("n_int"), value: Bytes::from("7") }];
        let metadata = Metadata { indexes, ..Metadata::default() };
        let key_name = Bytes::from(format!("k{key}"));
        let put = PutRequest::new(bucket(), Some(key_name), metadata, Bytes::from_static(b"v"));
        cluster.ask(key % 3, Request::put(put)).unwrap();
    }
}

#[test]
fn what_has_ended_is_found_on_no_path() {
    let data = folder();
    let mut cluster = ending(&data, Duration::from_secs(120));
    put_some(&mut cluster, 30);
    let since = cluster.clock.wall().millis();
    cluster.pass(Duration::from_secs(100));
    for node in 0..3 {
        assert_eq!(found(&mut cluster, node, 30), [30, 30, 1, 30, 30, 30, 0]);
    }
    let left = since + 121_000 - cluster.clock.wall().millis();
    cluster.pass(Duration::from_millis(left));
    for node in 0..3 {
        assert_eq!(found(&mut cluster, node, 30), [0; 7]);
        assert_eq!(cluster.has(node, "k1"), [""; 0]);
    }
    assert_eq!(sum(&cluster, |it| it.exchanges + it.repairs + it.hints + it.deletes + it.trees_wrong), 0);
    // It can be written again.
    cluster.put(0, "k1", "again").unwrap();
    assert_eq!(cluster.values(2, "k1"), ["again"]);
}

/// Each replica would give it another end, were it not part of the version.
#[test]
fn a_replica_that_hears_of_it_late_has_the_same_end() {
    let data = folder();
    let mut cluster = ending(&data, Duration::from_secs(200));
    cluster.kill(2);
    cluster.pass(Duration::from_secs(5));
    cluster.put(0, "k", "v").unwrap();
    let written = cluster.clock.wall().millis();
    cluster.pass(Duration::from_secs(100));
    cluster.start(2);
    cluster.pass(Duration::from_secs(20));
    assert_eq!(cluster.has(2, "k"), ["v"]);
    let left = written + 199_000 - cluster.clock.wall().millis();
    cluster.pass(Duration::from_millis(left - 1000));
    for node in 0..3 {
        assert_eq!(cluster.has(node, "k"), ["v"], "{node}");
    }
    cluster.pass(Duration::from_secs(2));
    for node in 0..3 {
        assert_eq!(cluster.has(node, "k"), [""; 0], "{node}");
    }
}

/// What ends is compared before its day, and not on it, when some nodes may have let go of it; then the trees go.
#[test]
fn trees_of_what_ends_are_compared_and_go() {
    let data = folder();
    let mut cluster = ending(&data, 3 * DAY);
    cluster.put(0, "k", "v").unwrap();
    for key in 0..20 {
        plant(&mut cluster, key % 3, &format!("planted{key}"));
    }
    cluster.pass(Duration::from_secs(60));
    for key in 0..20 {
        for node in 0..3 {
            assert_eq!(cluster.has(node, &format!("planted{key}")), ["v"], "{key} on {node}");
        }
    }
    let found = sum(&cluster, |it| it.exchange_keys);
    assert!((20..=40).contains(&found), "{found}");
    let keys =
        |cluster: &Cluster| cluster.nodes.iter().flatten().map(|it| it.stats().tree_keys).collect::<Vec<_>>();
    assert_eq!(keys(&cluster), [21; 3]);
    // Overwritten with what ends later, and with what does not.
    leap(&mut cluster, DAY);
    cluster.put(1, "k", "w").unwrap();
    cluster.ask(0, Request::SetProps(bucket(), vec![Prop::Ttl(0)])).unwrap();
    cluster.pass(Duration::from_secs(1));
    cluster.put(2, "planted0", "w").unwrap();
    // One has its trees from its disk, one makes them anew, when most has ended.
    cluster.kill(0);
    cluster.start(0);
    let found = sum(&cluster, |it| it.exchange_keys);
    leap(&mut cluster, 2 * DAY + DAY / 2);
    cluster.nodes[1].as_mut().unwrap().control().rebuild_trees(None, JournalCheck::None);
    cluster.pass(Duration::from_secs(20));
    assert_eq!(cluster.values(2, "planted1"), [""; 0]);
    assert_eq!(cluster.values(2, "planted0"), ["w"]);
    assert_eq!(cluster.values(0, "k"), ["w"]);
    leap(&mut cluster, 2 * DAY);
    cluster.pass(Duration::from_secs(90));
    assert_eq!(keys(&cluster), [1; 3]);
    assert_eq!(sum(&cluster, |it| it.exchange_keys + it.trees_wrong), found);
}

/// A node that has lost its disk hears of days of which it has no tree.
#[test]
#[allow(clippy::disallowed_methods, reason = "it takes a node's disk away")]
fn what_ends_comes_to_a_node_that_has_lost_its_disk() {
    let data = folder();
    let mut cluster = ending(&data, 3 * DAY);
    put_some(&mut cluster, 60);
    cluster.kill(2);
    std::fs::remove_dir_all(cluster.data.join(NAMES[2])).unwrap();
    cluster.pass(Duration::from_secs(3));
    cluster.start(2);
    cluster.pass(Duration::from_secs(120));
    for key in 0..60 {
        assert_eq!(cluster.has(2, &format!("k{key}")), ["v"], "{key}");
    }
    assert_eq!(sum(&cluster, |it| it.trees_wrong), 0);
}
