//! Backups of a node: its stores' files under their own names, its part in the cluster, and an index with their
//! checksums.
//!
//! ```text
//! DEST/NAME/BACKUP                        the index; a folder without one is no backup, or not a whole one
//! DEST/NAME/store-000/MANIFEST            which files make up the store, written for this backup
//! DEST/NAME/store-000/journal/ tables/    hard links or copies of the store's files
//! DEST/NAME/membership/                   which node of which cluster it is, and its log
//! ```
//!
//! * `create.rs`: links, or copies in slices, what a store says it is made up of ([`engine::backup`]), also while it
//!   serves.
//! * `index.rs`: the index's format. `verify.rs`: reads a backup back. `restore.rs`: makes a data folder of one.
//! * `transfer.rs`: files in slices, between which whoever watches may wait, or stop.
//!
//! Invariants
//! * The index is written last, once all that it names is durable: a backup is whole or there is none.
//! * Nothing writes to a file of a backup: what may still change is copied, and what is restored is a copy.
//! * Files that an earlier backup of the same store has are linked from there, and their checksums taken over.
//!
//! Left out: encryption, and destinations that are no file system; tools for folders of files do both.

mod create;
mod error;
mod index;
mod restore;
mod transfer;
mod verify;

pub use create::{Create, Created, How, Part, create};
pub use error::Error;
pub use index::{FileEntry, INDEX_FILE, Index, NAME_BYTES_MAX, StoreEntry, check_name};
pub use restore::{Restored, Rewrite, ShardDir, restore};
pub use transfer::{Control, Progress, SLICE_BYTES, Watch};
pub use verify::{Problem, Verified, verify};
