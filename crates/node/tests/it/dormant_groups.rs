//! Dormant groups on three nodes: unloaded at rest, loaded by requests, and woken by the death of their leader.

use std::time::Duration;

use kv::{GetRequest, Request};
use node::{GroupReport, GroupRole, StrongReads};
use protocol::peer::VERSION;

use crate::common::cluster::Cluster;
use crate::consistent::{TAKEOVER, bucket, consistent_with, get, key, put};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn dormant(data: &tempfile::TempDir) -> Cluster {
    dormant_with(data, StrongReads::Ask)
}

/// Three nodes of which each unloads all groups at rest, and that have written some keys.
fn dormant_with(data: &tempfile::TempDir, strong_reads: StrongReads) -> Cluster {
    let mut cluster = consistent_with(data, strong_reads, VERSION);
    for shard in cluster.nodes.iter_mut().flatten() {
        shard.bound_live_groups(0);
    }
    for name in NAMES {
        put(&mut cluster, 0, name, "one", None).unwrap();
    }
    cluster.pass(TAKEOVER);
    cluster
}

fn reports(cluster: &Cluster, node: usize) -> Vec<GroupReport> {
    cluster.nodes[node].as_ref().unwrap().status().groups()
}

#[test]
fn groups_at_rest_leave_memory_and_come_back_with_requests() {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = dormant(&data);
    for node in 0..3 {
        let reports = reports(&cluster, node);
        assert!(
            !reports.is_empty() && reports.iter().all(|it| it.is_dormant && it.has_leader),
            "{reports:?}"
        );
    }
    for (node, name) in [(0, "a"), (1, "b"), (2, "c")] {
        let (context, value) = get(&mut cluster, node, name).unwrap();
        assert_eq!(value, "one");
        put(&mut cluster, node, name, "two", Some(context)).unwrap();
        assert_eq!(get(&mut cluster, node, name).unwrap().1, "two");
    }
    let unloads = |node: usize| cluster.nodes[node].as_ref().unwrap().stats().counters.consistent_unloads;
    assert!((0..3).all(|node| unloads(node) > 0));
}

#[test]
fn a_leader_sleeps_while_a_voter_is_away_and_brings_it_up_to_date_when_it_is_back() {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = dormant(&data);
    let leader = |cluster: &Cluster| {
        let leads = |it: &GroupReport| it.role == GroupRole::Leader;
        (0..3).find(|node| reports(cluster, *node).iter().any(leads)).unwrap()
    };
    let away = (leader(&cluster) + 1) % 3;
    let asked = (away + 1) % 3;
    cluster.cut(away);
    cluster.pass(TAKEOVER);
    for name in NAMES {
        let (context, _) = get(&mut cluster, asked, name).unwrap();
        put(&mut cluster, asked, name, "two", Some(context)).unwrap();
    }
    cluster.pass(TAKEOVER);
    let others = (0..3).filter(|node| *node != away);
    let sleep: Vec<GroupReport> = others.flat_map(|node| reports(&cluster, node)).collect();
    assert!(sleep.iter().all(|it| it.is_dormant), "{sleep:?}");

    let ends = |cluster: &Cluster, node: usize| -> Vec<u64> {
        reports(cluster, node).iter().map(|it| it.applied).collect()
    };
    assert_ne!(ends(&cluster, away), ends(&cluster, asked));

    // Nobody asks for a key meanwhile.
    cluster.cuts.clear();
    cluster.pass(TAKEOVER * 2);
    assert_eq!(ends(&cluster, away), ends(&cluster, asked), "the voter that was away has all");
    assert!(reports(&cluster, away).iter().all(|it| it.is_dormant));
}

/// Begins the clean stop of a node that leads dormant groups. Then a node reads a key of each group, at most so long
/// after the read was begun.
fn read_while_a_leader_stops(strong_reads: StrongReads, wait: Duration) {
    for asked in 0..3 {
        let data = tempfile::tempdir().unwrap();
        let mut cluster = dormant_with(&data, strong_reads);
        // Requests on other groups renew the promises of all.
        let (context, _) = get(&mut cluster, asked, NAMES[0]).unwrap();
        put(&mut cluster, asked, NAMES[0], "two", Some(context)).unwrap();
        let leads = |report: &GroupReport| report.role == GroupRole::Leader && report.is_dormant;
        let stopped = (0..3).find(|node| reports(&cluster, *node).iter().any(leads)).unwrap();
        cluster.nodes[stopped].as_mut().unwrap().begin_stop();
        cluster.run();
        for name in &NAMES[1..] {
            let id = cluster.begin(asked, Request::Get(GetRequest::new(bucket(), key(name))));
            cluster.pass(wait);
            assert!(matches!(cluster.answers.remove(&id), Some(Ok(_))), "node {asked} key {name}");
        }
    }
}

/// The stop does not end by itself here, so nobody hears of the end of the process.
#[test]
fn requests_on_dormant_groups_wait_for_no_promise_while_their_leader_stops() {
    let wait = strong::promise::PROMISE / 2;
    for strong_reads in [StrongReads::Ask, StrongReads::Lease] {
        read_while_a_leader_stops(strong_reads, wait);
    }
}

/// Whether the groups that a dead node led have another leader in the end, though nobody asks for their keys.
fn others_lead_in_place_of_a_dead_node() -> bool {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = dormant(&data);
    let leads = |report: &GroupReport| report.role == GroupRole::Leader;
    let leader = (0..3).find(|node| reports(&cluster, *node).iter().any(leads)).unwrap();
    let led: Vec<u16> = reports(&cluster, leader).iter().filter(|it| leads(it)).map(|it| it.prefix).collect();
    cluster.kill(leader);
    cluster.pass(TAKEOVER + Duration::from_secs(2));
    let others = (0..3).filter(|node| *node != leader);
    let reports: Vec<GroupReport> = others.flat_map(|node| reports(&cluster, node)).collect();
    led.iter().all(|prefix| reports.iter().any(|it| it.prefix == *prefix && leads(it)))
}

#[test]
fn dormant_groups_of_a_dead_node_have_another_leader() {
    assert!(others_lead_in_place_of_a_dead_node());
}

#[cfg(feature = "planted")]
#[test]
fn planted_dormant_not_woken() {
    base::planted::plant(Some(base::planted::Planted::DormantNotWoken));
    assert!(!others_lead_in_place_of_a_dead_node());
    base::planted::plant(None);
}
