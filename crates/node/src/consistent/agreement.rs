//! The cluster's agreement on consistent groups, as a process publishes it to its shards.
//!
//! The metadata log has it (crate `membership`): the foundings of groups, and the processes and stores that members
//! have registered. A shard takes the newest publication; an older one never comes behind it.
//!
//! Left out: the log itself, births before they are registered, and the confirmation of a publication by the log's
//! leader, which the shell waits for.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::peer::NodeId;
use membership::state::{Founding, StoreBirths};

/// A process of a member, and its stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredProcess {
    /// The process, as other nodes know it from its pings.
    pub life: u64,
    /// Its stores.
    pub stores: StoreBirths,
}

/// The agreement on consistent groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// The foundings of groups, by their number of voters.
    pub foundings: Arc<BTreeMap<u8, Founding>>,
    /// The last registered process of each member. One of an earlier process of a member is not in it.
    pub processes: Arc<BTreeMap<NodeId, RegisteredProcess>>,
}
