//! The coordinator of a reaping.
//!
//! 1. Make the promise here; then ask all other members for theirs.
//! 2. When all have agreed, have them confirm it.
//! 3. When all have, have them remove the tombstone, and remove it here.
//!
//! A node alone removes it. Invariant: an answer counts for the round that it names, once; and before the third round any
//! failure, of whomever, is a refusal: a member that was started again may have said yes as another process.

use bytes::Bytes;
use ring::NodeId;

use super::Round;
use super::promise::Promise;
use super::removal::Removal;
use crate::replica::{Answer, Ask};
use crate::turn::{Action, Event, Next, Turn};

/// A reaping under way.
#[derive(Debug)]
pub struct Reap {
    tombstone: Bytes,
    others: Vec<NodeId>,
    /// Who has not answered in this round.
    awaited: Vec<NodeId>,
    state: State,
}

#[derive(Debug)]
enum State {
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

impl Reap {
    /// The reaping of this tombstone by a node which is a primary of the key, or not. `others` are all other members.
    pub fn new(tombstone: Bytes, is_primary: bool, others: Vec<NodeId>) -> Reap {
        let state = match others.is_empty() {
            true => State::Removing(Removal::new(tombstone.clone(), true)),
            false => State::Promising(Promise::new(tombstone.clone(), is_primary, others.clone())),
        };
        Reap { tombstone, others, awaited: Vec::new(), state }
    }

    /// Whether all have agreed, so that the tombstone goes.
    pub fn is_agreed(&self) -> bool {
        matches!(self.state, State::Removing(_) | State::Leaving)
    }

    /// Takes what happened, and says what to do next.
    pub fn step(&mut self, event: Event, turn: &mut Turn<'_>) -> Next {
        let is_late = matches!(event, Event::Late | Event::Expired);
        match (&mut self.state, event) {
            (State::Promising(promise), event) => match promise.step(event, turn) {
                None => Next::Wait,
                Some(true) => {
                    self.ask(Round::Promise, turn);
                    Next::Wait
                }
                Some(false) => self.refuse(),
            },
            (State::Asking(round), Event::Answer { from, result }) => {
                let round = *round;
                match result {
                    Ok(Answer::Reaping { round: of, agrees }) if of == round => match agrees {
                        true => self.on_agreed(from, round, turn),
                        false => self.refuse(),
                    },
                    // Of another round, doubled on its way.
                    Ok(_) => Next::Wait,
                    Err(_) if base::planted!(DownMemberCountsAsYes) => self.on_agreed(from, round, turn),
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
                match removal.step(event, turn) {
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

    fn ask(&mut self, round: Round, turn: &mut Turn<'_>) {
        self.awaited.clone_from(&self.others);
        for &to in &self.others {
            let ask = Ask::Reap { round, tombstone: self.tombstone.clone() };
            turn.out.push(Action::Ask { to, ask });
        }
        self.state = State::Asking(round);
    }

    fn on_agreed(&mut self, from: NodeId, round: Round, turn: &mut Turn<'_>) -> Next {
        self.awaited.retain(|node| *node != from);
        if !self.awaited.is_empty() {
            return Next::Wait;
        }
        if round == Round::Promise {
            self.ask(Round::Confirm, turn);
            return Next::Wait;
        }
        self.ask(Round::Remove, turn);
        let mut removal = Removal::new(self.tombstone.clone(), false);
        let gone = removal.step(Event::Start, turn);
        debug_assert!(gone.is_none(), "it reads first");
        self.state = State::Removing(removal);
        Next::Wait
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
