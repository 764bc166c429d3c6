//! What a disk has done, counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Running counts, shared by all handles of a disk. Each is exact; a snapshot taken while the disk works may
/// be between two counts of one operation.
#[derive(Debug, Default)]
pub struct DiskCounters {
    tries_full: AtomicU64,
    tries_short: AtomicU64,
    tries_empty: AtomicU64,
    try_bytes: AtomicU64,
    reads: AtomicU64,
    reads_empty: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    syncs: AtomicU64,
    reopened: AtomicU64,
}

/// A snapshot of [`DiskCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskFigures {
    /// Tries to read without waiting that brought all that was asked for.
    pub tries_full: u64,
    /// Tries that brought less than that.
    pub tries_short: u64,
    /// Tries that brought nothing.
    pub tries_empty: u64,
    /// Bytes that tries brought.
    pub try_bytes: u64,
    /// Reads that could wait and brought data.
    pub reads: u64,
    /// Reads that could wait and brought nothing: at the end of a file, or failed.
    pub reads_empty: u64,
    /// Bytes that reads brought.
    pub read_bytes: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Bytes that they wrote.
    pub write_bytes: u64,
    /// Syncs of a file's data that were asked of the kernel, with a write or alone, failed ones included.
    /// Syncs of directories are not among them.
    pub syncs: u64,
    /// Files that were opened again, as their handles had been given to others.
    pub reopened: u64,
}

impl DiskFigures {
    /// Reads that returned all their data, with or without waiting: what a GET is allowed one of.
    pub fn reads_with_data(&self) -> u64 {
        self.tries_full + self.reads
    }
}

impl DiskCounters {
    /// The counts now.
    pub fn snapshot(&self) -> DiskFigures {
        DiskFigures {
            tries_full: self.tries_full.load(Relaxed),
            tries_short: self.tries_short.load(Relaxed),
            tries_empty: self.tries_empty.load(Relaxed),
            try_bytes: self.try_bytes.load(Relaxed),
            reads: self.reads.load(Relaxed),
            reads_empty: self.reads_empty.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            writes: self.writes.load(Relaxed),
            write_bytes: self.write_bytes.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
            reopened: self.reopened.load(Relaxed),
        }
    }

    pub(super) fn count_try(&self, asked: usize, came: Option<usize>) {
        let kind = match came {
            None => &self.tries_empty,
            Some(came) if came < asked => &self.tries_short,
            Some(_) => &self.tries_full,
        };
        kind.fetch_add(1, Relaxed);
        if let Some(came) = came {
            self.try_bytes.fetch_add(came as u64, Relaxed);
        }
    }

    pub(super) fn count_read(&self, came: usize) {
        let kind = if came == 0 { &self.reads_empty } else { &self.reads };
        kind.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(came as u64, Relaxed);
    }

    pub(super) fn count_write(&self, bytes: usize) {
        self.writes.fetch_add(1, Relaxed);
        self.write_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn count_reopened(&self) {
        self.reopened.fetch_add(1, Relaxed);
    }

    pub(super) fn count_sync(&self) {
        self.syncs.fetch_add(1, Relaxed);
    }
}
