//! Folds: visiting a range of the ledger at one moment, in bounded steps beside everything else.
//!
//! * [`FoldRequest`] says what is visited: heads (with or without a check of their records), objects in key order or in
//!   the journal's, one key of each bucket; in which ranges, of which key segments ([`KeySegments`]), modified when,
//!   how many.
//! * `walk.rs` goes through a snapshot step by step. `job.rs` is a fold as a job, for an owner that must not wait;
//!   [`Reader::fold`](crate::Reader::fold) runs one where it is called.
//! * `scan.rs` brings keys and heads page by page; `items.rs` is what is on a page, `at_hand.rs` the disk of one that
//!   does not wait.
//! * `replayed.rs` visits what a start has replayed, as it was and as it is.
//! * `sets.rs` combines what several ranges are about ([`RangeSet`]).
//!
//! Whatever a fold holds, it holds for a bounded while and in bounded memory: a window or a page. A fold that has ended
//! says where it can be resumed.

mod at_hand;
mod items;
mod job;
mod replayed;
mod request;
mod scan;
mod sets;
mod walk;

pub use crate::key_segments::{KEY_SEGMENTS_MAX, KeySegments, SEGMENT_BITS_MAX};
pub use items::Items;
pub(crate) use job::Fold;
pub use job::{FoldId, FoldVisitor};
pub use replayed::{Replaced, ReplacedVisitor, Replayed};
pub use request::{
    BLOCKS_KEPT_MAX, BucketOf, Control, DAMAGED_NAMED_MAX, FoldEnd, FoldRequest, JournalCheck, KeyRange,
    Modified, Place, RANGES_MAX, Visited, What,
};
pub(crate) use scan::Scan;
pub use scan::{PAGE_BYTES_MAX, ScanId, ScanPage, ScanRequest, Visit, Visitor, read_all, read_newest};
pub(crate) use sets::Combining;
pub use sets::{MEMBER_BYTES, MEMBERS_BYTES_MAX, MemberOf, RangeSet, SET_RANGES_MAX};
pub(crate) use walk::FoldWalk;
