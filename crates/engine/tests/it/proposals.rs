//! Entries of consistent groups beside a model, under random batches, marks, flushes, compactions, kills and power
//! cuts; and what is left of them where something is damaged. One list of operations runs on stores that are told
//! different things.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::disk::MemoryDisk;
use crate::common::groups::{GROUPS, LogEntry, Op, STATE_TAG, World, key, options, run};
use base::rng::SplitMix64;
use engine::fold::read_newest;
use engine::lost::LostRange;
use engine::{
    Contents, Damage, Durability, Embedded, Error, FoundContents, GroupBatch, GroupKeys, GroupNumber, Jsn,
    LogPlace, Machine, Options, PROPOSALS_BYTES_MAX, ProposedEntry, Seq, WrittenAt, manifest,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::path::{Path, PathBuf};

const CASES: u32 = 150;

fn ops() -> impl Strategy<Value = Op> {
    let group = || 0..GROUPS;
    let len = || prop_oneof![0usize..40, 100usize..600];
    prop_oneof![
        12 => (group(), 0u64..4, 1u64..5, any::<bool>(), len())
            .prop_map(|(group, below, count, newer, len)| Op::Propose { group, below, count, newer, len }),
        2 => group().prop_map(Op::State),
        10 => (vec((group(), 1u64..5), 1..4), 0u64..8).prop_map(|(groups, skip)| Op::Apply(groups, skip)),
        1 => (group(), 1u64..5).prop_map(|(group, ahead)| Op::Install(group, ahead)),
        1 => group().prop_map(Op::Remove),
        5 => (1u64..60).prop_map(Op::Churn),
        1 => Just(Op::Flush),
        2 => Just(Op::Compact),
        1 => Just(Op::Close),
        2 => Just(Op::Kill),
        2 => Just(Op::PowerCut),
    ]
}

fn cases() -> u32 {
    std::env::var("ANNULET_MODEL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn groups_are_found_as_their_owner_left_them(ops in vec(ops(), 1..120), first in 0u64..12) {
        for number in first..first + 4 {
            run(&ops, number);
        }
    }
}

/// A proposal is moved in the journal, and committed before one with a lower number. Found by random operations.
#[test]
fn a_moved_proposal_is_replaced_by_one_with_a_lower_number() {
    let propose = |group, below, count| Op::Propose { group, below, count, newer: false, len: 0 };
    let ops = [
        Op::Churn(34),
        Op::Propose { group: 0, below: 0, count: 3, newer: false, len: 385 },
        Op::Flush,
        propose(0, 0, 2),
        propose(0, 0, 3),
        propose(0, 0, 1),
        propose(0, 0, 1),
        propose(0, 2, 2),
        propose(0, 0, 3),
        Op::Kill,
        propose(1, 0, 4),
        propose(0, 0, 3),
        Op::State(0),
        Op::Flush,
        Op::PowerCut,
        propose(2, 0, 2),
        propose(0, 0, 4),
        Op::Propose { group: 0, below: 0, count: 4, newer: true, len: 7 },
        propose(1, 0, 3),
        propose(0, 2, 2),
        propose(1, 0, 3),
        Op::Churn(30),
        Op::Flush,
        propose(0, 2, 4),
        Op::Churn(5),
        Op::Kill,
        propose(0, 2, 3),
        Op::Propose { group: 2, below: 2, count: 1, newer: false, len: 1 },
        Op::Apply(vec![(2, 1)], 2),
        Op::Flush,
        Op::Apply(vec![(2, 1)], 0),
        propose(0, 0, 1),
        propose(0, 0, 1),
        propose(0, 0, 1),
        propose(0, 0, 1),
        Op::Remove(0),
        propose(0, 0, 1),
        Op::Flush,
    ];
    run(&ops, 13);
}

/// A group of six entries with values in the journal, of which two are applied, and what was written behind them. All
/// of it is replayed at a start.
fn six_entries() -> World {
    six_entries_in(1 << 20)
}

/// The same in segments of so many bytes.
fn six_entries_in(segment_bytes_target: u64) -> World {
    let mut world = World::new(Options { inline_value_bytes_max: 0, ..options(1) });
    world.options.memtable_bytes_max = 1 << 20;
    world.options.segment_bytes_target = segment_bytes_target;
    world.step(&Op::Close);
    for number in 0..6 {
        let entry = LogEntry { term: 1, put: Some((key(number), (vec![number as u8; 9], marked(number)))) };
        world.propose_these(1, &[entry]);
    }
    world.apply(&[(1, 2)], 0);
    world.step(&Op::Churn(5));
    world.sync();
    world
}

/// A value that is nowhere else in a file.
fn marked(number: u64) -> Vec<u8> {
    format!("<the value of entry {number}>").into_bytes()
}

/// Flips a bit of the first place in the journal where these bytes are.
fn flip(disk: &MemoryDisk, bytes: &[u8]) {
    let segments = disk.names().into_iter().filter(|name| name.extension().is_some_and(|it| it == "seg"));
    let place = |name: &PathBuf| disk.bytes(name).windows(bytes.len()).position(|window| window == bytes);
    let (name, at) = segments.into_iter().find_map(|name| place(&name).map(|at| (name, at))).unwrap();
    disk.damage(&name, |bytes| bytes[at] ^= 1);
}

/// Opens what is left, and tells what there is of the group: what is applied, how many entries are there, and through
/// which index it is suspect.
fn left(world: &mut World, damage: impl FnOnce(&MemoryDisk)) -> (u64, usize, Option<u64>) {
    let disk = world.disk.after_kill();
    damage(&disk);
    (world.store, world.disk) = (None, disk);
    world.open();
    let found = world.store().store().take_groups();
    let group = found.iter().find(|group| group.group == GroupNumber(1)).unwrap();
    (group.applied.index, group.entries.len(), group.suspect_through)
}

#[test]
fn a_damaged_entry_makes_its_group_suspect() {
    let mut world = six_entries();
    assert_eq!(left(&mut world, |_| {}), (3, 4, None));
    // Entry 4 has index 6. What stands behind it is nothing without it.
    assert_eq!(left(&mut world, |disk| flip(disk, &marked(4))), (3, 2, Some(7)));
    assert!(!world.store().store().may_have_lost_groups(WrittenAt::default()));
    world.store().get(b"churn-1").unwrap();
    // It stays so until its entries are there again, through flushes and starts.
    world.step(&Op::Flush);
    assert_eq!(left(&mut world, |_| {}), (3, 2, Some(7)));
    let entry = |number| LogEntry { term: 2, put: Some((key(number), (vec![1], marked(number)))) };
    world.model.groups.get_mut(&1).unwrap().entries.truncate(2);
    world.propose_these(1, &[entry(4)]);
    assert_eq!(left(&mut world, |_| {}), (3, 3, Some(7)));
    world.propose_these(1, &[entry(5)]);
    assert_eq!(left(&mut world, |_| {}), (3, 4, None));
    world.apply(&[(1, 4)], 0);
    world.compare_objects();
}

/// The first record that a start reads stands behind all records of a segment, of which a part of the seal is left.
#[test]
fn a_torn_seal_alone_in_what_is_replayed_is_no_loss() {
    let propose = |count| Op::Propose { group: 0, below: 0, count, newer: false, len: 0 };
    let before = [Op::Remove(0), Op::Churn(41), Op::Churn(24), Op::Flush];
    let behind = [propose(3), propose(4), Op::Churn(48), Op::PowerCut];
    for number in 0..4 {
        run(&[&before[..], &behind[..]].concat(), number);
    }
}

/// The first bytes of the trailer of a sealed segment, and its length (`docs/formats/journal.md`).
const TRAILER_MAGIC: &[u8] = b"ANNULETE";
const TRAILER_BYTES: usize = 32;

/// The oldest entry stands in a segment before those that a start replays. Found by the simulator (seed 7506 of the
/// world `strong`): a write of the seal failed, and the power was cut.
#[test]
fn a_torn_seal_behind_an_entry_that_is_not_replayed_is_no_loss() {
    let mut world = six_entries_in(8 << 10);
    world.step(&Op::Churn(100));
    world.step(&Op::Flush);
    world.sync();

    let sealed = world.disk.after_kill();
    let has_entry = |name: &PathBuf| sealed.bytes(name).windows(9).any(|bytes| bytes == [5; 9]);
    let is_sealed = |name: &PathBuf| sealed.bytes(name).windows(8).any(|bytes| bytes == TRAILER_MAGIC);
    let first = sealed.names().into_iter().find(|name| has_entry(name) && is_sealed(name)).unwrap();
    let bytes = sealed.bytes(&first);
    // The last field of the seal, before the trailer: the end of the records.
    let end_field = &bytes[bytes.len() - TRAILER_BYTES - 8..bytes.len() - TRAILER_BYTES];
    let records_end = usize::try_from(u64::from_le_bytes(end_field.try_into().unwrap())).unwrap();
    assert!(records_end < bytes.len() - TRAILER_BYTES, "heads and the seal stand behind the records");
    for len in (records_end..bytes.len()).step_by(8) {
        world.disk = sealed.after_kill();
        let found = left(&mut world, |disk| disk.damage(&first, |bytes| bytes.truncate(len)));
        assert_eq!(found, (3, 4, None), "{} bytes are left behind the records", len - records_end);
        assert!(!world.store().store().may_have_lost_groups(WrittenAt::default()));
    }
}

#[test]
fn a_group_stays_suspect_when_the_damage_is_not_replayed_any_more() {
    let mut world = six_entries();
    world.apply(&[(1, 3)], 0);
    world.step(&Op::Flush);
    // Entry 5 has index 7, and is the only one that is replayed.
    assert_eq!(left(&mut world, |disk| flip(disk, &marked(5))), (6, 0, Some(7)));
    for _ in 0..2 {
        world.store().put(b"churn-1", b"", b"again").unwrap();
        world.step(&Op::Flush);
        world.step(&Op::Compact);
        assert_eq!(left(&mut world, |_| {}), (6, 0, Some(7)));
    }

    let entry = LogEntry { term: 2, put: Some((key(5), (vec![1], marked(5)))) };
    world.model.groups.get_mut(&1).unwrap().entries.clear();
    world.propose_these(1, &[entry]);
    assert_eq!(left(&mut world, |_| {}), (6, 1, None));
}

#[test]
fn an_applied_entry_that_is_damaged_is_missing_again() {
    let mut world = six_entries();
    // Entry 1 has index 3 and was applied by the mark that follows.
    assert_eq!(left(&mut world, |disk| flip(disk, &marked(1))), (2, 0, Some(7)));
    let found = world.store().get(&key(0)).unwrap().unwrap();
    assert_eq!(found.value.unwrap(), marked(0));
    assert!(world.store().get(&key(1)).unwrap().is_none());
}

#[test]
fn a_damaged_key_may_have_been_of_any_group() {
    let mut world = six_entries();
    // Whatever it replaced may still seem to be there: no entry before it counts.
    assert_eq!(left(&mut world, |disk| flip(disk, &key(5))), (1, 0, Some(6)));
    assert!(world.store().store().may_have_lost_groups(WrittenAt::default()));
    assert!(world.store().get(b"churn-1").is_ok(), "no key of the ledger is lost");
    // The owner is told until it has noted that.
    world.step(&Op::Flush);
    left(&mut world, |_| {});
    assert!(world.store().store().may_have_lost_groups(WrittenAt::default()));
    world.store().store().forget_lost_groups();
    assert!(!world.store().store().may_have_lost_groups(WrittenAt::default()));
    world.step(&Op::Churn(1));
    world.step(&Op::Flush);
    left(&mut world, |_| {});
    assert!(!world.store().store().may_have_lost_groups(WrittenAt::default()));
}

/// The journal keeps the damage until its records are in tables, so each start meets it again.
#[test]
fn a_loss_before_a_write_is_told_apart_from_one_behind_it() {
    let mut world = six_entries();
    left(&mut world, |disk| flip(disk, &key(5)));
    world.store().store().forget_lost_groups();
    world.store().put(b"birth", b"", b"").unwrap();
    world.sync();
    left_of_none(&mut world);
    let snapshot = world.store().store().readable_snapshot();
    let (written, _) = read_newest(&mut world.disk.clone(), &snapshot, b"birth").unwrap().unwrap();
    let mut may_be_lost = |since| world.store().store().may_have_lost_groups(since);
    assert!(may_be_lost(WrittenAt::default()));
    assert!(may_be_lost(WrittenAt { jsn: Jsn(1), ..written }));
    assert!(!may_be_lost(written));
}

/// The owner waits for this before it makes promises again.
#[test]
fn a_forgotten_loss_comes_back_until_the_manifest_has_none() {
    let mut world = six_entries();
    left(&mut world, |disk| flip(disk, &key(5)));
    world.step(&Op::Flush);
    left_of_none(&mut world);
    world.store().store().forget_lost_groups();
    assert!(world.store().store().records_lost_groups());
    left_of_none(&mut world);
    assert!(world.store().store().may_have_lost_groups(WrittenAt::default()), "a crash before the manifest");

    world.store().store().forget_lost_groups();
    world.turn();
    assert!(!world.store().store().records_lost_groups());
    left_of_none(&mut world);
    assert!(!world.store().store().may_have_lost_groups(WrittenAt::default()));
}

#[test]
fn a_lost_mark_lets_entries_be_applied_anew() {
    let mut world = six_entries();
    world.apply(&[(1, 1)], 0);
    world.sync();
    // The value of the first mark: one range of group 1, behind index 1, of two entries of term 1.
    let mark = [1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 2, 1, 0];
    // All that it may have acknowledged is there, so the group is not suspect.
    assert_eq!(left(&mut world, |disk| flip(disk, &mark)), (1, 6, None));
    assert!(world.store().get(&key(0)).unwrap().is_none());
}

/// What a crash leaves of a batch is all of it or nothing, wherever the file ends.
#[test]
fn a_batch_that_is_cut_off_is_not_there() {
    let mut world = six_entries();
    world.options.compression = None;
    let segment = |disk: &MemoryDisk| {
        let is_segment = |name: &PathBuf| name.extension().is_some_and(|it| it == "seg");
        // The one after it is made ahead.
        disk.names().into_iter().filter(is_segment).filter(|name| disk.bytes(name).len() > 64).max().unwrap()
    };
    let before = world.disk.bytes(&segment(&world.disk));
    let entry = |number| LogEntry { term: 2, put: Some((key(number), (vec![3], marked(number)))) };
    world.propose_at(1, 5, &[entry(7), entry(8)]);
    let after = world.disk.bytes(&segment(&world.disk));
    let from = before.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let to = after.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    assert!(to > from + 200);
    for len in (from..to).step_by(5) {
        let mut cut = World::of(world.disk.after_kill(), world.options.clone());
        let file = segment(&cut.disk);
        cut.disk.damage(&file, |bytes| bytes[len..].fill(0));
        assert_eq!(left(&mut cut, |_| {}), (3, 4, None), "cut at {len}");
    }
    assert_eq!(left(&mut world, |_| {}), (3, 3, None), "5 of term 1, then two of term 2");
}

#[test]
fn entries_that_are_too_old_are_written_again() {
    let mut world = World::new(options(0));
    world.propose(1, 0, 4, false, 300);
    world.propose(2, 0, 2, false, 300);
    for _ in 0..6 {
        world.step(&Op::Churn(40));
        world.step(&Op::Flush);
    }
    let again = world.store().store().stats().counters.proposals_again;
    assert!(again >= 12, "{again} entries");
    world.step(&Op::Compact);
    let segments = world.store().store().stats().segments;
    assert!(segments < 12, "{segments} segments are left of some 40");
    world.step(&Op::PowerCut);
    world.apply(&[(1, 4), (2, 2)], 0);
    world.compare_objects();
    world.step(&Op::Compact);
    world.step(&Op::Close);
}

#[test]
fn a_rebuilt_ledger_tells_that_groups_may_be_lost() {
    let mut world = World::new(options(1));
    world.propose(1, 0, 4, false, 300);
    world.apply(&[(1, 1)], 0);
    world.propose(1, 2, 1, true, 300);
    world.step(&Op::Churn(60));
    world.step(&Op::Close);
    world.rebuild();
    assert!(world.store().store().may_have_lost_groups(WrittenAt::default()));
    world.step(&Op::Churn(1));
    world.step(&Op::Flush);
    left_of_none(&mut world);
    assert!(world.store().store().may_have_lost_groups(WrittenAt::default()));
}

/// An operator gives keys up: the owner is to know of the states that may be gone with them.
#[test]
fn an_accepted_loss_of_states_is_told_until_the_owner_has_noted_it() {
    let mut world = six_entries();
    world.store.take().unwrap().close().unwrap();
    let (mut disk, dir) = (world.disk.after_kill(), Path::new("/store"));
    let mut state = manifest::find(&mut disk, dir).unwrap().unwrap().state;
    let damage = Damage { file: "1.tbl".to_owned(), offset: 0, what: "block checksum" };
    state.lost.push(LostRange::of_keys(&[STATE_TAG], &[STATE_TAG, 0xff], Seq(1_000), damage));
    manifest::write(&mut disk, dir, &state).unwrap();
    world.disk = disk;

    world.open();
    assert_eq!(world.store().store().accept_losses().len(), 1);
    assert!(world.store().store().may_have_lost_groups(WrittenAt::default()));
    world.store.take().unwrap().close().unwrap();
    left_of_none(&mut world);
    assert!(world.store().store().may_have_lost_groups(WrittenAt::default()));
    world.store().store().forget_lost_groups();
    assert!(!world.store().store().may_have_lost_groups(WrittenAt::default()));
}

fn left_of_none(world: &mut World) {
    let disk = world.disk.after_kill();
    (world.store, world.disk) = (None, disk);
    world.open();
}

fn store(disk: &MemoryDisk, groups: Option<GroupKeys>) -> Result<Embedded, Error> {
    let disk = disk.clone();
    let machine = Machine::new(move || disk.clone(), crate::common::HandClock::new(), SplitMix64::new(1));
    Embedded::open(
        Path::new("/store"),
        Options { groups, durability: Durability::Sync, ..Options::default() },
        machine,
    )
}

fn batch<'a>(state: Option<&'a [u8]>, entries: &'a [ProposedEntry<'a>]) -> GroupBatch<'a> {
    GroupBatch { group: GroupNumber(1), state, commit: 1, install: None, entries }
}

#[test]
fn a_store_that_is_told_of_no_groups_refuses_them() {
    let disk = MemoryDisk::default();
    let place = LogPlace { index: 2, term: 1 };
    let entries = [ProposedEntry { place, contents: Contents::Other(b"first") }];
    let mut plain = store(&disk, None).unwrap();
    assert!(matches!(plain.store().propose(&batch(Some(b""), &entries)), Err(Error::Refused(_))));
    assert!(matches!(plain.store().apply_proposals(&[]), Err(Error::Refused(_))));
    drop(plain);
    let tag = GroupKeys { state_tag: STATE_TAG };
    let mut told = store(&disk.after_kill(), Some(tag)).unwrap();
    assert!(told.store().take_groups().is_empty());
    drop(told);

    let disk = disk.after_kill();
    let mut told = store(&disk, Some(tag)).unwrap();
    told.store().propose(&batch(Some(b"state"), &entries)).unwrap();
    told.put(b"key", b"", b"").unwrap();
    drop(told);
    // No manifest knows of groups yet, and the journal cannot be read without their tag.
    assert!(matches!(store(&disk.after_kill(), None).map(drop), Err(Error::Refused(_))));
    let disk = disk.after_kill();
    store(&disk, Some(tag)).unwrap().close().unwrap();
    let other = GroupKeys { state_tag: STATE_TAG + 1 };
    assert!(matches!(store(&disk.after_kill(), Some(other)).map(drop), Err(Error::Refused(_))));
    let mut plain = store(&disk.after_kill(), None).unwrap();
    assert_eq!(plain.store().take_groups().len(), 1);
    assert!(matches!(plain.store().propose(&batch(None, &entries)), Err(Error::Refused(_))));
}

#[test]
fn unapplied_entries_have_a_bound() {
    let disk = MemoryDisk::default();
    let mut store = store(&disk, Some(GroupKeys { state_tag: STATE_TAG })).unwrap();
    let value = vec![7; 1 << 20];
    let put = |index: u64, term: u64, value: &[&[u8]], store: &mut Embedded| {
        let contents = Contents::Put { key: b"key", head: b"", value };
        let entries = [ProposedEntry { place: LogPlace { index, term }, contents }];
        let written = store.store().propose(&batch((index == 2).then_some(b""), &entries));
        store.put(b"other", b"", b"").unwrap();
        written
    };
    let fit = (2u64..).take_while(|&index| put(index, 1, &[&value], &mut store).is_ok()).count();
    assert_eq!(fit, (PROPOSALS_BYTES_MAX >> 20) - 1, "each takes a little more than its value");
    let next = fit as u64 + 2;
    assert!(matches!(put(next, 1, &[&value], &mut store), Err(Error::Full { .. })));
    put(next - 1, 2, &[&value], &mut store).expect("one takes the place of another");
    let other = [ProposedEntry { place: LogPlace { index: next, term: 2 }, contents: Contents::Other(b"") }];
    store.store().propose(&batch(None, &other)).expect("an entry without a key is taken");
}

/// Proposes entries while one of the disk's operations fails, and tells how many were said to be synced, and how many
/// of the log are there after a power cut.
fn after_failure(operation: u64, durability: Durability) -> (usize, usize) {
    let open = |disk: &MemoryDisk| {
        let disk = disk.clone();
        let clock = crate::common::HandClock::new();
        let machine = Machine::new(move || disk.clone(), clock, SplitMix64::new(1));
        Embedded::open(Path::new("/store"), Options { durability, ..options(0) }, machine)
    };
    let disk = MemoryDisk::default();
    let mut store = open(&disk).unwrap();
    disk.fail(disk.ops() + operation, 1);
    let mut synced = 0;
    for index in 2..30 {
        let contents = Contents::Put { key: b"key", head: b"", value: &[&[7; 300]] };
        let entries = [ProposedEntry { place: LogPlace { index, term: 1 }, contents }];
        let proposed = store.store().propose(&batch((index == 2).then_some(b"state"), &entries));
        (0..4).for_each(|_| store.store().turn(base::Monotonic(index), &mut Vec::new()));
        let Ok(jsn) = proposed else { break };
        synced += usize::from(store.store().synced_jsn() > jsn);
    }
    drop(store);
    let mut store = open(&disk.after_power_cut()).unwrap();
    let found = store.store().take_groups();
    (synced, found.first().map_or(0, |group| group.entries.len()))
}

#[test]
fn what_is_synced_is_there_after_a_failure() {
    let mut fewer = 0;
    for durability in [Durability::Sync, Durability::None] {
        for operation in 1..50 {
            let (synced, there) = after_failure(operation, durability);
            assert!(there >= synced, "{operation}: {there} of {synced}");
            fewer += usize::from(synced < 28);
        }
    }
    assert!(fewer > 40, "{fewer} failures were met");
}

/// Wherever a bit is flipped: what is found is what was written, and what is missing is told.
#[test]
fn no_damage_goes_unnoticed() {
    let world = six_entries();
    let is_segment = |name: &PathBuf| name.extension().is_some_and(|it| it == "seg");
    let segments: Vec<_> = world.disk.names().into_iter().filter(is_segment).collect();
    let mut told = 0;
    for segment in segments {
        let bytes = world.disk.bytes(&segment);
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        for at in (64..end).step_by(3) {
            let mut damaged = World::of(world.disk.after_kill(), world.options.clone());
            damaged.disk.damage(&segment, |bytes| bytes[at] ^= 1 << (at % 8));
            let found = {
                damaged.open();
                damaged.store().store().take_groups()
            };
            let may_be_lost = damaged.store().store().may_have_lost_groups(WrittenAt::default());
            let Some(group) = found.first() else {
                assert!(may_be_lost, "byte {at}: the group is gone");
                continue;
            };
            for entry in &group.entries {
                let number = entry.place.index - 2;
                let FoundContents::Put { key: found, value, .. } = &entry.contents else { panic!("{at}") };
                assert_eq!((&found[..], &value[..]), (&key(number)[..], &marked(number)[..]), "byte {at}");
            }
            let last = group.applied.index + group.entries.len() as u64;
            let is_told = may_be_lost || group.suspect_through == Some(7);
            assert!(last == 7 || is_told, "byte {at}: {group:?}");
            told += usize::from(is_told);
            for number in 0..6 {
                let is_applied = number + 2 <= group.applied.index;
                match damaged.store().get(&key(number)) {
                    Ok(Some(found)) => {
                        assert!(is_applied && found.value.unwrap() == marked(number), "byte {at}")
                    }
                    Ok(None) => assert!(!is_applied, "byte {at}: {number}"),
                    Err(_) => {}
                }
            }
        }
    }
    assert!(told > 100, "{told}");
}
