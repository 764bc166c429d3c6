//! Planted bugs: each is caught by a checker within a bounded number of seeds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use base::planted::{Planted, plant};
use strong::linearizability::Verdict;

use crate::leases;
use crate::lives::a_life;
use crate::stories::{
    a_catch_up_is_broken_off_beside_a_fold, a_clone_is_started, a_commit_note_is_lost,
    a_condition_fails_by_a_write_that_is_lost, a_condition_is_asked_of_a_leader_of_the_past,
    a_disk_with_an_acknowledged_write_is_lost, a_journal_is_set_back, a_key_is_written_beside_a_catch_up,
    a_tombstone_is_reaped_without_a_voter, a_tombstone_is_to_be_reaped_beside_a_catch_up,
    a_voter_comes_back_to_a_group_at_rest, a_voter_is_to_be_recovered_beside_a_majority,
    all_lose_power_after_a_write, an_acknowledged_entry_is_damaged, an_answer_to_a_read_is_late,
    an_answer_to_another_life_is_late, votes_are_asked_for_beside_damaged_states, votes_are_asked_for_twice,
};
use crate::world::World;

/// Seeds within which a bug must be caught.
const SEEDS: u64 = 200;

/// The first seed that shows a bug, and how.
fn caught(bug: Planted, seeds: u64, life: impl Fn(u64) -> World) -> Option<(u64, String)> {
    plant(Some(bug));
    let shown = (0..seeds).find_map(|seed| match catch_unwind(AssertUnwindSafe(|| life(seed).verdict())) {
        Ok(Verdict::Violation(violation)) => Some((seed, format!("{violation:?}"))),
        Ok(Verdict::Linearizable | Verdict::Unknown) => None,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some((seed, text.unwrap_or_default()))
        }
    });
    plant(None);
    shown
}

fn is_caught(bug: Planted, life: impl Fn(u64) -> World) {
    let shown = caught(bug, SEEDS, life);
    println!("{bug:?}: {shown:?}");
    assert!(shown.is_some(), "{bug:?} is not caught within {SEEDS} seeds");
}

/// Tests of one bug each: caught by a life or a story.
macro_rules! caught {
    ($($name:ident: $bug:ident, $life:expr;)*) => {
        $(
            #[test]
            fn $name() {
                is_caught(Planted::$bug, $life);
            }
        )*
    };
}

caught! {
    planted_vote_not_durable: VoteNotDurable, votes_are_asked_for_twice;
    planted_entry_acked_before_sync: EntryAckedBeforeSync, all_lose_power_after_a_write;
    planted_ack_before_majority: AckBeforeMajority, a_life;
    planted_read_before_noop: ReadBeforeNoop, a_life;
    planted_failed_by_proposed_head: FailedByProposedHead, a_condition_fails_by_a_write_that_is_lost;
    planted_failed_without_lease: FailedWithoutLease, a_condition_is_asked_of_a_leader_of_the_past;
    planted_condition_before_noop: ConditionBeforeNoop, a_life;
    planted_unavailable_but_applied: UnavailableButApplied, a_life;
    planted_cas_beside_proposal: CasBesideProposal, a_life;
    planted_read_index_reused: ReadIndexReused, an_answer_to_a_read_is_late;
    planted_read_answer_of_another_life: ReadAnswerOfAnotherLife, an_answer_to_another_life_is_late;
    planted_read_unconfirmed: ReadUnconfirmed, a_life;
    planted_read_across_snapshot: ReadAcrossSnapshot, a_key_is_written_beside_a_catch_up;
    planted_clone_votes: CloneVotesBeforeRegistered, a_clone_is_started;
    planted_forgot_unnoticed: ForgotUnnoticed, a_journal_is_set_back;
    planted_damaged_proposal_votes: DamagedProposalVotes, an_acknowledged_entry_is_damaged;
    planted_damaged_state_votes: DamagedStateVotes, votes_are_asked_for_beside_damaged_states;
    planted_lost_disk_votes: LostDiskVotes, a_disk_with_an_acknowledged_write_is_lost;
    planted_snapshot_part_kept: SnapshotPartKept, a_tombstone_is_reaped_without_a_voter;
    planted_fold_of_another_catch_up: FoldOfAnotherCatchUp, a_catch_up_is_broken_off_beside_a_fold;
    planted_catch_up_resumed_newer: CatchUpResumedNewer, a_life;
    planted_reaped_too_early: ReapedTooEarly, a_tombstone_is_to_be_reaped_beside_a_catch_up;
    planted_commit_note_lost: CommitNoteLost, a_commit_note_is_lost;
    planted_probe_paused: ProbePaused, a_life;
    planted_sleeper_not_woken: SleeperNotWoken, a_voter_comes_back_to_a_group_at_rest;
    planted_recovered_while_voter_lives: RecoveredWhileVoterLives, a_voter_is_to_be_recovered_beside_a_majority;
    planted_forward_executed_twice: ForwardExecutedTwice, a_life;
}

/// How soon lives of groups catch each bug, without the stories: `PLANTED_SURVEY=1000`.
#[test]
fn planted_survey() {
    let Ok(seeds) = std::env::var("PLANTED_SURVEY") else { return };
    let seeds = seeds.parse().unwrap();
    for bug in [
        Planted::VoteNotDurable,
        Planted::EntryAckedBeforeSync,
        Planted::AckBeforeMajority,
        Planted::ReadBeforeNoop,
        Planted::FailedByProposedHead,
        Planted::ConditionBeforeNoop,
        Planted::UnavailableButApplied,
        Planted::CasBesideProposal,
        Planted::ReadIndexReused,
        Planted::ReadAnswerOfAnotherLife,
        Planted::ReadUnconfirmed,
        Planted::ReadAcrossSnapshot,
        Planted::LostDiskVotes,
        Planted::SnapshotPartKept,
        Planted::FoldOfAnotherCatchUp,
        Planted::CatchUpResumedNewer,
        Planted::ReapedTooEarly,
        Planted::CommitNoteLost,
        Planted::ProbePaused,
        Planted::ForwardExecutedTwice,
        Planted::SleeperNotWoken,
    ] {
        println!("SURVEY {bug:?}: {:?}", caught(bug, seeds, a_life));
    }
}

/// Tests of one bug each: caught by a search through all states of a scenario.
macro_rules! searched {
    ($($name:ident: $bug:ident, $scenario:expr;)*) => {
        $(
            #[test]
            fn $name() {
                plant(Some(Planted::$bug));
                let shown = leases::violation($scenario);
                plant(None);
                println!("{:?}: {shown:?}", Planted::$bug);
                assert!(shown.is_some(), "no state shows {:?}", Planted::$bug);
            }
        )*
    };
}

searched! {
    planted_lease_from_receipt: LeaseFromReceipt, leases::LATE;
    planted_lease_without_term: LeaseWithoutTerm, leases::HANDED_OVER;
    planted_lease_by_old_clock: LeaseByOldClock, leases::LATE;
    planted_promise_forgotten: PromiseForgotten, leases::ANOTHER_LIFE;
    planted_promise_revived: PromiseRevived, leases::HEALED;
    planted_renewed_one_way: RenewedOneWay, leases::ONE_WAY;
    planted_lease_across_life: LeaseAcrossLife, leases::ANOTHER_LIFE;
    planted_lease_after_hand_over: LeaseAfterHandOver, leases::HANDED_OVER;
    planted_follower_forgot_leader: FollowerForgotLeader, leases::HIGHER_TERM;
}
