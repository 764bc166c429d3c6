//! The next memtable is made before the one in use is full.
//!
//! Its index is megabytes of memory that nobody has touched yet. Whoever is the first to write there waits for each
//! page: milliseconds in all, which are a job's instead of the shard's. Where the job comes late, the store makes one
//! itself.

use crate::memtable::Memtable;
use crate::store::Store;
use base::spawn::Outcome;
use base::{Disk, Job, Progress};

/// The next one is made when the one in use is full by one part in so many, or the next segment ends it: late, since it
/// takes memory from then on.
const FULL_SHARE: usize = 2;

/// Makes a memtable.
struct MakeMemtable {
    bytes_max: usize,
    outcome: Outcome<Memtable>,
}

impl Job for MakeMemtable {
    fn slice(&mut self, _: &mut dyn Disk) -> Progress {
        self.outcome.set(Memtable::new(self.bytes_max));
        Progress::Done
    }
}

impl Store {
    pub(super) fn want_memtable(&mut self) {
        if self.maintenance.memtable.is_some() || self.maintenance.closing.is_some() {
            return;
        }
        if self.memtable.bytes() >= self.memtable_bytes_max / FULL_SHARE || self.is_nearly_long() {
            let (bytes_max, outcome) = (self.options.memtable_bytes_max, Outcome::new());
            self.spawn.spawn(Box::new(MakeMemtable { bytes_max, outcome: outcome.clone() }));
            self.maintenance.memtable = Some(outcome);
        }
    }

    /// An empty memtable, made ahead if there is one.
    pub(in crate::store) fn next_memtable(&mut self) -> Memtable {
        let made = self.maintenance.memtable.take().and_then(|made| made.take());
        made.unwrap_or_else(|| Memtable::new(self.options.memtable_bytes_max))
    }
}
