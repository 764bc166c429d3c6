//! A node's part in a reaping that another node coordinates. In a consistent type it agrees to none.

use bytes::Bytes;
use ring::NodeId;

use super::Round;
use super::promise::Promise;
use super::removal::Removal;
use crate::replica::Answer;
use crate::step::{Action, Event, Next, StepContext};

/// One round here.
#[derive(Debug)]
pub struct Part(State);

#[derive(Debug)]
enum State {
    Promise(Promise),
    Confirm(Bytes),
    Remove(Removal),
}

impl Part {
    /// The part in `round` of the reaping of this tombstone, of a node which is a primary of the key, or not. `others`
    /// are all other members.
    pub fn new(round: Round, tombstone: Bytes, is_primary: bool, others: Vec<NodeId>) -> Part {
        Part(match round {
            Round::Promise => State::Promise(Promise::new(tombstone, is_primary, others)),
            Round::Confirm => State::Confirm(tombstone),
            Round::Remove => State::Remove(Removal::new(tombstone, false)),
        })
    }

    /// Takes an event, and says whether it waits for more.
    pub fn step(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        ctx.run_part(|ctx| self.advance(event, ctx))
    }

    fn advance(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        let is_eventual = ctx.props.check_eventual().is_ok();
        let (round, agrees) = match &mut self.0 {
            State::Promise(_) if !is_eventual => (Round::Promise, Some(false)),
            State::Confirm(_) if !is_eventual => (Round::Confirm, Some(false)),
            State::Remove(_) if !is_eventual => (Round::Remove, Some(false)),
            State::Promise(promise) => (Round::Promise, promise.step(event, ctx)),
            State::Confirm(tombstone) => {
                let has_grave = ctx.grave.promised() == Some(tombstone);
                (Round::Confirm, Some(has_grave || base::planted!(ReapWithHintOutstanding)))
            }
            State::Remove(removal) => (Round::Remove, removal.step(event, ctx)),
        };
        let Some(agrees) = agrees else { return Next::Wait };
        ctx.out.push(Action::Answer(Ok(Answer::Reaping { round, agrees })));
        Next::Over
    }
}
