//! Memory is bounded: a shard holds few things at a time, and none once everything is quiet.

use super::NodeAt;
use crate::check::{Verdict, Violation};
use node::ShardStats;

const CHECKER: &str = "memory is bounded";

/// The most that a shard of these small worlds may have under way, if nothing else is said: some requests of each
/// client, given up and not yet timed out, and each of them a question to each replica.
const WORK_MAX: usize = 512;

/// Checks what a shard says of itself, which may have so much under way.
pub fn check(
    node: NodeAt,
    shard: usize,
    stats: &ShardStats,
    quiet: bool,
    work_max: Option<usize>,
) -> Verdict {
    let work_max = if quiet { 0 } else { work_max.unwrap_or(WORK_MAX) };
    // Lookups that wait for the disk: one for each piece of work, and one for each question of a peer.
    let counts = [("works", stats.work, work_max), ("lookups", stats.store.lookups_parked, 2 * work_max)];
    match counts.into_iter().find(|(_, count, max)| count > max) {
        Some((what, count, max)) => {
            let when = if quiet { "though all is quiet" } else { "at once" };
            Err(Violation::new(CHECKER, format!("n{node}/{shard}: {count} {what} {when}, {max} allowed")))
        }
        None => Ok(()),
    }
}
