//! What a node copies from others while owners change, in the way of a shard: from a few nodes at a time, a part after
//! the other, again after a pause where somebody cannot be reached or does not know of the target.
//!
//! A process that starts again begins again: what it has it is asked for once more.

use super::store::Number;
use super::{Event, Life, World};
use crate::seed::duration_between;
use membership::NodeId;
use ring::{Partition, RingVersion};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// Partitions of one part.
const PARTITIONS_MAX: usize = 16;
/// How long one that has failed waits.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// What a sender had of some partitions when it was asked.
type Part = Vec<(Partition, BTreeSet<Number>)>;

/// What a process copies.
#[derive(Default)]
pub(super) struct Copies {
    target: Option<RingVersion>,
    /// By whom from.
    left: BTreeMap<NodeId, Vec<Partition>>,
    /// What is on its way from whom, for which target.
    running: BTreeMap<NodeId, (RingVersion, Part)>,
}

impl Copies {
    /// The target that it has all for, if there is one.
    pub(super) fn done(&self) -> Option<RingVersion> {
        self.target.filter(|_| self.left.is_empty())
    }
}

impl World {
    /// The shards of a process go by what was published under this version, unless they know a later one.
    pub(super) fn hear(&mut self, life: Life, version: RingVersion) {
        let known = Rc::clone(&self.published[&version]);
        let node = life.0;
        let Some(process) = self.process(life) else { return };
        if process.known.as_ref().is_some_and(|before| before.version() >= version) {
            return;
        }
        process.known = Some(Rc::clone(&known));
        let target = known.target();
        if target != process.copies.target {
            let left = if target.is_some() { known.wanted_by(node) } else { BTreeMap::new() };
            process.copies = Copies { target, left, running: BTreeMap::new() };
            self.copy(life);
        }
        if known.topology.is_at_rest() {
            let host = self.hosts.get_mut(&node).expect("its process runs");
            host.store.drop_strays(node, &known);
        }
    }

    /// Begins what may be copied now.
    pub(super) fn copy(&mut self, life: Life) {
        let here = life.0;
        loop {
            let Some(process) = self.process(life) else { return };
            let Some(known) = process.known.clone() else { return };
            let most = usize::try_from(known.topology.budget.received_max).expect("few");
            let copies = &process.copies;
            let waits = copies.left.keys().filter(|from| !copies.running.contains_key(from));
            let waits: Vec<NodeId> = waits.copied().collect();
            let (Some(target), true) = (copies.target, copies.running.len() < most) else { return };
            let Some(&giver) = waits.iter().find(|giver| self.gives(**giver, here, target)) else {
                if !waits.is_empty() {
                    self.events.after(RETRY_AFTER, Event::Copy(life));
                }
                return;
            };
            let from = self.hosts.get_mut(&giver).expect("it gives");
            from.process.as_mut().expect("it gives").sending += 1;
            let from_life = from.life();
            let process = self.process(life).expect("it runs");
            let left = &process.copies.left[&giver];
            let part: Vec<Partition> = left.iter().take(PARTITIONS_MAX).copied().collect();
            let store = &self.hosts[&giver].store;
            let part = part.into_iter().map(|partition| (partition, store.of(partition))).collect();
            let process = self.process(life).expect("it runs");
            process.copies.running.insert(giver, (target, part));
            let takes = duration_between(&mut self.rng, Duration::from_millis(1), self.plan.part_max);
            self.events.after(takes, Event::Part(life, from_life, target));
        }
    }

    /// Whether a node gives another what it is to have for this target.
    fn gives(&self, giver: NodeId, to: NodeId, target: RingVersion) -> bool {
        let process = self.hosts.get(&giver).and_then(|host| host.process.as_ref());
        self.reaches(to, giver)
            && process.is_some_and(|process| {
                process.known.as_ref().is_some_and(|known| {
                    known.target() == Some(target) && process.sending < known.topology.budget.sent_max
                })
            })
    }

    /// A part has come, unless one of both has died, or they were cut from each other.
    pub(super) fn on_part(&mut self, life: Life, from: Life, target: RingVersion) {
        let giver = from.0;
        let sender = self.process(from);
        let has_sent = sender.is_some();
        sender.into_iter().for_each(|sender| sender.sending -= 1);
        let Some(process) = self.process(life) else { return };
        // It may be of a target that was given up.
        let running = &mut process.copies.running;
        if running.get(&giver).is_none_or(|(of, _)| *of != target) {
            return;
        }
        let Some((_, part)) = running.remove(&giver) else { return };
        if has_sent && self.reaches(life.0, giver) {
            self.take_part(life, giver, part);
        }
        self.copy(life);
    }

    fn take_part(&mut self, life: Life, giver: NodeId, part: Part) {
        self.copied += part.len() as u64;
        let copies = &mut self.process(life).expect("it runs").copies;
        let left = copies.left.get_mut(&giver).expect("it was asked for");
        left.drain(..part.len());
        if left.is_empty() {
            copies.left.remove(&giver);
        }
        let store = &mut self.hosts.get_mut(&life.0).expect("it runs").store;
        part.into_iter().for_each(|(partition, numbers)| store.take(partition, numbers));
    }
}
