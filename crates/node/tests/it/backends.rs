//! A node on backends other than the engine: what its clients can do, what is refused, and what a restart finds.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::HandClock;
use backends::{Durability, Kind, Machine, Settings};
use base::Clock;
use base::rng::SplitMix64;
use bytes::Bytes;
use engine::embedded::RunAtOnce;
use kv::index::Terms;
use kv::{
    Bucket, DeleteRequest, Error, GetRequest, IndexRequest, ListBucketsRequest, ListKeysRequest, Prop,
    PutRequest, Request, Response,
};
use node::{Adapter, Layout, Output, Reaping, RequestId, Shard, ShardConfig, ShardId, layout};
use object::{HeadView, IndexEntry, Metadata};
use os::{OsClock, OsDisk, OsRng};
use ring::{Ring, RingSize, RingVersion};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const KINDS: [Kind; 3] = [Kind::Memory, Kind::Bitcask, Kind::Hash];

struct Node {
    shard: Shard,
    clock: Arc<HandClock>,
    asked: u64,
}

impl Node {
    fn start(kind: Kind, data: &Path) -> Node {
        let layout = Layout::new(1, RingSize::new(16).unwrap());
        let clock = Arc::new(HandClock::default());
        clock.0.store(1_000_000_000, Ordering::Relaxed);
        let disk = OsDisk::blocking();
        let spawn = Arc::new(RunAtOnce::new(Box::new(disk.blocking_handle())));
        let machine = Machine::new(disk.blocking_handles(), OsClock::new(), OsRng::new());
        let settings = Settings { durability: Durability::Sync, ..Settings::default() };
        let folder = layout::shard_dir(data, 0);
        let platform = (spawn as Arc<dyn base::Spawn>, clock.clone() as Arc<dyn Clock>);
        let (mut adapter, _) = Adapter::open(kind, &folder, &settings, machine, platform).unwrap();
        let table = Shard::read_props_of(&mut adapter).unwrap();
        let config = ShardConfig {
            id: ShardId(0),
            layout,
            members: Arc::new(node::Members::alone("n@h")),
            ring: Arc::new(Ring::of_one_node(RingVersion(1), layout.ring_size)),
            limits: kv::Limits::default(),
            clock: clock.clone(),
            rng: Box::new(SplitMix64::new(99)),
            read_form: kv::ReadForm::LocalValue,
            life: 1,
            reaping: Reaping::after(None),
            anti_entropy: None,
            rebuilding: node::Rebuilding::default(),
        };
        Node { shard: Shard::new(config, adapter, table), clock, asked: 0 }
    }

    /// All parts of the answer.
    fn ask(&mut self, request: Request) -> Result<Vec<Response>, Error> {
        self.asked += 1;
        let id = RequestId(self.asked);
        self.shard.request(id, request);
        let (mut parts, mut outputs) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            self.shard.take_outputs(&mut outputs);
            for output in outputs.drain(..) {
                let Output::Reply { to, result, more } = output else { panic!("{output:?}") };
                assert_eq!(to, id);
                parts.push(result?);
                if !more {
                    return Ok(parts);
                }
                self.shard.proceed(id);
            }
            self.shard.turn();
        }
        panic!("there is no answer");
    }

    fn put(&mut self, key: &str, value: &str) {
        let entry = IndexEntry { field: name("n_int"), value: name("7") };
        let metadata = Metadata { indexes: vec![entry], ..Metadata::default() };
        self.ask(Request::Put(PutRequest::new(bucket(), Some(name(key)), metadata, name(value)))).unwrap();
    }

    fn get(&mut self, key: &str) -> Option<Bytes> {
        match self.ask(Request::Get(GetRequest::new(bucket(), name(key)))).unwrap().remove(0) {
            Response::Found(found) => {
                let (head, values) = (HeadView::parse(&found.head).unwrap(), found.value.unwrap());
                let (start, len) = (head.newest().value_offset as usize, head.newest().value_len as usize);
                Some(values.slice(start..start + len))
            }
            Response::NotFound { .. } => None,
            other => panic!("{other:?}"),
        }
    }

    fn names(&mut self, request: Request) -> Vec<Bytes> {
        let parts = self.ask(request).unwrap();
        let names = parts.into_iter().flat_map(|part| match part {
            Response::Keys { keys: names, .. } | Response::Buckets { names, .. } => names,
            Response::Rows(rows) => rows.rows.into_iter().map(|(_, key)| key).collect(),
            other => panic!("{other:?}"),
        });
        let mut names: Vec<Bytes> = names.collect();
        names.sort_unstable();
        names
    }

    fn keys(&mut self) -> Vec<Bytes> {
        self.names(Request::ListKeys(ListKeysRequest { bucket: bucket(), timeout: None }))
    }
}

fn bucket() -> Bucket {
    Bucket::untyped(Bytes::from_static(b"b"))
}

fn name(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn index(field: &str, term: &str) -> Request {
    Request::Index(Box::new(IndexRequest::new(bucket(), name(field), Terms::Exact(name(term)))))
}

#[test]
fn objects_are_stored_read_listed_and_deleted() {
    for kind in KINDS {
        let data = tempfile::tempdir().unwrap();
        let mut node = Node::start(kind, data.path());
        for number in 0..60 {
            node.put(&format!("k{number:02}"), "first");
        }
        node.put("k07", "second");
        node.ask(Request::Delete(DeleteRequest::new(bucket(), name("k08")))).unwrap();
        let check = |node: &mut Node| {
            assert_eq!(node.get("k06"), Some(name("first")), "{}", kind.name());
            assert_eq!(node.get("k07"), Some(name("second")));
            assert_eq!((node.get("k08"), node.get("none")), (None, None));
            let keys: Vec<Bytes> =
                (0..60).filter(|it| *it != 8).map(|it| name(&format!("k{it:02}"))).collect();
            assert_eq!(node.keys(), keys);
            assert_eq!(node.names(index("$bucket", "_")), keys);
            let buckets = ListBucketsRequest { bucket_type: name("default"), stream: false, timeout: None };
            assert_eq!(node.names(Request::ListBuckets(buckets)), [name("b")]);
        };
        check(&mut node);
        if kind.is_kept() {
            // It is left as a kill leaves it.
            drop(node);
            check(&mut Node::start(kind, data.path()));
        }
    }
}

#[test]
fn an_index_query_is_refused_in_words_that_clients_know() {
    for kind in KINDS {
        let data = tempfile::tempdir().unwrap();
        let mut node = Node::start(kind, data.path());
        node.put("k", "v");
        match node.ask(index("n_int", "7")) {
            Err(Error::Unsupported(text)) => {
                assert!(text.contains(&format!("{{indexes_not_supported,{}}}", kind.name())), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn properties_are_kept_and_what_ends_is_not_shown() {
    for kind in KINDS {
        let data = tempfile::tempdir().unwrap();
        let mut node = Node::start(kind, data.path());
        node.ask(Request::SetProps(bucket(), vec![Prop::Ttl(60)])).unwrap();
        if kind.is_kept() {
            drop(node);
            node = Node::start(kind, data.path());
        }
        node.put("k", "v");
        node.clock.0.fetch_add(59_000_000_000, Ordering::Relaxed);
        assert_eq!((node.get("k"), node.keys().len()), (Some(name("v")), 1), "{}", kind.name());
        node.clock.0.fetch_add(2_000_000_000, Ordering::Relaxed);
        assert_eq!((node.get("k"), node.keys().len()), (None, 0), "{}", kind.name());
        node.put("k", "again");
        assert_eq!(node.get("k"), Some(name("again")));
    }
}

#[test]
fn a_clean_stop_is_told() {
    for kind in KINDS {
        let data = tempfile::tempdir().unwrap();
        let mut node = Node::start(kind, data.path());
        node.put("k", "v");
        node.shard.begin_close();
        let mut outputs = Vec::new();
        for _ in 0..4 {
            node.shard.turn();
            node.shard.take_outputs(&mut outputs);
        }
        assert!(matches!(outputs[..], [Output::Closed(Ok(()))]), "{outputs:?}");
    }
}
