//! Sync of bucket properties between nodes that find that they know different ones.
//!
//! 1. Every ping and pong has a sum over its sender's properties ([`kv::BucketTable::digest`]). While all sums are the
//!    same, that is all.
//! 2. Shard 0 of a node that has just started asks the first peer whose sum is another than its own. A node that has
//!    been in agreement with another gives a peer that came up a moment to do so first. Then it asks, too, for it may
//!    be the one that lacks something.
//! 3. A question has the sums of each part of the properties. The answer is each change in the parts that differ, in
//!    the order in which they build on each other. A few are on their way at a time, and each is told again while it is
//!    not confirmed.
//! 4. One peer is asked at a time. If it falls silent and the sums still differ, the next one that differs is asked. A
//!    node whose question was in vain waits longer each time, up to [`ASK_WAIT_MAX`].
//!
//! Resets do not count in the sums: two nodes that have the same properties in force agree, though one of them
//! remembers a reset and the other has forgotten it (`resets.rs`). A program older than version 8 counts them, and is
//! compared by a sum that does.
//!
//! So a node that has lost its properties has them again if any other has them, and is told them once. Until 5 the
//! protocol had no sums: a node with an older program is told everything when it comes up.
//!
//! Left out: the spread of a change to all that are up, which comes at once (`spread.rs`).

use crate::metadata::spread::KEEPER;
use crate::peer::{NodeId, PeerMessage};
use crate::shard::Shard;
use base::Monotonic;
use kv::PropsChange;
use kv::props::PropsSums;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long a change may be without its confirmation before it is told again: many round trips, and a write.
pub(crate) const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Changes on their way to one node: enough for a sync to be shared, few enough that its store and the link are left to
/// others.
const UNDER_WAY_MAX: usize = 64;

/// Nodes that are told at a time: each may have every change in a queue. Whoever asks beyond it asks another, soon.
const TELLINGS_MAX: usize = 8;

/// How long the asked peer may tell nothing before another is asked, at first: a change that is on its way to all of
/// them is there by then.
const ASK_WAIT_MIN: Duration = Duration::from_secs(1);

/// The same where no asked peer had anything to tell: sums that never agree cost a question of 2 KiB that often. A
/// node that has missed something knows it within half a minute in any case.
const ASK_WAIT_MAX: Duration = Duration::from_secs(16);

/// The changes that one node is told.
#[derive(Default)]
pub(crate) struct Telling {
    left: VecDeque<PropsChange>,
    /// By question, with when each was told last.
    under_way: BTreeMap<u64, (Monotonic, PropsChange)>,
}

/// What this node asks for.
pub(crate) struct Asking {
    /// Whom it asked last, unless that went down since.
    of: Option<NodeId>,
    /// Before then nobody is asked.
    not_before: Monotonic,
    /// How long the one that is asked next has to begin.
    wait: Duration,
    /// Whether this node has known the same as some other since it was started.
    has_agreed: bool,
}

impl Default for Asking {
    fn default() -> Asking {
        Asking { of: None, not_before: Monotonic(0), wait: ASK_WAIT_MIN, has_agreed: false }
    }
}

impl Shard {
    /// Sums over the changes that are known here.
    pub(crate) fn known_props(&self) -> Option<PropsSums> {
        Some(self.env.props.sums(self.has_kept_props()))
    }

    /// A node has come up. One that `compares` finds out by itself what it lacks.
    pub(crate) fn bring_props(&mut self, node: NodeId, compares: bool) {
        if self.env.knobs.id != KEEPER {
            return;
        }
        let now = self.env.now();
        let asking = &mut self.changes.asking;
        asking.wait = ASK_WAIT_MIN;
        if asking.has_agreed {
            asking.not_before = asking.not_before.max(now + ASK_WAIT_MIN);
        }
        if !compares {
            self.begin_telling(node, &[]);
        }
    }

    /// Another node has said what it knows.
    pub(crate) fn on_known_props(&mut self, node: NodeId, theirs: Option<PropsSums>) {
        let Some(theirs) = theirs.filter(|_| self.env.knobs.id == KEEPER) else { return };
        self.note_sums(node, theirs);
        let now = self.env.now();
        let asking = &mut self.changes.asking;
        if self.env.props.agrees(theirs) {
            asking.has_agreed = true;
            return;
        }
        if now < asking.not_before {
            return;
        }
        (asking.of, asking.not_before) = (Some(node), now + asking.wait);
        asking.wait = (asking.wait * 2).min(ASK_WAIT_MAX);
        let (id, leaves) = (self.env.ask_id(0), self.env.props.leaves(theirs.compared_by()).to_vec());
        self.env.send(node, PeerMessage::AskProps { id, leaves });
    }

    /// A change was told by a node: while it goes on nobody else is asked, unless it has nothing new.
    pub(crate) fn note_told(&mut self, from: NodeId, is_news: bool) {
        let now = self.env.now();
        let asking = &mut self.changes.asking;
        if is_news && asking.of == Some(from) {
            (asking.wait, asking.not_before) = (ASK_WAIT_MIN, now + ASK_WAIT_MIN);
        }
    }

    /// A node is down, and is not told any more. One that was started again is: its new process may have asked already.
    pub(crate) fn end_telling(&mut self, node: NodeId) {
        self.changes.tellings.remove(&node);
    }

    /// A node has forgotten what it was asked, if it was.
    pub(crate) fn fail_asking(&mut self, node: NodeId) {
        let asking = &mut self.changes.asking;
        if asking.of.take_if(|of| *of == node).is_some() {
            asking.not_before = self.env.now();
        }
    }

    /// A node asks what it does not know.
    pub(crate) fn on_ask_props(&mut self, from: NodeId, leaves: &[u64]) {
        let tellings = &self.changes.tellings;
        let has_room = tellings.len() < TELLINGS_MAX && !tellings.contains_key(&from);
        if self.env.knobs.id == KEEPER && has_room {
            self.begin_telling(from, leaves);
        }
    }

    /// Begins to tell a node what it does not know.
    fn begin_telling(&mut self, node: NodeId, leaves: &[u64]) {
        let left = self.env.props.changes_unlike(self.env.peers.compared_by(node), leaves).collect();
        self.changes.tellings.insert(node, Telling { left, under_way: BTreeMap::new() });
        self.go_on_telling(node);
    }

    fn go_on_telling(&mut self, node: NodeId) {
        let now = self.env.now();
        loop {
            let name = self.env.next_id();
            let Some(telling) = self.changes.tellings.get_mut(&node) else { return };
            if telling.under_way.len() >= UNDER_WAY_MAX {
                return;
            }
            let Some(change) = telling.left.pop_front() else { break };
            // A change that is no longer in force is told as the one that is.
            let Some(change) = self.env.props.in_force(&change) else { continue };
            telling.under_way.insert(name, (now, change.clone()));
            self.tell(node, name, change);
        }
        if self.changes.tellings.get(&node).is_some_and(|telling| telling.under_way.is_empty()) {
            self.changes.tellings.remove(&node);
        }
    }

    fn tell(&mut self, node: NodeId, name: u64, change: PropsChange) {
        let id = self.env.ask_id(name);
        self.env.send(node, PeerMessage::Props { id, change });
    }

    /// A node confirms what it was told.
    pub(crate) fn on_told(&mut self, node: NodeId, name: u64) {
        let telling = self.changes.tellings.get_mut(&node);
        if telling.is_some_and(|telling| telling.under_way.remove(&name).is_some()) {
            self.go_on_telling(node);
        }
    }

    /// Tells once more what was not confirmed.
    pub(crate) fn tell_again(&mut self, now: Monotonic) {
        let mut due = Vec::new();
        // Who has asked and is not known to be there asks again when it is.
        let peers = &self.env.peers;
        let is_due = |told: Monotonic| now.since(told) >= AGAIN_AFTER;
        self.changes.tellings.retain(|&node, telling| {
            peers.is_up(node) || !telling.under_way.values().any(|(told, _)| is_due(*told))
        });
        let table = &self.env.props;
        for (&node, telling) in &mut self.changes.tellings {
            for (&name, (told, change)) in &mut telling.under_way {
                if is_due(*told) {
                    *told = now;
                    // In place of a change that was replaced and then forgotten nothing is told: the node that asked
                    // knows it.
                    if let Some(current) = table.in_force(change) {
                        *change = current;
                        due.push((node, name, change.clone()));
                    }
                }
            }
            telling.under_way.retain(|_, (_, change)| table.in_force(change).is_some());
        }
        due.into_iter().for_each(|(node, name, change)| self.tell(node, name, change));
    }
}
