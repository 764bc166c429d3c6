//! Entries of consistent groups beside a model: what an owner must be able to rely on. A batch that was synced is
//! there, in order; an entry is a version exactly once it was applied; what is not applied is found as it was left.

use super::HandClock;
use super::disk::MemoryDisk;
use super::jobs::while_waiting;
use base::rng::SplitMix64;
use base::{Clock as _, Rng as _};
use engine::check::{Finding, FindingKind, check_store};
use engine::fold::{Control, FoldRequest, KeyRange, Visited, What};
use engine::{
    AppliedRange, Codec, Contents, Durability, Embedded, Error, FoundContents, FoundGroup, GroupBatch,
    GroupKeys, GroupNumber, LogPlace, Machine, Options, ProposedEntry, Store, WrittenAt,
};
use std::collections::BTreeMap;
use std::path::Path;

pub const GROUPS: u64 = 3;

/// First byte of the keys of states; keys of objects begin otherwise.
pub const STATE_TAG: u8 = 0x10;

pub type Object = (Vec<u8>, Vec<u8>);

/// An entry of a log: term, and what it sets.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    pub term: u64,
    pub put: Option<(Vec<u8>, Object)>,
}

/// A group as its owner knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub state: Vec<u8>,
    pub applied: LogPlace,
    pub commit: u64,
    pub entries: Vec<LogEntry>,
}

impl Group {
    pub fn last(&self) -> u64 {
        self.applied.index + self.entries.len() as u64
    }
}

/// What a store must say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    pub groups: BTreeMap<u64, Group>,
    pub objects: BTreeMap<Vec<u8>, Object>,
}

#[derive(Clone, Debug)]
pub enum Op {
    /// So many entries of a group from so many below the last one on, of a newer term or not, of this length.
    Propose {
        group: u64,
        below: u64,
        count: u64,
        newer: bool,
        len: usize,
    },
    /// State alone.
    State(u64),
    /// So many entries of each of these groups, all but the one of this number.
    Apply(Vec<(u64, u64)>, u64),
    Install(u64, u64),
    Remove(u64),
    /// Plain writes of keys that no group has.
    Churn(u64),
    Flush,
    Compact,
    Close,
    Kill,
    PowerCut,
}

pub fn options(number: u64) -> Options {
    Options {
        durability: [Durability::Sync, Durability::None][number as usize % 2],
        inline_value_bytes_max: [64, 0, 10_000][number as usize % 3],
        memtable_bytes_max: [2 << 10, 1 << 20, 8 << 10][number as usize % 3],
        segment_bytes_target: [4 << 10, 32 << 10][number as usize / 2 % 2],
        table_bytes_target: 8 << 10,
        level0_tables_max: 2,
        runs_max: 2,
        leveled_bytes_target: 32 << 10,
        compression: [None, Some(Codec::Lz4)][number as usize % 2],
        groups: Some(GroupKeys { state_tag: STATE_TAG }),
        ..Options::default()
    }
}

pub struct World {
    pub disk: MemoryDisk,
    clock: HandClock,
    pub options: Options,
    pub store: Option<Embedded>,
    pub model: Model,
    written: u64,
    rng: SplitMix64,
    /// Jobs run while the store waits for them, and not within its calls.
    elsewhere: bool,
}

impl World {
    pub fn new(options: Options) -> World {
        let (disk, clock, model) = (MemoryDisk::default(), HandClock::new(), Model::default());
        let rng = SplitMix64::new(9);
        let mut world = World { disk, clock, options, store: None, model, written: 0, rng, elsewhere: false };
        world.open();
        world
    }

    /// What is on a disk, of which nothing is expected.
    pub fn of(disk: MemoryDisk, options: Options) -> World {
        let (clock, model) = (HandClock::new(), Model::default());
        let rng = SplitMix64::new(9);
        World { disk, clock, options, store: None, model, written: 0, rng, elsewhere: false }
    }

    pub fn open(&mut self) {
        let disk = self.disk.clone();
        let jobs = disk.clone();
        let mut machine = Machine::new(move || disk.clone(), self.clock.clone(), SplitMix64::new(1));
        if self.elsewhere {
            machine = machine.with_jobs(move || Ok(while_waiting(jobs.clone())));
        }
        self.store = Some(Embedded::open(Path::new("/store"), self.options.clone(), machine).unwrap());
    }

    pub fn store(&mut self) -> &mut Embedded {
        self.store.as_mut().unwrap()
    }

    /// Turns until all that was proposed is synced.
    pub fn turn(&mut self) {
        let now = self.clock.now();
        for _ in 0..4 {
            self.store().store().turn(now, &mut Vec::new());
        }
        self.clock.advance_ms(1);
    }

    /// Goes on with what a crash has left, which must be what the model says; nothing was lost.
    pub fn reopen(&mut self, disk: MemoryDisk) {
        self.store = None;
        self.disk = disk;
        self.open();
        let found = self.store().store().take_groups();
        assert!(!self.store().store().may_have_lost_groups(WrittenAt::default()));
        self.compare(&found);
        self.compare_objects();
    }

    pub fn compare(&mut self, found: &[FoundGroup]) {
        let found: BTreeMap<u64, &FoundGroup> = found.iter().map(|it| (it.group.0, it)).collect();
        let expected: Vec<u64> = self.model.groups.keys().copied().collect();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), expected);
        for (number, found) in found {
            let group = self.model.groups.get_mut(&number).unwrap();
            assert_eq!(found.state.as_deref(), Some(&group.state[..]), "of {number}");
            assert_eq!(found.suspect_through, None);
            assert!(
                found.commit <= group.commit && found.commit >= found.applied.index,
                "{found:?} {group:?}"
            );
            let entries = (found.applied.index + 1..).zip(&found.entries);
            let entries: Vec<LogEntry> = entries
                .map(|(index, entry)| {
                    assert_eq!(entry.place.index, index);
                    let put = match &entry.contents {
                        FoundContents::Put { key, head, value } => {
                            Some((key.to_vec(), (head.to_vec(), value.to_vec())))
                        }
                        FoundContents::Other(_) => None,
                    };
                    LogEntry { term: entry.place.term, put }
                })
                .collect();
            assert_eq!(found.applied, group.applied, "of {number}");
            assert_eq!(entries, group.entries, "of {number}");
            group.commit = found.commit;
        }
    }

    pub fn compare_objects(&mut self) {
        let objects = self.model.objects.clone();
        for number in 0..KEYS {
            let key = key(number);
            let found = self.store().get(&key).unwrap();
            let found = found.map(|found| (found.head.to_vec(), found.value.unwrap().to_vec()));
            assert_eq!(found.as_ref(), objects.get(&key), "{number}");
            let head = self.store().head(&key).unwrap().map(|found| found.head.to_vec());
            assert_eq!(head.as_ref(), objects.get(&key).map(|(head, _)| head));
        }
    }

    /// A fold of all objects by their records, of what may be acknowledged.
    pub fn fold(&mut self) {
        self.sync();
        let snapshot = self.store().snapshot();
        let mut reader = self.store().reader_at(snapshot);
        let mut seen = BTreeMap::new();
        let mut visit = |item: &Visited<'_>| {
            let value = item.value.clone().unwrap_or_default();
            seen.insert(item.key.to_vec(), (item.head.to_vec(), value.to_vec()));
            Control::Next
        };
        let range = KeyRange { start: key(0).into(), end: key(KEYS).into() };
        let end = reader.fold(FoldRequest::over(range, What::Objects), &mut visit).unwrap();
        assert_eq!((end.damaged, end.next), (0, None));
        assert_eq!(seen, self.model.objects);
    }

    pub fn group(&mut self, number: u64) -> Group {
        let new = || Group { state: Vec::new(), applied: LogPlace::FOUNDED, commit: 1, entries: Vec::new() };
        self.model.groups.get(&number).cloned().unwrap_or_else(new)
    }

    pub fn next_state(&mut self) -> Vec<u8> {
        self.written += 1;
        self.written.to_le_bytes().to_vec()
    }

    pub fn entry(&mut self, group: u64, term: u64, len: usize) -> LogEntry {
        self.written += 1;
        let number = group + GROUPS * self.rng.below(KEYS / GROUPS);
        let object = (self.written.to_le_bytes().to_vec(), vec![self.written as u8; len]);
        let is_put = !self.rng.chance(1, 6);
        LogEntry { term, put: is_put.then_some((key(number), object)) }
    }

    pub fn propose(&mut self, number: u64, below: u64, count: u64, newer: bool, len: usize) {
        let mut group = self.group(number);
        let is_new = !self.model.groups.contains_key(&number);
        let from = (group.entries.len() as u64).saturating_sub(below) as usize;
        let before = if from == 0 { group.applied.term } else { group.entries[from - 1].term };
        let last_term = group.entries.last().map_or(group.applied.term, |entry| entry.term);
        // A log has no entry of a term behind one of a later term.
        let term = if newer { last_term + 1 } else { last_term.max(before) };
        let made: Vec<LogEntry> = (0..count).map(|_| self.entry(number, term, len)).collect();
        let state = (newer || is_new).then(|| self.next_state());
        for (at, entry) in (from..).zip(&made) {
            if group.entries.get(at).is_some_and(|old| old.term == entry.term) {
                group.entries[at] = entry.clone();
            } else {
                group.entries.truncate(at);
                group.entries.push(entry.clone());
            }
        }
        group.commit = group.commit.max(group.applied.index);
        group.state = state.clone().unwrap_or(group.state);
        let first = group.applied.index + 1 + from as u64;
        self.write(number, state.as_deref(), group.commit, None, first, &made).unwrap();
        self.model.groups.insert(number, group);
    }

    /// Entries behind the last one of a group.
    pub fn propose_these(&mut self, number: u64, made: &[LogEntry]) {
        let first = self.group(number).last() + 1;
        self.propose_at(number, first, made);
    }

    /// Entries from this index on, in the place of others.
    pub fn propose_at(&mut self, number: u64, first: u64, made: &[LogEntry]) {
        let mut group = self.group(number);
        let kept = first - group.applied.index - 1;
        group.entries.truncate(kept as usize);
        group.entries.extend(made.iter().cloned());
        let state = (!self.model.groups.contains_key(&number)).then_some(&b""[..]);
        self.write(number, state, group.commit, None, first, made).unwrap();
        self.model.groups.insert(number, group);
    }

    /// Loses all tables, and makes the ledger again; no entry that was not applied may be a version then.
    pub fn rebuild(&mut self) {
        let disk = self.disk.after_kill();
        for name in disk.names().into_iter().filter(|name| name.extension().is_some_and(|it| it == "tbl")) {
            disk.remove(&name);
        }
        (self.store, self.disk) = (None, disk);
        self.options.rebuild_lost_ledger = true;
        self.open();
        self.options.rebuild_lost_ledger = false;
        for number in 0..KEYS {
            let found = self.store().head(&key(number)).ok().flatten().map(|found| found.head.to_vec());
            let known = self.model.objects.get(&key(number)).map(|(head, _)| head.clone());
            assert!(found.is_none() || found == known, "{number}: an entry took effect that was not applied");
        }
    }

    pub fn write(
        &mut self,
        number: u64,
        state: Option<&[u8]>,
        commit: u64,
        install: Option<LogPlace>,
        first: u64,
        made: &[LogEntry],
    ) -> Result<(), Error> {
        let values: Vec<[&[u8]; 2]> = made
            .iter()
            .map(|entry| {
                entry.put.as_ref().map_or([&b""[..]; 2], |(_, (_, v))| v.split_at(v.len() / 2).into())
            })
            .collect();
        let entries: Vec<ProposedEntry<'_>> = (first..)
            .zip(made.iter().zip(&values))
            .map(|(index, (entry, value))| ProposedEntry {
                place: LogPlace { index, term: entry.term },
                contents: match &entry.put {
                    Some((key, (head, _))) => Contents::Put { key, head, value },
                    None => Contents::Other(b"nothing"),
                },
            })
            .collect();
        let batch = GroupBatch { group: GroupNumber(number), state, commit, install, entries: &entries };
        let jsn = self.at_last(|store| store.propose(&batch))?;
        self.turn();
        if self.elsewhere && self.store().store().synced_jsn() <= jsn {
            // The sync of an ended segment waits for a job.
            self.sync();
        }
        assert!(self.store().store().synced_jsn() > jsn, "a turn syncs it");
        Ok(())
    }

    pub fn apply(&mut self, asked: &[(u64, u64)], skip: u64) {
        let mut ranges: Vec<(u64, u64, LogPlace, Vec<u64>)> = Vec::new();
        for &(number, count) in asked {
            let Some(group) = self.model.groups.get_mut(&number) else { continue };
            let count = (count as usize).min(group.entries.len());
            if count == 0 || ranges.iter().any(|(other, ..)| *other == number) {
                continue;
            }
            let after = group.applied.index;
            let mut skipped = Vec::new();
            for (index, entry) in (after + 1..).zip(group.entries.drain(..count)) {
                group.applied = LogPlace { index, term: entry.term };
                if index - after == skip {
                    skipped.push(index);
                } else if let Some((key, object)) = entry.put {
                    self.model.objects.insert(key, object);
                }
            }
            group.commit = group.commit.max(group.applied.index);
            ranges.push((number, after, group.applied, skipped));
        }
        let applied: Vec<AppliedRange<'_>> = ranges
            .iter()
            .map(|(number, after, through, skipped)| AppliedRange {
                group: GroupNumber(*number),
                after: *after,
                through: *through,
                skipped,
            })
            .collect();
        let seq = self.at_last(|store| store.apply_proposals(&applied)).unwrap();
        assert_eq!(seq.is_some(), !applied.is_empty());
        assert!(seq.is_none_or(|seq| seq == self.store().store().last_written()));
    }

    /// What is refused until a job has ended is tried again then.
    fn at_last<T>(&mut self, call: impl Fn(&mut Store) -> Result<T, Error>) -> Result<T, Error> {
        for _ in 0..TRIES_MAX {
            match call(self.store().store()) {
                Err(Error::Full { .. }) if self.elsewhere => self.store().flush().unwrap(),
                other => return other,
            }
        }
        panic!("it is refused for ever");
    }

    /// What was written without a sync is made safe, as the model says that it is there.
    pub fn sync(&mut self) {
        let now = self.clock.now();
        self.store().store().tick();
        self.store().store().turn(now, &mut Vec::new());
        self.store()
            .write_with(&[engine::Write::Put { key: b"~sync", head: b"", value: &[] }], Durability::Sync)
            .unwrap();
    }

    pub fn step(&mut self, op: &Op) {
        match op {
            Op::Propose { group, below, count, newer, len } => {
                self.propose(*group, *below, *count, *newer, *len)
            }
            Op::State(number) => {
                let mut group = self.group(*number);
                group.state = self.next_state();
                self.write(*number, Some(&group.state), group.commit, None, 0, &[]).unwrap();
                self.model.groups.insert(*number, group);
            }
            Op::Apply(groups, skip) => self.apply(groups, *skip),
            Op::Install(number, ahead) => {
                let mut group = self.group(*number);
                let term = group.entries.last().map_or(group.applied.term, |entry| entry.term);
                group.applied = LogPlace { index: group.last() + ahead, term };
                (group.commit, group.state) = (group.applied.index, self.next_state());
                group.entries.clear();
                let (state, commit, install) = (Some(&group.state[..]), group.commit, Some(group.applied));
                self.write(*number, state, commit, install, 0, &[]).unwrap();
                self.model.groups.insert(*number, group);
            }
            Op::Remove(number) => {
                if self.model.groups.remove(number).is_some() {
                    self.at_last(|store| store.remove_group(GroupNumber(*number))).unwrap();
                }
            }
            Op::Churn(count) => {
                for _ in 0..*count {
                    self.written += 1;
                    let (key, value) = (format!("churn-{}", self.written % 50), vec![7; 200]);
                    self.store().put(key.as_bytes(), b"", &value).unwrap();
                }
            }
            Op::Flush => self.store().flush().unwrap(),
            Op::Compact => {
                self.store().compact().unwrap();
                self.compare_objects();
            }
            Op::Close => {
                self.store.take().unwrap().close().unwrap();
                let disk = self.disk.after_power_cut();
                let mut damaged = Vec::new();
                let mut note = |finding: Finding| {
                    damaged.extend((finding.kind == FindingKind::Damage).then_some(finding));
                };
                check_store(&mut disk.clone(), Path::new("/store"), &mut note).unwrap();
                assert_eq!(damaged, []);
                self.reopen(disk.after_kill());
            }
            Op::Kill => {
                self.sync();
                let disk = self.disk.after_kill();
                self.reopen(disk);
            }
            Op::PowerCut => {
                self.sync();
                let disk = match self.rng.below(2) {
                    0 => self.disk.after_power_cut(),
                    _ => self.disk.after_uneven_power_cut(&mut self.rng),
                };
                self.reopen(disk);
            }
        }
    }
}

/// Some jobs come one after the other.
const TRIES_MAX: usize = 20;

pub const KEYS: u64 = 30;

pub fn key(number: u64) -> Vec<u8> {
    format!("object-{number:03}").into_bytes()
}

pub fn run(ops: &[Op], number: u64) {
    let mut world = World::new(options(number));
    world.elsewhere = number % 5 < 2;
    world.step(&Op::Kill);
    for op in ops {
        world.step(op);
    }
    world.compare_objects();
    world.fold();
    for end in [Op::Kill, Op::Close, Op::Compact, Op::PowerCut] {
        world.step(&end);
    }
}
