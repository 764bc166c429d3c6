//! Nodes and their journals: starts, crashes, lost and damaged disks.

use std::collections::{BTreeMap, BTreeSet};

use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use bytes::Bytes;
use strong::group::{Batch, Birth, Entry, Group, GroupState, Identity, Version};
use strong::linearizability::{Action, Outcome};

use super::network::PING_EVERY;
use super::{Event, FOUNDING, MILLISECOND, World};

/// A record of a node's journal.
#[derive(Clone)]
enum Record {
    Batch(Batch),
    /// All entries up to an index are applied.
    Applied(u64),
}

/// The value of a key and its version.
pub type Held = (Version, u64);

/// The contents of a journal.
struct Replayed {
    state: GroupState,
    entries: Vec<Entry>,
    table: BTreeMap<Bytes, Held>,
}

pub struct Node {
    /// The birth that the cluster has registered.
    pub(super) birth: Birth,
    pub group: Option<Group>,
    /// Number of this start of the process.
    pub(super) life: u64,
    pub table: BTreeMap<Bytes, Held>,
    disk: Vec<Record>,
    /// Records that are synced.
    pub(super) synced: usize,
    last_sync: Monotonic,
    pub(super) paused_until: Monotonic,
    /// When each peer was heard, and its life.
    pub(super) heard: BTreeMap<usize, (Monotonic, u64)>,
    pub(super) up: BTreeSet<usize>,
    /// It lost its disk, and is another voter now, which no group knows.
    pub is_gone: bool,
    /// The cluster refuses to register it: another process has its number.
    pub is_refused: bool,
    /// Its group said that it forgot.
    pub forgot: bool,
}

impl Node {
    pub(super) fn new(birth: Birth) -> Node {
        Node {
            birth,
            group: None,
            life: 0,
            table: BTreeMap::new(),
            disk: Vec::new(),
            synced: 0,
            last_sync: Monotonic(0),
            paused_until: Monotonic(0),
            heard: BTreeMap::new(),
            up: BTreeSet::new(),
            is_gone: false,
            is_refused: false,
            forgot: false,
        }
    }
}

impl World {
    fn replay(&self, node: usize) -> Replayed {
        let mut state = GroupState::found(FOUNDING, self.configuration.clone());
        let (mut entries, mut table) = (BTreeMap::new(), BTreeMap::new());
        for record in &self.nodes[node].disk {
            match record {
                Record::Batch(batch) => {
                    state.hard = batch.hard.unwrap_or(state.hard);
                    for entry in &batch.entries {
                        let is_other = |known: &Entry| known.term != entry.term;
                        if entries.get(&entry.index).is_some_and(is_other) {
                            entries.split_off(&entry.index);
                        }
                        entries.insert(entry.index, entry.clone());
                    }
                }
                Record::Applied(through) => {
                    for (_, entry) in entries.range(state.applied + 1..=*through) {
                        apply(&mut table, entry);
                    }
                    (state.applied, state.commit) = (*through, *through);
                }
            }
        }
        Replayed { state, entries: entries.into_values().collect(), table }
    }

    /// Starts a node that is down.
    pub fn start(&mut self, node: usize) {
        if self.nodes[node].group.is_some() || self.nodes[node].is_gone {
            return;
        }
        let Replayed { state, entries, table } = self.replay(node);
        self.open(node, state, entries, table, None);
    }

    /// Starts a node of which entries from an index on are damaged.
    pub fn start_damaged(&mut self, node: usize, from: u64) {
        let Replayed { state, mut entries, table } = self.replay(node);
        let through = entries.last().unwrap().index;
        assert!(state.applied < from && from <= through, "an entry that is not applied");
        entries.retain(|entry| entry.index < from);
        self.open(node, state, entries, table, Some(through));
    }

    fn open(
        &mut self,
        node: usize,
        state: GroupState,
        entries: Vec<Entry>,
        table: BTreeMap<Bytes, Held>,
        suspect_through: Option<u64>,
    ) {
        let rank = u32::try_from(node).unwrap();
        let identity = Identity { voter: self.voter(node), rank, founding: FOUNDING, epoch: 0 };
        let rng = Box::new(SplitMix64::new(self.rng.next_u64()));
        let group = Group::open(identity, state, entries, suspect_through, rng).unwrap();
        let others = (0..self.nodes.len()).filter(|other| *other != node);
        let it = &mut self.nodes[node];
        it.life += 1;
        (it.group, it.table, it.up) = (Some(group), table, others.clone().collect());
        it.heard = others.map(|other| (other, (self.now, 0))).collect();
        let life = it.life;
        let (ping, register) = (self.rng.below(PING_EVERY), self.rng.below(200 * MILLISECOND));
        self.after(ping, Event::Ping { node, life });
        if !self.nodes[node].is_refused {
            self.after(register, Event::Register { node, life });
        }
    }

    /// Ends a node's process; of its records that are not synced, the first few stay, and a part of the next one.
    pub fn crash(&mut self, node: usize) {
        if self.nodes[node].group.take().is_none() {
            return;
        }
        let unsynced = self.nodes[node].disk.len() - self.nodes[node].synced;
        let kept = self.nodes[node].synced + self.below(unsynced + 1);
        let torn = self.nodes[node].disk.get(kept).cloned();
        self.nodes[node].disk.truncate(kept);
        if let Some(Record::Batch(mut batch)) = torn.filter(|_| self.rng.chance(1, 2)) {
            // Term and vote stand in front of the entries.
            batch.entries.truncate(self.below(batch.entries.len() + 1));
            self.nodes[node].disk.push(Record::Batch(batch));
        }
        let it = &mut self.nodes[node];
        it.synced = it.disk.len();
        it.paused_until = Monotonic(0);
        it.life += 1;
        let lost: Vec<u64> =
            self.pending.iter().filter(|(_, it)| it.node == node).map(|(&it, _)| it).collect();
        for token in lost {
            let outcome = match self.pending[&token].operation.action {
                Action::Get => Outcome::Unavailable,
                _ => Outcome::Timeout,
            };
            self.finish(token, outcome);
        }
    }

    /// Ends a node's process, and empties its disk.
    pub fn lose_disk(&mut self, node: usize) {
        self.crash(node);
        let registered = self.nodes[node].birth;
        let birth = Birth::at_start(None, Some(registered), true, &mut self.rng);
        let it = &mut self.nodes[node];
        (it.disk, it.synced) = (Vec::new(), 0);
        it.is_gone = birth != registered;
    }

    /// Ends a node's process, and puts the first records of its journal in the place of all.
    pub fn roll_back(&mut self, node: usize, records: usize) {
        self.crash(node);
        let it = &mut self.nodes[node];
        it.disk.truncate(records);
        it.synced = it.disk.len();
    }

    pub fn records(&self, node: usize) -> usize {
        self.nodes[node].disk.len()
    }

    pub(super) fn persist(&mut self, node: usize, batch: Batch) {
        let slow = if self.rng.chance(1, 50) { self.rng.below(300 * MILLISECOND) } else { 0 };
        let done = Monotonic(self.now.0 + MILLISECOND / 10 + self.rng.below(3 * MILLISECOND) + slow);
        let it = &mut self.nodes[node];
        let (number, life) = (batch.number, it.life);
        it.disk.push(Record::Batch(batch));
        it.last_sync = Monotonic(it.last_sync.0 + 1).max(done);
        let (records, at) = (it.disk.len(), it.last_sync);
        self.at(at, Event::Synced { node, life, number, records });
    }

    pub(super) fn apply(&mut self, node: usize, entries: Vec<Entry>) {
        let through = entries.last().unwrap().index;
        for entry in entries {
            let known = self.entries.entry(entry.index).or_insert_with(|| entry.clone());
            assert_eq!(*known, entry, "two entries {} at node {node}", entry.index);
            apply(&mut self.nodes[node].table, &entry);
        }
        self.nodes[node].disk.push(Record::Applied(through));
    }
}

fn apply(table: &mut BTreeMap<Bytes, Held>, entry: &Entry) {
    let Some(write) = &entry.write else { return };
    match &write.object {
        Some(object) => {
            let value = u64::from_le_bytes(object[..].try_into().unwrap());
            table.insert(write.key.clone(), (Version::new(0, entry.index), value));
        }
        None => {
            table.remove(&write.key);
        }
    }
}
