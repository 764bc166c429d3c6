//! Claim: the new owners of partitions after members came, left, or changed their weight or zone.
//!
//! What is wanted, the more important first:
//!
//! 1. *Balance*: each claimant owns its share, by weight, rounded down or up ([`quota`]).
//! 2. *Distance*: any `target_n` neighbouring partitions belong to different nodes, or to all nodes if there are fewer.
//!    That is kept whenever no share is above `partitions / target_n`, rounded down. It cannot be kept otherwise: three
//!    nodes and 64 partitions have 22 for one of them, which is two too close where the ring's end meets its start.
//! 3. *Zones*: the same of zones, and kept under the same condition. Where it cannot hold, because a zone has too large
//!    a share, a move is spent on it only if at least one run of neighbours gains.
//! 4. *Few moves* from the ring there is.
//!
//! Steps: 1. quotas are fixed; 2. partitions without a claimant are given to whom they suit best, and those who lack
//! some take from those who have too many, evenly around the ring ([`fill`]), or where zones have to follow each other
//! in one order, what is out of it is given to those who are to have it ([`order`]); 3. what is too close is swapped
//! away ([`search`]);
//! 4. what moved for nothing is moved back; 5. only if something is still too close the ring is laid out anew
//!    ([`spread`])
//! in a way that is known to keep distance, with names given to resemble the ring there is, and steps 3 and 4 again.
//! The better of the rings is the claim. What could not be kept is told, partition by partition ([`shortfalls`]).
//!
//! Invariants: the same input gives the same claim on every machine; unless distance forces it, only partitions move
//! that must: from those who leave, and from those above their quota.
//!
//! A ring that has just grown is claimed *in place* ([`Claimed::claim_in_place`]): without step 5, so that nearly
//! nothing moves for its new size alone.
//!
//! Left out: choosing among rings of equal merit the one whose failures hit most evenly (Riak's "diversity").
//!
//! Follows riak_core's claim (versions 2 to 4), whose oldest form dealt nodes out in turn and met itself at the seam.
//! Repairing by swaps with a memory of what was just undone is Glover's tabu search (1986).

mod board;
mod claimants;
mod fill;
mod order;
mod quota;
mod search;
mod spread;

use crate::error::Error;
use crate::member::Members;
use crate::node_id::NodeId;
use crate::partition::Partition;
use crate::size::RingSize;
use crate::target_n::TARGET_N_MAX;
use board::{Board, NOBODY};
use claimants::{Claimants, distinct, zone_count, zone_numbers};

/// Neighbouring partitions that are to be on different nodes, if nothing else is asked for: one more than the usual
/// number of replicas, so that a fallback is a node of its own too. As in Riak.
pub const TARGET_N_DEFAULT: usize = 4;
/// What a claim is made for. Whoever commits a claim makes those that were joining valid in the same step: only then
/// may they own what it gives them.
#[derive(Debug, Clone, Copy)]
pub struct Claimed<'a> {
    /// How many partitions there are.
    pub size: RingSize,
    /// Who there is. Members whose state claims, and whose weight is not 0, get partitions.
    pub members: &'a Members,
    /// Who owns what now, by partition; `None` for a new ring.
    pub owners: Option<&'a [NodeId]>,
    /// How many neighbouring partitions are to be on different nodes.
    pub target_n: usize,
}

/// Who is to own what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// By partition.
    pub owners: Box<[NodeId]>,
    /// How many partitions have another owner than before.
    pub moved: usize,
    /// Where copies are closer than asked for.
    pub shortfalls: Vec<Shortfall>,
}

/// Copies of a partition's keys that are on fewer nodes or zones than they could be if every share allowed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortfall {
    /// The partition. It and its neighbours clockwise are `target_n`.
    pub partition: Partition,
    /// How many nodes own these.
    pub nodes: usize,
    /// In how many zones.
    pub zones: usize,
}

impl Claimed<'_> {
    /// The claim.
    ///
    /// # Errors
    /// [`Error::Target`] if `target_n` is not from 1 to [`TARGET_N_MAX`], [`Error::Owners`] if there is not one owner
    /// for each partition, [`Error::NoClaimant`] if no member claims.
    pub fn claim(&self) -> Result<Claim, Error> {
        self.claim_by(&[keep, spread::by_zone, spread::by_node])
    }

    /// The claim that is reached from the owners there are by few moves: the ring is not laid out anew, though that may
    /// bring copies further apart.
    ///
    /// # Errors
    /// As for [`Claimed::claim`].
    pub fn claim_in_place(&self) -> Result<Claim, Error> {
        self.claim_by(&[fill::fill])
    }

    fn claim_by(&self, ways: &[Way]) -> Result<Claim, Error> {
        if !(1..=TARGET_N_MAX).contains(&self.target_n) {
            return Err(Error::Target(self.target_n));
        }
        let partitions = self.size.all().len();
        if let Some(owners) = self.owners.filter(|owners| owners.len() != partitions) {
            return Err(Error::Owners { owners: owners.len(), partitions: self.size.partitions() });
        }
        let claimants = Claimants::of(self.members);
        if claimants.ids.is_empty() {
            return Err(Error::NoClaimant);
        }
        let mut before = vec![NOBODY; partitions];
        for (place, owner) in before.iter_mut().zip(self.owners.into_iter().flatten()) {
            *place = claimants.number(*owner);
        }
        let board = best(&claimants, before, self.target_n.min(partitions), ways);
        let owners: Box<[NodeId]> =
            board.owners().iter().map(|&number| claimants.ids[usize::from(number)]).collect();
        let moved = match self.owners {
            Some(before) => before.iter().zip(&owners).filter(|(before, owner)| before != owner).count(),
            None => 0,
        };
        let shortfalls = shortfalls(self.members, &owners, self.target_n);
        Ok(Claim { owners, moved, shortfalls })
    }
}

/// A way to give partitions to claimants.
type Way = fn(&mut Board);

/// The ring there is, brought to its quotas.
fn keep(board: &mut Board) {
    if board.has_order() { order::keep(board) } else { fill::fill(board) }
}

/// The best ring that is found in these ways; the first is none to make a ring where there was none, unless it is the
/// only one.
fn best(claimants: &Claimants, before: Vec<u16>, n: usize, ways: &[Way]) -> Board {
    let quotas = quota::quotas(claimants, &before, n);
    let start = Board::new(claimants, quotas, before, n);
    let is_new = start.before().iter().all(|&owner| owner == NOBODY);
    let mut best: Option<Board> = None;
    let skipped = usize::from(is_new && ways.len() > 1);
    for lay in &ways[skipped..] {
        let mut board = start.clone();
        lay(&mut board);
        search::repair(&mut board);
        search::undo(&mut board);
        if best.as_ref().is_none_or(|best| board.cost() < best.cost()) {
            best = Some(board);
        }
        if best.as_ref().is_some_and(Board::is_apart) {
            break;
        }
    }
    best.expect("one was laid")
}

/// Where copies are closer than `target_n` asks for on the ring of these owners, clockwise.
///
/// # Panics
/// If an owner is no member.
pub fn shortfalls(members: &Members, owners: &[NodeId], target_n: usize) -> Vec<Shortfall> {
    let n = target_n.min(owners.len());
    let zones = zone_numbers(members);
    let last = members.iter().last().map_or(0, |member| member.id.index() + 1);
    let mut zone_of = vec![0; last];
    members.iter().for_each(|member| zone_of[member.id.index()] = zones[&*member.zone]);
    let claims = || members.iter().filter(|it| it.state.claims() && it.weight > 0);
    let nodes_wanted = claims().count().min(n);
    let zones_wanted = zone_count(claims().map(|it| zones[&*it.zone])).min(n);
    let mut found = Vec::new();
    for start in 0..owners.len() {
        let run = || (0..n).map(|step| owners[(start + step) % owners.len()]);
        let nodes = distinct(run(), n);
        let zones = if zones_wanted > 1 { distinct(run().map(|node| zone_of[node.index()]), n) } else { 1 };
        if nodes < nodes_wanted || zones < zones_wanted {
            let partition = Partition(u32::try_from(start).expect("a ring has at most 65,536 partitions"));
            found.push(Shortfall { partition, nodes, zones });
        }
    }
    found
}

#[cfg(test)]
mod tests;
