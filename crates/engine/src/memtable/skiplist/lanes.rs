//! The places of several new nodes, searched for at once.
//!
//! A search waits for memory at each node that it looks at, and knows which to look at next only when it has seen that
//! one. So several take turns: each asks for its next node and lets the others go on, and their waits become one.
//! Kocberber, Falsafi and Grot ("Asynchronous Memory Access Chaining", VLDB 2015) do so for lookups in hash tables and
//! skip lists.
//!
//! Invariant: nothing is linked while they run. What they find are the places among the nodes of before; where several
//! new nodes go to one place, who links them finds each one's among the others ([`super::Before::advance`]).

use super::{Before, NodeRef, SkipList};
use crate::prefetch::prefetch;
use std::sync::atomic::Ordering::Relaxed;

/// Searches that take turns: about as many lines of memory as a core can wait for at once.
pub(super) const LANES: usize = 16;

/// So far behind a node's header its key ends, mostly; that may be in another line of memory.
const KEY_END_BYTES: usize = 40;

struct Lane<'a> {
    key: &'a [u8],
    seq: u64,
    level: usize,
    /// The last node before the place that was seen.
    node: NodeRef<'a>,
    /// What follows it on the level, and was asked for.
    next: Option<NodeRef<'a>>,
    /// What ended the level above: often met again, and known to be at or after the place.
    beyond: Option<NodeRef<'a>>,
    before: &'a mut Before,
}

/// Finds the place of each node, which is complete and not linked yet, at all levels in use.
pub(super) fn find_places<'a>(
    list: &'a SkipList,
    nodes: impl Iterator<Item = NodeRef<'a>>,
    places: &'a mut [Before],
) {
    let level = list.height.load(Relaxed) - 1;
    let mut lanes: Vec<Lane<'a>> = nodes
        .zip(places)
        .map(|(place_of, before)| {
            let (key, seq, node) = (place_of.key(), place_of.seq(), list.head());
            // SAFETY: the head has every level.
            let next = unsafe { node.next_at(level) };
            Lane { key, seq, level, node, next, beyond: None, before }
        })
        .collect();
    while !lanes.is_empty() {
        lanes.retain_mut(Lane::go_on);
    }
}

impl Lane<'_> {
    /// Looks at the node that was asked for, and goes on until there is another to wait for; false at the end.
    fn go_on(&mut self) -> bool {
        match self.next.filter(|next| next.cmp(self.key, self.seq).is_lt()) {
            Some(next) => self.node = next,
            None if self.end_level() => {}
            None => return false,
        }
        loop {
            // SAFETY: the head has every level; any other node was reached through a link of this level or a higher.
            self.next = unsafe { self.node.next_at(self.level) };
            if let Some(next) = self.next.filter(|next| !next.is(self.beyond)) {
                self.ask_for(next);
                return true;
            }
            if !self.end_level() {
                return false;
            }
        }
    }

    /// The place is found on this level; false if it was the lowest.
    fn end_level(&mut self) -> bool {
        self.before.0[self.level] = self.node.0;
        self.beyond = self.next;
        self.level.checked_sub(1).map(|below| self.level = below).is_some()
    }

    /// Fetches the lines in which the node's link of this level, its header and its key are.
    fn ask_for(&self, next: NodeRef<'_>) {
        // A model need not know what a processor does ahead.
        if cfg!(not(loom)) {
            let header = next.0.as_ptr().cast::<u8>();
            prefetch(header.wrapping_sub((self.level + 1) * super::LINK_BYTES));
            prefetch(header.wrapping_add(KEY_END_BYTES));
        }
    }
}
