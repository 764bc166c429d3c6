//! A node on backends other than the engine: what its clients can do, what is refused, and what a restart finds.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::{HandClock, open_store};
use backends::{Durability, Item, Kind, Machine, Settings, What};
use base::rng::SplitMix64;
use base::{Clock, Rng};
use bytes::Bytes;
use engine::embedded::RunAtOnce;
use kv::index::{Rows, Terms};
use kv::{
    Bucket, DeleteRequest, Error, GetRequest, IndexRequest, ListBucketsRequest, ListKeysRequest, Prop,
    PutRequest, Request, Response,
};
use node::{Adapter, Layout, Output, Reaping, RequestId, Shard, ShardConfig, ShardId, Store, layout};
use object::{HeadView, IndexEntry, Metadata};
use os::{OsClock, OsDisk, OsRng};
use ring::{Ring, RingSize, RingVersion};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const KINDS: [Kind; 3] = [Kind::Memory, Kind::Bitcask, Kind::Hash];

/// What an index query has found.
type Found = Vec<(Option<Bytes>, Bytes)>;

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
        let (store, table): (Store, _) = match kind {
            Kind::Annulet => {
                let options = engine::Options { durability: Durability::Sync, ..Default::default() };
                let (store, table) = open_store(data, &layout, 0, 1, &clock, Arc::default(), options);
                (store.into(), table)
            }
            _ => {
                let (mut adapter, _) = Adapter::open(kind, &folder, &settings, machine, platform).unwrap();
                let table = Shard::read_props_of(&mut adapter).unwrap();
                (adapter.into(), table)
            }
        };
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
        Node { shard: Shard::new(config, store, table), clock, asked: 0 }
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
        self.put_indexed(key, value, &[("n_int", "7")]);
    }

    fn put_indexed(&mut self, key: &str, value: &str, terms: &[(&str, &str)]) {
        let entry = |&(field, term): &(&str, &str)| IndexEntry { field: name(field), value: name(term) };
        let metadata = Metadata { indexes: terms.iter().map(entry).collect(), ..Metadata::default() };
        self.ask(Request::Put(PutRequest::new(bucket(), Some(name(key)), metadata, name(value)))).unwrap();
    }

    /// All rows of a query, page by page.
    fn rows(&mut self, mut request: IndexRequest) -> Found {
        let mut found = Found::new();
        loop {
            let mut continuation = None;
            for part in self.ask(Request::Index(Box::new(request.clone()))).unwrap() {
                let Response::Rows(Rows { rows, continuation: next, .. }) = part else { panic!("{part:?}") };
                found.extend(rows);
                continuation = continuation.or(next);
            }
            match continuation {
                Some(_) => request.continuation = continuation,
                None => return found,
            }
        }
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
fn a_query_by_term_is_refused_in_words_that_clients_know() {
    let data = tempfile::tempdir().unwrap();
    let mut node = Node::start(Kind::Hash, data.path());
    node.put("k", "v");
    match node.ask(index("n_int", "7")) {
        Err(Error::Unsupported(text)) => assert!(text.contains("{indexes_not_supported,hash}"), "{text}"),
        other => panic!("{other:?}"),
    }
}

/// What is asked of every store: terms of both kinds, one and many, by page, by expression, and keys.
fn queries() -> Vec<IndexRequest> {
    let ask = |field: &str, terms| IndexRequest::new(bucket(), name(field), terms);
    let between = |first: &str, last: &str| Terms::Range(name(first), name(last));
    let words = IndexRequest { return_terms: true, ..ask("w_bin", between("a", "f")) };
    vec![
        ask("n_int", Terms::Exact(name("3"))),
        ask("n_int", between("-2", "4")),
        ask("n_int", between("4", "-2")),
        IndexRequest { max_results: Some(3), return_terms: true, ..ask("n_int", between("-9", "9")) },
        IndexRequest { stream: true, ..ask("n_int", between("-9", "9")) },
        ask("w_bin", Terms::Exact(name("c"))),
        ask("none_bin", Terms::Exact(name("c"))),
        IndexRequest { max_results: Some(1), ..words.clone() },
        IndexRequest { max_results: Some(7), term_regex: Some(name("[bd]$")), ..words },
        IndexRequest { max_results: Some(5), ..ask("$key", between("k03", "k2")) },
        ask("$bucket", Terms::Exact(name("_"))),
    ]
}

#[test]
fn queries_find_the_same_on_all_that_keep_entries() {
    const KINDS: [Kind; 3] = [Kind::Annulet, Kind::Memory, Kind::Bitcask];
    let data = tempfile::tempdir().unwrap();
    let start = |kind: Kind| Node::start(kind, &data.path().join(kind.name()));
    let mut nodes: Vec<Node> = KINDS.into_iter().map(start).collect();
    let mut rng = SplitMix64::new(6);
    let mut seen = 0;
    for round in 0..10 {
        for _ in 0..60 {
            let (key, number) = (format!("k{:02}", rng.below(40)), (rng.below(12) as i64 - 6).to_string());
            let word = char::from(b'a' + rng.below(8) as u8).to_string();
            let terms = [("n_int", &number[..]), ("w_bin", &word[..]), ("w_bin", "both")];
            let terms = &terms[..rng.below(4) as usize];
            let deletes = rng.below(5) == 0;
            for node in &mut nodes {
                node.clock.0.fetch_add(1_000_000, Ordering::Relaxed);
                match deletes {
                    true => {
                        drop(node.ask(Request::Delete(DeleteRequest::new(bucket(), name(&key)))).unwrap())
                    }
                    false => node.put_indexed(&key, "v", terms),
                }
            }
        }
        for (at, query) in queries().into_iter().enumerate() {
            let mut found = nodes.iter_mut().map(|node| node.rows(query.clone()));
            let expected = found.next().unwrap();
            for (found, kind) in found.zip(&KINDS[1..]) {
                assert_eq!(found, expected, "{}, round {round}, query {at}", kind.name());
            }
            seen += expected.len();
        }
        // Left as a kill leaves them; the clock goes on.
        let restarted = nodes.into_iter().zip(KINDS).map(|(node, kind)| {
            if !kind.is_kept() {
                return node;
            }
            let now = node.clock.0.load(Ordering::Relaxed);
            drop(node);
            let node = start(kind);
            node.clock.0.store(now, Ordering::Relaxed);
            node
        });
        nodes = restarted.collect();
    }
    assert!(seen > 1000, "{seen}");
}

#[test]
fn a_store_of_an_older_program_finds_everything_or_says_that_it_cannot() {
    let data = tempfile::tempdir().unwrap();
    let mut node = Node::start(Kind::Bitcask, data.path());
    (0..9).for_each(|number| node.put(&format!("k{number}"), "v"));
    drop(node);
    forget_entries(data.path());
    let mut node = Node::start(Kind::Bitcask, data.path());
    match node.ask(index("n_int", "7")) {
        Err(Error::NotCovered) => {}
        other => panic!("{other:?}"),
    }
    for _ in 0..9 {
        node.shard.turn();
    }
    assert_eq!(node.names(index("n_int", "7")).len(), 9);
}

/// Takes the index entries, and the mark of them, away.
fn forget_entries(data: &Path) {
    let machine = Machine::new(OsDisk::blocking().blocking_handles(), OsClock::new(), OsRng::new());
    let folder = layout::shard_dir(data, 0);
    let mut store = Kind::Bitcask.open(&folder, &Settings::default(), machine).unwrap();
    let (start, end) = node::INDEXING.entries;
    let mut keys = Vec::new();
    let mut visit = |item: Item<'_>| {
        keys.push(item.key.to_vec());
        ControlFlow::Continue(())
    };
    store.fold(start, end, What::Heads, &mut visit).unwrap();
    assert_eq!(keys.len(), 10);
    keys.iter().for_each(|key| store.delete(key).unwrap());
    store.close().unwrap();
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
