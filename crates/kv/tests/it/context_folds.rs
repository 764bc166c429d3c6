//! Contexts that are folded: three replicas of one key that are restarted all the time, frames that come late, and
//! rounds that miss somebody.
#![allow(clippy::unwrap_used, reason = "these are tests; clippy knows only functions marked as such")]

use base::rng::SplitMix64;
use base::{Monotonic, Rng, Wall};
use bytes::Bytes;
use kv::reap::{FOLD_ACTORS, Part, Reap, Round};
use kv::{
    Action, Answer, Ask, BucketProps, Event, Graveyard, Limits, Merge, Next, NodeId, Placement, ReadStrategy,
    Reason, StepContext, Stored, VersionClock,
};
use object::{Actor, Context, Dot, Head, HeadView, Metadata, Object, Policy};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// How long graves are kept.
const KEEP: Duration = Duration::from_secs(10);
/// How many writes later a frame may arrive, a second each.
const LATE_MAX: u64 = 6;

struct Node {
    stored: Option<Stored>,
    graveyard: Graveyard,
    actor: Actor,
    /// Whether hints about the key are kept here.
    hinted: bool,
}

struct World {
    nodes: Vec<Node>,
    props: BucketProps,
    key: Bytes,
    rng: SplitMix64,
    now: Monotonic,
    counter: u64,
    /// Frames on their way: when they were sent, to whom, and the version.
    late: Vec<(u64, usize, Stored)>,
    written: u64,
    /// Writes that a later one has seen.
    overwritten: BTreeSet<u64>,
}

impl World {
    fn new(seed: u64) -> World {
        let node = |at: u64| Node {
            stored: None,
            graveyard: Graveyard::new(KEEP),
            actor: Actor(1_000_000 + at),
            hinted: false,
        };
        World {
            nodes: (0..3).map(node).collect(),
            props: BucketProps { allow_mult: true, ..BucketProps::default() },
            key: Bytes::from_static(b"k"),
            rng: SplitMix64::new(seed),
            now: Monotonic(0),
            counter: 0,
            late: Vec::new(),
            written: 0,
            overwritten: BTreeSet::new(),
        }
    }

    /// One step of something on a node, and what it does.
    fn step(&mut self, at: usize, step: impl FnOnce(&mut StepContext<'_>) -> Next) -> (Vec<Action>, Next) {
        let (mut out, mut clock) = (Vec::new(), VersionClock::default());
        let mut ctx = StepContext {
            here: NodeId(at as u16),
            wall: Wall(5),
            clock: &mut clock,
            asker: None,
            next_dot: &mut |_| unreachable!("writes are made without a coordinator here"),
            place: &|n, _| Placement::alone(n),
            grave: self.nodes[at].graveyard.plot(&self.key),
            may_replace_entries: false,
            form: ReadStrategy::LocalValue,
            props: &self.props,
            limits: &Limits::default(),
            out: &mut out,
        };
        let next = step(&mut ctx);
        (out, next)
    }

    /// What the store does at once; `None` if it is for others.
    fn act(&mut self, at: usize, action: &Action) -> Option<Event> {
        let node = &mut self.nodes[at];
        Some(match action {
            Action::Read { .. } => Event::Read(Ok(node.stored.clone())),
            Action::ReadHint { .. } if node.hinted => {
                Event::Read(Ok(Some(Stored { head: Bytes::new(), value: None })))
            }
            Action::ReadHint { .. } => Event::Read(Ok(None)),
            Action::Settle => Event::Written(Ok(())),
            Action::Remove => {
                node.stored = None;
                Event::Written(Ok(()))
            }
            Action::Write { head, value, .. } => {
                node.stored = Some(Stored { head: head.clone(), value: Some(value.clone()) });
                Event::Written(Ok(()))
            }
            _ => return None,
        })
    }

    fn merge(&mut self, at: usize, version: &Stored) {
        let value = version.value.clone().unwrap();
        let mut merge = Merge::new(version.head.clone(), value, Vec::new(), Reason::Write);
        let mut event = Some(Event::Start);
        while let Some(this) = event.take() {
            for action in self.step(at, |ctx| merge.step(this, ctx)).0 {
                match &action {
                    Action::Answer(answer) => assert_eq!(*answer, Ok(Answer::Merged)),
                    action => event = self.act(at, action),
                }
            }
        }
    }

    fn part(&mut self, at: usize, round: Round, proposed: Bytes) -> bool {
        let others = self.others(at);
        let mut part = Part::new(round, proposed, true, others);
        let mut event = Event::Start;
        loop {
            let (actions, _) = self.step(at, |ctx| part.step(event, ctx));
            assert_eq!(actions.len(), 1, "one thing after the other");
            if let Action::Answer(Ok(Answer::Reaping { agrees, .. })) = actions[0] {
                return agrees;
            }
            event = self.act(at, &actions[0]).unwrap();
        }
    }

    fn others(&self, at: usize) -> Vec<NodeId> {
        (0..self.nodes.len()).filter(|&other| other != at).map(|other| NodeId(other as u16)).collect()
    }

    /// The rounds of a fold; some of the last one's questions are lost.
    fn fold(&mut self, at: usize, lose: bool) -> bool {
        let mut reap = Reap::of_context(true, self.others(at));
        let mut events = VecDeque::from([Event::Start]);
        while let Some(event) = events.pop_front() {
            let (actions, _) = self.step(at, |ctx| reap.step(event, ctx));
            for action in actions {
                let Action::Ask { to, ask: Ask::Reap { round, tombstone } } = action else {
                    events.extend(self.act(at, &action));
                    continue;
                };
                if lose && round == Round::Remove && self.rng.chance(1, 2) {
                    continue;
                }
                let agrees = self.part(usize::from(to.0), round, tombstone);
                events.push_back(Event::Answer { from: to, result: Ok(Answer::Reaping { round, agrees }) });
            }
        }
        reap.is_agreed()
    }

    /// A write that has seen `seen`, at this node; the others are sent it, some late, some not at all.
    fn write(&mut self, at: usize, seen: Option<Context>) {
        (self.counter, self.written) = (self.counter + 1, self.written + 1);
        if seen.is_some() {
            self.overwritten.extend(self.shown(at));
        }
        let value = Bytes::copy_from_slice(&self.written.to_le_bytes());
        let put = object::Put { context: seen, metadata: Metadata::default(), value };
        let existing = self.nodes[at].stored.clone().map(object_of);
        let dot = Dot::new(self.nodes[at].actor, self.counter);
        let version = stored(&object::update(existing, put, dot, Policy::AllowMult).unwrap());
        self.nodes[at].stored = Some(version.clone());
        for to in (0..self.nodes.len()).filter(|&to| to != at) {
            match self.rng.below(8) {
                0 => {}
                1 | 2 => self.late.push((self.written, to, version.clone())),
                _ => self.merge(to, &version),
            }
        }
    }

    /// The numbers of the writes that a node has.
    fn shown(&self, at: usize) -> Vec<u64> {
        let Some(object) = self.nodes[at].stored.clone().map(object_of) else { return Vec::new() };
        let value = |at: usize| u64::from_le_bytes(object.value(at)[..].try_into().unwrap());
        (0..object.head().siblings().len()).map(value).collect()
    }

    fn context(&self, at: usize) -> Option<Context> {
        Some(Head::decode(&self.nodes[at].stored.as_ref()?.head).unwrap().context().clone())
    }

    /// What was sent arrives, now and then; a second passes.
    fn pass(&mut self) {
        let (written, mut arrived) = (self.written, Vec::new());
        let rng = &mut self.rng;
        self.late.retain(|(sent, to, version)| {
            let arrives = sent + LATE_MAX <= written || rng.chance(1, 4);
            if arrives {
                arrived.push((*to, version.clone()));
            }
            !arrives
        });
        arrived.into_iter().for_each(|(to, version)| self.merge(to, &version));
        self.now = self.now + Duration::from_secs(1);
        for node in &mut self.nodes {
            node.graveyard.tick(self.now);
            node.graveyard.expire(|_| false);
        }
    }

    /// A process ends and another takes its place: it has no graves, another actor, and refuses what was sent to the
    /// one before.
    fn restart(&mut self, at: usize) {
        let actor = Actor(self.rng.next_u64());
        self.late.retain(|(_, to, _)| *to != at);
        let node = &mut self.nodes[at];
        (node.actor, node.graveyard) = (actor, Graveyard::new(KEEP));
        node.graveyard.tick(self.now);
    }

    /// All nodes come to have the same.
    fn repair(&mut self) {
        for from in 0..self.nodes.len() {
            for to in 0..self.nodes.len() {
                if let Some(version) = self.nodes[from].stored.clone().filter(|_| from != to) {
                    self.merge(to, &version);
                }
            }
        }
    }

    fn check(&mut self) {
        self.repair();
        let live: Vec<u64> = (1..=self.written).filter(|number| !self.overwritten.contains(number)).collect();
        for at in 0..self.nodes.len() {
            let mut shown = self.shown(at);
            shown.sort_unstable();
            assert_eq!(shown, live, "node {at} after {} writes", self.written);
        }
    }

    fn actors(&self, at: usize) -> usize {
        self.nodes[at].stored.as_ref().map_or(0, |stored| HeadView::actors_of(&stored.head))
    }
}

fn object_of(stored: Stored) -> Object {
    Object::new(Head::decode(&stored.head).unwrap(), stored.value.unwrap()).unwrap()
}

fn stored(object: &Object) -> Stored {
    let mut head = Vec::new();
    object.head().encode(&mut head);
    Stored { head: head.into(), value: Some(object.values().clone()) }
}

/// Restarts before each write of the key; checks every 16 writes. The folds, and the context after the first check.
fn restart_and_write(world: &mut World, writes: u32) -> (u32, Option<Context>) {
    let (mut folds, mut kept) = (0, None);
    for round in 0..writes {
        let at = world.rng.below(3) as usize;
        world.restart(at);
        let writer = world.rng.below(3) as usize;
        // Now and then without a context.
        let seen = match world.rng.below(16) {
            0 => None,
            _ => world.context(writer),
        };
        world.write(writer, seen);
        world.pass();
        if world.actors(writer) > FOLD_ACTORS {
            let lose = world.rng.chance(1, 4);
            folds += u32::from(world.fold(writer, lose));
        }
        if round % 16 == 0 {
            world.check();
            kept = kept.or(world.context(0));
        }
    }
    (folds, kept)
}

/// Whether no write is lost and none comes back.
#[cfg(feature = "planted")]
fn loses_nothing(seed: u64) -> bool {
    std::panic::catch_unwind(|| restart_and_write(&mut World::new(seed), 1_000)).is_ok()
}

/// `cargo test -p kv --features planted --test it planted`
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_of_folds_are_caught() {
    use base::planted::{Planted, plant};
    assert!((0..3).all(loses_nothing));
    for bug in [Planted::FoldedUnasked, Planted::FoldedLateStored] {
        plant(Some(bug));
        let is_caught = !(0..3).all(loses_nothing);
        plant(None);
        assert!(is_caught, "{bug:?}");
    }
}

#[test]
fn a_key_of_nodes_that_are_restarted_all_the_time_stays_small_and_loses_nothing() {
    for seed in 0..3 {
        let mut world = World::new(seed);
        let (folds, kept) = restart_and_write(&mut world, 5_000);
        assert!(folds > 20, "{folds}");
        // What a client read in the beginning brings entries back, which go again.
        world.check();
        let overwritten = world.overwritten.clone();
        world.write(0, kept);
        // It has seen nothing that is there by now.
        world.overwritten = overwritten;
        for _ in 0..20 {
            world.pass();
        }
        world.check();
        world.fold(0, false);
        for at in 0..3 {
            assert!(world.nodes[at].stored.as_ref().unwrap().head.len() <= 1024, "{}", world.actors(at));
        }
    }
}

#[test]
fn a_fold_leaves_the_entries_of_siblings_and_a_late_frame_brings_nothing_back() {
    let mut world = World::new(1);
    world.rng = SplitMix64::new(3);
    for _ in 0..30 {
        world.restart(0);
        let seen = world.context(0);
        world.write(0, seen);
        world.repair();
    }
    world.late.clear();
    let before = world.nodes[1].stored.clone().unwrap();
    let seen = world.context(0);
    world.write(0, seen);
    world.late.clear();
    world.repair();
    let unfolded = world.nodes[1].stored.clone().unwrap();
    assert!(world.fold(0, false));
    for at in 0..3 {
        assert_eq!(world.actors(at), 1);
        world.merge(at, &unfolded);
        assert_eq!(world.actors(at), 1, "as long as there are graves");
        world.merge(at, &before);
        assert_eq!(world.actors(at), 1);
    }
    world.check();
}

#[test]
fn one_that_disagrees_is_enough() {
    for case in 0..3 {
        let mut world = World::new(7);
        for _ in 0..30 {
            world.restart(0);
            let seen = world.context(0);
            world.write(0, seen);
        }
        world.late.clear();
        world.repair();
        match case {
            // It has something that was overwritten.
            0 => {
                let old = world.nodes[2].stored.clone();
                let seen = world.context(0);
                world.write(0, seen);
                world.nodes[2].stored = old;
                world.late.clear();
            }
            // It has lost what it had.
            1 => world.nodes[2].stored = None,
            _ => world.nodes[2].hinted = true,
        }
        let before = world.actors(0);
        assert!(before > FOLD_ACTORS && !world.fold(0, false));
        assert_eq!(world.actors(0), before, "case {case}");
    }
}

#[test]
fn a_key_that_is_written_meanwhile_is_folded_too() {
    let mut world = World::new(11);
    for _ in 0..30 {
        world.restart(0);
        let seen = world.context(0);
        world.write(0, seen);
        world.repair();
    }
    world.late.clear();
    let proposed = world.nodes[0].stored.clone().unwrap().head;
    // The others have something newer already.
    let seen = world.context(1);
    world.restart(1);
    world.write(1, seen);
    world.merge(2, &world.nodes[1].stored.clone().unwrap());
    for round in [Round::Promise, Round::Confirm, Round::Remove] {
        for at in [1, 2] {
            assert!(world.part(at, round, proposed.clone()), "{round:?} {at}");
        }
    }
    assert_eq!((world.actors(1), world.actors(2)), (2, 2), "the writer, and the one before it");
}
