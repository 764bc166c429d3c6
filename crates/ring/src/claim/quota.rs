//! How many partitions each claimant is to own.
//!
//! A share is proportional to the weight, but no more than `partitions / n`: with distance kept that node has a copy of
//! every key, and more would only bring copies together. What is cut off goes to the others by weight. With no more
//! than `n` claimants all shares are equal, since each has a copy of every key whatever it weighs.
//!
//! A quota is the share rounded down or up, so it is never off by one. Who is rounded up: those whose distance that
//! does not break, nor their zone's; among these who has as many already, so that nothing moves; then the largest
//! remainder; then who has fewest, so that a node which takes another's place gets all of it; then the lowest number.

use std::cmp::{Ordering, Reverse};

use super::board::NOBODY;
use super::claimants::{Claimants, zone_count};

/// What one claimant is to own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quota {
    /// The share, rounded down.
    pub low: u32,
    /// The share, rounded up.
    pub high: u32,
    /// The one of the two that makes the sum come out.
    pub count: u32,
}

/// A share as a fraction.
#[derive(Debug, Clone, Copy)]
struct Share {
    over: u128,
    under: u128,
}

impl Share {
    fn floor(self) -> u32 {
        u32::try_from(self.over / self.under).expect("a share is no more than all partitions")
    }

    fn remainder(self) -> Share {
        Share { over: self.over % self.under, under: self.under }
    }

    fn cmp(self, other: Share) -> Ordering {
        (self.over * other.under).cmp(&(other.over * self.under))
    }
}

/// The quotas, by claimant; they add up to the partitions there are.
pub(super) fn quotas(claimants: &Claimants, before: &[u16], n: usize) -> Vec<Quota> {
    let partitions = u32::try_from(before.len()).expect("a ring has at most 65,536 partitions");
    let shares = shares(claimants, partitions, n);
    let mut quotas: Vec<Quota> = shares
        .iter()
        .map(|share| {
            let low = share.floor();
            Quota { low, high: low + u32::from(share.remainder().over > 0), count: low }
        })
        .collect();
    let open = partitions - quotas.iter().map(|quota| quota.count).sum::<u32>();
    round_up(&mut quotas, &shares, claimants, before, (open, n));
    quotas
}

/// By claimant, how much of the ring is its own.
fn shares(claimants: &Claimants, partitions: u32, n: usize) -> Vec<Share> {
    let n = n.min(claimants.ids.len()) as u128;
    let mut heaviest: Vec<usize> = (0..claimants.ids.len()).collect();
    heaviest.sort_by_key(|&at| (Reverse(claimants.weights[at]), at));
    let mut rest: u128 = claimants.weights.iter().map(|&weight| u128::from(weight)).sum();
    let partitions = u128::from(partitions);
    let mut shares = vec![Share { over: partitions, under: n }; claimants.ids.len()];
    let mut capped = 0;
    for at in heaviest {
        let weight = u128::from(claimants.weights[at]);
        if weight * (n - capped) > rest {
            capped += 1;
            rest -= weight;
        } else {
            // From here on none is cut: they are lighter.
            shares[at] = Share { over: partitions * (n - capped) * weight, under: n * rest };
        }
    }
    shares
}

fn round_up(
    quotas: &mut [Quota],
    shares: &[Share],
    claimants: &Claimants,
    before: &[u16],
    (mut open, n): (u32, usize),
) {
    let most = u32::try_from(before.len() / n).expect("a ring has at most 65,536 partitions");
    let mut held = vec![0u32; quotas.len()];
    before.iter().filter(|&&owner| owner != NOBODY).for_each(|&owner| held[usize::from(owner)] += 1);
    let mut zones = vec![0u32; claimants.zones.iter().max().map_or(0, |&zone| usize::from(zone) + 1)];
    for (quota, &zone) in quotas.iter().zip(&claimants.zones) {
        zones[usize::from(zone)] += quota.count;
    }
    let has_zones = zone_count(claimants.zones.iter().copied()) >= n;
    let mut order: Vec<usize> = (0..quotas.len()).filter(|&at| quotas[at].high > quotas[at].low).collect();
    order.sort_by(|&a, &b| {
        let key = |at: usize| (quotas[at].high > most, held[at] < quotas[at].high);
        let remainder = |at: usize| shares[at].remainder();
        key(a)
            .cmp(&key(b))
            .then_with(|| remainder(b).cmp(remainder(a)))
            .then_with(|| (held[a], a).cmp(&(held[b], b)))
    });
    for mind_zones in [has_zones, false] {
        for &at in &order {
            let zone = &mut zones[usize::from(claimants.zones[at])];
            let fits = !mind_zones || (*zone < most && quotas[at].high <= most);
            if open > 0 && quotas[at].count == quotas[at].low && fits {
                quotas[at].count += 1;
                *zone += 1;
                open -= 1;
            }
        }
    }
    assert_eq!(open, 0, "the remainders add up to what was left open");
}
