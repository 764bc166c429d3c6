//! The writing half of a coordinator: a version goes to every replica, and enough of them confirm it.
//!
//! 1. [`Replicate::start`] writes it here and sends it to the others, all at once.
//! 2. [`Replicate::step`] counts the confirmations, and answers the client when they are enough.
//! 3. A replica that fails is stood in for by the next node that can be reached, which keeps a hint for it; where
//!    there is none, the hint is kept here.
//! 4. Those that have not answered when the coordinator stops waiting get a hint too: what it has sent them may
//!    or may not arrive, and a hint that is brought home twice does no harm.
//!
//! What is written here either replaces what the coordinator has read, or, where keys are written once, is joined with it
//! ([`Merge`]) as on any other replica; then this node need not be one.
//!
//! Invariant: once a version has been written here, every replica that has not confirmed it has a hint somewhere,
//! or this node has died with it.

use bytes::Bytes;
use object::Context;
use ring::NodeId;

use crate::error::Error;
use crate::get::ReplyOf;
use crate::merge::Merge;
use crate::placement::{Placement, Roles};
use crate::quorum::Needs;
use crate::replica::{Answer, Ask, Reason};
use crate::replies::{Replica, Replies, State};
use crate::response::Response;
use crate::turn::{Action, Event, Next, Turn};

/// What is known once a write or a delete may begin.
#[derive(Debug)]
pub(crate) struct Begun {
    pub needs: Needs,
    pub placement: Placement,
    /// What the client had seen, if it says.
    pub context: Option<Context>,
}

/// A write under way.
#[derive(Debug)]
pub(crate) struct Replicate {
    needs: Needs,
    replies: Replies<()>,
    spares: Vec<NodeId>,
    head: Bytes,
    value: Bytes,
    /// The join here, where keys are written once.
    join: Option<Merge>,
    /// What the client is told when it is done; `None` once it has been told something.
    response: Option<Response>,
    /// If the version is a tombstone, it: to be reaped once all primaries have it.
    pub tombstone: Option<Bytes>,
}

impl Replicate {
    /// Sends the version to everybody.
    pub fn start(
        needs: Needs,
        mut placement: Placement,
        (head, value): (Bytes, Bytes),
        response: Response,
        turn: &mut Turn<'_>,
    ) -> Replicate {
        let mut replies = Replies::new(&mut placement);
        let response = Some(response);
        if placement.spares.is_empty() && replies.is_here_alone() && !turn.props.write_once {
            // Nobody is ever sent it.
            turn.out.push(Action::Write { head, value, hints: replies.hints_here() });
            let (head, value) = (Bytes::new(), Bytes::new());
            return Replicate {
                needs,
                replies,
                spares: Vec::new(),
                head,
                value,
                join: None,
                response,
                tombstone: None,
            };
        }
        let mut join = None;
        for replica in replies.iter_mut() {
            let hints = replica.roles.hints.clone();
            let (head, value) = (head.clone(), value.clone());
            match replica.node {
                Some(to) => {
                    let ask = Ask::Merge { head, value, hints, reason: Reason::Write };
                    turn.out.push(Action::Ask { to, ask });
                }
                None if turn.props.write_once => join = Some(Merge::new(head, value, hints, Reason::Write)),
                None => turn.out.push(Action::Write { head, value, hints }),
            }
        }
        if let Some(join) = &mut join {
            let over = join.step(Event::Start, turn);
            debug_assert_eq!(over, Next::Wait, "a join begins by reading");
        }
        Replicate { needs, replies, spares: placement.spares, head, value, join, response, tombstone: None }
    }

    /// Takes what happened, and says whether there is more to wait for.
    pub fn step(&mut self, event: Event, turn: &mut Turn<'_>) -> Next {
        let expired = matches!(event, Event::Expired) && !base::planted!(ReplyAfterDeadline);
        let late = matches!(event, Event::Late) || expired;
        let confirmation = match (&mut self.join, event) {
            (Some(join), event @ (Event::Read(_) | Event::Written(_))) => step_join(join, event, turn),
            (_, event) => confirmation_of(event),
        };
        if let Some((from, result)) = confirmation {
            self.on_reply(from, result, turn);
        }
        if late {
            self.prepare(turn);
        }
        if let Some(result) = self.verdict().or(expired.then_some(Err(Error::Timeout)))
            && let Some(response) = self.response.take()
        {
            turn.out.push(Action::Reply(result.map(|()| response)));
        }
        let over = self.response.is_none() && (late || self.replies.complete());
        if over
            && self.is_everywhere(turn.props.n_val)
            && let Some(tombstone) = self.tombstone.take()
        {
            turn.out.push(Action::Propose { tombstone });
        }
        if over { Next::Over } else { Next::Wait }
    }

    /// Whether all n primaries have confirmed, and nobody keeps a hint.
    fn is_everywhere(&self, n: u32) -> bool {
        let has = |replica: &Replica<()>| replica.ok().is_some() && replica.roles.hints.is_empty();
        let primaries = self.replies.iter().map(|replica| replica.roles.primaries).sum::<u32>();
        primaries >= n && self.replies.iter().all(has)
    }

    fn on_reply(&mut self, from: Option<NodeId>, result: Result<(), Error>, turn: &mut Turn<'_>) {
        let Some(replica) = self.replies.of(from).filter(|replica| replica.is_waiting()) else { return };
        match result {
            Ok(()) => replica.state = State::Ok(()),
            Err(error) => {
                replica.state = State::Failed(error);
                let (absent, vnodes) = (absent(replica), replica.roles.vnodes);
                self.stand_in(absent, vnodes, turn);
            }
        }
    }

    fn stand_in(&mut self, absent: Vec<NodeId>, vnodes: u32, turn: &mut Turn<'_>) {
        if absent.is_empty() || base::planted!(HintDropped) {
            return;
        }
        if self.spares.is_empty() {
            return self.keep_hint(absent, turn);
        }
        let spare = self.spares.remove(0);
        let roles = Roles { vnodes, primaries: 0, hints: absent.clone() };
        self.replies.push(Replica::new(Some(spare), roles));
        let (head, value) = (self.head.clone(), self.value.clone());
        let ask = Ask::Merge { head, value, hints: absent, reason: Reason::Write };
        turn.out.push(Action::Ask { to: spare, ask });
    }

    /// Keeps a hint for those that have not answered. They may still do. A join here that waits for the disk goes on
    /// without the coordinator.
    fn prepare(&mut self, turn: &mut Turn<'_>) {
        let waiting = self.replies.iter().filter(|replica| replica.is_waiting());
        let nodes: Vec<NodeId> = waiting.flat_map(absent).collect();
        let joins = self.join.is_some() && self.replies.of(None).is_some_and(|here| here.is_waiting());
        if !nodes.is_empty() && !base::planted!(HintDropped) {
            self.keep_hint(nodes, turn);
        }
        if joins {
            self.join_apart(turn);
        }
    }

    /// Keeps a hint here, and with it what it is about, if this node is no replica.
    fn keep_hint(&mut self, nodes: Vec<NodeId>, turn: &mut Turn<'_>) {
        if self.replies.of(None).is_none() {
            self.join_apart(turn);
        }
        turn.out.push(Action::Hint { nodes, confirm: false });
    }

    fn join_apart(&self, turn: &mut Turn<'_>) {
        let (head, value) = (self.head.clone(), self.value.clone());
        turn.out.push(Action::MergeHere { head, value, heal: false });
    }

    /// Whether the confirmations are enough; `None` while they may yet become it.
    fn verdict(&self) -> Option<Result<(), Error>> {
        match self.replies.meet(&self.needs, |()| true) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

/// The primaries that lack the version if this one does: itself, and those for whom it was to keep a hint. If it
/// is this node whose write failed, it keeps no hint either; that its reads fail too will have it repaired.
fn absent(replica: &Replica<()>) -> Vec<NodeId> {
    let itself = replica.node.filter(|_| replica.roles.primaries > 0);
    itself.into_iter().chain(replica.roles.hints.iter().copied()).filter(|_| replica.node.is_some()).collect()
}

/// Steps the join here, and tells whether it is done.
fn step_join(join: &mut Merge, event: Event, turn: &mut Turn<'_>) -> Option<ReplyOf<()>> {
    match join.step(event, turn) {
        Next::Wait => None,
        Next::Over => match turn.out.pop() {
            Some(Action::Answer(result)) => Some((None, result.map(|_| ()))),
            other => unreachable!("a join ends with its answer, not with {other:?}"),
        },
    }
}

fn confirmation_of(event: Event) -> Option<ReplyOf<()>> {
    match event {
        Event::Written(result) => Some((None, result)),
        Event::Answer { from, result: Ok(Answer::Merged) } => Some((Some(from), Ok(()))),
        Event::Answer { from, result: Err(error) } => Some((Some(from), Err(error))),
        // The answer to what was asked before the write, late or doubled.
        Event::Answer { result: Ok(Answer::Read(_) | Answer::Reaping { .. }), .. } => None,
        Event::Start | Event::Read(_) | Event::Late | Event::Expired => None,
    }
}
