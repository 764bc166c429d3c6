//! Promises between processes, and the leases of leaders that rest on them.
//!
//! A *promise* of process P to process L: from the receipt of a message of L on, for [`PROMISE`], P neither votes
//! against L nor campaigns against L in groups in which P follows L. The promise has a number. A leader at L whose
//! group has a majority under promises has a *lease*: no other leader of the group exists, so reads need no round.
//!
//! 1. Each envelope between two processes carries a [`Block`]: the sender's stamp, the last stamp heard from the
//!    receiver, and the sender's promise to the receiver. So traffic of any group renews the promises of all.
//! 2. [`Promises`] is the table of the promiser. A receipt renews the open promise, or opens one under a new number. A
//!    promise is *closed* only when its time has passed, or when L has released it for good.
//! 3. [`Grants`] is the table of the holder: by process, the highest number and the end of its time. The end counts
//!    from the stamp of the message that renewed the promise, and is earlier than the promiser's ([`GRANT`]).
//! 4. [`VoteGuard`] is a follower's part of a group. It names the leader followed, and closes that leader's promise in
//!    the step of a vote against it.
//! 5. [`Lease`] is a leader's part of a group. A voter counts while its process renews the number with which the voter
//!    answered in this term.
//!
//! Invariants: a grant ends, in true time, before its promise can be closed; a number that was closed is never renewed;
//! a lease that was given up does not come back in its term. Decision 105 has the argument.
//!
//! Needs, of the caller: the readings are of a clock that runs while the process is paused and while the machine is
//! suspended, at a rate within 5 % of true time. A *stamp* is read before its message is sent. A *receipt* is read
//! after its message has come: the reading of the turn's begin may be older than the message. A reading for a close may
//! be older than the close. A reading for a served read is taken after the request has come.
//!
//! [`SharedTables`] is both tables of a process under the lock that its shards share.
//!
//! Left out: the frames that carry blocks, and the pings of idle pairs.

mod block;
mod grants;
mod guard;
mod lease;
mod promises;
mod shared;

use std::time::Duration;

use ring::NodeId;

pub use self::block::{BLOCK_VERSION, Block};
pub use self::grants::{Grant, Grants};
pub use self::guard::{Ballot, Refusal, VoteGuard};
pub use self::lease::{Lease, reading_of_read};
pub use self::promises::{Promises, Renewal};
pub use self::shared::SharedTables;

/// Time of a promise from the receipt that renewed it, by the promiser's clock.
pub const PROMISE: Duration = Duration::from_millis(1_000);

/// Time of a grant from the stamp of the message that renewed it, by the holder's clock.
pub const GRANT: Duration = Duration::from_millis(900);

/// Age of an echoed stamp up to which its message renews a promise: a holder that hears nothing gets none.
pub const ECHO_AGE_MAX: Duration = Duration::from_millis(1_000);

/// Time within which the loop of each shard of a process must have turned for [`Block::asks`].
pub const TURN_MAX: Duration = Duration::from_millis(500);

/// Processes in a table at most: each member of the largest ring with its life, and the lives before that end.
pub const PROCESSES_MAX: usize = 8_192;

/// Rates of clocks, in percent of true time.
const RATE_MIN: u128 = 95;
const RATE_MAX: u128 = 105;

const _: () = assert!(
    GRANT.as_nanos() * RATE_MAX < PROMISE.as_nanos() * RATE_MIN,
    "the grant ends first: by a slow clock of the holder, and a fast one of the promiser"
);

/// A process of a node, from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// The node.
    pub node: NodeId,
    /// A number that no other start of any process has.
    pub life: u64,
}

#[cfg(test)]
mod tests;
