//! Tombstones are reaped: three nodes, driven by hand.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::cluster::*;
use bytes::Bytes;
use kv::{Error, GetRequest, Request, Response};
use node::{AskId, Layout, PeerMessage, Reaping};
use ring::RingSize;
use std::time::Duration;

/// Three nodes that reap tombstones after 100 ms.
fn reaping(data: &tempfile::TempDir) -> Cluster {
    let mut cluster = three(data);
    cluster.reaping = Reaping { delay: Some(Duration::from_millis(100)), grave: Duration::from_secs(30) };
    (0..3).for_each(|node| cluster.restart(node));
    cluster
}

impl Cluster {
    /// What a node's replica has, and whether that is only a tombstone.
    fn head_at(&mut self, node: usize, key: &str) -> Option<Bytes> {
        let bucket = bucket();
        let layout = Layout::new(1, RingSize::new(16).unwrap());
        let prefix = layout.prefix(&bucket, key.as_bytes());
        let mut ledger_key = Vec::new();
        let (of_type, name) = (&bucket.bucket_type, &bucket.name);
        object::key::encode_object_key(prefix, of_type, name, key.as_bytes(), &mut ledger_key);
        let ask = kv::Ask::Read { want: kv::Want::Head };
        let question =
            PeerMessage::Ask { id: AskId(TESTS_OWN << 8), ttl_ms: 9, life: 0, key: ledger_key.into(), ask };
        let is_reached = |other: &usize| *other != node && !self.cuts.contains(&(node, *other));
        let other = (0..self.nodes.len()).find(is_reached).unwrap();
        self.told = None;
        self.deliver(other, node, &question);
        self.run();
        match self.told.take().expect("a replica answers at once") {
            Ok(kv::Answer::Read(stored)) => stored.map(|stored| stored.head),
            other => panic!("a read answered {other:?}"),
        }
    }

    fn restart(&mut self, node: usize) {
        self.kill(node);
        self.start(node);
        self.pass(Duration::from_millis(300));
    }

    fn have(&mut self, key: &str) -> [bool; 3] {
        [0, 1, 2].map(|node| self.head_at(node, key).is_some())
    }

    fn reaps(&self, node: usize) -> (u64, u64) {
        let counters = self.nodes[node].as_ref().unwrap().stats().counters;
        (counters.reaps, counters.reaps_refused)
    }
}

fn gone(answer: Result<Response, Error>) -> Option<Bytes> {
    match answer.unwrap() {
        Response::NotFound { deleted_context } => deleted_context,
        other => panic!("a get answered {other:?}"),
    }
}

#[test]
fn a_deleted_key_is_forgotten_everywhere_and_can_be_written_again() {
    let data = folder();
    let mut cluster = reaping(&data);
    cluster.put(0, "k", &long("v")).unwrap();
    cluster.ask(1, Request::Delete(delete("k"))).unwrap();
    assert_eq!(cluster.have("k"), [true; 3], "not yet");
    cluster.pass(Duration::from_millis(200));
    assert_eq!(cluster.have("k"), [false; 3]);
    assert_eq!((cluster.reaps(1), cluster.idle()), ((1, 0), true));
    let read = GetRequest { deleted_context: true, ..get("k") };
    assert_eq!(gone(cluster.ask(2, Request::Get(read))), None);
    cluster.put(2, "k", "new").unwrap();
    assert_eq!(cluster.values(0, "k"), ["new"]);
    cluster.pass(Duration::from_secs(60));
    assert!(cluster.nodes.iter().flatten().all(|shard| shard.stats().graves == 0), "graves are not for ever");
    assert_eq!(cluster.values(1, "k"), ["new"]);
}

#[test]
fn a_node_that_is_away_keeps_the_tombstone_until_it_is_home() {
    let data = folder();
    let mut cluster = reaping(&data);
    cluster.put(0, "k", "v").unwrap();
    cluster.cut(2);
    cluster.pass(Duration::from_secs(2));
    cluster.ask(0, Request::Delete(delete("k"))).unwrap();
    cluster.pass(Duration::from_secs(2));
    let both = [0, 1].map(|node| cluster.head_at(node, "k").is_some());
    assert_eq!(both, [true; 2], "a hint is kept for it, and nobody proposes");
    assert_eq!([cluster.reaps(0), cluster.reaps(1)], [(0, 0); 2]);
    cluster.cuts.clear();
    cluster.pass(Duration::from_secs(4));
    assert_eq!(cluster.have("k"), [false; 3], "whoever brought it home has proposed it");
}

#[test]
fn what_is_late_does_not_bring_it_back() {
    let data = folder();
    let mut cluster = reaping(&data);
    cluster.put(0, "k", &long("v")).unwrap();
    // The write once more, as the network may send it much later.
    let late = cluster.kept_write.clone().unwrap();
    cluster.ask(0, Request::Delete(delete("k"))).unwrap();
    cluster.pass(Duration::from_millis(200));
    assert_eq!(cluster.have("k"), [false; 3]);
    cluster.deliver(late.0, late.1, &late.2);
    cluster.run();
    assert_eq!(cluster.have("k"), [false; 3], "it is dropped");
    assert_eq!(cluster.told, None, "and was answered before");
    // After a start the grave is gone; the process that it was sent to is, too.
    cluster.restart(late.1);
    cluster.deliver(late.0, late.1, &late.2);
    cluster.run();
    assert_eq!(cluster.have("k"), [false; 3]);
}

#[test]
fn a_node_that_keeps_tombstones_has_the_others_keep_them_and_a_read_proposes_them_again() {
    let data = folder();
    let mut cluster = reaping(&data);
    let reaping = std::mem::replace(&mut cluster.reaping, Reaping::after(None));
    cluster.restart(2);
    cluster.put(0, "k", "v").unwrap();
    cluster.ask(0, Request::Delete(delete("k"))).unwrap();
    cluster.pass(Duration::from_millis(300));
    assert_eq!((cluster.have("k"), cluster.reaps(0)), ([true; 3], (0, 1)));
    cluster.reaping = reaping;
    cluster.restart(2);
    assert_eq!(gone(cluster.ask(1, Request::Get(get("k")))), None);
    cluster.pass(Duration::from_millis(300));
    assert_eq!((cluster.have("k"), cluster.reaps(1)), ([false; 3], (1, 0)));
}
