//! Trees of hashes say what stores have: whenever a node holds one against what a fold finds, they agree. What was
//! written without looking at what was there is left out; the node says so itself.

use super::NodeAt;
use crate::check::{Verdict, Violation};
use node::ShardStats;

/// Checks what a shard says of itself.
pub fn check(node: NodeAt, shard: usize, stats: &ShardStats) -> Verdict {
    match stats.counters.trees_wrong {
        0 => Ok(()),
        wrong => {
            let what = format!("n{node}/{shard} has found {wrong} that do not");
            Err(Violation::new("hash trees match their stores", what))
        }
    }
}
