//! The coordinator of a reaping.
//!
//! 1. Make the promise here; then ask all other members for theirs.
//! 2. When all have agreed, have them confirm it.
//! 3. When all have, have them remove the tombstone, and remove it here.
//!
//! A node alone removes it. In a consistent type nothing is asked: its groups reap. Invariant: an answer counts for the
//! round that it names, once; and before the third round any failure, of whomever, is a refusal: a member that was
//! started again may have said yes as another process.

use bytes::Bytes;
use ring::NodeId;

use super::promise::Promise;
use super::removal::Removal;
use super::{Round, fold};
use crate::replica::{Answer, Ask};
use crate::step::{Action, Event, Next, StepContext};
use crate::stored::Want;

/// A reaping under way.
#[derive(Debug)]
pub struct Reap {
    /// The encoded head: of a tombstone, or of the version whose context is folded.
    tombstone: Bytes,
    folds: bool,
    others: Vec<NodeId>,
    /// Who has not answered in this round.
    awaited: Vec<NodeId>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The head whose context is to be folded is read here.
    Choosing {
        is_primary: bool,
    },
    /// The first round, here.
    Promising(Promise),
    /// The first or second round, elsewhere.
    Asking(Round),
    /// The last round, here and elsewhere.
    Removing(Removal),
    /// The last round, elsewhere.
    Leaving,
    Refused,
}

impl State {
    /// The number of its stage, ascending.
    fn stage(&self) -> u8 {
        match self {
            State::Choosing { .. } => 0,
            State::Promising(_) => 1,
            State::Asking(Round::Promise) => 2,
            State::Asking(Round::Confirm) => 3,
            State::Asking(Round::Remove) => 4,
            State::Removing(_) => 5,
            State::Leaving => 6,
            State::Refused => 7,
        }
    }
}

impl Reap {
    /// The reaping of this tombstone by a node which is a primary of the key, or not. `others` are all other members.
    pub fn new(tombstone: Bytes, is_primary: bool, others: Vec<NodeId>) -> Reap {
        let state = match others.is_empty() {
            true => State::Removing(Removal::new(tombstone.clone(), true)),
            false => State::Promising(Promise::new(tombstone.clone(), is_primary, others.clone())),
        };
        Reap { tombstone, folds: false, others, awaited: Vec::new(), state }
    }

    /// The fold of the key's context, by a node which is a primary of the key, or not. `others` are all other members.
    pub fn of_context(is_primary: bool, others: Vec<NodeId>) -> Reap {
        let state = State::Choosing { is_primary };
        Reap { tombstone: Bytes::new(), folds: true, others, awaited: Vec::new(), state }
    }

    /// Whether it is the fold of a context.
    pub fn folds(&self) -> bool {
        self.folds
    }

    /// Whether all have agreed, so that the tombstone goes.
    pub fn is_agreed(&self) -> bool {
        matches!(self.state, State::Removing(_) | State::Leaving)
    }

    /// Takes what happened, and says what to do next.
    pub fn step(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        let before = self.state.stage();
        let next = self.advance(event, ctx);

        if cfg!(debug_assertions) {
            self.invariants();
            debug_assert!(before <= self.state.stage(), "a reaping does not go back to an earlier round");
        }
        next
    }

    /// Asserts relations that hold after each step.
    pub fn invariants(&self) {
        let is_member = |node: &NodeId| self.others.contains(node);
        assert!(self.awaited.iter().all(is_member), "a round awaits members that were asked");
        let is_unasked = matches!(self.state, State::Choosing { .. } | State::Promising(_));
        assert!(!is_unasked || self.awaited.is_empty(), "this node promises before it asks others");
        let is_open = matches!(self.state, State::Asking(_));
        assert!(!is_open || !self.awaited.is_empty(), "a round without an open question is over");
        let has_chosen = !matches!(self.state, State::Choosing { .. } | State::Refused);
        assert!(!has_chosen || !self.tombstone.is_empty(), "a round is about a head");
    }

    fn advance(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        if matches!(event, Event::Start) && ctx.props.check_eventual().is_err() {
            return self.refuse();
        }
        let is_late = matches!(event, Event::Late | Event::Expired);
        match (&mut self.state, event) {
            (State::Choosing { .. }, Event::Start) => {
                ctx.out.push(Action::Read { want: Want::Head, hold: false });
                Next::Wait
            }
            (State::Choosing { is_primary }, Event::Read(Ok(Some(stored)))) => {
                let is_primary = *is_primary;
                self.on_chosen(stored.head, is_primary, ctx)
            }
            (State::Choosing { .. }, _) => self.refuse(),
            (State::Promising(promise), event) => match promise.step(event, ctx) {
                None => Next::Wait,
                Some(true) => {
                    self.ask(Round::Promise, ctx);
                    Next::Wait
                }
                Some(false) => self.refuse(),
            },
            (State::Asking(round), Event::Answer { from, result }) => {
                let round = *round;
                match result {
                    Ok(Answer::Reaping { round: of, agrees }) if of == round => match agrees {
                        true => self.on_agreed(from, round, ctx),
                        false => self.refuse(),
                    },
                    // Of another round, doubled on its way.
                    Ok(_) => Next::Wait,
                    Err(_) if base::planted!(DownMemberCountsAsYes) => self.on_agreed(from, round, ctx),
                    Err(_) => self.refuse(),
                }
            }
            (State::Asking(_), Event::Expired) => self.refuse(),
            (State::Removing(_) | State::Leaving, Event::Answer { from, result }) => {
                if !matches!(result, Ok(Answer::Reaping { round, .. }) if round != Round::Remove) {
                    self.awaited.retain(|node| *node != from);
                }
                self.leave()
            }
            (State::Removing(removal), event) => {
                match removal.step(event, ctx) {
                    // Nobody else has been asked.
                    Some(false) if self.others.is_empty() => return self.refuse(),
                    Some(_) => self.state = State::Leaving,
                    None => {}
                }
                if is_late { Next::Over } else { self.leave() }
            }
            (State::Leaving, _) if is_late => Next::Over,
            (State::Refused, _) => Next::Over,
            (State::Asking(_) | State::Leaving, _) => Next::Wait,
        }
    }

    /// Begins the rounds with the head that is here.
    fn on_chosen(&mut self, head: Bytes, is_primary: bool, ctx: &mut StepContext<'_>) -> Next {
        if !fold::is_foldable(&head) {
            return self.refuse();
        }
        self.tombstone = head.clone();
        if self.others.is_empty() || base::planted!(FoldedUnasked) {
            self.ask_to_remove(ctx);
            return Next::Wait;
        }
        let mut promise = Promise::new(head, is_primary, self.others.clone());
        let agrees = promise.step(Event::Start, ctx);
        debug_assert!(agrees.is_none(), "it reads first");
        self.state = State::Promising(promise);
        Next::Wait
    }

    fn ask(&mut self, round: Round, ctx: &mut StepContext<'_>) {
        self.awaited.clone_from(&self.others);
        for &to in &self.others {
            let ask = Ask::Reap { round, tombstone: self.tombstone.clone() };
            ctx.out.push(Action::Ask { to, ask });
        }
        self.state = State::Asking(round);
    }

    fn on_agreed(&mut self, from: NodeId, round: Round, ctx: &mut StepContext<'_>) -> Next {
        self.awaited.retain(|node| *node != from);
        if !self.awaited.is_empty() {
            return Next::Wait;
        }
        if round == Round::Promise {
            self.ask(Round::Confirm, ctx);
            return Next::Wait;
        }
        self.ask_to_remove(ctx);
        Next::Wait
    }

    /// Begins the last round, here and elsewhere.
    fn ask_to_remove(&mut self, ctx: &mut StepContext<'_>) {
        self.ask(Round::Remove, ctx);
        let mut removal = Removal::new(self.tombstone.clone(), self.others.is_empty());
        let gone = removal.step(Event::Start, ctx);
        debug_assert!(gone.is_none(), "it reads first");
        self.state = State::Removing(removal);
    }

    fn leave(&self) -> Next {
        match self.state {
            State::Leaving if self.awaited.is_empty() => Next::Over,
            _ => Next::Wait,
        }
    }

    fn refuse(&mut self) -> Next {
        self.state = State::Refused;
        Next::Over
    }
}
