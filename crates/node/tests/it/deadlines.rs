//! Deadlines and delays are kept by turns: no tick passes in any of these tests.

use crate::common::cluster::*;
use bytes::Bytes;
use kv::fold::{Finds, Fold, FoldRequest, Scope};
use kv::index::{Pick, Terms};
use kv::query::{Accumulation, QueryPart, QueryRequest};
use kv::{
    DeleteRequest, Error, IndexRequest, ListBucketsRequest, ListKeysRequest, Prop, PutRequest, ReadStrategy,
    Request, Response,
};
use node::{Reaping, Shard};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// More than a few pages of a node.
const MANY: usize = 20_000;

/// Lets time pass without a tick.
fn wait(cluster: &mut Cluster, time: Duration) {
    cluster.clock.0.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
    cluster.run();
}

fn keys(timeout: u32) -> Request {
    Request::ListKeys(ListKeysRequest { bucket: bucket(), timeout: Some(timeout) })
}

fn buckets(timeout: u32, stream: bool) -> Request {
    let bucket_type = Bytes::from_static(b"default");
    Request::ListBuckets(ListBucketsRequest { bucket_type, stream, timeout: Some(timeout) })
}

fn fold(timeout: u32) -> Request {
    let fold = Fold::new(Scope::Bucket(bucket()), Finds::Stats);
    Request::Fold(Box::new(FoldRequest { fold, timeout: Some(timeout), stream: false }))
}

fn index(timeout: u32) -> Request {
    let terms = Terms::Exact(Bytes::from_static(b"_"));
    let index = IndexRequest::new(bucket(), Bytes::from_static(b"$bucket"), terms);
    Request::Index(Box::new(IndexRequest { timeout: Some(timeout), ..index }))
}

fn query(timeout: u32) -> Request {
    let name = Bytes::from_static;
    let (first, last) = (name(b"a"), name(b"b"));
    let pick = Pick::Where { pipeline: String::new(), condition: "attribute_exists($key)".to_owned() };
    Request::Query(Box::new(QueryRequest {
        bucket: bucket(),
        parts: vec![QueryPart { tag: 1, field: name(b"w_bin"), first, last, pick }],
        sets: None,
        accumulation: Accumulation::Keys,
        term: None,
        max_results: None,
        continuation: None,
        timeout: Some(timeout),
    }))
}

/// One request of each kind that waits for other nodes.
fn all_kinds(timeout: u32) -> Vec<Request> {
    let timeout_of = Some(timeout);
    vec![
        Request::Get(kv::GetRequest { timeout: timeout_of, r: kv::Quorum::All, ..get("k") }),
        Request::put(PutRequest { timeout: timeout_of, ..put("k", "v") }),
        Request::Delete(DeleteRequest { timeout: timeout_of, ..delete("k") }),
        keys(timeout),
        buckets(timeout, false),
        buckets(timeout, true),
        fold(timeout),
        index(timeout),
        query(timeout),
    ]
}

#[test]
fn every_kind_of_request_times_out_by_a_turn() {
    let data = folder();
    let mut cluster = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    (0..5).for_each(|node| cluster.cut(node));
    for timeout in [1, 70] {
        for request in all_kinds(timeout) {
            let told = format!("{request:?}");
            let id = cluster.begin(0, request);
            assert_eq!(cluster.answers.get(&id), None, "{told}");
            let due = cluster.nodes[0].as_ref().unwrap().next_deadline().unwrap();
            let left = due.since(base::Clock::now(&*cluster.clock));
            assert!(left <= Duration::from_millis(timeout.into()), "the shard is woken in time: {told}");
            wait(&mut cluster, Duration::from_millis(timeout.into()));
            assert_eq!(cluster.answers.remove(&id), Some(Err(Error::Timeout)), "{told}");
        }
    }
}

/// A request with this timeout.
type Timed = fn(u32) -> Request;

/// The answer to a request whose scans take many turns.
fn answer(cluster: &mut Cluster, request: Request) -> Result<Response, Error> {
    let id = cluster.begin(0, request);
    for _ in 0..1_000 {
        if let Some(answer) = cluster.answers.remove(&id) {
            return answer;
        }
        cluster.run();
    }
    panic!("no answer");
}

#[test]
fn a_listing_that_takes_longer_than_its_timeout_says_so() {
    let data = folder();
    let mut cluster = Cluster::new(data.path(), 2, ReadStrategy::LocalValue);
    cluster.fill(&bucket(), (0..MANY).map(|at| format!("k{at}")));
    // Nanoseconds that each look at the clock takes: a fold needs few.
    let steps = [(keys as Timed, 100_000), (index as Timed, 300_000), (fold as Timed, 1_000_000)];
    for (request, nanos) in steps {
        assert!(answer(&mut cluster, request(30_000)).is_ok());
        cluster.clock.1.store(nanos, Ordering::Relaxed);
        let timed_out = answer(&mut cluster, request(1));
        cluster.clock.1.store(0, Ordering::Relaxed);
        assert_eq!(timed_out, Err(Error::Timeout));
        assert!(cluster.idle());
    }
}

#[test]
fn a_timeout_of_zero_is_none() {
    let data = folder();
    let mut cluster = three(&data);
    for request in all_kinds(0) {
        let told = format!("{request:?}");
        cluster.clock.1.store(100_000, Ordering::Relaxed);
        let id = cluster.begin(0, request);
        cluster.clock.1.store(0, Ordering::Relaxed);
        assert!(cluster.answers.remove(&id).unwrap().is_ok(), "{told}");
    }
}

/// A node alone, or three, that reap tombstones after so long.
fn reaping_after(data: &tempfile::TempDir, nodes: usize, delay: Option<Duration>) -> Cluster {
    let mut cluster = Cluster::new(data.path(), nodes, ReadStrategy::LocalValue);
    cluster.reaping = Reaping { grave: Duration::from_secs(30), ..Reaping::after(delay) };
    for node in 0..nodes {
        cluster.kill(node);
        cluster.start(node);
    }
    cluster.pass(Duration::from_millis(300));
    let props = vec![Prop::AllowMult(true)];
    cluster.ask(0, Request::SetProps(bucket(), props)).unwrap();
    cluster
}

/// Whether a read finds a tombstone.
fn is_deleted(cluster: &mut Cluster, key: &str) -> bool {
    let read = kv::GetRequest { deleted_context: true, ..get(key) };
    match cluster.ask(0, Request::Get(read)).unwrap() {
        Response::NotFound { deleted_context } => deleted_context.is_some(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tombstone_without_a_delay_is_gone_at_once() {
    for nodes in [1, 3] {
        let data = folder();
        let mut cluster = reaping_after(&data, nodes, Some(Duration::ZERO));
        // More than are reaped at a time.
        for key in (0..100).map(|at| format!("k{at}")) {
            cluster.put(0, &key, "old").unwrap();
        }
        for key in (0..100).map(|at| format!("k{at}")) {
            let request = Request::Delete(delete(&key));
            cluster.last_request += 1;
            let id = node::RequestId(cluster.last_request);
            cluster.nodes[0].as_mut().unwrap().request(id, request);
        }
        cluster.run();
        assert_eq!(cluster.answers.len(), 100);
        cluster.answers.clear();
        for key in (0..100).map(|at| format!("k{at}")) {
            assert!(!is_deleted(&mut cluster, &key), "{key}");
            cluster.put(0, &key, "new").unwrap();
            assert_eq!(cluster.values(0, &key), ["new"], "no sibling");
        }
        assert_eq!(sum(&cluster, |counters| counters.reaps), 100);
    }
}

#[test]
fn a_tombstone_goes_when_its_delay_is_over() {
    let data = folder();
    let mut cluster = reaping_after(&data, 1, Some(Duration::from_millis(1)));
    cluster.put(0, "k", "old").unwrap();
    cluster.ask(0, Request::Delete(delete("k"))).unwrap();
    assert!(is_deleted(&mut cluster, "k"), "not yet");
    let due = cluster.nodes[0].as_ref().and_then(Shard::next_deadline).unwrap();
    assert!(due.since(base::Clock::now(&*cluster.clock)) <= Duration::from_millis(1));
    wait(&mut cluster, Duration::from_millis(1));
    assert!(!is_deleted(&mut cluster, "k"));
}

#[test]
fn a_tombstone_that_is_kept_stays() {
    let data = folder();
    let mut cluster = reaping_after(&data, 1, None);
    cluster.put(0, "k", "old").unwrap();
    cluster.ask(0, Request::Delete(delete("k"))).unwrap();
    cluster.pass(Duration::from_secs(60));
    assert!(is_deleted(&mut cluster, "k"));
}
