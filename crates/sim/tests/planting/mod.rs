//! Plants a bug, runs seeds until one breaks a promise, and runs that seed without it.
//!
//! With `PLANTED_SURVEY=N` in the environment N seeds follow the first catch, to count the checkers that catch the bug.

use base::planted::{Planted, plant};
use sim::check::Violation;
use sim::trace::Keep;
use sim::{Kind, Seed};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Which seeds are run.
#[derive(Clone, Copy)]
pub struct Seeds {
    /// The first: where a life takes long, one that catches the bug today. Others are run only when it does no longer.
    pub first: u64,
    /// How many a bug may survive.
    pub max: u64,
    /// The distance of one to the next: where seeds have characters, all are of one.
    pub step: u64,
}

/// The seeds that follow the first catch.
fn survey() -> u64 {
    std::env::var("PLANTED_SURVEY")
        .map_or(0, |seeds| seeds.parse().expect("PLANTED_SURVEY is a number of seeds"))
}

/// What breaks in a seed's life, if something does.
type Life<'a> = &'a dyn Fn(Seed) -> Option<Violation>;

fn violation(life: Life<'_>, seed: u64, bug: Option<Planted>) -> Option<Violation> {
    plant(bug);
    // A panic of the node is a catch, too.
    let end = catch_unwind(AssertUnwindSafe(|| life(Seed(seed))));
    plant(None);
    end.unwrap_or_else(|_| Some(Violation::new("it runs", "it panicked")))
}

/// Asserts that some seed of a world catches `bug`, and that this seed breaks no promise without it.
#[allow(dead_code, reason = "each test file uses what it needs")]
pub fn is_caught(kind: Kind, bug: Planted) {
    let seeds = Seeds { first: 0, max: 300, step: 1 };
    is_caught_in(&|seed| kind.run(seed, Keep::Hash).0.violation, seeds, bug);
}

/// The same of any life, on these seeds.
pub fn is_caught_in(life: Life<'_>, seeds: Seeds, bug: Planted) {
    let Seeds { first: begin, max, step } = seeds;
    let mut planted = (0..max).map(|number| begin + step * number);
    let caught = planted.find_map(|seed| violation(life, seed, Some(bug)).map(|by| (seed, by)));
    let (first, by) = caught.unwrap_or_else(|| panic!("{bug:?} survived {max} seeds"));
    println!(
        "{bug:?}: caught by seed {first}, after {} seeds from {begin} on: {by}",
        (first - begin) / step + 1
    );
    assert_eq!(violation(life, first, None), None, "seed {first} without a bug");

    let more = survey();
    let mut catches = BTreeMap::<&str, u64>::from([(by.checker, 1)]);
    for by in
        (1..=more).map(|number| first + step * number).filter_map(|seed| violation(life, seed, Some(bug)))
    {
        *catches.entry(by.checker).or_default() += 1;
    }
    println!("{bug:?}: of {} seeds from then on: {catches:?}", more + 1);
}
