//! Shards and nodes, asked as clients and other nodes ask them.
//!
//! One program: each would be compiled with all that it stands on, and linked, for itself.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

mod anti_entropy;
mod backends;
mod births;
mod clocks;
mod cluster;
mod common;
mod consistent;
mod consistent_reaping;
mod contexts;
mod deadlines;
mod dormant_groups;
mod ending;
mod folds;
mod index;
mod leases;
mod listing;
mod moves;
mod pace;
mod peer_codec;
mod queries;
mod reaping;
mod rebuilds;
mod recovered;
mod resets;
mod shards;
mod slow;
mod slow_consistent;
mod stop;
mod telling;
mod types;
