//! Nodes of one shard each, in one process: messages between them are handed over, not encoded.
//!
//! Three nodes hold three copies of each key. While partitions move a fourth node takes the place of the third one. A
//! count is of all nodes that take part in an operation, and of the frames of the client at the first node.
//!
//! Steps of an operation: 1. one shard gets an input; 2. each shard with an input takes turns, and its messages become
//! inputs of the others; 3. the operation ends when no shard has anything left to do, so later replies count too.

use super::protocol::{BUCKET, get_frame, put_frame, receive, session};
use super::shard::{Place, layout_of_all, open_shard};
use super::{OPERATIONS, Operation, VALUE_BYTES, WARM, asked, key};
use crate::Result;
use base::{Clock, Monotonic, Wall};
use bytes::{Bytes, BytesMut};
use kv::{Answer, Ask, Bucket, Request, Response, Want};
use node::riak::Session;
use node::{AskId, Epoch, Members, Output, PeerMessage, RequestId, Shard, Topology};
use ring::{NodeId, Ring, RingVersion};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Keys in the cluster before a case begins: enough for a flush of each node, few enough for some seconds of setup.
const CLUSTER_KEYS: u64 = 2_000;

/// Names of the nodes. Their order is that of the numbers.
const NAMES: [&str; 4] = ["a@127.0.0.1", "b@127.0.0.1", "c@127.0.0.1", "d@127.0.0.1"];

/// The node that serves the client.
const FIRST: usize = 0;

/// The interval of ticks of a shard without work.
const QUIET_TICK: Duration = Duration::from_millis(1_024);

/// Ticks after which a new cluster is idle: all peers are quiet, and the hash trees are complete.
const SETTLING_TICKS: usize = 60;

/// The default of a node.
const ANTI_ENTROPY: Duration = Duration::from_secs(60);

/// Turns that a shard gets after its last sign of work: one ends the writes, one takes the disk's completions.
const TURNS_AFTER_WORK: u32 = 2;

/// Time that moves by hand.
struct HandClock(AtomicU64);

impl HandClock {
    fn starting() -> HandClock {
        HandClock(AtomicU64::new(1_000_000_000))
    }

    fn advance(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).expect("a tick is short");
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Monotonic {
        Monotonic(self.0.load(Ordering::Relaxed))
    }

    fn wall(&self) -> Wall {
        Wall(1_700_000_000_000_000 + self.0.load(Ordering::Relaxed) / 1_000)
    }

    fn lease(&self) -> Monotonic {
        self.now()
    }
}

/// A ring that these nodes of the cluster own in turn.
fn ring_of(version: u64, members: &Members, owners: &[u16]) -> Result<Arc<Ring>> {
    let size = layout_of_all()?.ring_size;
    let owned = owners.iter().copied().cycle().take(size.all().len()).map(NodeId).collect();
    Ok(Arc::new(Ring::new(RingVersion(version), size, Arc::clone(members.of_ring()), owned)?))
}

fn members(nodes: usize, here: usize) -> Result<Members> {
    let members = Members::new(NAMES[..nodes].iter().copied(), NAMES[here]);
    Ok(members.ok_or("the names differ")?)
}

pub(super) fn number(node: usize) -> NodeId {
    NodeId(u16::try_from(node).expect("there are four nodes"))
}

/// A shard and the turns that it is still to get.
struct Member {
    shard: Shard,
    turns: u32,
}

/// The nodes, and a connection of a client to the first one.
pub(super) struct Cluster {
    members: Vec<Member>,
    clock: Arc<HandClock>,
    session: Session,
    input: BytesMut,
    out: Vec<u8>,
    /// Outputs of the shard whose turn it is.
    outputs: Vec<Output>,
    asked: u64,
    /// The reply to the client.
    reply: Option<std::result::Result<Response, kv::Error>>,
    /// The answer to a message of no node.
    answer: Option<std::result::Result<Answer, kv::Error>>,
}

/// The number of a question that no shard has asked.
const FOREIGN: AskId = AskId(7 << 8);

impl Cluster {
    /// So many nodes, of which the first three own all partitions.
    pub(super) fn open(nodes: usize) -> Result<Cluster> {
        let clock = Arc::new(HandClock::starting());
        let mut cluster = Cluster {
            members: Vec::new(),
            clock: Arc::clone(&clock),
            session: session(),
            input: BytesMut::new(),
            out: Vec::new(),
            outputs: Vec::new(),
            asked: 0,
            reply: None,
            answer: None,
        };
        for node in 0..nodes {
            let shared = Arc::clone(&clock);
            let topology = move || {
                let members = members(nodes, node)?;
                let ring = ring_of(1, &members, &[0, 1, 2])?;
                Ok((Arc::new(members), ring))
            };
            let place = Place {
                topology: Box::new(topology),
                clock: Box::new(move || Arc::<HandClock>::clone(&shared)),
                anti_entropy: Some(ANTI_ENTROPY),
                seed: 10 * (node as u64 + 1),
                life: node as u64 + 1,
            };
            cluster.members.push(Member { shard: open_shard(place)?, turns: 0 });
        }
        for node in 0..nodes {
            for peer in (0..nodes).filter(|&peer| peer != node) {
                cluster.shard(node).link(number(peer), true);
            }
        }
        cluster.run();
        Ok(cluster)
    }

    fn filled(nodes: usize) -> Result<Cluster> {
        let mut cluster = Cluster::open(nodes)?;
        for number in 0..CLUSTER_KEYS {
            assert_eq!(cluster.ask(&put_frame(key(number))), EMPTY_FRAME);
        }
        cluster.pass(SETTLING_TICKS);
        assert!(cluster.members.iter().all(|member| member.shard.is_quiet() && member.shard.is_idle()));
        assert!(cluster.members.iter().all(|member| member.shard.stats().trees_due == 0));
        Ok(cluster)
    }

    /// A shard that is about to get an input.
    pub(super) fn shard(&mut self, node: usize) -> &mut Shard {
        let member = &mut self.members[node];
        member.turns = TURNS_AFTER_WORK;
        &mut member.shard
    }

    /// Sends a frame of a client; the length of the answer's.
    pub(super) fn ask(&mut self, frame: &[u8]) -> usize {
        let request = self.read_frame(frame);
        let reply = self.request(request).expect("all replicas have answered");
        self.out.clear();
        self.session.respond(reply, &mut self.out);
        self.out.len()
    }

    /// The request in a frame of a client.
    pub(super) fn read_frame(&mut self, frame: &[u8]) -> Request {
        receive(&mut self.session, &mut self.input, frame, &mut self.out)
    }

    /// The reply to a request of a client, if it comes at once.
    pub(super) fn request(&mut self, request: Request) -> Option<std::result::Result<Response, kv::Error>> {
        self.asked += 1;
        let id = RequestId(self.asked);
        self.shard(FIRST).request(id, request);
        self.run();
        self.take_reply()
    }

    /// The reply to the last request, if it has come.
    pub(super) fn take_reply(&mut self) -> Option<std::result::Result<Response, kv::Error>> {
        self.reply.take()
    }

    /// Gives turns until no shard has anything to do.
    pub(super) fn run(&mut self) {
        while self.members.iter().any(|member| member.turns > 0) {
            (0..self.members.len()).for_each(|node| self.take_turn(node));
        }
    }

    fn take_turn(&mut self, node: usize) {
        let member = &mut self.members[node];
        if member.turns == 0 {
            return;
        }
        member.shard.turn();
        member.shard.take_outputs(&mut self.outputs);
        let works = !self.outputs.is_empty() || member.shard.wants_turn();
        member.turns = if works { TURNS_AFTER_WORK } else { member.turns - 1 };

        let mut outputs = std::mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            self.deliver(node, output);
        }
        self.outputs = outputs;
    }

    fn deliver(&mut self, from: usize, output: Output) {
        match output {
            Output::Reply { result, .. } => self.reply = Some(result),
            Output::Peer { message: PeerMessage::Answer { id: FOREIGN, result, .. }, .. } => {
                self.answer = Some(result);
            }
            Output::Peer { to, message } => self.shard(usize::from(to.0)).peer(number(from), message),
            Output::Adopted(_)
            | Output::Copied(_)
            | Output::BirthKept(_)
            | Output::Forgot
            | Output::Slow(_) => {}
            Output::Hop { .. } | Output::Closed(_) => panic!("{output:?} of a node of one shard that serves"),
        }
    }

    /// Time passes for all nodes.
    fn pass(&mut self, ticks: usize) {
        (0..ticks).for_each(|_| self.tick_after(QUIET_TICK));
    }

    /// All nodes tick after some time.
    pub(super) fn tick_after(&mut self, time: Duration) {
        self.clock.advance(time);
        for node in 0..self.members.len() {
            self.shard(node).tick();
        }
        self.run();
    }

    /// Time passes, and no timer is due.
    pub(super) fn advance(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Tells all nodes that the fourth one is to take the place of the third one.
    fn begin_move(&mut self) -> Result<()> {
        let nodes = self.members.len();
        for node in 0..nodes {
            let members = members(nodes, node)?;
            let (ring, target) = (ring_of(1, &members, &[0, 1, 2])?, ring_of(2, &members, &[0, 1, 3])?);
            let at_rest = Topology::at_rest(Arc::new(members), ring);
            self.shard(node).topology(Topology { epoch: Epoch(1), target: Some(target), ..at_rest });
        }
        self.run();
        Ok(())
    }
}

/// The length of a frame without a body.
pub(super) const EMPTY_FRAME: usize = 5;

pub fn quorum_get() -> Result<Operation> {
    let (mut cluster, at) = (Cluster::filled(3)?, asked(CLUSTER_KEYS));
    let frames: Vec<_> = (0..CLUSTER_KEYS).map(|number| get_frame(key(number))).collect();
    Ok(Box::new(move |number| assert!(cluster.ask(&frames[at(number)]) > VALUE_BYTES)))
}

/// Frames of writes of new keys, by the number of the operation.
fn new_keys() -> Vec<Vec<u8>> {
    (CLUSTER_KEYS..CLUSTER_KEYS + WARM + OPERATIONS).map(|number| put_frame(key(number))).collect()
}

pub fn quorum_put() -> Result<Operation> {
    let (mut cluster, frames) = (Cluster::filled(3)?, new_keys());
    Ok(Box::new(move |number| assert_eq!(cluster.ask(&frames[number as usize]), EMPTY_FRAME)))
}

/// A put by three replicas, one of which passes it on to the node that takes its place.
pub fn put_moving() -> Result<Operation> {
    let (mut cluster, frames) = (Cluster::filled(4)?, new_keys());
    cluster.begin_move()?;
    cluster.pass(SETTLING_TICKS);
    let transfers = cluster.members[3].shard.status().transfers();
    assert!(transfers.iter().all(|transfer| transfer.partitions_left == 0) && !transfers.is_empty());
    Ok(Box::new(move |number| assert_eq!(cluster.ask(&frames[number as usize]), EMPTY_FRAME)))
}

/// The head of a key for a peer that coordinates a get.
pub fn replica_read() -> Result<Operation> {
    let (mut cluster, at) = (Cluster::filled(3)?, asked(CLUSTER_KEYS));
    let layout = layout_of_all()?;
    let ledger_key = |number| {
        let (bucket, key, mut out) = (Bucket::untyped(BUCKET), key(number), Vec::new());
        let prefix = layout.prefix(&bucket, &key);
        object::key::encode_object_key(prefix, &bucket.bucket_type, &bucket.name, &key, &mut out);
        Bytes::from(out)
    };
    let keys: Vec<Bytes> = (0..CLUSTER_KEYS).map(ledger_key).collect();
    Ok(Box::new(move |asked| {
        let key = keys[at(asked)].clone();
        let ask = Ask::Read { want: Want::Head };
        let message = PeerMessage::Ask { id: FOREIGN, ttl_ms: 60_000, life: 0, key, ask };
        cluster.shard(FIRST).peer(number(1), message);
        cluster.run();
        assert!(matches!(cluster.answer.take(), Some(Ok(Answer::Read(Some(_))))));
    }))
}

/// A tick of the first node, and the answers of its peers.
pub fn tick_idle() -> Result<Operation> {
    let mut cluster = Cluster::filled(3)?;
    Ok(Box::new(move |_| {
        cluster.clock.advance(QUIET_TICK);
        cluster.shard(FIRST).tick();
        cluster.run();
    }))
}
