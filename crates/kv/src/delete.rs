//! The coordinator of a delete.
//!
//! 1. Check names and quorums, as for a read and a write.
//! 2. Read the head. A key that is absent or deleted is left alone: the delete has nothing to do, on the one
//!    node there is.
//! 3. Write a tombstone, a sibling without a value, over what the client had seen, or over everything stored if
//!    it does not say. What the client had not seen stays beside the tombstone.
//!
//! Tombstones are kept: reaping them needs to know of other nodes.

use object::{Context, Head};

use crate::error::Error;
use crate::get::{damaged, decode_context};
use crate::quorum::{Needs, Quorum, Reply};
use crate::request::DeleteRequest;
use crate::response::Response;
use crate::turn::{Action, Event, Stored, Turn, Want};
use crate::update::Update;

/// A delete under way.
#[derive(Debug)]
pub struct Delete {
    request: DeleteRequest,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    ReadingHead { needs: Needs, context: Option<Context> },
    ReadingValues { needs: Needs, update: Box<Update> },
    Writing { needs: Needs },
    Done,
}

impl Delete {
    /// The coordinator of `request`.
    pub fn new(request: DeleteRequest) -> Delete {
        Delete { request, state: State::New }
    }

    /// The request.
    pub fn request(&self) -> &DeleteRequest {
        &self.request
    }

    /// Takes what happened, and says what to do next.
    ///
    /// # Panics
    /// If the event is not one that was asked for.
    pub fn step(&mut self, event: Event, turn: &mut Turn<'_>) -> Action {
        let state = std::mem::replace(&mut self.state, State::Done);
        let next = match (state, event) {
            (State::New, Event::Start) => self.on_start(turn),
            (State::ReadingHead { needs, context }, Event::Read(stored)) => {
                stored.and_then(|stored| self.on_head(needs, context, stored, turn))
            }
            (State::ReadingValues { needs, update }, Event::Read(stored)) => {
                stored.and_then(|stored| self.write(needs, *update, stored, turn))
            }
            (State::Writing { needs }, Event::Written(written)) => written.and_then(|()| {
                needs.met_by(&[Reply::of_all(needs.n)])?;
                Ok(Action::Reply(Ok(Response::Deleted)))
            }),
            (state, event) => panic!("a delete in state {state:?} was told {event:?}"),
        };
        next.unwrap_or_else(|error| Action::Reply(Err(error)))
    }

    fn on_start(&mut self, turn: &Turn<'_>) -> Result<Action, Error> {
        let request = &self.request;
        turn.limits.check_names(&request.bucket, &request.key)?;
        let rw = request.rw.or(turn.props.rw);
        let reads = (request.r.or(rw), request.pr);
        let read = Needs::read(turn.props, request.n_val, reads, Quorum::Default)?;
        let writes = (request.w.or(rw), request.pw, request.dw.or(rw));
        let needs = Needs::write(turn.props, request.n_val, writes, Quorum::Default)?;
        read.met_by(&[Reply::of_all(read.n)])?;
        needs.met_by(&[Reply::of_all(needs.n)])?;
        let context = decode_context(request.context.as_ref())?;
        self.state = State::ReadingHead { needs, context };
        Ok(Action::Read { want: Want::Head })
    }

    fn on_head(
        &mut self,
        needs: Needs,
        context: Option<Context>,
        stored: Option<Stored>,
        turn: &mut Turn<'_>,
    ) -> Result<Action, Error> {
        let Some(stored) = stored else { return Ok(Action::Reply(Ok(Response::Deleted))) };
        let existing = Head::decode(&stored.head).map_err(damaged)?;
        if existing.is_tombstone() {
            return Ok(Action::Reply(Ok(Response::Deleted)));
        }
        let put = object::Put::delete(Some(&existing), context, turn.wall.0);
        let update = Update::plan(Some(existing), put, turn)?;
        if update.needs_values() && stored.value.is_none() {
            self.state = State::ReadingValues { needs, update: Box::new(update) };
            return Ok(Action::Read { want: Want::Value });
        }
        self.write(needs, update, Some(stored), turn)
    }

    fn write(
        &mut self,
        needs: Needs,
        update: Update,
        stored: Option<Stored>,
        turn: &mut Turn<'_>,
    ) -> Result<Action, Error> {
        let version = update.finish(stored, turn)?;
        self.state = State::Writing { needs };
        Ok(Action::Write { head: version.head, value: version.values })
    }
}
