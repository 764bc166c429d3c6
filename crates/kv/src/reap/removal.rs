//! A node's part in the last round: the tombstone is removed if it is all that is here.

use bytes::Bytes;

use crate::turn::{Action, Event, Turn, Want};

/// A removal under way.
#[derive(Debug)]
pub(super) struct Removal {
    tombstone: Bytes,
    /// No other node may have anything, so nothing was promised.
    alone: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    Reading,
    Removing,
}

impl Removal {
    /// The removal of this tombstone, by a node alone or one that has promised it.
    pub fn new(tombstone: Bytes, alone: bool) -> Removal {
        Removal { tombstone, alone, state: State::New }
    }

    /// Takes what happened; whether the tombstone is gone, once that is known.
    pub fn step(&mut self, event: Event, turn: &mut Turn<'_>) -> Option<bool> {
        match (&self.state, event) {
            (State::New, Event::Start) => {
                turn.out.push(Action::Read { want: Want::Head, hold: true });
                self.state = State::Reading;
                None
            }
            (State::Reading, Event::Read(Ok(stored))) => {
                let is_promised = turn.grave.tombstone() == Some(&self.tombstone)
                    || base::planted!(ReapWithHintOutstanding);
                let is_only = stored.as_ref().is_none_or(|stored| stored.head == self.tombstone);
                if !is_only || !(self.alone || is_promised) {
                    return Some(false);
                }
                turn.grave.close();
                if stored.is_none() {
                    return Some(true);
                }
                turn.out.push(Action::Remove);
                self.state = State::Removing;
                None
            }
            (State::Removing, Event::Written(result)) => Some(result.is_ok()),
            (_, Event::Read(_) | Event::Expired) => Some(false),
            (_, Event::Start | Event::Written(_) | Event::Answer { .. } | Event::Late) => None,
        }
    }
}
