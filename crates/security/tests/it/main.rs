//! The policy against a naive model, and stories that each planted bug breaks.

mod build;
mod model;
#[cfg(feature = "planted")]
mod planted;
mod stories;
