//! The journal: the log of every write and the home of values, in segments.
//!
//! * [`record`] is one record, its bytes and its checks.
//! * [`segment`] is what stands around records in a file: the header, and the seal with its block of heads.
//! * [`index`] says where the records of a compacted segment stand.
//! * [`scan`] goes through one segment and finds records again behind damage; [`fault`] is what it finds that is none,
//!   torn or damaged; [`replay`] goes through all segments that a start must apply.
//!
//! Invariants: a record's checksum covers where it stands, so a block that was written elsewhere or earlier
//! never passes for one; a damaged value still names its key; damage never cuts off later records.
//!
//! Follows LevelDB's log and leveled's journal; a record with a magic word and a header checksum of its own
//! for finding the next one follows the framing of Kafka and ZFS's embedded checksums. `docs/formats/journal.md`
//! has every byte.

mod buffer;
pub mod fault;
mod group;
pub mod index;
pub mod prepare;
pub mod record;
pub mod replay;
pub mod scan;
pub mod seal;
pub mod segment;
pub mod writer;

pub use index::SegmentIndex;
pub use record::{Header, Kind, ParseError, Record, RecordSpan};
pub use replay::{Replay, Replayed, Source};
pub use scan::Scanner;
pub use segment::{Position, Seal, SealBuilder, SegmentId, durable_mark};

#[cfg(test)]
mod record_tests;
#[cfg(test)]
mod scan_tests;
#[cfg(test)]
mod segment_tests;
