//! A shard of the first node of a ring, on an empty store: it places requests and takes publications as a node does.
//!
//! The other nodes answer one ping each, so the shard knows which of them are up. They have no process.

use super::{N_VAL, Shape, unusable};
use base::rng::SplitMix64;
use bench::Error;
use engine::Options;
use engine::embedded::RunAtOnce;
use engine::store::{Platform, Store};
use node::{Layout, Members, Output, PeerMessage, Shard, ShardConfig, ShardId, Topology, layout};
use os::{OsClock, OsDisk};
use ring::{NodeId, Position, Ring};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// The node of the shard.
pub(super) const HERE: NodeId = NodeId(0);

/// A shard, and the folder of its store.
pub struct RingShard {
    shard: Shard,
    outputs: Vec<Output>,
    _folder: TempDir,
}

impl RingShard {
    /// The shard of a claimed ring. Its folder is made in `folder` and removed with it. All nodes but `down` are up.
    ///
    /// # Errors
    /// If there is no such ring, or the store cannot be opened.
    pub fn open(shape: Shape, down: &[NodeId], folder: &Path) -> Result<RingShard, Error> {
        let ring = Arc::new(shape.ring()?);
        let folder = TempDir::new_in(folder).map_err(Error::file(folder))?;
        let layout = Layout::new(1, shape.partitions);
        let disk = OsDisk::blocking();
        let mut startup = disk.blocking_handle();
        let platform = Platform {
            spawn: Arc::new(RunAtOnce::new(Box::new(disk.blocking_handle()))),
            startup: Box::new(disk.blocking_handle()),
            disk: Box::new(disk),
            rng: Box::new(SplitMix64::new(1)),
            clock: Arc::new(OsClock::new()),
        };
        let options = Options { metadata: layout.metadata(0), ..Options::default() };
        let (mut store, _) =
            Store::open(&layout::shard_dir(folder.path(), 0), options, platform).map_err(unusable)?;
        let table = node::read_props(&mut store, &mut startup).map_err(unusable)?;
        let config = ShardConfig {
            id: ShardId(0),
            layout,
            members: Arc::new(members(&ring)?),
            ring,
            limits: kv::Limits::default(),
            clock: Arc::new(OsClock::new()),
            rng: Box::new(SplitMix64::new(2)),
            read_form: kv::ReadStrategy::LocalValue,
            life: 1,
            reaping: node::Reaping::after(None),
            anti_entropy: None,
            rebuilding: node::Rebuilding::default(),
            gathered: base::Budget::unlimited(),
            slow: node::SlowRequests::off(),
            leases: node::LeaseConfig::starting(NodeId(0), 1, 1, node::StrongReads::Ask, &OsClock::new()),
        };
        let shard = Shard::new(config, store, table);
        let mut opened = RingShard { shard, outputs: Vec::new(), _folder: folder };
        for node in (1..shape.nodes).map(NodeId).filter(|node| !down.contains(node)) {
            opened.link(node, true);
        }
        match opened.shard.stats().peers_up == usize::from(shape.nodes) - 1 - down.len() {
            true => Ok(opened),
            false => Err(unusable("a node that is up was not seen")),
        }
    }

    /// A node is up and has answered, or is down.
    pub(super) fn link(&mut self, node: NodeId, is_up: bool) {
        self.shard.link(node, is_up);
        self.shard.take_outputs(&mut self.outputs);
        for output in std::mem::take(&mut self.outputs) {
            if let Output::Peer { to, message: PeerMessage::Ping { id, load, props, promise, .. } } = output {
                self.shard.peer(to, PeerMessage::Pong { id, life: 1, load, props, promise });
            }
        }
        // Questions that follow from it stay unanswered.
        self.shard.take_outputs(&mut self.outputs);
        self.outputs.clear();
    }

    /// The number of nodes that take part in a request for the keys at this position.
    #[inline]
    pub fn participants(&self, at: Position) -> usize {
        self.shard.status().participants(at, N_VAL)
    }

    /// Publishes members and rings to the shard; says whether it goes by them.
    pub(super) fn publish(&mut self, topology: Topology) -> bool {
        let epoch = topology.epoch;
        self.shard.topology(topology);
        self.shard.take_outputs(&mut self.outputs);
        self.outputs.drain(..).any(|output| matches!(output, Output::Adopted(adopted) if adopted == epoch))
    }
}

/// The members of a ring, as the first node knows them.
pub(super) fn members(ring: &Ring) -> Result<Members, Error> {
    Members::of(HERE, Arc::clone(ring.members())).ok_or_else(|| unusable("the first node is a member"))
}
