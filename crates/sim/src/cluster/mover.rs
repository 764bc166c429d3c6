//! Whoever decides who holds what: the control plane, without its own troubles. It publishes one epoch after the other
//! ([`node::Topology`]); each node hears of it late, or when it is started again.
//!
//! Nodes come, leave and take each other's place while everything else goes wrong. A node that is gone for good is declared
//! down, and another takes its place if there is one. What is under way when the world is calmed down is finished.

use super::{Event, World};
use crate::check::{Verdict, Violation};
use crate::seed::{Seed, between, duration_between, index_below};
use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use kv::replica::NodeId;
use node::{Epoch, Members, Topology};
use ring::{Member, MemberState, Ring, RingSize, RingVersion};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How late a node hears of an epoch at most.
const HEARD_WITHIN: Duration = Duration::from_millis(400);
/// The longest pause between two moves.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// How long what is under way may take when nothing goes wrong any more.
const MOVES_MAX: Duration = Duration::from_secs(60);
/// Nodes that must own something: each object has as many replicas.
const OWNERS_MIN: usize = super::REPLICAS;

/// One epoch.
#[derive(Clone, Debug)]
pub(super) struct Published {
    before: Option<Arc<Ring>>,
    pub(super) ring: Arc<Ring>,
    target: Option<Arc<Ring>>,
}

/// What a node has heard, and what its process has told.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    /// The last epoch it knows, over restarts.
    epoch: usize,
    /// By shard.
    adopted: Vec<Epoch>,
    copied: Vec<RingVersion>,
}

/// The control plane.
#[derive(Debug)]
pub(super) struct Mover {
    rng: SplitMix64,
    /// By epoch.
    log: Vec<Published>,
    heard: Vec<Heard>,
    moves_left: u64,
    next: Monotonic,
    versions: u64,
    /// Since when nothing may go wrong any more.
    calm: Option<Monotonic>,
}

impl Mover {
    /// For this many nodes, on a ring of this size.
    pub(super) fn new(seed: Seed, nodes: usize, size: u32, moves: bool) -> Mover {
        let mut rng = seed.stream("mover", 0);
        let size = RingSize::new(size).expect("a power of two");
        let owners =
            if moves { between(&mut rng, OWNERS_MIN as u64, nodes as u64 - 1) } else { nodes as u64 };
        let owners: Vec<u16> = (0..u16::try_from(owners).expect("few")).collect();
        let dealt = owners.iter().copied().cycle().take(size.all().len()).map(NodeId).collect();
        let ring = Ring::new(RingVersion(1), size, members(nodes, &BTreeSet::new()), dealt);
        let ring = Arc::new(ring.expect("members own it"));
        Mover {
            moves_left: if moves { between(&mut rng, 1, 4) } else { 0 },
            next: Monotonic(0) + duration_between(&mut rng, Duration::ZERO, PAUSE_MAX),
            rng,
            // What nodes are configured with is no epoch.
            log: vec![Published { before: None, ring, target: None }; 2],
            heard: vec![Heard { epoch: 1, ..Heard::default() }; nodes],
            versions: 1,
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

    /// The rings that requests may go by.
    pub(super) fn rings(&self) -> impl Iterator<Item = &Arc<Ring>> {
        self.last().before.iter().chain([&self.last().ring])
    }

    /// Whether all moves of its plan are begun.
    pub(super) fn has_begun_all(&self) -> bool {
        self.moves_left == 0
    }

    /// The process of a node has ended.
    pub(super) fn on_death(&mut self, at: usize) {
        let epoch = self.heard[at].epoch;
        self.heard[at] = Heard { epoch, ..Heard::default() };
    }

    fn topology(&self, at: usize, epoch: usize) -> Topology {
        let Published { before, ring, target } = self.log[epoch].clone();
        let newest = target.as_ref().unwrap_or(&ring);
        let here = NodeId(u16::try_from(at).expect("few"));
        let members = Arc::new(Members::of(here, Arc::clone(newest.members())).expect("one of them"));
        let epoch = Epoch(epoch as u64);
        Topology { epoch, before, target, ..Topology::at_rest(members, ring) }
    }
}

fn members(nodes: usize, down: &BTreeSet<usize>) -> Arc<ring::Members> {
    let member = |at: usize| {
        let state = if down.contains(&at) { MemberState::Down } else { MemberState::Valid };
        let id = NodeId(u16::try_from(at).expect("few"));
        Member { state, ..Member::new(id, &format!("n{at}@sim")) }
    };
    Arc::new(ring::Members::new((0..nodes).map(member)).expect("they differ"))
}

impl World {
    fn publish(&mut self, published: Published) {
        let epoch = self.mover.log.len();
        let shown =
            |ring: &Arc<Ring>| (ring.version().0, ring.owners().iter().map(|it| it.0).collect::<Vec<_>>());
        self.trace.line(format_args!(
            "epoch {epoch}: before {:?}, ring {:?}, target {:?}",
            published.before.as_ref().map(shown),
            shown(&published.ring),
            published.target.as_ref().map(shown)
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
        let epoch = heard.epoch;
        self.tell_later(at);
        self.hear(at, epoch)
    }

    /// A node hears of the newest epoch.
    pub(super) fn on_hear(&mut self, at: usize) -> Verdict {
        if self.hosts[at].machine.process.is_none() {
            return Ok(());
        }
        let epoch = self.mover.log.len() - 1;
        self.mover.heard[at].epoch = epoch;
        // Now and then it hears once more of what is over.
        if epoch > 1 && self.mover.rng.chance(1, 3) {
            self.hear(at, epoch)?;
            return self.hear(at, epoch - 1);
        }
        self.hear(at, epoch)
    }

    fn hear(&mut self, at: usize, epoch: usize) -> Verdict {
        let topology = self.mover.topology(at, epoch);
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
        self.mover.heard[at].adopted[shard] = epoch;
    }

    pub(super) fn on_copied(&mut self, at: usize, shard: usize, version: RingVersion) {
        self.trace.line(format_args!("n{at}/{shard} has all for ring {}", version.0));
        self.mover.heard[at].copied[shard] = version;
    }

    fn have_all(&self, nodes: impl Iterator<Item = usize>, is: impl Fn(&Heard) -> bool) -> bool {
        nodes.into_iter().all(|at| !self.mover.heard[at].adopted.is_empty() && is(&self.mover.heard[at]))
    }

    fn gone(&self) -> BTreeSet<usize> {
        (0..self.hosts.len()).filter(|at| self.hosts[*at].gone).collect()
    }

    /// Whether nothing moves, and everybody knows.
    pub(super) fn is_at_rest(&self) -> bool {
        let last = self.mover.last();
        let epoch = Epoch(self.mover.log.len() as u64 - 1);
        last.before.is_none()
            && last.target.is_none()
            && self.have_all(self.living(), |heard| heard.adopted.iter().all(|it| *it >= epoch))
    }

    /// Goes on with what moves.
    pub(super) fn move_on(&mut self) -> Verdict {
        let now = self.events.now();
        if !self.phase.has_trouble() && self.phase != super::ending::Phase::Preparation {
            let since = *self.mover.calm.get_or_insert(now);
            if !self.is_at_rest() && now > since + MOVES_MAX {
                return Err(Violation::new("moves come to their end", format!("{:?}", self.mover.heard)));
            }
        }
        let epoch = Epoch(self.mover.log.len() as u64 - 1);
        if !self.have_all(self.living(), |heard| heard.adopted.iter().all(|it| *it >= epoch)) {
            return Ok(());
        }
        let Published { before, ring, target } = self.mover.last().clone();
        match (before, target) {
            (Some(_), _) => self.publish(Published { before: None, ring, target: None }),
            (None, Some(target)) => self.switch(ring, target),
            (None, None) => self.begin_move(&ring),
        }
        Ok(())
    }

    fn switch(&mut self, ring: Arc<Ring>, target: Arc<Ring>) {
        let is_unknown = |at: usize| {
            let id = NodeId(u16::try_from(at).expect("few"));
            let owns = ring.owning().contains(id) || target.owning().contains(id);
            owns && target.members().get(id).is_some_and(|member| member.state != MemberState::Down)
        };
        if self.gone().into_iter().any(is_unknown) {
            // It will give, or get, nothing any more.
            return self.publish(Published { before: None, ring, target: None });
        }
        let version = target.version();
        let owners: Vec<usize> = target.owning().iter().map(|id| usize::from(id.0)).collect();
        if self.have_all(owners.into_iter(), |heard| heard.copied.iter().all(|it| *it == version)) {
            self.publish(Published { before: Some(ring), ring: target, target: None });
        }
    }

    fn begin_move(&mut self, ring: &Ring) {
        let now = self.events.now();
        if self.mover.moves_left == 0 || !self.phase.has_trouble() || now < self.mover.next {
            return;
        }
        self.mover.moves_left -= 1;
        self.mover.next = now + duration_between(&mut self.mover.rng, Duration::ZERO, PAUSE_MAX);
        let gone = self.gone();
        let all = self.hosts.len();
        let rng = &mut self.mover.rng;
        let mut owners: Vec<usize> = ring.owning().iter().map(|id| usize::from(id.0)).collect();
        let others: Vec<usize> = (0..all).filter(|at| !owners.contains(at) && !gone.contains(at)).collect();
        if let Some(at) = owners.iter().position(|at| gone.contains(at)) {
            owners.remove(at);
        } else if owners.len() > OWNERS_MIN && rng.chance(1, 2) || !others.is_empty() && rng.chance(1, 2) {
            owners.remove(index_below(rng, owners.len()));
        }
        if !others.is_empty() && (owners.len() < OWNERS_MIN || rng.chance(1, 2)) {
            owners.push(others[index_below(rng, others.len())]);
        }
        if owners.len() < OWNERS_MIN {
            return;
        }
        self.mover.versions += 1;
        let version = RingVersion(self.mover.versions);
        let owned = claim(ring, &owners, &mut self.mover.rng);
        let target = Ring::new(version, ring.size(), members(all, &gone), owned);
        let (ring, target) = (Arc::clone(self.mover.ring()), Arc::new(target.expect("members own it")));
        self.publish(Published { before: None, ring, target: Some(target) });
    }
}

/// Who is to own what: as before where that may stay, and something for everybody.
fn claim(ring: &Ring, owners: &[usize], rng: &mut SplitMix64) -> Box<[NodeId]> {
    let ids: Vec<NodeId> = owners.iter().map(|at| NodeId(u16::try_from(*at).expect("few"))).collect();
    let mut owned: Vec<NodeId> = ring.owners().to_vec();
    for owner in owned.iter_mut().filter(|owner| !ids.contains(owner)) {
        *owner = ids[index_below(rng, ids.len())];
    }
    for id in ids.iter().filter(|id| !ring.owning().contains(**id)) {
        for _ in 0..owned.len().div_ceil(ids.len()) {
            let at = index_below(rng, owned.len());
            owned[at] = *id;
        }
    }
    if ids.iter().any(|id| !owned.contains(id)) {
        return ids.into_iter().cycle().take(owned.len()).collect();
    }
    owned.into()
}
