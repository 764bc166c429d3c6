//! Each bug planted in a cluster is caught, within a bounded number of seeds; and the seed that catches it passes
//! without it.
//!
//! `cargo test -p sim --release --features planted --test planted_cluster -- --nocapture` prints by which checkers,
//! and how soon.
#![cfg(feature = "planted")]

mod planting;

use base::planted::Planted;
use sim::Kind;

fn is_caught(bug: Planted) {
    planting::is_caught(Kind::Cluster, bug);
}

#[test]
fn ack_before_sync_at_a_replica() {
    is_caught(Planted::AckBeforeSync);
}

#[test]
fn hint_dropped() {
    is_caught(Planted::HintDropped);
}

#[test]
fn hint_applied_twice() {
    is_caught(Planted::HintAppliedTwice);
}

#[test]
fn dot_reused_after_restore() {
    is_caught(Planted::DotReusedAfterRestore);
}

#[test]
fn repair_overwrites() {
    is_caught(Planted::RepairOverwrites);
}

#[test]
fn quorum_from_one_node() {
    is_caught(Planted::QuorumFromOneNode);
}

#[test]
fn frontier_ignored() {
    is_caught(Planted::FrontierIgnored);
}

#[test]
fn fallback_as_primary() {
    is_caught(Planted::FallbackAsPrimary);
}

#[test]
fn reply_after_deadline() {
    is_caught(Planted::ReplyAfterDeadline);
}

#[test]
fn reap_with_hint_outstanding() {
    is_caught(Planted::ReapWithHintOutstanding);
}

#[test]
fn listing_cut_short() {
    is_caught(Planted::ListingCutShort);
}

#[test]
fn stale_ring_accepted() {
    is_caught(Planted::StaleRingAccepted);
}

#[test]
fn move_not_passed_on() {
    is_caught(Planted::MoveNotPassedOn);
}

#[test]
fn copy_told_early() {
    is_caught(Planted::CopyToldEarly);
}

#[test]
fn range_dropped_early() {
    is_caught(Planted::RangeDroppedEarly);
}

#[test]
fn forwarding_loop() {
    is_caught(Planted::ForwardingLoop);
}

#[test]
fn listed_by_two() {
    is_caught(Planted::ListedByTwo);
}

#[test]
fn deleted_listed() {
    is_caught(Planted::DeletedListed);
}

#[test]
fn rows_told_twice() {
    is_caught(Planted::RowsToldTwice);
}

#[test]
fn rows_skipped_at_a_page() {
    is_caught(Planted::RowsSkippedAtAPage);
}

#[test]
fn tree_not_updated_on_repair() {
    is_caught(Planted::TreeNotUpdatedOnRepair);
}

#[test]
fn tree_ahead_after_crash() {
    is_caught(Planted::TreeAheadAfterCrash);
}

#[test]
fn day_not_left() {
    is_caught(Planted::DayNotLeft);
}

#[test]
fn end_ignored() {
    is_caught(Planted::EndIgnored);
}

#[test]
fn erased_unseen() {
    is_caught(Planted::ErasedUnseen);
}
