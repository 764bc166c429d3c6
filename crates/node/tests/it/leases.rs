//! Reads by lease on three nodes, and hand-overs of the leadership.

use std::time::Duration;

use kv::{GetRequest, Request, Response};
use node::peer::NodeId;
use node::{GroupRole, StrongReads};

use crate::common::cluster::Cluster;
use crate::consistent::{TAKEOVER, bucket, consistent_with, get, key, leads, put};

/// Three nodes with leases, or with programs of an earlier version of the protocol; and the leader of the key's group.
fn leased(data: &tempfile::TempDir, version: u16) -> (Cluster, usize) {
    let mut cluster = consistent_with(data, StrongReads::Lease, version);
    put(&mut cluster, 0, "k", "one", None).unwrap();
    // The preferred voter leads by then.
    cluster.pass(Duration::from_secs(15));
    let leader = (0..3).find(|&node| leads(&cluster, node)).unwrap();
    // The first read after a rest is confirmed by a round, whose messages and pings renew the promises.
    get(&mut cluster, leader, "k").unwrap();
    cluster.pass(Duration::from_millis(600));
    (cluster, leader)
}

/// Reads that a node answered by its leases, and those that another one confirmed.
fn reads(cluster: &mut Cluster, node: usize) -> (u64, u64) {
    let counters = cluster.nodes[node].as_mut().unwrap().stats().counters;
    (counters.consistent_lease_reads, counters.consistent_index_reads)
}

fn read() -> Request {
    Request::Get(GetRequest::new(bucket(), key("k")))
}

#[test]
fn a_leader_with_a_lease_reads_without_a_question() {
    let data = tempfile::tempdir().unwrap();
    let (mut cluster, leader) = leased(&data, protocol::peer::VERSION);
    let (by_lease, by_index) = reads(&mut cluster, leader);
    cluster.cut(leader);
    let answer = cluster.ask(leader, read());
    assert!(matches!(answer, Ok(Response::Found(_))), "{answer:?}");
    assert_eq!(reads(&mut cluster, leader), (by_lease + 1, by_index));

    // Nobody renews the promises. They end a second after the others heard this node last.
    cluster.pass(Duration::from_secs(1));
    let late = cluster.begin(leader, read());
    assert!(!cluster.answers.contains_key(&late));
    cluster.pass(TAKEOVER);
    let next = (0..3).find(|&node| node != leader && leads(&cluster, node)).unwrap();
    put(&mut cluster, next, "l", "two", None).unwrap();
    cluster.cuts.clear();
    cluster.pass(TAKEOVER);
    assert_eq!(get(&mut cluster, leader, "l").unwrap().1, "two");
}

#[test]
fn reads_go_on_by_lease_and_rest_lets_it_lapse() {
    let data = tempfile::tempdir().unwrap();
    let (mut cluster, leader) = leased(&data, protocol::peer::VERSION);
    let (by_lease, by_index) = reads(&mut cluster, leader);
    for _ in 0..100 {
        cluster.ask(leader, read()).unwrap();
        cluster.pass(Duration::from_millis(200));
    }
    assert_eq!(reads(&mut cluster, leader), (by_lease + 100, by_index), "reads alone renew the promises");

    cluster.pass(Duration::from_secs(20));
    get(&mut cluster, leader, "k").unwrap();
    assert_eq!(reads(&mut cluster, leader), (by_lease + 100, by_index + 1));
    cluster.pass(Duration::from_millis(600));
    cluster.ask(leader, read()).unwrap();
    assert_eq!(reads(&mut cluster, leader), (by_lease + 101, by_index + 1));
    let lapsed = |cluster: &mut Cluster, node: usize| {
        cluster.nodes[node].as_mut().unwrap().stats().counters.consistent_promises_lapsed
    };
    assert!((0..3).any(|node| lapsed(&mut cluster, node) > 0));
}

#[test]
fn nodes_of_an_earlier_version_have_no_leases() {
    let data = tempfile::tempdir().unwrap();
    let (mut cluster, leader) = leased(&data, 10);
    let (by_lease, by_index) = reads(&mut cluster, leader);
    get(&mut cluster, leader, "k").unwrap();
    assert_eq!((by_lease, reads(&mut cluster, leader)), (0, (0, by_index + 1)));
}

#[test]
fn a_clean_stop_hands_its_groups_over_at_once() {
    let data = tempfile::tempdir().unwrap();
    let (mut cluster, leader) = leased(&data, protocol::peer::VERSION);
    let stopping = cluster.nodes[leader].as_mut().unwrap();
    stopping.begin_stop();
    assert!(!stopping.is_drained());
    cluster.run();
    let next = (0..3).find(|&node| node != leader && leads(&cluster, node));
    assert!(next.is_some() && !leads(&cluster, leader), "no promise is waited for");
    cluster.pass(Duration::from_millis(100));
    for node in 0..3 {
        let answer = cluster.ask(node, read());
        assert!(matches!(answer, Ok(Response::Found(_))), "{node}: {answer:?}");
    }
    cluster.pass(Duration::from_secs(1));
    assert!(cluster.nodes[leader].as_mut().unwrap().is_drained());
}

#[test]
fn the_preferred_voter_leads_again_after_its_return() {
    let data = tempfile::tempdir().unwrap();
    let (mut cluster, leader) = leased(&data, protocol::peer::VERSION);
    cluster.cut(leader);
    cluster.pass(TAKEOVER);
    let next = (0..3).find(|&node| node != leader && leads(&cluster, node)).unwrap();
    cluster.cuts.clear();
    cluster.pass(Duration::from_secs(5));
    get(&mut cluster, next, "k").unwrap();
    let role = |cluster: &Cluster, node: usize| {
        let groups = cluster.nodes[node].as_ref().unwrap().status().groups();
        let led = groups.iter().filter(|group| group.role == GroupRole::Leader).count();
        (led, groups.first().and_then(|group| group.leader))
    };
    assert_eq!(role(&cluster, next).0, 1, "it was away a moment ago");
    cluster.pass(Duration::from_secs(8));
    assert_eq!(role(&cluster, leader), (1, Some(NodeId(u16::try_from(leader).unwrap()))));
    assert_eq!(role(&cluster, next).0, 0);
    assert_eq!(get(&mut cluster, next, "k").unwrap().1, "one");
}
