//! Plans carried out in every order, with failures, and taken up again.

use std::sync::Arc;

use base::Rng;
use base::rng::SplitMix64;
use proptest::prelude::*;

use super::*;
use crate::claim::Claimed;
use crate::member::{Member, Members};
use crate::ring::RingVersion;
use crate::size::RingSize;

const NOW: Monotonic = Monotonic(1_000_000_000);

fn ring(members: u16, owners: &[u16]) -> Ring {
    let size = RingSize::new(u32::try_from(owners.len()).unwrap()).unwrap();
    let owners = owners.iter().map(|owner| NodeId(*owner)).collect();
    Ring::new(RingVersion(1), size, Arc::new(Members::anonymous(members)), owners).unwrap()
}

/// As many partitions, claimed by these nodes out of so many, from an earlier ring.
fn claimed(members: u16, claims: impl Fn(u16) -> bool, from: Option<&Ring>, partitions: u32) -> Ring {
    let member =
        |id| Member { weight: if claims(id) { 100 } else { 0 }, ..Member::new(NodeId(id), &id.to_string()) };
    let members = Members::new((0..members).map(member)).unwrap();
    let size = RingSize::new(partitions).unwrap();
    let claimed = Claimed { size, members: &members, owners: from.map(Ring::owners), target_n: 3 };
    let owners = claimed.claim().unwrap().owners;
    Ring::new(RingVersion(1), size, Arc::new(members), owners).unwrap()
}

/// Carries a plan out, with completions in any order, failures, and sudden ends of whoever carries it out.
struct Run {
    target: Ring,
    n_val: usize,
    rng: SplitMix64,
    transfers: Transfers,
    running: Vec<Transfer>,
    done: Vec<(Partition, NodeId)>,
    dropped: Vec<(Partition, NodeId)>,
    first: Ring,
    published: Ring,
    limits: Limits,
}

impl Run {
    fn new(current: &Ring, target: &Ring, n_val: usize, seed: u64) -> Run {
        let mut rng = SplitMix64::new(seed);
        let limit = |rng: &mut SplitMix64| 1 + u32::try_from(rng.below(3)).unwrap();
        let limits = Limits { sent_max: limit(&mut rng), received_max: limit(&mut rng) };
        let transfers = Transfers::plan(current, target, n_val, limits).unwrap();
        let (first, published, target) = (current.clone(), current.clone(), target.clone());
        let (running, done, dropped) = (Vec::new(), Vec::new(), Vec::new());
        Run { target, n_val, rng, transfers, running, done, dropped, first, published, limits }
    }

    fn carry_out(mut self) {
        for step in 0..100_000 {
            if self.transfers.is_done() {
                break;
            }
            assert!(step < 99_999, "it comes to an end: {:?}", self.transfers.progress());
            self.step(NOW + Duration::from_secs(step * 100));
        }
        assert_eq!(self.published.owners(), self.target.owners());
        assert!(self.transfers.switch().is_empty());
        for (partition, node) in self.transfers.droppable() {
            assert!(
                self.transfers.on_dropped(partition, node) && !self.transfers.on_dropped(partition, node)
            );
        }
        for partition in self.target.size().all() {
            let mut holders = self.transfers.copies.holders(partition).to_vec();
            holders.sort_unstable();
            assert_eq!(holders, listed(&self.target, partition, self.n_val), "just what the target asks for");
        }
    }

    fn step(&mut self, now: Monotonic) {
        self.running.extend(self.transfers.start(now, &NodeSet::new()));
        self.check_limits();
        match self.rng.below(12) {
            0 => self.resume(),
            1 => self.drop_one(),
            2 if !self.running.is_empty() => {
                let failed = self.take_running();
                assert!(self.transfers.on_failed(failed.partition, failed.to, now));
                assert!(!self.transfers.on_failed(failed.partition, failed.to, now), "it counts once");
            }
            3 if !self.running.is_empty() => {
                let node = self.take_running().from;
                self.running.retain(|it| it.from != node && it.to != node);
                self.transfers.on_down(node, now);
                let running = self.transfers.open().filter(|(_, _, it)| matches!(it, Stage::Running { .. }));
                assert_eq!(running.count(), self.running.len());
            }
            _ if !self.running.is_empty() => {
                let copied = self.take_running();
                assert!(self.transfers.copies.has(copied.partition, copied.from), "it sends what it has");
                assert!(self.transfers.on_copied(copied.partition, copied.to));
                assert!(!self.transfers.on_copied(copied.partition, copied.to), "it counts once");
                self.done.push((copied.partition, copied.to));
            }
            _ => {}
        }
        if self.rng.chance(1, 3) {
            self.switch();
        }
    }

    fn take_running(&mut self) -> Transfer {
        let at = usize::try_from(self.rng.below(self.running.len() as u64)).unwrap();
        self.running.swap_remove(at)
    }

    /// Every published ring names only nodes that have what it says they have.
    fn switch(&mut self) {
        let switched = self.transfers.switch();
        let members = Arc::clone(self.target.members());
        let version = RingVersion(self.published.version().0 + 1);
        let owners: Box<[NodeId]> = self.transfers.owners().into();
        let changed = owners.iter().zip(self.published.owners()).filter(|(new, old)| new != old).count();
        assert_eq!(changed, switched.len());
        self.published = Ring::new(version, self.target.size(), members, owners).unwrap();
        for partition in self.published.size().all() {
            for node in listed(&self.published, partition, self.n_val) {
                assert!(self.transfers.copies.has(partition, node), "{node} is to have {partition}");
            }
        }
    }

    fn drop_one(&mut self) {
        if let Some(&(partition, node)) = self.transfers.droppable().first() {
            assert!(!listed(&self.published, partition, self.n_val).contains(&node));
            assert!(self.transfers.on_dropped(partition, node));
            self.dropped.push((partition, node));
        }
    }

    /// Whoever carries it out has died. Another knows what was reported, or only what was published.
    fn resume(&mut self) {
        self.switch();
        self.running.clear();
        let left: Vec<_> = self.transfers.open().map(|(partition, to, _)| (partition, to)).collect();
        let only_published = self.rng.chance(1, 4);
        if only_published {
            self.first = self.published.clone();
            self.done.clear();
            self.dropped.clear();
        }
        self.transfers = Transfers::plan(&self.first, &self.target, self.n_val, self.limits).unwrap();
        for &(partition, to) in &self.done {
            assert!(self.transfers.on_copied(partition, to));
        }
        assert!(self.transfers.catch_up(&self.published));
        for &(partition, node) in &self.dropped {
            assert!(self.transfers.on_dropped(partition, node));
        }
        let now: Vec<_> = self.transfers.open().map(|(partition, to, _)| (partition, to)).collect();
        assert!(only_published || now == left, "it is the same plan");
    }

    fn check_limits(&self) {
        let most = |side: fn(&Transfer) -> NodeId| {
            let mut counts = BTreeMap::new();
            self.running.iter().for_each(|it| *counts.entry(side(it)).or_insert(0) += 1);
            counts.into_values().max().unwrap_or(0)
        };
        assert!(most(|it| it.from) <= self.limits.sent_max && most(|it| it.to) <= self.limits.received_max);
    }
}

fn listed(ring: &Ring, partition: Partition, n_val: usize) -> Vec<NodeId> {
    let nodes: BTreeSet<NodeId> = ring.preflist(partition, n_val).map(|entry| entry.node).collect();
    nodes.into_iter().collect()
}

#[test]
fn a_ring_that_stays_needs_nothing() {
    let ring = claimed(5, |_| true, None, 64);
    let transfers = Transfers::plan(&ring, &ring, 3, Limits::default()).unwrap();
    assert!(transfers.is_done() && transfers.droppable().is_empty());
}

#[test]
fn a_replacement_gets_what_the_other_had() {
    let current = claimed(7, |id| id != 6, None, 64);
    let target = claimed(7, |id| id != 2, Some(&current), 64);
    let transfers = Transfers::plan(&current, &target, 3, Limits::default()).unwrap();
    let held = current.size().all().filter(|at| listed(&current, *at, 3).contains(&NodeId(2)));
    let open: Vec<Partition> = transfers.open().map(|(partition, _, _)| partition).collect();
    assert_eq!(open, held.collect::<Vec<_>>());
    assert!(transfers.open().all(|(_, to, _)| to == NodeId(6)));
}

#[test]
fn who_is_down_neither_sends_nor_receives() {
    let current = claimed(5, |id| id < 4, None, 16);
    let target = claimed(5, |_| true, Some(&current), 16);
    let mut transfers =
        Transfers::plan(&current, &target, 3, Limits { sent_max: 9, received_max: 99 }).unwrap();
    let receiver: NodeSet = [NodeId(4)].into_iter().collect();
    assert!(transfers.start(NOW, &receiver).is_empty());
    let sender: NodeSet = [NodeId(0)].into_iter().collect();
    let begun = transfers.start(NOW, &sender);
    assert!(!begun.is_empty() && begun.iter().all(|it| it.from != NodeId(0) && it.to == NodeId(4)));
}

#[test]
fn limits_may_change_on_the_way() {
    let current = claimed(5, |id| id < 4, None, 16);
    let target = claimed(5, |_| true, Some(&current), 16);
    let mut transfers =
        Transfers::plan(&current, &target, 3, Limits { sent_max: 1, received_max: 1 }).unwrap();
    let first = transfers.start(NOW, &NodeSet::new());
    assert_eq!(first.len(), 1);
    assert!(
        transfers.has(first[0].partition, first[0].from) && !transfers.has(first[0].partition, first[0].to)
    );
    transfers.set_limits(Limits { sent_max: 0, received_max: 0 });
    assert!(transfers.on_copied(first[0].partition, first[0].to));
    assert!(transfers.has(first[0].partition, first[0].to));
    assert!(transfers.start(NOW, &NodeSet::new()).is_empty(), "none is to run");
    transfers.set_limits(Limits { sent_max: 2, received_max: 3 });
    assert_eq!(transfers.start(NOW, &NodeSet::new()).len(), 3);
}

#[test]
fn what_failed_waits_longer_each_time() {
    let current = claimed(2, |id| id == 0, None, 8);
    let target = claimed(2, |_| true, Some(&current), 8);
    let mut transfers =
        Transfers::plan(&current, &target, 1, Limits { sent_max: 1, received_max: 1 }).unwrap();
    let mut now = NOW;
    let first = transfers.start(now, &NodeSet::new())[0];
    let mut waits = Vec::new();
    for _ in 0..8 {
        assert!(transfers.on_failed(first.partition, first.to, now));
        let stage = transfers.open().find(|it| it.0 == first.partition).unwrap().2;
        let Stage::Waiting { at: Some(at), .. } = stage else { panic!("{stage:?}") };
        waits.push(at.since(now).as_secs());
        // Others come first; they are done.
        now = at;
        while let Some(begun) = transfers.start(now, &NodeSet::new()).pop().filter(|begun| *begun != first) {
            assert!(transfers.on_copied(begun.partition, begun.to));
        }
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
}

#[test]
fn nobody_catches_up_with_what_cannot_be() {
    let (current, target) = (ring(3, &[0, 1, 0, 1, 0, 1, 0, 1]), ring(3, &[0, 1, 2, 1, 0, 1, 2, 1]));
    let mut transfers = Transfers::plan(&current, &target, 1, Limits::default()).unwrap();
    assert!(!transfers.catch_up(&target), "nothing was copied");
    assert!(!transfers.catch_up(&ring(3, &[0, 2, 0, 1, 0, 1, 0, 1])), "nobody wants that");
    assert!(transfers.on_copied(Partition(2), NodeId(2)));
    assert!(transfers.catch_up(&ring(3, &[0, 1, 2, 1, 0, 1, 0, 1])));
    assert_eq!(transfers.progress(), Progress { waiting: 1, running: 0, copied: 1, unswitched: 1 });
}

#[test]
fn rings_of_two_sizes_have_no_plan() {
    let error = Transfers::plan(&ring(1, &[0; 8]), &ring(1, &[0; 16]), 3, Limits::default());
    assert_eq!(
        error.expect_err("sizes").to_string(),
        "a ring of 8 partitions is no plan for one of 16: split or merge it"
    );
}

#[test]
fn joins_and_leaves_keep_every_copy() {
    for seed in 0..40 {
        let mut rng = SplitMix64::new(seed);
        let mut mask = || rng.next_u64();
        let (first, second) = (mask() | 1, mask() | 2);
        let has = |mask: u64| move |id: u16| mask >> id & 1 == 1;
        let current = claimed(9, has(first), None, 32);
        let target = claimed(9, has(second), Some(&current), 32);
        Run::new(&current, &target, 3, seed).carry_out();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_two_rings_are_joined_by_a_safe_way(
        (nodes, current, target) in (1u16..9, 3u32..6).prop_flat_map(|(nodes, bits)| {
            let owners = || prop::collection::vec(0..nodes, 1usize << bits);
            (Just(nodes), owners(), owners())
        }),
        n_val in 1usize..6, seed in any::<u64>(),
    ) {
        Run::new(&ring(nodes, &current), &ring(nodes, &target), n_val, seed).carry_out();
    }
}
