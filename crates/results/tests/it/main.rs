//! Reports and comparisons of runs.
#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

mod browser;
mod common;
mod compare;
mod report;
