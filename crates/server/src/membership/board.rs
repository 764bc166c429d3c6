//! Progress of shards with the agreed state, for the membership's thread.
//!
//! Invariant: a shard never waits here for longer than it takes to copy its transfers, and what it puts down is not
//! lost: the thread looks at all of it whenever something wakes it.

use super::caught_up::GroupProgress;
use super::reach::Reach;
use ::membership::reporter::Progress;
use node::{Epoch, Shard, ShardId, TransferStatus};
use ring::{Birth, NodeId, RingVersion};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// One shard's place.
#[derive(Default)]
struct Place {
    /// The epoch that it goes by.
    adopted: AtomicU64,
    /// The target for which it has all.
    copied: AtomicU64,
    /// Whether it has nothing left that the node is not to have.
    has_given_all: AtomicBool,
    transfers: Mutex<Vec<TransferStatus>>,
    /// Whom it keeps hints for that hold up what it is to drop.
    kept_for: Mutex<Vec<NodeId>>,
    /// The numbers of replicas that it knew of when it adopted that epoch, or later while something moves.
    n_vals: Mutex<BTreeSet<u32>>,
    /// Other nodes that it reaches; `None` until it was looked at.
    reached: Mutex<Option<BTreeSet<NodeId>>>,
    /// Why its store takes no writes.
    refused_writes: Mutex<Option<String>>,
    /// The number of the birth that its store keeps durably; 0 before it does.
    birth: AtomicU64,
    /// Groups that lack entries or keys at its store, as of the last look.
    groups_behind: AtomicU64,
    /// The number of the last birth under which its store found that it forgot; 0 if none did.
    forgot: AtomicU64,
}

/// All shards' places, and what connections want to know of the membership.
pub struct Board {
    places: Box<[Place]>,
    /// The largest number of replicas of any bucket or type, as of the last question about the ring; 0 before one.
    n_val_max: AtomicU32,
    /// Whether this node is about to leave.
    is_leaving: AtomicBool,
    /// Whom this node reaches, which the thread puts down.
    reach: Mutex<Option<Reach>>,
    /// The progress of this node's groups, which the thread puts down.
    groups: Mutex<GroupProgress>,
}

impl Board {
    pub fn new(shards: u16) -> Board {
        Board {
            places: (0..shards).map(|_| Place::default()).collect(),
            n_val_max: AtomicU32::new(0),
            is_leaving: AtomicBool::new(false),
            reach: Mutex::default(),
            groups: Mutex::default(),
        }
    }

    pub fn adopted(&self, shard: ShardId, epoch: Epoch, n_vals: BTreeSet<u32>) {
        // First: who sees the one sees the other.
        *self.of(shard).n_vals.lock().unwrap_or_else(PoisonError::into_inner) = n_vals;
        self.of(shard).adopted.store(epoch.0, Ordering::Release);
    }

    pub fn copied(&self, shard: ShardId, target: RingVersion) {
        self.of(shard).copied.store(target.0, Ordering::Release);
    }

    /// Notes the birth that a store keeps.
    pub fn birth_kept(&self, shard: ShardId, birth: Birth) {
        self.of(shard).birth.store(birth.number(), Ordering::Release);
    }

    /// Notes that a store of this birth forgot. One without a birth gets one anyway.
    pub fn forgot(&self, shard: ShardId, birth: Option<Birth>) {
        if let Some(birth) = birth {
            self.of(shard).forgot.store(birth.number(), Ordering::Release);
        }
    }

    /// The birth that a shard's store keeps durably.
    pub fn birth(&self, shard: ShardId) -> Option<Birth> {
        Birth::of(self.of(shard).birth.load(Ordering::Acquire))
    }

    /// The last birth under which a shard's store forgot.
    pub fn forgotten(&self, shard: ShardId) -> Option<Birth> {
        Birth::of(self.of(shard).forgot.load(Ordering::Acquire))
    }

    /// Notes what can be seen of a shard now and then. Whether it reaches others than before, or began or ceased to
    /// refuse writes.
    pub fn look(&self, id: ShardId, shard: &Shard) -> bool {
        let place = self.of(id);
        place.has_given_all.store(shard.status().has_given_all(), Ordering::Release);
        *place.transfers.lock().unwrap_or_else(PoisonError::into_inner) = shard.status().transfers();
        *place.kept_for.lock().unwrap_or_else(PoisonError::into_inner) = shard.status().kept_for();
        if shard.status().is_changing() {
            *place.n_vals.lock().unwrap_or_else(PoisonError::into_inner) = shard.status().n_vals();
        }
        let refuses = shard.status().refuses_writes().map(|cause| cause.to_string());
        let mut refused = place.refused_writes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other = std::mem::replace(&mut *refused, refuses.clone()).is_some() != refuses.is_some();
        drop(refused);
        let has_caught_up = self.look_at_groups(place, shard);
        let reached = Some(shard.status().reached());
        let mut before = place.reached.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *before, reached.clone()) != reached || is_other || has_caught_up
    }

    /// Counts the groups of a shard that lack something, until the node has caught up. Whether none is left.
    fn look_at_groups(&self, place: &Place, shard: &Shard) -> bool {
        if matches!(self.groups(), GroupProgress::CaughtUp | GroupProgress::Held) {
            return false;
        }
        let behind = shard.status().groups_behind() as u64;
        place.groups_behind.swap(behind, Ordering::Relaxed) > 0 && behind == 0
    }

    /// Groups that lack entries or keys.
    pub(super) fn groups_behind(&self) -> u64 {
        self.places.iter().map(|place| place.groups_behind.load(Ordering::Relaxed)).sum()
    }

    /// The progress of this node's groups.
    pub(crate) fn groups(&self) -> GroupProgress {
        *self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_groups(&self, progress: GroupProgress) {
        *self.groups.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    /// Whether this node is about to leave its cluster.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    pub fn set_leaving(&self, is_leaving: bool) {
        self.is_leaving.store(is_leaving, Ordering::Relaxed);
    }

    /// Other nodes that every shard reaches; `None` until all shards were looked at.
    pub fn reached(&self) -> Option<BTreeSet<NodeId>> {
        let of = |place: &Place| place.reached.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut all = self.places.iter().map(of);
        let first = all.next()??;
        all.try_fold(first, |common, of_shard| Some(common.intersection(&of_shard?).copied().collect()))
    }

    /// Why stores take no writes, each reason once.
    pub fn refused_writes(&self) -> Vec<String> {
        let of = |place: &Place| place.refused_writes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let reasons: BTreeSet<String> = self.places.iter().filter_map(of).collect();
        reasons.into_iter().collect()
    }

    /// Whom this node reaches; `None` until that was looked at for the first time.
    pub fn reach(&self) -> Option<Reach> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_reach(&self, reach: Reach) {
        *self.reach.lock().unwrap_or_else(PoisonError::into_inner) = Some(reach);
    }

    /// What is copied to this node, by shard.
    pub fn transfers(&self) -> Vec<(usize, TransferStatus)> {
        let of = |(shard, place): (usize, &Place)| {
            let transfers = place.transfers.lock().unwrap_or_else(PoisonError::into_inner).clone();
            transfers.into_iter().map(move |it| (shard, it)).collect::<Vec<_>>()
        };
        self.places.iter().enumerate().flat_map(of).collect()
    }

    /// The numbers of replicas that shards know of.
    pub fn n_vals(&self) -> BTreeSet<u32> {
        let of = |place: &Place| place.n_vals.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.places.iter().flat_map(of).collect()
    }

    /// Notes the largest number of replicas.
    pub fn note_n_val_max(&self, n_val: u32) {
        self.n_val_max.store(n_val, Ordering::Relaxed);
    }

    /// The largest number of replicas that was noted.
    pub fn n_val_max(&self) -> Option<u32> {
        Some(self.n_val_max.load(Ordering::Relaxed)).filter(|&n_val| n_val > 0)
    }

    /// Whom hints are kept for that hold up what this node is to drop.
    pub fn kept_for(&self) -> Vec<NodeId> {
        let of = |place: &Place| place.kept_for.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let nodes: BTreeSet<NodeId> = self.places.iter().flat_map(of).collect();
        nodes.into_iter().collect()
    }

    fn of(&self, shard: ShardId) -> &Place {
        &self.places[usize::from(shard.0)]
    }
}

impl Progress for Board {
    fn all_adopted(&self, version: RingVersion) -> bool {
        self.places.iter().all(|place| place.adopted.load(Ordering::Acquire) == version.0)
    }

    fn all_copied(&self, target: RingVersion) -> bool {
        self.places.iter().all(|place| place.copied.load(Ordering::Acquire) == target.0)
    }

    fn all_given(&self) -> bool {
        self.places.iter().all(|place| place.has_given_all.load(Ordering::Acquire))
    }
}
