//! Contexts of keys that are written through restarts, or by nodes that stand in: they stay small, and nothing is lost.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::cluster::*;
use bytes::Bytes;
use kv::{Bucket, GetRequest, Prop, Quorum, ReadStrategy, Request, Response};
use object::HeadView;
use std::time::Duration;

/// How many entries the key's context has, as a node reads it, and how long its head is.
fn context(cluster: &mut Cluster, node: usize, key: &str) -> (usize, usize) {
    let request = GetRequest { r: Quorum::One, ..get(key) };
    match cluster.ask(node, Request::Get(request)) {
        Ok(Response::Found(found)) => (HeadView::actors_of(&found.head), found.head.len()),
        other => panic!("{other:?}"),
    }
}

fn primaries(cluster: &mut Cluster, key: &str) -> Vec<usize> {
    let request = Request::GetPreflist(bucket(), Bytes::copy_from_slice(key.as_bytes()));
    let Ok(Response::Preflist(list)) = cluster.ask(0, request) else { panic!("a list") };
    let place = |name: &str| NAMES.iter().position(|it| *it == name).unwrap();
    list.iter().filter(|entry| entry.primary).map(|entry| place(&entry.node)).collect()
}

fn with_siblings(cluster: &mut Cluster, bucket: Bucket) {
    let request = Request::SetProps(bucket, vec![Prop::AllowMult(true)]);
    assert_eq!(cluster.ask(0, request), Ok(Response::PropsSet));
}

/// Kills the primaries of a key, and has the first of the others write these values.
fn write_without(cluster: &mut Cluster, primaries: &[usize], values: std::ops::Range<u32>) -> usize {
    primaries.iter().for_each(|&node| cluster.kill(node));
    // Nodes at rest ask each other seldom.
    cluster.pass(Duration::from_secs(10));
    let other = (0..5).find(|node| !primaries.contains(node)).unwrap();
    for value in values {
        assert!(cluster.put(other, "k", &value.to_string()).is_ok());
    }
    other
}

#[test]
fn nodes_that_stand_in_do_not_fill_the_context() {
    let data = folder();
    let mut cluster = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    let primaries = primaries(&mut cluster, "k");
    let other = write_without(&mut cluster, &primaries, 0..200);
    let (actors, _) = context(&mut cluster, other, "k");
    assert_eq!(actors, 1);
    primaries.iter().for_each(|&node| cluster.start(node));
    cluster.pass(Duration::from_secs(20));
    assert_eq!(cluster.has(primaries[0], "k"), ["199"]);
}

#[test]
fn a_node_that_has_forgotten_what_it_wrote_hides_nothing() {
    let data = folder();
    let mut cluster = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    with_siblings(&mut cluster, bucket());
    let primaries = primaries(&mut cluster, "k");
    for round in 0..3 {
        write_without(&mut cluster, &primaries, round..round + 1);
        primaries.iter().for_each(|&node| cluster.start(node));
        // What was written comes home, and is forgotten.
        cluster.pass(Duration::from_secs(20));
    }
    assert!(sum(&cluster, |counters| counters.hints_home) >= 3);
    assert_eq!(cluster.values(primaries[0], "k"), ["0", "1", "2"], "nobody has seen another's write");
}

#[test]
fn a_key_that_is_written_through_restarts_stays_small() {
    let data = folder();
    let mut cluster = three(&data);
    cluster.reaping.grave = Duration::from_secs(5);
    for round in 0..70 {
        let node = round % 3;
        cluster.kill(node);
        cluster.start(node);
        cluster.pass(Duration::from_millis(600));
        assert!(cluster.put(node, "k", &round.to_string()).is_ok());
    }
    cluster.pass(Duration::from_secs(10));
    let (actors, len) = context(&mut cluster, 0, "k");
    assert!(actors <= 40 && len <= 1024, "{actors} entries, {len} bytes");
    assert_eq!(cluster.values(1, "k"), ["69"]);
    for node in 0..3 {
        assert_eq!(cluster.has(node, "k"), ["69"]);
    }
}

#[test]
fn nothing_is_folded_while_a_member_is_away() {
    let data = folder();
    let mut cluster = three(&data);
    for round in 0..30 {
        cluster.kill(round % 2);
        cluster.start(round % 2);
        cluster.pass(Duration::from_millis(400));
        if round == 20 {
            cluster.kill(2);
            cluster.pass(Duration::from_secs(2));
        }
        assert!(cluster.put(round % 2, "k", &round.to_string()).is_ok());
    }
    cluster.pass(Duration::from_secs(10));
    let before = context(&mut cluster, 0, "k").0;
    assert!(before > 24, "{before}");
    cluster.pass(Duration::from_secs(10));
    assert_eq!((context(&mut cluster, 0, "k").0, sum(&cluster, |counters| counters.folds)), (before, 0));
    // Its hint comes home, and the next read proposes the key again.
    cluster.start(2);
    cluster.pass(Duration::from_secs(10));
    context(&mut cluster, 0, "k");
    cluster.pass(Duration::from_secs(10));
    assert_eq!(context(&mut cluster, 0, "k").0, 1);
    assert_eq!(cluster.values(1, "k"), ["29"]);
}
