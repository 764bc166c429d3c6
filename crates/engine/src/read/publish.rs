//! How the owner of a store tells its readers on other threads what they may show.
//!
//! The owner ends each turn by publishing: first the shares of memtables, tables and segments, if they have changed,
//! then the seq up to which everything may be shown. A reader loads the seq, then looks whether the shares have
//! changed since it took its own. So whatever the seq says is in the shares that a reader has then; and what is in
//! them beyond the seq is left out by memtables, and is not in tables, which hold only what is durable.
//!
//! A reader that finds nothing changed writes to no memory that others share.

use super::Snapshot;
use crate::entry::Seq;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What owner and readers share.
pub(super) struct Published {
    seq: AtomicU64,
    generation: AtomicU64,
    snapshot: Mutex<Snapshot>,
}

/// The owner's side. Without readers it costs a comparison a turn.
#[derive(Default)]
pub(crate) struct Publisher(Option<(Arc<Published>, Snapshot)>);

impl Publisher {
    /// Whether anything was published, and somebody may read it.
    pub fn is_begun(&self) -> bool {
        self.0.is_some()
    }

    /// Publishes for the first time.
    pub fn begin(&mut self, snapshot: Snapshot) {
        let published = Published {
            seq: AtomicU64::new(snapshot.seq.0),
            generation: AtomicU64::new(0),
            snapshot: Mutex::new(snapshot.clone()),
        };
        self.0 = Some((Arc::new(published), snapshot));
    }

    /// What readers share, if anything was published.
    pub(super) fn published(&self) -> Option<Arc<Published>> {
        self.0.as_ref().map(|(published, _)| Arc::clone(published))
    }

    /// Publishes `seq`, and what `snapshot` makes if it has changed by what `is_same` says of the last.
    pub fn publish(
        &mut self,
        seq: Seq,
        is_same: impl FnOnce(&Snapshot) -> bool,
        snapshot: impl FnOnce() -> Snapshot,
    ) {
        let Some((published, last)) = &mut self.0 else { return };
        if Arc::strong_count(published) == 1 {
            // Nobody reads any more: nothing is held for readers.
            self.0 = None;
            return;
        }
        if !is_same(last) {
            *last = snapshot();
            *published.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = last.clone();
            published.generation.fetch_add(1, Ordering::Release);
        }
        published.seq.store(seq.0, Ordering::Release);
    }
}

impl Published {
    /// Brings a reader's snapshot, which is of `generation`, up to date; tells the new generation.
    pub fn refresh(&self, snapshot: &mut Snapshot, generation: u64) -> u64 {
        let seq = Seq(self.seq.load(Ordering::Acquire));
        let newest = self.generation.load(Ordering::Acquire);
        if newest != generation {
            *snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone();
        }
        snapshot.seq = seq;
        newest
    }

    /// A snapshot to begin with, and its generation.
    pub fn first(&self) -> (Snapshot, u64) {
        let generation = self.generation.load(Ordering::Acquire);
        (self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone(), generation)
    }
}
