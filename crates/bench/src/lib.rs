//! The load generator, and what it leaves behind.
//!
//! [`results`] is the folder that a run writes and that reports, comparisons and merges read; [`histogram`] is how
//! latencies are kept in it.

/// Appends formatted text to a string.
macro_rules! put {
    ($out:expr, $($argument:tt)*) => {
        $out.push_str(&format!($($argument)*))
    };
}

pub mod compare;
pub mod error;
pub mod histogram;
pub mod report;
pub mod results;

pub use error::Error;
