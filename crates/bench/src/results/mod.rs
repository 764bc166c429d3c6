//! The folder that a run leaves behind: everything that a report, a comparison or a merge needs, and nothing that
//! would have to be asked of the machine again.
//!
//! | file | holds | type |
//! |---|---|---|
//! | `manifest.json` | what was run, on what, with which options | [`Manifest`] |
//! | `histograms.bin` | latencies by second, label and kind | [`Latencies`] |
//! | `timeseries.jsonl` | counts and resources, one line a second | [`Second`] |
//! | `counters.jsonl` | what the servers count themselves | [`Counters`] |
//! | `errors.jsonl` | failed operations and wrong results, the first of each kind in full | [`ErrorRecord`] |
//! | `events.jsonl` | what was done to the servers, and phases of the run | [`Event`] |
//! | `summary.json` | the figures of the whole run | [`Summary`] |
//!
//! [`Writer`] writes it while the run goes on, so that a run that is killed leaves what it had; `summary.json` comes
//! last and is missing then. [`Results`] reads it. Seconds count from the start of the run (warm-up included): 0 is
//! its first. The layout is described in `docs/formats/bench-results.md`.

mod file;
mod log;
mod manifest;
mod reader;
mod series;
mod summary;
mod writer;

pub use file::{Kind, Latencies};
pub use log::{ErrorRecord, Event};
pub use manifest::{Generator, Limits, Machine, Manifest, Server};
pub use reader::Results;
pub use series::{Counters, DiskSecond, GeneratorSecond, Mark, OperationSecond, Phase, Second, ServerSecond};
pub use summary::{
    Accumulated, CheckSummary, GeneratorSummary, LatencySummary, OperationSummary, ServerSummary, Summary,
    Throughput, Verdict,
};
pub use writer::Writer;

/// The version of the whole layout. Readers refuse a greater one.
pub const FORMAT: u32 = 1;

/// What was run, on what, with which options.
pub const MANIFEST: &str = "manifest.json";
/// Latencies.
pub const HISTOGRAMS: &str = "histograms.bin";
/// One line a second.
pub const TIMESERIES: &str = "timeseries.jsonl";
/// What the servers count.
pub const COUNTERS: &str = "counters.jsonl";
/// Errors.
pub const ERRORS: &str = "errors.jsonl";
/// Events.
pub const EVENTS: &str = "events.jsonl";
/// Figures of the whole run.
pub const SUMMARY: &str = "summary.json";
