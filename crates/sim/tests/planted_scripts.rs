//! Bugs that a script shows sooner than a life by chance.
#![cfg(feature = "planted")]

mod planting;

use base::planted::Planted;
use planting::{Seeds, is_caught_in};
use sim::cluster::{gossip, overload, transfer};
use sim::consistent::{Script, run_script};
use sim::trace::Keep;

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

/// Asserts that a script catches the bug within some of the seeds that it fits.
fn is_caught_by(script: Script, first: u64, bug: Planted) {
    let seeds = Seeds { first, max: 10, step: 4 };
    is_caught_in(&|seed| run_script(seed, script, Keep::Hash).0.violation, seeds, bug);
}

#[test]
fn vote_not_durable() {
    is_caught_by(Script::AskedTwice, 1, Planted::VoteNotDurable);
}

#[test]
fn conflict_kept() {
    is_caught_by(Script::Overtaken, 9, Planted::ConflictKept);
}

#[test]
fn reappend_truncates() {
    is_caught_by(Script::Outdated, 10, Planted::ReappendTruncates);
}

#[test]
fn damaged_proposal_votes() {
    is_caught_by(Script::Damaged, 13, Planted::DamagedProposalVotes);
}

#[test]
fn catch_up_resumed_newer() {
    is_caught_by(Script::Deleted, 123, Planted::CatchUpResumedNewer);
}

#[test]
fn worse_copy_chosen() {
    is_caught_by(Script::BackedUpBehind, 5, Planted::WorseCopyChosen);
}
