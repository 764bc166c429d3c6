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

use time::UtcDateTime;

pub use file::{Kind, LABELS_MAX, Latencies};
pub use log::{ErrorRecord, Event};
pub use manifest::{Generator, Limits, Machine, Manifest, Server};
pub use reader::Results;
pub use series::{Counters, DiskSecond, GeneratorSecond, Mark, OperationSecond, Phase, Second, ServerSecond};
pub use summary::{
    Accumulated, CheckSummary, GeneratorSummary, LatencySummary, OperationSummary, ServerSummary, Summary,
    Throughput, Verdict,
};
pub use writer::Writer;

/// A time in UTC: `2026-01-31T12:00:00Z`.
pub fn utc(unix_ms: u64) -> String {
    let seconds = (unix_ms / 1000).cast_signed();
    let time = UtcDateTime::from_unix_timestamp(seconds).unwrap_or(UtcDateTime::MAX);
    let (hour, minute, second) = time.as_hms();
    format!("{}T{hour:02}:{minute:02}:{second:02}Z", time.date())
}

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

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_798_761_599_000), "2026-12-31T23:59:59Z");
    }
}
