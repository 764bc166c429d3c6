//! Plants a bug, runs seeds until one breaks a promise, and runs the same seeds without it.

use base::planted::{Planted, plant};
use sim::check::Violation;
use sim::trace::Keep;
use sim::{Kind, Seed};
use std::collections::BTreeMap;

/// Seeds that a bug may survive.
const SEEDS_MAX: u64 = 300;
/// Seeds after the first catch, to see which checkers catch it.
const SEEDS_MORE: u64 = 20;

fn violation(kind: Kind, seed: u64, bug: Option<Planted>) -> Option<Violation> {
    plant(bug);
    // A panic of the node is a catch, too.
    let end = std::panic::catch_unwind(|| kind.run(Seed(seed), Keep::Hash).0.violation);
    plant(None);
    end.unwrap_or_else(|_| Some(Violation::new("it runs", "it panicked")))
}

/// Asserts that some seed catches `bug`, and that no seed up to then breaks a promise without it.
pub fn is_caught(kind: Kind, bug: Planted) {
    let caught = (0..SEEDS_MAX).find_map(|seed| violation(kind, seed, Some(bug)).map(|by| (seed, by)));
    let (first, by) = caught.unwrap_or_else(|| panic!("{bug:?} survived {SEEDS_MAX} seeds"));
    println!("{bug:?}: caught after {} seeds: {by}", first + 1);
    let mut catches = BTreeMap::<&str, u64>::from([(by.checker, 1)]);
    for by in (first + 1..=first + SEEDS_MORE).filter_map(|seed| violation(kind, seed, Some(bug))) {
        *catches.entry(by.checker).or_default() += 1;
    }
    println!("{bug:?}: of {} seeds from then on: {catches:?}", SEEDS_MORE + 1);
    for seed in 0..=first + SEEDS_MORE {
        assert_eq!(violation(kind, seed, None), None, "seed {seed} without a bug");
    }
}
