//! Members and owners that change while this shard serves.
//!
//! 1. [`Shard::topology`] takes what was published. Requests that begin from then on go by it.
//! 2. When the last request that began before is over, the epoch is adopted: the control plane is told so.
//! 3. While partitions move, a write is confirmed when those have it too to whom it is passed on ([`kv::Pass`]).
//! 4. `copies.rs` gets what this shard is to have, `gifts.rs` gives it to others, `strays.rs` drops what is no longer its own.
//!
//! Invariant: from before a copy's first key is read until the control plane has heard that no request goes by the ring
//! before, whatever is confirmed here is confirmed by those that take this node's place, and the other way round.

pub(crate) mod hint_rounds;
pub(crate) mod losses;
pub(crate) mod orphans;
pub(crate) mod receiver;
pub(crate) mod sender;
pub(crate) mod throttle;

use crate::handoff::orphans::{Left, OrphanedRanges};
use crate::handoff::receiver::InboundTransfers;
use crate::handoff::sender::OutboundTransfers;
use crate::peer::NodeId;
use crate::request::actors::Actors;
use crate::request::task::{Coordinator, PendingReply, Task};
use crate::shard::Shard;
use crate::shard::effect::Effect;
use crate::shard::output::Output;
use crate::shard::reply_to::ReplyTo;
use crate::topology::{Budget, Epoch, Topology};
use ::object::{Actor, key};
use base::Monotonic;
use engine::Seq;
use engine::fold::{ScanId, ScanPage};
use kv::{Error, Event};
use ring::{MemberState, Ring};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What this shard knows of changes.
#[derive(Default)]
pub(crate) struct Moves {
    /// Whether the epoch is to be told, once older requests are over.
    untold: bool,
    /// Writes up to here may have been confirmed to others without being passed on.
    pub unpassed: Seq,
    pub copies: InboundTransfers,
    pub gifts: OutboundTransfers,
    pub strays: OrphanedRanges,
}

impl Moves {
    /// Takes note of what this node is not to have any more by what comes next, and whether others were given it.
    fn note_given(&mut self, last: &Topology, next: &Topology, here: NodeId) {
        let Topology { epoch, ring, target, .. } = last;
        let (had, has) = (Arc::clone(ring), Arc::clone(&next.ring));
        if had.owners() != has.owners() {
            // The step after a copy that this node has said to take part in, and has.
            let was_giver = |target: &Arc<Ring>| {
                let lives = target.members().get(here).is_some_and(|it| it.state != MemberState::Down);
                lives && target.owners() == has.owners()
            };
            let is_next = next.before.is_some() && next.epoch.0 == epoch.0 + 1;
            let given = is_next && target.as_ref().is_some_and(was_giver);
            self.strays.note_left(Left { had, has, given });
        } else if let Some(target) = target
            && next.target.as_ref().is_none_or(|next| next.version() != target.version())
        {
            // It was given up. What was copied for it is what others have.
            self.strays.note_left(Left { had: Arc::clone(target), has, given: true });
        }
    }
}

impl Shard {
    /// Members and owners as they were published last. One that is not later than what is known is ignored.
    ///
    /// # Panics
    /// If a ring has more partitions than keys have prefixes, or an owner that is no member.
    pub fn topology(&mut self, mut topology: Topology) {
        if topology.epoch <= self.env.topology.epoch && !base::planted!(StaleRingAccepted) {
            return;
        }
        let rings = topology.before.iter().chain([&topology.ring]).chain(&topology.target);
        for ring in rings {
            assert!(ring.size() <= self.env.knobs.layout.prefixes, "a partition is a range of keys");
            assert!(ring.owning().iter().all(|node| topology.members.has(node)), "an owner is a member");
        }
        // What nobody here knows of, others may have written.
        let agreed = topology.n_vals.iter().copied();
        topology.n_vals = self
            .env
            .props
            .n_vals()
            .into_iter()
            .chain(agreed)
            .collect::<BTreeSet<u32>>()
            .into_iter()
            .collect();
        let was_alone = self.env.peers.is_alone();
        let left = self.env.peers.change(&topology.members);
        if was_alone && !self.env.peers.is_alone() {
            // From now on somebody else may have events of the store's actor: those of a copy of its disk.
            self.actors = Actors::new(Actor(self.env.rng.next_u64()), false);
        }
        if self.env.topology.is_at_rest() {
            self.moves.unpassed = self.env.store.last_written();
        }
        self.moves.note_given(&self.env.topology, &topology, self.env.peers.here());
        self.env.topology = topology;
        self.moves.untold = true;
        left.into_iter().for_each(|node| self.env.raise(Effect::QuestionsLost(node)));
        let gone: Vec<NodeId> =
            self.env.topology.members.others().filter(|node| self.env.ownership().is_gone(*node)).collect();
        gone.into_iter().for_each(|node| self.env.raise(Effect::BringHints(node)));
        self.end_transfers();
        self.begin_inbound();
        let now = self.env.now();
        self.moves.strays.look_from(now, self.env.last_id);
        self.tick_moves(now);
        self.look_at_trees();
        self.drain();
    }

    /// Whether partitions may move, as far as this shard has been told.
    pub fn is_changing(&self) -> bool {
        !self.env.topology.is_at_rest()
    }

    /// The numbers of replicas that buckets have, as far as this shard knows.
    pub fn n_vals(&self) -> BTreeSet<u32> {
        self.env.props.n_vals()
    }

    /// How much copies may take from now on.
    pub fn budget(&mut self, budget: Budget) {
        self.env.topology.budget = budget;
    }

    /// Whether this shard has dropped all that this node is not to have: nothing moves, no hint is kept of it, and nothing is
    /// left to be looked for. A node that owns nothing may go then.
    pub fn has_given_all(&self) -> bool {
        self.env.topology.epoch > Epoch(0) && self.env.topology.is_at_rest() && self.moves.strays.is_done()
    }

    /// Tells that the epoch is adopted, if it is, and goes on with what moves.
    pub(crate) fn tick_moves(&mut self, now: Monotonic) {
        let epoch = self.env.topology.epoch;
        if self.moves.untold && self.objects.oldest().is_none_or(|oldest| oldest >= epoch) {
            self.moves.untold = false;
            self.env.out.push(Output::Adopted(epoch));
        }
        self.tick_inbound(now);
        self.tick_orphans(now);
    }

    /// Takes a page of a scan, if it was about what moves.
    pub(crate) fn on_move_scan(
        &mut self,
        scan: ScanId,
        page: Result<ScanPage, engine::Error>,
    ) -> Result<(), Result<ScanPage, engine::Error>> {
        let page = match self.on_checkpoints(scan, page) {
            Ok(()) => return Ok(()),
            Err(page) => page,
        };
        let page = match self.on_transfer_scan(scan, page) {
            Ok(()) => return Ok(()),
            Err(page) => page,
        };
        self.on_orphan_scan(scan, page)
    }

    /// To whom what this work writes here is passed on.
    fn mates(&self, work: &Task) -> Vec<NodeId> {
        let (key, n_val) = (&work.key, work.props.n_val);
        let topology = &self.env.topology;
        if topology.is_at_rest() || base::planted!(MoveNotPassedOn) {
            return Vec::new();
        }
        let (here, at) = (self.env.peers.here(), self.env.ownership().position(key::prefix_of(key)));
        let (givers, joiners) = (topology.givers(at, n_val), topology.joiners(at, n_val));
        if givers.contains(&here) {
            joiners
        } else if joiners.contains(&here) && (topology.before.is_some() || is_by_target(work)) {
            givers
        } else {
            Vec::new()
        }
    }

    /// Passes on what a client's request has written here; it goes on when that is done. False if nobody is to have it.
    pub(crate) fn pass_on(&mut self, id: &mut Option<u64>, work: &mut Task) -> bool {
        if matches!(work.coordinator, Coordinator::Merge(_)) {
            return false;
        }
        let Some(version) = work.unpassed.take() else { return false };
        let mates = self.mates(work);
        if mates.is_empty() {
            return false;
        }
        let id = *id.get_or_insert_with(|| self.env.next_id());
        let pass = Coordinator::Pass(kv::Pass::new(mates, version.0, version.1));
        let props = Arc::clone(&work.props);
        let pass = Task::new(ReplyTo::DualWrite(id), pass, work.key.clone(), props, work.deadline);
        self.start_work(pass);
        true
    }

    /// Whether a replica's part in a write is to be passed on before it is confirmed.
    pub(crate) fn is_unpassed(&self, work: &Task) -> bool {
        !self.env.topology.is_at_rest()
            && matches!(work.coordinator, Coordinator::Merge(_))
            && work.coordinator.is_passed_on()
            && (work.unpassed.is_some() || matches!(work.reply_to, ReplyTo::Replica(..)))
            && !self.mates(work).is_empty()
    }

    /// Has a replica's work go on as one that passes the version on.
    pub(crate) fn pass_before_answer(&mut self, id: &mut Option<u64>, work: &mut Task) -> Option<Event> {
        let Some(version) = work.unpassed.take() else {
            // It began before anything moved, and has found what another write has just left here.
            self.reply_when_durable(id, work, PendingReply::Replica(Err(Error::Unreachable)));
            return None;
        };
        self.release_key(work);
        let mates = self.mates(work);
        work.coordinator = Coordinator::Pass(kv::Pass::new(mates, version.0, version.1));
        Some(Event::Start)
    }
}

/// Whether a write that reaches a joiner while everything is still copied was sent by the new ring: its sender has heard earlier that
/// this is the ring in force. By the old one a joiner is asked only to stand in for somebody.
fn is_by_target(work: &Task) -> bool {
    matches!(&work.coordinator, Coordinator::Merge(merge) if !merge.stands_in())
}
