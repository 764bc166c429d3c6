//! Messages between a coordinator and its replicas.
//!
//! A replica is a node that holds a key, once, for one or more vnodes of the key's preference list; the
//! coordinator's own node may be one. [`crate::Placement`] says who they are for one request, [`Ask`] is what is asked
//! of them, [`Answer`] what they answer.

use bytes::Bytes;

use crate::error::Error;
use crate::reap::Round;
use crate::step::{Action, Event, Next, StepContext};
use crate::stored::{Stored, Want};

pub use ring::NodeId;

/// What a coordinator asks of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The key's head, or head and value.
    Read {
        /// How much of it.
        want: Want,
    },
    /// To join this version with what it has, and to answer when the result is as durable as it is configured to
    /// make it.
    Merge {
        /// The encoded head.
        head: Bytes,
        /// The values of all siblings, one after the other.
        value: Bytes,
        /// The primaries for which it keeps a hint.
        hints: Vec<NodeId>,
        /// Why it comes, which decides how urgent it is.
        reason: Reason,
    },
    /// To take part in a reaping.
    Reap {
        /// Which round of it.
        round: Round,
        /// The tombstone's encoded head.
        tombstone: Bytes,
    },
}

impl Ask {
    /// Whether it may change what the replica has.
    pub fn writes(&self) -> bool {
        !matches!(self, Ask::Read { .. })
    }
}

/// Why a version is sent to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A client writes it.
    Write,
    /// A read has shown that the replica lacks it.
    Repair,
    /// A read has shown that the replica's copy is damaged: it is written even if the heads are equal.
    Heal,
    /// It was kept for the replica while that could not be reached.
    Handoff,
    /// A client writes it, and the sender's copy of the partition moves to the receiver, or has come from there.
    DualWrite,
    /// It is in a partition that is copied to the receiver.
    Copy,
}

impl Reason {
    /// Whether it comes from another holder of the partition, which sees to it itself that everybody has it.
    pub fn is_of_move(self) -> bool {
        matches!(self, Reason::DualWrite | Reason::Copy)
    }
}

/// What a replica answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a read: what it has.
    Read(Option<Stored>),
    /// To a merge: it is done.
    Merged,
    /// To a round of a reaping.
    Reaping {
        /// Which.
        round: Round,
        /// Whether the replica agrees, or has done it.
        agrees: bool,
    },
}

/// A replica's part in a read.
#[derive(Debug)]
pub struct Read {
    want: Want,
}

impl Read {
    /// A read of so much.
    pub fn new(want: Want) -> Read {
        Read { want }
    }

    /// Takes an event, and says whether it waits for more.
    pub fn step(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        ctx.run_part(|ctx| self.advance(event, ctx))
    }

    fn advance(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        ctx.out.push(match event {
            Event::Start if ctx.props.check_eventual().is_err() => Action::Answer(Err(Error::Unavailable)),
            Event::Start => {
                ctx.out.push(Action::Read { want: self.want, hold: false });
                return Next::Wait;
            }
            Event::Read(stored) => Action::Answer(stored.map(Answer::Read)),
            Event::Expired => Action::Answer(Err(Error::Timeout)),
            Event::Written(_) | Event::Answer { .. } | Event::Late => return Next::Wait,
        });
        Next::Over
    }
}

/// How a read asks its replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStrategy {
    /// The head of each, then one value from whoever has it.
    Heads,
    /// Head and value here, the heads of the others.
    LocalValue,
    /// Head and value of each.
    Values,
}
