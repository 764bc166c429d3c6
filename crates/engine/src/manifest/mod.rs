//! What a store consists of: in memory as a [`Version`], on disk as the manifest.
//!
//! A [`Version`] is an immutable arrangement of tables in levels; a flush or a merge makes the next one, and
//! readers and snapshots share the one they began with. [`ManifestState`] is what must be known to open the store:
//! its identity, its counters, where replay begins, and the names of all tables and segments. The file is written
//! whole, under another name, and renamed: a store's manifest is always an old one or a new one. It has a copy, which
//! is written after it and read if it cannot be.
//!
//! Invariants:
//! - level 0 has the newest table first; every deeper level is in key order, and its tables do not overlap;
//! - of two versions of a key the newer one is in the memtable or the smaller level;
//! - a table or segment that the manifest names is durable before the manifest is.
//!
//! Follows LevelDB's levels; its log of edits is left out, since a whole manifest is small (about 150 bytes for a
//! table of 16 MiB). The format's page is docs/formats/manifest.md.

mod file;
mod pick;
mod state;
#[cfg(test)]
mod tests;
mod version;

pub use file::{FoundManifest, MANIFEST_COPY_FILE, MANIFEST_FILE, ManifestJob, find, read, read_copy, write};
pub(crate) use pick::HIDDEN_SHARE;
pub use pick::{MergeCursors, MergeOptions, MergePlan, Reclaiming};
pub use state::{
    CleanStop, GroupsRecord, JournalPosition, MANIFEST_VERSION, METADATA_BYTES_MAX, ManifestState,
    SegmentRecord, TableRecord,
};
pub use version::{FIRST_LEVELED, LEVELS, RUNS_MAX, TableCursor, Version};
