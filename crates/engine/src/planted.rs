//! Mutants: bugs that the tests must catch. Compiled only with the feature `planted`, for tests alone.
//!
//! A mutant is in force on the thread that planted it; a simulation runs a whole world on one.

use std::cell::Cell;

/// A bug that can be planted in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Writes are acknowledged before they are synced, whatever the durability.
    AckBeforeSync,
    /// The directory is not synced after a segment is made.
    NoDirectorySync,
    /// A record passes whether or not its checksums do.
    RecordWithoutChecksum,
    /// Recovery leaves a torn tail in the file.
    TornTailKept,
    /// An unclean start takes the dot counter up where the last lease began.
    DotReused,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 5] = [
        Planted::AckBeforeSync,
        Planted::NoDirectorySync,
        Planted::RecordWithoutChecksum,
        Planted::TornTailKept,
        Planted::DotReused,
    ];
}

thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

/// Plants `bug` on this thread, or with `None` digs it up.
pub fn plant(bug: Option<Planted>) {
    PLANTED.set(bug);
}

/// Whether `bug` is in force on this thread.
pub fn is_planted(bug: Planted) -> bool {
    PLANTED.get() == Some(bug)
}
