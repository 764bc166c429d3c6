//! The commands of the programs `annulet` and `annulet-bench`.
//!
//! `annulet` runs nodes and operates them. `annulet-bench` is the load generator, with the drivers of other servers:
//! a node does not carry them. `annulet bench` runs the other program, which lies beside it.

pub mod admin;
pub mod backup;
pub mod bench;
pub mod check;
pub mod dev;
pub mod failure;
pub mod kv;
pub mod log;
pub mod manual;
pub mod plural;
pub mod program;
pub mod repair;
pub mod report;
pub mod serve;
pub mod sibling;
pub mod signals;
pub mod supervisor;
pub mod terms;
pub mod top;

/// The version and the commit it was built from.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("ANNULET_COMMIT"), ")");
