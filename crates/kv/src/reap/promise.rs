//! A node's part in the first round: may this tombstone be reaped, as far as this node knows?
//!
//! 1. Read the head here; other writes of the key wait from here on.
//! 2. A primary must have exactly the tombstone, or have reaped it already. Another node may have nothing, or
//!    something that the tombstone covers, with no hint: what a change of `n_val` has left behind.
//! 3. Look for a hint about the key for each other member.
//!    Where a context is to be folded, `fold.rs` says what a primary must have; another node's older version is
//!    removed.
//! 4. Remember the tombstone, replace what it covers, and agree when everything written so far is durable: that
//!    nothing is here must not be undone by a crash.

use bytes::Bytes;
use ring::NodeId;

use super::fold::Standing;
use crate::error::Error;
use crate::step::{Action, Event, StepContext};
use crate::stored::{Stored, Want};
use crate::stored_head::view;

/// A promise in the making.
#[derive(Debug)]
pub(super) struct Promise {
    tombstone: Bytes,
    is_primary: bool,
    /// Members for whom there may be a hint.
    others: Vec<NodeId>,
    /// Whether something here is to be replaced by the tombstone.
    replaces: bool,
    /// Whether it is no tombstone, but a version whose context is to be folded.
    folds: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    Reading,
    ReadingHint,
    Settling,
}

impl Promise {
    /// Of a node which is a primary of the key, or not. `others` are all other members.
    pub fn new(tombstone: Bytes, is_primary: bool, others: Vec<NodeId>) -> Promise {
        Promise { tombstone, is_primary, others, replaces: false, folds: false, state: State::New }
    }

    /// Takes what happened; whether this node agrees, once that is known.
    pub fn step(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Option<bool> {
        match (&self.state, event) {
            // As if it were none of this node's business.
            (State::New, Event::Start) if base::planted!(ReapWithHintOutstanding) && !self.is_primary => {
                Some(true)
            }
            (State::New, Event::Start) => {
                ctx.out.push(Action::Read { want: Want::Head, hold: true });
                self.state = State::Reading;
                None
            }
            (State::Reading, Event::Read(Ok(stored))) => match self.judge(stored.as_ref(), ctx) {
                Ok(true) if base::planted!(ReapWithHintOutstanding) => self.agree(ctx),
                Ok(true) => self.next_hint(ctx),
                Ok(false) | Err(_) => Some(false),
            },
            (State::ReadingHint, Event::Read(Ok(None))) => self.next_hint(ctx),
            (State::Settling, Event::Written(result)) => Some(result.is_ok()),
            (_, Event::Read(_) | Event::Expired) => Some(false),
            (_, Event::Start | Event::Written(_) | Event::Answer { .. } | Event::Late) => None,
        }
    }

    fn judge(&mut self, stored: Option<&Stored>, ctx: &StepContext<'_>) -> Result<bool, Error> {
        let tombstone = view(&self.tombstone)?;
        if !tombstone.is_tombstone() {
            return self.judge_fold(stored);
        }
        let Some(stored) = stored else {
            return Ok(!self.is_primary || ctx.grave.is_reaped(&self.tombstone));
        };
        if stored.head == self.tombstone {
            return Ok(true);
        }
        let seen = view(&stored.head)?.context().to_context();
        self.replaces = !self.is_primary && tombstone.context().to_context().descends(&seen);
        Ok(self.replaces)
    }

    /// The same where a context is to be folded.
    fn judge_fold(&mut self, stored: Option<&Stored>) -> Result<bool, Error> {
        let Some(stored) = stored else { return Ok(!self.is_primary) };
        let standing = Standing::of(&stored.head, &self.tombstone)?;
        self.folds = true;
        self.replaces = !self.is_primary && standing == Standing::Behind;
        Ok(self.replaces || standing == Standing::Clean)
    }

    fn next_hint(&mut self, ctx: &mut StepContext<'_>) -> Option<bool> {
        let Some(node) = self.others.pop() else { return self.agree(ctx) };
        ctx.out.push(Action::ReadHint { node });
        self.state = State::ReadingHint;
        None
    }

    fn agree(&mut self, ctx: &mut StepContext<'_>) -> Option<bool> {
        if !ctx.grave.promise(&self.tombstone) {
            return Some(false);
        }
        ctx.out.push(match self.replaces {
            // All primaries have something newer.
            true if self.folds => Action::Remove,
            true => Action::Write { head: self.tombstone.clone(), value: Bytes::new(), hints: Vec::new() },
            false => Action::Settle,
        });
        self.state = State::Settling;
        None
    }
}
