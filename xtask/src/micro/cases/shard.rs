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
use node::{Layout, Output, RequestId, Shard, ShardConfig, ShardId, layout};
use ring::{Ring, RingSize, RingVersion};
use std::path::Path;
use std::sync::Arc;

/// Time stands still.
pub(super) struct Standing;

impl Clock for Standing {
    fn now(&self) -> Monotonic {
        Monotonic(1_000_000_000)
    }

    fn wall(&self) -> Wall {
        Wall(1_700_000_000_000_000)
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

impl Node {
    fn open() -> Result<Node> {
        let layout = Layout::new(1, RingSize::new(64)?);
        let disk = MemoryDisk::default();
        let platform = Platform {
            disk: disk.handle(),
            startup: disk.handle(),
            spawn: Arc::new(RunAtOnce::new(disk.handle())),
            rng: Box::new(SplitMix64::new(5)),
            clock: Arc::new(Standing),
        };
        let options =
            Options { metadata: layout.metadata(0), indexing: Some(node::INDEXING), ..Options::default() };
        let (mut store, _) = Store::open(&layout::shard_dir(Path::new("/data"), 0), options, platform)?;
        let table = Shard::read_props(&mut store, &mut *disk.handle())?;
        let config = ShardConfig {
            id: ShardId(0),
            layout,
            members: Arc::new(node::Members::alone("n@127.0.0.1")),
            ring: Arc::new(Ring::of_one_node(RingVersion(1), layout.ring_size)),
            limits: kv::Limits::default(),
            clock: Arc::new(Standing),
            rng: Box::new(SplitMix64::new(6)),
            read_form: kv::ReadForm::LocalValue,
            life: 1,
            reaping: node::Reaping::after(None),
            anti_entropy: None,
            rebuilding: node::Rebuilding::default(),
            gathered: base::Budget::unlimited(),
        };
        let shard = Shard::new(config, store, table);
        Ok(Node {
            shard,
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
