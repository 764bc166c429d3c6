//! What a store takes has a bound: memory, tables of level 0, what waits. Beyond it there is a refusal, which can be
//! tried again; nothing that was accepted is lost, and files go when the last who reads them has let go.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

#[path = "common/budget.rs"]
mod budget;
mod common;

use base::Rng;
use base::rng::SplitMix64;
use bytes::Bytes;
use common::strain::{Slow, options, reopen, strained};
use engine::fold::{ScanRequest, Visit};
use engine::store::{LEVEL0_TABLES_MAX, LOOKUPS_PARKED_MAX, MEMTABLES_FROZEN_MAX, PACE_MAX, SCANS_MAX};
use engine::{Durability, Error, Lookup, Options, Want, Write};

#[test]
fn a_load_that_is_too_fast_is_refused_in_time_and_loses_nothing() {
    let met = strained(30_000);
    assert!(met.refused > 1000, "{met:?}");
    // What a write waits for is a flush or a merge, never all of them.
    assert!(met.refused_in_a_row < 200, "{met:?}");
    let memtables = (MEMTABLES_FROZEN_MAX + 1) * (options().memtable_bytes_max + 512);
    assert!(met.memtable_bytes <= memtables, "{met:?}");
    assert!(met.level0_tables <= LEVEL0_TABLES_MAX + MEMTABLES_FROZEN_MAX, "{met:?}");
    assert_eq!((met.wrong, met.files_left), (0, 0), "{met:?}");
}

#[test]
fn a_store_takes_no_more_memory_than_its_options_say() {
    let (most, allowed) = (budget::most(), budget::allowed());
    assert!(most < allowed, "{most} bytes of {allowed}");
}

/// Who heeds the pace is never refused, and its waits are what flushes and merges need for what it writes: they do not
/// come in steps as memtables and tables do.
#[test]
fn who_waits_as_asked_waits_evenly() {
    /// What a write takes, and a slice of 4,096 entries: three times as long as writing them.
    const WRITE_NS: u64 = 500;
    const SLICE_NS: u64 = 6_000_000;
    let mut slow = Slow::open(Options {
        memtable_bytes_max: 4 << 20,
        segment_bytes_target: 4 << 20,
        ..Options::default()
    });
    let (mut now, mut slice_at, mut waits) = (0, 0, Vec::new());
    for number in 0..260_000u64 {
        let key = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes();
        slow.store.write(&[Write::Put { key: &key, head: b"head", value: &[] }]).expect("nothing is refused");
        let wait = slow.store.pace().as_nanos() as u64;
        waits.push(wait);
        now += WRITE_NS + wait;
        while slice_at <= now {
            slice_at += SLICE_NS;
            slow.run_slice();
        }
        if number % 32 == 0 {
            slow.turn();
        }
    }
    let settled = &mut waits[120_000..];
    settled.sort_unstable();
    let (mean, count) = (settled.iter().sum::<u64>() / settled.len() as u64, settled.len());
    assert!(mean > WRITE_NS, "writes were not slowed: {mean} ns");
    let (few, many, most) = (settled[count / 10], settled[count * 9 / 10], settled[count - 1]);
    assert!(
        few > 0 && many < 3 * mean && most < 10 * mean,
        "{few} to {many} ns, {most} at most, {mean} would do"
    );
}

/// Who heeds the pace has a journal of little more than twice what lives, however slow compaction is beside the writes:
/// they wait for it.
#[test]
fn who_waits_as_asked_has_a_bounded_journal() {
    const KEYS: u64 = 20_000;
    const WRITE_NS: u64 = 2_000;
    const SLICE_NS: u64 = 1_000_000;
    let mut slow =
        Slow::open(Options { memtable_bytes_max: 256 << 10, segment_bytes_target: 1 << 20, ..options() });
    let (mut rng, mut now, mut slice_at) = (SplitMix64::new(3), 0, 0);
    let (mut waited, mut waited_for_space) = (0, 0);
    let (mut last, mut steps) = (0, 0);
    let mut most = 0;
    for number in 0..12 * KEYS {
        let key = if number < KEYS { number } else { rng.below(KEYS) }.to_be_bytes();
        slow.store
            .write(&[Write::Put { key: &key, head: b"head", value: &[&[7; 300]] }])
            .expect("nothing is refused");
        let wait = slow.store.pace().as_nanos() as u64;
        waited += wait;
        if !slow.store.must_be_paced() {
            waited_for_space += wait;
            steps += u64::from(last > 0 && wait > last + PACE_MAX.as_nanos() as u64 / 50);
        }
        last = wait;
        now += WRITE_NS + wait;
        while slice_at <= now {
            slice_at += SLICE_NS;
            slow.run_slice();
        }
        if number % 32 == 0 {
            slow.turn();
        }
        if number == KEYS {
            slow.rest();
            most = slow.store.stats().journal_bytes;
        }
        if number % 1000 == 0 && number > 2 * KEYS {
            let bytes = slow.store.stats().journal_bytes;
            assert!(bytes < most * 9 / 4, "{bytes} bytes of {most} after {number} writes");
        }
    }
    let bytes = slow.store.stats().journal_bytes;
    assert!(waited > 0 && bytes > most * 3 / 2, "{bytes} bytes of {most}, and {waited} ns of waits");
    assert!(waited_for_space > waited / 2, "{waited_for_space} of {waited} ns for no limit's sake");
    // What is found of what died comes in steps, 139 here.
    assert!(steps < 100, "waits grew {steps} times by a fiftieth of the longest at once");
}

/// A segment of which a little is dead, too little to go, is looked at once and not for ever.
#[test]
fn what_is_not_worth_a_compaction_is_left_alone() {
    let options = Options {
        segment_bytes_target: 64 << 10,
        space_target_percent: 100,
        space_target_idle_percent: 100,
        ..options()
    };
    let mut slow = Slow::open(options);
    let put = |slow: &mut Slow, number: u64| {
        slow.store
            .write(&[Write::Put { key: &number.to_be_bytes(), head: b"", value: &[&[7; 300]] }])
            .unwrap();
        slow.rest();
    };
    (0..1000).for_each(|number| put(&mut slow, number));
    // Of some 180 records of a segment so many; one of these shares is between a twentieth and what rounds to it.
    for (segment, dead) in (0..5).zip(6..) {
        (0..dead).for_each(|nth| put(&mut slow, segment * 180 + nth * 17));
    }
    (1000..8000).for_each(|number| put(&mut slow, number));
    let stats = slow.store.stats();
    assert!(stats.journal_dead_bytes > 0 && stats.segments > 10, "{stats:?}");
}

/// Though nobody waits for a sync, there is one for each so many bytes: it is short, and a power cut takes little.
#[test]
fn what_is_not_synced_is_bounded_whatever_the_durability() {
    const MIB: usize = 1 << 20;
    /// What is handed to the disk before one of it begins.
    const SYNC_MIB: u64 = 16;
    // In one segment: what is behind the sync under way, and what that is of. Where segments end, the one before it as
    // well.
    for (segment_bytes_target, writes_for_a_slice, syncs_of, expected, least) in [
        (128 << 20, 8, 2, 3..=8, 43),
        (128 << 20, 30, 2, 2..=4, 16),
        (8 << 20, 1, 3, 15..=30, 43),
        (8 << 20, 4, 3, 7..=12, 43),
        (8 << 20, 8, 3, 4..=8, 30),
    ] {
        let options = Options { segment_bytes_target, memtable_bytes_max: 16 << 20, ..options() };
        let mut slow = Slow::open(options.clone());
        let before = slow.store.stats().journal.syncs;
        let reached = |slow: &Slow, safe| slow.store.reached(safe).0;
        let mut most = 0;
        for number in 0..60u64 {
            let key = number.to_be_bytes();
            slow.store.write(&[Write::Put { key: &key, head: b"", value: &[&vec![7; MIB]] }]).unwrap();
            slow.turn();
            most = most.max(reached(&slow, Durability::Interval) - reached(&slow, Durability::Sync));
            if number % writes_for_a_slice == 0 {
                slow.run_slice();
            }
        }
        let case =
            format!("segments of {segment_bytes_target} bytes, a slice each {writes_for_a_slice} writes");
        let syncs = slow.store.stats().journal.syncs - before;
        assert!(expected.contains(&syncs), "{case}: {syncs} syncs of 60 MiB");
        assert!(most <= syncs_of * SYNC_MIB, "{case}: {most} MiB were not synced");
        let synced = reached(&slow, Durability::Sync);
        let mut store = reopen(slow.disk.after_power_cut(), &options);
        let there =
            (0..60u64).take_while(|number| store.head(&number.to_be_bytes()).unwrap().is_some()).count();
        assert!(
            there as u64 >= synced.max(least),
            "{case}: {there} of 60 MiB are left, {synced} were synced"
        );
    }
}

fn request() -> ScanRequest {
    ScanRequest {
        start: Bytes::new(),
        end: Bytes::new(),
        items_max: 1,
        visitor: Box::new(|_, _| Visit::Take),
        past_losses: false,
    }
}

#[test]
fn what_waits_is_bounded_and_a_refusal_can_be_tried_again() {
    let mut slow = Slow::open(options());
    for number in 0..2000u64 {
        let key = number.to_be_bytes();
        slow.store.write(&[Write::Put { key: &key, head: b"head", value: &[&[7; 100]] }]).unwrap();
        slow.turn();
        slow.rest();
    }
    for _ in 0..2 {
        let begun = (0..=SCANS_MAX).filter(|_| slow.store.scan(request()).is_ok()).count();
        assert_eq!(begun, SCANS_MAX);
        assert!(matches!(slow.store.scan(request()), Err(Error::Full { .. })));
        slow.rest();
    }
    for _ in 0..2 {
        let (mut waiting, mut refused) = (0, 0);
        for number in (0..2000u64).cycle().take(20_000) {
            match slow.store.lookup(&number.to_be_bytes(), Want::Value) {
                Lookup::Done(Ok(found)) => assert!(found.is_some()),
                Lookup::Done(Err(error)) => {
                    assert!(matches!(error, Error::Full { .. }), "{error}");
                    refused += 1;
                }
                Lookup::NeedsIo(_) => waiting += 1,
            }
        }
        assert!(waiting == LOOKUPS_PARKED_MAX && refused > 1000, "{waiting} wait, {refused} were refused");
        slow.rest();
    }
}
