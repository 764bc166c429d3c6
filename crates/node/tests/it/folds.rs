//! Folds over several nodes: each key counts once, whoever is asked and whoever stops; clusters with other rings find
//! the same.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::cluster::*;
use bytes::Bytes;
use kv::fold::{Finds, Fold, FoldRequest, Folded, KeySpan, Purge, Scope, Stats, Sum, TreeSize};
use kv::{Bucket, DeleteRequest, Error, Prop, ReadStrategy, Request, Response};
use node::RequestId;
use std::time::Duration;

/// More than a page of a node tells.
const MANY: usize = 20_000;

fn in_bucket(name: &'static str) -> Bucket {
    Bucket::untyped(Bytes::from_static(name.as_bytes()))
}

fn over(name: &'static str, finds: Finds) -> Fold {
    Fold::new(Scope::Bucket(in_bucket(name)), finds)
}

fn fold(cluster: &mut Cluster, node: usize, fold: Fold) -> Result<Folded, Error> {
    let request = Request::Fold(Box::new(FoldRequest { fold, timeout: Some(30_000), stream: false }));
    match cluster.ask(node, request)? {
        Response::Folded(folded) => Ok(*folded),
        other => panic!("{other:?}"),
    }
}

fn keys(folded: Folded) -> Vec<Bytes> {
    match folded.sum {
        Sum::Clocks(clocks) => clocks.into_iter().map(|clock| clock.key).collect(),
        Sum::Keys(keys) => keys.into_iter().map(|(key, _)| key).collect(),
        other => panic!("{other:?}"),
    }
}

fn fill(cluster: &mut Cluster, name: &'static str, count: usize) {
    cluster.fill(&in_bucket(name), (0..count).map(|at| format!("k{at:05}")));
}

#[test]
fn every_node_finds_what_all_of_them_have() {
    let data = folder();
    let mut five = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    five.ask(0, Request::SetProps(in_bucket("single"), vec![Prop::NVal(1)])).unwrap();
    fill(&mut five, "b", 300);
    fill(&mut five, "single", 50);
    five.ask(1, Request::Delete(DeleteRequest::new(in_bucket("b"), Bytes::from("k00007")))).unwrap();
    let root = fold(&mut five, 0, Fold::new(Scope::NVal(3), Finds::Root)).unwrap();
    for node in 0..5 {
        let Sum::Stats(stats) = fold(&mut five, node, over("b", Finds::Stats)).unwrap().sum else { panic!() };
        assert_eq!((stats.count, stats.siblings), (299, [(1, 299)].into()));
        let Sum::Stats(stats) = fold(&mut five, node, over("none", Finds::Stats)).unwrap().sum else {
            panic!()
        };
        assert_eq!(stats, Stats::default());
        assert_eq!(keys(fold(&mut five, node, over("b", Finds::Tombs)).unwrap()), ["k00007"]);
        for (purge, count) in [(Purge::Reap, 1), (Purge::Erase, 299)] {
            assert_eq!(fold(&mut five, node, over("b", Finds::Count(purge))).unwrap().sum, Sum::Count(count));
        }
        let span = Some(KeySpan { first: Bytes::from("k00005"), last: Bytes::from("k00008") });
        let some = Fold { keys: span, ..over("b", Finds::Sizes(1)) };
        assert_eq!(keys(fold(&mut five, node, some).unwrap()), ["k00005", "k00006", "k00008"]);
        assert_eq!(fold(&mut five, node, Fold::new(Scope::NVal(3), Finds::Root)).unwrap(), root);
        let clocks = keys(fold(&mut five, node, Fold::new(Scope::NVal(1), Finds::Clocks)).unwrap());
        assert_eq!(clocks.len(), 50, "those of one replica alone");
        for (n_val, buckets) in [(1, vec!["b", "single"]), (3, vec!["b"]), (9, vec![])] {
            let found = fold(&mut five, node, Fold::new(Scope::NVal(n_val), Finds::Buckets)).unwrap().sum;
            assert_eq!(found, Sum::Buckets(buckets.into_iter().map(in_bucket).collect()));
        }
    }
    assert!(five.idle());
}

#[test]
fn a_fold_is_whole_or_fails() {
    let data = folder();
    let mut five = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    five.ask(0, Request::SetProps(in_bucket("single"), vec![Prop::NVal(1)])).unwrap();
    fill(&mut five, "b", MANY);
    let all = fold(&mut five, 0, over("b", Finds::Tree { size: TreeSize::Large, seed: None })).unwrap().tree;
    let count = keys(fold(&mut five, 1, over("b", Finds::Clocks)).unwrap()).len();
    assert_eq!(count, MANY);
    // One stops while it is asked.
    let request = over("b", Finds::Tree { size: TreeSize::Large, seed: None });
    let request =
        Request::Fold(Box::new(FoldRequest { fold: request, timeout: Some(30_000), stream: false }));
    five.last_request += 1;
    let id = RequestId(five.last_request);
    five.nodes[0].as_mut().unwrap().request(id, request);
    five.kill(3);
    five.pass(Duration::from_secs(8));
    let Some(Ok(Response::Folded(folded))) = five.answers.remove(&id) else { panic!("it is over") };
    assert_eq!(folded.tree, all);
    assert_eq!(keys(fold(&mut five, 4, over("b", Finds::Sizes(1))).unwrap()).len(), MANY);
    assert_eq!(fold(&mut five, 0, over("single", Finds::Stats)).unwrap_err(), Error::NotCovered);
    let buckets = |n_val| Fold::new(Scope::NVal(n_val), Finds::Buckets);
    assert_eq!(fold(&mut five, 0, buckets(1)).unwrap_err(), Error::NotCovered);
    assert_eq!(fold(&mut five, 0, buckets(3)).unwrap().sum, Sum::Buckets([in_bucket("b")].into()));
    assert!(five.idle());
}

#[test]
fn what_cannot_be_is_the_clients_error() {
    let data = folder();
    let mut three = three(&data);
    let bad = fold(&mut three, 0, Fold::new(Scope::NVal(0), Finds::Root));
    assert!(matches!(bad, Err(Error::BadQuery(_))), "{bad:?}");
    let untyped = Bucket { bucket_type: Bytes::from("t"), name: Bytes::from("b") };
    let unknown = fold(&mut three, 0, Fold::new(Scope::Bucket(untyped), Finds::Stats));
    assert_eq!(unknown.unwrap_err(), Error::NoType(Bytes::from("t")));
}

#[test]
fn a_stream_is_told_as_its_client_takes_it() {
    let data = folder();
    let mut five = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    fill(&mut five, "b", MANY);
    five.ask(1, Request::Delete(DeleteRequest::new(in_bucket("b"), Bytes::from("k00007")))).unwrap();
    let fold = over("b", Finds::Objects);
    let request = Request::Fold(Box::new(FoldRequest { fold, timeout: Some(60_000), stream: true }));
    five.reads = false;
    let id = five.begin(2, request);
    let waiting = five.pieces[&id].len();
    five.pass(Duration::from_secs(1));
    assert_eq!(five.pieces[&id].len(), waiting, "nothing more is asked for meanwhile");
    five.reads = true;
    five.pass(Duration::from_secs(1));
    let Some(Ok(Response::Folded(last))) = five.answers.remove(&id) else { panic!("it is over") };
    assert!(last.done);
    let pieces = five.pieces.remove(&id).unwrap();
    let mut found: Vec<Bytes> = Vec::new();
    for piece in pieces {
        let Response::Folded(folded) = piece else { panic!("{piece:?}") };
        found.extend(keys(*folded));
    }
    let count = found.len();
    found.sort();
    found.dedup();
    assert_eq!((found.len(), count), (MANY - 1, MANY - 1), "each key once, and not what is deleted");
    assert!(five.idle());
}
