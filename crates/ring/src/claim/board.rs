//! A ring during a claim: owners by partition, and the cost of the assignment.
//!
//! Two partitions of one node that are `d` apart, with `d < n`, are both in `n - d` of the ring's runs of `n`
//! neighbours; that is what they cost. The same of zones. Costs are added up by weights so far apart that the more
//! important always decides.

use super::claimants::{Claimants, distinct, zone_count};
use super::quota::Quota;

/// No claimant.
pub(super) const NOBODY: u16 = u16::MAX;

/// One run in which a node comes up twice. A change of one partition is far from 2^18 runs of zones.
const NODE_COST: i64 = 1 << 36;
/// One run in which a zone does, where that can be avoided. A swap is far from 2^18 moves.
const ZONE_COST: i64 = 1 << 18;
/// The same where it cannot be avoided everywhere: a swap moves two partitions, and is worth two runs.
const ZONE_COST_UNAVOIDABLE: i64 = 2;
/// One partition that has moved.
const MOVE_COST: i64 = 1;

/// A ring while it is being claimed.
#[derive(Debug, Clone)]
pub(super) struct Board {
    owners: Vec<u16>,
    before: Vec<u16>,
    zones: Vec<u16>,
    quotas: Vec<Quota>,
    counts: Vec<u32>,
    n: usize,
    zone_cost: i64,
}

impl Board {
    /// The ring there was, without those that claim no longer. `n` is how many neighbours are to differ.
    pub(super) fn new(claimants: &Claimants, quotas: Vec<Quota>, before: Vec<u16>, n: usize) -> Board {
        let most = u32::try_from(before.len() / n).expect("a ring has at most 65,536 partitions");
        let mut by_zone = vec![0u32; claimants.zones.iter().max().map_or(0, |&zone| usize::from(zone) + 1)];
        for (quota, &zone) in quotas.iter().zip(&claimants.zones) {
            by_zone[usize::from(zone)] += quota.count;
        }
        let zone_cost = match zone_count(claimants.zones.iter().copied()) {
            1 => 0,
            _ if by_zone.iter().all(|&count| count <= most) => ZONE_COST,
            _ => ZONE_COST_UNAVOIDABLE,
        };
        let mut counts = vec![0; quotas.len()];
        before.iter().filter(|&&owner| owner != NOBODY).for_each(|&owner| counts[usize::from(owner)] += 1);
        let (owners, zones) = (before.clone(), claimants.zones.clone());
        Board { owners, before, zones, quotas, counts, n, zone_cost }
    }

    /// How many neighbours are to differ.
    pub(super) fn n(&self) -> usize {
        self.n
    }

    pub(super) fn owners(&self) -> &[u16] {
        &self.owners
    }

    pub(super) fn before(&self) -> &[u16] {
        &self.before
    }

    pub(super) fn zones(&self) -> &[u16] {
        &self.zones
    }

    /// The zones there are, in order.
    pub(super) fn zone_numbers(&self) -> Vec<u16> {
        let mut numbers = self.zones.clone();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Whether zones can be kept apart, and only by following each other in one order all around the ring: there are
    /// just as many as neighbours, so that each must own every `n`th partition.
    pub(super) fn has_order(&self) -> bool {
        self.zone_cost == ZONE_COST && self.zone_numbers().len() == self.n
    }

    pub(super) fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// How many partitions a claimant has.
    pub(super) fn count(&self, number: u16) -> u32 {
        self.counts[usize::from(number)]
    }

    /// How many it lacks, or has too many if below 0.
    pub(super) fn lacks(&self, number: u16) -> i64 {
        i64::from(self.quotas[usize::from(number)].count) - i64::from(self.count(number))
    }

    /// Somebody who has one too many, because others were rounded up.
    pub(super) fn spare(&self) -> Option<u16> {
        self.spare_of(self.numbers())
    }

    /// The same among these.
    pub(super) fn spare_of(&self, mut numbers: impl Iterator<Item = u16>) -> Option<u16> {
        numbers.find(|&number| {
            let quota = self.quotas[usize::from(number)];
            self.lacks(number) < 0 && quota.count < quota.high
        })
    }

    /// Somebody who lacks one because of being rounded up.
    pub(super) fn eager(&self) -> Option<u16> {
        self.eager_of(self.numbers())
    }

    /// The same among these.
    pub(super) fn eager_of(&self, mut numbers: impl Iterator<Item = u16>) -> Option<u16> {
        numbers.find(|&number| {
            let quota = self.quotas[usize::from(number)];
            self.lacks(number) > 0 && quota.count > quota.low
        })
    }

    /// Whether this one was rounded down and could be rounded up in the place of another.
    pub(super) fn can_take_more(&self, number: u16) -> bool {
        let quota = self.quotas[usize::from(number)];
        quota.count < quota.high && self.lacks(number) == 0
    }

    /// Whether this one was rounded up and could be rounded down in the place of another.
    pub(super) fn can_give_more(&self, number: u16) -> bool {
        let quota = self.quotas[usize::from(number)];
        quota.count > quota.low && self.lacks(number) == 0
    }

    /// Rounds one up in the place of another.
    pub(super) fn trade(&mut self, up: u16, down: u16) {
        self.quotas[usize::from(up)].count += 1;
        self.quotas[usize::from(down)].count -= 1;
    }

    /// The claimants.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u16> + use<> {
        0..u16::try_from(self.quotas.len()).expect("there are fewer claimants than numbers")
    }

    /// Gives a partition to a claimant, or to nobody.
    pub(super) fn set(&mut self, partition: usize, number: u16) {
        let old = std::mem::replace(&mut self.owners[partition], number);
        if old != NOBODY {
            self.counts[usize::from(old)] -= 1;
        }
        if number != NOBODY {
            self.counts[usize::from(number)] += 1;
        }
    }

    /// Lays the ring out anew.
    pub(super) fn lay(&mut self, owners: Vec<u16>) {
        for (partition, number) in owners.into_iter().enumerate() {
            self.set(partition, number);
        }
    }

    pub(super) fn swap(&mut self, a: usize, b: usize) {
        self.owners.swap(a, b);
    }

    /// What it costs to have `number` at this partition, whoever is there now.
    pub(super) fn cost_at(&self, partition: usize, number: u16) -> i64 {
        let (size, zone) = (self.owners.len(), self.zones[usize::from(number)]);
        let mut cost = 0;
        for distance in 1..self.n {
            let runs = i64::try_from(self.n - distance).expect("a run is short");
            // The size is a power of two.
            for neighbour in [partition + distance, partition + size - distance] {
                let other = self.owners[neighbour & (size - 1)];
                if other == NOBODY {
                    continue;
                }
                if other == number {
                    cost += runs * NODE_COST;
                }
                if self.zone_cost > 0 && self.zones[usize::from(other)] == zone {
                    cost += runs * self.zone_cost;
                }
            }
        }
        cost + if self.before[partition] == number { 0 } else { MOVE_COST }
    }

    /// What a swap of two partitions' owners would add.
    pub(super) fn swap_cost(&mut self, a: usize, b: usize) -> i64 {
        let (at_a, at_b) = (self.owners[a], self.owners[b]);
        // What the two cost each other is the same before and after.
        (self.owners[a], self.owners[b]) = (NOBODY, NOBODY);
        let after = self.cost_at(a, at_b) + self.cost_at(b, at_a);
        let now = self.cost_at(a, at_a) + self.cost_at(b, at_b);
        (self.owners[a], self.owners[b]) = (at_a, at_b);
        after - now
    }

    /// What giving a partition to another would add; `None` if that would break a quota.
    pub(super) fn shift_cost(&self, partition: usize, to: u16) -> Option<i64> {
        let from = self.owners[partition];
        let fits = from != to
            && self.count(from) > self.quotas[usize::from(from)].low
            && self.count(to) < self.quotas[usize::from(to)].high;
        fits.then(|| self.cost_at(partition, to) - self.cost_at(partition, from))
    }

    /// Whether it is too close to another.
    fn is_close(&self, partition: usize) -> bool {
        let least = if self.zone_cost > 0 { self.zone_cost } else { NODE_COST };
        self.cost_at(partition, self.owners[partition]) >= least
    }

    /// The partitions that are too close to another.
    pub(super) fn close(&self) -> Vec<usize> {
        (0..self.owners.len()).filter(|&partition| self.is_close(partition)).collect()
    }

    /// Whether every run of `n` neighbours has as many nodes and zones as there can be.
    pub(super) fn is_apart(&self) -> bool {
        let size = self.owners.len();
        let nodes = self.quotas.len().min(self.n);
        let zones = if self.zone_cost > 0 { zone_count(self.zones.iter().copied()).min(self.n) } else { 1 };
        (0..size).all(|start| {
            let run = || (start..start + self.n).map(|at| self.owners[at & (size - 1)]);
            let zone = |number: u16| self.zones[usize::from(number)];
            distinct(run(), self.n) >= nodes && (zones == 1 || distinct(run().map(zone), self.n) >= zones)
        })
    }

    /// What the ring costs.
    pub(super) fn cost(&self) -> i64 {
        let at = |partition: usize| {
            let moved = if self.before[partition] == self.owners[partition] { 0 } else { MOVE_COST };
            // Each of a pair counts the other.
            (self.cost_at(partition, self.owners[partition]) - moved) / 2 + moved
        };
        (0..self.owners.len()).map(at).sum()
    }
}
