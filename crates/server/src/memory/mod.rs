//! The memory of a node: how much it may use (`limit.rs`), how it is divided (`plan.rs`), and the budgets that hold its
//! shards to that.

mod limit;
mod plan;

pub use limit::{LimitSource, MemoryLimit, memory_limit};
pub use plan::{MEMORY_MIN, MemoryPlan, SHARD_MEMORY_MIN};

use base::Budget;
use serde::Serialize;
use std::sync::Arc;

/// The budgets for large pieces, which all shards of a node share. See [`MemoryPlan`] for what each is for.
#[derive(Clone, Debug)]
pub struct MemoryBudgets {
    /// Of clients' requests.
    pub requests: Arc<Budget>,
    /// Of values that were read.
    pub values: Arc<Budget>,
    /// Of answers that clients have not taken.
    pub answers: Arc<Budget>,
    /// Of other nodes' messages.
    pub messages: Arc<Budget>,
    /// Of records for the journals.
    pub records: Arc<Budget>,
}

impl MemoryBudgets {
    /// As planned.
    pub fn new(plan: &MemoryPlan) -> MemoryBudgets {
        let budget = |bytes: u64| Budget::new(usize::try_from(bytes).unwrap_or(usize::MAX));
        MemoryBudgets {
            requests: budget(plan.requests),
            values: budget(plan.values),
            answers: budget(plan.answers),
            messages: budget(plan.messages),
            records: budget(plan.records),
        }
    }

    /// How they are used, of `limit` bytes in all.
    pub fn figures(&self, limit: u64) -> MemoryFigures {
        MemoryFigures {
            memory_limit: limit,
            memory_requests: self.requests.used(),
            memory_requests_refused_total: self.requests.refused(),
            memory_values: self.values.used(),
            memory_values_refused_total: self.values.refused(),
            memory_answers: self.answers.used(),
            memory_answers_refused_total: self.answers.refused(),
            memory_messages: self.messages.used(),
            memory_records: self.records.used(),
            memory_records_refused_total: self.records.refused(),
        }
    }
}

/// What `/stats` says of memory: bytes in use by part, and how often a part was full.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct MemoryFigures {
    /// Bytes that the node may use.
    memory_limit: u64,
    memory_requests: usize,
    memory_requests_refused_total: u64,
    memory_values: usize,
    memory_values_refused_total: u64,
    memory_answers: usize,
    memory_answers_refused_total: u64,
    memory_messages: usize,
    memory_records: usize,
    memory_records_refused_total: u64,
}
