//! The measured part of a run in blocks that add up.

use crate::{Kind, Results};
use histogram::Histogram;

/// Blocks of a run: enough to resample, and each long enough that what happens within it stays together.
const BLOCKS: usize = 20;

/// Counts of a stretch of a run. Those of all operations stand at 0, those of a label behind it.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// How long it was.
    pub seconds: u64,
    /// Operations done.
    pub done: Vec<u64>,
    /// Their latencies from the intended start.
    pub response: Vec<Histogram>,
    /// CPU time of all servers in microseconds.
    pub server_cpu_us: u64,
    /// Bytes that the servers wrote.
    pub server_write_bytes: u64,
    /// Bytes that clients wrote.
    pub client_write_bytes: u64,
    /// The most bytes that all servers together had resident.
    pub rss_bytes: u64,
}

impl Totals {
    fn empty(slots: usize) -> Totals {
        Totals { done: vec![0; slots], response: vec![Histogram::default(); slots], ..Totals::default() }
    }

    fn add(&mut self, other: &Totals) {
        self.seconds += other.seconds;
        self.done.iter_mut().zip(&other.done).for_each(|(sum, it)| *sum += it);
        self.response.iter_mut().zip(&other.response).for_each(|(sum, it)| sum.merge(it));
        self.server_cpu_us += other.server_cpu_us;
        self.server_write_bytes += other.server_write_bytes;
        self.client_write_bytes += other.client_write_bytes;
        self.rss_bytes = self.rss_bytes.max(other.rss_bytes);
    }
}

/// A run's blocks, in order.
pub struct Blocks(Vec<Totals>);

impl Blocks {
    /// Cuts the measured seconds of a run into blocks of the same length, but for the last.
    pub fn of(results: &Results) -> Blocks {
        let labels = &results.manifest.labels;
        let measured: Vec<_> = results.measured().collect();
        let width = measured.len().div_ceil(BLOCKS).max(1);
        let mut blocks: Vec<Totals> = measured
            .chunks(width)
            .map(|chunk| {
                let mut block = Totals::empty(labels.len() + 1);
                for second in chunk {
                    block.seconds += 1;
                    block.done[0] += second.done(None);
                    for (at, label) in labels.iter().enumerate() {
                        block.done[at + 1] += second.done(Some(label));
                    }
                    block.server_cpu_us += second.servers.iter().map(|it| it.cpu_us).sum::<u64>();
                    block.server_write_bytes += second.servers.iter().map(|it| it.write_bytes).sum::<u64>();
                    block.client_write_bytes +=
                        second.operations.values().map(|it| it.bytes_written).sum::<u64>();
                    block.rss_bytes = block.rss_bytes.max(second.servers.iter().map(|it| it.rss_bytes).sum());
                }
                block
            })
            .collect();
        for it in results.latencies.iter().filter(|it| it.kind == Kind::Response) {
            if let Ok(at) = measured.binary_search_by_key(&it.second, |second| second.second) {
                let block = &mut blocks[at / width];
                block.response[it.label + 1].merge(&it.histogram);
                block.response[0].merge(&it.histogram);
            }
        }
        Blocks(blocks)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The sum of these blocks, each as often as it is named.
    pub fn sum(&self, of: impl Iterator<Item = usize>) -> Totals {
        let mut sum = Totals::empty(self.0[0].done.len());
        of.for_each(|at| sum.add(&self.0[at]));
        sum
    }

    /// The sum of all.
    pub fn total(&self) -> Totals {
        self.sum(0..self.len())
    }
}

/// The sum of several runs.
pub fn sum_of<'a>(runs: impl Iterator<Item = &'a Blocks>) -> Totals {
    let mut sum: Option<Totals> = None;
    for run in runs {
        let total = run.total();
        match &mut sum {
            None => sum = Some(total),
            Some(sum) => sum.add(&total),
        }
    }
    sum.unwrap_or_default()
}
