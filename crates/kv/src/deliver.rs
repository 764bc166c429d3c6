//! Delivers the hint of one key to its primary, which was away.
//!
//! 1. Read the key here. If it is gone there is nothing to bring, and the hint is forgotten.
//! 2. Send it to the primary, which joins it with what it has.
//! 3. When that is confirmed, read the head again: if it is still the one that was sent, the hint is forgotten. A
//!    version that came meanwhile may have left its own hint, which looks the same, so it is brought another time.
//! 4. A node that only stood in then forgets the key too, once it keeps no hint about it for another primary, and no
//!    write of it is under way here that may leave one.
//! 5. If it was a tombstone, propose to reap it: this was perhaps the last primary that lacked it.
//!
//! Invariant: a hint is forgotten only after its primary has confirmed, as durable as it is configured, everything
//! that was here when it was forgotten.

use bytes::Bytes;
use ring::NodeId;

use crate::replica::{Answer, Ask, Reason};
use crate::step::{Action, Event, Next, StepContext};
use crate::stored::{Stored, Want};
use crate::stored_head::view;

/// A hint on its way home.
#[derive(Debug)]
pub struct Deliver {
    to: NodeId,
    /// The key's other primaries, for whom there may be hints too; `None` if this node is a primary itself, which
    /// keeps the key.
    others: Option<Vec<NodeId>>,
    /// What was brought home, if it is a tombstone.
    tombstone: Option<Bytes>,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    Reading,
    Sending { head: Bytes },
    Checking { head: Bytes },
    Asking,
}

impl Deliver {
    /// The delivery to `to`. `others` are the key's other primaries if this node is none.
    pub fn new(to: NodeId, others: Option<Vec<NodeId>>) -> Deliver {
        Deliver { to, others, tombstone: None, state: State::New }
    }

    /// For whom it is.
    pub fn to(&self) -> NodeId {
        self.to
    }

    /// Takes an event, and says whether it waits for more.
    ///
    /// # Panics
    /// If the store answers a question that was not asked.
    pub fn step(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        let before = self.others.as_ref().map(Vec::len);
        let next = self.advance(event, ctx);

        if cfg!(debug_assertions) {
            self.invariants(next);
            let left = self.others.as_ref().map(Vec::len);
            debug_assert!(left <= before, "each other primary is looked at once");
        }
        next
    }

    /// Asserts relations that hold after each step.
    pub fn invariants(&self, next: Next) {
        let is_asking = matches!(self.state, State::Asking);
        debug_assert!(!is_asking || self.others.is_some(), "a primary keeps the key, with hints or without");
        let is_held = next == Next::Wait && self.tombstone.is_some();
        debug_assert!(!is_held || is_asking, "a tombstone is in hand from its confirmation to the last hint");
    }

    fn advance(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        let state = std::mem::replace(&mut self.state, State::New);
        match (state, event) {
            // Its groups have no hints, and take nothing from elsewhere.
            (State::New, Event::Start) if ctx.props.check_eventual().is_err() => self.forget(false, ctx),
            (State::New, Event::Start) => self.read(Want::Value, State::Reading, ctx),
            (State::Reading, Event::Read(Ok(Some(stored)))) => self.send(stored, ctx),
            (State::Reading, Event::Read(Ok(None))) => self.forget(false, ctx),
            (State::Sending { head }, Event::Answer { from, result: Ok(Answer::Merged) })
                if from == self.to =>
            {
                self.read(Want::Head, State::Checking { head }, ctx)
            }
            (State::Checking { head }, Event::Read(Ok(stored))) => match stored {
                None => self.forget(false, ctx),
                Some(stored) if stored.head == head => {
                    self.tombstone = view(&head).is_ok_and(|head| head.is_tombstone()).then_some(head);
                    self.next_other(ctx)
                }
                Some(_) => Next::Over,
            },
            // Whether there is a hint for somebody else.
            (State::Asking, Event::Read(Ok(hint))) => match hint {
                None => self.next_other(ctx),
                Some(_) => self.forget(false, ctx),
            },
            (_, Event::Read(Err(_)) | Event::Late | Event::Expired) => Next::Over,
            (_, Event::Answer { result: Err(_), .. }) => Next::Over,
            // Doubled on its way.
            (state, Event::Answer { .. }) => {
                self.state = state;
                Next::Wait
            }
            (state, event) => panic!("a delivery in state {state:?} was told {event:?}"),
        }
    }

    fn read(&mut self, want: Want, state: State, ctx: &mut StepContext<'_>) -> Next {
        let hold = matches!(state, State::Checking { .. });
        ctx.out.push(Action::Read { want, hold });
        self.state = state;
        Next::Wait
    }

    fn send(&mut self, stored: Stored, ctx: &mut StepContext<'_>) -> Next {
        let head = stored.head;
        let value = stored.value.unwrap_or_default();
        let ask = Ask::Merge { head: head.clone(), value, hints: Vec::new(), reason: Reason::Handoff };
        ctx.out.push(Action::Ask { to: self.to, ask });
        self.state = State::Sending { head };
        Next::Wait
    }

    /// Looks for a hint for the next of the other primaries; with none left, the key is not needed here.
    fn next_other(&mut self, ctx: &mut StepContext<'_>) -> Next {
        let Some(others) = &mut self.others else { return self.forget(false, ctx) };
        match others.pop() {
            Some(node) => {
                ctx.out.push(Action::ReadHint { node });
                self.state = State::Asking;
                Next::Wait
            }
            None => self.forget(true, ctx),
        }
    }

    fn forget(&mut self, object: bool, ctx: &mut StepContext<'_>) -> Next {
        ctx.out.push(Action::Forget { node: self.to, object });
        if let Some(tombstone) = self.tombstone.take() {
            ctx.out.push(Action::Propose { tombstone });
        }
        Next::Over
    }
}
