//! A version on its way to other nodes that hold, or are to hold, the same partition while it moves.
//!
//! * [`DualWrite`]: a version that this node has just been given. It is confirmed only when they have it too, so the
//!   node that takes this one's place on the list has all that this one ever confirmed.
//! * [`TransferKey`]: an earlier version, as one key of a transfer.
//!
//! Invariant: a version that could not be passed on has a hint here, and is not confirmed.

use bytes::Bytes;
use ring::NodeId;

use crate::error::Error;
use crate::replica::{Answer, Ask, Reason};
use crate::step::{Action, Event, Next, StepContext};
use crate::stored::Want;

/// A version that was written here.
#[derive(Debug)]
pub struct DualWrite {
    /// Nodes that have not confirmed it.
    to: Vec<NodeId>,
    head: Bytes,
    value: Bytes,
    /// How often it was told that they take long.
    late: u32,
}

/// How often it waits on when told that they take long: two seconds, at a shard's patience. Whoever asked has its hints
/// by then, and not every one who asks has a deadline that is near.
const LATE_MAX: u32 = 4;

impl DualWrite {
    /// The passing on to these nodes.
    pub fn new(to: Vec<NodeId>, head: Bytes, value: Bytes) -> DualWrite {
        DualWrite { to, head, value, late: 0 }
    }

    /// Takes an event, and says whether it waits for more.
    pub fn step(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        let next = ctx.run_part(|ctx| self.advance(event, ctx));

        if cfg!(debug_assertions) {
            self.invariants(next);
        }
        next
    }

    /// Asserts relations that hold after each step.
    pub fn invariants(&self, next: Next) {
        debug_assert!(self.late <= LATE_MAX, "a pass waits for a bounded time");
        debug_assert!(
            next == Next::Wait || self.to.is_empty(),
            "at the end of a pass each node has the version or a hint"
        );
    }

    fn advance(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        match event {
            Event::Start => {
                for &to in &self.to {
                    let (head, value) = (self.head.clone(), self.value.clone());
                    let ask = Ask::Merge { head, value, hints: Vec::new(), reason: Reason::DualWrite };
                    ctx.out.push(Action::Ask { to, ask });
                }
                Next::Wait
            }
            Event::Answer { from, result: Ok(Answer::Merged) } => {
                self.to.retain(|to| *to != from);
                if !self.to.is_empty() {
                    return Next::Wait;
                }
                ctx.out.push(Action::Answer(Ok(Answer::Merged)));
                Next::Over
            }
            Event::Answer { from, result: Err(_) } if self.to.contains(&from) => self.fail(ctx),
            Event::Late if self.late < LATE_MAX => {
                self.late += 1;
                Next::Wait
            }
            Event::Late | Event::Expired => self.fail(ctx),
            Event::Answer { .. } | Event::Read(_) | Event::Written(_) => Next::Wait,
        }
    }

    fn fail(&mut self, ctx: &mut StepContext<'_>) -> Next {
        ctx.out.push(Action::Hint { nodes: std::mem::take(&mut self.to), confirm: false });
        ctx.out.push(Action::Answer(Err(Error::Unreachable)));
        Next::Over
    }
}

/// One key of a copy.
#[derive(Debug)]
pub struct TransferKey {
    to: NodeId,
    /// Names the copy at the shard.
    copy: u64,
    bytes: u64,
    end: Option<Result<(), Error>>,
}

impl TransferKey {
    /// The key's way to `to`, as a part of `copy`.
    pub fn new(to: NodeId, copy: u64) -> TransferKey {
        TransferKey { to, copy, bytes: 0, end: None }
    }

    /// The copy that it is a part of.
    pub fn copy(&self) -> u64 {
        self.copy
    }

    /// The bytes that were carried, or why none were.
    pub fn end(&self) -> Result<u64, Error> {
        match &self.end {
            Some(Ok(())) => Ok(self.bytes),
            Some(Err(error)) => Err(error.clone()),
            None => Err(Error::Timeout),
        }
    }

    /// Takes an event, and says whether it waits for more.
    pub fn step(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        let next = self.advance(event, ctx);
        debug_assert_eq!(self.end.is_some(), next == Next::Over, "a key that was carried has an end");
        next
    }

    fn advance(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        self.end = match event {
            // The group of the key brings the new voter up to date.
            Event::Start if ctx.props.check_eventual().is_err() => Some(Ok(())),
            Event::Start => {
                ctx.out.push(Action::Read { want: Want::Value, hold: false });
                return Next::Wait;
            }
            Event::Read(Ok(Some(stored))) => {
                let value = stored.value.unwrap_or_default();
                self.bytes = (stored.head.len() + value.len()) as u64;
                let ask = Ask::Merge { head: stored.head, value, hints: Vec::new(), reason: Reason::Copy };
                ctx.out.push(Action::Ask { to: self.to, ask });
                return Next::Wait;
            }
            Event::Read(Ok(None)) => Some(Ok(())),
            Event::Answer { from, result: Ok(Answer::Merged) } if from == self.to => Some(Ok(())),
            Event::Answer { from, result: Err(error) } if from == self.to => Some(Err(error)),
            Event::Read(Err(error)) => Some(Err(error)),
            Event::Expired => Some(Err(Error::Timeout)),
            Event::Answer { .. } | Event::Written(_) | Event::Late => return Next::Wait,
        };
        Next::Over
    }
}
