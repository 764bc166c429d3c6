//! The load generator.
//!
//! [`workload`] is what is to be done, `run` does it, and leaves a folder behind that the crate `results` describes and
//! makes pages of. In between, from the ground up: [`rng`], [`keys`] and [`names`] (which key comes next, and how it is
//! written), [`values`] (what is written, and the stamp by which a read tells what it got), [`check`] (whether a read
//! is right while operations overlap), [`driver`] (what makes operations happen: Riak's two protocols, those of other
//! stores, the engine, nothing), [`history`] (requests with their answers, judged for linearizability), `proc` (what
//! the kernel says). [`live`] shows a run while it goes on. What starts the servers and does things to them, and
//! repeats what was published of other stores, is the crate `experiments`.
//!
//! Two rules above all. Latency counts from the time at which an operation was *due*: a server that stops for a moment
//! cannot hide it by taking fewer requests. And every read is checked: a fast store that loses writes fails the run.

pub mod check;
pub mod driver;
pub mod history;
pub mod keys;
pub mod live;
mod login;
pub mod names;
mod proc;
pub mod rng;
pub mod run;
pub mod values;
pub mod workload;

pub use login::Login;
pub use proc::{Usage, field, folder_bytes, machine, mount_of, usage};
pub use results::Error;
pub use run::{Control, Identity, Observer, counters, run};
pub use workload::Workload;
