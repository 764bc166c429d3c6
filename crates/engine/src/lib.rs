//! The storage engine: values are written once to a journal, and a small LSM tree, the ledger, answers what
//! does not need a value.
//!
//! Follows leveled's division of labour (journal and ledger), WiscKey's separation of keys from values (Lu and
//! others, FAST 2016) and LevelDB's tables and levels. It runs on [`base::Disk`] and [`base::Spawn`] only: no
//! thread, socket, clock or async runtime of its own.

pub mod backup;
pub mod check;
pub mod checkpoint;
pub mod compaction;
pub mod compression;
pub mod drops;
pub mod embedded;
pub mod entry;
pub mod error;
pub mod fold;
pub mod index;
pub mod journal;
mod key_segments;
pub mod load;
pub mod lost;
pub mod manifest;
pub mod memtable;
pub mod merge;
mod prefetch;
pub mod proposals;
pub mod read;
pub mod recovery;
mod scrub;
pub mod store;
pub mod table;

pub use compression::{Codec, CompressAt};
pub use embedded::{Embedded, Jobs, Machine};
pub use entry::{Entry, Jsn, Location, Seq, WrittenAt};
pub use error::{Damage, Error};
pub use index::{Before, Indexing};
pub use proposals::{
    AppliedRange, Contents, FoundContents, FoundEntry, FoundGroup, GroupBatch, GroupKeys, GroupNumber,
    LogPlace, PROPOSALS_BYTES_MAX, ProposedEntry, STATE_BYTES_MAX,
};
pub use read::{Reader, Snapshot};
pub use store::{
    CompactionSchedule, Condition, DayWindow, Durability, Found, Lookup, Options, Store, Want, Write,
};
