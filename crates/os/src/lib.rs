//! The real clock, randomness, disk and threads behind the traits of `base`; the crate `sim` has the others.
//!
//! * [`OsClock`] and [`OsRng`]: the kernel's. [`thread_cpu_time`]: the time of a processor that a thread has used.
//! * [`OsDisk`]: files, with their operations run by I/O threads or, for start-up and jobs, in place.
//! * [`JobThreads`]: background work, slice by slice.
//! * [`give_back_large_blocks`]: what the allocator keeps.
//! * [`Address`]: a host, by name or number, and a port; and its numbers as the system's resolver has them.
//! * [`Output`]: the standard streams, which never make their users wait.
//!
//! Linux only: reading without waiting is `preadv2` with `RWF_NOWAIT`. io_uring is left out: many hosts and
//! container runtimes refuse it, and a group commit needs one operation at a time.

mod address;
mod allocator;
mod clock;
mod disk;
mod jobs;
mod link;
mod output;
mod rng;
mod workers;

pub use address::{ADDRESS_BYTES_MAX, Address, NUMBERS_MAX};
pub use allocator::give_back_large_blocks;
pub use clock::{OsClock, thread_cpu_time};
pub use disk::{DiskCounters, DiskFigures, FILES_OPEN_MAX, OPS_MAX, OsDisk, Wake, files_max};
pub use jobs::{JOBS_MAX, JobThreads, JobsEnded, lower_priority};
pub use link::dangling_link;
pub use output::{Output, OutputFigures, STDERR, STDOUT, ignore_output_signals};
pub use rng::OsRng;
