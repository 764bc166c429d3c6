//! The manifest's file, and versions that grow by random flushes and merges.

use super::{
    CleanStop, FIRST_LEVELED, GroupsRecord, JournalPosition, LEVELS, MANIFEST_COPY_FILE, MANIFEST_FILE,
    MANIFEST_VERSION, METADATA_BYTES_MAX, ManifestJob, ManifestState, MergeCursors, MergeOptions, RUNS_MAX,
    SegmentRecord, TableRecord, Version, read, write,
};
use crate::Seq;
use crate::compaction::Account;
use crate::drops::{DroppedRanges, RangeDrop};
use crate::entry::Jsn;
use crate::error::{Damage, Error};
use crate::lost::{LOST_HERE, LostRange};
use crate::merge::{MergeJob, MergeRequest};
use crate::table::testing::{MemDisk, Model, deletion, dir, entry, get, table};
use crate::table::{Table, TableId, TableMeta};
use base::checksum::{crc32c, crc32c_append};
use base::disk;
use base::rng::{Rng, SplitMix64};
use base::spawn::{Job, Outcome, Progress};
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn state() -> ManifestState {
    let meta = TableMeta {
        entries: 2,
        deletions: 1,
        inlines: 0,
        min_seq: Seq(3),
        max_seq: Seq(4),
        min_jsn: Jsn(4),
        max_jsn: Jsn(5),
        min_key: Bytes::from_static(b"a"),
        max_key: Bytes::from_static(b"b"),
        expiring: 1,
        last_expiry_ms: 1_700_000_000_000,
        cut_seq: Seq(2),
    };
    let record = TableRecord { id: TableId(9), len: 237, meta };
    ManifestState {
        incarnation: 0x1122_3344_5566_7788,
        dot_lease_end: 1 << 20,
        clean: Some(CleanStop { dot_counter: 77, journal_end: JournalPosition { segment: 2, offset: 4096 } }),
        next_table_id: TableId(10),
        next_segment_id: 3,
        replay_jsn: Jsn(5),
        replay_position: JournalPosition { segment: 2, offset: 64 },
        last_seq: Seq(4),
        last_jsn: Jsn(6),
        levels: vec![vec![record], vec![]],
        segments: vec![SegmentRecord {
            id: 1,
            first_jsn: Jsn(1),
            last_jsn: Jsn(4),
            len: 999,
            sealed: true,
            account: Account { value_bytes: 900, log_bytes: 30, dead_bytes: 7 },
        }],
        metadata: [(b"ring_bits".to_vec(), vec![6]), (b"shard".to_vec(), vec![0])].into(),
        lost: vec![LostRange {
            start: Bytes::from_static(b"k"),
            end: Bytes::from_static(b"m"),
            below: Seq(3),
            damage: Damage { file: "journal/1".to_owned(), offset: 64, what: LOST_HERE },
        }],
        drops: vec![RangeDrop { start: Bytes::from_static(b"a"), end: Bytes::new(), seq: Seq(2) }],
        groups: None,
    }
}

/// The same of a store with consistent groups.
fn state_with_groups() -> ManifestState {
    let oldest = Some((JournalPosition { segment: 1, offset: 128 }, Jsn(3)));
    let groups = GroupsRecord { state_tag: Some(7), oldest, may_be_lost: true };
    ManifestState { groups: Some(groups), ..state() }
}

#[test]
fn golden_bytes() {
    let hex: String = state().encode().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("golden.hex").replace('\n', ""));
}

/// Only a store with groups has the newest version: the program before opens all others.
#[test]
fn golden_bytes_with_groups() {
    let bytes = state_with_groups().encode().unwrap();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("golden_groups.hex").replace('\n', ""));
    assert_eq!((bytes[8], state().encode().unwrap()[8]), (5, 4));
    assert_eq!(ManifestState::decode(&bytes, "M"), Ok(state_with_groups()));
    let none = GroupsRecord { state_tag: None, oldest: None, may_be_lost: false };
    let none = ManifestState { groups: Some(none), ..state() };
    assert_eq!(ManifestState::decode(&none.encode().unwrap(), "M"), Ok(none));
}

/// What the first version of the format wrote.
#[test]
fn golden_bytes_of_version_1_are_read() {
    let bytes = unhex(include_str!("golden_v1.hex"));
    let expected = state_without_accounts();
    let mut expected = ManifestState { drops: vec![], ..expected };
    let meta = &mut expected.levels[0][0].meta;
    (meta.expiring, meta.last_expiry_ms, meta.cut_seq) = (0, 0, Seq(0));
    assert_eq!(ManifestState::decode(&bytes, "M"), Ok(expected));
}

#[test]
fn golden_bytes_of_version_2_are_read() {
    let bytes = unhex(include_str!("golden_v2.hex"));
    assert_eq!(ManifestState::decode(&bytes, "M"), Ok(state_without_accounts()));
}

#[test]
fn golden_bytes_of_version_3_are_read() {
    let bytes = unhex(include_str!("golden_v3.hex"));
    let mut expected = state_without_accounts();
    expected.segments = state().segments;
    assert_eq!(ManifestState::decode(&bytes, "M"), Ok(expected));
}

/// Versions before the fourth have one lost range at most, of all keys.
fn state_without_accounts() -> ManifestState {
    let mut state = state();
    (state.lost[0].start, state.lost[0].end) = (Bytes::new(), Bytes::new());
    state.segments[0].account = Account::default();
    state
}

fn unhex(hex: &str) -> Vec<u8> {
    let hex = hex.replace('\n', "");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn it_is_replaced_and_read() {
    let mut disk = MemDisk::default();
    assert_eq!(read(&mut disk, dir()), Ok(None));
    write(&mut disk, dir(), &state()).unwrap();
    assert_eq!(read(&mut disk, dir()), Ok(Some(state())));
    let next = ManifestState { clean: None, last_seq: Seq(9), ..state() };
    let outcome = Outcome::new();
    assert_eq!(
        ManifestJob::new(dir().into(), next.clone(), outcome.clone()).slice(&mut disk),
        Progress::Done
    );
    let bytes = next.encode().unwrap().len() as u64;
    assert_eq!(outcome.take(), Some(Ok(bytes)));
    assert_eq!(read(&mut disk, dir()), Ok(Some(next)));
    let names = [MANIFEST_FILE, MANIFEST_COPY_FILE].map(str::to_owned);
    assert_eq!((disk.names(), disk.open_files()), (names.to_vec(), 0));
    assert_eq!(
        ManifestState::decode(&ManifestState::default().encode().unwrap(), ""),
        Ok(ManifestState::default())
    );
}

/// Whichever change fails, what can be read is the old manifest or the new one.
#[test]
fn a_failed_replacement_leaves_a_whole_manifest() {
    let next = ManifestState { last_seq: Seq(9), ..state() };
    let mut failures = 0;
    for fail_at in 1.. {
        let mut disk = MemDisk::default();
        write(&mut disk, dir(), &state()).unwrap();
        disk.fail_at = Some(disk.changes + fail_at);
        let result = write(&mut disk, dir(), &next);
        disk.fail_at = None;
        let found = read(&mut disk, dir()).unwrap().unwrap();
        if result.is_ok() {
            assert_eq!(found, next);
            break;
        }
        failures += 1;
        assert!(found == next || found == state());
        write(&mut disk, dir(), &next).unwrap();
        assert_eq!(read(&mut disk, dir()), Ok(Some(next.clone())));
    }
    assert!(failures >= 4, "the file is made, written, renamed, and the directory synced");
}

#[test]
fn every_flipped_bit_and_every_length_is_damage() {
    let good = state().encode().unwrap();
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(ManifestState::decode(&bytes, "M"), Err(Error::Damaged(_))), "bit {bit}");
    }
    for len in 0..good.len() {
        assert!(matches!(ManifestState::decode(&good[..len], "M"), Err(Error::Damaged(_))), "cut to {len}");
    }
    assert!(matches!(ManifestState::decode(&[&good[..], &[0]].concat(), "M"), Err(Error::Damaged(_))));
}

fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let len = bytes.len() as u64;
    bytes[16..24].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c_append(crc32c(&bytes[..12]), &bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn a_newer_version_is_no_damage() {
    let mut bytes = state().encode().unwrap();
    bytes[8] = MANIFEST_VERSION as u8 + 1;
    bytes.extend_from_slice(b"what only a newer program knows");
    assert!(matches!(ManifestState::decode(&resealed(bytes), "M"), Err(Error::Format { .. })));
}

/// A checksum over nonsense: what a bug in a writer would leave.
#[test]
fn nonsense_with_a_good_checksum_never_panics() {
    let good = state().encode().unwrap();
    let mut rng = SplitMix64::new(2);
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        if rng.chance(1, 3) {
            bytes.truncate(24 + rng.below(bytes.len() as u64 - 24) as usize);
        }
        for _ in 0..rng.below(4) + 1 {
            let at = 24 + rng.below((bytes.len() as u64 - 24).max(1)) as usize;
            if at < bytes.len() {
                bytes[at] = if rng.chance(1, 2) { 0xFF } else { rng.next_u64() as u8 };
            }
        }
        match ManifestState::decode(&resealed(bytes), "M") {
            Ok(state) => {
                taken += 1;
                assert_eq!(ManifestState::decode(&state.encode().unwrap(), "M"), Ok(state));
            }
            Err(error) => {
                refused += 1;
                assert_eq!(error, Error::Malformed("manifest"));
            }
        }
    }
    assert!(refused > 1000 && taken > 100, "{refused} refused, {taken} taken");
}

#[test]
fn metadata_is_bounded() {
    let mut state = state();
    state.metadata.insert(b"large".to_vec(), vec![0; METADATA_BYTES_MAX]);
    assert!(matches!(state.encode(), Err(Error::TooLarge { limit: METADATA_BYTES_MAX, .. })));
}

/// A store of nothing but tables: flushes and merges by hand, beside a model.
struct Ledger {
    disk: MemDisk,
    version: Arc<Version>,
    model: Model,
    seq: u64,
    next_table_id: Arc<AtomicU64>,
    options: MergeOptions,
    cursors: MergeCursors,
    merges: [u64; LEVELS],
    deletions_ended: u64,
}

impl Ledger {
    fn new() -> Ledger {
        Ledger {
            disk: MemDisk::default(),
            version: Arc::new(Version::default()),
            model: Model::new(),
            seq: 0,
            next_table_id: Arc::new(AtomicU64::new(1)),
            options: MergeOptions {
                level0_tables_max: 3,
                runs_max: 3,
                leveled_bytes_target: 6_000,
                level_growth: 4,
                part_bytes_min: 300,
                replacing_thousandths: 0,
            },
            cursors: MergeCursors::default(),
            merges: [0; LEVELS],
            deletions_ended: 0,
        }
    }

    fn flush(&mut self, rng: &mut SplitMix64) {
        let mut entries = Model::new();
        for _ in 0..rng.below(60) + 1 {
            self.seq += 1;
            let key = format!("key{:04}", rng.below(1500)).into_bytes();
            let bytes = if rng.chance(1, 4) { deletion(self.seq) } else { entry(&key, self.seq, 10) };
            entries.insert(key, (self.seq, bytes));
        }
        let id = self.next_table_id.fetch_add(1, Ordering::Relaxed);
        let table = table(&mut self.disk, id, &entries);
        self.version = Arc::new(self.version.apply(&[(0, table)], &[]));
        self.model.extend(entries);
    }

    fn merge(&mut self, with_moves: bool) -> bool {
        let Some(plan) = self.version.pick_merge(&self.options, &mut self.cursors) else { return false };
        self.check(&plan);
        self.merges[plan.output_level] += 1;
        if with_moves && plan.is_move() {
            let added: Vec<_> = plan.tables().map(|table| (plan.output_level, Arc::clone(table))).collect();
            self.version = Arc::new(self.version.apply(&added, &plan.removed()));
            return true;
        }
        let outcome = Outcome::new();
        let request = MergeRequest {
            dir: dir().to_path_buf(),
            next_table_id: Arc::clone(&self.next_table_id),
            output_level: plan.output_level,
            table_bytes_target: 1_500,
            drop_deletions: plan.drop_deletions,
            dropped: DroppedRanges::none(),
            lost: Arc::default(),
            now_ms: 0,
        };
        let fences = self.version.fences(&plan, &self.options);
        let mut job = MergeJob::new(plan.sources(), request, outcome.clone()).with_fences(fences);
        while job.slice(&mut self.disk) == Progress::More {}
        let output = outcome.take().unwrap().unwrap();
        self.deletions_ended += output.stats.deletions_dropped;
        let added: Vec<_> = output.tables.into_iter().map(|table| (plan.output_level, table)).collect();
        self.version = Arc::new(self.version.apply(&added, &plan.removed()));
        for table in plan.tables() {
            table.retire();
            disk::run(&mut self.disk, table.close_op()).unwrap();
            disk::run(&mut self.disk, table.remove_op()).unwrap();
        }
        true
    }

    /// What makes a plan right, said in another way than the code that makes it.
    fn check(&self, plan: &super::MergePlan) {
        let chosen = |table: &Arc<Table>| plan.tables().any(|other| other.id() == table.id());
        let overlaps =
            |a: &Arc<Table>, b: &Arc<Table>| a.meta().overlaps(&b.meta().min_key, &b.meta().max_key);
        for (level, table) in self.version.tables() {
            let newer = plan.inputs.iter().filter(|(from, _)| *from < level || (*from, level) == (0, 0));
            let passed = newer.flat_map(|(_, tables)| tables).any(|other| overlaps(table, other));
            if level <= plan.output_level && passed {
                assert!(chosen(table), "a newer version would come to stand behind an older one");
            }
            if level > plan.output_level && plan.tables().any(|other| overlaps(table, other)) {
                assert!(!plan.drop_deletions, "a deletion would end above what it hides");
            }
        }
    }

    fn get(&mut self, key: &[u8]) -> Option<(u64, Vec<u8>)> {
        let version = Arc::clone(&self.version);
        let found = version.tables_for(key).find_map(|table| get(&mut self.disk, table, key).unwrap());
        found.filter(|(_, entry)| entry[0] != 3)
    }

    fn agrees(&mut self, key: &[u8]) {
        let expected = self.model.get(key).filter(|(_, entry)| entry[0] != 3).cloned();
        assert_eq!(self.get(key), expected, "{}", String::from_utf8_lossy(key));
    }
}

#[test]
fn random_flushes_and_merges_agree_with_a_model() {
    for seed in 0..6 {
        let mut rng = SplitMix64::new(seed);
        let mut ledger = Ledger::new();
        for _ in 0..120 {
            ledger.flush(&mut rng);
            while rng.chance(4, 5) && ledger.merge(seed % 2 == 0) {
                ledger.version.invariants();
            }
            for _ in 0..20 {
                ledger.agrees(format!("key{:04}", rng.below(1600)).as_bytes());
            }
        }
        while ledger.merge(false) {}
        assert!(ledger.version.pressure(&ledger.options) < 1000);
        for key in 0..1600 {
            ledger.agrees(format!("key{key:04}").as_bytes());
        }
        let runs: u64 = ledger.merges[..=RUNS_MAX].iter().sum();
        let [leveled, deeper] = [FIRST_LEVELED, FIRST_LEVELED + 1].map(|level| ledger.merges[level]);
        assert!(runs > 10 && leveled > 10 && deeper > 0, "{:?}", ledger.merges);
        assert!(ledger.deletions_ended > 50);
        // The files are those of the version: nothing is lost, nothing is left behind.
        let mut names: Vec<String> =
            ledger.version.tables().map(|(_, table)| table.id().file_name()).collect();
        names.sort();
        assert_eq!(names, ledger.disk.names());
        reopened_is_the_same(&mut ledger);
    }
}

/// The manifest's records are enough to have the same version again.
fn reopened_is_the_same(ledger: &mut Ledger) {
    let state = ManifestState { levels: ledger.version.records(), ..ManifestState::default() };
    let state = ManifestState::decode(&state.encode().unwrap(), "M").unwrap();
    let mut levels = std::array::from_fn(|_| Vec::new());
    for (level, records) in state.levels.iter().enumerate() {
        for record in records {
            let table = Table::open(&mut ledger.disk, dir(), record.id).unwrap();
            assert!(record.describes(&table));
            levels[level].push(Arc::new(table));
        }
    }
    let version = Version::new(levels);
    assert_eq!(version.records(), ledger.version.records());
}

#[test]
fn tables_come_newest_first_and_overlaps_are_found() {
    const DEEP: usize = FIRST_LEVELED + 1;
    let mut disk = MemDisk::default();
    let mut make = |id: u64, from: &str, to: &str| {
        let model: Model = [from, to].map(|key| (key.as_bytes().to_vec(), (id, deletion(id)))).into();
        table(&mut disk, id, &model)
    };
    let deep = [make(1, "a", "c"), make(2, "e", "g"), make(3, "i", "k")];
    let added: Vec<_> = deep.into_iter().rev().map(|table| (DEEP, table)).collect();
    let version = Version::default().apply(&added, &[]);
    let version = version.apply(&[(0, make(4, "b", "j"))], &[]).apply(&[(0, make(5, "f", "z"))], &[]);
    let version = version.apply(&[(FIRST_LEVELED, make(6, "a", "f"))], &[]);
    let ids = |key: &str| version.tables_for(key.as_bytes()).map(|table| table.id().0).collect::<Vec<_>>();
    assert_eq!(ids("f"), [5, 4, 6, 2]);
    assert_eq!(ids("d"), [4, 6]);
    assert_eq!(ids("A"), [0u64; 0]);
    assert_eq!(ids("zz"), [0u64; 0]);
    // Whoever will be asked is told of before, and the keys of those that do not reach so far are looked at last.
    let told = |key: &str| {
        let mut told = Vec::new();
        version.cursor(key.as_bytes(), |table| told.push(table.id().0));
        told
    };
    assert_eq!(told("f"), [5, 4, 6, 2]);
    assert_eq!(told("h"), [5, 4, 6, 2]);
    assert_eq!(told("A"), [5, 4]);
    let overlapping = |min: &str, max: &str| {
        let tables = version.overlapping(DEEP, min.as_bytes(), max.as_bytes());
        tables.iter().map(|table| table.id().0).collect::<Vec<_>>()
    };
    assert_eq!(overlapping("c", "e"), [1, 2]);
    assert_eq!(overlapping("d", "d"), [0u64; 0]);
    assert_eq!(overlapping("A", "z"), [1, 2, 3]);
    assert_eq!(overlapping("h", "h"), [0u64; 0]);
    assert_eq!(overlapping("x", "a"), [0u64; 0]);
    let version = version.apply(&[], &[TableId(4), TableId(2)]);
    assert_eq!(
        version.tables().map(|(level, table)| (level, table.id().0)).collect::<Vec<_>>(),
        [(0, 5), (FIRST_LEVELED, 6), (DEEP, 1), (DEEP, 3)]
    );
    assert_eq!(version.level_bytes(0), version.level(0)[0].len());
    assert_eq!(PathBuf::from("/data/0000000000000005.tbl"), version.level(0)[0].path());
}

#[test]
fn runs_keep_their_order_and_leave_places_for_new_ones() {
    let mut disk = MemDisk::default();
    let mut run = |id: u64| {
        let model: Model = [b"a", b"c"].map(|key| (key.to_vec(), (id, deletion(id)))).into();
        table(&mut disk, id, &model)
    };
    let ids = |version: &Version| version.tables().map(|(at, table)| (at, table.id().0)).collect::<Vec<_>>();
    let version = Version::default().apply(&[(3, run(1))], &[]).apply(&[(RUNS_MAX - 1, run(2))], &[]);
    let version = version.apply(&[(RUNS_MAX - 2, run(3))], &[]);
    assert_eq!(ids(&version), [(RUNS_MAX - 2, 3), (RUNS_MAX - 1, 2), (RUNS_MAX, 1)]);
    assert_eq!(version.runs(), RUNS_MAX - 2..=RUNS_MAX);
    assert_eq!(ids(&version.apply(&[], &[TableId(2)])), [(RUNS_MAX - 1, 3), (RUNS_MAX, 1)]);
    assert_eq!(Version::default().runs().count(), 0);
}

/// A store from which all was deleted does not wait for levels to fill before it lets go of the deletions.
#[test]
fn deletions_end_though_nothing_is_full() {
    let mut ledger = Ledger::new();
    ledger.options = MergeOptions::default();
    let put = |ledger: &mut Ledger, deleted: bool| {
        let entries: Model = (0..100u64)
            .map(|number| {
                let key = format!("key{number:04}").into_bytes();
                ledger.seq += 1;
                let bytes = if deleted { deletion(ledger.seq) } else { entry(&key, ledger.seq, 10) };
                (key, (ledger.seq, bytes))
            })
            .collect();
        let id = ledger.next_table_id.fetch_add(1, Ordering::Relaxed);
        let table = table(&mut ledger.disk, id, &entries);
        ledger.version = Arc::new(ledger.version.apply(&[(0, table)], &[]));
        ledger.model.extend(entries);
    };
    put(&mut ledger, false);
    assert!(!ledger.merge(false), "one table of level 0 is no reason to merge");
    put(&mut ledger, true);
    while ledger.merge(false) {}
    assert_eq!(ledger.version.tables().count(), 0);
    for key in 0..100 {
        ledger.agrees(format!("key{key:04}").as_bytes());
    }
}

/// Two tables of level 0 whose entries replace older ones are merged, so that the journal's waste becomes known; those
/// of new keys wait until there are enough.
#[test]
fn a_level_0_that_hides_waste_is_merged_early() {
    let mut rng = SplitMix64::new(2);
    let mut ledger = Ledger::new();
    let picks = |ledger: &Ledger, replacing_thousandths| {
        let options = MergeOptions { replacing_thousandths, ..MergeOptions::default() };
        ledger.version.pick_merge(&options, &mut MergeCursors::default()).map(|plan| plan.output_level)
    };
    ledger.flush(&mut rng);
    assert_eq!(picks(&ledger, 1000), None, "one table hides nothing that a merge would find");
    ledger.flush(&mut rng);
    assert_eq!([0, 140, 150].map(|replacing| picks(&ledger, replacing)), [None, None, Some(RUNS_MAX)]);
}

/// The parts of a later run are those of an earlier one, or parts of them, so that few tables are merged at a time.
#[test]
fn runs_are_cut_where_the_level_below_is() {
    let mut rng = SplitMix64::new(9);
    let mut ledger = Ledger::new();
    ledger.options.leveled_bytes_target = 1 << 20;
    let mut parts = 0;
    for _ in 0..300 {
        ledger.flush(&mut rng);
        while let Some(plan) = ledger.version.pick_merge(&ledger.options, &mut ledger.cursors.clone()) {
            let whole: usize = (1..=FIRST_LEVELED).map(|level| ledger.version.level(level).len()).sum();
            let tables = plan.tables().count();
            if plan.output_level == FIRST_LEVELED && whole > 12 {
                assert!(tables < whole, "a part is merged, not the whole level");
                parts += usize::from(tables * 2 < whole);
            }
            ledger.merge(false);
        }
    }
    assert!(parts > 20, "{parts}");
}

#[test]
#[should_panic(expected = "overlap")]
fn overlapping_tables_below_level_0_are_our_bug() {
    let mut disk = MemDisk::default();
    let model: Model = [(b"a".to_vec(), (1, deletion(1))), (b"c".to_vec(), (1, deletion(1)))].into();
    let other: Model = [(b"b".to_vec(), (1, deletion(1)))].into();
    let added = [(1, table(&mut disk, 1, &model)), (1, table(&mut disk, 2, &other))];
    Version::default().apply(&added, &[]);
}
