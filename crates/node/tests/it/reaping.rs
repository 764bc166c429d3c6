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
    cluster.reaping =
        Reaping { grave: Duration::from_secs(30), ..Reaping::after(Some(Duration::from_millis(100))) };
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

/// Whether nobody has a trace of a key, by what a read of the deleted key tells.
fn is_forgotten(cluster: &mut Cluster, node: usize, key: &str) -> bool {
    let read = GetRequest { deleted_context: true, ..get(key) };
    gone(cluster.ask(node, Request::Get(read))).is_none()
}

fn reaping_alone(data: &tempfile::TempDir) -> Cluster {
    let mut cluster = Cluster::new(data.path(), 1, kv::ReadStrategy::LocalValue);
    cluster.reaping = Reaping::after(Some(Duration::from_secs(3)));
    cluster.restart(0);
    cluster
}

#[test]
fn a_key_that_is_deleted_twice_is_forgotten() {
    let (of_one, of_three) = (folder(), folder());
    let mut three = reaping(&of_three);
    three.reaping.delay = Some(Duration::from_secs(3));
    (0..3).for_each(|node| three.restart(node));
    for mut cluster in [reaping_alone(&of_one), three] {
        let nodes = cluster.nodes.len();
        for _ in 0..2 {
            for key in 0..200 {
                cluster.put(key % nodes, &format!("k{key}"), "v").unwrap();
                cluster.ask(0, Request::Delete(delete(&format!("k{key}")))).unwrap();
            }
            cluster.pass(Duration::from_secs(1));
        }
        cluster.pass(Duration::from_secs(6));
        for key in 0..200 {
            assert!(is_forgotten(&mut cluster, 0, &format!("k{key}")), "{key} of {nodes}");
        }
    }
}

#[test]
fn what_was_deleted_before_a_stop_or_a_kill_is_forgotten() {
    let (of_one, of_three) = (folder(), folder());
    for mut cluster in [reaping_alone(&of_one), reaping(&of_three)] {
        let nodes = cluster.nodes.len();
        for key in 0..100 {
            cluster.put(0, &format!("k{key}"), "v").unwrap();
            cluster.ask(0, Request::Delete(delete(&format!("k{key}")))).unwrap();
        }
        for node in 0..nodes {
            if node == 1 { cluster.stop(node) } else { cluster.kill(node) }
        }
        (0..nodes).for_each(|node| cluster.start(node));
        cluster.pass(Duration::from_secs(25));
        let swept = sum(&cluster, |counters| counters.reaps_swept);
        assert!(swept >= 100, "{swept} of {nodes}");
        for key in 0..100 {
            assert!(is_forgotten(&mut cluster, 0, &format!("k{key}")), "{key} of {nodes}");
        }
        cluster.pass(Duration::from_secs(3));
        assert!(cluster.idle());
    }
}

#[test]
fn what_was_dropped_as_too_many_waited_is_forgotten() {
    const KEYS: u64 = 18_000;
    let data = folder();
    let mut cluster = reaping_alone(&data);
    cluster.fill(&bucket(), (0..KEYS).map(|key| format!("k{key}")));
    for key in 0..KEYS {
        cluster.last_request += 1;
        let id = node::RequestId(cluster.last_request);
        let request = Request::Delete(delete(&format!("k{key}")));
        cluster.nodes[0].as_mut().unwrap().request(id, request);
        if key % 100 == 99 {
            cluster.run();
        }
    }
    assert!(sum(&cluster, |counters| counters.reaps_dropped) > 0);
    cluster.pass(Duration::from_secs(30));
    assert_eq!(sum(&cluster, |counters| counters.reaps), KEYS);
    assert!(is_forgotten(&mut cluster, 0, "k17999"));
}

#[test]
fn what_was_refused_while_a_member_was_away_is_forgotten_when_it_is_back() {
    let data = folder();
    let mut cluster = reaping(&data);
    cluster.put(0, "k", "v").unwrap();
    cluster.ask(0, Request::Delete(delete("k"))).unwrap();
    cluster.kill(2);
    cluster.pass(Duration::from_secs(6));
    assert_eq!(cluster.reaps(0), (0, 1), "all have the tombstone, but one is away");
    cluster.pass(Duration::from_secs(60));
    assert_eq!(sum(&cluster, |counters| counters.reaps_swept), 0, "nothing is looked for meanwhile");
    cluster.start(2);
    cluster.pass(Duration::from_secs(25));
    assert_eq!(cluster.have("k"), [false; 3]);
}

#[test]
fn a_tombstone_that_one_node_alone_has_is_forgotten() {
    let data = folder();
    let mut cluster = reaping(&data);
    cluster.put(0, "k", "v").unwrap();
    cluster.ask(0, Request::Delete(delete("k"))).unwrap();
    let (_, to, tombstone) = cluster.kept_write.clone().unwrap();
    cluster.pass(Duration::from_millis(200));
    assert_eq!(cluster.have("k"), [false; 3]);
    // As one that missed the last round has it, or whose disk was restored, when the others have forgotten the reaping.
    cluster.pass(Duration::from_secs(60));
    let PeerMessage::Ask { id, ttl_ms, key, ask, .. } = tombstone else { panic!("a write is a question") };
    let message = PeerMessage::Ask { id, ttl_ms, life: 0, key, ask };
    cluster.deliver((to + 1) % 3, to, &message);
    cluster.run();
    assert_eq!(cluster.have("k").iter().filter(|has| **has).count(), 1);
    cluster.restart(to);
    cluster.pass(Duration::from_secs(40));
    assert_eq!(cluster.have("k"), [false; 3]);
}

#[test]
fn a_node_that_keeps_tombstones_sweeps_none() {
    let data = folder();
    let mut cluster = three(&data);
    cluster.put(0, "k", "v").unwrap();
    cluster.ask(0, Request::Delete(delete("k"))).unwrap();
    (0..3).for_each(|node| cluster.restart(node));
    cluster.pass(Duration::from_secs(60));
    assert_eq!(sum(&cluster, |counters| counters.reaps_swept), 0);
    assert_eq!(cluster.have("k"), [true; 3]);
}
