//! Plants a bug, runs seeds until one breaks a promise, and runs the same seeds without it.

use base::planted::{Planted, plant};
use sim::check::Violation;
use sim::trace::Keep;
use sim::{Kind, Seed};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds that a bug may survive.
const SEEDS_MAX: u64 = 300;
/// Seeds after the first catch, to see which checkers catch it.
const SEEDS_MORE: u64 = 20;

/// What breaks in a seed's life, if something does.
type Life<'a> = &'a dyn Fn(Seed) -> Option<Violation>;

fn violation(life: Life<'_>, seed: u64, bug: Option<Planted>) -> Option<Violation> {
    plant(bug);
    // A panic of the node is a catch, too.
    let end = catch_unwind(AssertUnwindSafe(|| life(Seed(seed))));
    plant(None);
    end.unwrap_or_else(|_| Some(Violation::new("it runs", "it panicked")))
}

/// Asserts that some seed of a world catches `bug`, and that no seed up to then breaks a promise without it.
#[allow(dead_code, reason = "each test file uses what it needs")]
pub fn is_caught(kind: Kind, bug: Planted) {
    is_caught_in(&|seed| kind.run(seed, Keep::Hash).0.violation, (SEEDS_MAX, SEEDS_MORE), bug);
}

/// The same of any life, with so many seeds that the bug may survive, and so many after the first catch.
pub fn is_caught_in(life: Life<'_>, (seeds_max, seeds_more): (u64, u64), bug: Planted) {
    let caught = (0..seeds_max).find_map(|seed| violation(life, seed, Some(bug)).map(|by| (seed, by)));
    let (first, by) = caught.unwrap_or_else(|| panic!("{bug:?} survived {seeds_max} seeds"));
    println!("{bug:?}: caught after {} seeds: {by}", first + 1);
    let mut catches = BTreeMap::<&str, u64>::from([(by.checker, 1)]);
    for by in (first + 1..=first + seeds_more).filter_map(|seed| violation(life, seed, Some(bug))) {
        *catches.entry(by.checker).or_default() += 1;
    }
    println!("{bug:?}: of {} seeds from then on: {catches:?}", seeds_more + 1);
    for seed in 0..=first + seeds_more {
        assert_eq!(violation(life, seed, None), None, "seed {seed} without a bug");
    }
}
