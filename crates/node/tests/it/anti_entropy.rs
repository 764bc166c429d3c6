//! What nodes find that they hold differently, with nobody reading it.

use super::common::cluster::*;
use bytes::Bytes;
use node::Shard;
use std::path::Path;
use std::time::Duration;

#[test]
fn equal_nodes_look_into_nothing() {
    let data = folder();
    let mut cluster = comparing(&data);
    for key in 0..50 {
        cluster.put(key % 3, &format!("k{key}"), "v").unwrap();
        cluster.put(key % 3, &format!("k{key}"), "w").unwrap();
    }
    cluster.ask(1, kv::Request::Delete(delete("k7"))).unwrap();
    cluster.pass(Duration::from_secs(5));
    assert_eq!(sum(&cluster, |it| it.exchanges + it.exchanges_failed), 0);
    assert_eq!(sum(&cluster, |it| it.trees_made), 3 * 16, "each partition is on each of three nodes");
    let stats = cluster.nodes[0].as_ref().unwrap().stats();
    assert_eq!((stats.tree_keys, stats.trees_due), (50, 0));
    assert!(cluster.idle());
    // Each round of comparing made the nodes ask each other four times a second for five seconds.
    cluster.pass(Duration::from_secs(10));
    assert!(cluster.nodes.iter().flatten().all(Shard::is_quiet));
}

#[test]
fn what_one_node_alone_has_comes_to_all() {
    let data = folder();
    let mut cluster = comparing(&data);
    cluster.put(0, "k", "v").unwrap();
    let names: Vec<String> = (0..40).map(|key| format!("planted{key}")).collect();
    for (at, name) in names.iter().enumerate() {
        plant(&mut cluster, at % 3, name);
    }
    cluster.pass(Duration::from_secs(60));
    for name in &names {
        for node in 0..3 {
            assert_eq!(cluster.has(node, name), ["v"], "{name} on {node}");
        }
    }
    let found = sum(&cluster, |it| it.exchange_keys);
    assert!((40..=80).contains(&found), "a key is found by one of two pairs, or both: {found}");
    // What was repaired is in the trees.
    cluster.pass(Duration::from_secs(5));
    assert_eq!(sum(&cluster, |it| it.exchange_keys), found);
    assert_eq!(sum(&cluster, |it| it.trees_wrong), 0);
    assert!(cluster.idle());
}

#[test]
#[allow(clippy::disallowed_methods, reason = "it takes a node's disk away")]
fn a_node_that_has_lost_its_disk_has_all_again() {
    let data = folder();
    let mut cluster = comparing(&data);
    let names: Vec<String> = (0..300).map(|key| format!("k{key}")).collect();
    for (at, name) in names.iter().enumerate() {
        cluster.put(at % 3, name, "v").unwrap();
    }
    cluster.kill(2);
    std::fs::remove_dir_all(cluster.data.join(NAMES[2])).unwrap();
    cluster.pass(Duration::from_secs(3));
    cluster.start(2);
    cluster.pass(Duration::from_secs(120));
    let stats = cluster.nodes[2].as_ref().unwrap().stats();
    assert_eq!(stats.tree_keys, 300);
    for name in names.iter().step_by(20) {
        assert_eq!(cluster.has(2, name), ["v"], "{name}");
    }
    assert_eq!(sum(&cluster, |it| it.trees_wrong), 0);
}

/// Trees are as they were after a stop, and after a kill: nothing is read again, and nothing is found to differ.
#[test]
fn trees_outlive_a_process() {
    let data = folder();
    let mut cluster = comparing(&data);
    assert_eq!(sum(&cluster, |it| it.trees_made), 3 * 16, "nobody has left any");
    for node in 0..3 {
        cluster.stop(node);
        cluster.start(node);
    }
    cluster.pass(Duration::from_secs(1));
    for key in 0..300 {
        cluster.put(key % 3, &format!("k{key}"), "v").unwrap();
        if key % 50 == 7 {
            cluster.ask(1, kv::Request::Delete(delete(&format!("k{key}")))).unwrap();
        }
    }
    let keys = |cluster: &Cluster, node: usize| cluster.nodes[node].as_ref().unwrap().stats().tree_keys;
    cluster.pass(Duration::from_secs(1));
    let before: Vec<u64> = (0..3).map(|node| keys(&cluster, node)).collect();
    cluster.stop(0);
    cluster.start(0);
    cluster.kill(1);
    cluster.start(1);
    cluster.pass(Duration::from_secs(1));
    cluster.put(2, "k1", "w").unwrap();
    cluster.kill(1);
    cluster.start(1);
    cluster.pass(Duration::from_secs(5));
    assert_eq!((0..3).map(|node| keys(&cluster, node)).collect::<Vec<_>>(), before);
    let kept = |node: usize| cluster.nodes[node].as_ref().unwrap().stats().counters.trees_kept;
    assert_eq!((kept(0), kept(1), kept(2)), (16, 16, 16));
    assert_eq!(sum(&cluster, |it| it.trees_made + it.trees_wrong + it.exchanges), 0);
}

/// Until a merge put the block aside, its partition had no trees, and nothing of it was compared.
#[test]
#[allow(clippy::disallowed_methods, reason = "it damages the store's files behind its back")]
fn a_damaged_block_keeps_no_partition_from_being_compared() {
    let data = folder();
    let mut cluster = comparing(&data);
    for key in 0..400 {
        cluster.put(key % 3, &format!("k{key}"), "v").unwrap();
    }
    cluster.stop(2);
    damage_a_block(&cluster.data.join(NAMES[2]).join("shard-000"));
    std::fs::remove_file(cluster.data.join(NAMES[2]).join("shard-000/CHECKPOINTS")).unwrap();
    cluster.start(2);
    cluster.pass(Duration::from_secs(60));
    let stats = cluster.nodes[2].as_ref().unwrap().stats();
    assert!(stats.counters.trees_made >= 16 && stats.trees_due == 0);
    assert!(sum(&cluster, |it| it.exchange_keys) > 0);
    assert_eq!(sum(&cluster, |it| it.trees_wrong), 0);
    for key in 0..400 {
        assert_eq!(cluster.has(2, &format!("k{key}")), ["v"], "{key}");
    }
}

/// The tree went on telling of a key that had left with its hint: wrong for good, once the node became a primary of it.
#[test]
fn what_was_kept_for_another_leaves_the_tree_when_it_is_home() {
    let data = folder();
    let mut cluster = comparing(&data);
    let single = kv::Bucket::untyped(Bytes::from_static(b"single"));
    cluster.ask(0, kv::Request::SetProps(single.clone(), vec![kv::Prop::NVal(1)])).unwrap();
    cluster.pass(Duration::from_secs(5));
    cluster.kill(2);
    cluster.pass(Duration::from_secs(5));
    for key in 0..60 {
        let key = Bytes::from(format!("k{key}"));
        let put =
            kv::PutRequest::new(single.clone(), Some(key), Default::default(), Bytes::from_static(b"v"));
        cluster.ask(0, kv::Request::put(put)).unwrap();
    }
    let keys =
        |cluster: &Cluster| cluster.nodes.iter().flatten().map(|shard| shard.stats().tree_keys).sum::<u64>();
    assert_eq!(keys(&cluster), 60);
    cluster.start(2);
    cluster.pass(Duration::from_secs(20));
    assert!(sum(&cluster, |it| it.hints_home) > 0);
    assert_eq!(keys(&cluster), 60, "each at one node");
}

/// Copies the files of a node that is stopped.
#[allow(clippy::disallowed_methods, reason = "it does so behind the node's back")]
fn copy(from: &Path, to: &Path) {
    for file in files_below(from) {
        let copy = to.join(file.strip_prefix(from).unwrap());
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(&file, copy).unwrap();
    }
}

/// The node that was behind read what it had of each, too.
#[test]
#[allow(clippy::disallowed_methods, reason = "it gives a node its older data back")]
fn one_value_is_read_for_each_key_that_differs() {
    let data = folder();
    let mut cluster = three(&data);
    cluster.anti_entropy = Some(Duration::from_secs(86_400));
    for node in 0..3 {
        cluster.stop(node);
        cluster.start(node);
    }
    cluster.pass(Duration::from_secs(1));
    let names: Vec<String> = (0..200).map(|key| format!("k{key}")).collect();
    for name in &names {
        cluster.put(0, name, &long("v")).unwrap();
    }
    cluster.pass(Duration::from_secs(1));
    let (now, old) = (cluster.data.join(NAMES[2]), cluster.data.join("old"));
    cluster.stop(2);
    copy(&now, &old);
    cluster.start(2);
    cluster.pass(Duration::from_secs(1));
    for name in names.iter().step_by(10) {
        let context = Some(context_of(&mut cluster, 0, name));
        let newer = kv::PutRequest { context, ..put(name, &long("w")) };
        cluster.ask(0, kv::Request::put(newer)).unwrap();
    }
    cluster.pass(Duration::from_secs(1));
    cluster.stop(2);
    std::fs::remove_dir_all(&now).unwrap();
    copy(&old, &now);
    cluster.start(2);
    cluster.pass(Duration::from_secs(3));
    let reads = |cluster: &Cluster| -> u64 {
        let of = |shard: &node::Shard| shard.stats().store.counters.journal_reads_wanted;
        cluster.nodes.iter().flatten().map(of).sum()
    };
    let before = reads(&cluster);
    assert_eq!(cluster.nodes[2].as_mut().unwrap().control().compare_trees(None), 16);
    cluster.pass(Duration::from_secs(30));
    assert_eq!(sum(&cluster, |it| it.exchange_keys), 20);
    assert_eq!(reads(&cluster) - before, 20);
    for name in &names[..20] {
        let expected = long(if matches!(name.as_str(), "k0" | "k10") { "w" } else { "v" });
        assert_eq!(cluster.has(2, name), [expected], "{name}");
    }
    assert_eq!(sum(&cluster, |it| it.trees_wrong), 0);
}
