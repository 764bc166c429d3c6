//! The steps of coordinators: events from the shard loop, and requests to it.
//!
//! A coordinator takes an [`Event`] and puts its next requests ([`Action`]) into [`StepContext::out`]. It starts with
//! [`Event::Start`]. Each `Read` is answered by one `Event::Read`, each `Write`, `Settle`, `Remove`, and each `Hint` to
//! be confirmed, by one `Event::Written`; there is at most one of these under way at a time. An `Ask` is answered by
//! one `Event::Answer`, or by several (the network doubles), or by none. A coordinator may go on after its `Reply`; it
//! is over when a step says so ([`Next::Over`]).
//!
//! The loop keeps other writes of the same key waiting from a read that is to be held to the write that follows, so
//! the version that was read is still there when the write arrives. Nobody holds a key while it waits for another node.

use base::Wall;
use bytes::Bytes;
use object::Dot;

use crate::error::Error;
use crate::limits::Limits;
use crate::placement::Placement;
use crate::props::BucketProps;
use crate::reap::Plot;
use crate::replica::{Answer, Ask, NodeId, ReadStrategy};
use crate::response::Response;
use crate::stored::{Stored, Want};
use crate::version_clock::VersionClock;

/// A request of a coordinator to the shard loop.
#[derive(Debug)]
pub enum Action {
    /// Look the key up here.
    Read {
        /// How much of it is needed.
        want: Want,
        /// Whether a write rests on it: other writes of the key wait from here to that write.
        hold: bool,
    },
    /// Look the hint up that is kept here for this node about the key.
    ReadHint {
        /// For whom.
        node: NodeId,
    },
    /// Append this version of the key, and say when it is as durable as configured.
    Write {
        /// The encoded head.
        head: Bytes,
        /// The values of all siblings, one after the other.
        value: Bytes,
        /// The nodes for which a hint is kept with it.
        hints: Vec<NodeId>,
    },
    /// Keep a hint about the key for these nodes.
    Hint {
        /// For whom.
        nodes: Vec<NodeId>,
        /// Whether to say when it is as durable as configured, as for a write.
        confirm: bool,
    },
    /// Ask another node.
    Ask {
        /// Which.
        to: NodeId,
        /// What.
        ask: Ask,
    },
    /// Join this version with what is here, as another replica would. Nobody waits for it.
    MergeHere {
        /// The encoded head.
        head: Bytes,
        /// The values of all siblings.
        value: Bytes,
        /// Whether it is written even if the heads are equal, because what is here is damaged.
        heal: bool,
        /// For whom hints are kept with it: then this node stands in for them.
        hints: Vec<NodeId>,
    },
    /// Forget the hint about the key, and with `object` the key itself.
    Forget {
        /// For whom the hint was.
        node: NodeId,
        /// Whether the key goes too.
        object: bool,
    },
    /// Say when everything written here so far is as durable as configured. Other writes of the key wait no longer.
    Settle,
    /// Remove the key, and say when that is as durable as configured.
    Remove,
    /// All primaries have this tombstone: it may be reaped. Nobody waits for it.
    Propose {
        /// The encoded head.
        tombstone: Bytes,
    },
    /// The client's answer.
    Reply(Result<Response, Error>),
    /// The answer to another node's question.
    Answer(Result<Answer, Error>),
}

/// The answers among these actions, to the client or to the node that asks.
pub(crate) fn answers(actions: &[Action]) -> usize {
    actions.iter().filter(|action| matches!(action, Action::Reply(_) | Action::Answer(_))).count()
}

/// A coordinator of a write or a delete. It goes through stages, and answers its client once.
pub(crate) trait StagedWrite {
    /// The number of its stage, ascending, and whether its client has an answer.
    fn progress(&self) -> (u8, bool);

    /// Takes an event.
    fn advance(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next;

    /// Asserts relations that hold after each step.
    fn invariants(&self);

    /// Takes an event, and asserts the relations of the step.
    fn step_checked(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        let ((stage, had_answered), from) = (self.progress(), ctx.out.len());
        let next = self.advance(event, ctx);

        if cfg!(debug_assertions) {
            self.invariants();
            let (now, has_answered) = self.progress();
            debug_assert!(stage <= now, "a write does not go back to an earlier stage");
            let answered = usize::from(had_answered) + answers(&ctx.out[from..]);
            debug_assert_eq!(answered, usize::from(has_answered), "a write answers once");
        }
        next
    }
}

/// Whether a coordinator waits for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// It waits for an event.
    Wait,
    /// It is over.
    Over,
}

/// An event for a coordinator.
#[derive(Clone, Debug)]
pub enum Event {
    /// The request came up.
    Start,
    /// The answer to a read; `None` if the store has nothing under the key.
    Read(Result<Option<Stored>, Error>),
    /// The answer to a write.
    Written(Result<(), Error>),
    /// A replica's answer, or why there will be none.
    Answer {
        /// The node that was asked.
        from: NodeId,
        /// Its answer.
        result: Result<Answer, Error>,
    },
    /// Those that have not answered take long: whatever depends on them is to be prepared for their never
    /// answering, and a coordinator that has replied is to wait no longer.
    Late,
    /// The client waits no longer.
    Expired,
}

/// The context of one step of a coordinator.
pub struct StepContext<'a> {
    /// This node.
    pub here: NodeId,
    /// The wall clock, for what ends.
    pub wall: Wall,
    /// The clock of new versions.
    pub clock: &'a mut VersionClock,
    /// The node that asks, where this is a replica's part.
    pub asker: Option<NodeId>,
    /// The next dot: never given twice, also across crashes. Told whether this node is a primary of the key: the
    /// dots of one that is not have an actor of their own, since it does not keep what it wrote, and a context
    /// with its actor would cover writes that it has forgotten.
    pub next_dot: &'a mut dyn FnMut(bool) -> Result<Dot, Error>,
    /// Who holds the key: told the number of replicas and whether others may stand in.
    pub place: &'a dyn Fn(u32, bool) -> Placement,
    /// What this node remembers of the key's reaping.
    pub grave: Plot<'a>,
    /// Whether what is replaced may have index entries, or is in a tree of hashes, so that it must be read first.
    pub may_replace_entries: bool,
    /// How a read is to ask.
    pub form: ReadStrategy,
    /// The bucket's properties.
    pub props: &'a BucketProps,
    /// The limits in force.
    pub limits: &'a Limits,
    /// Requests to the shard loop, in order.
    pub out: &'a mut Vec<Action>,
}

impl StepContext<'_> {
    /// Runs one step of a replica's part, and asserts that the part answers once, in its last step.
    pub(crate) fn run_part(&mut self, step: impl FnOnce(&mut Self) -> Next) -> Next {
        let from = self.out.len();
        let next = step(self);
        let is_over = usize::from(next == Next::Over);
        debug_assert_eq!(
            answers(&self.out[from..]),
            is_over,
            "a replica's part answers once, in its last step"
        );
        next
    }
}
