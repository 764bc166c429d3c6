//! A replica's part in a write, a repair or a handoff: the received object is joined with the stored one.
//!
//! 1. Read the head here. If this node remembers a tombstone of the key ([`crate::reap`]), what it has deleted is no
//!    more.
//! 2. If it is the one that was sent, or descends from it, there is nothing to write but hints.
//! 3. Otherwise join the two; read the values of siblings of ours that stay; write. Where the last write wins too: a
//!    clock that decides between two versions, after causality has decided between others, does not decide the same
//!    in every order. Readers are shown the newest sibling there, and there is one for each actor at most.
//! 4. Answer when what is here is as durable as configured.
//!
//! A version of a consistent type is refused: what its group has not applied is no version of the key.
//!
//! Invariant: joining is commutative, associative and idempotent, so versions may come late, twice and in any
//! order. A copy that is damaged here is replaced by the one that was sent: what it had, others have.

use bytes::Bytes;
use object::{Head, Object};

use crate::error::Error;
use crate::planted;
use crate::reap::{self, Cleared};
use crate::replica::{Answer, NodeId, Reason};
use crate::step::{Action, Event, Next, StepContext};
use crate::stored::{Stored, Want};
use crate::stored_head::{damaged, view};
use crate::update::Update;

/// A join under way.
#[derive(Debug)]
pub struct Merge {
    head: Bytes,
    value: Bytes,
    hints: Vec<NodeId>,
    reason: Reason,
    stands_in: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    ReadingHead,
    ReadingValues(Box<Update>),
    Writing,
}

impl Merge {
    /// The join of this version.
    pub fn new(head: Bytes, value: Bytes, hints: Vec<NodeId>, reason: Reason) -> Merge {
        let stands_in = !hints.is_empty();
        Merge { head, value, hints, reason, stands_in, state: State::New }
    }

    /// Bytes of the version's values.
    pub fn value_len(&self) -> usize {
        self.value.len()
    }

    /// Why the version came.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Whether it comes in the place of others, who are to have it when they can be reached.
    pub fn stands_in(&self) -> bool {
        self.stands_in
    }

    /// Takes an event, and says whether it waits for more.
    ///
    /// # Panics
    /// If the store answers a question that was not asked.
    pub fn step(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        let next = ctx.run_part(|ctx| self.advance(event, ctx));

        if cfg!(debug_assertions) {
            self.invariants();
        }
        next
    }

    /// Asserts relations that hold after each step.
    pub fn invariants(&self) {
        assert!(self.stands_in || self.hints.is_empty(), "a node with hints stands in for others");
        let is_needless = matches!(&self.state, State::ReadingValues(update) if !update.needs_values());
        assert!(!is_needless, "values are read for a join that needs them");
    }

    fn advance(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        let state = std::mem::replace(&mut self.state, State::Writing);
        let done = match (state, event) {
            (State::New, Event::Start) => ctx.props.check_eventual().map(|()| {
                ctx.out.push(Action::Read { want: Want::Head, hold: true });
                self.state = State::ReadingHead;
                Next::Wait
            }),
            (State::ReadingHead, Event::Read(stored)) => self.on_head(stored, ctx),
            (State::ReadingValues(update), Event::Read(stored)) => {
                stored.and_then(|stored| Ok(self.write(update.finish(stored)?.into_parts(), ctx)))
            }
            (State::Writing, Event::Written(result)) => result.map(|()| Next::Over),
            (_, Event::Expired) => Err(Error::Timeout),
            (state, Event::Late | Event::Answer { .. }) => {
                self.state = state;
                return Next::Wait;
            }
            (state, event) => panic!("a join in state {state:?} was told {event:?}"),
        };
        match done {
            Ok(Next::Wait) => Next::Wait,
            Ok(Next::Over) => {
                ctx.out.push(Action::Answer(Ok(Answer::Merged)));
                Next::Over
            }
            Err(error) => {
                ctx.out.push(Action::Answer(Err(error)));
                Next::Over
            }
        }
    }

    fn on_head(
        &mut self,
        stored: Result<Option<Stored>, Error>,
        ctx: &mut StepContext<'_>,
    ) -> Result<Next, Error> {
        // Whoever asks for a write has given the version its time.
        let writer = ctx.asker.filter(|_| self.reason == Reason::Write);
        ctx.clock.see(view(&self.head)?.newest_time(), ctx.wall, writer);
        if self.meets_grave(stored.as_ref().is_ok_and(Option::is_none), ctx)? {
            return Ok(Next::Over);
        }
        let sent = (self.head.clone(), self.value.clone());
        let stored = match stored {
            Ok(stored) => stored,
            Err(Error::Damaged(_)) => None,
            Err(error) => return Err(error),
        };
        let Some(stored) = stored else { return Ok(self.write(sent, ctx)) };
        if stored.head != self.head {
            ctx.clock.see(view(&stored.head)?.newest_time(), ctx.wall, None);
        }
        if stored.head == self.head {
            return Ok(if self.reason == Reason::Heal { self.write(sent, ctx) } else { self.keep(ctx) });
        }
        let overwrites = self.reason == Reason::Repair && base::planted!(RepairOverwrites);
        let writes_anew = self.reason == Reason::Handoff && base::planted!(HintAppliedTwice);
        if overwrites || !writes_anew && self.takes_the_place_of(&stored)? {
            return Ok(self.write(sent, ctx));
        }
        let existing = Head::decode(&stored.head).map_err(damaged)?;
        let sent = Object::new(Head::decode(&self.head).map_err(damaged)?, self.value.clone());
        let sent = sent.map_err(damaged)?;
        let update = match writes_anew {
            false => Update::join(existing, sent).map_err(damaged)?,
            true => planted::write_anew(existing, &sent, ctx)?,
        };
        if update.changes_nothing() {
            return Ok(self.keep(ctx));
        }
        if update.needs_values() && stored.value.is_none() {
            ctx.out.push(Action::Read { want: Want::Value, hold: true });
            self.state = State::ReadingValues(Box::new(update));
            return Ok(Next::Wait);
        }
        Ok(self.write(update.finish(Some(stored))?.into_parts(), ctx))
    }

    /// Whether the join is what was sent, as it is. So it is of nearly every write, and nothing need be decoded then.
    fn takes_the_place_of(&self, stored: &Stored) -> Result<bool, Error> {
        let sent = view(&self.head)?;
        Ok(sent.values_len() == self.value.len() as u64 && sent.absorbs(&view(&stored.head)?))
    }

    /// Joins what was sent with the tombstone that is remembered here. True if nothing is left to be stored: the
    /// tombstone was reaped, and is all that there is.
    fn meets_grave(&mut self, is_absent: bool, ctx: &StepContext<'_>) -> Result<bool, Error> {
        if let Some(fold) = ctx.grave.fold() {
            match fold.clear(&self.head, &self.value)? {
                Cleared::Same => {}
                Cleared::Instead(head, value) => (self.head, self.value) = (head, value),
                // All primaries have something newer.
                Cleared::Nothing => return Ok(true),
            }
            return Ok(false);
        }
        let Some(tombstone) = ctx.grave.tombstone() else { return Ok(false) };
        if reap::has_deleted(tombstone, &self.head)? {
            (self.head, self.value) = reap::joined(tombstone, &self.head, &self.value)?;
        }
        Ok(is_absent && self.head == *tombstone && ctx.grave.is_reaped(tombstone))
    }

    fn write(&mut self, (head, value): (Bytes, Bytes), ctx: &mut StepContext<'_>) -> Next {
        let hints = std::mem::take(&mut self.hints);
        ctx.out.push(Action::Write { head, value, hints });
        Next::Wait
    }

    /// Leaves what is here as it is.
    fn keep(&mut self, ctx: &mut StepContext<'_>) -> Next {
        if self.hints.is_empty() {
            return Next::Over;
        }
        ctx.out.push(Action::Hint { nodes: std::mem::take(&mut self.hints), confirm: true });
        Next::Wait
    }
}
