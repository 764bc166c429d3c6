//! Preference lists on the largest ring.

use super::{OPERATIONS, Operation, WARM};
use crate::Result;
use base::Rng;
use base::rng::SplitMix64;
use ring::{NodeId, NodeSet, Partition, Ring, RingSize, RingVersion};
use std::hint::black_box;

const PARTITIONS: u32 = 16_384;
const NODES: u32 = 1_000;
const N_VAL: usize = 3;

/// Three nodes, with these down.
fn preflist(down: NodeSet) -> Result<Operation> {
    let ring = Ring::round_robin(RingVersion(1), RingSize::new(PARTITIONS)?, NODES)?;
    let mut rng = SplitMix64::new(7);
    let mut partitions = Vec::new();
    for _ in 0..WARM + OPERATIONS {
        partitions.push(Partition(u32::try_from(rng.below(PARTITIONS.into()))?));
    }
    Ok(Box::new(move |number| {
        for entry in ring.active_preflist(partitions[number as usize], N_VAL, &down) {
            black_box(entry);
        }
    }))
}

pub fn all_up() -> Result<Operation> {
    preflist(NodeSet::new())
}

pub fn a_tenth_down() -> Result<Operation> {
    preflist((0..NODES).step_by(10).map(|node| NodeId(u16::try_from(node).expect("it is small"))).collect())
}
