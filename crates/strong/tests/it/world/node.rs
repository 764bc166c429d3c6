//! Nodes and their journals: starts, crashes, lost and damaged disks.

use std::collections::{BTreeMap, BTreeSet};

use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use bytes::Bytes;
use strong::catch_up::{Checkpoint, Item, Receiver, Sender};
use strong::forward::ForwardWindow;
use strong::group::{
    Batch, Birth, Configuration, Entry, Group, GroupState, Identity, Input, Install, Payload, Progress,
    RecoverError, Stored, Version, VoterId,
};
use strong::linearizability::{Action, Outcome};
use strong::wake::{MarkedGroups, WakeQueue};

use super::network::PING_EVERY;
use super::{Event, FOUNDING, MILLISECOND, SECOND, World};

/// A record of a node's journal.
#[derive(Clone)]
enum Record {
    /// A batch of the group.
    Batch(Batch),
    /// All entries up to an index are applied.
    Applied(u64),
    /// A part of a catch-up.
    Part { drops: bool, items: Vec<Item>, checkpoint: Checkpoint },
    /// The catch-up has ended.
    Forget,
}

/// The contents of a journal.
pub(super) struct Replayed {
    pub(super) stored: Stored,
    table: Table,
    checkpoint: Option<Checkpoint>,
}

/// The value of a key and its version.
pub type Held = (Version, u64);

/// Versions and values by key; a tombstone has no value.
pub type Table = BTreeMap<Bytes, (Version, Option<u64>)>;

pub struct Node {
    /// The birth of its store.
    pub(super) birth: Birth,
    /// The voters that it knows to be registered, by node.
    known: Vec<VoterId>,
    pub group: Option<Group>,
    /// Number of this start of the process.
    pub(super) life: u64,
    pub table: Table,
    /// Keys of the table that cannot be read.
    pub damaged: BTreeSet<Bytes>,
    /// Catch-ups of other nodes.
    pub(super) senders: BTreeMap<usize, Sender>,
    pub(super) receiver: Receiver,
    pub(super) forwards: ForwardWindow,
    /// The group at rest, for each voter that it settled without.
    pub(super) marked: MarkedGroups<()>,
    /// The group without a leader.
    pub(super) leaderless: WakeQueue<()>,
    /// The node that sends a catch-up here.
    pub(super) sender: Option<usize>,
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
    pub(super) fn new(birth: Birth, known: &[VoterId]) -> Node {
        Node {
            birth,
            known: known.to_vec(),
            group: None,
            life: 0,
            table: BTreeMap::new(),
            damaged: BTreeSet::new(),
            senders: BTreeMap::new(),
            receiver: Receiver::default(),
            forwards: ForwardWindow::default(),
            marked: MarkedGroups::default(),
            leaderless: WakeQueue::default(),
            sender: None,
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

    /// All keys that are not deleted.
    pub fn live(&self) -> Vec<(&Bytes, Held)> {
        self.table.iter().filter_map(|(key, &(version, value))| Some((key, (version, value?)))).collect()
    }

    /// The value of a key and its version, unless it is absent or deleted.
    pub fn held(&self, key: &Bytes) -> Option<Held> {
        let &(version, value) = self.table.get(key)?;
        Some((version, value?))
    }
}

impl World {
    pub(super) fn replay(&self, node: usize) -> Replayed {
        let configuration = self.configuration.clone().with_learner(self.voter(node));
        let mut state = GroupState::found(FOUNDING, configuration);
        let mut progress = Progress::FOUNDED;
        let (mut base, mut known) = (progress.applied, None);
        let (mut entries, mut table) = (BTreeMap::<u64, Entry>::new(), Table::new());
        for record in &self.nodes[node].disk {
            match record {
                Record::Batch(batch) => {
                    progress.commit = progress.commit.max(batch.commit);
                    state = batch.state.clone().unwrap_or(state);
                    if let Some(Install { index, term }) = batch.install {
                        base = (index, term);
                        progress = Progress { applied: base, commit: progress.commit.max(index) };
                        entries.clear();
                    }
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
                    let commit = progress.commit.max(*through);
                    progress = Progress { applied: (*through, entries[through].term), commit };
                }
                Record::Part { drops, items, checkpoint } => {
                    put_part(&mut table, *drops, items);
                    known = Some(checkpoint.clone());
                }
                Record::Forget => known = None,
            }
        }
        if self.limits.forgets_applied {
            base = progress.applied;
            entries = entries.split_off(&(base.0 + 1));
        }
        let entries = entries.into_values().collect();
        let is_incomplete = known.as_ref().is_some_and(|known: &Checkpoint| known.is_incomplete);
        let stored = Stored { state, progress, base, entries, suspect_through: None, is_incomplete };
        Replayed { stored, table, checkpoint: known }
    }

    /// Starts a node that is down.
    pub fn start(&mut self, node: usize) {
        if self.nodes[node].group.is_some() || self.nodes[node].is_gone {
            return;
        }
        let replayed = self.replay(node);
        self.open(node, replayed);
    }

    /// Starts a node of which entries from an index on are damaged.
    pub fn start_damaged(&mut self, node: usize, from: u64) {
        let mut replayed = self.replay(node);
        let stored = &mut replayed.stored;
        let through = stored.entries.last().unwrap().index;
        assert!(stored.progress.applied.0 < from && from <= through, "an entry that is not applied");
        stored.entries.retain(|entry| entry.index < from);
        stored.suspect_through = Some(through);
        self.open(node, replayed);
    }

    /// Makes the survivors of a lost majority all voters, on the store of one that is down, in the epoch after the
    /// founding's first one.
    pub fn recover(&mut self, node: usize, lost: &BTreeSet<VoterId>) -> Result<(), RecoverError> {
        let Replayed { stored, checkpoint, .. } = self.replay(node);
        let has_catch_up = checkpoint.is_some_and(|known| known.has_changed_keys());
        let configuration = |entry: &Entry| match &entry.payload {
            Payload::Configuration(configuration) => Some(configuration.clone()),
            _ => None,
        };
        let unapplied: Vec<Configuration> = stored.entries.iter().filter_map(configuration).collect();
        let state = stored.state.recover(self.voter(node), lost, &unapplied, has_catch_up, 1)?;
        // As a node does it: the last configuration of a log is in force.
        let entries = stored.entries.iter().filter(|entry| configuration(entry).is_some());
        let entries = entries.map(|entry| Entry { payload: Payload::First, ..entry.clone() }).collect();
        let batch = Batch { number: 0, state: Some(state), commit: 0, install: None, entries };
        let it = &mut self.nodes[node];
        it.disk.push(Record::Batch(batch));
        it.synced = it.disk.len();
        Ok(())
    }

    /// The voter of another node, as far as a node knows.
    pub fn known(&self, node: usize, other: usize) -> VoterId {
        self.nodes[node].known[other]
    }

    /// The cluster registers the store of a node. The others hear of it some time later.
    pub(super) fn register(&mut self, node: usize) {
        self.registered[node] = self.voter(node);
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            if self.known(other, node) != self.registered[node] {
                let (life, delay) = (self.nodes[other].life, self.rng.below(SECOND));
                self.after(delay, Event::Agree { node: other, life });
            }
        }
        self.agree(node);
        self.step(node, Input::Registered);
    }

    /// A node hears of the voters that are registered now.
    pub(super) fn agree(&mut self, node: usize) {
        let voters = self.registered.clone();
        let changed: Vec<usize> =
            (0..voters.len()).filter(|other| self.known(node, *other) != voters[*other]).collect();
        for other in changed {
            self.nodes[node].senders.remove(&other);
        }
        self.nodes[node].known.clone_from(&voters);
        self.step(node, Input::Listed { voters });
    }

    fn open(&mut self, node: usize, Replayed { stored, table, checkpoint }: Replayed) {
        let applied = stored.progress.applied.0;
        let rank = u32::try_from(node).unwrap();
        let identity = Identity { voter: self.voter(node), rank, founding: FOUNDING };
        let rng = Box::new(SplitMix64::new(self.rng.next_u64()));
        let group = Group::open(identity, stored, rng).unwrap();
        let others = (0..self.nodes.len()).filter(|other| *other != node);
        let it = &mut self.nodes[node];
        it.life += 1;
        (it.group, it.table, it.up) = (Some(group), table, others.clone().collect());
        it.heard = others.map(|other| (other, (self.now, 0))).collect();
        let life = it.life;
        let mut out = Vec::new();
        self.nodes[node].receiver = Receiver::open(checkpoint, applied, &mut out);
        self.on_received(node, out);
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
        it.senders.clear();
        it.forwards = ForwardWindow::default();
        (it.marked, it.leaderless) = (MarkedGroups::default(), WakeQueue::default());
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
        self.count("new disk");
        let it = &mut self.nodes[node];
        (it.disk, it.synced) = (Vec::new(), 0);
        self.begin_anew(node, None, true);
    }

    /// Ends a node's process, and damages the newest state of its group, so that a start finds the one before.
    pub fn damage_state(&mut self, node: usize) {
        self.crash(node);
        let mut states = self.nodes[node].disk.iter_mut().rev().filter_map(|record| match record {
            Record::Batch(batch) => Some(&mut batch.state),
            _ => None,
        });
        if let Some(newest) = states.find(|state| state.is_some()) {
            *newest = None;
        }
        self.begin_anew(node, Some(self.nodes[node].birth), false);
        let Stored { state, entries, .. } = self.replay(node).stored;
        // A node that finds such entries draws a new birth, too.
        self.nodes[node].is_gone |= entries.last().is_some_and(|last| last.term > state.hard.term);
    }

    /// Draws the birth of a store whose next start finds `stored`. One with another birth is gone.
    fn begin_anew(&mut self, node: usize, stored: Option<Birth>, is_complete: bool) {
        let registered = self.nodes[node].birth;
        let birth = Birth::at_start(stored, Some(registered), is_complete, &mut self.rng);
        let it = &mut self.nodes[node];
        (it.birth, it.is_gone) = (birth, birth != registered);
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
        let number = batch.number;
        let (at, life, records) = self.write(node, Record::Batch(batch));
        self.at(at, Event::Synced { node, life, number, records });
    }

    /// Writes a record; when it and all before it are synced, in which life, and how many they are.
    fn write(&mut self, node: usize, record: Record) -> (Monotonic, u64, usize) {
        let slow = if self.rng.chance(1, 50) { self.rng.below(300 * MILLISECOND) } else { 0 };
        let done = Monotonic(self.now.0 + MILLISECOND / 10 + self.rng.below(3 * MILLISECOND) + slow);
        let it = &mut self.nodes[node];
        it.disk.push(record);
        it.last_sync = Monotonic(it.last_sync.0 + 1).max(done);
        (it.last_sync, it.life, it.disk.len())
    }

    pub(super) fn write_part(&mut self, node: usize, drops: bool, items: Vec<Item>, checkpoint: Checkpoint) {
        let it = &mut self.nodes[node];
        put_part(&mut it.table, drops, &items);
        if drops {
            it.damaged.clear();
        }
        it.damaged.retain(|key| !items.iter().any(|item| item.key == *key));
        let (at, life, records) = self.write(node, Record::Part { drops, items, checkpoint });
        self.at(at, Event::PartSynced { node, life, records });
    }

    pub(super) fn write_forget(&mut self, node: usize) {
        self.nodes[node].disk.push(Record::Forget);
    }

    pub(super) fn apply(&mut self, node: usize, entries: Vec<Entry>) {
        let through = entries.last().unwrap().index;
        for entry in entries {
            let known = self.entries.entry(entry.index).or_insert_with(|| entry.clone());
            assert_eq!(*known, entry, "two entries {} at node {node}", entry.index);
            apply(&mut self.nodes[node].table, &entry);
            if let Payload::Write(write) = &entry.payload {
                self.nodes[node].damaged.remove(&write.key);
            }
        }
        self.nodes[node].disk.push(Record::Applied(through));
    }
}

/// Applies an entry. It never replaces an equal or a newer version.
fn apply(table: &mut Table, entry: &Entry) {
    match &entry.payload {
        Payload::Write(write) => {
            let value = write.object.as_ref().map(value_of);
            put(table, write.key.clone(), Version::new(0, entry.index), value);
        }
        Payload::Reap { through } => {
            table.retain(|_, (version, value)| value.is_some() || version.index() > *through);
        }
        Payload::First | Payload::Configuration(_) => {}
    }
}

fn value_of(object: &Bytes) -> u64 {
    u64::from_le_bytes(object[..].try_into().unwrap())
}

fn put_part(table: &mut Table, drops: bool, items: &[Item]) {
    if drops {
        table.clear();
    }
    for Item { key, version, object } in items {
        put(table, key.clone(), *version, object.as_ref().map(value_of));
    }
}

fn put(table: &mut Table, key: Bytes, version: Version, value: Option<u64>) {
    if table.get(&key).is_none_or(|(held, _)| *held < version) {
        table.insert(key, (version, value));
    }
}
