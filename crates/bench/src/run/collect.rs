//! Merges the figures of workers and sampler for each second, and writes them.
//!
//! A second is whole when every worker has handed it over or has ended, and the sampler has too. Here it is decided
//! when a warm-up that ends by itself is over: [`Warming`].

use super::control::{Control, Observer};
use super::sampler::Sample;
use super::tally::{LabelSecond, WorkerSecond};
use super::worker::Message;
use crate::Error;
use crate::history::Writer as HistoryWriter;
use crate::workload::WarmUp;
use results::{Event, GeneratorSecond, Kind, Latencies, Mark, Phase, Second, Writer};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Marks a second from which the host took more than this share.
const STOLEN_MAX: f64 = 0.01;
/// Marks a second in which a thread of the generator waited for a core for more than this share.
const STARVED_MAX: f64 = 0.1;
/// Marks a second in which a thread of the generator was busy for more than this share.
const BUSIEST_MAX: f64 = 0.95;
/// Operations outstanding may differ from throughput times latency by this share in a second, as some cross its edges.
const LITTLES_LAW_MAX: f64 = 0.2;
/// With fewer operations outstanding on average, a single one that crosses an edge is more than that.
const LITTLES_LAW_FROM: f64 = 2.0;

/// Seconds whose throughput must be alike for a warm-up to be over.
const STEADY_SECONDS: usize = 10;
/// They may deviate from their mean by this share, and their halves from each other by half of it.
const STEADY_DEVIATION: f64 = 0.06;

/// When figures begin to count.
struct Warming {
    plan: WarmUp,
    duration: Option<Duration>,
    /// The first second that counts, once that is known.
    until: Option<u64>,
    rates: Vec<f64>,
}

#[derive(Default)]
struct Pending {
    workers: Vec<WorkerSecond>,
    sample: Option<Box<Sample>>,
}

/// Collects.
pub struct Collector<'a> {
    writer: Writer,
    history: Option<HistoryWriter>,
    labels: Vec<String>,
    control: &'a Control,
    warming: Warming,
    pending: BTreeMap<u64, Pending>,
    /// The second that each worker hands over next; beyond all of one that has ended.
    coming: Vec<u64>,
    sampling: bool,
    /// The last second in which operations began, once that is known.
    last: Option<u64>,
    /// Whether a second has been measured.
    measured: bool,
    /// The last second that a worker has told of: when all have ended, the one that is not whole.
    newest: u64,
}

impl<'a> Collector<'a> {
    /// With the number of workers.
    pub fn new(
        (writer, history): (Writer, Option<HistoryWriter>),
        labels: Vec<String>,
        control: &'a Control,
        plan: (WarmUp, Option<Duration>),
        workers: usize,
    ) -> Collector<'a> {
        let (plan, duration) = plan;
        let mut warming = Warming { plan, duration, until: None, rates: Vec::new() };
        if let WarmUp::For(time) = plan {
            warming.set(time.as_nanos() as u64, control);
        } else {
            control.end_ns.store(u64::MAX, Ordering::Relaxed);
        }
        let (pending, sampling) = (BTreeMap::new(), true);
        Collector {
            writer,
            history,
            labels,
            control,
            warming,
            pending,
            coming: vec![0; workers],
            sampling,
            last: None,
            measured: false,
            newest: 0,
        }
    }

    /// Takes one message.
    pub fn take(&mut self, message: Message, observer: &mut dyn Observer) -> Result<(), Error> {
        match message {
            Message::Second(second) => {
                self.coming[second.worker] = second.second + 1;
                self.newest = self.newest.max(second.second);
                self.pending.entry(second.second).or_default().workers.push(*second);
            }
            Message::Error(error) => self.writer.error(&error)?,
            Message::History(lines) => self.history.iter_mut().try_for_each(|it| it.append(&lines))?,
            Message::Ended(worker, ended) => {
                self.coming[worker] = u64::MAX;
                // The others need not go on with what cannot be finished.
                if ended.is_err() {
                    self.control.stop();
                }
                ended?;
            }
            Message::Sample(sample) => {
                let second = sample.second;
                self.pending.entry(second).or_default().sample.replace(sample);
            }
            Message::SamplerEnded => self.sampling = false,
        }
        self.write_whole(observer)
    }

    /// Whether all workers have ended.
    pub fn is_over(&self) -> bool {
        self.coming.iter().all(|second| *second == u64::MAX)
    }

    /// What is left, and the writer.
    pub fn finish(mut self, observer: &mut dyn Observer) -> Result<Writer, Error> {
        self.sampling = false;
        self.write_whole(observer)?;
        self.write_events(observer)?;
        if let Some(history) = self.history {
            history.finish()?;
        }
        Ok(self.writer)
    }

    fn write_whole(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        while let Some((&second, pending)) = self.pending.first_key_value() {
            let is_sampled = pending.sample.is_some() || !self.sampling;
            let is_whole = self.coming.iter().all(|coming| *coming > second);
            if !is_sampled || !is_whole {
                return Ok(());
            }
            let Some((_, pending)) = self.pending.pop_first() else { return Ok(()) };
            self.write(second, pending, observer)?;
        }
        Ok(())
    }

    fn write(&mut self, at: u64, pending: Pending, observer: &mut dyn Observer) -> Result<(), Error> {
        let sample = pending.sample.map(|sample| *sample).unwrap_or_default();
        let mut labels = vec![LabelSecond::default(); self.labels.len()];
        for worker in &pending.workers {
            labels.iter_mut().zip(&worker.labels).for_each(|(sum, label)| sum.add(label));
        }
        let mut second = Second {
            second: at,
            phase: self.phase(at),
            operations: self
                .labels
                .iter()
                .cloned()
                .zip(labels.iter().map(|label| label.counts.clone()))
                .collect(),
            generator: generator(&pending.workers, sample.rss_bytes),
            servers: sample.servers,
            disks: sample.disks,
            stolen: sample.stolen,
            busy: sample.busy,
            marks: Vec::new(),
        };
        second.marks = marks(&second, &labels, &pending.workers);
        self.warming.look(at, second.done(None), self.control);
        for counters in &sample.counters {
            self.writer.counters(counters)?;
        }
        let latencies = latencies(at, labels);
        self.write_events(observer)?;
        observer.second(&second, &latencies);
        self.writer.second(second, latencies)
    }

    fn write_events(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        for event in self.control.take_events() {
            observer.event(&event);
            self.writer.event(&event)?;
        }
        Ok(())
    }

    fn phase(&mut self, second: u64) -> Phase {
        let begins = second * 1_000_000_000;
        let is_over = begins + 1_000_000_000 > self.control.end_ns.load(Ordering::Relaxed)
            || self.control.is_stopped()
            || self.is_over() && second >= self.newest;
        if is_over {
            self.last.get_or_insert(second);
        }
        // A run that was over before its first second: that second, not whole, is all there is to measure.
        let is_all = !self.measured && self.is_over() && !self.control.is_stopped();
        let phase = match self.warming.until {
            Some(until) if is_all && second >= until => Phase::Measured,
            _ if self.last.is_some_and(|last| second >= last) => Phase::Trailing,
            Some(until) if second >= until => Phase::Measured,
            _ => Phase::WarmUp,
        };
        self.measured |= phase == Phase::Measured;
        phase
    }
}

impl Warming {
    /// The warm-up is over after so many nanoseconds.
    fn set(&mut self, end_ns: u64, control: &Control) {
        self.until = Some(end_ns.div_ceil(1_000_000_000));
        let end =
            self.duration.map_or(u64::MAX, |duration| end_ns.saturating_add(duration.as_nanos() as u64));
        control.end_ns.store(end, Ordering::Relaxed);
    }

    fn look(&mut self, second: u64, done: u64, control: &Control) {
        let WarmUp::UntilSteady(limit) = self.plan else { return };
        if self.until.is_some() {
            return;
        }
        self.rates.push(done as f64);
        if is_steady(&self.rates) || second + 1 >= limit.as_secs() {
            // This second is written late, so the next one has begun.
            self.set((second + 2) * 1_000_000_000, control);
            control.mark("phase", "the warm-up is over", None);
        }
    }
}

/// Whether the last seconds' throughput has come to rest.
fn is_steady(rates: &[f64]) -> bool {
    let Some(from) = rates.len().checked_sub(STEADY_SECONDS) else { return false };
    let last = &rates[from..];
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (all, first, second) =
        (mean(last), mean(&last[..STEADY_SECONDS / 2]), mean(&last[STEADY_SECONDS / 2..]));
    let deviation = (last.iter().map(|rate| (rate - all).powi(2)).sum::<f64>() / last.len() as f64).sqrt();
    all > 0.0 && deviation <= STEADY_DEVIATION * all && (first - second).abs() <= STEADY_DEVIATION / 2.0 * all
}

fn generator(workers: &[WorkerSecond], rss_bytes: u64) -> GeneratorSecond {
    let sum = |field: fn(&WorkerSecond) -> u64| workers.iter().map(field).sum::<u64>();
    let most = |field: fn(&WorkerSecond) -> u64| workers.iter().map(field).max().unwrap_or(0);
    GeneratorSecond {
        cpu_us: sum(|it| it.cpu_ns) / 1000,
        waited_us: sum(|it| it.waited_ns) / 1000,
        busiest: most(|it| it.cpu_ns) as f64 / 1e9,
        due: sum(|it| it.due),
        backlog: sum(|it| it.backlog),
        late_us: most(|it| it.late_ns) / 1000,
        outstanding: workers.iter().map(|it| it.outstanding).sum(),
        rss_bytes,
    }
}

fn marks(second: &Second, labels: &[LabelSecond], workers: &[WorkerSecond]) -> Vec<Mark> {
    let starved = workers.iter().map(|it| it.waited_ns).max().unwrap_or(0) as f64 / 1e9;
    let outstanding = second.generator.outstanding;
    let latency: u128 = labels.iter().map(|it| it.service.sum() + it.failed.sum()).sum();
    let law = (latency as f64 / 1e9 - outstanding).abs();
    let all = [
        (Mark::Stolen, second.stolen > STOLEN_MAX),
        (Mark::Starved, starved > STARVED_MAX),
        (Mark::GeneratorLimited, second.generator.busiest > BUSIEST_MAX),
        (Mark::ConnectionsExhausted, workers.iter().any(|it| it.exhausted)),
        (Mark::LittlesLaw, outstanding > LITTLES_LAW_FROM && law > LITTLES_LAW_MAX * outstanding),
    ];
    all.into_iter().filter(|(_, is_so)| *is_so).map(|(mark, _)| mark).collect()
}

fn latencies(second: u64, labels: Vec<LabelSecond>) -> Vec<Latencies> {
    let kinds = |(label, it): (usize, LabelSecond)| {
        [(Kind::Response, it.response), (Kind::Service, it.service), (Kind::Failed, it.failed)]
            .map(|(kind, histogram)| Latencies { second, label, kind, histogram })
    };
    labels.into_iter().enumerate().flat_map(kinds).filter(|it| !it.histogram.is_empty()).collect()
}

/// An event of the run itself.
pub fn phase_event(at_s: f64, text: &str) -> Event {
    Event { at_s, kind: "phase".to_owned(), text: text.to_owned(), server: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throughput_comes_to_rest() {
        let rising: Vec<f64> = (0..30).map(|at| 1000.0 * (1.0 - (-f64::from(at) / 5.0).exp())).collect();
        assert!(!is_steady(&rising[..5]) && !is_steady(&rising[..12]));
        assert!(is_steady(&rising));
        let swinging: Vec<f64> = (0..30).map(|at| 1000.0 + 200.0 * f64::from(at % 2)).collect();
        assert!(!is_steady(&swinging));
        assert!(!is_steady(&[0.0; 30]));
    }
}
