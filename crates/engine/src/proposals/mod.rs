//! Logs of consistent groups: entries that a store keeps before they take effect.
//!
//! An owner proposes entries to a group's log. Each is one record of the journal, and no version of a key. When the
//! owner knows that entries are committed it has them applied: one record, the commit mark, gives them versions, and
//! the ledger points at the records of the entries. So a value is written once.
//!
//! * `record.rs`: the bytes of entries, marks and states. `stash.rs`: entries that are not applied, by pure rules that
//!   a running store and a start share.
//! * `store/proposals.rs` writes entries and applies them; `store/open/groups.rs` finds them at a start.
//!
//! Invariants
//! * Entries, states and marks count as all records do: a batch as a whole, in the order in which it was written.
//! * What the tables have of a group is one state: with a memtable goes the state of each group of which it has marks.
//! * No segment is compacted, or removed, that has an entry which tables do not have and which may still be applied.
//!
//! Left out: consensus, which is the owner's.

pub(crate) mod record;
pub(crate) mod stash;
#[cfg(test)]
mod tests;

use bytes::Bytes;

/// The number of a group: the owner's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNumber(pub u64);

/// Where a store keeps the states of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupKeys {
    /// The first byte of the keys of states, and of no other key. The group's number follows it, 8 bytes, big-endian.
    pub state_tag: u8,
}

/// The place of an entry in its group's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPlace {
    /// Its index.
    pub index: u64,
    /// The term of the leader that made it.
    pub term: u64,
}

impl LogPlace {
    /// The place before the first entry of a new group's log.
    pub const FOUNDED: LogPlace = LogPlace { index: 1, term: 1 };
}

/// The contents of an entry that is to be written.
#[derive(Clone, Copy, Debug)]
pub enum Contents<'a> {
    /// Sets a key's head and value when it is applied.
    Put {
        /// The key.
        key: &'a [u8],
        /// The head.
        head: &'a [u8],
        /// The value, in parts that are joined in the journal.
        value: &'a [&'a [u8]],
    },
    /// Changes no key: the owner's opaque bytes.
    Other(&'a [u8]),
}

/// An entry that is to be written.
#[derive(Clone, Copy, Debug)]
pub struct ProposedEntry<'a> {
    /// Its place.
    pub place: LogPlace,
    /// Its contents.
    pub contents: Contents<'a>,
}

/// The records of one group that are written at once: all or none.
#[derive(Clone, Copy, Debug)]
pub struct GroupBatch<'a> {
    /// The group.
    pub group: GroupNumber,
    /// The owner's opaque state, which is written before the entries; [`STATE_BYTES_MAX`] at most. The first batch of a
    /// group has one.
    pub state: Option<&'a [u8]>,
    /// The index up to which entries were known to be committed.
    pub commit: u64,
    /// A snapshot that takes the place of all entries: the group is applied up to it, and unapplied entries go. It
    /// needs a state.
    pub install: Option<LogPlace>,
    /// Entries. One with the index and term of one that is there replaces it alone; one of another term replaces that
    /// one and all above.
    pub entries: &'a [ProposedEntry<'a>],
}

/// Entries of one group that are committed.
#[derive(Clone, Copy, Debug)]
pub struct AppliedRange<'a> {
    /// The group.
    pub group: GroupNumber,
    /// The index that is applied already.
    pub after: u64,
    /// The last entry.
    pub through: LogPlace,
    /// Indexes of entries whose key keeps the version that it has, ascending.
    pub skipped: &'a [u64],
}

/// A group as the store's open found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundGroup {
    /// The group.
    pub group: GroupNumber,
    /// The owner's state. None if only entries were found: the state was lost, and the group is suspect.
    pub state: Option<Bytes>,
    /// The last entry applied; [`LogPlace::FOUNDED`] if there is none.
    pub applied: LogPlace,
    /// The highest index that was known to be committed.
    pub commit: u64,
    /// Unapplied entries, in the order of their indexes and without a gap behind `applied`.
    pub entries: Vec<FoundEntry>,
    /// The highest index that may have been acknowledged, if an entry or a mark up to it is damaged or missing.
    pub suspect_through: Option<u64>,
}

/// An entry that was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundEntry {
    /// Its place.
    pub place: LogPlace,
    /// Its contents.
    pub contents: FoundContents,
}

/// The contents of an entry, as they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundContents {
    /// Sets a key.
    Put {
        /// The key.
        key: Bytes,
        /// The head.
        head: Bytes,
        /// The value.
        value: Bytes,
    },
    /// Changes no key.
    Other(Bytes),
}

/// The longest state of a group: terms, votes and a configuration of some dozen members.
pub const STATE_BYTES_MAX: usize = 4 << 10;

/// Entries of all groups of a store that are not applied may take so many bytes; one is always taken. They are in
/// memory until they are applied, and no segment that has one is compacted.
pub const PROPOSALS_BYTES_MAX: usize = 32 << 20;
