//! What a disk has done, counted.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Threads count in so many places: more than run at once on most machines, and 2 KiB for each disk.
const STRIPES: usize = 16;

/// Running counts, shared by all handles of a disk. Each is exact; a snapshot taken while the disk works may
/// be between two counts of one operation.
///
/// A line of memory that many processors write goes from one to the next for each count, so threads have places of
/// their own.
#[derive(Debug, Default)]
pub struct DiskCounters([Stripe; STRIPES]);

/// The counts of some threads, in lines of memory that nothing else is in.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
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

thread_local! {
    /// Which of the places is this thread's: they are dealt out in turn.
    static STRIPE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Relaxed) % STRIPES
    };
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
        let sum = |of: fn(&Stripe) -> &AtomicU64| self.0.iter().map(|stripe| of(stripe).load(Relaxed)).sum();
        DiskFigures {
            tries_full: sum(|stripe| &stripe.tries_full),
            tries_short: sum(|stripe| &stripe.tries_short),
            tries_empty: sum(|stripe| &stripe.tries_empty),
            try_bytes: sum(|stripe| &stripe.try_bytes),
            reads: sum(|stripe| &stripe.reads),
            reads_empty: sum(|stripe| &stripe.reads_empty),
            read_bytes: sum(|stripe| &stripe.read_bytes),
            writes: sum(|stripe| &stripe.writes),
            write_bytes: sum(|stripe| &stripe.write_bytes),
            syncs: sum(|stripe| &stripe.syncs),
            reopened: sum(|stripe| &stripe.reopened),
        }
    }

    /// The calling thread's.
    fn own(&self) -> &Stripe {
        &self.0[STRIPE.with(|stripe| *stripe)]
    }

    pub(super) fn count_try(&self, asked: usize, came: Option<usize>) {
        let own = self.own();
        let kind = match came {
            None => &own.tries_empty,
            Some(came) if came < asked => &own.tries_short,
            Some(_) => &own.tries_full,
        };
        kind.fetch_add(1, Relaxed);
        if let Some(came) = came {
            own.try_bytes.fetch_add(came as u64, Relaxed);
        }
    }

    pub(super) fn count_read(&self, came: usize) {
        let own = self.own();
        let kind = if came == 0 { &own.reads_empty } else { &own.reads };
        kind.fetch_add(1, Relaxed);
        own.read_bytes.fetch_add(came as u64, Relaxed);
    }

    pub(super) fn count_write(&self, bytes: usize) {
        let own = self.own();
        own.writes.fetch_add(1, Relaxed);
        own.write_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn count_reopened(&self) {
        self.own().reopened.fetch_add(1, Relaxed);
    }

    pub(super) fn count_sync(&self) {
        self.own().syncs.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_more_threads_than_places_count_is_all_there() {
        let counters = DiskCounters::default();
        std::thread::scope(|scope| {
            for _ in 0..3 * STRIPES {
                scope.spawn(|| {
                    counters.count_try(10, Some(10));
                    counters.count_read(7);
                    counters.count_write(3);
                });
            }
        });
        let (figures, threads) = (counters.snapshot(), 3 * STRIPES as u64);
        assert_eq!((figures.tries_full, figures.try_bytes), (threads, 10 * threads));
        assert_eq!((figures.reads, figures.read_bytes), (threads, 7 * threads));
        assert_eq!((figures.writes, figures.write_bytes), (threads, 3 * threads));
    }
}
