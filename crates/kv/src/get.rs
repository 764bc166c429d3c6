//! The coordinator of a read.
//!
//! 1. Check the names, resolve the quorums, and see that those who can be reached can meet them.
//! 2. Ask the replicas: for heads where that may be all (`head`, `if_modified`), otherwise by the read strategy of the
//!    step context.
//! 3. When enough have replied, join their heads. Absent, unchanged and head-only are answered from that; for
//!    anything else the value is fetched, if it has not come already.
//! 4. Answer, without siblings that have ended by this node's clock.
//! 5. When the rest have replied too, or take long, send the joined version to those that lack it. If it is one
//!    tombstone that all have, propose to reap it. What ends soon is not sent: others may be done with it.
//!
//! Invariants: one answer; nothing is repaired before it; a replica that has something which the others lack is
//! never overwritten, since what is sent is joined there once more.

use base::Wall;
use bytes::Bytes;
use object::{Context, HeadView, Object};
use ring::NodeId;

use crate::error::Error;
use crate::needs::Needs;
use crate::read_quorum::{NotFoundRules, ReadQuorum, Verdict};
use crate::replica::Answer;
use crate::replies::check_reachable;
use crate::request::GetRequest;
use crate::response::{Found, Response};
use crate::step::{Action, Event, Next, StepContext, answers};
use crate::stored::{Stored, Want};
use crate::stored_head::{damaged, decode, encode, is_absent, view};

/// A read under way.
#[derive(Debug)]
pub struct Get {
    question: Question,
    phase: Phase,
    /// Whether the client was told that there is nothing.
    absent: bool,
    /// Once it has begun.
    gather: Option<ReadQuorum>,
}

/// What the client wants to know.
#[derive(Debug)]
struct Question {
    request: GetRequest,
    if_modified: Option<Context>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    Asking,
    /// The client has its answer.
    Answered,
}

impl Get {
    /// The coordinator of `request`.
    pub fn new(request: GetRequest) -> Get {
        Get {
            question: Question { request, if_modified: None },
            phase: Phase::New,
            absent: false,
            gather: None,
        }
    }

    /// The request.
    pub fn request(&self) -> &GetRequest {
        &self.question.request
    }

    /// Takes an event, and says whether it waits for more.
    ///
    /// # Panics
    /// If it is told anything before its start.
    pub fn step(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        let (before, from) = (self.phase, ctx.out.len());
        let next = self.advance(event, ctx);

        if cfg!(debug_assertions) {
            self.invariants();
            self.step_invariants(before, next, &ctx.out[from..]);
        }
        next
    }

    /// Asserts relations that hold after each step.
    pub fn invariants(&self) {
        assert_eq!(self.phase == Phase::New, self.gather.is_none(), "a read that has begun asks replicas");
        assert!(!self.absent || self.phase == Phase::Answered, "an answer says that nothing is there");
        self.gather.iter().for_each(ReadQuorum::invariants);
    }

    /// Asserts the relations of one step. `done`: its actions.
    fn step_invariants(&self, before: Phase, next: Next, done: &[Action]) {
        let had_answered = usize::from(before == Phase::Answered);
        let has_answered = usize::from(self.phase == Phase::Answered || next == Next::Over);
        debug_assert_eq!(had_answered + answers(done), has_answered, "a read answers once, before its end");
        let writes = |action: &Action| match action {
            Action::Ask { ask, .. } => ask.writes(),
            Action::MergeHere { .. } | Action::Propose { .. } => true,
            _ => false,
        };
        debug_assert!(has_answered == 1 || !done.iter().any(writes), "a repair follows the answer");
    }

    fn advance(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        let Some(gather) = &mut self.gather else {
            assert!(matches!(event, Event::Start), "a read that has not begun was told {event:?}");
            return match self.question.start(ctx) {
                Ok(gather) => {
                    self.gather = Some(gather);
                    self.phase = Phase::Asking;
                    Next::Wait
                }
                Err(error) => {
                    ctx.out.push(Action::Reply(Err(error)));
                    Next::Over
                }
            };
        };
        gather.remember(ctx);
        match (self.phase, event) {
            (Phase::Asking, Event::Late) => return Next::Wait,
            (Phase::Asking, Event::Expired) => {
                gather.give_up();
                ctx.out.push(Action::Reply(Err(Error::Timeout)));
                self.phase = Phase::Answered;
            }
            (_, Event::Late | Event::Expired) => gather.give_up(),
            (phase, event) => {
                if let Some((from, result)) = reply_of(event) {
                    gather.on_reply(from, result);
                }
                if phase == Phase::Asking {
                    let Some(result) = self.question.answer(gather, ctx) else { return Next::Wait };
                    self.absent = matches!(result, Ok(Response::NotFound { .. }));
                    ctx.out.push(Action::Reply(result));
                    self.phase = Phase::Answered;
                }
            }
        }
        if self.absent && gather.complete() {
            propose(gather, ctx);
        }
        settle(gather, ctx)
    }
}

impl Question {
    fn start(&mut self, ctx: &mut StepContext<'_>) -> Result<ReadQuorum, Error> {
        let request = &self.request;
        ctx.props.check_eventual()?;
        ctx.limits.check_names(&request.bucket, &request.key)?;
        let needs = Needs::read(ctx.props, request.n_val, (request.r, request.pr), request.node_confirms)?;
        let placement = (ctx.place)(needs.n, request.sloppy_quorum.unwrap_or(true));
        check_reachable(&needs, &placement)?;
        self.if_modified = decode_context(request.if_modified.as_ref())?;
        let rules = NotFoundRules {
            ok: request.notfound_ok.unwrap_or(ctx.props.notfound_ok),
            basic_quorum: request.basic_quorum.unwrap_or(ctx.props.basic_quorum),
        };
        let want = if request.head || self.if_modified.is_some() { Want::Head } else { Want::Value };
        Ok(ReadQuorum::start(needs, placement, want, rules, ctx))
    }

    /// What the client is told, if that is known.
    fn answer(&self, gather: &mut ReadQuorum, ctx: &mut StepContext<'_>) -> Option<Result<Response, Error>> {
        match gather.verdict() {
            Verdict::Wait => None,
            Verdict::NotFound => Some(Ok(Response::NotFound { deleted_context: None })),
            Verdict::Failed(error) => Some(Err(error)),
            Verdict::Enough => match self.judge(gather, ctx) {
                Ok(response) => response.map(Ok),
                // Another replica may yet bring what this one has lost.
                Err(_) if !gather.complete() => None,
                Err(error) => Some(Err(error)),
            },
        }
    }

    /// The answer that the replies make; `None` while a value is being fetched.
    fn judge(&self, gather: &mut ReadQuorum, ctx: &mut StepContext<'_>) -> Result<Option<Response>, Error> {
        let Some(head) = gather.latest()? else {
            return Ok(Some(Response::NotFound { deleted_context: None }));
        };
        let parsed = view(&head)?;
        ctx.clock.see(parsed.newest_time(), ctx.wall, None);
        if is_absent(&parsed, ctx.props, ctx.wall.millis()) {
            return Ok(Some(self.on_deleted(&parsed)));
        }
        if self.if_modified.as_ref().is_some_and(|context| parsed.is_unmodified(context)) {
            return Ok(Some(Response::Unchanged));
        }
        let value = match self.request.head {
            true => None,
            false => match gather.value(&head, parsed.values_len(), ctx)? {
                None => return Ok(None),
                value => value,
            },
        };
        Ok(Some(Response::Found(shown(head, value, ctx)?)))
    }

    fn on_deleted(&self, head: &HeadView<'_>) -> Response {
        let deleted_context = self.request.deleted_context.then(|| {
            let mut bytes = Vec::with_capacity(head.context().client_len());
            head.context().write_client_bytes(&mut bytes);
            Bytes::from(bytes)
        });
        Response::NotFound { deleted_context }
    }
}

/// Proposes to reap the tombstone that all primaries have, if that is what there is.
fn propose(gather: &ReadQuorum, ctx: &mut StepContext<'_>) {
    let Ok(Some(head)) = gather.latest() else { return };
    let is_tombstone = view(&head).is_ok_and(|head| head.is_tombstone());
    if is_tombstone && gather.is_only(&head, ctx.props.n_val) {
        ctx.out.push(Action::Propose { tombstone: head });
    }
}

/// Repairs what the read has found to be behind, once nobody is waited for.
fn settle(gather: &mut ReadQuorum, ctx: &mut StepContext<'_>) -> Next {
    if gather.is_alone() {
        return Next::Over;
    }
    if !gather.complete() {
        return Next::Wait;
    }
    // What cannot be read cannot be sent to others; the client has been told.
    let Ok(Some(head)) = gather.latest() else { return Next::Over };
    let ends_soon = HeadView::expiry_of(&head).is_some_and(|ends_ms| ends_soon(ends_ms, ctx.wall));
    if ends_soon || !gather.is_stale(&head) {
        return Next::Over;
    }
    let value = view(&head).and_then(|parsed| {
        ctx.clock.see(parsed.newest_time(), ctx.wall, None);
        gather.value(&head, parsed.values_len(), ctx)
    });
    match value {
        Ok(Some(value)) => {
            gather.repair(&head, &value, ctx);
            Next::Over
        }
        Ok(None) => Next::Wait,
        Err(_) => Next::Over,
    }
}

/// How far clocks of nodes may be apart, in milliseconds, before what has ended for one of them is sent to it again by
/// others. It costs no more than that.
const CLOCKS_APART_MS: u64 = 60_000;

/// Whether what ends then, in milliseconds since 1970, has ended or may have for others: they need not be sent it.
pub fn ends_soon(ends_ms: u64, now: Wall) -> bool {
    ends_ms <= now.millis().saturating_add(CLOCKS_APART_MS)
}

/// A reply, and whose it is: `None` for this node's.
pub(crate) type ReplyOf<T> = (Option<NodeId>, Result<T, Error>);

/// The reply to a read that an event is.
pub(crate) fn reply_of(event: Event) -> Option<ReplyOf<Option<Stored>>> {
    match event {
        Event::Read(stored) => Some((None, stored)),
        Event::Answer { from, result: Ok(Answer::Read(stored)) } => Some((Some(from), Ok(stored))),
        Event::Answer { from, result: Err(error) } => Some((Some(from), Err(error))),
        // A question of another kind, doubled on its way.
        Event::Answer { result: Ok(Answer::Merged | Answer::Reaping { .. }), .. } => None,
        Event::Start | Event::Written(_) | Event::Late | Event::Expired => None,
    }
}

/// An object that is not absent as readers are shown it, its values if they are at hand: without siblings that have
/// ended.
pub(crate) fn shown(head: Bytes, value: Option<Bytes>, ctx: &StepContext<'_>) -> Result<Found, Error> {
    let (newest_only, now_ms) = (ctx.props.shows_newest_only(), ctx.wall.millis());
    if !HeadView::may_end(&head) || !view(&head)?.has_ended(now_ms) {
        return Ok(Found { head, value, newest_only });
    }
    let is_left = "one that has not ended is left where the object is not absent";
    let whole = decode(&head)?;
    let Some(value) = value else {
        let head = encode(&whole.without_ended(now_ms).expect(is_left));
        return Ok(Found { head, value: None, newest_only });
    };
    let left = Object::new(whole, value).map_err(damaged)?.without_ended(now_ms).expect(is_left);
    let (head, value) = left.into_parts();
    Ok(Found { head: encode(&head), value: Some(value), newest_only })
}

/// A client's context; bytes that no store gave out are the client's error.
pub(crate) fn decode_context(bytes: Option<&Bytes>) -> Result<Option<Context>, Error> {
    // An empty field is no context: some clients send one on a first write.
    let bytes = bytes.filter(|bytes| !bytes.is_empty());
    bytes.map(|bytes| Context::decode(bytes).map_err(|_| Error::BadContext)).transpose()
}
