//! Slow requests on consistent types: lines name the stage that the request is in, and the node that hangs.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::cluster::Cluster;
use crate::consistent::{TAKEOVER, bucket, consistent, get, key, leads, put};
use bytes::Bytes;
use kv::{Error, PutRequest, Request, Response};
use node::shard::SlowStage;
use node::{RequestId, SlowLine};
use object::Metadata;
use std::sync::Arc;
use std::time::Duration;

const THRESHOLD: Duration = Duration::from_millis(100);

/// Three nodes with the log on, the leader of the key's group, and the context of the key.
fn slow_cluster(data: &tempfile::TempDir) -> (Cluster, usize, Bytes) {
    let mut cluster = consistent(data);
    put(&mut cluster, 0, "k", "one", None).unwrap();
    // The preferred voter leads by then.
    cluster.pass(Duration::from_secs(15));
    let leader = (0..3).find(|&node| leads(&cluster, node)).unwrap();
    let (context, _) = get(&mut cluster, leader, "k").unwrap();
    cluster.slow.set_threshold(Some(THRESHOLD));
    (cluster, leader, context)
}

/// Overwrites the key, whose group has a leader.
fn begin_put(cluster: &mut Cluster, node: usize, context: &Bytes) -> RequestId {
    let put = PutRequest::new(bucket(), Some(key("k")), Metadata::default(), key("slow"));
    cluster.begin(node, Request::put(PutRequest { context: Some(context.clone()), ..put }))
}

/// Lines of a node since the last call, whose stages are checked.
fn lines_of(cluster: &mut Cluster, node: usize) -> Vec<Arc<SlowLine>> {
    let lines = std::mem::take(&mut cluster.slow_lines);
    let lines = lines.into_iter().filter(|(from, _)| *from == node).map(|(_, line)| line);
    lines
        .inspect(|line| {
            let sum: Duration = line.stages.iter().sum();
            assert!(sum.abs_diff(line.time) * 20 <= line.time, "stages sum to the whole: {line:?}");
            assert_eq!((line.op.name(), &*line.bucket_type, &*line.bucket), ("put", "strong", "b"));
        })
        .collect()
}

/// The stage that a line shows as the longest.
fn longest(line: &SlowLine) -> &'static str {
    SlowStage::ALL.into_iter().max_by_key(|stage| line.stages[*stage as usize]).unwrap().name()
}

fn count(cluster: &Cluster, node: usize) -> u64 {
    cluster.nodes[node].as_ref().unwrap().stats().counters.slow
}

/// Lets the time pass in steps that no node counts as a death.
fn pass(cluster: &mut Cluster, ms: u64) {
    cluster.pass(Duration::from_millis(ms));
}

#[test]
fn a_leader_that_is_cut_off_waits_for_its_majority() {
    let data = tempfile::tempdir().unwrap();
    let (mut cluster, leader, context) = slow_cluster(&data);
    cluster.cut(leader);
    let id = begin_put(&mut cluster, leader, &context);
    pass(&mut cluster, 150);
    let first = lines_of(&mut cluster, leader);
    assert_eq!(
        first.iter().map(|line| (line.waits, longest(line))).collect::<Vec<_>>(),
        [(true, "majority")]
    );
    assert!(!cluster.answers.contains_key(&id));

    pass(&mut cluster, 200);
    assert_eq!(lines_of(&mut cluster, leader), [], "one line while it waits");
    cluster.cuts.clear();
    cluster.pass(TAKEOVER);
    assert!(matches!(cluster.answers.remove(&id), Some(Ok(Response::Put { .. }))));
    let last = lines_of(&mut cluster, leader);
    let told: Vec<_> = last.iter().map(|line| (line.waits, longest(line), line.error.is_some())).collect();
    assert_eq!(told, [(false, "majority", false)]);
    assert_eq!((last[0].bytes, count(&cluster, leader)), (4, 1));
}

#[test]
fn a_request_for_a_leader_that_hangs_names_its_node() {
    let data = tempfile::tempdir().unwrap();
    let (mut cluster, leader, context) = slow_cluster(&data);
    let client = (leader + 1) % 3;
    cluster.pause(leader);
    let id = begin_put(&mut cluster, client, &context);
    pass(&mut cluster, 300);
    let first = lines_of(&mut cluster, client);
    cluster.resume();
    cluster.pass(TAKEOVER);
    assert!(matches!(cluster.answers.remove(&id), Some(Ok(Response::Put { .. }))));
    let last = lines_of(&mut cluster, client);
    let told: Vec<_> = first
        .iter()
        .chain(&last)
        .map(|line| (line.waits, longest(line), &*line.replicas[0].node, line.replicas[0].waits))
        .collect();
    let name = crate::common::cluster::NAMES[leader];
    assert_eq!(told, [(true, "replicas", name, true), (false, "replicas", name, false)]);
    assert!(last[0].replicas[0].time >= Duration::from_millis(300), "{last:?}");
    assert_eq!((count(&cluster, client), count(&cluster, leader)), (1, 0), "the node of the client counts");
}

#[test]
fn a_request_without_a_leader_waits_for_one() {
    let data = tempfile::tempdir().unwrap();
    let (mut cluster, leader, context) = slow_cluster(&data);
    let left = (leader + 1) % 3;
    (0..3).filter(|&node| node != left).for_each(|node| cluster.kill(node));
    cluster.pass(TAKEOVER);
    let id = begin_put(&mut cluster, left, &context);
    pass(&mut cluster, 150);
    assert_eq!(lines_of(&mut cluster, left).iter().map(|line| line.waits).collect::<Vec<_>>(), [true]);
    cluster.pass(Duration::from_secs(11));
    assert_eq!(cluster.answers.remove(&id), Some(Err(Error::Unavailable)));
    let last = lines_of(&mut cluster, left);
    let told: Vec<_> = last.iter().map(|line| (line.waits, longest(line), line.error.clone())).collect();
    assert_eq!(told, [(false, "leader", Some(Error::Unavailable.to_string()))]);
}

#[test]
fn fast_requests_have_no_lines() {
    let data = tempfile::tempdir().unwrap();
    let (mut cluster, leader, context) = slow_cluster(&data);
    let mut context = context;
    for node in 0..3 {
        put(&mut cluster, node, "k", "v", Some(context)).unwrap();
        context = get(&mut cluster, node, "k").unwrap().0;
    }
    assert!(cluster.slow_lines.is_empty());
    assert_eq!(count(&cluster, leader), 0);
}
