//! A consistent group that lost its majority, recovered from its survivor; lost stores that are found again.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Embedded, Machine, Options};
use node::consistent::agreement::Agreement;
use node::layout::shard_dir;
use node::peer::NodeId;
use node::{GROUPS, INDEXING, KnownCluster, Layout, RecoverableGroup, ShardId, recoveries};
use os::{OsClock, OsDisk, OsRng};
use ring::{Birth, RingSize};

use crate::common::cluster::{Cluster, NAMES};
use crate::consistent::{TAKEOVER, agree_on_births, agreement, consistent, get, put};

/// Recovers all groups of the first node's store, which is closed. The stores of the others are lost.
fn recover(cluster: &Cluster, agreed: &Agreement) {
    let stores = agreed.processes.iter().map(|(&node, process)| (node, process.stores.clone()));
    let known = KnownCluster {
        node: NodeId(0),
        foundings: BTreeMap::clone(&agreed.foundings),
        stores: stores.collect(),
        prefixes: Layout::new(1, RingSize::new(16).unwrap()).prefixes,
    };
    let machine = Machine::new(OsDisk::blocking().blocking_handles(), OsClock::new(), OsRng::new());
    let options = Options { indexing: Some(INDEXING), groups: Some(GROUPS), ..Options::default() };
    let folder = shard_dir(&cluster.data.join(NAMES[0]), 0);
    let mut store = Embedded::open(&folder, options, machine).unwrap();
    let judged = recoveries(store.store().take_groups(), ShardId(0), &known);
    let groups: Vec<RecoverableGroup> = judged.into_iter().map(|it| it.outcome.unwrap()).collect();
    let entries: Vec<_> = groups.iter().map(RecoverableGroup::entries).collect();
    let batches: Vec<_> = groups.iter().zip(&entries).map(|(group, entries)| group.batch(entries)).collect();
    store.propose_all(&batches).unwrap();
    store.close().unwrap();
}

#[test]
fn lost_writes_do_not_come_back_with_a_store_that_is_found_again() {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = consistent(&data);
    put(&mut cluster, 0, "k", "kept", None).unwrap();
    let founded = agreement(&cluster);
    cluster.pass(TAKEOVER);
    cluster.stop(0);
    cluster.pass(TAKEOVER);
    let (lost, _) = get(&mut cluster, 1, "k").unwrap();
    put(&mut cluster, 1, "k", "lost", Some(lost)).unwrap();
    put(&mut cluster, 1, "other", "lost", None).unwrap();
    let (lost, _) = get(&mut cluster, 1, "k").unwrap();
    (1..3).for_each(|node| cluster.stop(node));

    // The declaration of the loss: other births, and another epoch.
    for node in [1, 2] {
        cluster.births[node] = Birth::of(77 + node as u64);
    }
    let mut foundings = BTreeMap::clone(&founded.foundings);
    foundings.get_mut(&3).unwrap().epoch = 1;
    let declared = Agreement { foundings: Arc::new(foundings), ..agreement(&cluster) };
    recover(&cluster, &declared);
    (0..3).for_each(|node| cluster.start(node));
    agree_on_births(&mut cluster, &declared);

    for node in 0..3 {
        assert_eq!(get(&mut cluster, node, "k").unwrap().1, "kept", "node {node}");
        assert_eq!(get(&mut cluster, node, "other"), None, "node {node}");
    }
    assert!(put(&mut cluster, 0, "k", "new", Some(lost.clone())).is_err(), "the context of a lost write");
    let (context, _) = get(&mut cluster, 0, "k").unwrap();
    put(&mut cluster, 2, "k", "new", Some(context)).unwrap();
    assert!(put(&mut cluster, 0, "k", "newer", Some(lost)).is_err(), "still of a lost write");
    cluster.pass(TAKEOVER);
    cluster.kill(0);
    cluster.pass(TAKEOVER);
    assert_eq!(get(&mut cluster, 1, "k").unwrap().1, "new", "the stores that were found again vote");
    let (context, _) = get(&mut cluster, 1, "k").unwrap();
    put(&mut cluster, 2, "k", "newest", Some(context)).unwrap();
    assert_eq!(get(&mut cluster, 1, "k").unwrap().1, "newest");
}
