//! What nodes tell each other of properties: what differs, once, and nothing when nothing does.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::cluster::*;
use bytes::Bytes;
use kv::{Bucket, Prop, ReadStrategy, Request, Response};
use std::time::Duration;

/// Buckets with properties of their own: some in every part that sums are made of.
const BUCKETS: u32 = 300;

fn named(at: u32) -> Bucket {
    Bucket::untyped(Bytes::from(format!("bucket {at}")))
}

fn set(cluster: &mut Cluster, node: usize, at: u32, n: u32) {
    let request = Request::SetProps(named(at), vec![Prop::NVal(n)]);
    assert_eq!(cluster.ask(node, request), Ok(Response::PropsSet));
}

fn n_val(cluster: &mut Cluster, node: usize, at: u32) -> u32 {
    match cluster.ask(node, Request::GetProps(named(at))) {
        Ok(Response::Props(props)) => props.n_val,
        other => panic!("{other:?}"),
    }
}

fn five(data: &tempfile::TempDir) -> Cluster {
    let mut cluster = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    (0..BUCKETS).for_each(|at| set(&mut cluster, 0, at, 2));
    cluster
}

/// Messages of a kind since the last request.
fn count(cluster: &Cluster, kind: &str) -> usize {
    cluster.asked.iter().filter(|asked| **asked == kind).count()
}

#[test]
fn nodes_that_all_start_at_once_tell_each_other_nothing() {
    let data = folder();
    let mut cluster = five(&data);
    (0..5).for_each(|node| cluster.stop(node));
    cluster.asked.clear();
    (0..5).for_each(|node| cluster.start(node));
    cluster.pass(Duration::from_secs(10));
    assert_eq!((count(&cluster, "ask props"), count(&cluster, "props")), (0, 0));
    assert!(cluster.idle());
}

#[test]
fn who_was_away_is_told_what_it_missed_by_one() {
    let data = folder();
    let mut cluster = five(&data);
    cluster.kill(4);
    cluster.pass(Duration::from_secs(2));
    (0..3).for_each(|at| set(&mut cluster, 1, at, 1));
    cluster.asked.clear();
    cluster.start(4);
    cluster.pass(Duration::from_secs(3));
    assert_eq!(count(&cluster, "ask props"), 1);
    let told = count(&cluster, "props");
    assert!((3..40).contains(&told), "three leaves of a few each: {told}");
    (0..4).for_each(|at| assert_eq!(n_val(&mut cluster, 4, at), if at < 3 { 1 } else { 2 }));
}

#[test]
fn who_has_lost_all_is_told_all_once() {
    let data = folder();
    let mut cluster = five(&data);
    cluster.kill(2);
    std::fs::remove_dir_all(data.path().join(NAMES[2])).unwrap();
    cluster.asked.clear();
    cluster.start(2);
    cluster.pass(Duration::from_secs(4));
    assert_eq!(count(&cluster, "props"), BUCKETS as usize);
    (0..BUCKETS).for_each(|at| assert_eq!(n_val(&mut cluster, 2, at), 2));
    assert!(cluster.idle());
}

#[test]
fn a_question_that_is_lost_is_asked_again_of_somebody() {
    let data = folder();
    let mut cluster = five(&data);
    cluster.kill(3);
    cluster.pass(Duration::from_secs(2));
    set(&mut cluster, 0, 7, 1);
    cluster.start(3);
    // It hears that it lacks something, and is not heard.
    cluster.nodes[3].as_mut().unwrap().tick();
    cluster.run();
    cluster.cuts.extend((0..5).map(|other| (3, other)));
    cluster.asked.clear();
    cluster.pass(Duration::from_millis(500));
    cluster.cuts.clear();
    cluster.pass(Duration::from_secs(5));
    assert_eq!(n_val(&mut cluster, 3, 7), 1);
}

#[test]
fn two_sides_of_a_cut_come_to_know_the_same() {
    let data = folder();
    let mut cluster = five(&data);
    for other in [0, 1, 2] {
        cluster.cuts.extend([(3, other), (4, other), (other, 3), (other, 4)]);
    }
    cluster.pass(Duration::from_secs(3));
    // At the same moment, by clocks that agree: one of both holds, everywhere.
    for at in 0..20 {
        set(&mut cluster, 0, at, 1);
        set(&mut cluster, 3, at, 4);
        set(&mut cluster, 0, 100 + at, 1);
        set(&mut cluster, 3, 200 + at, 4);
    }
    cluster.cuts.clear();
    cluster.asked.clear();
    cluster.pass(Duration::from_secs(30));
    for node in 0..5 {
        for at in 0..20 {
            let settled = n_val(&mut cluster, 0, at);
            assert!([1, 4].contains(&settled));
            let known = [at, 100 + at, 200 + at].map(|at| n_val(&mut cluster, node, at));
            assert_eq!(known, [settled, 1, 4], "node {node}");
        }
    }
    cluster.asked.clear();
    cluster.pass(Duration::from_secs(30));
    assert_eq!((count(&cluster, "ask props"), count(&cluster, "props")), (0, 0), "and nothing goes on");
}
