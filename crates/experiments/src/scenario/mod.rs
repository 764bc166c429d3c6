//! Scenarios: real processes under load, and things that are done to them at stated seconds.
//!
//! 1. `parse` reads the file; nothing is started before all of it can be done here (rights, tools, control groups).
//! 2. [`play`] makes networks and limits, starts the nodes, waits until they serve and see each other, makes the
//!    [`consistent_type`], does the commands of `prepare`, and runs the workload against them. A second thread does
//!    each step at its time (`steps`) and marks the charts.
//! 3. [`launch`] makes the commands of nodes, [`etcd`] those of its members. In the end, in any case, [`nodes`] stops
//!    all processes, and [`cgroup`] and [`network`] take away the groups and networks that they made.
//!
//! Storage engines without nodes go through stages instead: `engines`.
//!
//! Invariants: only processes that this scenario started are ever signalled; a step that fails ends the run, and the
//! scenario with it. Left out: nodes on other machines.

pub mod cgroup;
pub mod consistent_type;
mod engines;
pub mod etcd;
pub mod launch;
mod login;
pub mod network;
pub mod nodes;
mod parse;
mod play;
mod steps;

pub use engines::Engines;
pub use login::LoginFiles;
pub use nodes::Plan;
pub use parse::{Action, Limits, Program, Scenario, Step};
pub use play::play;
pub use steps::DONE;
