//! Nodes of one shard each, driven by hand. Every message passes through its frame.

#![allow(dead_code, reason = "not every test file uses all of it")]

use super::{HandClock, Hold, open_store};
use base::rng::SplitMix64;
use base::{Clock, Monotonic, Wall};
use bytes::{Bytes, BytesMut};
use engine::Options;
use kv::reap::Round;
use kv::{
    Bucket, DeleteRequest, Error, GetRequest, NodeId, PutRequest, Quorum, ReadStrategy, Request, Response,
};
use node::shard::ShardCounters;
use node::{
    AskId, Epoch, Layout, Members, Output, PeerMessage, Reaping, Rebuilding, RequestId, Shard, ShardConfig,
    ShardId, SlowLine, SlowRequests,
};
use object::{HeadView, Metadata};
use os::OsDisk;
use protocol::peer::VERSION;
use ring::{Birth, Ring, RingSize, RingVersion};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub const NAMES: [&str; 5] = ["a@h", "b@h", "c@h", "d@h", "e@h"];

/// The number of a test's own questions.
pub const TESTS_OWN: u64 = 7;

/// The cluster's clock, whose wall reading is ahead on one node.
struct AheadClock(Arc<HandClock>, Arc<AtomicU64>);

impl Clock for AheadClock {
    fn now(&self) -> Monotonic {
        self.0.now()
    }

    fn wall(&self) -> Wall {
        Wall(self.0.wall().0.saturating_add(self.1.load(Ordering::Relaxed)))
    }

    fn lease(&self) -> Monotonic {
        self.0.lease()
    }
}

pub struct Cluster {
    pub data: PathBuf,
    pub nodes: Vec<Option<Shard>>,
    pub clock: Arc<HandClock>,
    /// How far each node's wall clock is ahead, in microseconds.
    pub ahead: Vec<Arc<AtomicU64>>,
    pub form: ReadStrategy,
    /// How leaders of groups confirm reads.
    pub strong_reads: node::StrongReads,
    /// The version of the protocol that all speak.
    pub version: u16,
    pub reaping: Reaping,
    pub anti_entropy: Option<Duration>,
    pub rebuilding: Rebuilding,
    /// The log of slow requests, of all nodes together.
    pub slow: Arc<SlowRequests>,
    /// Lines of slow requests, each with its node.
    pub slow_lines: Vec<(usize, Arc<SlowLine>)>,
    /// A node that is paused, and the messages to it.
    pub paused: Option<(usize, Vec<(usize, PeerMessage)>)>,
    /// Of stores.
    pub options: Options,
    pub last_request: u64,
    pub answers: BTreeMap<RequestId, Result<Response, Error>>,
    /// Parts of answers.
    pub pieces: BTreeMap<RequestId, Vec<Response>>,
    /// Whether clients take what they are sent.
    pub reads: bool,
    pub taken: Vec<(usize, RequestId)>,
    pub messages: VecDeque<(usize, usize, PeerMessage)>,
    /// Ways that messages do not go.
    pub cuts: BTreeSet<(usize, usize)>,
    /// Messages that arrived, by kind.
    pub asked: Vec<&'static str>,
    /// The last write that arrived.
    pub kept_write: Option<(usize, usize, PeerMessage)>,
    /// The last write that was passed on: to whom, and under which number.
    pub passed_on: Option<(usize, AskId)>,
    /// The last answer to a question of the test's own.
    pub told: Option<Result<kv::Answer, Error>>,
    pub holds: Vec<Arc<Hold>>,
    /// The epochs that nodes have adopted.
    pub adopted: Vec<Epoch>,
    /// The targets that nodes have all of.
    pub copied: Vec<RingVersion>,
    /// The process of each node.
    pub lives: Vec<u64>,
    /// The birth of each node's store, if they have some.
    pub births: Vec<Option<Birth>>,
    /// Nodes whose store has forgotten.
    pub forgot: BTreeSet<usize>,
}

impl Cluster {
    pub fn new(data: &Path, nodes: usize, form: ReadStrategy) -> Cluster {
        let mut cluster = Cluster {
            data: data.to_path_buf(),
            nodes: (0..nodes).map(|_| None).collect(),
            clock: Arc::default(),
            ahead: (0..nodes).map(|_| Arc::default()).collect(),
            form,
            strong_reads: node::StrongReads::Ask,
            version: VERSION,
            reaping: Reaping::after(None),
            anti_entropy: None,
            rebuilding: Rebuilding { every: None, ..Rebuilding::default() },
            slow: SlowRequests::off(),
            slow_lines: Vec::new(),
            paused: None,
            options: Options::default(),
            last_request: 0,
            answers: BTreeMap::new(),
            pieces: BTreeMap::new(),
            reads: true,
            taken: Vec::new(),
            messages: VecDeque::new(),
            cuts: BTreeSet::new(),
            asked: Vec::new(),
            kept_write: None,
            passed_on: None,
            told: None,
            holds: (0..nodes).map(|_| Arc::default()).collect(),
            adopted: vec![Epoch(0); nodes],
            copied: vec![RingVersion(0); nodes],
            lives: vec![0; nodes],
            births: vec![None; nodes],
            forgot: BTreeSet::new(),
        };
        (0..nodes).for_each(|node| cluster.start(node));
        cluster.pass(Duration::from_millis(300));
        cluster
    }

    pub fn start(&mut self, node: usize) {
        let layout = Layout::new(1, RingSize::new(16).unwrap());
        let data = self.data.join(NAMES[node]);
        let (store, table) = open_store(
            &OsDisk::blocking(),
            &data,
            &layout,
            0,
            node as u64 + 1,
            &self.clock,
            Arc::clone(&self.holds[node]),
            self.options.clone(),
        );
        let count = self.nodes.len();
        let seed = 99 + node as u64 + self.clock.now().0;
        let here = NodeId(u16::try_from(node).unwrap());
        let leases = node::LeaseConfig::starting(here, seed, 1, self.strong_reads, &*self.clock);
        let config = ShardConfig {
            id: ShardId(0),
            layout,
            members: Arc::new(Members::new(NAMES[..count].iter().copied(), NAMES[node]).unwrap()),
            ring: Arc::new(Ring::round_robin(RingVersion(1), layout.ring_size, count as u32).unwrap()),
            limits: kv::Limits::default(),
            clock: Arc::new(AheadClock(Arc::clone(&self.clock), Arc::clone(&self.ahead[node]))),
            rng: Box::new(SplitMix64::new(seed)),
            read_form: self.form,
            life: seed,
            reaping: self.reaping,
            anti_entropy: self.anti_entropy,
            rebuilding: self.rebuilding,
            gathered: base::Budget::unlimited(),
            slow: Arc::clone(&self.slow),
            leases,
        };
        self.lives[node] = seed;
        let mut shard = Shard::new(config, store, table);
        if let Some(birth) = self.births[node] {
            shard.keep_birth(birth);
        }
        self.nodes[node] = Some(shard);
    }

    /// As a kill does it, with what was synced on the disk.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node] = None;
        self.messages.retain(|(from, to, _)| *from != node && *to != node);
    }

    /// Stops a node cleanly.
    pub fn stop(&mut self, node: usize) {
        let shard = self.nodes[node].as_mut().unwrap();
        shard.begin_close();
        let mut outputs = Vec::new();
        while !outputs.iter().any(|output| matches!(output, Output::Closed(Ok(())))) {
            shard.turn();
            shard.take_outputs(&mut outputs);
        }
        self.kill(node);
    }

    pub fn cut(&mut self, node: usize) {
        for other in (0..self.nodes.len()).filter(|&other| other != node) {
            self.cuts.extend([(node, other), (other, node)]);
        }
    }

    /// Runs all nodes until nothing moves, also not what their disks have just done.
    pub fn run(&mut self) {
        let mut still = 0;
        while still < 4 {
            still += 1;
            let mut moved = false;
            for from in 0..self.nodes.len() {
                if self.paused.as_ref().is_some_and(|(node, _)| *node == from) {
                    continue;
                }
                let Some(shard) = &mut self.nodes[from] else { continue };
                let mut outputs = Vec::new();
                shard.turn();
                shard.take_outputs(&mut outputs);
                moved |= !outputs.is_empty() || shard.wants_turn();
                for output in outputs {
                    match output {
                        Output::Reply { to, result: Ok(piece), more: true } => {
                            self.pieces.entry(to).or_default().push(piece);
                            self.taken.push((from, to));
                        }
                        Output::Reply { to, result, .. } => {
                            assert!(self.answers.insert(to, result).is_none(), "one answer");
                        }
                        Output::Peer { to, message } => {
                            if let PeerMessage::Forward { id, .. } = &message {
                                self.passed_on = Some((usize::from(to.0), *id));
                            }
                            self.messages.push_back((from, usize::from(to.0), message))
                        }
                        Output::Hop { .. } => unreachable!("there is one shard"),
                        Output::Slow(line) => self.slow_lines.push((from, line)),
                        Output::Copied(version) => self.copied[from] = version,
                        Output::Adopted(epoch) => self.adopted[from] = epoch,
                        Output::BirthKept(birth) => assert_eq!(Some(birth), self.births[from]),
                        Output::Forgot => drop(self.forgot.insert(from)),
                        Output::Closed(result) => result.unwrap(),
                    }
                }
            }
            if self.reads {
                for (node, id) in std::mem::take(&mut self.taken) {
                    moved = true;
                    self.nodes[node].as_mut().unwrap().proceed(id);
                }
            }
            while let Some((from, to, message)) = self.messages.pop_front() {
                moved = true;
                match &mut self.paused {
                    Some((node, kept)) if *node == to => kept.push((from, message)),
                    _ if self.cuts.contains(&(from, to)) => {}
                    _ => self.deliver(from, to, &message),
                }
            }
            if moved {
                still = 0;
            }
        }
    }

    pub fn deliver(&mut self, from: usize, to: usize, message: &PeerMessage) {
        let mut bytes = BytesMut::new();
        let value = message.encode(self.version, &mut bytes).unwrap();
        bytes.extend_from_slice(&value.unwrap_or_default());
        let frame = protocol::peer::next_frame(&mut bytes, protocol::peer::FRAME_BYTES_MAX).unwrap();
        let message = PeerMessage::decode(frame.unwrap()).unwrap();
        match &message {
            PeerMessage::Ask { ask: kv::Ask::Merge { reason: kv::Reason::Write, .. }, .. } => {
                self.kept_write = Some((from, to, message.clone()));
            }
            PeerMessage::Answer { id: AskId(id), result, .. } if *id == TESTS_OWN << 8 => {
                self.told = Some(result.clone());
            }
            _ => {}
        }
        self.asked.push(match &message {
            PeerMessage::Ask { ask: kv::Ask::Read { want: kv::Want::Head }, .. } => "head",
            PeerMessage::Ask { ask: kv::Ask::Read { want: kv::Want::Value }, .. } => "value",
            PeerMessage::Ask { ask: kv::Ask::Merge { reason, .. }, .. } => match reason {
                kv::Reason::Write => "write",
                kv::Reason::Repair => "repair",
                kv::Reason::Heal => "heal",
                kv::Reason::Handoff => "handoff",
                kv::Reason::DualWrite => "pass",
                kv::Reason::Copy => "copy",
            },
            PeerMessage::Ask { ask: kv::Ask::Reap { round, .. }, .. } => match round {
                Round::Promise => "promise",
                Round::Confirm => "confirm",
                Round::Remove => "remove",
            },
            PeerMessage::Forward { .. } => "forward",
            PeerMessage::AskPage { .. } => "page",
            PeerMessage::Props { .. } => "props",
            PeerMessage::AskProps { .. } => "ask props",
            PeerMessage::AskTree { .. } => "tree",
            _ => "",
        });
        if let Some(shard) = &mut self.nodes[to] {
            shard.peer(NodeId(u16::try_from(from).unwrap()), message);
        }
    }

    /// Stops a node as SIGSTOP does: messages to it wait.
    pub fn pause(&mut self, node: usize) {
        self.paused = Some((node, Vec::new()));
    }

    /// Lets it go on.
    pub fn resume(&mut self) {
        let (node, kept) = self.paused.take().expect("a node is paused");
        kept.iter().for_each(|(from, message)| self.deliver(*from, node, message));
        self.run();
    }

    /// Lets time pass, tick by tick.
    pub fn pass(&mut self, time: Duration) {
        let tick = Duration::from_millis(50);
        for _ in 0..time.as_millis().div_ceil(tick.as_millis()) {
            self.clock.0.fetch_add(u64::try_from(tick.as_nanos()).unwrap(), Ordering::Relaxed);
            self.nodes.iter_mut().flatten().for_each(Shard::tick);
            self.run();
        }
    }

    pub fn begin(&mut self, node: usize, request: Request) -> RequestId {
        self.last_request += 1;
        let id = RequestId(self.last_request);
        self.asked.clear();
        self.nodes[node].as_mut().unwrap().request(id, request);
        self.run();
        id
    }

    pub fn ask(&mut self, node: usize, request: Request) -> Result<Response, Error> {
        let id = self.begin(node, request);
        self.answers.remove(&id).expect("an answer without time passing")
    }

    /// Writes these keys, many at a time, by the first two nodes.
    pub fn fill(&mut self, bucket: &Bucket, keys: impl IntoIterator<Item = String>) {
        for (at, key) in keys.into_iter().enumerate() {
            let value = Bytes::from_static(b"v");
            let put = PutRequest::new(bucket.clone(), Some(key.into()), Metadata::default(), value);
            self.last_request += 1;
            let id = RequestId(self.last_request);
            let node = at % 2.min(self.nodes.len());
            self.nodes[node].as_mut().unwrap().request(id, Request::put(put));
            if at % 100 == 99 {
                self.run();
            }
        }
        self.run();
        assert!(std::mem::take(&mut self.answers).into_values().all(|answer| answer.is_ok()));
    }

    pub fn put(&mut self, node: usize, key: &str, value: &str) -> Result<Response, Error> {
        self.ask(node, Request::put(put(key, value)))
    }

    pub fn values(&mut self, node: usize, key: &str) -> Vec<String> {
        values(self.ask(node, Request::Get(get(key))))
    }

    /// What a node has itself, as a question to the replica tells it.
    pub fn has(&mut self, node: usize, key: &str) -> Vec<String> {
        self.holds(node, get(key))
    }

    /// The same of any bucket.
    pub fn holds(&mut self, node: usize, get: GetRequest) -> Vec<String> {
        let request = GetRequest { r: Quorum::One, n_val: Some(1), ..get };
        let others: Vec<usize> = (0..self.nodes.len()).filter(|&other| other != node).collect();
        let before = self.cuts.clone();
        self.cut(node);
        others.iter().for_each(|&other| {
            self.nodes[node].as_mut().unwrap().link(NodeId(u16::try_from(other).unwrap()), false);
        });
        let answer = self.ask(node, Request::Get(request));
        self.cuts = before;
        self.pass(Duration::from_millis(300));
        values(answer)
    }

    pub fn idle(&self) -> bool {
        self.nodes.iter().flatten().all(Shard::is_idle)
    }
}

pub fn bucket() -> Bucket {
    Bucket::untyped(Bytes::from_static(b"b"))
}

pub fn get(key: &str) -> GetRequest {
    GetRequest::new(bucket(), Bytes::copy_from_slice(key.as_bytes()))
}

pub fn put(key: &str, value: &str) -> PutRequest {
    let (key, value) = (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value.as_bytes()));
    PutRequest::new(bucket(), Some(key), Metadata::default(), value)
}

pub fn delete(key: &str) -> DeleteRequest {
    DeleteRequest::new(bucket(), Bytes::copy_from_slice(key.as_bytes()))
}

pub fn values(answer: Result<Response, Error>) -> Vec<String> {
    match answer.unwrap() {
        Response::NotFound { .. } => Vec::new(),
        Response::Found(found) => {
            let all = found.value.unwrap();
            let head = HeadView::parse(&found.head).unwrap();
            let value = |sibling: object::SiblingView<'_>| {
                let start = usize::try_from(sibling.value_offset).unwrap();
                String::from_utf8(all[start..start + sibling.value_len as usize].to_vec()).unwrap()
            };
            let mut values: Vec<String> = match found.newest_only {
                true => vec![value(head.newest())],
                false => head.siblings().map(value).collect(),
            };
            values.sort();
            values
        }
        other => panic!("a get answered {other:?}"),
    }
}

pub fn three(data: &tempfile::TempDir) -> Cluster {
    Cluster::new(data.path(), 3, ReadStrategy::LocalValue)
}

/// Three nodes that compare what they hold every second.
pub fn comparing(data: &tempfile::TempDir) -> Cluster {
    let mut cluster = three(data);
    cluster.anti_entropy = Some(Duration::from_secs(1));
    for node in 0..3 {
        cluster.stop(node);
        cluster.start(node);
    }
    cluster.pass(Duration::from_secs(1));
    cluster
}

pub fn counters(cluster: &Cluster) -> Vec<ShardCounters> {
    cluster.nodes.iter().flatten().map(|shard| shard.stats().counters).collect()
}

pub fn sum(cluster: &Cluster, of: fn(&ShardCounters) -> u64) -> u64 {
    counters(cluster).iter().map(of).sum()
}

/// Gives one node alone a version of a key, that of another key.
pub fn plant(cluster: &mut Cluster, node: usize, key: &str) {
    let Some((_, _, PeerMessage::Ask { ask: kv::Ask::Merge { head, value, .. }, .. })) =
        cluster.kept_write.clone()
    else {
        panic!("something was written")
    };
    let layout = Layout::new(1, RingSize::new(16).unwrap());
    let (bucket, mut ledger_key) = (bucket(), Vec::new());
    let prefix = layout.prefix(&bucket, key.as_bytes());
    object::key::encode_object_key(
        prefix,
        &bucket.bucket_type,
        &bucket.name,
        key.as_bytes(),
        &mut ledger_key,
    );
    let ask = kv::Ask::Merge { head, value, hints: Vec::new(), reason: kv::Reason::Write };
    let (id, key) = (AskId(TESTS_OWN << 8), Bytes::from(ledger_key));
    let message = PeerMessage::Ask { id, ttl_ms: 1000, life: 0, key, ask };
    cluster.nodes[node].as_mut().unwrap().peer(NodeId(u16::try_from((node + 1) % 3).unwrap()), message);
    cluster.run();
}

pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// The files in a folder and those below it.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Damages the first block of the largest table of a store that nobody has open: objects are there, and what a node
/// reads to start is behind them.
#[allow(clippy::disallowed_methods, reason = "it does so behind the store's back")]
pub fn damage_a_block(store: &Path) {
    let len = |file: &PathBuf| std::fs::metadata(file).unwrap().len();
    let largest = files_below(&store.join("tables")).into_iter().max_by_key(len).unwrap();
    let mut bytes = std::fs::read(&largest).unwrap();
    let at = bytes.len() / 6;
    bytes[at] ^= 1;
    std::fs::write(&largest, bytes).unwrap();
}

/// A value too long to come with its head.
pub fn long(name: &str) -> String {
    name.repeat(1000)
}

pub fn context_of(cluster: &mut Cluster, node: usize, key: &str) -> Bytes {
    let Ok(Response::Found(found)) = cluster.ask(node, Request::Get(get(key))) else { panic!("it is there") };
    let mut bytes = Vec::new();
    HeadView::parse(&found.head).unwrap().context().write_client_bytes(&mut bytes);
    bytes.into()
}
