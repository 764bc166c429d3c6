//! Mutants: bugs that this crate's tests must catch. A mutant is in force on the thread that planted it, in tests alone.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// An entry is committed when one voter has it.
    CommittedEntryLost,
    /// A snapshot that comes late replaces what is newer.
    StaleRingAccepted,
    /// A data folder that is older than the cluster knows goes on voting.
    RestoredVotes,
    /// The ring is switched to owners that have not copied.
    SwitchedUncopied,
    /// What was copied for one target counts for another.
    CopyCountedTwice,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Planted>> = const { std::cell::Cell::new(None) };
}

/// Whether a bug is in force; false in a product build.
pub(crate) fn planted(bug: Planted) -> bool {
    #[cfg(test)]
    let is_planted = PLANTED.get() == Some(bug);
    #[cfg(not(test))]
    let is_planted = match bug {
        // The simulator of whole nodes plants these.
        Planted::SwitchedUncopied => base::planted!(SwitchedUncopied),
        Planted::CopyCountedTwice => base::planted!(CopyCountedTwice),
        _ => false,
    };
    is_planted
}

/// Plants a bug, or takes it out, on this thread.
#[cfg(test)]
pub(crate) fn plant(bug: Option<Planted>) {
    PLANTED.set(bug);
}
