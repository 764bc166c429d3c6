//! Removal of tombstones, and of entries of causal contexts that say nothing any more.

pub(crate) mod context_folds;
pub(crate) mod reaper;
pub(crate) mod sweeper;
