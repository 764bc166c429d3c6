//! The kinds of worlds that there are.

use crate::report::Report;
use crate::seed::Seed;
use crate::trace::{Keep, Trace};
use crate::{cluster, world};
use std::fmt;

/// A kind of world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One node: [`world`].
    Node,
    /// Several nodes: [`cluster`].
    Cluster,
}

impl Kind {
    /// The kind with this name.
    pub fn named(name: &str) -> Option<Kind> {
        [Kind::Node, Kind::Cluster].into_iter().find(|kind| kind.to_string() == name)
    }

    /// Lives the life of `seed`.
    pub fn run(self, seed: Seed, keep: Keep) -> (Report, Trace) {
        match self {
            Kind::Node => world::run(seed, keep),
            Kind::Cluster => cluster::run(seed, keep),
        }
    }

    /// The share of seeds that must count. A fault that is rare by nature may stay away from a few; a cluster lives
    /// on until it has come.
    pub(crate) fn counted_percent_min(self) -> u64 {
        match self {
            Kind::Node => 90,
            Kind::Cluster => 97,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Node => "node",
            Kind::Cluster => "cluster",
        })
    }
}
