//! What nodes that come up are told of properties: every change, each until they confirm it.
//!
//! 1. When a node comes up, shard 0 takes all changes that it knows, in the order in which they build on each other.
//! 2. A few are on their way at a time; each is told again while it is not confirmed.
//! 3. It ends when all are confirmed, or when the node goes down: then it begins anew when that comes up.
//!
//! So a node that has lost its properties has them again if any other has them.

use super::Shard;
use crate::peer::{NodeId, PeerMessage};
use base::Monotonic;
use kv::PropsChange;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long a change may be without its confirmation before it is told again: many round trips, and a write.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Changes on their way to one node: enough for a sync to be shared, few enough that its store and the link are left to others.
const UNDER_WAY_MAX: usize = 64;

/// What one node is told.
#[derive(Default)]
pub(super) struct Telling {
    left: VecDeque<PropsChange>,
    /// By question, with when each was told last.
    under_way: BTreeMap<u64, (Monotonic, PropsChange)>,
}

impl Shard {
    /// Begins to tell a node all that is known.
    pub(super) fn begin_telling(&mut self, node: NodeId) {
        let left = self.table.changes().collect();
        self.changes.tellings.insert(node, Telling { left, under_way: BTreeMap::new() });
        self.go_on_telling(node);
    }

    fn go_on_telling(&mut self, node: NodeId) {
        let now = self.config.clock.now();
        loop {
            let name = self.next_work();
            let Some(telling) = self.changes.tellings.get_mut(&node) else { return };
            if telling.under_way.len() >= UNDER_WAY_MAX {
                return;
            }
            let Some(change) = telling.left.pop_front() else { break };
            telling.under_way.insert(name, (now, change.clone()));
            self.tell(node, name, change);
        }
        if self.changes.tellings.get(&node).is_some_and(|telling| telling.under_way.is_empty()) {
            self.changes.tellings.remove(&node);
        }
    }

    fn tell(&mut self, node: NodeId, name: u64, change: PropsChange) {
        let id = self.ask_id(name);
        self.send(node, PeerMessage::Props { id, change });
    }

    /// A node confirms what it was told.
    pub(super) fn on_told(&mut self, node: NodeId, name: u64) {
        let telling = self.changes.tellings.get_mut(&node);
        if telling.is_some_and(|telling| telling.under_way.remove(&name).is_some()) {
            self.go_on_telling(node);
        }
    }

    /// Tells once more what was not confirmed.
    pub(super) fn tell_again(&mut self, now: Monotonic) {
        let mut due = Vec::new();
        for (&node, telling) in &mut self.changes.tellings {
            for (&name, (told, change)) in &mut telling.under_way {
                if now.since(*told) >= AGAIN_AFTER {
                    *told = now;
                    due.push((node, name, change.clone()));
                }
            }
        }
        due.into_iter().for_each(|(node, name, change)| self.tell(node, name, change));
    }
}
