//! The coordinator of a write.
//!
//! 1. Check names, sizes and index terms, resolve the quorums, and see that the copies there are can meet them.
//! 2. Read the head, unless `last_write_wins` needs none; check the condition the client set.
//! 3. Plan the new version; read the values of siblings that stay.
//! 4. Write it; when that is as durable as configured, count the replies and answer.
//!
//! Invariants: nothing is written after a refusal; one request takes at most one dot and writes at most once.

use bytes::Bytes;
use object::{Context, Head};

use crate::error::Error;
use crate::get::{damaged, decode_context, is_absent, view};
use crate::quorum::{Needs, Reply};
use crate::request::{PutRequest, Return};
use crate::response::{Found, Response};
use crate::turn::{Action, Event, Stored, Turn, Want};
use crate::update::Update;

/// A write under way.
#[derive(Debug)]
pub struct Put {
    request: PutRequest,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    ReadingHead { needs: Needs, context: Option<Context> },
    ReadingValues { needs: Needs, update: Box<Update> },
    Writing { needs: Needs, returned: Option<Found> },
    Done,
}

impl Put {
    /// The coordinator of `request`, which has a key by now ([`PutRequest::invent_key`]).
    pub fn new(request: PutRequest) -> Put {
        Put { request, state: State::New }
    }

    /// The request.
    pub fn request(&self) -> &PutRequest {
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
            (State::Writing { needs, returned }, Event::Written(written)) => {
                written.and_then(|()| self.on_written(needs, returned))
            }
            (state, event) => panic!("a write in state {state:?} was told {event:?}"),
        };
        next.unwrap_or_else(|error| Action::Reply(Err(error)))
    }

    fn on_start(&mut self, turn: &mut Turn<'_>) -> Result<Action, Error> {
        let request = &self.request;
        let key = request.key.as_ref().expect("the node invents a missing key before it picks a shard");
        turn.limits.check_names(&request.bucket, key)?;
        turn.limits.check_sibling(&request.metadata, &request.value)?;
        object::index::validate(&request.metadata.indexes)?;
        let quorums = (request.w, request.pw, request.dw);
        let needs = Needs::write(turn.props, request.n_val, quorums, request.node_confirms)?;
        needs.met_by(&[Reply::of_all(needs.n)])?;
        let context = decode_context(request.context.as_ref())?;
        if self.is_blind(turn) {
            return self.plan(needs, context, None, None, turn);
        }
        self.state = State::ReadingHead { needs, context };
        Ok(Action::Read { want: Want::Head })
    }

    /// Whether the write does not depend on what is stored.
    fn is_blind(&self, turn: &Turn<'_>) -> bool {
        let request = &self.request;
        turn.props.last_write_wins && !request.asis && !request.if_none_match && !request.if_not_modified
    }

    fn on_head(
        &mut self,
        needs: Needs,
        context: Option<Context>,
        stored: Option<Stored>,
        turn: &mut Turn<'_>,
    ) -> Result<Action, Error> {
        self.check_condition(context.as_ref(), stored.as_ref(), turn)?;
        let existing = stored.as_ref().map(|stored| Head::decode(&stored.head).map_err(damaged));
        self.plan(needs, context, existing.transpose()?, stored, turn)
    }

    fn check_condition(
        &self,
        context: Option<&Context>,
        stored: Option<&Stored>,
        turn: &Turn<'_>,
    ) -> Result<(), Error> {
        let request = &self.request;
        if !request.if_none_match && !request.if_not_modified {
            return Ok(());
        }
        let head = stored.map(|stored| view(&stored.head)).transpose()?;
        let present = head.filter(|head| !is_absent(head, turn.props));
        match present {
            Some(_) if request.if_none_match => Err(Error::MatchFound),
            None if request.if_not_modified => Err(Error::NotFoundCondition),
            Some(head) if !context.is_some_and(|context| head.is_unmodified(context)) => Err(Error::Modified),
            _ => Ok(()),
        }
    }

    fn plan(
        &mut self,
        needs: Needs,
        context: Option<Context>,
        existing: Option<Head>,
        stored: Option<Stored>,
        turn: &mut Turn<'_>,
    ) -> Result<Action, Error> {
        let mut metadata = std::mem::take(&mut self.request.metadata);
        metadata.last_modified = turn.wall.0;
        metadata.deleted = false;
        let put = object::Put { context, metadata, value: std::mem::take(&mut self.request.value) };
        let update = if self.request.asis {
            Update::plan_as_is(existing, put, turn)?
        } else {
            Update::plan(existing, put, turn)?
        };
        if update.needs_values() && stored.as_ref().is_none_or(|stored| stored.value.is_none()) {
            self.state = State::ReadingValues { needs, update: Box::new(update) };
            return Ok(Action::Read { want: Want::Value });
        }
        self.write(needs, update, stored, turn)
    }

    fn write(
        &mut self,
        needs: Needs,
        update: Update,
        stored: Option<Stored>,
        turn: &mut Turn<'_>,
    ) -> Result<Action, Error> {
        let version = update.finish(stored, turn)?;
        let returned = match self.request.returned {
            Return::Nothing => None,
            how => Some(Found {
                head: Bytes::copy_from_slice(&version.head),
                value: (how == Return::Body).then(|| version.values.clone()),
                newest_only: turn.props.shows_newest_only(),
            }),
        };
        self.state = State::Writing { needs, returned };
        Ok(Action::Write { head: version.head, value: version.values })
    }

    fn on_written(&mut self, needs: Needs, returned: Option<Found>) -> Result<Action, Error> {
        needs.met_by(&[Reply::of_all(needs.n)])?;
        let key = self.request.key.take().filter(|_| self.request.key_invented);
        Ok(Action::Reply(Ok(Response::Put { object: returned, key })))
    }
}
