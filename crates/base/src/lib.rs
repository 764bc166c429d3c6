//! What every crate stands on: types and traits, no I/O.
//!
//! Time, randomness, disks and background work reach the pure crates only through [`Clock`], [`Rng`], [`Disk`]
//! and [`Spawn`]. The crate `os` implements them on a real machine, the crate `sim` from one seed; the code
//! between cannot tell which it runs on. That is what makes a cluster's life replayable.

/// Whether a mutant of `base::planted` is in force; false, and nothing else, in a product build. The feature is
/// that of the crate which asks.
#[macro_export]
macro_rules! planted {
    ($bug:ident) => {{
        #[cfg(feature = "planted")]
        let planted = $crate::planted::is_planted($crate::planted::Planted::$bug);
        #[cfg(not(feature = "planted"))]
        let planted = false;
        planted
    }};
}

pub mod budget;
pub mod checksum;
pub mod clock;
pub mod collections;
pub mod counters;
pub mod disk;
mod pieces;
#[cfg(feature = "planted")]
pub mod planted;
pub mod queue;
pub mod rng;
pub mod spawn;

pub use budget::{Budget, Reservation};
pub use clock::{Clock, Monotonic, Wall};
pub use collections::{FastMap, FastSet};
pub use disk::{Disk, DiskError, DiskErrorKind};
pub use queue::Full;
pub use rng::Rng;
pub use spawn::{Await, Job, Progress, Spawn};
