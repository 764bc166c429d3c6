//! Tombstones of consistent keys are reaped, and reaping ends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use node::Shard;

use crate::common::cluster::Cluster;
use crate::consistent::{TAKEOVER, consistent, delete, leads, put};

/// A time in which a leader has reaped a deletion: two intervals.
const REAPED: Duration = Duration::from_mins(11);

/// A time after which a voter that is away does not hold reaping up any more.
const FORGIVEN: Duration = Duration::from_mins(75);

/// A step of long times: nothing in these tests is due sooner.
const STEP: Duration = Duration::from_secs(2);

/// Lets a long time pass.
fn pass_long(cluster: &mut Cluster, time: Duration) {
    for _ in 0..time.as_secs() / STEP.as_secs() {
        cluster.clock.0.fetch_add(u64::try_from(STEP.as_nanos()).unwrap(), Ordering::Relaxed);
        cluster.nodes.iter_mut().flatten().for_each(Shard::tick);
        cluster.run();
    }
}

/// Three nodes that unload groups at rest, and that have written and deleted a key; the leader of its group.
fn deleted(data: &tempfile::TempDir) -> (Cluster, usize) {
    let mut cluster = consistent(data);
    for shard in cluster.nodes.iter_mut().flatten() {
        shard.bound_live_groups(0);
    }
    put(&mut cluster, 0, "k", "one", None).unwrap();
    delete(&mut cluster, 0, "k", None).unwrap();
    // Its preferred voter leads by then.
    cluster.pass(Duration::from_secs(15));
    let leader = (0..3).find(|&node| leads(&cluster, node)).unwrap();
    (cluster, leader)
}

/// The last entry of the only group, and whether it is dormant.
fn end_at(cluster: &Cluster, node: usize) -> (u64, bool) {
    let groups = cluster.nodes[node].as_ref().unwrap().status().groups();
    assert_eq!(groups.len(), 1, "one key was written");
    (groups[0].last, groups[0].is_dormant)
}

#[test]
fn a_leader_reaps_a_deletion_once_and_then_sleeps() {
    let data = tempfile::tempdir().unwrap();
    let (mut cluster, leader) = deleted(&data);
    let (last, is_dormant) = end_at(&cluster, leader);
    assert!(!is_dormant, "it has to reap the deletion");
    assert!(end_at(&cluster, (leader + 1) % 3).1, "a follower has not");

    pass_long(&mut cluster, REAPED);
    assert_eq!(end_at(&cluster, leader), (last + 1, true), "one entry, then it sleeps");
    pass_long(&mut cluster, REAPED * 3);
    assert_eq!(end_at(&cluster, leader), (last + 1, true), "no further entry is proposed");
}

#[test]
fn the_next_leader_reaps_the_deletions_that_it_has_applied() {
    let data = tempfile::tempdir().unwrap();
    let (mut cluster, leader) = deleted(&data);
    // A follower has no timer, and sleeps.
    pass_long(&mut cluster, REAPED / 2);
    cluster.kill(leader);
    cluster.pass(TAKEOVER + Duration::from_secs(15));
    let next = (0..3).find(|&node| node != leader && leads(&cluster, node)).unwrap();
    let (last, _) = end_at(&cluster, next);
    pass_long(&mut cluster, REAPED);
    assert_eq!(end_at(&cluster, next).0, last, "the dead voter may have an older version of the key");
    pass_long(&mut cluster, FORGIVEN);
    assert_eq!(end_at(&cluster, next).0, last + 1);
}
