//! Reading at one moment, on any thread.
//!
//! A [`Snapshot`] is the ledger as of a seq: shares of memtables and tables, the segments that they point into, and
//! the ranges that were dropped. Nothing is copied or frozen for it, and it is good for as long as it is held.
//!
//! * `record.rs`: a value's record in the journal, and whether it is that very record.
//! * `stretches.rs`: records that lie close together, read at once.
//! * `lookup.rs`: a key's newest version in a snapshot, with reads that wait.
//! * `cache.rs`: the blocks that readers share.
//! * `range.rs`: a range of keys from either end.
//! * [`Reader`]: a handle for another thread than the owner's, which follows the store or stays at a snapshot.
//! * `publish.rs`: how the owner tells its readers.
//!
//! The shard's own reads never wait and are elsewhere (`store/lookup.rs`).

mod cache;
mod lookup;
mod publish;
mod range;
mod reader;
mod record;
mod snapshot;
mod stretches;

pub(crate) use cache::SharedBlocks;
use lookup::{Blocks, Newest};
pub(crate) use publish::Publisher;
pub use range::{Range, RangeItem};
pub use reader::{KEYS_MANY_MAX, Reader};
pub(crate) use record::RecordAt;
pub use snapshot::Snapshot;
pub(crate) use stretches::Stretches;
