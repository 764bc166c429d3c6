//! The promises of nodes, checked at their boundaries: each request that reaches a node, each answer that leaves it,
//! and each death in between.
//!
//! A checker sees neither the store nor the network. It compares answers with earlier answers, so the way a node works
//! inside excuses nothing. One file for each promise:
//!
//! * `siblings.rs`: a shown value was written under this key, whole.
//! * `dots.rs`: a dot means one write for ever.
//! * `answers.rs`: each request is answered once, in time, and with an error only for a cause.
//! * `damage.rs`: a crash alone is never damage; a start fails only for a cause.
//! * `index.rs`: after a clean stop a store has the index entries of its objects, and no others.
//! * `listing.rs`: on quiet nodes a listing has exactly the keys that reads find.
//! * `cluster/`: the promises of a cluster, and the stricter ones of a node alone.

pub mod answers;
pub mod cluster;
pub mod damage;
pub mod dots;
pub mod history;
pub mod index;
pub mod listing;
pub mod siblings;

use std::fmt;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The checker that saw it.
    pub checker: &'static str,
    /// What it saw.
    pub what: String,
}

impl Violation {
    /// What `checker` saw.
    pub fn new(checker: &'static str, what: impl Into<String>) -> Violation {
        Violation { checker, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.what)
    }
}

/// Whether all is well.
pub type Verdict = Result<(), Violation>;

#[cfg(test)]
mod tests;
