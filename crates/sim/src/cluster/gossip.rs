//! Many buckets, nodes that all start at once, and changes of one bucket at the same time: row C16.
//!
//! 1. *Filling*: one node is given the properties of many buckets, and all others hear of them.
//! 2. *Starting*: all processes die, and start again at once, an hour behind. All of them know the same; they are to
//!    say so to each other, and no more.
//! 3. *Editing*: half of the nodes are cut from the other half, and a node on each side changes the same buckets. Their
//!    clocks are too far behind to follow the stamps, so each change is the next one after the last for both.
//! 4. *Quiet*: the links are mended. Within half a minute all nodes know the same of each bucket; and then nothing
//!    changes any more.
//!
//! What nodes send each other at rest is bounded, while they are started and afterwards.

use super::ending::Phase;
use super::plan::Plan;
use super::script::Script;
use super::{World, node_id};
use crate::Kind;
use crate::check::{Verdict, Violation};
use crate::seed::{Seed, index_below};
use crate::trace::Keep;
use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use bytes::Bytes;
use kv::{Bucket, BucketProps, Prop, Request};
use node::PeerMessage;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Changes that wait for their answers.
const FILLING_MAX: usize = 64;
/// Buckets that are changed on both sides.
const EDITS: u32 = 20;
/// Buckets that nodes are asked for, beside those that were changed.
const SAMPLE: u32 = 20;
/// How long nodes may take until all know the same.
const CONVERGE_MAX: Duration = Duration::from_secs(30);
/// How long they are looked at when all is quiet.
const QUIET: Duration = Duration::from_secs(20);
/// How long the two sides are cut from each other.
const CUT: Duration = Duration::from_secs(5);
/// What a node may send in a second.
const BYTES_PER_SECOND_MAX: u64 = 50_000;
/// The step of the clocks before the start: it puts them farther behind all changes than a clock of versions follows.
const BEHIND_US: i64 = -3_600_000_000;

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Nodes.
    pub nodes: usize,
    /// Buckets with properties of their own.
    pub buckets: u32,
    /// How long it took from the start of the last node until all knew the same, and after the cut.
    pub converged: (Duration, Duration),
    /// Bytes that a node sent in a second at most: from the start on, and when all was quiet.
    pub bytes: (u64, u64),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { nodes, buckets, converged, bytes } = self;
        write!(
            f,
            "{nodes} nodes, {buckets} buckets: alike {:.1?} after a start of all, {:.1?} after a cut; ",
            converged.0, converged.1
        )?;
        write!(f, "at most {} bytes/s of a node while they start, {} at rest", bytes.0, bytes.1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Filling,
    /// All processes are to run again.
    Starting,
    /// Since when all run; they are to know the same.
    Comparing(Monotonic),
    /// They do. Until then it is counted what they send.
    Counting(Monotonic),
    /// Until then sides are cut from each other.
    Cut(Monotonic),
    /// Since when they are not.
    Merging(Monotonic),
    /// Until then nothing may change.
    Quiet(Monotonic),
}

/// How far it is.
#[derive(Debug)]
pub(super) struct Gossip {
    rng: SplitMix64,
    step: Step,
    buckets: u32,
    /// The first that was not changed yet.
    next: u32,
    /// What nodes have said of the buckets that they were asked for.
    told: BTreeMap<(usize, u32), Arc<BucketProps>>,
    asked: BTreeSet<u32>,
    /// When bytes were counted from.
    since: Monotonic,
    /// Changes that one node told another since everything was alike.
    changes: u64,
    outcome: Outcome,
}

/// Plays it, with so many nodes and buckets.
///
/// # Errors
/// The promise that was broken.
pub fn run(seed: Seed, nodes: usize, buckets: u32) -> Result<Outcome, Violation> {
    let plan = Plan::calm(seed, nodes);
    let mut world = World::with(Kind::Cluster, seed, plan, Keep::Hash);
    world.script = Some(Script::Gossip(Gossip {
        rng: seed.stream("gossip", 0),
        step: Step::Filling,
        buckets,
        next: 0,
        told: BTreeMap::new(),
        asked: BTreeSet::new(),
        since: Monotonic(0),
        changes: 0,
        outcome: Outcome { nodes, buckets, ..Outcome::default() },
    }));
    world.live().1?;
    let Some(Script::Gossip(gossip)) = world.script else { unreachable!("it was played") };
    Ok(gossip.outcome)
}

/// The bucket with this number.
pub(super) fn bucket(at: u32) -> Bucket {
    Bucket::untyped(Bytes::from(format!("b{at}")))
}

impl Gossip {
    pub(super) fn on_message(&mut self, message: &PeerMessage) {
        self.changes += u64::from(matches!(message, PeerMessage::Props { .. }));
    }

    /// Whether all nodes have said the same.
    fn are_alike(&self, nodes: usize) -> bool {
        let is_alike = |at: &u32| {
            let first = self.told.get(&(0, *at));
            first.is_some() && (1..nodes).all(|node| self.told.get(&(node, *at)) == first)
        };
        self.asked.iter().all(is_alike)
    }

    fn differing(&self, nodes: usize) -> String {
        let known = |at: &u32| {
            let told = (0..nodes).map(|node| self.told.get(&(node, *at)).map(|props| props.big_vclock));
            format!("b{at}: {:?}", told.collect::<Vec<_>>())
        };
        self.asked.iter().map(known).collect::<Vec<_>>().join("; ")
    }
}

impl World {
    pub(super) fn play_gossip(&mut self, gossip: &mut Gossip) -> Verdict {
        let (now, nodes) = (self.events.now(), self.hosts.len());
        gossip.told.append(&mut self.auditor.props);
        match gossip.step {
            Step::Filling => return self.fill(gossip),
            Step::Starting if self.are_all_up() => {
                gossip.step = Step::Comparing(now);
                self.count_bytes_from(gossip);
                self.ask_for_some(gossip)?;
            }
            Step::Comparing(since) if !self.auditor.is_asking_props() => {
                if !gossip.are_alike(nodes) {
                    return self.compare_again(gossip, since);
                }
                gossip.outcome.converged.0 = now.since(since);
                gossip.step = Step::Counting(since + QUIET);
            }
            Step::Counting(until) if now >= until => {
                gossip.outcome.bytes.0 = self.bytes_per_second(gossip)?;
                self.edit(gossip)?;
                gossip.step = Step::Cut(now + CUT);
            }
            Step::Cut(until) if now >= until => {
                self.inside.heal_all();
                (0..nodes).for_each(|at| self.links_changed(at));
                gossip.step = Step::Merging(now);
                gossip.told.clear();
            }
            Step::Merging(since) if !self.auditor.is_asking_props() => {
                if gossip.told.is_empty() {
                    self.ask_for_some(gossip)?;
                } else if gossip.are_alike(nodes) {
                    gossip.outcome.converged.1 = now.since(since);
                    gossip.step = Step::Quiet(now + QUIET);
                } else {
                    return self.compare_again(gossip, since);
                }
            }
            Step::Quiet(until) if now + QUIET / 2 < until => {
                // What was under way arrives.
                gossip.changes = 0;
                self.count_bytes_from(gossip);
            }
            Step::Quiet(until) if now >= until => return self.end_gossip(gossip),
            _ => {}
        }
        Ok(())
    }

    fn fill(&mut self, gossip: &mut Gossip) -> Verdict {
        while gossip.next < gossip.buckets && self.auditor.editing() < FILLING_MAX {
            self.edit_bucket(0, gossip.next, gossip.next)?;
            gossip.next += 1;
        }
        if gossip.next == gossip.buckets && self.auditor.editing() == 0 {
            gossip.step = Step::Starting;
            for at in 0..self.hosts.len() {
                self.hosts[at].machine.clock.jump(BEHIND_US);
                self.hosts[at].machine.disk.kill();
                self.follow_up(at);
            }
        }
        Ok(())
    }

    fn are_all_up(&mut self) -> bool {
        let nodes = self.hosts.len();
        let sees_all =
            |shard: Option<&mut node::Shard>| shard.is_some_and(|it| it.stats().peers_up + 1 >= nodes);
        (0..nodes).all(|at| sees_all(self.hosts[at].machine.shard(0)))
    }

    /// Asks all nodes for the properties of some buckets, those that are changed on both sides among them.
    fn ask_for_some(&mut self, gossip: &mut Gossip) -> Verdict {
        gossip.told.clear();
        let all = gossip.buckets;
        let some = (0..SAMPLE).map(|_| u32::try_from(gossip.rng.below(u64::from(all))).expect("a bucket"));
        gossip.asked = (0..EDITS.min(all)).chain(some).collect();
        for at in 0..self.hosts.len() {
            for number in gossip.asked.clone() {
                self.ask_bucket(at, number)?;
            }
        }
        Ok(())
    }

    fn compare_again(&mut self, gossip: &mut Gossip, since: Monotonic) -> Verdict {
        if self.events.now() > since + CONVERGE_MAX {
            let what = gossip.differing(self.hosts.len());
            return Err(Violation::new("all nodes come to know the same of buckets", what));
        }
        self.ask_for_some(gossip)
    }

    /// Cuts the nodes into two sides, and changes buckets on both.
    fn edit(&mut self, gossip: &mut Gossip) -> Verdict {
        let nodes = self.hosts.len();
        let middle = nodes / 2;
        for one in 0..middle {
            for other in middle..nodes {
                self.inside.cut(node_id(one), node_id(other));
                self.inside.cut(node_id(other), node_id(one));
            }
        }
        (0..nodes).for_each(|at| self.links_changed(at));
        let sides =
            [index_below(&mut gossip.rng, middle), middle + index_below(&mut gossip.rng, nodes - middle)];
        for (side, at) in sides.into_iter().enumerate() {
            for number in 0..EDITS.min(gossip.buckets) {
                // Neither side's is always the larger.
                let change = u32::try_from(gossip.rng.below(100)).expect("small") * 2 + u32::from(side == 1);
                self.edit_bucket(at, number, change)?;
            }
        }
        Ok(())
    }

    fn count_bytes_from(&mut self, gossip: &mut Gossip) {
        gossip.since = self.events.now();
        self.hosts.iter_mut().for_each(|host| host.sent_bytes = 0);
    }

    /// What a node has sent in a second at most.
    fn bytes_per_second(&self, gossip: &Gossip) -> Result<u64, Violation> {
        let millis =
            u64::try_from(self.events.now().since(gossip.since).as_millis()).expect("seconds").max(1);
        let most = self.hosts.iter().map(|host| host.sent_bytes * 1000 / millis).max().unwrap_or_default();
        if most > BYTES_PER_SECOND_MAX {
            let what = format!("{most} bytes in a second, {BYTES_PER_SECOND_MAX} may be");
            return Err(Violation::new("metadata sync between nodes is bounded", what));
        }
        Ok(most)
    }

    fn end_gossip(&mut self, gossip: &mut Gossip) -> Verdict {
        gossip.outcome.bytes.1 = self.bytes_per_second(gossip)?;
        if gossip.changes > 0 {
            let what = format!("{} were told when all knew the same", gossip.changes);
            return Err(Violation::new("a change is told once", what));
        }
        self.phase = Phase::Over;
        Ok(())
    }

    /// Has a node change a bucket.
    fn edit_bucket(&mut self, at: usize, number: u32, change: u32) -> Verdict {
        // A property that changes nothing about where objects are.
        let props = vec![Prop::BigVclock(change + 100)];
        self.edit_props(at, Request::SetProps(bucket(number), props))
    }
}
