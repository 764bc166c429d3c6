//! The kinds of worlds that there are.

use crate::cluster;
use crate::consistent;
use crate::elastic::{self, Shape};
use crate::report::Report;
use crate::seed::Seed;
use crate::trace::{Keep, Trace};
use backends::Kind as Backend;
use std::fmt;

/// The largest cluster of whole nodes: each pair of them speaks all the time.
pub const NODES_MAX: u16 = 100;

/// A kind of world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One node: [`cluster`], of one.
    Node,
    /// One node whose stores are of another backend.
    NodeOn(Backend),
    /// Several nodes: [`cluster`].
    Cluster,
    /// So many nodes: [`cluster`].
    ClusterOf(u16),
    /// Several nodes whose stores are of another backend.
    ClusterOn(Backend),
    /// Several nodes on the engine, with a store of another backend for a bucket type.
    ClusterOfTypes,
    /// Several nodes with a consistent bucket type: [`consistent`].
    Strong,
    /// Many nodes on modelled stores: [`elastic`].
    Elastic(Shape),
}

impl Kind {
    /// The kind with this name.
    pub fn named(name: &str) -> Option<Kind> {
        match name {
            "node" => Some(Kind::Node),
            "memory" => Some(Kind::NodeOn(Backend::Memory)),
            "bitcask" => Some(Kind::NodeOn(Backend::Bitcask)),
            "hash" => Some(Kind::NodeOn(Backend::Hash)),
            "cluster" => Some(Kind::Cluster),
            "cluster-bitcask" => Some(Kind::ClusterOn(Backend::Bitcask)),
            "cluster-hash" => Some(Kind::ClusterOn(Backend::Hash)),
            "cluster-types" => Some(Kind::ClusterOfTypes),
            "strong" => Some(Kind::Strong),
            "elastic" => Some(Kind::Elastic(Shape::DEFAULT)),
            _ => None,
        }
    }

    /// The same with this many nodes and partitions, if it can have them.
    pub fn sized(self, nodes: Option<u64>, partitions: Option<u64>) -> Option<Kind> {
        match (self, nodes, partitions) {
            (kind, None, None) => Some(kind),
            (Kind::Cluster | Kind::ClusterOf(_), Some(nodes), None) => {
                let nodes = u16::try_from(nodes).ok().filter(|nodes| (3..=NODES_MAX).contains(nodes))?;
                Some(Kind::ClusterOf(nodes))
            }
            (Kind::Elastic(shape), nodes, partitions) => {
                let nodes = nodes.unwrap_or(shape.nodes.into());
                Shape::of(nodes, partitions.unwrap_or(shape.partitions.into())).map(Kind::Elastic)
            }
            _ => None,
        }
    }

    /// Lives the life of `seed`.
    pub fn run(self, seed: Seed, keep: Keep) -> (Report, Trace) {
        match self {
            Kind::Node => cluster::run_alone(seed, Backend::Annulet, keep),
            Kind::NodeOn(backend) => cluster::run_alone(seed, backend, keep),
            Kind::Cluster => cluster::run(seed, None, Backend::Annulet, keep),
            Kind::ClusterOf(nodes) => cluster::run(seed, Some(nodes), Backend::Annulet, keep),
            Kind::ClusterOn(backend) => cluster::run(seed, None, backend, keep),
            Kind::ClusterOfTypes => cluster::run_of_types(seed, keep),
            Kind::Strong => consistent::run(seed, keep),
            Kind::Elastic(shape) => elastic::run(seed, shape, keep),
        }
    }

    /// Whether its nodes have disks that crash in the midst of a write.
    pub(crate) fn has_disks(self) -> bool {
        !matches!(self, Kind::Elastic(_) | Kind::NodeOn(Backend::Memory))
    }

    /// The share of seeds that must count. A fault that is rare by nature may stay away from a few; a cluster lives
    /// on until it has come.
    pub(crate) fn counted_percent_min(self) -> u64 {
        match self {
            Kind::Node | Kind::NodeOn(_) => 90,
            Kind::Cluster
            | Kind::ClusterOf(_)
            | Kind::ClusterOn(_)
            | Kind::ClusterOfTypes
            | Kind::Elastic(_) => 97,
            // A store that is lost is no voter any more, so in some lives little is acknowledged.
            Kind::Strong => 95,
        }
    }

    /// Index queries that are to be answered as a whole while everything happens. Among many nodes somebody is nearly
    /// always away without whom no answer is whole.
    pub(crate) fn searches_min(self) -> u64 {
        match self {
            Kind::Cluster => 3,
            Kind::ClusterOf(_) | Kind::ClusterOn(_) | Kind::ClusterOfTypes => 1,
            Kind::Node | Kind::NodeOn(_) | Kind::Strong | Kind::Elastic(_) => 0,
        }
    }

    /// The share of the seeds in which tombstones may be reaped that must reap some: all nodes are up together only now
    /// and then, and many nodes hardly ever.
    pub(crate) fn reaped_percent_min(self) -> u64 {
        match self {
            Kind::Node | Kind::NodeOn(_) | Kind::Cluster | Kind::ClusterOn(_) | Kind::ClusterOfTypes => 60,
            Kind::ClusterOf(_) | Kind::Strong | Kind::Elastic(_) => 0,
        }
    }
}

/// As the command's arguments name it.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Node => f.write_str("node"),
            Kind::NodeOn(backend) => f.write_str(backend.name()),
            Kind::Cluster => f.write_str("cluster"),
            Kind::ClusterOf(nodes) => write!(f, "cluster --nodes {nodes}"),
            Kind::ClusterOn(backend) => write!(f, "cluster-{}", backend.name()),
            Kind::ClusterOfTypes => f.write_str("cluster-types"),
            Kind::Strong => f.write_str("strong"),
            Kind::Elastic(shape) => write!(f, "elastic {shape}"),
        }
    }
}
