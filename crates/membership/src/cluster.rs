//! The identity of a cluster, which keeps two clusters apart when their nodes meet by mistake.

use std::fmt;

/// A cluster's identity: drawn at random when it is founded, never changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u64);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
