//! Reaping: a tombstone goes once nothing that it deleted can come back.
//!
//! What it deleted may be on a disk, kept with a hint, in the memory of a read that is about to repair somebody, or in
//! a frame on its way. So a tombstone is reaped in three rounds, each of which asks *all* members of the cluster
//! ([`Reap`] asks, [`Part`] answers):
//!
//! 1. *Promise*. A node agrees if it has exactly the tombstone, or is no primary and has nothing or something that the
//!    tombstone covers, which it replaces by it; and if it keeps no hint about the key. From then on it remembers the
//!    tombstone in memory ([`Graveyard`]): whatever it stores, sends or answers about the key is joined with it. It
//!    answers when all that it had written before is durable.
//! 2. *Confirm*. Each still has the grave. So there was a moment at which all had one, and what anybody has sent since
//!    is no older than the tombstone.
//! 3. *Remove*. Each removes the tombstone if it has its grave and nothing but the tombstone under the key.
//!
//! Anybody who disagrees, fails or is silent in the first two rounds ends it; the tombstone stays, and a later read or
//! a sweep proposes it again. Whoever misses the third keeps a tombstone that does no harm.
//!
//! Invariant: after the last promise of a reaping that got to its second round, no disk ever again has a version that
//! the tombstone covers, but the tombstone. A frame sent before its sender's promise finds the receiver's grave, which
//! outlives any frame; a receiver that was started again has lost its grave, and refuses what was sent to the process
//! before. A grave is not forgotten while there is work for its key, so neither does what such work remembers come
//! through.
//!
//! The same rounds fold the context of a key whose versions stay (`fold.rs`).
//!
//! Left out: members who join or leave; several keys in one question.

mod coordinator;
mod fold;
mod graveyard;
mod part;
mod promise;
mod removal;

pub use coordinator::Reap;
pub(crate) use fold::FoldGrave;
pub use fold::{Cleared, FOLD_ACTORS};
pub use graveyard::{GRAVE_BYTES_MAX, GRAVES_MAX, Graveyard, Plot};
pub(crate) use graveyard::{has_deleted, joined};
pub use part::Part;

use std::time::Duration;

/// How long one reaping may take: far above three round trips and a sync, and short beside the life of a grave.
pub const REAP_MAX: Duration = Duration::from_secs(5);

/// How long a frame with a version may wait at its sender before it is dropped.
pub const FRAME_WAIT_MAX: Duration = Duration::from_secs(60);

/// How long a connection may be silent before what comes on it next is not taken: questions of who is there come every
/// few seconds at least.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How long a grave is kept, in the time that its process is awake.
pub const GRAVE_TIME: Duration = Duration::from_secs(120);

const _: () = assert!(
    REAP_MAX.as_secs() + FRAME_WAIT_MAX.as_secs() + 2 * SILENCE_MAX.as_secs() < GRAVE_TIME.as_secs(),
    "a grave outlives every frame that was sent before the last promise"
);

/// A round of a reaping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// To agree, and to remember the tombstone.
    Promise,
    /// To still remember it.
    Confirm,
    /// To remove it.
    Remove,
}
