//! Each planted bug is caught, within a bounded number of seeds; and the seed that catches it passes without it.
//!
//! `cargo test -p sim --release --features planted --test planted -- --nocapture` prints by which checkers, and
//! how soon.
#![cfg(feature = "planted")]

mod planting;

use backends::Kind as Backend;
use base::planted::Planted;
use sim::Kind;

fn is_caught(bug: Planted) {
    planting::is_caught(Kind::Node, bug);
}

#[test]
fn ack_before_sync() {
    is_caught(Planted::AckBeforeSync);
}

#[test]
fn ack_before_another_backend_has_it() {
    planting::is_caught(Kind::NodeOn(Backend::Bitcask), Planted::AckBeforeSync);
}

#[test]
fn no_directory_sync() {
    is_caught(Planted::NoDirectorySync);
}

#[test]
fn record_without_checksum() {
    is_caught(Planted::RecordWithoutChecksum);
}

#[test]
fn torn_tail_kept() {
    is_caught(Planted::TornTailKept);
}

#[test]
fn live_record_dropped() {
    is_caught(Planted::LiveRecordDropped);
}

#[test]
fn dot_reused() {
    is_caught(Planted::DotReused);
}

#[test]
fn stale_index_entry() {
    is_caught(Planted::StaleIndexEntry);
}

#[test]
fn stale_index_entry_of_another_backend() {
    planting::is_caught(Kind::NodeOn(Backend::Bitcask), Planted::StaleIndexEntry);
}

#[test]
fn entry_of_deleted() {
    is_caught(Planted::EntryOfDeleted);
}

#[test]
fn entry_of_deleted_of_another_backend() {
    planting::is_caught(Kind::NodeOn(Backend::Bitcask), Planted::EntryOfDeleted);
}
