//! The load generator, and what it leaves behind.
//!
//! [`workload`] is what is to be done, `run` does it, [`results`] is the folder that it writes and that reports,
//! comparisons and merges read. In between, from the ground up: [`rng`], [`histogram`] (latencies that merge without
//! loss), [`keys`] and [`names`] (which key comes next, and how it is written), [`values`] (what is written, and the stamp
//! by which a read tells what it got), [`check`] (whether a read is right while operations overlap), [`driver`] (what makes
//! operations happen: Riak's two protocols, the engine, nothing), `proc` (what the kernel says). [`report`] and [`compare`]
//! make pages of results, [`live`] shows a run while it goes on, [`scenario`] starts the servers and does things to them,
//! [`experiments`] repeats with it what was published of other stores.
//!
//! Two rules above all. Latency counts from the time at which an operation was *due*: a server that stops for a moment
//! cannot hide it by taking fewer requests. And every read is checked: a fast store that loses writes fails the run.

/// Appends formatted text to a string.
macro_rules! put {
    ($out:expr, $($argument:tt)*) => {
        $out.push_str(&format!($($argument)*))
    };
}

pub mod check;
pub mod compare;
pub mod driver;
pub mod error;
pub mod experiments;
pub mod histogram;
pub mod keys;
pub mod live;
pub mod merge;
pub mod names;
mod proc;
pub mod report;
pub mod results;
pub mod rng;
pub mod run;
pub mod scenario;
pub mod values;
pub mod workload;

pub use error::Error;
pub use run::{Control, Identity, Observer, run};
pub use workload::Workload;
