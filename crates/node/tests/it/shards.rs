//! Three shards of one node, driven by hand: requests for each other's keys, listings over all of them,
//! properties that all of them know, deadlines.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::{HandClock, open_store};
use base::rng::SplitMix64;
use bytes::Bytes;
use engine::Options;
use kv::{
    Bucket, DeleteRequest, Error, GetRequest, ListBucketsRequest, ListKeysRequest, Prop, PutRequest, Request,
    Response,
};
use node::{Layout, Output, Reaping, RequestId, Shard, ShardConfig, ShardId};
use object::Metadata;
use os::OsDisk;
use ring::{Ring, RingSize, RingVersion};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SHARDS: u16 = 3;

struct Node {
    shards: Vec<Shard>,
    clock: Arc<HandClock>,
    last_request: u64,
}

impl Node {
    fn open(data: &Path) -> Node {
        let layout = Layout::new(SHARDS, RingSize::new(16).unwrap());
        let clock = Arc::new(HandClock::default());
        let mut stores = Vec::new();
        let mut table = None;
        for shard in 0..SHARDS {
            let seed = u64::from(shard) + 1;
            let (store, own) = open_store(
                &OsDisk::blocking(),
                data,
                &layout,
                shard,
                seed,
                &clock,
                Arc::default(),
                Options::default(),
            );
            // The first shard's.
            table = table.or(Some(own));
            stores.push(store);
        }
        let table = table.unwrap();
        let reads = node::StrongReads::Ask;
        let leases = node::LeaseConfig::starting(node::peer::NodeId(0), 1, SHARDS, reads, &*clock);
        let shards = (0..SHARDS).zip(stores).map(|(shard, store)| {
            let config = ShardConfig {
                id: ShardId(shard),
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
                leases: leases.clone(),
            };
            Shard::new(config, store, table.clone())
        });
        Node { shards: shards.collect(), clock: clock.clone(), last_request: 0 }
    }

    /// Sends a request to a shard and runs all of them until nothing moves; the answers in order.
    fn ask(&mut self, shard: u16, request: Request) -> Vec<Result<Response, Error>> {
        self.last_request += 1;
        let id = RequestId(self.last_request);
        self.shards[usize::from(shard)].request(id, request);
        let mut answers = Vec::new();
        loop {
            let mut outputs = Vec::new();
            for shard in &mut self.shards {
                shard.turn();
                shard.take_outputs(&mut outputs);
            }
            if outputs.is_empty() && self.shards.iter().all(Shard::is_idle) {
                return answers;
            }
            for output in outputs {
                match output {
                    Output::Reply { to, result, more } => {
                        assert_eq!(to, id);
                        answers.push(result);
                        if more {
                            self.shards[usize::from(shard)].proceed(id);
                        }
                    }
                    Output::Hop { to, message } => self.shards[usize::from(to.0)].hop(message),
                    Output::Adopted(_) | Output::Copied(_) => unreachable!("nobody publishes anything"),
                    Output::BirthKept(_) | Output::Forgot => unreachable!("no store is given a birth"),
                    Output::Slow(_) => unreachable!("the log of slow requests is off"),
                    Output::Peer { .. } => unreachable!("a node alone has nobody to write to"),
                    Output::Closed(result) => result.unwrap(),
                }
            }
        }
    }

    fn ask_once(&mut self, shard: u16, request: Request) -> Result<Response, Error> {
        let mut answers = self.ask(shard, request);
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    fn put(&mut self, shard: u16, bucket: &str, key: &str, value: &str) {
        let mut put = PutRequest::new(named(bucket), Some(bytes(key)), Metadata::default(), bytes(value));
        put.context = None;
        self.ask_once(shard, Request::put(put)).unwrap();
    }

    fn get(&mut self, shard: u16, bucket: &str, key: &str) -> Option<Bytes> {
        match self.ask_once(shard, Request::Get(GetRequest::new(named(bucket), bytes(key)))).unwrap() {
            Response::Found(found) => found.value,
            Response::NotFound { .. } => None,
            other => panic!("a get answered {other:?}"),
        }
    }

    fn keys(&mut self, shard: u16, bucket: &str) -> Vec<Bytes> {
        let list = ListKeysRequest { bucket: named(bucket), timeout: None };
        let mut listed = Vec::new();
        let answers = self.ask(shard, Request::ListKeys(list));
        let last = answers.len() - 1;
        for (index, answer) in answers.into_iter().enumerate() {
            let Response::Keys { keys, done } = answer.unwrap() else { panic!("keys are answered") };
            assert_eq!(done, index == last);
            listed.extend(keys);
        }
        listed.sort();
        listed
    }
}

fn named(bucket: &str) -> Bucket {
    Bucket::untyped(bytes(bucket))
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[test]
fn any_shard_answers_for_every_key() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = Node::open(folder.path());
    for n in 0..60u16 {
        node.put(n % SHARDS, "b", &format!("k{n}"), &format!("v{n}"));
    }
    for n in 0..60u16 {
        assert_eq!(node.get((n + 1) % SHARDS, "b", &format!("k{n}")), Some(bytes(&format!("v{n}"))));
    }
    assert!(node.shards.iter().all(|shard| shard.stats().counters.hops > 10), "keys are spread over shards");
    assert!(node.shards.iter().all(|shard| shard.is_idle()));
    let delete = DeleteRequest::new(named("b"), bytes("k7"));
    assert_eq!(node.ask_once(2, Request::Delete(delete)), Ok(Response::Deleted));
    assert_eq!(node.get(0, "b", "k7"), None);
}

#[test]
fn listings_are_whole_and_skip_what_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = Node::open(folder.path());
    let mut expected = Vec::new();
    for n in 0..2500u16 {
        let key = format!("key {n:05}");
        node.put(n % SHARDS, "many", &key, "v");
        expected.push(bytes(&key));
    }
    for bucket in ["a", "many\0more", "z"] {
        node.put(0, bucket, "k", "v");
    }
    node.put(0, "gone", "k", "v");
    node.ask_once(1, Request::Delete(DeleteRequest::new(named("gone"), bytes("k")))).unwrap();
    for shard in 0..SHARDS {
        assert_eq!(node.keys(shard, "many"), expected);
        assert_eq!(node.keys(shard, "gone"), Vec::<Bytes>::new());
        let list =
            ListBucketsRequest { bucket_type: Bytes::from_static(b"default"), stream: false, timeout: None };
        let buckets = node.ask_once(shard, Request::ListBuckets(list)).unwrap();
        let names = ["a", "many", "many\0more", "z"].map(bytes).to_vec();
        assert_eq!(buckets, Response::Buckets { names, done: true });
    }
}

#[test]
fn properties_are_known_everywhere_once_they_are_set_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = Node::open(folder.path());
    let set = Request::SetProps(named("b"), vec![Prop::AllowMult(true), Prop::NVal(2)]);
    assert_eq!(node.ask_once(2, set), Ok(Response::PropsSet));
    let n_vals = |node: &mut Node| -> Vec<u32> {
        let props = |shard| match node.ask_once(shard, Request::GetProps(named("b"))).unwrap() {
            Response::Props(props) => props.n_val,
            other => panic!("properties are answered, not {other:?}"),
        };
        (0..SHARDS).map(props).collect()
    };
    assert_eq!(n_vals(&mut node), [2, 2, 2]);
    drop(node);
    let mut node = Node::open(folder.path());
    assert_eq!(n_vals(&mut node), [2, 2, 2]);
    assert_eq!(node.ask_once(1, Request::ResetProps(named("b"))), Ok(Response::PropsReset));
    assert_eq!(n_vals(&mut node), [3, 3, 3]);
}

#[test]
fn a_request_that_waits_is_answered_by_its_deadline_and_the_write_stands() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = Node::open(folder.path());
    let mut put = PutRequest::new(named("b"), Some(bytes("k")), Metadata::default(), bytes("v"));
    put.timeout = Some(50);
    // To the shard that holds the key, and no turn: it waits for its sync.
    let holder = (0..SHARDS).find(|&shard| {
        let before = node.shards[usize::from(shard)].stats().counters.hops;
        node.get(shard, "b", "k");
        node.shards[usize::from(shard)].stats().counters.hops == before
    });
    let shard = &mut node.shards[usize::from(holder.unwrap())];
    shard.request(RequestId(1000), Request::put(put));
    let mut outputs = Vec::new();
    shard.tick();
    shard.take_outputs(&mut outputs);
    assert!(outputs.is_empty());
    node.clock.0.fetch_add(51_000_000, Ordering::Relaxed);
    shard.tick();
    shard.take_outputs(&mut outputs);
    assert!(
        matches!(
            &outputs[..],
            [Output::Reply { to: RequestId(1000), result: Err(Error::Timeout), more: false }]
        ),
        "{outputs:?}"
    );
    assert_eq!(node.get(0, "b", "k"), Some(bytes("v")), "what was begun is done, and answered once");
}
