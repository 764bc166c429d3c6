//! Bugs that a script shows sooner than a life by chance.
#![cfg(feature = "planted")]

mod planting;

use base::planted::Planted;
use sim::cluster::{gossip, transfer};

/// Each of them takes longer than a life by chance, and shows what it is there for.
const SEEDS: (u64, u64) = (30, 2);

#[test]
fn copy_begun_anew() {
    planting::is_caught_in(&|seed| transfer::run(seed, 3_000).err(), SEEDS, Planted::CopyBegunAnew);
}

#[test]
fn given_up_searched() {
    planting::is_caught_in(&|seed| transfer::run(seed, 1_000).err(), (40, 2), Planted::GivenUpSearched);
}

#[test]
fn tie_by_arrival() {
    planting::is_caught_in(&|seed| gossip::run(seed, 5, 50).err(), SEEDS, Planted::TieByArrival);
}
