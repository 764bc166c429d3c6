//! A shard whose store is near a limit holds clients' writes back, and nothing else.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::{HandClock, open_store};
use base::rng::SplitMix64;
use bytes::Bytes;
use engine::Options;
use kv::{Bucket, GetRequest, PutRequest, Request, Response};
use node::{Layout, Output, Reaping, RequestId, Shard, ShardConfig, ShardId};
use object::Metadata;
use os::OsDisk;
use ring::{Ring, RingSize, RingVersion};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Seven eighths of what may wait for the journal.
const MEGABYTES: u64 = 56;

fn bucket() -> Bucket {
    Bucket::untyped(Bytes::from_static(b"b"))
}

fn put(key: &str, value: Vec<u8>) -> Request {
    let key = Bytes::copy_from_slice(key.as_bytes());
    Request::put(PutRequest::new(bucket(), Some(key), Metadata::default(), value.into()))
}

fn answers(shard: &mut Shard) -> Vec<(RequestId, Response)> {
    let mut outputs = Vec::new();
    shard.take_outputs(&mut outputs);
    let answer = |output| match output {
        Output::Reply { to, result, .. } => (to, result.unwrap()),
        other => panic!("a node alone has nobody to write to: {other:?}"),
    };
    outputs.into_iter().map(answer).collect()
}

#[test]
fn writes_wait_for_one_another_while_reads_go_on() {
    let data = tempfile::tempdir().unwrap();
    let layout = Layout::new(1, RingSize::new(16).unwrap());
    let clock = Arc::new(HandClock::default());
    clock.0.store(1_000_000_000, Ordering::Relaxed);
    let (store, table) = open_store(
        &OsDisk::blocking(),
        data.path(),
        &layout,
        0,
        1,
        &clock,
        Arc::default(),
        Options::default(),
    );
    let config = ShardConfig {
        id: ShardId(0),
        layout,
        members: Arc::new(node::Members::alone("n@h")),
        ring: Arc::new(Ring::of_one_node(RingVersion(1), layout.ring_size)),
        limits: kv::Limits::default(),
        clock: clock.clone(),
        rng: Box::new(SplitMix64::new(99)),
        read_form: kv::ReadStrategy::LocalValue,
        life: 1,
        reaping: Reaping::after(None),
        anti_entropy: None,
        rebuilding: node::Rebuilding::default(),
        gathered: base::Budget::unlimited(),
        slow: node::SlowRequests::off(),
        leases: node::LeaseConfig::starting(node::peer::NodeId(0), 1, 1, node::StrongReads::Ask, &*clock),
    };
    let mut shard = Shard::new(config, store, table);
    for number in 0..MEGABYTES {
        shard.request(RequestId(number), put(&format!("k{number}"), vec![7; 1 << 20]));
    }
    // The turn hands them to the disk, and sees that the journal's queue is nearly full.
    shard.turn();
    assert_eq!(shard.stats().writes_held, 0);
    let mut asked = 0;
    while shard.stats().writes_held == 0 {
        shard.request(RequestId(1000 + asked), put("small", b"v".to_vec()));
        asked += 1;
        assert!(asked < 100, "writes are not slowed");
    }
    assert!(asked > 1, "what a quiet time has saved up goes through");
    shard.request(RequestId(2000), put("gone", b"v".to_vec()));
    shard.request(RequestId(2001), Request::Get(GetRequest::new(bucket(), Bytes::from_static(b"none"))));
    assert!(answers(&mut shard).iter().any(|(to, _)| *to == RequestId(2001)), "a read is answered at once");
    assert_eq!((shard.stats().writes_held, shard.has_waiting()), (2, true));
    shard.forget(RequestId(2000));
    assert_eq!(shard.stats().writes_held, 1);
    assert!(shard.stats().paced > Duration::ZERO);
    clock.0.fetch_add(5_000_000, Ordering::Relaxed);
    for _ in 0..4 {
        shard.turn();
    }
    assert!(!shard.has_waiting() && shard.is_idle());
    let answered = answers(&mut shard);
    assert!(answered.iter().any(|(to, _)| *to == RequestId(1000 + asked - 1)), "the held write is answered");
    assert!(answered.iter().all(|(to, _)| *to != RequestId(2000)));
    assert_eq!(shard.stats().counters.puts, MEGABYTES + asked);
    assert_eq!(shard.stats().counters.refused, 0);
}
