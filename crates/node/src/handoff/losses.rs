//! What senders of copies have lost, and who is asked to make up for it.
//!
//! A sender that has lost something of a partition sends what is left, and says so. Every other node that holds the
//! partition and lives is then asked for all of it, too: what was confirmed, two or more of them have. So a damaged
//! table does not stop a change, and what a quorum confirmed comes over in spite of it. Only what the sender alone had is
//! lost, as it would be if nothing moved.
//!
//! Invariant: a copy is complete when all that are asked have sent what they have; whom it asks more is in the same batch as the
//! checkpoint of the part that told of the loss, so a restart does not forget it.
//!
//! Left out: which keys of a partition are concerned. Merges of what is there already write nothing.

use crate::handoff::receiver::InboundTransfer;
use crate::peer::NodeId;
use crate::shard::Shard;
use crate::topology::nodes;
use base::Monotonic;
use ring::{MemberState, Partition};
use std::collections::{BTreeMap, BTreeSet};

/// What a sender has lost, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyLoss {
    /// Who has lost something.
    pub from: NodeId,
    /// Of which partition of the ring in force.
    pub partition: Partition,
    /// Who is asked for it, or has been. If there is nobody, what was lost stays lost.
    pub others: Vec<NodeId>,
}

/// What has been lost for the target.
#[derive(Default)]
pub(crate) struct Losses {
    /// Who has lost something, by prefix.
    by: BTreeMap<u16, BTreeSet<NodeId>>,
    /// What is to be told.
    told: Vec<CopyLoss>,
}

impl Losses {
    /// Of which prefixes this node has lost something.
    pub fn of(&self, node: NodeId) -> impl Iterator<Item = &u16> {
        self.by.iter().filter(move |(_, nodes)| nodes.contains(&node)).map(|(prefix, _)| prefix)
    }

    pub fn take_told(&mut self) -> Vec<CopyLoss> {
        std::mem::take(&mut self.told)
    }

    /// Notes it. False if it is known already.
    fn note(&mut self, node: NodeId, prefix: u16) -> bool {
        self.by.entry(prefix).or_default().insert(node)
    }
}

impl Shard {
    /// Has all others that hold these prefixes asked for them, and returns those of whom that is new.
    pub(crate) fn make_up_for(&mut self, from: NodeId, lost: &[u16], now: Monotonic) -> BTreeSet<NodeId> {
        let mut asked = BTreeSet::new();
        for &prefix in lost {
            if !self.moves.copies.losses.note(from, prefix) {
                continue;
            }
            let (mut holders, givers) = self.holders(prefix);
            let copies = &mut self.moves.copies;
            let is_first = copies.losses.by[&prefix].len() == 1;
            for &holder in holders.iter().filter(|holder| is_first && !givers.contains(holder)) {
                let pull =
                    copies.pulls.entry(holder).or_insert_with(|| InboundTransfer::new(BTreeSet::new(), now));
                if !pull.has_left(prefix) {
                    pull.more.insert(prefix);
                    asked.insert(holder);
                }
            }
            holders.retain(|holder| !copies.losses.by[&prefix].contains(holder));
            let others = holders.into_iter().collect();
            let at = self.env.knobs.layout.position(prefix);
            let partition = self.env.topology.ring.size().partition(at);
            let loss = CopyLoss { from, partition, others };
            let told = &mut self.moves.copies.losses.told;
            // Of a partition it is told once.
            if told.last() != Some(&loss) {
                told.push(loss);
            }
        }
        asked
    }

    /// Who holds a prefix by the ring in force and can be asked for it, and who of them is asked anyway.
    fn holders(&self, prefix: u16) -> (BTreeSet<NodeId>, BTreeSet<NodeId>) {
        let (topology, here) = (&self.env.topology, self.env.peers.here());
        let (mut holders, mut givers) = (BTreeSet::new(), BTreeSet::new());
        let at = self.env.ownership().position(prefix);
        let lives = |node: &NodeId| {
            let member = topology.ring.members().get(*node);
            *node != here && member.is_some_and(|it| it.state != MemberState::Down)
        };
        for &n_val in topology.n_vals.iter() {
            if topology.joiners(at, n_val).contains(&here) {
                holders.extend(nodes(&topology.ring, at, n_val).into_iter().filter(lives));
                givers.extend(topology.givers(at, n_val));
            }
        }
        (holders, givers)
    }
}
