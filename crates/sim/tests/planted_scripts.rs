//! Bugs that a script shows sooner than a life by chance.
#![cfg(feature = "planted")]

mod planting;

use base::planted::Planted;
use planting::{Seeds, is_caught_in};
use sim::cluster::{gossip, overload, transfer};

/// What any seed shows.
const ONE: Seeds = Seeds { first: 0, max: 1, step: 1 };

#[test]
fn copy_begun_anew() {
    let seeds = Seeds { first: 8, max: 30, step: 1 };
    is_caught_in(&|seed| transfer::run(seed, 3_000).err(), seeds, Planted::CopyBegunAnew);
}

#[test]
fn given_up_searched() {
    let seeds = Seeds { first: 28, max: 40, step: 1 };
    is_caught_in(&|seed| transfer::run(seed, 1_000).err(), seeds, Planted::GivenUpSearched);
}

#[test]
fn tie_by_arrival() {
    let seeds = Seeds { first: 0, max: 30, step: 1 };
    is_caught_in(&|seed| gossip::run(seed, 5, 50).err(), seeds, Planted::TieByArrival);
}

#[test]
fn queue_unbounded() {
    is_caught_in(&|seed| overload::run(seed).err(), ONE, Planted::QueueUnbounded);
}

#[test]
fn refused_late() {
    is_caught_in(&|seed| overload::run(seed).err(), ONE, Planted::RefusedLate);
}
