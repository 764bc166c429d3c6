//! What everything else needs of a log: the seam behind which another implementation can stand.
//!
//! [`Membership`](crate::Membership) is generic over it, and the seeded tests of whole clusters name their subject in one place
//! and check it through this trait. The commands, the state, the inputs and the outputs are the same for every implementation.

use std::collections::BTreeSet;

use base::{Monotonic, Rng};
use bytes::Bytes;
use ring::NodeId;

use super::{Entry, Epoch, FileError, Identity, Input, Log, Output};
use crate::state::State;

/// A node's copy of a replicated log of commands, and the state that they lead to.
///
/// What is required of it: the state is that of the committed entries; within an epoch a committed entry never changes, and
/// a term has one leader; an output is acted on only when the writes before it are durable; the same inputs at the same times
/// with the same random numbers give the same outputs.
pub trait ReplicatedLog: Sized {
    /// The log of a new cluster, whose only member is here.
    fn found(identity: Identity, state: State, rng: Box<dyn Rng>, now: Monotonic) -> Self;

    /// The log of a node that joins, without a history yet.
    fn join(identity: Identity, rng: Box<dyn Rng>, now: Monotonic) -> Self;

    /// The log that a file holds, and how many of the file's bytes are sound.
    ///
    /// # Errors
    /// [`FileError`].
    fn open(
        identity: Identity,
        bytes: &Bytes,
        rng: Box<dyn Rng>,
        now: Monotonic,
    ) -> Result<(Self, usize), FileError>;

    /// Takes note of `input` at `now`, and of the time that has passed.
    fn step(&mut self, input: Input, now: Monotonic, out: &mut Vec<Output>);

    /// When the next [`Input::Tick`] is due.
    fn next_timer(&self) -> Monotonic;

    /// Who this is.
    fn identity(&self) -> &Identity;

    /// The state of the committed entries; none before this node has a history.
    fn state(&self) -> Option<&State>;

    /// The history that this node follows.
    fn epoch(&self) -> Epoch;

    /// The present term.
    fn term(&self) -> u64;

    /// The last committed entry.
    fn commit(&self) -> u64;

    /// Index and term of the last entry.
    fn last(&self) -> (u64, u64);

    /// The leader, as far as this node knows.
    fn leader(&self) -> Option<NodeId>;

    /// Who votes, by the last entry, committed or not.
    fn voters(&self) -> &BTreeSet<NodeId>;

    /// Committed entries that are kept, in order.
    fn committed(&self) -> impl Iterator<Item = &Entry>;

    /// What an operator must type to go on without a lost majority.
    fn safety_word(&self) -> String;
}

impl ReplicatedLog for Log {
    fn found(identity: Identity, state: State, rng: Box<dyn Rng>, now: Monotonic) -> Log {
        Log::found(identity, state, rng, now)
    }

    fn join(identity: Identity, rng: Box<dyn Rng>, now: Monotonic) -> Log {
        Log::join(identity, rng, now)
    }

    fn open(
        identity: Identity,
        bytes: &Bytes,
        rng: Box<dyn Rng>,
        now: Monotonic,
    ) -> Result<(Log, usize), FileError> {
        Log::open(identity, bytes, rng, now)
    }

    fn step(&mut self, input: Input, now: Monotonic, out: &mut Vec<Output>) {
        Log::step(self, input, now, out);
    }

    fn next_timer(&self) -> Monotonic {
        Log::next_timer(self)
    }

    fn identity(&self) -> &Identity {
        Log::identity(self)
    }

    fn state(&self) -> Option<&State> {
        Log::state(self)
    }

    fn epoch(&self) -> Epoch {
        Log::epoch(self)
    }

    fn term(&self) -> u64 {
        Log::term(self)
    }

    fn commit(&self) -> u64 {
        Log::commit(self)
    }

    fn last(&self) -> (u64, u64) {
        Log::last(self)
    }

    fn leader(&self) -> Option<NodeId> {
        Log::leader(self)
    }

    fn voters(&self) -> &BTreeSet<NodeId> {
        Log::voters(self)
    }

    fn committed(&self) -> impl Iterator<Item = &Entry> {
        Log::committed(self)
    }

    fn safety_word(&self) -> String {
        Log::safety_word(self)
    }
}
