//! Partitions that move between nodes which serve.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::cluster::{Cluster, NAMES, TESTS_OWN, bucket, files_below, folder, put};
use bytes::Bytes;
use kv::{Answer, Ask, Bucket, GetRequest, NodeId, Prop, PutRequest, Quorum, Request, Response, Want};
use node::{AskId, Epoch, Layout, Members, PeerMessage, Topology};
use object::Metadata;
use ring::{MemberState, Ring, RingSize, RingVersion};
use std::sync::Arc;
use std::time::Duration;

const NODES: usize = 4;
const KEYS: usize = 40;

fn layout() -> Layout {
    Layout::new(1, RingSize::new(16).unwrap())
}

fn members(here: usize) -> Members {
    Members::new(NAMES[..NODES].iter().copied(), NAMES[here]).unwrap()
}

/// A ring that these nodes own in turn.
fn ring(version: u64, owners: &[u16]) -> Arc<Ring> {
    ring_of(version, 16, owners)
}

/// The same of so many partitions.
fn ring_of(version: u64, partitions: u32, owners: &[u16]) -> Arc<Ring> {
    let size = RingSize::new(partitions).unwrap();
    let owned = owners.iter().copied().cycle().take(size.all().len()).map(NodeId).collect();
    let members = Arc::clone(members(0).of_ring());
    Arc::new(Ring::new(RingVersion(version), size, members, owned).unwrap())
}

fn topology(node: usize, epoch: u64, rings: [Option<&Arc<Ring>>; 3]) -> Topology {
    let [before, ring, target] = rings.map(|ring| ring.cloned());
    let at_rest = Topology::at_rest(Arc::new(members(node)), ring.unwrap());
    Topology { epoch: Epoch(epoch), before, target, ..at_rest }
}

fn publish(cluster: &mut Cluster, epoch: u64, rings: [Option<&Arc<Ring>>; 3]) {
    for node in 0..NODES {
        if let Some(shard) = &mut cluster.nodes[node] {
            shard.topology(topology(node, epoch, rings));
        }
    }
    cluster.run();
}

fn ledger_key(key: &str) -> Bytes {
    let (bucket, key) = (bucket(), key.as_bytes());
    let prefix = layout().prefix(&bucket, key);
    let mut out = Vec::new();
    object::key::encode_object_key(prefix, &bucket.bucket_type, &bucket.name, key, &mut out);
    out.into()
}

/// Whether a node has a key itself.
fn has(cluster: &mut Cluster, node: usize, key: &str) -> bool {
    let ask = Ask::Read { want: Want::Head };
    let id = AskId(TESTS_OWN << 8);
    let other = (node + 1) % NODES;
    let message = PeerMessage::Ask { id, ttl_ms: 1000, life: 0, key: ledger_key(key), ask };
    cluster.told = None;
    cluster.deliver(other, node, &message);
    cluster.run();
    matches!(cluster.told.take().expect("it answers"), Ok(Answer::Read(Some(_))))
}

fn is_primary(ring: &Ring, node: usize, key: &str) -> bool {
    let bucket = bucket();
    let mut list = ring.preflist_of_key(&bucket.bucket_type, &bucket.name, key.as_bytes(), 3);
    list.any(|entry| usize::from(entry.node.0) == node)
}

fn filled(data: &tempfile::TempDir) -> Cluster {
    let mut cluster = Cluster::new(data.path(), NODES, kv::ReadStrategy::LocalValue);
    publish(&mut cluster, 1, [None, Some(&ring(1, &[0, 1, 2])), None]);
    for key in 0..KEYS {
        cluster.put(key % 3, &format!("k{key}"), "v").unwrap();
    }
    cluster
}

#[test]
fn a_partition_moves_while_it_is_written() {
    let data = folder();
    let mut cluster = filled(&data);
    let (old, new) = (ring(1, &[0, 1, 2]), ring(2, &[0, 1, 3]));
    assert_eq!(cluster.adopted, [Epoch(1); NODES]);
    publish(&mut cluster, 2, [None, Some(&old), Some(&new)]);
    cluster.pass(Duration::from_millis(300));
    cluster.put(0, "late", "v").unwrap();
    cluster.pass(Duration::from_secs(3));
    assert_eq!((cluster.adopted[3], cluster.copied.clone()), (Epoch(2), vec![RingVersion(2); NODES]));
    let status = cluster.nodes[3].as_ref().unwrap().status().transfers();
    assert_eq!((status.len(), status[0].from, status[0].partitions_left), (1, NodeId(2), 0));
    assert!(status[0].objects >= KEYS as u64 && status[0].failures == 0);
    assert!(has(&mut cluster, 3, "late") && has(&mut cluster, 2, "late"));
    publish(&mut cluster, 3, [Some(&old), Some(&new), None]);
    cluster.put(1, "switched", "v").unwrap();
    assert!(has(&mut cluster, 2, "switched"), "somebody may go by the ring before");
    publish(&mut cluster, 4, [None, Some(&new), None]);
    cluster.pass(Duration::from_secs(2));
    for key in (0..KEYS).map(|key| format!("k{key}")).chain(["late".to_owned(), "switched".to_owned()]) {
        assert_eq!(cluster.values(2, &key), ["v"]);
        for node in 0..NODES {
            assert_eq!(has(&mut cluster, node, &key), is_primary(&new, node, &key), "{key} at node {node}");
        }
    }
}

/// Smaller partitions, of which each has other owners than the larger one that it was a part of.
#[test]
fn a_ring_grows_while_it_is_written() {
    let data = folder();
    let mut cluster = filled(&data);
    let (old, new) = (ring(1, &[0, 1, 2]), ring_of(2, 64, &[0, 1, 2, 3]));
    let mut keys: Vec<String> = (0..KEYS).map(|key| format!("k{key}")).collect();
    let mut write = |cluster: &mut Cluster, step: &str| {
        for at in 0..KEYS {
            let key = format!("{step}{at}");
            cluster.put(at % NODES, &key, "v").unwrap();
            keys.push(key);
        }
    };
    publish(&mut cluster, 2, [None, Some(&old), Some(&new)]);
    write(&mut cluster, "copying");
    cluster.pass(Duration::from_secs(5));
    assert_eq!(cluster.copied, [RingVersion(2); NODES]);
    // Only node 3 is to have what it had not: three of four of the 64.
    let status = cluster.nodes[3].as_ref().unwrap().status().transfers();
    assert!(status.iter().all(|it| it.partitions_left == 0));
    assert!((0..3).all(|node| cluster.nodes[node].as_ref().unwrap().status().transfers().is_empty()));
    // Nodes hear of the next step at different times.
    cluster.nodes[0].as_mut().unwrap().topology(topology(0, 3, [Some(&old), Some(&new), None]));
    cluster.nodes[3].as_mut().unwrap().topology(topology(3, 3, [Some(&old), Some(&new), None]));
    write(&mut cluster, "between");
    publish(&mut cluster, 3, [Some(&old), Some(&new), None]);
    write(&mut cluster, "switched");
    publish(&mut cluster, 4, [None, Some(&new), None]);
    write(&mut cluster, "rest");
    cluster.pass(Duration::from_secs(3));
    for key in keys {
        for node in 0..NODES {
            assert_eq!(cluster.values(node, &key), ["v"], "{key} from node {node}");
            assert_eq!(has(&mut cluster, node, &key), is_primary(&new, node, &key), "{key} at node {node}");
        }
    }
    assert!(cluster.nodes.iter().flatten().all(|shard| shard.status().has_given_all()));
}

#[test]
fn a_write_is_confirmed_by_those_who_leave_and_come_together() {
    let data = folder();
    let mut cluster = filled(&data);
    let (old, new) = (ring(1, &[0, 1, 2]), ring(2, &[0, 1, 3]));
    publish(&mut cluster, 2, [None, Some(&old), Some(&new)]);
    cluster.pass(Duration::from_secs(3));
    cluster.nodes[3] = None;
    let all = |key: &str| {
        let mut put = put(key, "v");
        (put.pw, put.timeout) = (Quorum::All, Some(5000));
        Request::put(put)
    };
    let id = cluster.begin(0, all("k1"));
    cluster.pass(Duration::from_secs(6));
    assert!(cluster.answers.remove(&id).unwrap().is_err(), "node 2 has it, and node 3 has not");
    cluster.put(0, "k2", "v").unwrap();
    cluster.start(3);
    cluster.nodes[3].as_mut().unwrap().topology(topology(3, 2, [None, Some(&old), Some(&new)]));
    cluster.copied[3] = RingVersion(0);
    cluster.pass(Duration::from_secs(5));
    assert_eq!(cluster.copied[3], RingVersion(2), "its checkpoint says that it has all");
    assert_eq!(cluster.nodes[3].as_ref().unwrap().status().transfers()[0].objects, 0);
    assert!(matches!(cluster.ask(0, all("k3")), Ok(Response::Put { .. })));
}

/// Who has everything for the new ring may hear last that it is in force.
#[test]
fn who_comes_passes_on_what_the_new_ring_sends_before_it_knows_of_it() {
    let data = folder();
    let mut cluster = filled(&data);
    let (old, new) = (ring(1, &[0, 1, 2]), ring(2, &[0, 1, 3]));
    publish(&mut cluster, 2, [None, Some(&old), Some(&new)]);
    cluster.pass(Duration::from_secs(3));
    assert_eq!(cluster.copied, [RingVersion(2); NODES]);
    cluster.nodes[0].as_mut().unwrap().topology(topology(0, 3, [Some(&old), Some(&new), None]));
    cluster.put(0, "early", "v").unwrap();
    assert!(has(&mut cluster, 3, "early"), "it was sent by the new ring");
    assert!(has(&mut cluster, 2, "early"), "others read by the old one");
}

#[test]
fn an_older_topology_is_ignored() {
    let data = folder();
    let mut cluster = filled(&data);
    let (old, new) = (ring(1, &[0, 1, 2]), ring(2, &[0, 1, 3]));
    publish(&mut cluster, 2, [None, Some(&old), Some(&new)]);
    publish(&mut cluster, 1, [None, Some(&new), None]);
    assert_eq!(cluster.adopted, [Epoch(2); NODES]);
    assert_eq!(cluster.nodes[0].as_ref().unwrap().status().transfers(), []);
    publish(&mut cluster, 3, [None, Some(&old), None]);
    cluster.pass(Duration::from_secs(3));
    assert!(!has(&mut cluster, 3, "k1"), "what was copied for a target that was given up is dropped");
    assert!(has(&mut cluster, 2, "k1"));
}

#[test]
fn what_nobody_looks_for_here_is_given_up_in_the_end() {
    let data = folder();
    let mut cluster = filled(&data);
    let key = "late";
    // As a disk that was copied from another node's has it: kept there for this one.
    let put = || Request::put(put(key, "v"));
    assert!(matches!(cluster.ask(0, put()), Ok(Response::Put { .. })));
    let (from, to, mut message) = cluster.kept_write.clone().unwrap();
    assert!(to < 3);
    let PeerMessage::Ask { id, life, ask: Ask::Merge { hints, .. }, .. } = &mut message else {
        unreachable!()
    };
    (*id, *life, *hints) = (AskId(TESTS_OWN << 8), 0, vec![NodeId(3)]);
    cluster.deliver(from, 3, &message);
    cluster.run();
    assert!(has(&mut cluster, 3, key));
    cluster.pass(Duration::from_secs(20));
    assert!(!has(&mut cluster, 3, key), "it is on the list of no ring, and the hint is for itself");
    (0..3).for_each(|node| assert!(has(&mut cluster, node, key)));
}

#[test]
fn nothing_is_left_of_a_copy_that_nobody_waits_for() {
    let data = folder();
    let mut cluster = filled(&data);
    let (old, new) = (ring(1, &[0, 1, 2]), ring(2, &[0, 1, 3]));
    // What it sends is lost.
    cluster.cuts.insert((2, 3));
    publish(&mut cluster, 2, [None, Some(&old), Some(&new)]);
    let ask =
        PeerMessage::AskCopy { id: AskId(7 << 8), target: 2, partitions: (0..256).collect(), start: None };
    cluster.deliver(3, 2, &ask);
    cluster.run();
    assert!(!cluster.nodes[2].as_ref().unwrap().is_idle());
    publish(&mut cluster, 3, [None, Some(&old), None]);
    assert!(cluster.idle());
}

#[test]
fn what_is_kept_for_a_forgotten_member_is_for_those_that_have_its_part() {
    let data = folder();
    let mut cluster = filled(&data);
    cluster.kill(2);
    cluster.pass(Duration::from_secs(2));
    for key in 0..KEYS {
        cluster.put(key % 2, &format!("h{key}"), "v").unwrap();
    }
    // Whoever keeps the hints hears of it only after a restart.
    for node in [0, 1] {
        cluster.kill(node);
        cluster.start(node);
    }
    let left =
        members(0).of_ring().iter().filter(|member| member.id != NodeId(2)).cloned().collect::<Vec<_>>();
    let left = Arc::new(ring::Members::new(left).unwrap());
    let owned: Vec<NodeId> = [0, 1, 3].into_iter().cycle().take(16).map(NodeId).collect();
    let new = Ring::new(RingVersion(2), layout().ring_size, Arc::clone(&left), owned.into()).unwrap();
    let new = Arc::new(new);
    for node in [0_u16, 1, 3] {
        let here = Arc::new(Members::of(NodeId(node), Arc::clone(&left)).unwrap());
        let topology = Topology { epoch: Epoch(2), ..Topology::at_rest(here, Arc::clone(&new)) };
        cluster.nodes[usize::from(node)].as_mut().unwrap().topology(topology);
    }
    cluster.run();
    cluster.pass(Duration::from_secs(10));
    let home = |node: usize| cluster.nodes[node].as_ref().unwrap().stats().counters.hints_home;
    assert!(home(0) + home(1) >= KEYS as u64);
}

#[test]
fn copies_are_made_for_numbers_of_replicas_that_only_others_know_of() {
    let asked = |n_vals: &[u32]| {
        let data = folder();
        let mut cluster = filled(&data);
        let (old, new) = (ring(2, &[0, 1, 2, 3]), ring(3, &[0, 1, 3, 2]));
        // Nobody hears what it asks for.
        cluster.cut(3);
        let told = Topology { n_vals: n_vals.into(), ..topology(3, 2, [None, Some(&old), Some(&new)]) };
        cluster.nodes[3].as_mut().unwrap().topology(told);
        cluster.pass(Duration::from_millis(200));
        let transfers = cluster.nodes[3].as_ref().unwrap().status().transfers();
        transfers.iter().map(|transfer| transfer.partitions_left).sum::<usize>()
    };
    let known = asked(&[]);
    assert_eq!((asked(&[3]), asked(&[1]) > known), (known, true), "for those that it knows itself, too");
}

/// Nobody asks whoever it cannot reach, so no question failed either, and operators were not told why nothing came.
#[test]
fn a_copy_whose_sender_was_never_reached_says_why_nothing_comes() {
    let data = folder();
    let mut cluster = filled(&data);
    let (old, new) = (ring(1, &[0, 1, 2]), ring(2, &[0, 1, 3]));
    cluster.stop(2);
    cluster.stop(3);
    cluster.start(3);
    cluster.pass(Duration::from_secs(1));
    cluster.nodes[3].as_mut().unwrap().topology(topology(3, 2, [None, Some(&old), Some(&new)]));
    cluster.pass(Duration::from_secs(60));
    let [status] = &cluster.nodes[3].as_ref().unwrap().status().transfers()[..] else { panic!("one leaves") };
    assert_eq!((status.from, status.running, status.failures), (NodeId(2), false, 0));
    assert!(status.partitions_left > 0);
    assert_eq!(status.reason, Some(kv::Error::Unreachable));
    cluster.start(2);
    cluster.nodes[2].as_mut().unwrap().topology(topology(2, 2, [None, Some(&old), Some(&new)]));
    cluster.pass(Duration::from_secs(5));
    let status = &cluster.nodes[3].as_ref().unwrap().status().transfers()[0];
    assert_eq!((status.partitions_left, &status.reason), (0, &None));
}

/// Keys of a bucket with one replica, written through node 2, of which all are acknowledged.
fn put_single(cluster: &mut Cluster, keys: std::ops::Range<usize>) {
    for key in keys {
        let (bucket, key) = (single(), Bytes::from(format!("s{key}")));
        let put = PutRequest::new(bucket, Some(key), Metadata::default(), Bytes::from_static(b"v"));
        let id = cluster.begin(2, Request::put(put));
        cluster.pass(Duration::from_millis(100));
        assert!(matches!(cluster.answers.remove(&id), Some(Ok(Response::Put { .. }))));
    }
}

fn single() -> Bucket {
    Bucket::untyped(Bytes::from_static(b"single"))
}

#[test]
fn what_a_member_alone_has_is_not_dropped_when_its_part_is_given_away_behind_its_back() {
    let data = folder();
    let mut cluster = filled(&data);
    let props = Request::SetProps(single(), vec![Prop::NVal(1)]);
    assert_eq!(cluster.ask(0, props), Ok(Response::PropsSet));
    put_single(&mut cluster, 0..10);
    // It is declared down while it runs, and goes on serving its own clients.
    cluster.cut(2);
    cluster.pass(Duration::from_secs(2));
    put_single(&mut cluster, 10..20);
    let alone = PutRequest { w: Quorum::One, ..put("alone", "v") };
    assert!(matches!(cluster.ask(2, Request::put(alone)), Ok(Response::Put { .. })));
    let is_down = |member: &ring::Member| match member.id {
        NodeId(2) => ring::Member { state: MemberState::Down, ..member.clone() },
        _ => member.clone(),
    };
    let known = Arc::new(ring::Members::new(members(0).of_ring().iter().map(is_down)).unwrap());
    let ring_of = |version, owners: &[u16]| {
        let owners = ring(version, owners).owners().into();
        Arc::new(Ring::new(RingVersion(version), layout().ring_size, Arc::clone(&known), owners).unwrap())
    };
    let (old, new) = (ring_of(2, &[0, 1, 2]), ring_of(3, &[0, 1, 3]));
    let steps = [[None, Some(&old), Some(&new)], [Some(&old), Some(&new), None], [None, Some(&new), None]];
    for (epoch, rings) in (2..).zip(steps) {
        for node in [0, 1, 3] {
            cluster.nodes[node].as_mut().unwrap().topology(topology(node, epoch, rings));
        }
        cluster.pass(Duration::from_secs(3));
    }
    assert!([0, 1, 3].iter().all(|&node| cluster.adopted[node] == Epoch(4)));
    // It hears of it, at last.
    cluster.cuts.clear();
    cluster.nodes[2].as_mut().unwrap().topology(topology(2, 4, [None, Some(&new), None]));
    cluster.pass(Duration::from_secs(40));
    assert!(!has(&mut cluster, 2, "alone") && cluster.nodes[2].as_ref().unwrap().status().is_vacated());
    cluster.kill(2);
    cluster.pass(Duration::from_secs(2));
    for key in 0..20 {
        let get = GetRequest::new(single(), Bytes::from(format!("s{key}")));
        assert!(matches!(cluster.ask(0, Request::Get(get)), Ok(Response::Found(_))), "s{key}");
    }
    assert_eq!(cluster.values(0, "alone"), ["v"]);
}

/// Runs a move from node 2 to node 3 until node 3 has all.
fn copy_over(cluster: &mut Cluster) -> (Arc<Ring>, Arc<Ring>) {
    let (old, new) = (ring(1, &[0, 1, 2]), ring(2, &[0, 1, 3]));
    publish(cluster, 2, [None, Some(&old), Some(&new)]);
    cluster.pass(Duration::from_secs(20));
    assert_eq!(cluster.copied[3], RingVersion(2));
    (old, new)
}

#[test]
fn what_is_too_large_for_a_part_comes_with_the_next() {
    let data = folder();
    let mut cluster = filled(&data);
    let value = "v".repeat(200 << 10);
    // A page of keys finds them all; a part has room for some, of several partitions.
    (0..60).for_each(|key| drop(cluster.put(key % 3, &format!("large{key}"), &value).unwrap()));
    copy_over(&mut cluster);
    (0..60).for_each(|key| assert!(has(&mut cluster, 3, &format!("large{key}")), "large{key}"));
}

/// Has node 2 lose the first of its tables, with all keys but one that was written later.
#[allow(clippy::disallowed_methods, reason = "it damages the store's files behind its back")]
fn lose_a_table(cluster: &mut Cluster) {
    let start = |cluster: &mut Cluster| {
        cluster.start(2);
        let rings = [None, Some(&ring(1, &[0, 1, 2])), None];
        cluster.nodes[2].as_mut().unwrap().topology(topology(2, 1, rings));
        cluster.pass(Duration::from_millis(300));
    };
    // Each stop makes a table, and the second one leaves nothing of the first to be replayed.
    for _ in 0..2 {
        cluster.stop(2);
        start(cluster);
        cluster.put(2, "kept", "v").unwrap();
    }
    cluster.stop(2);
    let mut tables = files_below(&cluster.data.join(NAMES[2]));
    tables.retain(|file| file.extension().is_some_and(|it| it == "tbl"));
    tables.sort();
    assert!(tables.len() > 1);
    std::fs::write(&tables[0], b"damaged").unwrap();
    start(cluster);
}

#[test]
fn a_sender_that_has_lost_a_table_does_not_stop_a_move() {
    let data = folder();
    let mut cluster = filled(&data);
    lose_a_table(&mut cluster);
    let (old, new) = copy_over(&mut cluster);
    for key in (0..KEYS).map(|key| format!("k{key}")) {
        assert_eq!(has(&mut cluster, 3, &key), is_primary(&new, 3, &key), "{key}");
    }
    let shard = cluster.nodes[3].as_mut().unwrap();
    let losses = shard.control().take_copy_losses();
    assert!(!losses.is_empty());
    for loss in losses {
        assert_eq!((loss.from, loss.others.len()), (NodeId(2), 2), "{loss:?}");
    }
    let senders: Vec<NodeId> = shard.status().transfers().iter().map(|transfer| transfer.from).collect();
    assert_eq!(senders, [NodeId(0), NodeId(1), NodeId(2)]);
    // It is not forgotten whom it asked.
    cluster.kill(3);
    cluster.start(3);
    cluster.nodes[3].as_mut().unwrap().topology(topology(3, 2, [None, Some(&old), Some(&new)]));
    cluster.copied[3] = RingVersion(0);
    cluster.pass(Duration::from_secs(2));
    assert_eq!(
        (cluster.copied[3], cluster.nodes[3].as_ref().unwrap().status().transfers().len()),
        (RingVersion(2), 3)
    );
}
