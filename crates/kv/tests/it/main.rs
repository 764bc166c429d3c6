//! Coordinators and replicas, fed by hand and by models.
//!
//! One program: each would be compiled with all that it stands on, and linked, for itself.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

mod common;
mod consistent;
mod context_folds;
mod coordinators;
mod coverage;
mod index;
mod model;
mod reaping;
mod replicas;
