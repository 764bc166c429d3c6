//! Each planted bug is caught, within a bounded number of seeds; and the same seeds pass without it.
//!
//! `cargo test -p sim --release --features planted --test planted -- --nocapture` prints by which checkers, and
//! how soon.
#![cfg(feature = "planted")]

use engine::planted::{Planted, plant};
use sim::Seed;
use sim::check::Violation;
use sim::trace::Keep;
use sim::world;
use std::collections::BTreeMap;

/// Seeds that a bug may survive.
const SEEDS_MAX: u64 = 300;
/// Seeds after the first catch, to see which checkers catch it.
const SEEDS_MORE: u64 = 40;

fn violation(seed: u64, bug: Option<Planted>) -> Option<Violation> {
    plant(bug);
    // A panic of the node is a catch, too.
    let end = std::panic::catch_unwind(|| world::run(Seed(seed), Keep::Hash).0.violation);
    plant(None);
    end.unwrap_or_else(|_| Some(Violation::new("it runs", "it panicked")))
}

fn is_caught(bug: Planted) {
    let caught = (0..SEEDS_MAX).find_map(|seed| violation(seed, Some(bug)).map(|by| (seed, by)));
    let (first, by) = caught.unwrap_or_else(|| panic!("{bug:?} survived {SEEDS_MAX} seeds"));
    println!("{bug:?}: caught after {} seeds: {by}", first + 1);
    let mut catches = BTreeMap::<&str, u64>::from([(by.checker, 1)]);
    for by in (first + 1..=first + SEEDS_MORE).filter_map(|seed| violation(seed, Some(bug))) {
        *catches.entry(by.checker).or_default() += 1;
    }
    println!("{bug:?}: of {} seeds from then on: {catches:?}", SEEDS_MORE + 1);
    for seed in 0..=first + SEEDS_MORE {
        assert_eq!(violation(seed, None), None, "seed {seed} without a bug");
    }
}

#[test]
fn ack_before_sync() {
    is_caught(Planted::AckBeforeSync);
}

#[test]
fn no_directory_sync() {
    is_caught(Planted::NoDirectorySync);
}

#[test]
fn record_without_checksum() {
    is_caught(Planted::RecordWithoutChecksum);
}

#[test]
fn torn_tail_kept() {
    is_caught(Planted::TornTailKept);
}

#[test]
fn dot_reused() {
    is_caught(Planted::DotReused);
}
