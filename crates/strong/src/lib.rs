//! Consistent bucket types: the pure part.
//!
//! [`linearizability`] is a checker for histories of clients' operations.

pub mod linearizability;
