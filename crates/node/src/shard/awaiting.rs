//! Owners of writes that may not be acknowledged yet, in the order of the writes.
//!
//! One notion of "not durable yet" for all components: each leaves its token with the number of its write, and the
//! router gives the token back when the store may acknowledge that write, or never will.

use crate::peer::NodeId;
use engine::Seq;
use std::collections::BTreeSet;

/// The owner of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waiter {
    /// A task.
    Task(u64),
    /// The checkpoint of an inbound transfer from this node.
    Transfer(NodeId),
    /// A change of bucket properties.
    Props(u64),
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Awaiting(BTreeSet<(Seq, Waiter)>);

impl Awaiting {
    /// Leaves a token.
    pub fn insert(&mut self, seq: Seq, waiter: Waiter) {
        self.0.insert((seq, waiter));
    }

    /// Whether this token was left.
    pub fn has(&self, seq: Seq, waiter: Waiter) -> bool {
        self.0.contains(&(seq, waiter))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The write that comes first.
    pub fn first(&self) -> Option<Seq> {
        self.0.first().map(|(seq, _)| *seq)
    }

    /// The write that comes last.
    pub fn last(&self) -> Option<Seq> {
        self.0.last().map(|(seq, _)| *seq)
    }

    /// Takes its token.
    pub fn pop_first(&mut self) -> Option<(Seq, Waiter)> {
        self.0.pop_first()
    }
}
