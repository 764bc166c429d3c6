//! A node alone with one shard, from frame to frame, without sockets.

use super::protocol::{get_frame, put_frame, session};
use super::{KEYS, OPERATIONS, Operation, VALUE_BYTES, WARM, asked, key};
use crate::Result;
use crate::micro::disk::MemoryDisk;
use base::rng::SplitMix64;
use base::{Clock, Monotonic, Wall};
use bytes::BytesMut;
use engine::Options;
use engine::embedded::RunAtOnce;
use engine::store::{Platform, Store};
use kv::Response;
use node::riak::{Incoming, Session};
use node::{Layout, Members, Output, RequestId, Shard, ShardConfig, ShardId, layout};
use ring::{Ring, RingSize, RingVersion};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time stands still.
pub(super) struct Standing;

impl Clock for Standing {
    fn now(&self) -> Monotonic {
        Monotonic(1_000_000_000)
    }

    fn wall(&self) -> Wall {
        Wall(1_700_000_000_000_000)
    }

    fn lease(&self) -> Monotonic {
        self.now()
    }
}

/// A shard and a connection to it.
struct Node {
    shard: Shard,
    session: Session,
    input: BytesMut,
    out: Vec<u8>,
    outputs: Vec<Output>,
    asked: u64,
}

/// Members of a cluster, as one of them knows them, and owners of partitions.
pub(super) type Topology = (Arc<Members>, Arc<Ring>);

/// The node of a shard, and its time. Both are made as they are needed: counts of some cases depend on the order of
/// allocations.
pub(super) struct Place {
    pub topology: Box<dyn FnOnce() -> Result<Topology>>,
    /// Handles of one clock.
    pub clock: Box<dyn Fn() -> Arc<dyn Clock>>,
    /// How often hash trees are compared with those of other nodes.
    pub anti_entropy: Option<Duration>,
    /// Seeds of two nodes are at least two apart.
    pub seed: u64,
    /// The process, as peers know it.
    pub life: u64,
}

/// The layout of all nodes: one shard.
pub(super) fn layout_of_all() -> Result<Layout> {
    Ok(Layout::new(1, RingSize::new(64)?))
}

/// A shard on an empty disk.
pub(super) fn open_shard(place: Place) -> Result<Shard> {
    let Place { topology, clock, anti_entropy, seed, life } = place;
    let layout = layout_of_all()?;
    let disk = MemoryDisk::default();
    let platform = Platform {
        disk: disk.handle(),
        startup: disk.handle(),
        spawn: Arc::new(RunAtOnce::new(disk.handle())),
        rng: Box::new(SplitMix64::new(seed)),
        clock: clock(),
    };
    let options = Options {
        metadata: layout.metadata(0),
        indexing: Some(node::INDEXING),
        groups: Some(node::GROUPS),
        ..Options::default()
    };
    let (mut store, _) = Store::open(&layout::shard_dir(Path::new("/data"), 0), options, platform)?;
    let table = node::read_props(&mut store, &mut *disk.handle())?;
    let (members, ring) = topology()?;
    let leases = node::LeaseConfig::starting(members.here(), life, 1, node::StrongReads::Ask, &*clock());
    let config = ShardConfig {
        id: ShardId(0),
        layout,
        members,
        ring,
        limits: kv::Limits::default(),
        clock: clock(),
        rng: Box::new(SplitMix64::new(seed + 1)),
        read_form: kv::ReadStrategy::LocalValue,
        life,
        reaping: node::Reaping::after(None),
        anti_entropy,
        rebuilding: node::Rebuilding::default(),
        gathered: base::Budget::unlimited(),
        slow: node::SlowRequests::off(),
        leases,
    };
    Ok(Shard::new(config, store, table))
}

impl Node {
    fn open() -> Result<Node> {
        let place = Place {
            topology: Box::new(|| {
                let members = Arc::new(Members::alone("n@127.0.0.1"));
                Ok((members, Arc::new(Ring::of_one_node(RingVersion(1), layout_of_all()?.ring_size))))
            }),
            clock: Box::new(|| Arc::new(Standing)),
            anti_entropy: None,
            seed: 5,
            life: 1,
        };
        Ok(Node {
            shard: open_shard(place)?,
            session: session(),
            input: BytesMut::new(),
            out: Vec::new(),
            outputs: Vec::new(),
            asked: 0,
        })
    }

    fn filled() -> Result<Node> {
        let mut node = Node::open()?;
        for number in 0..KEYS {
            node.ask(&put_frame(key(number)));
        }
        Ok(node)
    }

    /// Sends a frame; the length of the answer's.
    fn ask(&mut self, frame: &[u8]) -> usize {
        let answer = self.answer(frame);
        self.out.clear();
        self.session.respond(answer, &mut self.out);
        self.out.len()
    }

    fn answer(&mut self, frame: &[u8]) -> std::result::Result<Response, kv::Error> {
        self.input.extend_from_slice(frame);
        self.out.clear();
        let Incoming::Request(request) = self.session.receive(&mut self.input, &mut self.out) else {
            panic!("a frame is a request");
        };
        self.asked += 1;
        self.shard.request(RequestId(self.asked), request);
        loop {
            self.shard.take_outputs(&mut self.outputs);
            if let Some(Output::Reply { result, .. }) = self.outputs.pop() {
                return result;
            }
            self.shard.turn();
        }
    }
}

/// What a GET of 1 KiB is answered with.
pub fn found() -> Result<Response> {
    let mut node = Node::open()?;
    node.ask(&put_frame(key(1)));
    Ok(node.answer(&get_frame(key(1)))?)
}

pub fn get() -> Result<Operation> {
    let (mut node, at) = (Node::filled()?, asked(KEYS));
    let frames: Vec<_> = (0..KEYS).map(|number| get_frame(key(number))).collect();
    Ok(Box::new(move |number| assert!(node.ask(&frames[at(number)]) > VALUE_BYTES)))
}

pub fn get_notfound() -> Result<Operation> {
    let mut node = Node::filled()?;
    let frames: Vec<_> = (KEYS..KEYS + WARM + OPERATIONS).map(|number| get_frame(key(number))).collect();
    // An answer without a body.
    Ok(Box::new(move |number| assert_eq!(node.ask(&frames[number as usize]), 5)))
}

pub fn put() -> Result<Operation> {
    let mut node = Node::filled()?;
    let frames: Vec<_> = (KEYS..KEYS + WARM + OPERATIONS).map(|number| put_frame(key(number))).collect();
    Ok(Box::new(move |number| assert_eq!(node.ask(&frames[number as usize]), 5)))
}
