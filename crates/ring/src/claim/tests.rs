//! Invariants of claims over joins, leaves, replacements, weights and zones.

use std::collections::BTreeSet;

use base::Rng;
use base::rng::SplitMix64;
use proptest::prelude::*;

use super::*;
use crate::member::{Member, MemberState, WEIGHT_DEFAULT};
use std::collections::BTreeMap;

/// A cluster that changes.
#[derive(Clone, Default)]
struct Cluster {
    members: Vec<Member>,
    owners: Option<Box<[NodeId]>>,
    next: u16,
}

impl Cluster {
    fn of(nodes: u16) -> Cluster {
        let mut cluster = Cluster::default();
        (0..nodes).for_each(|_| cluster.join(WEIGHT_DEFAULT, ""));
        cluster
    }

    fn join(&mut self, weight: u16, zone: &str) {
        let member = Member::new(NodeId(self.next), &self.next.to_string());
        self.members.push(Member { weight, zone: zone.into(), state: MemberState::Joining, ..member });
        self.next += 1;
    }

    /// A node joins whichever of so many zones has fewest, the last of these first: a ring laid out anew begins with
    /// the first.
    fn join_smallest_of(&mut self, zones: u16) {
        let name = |zone: &u16| format!("zone{zone}");
        let in_zone = |zone: &u16| self.members.iter().filter(|it| *it.zone == name(zone)).count();
        let smallest = (0..zones).rev().min_by_key(in_zone).unwrap();
        self.join(WEIGHT_DEFAULT, &name(&smallest));
    }

    fn leave(&mut self, at: usize) {
        self.members[at].state = MemberState::Leaving;
    }

    /// Claims, checks what every claim keeps, and forgets who has left.
    fn claim(&mut self, partitions: u32, target_n: usize) -> Claim {
        let size = RingSize::new(partitions).unwrap();
        let members = Members::new(self.members.clone()).unwrap();
        let claimed = Claimed { size, members: &members, owners: self.owners.as_deref(), target_n };
        let claim = claimed.claim().unwrap();
        assert_eq!(claimed.claim().unwrap(), claim, "the same input gives the same claim");
        self.check(&members, &claim, target_n);
        self.members.retain(|member| member.state.claims());
        self.members.iter_mut().for_each(|member| member.state = MemberState::Valid);
        self.owners = Some(claim.owners.clone());
        claim
    }

    fn check(&self, members: &Members, claim: &Claim, target_n: usize) {
        let claimants = Claimants::of(members);
        let partitions = claim.owners.len();
        let n = target_n.min(partitions);
        let before: Vec<u16> = match &self.owners {
            Some(owners) => owners.iter().map(|owner| claimants.number(*owner)).collect(),
            None => vec![NOBODY; partitions],
        };
        let quotas = quota::quotas(&claimants, &before, n);
        let mut zones = BTreeMap::new();
        for (number, (id, quota)) in claimants.ids.iter().zip(&quotas).enumerate() {
            let owned = claim.owners.iter().filter(|owner| *owner == id).count();
            let owned = u32::try_from(owned).unwrap();
            assert!((quota.low..=quota.high).contains(&owned), "{id} owns {owned}, its quota is {quota:?}");
            *zones.entry(claimants.zones[number]).or_insert(0) += owned;
        }
        // Who owns is a claimant: their counts make up the ring.
        assert_eq!(zones.values().sum::<u32>() as usize, partitions);

        let most = u32::try_from(partitions / n).unwrap();
        let can_part = quotas.iter().all(|quota| quota.count <= most);
        let can_part_zones = zones.len() > 1 && {
            let sum = |zone: u16| {
                quotas
                    .iter()
                    .zip(&claimants.zones)
                    .filter(|(_, it)| **it == zone)
                    .map(|(quota, _)| quota.count)
                    .sum::<u32>()
            };
            zones.keys().all(|&zone| sum(zone) <= most)
        };
        let nodes = claimants.ids.len();
        for shortfall in &claim.shortfalls {
            assert!(!can_part || shortfall.nodes >= n, "{shortfall:?}, {nodes} nodes, {partitions}");
            assert!(!can_part_zones || shortfall.zones >= n, "{shortfall:?}, {nodes} nodes, {partitions}");
        }
        self.check_shortfalls(members, claim, target_n);
    }

    /// The shortfalls are what is told from the ring the simple way.
    fn check_shortfalls(&self, members: &Members, claim: &Claim, target_n: usize) {
        let claims: Vec<&Member> = members.iter().filter(|it| it.state.claims() && it.weight > 0).collect();
        let all_zones: BTreeSet<&str> = claims.iter().map(|it| &*it.zone).collect();
        let size = claim.owners.len();
        let n = target_n.min(size);
        for start in 0..size {
            let nodes: BTreeSet<NodeId> = (start..start + n).map(|at| claim.owners[at % size]).collect();
            let zones: BTreeSet<&str> = nodes.iter().map(|id| &*members.get(*id).unwrap().zone).collect();
            let is_short = nodes.len() < n.min(claims.len()) || zones.len() < n.min(all_zones.len());
            let told = claim.shortfalls.iter().find(|it| it.partition.0 as usize == start);
            assert_eq!(told.map(|it| (it.nodes, it.zones)), is_short.then_some((nodes.len(), zones.len())));
        }
    }
}

/// What must move at least: from those that leave, and from those above their quota.
fn least_moves(cluster: &Cluster, partitions: u32, target_n: usize) -> usize {
    let members = Members::new(cluster.members.clone()).unwrap();
    let claimants = Claimants::of(&members);
    let owners = cluster.owners.as_ref().unwrap();
    let before: Vec<u16> = owners.iter().map(|owner| claimants.number(*owner)).collect();
    let quotas = quota::quotas(&claimants, &before, target_n.min(partitions as usize));
    let kept = quotas.iter().enumerate().map(|(number, quota)| {
        let held = before.iter().filter(|&&it| usize::from(it) == number).count();
        held.min(quota.count as usize)
    });
    partitions as usize - kept.sum::<usize>()
}

#[test]
fn a_new_ring_keeps_distance() {
    for partitions in [8, 16, 64, 128] {
        for nodes in 1..=12 {
            for target_n in [1, 2, 3, 4, 5] {
                let claim = Cluster::of(nodes).claim(partitions, target_n);
                assert_eq!(claim.moved, 0);
            }
        }
    }
}

#[test]
fn the_seam_is_told() {
    let claim = Cluster::of(3).claim(64, 3);
    assert_eq!(
        claim.shortfalls.len(),
        2,
        "one node has 22 of 64, two of them too close: {:?}",
        claim.shortfalls
    );
    assert!(Cluster::of(4).claim(64, 3).shortfalls.is_empty());
    assert!(Cluster::of(2).claim(64, 3).shortfalls.is_empty(), "both nodes are in every run");
}

#[test]
fn what_is_good_stays_as_it_is() {
    for (nodes, partitions) in [(1, 64), (2, 64), (3, 64), (5, 64), (7, 128), (12, 256)] {
        let mut cluster = Cluster::of(nodes);
        cluster.claim(partitions, 3);
        assert_eq!(cluster.claim(partitions, 3).moved, 0, "{nodes}");
    }
}

#[test]
fn a_replacement_takes_just_the_place() {
    let mut cluster = Cluster::of(6);
    let before = cluster.claim(64, 4);
    cluster.leave(2);
    cluster.join(WEIGHT_DEFAULT, "");
    let after = cluster.claim(64, 4);
    let new = |&owner: &NodeId| if owner == NodeId(2) { NodeId(6) } else { owner };
    assert_eq!(after.owners, before.owners.iter().map(new).collect());
}

#[test]
fn who_is_down_keeps_its_own() {
    let mut cluster = Cluster::of(6);
    let before = cluster.claim(64, 3).owners;
    cluster.members[3].state = MemberState::Down;
    assert_eq!(cluster.claim(64, 3).owners, before);
}

/// With ten zones only those partitions suit a newcomer that are far from its zone. Whose quota is rounded down has to
/// follow from that, or others would have to move out of the way.
#[test]
fn one_more_among_zones_moves_its_share() {
    for zones in [1, 6, 10] {
        let mut cluster = Cluster::default();
        let zone = |id: u16| format!("zone{}", id % zones);
        (0..200).for_each(|id| cluster.join(WEIGHT_DEFAULT, &zone(id)));
        assert!(cluster.claim(4096, 3).shortfalls.is_empty());
        cluster.join(WEIGHT_DEFAULT, &zone(200));
        let least = least_moves(&cluster, 4096, 3);
        let claim = cluster.claim(4096, 3);
        assert!(claim.shortfalls.is_empty());
        assert!(claim.moved * 10 <= least * 12, "{zones} zones: {} moved, {least} had to", claim.moved);
    }
}

/// What must move at least where as many zones as neighbours have equal shares: what is out of the order in which they
/// have to follow each other and what a node has too many of in it, or what others lack. `None` where there are other
/// zones.
fn least_in_order(cluster: &Cluster, partitions: u32, target_n: usize) -> Option<usize> {
    let members = Members::new(cluster.members.clone()).unwrap();
    let claimants = Claimants::of(&members);
    let owners = cluster.owners.as_ref().unwrap();
    let before: Vec<u16> = owners.iter().map(|owner| claimants.number(*owner)).collect();
    let quotas = quota::quotas(&claimants, &before, target_n);
    let mut zones: BTreeMap<u16, u32> = BTreeMap::new();
    for (quota, &zone) in quotas.iter().zip(&claimants.zones) {
        *zones.entry(zone).or_default() += quota.count;
    }
    let is_ordered =
        zones.len() == target_n && zones.values().all(|&sum| sum * target_n as u32 == partitions);
    let moves = |order: &[u16]| {
        let mut kept = vec![0; claimants.ids.len()];
        for (partition, &owner) in before.iter().enumerate().filter(|(_, owner)| **owner != NOBODY) {
            let is_in_order = claimants.zones[usize::from(owner)] == order[partition % target_n];
            kept[usize::from(owner)] += u32::from(is_in_order);
        }
        let stay = kept.iter().zip(&quotas).map(|(&kept, quota)| kept.min(quota.high)).sum::<u32>();
        let lacking = kept.iter().zip(&quotas).map(|(&kept, quota)| quota.low.saturating_sub(kept));
        lacking.sum::<u32>().max(partitions - stay) as usize
    };
    is_ordered
        .then(|| orders(&zones.into_keys().collect::<Vec<_>>()).iter().map(|it| moves(it)).min().unwrap())
}

/// All orders of these.
fn orders(of: &[u16]) -> Vec<Vec<u16>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let begun_with = |&first: &u16| {
        let others: Vec<u16> = of.iter().copied().filter(|&it| it != first).collect();
        orders(&others).into_iter().map(move |rest| [vec![first], rest].concat())
    };
    of.iter().flat_map(begun_with).collect()
}

/// Nodes come to the zone that has fewest, and leave, so that four zones are equal now and then.
#[test]
fn zones_that_become_equal_move_what_is_out_of_order() {
    for (nodes, partitions, changes, seeds) in
        [(8, 256, 12, 4), (32, 1_024, 12, 4), (99, 4_096, 6, 2), (999, 16_384, 1, 1)]
    {
        let (mut moved, mut least, mut equal) = (0, 0, 0);
        for seed in 0..seeds {
            let mut rng = SplitMix64::new(seed);
            let mut cluster = Cluster::default();
            (0..nodes).for_each(|_| cluster.join_smallest_of(4));
            cluster.claim(partitions, 4);
            for _ in 0..changes {
                match rng.below(3) {
                    0 if changes > 1 => {
                        cluster.leave(usize::try_from(rng.below(cluster.members.len() as u64)).unwrap());
                    }
                    _ => cluster.join_smallest_of(4),
                }
                let must = least_in_order(&cluster, partitions, 4);
                let claim = cluster.claim(partitions, 4);
                if let Some(must) = must {
                    assert!(claim.shortfalls.is_empty());
                    (moved, least, equal) = (moved + claim.moved, least + must, equal + 1);
                }
            }
        }
        eprintln!("{nodes} on {partitions}, equal {equal} times: moved {moved}, at least {least}");
        assert!(equal > 0);
        assert!(moved * 10 <= least * 12, "{moved} partitions moved, {least} had to");
    }
}

/// A ring that was dealt out in turn has seams behind which zones follow each other in another order. A quarter of it
/// can stay.
#[test]
fn zones_in_several_orders_come_into_one() {
    let mut cluster = Cluster::default();
    let zone = |id: u16| format!("zone{}", id % 4);
    (0..199).for_each(|id| cluster.join(WEIGHT_DEFAULT, &zone(id)));
    cluster.members.iter_mut().for_each(|member| member.state = MemberState::Valid);
    cluster.owners = Some((0..199).map(NodeId).cycle().take(4_096).collect());
    cluster.join(WEIGHT_DEFAULT, &zone(199));
    let least = least_in_order(&cluster, 4_096, 4).unwrap();
    let claim = cluster.claim(4_096, 4);
    eprintln!("{} moved, {least} had to", claim.moved);
    assert!(claim.shortfalls.is_empty());
    assert!(claim.moved * 10 <= least * 12, "{} moved, {least} had to", claim.moved);
}

/// Every way of joining, leaving and replacing, two in a row, from every size up to 12 nodes.
#[test]
fn every_change_up_to_twelve_nodes() {
    let (mut moved, mut least) = (0, 0);
    let mut change = |cluster: &mut Cluster| {
        least += least_moves(cluster, 64, 3);
        moved += cluster.claim(64, 3).moved;
    };
    for nodes in 1..=12u16 {
        let mut start = Cluster::of(nodes);
        start.claim(64, 3);
        for first in changes(&start) {
            let mut once = start.clone();
            first(&mut once);
            change(&mut once);
            for second in changes(&once) {
                let mut twice = once.clone();
                second(&mut twice);
                change(&mut twice);
            }
        }
    }
    eprintln!("moved {moved}, at least {least}");
    assert!(moved * 10 <= least * 12, "{moved} partitions moved, {least} had to");
}

/// What a node leaves behind suits some claimants only; who gets what is chosen so that hardly anything else moves for
/// it.
#[test]
fn who_goes_is_given_away_and_little_else() {
    let (mut moved, mut least) = (0, 0);
    for nodes in [9, 10, 12] {
        for seed in 0..10 {
            let mut rng = SplitMix64::new(seed);
            let mut cluster = Cluster::of(nodes);
            cluster.claim(64, 4);
            for _ in 0..10 {
                match cluster.members.len() < usize::from(nodes) {
                    true => cluster.join(WEIGHT_DEFAULT, ""),
                    false => cluster.leave(usize::try_from(rng.below(nodes.into())).unwrap()),
                }
                least += least_moves(&cluster, 64, 4);
                moved += cluster.claim(64, 4).moved;
            }
        }
    }
    eprintln!("moved {moved}, at least {least}");
    assert!(moved * 100 <= least * 103, "{moved} partitions moved, {least} had to");
}

type Change = Box<dyn Fn(&mut Cluster)>;

/// Every single change of a cluster of up to 12 nodes.
fn changes(cluster: &Cluster) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for more in 1..=3usize.min(12usize.saturating_sub(cluster.members.len())) {
        changes.push(Box::new(move |it| (0..more).for_each(|_| it.join(WEIGHT_DEFAULT, ""))));
    }
    for at in 0..cluster.members.len() {
        if cluster.members.len() > 1 {
            changes.push(Box::new(move |it| it.leave(at)));
        }
        changes.push(Box::new(move |it| {
            it.leave(at);
            it.join(WEIGHT_DEFAULT, "");
        }));
    }
    changes
}

/// Random changes of random clusters, with weights and zones.
fn random_life(seed: u64, nodes_max: u64, sizes: &[u32], changes: usize) -> (usize, usize) {
    let mut rng = SplitMix64::new(seed);
    let mut pick = move |below: u64| usize::try_from(rng.below(below)).unwrap();
    let partitions = sizes[pick(sizes.len() as u64)];
    let target_n = 2 + pick(3);
    let zones = [1, 1, 2, 3, 5, 8][pick(6)];
    let weights = [100, 100, 100, 50, 200, 300];
    let (even, zone_names) = (pick(2) == 0, ["a", "b", "c", "d", "e", "f", "g", "h"]);
    let mut cluster = Cluster::default();
    for _ in 0..1 + pick(nodes_max.min(u64::from(partitions))) {
        let weight = if even { 100 } else { weights[pick(6)] };
        cluster.join(weight, zone_names[pick(zones)]);
    }
    cluster.claim(partitions, target_n);
    let (mut moved, mut least) = (0, 0);
    for _ in 0..changes {
        for _ in 0..1 + pick(3) {
            let at = pick(cluster.members.len() as u64);
            match pick(4) {
                0 | 1 => cluster.join(if even { 100 } else { weights[pick(6)] }, zone_names[pick(zones)]),
                2 if cluster.members.iter().filter(|it| it.state.claims()).count() > 1 => cluster.leave(at),
                3 if !even => cluster.members[at].weight = weights[pick(6)],
                _ => {}
            }
        }
        if cluster.members.iter().any(|it| it.state.claims()) {
            least += least_moves(&cluster, partitions, target_n);
            moved += cluster.claim(partitions, target_n).moved;
        }
    }
    (moved, least)
}

#[test]
fn random_lives_of_small_clusters() {
    for seed in 0..lives(12) {
        random_life(seed, 20, &[16, 64, 128, 256], 4);
    }
}

#[test]
fn random_lives_of_large_clusters() {
    for seed in 0..lives(12) / 4 {
        random_life(seed, 1_000, &[4_096, 16_384], 2);
    }
}

/// How many lives: more by `RING_LIVES`.
fn lives(usual: u64) -> u64 {
    std::env::var("RING_LIVES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn quotas_add_up(
        weights in prop::collection::vec(1u16.., 1..40), bits in 3u32..12, n in 1usize..9, zones in 1u16..5,
    ) {
        let ids = (0..u16::try_from(weights.len()).unwrap()).map(NodeId).collect();
        let zones = (0..weights.len()).map(|at| u16::try_from(at).unwrap() % zones).collect();
        let claimants = Claimants { ids, zones, weights };
        let before = vec![NOBODY; 1 << bits];
        let n = n.min(before.len());
        let quotas = quota::quotas(&claimants, &before, n);
        prop_assert_eq!(quotas.iter().map(|quota| quota.count).sum::<u32>(), 1 << bits);
        prop_assert!(quotas.iter().all(|it| (it.count == it.low || it.count == it.high) && it.high <= it.low + 1));
        let most = (1u32 << bits).div_ceil(u32::try_from(n.min(claimants.ids.len())).unwrap());
        prop_assert!(quotas.iter().all(|quota| quota.count <= most));
        // Heavier nodes own no less, up to the one of rounding.
        for (a, b) in (0..claimants.ids.len()).zip(1..claimants.ids.len()) {
            let [light, heavy] = if claimants.weights[a] < claimants.weights[b] { [a, b] } else { [b, a] };
            prop_assert!(quotas[light].low <= quotas[heavy].low);
        }
    }
}

#[test]
fn what_cannot_be_claimed_is_refused() {
    let (size, members) = (RingSize::new(8).unwrap(), Members::anonymous(2));
    let claimed = Claimed { size, members: &members, owners: None, target_n: 3 };
    let refused = |claimed: Claimed<'_>| claimed.claim().expect_err("refused").to_string();
    assert_eq!(
        refused(Claimed { target_n: 0, ..claimed }),
        "copies can be kept apart over 1 to 16 partitions, not 0"
    );
    assert_eq!(refused(Claimed { members: &Members::default(), ..claimed }), "no member claims partitions");
    let owners = [NodeId(0); 7];
    assert_eq!(refused(Claimed { owners: Some(&owners), ..claimed }), "7 owners are told for 8 partitions");
}

/// A ring that grows, with what its claims keep.
impl Cluster {
    /// As a plan does: the lists there are, then the quotas of the larger ring by few moves. Tells what share of the
    /// data moves.
    fn grow(&mut self, partitions: u32, target_n: usize) -> f64 {
        let size = RingSize::new(partitions).unwrap();
        let members = Members::new(self.members.clone()).unwrap();
        let before = self.owners.clone().unwrap();
        let owners = crate::grown(&before, size).unwrap();
        let claimed = Claimed { size, members: &members, owners: Some(&owners), target_n };
        let claim = claimed.claim_in_place().unwrap();
        let moved = crate::moved(&before, &claim.owners, 3);
        assert_eq!(moved.distinct_min, members.len().min(3));
        self.owners = Some(claim.owners);
        moved.copies as f64 / moved.of as f64
    }
}

/// Rings grow between joins, leaves and replacements, up to twelve nodes.
#[test]
fn rings_grow_between_changes() {
    for seed in 0..lives(12) {
        let mut rng = SplitMix64::new(seed);
        let mut pick = move |below: u64| usize::try_from(rng.below(below)).unwrap();
        let mut cluster = Cluster::of(u16::try_from(3 + pick(6)).unwrap());
        let (mut partitions, mut target_n) = (64, 4);
        cluster.claim(partitions, target_n);
        for _ in 0..6 {
            if partitions < 1_024 && pick(2) == 0 {
                partitions <<= 1 + pick(2);
                target_n = crate::DISTANCE_GROWN;
                let share = cluster.grow(partitions, target_n);
                assert!(share < 0.1, "{share} of the data moves with {} nodes", cluster.members.len());
                continue;
            }
            let changes = changes(&cluster);
            changes[pick(changes.len() as u64)](&mut cluster);
            cluster.claim(partitions, target_n);
        }
    }
}

#[test]
fn a_large_ring_grows_at_once() {
    let mut cluster = Cluster::of(1_000);
    cluster.claim(1_024, 4);
    let share = cluster.grow(16_384, crate::DISTANCE_GROWN);
    eprintln!("{share} of the data moves");
    assert!(share < 0.1, "{share}");
}

/// The table of decision 39: what share of the data moves, and where copies are closer than four and than three.
#[test]
#[ignore = "a measurement"]
fn ways_to_grow() {
    for (nodes, from, to) in
        [(3, 64, 256), (4, 64, 256), (5, 64, 256), (7, 64, 128), (12, 64, 1_024), (1_000, 1_024, 16_384)]
    {
        let mut cluster = Cluster::of(nodes);
        let before = cluster.claim(from, 4).owners;
        let (members, size) = (Members::new(cluster.members.clone()).unwrap(), RingSize::new(to).unwrap());
        let split: Vec<NodeId> =
            size.all().map(|it| before[RingSize::new(from).unwrap().convert(it, size).0 as usize]).collect();
        let grown = crate::grown(&before, size).unwrap();
        let tell = |way: &str, owners: &[NodeId]| {
            let moved = crate::moved(&before, owners, 3);
            let share = 100.0 * moved.copies as f64 / moved.of as f64;
            let mut counts: BTreeMap<NodeId, u32> = BTreeMap::new();
            owners.iter().for_each(|owner| *counts.entry(*owner).or_default() += 1);
            let spread = counts.values().max().unwrap() - counts.values().min().unwrap();
            let short = |n| shortfalls(&members, owners, n).len();
            // What a newcomer's share costs afterwards.
            let mut more =
                Cluster { members: cluster.members.clone(), owners: Some(owners.into()), next: nodes };
            more.join(WEIGHT_DEFAULT, "");
            let joined = |target_n| {
                let members = Members::new(more.members.clone()).unwrap();
                let claim =
                    Claimed { size, members: &members, owners: Some(owners), target_n }.claim().unwrap();
                let moved = crate::moved(owners, &claim.owners, 3);
                100.0 * moved.copies as f64 / moved.of as f64
            };
            let (join3, join4) = (joined(3), joined(4));
            eprintln!(
                "{nodes} {from} {to} {way}: {share:.1} % moves, spread {spread}, short of 3: {}, of 4: {}, a join then: {join3:.1} % at 3, {join4:.1} % at 4",
                short(3),
                short(4)
            );
        };
        let claim = |owners: &[NodeId], target_n, in_place| {
            let claimed = Claimed { size, members: &members, owners: Some(owners), target_n };
            if in_place { claimed.claim_in_place() } else { claimed.claim() }.unwrap().owners
        };
        tell("split", &split);
        tell("grown", &grown);
        tell("grown, claimed in place at 3", &claim(&grown, 3, true));
        tell("grown, claimed at 3", &claim(&grown, 3, false));
        tell("grown, claimed at 4", &claim(&grown, 4, false));
        tell("split, claimed at 4", &claim(&split, 4, false));
    }
}
