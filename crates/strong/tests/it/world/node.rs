//! Nodes and their journals: starts, crashes, lost and damaged disks.

use std::collections::{BTreeMap, BTreeSet};

use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use bytes::Bytes;
use strong::group::{Batch, Birth, Entry, Group, GroupState, Identity, Payload, Progress, Stored, Version};
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

/// Versions and values by key; a tombstone has no value.
pub type Table = BTreeMap<Bytes, (Version, Option<u64>)>;

pub struct Node {
    /// The birth that the cluster has registered.
    pub(super) birth: Birth,
    pub group: Option<Group>,
    /// Number of this start of the process.
    pub(super) life: u64,
    pub table: Table,
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

    /// The value of a key and its version, unless it is absent or deleted.
    pub fn held(&self, key: &Bytes) -> Option<Held> {
        let &(version, value) = self.table.get(key)?;
        Some((version, value?))
    }
}

impl World {
    fn replay(&self, node: usize) -> (Stored, Table) {
        let mut state = GroupState::found(FOUNDING, self.configuration.clone());
        let mut progress = Progress::FOUNDED;
        let (mut entries, mut table) = (BTreeMap::<u64, Entry>::new(), Table::new());
        for record in &self.nodes[node].disk {
            match record {
                Record::Batch(batch) => {
                    state = batch.state.clone().unwrap_or(state);
                    for entry in &batch.entries {
                        let is_other = |known: &Entry| known.term != entry.term;
                        if entries.get(&entry.index).is_some_and(is_other) {
                            entries.split_off(&entry.index);
                        }
                        entries.insert(entry.index, entry.clone());
                    }
                }
                Record::Applied(through) => {
                    for (_, entry) in entries.range(progress.applied.0 + 1..=*through) {
                        apply(&mut table, entry);
                    }
                    progress = Progress { applied: (*through, entries[through].term), commit: *through };
                }
            }
        }
        let entries = entries.into_values().collect();
        (Stored { state, progress, base: (1, 1), entries, suspect_through: None }, table)
    }

    /// Starts a node that is down.
    pub fn start(&mut self, node: usize) {
        if self.nodes[node].group.is_some() || self.nodes[node].is_gone {
            return;
        }
        let (stored, table) = self.replay(node);
        self.open(node, stored, table);
    }

    /// Starts a node of which entries from an index on are damaged.
    pub fn start_damaged(&mut self, node: usize, from: u64) {
        let (mut stored, table) = self.replay(node);
        let through = stored.entries.last().unwrap().index;
        assert!(stored.progress.applied.0 < from && from <= through, "an entry that is not applied");
        stored.entries.retain(|entry| entry.index < from);
        stored.suspect_through = Some(through);
        self.open(node, stored, table);
    }

    fn open(&mut self, node: usize, stored: Stored, table: Table) {
        let rank = u32::try_from(node).unwrap();
        let identity = Identity { voter: self.voter(node), rank, founding: FOUNDING, epoch: 0 };
        let rng = Box::new(SplitMix64::new(self.rng.next_u64()));
        let group = Group::open(identity, stored, rng).unwrap();
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

/// Applies an entry. It never replaces an equal or a newer version.
fn apply(table: &mut Table, entry: &Entry) {
    match &entry.payload {
        Payload::Write(write) => {
            let value =
                write.object.as_ref().map(|object| u64::from_le_bytes(object[..].try_into().unwrap()));
            put(table, write.key.clone(), Version::new(0, entry.index), value);
        }
        Payload::Reap { through } => {
            table.retain(|_, (version, value)| value.is_some() || version.index() > *through);
        }
        Payload::First | Payload::Configuration(_) => {}
    }
}

fn put(table: &mut Table, key: Bytes, version: Version, value: Option<u64>) {
    if table.get(&key).is_none_or(|(held, _)| *held < version) {
        table.insert(key, (version, value));
    }
}
