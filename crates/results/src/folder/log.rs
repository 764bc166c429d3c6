//! Errors and events of a run, by second.

use serde::{Deserialize, Serialize};

/// One line of `errors.jsonl`. Counts are in the time series; here are the first of each kind in full, so that somebody
/// can look for their cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorRecord {
    /// The second.
    pub second: u64,
    /// The operation's label.
    pub label: String,
    /// The kind: that of an error (`timeout`, `overload`, `disconnected`, ...) or of a wrong result (`lost`, `stale`,
    /// `resurrected`, `corrupt`).
    pub kind: String,
    /// Whether this is a wrong result, which fails the run.
    pub wrong: bool,
    /// The key.
    pub key: String,
    /// What the server said, or what was expected and what came.
    pub text: String,
}

/// One line of `events.jsonl`: something that a chart should mark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since the start of the run.
    pub at_s: f64,
    /// What kind: `phase`, `fault`, `repair`, `job`, `note`.
    pub kind: String,
    /// What happened, in a few words.
    pub text: String,
    /// To which server, by its place in the manifest's list.
    pub server: Option<u32>,
}
