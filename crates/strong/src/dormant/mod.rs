//! Groups at rest that are not in memory: the record that each leaves, and the choice of the next one to be unloaded.
//!
//! * [`DormantGroup`]: the leader of a dormant group, its term and the last entry. A load puts the leader into the vote
//!   guard ([`crate::promise::VoteGuard`]) before the group takes an input.
//! * [`DormantGroups`]: the records of a shard.
//! * [`LiveGroups`]: the order in which live groups are looked at, the least recently used ones first.
//!
//! Invariant: a dormant group has no timer and sends nothing. Its record names the leader of the term in its synced
//! state.
//!
//! Left out: the rest of a group's state, which the store keeps; the decision whether a group is at rest
//! ([`crate::group::Group::dormant`]). Decision 110 has the argument.

mod live;
mod records;

use bytes::Bytes;

pub use self::live::{LiveGroups, Look};
pub use self::records::{DORMANT_BYTES_MAX, DormantGroup, DormantGroups};
use crate::group::Message;
use crate::promise::Process;

/// The answer of a dormant group that cannot be loaded for a message, if it needs one.
///
/// A voter asks whether this process leads a term, since its promise to it stands. A group that is not loaded leads
/// nothing, and the terms that it has led do not come back. So it has resigned from each term.
pub fn answer(here: Process, message: Bytes) -> Option<Bytes> {
    match Message::read(message) {
        Ok(Message::Refused { term, node, life, .. }) if (Process { node, life }) == here => {
            (!base::planted!(SleepingLeaderBlocks)).then(|| Message::Resigned { term }.encode())
        }
        _ => None,
    }
}
