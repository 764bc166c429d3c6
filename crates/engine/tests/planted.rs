//! Planted bugs of the engine that a store used alone shows, and the same runs without them.
//!
//! `cargo test -p engine --features planted --test planted`

#![cfg(feature = "planted")]
#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

#[path = "common/budget.rs"]
mod budget;
mod common;

use base::Rng;
use base::planted::{Planted, plant};
use base::rng::SplitMix64;
use common::disk::MemoryDisk;
use common::groups::{self, Op, World};
use common::{HandClock, strain};
use engine::{CompactionSchedule, Durability, Embedded, Machine, Options};
use std::collections::BTreeMap;
use std::path::Path;

const KEYS: u64 = 400;
const WRITES: u64 = 6000;

/// Levels that are merged often: a deletion goes down through some of them.
fn options() -> Options {
    Options { memtable_bytes_max: 4 << 10, level0_tables_max: 2, runs_max: 2, ..common::small() }
}

/// Writes and deletes keys, and tells for how many the store says something else than a map does.
fn wrong_answers(seed: u64) -> usize {
    let (disk, clock, mut rng) = (MemoryDisk::default(), HandClock::new(), SplitMix64::new(seed));
    let machine = Machine::new(move || disk.clone(), clock, SplitMix64::new(1));
    let mut store = Embedded::open(Path::new("/store"), options(), machine).unwrap();
    let mut model = BTreeMap::new();
    for number in 0..WRITES {
        let key = format!("{:04}", rng.below(KEYS));
        match rng.below(3) {
            0 => {
                store.delete(key.as_bytes()).unwrap();
                model.remove(&key);
            }
            _ => {
                store.put(key.as_bytes(), &number.to_le_bytes(), b"value").unwrap();
                model.insert(key, number);
            }
        }
    }
    store.flush().unwrap();
    let merges = store.store().stats().counters.merges;
    assert!(merges > 10, "{merges} merges");
    let mut wrong = 0;
    for key in (0..KEYS).map(|number| format!("{number:04}")) {
        let found = store.head(key.as_bytes()).unwrap().map(|found| found.head.to_vec());
        wrong += usize::from(found != model.get(&key).map(|number| number.to_le_bytes().to_vec()));
    }
    wrong
}

#[test]
fn a_deletion_that_is_dropped_early_brings_its_key_back() {
    assert_eq!((0..5).map(wrong_answers).sum::<usize>(), 0);
    plant(Some(Planted::DeletionDroppedEarly));
    let caught = (0..5).filter(|&seed| wrong_answers(seed) > 0).count();
    plant(None);
    assert_eq!(caught, 5, "seeds that show it");
}

/// Writes at durability `sync` while one of the disk's operations fails, and tells how many of the keys that were
/// acknowledged are not there after a power cut.
fn lost_after_failure(operation: u64) -> usize {
    let open = |disk: &MemoryDisk| {
        let disk = disk.clone();
        let machine = Machine::new(move || disk.clone(), HandClock::new(), SplitMix64::new(1));
        let (durability, compaction) = (Durability::Sync, CompactionSchedule::Never);
        Embedded::open(Path::new("/store"), Options { durability, compaction, ..options() }, machine)
    };
    let disk = MemoryDisk::default();
    let mut store = open(&disk).unwrap();
    disk.fail(disk.ops() + operation, 1);
    let key = |number: u64| number.to_be_bytes();
    let acknowledged: Vec<u64> =
        (0..40).filter(|&number| store.put(&key(number), b"head", &[7; 100]).is_ok()).collect();
    drop(store);
    match open(&disk.after_power_cut()) {
        Ok(mut store) => {
            acknowledged.iter().filter(|&&number| !matches!(store.get(&key(number)), Ok(Some(_)))).count()
        }
        Err(_) => acknowledged.len(),
    }
}

#[test]
fn a_failed_sync_that_is_forgotten_loses_what_was_acknowledged() {
    let caught = || (1..=40).filter(|&operation| lost_after_failure(operation) > 0).count();
    assert_eq!(caught(), 0);
    plant(Some(Planted::FailedSyncForgotten));
    let with_it = caught();
    plant(None);
    assert!(with_it > 10, "{with_it} of 40 failures show it");
}

/// Fills a bounded disk, removes all that was written, and tells how many operations of the disk found no room, and
/// whether writes came back.
fn filled_up() -> (u64, bool) {
    const SPACE: u64 = 400 << 10;
    let (disk, clock) = (MemoryDisk::default(), HandClock::new());
    disk.bound(Some(SPACE));
    let there = disk.clone();
    let machine = Machine::new(move || there.clone(), clock.clone(), SplitMix64::new(1));
    let reserved = Options {
        durability: Durability::Sync,
        memtable_bytes_max: 6 << 10,
        segment_bytes_target: 16 << 10,
        table_bytes_target: 6 << 10,
        reserve_bytes: 120 << 10,
        ..options()
    };
    let mut store = Embedded::open(Path::new("/store"), reserved, machine).unwrap();
    let key = |number: u64| format!("key-{number:04}").into_bytes();
    let mut written = 0;
    while store.put(&key(written), b"", &[7; 500]).is_ok() {
        clock.advance_ms(1000);
        written += 1;
        assert!(written < 10_000, "the disk is never full");
    }
    for number in 0..written {
        clock.advance_ms(1000);
        drop(store.delete(&key(number)));
    }
    let came_back = (0..100).any(|_| {
        clock.advance_ms(1000);
        store.put(b"again", b"", &[7; 500]).is_ok()
    });
    (disk.takes().1, came_back)
}

#[test]
fn a_store_without_a_reserve_runs_its_disk_full() {
    assert_eq!(filled_up(), (0, true));
    plant(Some(Planted::NoReserve));
    let (refused, _) = filled_up();
    plant(None);
    assert!(refused > 0, "the disk was never without room");
}

#[test]
fn a_cache_without_a_bound_takes_more_memory_than_was_allowed() {
    assert!(budget::most() < budget::allowed());
    plant(Some(Planted::CacheUnbounded));
    let most = budget::most();
    plant(None);
    assert!(most > budget::allowed(), "{most} bytes");
}

#[test]
fn a_store_that_takes_every_write_is_flooded() {
    let limit = 3 * (strain::options().memtable_bytes_max + 512);
    let met = strain::strained(10_000);
    assert!(met.refused > 300 && met.memtable_bytes <= limit, "{met:?}");
    plant(Some(Planted::NoBackPressure));
    let met = strain::strained(10_000);
    plant(None);
    assert!(met.memtable_bytes > 2 * limit, "{met:?}");
}

/// Whether a store with groups is found to be wrong, after these operations, by what its owner must be able to rely on.
fn is_wrong(ops: &[Op], number: u64) -> bool {
    let run = || groups::run(ops, number);
    std::panic::catch_unwind(run).is_err()
}

/// Stores that are told different things: with jobs elsewhere, and within calls.
const TOLD: [u64; 2] = [0, 4];

/// Each of the bugs is seen in one of these stories at least, and none without it.
fn is_caught(bug: Planted, stories: &[Vec<Op>]) {
    for number in TOLD {
        assert!(stories.iter().all(|story| !is_wrong(story, number)), "{bug:?} of {number} is not planted");
    }
    plant(Some(bug));
    let caught = stories.iter().any(|story| TOLD.iter().any(|&number| is_wrong(story, number)));
    plant(None);
    assert!(caught, "{bug:?} goes unseen");
}

fn propose(below: u64, count: u64, newer: bool) -> Op {
    Op::Propose { group: 1, below, count, newer, len: 300 }
}

#[test]
fn a_memtable_without_the_states_of_its_marks_forgets_what_was_applied() {
    let story = vec![propose(0, 3, false), Op::Apply(vec![(1, 2)], 0), Op::Flush, Op::Kill];
    is_caught(Planted::FrozenWithoutGroupState, &[story]);
}

#[test]
fn a_conflict_that_is_kept_leaves_a_lost_leaders_entries() {
    let story = vec![propose(0, 3, false), propose(2, 1, true), Op::Kill];
    is_caught(Planted::ConflictKept, &[story]);
}

#[test]
fn a_start_that_applies_past_a_mark_shows_what_is_not_committed() {
    let story = vec![propose(0, 3, false), Op::Apply(vec![(1, 1)], 0), Op::Kill];
    is_caught(Planted::AppliedPastMark, &[story]);
}

#[test]
fn a_start_that_reads_from_the_flush_on_misses_entries() {
    let story = vec![propose(0, 3, false), Op::Churn(3), Op::Flush, Op::Kill];
    is_caught(Planted::ReplayFromFlush, &[story]);
}

#[test]
fn an_entry_that_is_written_again_alone_cuts_off_its_log() {
    let story = vec![propose(0, 3, false), Op::Churn(59), Op::Flush, Op::Churn(59), Op::Flush, Op::Kill];
    is_caught(Planted::ReappendTruncates, &[story]);
}

#[test]
fn a_segment_with_open_entries_that_is_compacted_loses_them() {
    let story = |count| {
        let churn = [Op::Churn(count), Op::Churn(count / 2), Op::Flush, Op::Compact, Op::Kill];
        [vec![propose(0, 2, false)], churn.to_vec()].concat()
    };
    let stories: Vec<_> = (6..24).step_by(2).map(story).collect();
    is_caught(Planted::ProposalCompacted, &stories);
}

#[test]
fn a_rebuild_that_takes_entries_for_versions_shows_what_never_was() {
    let wrong = || {
        let rebuilt = || {
            let mut world = World::new(groups::options(1));
            for op in [propose(0, 3, false), propose(3, 1, true), Op::Churn(40), Op::Close] {
                world.step(&op);
            }
            world.rebuild();
        };
        std::panic::catch_unwind(rebuilt).is_err()
    };
    assert!(!wrong());
    plant(Some(Planted::OverwrittenProposalRebuilt));
    let caught = wrong();
    plant(None);
    assert!(caught);
}
