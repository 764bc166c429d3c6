//! The engine as its owner sees it, through what it offers.
//!
//! One program: each would be compiled with all that it stands on, and linked, for itself.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

#[path = "../common/mod.rs"]
mod common;

mod ahead;
mod budgets;
mod calls;
mod checkpoint;
mod compaction;
mod compression;
mod ends;
mod faults;
mod first_memtable;
mod found_levels;
mod index;
mod marks;
mod model;
mod power;
mod proposals;
mod reading;
mod recovery;
mod room;
mod room_back;
mod scans;
mod scrub;
mod store;
mod stretches;
mod unsynced;
mod waste;
