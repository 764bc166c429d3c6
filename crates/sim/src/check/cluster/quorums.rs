//! As many primaries, and as many nodes, have an acknowledged write as its quorums say.
//!
//! Who has a write is read off the wire: whoever answers that it is merged, and whoever coordinates it; also merged
//! with what came after it, since a coordinator sends on what it has by then. That is an upper bound of what the
//! coordinator knew when it answered.

use super::NodeAt;
use crate::check::history::KeyName;
use crate::check::{Verdict, Violation};
use kv::{BucketProps, Quorum, Request};
use std::collections::{BTreeMap, BTreeSet};

const CHECKER: &str = "quorums are met";

/// What a write asks for, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asks {
    /// Primaries that must have it.
    pub(super) primaries: u32,
    /// Nodes that must have it.
    nodes: u32,
    /// Vnodes that must have it durably.
    durable: u32,
}

impl Asks {
    /// What `request` asks for in a bucket that asks for `node_confirms`, and for Riak's defaults otherwise.
    pub(super) fn of(request: &Request, node_confirms: u32) -> Asks {
        let props = BucketProps::default();
        let n = props.n_val;
        let nodes = |quorum: Quorum| quorum.or(Quorum::Exactly(node_confirms)).count(n);
        match request {
            Request::Put(put) => Asks {
                primaries: put.pw.or(props.pw).count(n),
                nodes: nodes(put.node_confirms),
                durable: put.dw.or(props.dw).count(n),
            },
            Request::Delete(delete) => Asks {
                primaries: delete.pw.or(props.pw).count(n),
                nodes: nodes(Quorum::Default),
                durable: delete.dw.or(delete.rw.or(props.rw)).count(n),
            },
            Request::Get(get) => {
                let n = get.n_val.unwrap_or(n);
                Asks { primaries: get.pr.or(props.pr).count(n), ..Asks::default() }
            }
            _ => Asks::default(),
        }
    }

    /// Primaries that have it durably once it is acknowledged.
    pub(super) fn durable_primaries(&self) -> u32 {
        self.primaries.min(self.durable)
    }

    /// Whether two nodes have it once it is acknowledged, durably.
    pub(super) fn is_safe(&self) -> bool {
        self.nodes.min(self.durable) >= 2 || self.primaries.min(self.durable) >= 2
    }
}

/// Who has which write.
#[derive(Debug, Default)]
pub(super) struct Reached(BTreeMap<u64, Parties>);

#[derive(Debug, Default)]
struct Parties {
    merged: BTreeSet<NodeAt>,
    coordinators: BTreeSet<NodeAt>,
    forwarders: BTreeSet<NodeAt>,
    forwarded: BTreeSet<NodeAt>,
}

impl Reached {
    fn of(&mut self, number: u64) -> &mut Parties {
        self.0.entry(number).or_default()
    }

    pub(super) fn on_merged(&mut self, number: u64, node: NodeAt) {
        self.of(number).merged.insert(node);
    }

    pub(super) fn on_coordinated(&mut self, number: u64, node: NodeAt) {
        self.of(number).coordinators.insert(node);
    }

    /// `from` passes a write on, which nobody has passed on to it.
    pub(super) fn on_forward(&mut self, number: u64, from: NodeAt, to: NodeAt) -> Verdict {
        let parties = self.of(number);
        if parties.forwarded.contains(&from) {
            let what = format!("{number}, which was passed on to n{from}, is passed on to n{to}");
            return Err(Violation::new("a write is passed on once", what));
        }
        parties.forwarders.insert(from);
        parties.forwarded.insert(to);
        parties.coordinators.insert(to);
        Ok(())
    }

    /// Who may have coordinated a write that `node` acknowledges.
    pub(super) fn coordinators(&self, number: u64, node: NodeAt) -> BTreeSet<NodeAt> {
        let parties = self.0.get(&number);
        let mut nodes = parties.map(|parties| parties.coordinators.clone()).unwrap_or_default();
        if parties.is_none_or(|parties| !parties.forwarders.contains(&node)) {
            nodes.insert(node);
        }
        nodes
    }

    /// How many nodes have said that they have it.
    pub(super) fn others(&self, number: u64) -> usize {
        self.0.get(&number).map_or(0, |parties| parties.merged.len())
    }

    /// Checks a write that `node` acknowledges.
    pub(super) fn check(
        &self,
        key: &KeyName,
        number: u64,
        asks: &Asks,
        node: NodeAt,
        primaries: &[NodeAt],
    ) -> Verdict {
        let mut nodes = self.coordinators(number, node);
        nodes.extend(self.0.get(&number).into_iter().flat_map(|parties| &parties.merged));
        let count = |nodes: usize| u32::try_from(nodes).expect("few nodes");
        let has = count(primaries.iter().filter(|primary| nodes.contains(primary)).count());
        let short = |what: &str, wanted: u32| {
            let what = format!("{key}: {number} was acknowledged, with {wanted} {what} wanted, by {nodes:?}");
            Err(Violation::new(CHECKER, format!("{what}; its primaries are {primaries:?}")))
        };
        if has < asks.primaries {
            return short("primaries", asks.primaries);
        }
        if count(nodes.len()) < asks.nodes {
            return short("nodes", asks.nodes);
        }
        Ok(())
    }
}
