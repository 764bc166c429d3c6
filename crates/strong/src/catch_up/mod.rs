//! Catch-up of a voter that needs entries which its leader does not have in memory any more.
//!
//! The leader's node sends the heads of the group's keys in parts, and then the group's snapshot, which is metadata
//! alone. One machine at each end; the caller folds, writes, sends and keeps the time.
//!
//! 1. The sender offers ([`ToReceiver::Offer`]) under a random number, with the index through which tombstones may be
//!    reaped at its node.
//! 2. The receiver names its *base*: all versions up to it have their effect in its tables. If its applied entry is
//!    below the sender's reaping, tables here may lack deletions that nobody can name any more. Then it is marked
//!    *incomplete*, drops all keys of the group, and has the base 0. The mark, the drop and the base are one write, and
//!    the answer waits for its sync.
//! 3. The sender folds keys with versions above the base, tombstones too, a part at a time. The snapshot's index is
//!    the applied index of the *first* part's fold. Later parts may have newer versions, which the receiver leaves out:
//!    their entries follow the snapshot in the log.
//! 4. Each part is one write with the place of its last key; the next part is asked for when it is synced. After a
//!    crash or a broken link the catch-up goes on behind that place, with the same index. Under another number it
//!    begins anew: an incomplete receiver drops all again.
//! 5. After the last part the receiver's group may install the snapshot of exactly that index.
//!
//! Invariants: a version that was reaped at the sender is not left at the receiver; a receiver that installs a
//! snapshot has the newest version up to its index of each key.
//!
//! Needs: a synced write means that all earlier writes of that store are synced; writes of a version never replace an
//! equal or a newer one; the sender's end of the machine is dropped with the leadership.

mod message;
mod receiver;
mod sender;

use std::time::Duration;

use bytes::Bytes;

use crate::group::Version;

pub use self::message::{CATCH_UP_VERSION, CatchUpContents, CatchUpMessage};
pub use self::receiver::{Checkpoint, Place, Receiver, ReceiverInput, ReceiverOutput};
pub use self::sender::{Sender, SenderInput, SenderOutput};

/// Bytes of keys and objects in one part: small beside the writes of a store in a second, large beside a round trip.
/// One item is always sent, however large.
pub const PART_BYTES_MAX: usize = 1 << 20;

/// Time without an answer after which the sender offers again: a part's write and sync on a slow disk.
pub const OFFER_RETRY: Duration = Duration::from_secs(2);

/// Time without progress after which the sender gives up, so that a lost receiver does not hold reaping up.
pub const IDLE_MAX: Duration = Duration::from_secs(3_600);

/// A key's newest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The key.
    pub key: Bytes,
    /// Its version.
    pub version: Version,
    /// Head and value, opaque here; none for a tombstone.
    pub object: Option<Bytes>,
}

/// A message from the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToReceiver {
    /// A catch-up begins, or goes on.
    Offer {
        /// Its number, random.
        number: u64,
        /// Counts offers, so that late answers are known.
        attempt: u64,
        /// The index through which tombstones may be reaped at the sender.
        reaped: u64,
    },
    /// A part.
    Part {
        /// The catch-up.
        number: u64,
        /// Index and term of the snapshot.
        snapshot: (u64, u64),
        /// The place of the part before.
        after: Place,
        /// Keys in order.
        items: Vec<Item>,
        /// The place of this part.
        through: Place,
    },
}

/// A message from the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToSender {
    /// The receiver is ready for the part behind a place.
    Ready {
        /// The catch-up.
        number: u64,
        /// The offer's.
        attempt: u64,
        /// All versions up to it have their effect at the receiver; zero if it has dropped all.
        base: u64,
        /// The place of the last part that it has.
        place: Place,
    },
    /// A part is synced.
    Kept {
        /// The catch-up.
        number: u64,
        /// The place of the part.
        place: Place,
    },
    /// The receiver cannot go on; the catch-up has to begin anew under another number.
    Refused {
        /// The catch-up.
        number: u64,
    },
}

#[cfg(test)]
mod tests;
