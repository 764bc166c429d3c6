//! Listings over several nodes: whole, each name once, or an error.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::cluster::*;
use bytes::Bytes;
use kv::{Bucket, Error, ListBucketsRequest, ListKeysRequest, Prop, ReadStrategy, Request, Response};
use node::{PeerMessage, RequestId};
use std::time::Duration;

/// More than a few pages of each node.
const MANY: usize = 20_000;

fn in_bucket(bucket: &str) -> Bucket {
    Bucket::untyped(Bytes::copy_from_slice(bucket.as_bytes()))
}

fn keys_of(bucket: &str) -> Request {
    Request::ListKeys(ListKeysRequest { bucket: in_bucket(bucket), timeout: Some(30_000) })
}

fn buckets(stream: bool) -> Request {
    let bucket_type = Bytes::from_static(b"default");
    Request::ListBuckets(ListBucketsRequest { bucket_type, stream, timeout: None })
}

fn fill(cluster: &mut Cluster, bucket: &str, count: usize) {
    cluster.fill(&in_bucket(bucket), (0..count).map(|at| format!("{bucket}-{at}")));
}

/// What has come of a listing: `None` while it is not over.
fn outcome(cluster: &mut Cluster, id: RequestId) -> Option<Result<Vec<Bytes>, Error>> {
    let last = match cluster.answers.remove(&id)? {
        Ok(last) => last,
        Err(error) => return Some(Err(error)),
    };
    let mut names = Vec::new();
    for piece in cluster.pieces.remove(&id).unwrap_or_default().into_iter().chain([last]) {
        match piece {
            Response::Keys { keys: piece, .. } | Response::Buckets { names: piece, .. } => {
                names.extend(piece)
            }
            other => panic!("{other:?}"),
        }
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "each name once");
    Some(Ok(names))
}

fn list(cluster: &mut Cluster, node: usize, request: Request) -> Result<Vec<Bytes>, Error> {
    let id = cluster.begin(node, request);
    outcome(cluster, id).expect("a listing is over when nothing moves")
}

fn expected(bucket: &str, count: usize) -> Vec<Bytes> {
    let mut names: Vec<Bytes> = (0..count).map(|at| Bytes::from(format!("{bucket}-{at}"))).collect();
    names.sort();
    names
}

#[test]
fn every_node_lists_what_all_of_them_have() {
    let data = folder();
    let mut five = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    let one = vec![Prop::NVal(1)];
    five.ask(0, Request::SetProps(in_bucket("single"), one)).unwrap();
    fill(&mut five, "b", 300);
    fill(&mut five, "single", 50);
    let gone = |key: &str| {
        let mut request = delete(key);
        request.bucket = in_bucket("b");
        Request::Delete(request)
    };
    fill(&mut five, "short", 1);
    five.ask(3, Request::Delete(kv::DeleteRequest::new(in_bucket("short"), Bytes::from("short-0")))).unwrap();
    let mut keys = expected("b", 300);
    keys.retain(|key| key != "b-7");
    five.ask(1, gone("b-7")).unwrap();
    for node in 0..5 {
        assert_eq!(list(&mut five, node, keys_of("b")), Ok(keys.clone()));
        assert_eq!(list(&mut five, node, keys_of("single")), Ok(expected("single", 50)));
        assert_eq!(list(&mut five, node, keys_of("nothing")), Ok(Vec::new()));
        for stream in [false, true] {
            assert_eq!(
                list(&mut five, node, buckets(stream)),
                Ok(vec![Bytes::from("b"), Bytes::from("single")])
            );
        }
    }
    assert!(five.idle());
}

#[test]
fn a_listing_needs_a_primary_of_every_partition() {
    let data = folder();
    let mut five = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    five.ask(0, Request::SetProps(in_bucket("single"), vec![Prop::NVal(1)])).unwrap();
    fill(&mut five, "b", 200);
    fill(&mut five, "single", 20);
    five.kill(3);
    five.pass(Duration::from_secs(2));
    for node in [0, 1, 2, 4] {
        assert_eq!(list(&mut five, node, keys_of("b")), Ok(expected("b", 200)));
        assert_eq!(list(&mut five, node, keys_of("single")), Err(Error::NotCovered));
        assert_eq!(list(&mut five, node, buckets(false)), Err(Error::NotCovered), "some may be there alone");
    }
    five.kill(2);
    five.kill(4);
    five.pass(Duration::from_secs(2));
    assert_eq!(list(&mut five, 0, keys_of("b")), Err(Error::NotCovered));
    assert!(five.idle());
}

#[test]
fn others_go_on_where_a_node_has_stopped() {
    let data = folder();
    let mut five = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    fill(&mut five, "b", MANY);
    five.reads = false;
    let id = five.begin(0, keys_of("b"));
    assert!(outcome(&mut five, id).is_none() && !five.pieces[&id].is_empty());
    let first = five.pieces[&id].len();
    // Nothing more comes to a client that takes nothing.
    five.pass(Duration::from_secs(5));
    assert_eq!(five.pieces[&id].len(), first);
    let asked: Vec<usize> =
        (1..5).filter(|&node| five.nodes[node].as_ref().unwrap().stats().work == 0).collect();
    assert_eq!(asked.len(), 4, "nobody waits for it either");
    five.kill(2);
    five.pass(Duration::from_secs(2));
    five.reads = true;
    five.pass(Duration::from_secs(3));
    assert_eq!(outcome(&mut five, id), Some(Ok(expected("b", MANY))));
    assert!(five.idle());
}

#[test]
fn a_page_that_is_lost_is_asked_for_again() {
    let data = folder();
    let mut five = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    fill(&mut five, "b", 500);
    five.cuts.extend([(1, 0), (2, 0), (3, 0), (4, 0)]);
    let id = five.begin(0, keys_of("b"));
    assert!(outcome(&mut five, id).is_none());
    five.cuts.clear();
    five.pass(Duration::from_secs(3));
    assert_eq!(outcome(&mut five, id), Some(Ok(expected("b", 500))));
    assert!(five.idle());
}

#[test]
fn a_listing_ends_at_its_deadline_and_with_its_client() {
    let data = folder();
    let mut three = three(&data);
    fill(&mut three, "b", MANY);
    three.reads = false;
    let late = three.begin(0, keys_of("b"));
    let gone = three.begin(1, keys_of("b"));
    three.nodes[1].as_mut().unwrap().forget(gone);
    three.pass(Duration::from_secs(31));
    assert_eq!(outcome(&mut three, late), Some(Err(Error::Timeout)));
    assert!(three.idle());
    let node_zero = kv::NodeId(0);
    let ask =
        kv::PageAsk { listed: kv::Listed::Buckets(Bytes::from("t")), partitions: Vec::new(), start: None };
    let nonsense = PeerMessage::AskPage { id: node::AskId(1 << 8), ttl_ms: 9, ask };
    three.nodes[1].as_mut().unwrap().peer(node_zero, nonsense);
    three.run();
    assert!(three.idle());
}
