//! Bugs planted in a large cluster are caught, within a bounded number of seeds, and the seed that catches one passes
//! without it.
#![cfg(feature = "planted")]

mod planting;

use base::planted::Planted;
use sim::elastic::{Shape, second_thoughts};

const SHAPE: Shape = Shape { nodes: 9, partitions: 64 };
/// A life of these in which an operator has second thoughts shows them soon; the second mutant after 36, and more or
/// fewer whenever times change. A life takes a twentieth of a second.
const SEEDS: planting::Seeds = planting::Seeds { first: 0, max: 120, step: 1 };

fn is_caught(bug: Planted) {
    planting::is_caught_in(&|seed| second_thoughts(seed, SHAPE).err(), SEEDS, bug);
}

#[test]
fn switched_uncopied() {
    is_caught(Planted::SwitchedUncopied);
}

#[test]
fn copy_counted_twice() {
    is_caught(Planted::CopyCountedTwice);
}
