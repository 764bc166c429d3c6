//! Resets of bucket properties: forgotten by all nodes in the end, and never undone by a node that was away.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::cluster::*;
use crate::common::open_store;
use bytes::Bytes;
use kv::{Bucket, Prop, ReadStrategy, Request, Response};
use node::Layout;
use os::OsDisk;
use ring::RingSize;
use std::sync::Arc;
use std::time::Duration;

/// How long a message may be on its way, here.
const GRAVE: Duration = Duration::from_secs(10);

/// Long enough for both confirmations.
const LONG: Duration = Duration::from_secs(30);

fn named(at: u32) -> Bucket {
    Bucket::untyped(Bytes::from(format!("bucket {at}")))
}

fn set(cluster: &mut Cluster, node: usize, at: u32, n: u32) {
    let request = Request::SetProps(named(at), vec![Prop::NVal(n)]);
    assert_eq!(cluster.ask(node, request), Ok(Response::PropsSet));
}

fn reset(cluster: &mut Cluster, node: usize, at: u32) {
    assert_eq!(cluster.ask(node, Request::ResetProps(named(at))), Ok(Response::PropsReset));
}

fn n_val(cluster: &mut Cluster, node: usize, at: u32) -> u32 {
    match cluster.ask(node, Request::GetProps(named(at))) {
        Ok(Response::Props(props)) => props.n_val,
        other => panic!("{other:?}"),
    }
}

fn cluster(data: &tempfile::TempDir, nodes: usize) -> Cluster {
    let mut cluster = Cluster::new(data.path(), nodes, ReadStrategy::LocalValue);
    cluster.reaping.grave = GRAVE;
    (0..nodes).for_each(|node| cluster.stop(node));
    (0..nodes).for_each(|node| cluster.start(node));
    cluster.pass(Duration::from_secs(2));
    cluster
}

/// How many resets each node that runs remembers.
fn remembered(cluster: &Cluster) -> Vec<usize> {
    cluster.nodes.iter().flatten().map(|shard| shard.stats().resets).collect()
}

/// How many sets and resets are on a node's disk. The node is stopped.
fn on_disk(cluster: &mut Cluster, node: usize) -> (usize, usize) {
    cluster.stop(node);
    let layout = Layout::new(1, RingSize::new(16).unwrap());
    let (data, hold) = (cluster.data.join(NAMES[node]), Arc::clone(&cluster.holds[node]));
    let (_, table) =
        open_store(&OsDisk::blocking(), &data, &layout, 0, 9, &cluster.clock, hold, cluster.options.clone());
    (table.len(), table.resets())
}

#[test]
fn resets_are_forgotten_by_all_nodes_and_disks() {
    for nodes in [1, 3] {
        let data = folder();
        let mut cluster = cluster(&data, nodes);
        for at in 0..300 {
            set(&mut cluster, 0, at, 2);
            reset(&mut cluster, nodes - 1, at);
        }
        set(&mut cluster, 0, 7, 1);
        if nodes > 1 {
            assert_eq!(remembered(&cluster)[0], 299);
        }
        cluster.pass(LONG);
        assert_eq!(remembered(&cluster), vec![0; nodes]);
        for node in 0..nodes {
            assert_eq!((n_val(&mut cluster, node, 7), n_val(&mut cluster, node, 8)), (1, 3));
        }
        cluster.asked.clear();
        cluster.pass(LONG);
        assert!(!cluster.asked.contains(&"ask props"), "nodes agree");
        (0..nodes).for_each(|node| assert_eq!(on_disk(&mut cluster, node), (1, 0)));
    }
}

#[test]
fn resets_that_change_nothing_are_not_remembered() {
    let data = folder();
    let mut cluster = cluster(&data, 3);
    cluster.pass(Duration::from_secs(5));
    reset(&mut cluster, 0, 1);
    assert_eq!(remembered(&cluster), [0; 3]);
    // An untyped bucket with the default properties has none of its own.
    set(&mut cluster, 1, 2, 3);
    assert_eq!(remembered(&cluster), [0; 3]);
    set(&mut cluster, 1, 2, 1);
    set(&mut cluster, 1, 2, 3);
    assert_eq!(remembered(&cluster), [1; 3]);
    assert_eq!(n_val(&mut cluster, 2, 2), 3);
}

#[test]
fn a_node_that_was_away_does_not_bring_properties_back() {
    let data = folder();
    let mut cluster = cluster(&data, 3);
    (0..40).for_each(|at| set(&mut cluster, 0, at, 2));
    cluster.kill(2);
    cluster.pass(Duration::from_secs(3));
    (0..40).for_each(|at| reset(&mut cluster, 0, at));
    cluster.pass(LONG);
    assert_eq!(remembered(&cluster), [40, 40], "a member is away");
    // Nodes that remember are started again meanwhile.
    cluster.kill(0);
    cluster.start(0);
    cluster.pass(Duration::from_secs(2));
    cluster.stop(1);
    cluster.start(1);
    cluster.pass(LONG);
    assert_eq!(remembered(&cluster), [40, 40]);

    cluster.start(2);
    cluster.pass(LONG);
    for node in 0..3 {
        (0..40).for_each(|at| assert_eq!(n_val(&mut cluster, node, at), 3, "node {node}"));
    }
    cluster.pass(LONG);
    assert_eq!(remembered(&cluster), [0; 3]);
    assert_eq!(on_disk(&mut cluster, 2), (0, 0));
}

#[test]
fn a_reset_on_one_side_of_a_cut_holds_on_both() {
    let data = folder();
    let mut cluster = cluster(&data, 3);
    (0..20).for_each(|at| set(&mut cluster, 0, at, 2));
    cluster.cut(2);
    cluster.pass(Duration::from_secs(3));
    set(&mut cluster, 2, 5, 1);
    cluster.pass(Duration::from_secs(1));
    (0..20).for_each(|at| reset(&mut cluster, 0, at));
    cluster.pass(Duration::from_secs(1));
    set(&mut cluster, 2, 6, 4);
    cluster.pass(LONG);
    assert_eq!(remembered(&cluster)[..2], [20, 20]);
    cluster.cuts.clear();
    cluster.pass(LONG);
    cluster.pass(LONG);
    for node in 0..3 {
        let known: Vec<u32> = (4..8).map(|at| n_val(&mut cluster, node, at)).collect();
        assert_eq!(known, [3, 3, 4, 3], "the latest change of each bucket holds");
    }
    assert_eq!(remembered(&cluster), [0; 3]);
}

#[test]
fn a_reset_that_a_member_could_not_write_is_remembered() {
    let data = folder();
    let mut cluster = cluster(&data, 3);
    set(&mut cluster, 0, 1, 2);
    cluster.holds[2].fails.store(true, std::sync::atomic::Ordering::Relaxed);
    reset(&mut cluster, 0, 1);
    cluster.pass(LONG);
    assert_eq!(remembered(&cluster)[..2], [1, 1], "the third has it in memory only");
    cluster.kill(2);
    cluster.holds[2].fails.store(false, std::sync::atomic::Ordering::Relaxed);
    cluster.start(2);
    cluster.pass(LONG);
    (0..3).for_each(|node| assert_eq!(n_val(&mut cluster, node, 1), 3));
    assert_eq!(remembered(&cluster), [0; 3]);
}

#[test]
fn members_of_an_older_version_forget_nothing_and_agree() {
    let data = folder();
    let mut cluster = cluster(&data, 3);
    cluster.version = 7;
    cluster.pass(Duration::from_secs(2));
    set(&mut cluster, 0, 1, 2);
    reset(&mut cluster, 0, 1);
    cluster.pass(LONG);
    cluster.asked.clear();
    cluster.pass(LONG);
    assert_eq!(remembered(&cluster), [1; 3]);
    assert!(!cluster.asked.contains(&"ask props"), "sums with resets are compared");
    cluster.version = protocol::peer::VERSION;
    cluster.pass(LONG);
    assert_eq!(remembered(&cluster), [0; 3]);
}
