//! Coordinators and replicas, fed by hand and by models.
//!
//! One program: each would be compiled with all that it stands on, and linked, for itself.

mod common;
mod coordinators;
mod coverage;
mod index;
mod model;
mod reaping;
mod replicas;
