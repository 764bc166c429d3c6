//! A node's part in the last round: the tombstone is removed if it is all that is here. Where a context is folded, the
//! entries are removed from what is here.

use bytes::Bytes;

use super::fold;
use crate::step::{Action, Event, StepContext};
use crate::stored::{Stored, Want};
use crate::stored_head::view;

/// A removal under way.
#[derive(Debug)]
pub(super) struct Removal {
    tombstone: Bytes,
    /// No other node may have anything, so nothing was promised.
    alone: bool,
    /// Whether it is no tombstone, but a version whose context is to be folded.
    folds: bool,
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
        let folds = view(&tombstone).is_ok_and(|head| !head.is_tombstone());
        Removal { tombstone, alone, folds, state: State::New }
    }

    /// Takes what happened; whether the tombstone is gone, once that is known.
    pub fn step(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Option<bool> {
        match (&self.state, event) {
            (State::New, Event::Start) => {
                let want = if self.folds { Want::Value } else { Want::Head };
                ctx.out.push(Action::Read { want, hold: true });
                self.state = State::Reading;
                None
            }
            (State::Reading, Event::Read(Ok(stored))) if self.folds => self.fold(stored, ctx),
            (State::Reading, Event::Read(Ok(stored))) => {
                let is_promised =
                    ctx.grave.tombstone() == Some(&self.tombstone) || base::planted!(ReapWithHintOutstanding);
                let is_only = stored.as_ref().is_none_or(|stored| stored.head == self.tombstone);
                if !is_only || !(self.alone || is_promised) {
                    return Some(false);
                }
                ctx.grave.close();
                if stored.is_none() {
                    return Some(true);
                }
                ctx.out.push(Action::Remove);
                self.state = State::Removing;
                None
            }
            (State::Removing, Event::Written(result)) => Some(result.is_ok()),
            (_, Event::Read(_) | Event::Expired) => Some(false),
            (_, Event::Start | Event::Written(_) | Event::Answer { .. } | Event::Late) => None,
        }
    }

    /// Removes the entries from what is stored by now.
    fn fold(&mut self, stored: Option<Stored>, ctx: &mut StepContext<'_>) -> Option<bool> {
        let is_promised = ctx.grave.promised() == Some(&self.tombstone) || base::planted!(FoldedUnasked);
        if !(self.alone || is_promised) {
            return Some(false);
        }
        ctx.grave.close();
        let Some(stored) = stored else { return Some(true) };
        let Ok(folded) = fold::folded(&stored.head, &self.tombstone) else { return Some(false) };
        let (Some(head), Some(value)) = (folded, stored.value) else { return Some(true) };
        ctx.out.push(Action::Write { head, value, hints: Vec::new() });
        self.state = State::Removing;
        None
    }
}
