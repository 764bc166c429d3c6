//! A node on backends other than the engine: what its clients can do, what is refused, and what a restart finds.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::{HandClock, open_store};
use backends::{Durability, Item, Kind, Machine, Settings, What};
use base::rng::SplitMix64;
use base::{Clock, Rng};
use bytes::Bytes;
use engine::embedded::RunAtOnce;
use kv::fold::{Finds, Fold, FoldRequest, Scope, Sum};
use kv::index::{Rows, Terms};
use kv::{
    Bucket, DeleteRequest, Error, GetRequest, IndexRequest, ListBucketsRequest, ListKeysRequest, Prop,
    PutRequest, Request, Response, TypeChange,
};
use node::store::{Routed, TypeBackends};
use node::{Adapter, Layout, Output, Reaping, RequestId, Shard, ShardConfig, ShardId, Store, layout};
use object::{HeadView, IndexEntry, Metadata};
use os::{OsClock, OsDisk, OsRng};
use ring::{Ring, RingSize, RingVersion};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a node's stores are: those of all types, and those of types that have stores of their own.
#[derive(Clone, Copy)]
struct Stores(Kind, &'static str);

/// Whether the buckets of the tests, of the default type, are in the first store or in one of their own.
const STORES: [Stores; 6] = [
    Stores(Kind::Memory, ""),
    Stores(Kind::Bitcask, ""),
    Stores(Kind::Hash, ""),
    Stores(Kind::Annulet, "cache=memory,default=bitcask"),
    Stores(Kind::Bitcask, "default=memory"),
    Stores(Kind::Memory, "default=hash,other=hash"),
];

impl Stores {
    fn types(self) -> TypeBackends {
        TypeBackends::read(self.1).unwrap()
    }

    /// The backend of a type's buckets.
    fn of(self, bucket_type: &str) -> Kind {
        self.types().iter().find(|(name, _)| *name == bucket_type).map_or(self.0, |(_, kind)| kind)
    }

    /// Whether a test finds after a restart what it had before: bucket properties are in the first store.
    fn are_kept(self) -> bool {
        self.0.is_kept() && self.of("default").is_kept()
    }

    fn name(self) -> String {
        format!("{} {}", self.0.name(), self.1)
    }
}

/// What an index query has found.
type Found = Vec<(Option<Bytes>, Bytes)>;

struct Node {
    shard: Shard,
    clock: Arc<HandClock>,
    asked: u64,
}

impl Node {
    fn start(stores: Stores, data: &Path) -> Node {
        Node::start_reaping(stores, data, Reaping::after(None))
    }

    fn start_reaping(stores: Stores, data: &Path, reaping: Reaping) -> Node {
        let layout = Layout::new(1, RingSize::new(16).unwrap());
        let clock = Arc::new(HandClock::default());
        clock.0.store(1_000_000_000, Ordering::Relaxed);
        let disk = OsDisk::blocking();
        let spawn = Arc::new(RunAtOnce::new(Box::new(disk.blocking_handle())));
        let settings = Settings { durability: Durability::Sync, ..Settings::default() };
        let open = |kind: Kind, folder: &Path| {
            let machine = Machine::new(disk.blocking_handles(), OsClock::new(), OsRng::new());
            let platform = (spawn.clone() as Arc<dyn base::Spawn>, clock.clone() as Arc<dyn Clock>);
            Adapter::open(kind, folder, &settings, machine, platform).unwrap().0
        };
        let (first, table): (Store, _) = match stores.0 {
            Kind::Annulet => {
                let options = engine::Options { durability: Durability::Sync, ..Default::default() };
                let (store, table) =
                    open_store(&OsDisk::blocking(), data, &layout, 0, 1, &clock, Arc::default(), options);
                (store.into(), table)
            }
            kind => {
                let mut adapter = open(kind, &layout::shard_dir(data, 0));
                let table = node::read_props_of(&mut adapter).unwrap();
                (adapter.into(), table)
            }
        };
        let types = stores.types();
        let of_types = types.iter().map(|(bucket_type, kind)| {
            (bucket_type.to_owned(), open(kind, &layout::type_dir(data, 0, bucket_type)))
        });
        let store = if types.is_empty() { first } else { Routed::new(first, of_types).into() };
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
            reaping,
            anti_entropy: None,
            rebuilding: node::Rebuilding::default(),
            gathered: base::Budget::unlimited(),
            slow: node::SlowRequests::off(),
            leases: node::LeaseConfig::starting(node::peer::NodeId(0), 1, 1, node::StrongReads::Ask, &*clock),
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

    fn make_type(&mut self, bucket_type: &str) {
        for change in [TypeChange::Create(Vec::new()), TypeChange::Activate] {
            self.ask(Request::ChangeType(name(bucket_type), change)).unwrap();
        }
    }

    fn put(&mut self, key: &str, value: &str) {
        self.put_indexed(key, value, &[("n_int", "7")]);
    }

    fn put_indexed(&mut self, key: &str, value: &str, terms: &[(&str, &str)]) {
        let entry = |&(field, term): &(&str, &str)| IndexEntry { field: name(field), value: name(term) };
        let metadata = Metadata { indexes: terms.iter().map(entry).collect(), ..Metadata::default() };
        self.ask(Request::put(PutRequest::new(bucket(), Some(name(key)), metadata, name(value)))).unwrap();
    }

    /// All rows of a query, page by page.
    fn rows(&mut self, mut request: IndexRequest) -> Found {
        let mut found = Found::new();
        loop {
            let mut continuation = None;
            for part in self.ask(Request::Index(Box::new(request.clone()))).unwrap() {
                let Response::Rows(Rows { rows, continuation: next, .. }) = part else { panic!("{part:?}") };
                let owned = |(term, key): (Option<&[u8]>, &[u8])| {
                    (term.map(Bytes::copy_from_slice), Bytes::copy_from_slice(key))
                };
                found.extend(rows.iter().map(owned));
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
            Response::Rows(rows) => rows.rows.iter().map(|(_, key)| Bytes::copy_from_slice(key)).collect(),
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
    for stores in STORES {
        let data = tempfile::tempdir().unwrap();
        let mut node = Node::start(stores, data.path());
        for number in 0..60 {
            node.put(&format!("k{number:02}"), "first");
        }
        node.put("k07", "second");
        node.ask(Request::Delete(DeleteRequest::new(bucket(), name("k08")))).unwrap();
        let check = |node: &mut Node| {
            assert_eq!(node.get("k06"), Some(name("first")), "{}", stores.name());
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
        if stores.of("default").is_kept() {
            // It is left as a kill leaves it.
            drop(node);
            check(&mut Node::start(stores, data.path()));
        }
    }
}

#[test]
fn a_query_by_term_is_refused_in_words_that_clients_know() {
    for stores in STORES.into_iter().filter(|stores| stores.of("default") == Kind::Hash) {
        let data = tempfile::tempdir().unwrap();
        let mut node = Node::start(stores, data.path());
        node.put("k", "v");
        match node.ask(index("n_int", "7")) {
            Err(Error::Unsupported(text)) => assert!(text.contains("{indexes_not_supported,hash}"), "{text}"),
            other => panic!("{other:?}"),
        }
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
    let keep = STORES.into_iter().filter(|stores| stores.of("default").is_ordered());
    let all: Vec<Stores> = std::iter::once(Stores(Kind::Annulet, "")).chain(keep).collect();
    let data = tempfile::tempdir().unwrap();
    let start = |stores: Stores| Node::start(stores, &data.path().join(stores.name()));
    let mut nodes: Vec<Node> = all.iter().copied().map(start).collect();
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
            for (found, stores) in found.zip(&all[1..]) {
                assert_eq!(found, expected, "{}, round {round}, query {at}", stores.name());
            }
            seen += expected.len();
        }
        // Left as a kill leaves them; the clock goes on.
        let restarted = nodes.into_iter().zip(&all).map(|(node, &stores)| {
            if !stores.are_kept() {
                return node;
            }
            let now = node.clock.0.load(Ordering::Relaxed);
            drop(node);
            let node = start(stores);
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
    let stores = Stores(Kind::Bitcask, "");
    let mut node = Node::start(stores, data.path());
    (0..9).for_each(|number| node.put(&format!("k{number}"), "v"));
    drop(node);
    forget_entries(data.path());
    let mut node = Node::start(stores, data.path());
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
    for stores in STORES {
        let data = tempfile::tempdir().unwrap();
        let mut node = Node::start(stores, data.path());
        node.ask(Request::SetProps(bucket(), vec![Prop::Ttl(60)])).unwrap();
        if stores.are_kept() {
            drop(node);
            node = Node::start(stores, data.path());
        }
        node.put("k", "v");
        node.clock.0.fetch_add(59_000_000_000, Ordering::Relaxed);
        assert_eq!((node.get("k"), node.keys().len()), (Some(name("v")), 1), "{}", stores.name());
        node.clock.0.fetch_add(2_000_000_000, Ordering::Relaxed);
        assert_eq!((node.get("k"), node.keys().len()), (None, 0), "{}", stores.name());
        node.put("k", "again");
        assert_eq!(node.get("k"), Some(name("again")));
    }
}

#[test]
fn a_clean_stop_is_told() {
    for stores in STORES {
        let data = tempfile::tempdir().unwrap();
        let mut node = Node::start(stores, data.path());
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

/// A bucket of this name in each type, and an object of this name in each bucket.
const OF_TYPES: [&str; 4] = ["default", "archive", "cache", "hashed"];

fn in_type(bucket_type: &str, bucket: &str) -> Bucket {
    Bucket { bucket_type: name(bucket_type), name: name(bucket) }
}

#[test]
fn each_type_is_in_a_store_of_its_own_and_what_is_over_all_sees_all() {
    const STORES: Stores = Stores(Kind::Annulet, "archive=bitcask,cache=memory,hashed=hash");
    let data = tempfile::tempdir().unwrap();
    let mut node = Node::start(STORES, data.path());
    OF_TYPES[1..].iter().for_each(|it| node.make_type(it));
    for bucket_type in OF_TYPES {
        for number in 0..50 {
            let bucket = in_type(bucket_type, &format!("b{}", number % 3));
            let entry = IndexEntry { field: name("n_int"), value: name(&(number % 5).to_string()) };
            let metadata = Metadata { indexes: vec![entry], ..Metadata::default() };
            let key = name(&format!("{bucket_type}-{number:02}"));
            node.ask(Request::put(PutRequest::new(bucket, Some(key), metadata, name("v")))).unwrap();
        }
    }
    let check = |node: &mut Node, bucket_type: &str, is_there: bool| {
        let keys: Vec<Bytes> = (0..50)
            .filter(|number| is_there && number % 3 == 1)
            .map(|number| name(&format!("{bucket_type}-{number:02}")))
            .collect();
        let bucket = in_type(bucket_type, "b1");
        let listed = Request::ListKeys(ListKeysRequest { bucket: bucket.clone(), timeout: None });
        assert_eq!(node.names(listed), keys, "{bucket_type}");
        let buckets = ListBucketsRequest { bucket_type: name(bucket_type), stream: false, timeout: None };
        let buckets = node.names(Request::ListBuckets(buckets));
        assert_eq!(buckets, if is_there { vec![name("b0"), name("b1"), name("b2")] } else { Vec::new() });
        let terms = Terms::Range(name("0"), name("9"));
        let query = Request::Index(Box::new(IndexRequest::new(bucket, name("n_int"), terms)));
        match STORES.of(bucket_type) {
            Kind::Hash => assert!(matches!(node.ask(query), Err(Error::Unsupported(_)))),
            _ => assert_eq!(node.names(query), keys),
        }
    };
    OF_TYPES.iter().for_each(|it| check(&mut node, it, true));
    let counted = |node: &mut Node| {
        let fold = Fold::new(Scope::NVal(3), Finds::Buckets);
        let request = FoldRequest { fold, timeout: None, stream: false };
        match node.ask(Request::Fold(Box::new(request))).unwrap().pop() {
            Some(Response::Folded(folded)) => match folded.sum {
                Sum::Buckets(buckets) => buckets.len(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(counted(&mut node), 12, "a fold over all types");
    // Left as a kill leaves it: what was in memory is gone, and nothing else.
    drop(node);
    let mut node = Node::start(STORES, data.path());
    OF_TYPES.iter().for_each(|it| check(&mut node, it, STORES.of(it).is_kept()));
    assert_eq!(counted(&mut node), 9);
    drop(node);
    // None of it was in the store of all other types.
    let mut first = Node::start(Stores(Kind::Annulet, ""), data.path());
    OF_TYPES.iter().filter(|it| **it != "hashed").for_each(|it| check(&mut first, it, *it == "default"));
}

#[test]
fn tombstones_of_an_earlier_process_are_swept() {
    for stores in STORES.into_iter().filter(|stores| stores.are_kept()) {
        let data = tempfile::tempdir().unwrap();
        let mut node = Node::start(stores, data.path());
        for number in 0..50 {
            node.put(&format!("k{number}"), "v");
            let delete = DeleteRequest::new(bucket(), name(&format!("k{number}")));
            node.ask(Request::Delete(delete)).unwrap();
        }
        node.put("stays", "v");
        drop(node);
        let mut node = Node::start_reaping(stores, data.path(), Reaping::after(Some(Duration::from_secs(3))));
        for _ in 0..300 {
            node.clock.0.fetch_add(100_000_000, Ordering::Relaxed);
            node.shard.tick();
            (0..4).for_each(|_| node.shard.turn());
        }
        let counters = node.shard.stats().counters;
        assert_eq!((counters.reaps_swept, counters.reaps), (50, 50), "{}", stores.name());
        assert_eq!(node.get("stays"), Some(name("v")));
    }
}
