//! What is found lost when trees are made anew from what is stored, and comes back from the other nodes.

#![allow(clippy::disallowed_methods, reason = "it damages stores' files behind their back")]

use super::common::cluster::*;
use engine::fold::JournalCheck;
use node::{Rebuilding, Turns};
use ring::Partition;
use std::path::{Path, PathBuf};
use std::time::Duration;

const KEYS: usize = 200;

fn name(key: usize) -> String {
    format!("k{key:03}")
}

/// Three nodes that compare what they hold every second, with values in some segments of the journal.
fn filled(data: &tempfile::TempDir) -> Cluster {
    let mut cluster = Cluster::new(data.path(), 3, kv::ReadStrategy::LocalValue);
    cluster.anti_entropy = Some(Duration::from_secs(1));
    cluster.options.segment_bytes_target = 256 << 10;
    for node in 0..3 {
        cluster.stop(node);
        cluster.start(node);
    }
    for key in 0..KEYS {
        cluster.put(key % 3, &name(key), &long(&name(key))).unwrap();
    }
    cluster.pass(Duration::from_secs(3));
    cluster
}

/// Does something to the files of the last node while it is stopped.
fn behind_its_back(cluster: &mut Cluster, damage: impl FnOnce(&Path)) {
    cluster.stop(2);
    damage(&cluster.data.join(NAMES[2]).join("shard-000"));
    cluster.start(2);
    cluster.pass(Duration::from_secs(3));
}

/// The files of a store's folder, by their names.
fn files(folder: PathBuf) -> Vec<PathBuf> {
    let mut files = files_below(&folder);
    files.sort();
    files
}

fn all_are_there(cluster: &mut Cluster) {
    for key in 0..KEYS {
        assert_eq!(cluster.has(2, &name(key)), [long(&name(key))], "{key}");
    }
}

fn damaged(cluster: &Cluster) -> u64 {
    cluster.nodes[2].as_ref().unwrap().stats().counters.rebuild_damaged
}

fn rebuild(cluster: &mut Cluster, check: JournalCheck) -> u64 {
    let before = damaged(cluster);
    assert_eq!(cluster.nodes[2].as_mut().unwrap().control().rebuild_trees(None, check), 16);
    cluster.pass(Duration::from_secs(30));
    damaged(cluster) - before
}

#[test]
fn damaged_values_are_found_by_reading_them() {
    let data = folder();
    let mut cluster = filled(&data);
    let mut hit = 0;
    behind_its_back(&mut cluster, |store| {
        for path in files(store.join("journal")) {
            let mut bytes = std::fs::read(&path).unwrap();
            // Some of them in a value, some in what says whose it is.
            for at in (5000..bytes.len()).step_by(200_003) {
                bytes[at] ^= 1;
                hit += 1;
            }
            for at in (0..KEYS).step_by(17) {
                let key = [b"b".as_slice(), name(at).as_bytes()].concat();
                if let Some(place) = bytes.windows(4).position(|window| window == &key[1..]) {
                    bytes[place] ^= 1;
                    hit += 1;
                }
            }
            std::fs::write(&path, bytes).unwrap();
        }
    });
    assert_eq!(rebuild(&mut cluster, JournalCheck::Presence), 0, "all are where they should be");
    let found = rebuild(&mut cluster, JournalCheck::Checksum);
    assert!((10..=hit).contains(&found), "{found} of {hit}");
    assert_eq!(rebuild(&mut cluster, JournalCheck::Checksum), 0, "they are healed");
    all_are_there(&mut cluster);
}

#[test]
fn a_lost_segment_is_found_without_reading() {
    let data = folder();
    let mut cluster = filled(&data);
    behind_its_back(&mut cluster, |store| {
        let mut segments = files(store.join("journal"));
        // It needs the one that is written to start.
        segments.pop();
        let largest = segments.iter().max_by_key(|path| std::fs::metadata(path).unwrap().len());
        std::fs::remove_file(largest.unwrap()).unwrap();
    });
    assert_eq!(rebuild(&mut cluster, JournalCheck::None), 0, "the ledger has all of them");
    let found = rebuild(&mut cluster, JournalCheck::Presence);
    assert!(found > 20, "{found}");
    assert_eq!(rebuild(&mut cluster, JournalCheck::Presence), 0);
    all_are_there(&mut cluster);
    let trees = cluster.nodes[2].as_ref().unwrap().status().trees();
    assert_eq!(trees.iter().map(|status| status.damaged).sum::<u64>(), found);
    assert!(trees.iter().all(|status| status.is_whole && !status.is_due && status.compared.is_some()));
}

#[test]
fn a_lost_table_comes_back_by_exchanges() {
    let data = folder();
    let mut cluster = filled(&data);
    behind_its_back(&mut cluster, |store| {
        let tables = files(store.join("tables"));
        std::fs::remove_file(&tables[0]).unwrap();
    });
    cluster.pass(Duration::from_secs(60));
    all_are_there(&mut cluster);
}

/// A block is damaged that nobody reads, while trees that an earlier process has left tell of what it had.
fn a_damaged_block_comes_back(found_by: impl FnOnce(&mut Cluster)) {
    let data = folder();
    let mut cluster = filled(&data);
    cluster.options.level0_tables_max = 100;
    behind_its_back(&mut cluster, damage_a_block);
    for key in 0..3 {
        cluster.put(0, &name(key), &long(&name(key))).unwrap();
        cluster.stop(2);
        cluster.start(2);
        cluster.pass(Duration::from_secs(1));
    }
    cluster.stop(2);
    found_by(&mut cluster);
    cluster.start(2);
    cluster.pass(Duration::from_secs(120));
    let counters = cluster.nodes[2].as_ref().unwrap().stats().counters;
    assert!(
        counters.trees_kept == 16 && counters.trees_made > 0 && counters.trees_wrong == 0,
        "{counters:?}"
    );
    all_are_there(&mut cluster);
}

#[test]
fn what_a_merge_finds_lost_comes_back() {
    a_damaged_block_comes_back(|cluster| cluster.options.level0_tables_max = 2);
}

#[test]
fn what_the_scrub_finds_lost_in_a_table_comes_back() {
    a_damaged_block_comes_back(|cluster| cluster.options.scrub_period = Duration::from_secs(60));
}

#[test]
fn partitions_are_made_anew_by_their_timers() {
    let data = folder();
    let mut cluster = filled(&data);
    let every = Some(Duration::from_secs(20));
    cluster.rebuilding = Rebuilding { every, check: JournalCheck::Checksum, turns: Turns::Node };
    cluster.stop(1);
    cluster.start(1);
    cluster.pass(Duration::from_secs(5));
    let made = |cluster: &Cluster, node: usize| {
        let stats = cluster.nodes[node].as_ref().unwrap().stats();
        (stats.counters.trees_made, stats.counters.trees_wrong)
    };
    assert_eq!(made(&cluster, 1), (0, 0), "it has those that it had");
    // By half of the time none, by one and a half each, at different times.
    cluster.pass(Duration::from_secs(15));
    let (some, _) = made(&cluster, 1);
    assert!((1..16).contains(&some), "{some}");
    cluster.pass(Duration::from_secs(15));
    assert!(made(&cluster, 1).0 >= 16);
    let trees = cluster.nodes[1].as_ref().unwrap().status().trees();
    assert!(trees.iter().all(|status| status.check == Some(JournalCheck::Checksum) && status.others == 0));
    // One at a time in the whole cluster: this node's turn comes once in three minutes, and it is the last.
    cluster.rebuilding.turns = Turns::Cluster;
    cluster.stop(2);
    cluster.start(2);
    let mut at = Vec::new();
    for second in 0..360 {
        let turn = |cluster: &Cluster| base::Clock::wall(&*cluster.clock).0 / 60_000_000 % 3;
        let before = (made(&cluster, 2).0, turn(&cluster));
        cluster.pass(Duration::from_secs(1));
        if made(&cluster, 2).0 > before.0 && second > 5 {
            at.push([before.1, turn(&cluster)]);
        }
    }
    assert!(!at.is_empty() && at.iter().all(|turns| turns.contains(&2)), "{at:?}");
}

#[test]
fn an_operator_has_one_partition_compared_or_made_anew() {
    let data = folder();
    let mut cluster = filled(&data);
    let shard = cluster.nodes[0].as_mut().unwrap();
    let made = shard.stats().counters.trees_made;
    assert_eq!(shard.control().rebuild_trees(Some(Partition(3)), JournalCheck::Presence), 1);
    assert_eq!(shard.control().rebuild_trees(Some(Partition(16)), JournalCheck::Presence), 0);
    assert_eq!(
        (shard.control().compare_trees(Some(Partition(3))), shard.control().compare_trees(None)),
        (1, 16)
    );
    cluster.pass(Duration::from_millis(100));
    let shard = cluster.nodes[0].as_ref().unwrap();
    assert_eq!(shard.stats().counters.trees_made, made + 1);
    let trees = shard.status().trees();
    assert_eq!(trees.len(), 16);
    let checks = trees.iter().filter(|status| status.check == Some(JournalCheck::Presence));
    assert_eq!(checks.map(|status| status.partition).collect::<Vec<_>>(), [Partition(3)]);
    assert!(
        trees.iter().all(|status| status.compared.is_some_and(|(ago, _)| ago < Duration::from_millis(200)))
    );
    assert_eq!(trees.iter().map(|status| status.keys).sum::<u64>(), KEYS as u64);
}
