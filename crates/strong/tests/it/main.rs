//! Groups of three to seven voters on a network and on disks from one seed.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

mod guards;
mod leased;
mod leased_lives;
mod leases;
mod lives;
#[cfg(feature = "planted")]
mod planted;
mod replacements;
mod scripts;
mod stories;
mod world;
