//! Whether reads are right while operations overlap.
//!
//! What is demanded is a regular register for each key, with many writers: a read may answer any write that was not
//! certainly replaced before the read began, where `a` was certainly replaced by `b` if `a` had ended before `b` began,
//! and `b` was acknowledged. A write that overlaps the read may show or not. A write of which nobody knows whether it
//! was done (an error, a broken connection) may show at any time, or never.
//!
//! Writes of a key are numbered in the order in which they begin, and values carry their number, so one small entry for
//! each key is enough:
//!
//! 1. A write takes the next number. It certainly replaces all writes below the first one that was under way when it
//!    began (`covers`); with none under way, all before it.
//! 2. When it is acknowledged, the key's `floor` rises to that.
//! 3. A read notes the floor when it begins. At its end, a version below that floor was certainly replaced: the read
//!    was stale. Nothing found is right only if the last delete is not below the floor.
//! 4. Writes in doubt are listed, and always allowed.
//!
//! Each rule errs to the side of the store: no right answer is ever called wrong. The converse is not so: with many
//! writes under way on one key, `covers` lies lower than it could, and an old version may pass.
//!
//! What an index query finds is judged row by row: see [`rows`].
//!
//! Whether a version that is too old is *lost* (the write is gone) or *stale* (one read did not see it) is told by
//! reading again, in the end once more after the load: see [`Suspicion`]. Memory is bounded: the table holds so many
//! keys; beyond, keys are checked by their values' stamps only, and counted as not compared.

pub mod rows;
mod table;

pub use table::{Found, Judgement, Key, Outcome, ReadTicket, Table, WriteTicket};

use results::CheckSummary;
use std::sync::atomic::{AtomicU64, Ordering};

/// What can be wrong with a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// An acknowledged write is gone.
    Lost,
    /// An older version was answered, and a newer one is there.
    Stale,
    /// A version from before a delete was answered.
    Resurrected,
    /// The value is not what anybody wrote under this key.
    Corrupt,
    /// A query told a row that it was not asked for, twice, out of order, or of a term that the object never had.
    WrongRow,
    /// A query did not find an object that had its term before the run.
    Incomplete,
}

impl Cause {
    /// Its name in results and workloads.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Lost => "lost",
            Cause::Stale => "stale",
            Cause::Resurrected => "resurrected",
            Cause::Corrupt => "corrupt",
            Cause::WrongRow => "wrong-row",
            Cause::Incomplete => "incomplete",
        }
    }

    /// All of them.
    pub const ALL: [Cause; 6] =
        [Cause::Lost, Cause::Stale, Cause::Resurrected, Cause::Corrupt, Cause::WrongRow, Cause::Incomplete];
}

/// A read that answered something too old. Another look says what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// The key.
    pub key: Key,
    /// What was read.
    pub found: Found,
    /// The least version that the read should have seen.
    pub floor: u32,
    /// Whether what was read is from before a delete.
    pub from_before_delete: bool,
    /// The newest write that had begun when the read ended.
    pub newest: u32,
}

/// What other looks came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// This is what it was.
    Cause(Cause),
    /// It was overwritten in between: stale, or lost and made good by a later write. Counts as stale.
    Unresolved,
    /// Another suspicion of the same loss has been counted already.
    Known,
}

impl Suspicion {
    /// What it was, if another read, which found `again`, tells it. None: that is too old as well.
    pub fn explain(&self, again: Found) -> Option<Resolution> {
        match again {
            Found::Version(version) if version > self.newest => Some(Resolution::Unresolved),
            Found::Version(version) if version >= self.floor => Some(match self.from_before_delete {
                true => Resolution::Cause(Cause::Resurrected),
                false => Resolution::Cause(Cause::Stale),
            }),
            Found::Nothing if self.from_before_delete => Some(Resolution::Cause(Cause::Resurrected)),
            _ => None,
        }
    }

    /// What it was, where no read has explained it and none will.
    pub fn conclude(&self, table: &Table) -> Resolution {
        match table.count_loss(self.key, self.floor) {
            false => Resolution::Known,
            true if self.from_before_delete => Resolution::Cause(Cause::Resurrected),
            true => Resolution::Cause(Cause::Lost),
        }
    }
}

/// Counts of a whole run, shared by its workers.
#[derive(Debug, Default)]
pub struct Counts {
    /// Reads whose stamps were verified.
    pub verified: AtomicU64,
    /// Reads that were compared with writes.
    pub compared: AtomicU64,
    /// Reads that could not be.
    pub not_compared: AtomicU64,
    /// Suspicions that were overwritten.
    pub unresolved: AtomicU64,
    /// Writes in doubt.
    pub in_doubt: AtomicU64,
    /// Reads of the audit at the end.
    pub audited: AtomicU64,
    /// Rows of queries that were judged.
    pub rows: AtomicU64,
    causes: [AtomicU64; Cause::ALL.len()],
}

impl Counts {
    /// Counts a wrong read.
    pub fn wrong(&self, cause: Cause) {
        self.causes[cause as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts for the results.
    pub fn summary(&self, sample: u64, tolerated: &[Cause]) -> CheckSummary {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let wrong = |cause: Cause| get(&self.causes[cause as usize]);
        CheckSummary {
            verified: get(&self.verified),
            compared: get(&self.compared),
            not_compared: get(&self.not_compared),
            sample,
            lost: wrong(Cause::Lost),
            stale: wrong(Cause::Stale),
            resurrected: wrong(Cause::Resurrected),
            corrupt: wrong(Cause::Corrupt),
            rows: get(&self.rows),
            wrong_rows: wrong(Cause::WrongRow),
            incomplete: wrong(Cause::Incomplete),
            unresolved: get(&self.unresolved),
            in_doubt: get(&self.in_doubt),
            audited: get(&self.audited),
            tolerated: tolerated.iter().map(|cause| cause.name().to_owned()).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
