//! The covering set of index scans.
//!
//! A covering set costs as much as the ring is large, and is the same for all index scans of one number of replicas
//! while nodes neither come nor go. So the last one is kept, with the state that it depends on.

use crate::peer::NodeId;
use crate::shard::env::Env;
use kv::Error;
use kv::coverage::Source;
use kv::index::{IndexScan, PrefixSet};
use ring::Ring;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::scan::QueryPart;

/// The covering set that was made last.
#[derive(Default)]
pub(super) struct CoveringSets {
    last: Option<CoveringSet>,
}

/// A covering set, and the state that it depends on.
struct CoveringSet {
    ring: Arc<Ring>,
    n_val: u32,
    up: Vec<NodeId>,
    parts: Vec<(Source, PrefixSet)>,
}

impl CoveringSets {
    /// An index scan over the whole ring.
    ///
    /// # Errors
    /// [`Error::NotCovered`] if there is no covering set.
    pub fn search(&mut self, env: &Env, n_val: u32, part: QueryPart) -> Result<IndexScan, Error> {
        let parts = self.parts(env, n_val)?;
        let (query, after, telling) = part;
        Ok(env.with_plan(n_val, |plan| IndexScan::over(parts, query, after, telling, plan)))
    }

    fn parts(&mut self, env: &Env, n_val: u32) -> Result<Vec<(Source, PrefixSet)>, Error> {
        let up: Vec<NodeId> = env.peers.up().collect();
        let is_same =
            |it: &&CoveringSet| it.n_val == n_val && it.up == up && Arc::ptr_eq(&it.ring, &env.topology.ring);
        if let Some(set) = self.last.as_ref().filter(is_same) {
            return Ok(set.parts.clone());
        }

        let parts = env.with_plan(n_val, |plan| plan.cover(plan.all_prefixes(), &BTreeSet::new()))?;
        let parts = parts.into_iter().map(|(source, prefixes)| (source, prefixes.into_iter().collect()));
        let parts: Vec<(Source, PrefixSet)> = parts.collect();
        let ring = Arc::clone(&env.topology.ring);
        self.last = Some(CoveringSet { ring, n_val, up, parts: parts.clone() });
        Ok(parts)
    }

    /// Each prefix is in one part of the covering set.
    pub fn invariants(&self, env: &Env) {
        let Some(set) = &self.last else { return };
        let prefixes: usize = set.parts.iter().map(|(_, prefixes)| prefixes.len()).sum();
        let all = usize::try_from(env.knobs.layout.prefixes.partitions()).unwrap_or(usize::MAX);
        assert_eq!(prefixes, all, "a covering set has each prefix once");
    }
}
