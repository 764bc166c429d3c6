//! The results of a run of the load generator, and the reports and comparisons made of them.
//!
//! [`folder`] is the layout that a run writes and everything else reads, with latencies as
//! [histograms](histogram::Histogram), which add up without loss. [`merge()`] makes one folder of several generators'
//! runs. [`report`] and [`compare`] make pages of folders.
//!
//! It knows nothing of how a run is made: that is the crate `bench`, which stands on this one. Apart from it since
//! nothing here is to be fast, so that the binary is built in less time; histograms are, and have a crate of their own.

/// Appends formatted text to a string.
macro_rules! put {
    ($out:expr, $($argument:tt)*) => {
        $out.push_str(&format!($($argument)*))
    };
}

pub mod compare;
pub mod error;
pub mod folder;
pub mod merge;
pub mod report;

pub use error::Error;
pub use folder::*;
pub use merge::merge;
