//! Whoever decides who holds what: the cluster's agreed state ([`State`]), whose commands are applied at once, as if
//! its log had no troubles of its own. What it publishes each node hears late, or when it is started again; what nodes
//! report comes back.
//!
//! Members come that nobody knew before, leave, and take each other's place while everything else goes wrong; now and
//! then the ring grows, alone or in the same commit. One that is gone for good is removed by force, or replaced; its
//! hints are for those that have its partitions then. If too few are left for that, it is said to be down in the end,
//! so that nobody waits for its reports. One whose disk is not what it was is down until it has started with it. What
//! is under way when the world is calmed down is finished.
//!
//! A host is a member for one life: its number is the member's. One that is to come back does so as another host.

use super::plan::Plan;
use super::{Event, World};
use crate::check::{Verdict, Violation};
use crate::seed::{Seed, between, duration_between, index_below};
use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use kv::replica::NodeId;
use membership::ClusterId;
use membership::state::{Change, Command, MemberDecision, Published, Record, State};
use node::{Epoch, Members, Topology};
use ring::{MemberState, Ring, RingSize, RingVersion};
use std::sync::Arc;
use std::time::Duration;

/// How late a node hears of an epoch at most.
const HEARD_WITHIN: Duration = Duration::from_millis(400);
/// The longest pause between two moves.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// How long what is under way may take when nothing goes wrong any more.
const MOVES_MAX: Duration = Duration::from_secs(90);
/// Hosts that are no members in the beginning.
const NEWCOMERS_MAX: usize = 4;
/// Nodes that must own something: each object has as many replicas.
const OWNERS_MIN: usize = super::REPLICAS;

/// What a node has heard, and what its process has told.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    /// The last that it knows of what was published, over restarts.
    at: usize,
    /// By shard.
    adopted: Vec<Epoch>,
    copied: Vec<RingVersion>,
}

/// The control plane.
pub(super) struct Mover {
    rng: SplitMix64,
    state: State,
    /// In order.
    log: Vec<Published>,
    heard: Vec<Heard>,
    /// How many hosts have been members.
    admitted: usize,
    moves_left: u64,
    /// Commits so far.
    changes: u64,
    /// Draws when the ring grows.
    sizes: SplitMix64,
    next: Monotonic,
    /// Since when nothing may go wrong any more.
    calm: Option<Monotonic>,
}

impl Mover {
    /// For the hosts of this plan, not all of them members from the beginning.
    pub(super) fn new(seed: Seed, plan: &Plan) -> Mover {
        let (hosts, size, moves) = (plan.nodes(), plan.ring_size, plan.moves);
        let mut rng = seed.stream("mover", 0);
        let size = RingSize::new(size).expect("a power of two");
        // In a large cluster most are there from the beginning.
        let founders_min = OWNERS_MIN.max(hosts.saturating_sub(NEWCOMERS_MAX));
        let founders =
            if moves { between(&mut rng, founders_min as u64, hosts as u64 - 1) } else { hosts as u64 };
        let founders = plan.founders.unwrap_or(usize::try_from(founders).expect("few"));
        let names: Vec<String> = (0..founders).map(name).collect();
        let nodes = names.iter().map(|name| (&**name, ADDRESS, ""));
        let state = State::found_by(ClusterId(1), (size, size.finest()), nodes).expect("names differ");
        Mover {
            moves_left: if moves { between(&mut rng, 1, 4) } else { 0 },
            changes: 0,
            sizes: seed.stream("ring sizes", 0),
            next: Monotonic(0) + duration_between(&mut rng, Duration::ZERO, PAUSE_MAX),
            rng,
            log: vec![state.published()],
            state,
            heard: vec![Heard::default(); hosts],
            admitted: founders,
            calm: None,
        }
    }

    fn last(&self) -> &Published {
        &self.log[self.log.len() - 1]
    }

    /// The ring in force.
    pub(super) fn ring(&self) -> &Arc<Ring> {
        &self.last().ring
    }

    /// The ring that is moved to, or else the one in force.
    pub(super) fn ring_to_be(&self) -> &Arc<Ring> {
        self.last().target.as_ref().unwrap_or(self.ring())
    }

    /// Nothing is begun any more but what a script begins.
    pub(super) fn begin_no_more(&mut self) {
        self.moves_left = 0;
    }

    /// The rings that requests may go by.
    pub(super) fn rings(&self) -> impl Iterator<Item = &Arc<Ring>> {
        self.last().before.iter().chain([&self.last().ring])
    }

    /// Whether a host has been a member.
    pub(super) fn is_admitted(&self, at: usize) -> bool {
        at < self.admitted
    }

    fn is_member(&self, at: usize) -> bool {
        self.state.members().contains_key(&id(at))
    }

    /// Whether some partition moves, or somebody does not know yet where all are.
    pub(super) fn is_moving(&self) -> bool {
        !self.state.is_settled()
    }

    /// How many changes of the ring were committed.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether all moves of its plan are begun.
    pub(super) fn has_begun_all(&self) -> bool {
        self.moves_left == 0
    }

    /// The process of a node has ended.
    pub(super) fn on_death(&mut self, at: usize) {
        self.heard[at] = Heard { at: self.heard[at].at, ..Heard::default() };
    }

    fn topology(&self, at: usize, published: usize) -> Topology {
        let Published { version, members, before, ring, target } = self.log[published].clone();
        let members = Arc::new(Members::of(id(at), members).expect("it is told while it is a member"));
        Topology { epoch: Epoch(version.0), before, target, ..Topology::at_rest(members, ring) }
    }

    /// What a host starts with: the members and the ring of what it has heard last.
    pub(super) fn start_with(&self, at: usize) -> (Arc<Members>, Arc<Ring>) {
        let topology = self.topology(at, self.heard[at].at);
        (topology.members, topology.ring)
    }
}

/// Where nodes are reached; nobody looks.
const ADDRESS: &str = "h:1";

fn name(at: usize) -> String {
    format!("n{at}@sim")
}

fn id(at: usize) -> NodeId {
    NodeId(u16::try_from(at).expect("few"))
}

impl World {
    /// Applies a command, and publishes what comes of it. A report that is late is refused.
    fn command(&mut self, command: &Command) {
        match self.mover.state.apply(command) {
            Ok(()) => self.mover.changes += u64::from(matches!(command, Command::Commit { .. })),
            Err(rejected) => self.trace.line(format_args!("{command:?} is refused: {rejected}")),
        }
        if self.mover.state.ring_version() != self.mover.last().version {
            self.publish();
        }
    }

    fn publish(&mut self) {
        let published = self.mover.state.published_after(self.mover.last());
        let owners = |ring: &Ring| ring.owners().iter().map(|it| it.0).collect::<Vec<_>>();
        let states: Vec<String> =
            published.members.iter().map(|it| format!("{} {}", it.id.0, it.state)).collect();
        self.trace.line(format_args!(
            "epoch {}: before {:?}, ring {:?}, target {:?} of {states:?}",
            published.version.0,
            published.before.as_deref().map(owners),
            owners(&published.ring),
            published.target.as_deref().map(owners)
        ));
        let is_switched = published.before.is_some();
        self.mover.log.push(published);
        // What somebody had before it began to copy, as a fallback perhaps, it may have given up since.
        if !is_switched {
            self.release_promises();
        }
        for at in 0..self.hosts.len() {
            self.tell_later(at);
        }
    }

    /// Nodes that are no primaries of a key any more promise nothing about it.
    fn release_promises(&mut self) {
        for place in self.places() {
            let primaries = self.primaries(place);
            for at in (0..self.hosts.len()).filter(|at| !primaries.contains(at)) {
                self.checks.release(at, &super::auditor::name(place));
            }
        }
    }

    fn tell_later(&mut self, at: usize) {
        let delay = duration_between(&mut self.mover.rng, Duration::ZERO, HEARD_WITHIN);
        self.events.after(delay, Event::Hear(at));
    }

    /// A process has begun: it knows what it knew, and hears of the rest soon.
    pub(super) fn on_start_hear(&mut self, at: usize) -> Verdict {
        let shards = usize::from(self.hosts[at].machine.layout.shards);
        let heard = &mut self.mover.heard[at];
        (heard.adopted, heard.copied) = (vec![Epoch(0); shards], vec![RingVersion(0); shards]);
        let state = self.mover.state.members().get(&id(at)).map(|record| record.member.state);
        if state == Some(MemberState::Down) {
            let starts = u32::try_from(self.hosts[at].starts).expect("few");
            let address = ADDRESS.to_owned();
            self.command(&Command::Started { node: id(at), starts, start: u64::from(starts), address });
            // Nobody has waited for it: it is not to serve by what it knew.
            self.mover.heard[at].at = self.mover.log.len() - 1;
        }
        // Of a cluster of one nothing new is ever published.
        if !self.plan.is_alone() {
            self.tell_later(at);
        }
        self.hear(at, self.mover.heard[at].at)
    }

    /// A node hears of what was published last.
    pub(super) fn on_hear(&mut self, at: usize) -> Verdict {
        if self.hosts[at].machine.process.is_none() || !self.mover.is_member(at) {
            return Ok(());
        }
        let last = self.mover.log.len() - 1;
        let before = std::mem::replace(&mut self.mover.heard[at].at, last);
        self.hear(at, last)?;
        // Now and then it hears once more of what is over.
        if before < last && self.mover.rng.chance(1, 3) {
            return self.hear(at, before);
        }
        Ok(())
    }

    fn hear(&mut self, at: usize, published: usize) -> Verdict {
        let topology = self.mover.topology(at, published);
        for shard in 0..usize::from(self.hosts[at].machine.layout.shards) {
            if let Some(running) = self.hosts[at].machine.shard(shard) {
                running.topology(topology.clone());
                self.schedule_turn(at, shard);
                self.after_shard(at, shard)?;
            }
        }
        Ok(())
    }

    pub(super) fn on_adopted(&mut self, at: usize, shard: usize, epoch: Epoch) {
        self.trace.line(format_args!("n{at}/{shard} goes by epoch {}", epoch.0));
        let adopted = &mut self.mover.heard[at].adopted;
        adopted[shard] = epoch;
        if adopted.iter().all(|it| *it == epoch) {
            self.command(&Command::Adopted { node: id(at), version: RingVersion(epoch.0) });
        }
    }

    pub(super) fn on_copied(&mut self, at: usize, shard: usize, version: RingVersion) {
        self.trace.line(format_args!("n{at}/{shard} has all for ring {}", version.0));
        let copied = &mut self.mover.heard[at].copied;
        copied[shard] = version;
        if copied.iter().all(|it| *it == version) {
            self.command(&Command::Copied { node: id(at), target: version });
        }
    }

    /// The disk of a node is not what it was: what it has reported counts no more.
    pub(super) fn on_disk_changed(&mut self, at: usize) {
        if self.mover.is_member(at) && self.plan.moves {
            self.command(&Command::Down { expected: self.mover.state.version(), node: id(at) });
        }
    }

    /// Whether nothing moves or is to move, and everybody knows.
    pub(super) fn is_at_rest(&self) -> bool {
        let is_lost = |at: usize| self.hosts[at].gone && self.mover.is_member(at);
        // Who leaves keeps what is for a member that is gone, and stays while nobody can take that one's place.
        let is_waiting = self.leaver().is_some() && !(0..self.hosts.len()).any(is_lost);
        self.mover.state.is_settled() && self.missing_member().is_none() && !is_waiting
    }

    /// A member that is gone for good, and whose report is waited for.
    fn silent_member(&self) -> Option<usize> {
        let mut unadopted = self.mover.state.unadopted().map(|node| usize::from(node.0));
        unadopted.find(|&at| self.hosts[at].gone)
    }

    /// Whether others can take the part of a member that is lost, or need not, since nothing moves or is to move any
    /// more. If it is to be given something, and nobody can take its place, what moves waits for it for good: that is
    /// for an operator with another machine.
    pub(super) fn can_lose(&self, at: usize) -> bool {
        let is_over = self.mover.has_begun_all() && self.mover.state.is_settled();
        is_over || self.are_enough(|node| node != at)
    }

    /// Whether enough could own something, were only these left of those who claim it.
    fn are_enough(&self, is_left: impl Fn(usize) -> bool) -> bool {
        let claim = self.mover.state.members().iter().filter(|(_, it)| it.member.state.claims());
        let claim = claim.map(|(node, _)| usize::from(node.0));
        let left = claim.filter(|&at| !self.hosts[at].gone && is_left(at)).count();
        left + usize::from(self.mover.admitted < self.hosts.len()) >= OWNERS_MIN
    }

    /// A member that is gone for good, of which that has not been said, and whose part others can take.
    fn missing_member(&self) -> Option<usize> {
        let members = self.mover.state.members();
        let is_left = |node: &NodeId| !self.hosts[usize::from(node.0)].gone;
        let are_enough = self.are_enough(|_| true);
        let mut gone =
            members.iter().filter(|(node, it)| !is_left(node) && it.fate != MemberDecision::Forgotten);
        let gone = gone.find(|(_, it)| self.plan.moves && (are_enough || !it.member.state.may_own()));
        gone.map(|(node, _)| usize::from(node.0))
    }

    /// A member that is exiting.
    fn leaver(&self) -> Option<usize> {
        let mut members = self.mover.state.members().iter();
        let is_exiting = |(node, it): &(&NodeId, &Record)| {
            it.member.state == MemberState::Exiting && !self.hosts[usize::from(node.0)].gone
        };
        members.find(is_exiting).map(|(node, _)| usize::from(node.0))
    }

    /// Goes on with what moves.
    pub(super) fn move_on(&mut self) -> Verdict {
        let now = self.events.now();
        if !self.phase.has_trouble() && self.phase != super::ending::Phase::Preparation {
            let since = *self.mover.calm.get_or_insert(now);
            if !self.is_at_rest() && now > since + MOVES_MAX {
                let what = format!("{:?}, {:?}", self.mover.state.step(), self.mover.heard);
                return Err(Violation::new("moves come to their end", what));
            }
            if self.missing_member().is_none()
                && let Some(at) = self.silent_member()
            {
                self.trace.line(format_args!("n{at} is said to be down"));
                self.command(&Command::Down { expected: self.mover.state.version(), node: id(at) });
            }
        }
        if let Some(at) = self.leaver() {
            self.let_go(at)?;
        }
        // Nothing settles that waits for a member who is gone.
        if self.mover.state.is_settled() || self.missing_member().is_some() {
            self.begin_move();
        }
        Ok(())
    }

    /// A member that has left everything to others goes, once nothing is left there that only it has.
    fn let_go(&mut self, at: usize) -> Verdict {
        let host = &mut self.hosts[at];
        let shards = host.machine.process.iter_mut().flat_map(|process| process.shards.iter_mut().flatten());
        let vacated = shards.map(|shard| shard.status().is_vacated()).collect::<Vec<_>>();
        if host.held.is_some()
            || vacated.len() < usize::from(host.machine.layout.shards)
            || vacated.contains(&false)
        {
            return Ok(());
        }
        self.trace.line(format_args!("n{at} has left"));
        (self.hosts[at].gone, self.hosts[at].left) = (true, true);
        self.command(&Command::Gone { node: id(at) });
        self.power_cut(at);
        Ok(())
    }

    /// Begins a change, if it is time for one. One that is needed is begun in the end, too.
    fn begin_move(&mut self) {
        let now = self.events.now();
        let missing = self.missing_member();
        let is_due = self.mover.moves_left > 0 && self.phase.has_trouble() && now >= self.mover.next;
        if !is_due && (missing.is_none() || self.phase.has_trouble()) {
            return;
        }
        self.mover.moves_left = self.mover.moves_left.saturating_sub(1);
        self.mover.next = now + duration_between(&mut self.mover.rng, Duration::ZERO, PAUSE_MAX);
        let members = self.mover.state.members();
        let claim = members.iter().filter(|(_, it)| it.member.state.claims()).map(|(node, _)| *node);
        let members: Vec<NodeId> = claim.filter(|node| !self.hosts[usize::from(node.0)].gone).collect();
        let newcomer = Some(self.mover.admitted).filter(|at| *at < self.hosts.len());
        let rng = &mut self.mover.rng;
        let leaver = members[index_below(rng, members.len())];
        let coin = rng.chance(1, 2);
        let grows = self.mover.sizes.chance(1, 4);
        let may_own = |at: usize| self.mover.state.members()[&id(at)].member.state.may_own();
        match (missing, newcomer) {
            (None, _) if grows => self.stage_ring(),
            (Some(gone), Some(at)) if (coin || members.len() < OWNERS_MIN) && may_own(gone) => {
                self.admit(at);
                self.stage(id(gone), Change::ForceReplace(id(at)));
            }
            (Some(gone), _) => self.stage(id(gone), Change::ForceRemove),
            (None, Some(at)) if coin || members.len() <= OWNERS_MIN => {
                self.admit(at);
                if self.mover.rng.chance(1, 2) {
                    self.stage(leaver, Change::Replace(id(at)));
                }
            }
            (None, _) if members.len() > OWNERS_MIN => self.stage(leaver, Change::Leave),
            (None, _) => return,
        }
        if self.mover.sizes.chance(1, 4) {
            self.stage_ring();
        }
        self.commit();
    }

    /// Carries out what is staged.
    fn commit(&mut self) {
        match self.mover.state.plan(super::REPLICAS) {
            Ok(plan) => self.command(&plan.command()),
            Err(error) => self.trace.line(format_args!("no plan: {error}")),
        }
    }

    /// The next host becomes a member, and gets its share.
    pub(super) fn join_newcomer(&mut self) {
        self.admit(self.mover.admitted);
        self.commit();
    }

    /// The ring is to grow, if it can.
    fn stage_ring(&mut self) {
        let (expected, has) = (self.mover.state.version(), self.mover.state.size().partitions());
        let doublings = between(&mut self.mover.sizes, 1, 2);
        if let Some(size) =
            RingSize::new(has << doublings).ok().filter(|it| *it <= self.mover.state.prefixes())
        {
            self.trace.line(format_args!("the ring is to have {size} partitions"));
            self.command(&Command::StageRing { expected, size });
        }
    }

    fn stage(&mut self, node: NodeId, change: Change) {
        self.trace.line(format_args!("n{} is to {change:?}", node.0));
        self.command(&Command::Stage { expected: self.mover.state.version(), node, change });
    }

    /// A host becomes a member, and starts.
    fn admit(&mut self, at: usize) {
        let (expected, zone) = (self.mover.state.version(), String::new());
        let admit =
            Command::Admit { expected, name: name(at), address: ADDRESS.to_owned(), zone, weight: 100 };
        self.command(&admit);
        assert!(self.mover.is_member(at), "numbers are given in order");
        self.mover.admitted += 1;
        self.mover.heard[at].at = self.mover.log.len() - 1;
        self.trace.line(format_args!("n{at} is admitted"));
        self.events.after(Duration::ZERO, Event::Start(at));
    }
}
