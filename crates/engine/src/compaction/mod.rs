//! Journal compaction: what is still of use in a few segments moves to a new one, and they go.
//!
//! A compacted segment stands in the place of its inputs: for the same range of jsns, of which some are left. The
//! moved records keep their jsns, so no ledger entry is written; the segment's index says where they stand now.
//!
//! Steps
//! 1. `plan`: accounts say how many bytes of each segment are dead, exactly (`account`); the emptiest run of
//!    segments is taken once the journal is larger than its target.
//! 2. `sift`: each record of the inputs is kept or not. It reads blocks of heads, and no value.
//! 3. `output`: what is kept is copied (`window`), checked on the way, into a new segment, which is sealed and synced.
//! 4. The manifest names the new segment instead of its inputs; then readers find it.
//! 5. When nobody holds an input any more its file is removed, the oldest first.
//!
//! A crash before 4 leaves a file that no manifest names, one after 4 leaves inputs that none names: both are removed
//! at the next start.
//!
//! What is kept (see `sift.rs` for the proof): a value that the ledger's newest durable version of its key points at;
//! a deletion that the ledger has; and the newest record of a key, whatever it is, while an older one that it covers
//! is left in the journal: so the ledger can be made again from the journal, and nothing old comes back.
//!
//! A value that fails its checksum moves with the mark of its damage: it goes on to be answered by an error, and is
//! reported. A segment of which a record's key is lost is left as it is.
//!
//! Follows Bitcask's merge and WiscKey's garbage collection; the choice of segments follows the greedy policy of
//! log-structured file systems (Rosenblum and Ousterhout, 1992). Left out: hot and cold records in separate outputs.

mod account;
mod job;
mod newest;
mod output;
mod pace;
mod plan;
mod reader;
mod sift;
#[cfg(test)]
mod tests;
mod window;

pub use account::{Account, DeadRecord};
pub(crate) use account::{Accounts, CountDead};
pub(crate) use job::{Compaction, CompactionEnd, CompactionError, CompactionOutput, CompactionRequest, Run};
pub(crate) use newest::Newest;
pub(crate) use pace::Pace;
pub(crate) use plan::{Choice, WASTE_OUTPUTS_MIN, choose};
pub(crate) use reader::entry_of;
