//! The writing half of a coordinator: a version goes to every replica, and enough of them confirm it.
//!
//! 1. [`WriteQuorum::start`] writes it here and sends it to the others, all at once.
//! 2. [`WriteQuorum::step`] counts the confirmations, and answers the client when they are enough.
//! 3. A replica that fails is stood in for by the next node that can be reached, which keeps a hint for it; where
//!    there is none, the hint is kept here.
//! 4. Those that have not answered when the coordinator stops waiting get a hint too: what it has sent them may
//!    or may not arrive, and a hint that is brought home twice does no harm.
//! 5. Where this node does not hold the version, since its own write failed or since it is no replica, a hint here
//!    would bring home what is not here: one that has confirmed keeps it, for this node too if that is a primary. If
//!    none of them says that it does, since all have died meanwhile, this node takes the version and keeps the hints:
//!    it stands in.
//!
//! What is written here either replaces what the coordinator has read, or, where keys are written once, is joined with
//! it ([`Merge`]) as on any other replica; then this node need not be one.
//!
//! Invariant: once a version has been written here, every replica that has not confirmed it has a hint somewhere,
//! or this node has died with it.

use bytes::Bytes;
use object::Context;
use ring::NodeId;

use crate::error::Error;
use crate::get::ReplyOf;
use crate::merge::Merge;
use crate::needs::Needs;
use crate::placement::{Placement, Roles, Spares};
use crate::replica::{Answer, Ask, Reason};
use crate::replies::{Replica, Replies, State};
use crate::response::Response;
use crate::step::{Action, Event, Next, StepContext};

/// What is known once a write or a delete may begin.
#[derive(Debug)]
pub(crate) struct WritePlan {
    pub needs: Needs,
    pub placement: Placement,
    /// What the client had seen, if it says.
    pub context: Option<Context>,
    /// The newest time among the versions of the key that this work has met.
    pub newest_time: u64,
}

/// How often a coordinator that does not hold what it wrote waits on for those that it has asked to keep hints: two
/// seconds, at a shard's patience.
const LATE_MAX: u32 = 4;

/// A write under way.
#[derive(Debug)]
pub(crate) struct WriteQuorum {
    needs: Needs,
    replies: Replies<()>,
    spares: Spares,
    head: Bytes,
    value: Bytes,
    /// The join here, where keys are written once.
    join: Option<Merge>,
    /// Whether a hint here would bring home what was written: this node is a replica, and its write has not failed.
    is_kept_here: bool,
    /// Those who lack it, and for whom nobody keeps a hint yet: one that has it is asked to.
    unhinted: Vec<NodeId>,
    /// Who was asked to keep hints, and for whom.
    hinting: Option<(NodeId, Vec<NodeId>)>,
    /// Who was asked to last.
    keeper: Option<NodeId>,
    /// How often it was told that they take long.
    late: u32,
    /// What the client is told when it is done; `None` once it has been told something.
    response: Option<Response>,
    /// If the version is a tombstone, it: to be reaped once all primaries have it.
    pub tombstone: Option<Bytes>,
}

impl WriteQuorum {
    /// Sends the version to everybody.
    pub fn start(
        needs: Needs,
        placement: Placement,
        (head, value): (Bytes, Bytes),
        response: Response,
        ctx: &mut StepContext<'_>,
    ) -> WriteQuorum {
        let mut replies = Replies::new(&placement);
        let response = Some(response);
        if placement.spares.is_empty() && replies.is_here_alone() && !ctx.props.write_once {
            // Nobody is ever sent it.
            ctx.out.push(Action::Write { head, value, hints: replies.hints_here() });
            return WriteQuorum::of(
                needs,
                replies,
                Spares::default(),
                (Bytes::new(), Bytes::new()),
                response,
            );
        }
        let mut join = None;
        for replica in replies.iter_mut() {
            let hints = replica.hints.clone();
            let (head, value) = (head.clone(), value.clone());
            match replica.node {
                Some(to) => {
                    let ask = Ask::Merge { head, value, hints, reason: Reason::Write };
                    ctx.out.push(Action::Ask { to, ask });
                }
                None if ctx.props.write_once => join = Some(Merge::new(head, value, hints, Reason::Write)),
                None => ctx.out.push(Action::Write { head, value, hints }),
            }
        }
        if let Some(join) = &mut join {
            let over = join.step(Event::Start, ctx);
            debug_assert_eq!(over, Next::Wait, "a join begins by reading");
        }
        WriteQuorum { join, ..WriteQuorum::of(needs, replies, placement.spares, (head, value), response) }
    }

    fn of(
        needs: Needs,
        replies: Replies<()>,
        spares: Spares,
        (head, value): (Bytes, Bytes),
        response: Option<Response>,
    ) -> WriteQuorum {
        let is_kept_here = replies.iter().any(|replica| replica.node.is_none());
        WriteQuorum {
            needs,
            replies,
            spares,
            head,
            value,
            join: None,
            is_kept_here,
            unhinted: Vec::new(),
            hinting: None,
            keeper: None,
            late: 0,
            response,
            tombstone: None,
        }
    }

    /// Asserts relations that hold after each step.
    pub fn invariants(&self) {
        self.needs.invariants();
        self.replies.invariants();
        let here = self.replies.iter().find(|replica| replica.node.is_none());
        let holds = here.is_some_and(|replica| !matches!(replica.state, State::Failed(_)));
        assert_eq!(self.is_kept_here, holds, "this node keeps the version until its write fails");
        let is_elsewhere = self.keeper.is_some() || !self.unhinted.is_empty();
        assert!(!self.is_kept_here || !is_elsewhere, "hints stay here while the version does");
        assert!(self.join.is_none() || here.is_some(), "a join here is a replica's");

        let is_asked = |node| self.replies.iter().any(|replica| replica.node == Some(node));
        assert!(!self.spares.iter().any(is_asked), "a spare was not asked yet");
        if let Some((to, _)) = &self.hinting {
            assert_eq!(self.keeper, Some(*to), "the keeper is the node that was asked last");
            let has_it = |replica: &Replica<()>| replica.node == Some(*to) && replica.ok().is_some();
            assert!(self.replies.iter().any(has_it), "a keeper of hints has confirmed the version");
        }

        let is_alone = self.replies.is_here_alone() && self.spares.is_empty();
        assert!(is_alone || !self.head.is_empty(), "a version that others may be sent is in hand");
        let is_version = |tombstone: &Bytes| is_alone || *tombstone == self.head;
        assert!(self.tombstone.as_ref().is_none_or(is_version), "the tombstone is the version written");
    }

    /// Whether the client was told something.
    pub fn has_answered(&self) -> bool {
        self.response.is_none()
    }

    /// Takes an event, and says whether it waits for more.
    pub fn step(&mut self, event: Event, ctx: &mut StepContext<'_>) -> Next {
        let expired = matches!(event, Event::Expired) && !base::planted!(ReplyAfterDeadline);
        let late = matches!(event, Event::Late) || expired;
        let confirmation = match (&mut self.join, event) {
            (Some(join), event @ (Event::Read(_) | Event::Written(_))) => step_join(join, event, ctx),
            (_, event) => confirmation_of(event),
        };
        if let Some((from, result)) = confirmation {
            self.on_reply(from, result, ctx);
        }
        if late {
            self.late += 1;
            self.prepare(ctx);
        }
        if let Some(result) = self.verdict().or(expired.then_some(Err(Error::Timeout)))
            && let Some(response) = self.response.take()
        {
            ctx.out.push(Action::Reply(result.map(|()| response)));
        }
        let has_waited = late || !self.is_kept_here && self.late > 0;
        let is_given_up = expired || self.late >= LATE_MAX || has_waited && !self.awaits_hints();
        let is_done = self.replies.complete() && !self.awaits_hints();
        let over = self.response.is_none() && (is_given_up || is_done);
        if over
            && self.is_everywhere(ctx.props.n_val)
            && let Some(tombstone) = self.tombstone.take()
        {
            ctx.out.push(Action::Propose { tombstone });
        }
        if over {
            self.stand_in_here(ctx);
            return Next::Over;
        }
        Next::Wait
    }

    /// Takes what some have confirmed, with the hints that nobody keeps.
    fn stand_in_here(&mut self, ctx: &mut StepContext<'_>) {
        let is_confirmed = self.replies.iter().any(|replica| replica.ok().is_some());
        if self.is_kept_here || !is_confirmed {
            return;
        }
        let asked = self.hinting.take().into_iter().flat_map(|(_, nodes)| nodes);
        let mut hints: Vec<NodeId> = self.unhinted.drain(..).chain(asked).collect();
        hints.retain(|node| *node != ctx.here);
        hints.sort_unstable();
        hints.dedup();
        if !hints.is_empty() {
            let (head, value) = (self.head.clone(), self.value.clone());
            ctx.out.push(Action::MergeHere { head, value, heal: false, hints });
        }
    }

    /// Whether all n primaries have confirmed, and nobody keeps a hint.
    fn is_everywhere(&self, n: u32) -> bool {
        let has = |replica: &Replica<()>| replica.ok().is_some() && replica.hints.is_empty();
        let primaries = self.replies.iter().map(|replica| u32::from(replica.roles.primaries)).sum::<u32>();
        primaries >= n && self.replies.iter().all(has)
    }

    fn on_reply(&mut self, from: Option<NodeId>, result: Result<(), Error>, ctx: &mut StepContext<'_>) {
        if let Some((_, nodes)) = self.hinting.take_if(|(to, _)| from == Some(*to))
            && result.is_err()
        {
            self.unhinted.extend(nodes);
            return;
        }
        let Some(replica) = self.replies.of(from).filter(|replica| replica.is_waiting()) else { return };
        match result {
            Ok(()) => {
                replica.state = State::Ok(());
                self.have_hinted(ctx);
            }
            Err(error) => {
                replica.state = State::Failed(error);
                let (absent, vnodes) = (absent(replica, ctx.here), replica.roles.vnodes);
                self.is_kept_here &= from.is_some();
                self.stand_in(absent, vnodes, ctx);
            }
        }
    }

    /// Asks one that has it to keep the hints that cannot be kept here. When this work is told that others take long,
    /// and that one has not confirmed, the next is asked: it may be just starting.
    fn have_hinted(&mut self, ctx: &mut StepContext<'_>) {
        if self.unhinted.is_empty() || self.hinting.is_some() {
            return;
        }
        let after = self.replies.iter().position(|it| it.node.is_some() && it.node == self.keeper);
        let has_it = |replica: &Replica<()>| replica.ok().and(replica.node);
        let next = self.replies.iter().skip(after.map_or(0, |at| at + 1)).find_map(has_it);
        let Some(to) = next.or_else(|| self.replies.iter().find_map(has_it)) else { return };
        let mut hints = std::mem::take(&mut self.unhinted);
        hints.retain(|node| *node != to);
        hints.sort_unstable();
        hints.dedup();
        if hints.is_empty() {
            return;
        }
        let asked = self.replies.of(Some(to)).expect("it was just found");
        asked.hints.extend(&hints);
        self.keeper = Some(to);
        self.hinting = Some((to, hints.clone()));
        let (head, value) = (self.head.clone(), self.value.clone());
        ctx.out.push(Action::Ask { to, ask: Ask::Merge { head, value, hints, reason: Reason::Write } });
    }

    /// Whether hints are to be kept elsewhere, and may yet be.
    fn awaits_hints(&self) -> bool {
        let has_it = |replica: &Replica<()>| replica.node.is_some() && replica.ok().is_some();
        self.hinting.is_some() || !self.unhinted.is_empty() && self.replies.iter().any(has_it)
    }

    fn stand_in(&mut self, absent: Vec<NodeId>, vnodes: u8, ctx: &mut StepContext<'_>) {
        if absent.is_empty() || base::planted!(HintDropped) {
            return;
        }
        let Some(spare) = self.spares.take_first() else { return self.keep_hint(absent, ctx) };
        let roles = Roles { vnodes, primaries: 0 };
        self.replies.push(Replica::new(Some(spare), roles, absent.clone()));
        let (head, value) = (self.head.clone(), self.value.clone());
        let ask = Ask::Merge { head, value, hints: absent, reason: Reason::Write };
        ctx.out.push(Action::Ask { to: spare, ask });
    }

    /// Keeps a hint for those that have not answered. They may still do. A join here that waits for the disk goes on
    /// without the coordinator.
    fn prepare(&mut self, ctx: &mut StepContext<'_>) {
        let others = self.replies.iter().filter(|replica| replica.is_waiting() && replica.node.is_some());
        let nodes: Vec<NodeId> = others.flat_map(|replica| absent(replica, ctx.here)).collect();
        let joins = self.join.is_some() && self.replies.of(None).is_some_and(|here| here.is_waiting());
        if let Some((_, nodes)) = self.hinting.take() {
            self.unhinted.extend(nodes);
        }
        if !nodes.is_empty() && !base::planted!(HintDropped) {
            self.keep_hint(nodes, ctx);
        }
        self.have_hinted(ctx);
        if joins {
            self.join_apart(ctx);
        }
    }

    /// Keeps a hint here, or has it kept.
    fn keep_hint(&mut self, nodes: Vec<NodeId>, ctx: &mut StepContext<'_>) {
        if self.is_kept_here {
            return ctx.out.push(Action::Hint { nodes, confirm: false });
        }
        self.unhinted.extend(nodes);
        self.have_hinted(ctx);
    }

    fn join_apart(&self, ctx: &mut StepContext<'_>) {
        let (head, value) = (self.head.clone(), self.value.clone());
        ctx.out.push(Action::MergeHere { head, value, heal: false, hints: Vec::new() });
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

/// The primaries that lack the version if this one does: itself, and those for whom it was to keep a hint.
fn absent(replica: &Replica<()>, here: NodeId) -> Vec<NodeId> {
    let itself = (replica.roles.primaries > 0).then(|| replica.node.unwrap_or(here));
    itself.into_iter().chain(replica.hints.iter().copied()).collect()
}

/// Steps the join here, and tells whether it is done.
fn step_join(join: &mut Merge, event: Event, ctx: &mut StepContext<'_>) -> Option<ReplyOf<()>> {
    match join.step(event, ctx) {
        Next::Wait => None,
        Next::Over => match ctx.out.pop() {
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
