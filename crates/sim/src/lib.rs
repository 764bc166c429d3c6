//! A seeded scheduler, clock, network and disk that run whole nodes in one thread.
//!
//! A *world* is one seed's life: any number of nodes, each with a [`SimClock`], a [`SimDisk`] and a
//! [`SimSpawn`], joined by one [`Network`] and driven by one [`Scheduler`]. Everything random is drawn from
//! streams of the world's [`Seed`]; everything that happens is written to its [`Trace`]. So one number replays
//! a cluster's life, crashes included, and two runs of it can be compared byte for byte.
//!
//! The parts know nothing of each other but the time and the trace. A world is a loop that pops an event,
//! hands it to the node that it is for, and then schedules what the disks and job queues have started:
//!
//! 1. [`Scheduler::pop`] moves the virtual time on and gives the event;
//! 2. the node takes it (a packet, a finished disk operation, a slice of a job, a timer, a fault);
//! 3. [`SimDisk::take_started`] and [`SimSpawn::take_started`] tell what to schedule next.
//!
//! There are three: [`cluster`], one node under rot and crashes or several that lose each other and their disks;
//! [`consistent`], several with a consistent bucket type; and [`elastic`], up to a thousand nodes that come, go and
//! die, on modelled stores. [`check`] has the checked promises.
//!
//! Invariants: no real clock, file, socket, thread or randomness is reached; no collection with a random hash
//! order is iterated; a part draws only from its own stream, so a fault switched off in one part leaves the
//! draws of the others alone. The design follows FoundationDB's simulator (Zhou et al., SIGMOD 2021) and
//! TigerBeetle's VOPR.

pub mod check;
pub mod clock;
pub mod cluster;
pub mod consistent;
pub mod disk;
mod draw;
pub mod elastic;
pub mod fault;
mod frame;
pub mod kind;
mod machine;
pub mod network;
mod partition;
pub mod report;
pub mod scheduler;
pub mod seed;
mod show;
pub mod spawn;
pub mod trace;

pub use clock::{SimClock, SimTime};
pub use disk::{DiskConfig, DiskHandle, DiskOdds, SimDisk};
pub use fault::{Fault, Odds};
pub use kind::Kind;
pub use network::{Network, NetworkConfig, NodeId, Packet};
pub use report::Report;
pub use scheduler::Scheduler;
pub use seed::Seed;
pub use spawn::SimSpawn;
pub use trace::Trace;
