//! The leases of a process: its tables of promises, and the way in which its leaders confirm reads.
//!
//! All shards of a process share one pair of tables ([`SharedTables`]).
//!
//! Left out: the blocks of promises that leave and come (`promises.rs`).

use base::Clock;
use strong::group::StrongReads;
use strong::promise::{Process, SharedTables};

use crate::peer::NodeId;

/// Leases of a process: its tables, and its use of them.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// Promises to other processes and of them, for all shards of this one.
    pub tables: SharedTables,
    /// The way in which leaders of this process confirm reads. Promises to others are made in either case.
    pub reads: StrongReads,
}

impl LeaseConfig {
    /// Those of a process that starts now, with a life and so many shards.
    pub fn starting(
        here: NodeId,
        life: u64,
        shards: u16,
        reads: StrongReads,
        clock: &dyn Clock,
    ) -> LeaseConfig {
        let tables = SharedTables::new(Process { node: here, life }, shards, clock.lease());
        LeaseConfig { tables, reads }
    }
}
