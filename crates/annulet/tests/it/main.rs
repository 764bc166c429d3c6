//! The real program: one test program, since each further one would link the whole of it again.
#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

mod alone;
mod backup;
mod bench;
mod browser;
mod changes;
mod cli;
mod cluster;
mod common;
mod compact;
mod connections;
mod consistent;
mod crash;
mod doors;
mod full;
mod join;
mod local_socket;
mod members;
mod memory;
mod output;
mod readme;
mod scenario;
mod secure_dev;
mod security;
mod signals;
mod stop;
mod supervisor;
mod terminal;
mod top;
