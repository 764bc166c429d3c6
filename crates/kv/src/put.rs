//! The coordinator of a write, on a node that is to hold the key.
//!
//! 1. Check names, sizes and index terms, resolve the quorums, and see that those who can be reached can meet them.
//! 2. If the client set a condition, hold it against what a quorum of primaries has.
//! 3. Read the head here, unless `last_write_wins` needs none: nothing has index entries that would stay, and the
//!    clock of versions is not doubtful, or no other node has the key. Plan the new version, with a time later than
//!    those of all versions in hand; read the values of siblings that stay.
//! 4. Write it here and send it to the other replicas, at the same time.
//! 5. When enough confirm, answer; wait for the rest, so that those that fail get a hint.
//!
//! Where keys are written once, nothing is read, unless the clock of versions is doubtful: then the head here is read
//! for its time. After 2. the version of `Update::once` goes to all replicas, this node joins it with what it has as
//! they do, and any node may coordinate.
//!
//! Where the bucket has a time to live the new sibling is told when it ends, reckoned from its own time: so all
//! replicas know it alike, and a later version ends later.
//!
//! Invariants: nothing is written after a refusal; one request takes at most one dot and writes at most once.

use base::Wall;
use bytes::Bytes;
use object::{Context, Head, Metadata};

use crate::condition::Validators;
use crate::error::Error;
use crate::get::{decode_context, reply_of, shown};
use crate::needs::Needs;
use crate::quorum::Quorum;
use crate::read_quorum::{NotFoundRules, ReadQuorum, Verdict};
use crate::replies::check_reachable;
use crate::request::{PutRequest, Return};
use crate::response::Response;
use crate::step::{Action, Event, Next, StagedWrite, StepContext};
use crate::stored::{Stored, Want};
use crate::stored_head::{damaged, is_absent, view};
use crate::update::{Update, time_of_version};
use crate::write_quorum::{WritePlan, WriteQuorum};

/// A write under way. Small, since it is moved at every step: what is large is in boxes.
#[derive(Debug)]
pub struct Put {
    request: Box<PutRequest>,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    Checking(Box<(WritePlan, ReadQuorum)>),
    /// The head here is read for its time.
    ReadingTime(WritePlan),
    ReadingHead(WritePlan),
    ReadingValues(WritePlan, Box<Update>),
    Writing(Box<WriteQuorum>),
    Done,
}

impl StagedWrite for Put {
    fn progress(&self) -> (u8, bool) {
        match &self.state {
            State::New => (0, false),
            State::Checking(_) => (1, false),
            State::ReadingTime(_) | State::ReadingHead(_) => (2, false),
            State::ReadingValues(..) => (3, false),
            State::Writing(writes) => (4, writes.has_answered()),
            State::Done => (5, true),
        }
    }

    fn advance(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        // What most events are about is not moved for it.
        if let State::Writing(writes) = &mut self.state {
            return writes.step(event, ctx);
        }
        let state = std::mem::replace(&mut self.state, State::Done);
        let next = match (state, event) {
            (State::New, Event::Start) => self.on_start(ctx),
            (_, Event::Expired) => Err(Error::Timeout),
            (state, Event::Late) => Ok(state),
            (State::Checking(checking), event) => self.on_checking(checking, event, ctx),
            // Whoever was asked before the write began has nothing to add.
            (state, Event::Answer { .. }) => Ok(state),
            // The join replaces a copy that is damaged.
            (State::ReadingTime(begun), Event::Read(stored)) => {
                self.write_once(begun, stored.ok().flatten().as_ref(), ctx)
            }
            (State::ReadingHead(begun), Event::Read(stored)) => {
                stored.and_then(|stored| self.on_head(begun, stored, ctx))
            }
            (State::ReadingValues(begun, update), Event::Read(stored)) => {
                stored.and_then(|stored| self.write(begun, *update, stored, ctx))
            }
            (state, event) => panic!("a write in state {state:?} was told {event:?}"),
        };
        match next {
            Ok(state) => {
                self.state = state;
                Next::Wait
            }
            Err(error) => {
                ctx.out.push(Action::Reply(Err(error)));
                Next::Over
            }
        }
    }

    fn invariants(&self) {
        Put::invariants(self);
    }
}

impl Put {
    /// The coordinator of `request`, which has a key by now ([`PutRequest::invent_key`]).
    pub fn new(request: Box<PutRequest>) -> Put {
        Put { request, state: State::New }
    }

    /// The request.
    pub fn request(&self) -> &PutRequest {
        &self.request
    }

    /// Takes an event, and says whether it waits for more.
    ///
    /// # Panics
    /// If the store answers a question that was not asked.
    pub fn step(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        self.step_checked(event, ctx)
    }

    /// Asserts relations that hold after each step.
    pub fn invariants(&self) {
        match &self.state {
            State::Checking(checking) => {
                assert!(self.is_conditional(), "a condition is checked where the client has set one");
                checking.1.invariants();
            }
            State::Writing(writes) => writes.invariants(),
            State::New
            | State::ReadingTime(_)
            | State::ReadingHead(_)
            | State::ReadingValues(..)
            | State::Done => {}
        }
    }

    fn on_start(&mut self, ctx: &mut StepContext<'_>) -> Result<State, Error> {
        let request = &self.request;
        let key = request.key.as_ref().expect("the node invents a missing key before it picks a shard");
        ctx.props.check_eventual()?;
        ctx.limits.check_names(&request.bucket, key)?;
        ctx.limits.check_sibling(&request.metadata, &request.value)?;
        object::index::validate(&request.metadata.indexes)?;
        ctx.limits.check_indexes(&request.bucket, key, &request.metadata)?;
        let quorums = (request.w, request.pw, request.dw);
        let needs = Needs::write(ctx.props, request.n_val, quorums, request.node_confirms)?;
        let placement = (ctx.place)(needs.n, request.sloppy_quorum.unwrap_or(true));
        check_reachable(&needs, &placement)?;
        let context = decode_context(request.context.as_ref())?;
        let begun = WritePlan { needs, placement, context, newest_time: 0 };
        if self.is_conditional() && (ctx.props.write_once || !begun.placement.others.is_empty()) {
            return self.check(begun, ctx);
        }
        self.begin(begun, ctx)
    }

    fn is_conditional(&self) -> bool {
        let request = &self.request;
        request.if_none_match || request.if_not_modified || request.conditions.is_some()
    }

    /// Asks a majority of the primaries what there is.
    fn check(&mut self, begun: WritePlan, ctx: &mut StepContext<'_>) -> Result<State, Error> {
        let quorums = (Quorum::Quorum, Quorum::Quorum);
        let needs = Needs::read(ctx.props, Some(begun.needs.n), quorums, Quorum::Default)?;
        check_reachable(&needs, &begun.placement)?;
        let rules = NotFoundRules { ok: true, basic_quorum: false };
        let gather = ReadQuorum::start(needs, begun.placement.clone(), Want::Head, rules, ctx);
        Ok(State::Checking(Box::new((begun, gather))))
    }

    fn on_checking(
        &mut self,
        mut checking: Box<(WritePlan, ReadQuorum)>,
        event: Event,
        ctx: &mut StepContext<'_>,
    ) -> Result<State, Error> {
        let (begun, gather) = &mut *checking;
        gather.remember(ctx);
        if let Some((from, result)) = reply_of(event) {
            gather.on_reply(from, result);
        }
        match gather.verdict() {
            // The store answers one question at a time, and the next is about to come.
            Verdict::Enough if !gather.awaits_here() => {
                let latest = gather.latest()?;
                begun.newest_time = gather.see_time(latest.as_ref(), ctx)?;
                self.check_condition(begun.context.as_ref(), latest.as_ref(), ctx)?;
                self.begin(checking.0, ctx)
            }
            Verdict::Enough | Verdict::Wait => Ok(State::Checking(checking)),
            Verdict::NotFound => unreachable!("absence is a good reply here"),
            Verdict::Failed(error) => Err(error),
        }
    }

    fn begin(&mut self, begun: WritePlan, ctx: &mut StepContext<'_>) -> Result<State, Error> {
        if ctx.props.write_once {
            ctx.props.check_precommit()?;
            let needs_time = begun.placement.is_only_here() || ctx.clock.is_doubtful(ctx.wall);
            if begun.placement.here.is_none() || !needs_time {
                return self.write_once(begun, None, ctx);
            }
            ctx.out.push(Action::Read { want: Want::Head, hold: false });
            return Ok(State::ReadingTime(begun));
        }
        if self.is_blind(&begun, ctx) {
            return self.plan(begun, None, None, ctx);
        }
        ctx.out.push(Action::Read { want: Want::Head, hold: true });
        Ok(State::ReadingHead(begun))
    }

    /// Whether the write does not depend on what is stored here: neither what it replaces, nor its time.
    fn is_blind(&self, begun: &WritePlan, ctx: &StepContext<'_>) -> bool {
        let is_blind = ctx.props.last_write_wins && !self.request.asis && !self.is_conditional();
        // Elsewhere its time decides, and what is here may be later than this node's clock.
        let needs_time = !begun.placement.is_only_here() && ctx.clock.is_doubtful(ctx.wall);
        is_blind && !ctx.may_replace_entries && (begun.placement.here.is_none() || !needs_time)
    }

    fn on_head(
        &mut self,
        begun: WritePlan,
        stored: Option<Stored>,
        ctx: &mut StepContext<'_>,
    ) -> Result<State, Error> {
        self.check_condition(begun.context.as_ref(), stored.as_ref().map(|stored| &stored.head), ctx)?;
        let existing = stored.as_ref().map(|stored| Head::decode(&stored.head).map_err(damaged));
        self.plan(begun, existing.transpose()?, stored, ctx)
    }

    /// Writes a key that is written once, later than what is stored here.
    fn write_once(
        &mut self,
        begun: WritePlan,
        stored: Option<&Stored>,
        ctx: &mut StepContext<'_>,
    ) -> Result<State, Error> {
        let here = stored.and_then(|stored| view(&stored.head).ok()).map_or(0, |head| head.newest_time());
        let (metadata, value) = self.take_sibling(begun.newest_time.max(here), ctx)?;
        self.write(begun, Update::once(metadata, value)?, None, ctx)
    }

    fn check_condition(
        &self,
        context: Option<&Context>,
        head: Option<&Bytes>,
        ctx: &StepContext<'_>,
    ) -> Result<(), Error> {
        let request = &self.request;
        if !self.is_conditional() {
            return Ok(());
        }
        let head = head.map(|head| view(head)).transpose()?;
        let present = head.filter(|head| !is_absent(head, ctx.props, ctx.wall.millis()));
        if let Some(conditions) = &request.conditions {
            let newest_only = ctx.props.shows_newest_only();
            let object = present.as_ref().map(|head| Validators::of(head, newest_only));
            conditions.check(object).map_err(|_| Error::Modified)?;
        }
        match present {
            Some(_) if request.if_none_match => Err(Error::MatchFound),
            None if request.if_not_modified => Err(Error::NotFoundCondition),
            Some(head)
                if request.if_not_modified && !context.is_some_and(|context| head.is_unmodified(context)) =>
            {
                Err(Error::Modified)
            }
            _ => Ok(()),
        }
    }

    fn plan(
        &mut self,
        mut begun: WritePlan,
        existing: Option<Head>,
        stored: Option<Stored>,
        ctx: &mut StepContext<'_>,
    ) -> Result<State, Error> {
        ctx.props.check_precommit()?;
        begun.newest_time = begun.newest_time.max(existing.as_ref().map_or(0, Head::newest_time));
        let (metadata, value) = self.take_sibling(begun.newest_time, ctx)?;
        let put = object::Put { context: begun.context.take(), metadata, value };
        let is_primary = begun.placement.is_primary_here();
        let update = if self.request.asis {
            Update::plan_as_is(existing, put, is_primary, ctx)?
        } else {
            Update::plan(existing, put, is_primary, ctx)?
        };
        if update.needs_values() && stored.as_ref().is_none_or(|stored| stored.value.is_none()) {
            ctx.out.push(Action::Read { want: Want::Value, hold: true });
            return Ok(State::ReadingValues(begun, Box::new(update)));
        }
        self.write(begun, update, stored, ctx)
    }

    /// The new sibling, later than the versions of the key in hand.
    fn take_sibling(&mut self, in_hand: u64, ctx: &mut StepContext<'_>) -> Result<(Metadata, Bytes), Error> {
        let last_modified = time_of_version(in_hand, ctx)?;
        let PutRequest { metadata, value, .. } = &mut *self.request;
        metadata.last_modified = last_modified;
        metadata.deleted = false;
        metadata.expires_ms = ctx.props.expires_ms(Wall(last_modified));
        Ok((std::mem::take(metadata), std::mem::take(value)))
    }

    fn write(
        &mut self,
        begun: WritePlan,
        update: Update,
        stored: Option<Stored>,
        ctx: &mut StepContext<'_>,
    ) -> Result<State, Error> {
        let version = update.finish_within(stored, ctx.limits)?;
        let returned = match self.request.returned {
            Return::Nothing => None,
            how => {
                let value = (how == Return::Body).then(|| version.values.clone());
                Some(shown(version.head.clone(), value, ctx)?)
            }
        };
        let key = self.request.key.take().filter(|_| self.request.key_invented);
        let response = Response::Put { object: returned, key };
        let WritePlan { needs, placement, .. } = begun;
        let writes = WriteQuorum::start(needs, placement, version.into_parts(), response, ctx);
        Ok(State::Writing(Box::new(writes)))
    }
}
