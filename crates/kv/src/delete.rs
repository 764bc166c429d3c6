//! The coordinator of a delete, on a node that is to hold the key.
//!
//! 1. Check names and quorums, as for a read and a write.
//! 2. Without a context, read what a quorum has, so that all of it is deleted. A key that is absent, deleted or has
//!    ended is left alone: the delete has nothing to do. A node alone reads its own head only.
//! 3. Where the bucket has a pre-commit hook, fail. Write a tombstone, a sibling without a value, over what the client
//!    had seen, or over everything that was read if it does not say. What the client had not seen stays beside the
//!    tombstone.
//! 4. Send it to the other replicas, answer when enough confirm, wait for the rest, as for a write.
//! 5. When all primaries have confirmed, propose to reap it.

use object::Head;

use crate::error::Error;
use crate::get::{decode_context, reply_of};
use crate::needs::Needs;
use crate::quorum::Quorum;
use crate::read_quorum::{NotFoundRules, ReadQuorum, Verdict};
use crate::replies::check_reachable;
use crate::request::DeleteRequest;
use crate::response::Response;
use crate::step::{Action, Event, Next, StagedWrite, StepContext};
use crate::stored::{Stored, Want};
use crate::stored_head::{damaged, view};
use crate::update::{Update, time_of_version};
use crate::write_quorum::{WritePlan, WriteQuorum};

/// A delete under way.
#[derive(Debug)]
pub struct Delete {
    request: DeleteRequest,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    Asking(WritePlan, ReadQuorum),
    ReadingHead(WritePlan),
    ReadingValues(WritePlan, Box<Update>),
    Writing(WriteQuorum),
    Done,
}

impl StagedWrite for Delete {
    fn progress(&self) -> (u8, bool) {
        match &self.state {
            State::New => (0, false),
            State::Asking(..) => (1, false),
            State::ReadingHead(_) => (2, false),
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
            (State::Asking(begun, gather), event) => on_asking(begun, gather, event, ctx),
            // Whoever was asked before the write began has nothing to add.
            (state, Event::Answer { .. }) => Ok(state),
            (State::ReadingHead(begun), Event::Read(stored)) => {
                stored.and_then(|stored| on_head(begun, stored, ctx))
            }
            (State::ReadingValues(begun, update), Event::Read(stored)) => {
                stored.and_then(|stored| write(begun, *update, stored, ctx))
            }
            (state, event) => panic!("a delete in state {state:?} was told {event:?}"),
        };
        match next {
            Ok(State::Done) => Next::Over,
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
        Delete::invariants(self);
    }
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
            State::Asking(begun, gather) => {
                assert!(begun.context.is_none(), "a context of the client saves the question");
                gather.invariants();
            }
            State::Writing(writes) => writes.invariants(),
            State::New | State::ReadingHead(_) | State::ReadingValues(..) | State::Done => {}
        }
    }

    fn on_start(&mut self, ctx: &mut StepContext<'_>) -> Result<State, Error> {
        let request = &self.request;
        ctx.props.check_eventual()?;
        ctx.limits.check_names(&request.bucket, &request.key)?;
        let rw = request.rw.or(ctx.props.rw);
        let reads = (request.r.or(rw), request.pr);
        let read = Needs::read(ctx.props, request.n_val, reads, Quorum::Default)?;
        let writes = (request.w.or(rw), request.pw, request.dw.or(rw));
        let needs = Needs::write(ctx.props, request.n_val, writes, Quorum::Default)?;
        let placement = (ctx.place)(needs.n, request.sloppy_quorum.unwrap_or(true));
        check_reachable(&read, &placement)?;
        check_reachable(&needs, &placement)?;
        let context = decode_context(request.context.as_ref())?;
        let begun = WritePlan { needs, placement, context, newest_time: 0 };
        if begun.context.is_some() || begun.placement.others.is_empty() {
            return Ok(read_head(begun, ctx));
        }
        let rules = NotFoundRules { ok: true, basic_quorum: false };
        let gather = ReadQuorum::start(read, begun.placement.clone(), Want::Head, rules, ctx);
        Ok(State::Asking(begun, gather))
    }
}

fn read_head(begun: WritePlan, ctx: &mut StepContext<'_>) -> State {
    ctx.out.push(Action::Read { want: Want::Head, hold: true });
    State::ReadingHead(begun)
}

fn on_asking(
    mut begun: WritePlan,
    mut gather: ReadQuorum,
    event: Event,
    ctx: &mut StepContext<'_>,
) -> Result<State, Error> {
    gather.remember(ctx);
    if let Some((from, result)) = reply_of(event) {
        gather.on_reply(from, result);
    }
    match gather.verdict() {
        // The store answers one question at a time, and the next is about to come.
        Verdict::Enough if !gather.awaits_here() => {}
        Verdict::Enough | Verdict::Wait => return Ok(State::Asking(begun, gather)),
        Verdict::NotFound => unreachable!("absence is a good reply here"),
        Verdict::Failed(error) => return Err(error),
    }
    let Some(head) = gather.latest()? else { return Ok(deleted(ctx)) };
    begun.newest_time = gather.see_time(Some(&head), ctx)?;
    let head = view(&head)?;
    if head.is_gone(ctx.wall.millis()) {
        return Ok(deleted(ctx));
    }
    begun.context = Some(head.context().to_context());
    Ok(read_head(begun, ctx))
}

/// There is nothing to delete.
fn deleted(ctx: &mut StepContext<'_>) -> State {
    ctx.out.push(Action::Reply(Ok(Response::Deleted)));
    State::Done
}

fn on_head(mut begun: WritePlan, stored: Option<Stored>, ctx: &mut StepContext<'_>) -> Result<State, Error> {
    // Where every primary is here, or the client has not said what it had seen, there is nothing to delete; but what it
    // had seen may be with a primary that cannot be reached.
    let all_here = begun.placement.here.is_some_and(|roles| u32::from(roles.primaries) == begun.needs.n);
    let existing = stored.as_ref().map(|stored| Head::decode(&stored.head).map_err(damaged)).transpose()?;
    if (all_here || begun.context.is_none())
        && existing.as_ref().is_none_or(|head| head.is_gone(ctx.wall.millis()))
    {
        return Ok(deleted(ctx));
    }
    ctx.props.check_precommit()?;
    let in_hand = begun.newest_time.max(existing.as_ref().map_or(0, Head::newest_time));
    let put = object::Put::delete(existing.as_ref(), begun.context.take(), time_of_version(in_hand, ctx)?);
    let update = Update::plan(existing, put, begun.placement.is_primary_here(), ctx)?;
    if update.needs_values() && stored.as_ref().is_none_or(|stored| stored.value.is_none()) {
        ctx.out.push(Action::Read { want: Want::Value, hold: true });
        return Ok(State::ReadingValues(begun, Box::new(update)));
    }
    write(begun, update, stored, ctx)
}

fn write(
    begun: WritePlan,
    update: Update,
    stored: Option<Stored>,
    ctx: &mut StepContext<'_>,
) -> Result<State, Error> {
    let version = update.finish_within(stored, ctx.limits)?;
    let WritePlan { needs, placement, .. } = begun;
    let tombstone = view(&version.head)?.is_tombstone().then(|| version.head.clone());
    let mut writes = WriteQuorum::start(needs, placement, version.into_parts(), Response::Deleted, ctx);
    writes.tombstone = tombstone;
    Ok(State::Writing(writes))
}
