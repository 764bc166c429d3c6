//! The figures of one second.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which part of a run a second belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Counts in no figure.
    #[default]
    WarmUp,
    /// Counts.
    Measured,
    /// After the last operation was started: what was outstanding is awaited, written keys are audited, trailing
    /// deletes run.
    Trailing,
}

/// Why a second's figures are in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// The host took CPU time away from this machine.
    Stolen,
    /// Threads of the generator waited for a core although they could run.
    Starved,
    /// The generator was late by itself: its threads were busy nearly all of the time.
    GeneratorLimited,
    /// Operations were due and all connections were busy: latency counts the wait, and the store never saw the load.
    ConnectionsExhausted,
    /// Outstanding operations are not throughput times latency, as they must be.
    LittlesLaw,
}

/// One line of `timeseries.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Which second of the run.
    pub second: u64,
    /// The part of the run.
    pub phase: Phase,
    /// Operations by label; they belong to the second in which they ended.
    pub operations: BTreeMap<String, OperationSecond>,
    /// The generator's own state.
    pub generator: GeneratorSecond,
    /// The servers' processes, in the manifest's order; those on other machines are missing.
    pub servers: Vec<ServerSecond>,
    /// The disks under the servers' data.
    pub disks: Vec<DiskSecond>,
    /// The share of the machine's time that the host took away, 0 to 1.
    pub stolen: f64,
    /// The share of the machine's cores that were busy, 0 to 1.
    pub busy: f64,
    /// Doubts.
    pub marks: Vec<Mark>,
}

/// What became of the operations of one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationSecond {
    /// Done as asked, reads that found nothing and writes whose condition did not hold included.
    pub done: u64,
    /// Of these, reads that found nothing.
    pub not_found: u64,
    /// Of these, writes whose condition did not hold. Missing in results of earlier versions.
    #[serde(default)]
    pub condition_failed: u64,
    /// Failed attempts by kind of error, those that were tried again included: as a client that does not retry sees
    /// them.
    pub errors: BTreeMap<String, u64>,
    /// Operations given up after the last attempt.
    pub failed: u64,
    /// Attempts beyond the first.
    pub retries: u64,
    /// Bytes of keys and values that went to the server in writes that were done.
    pub bytes_written: u64,
    /// Bytes of values that came back.
    pub bytes_read: u64,
    /// Objects, keys or terms that queries and listings brought.
    pub results: u64,
}

impl OperationSecond {
    /// Adds what became of others.
    pub fn add(&mut self, other: &OperationSecond) {
        self.done += other.done;
        self.not_found += other.not_found;
        self.condition_failed += other.condition_failed;
        self.failed += other.failed;
        self.retries += other.retries;
        self.bytes_written += other.bytes_written;
        self.bytes_read += other.bytes_read;
        self.results += other.results;
        other.errors.iter().for_each(|(kind, count)| *self.errors.entry(kind.clone()).or_insert(0) += count);
    }
}

/// The generator's own state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorSecond {
    /// CPU time of its threads in microseconds.
    pub cpu_us: u64,
    /// How long its threads waited for a core in microseconds.
    pub waited_us: u64,
    /// The share of one core that its busiest thread used, 0 to 1.
    pub busiest: f64,
    /// Operations that were due in this second (open loop).
    pub due: u64,
    /// Operations that were due and not sent at the end of it.
    pub backlog: u64,
    /// The longest time in microseconds by which an operation went out late though a connection was free.
    pub late_us: u64,
    /// Mean number of operations outstanding.
    pub outstanding: f64,
    /// Bytes resident.
    pub rss_bytes: u64,
}

/// A server's process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSecond {
    /// Its place in the manifest's list.
    pub server: u32,
    /// Whether it runs.
    pub up: bool,
    /// CPU time in microseconds.
    pub cpu_us: u64,
    /// Bytes resident.
    pub rss_bytes: u64,
    /// Bytes that it had the disk read.
    pub read_bytes: u64,
    /// Bytes that it had the disk write, or the page cache for it.
    pub write_bytes: u64,
    /// Threads.
    pub threads: u32,
    /// Bytes of its data folder; counted every few seconds, and repeated in between.
    pub disk_bytes: Option<u64>,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskSecond {
    /// The device's name.
    pub device: String,
    /// The share of the second in which it had something to do, 0 to 1.
    pub utilisation: f64,
    /// Reads done.
    pub reads: u64,
    /// Writes done.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Mean time of a read in milliseconds, waiting included.
    pub read_await_ms: f64,
    /// Mean time of a write in milliseconds, waiting included.
    pub write_await_ms: f64,
}

/// One line of `counters.jsonl`: numbers that a server tells of itself (`/stats`), as they stood.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// In which second they were asked for.
    pub second: u64,
    /// The server's place in the manifest's list.
    pub server: u32,
    /// The numbers by name.
    pub values: BTreeMap<String, f64>,
}
