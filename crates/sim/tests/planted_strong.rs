//! Each bug planted in consistent groups is caught, within a bounded number of seeds; and the seed that catches it
//! passes without it.
//!
//! `cargo test -p sim --release --features planted --test planted_strong -- --nocapture` prints by which checkers, and
//! how soon.
//!
//! Scripts catch six more (`planted_scripts.rs`). Tests of the parts catch those that lives hide:
//!
//! | bug | lives hide it, since | caught by |
//! |---|---|---|
//! | CloneVotesBeforeRegistered | a shard opens no group before its registration | the stories of `strong` |
//! | SnapshotPartKept | no tombstone is reaped in these lives | the stories of `strong` |
//! | CommitNoteLost | answers of other requests carry the note | the stories of `strong` |
//! | TransferNeverAborted | a process that stops ends soon | the groups with leases of `strong` |
//! | RepairBesideGroup | of two committed versions the higher index wins | `kv`: no repair begins |
#![cfg(feature = "planted")]

mod planting;

use base::planted::Planted;
use planting::Seeds;
use sim::Kind;
use sim::trace::Keep;

/// Lives that a bug may survive: some ten seconds of them.
const LIVES_MAX: u64 = 25;

/// Lives have four characters, by the remainders of their seeds.
const CHARACTERS: u64 = 4;

/// The first seed of this character whose life has a restore of all nodes.
const RESTORED: u64 = 25;

/// Asserts that a life with the character of that seed catches the bug.
fn is_caught(bug: Planted, first: u64) {
    let seeds = Seeds { first, max: LIVES_MAX, step: CHARACTERS };
    planting::is_caught_in(&|seed| Kind::Strong.run(seed, Keep::Hash).0.violation, seeds, bug);
}

#[test]
fn entry_acked_before_sync() {
    is_caught(Planted::EntryAckedBeforeSync, 20);
}

#[test]
fn ack_before_majority() {
    is_caught(Planted::AckBeforeMajority, 1);
}

#[test]
fn read_before_noop() {
    is_caught(Planted::ReadBeforeNoop, 1);
}

#[test]
fn failed_by_proposed_head() {
    is_caught(Planted::FailedByProposedHead, 5);
}

#[test]
fn failed_without_lease() {
    is_caught(Planted::FailedWithoutLease, 109);
}

#[test]
fn condition_before_noop() {
    is_caught(Planted::ConditionBeforeNoop, 5);
}

#[test]
fn unavailable_but_applied() {
    is_caught(Planted::UnavailableButApplied, 8);
}

#[test]
fn cas_beside_proposal() {
    is_caught(Planted::CasBesideProposal, 1);
}

#[test]
fn read_index_reused() {
    is_caught(Planted::ReadIndexReused, 233);
}

#[test]
fn forward_executed_twice() {
    is_caught(Planted::ForwardExecutedTwice, 1);
}

#[test]
fn lost_disk_votes() {
    is_caught(Planted::LostDiskVotes, 38);
}

#[test]
fn damaged_state_votes() {
    is_caught(Planted::DamagedStateVotes, 324);
}

#[test]
fn restored_birth_kept() {
    is_caught(Planted::RestoredBirthKept, RESTORED);
}

#[test]
fn hold_ignored() {
    is_caught(Planted::HoldIgnored, RESTORED);
}

#[test]
fn birth_before_manifest() {
    is_caught(Planted::BirthBeforeManifest, 30_759);
}

#[test]
fn epoch_kept() {
    is_caught(Planted::EpochKept, RESTORED);
}

#[test]
fn forgot_unnoticed() {
    is_caught(Planted::ForgotUnnoticed, 58);
}

#[test]
fn frozen_without_group_state() {
    is_caught(Planted::FrozenWithoutGroupState, 2);
}

#[test]
fn applied_past_mark() {
    is_caught(Planted::AppliedPastMark, 2);
}

#[test]
fn replay_from_flush() {
    is_caught(Planted::ReplayFromFlush, 2);
}

#[test]
fn proposal_compacted() {
    is_caught(Planted::ProposalCompacted, 10);
}

#[test]
fn sleeper_not_woken() {
    is_caught(Planted::SleeperNotWoken, 7);
}

#[test]
fn probe_paused() {
    is_caught(Planted::ProbePaused, 1);
}
