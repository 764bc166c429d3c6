//! Merging: many sorted sources become one, and the newest version of each key is what is left.
//!
//! A [`Source`] is a cursor over entries in key order: a memtable, a table, or a level's tables one after
//! another. [`MergeIter`] walks several at once and stops at the newest version of each key; folds use it too.
//! [`BackIter`] walks against
//! the order. [`MergeJob`] writes what it walks into new tables: a flush has one memtable as its source, a merge has
//! tables.
//!
//! Invariants:
//! - of each key the version with the highest seq is kept, and no other: a snapshot that wants an older one holds
//!   the memtables and tables that have it;
//! - what was dropped with its range is left out, and a version that has ended is a deletion from then on;
//! - a deletion is left out only on the caller's word that nothing below the output can hold the key;
//! - a job's tables are complete and durable, names included, before its outcome says so.
//!
//! Follows LevelDB's compaction. Left out: which tables to merge, which [`crate::manifest::Version`] decides.

mod back;
mod iter;
mod job;
mod source;
#[cfg(test)]
mod tests;

pub use back::{BackIter, BackSource, MemtableBack};
pub use iter::MergeIter;
pub use job::{MergeJob, MergeOutput, MergeRequest, MergeStats};
pub use source::{Item, LedgerSource, MemtableSource, Run, Source};
