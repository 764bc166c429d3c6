//! Requests that other nodes execute.
//!
//! A write has a number of its origin, and the leader's shard drops copies ([`strong::forward`]). It is sent once: if
//! its link breaks, it may have been executed, and ends as *timeout*. It is sent again only if the other node says that
//! it has done nothing, or if the message did not leave. A read may be sent as often as one likes.

use std::collections::{BTreeMap, BTreeSet};

use base::Monotonic;
use kv::Request;
use strong::Endpoint;

use crate::consistent::pending::Pending;
use crate::consistent::voters::is_registered;
use crate::peer::NodeId;
use crate::shard::env::Env;

/// Requests that other nodes execute.
#[derive(Default)]
pub struct AskedRequests {
    requests: BTreeMap<u64, (NodeId, Pending)>,
    /// Deadlines of all of them.
    deadlines: BTreeSet<(Monotonic, u64)>,
    /// The last number of a write to each shard of another process.
    numbers: BTreeMap<Endpoint, u64>,
}

impl AskedRequests {
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// All requests.
    pub fn pendings_mut(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.requests.values_mut().map(|(_, pending)| pending)
    }

    pub fn insert(&mut self, name: u64, to: NodeId, pending: Pending) {
        self.deadlines.insert((pending.times.deadline, name));
        self.requests.insert(name, (to, pending));
    }

    /// The number of the next write to a shard of another process.
    pub fn next_number(&mut self, there: Endpoint) -> u64 {
        let number = self.numbers.entry(there).or_default();
        *number += 1;
        *number
    }

    /// The processes that writes were sent to.
    pub fn lives(&self) -> Vec<u64> {
        self.numbers.keys().map(|endpoint| endpoint.life).collect()
    }

    /// Forgets the numbers of a process that is over.
    pub fn forget_life(&mut self, life: u64) {
        self.numbers.retain(|endpoint, _| endpoint.life != life);
    }

    /// Takes a request that a node was asked for.
    pub fn take(&mut self, from: NodeId, name: u64) -> Option<Pending> {
        let is_from = self.requests.get(&name).is_some_and(|(to, _)| *to == from);
        is_from.then(|| self.remove(name)).flatten()
    }

    fn remove(&mut self, name: u64) -> Option<Pending> {
        let (_, pending) = self.requests.remove(&name)?;
        self.deadlines.remove(&(pending.times.deadline, name));
        Some(pending)
    }

    /// Takes a request past its deadline.
    pub fn take_expired(&mut self, now: Monotonic) -> Option<Pending> {
        let &(_, name) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now)?;
        self.remove(name)
    }

    /// Takes the requests that a node has, of one kind.
    pub fn take_of(&mut self, node: NodeId, is_of_kind: fn(&Request) -> bool) -> Vec<Pending> {
        let of_node =
            self.requests.iter().filter(|(_, (to, pending))| *to == node && is_of_kind(&pending.request));
        let names: Vec<u64> = of_node.map(|(&name, _)| name).collect();
        names.into_iter().filter_map(|name| self.remove(name)).collect()
    }
}

/// Whether a process of a node is over, as far as is known here: neither the cluster nor the link has it. Then its
/// numbers may be forgotten, also while its successor is not registered yet.
pub fn is_over(env: &Env, node: NodeId, life: u64) -> bool {
    !is_registered(env, node, life) && env.peers.life_if_up(node) != Some(life)
}
