//! Requests on keys of consistent bucket types: from a request to a write of a group, and from stored bytes to a
//! response.
//!
//! 1. A write becomes a [`Plan`] once: what it needs not know of the key is checked, and its context becomes the
//!    [`Condition`](strong::group::Condition) of the group.
//! 2. The leader of the group names the version of the write. The plan makes head and value of it
//!    ([`Plan::object`]), which are the object of a log entry ([`join_object`]).
//! 3. Each replica splits the object again ([`split_object`]), or makes the [`tombstone`] of a deletion, and stores
//!    it. The leader answers the client ([`Plan::response`]).
//! 4. A read that the group has confirmed is answered from what is stored ([`get_response`]).
//!
//! Invariants
//! * A stored object has one sibling. Its dot is ([`ACTOR`], version), and its context is that entry alone. So the join
//!   of two versions of a key is the one with the higher version.
//! * An operator's recovery begins an epoch, which names the versions of earlier ones anew. So no context of the time
//!   before holds: it may be of a lost write, whose index another write has now.
//! * The context that clients get is that entry. A write with a context holds for the version that it names, and for
//!   no other.
//! * The object of a write depends on nothing but the request, its version and the leader's clock. A tombstone depends
//!   on its version alone.
//! * Errors of a group are of three classes ([`error_of`]): *failed*, the condition did not hold; *unavailable*, the
//!   request is not applied and never will be; *timeout*, it may be applied.
//!
//! Quorums, `n_val`, `sloppy_quorum`, `notfound_ok` and `asis` of a request say nothing to a group, and are ignored as
//! in Riak. Left out: groups, leaders and stores, which are the caller's; conditions on tags and times of an object
//! ([`Error::NotInConsistentTypes`]).

mod entry;
mod plan;
mod read;
mod version;

#[cfg(test)]
mod tests;

pub use entry::{join_object, split_object};
pub use plan::Plan;
pub use read::{check_get, get_response};
pub use version::{ACTOR, Current, stored_version, tombstone, version_of};

use strong::group;

use crate::error::Error;

/// The error of a request whose group has answered so; none if it was done, or may be read.
pub fn error_of(answer: group::Answer) -> Option<Error> {
    match answer {
        group::Answer::Written(_) | group::Answer::Readable => None,
        group::Answer::Failed => Some(Error::Failed),
        // Also if too many are under way: nothing of the request is applied.
        group::Answer::Unavailable(_) => Some(Error::Unavailable),
        group::Answer::Timeout => Some(Error::Timeout),
    }
}
