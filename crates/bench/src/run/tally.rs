//! The counts of a worker in one second.

use crate::driver::ErrorKind;
use histogram::{Histogram, Recorder};
use results::OperationSecond;
use std::fs;

/// Of one label.
#[derive(Default)]
struct Label {
    counts: OperationSecond,
    errors: [u64; ErrorKind::ALL.len()],
    response: Recorder,
    service: Recorder,
    failed: Recorder,
}

/// Counts while a second lasts.
pub struct Tally {
    labels: Vec<Label>,
    /// Nanoseconds of operations outstanding.
    area: u128,
    /// What a thread had used when the second began.
    used: Schedule,
    pub due: u64,
    pub backlog: u64,
    pub late_ns: u64,
    pub exhausted: bool,
}

/// A label's second, as a worker hands it over.
#[derive(Clone, Debug, Default)]
pub struct LabelSecond {
    pub counts: OperationSecond,
    pub response: Histogram,
    pub service: Histogram,
    pub failed: Histogram,
}

/// A worker's second.
#[derive(Clone, Debug, Default)]
pub struct WorkerSecond {
    /// The worker's number.
    pub worker: usize,
    pub second: u64,
    /// By the label's place.
    pub labels: Vec<LabelSecond>,
    pub outstanding: f64,
    pub cpu_ns: u64,
    pub waited_ns: u64,
    pub due: u64,
    pub backlog: u64,
    pub late_ns: u64,
    pub exhausted: bool,
}

/// How an operation ended that was done.
pub struct Done {
    pub response_ns: u64,
    pub service_ns: u64,
    pub not_found: bool,
    pub condition_failed: bool,
    pub written: u64,
    pub results: u64,
}

impl Tally {
    /// Nothing yet.
    pub fn new(labels: usize) -> Tally {
        Tally {
            labels: (0..labels).map(|_| Label::default()).collect(),
            area: 0,
            used: Schedule::of_this_thread(),
            due: 0,
            backlog: 0,
            late_ns: 0,
            exhausted: false,
        }
    }

    /// An operation was done.
    pub fn done(&mut self, label: usize, done: &Done) {
        let it = &mut self.labels[label];
        it.counts.done += 1;
        it.counts.not_found += u64::from(done.not_found);
        it.counts.condition_failed += u64::from(done.condition_failed);
        it.counts.bytes_written += done.written;
        it.counts.results += done.results;
        it.response.record(done.response_ns);
        it.service.record(done.service_ns);
    }

    /// A value came back.
    pub fn read(&mut self, label: usize, bytes: u64) {
        self.labels[label].counts.bytes_read += bytes;
    }

    /// An attempt failed.
    pub fn error(&mut self, label: usize, kind: ErrorKind) {
        self.labels[label].errors[kind as usize] += 1;
    }

    /// An operation will be tried again.
    pub fn retry(&mut self, label: usize) {
        self.labels[label].counts.retries += 1;
    }

    /// An operation was given up.
    pub fn failed(&mut self, label: usize, response_ns: u64) {
        self.labels[label].counts.failed += 1;
        self.labels[label].failed.record(response_ns);
    }

    /// So many were outstanding for so long.
    pub fn outstanding(&mut self, count: usize, ns: u64) {
        self.area += count as u128 * u128::from(ns);
    }

    /// What was counted; the tally is empty again.
    pub fn take(&mut self, worker: usize, second: u64) -> WorkerSecond {
        let now = Schedule::of_this_thread();
        let before = std::mem::replace(&mut self.used, now);
        let labels = self.labels.iter_mut().map(Label::take).collect();
        WorkerSecond {
            worker,
            second,
            labels,
            outstanding: std::mem::take(&mut self.area) as f64 / 1e9,
            cpu_ns: now.run_ns.saturating_sub(before.run_ns),
            waited_ns: now.wait_ns.saturating_sub(before.wait_ns),
            due: std::mem::take(&mut self.due),
            backlog: std::mem::take(&mut self.backlog),
            late_ns: std::mem::take(&mut self.late_ns),
            exhausted: std::mem::take(&mut self.exhausted),
        }
    }
}

impl Label {
    fn take(&mut self) -> LabelSecond {
        let mut counts = std::mem::take(&mut self.counts);
        let errors = std::mem::take(&mut self.errors);
        let named = ErrorKind::ALL.iter().zip(errors).filter(|(_, count)| *count > 0);
        counts.errors = named.map(|(kind, count)| (kind.name().to_owned(), count)).collect();
        let (response, service, failed) = (self.response.take(), self.service.take(), self.failed.take());
        LabelSecond { counts, response, service, failed }
    }
}

impl LabelSecond {
    /// Adds another worker's.
    pub fn add(&mut self, other: &LabelSecond) {
        self.counts.add(&other.counts);
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        self.failed.merge(&other.failed);
    }
}

/// What the scheduler says of a thread: how long it ran, and how long it could have and did not.
#[derive(Clone, Copy, Debug, Default)]
struct Schedule {
    run_ns: u64,
    wait_ns: u64,
}

impl Schedule {
    /// Zeros where the kernel does not tell.
    fn of_this_thread() -> Schedule {
        let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut numbers = text.split_whitespace().map(|word| word.parse().unwrap_or(0));
        Schedule { run_ns: numbers.next().unwrap_or(0), wait_ns: numbers.next().unwrap_or(0) }
    }
}
