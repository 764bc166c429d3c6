//! Index entries of a cluster's nodes: after writes, conflicts, deletions and hints, each node has those of its
//! objects.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::cluster::*;
use base::Rng;
use base::rng::SplitMix64;
use bytes::Bytes;
use engine::check::check_index;
use kv::{Bucket, Prop, PutRequest, Request};
use node::layout::shard_dir;
use object::{IndexEntry, Metadata};
use os::OsDisk;
use std::time::Duration;

const KEYS: u64 = 40;

fn last_wins() -> Bucket {
    Bucket::untyped(Bytes::from_static(b"last"))
}

/// A write with some terms, which a client makes who has read nothing.
fn indexed(bucket: Bucket, key: u64, rng: &mut SplitMix64) -> PutRequest {
    let entry = |field: &'static str, term: u64| IndexEntry {
        field: Bytes::from(field),
        value: Bytes::from(term.to_string()),
    };
    let mut indexes = vec![entry("n_int", rng.below(5)), entry("t_bin", rng.below(5))];
    indexes.truncate(rng.below(3) as usize);
    let metadata = Metadata { indexes, ..Metadata::default() };
    PutRequest::new(bucket, Some(Bytes::from(format!("k{key}"))), metadata, Bytes::from_static(b"value"))
}

/// Stops all nodes, and tells how many entries each has, all of them right.
fn entries(cluster: &mut Cluster) -> Vec<u64> {
    let count = cluster.nodes.len();
    (0..count).for_each(|node| cluster.stop(node));
    let entries = (0..count).map(|node| {
        let folder = shard_dir(&cluster.data.join(NAMES[node]), 0);
        let mut findings = Vec::new();
        let mut disk = OsDisk::blocking().blocking_handle();
        let found =
            check_index(&mut disk, &folder, &node::INDEXING, 1, &mut |finding| findings.push(finding.what));
        assert_eq!(findings, [""; 0]);
        found.unwrap().expect("the index is whole")
    });
    entries.collect()
}

#[test]
fn nodes_have_the_entries_of_their_objects() {
    let folder = folder();
    let mut cluster = three(&folder);
    let mut rng = SplitMix64::new(5);
    cluster.ask(0, Request::SetProps(last_wins(), vec![Prop::LastWriteWins(true)])).unwrap();
    for round in 0..600 {
        let (node, key) = (rng.below(2) as usize, rng.below(KEYS));
        match round {
            200 => cluster.kill(2),
            400 => {
                cluster.start(2);
                cluster.pass(Duration::from_secs(5));
            }
            _ => {}
        }
        match rng.below(10) {
            0 => drop(cluster.ask(node, Request::Delete(delete(&format!("k{key}"))))),
            1..=3 => drop(cluster.ask(node, Request::put(indexed(last_wins(), key, &mut rng))).unwrap()),
            4..=6 => {
                // One who has read: siblings go, and their entries.
                let mut put = indexed(bucket(), key, &mut rng);
                if !cluster.values(node, &format!("k{key}")).is_empty() {
                    put.context = Some(context_of(&mut cluster, node, &format!("k{key}")));
                }
                drop(cluster.ask(node, Request::put(put)).unwrap());
            }
            _ => drop(cluster.ask(node, Request::put(indexed(bucket(), key, &mut rng))).unwrap()),
        }
    }
    for _ in 0..20 {
        cluster.pass(Duration::from_secs(1));
    }
    let entries = entries(&mut cluster);
    assert!(entries[0] > 30 && entries.iter().all(|&count| count == entries[0]), "{entries:?}");
}
