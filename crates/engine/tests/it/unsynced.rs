//! What was not synced when the power was cut: in the order of writing, all up to some write is there and nothing
//! behind it, though it was in two segments.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::strain::{Slow, options, reopen};
use base::Rng;
use base::rng::SplitMix64;
use engine::check::{FindingKind, check_store};
use engine::{Durability, Embedded, Error, Options, Write};
use std::path::Path;

fn put(slow: &mut Slow, number: u64) {
    let value = [number as u8; 200];
    let write = Write::Put { key: &number.to_be_bytes(), head: b"head", value: &[&value] };
    while let Err(error) = slow.store.write(&[write]) {
        assert!(matches!(error, Error::Full { .. }), "{error}");
        slow.turn();
        slow.run_slice();
    }
}

/// How many are there from the first on; none is behind them.
fn prefix(store: &mut Embedded, count: u64) -> u64 {
    let mut there = (0..count).map(|number| {
        let found = store.get(&number.to_be_bytes()).unwrap();
        found.inspect(|found| assert_eq!(found.value.as_ref().unwrap()[..], [number as u8; 200])).is_some()
    });
    let left = there.by_ref().take_while(|there| *there).count() as u64;
    assert!(there.all(|there| !there), "{left} of {count} are there, and more behind them");
    left
}

#[test]
fn a_power_cut_leaves_a_prefix() {
    let (mut cut_within, mut dropped) = (0, 0);
    for seed in 0..300u64 {
        let rng = &mut SplitMix64::new(seed);
        let durability = [Durability::None, Durability::Interval][seed as usize % 2];
        let options = Options { durability, segment_bytes_target: 16 << 10, ..options() };
        let mut slow = Slow::open(options.clone());
        let count = 100 + rng.below(300);
        let jobs = 1 + rng.below(12);
        for number in 0..count {
            put(&mut slow, number);
            slow.turn();
            if rng.chance(1, jobs) {
                slow.run_slice();
            }
        }
        let promised = slow.store.reached(Durability::Sync).0;
        let cut = slow.disk.after_uneven_power_cut(rng);
        check_store(&mut cut.after_kill(), Path::new("/store"), &mut |finding| {
            assert_ne!(finding.kind, FindingKind::Damage, "{seed}: {finding:?}");
        })
        .unwrap();
        let mut store = reopen(cut.clone(), &options);
        assert_eq!(store.report().damage, [], "{seed}");
        let left = prefix(&mut store, count);
        assert!(left >= promised, "{seed}: {promised} were synced, {left} are left");
        cut_within += u64::from(left > promised && left < count);
        dropped += store.report().torn.iter().filter(|torn| torn.what == "it follows a torn end").count();
        // Nothing comes back behind what is written now.
        for number in count..count + 20 {
            store.put(&number.to_be_bytes(), b"head", &[number as u8; 200]).unwrap();
        }
        store.flush().unwrap();
        let mut store = reopen(cut.after_power_cut(), &options);
        assert_eq!((store.report().damage.len(), prefix(&mut store, count)), (0, left), "{seed}");
        for number in count..count + 20 {
            assert!(store.get(&number.to_be_bytes()).unwrap().is_some(), "{seed}: {number} is lost");
        }
    }
    assert!(
        cut_within > 30 && dropped > 10,
        "{cut_within} cuts within, {dropped} segments behind a torn end"
    );
}
