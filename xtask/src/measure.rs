//! CPU per operation of server processes under a closed loop.
//!
//! 1. Warm up for a while.
//! 2. Wait until the servers are idle, so that work left over from an earlier row is not this row's.
//! 3. Run, on new connections; a server's CPU clock counts user and system time of all its threads.
//! 4. Wait until they are idle again: flushes and merges that the operations caused belong to them.
//!
//! The kernel's network work on loopback runs in the context of whoever sends, so it is part of both sides'
//! CPU; what the kernel writes back to disk by its own threads is in nobody's.

use crate::calibrate::Yardstick;
use crate::load::{Load, Outcome, Until};
use crate::rows::{Row, Spec};
use crate::stats::{median, percentile_us, rounded};
use crate::{Result, sys};
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Servers are idle when each used at most [`IDLE_CPU`] in [`IDLE_LOOK`], on average.
const IDLE_LOOK: Duration = Duration::from_millis(100);
const IDLE_CPU: Duration = Duration::from_millis(2);

/// How long idleness is waited for. A server that never rests is measured with what it does.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(20);

/// The cores that must be busy for a figure to stand for a loaded machine.
const CORES_MIN: f64 = 1.7;

/// Cores that may be busy with something else before a row says so.
const FOREIGN_CORES_MAX: f64 = 0.2;

/// How long a measurement takes.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Not counted.
    pub warm_up: Duration,
    /// Counted.
    pub time: Duration,
}

/// The server processes that answer to a workload.
#[derive(Clone, Debug)]
pub struct Servers {
    /// Their process ids.
    pub pids: Vec<u32>,
    /// Where they are asked.
    pub addresses: Vec<SocketAddr>,
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Cost {
    /// The operations.
    pub outcome: Outcome,
    /// CPU of the servers per operation, in microseconds.
    pub server_us: f64,
    /// Cores that were busy with the servers or the generator.
    own_cores: f64,
}

impl Cost {
    fn of(outcome: Outcome, loaded: Duration, all: Duration) -> Cost {
        let own_cores = (loaded + outcome.cpu).as_secs_f64() / outcome.wall.as_secs_f64();
        Cost { server_us: outcome.us_per_op(all), outcome, own_cores }
    }

    /// The row of the median of some measurements, with its context. A remark says if the machine was idle, or busy
    /// with something else: the kernel's own threads, above all those that write to the disk, and other users of the
    /// machine.
    pub fn row(spec: Spec, costs: &[&Cost]) -> Row {
        let values = |field: fn(&Cost) -> f64| costs.iter().map(|cost| field(cost)).collect::<Vec<f64>>();
        let middle = |field| median(&values(field));
        let cores = median(&costs.iter().filter_map(|cost| cost.outcome.cores).collect::<Vec<f64>>());
        let own_cores = middle(|cost| cost.own_cores);
        let row = spec
            .measured(&values(|cost| cost.server_us))
            .also("generator_us", middle(|cost| cost.outcome.us_per_op(cost.outcome.cpu)))
            .also("cores", cores)
            .also("own_cores", own_cores)
            .also("ops_per_s", middle(|cost| cost.outcome.rate()))
            .also("p50_us", middle(|cost| percentile_us(&cost.outcome.latencies, 50.0)))
            .also("p99_us", middle(|cost| percentile_us(&cost.outcome.latencies, 99.0)));
        match cores.zip(own_cores) {
            Some((cores, _)) if cores < CORES_MIN => row.noted(format!("only {} cores busy", rounded(cores))),
            Some((cores, own)) if cores - own > FOREIGN_CORES_MAX => {
                row.noted(format!("{} cores busy with none of the processes", rounded(cores - own)))
            }
            _ => row,
        }
    }

    /// The same beside the yardsticks of the rounds in which `costs` were measured.
    pub fn calibrated_row(spec: Spec, costs: &[&Cost], yardsticks: &[Yardstick]) -> Row {
        let per = |yardstick: fn(&Yardstick) -> f64| {
            let pairs = costs.iter().zip(yardsticks);
            median(&pairs.map(|(cost, round)| cost.server_us / yardstick(round)).collect::<Vec<f64>>())
        };
        Cost::row(spec, costs)
            .also("per_ping_pong", per(|round| round.ping_pong_us))
            .also("per_pread_crc", per(|round| round.pread_crc_us))
            .also("per_load", per(|round| round.load_ns / 1e3))
    }
}

impl Servers {
    /// Their user and system time so far.
    fn cpu(&self) -> Result<Duration> {
        Ok(self.pids.iter().map(|&pid| sys::process_cpu(pid)).sum::<std::io::Result<Duration>>()?)
    }

    /// Loads them.
    pub fn run(&self, load: &Load, until: Until) -> Result<Outcome> {
        load.run(&self.addresses, &self.pids, until)
    }

    /// Writes each of so many keys once.
    pub fn fill(&self, load: &Load) -> Result<Outcome> {
        self.run(load, Until::Ops(load.keys))
    }

    /// Measures a load in a window.
    pub fn cost(&self, load: &Load, window: Window) -> Result<Cost> {
        self.run(load, Until::Elapsed(window.warm_up))?;
        self.rest()?;
        self.cost_at_rest(load, Until::Elapsed(window.time))
    }

    /// Measures a load while they do nothing else.
    pub fn cost_at_rest(&self, load: &Load, until: Until) -> Result<Cost> {
        let before = self.cpu()?;
        let outcome = self.run(load, until)?;
        let loaded = self.cpu()? - before;
        self.rest()?;
        Ok(Cost::of(outcome, loaded, self.cpu()? - before))
    }

    /// Waits until they are idle.
    pub fn rest(&self) -> Result<()> {
        let begin = Instant::now();
        let mut before = self.cpu()?;
        while begin.elapsed() < IDLE_WAIT_MAX {
            sleep(IDLE_LOOK);
            let now = self.cpu()?;
            if now - before <= IDLE_CPU * u32::try_from(self.pids.len()).unwrap_or(1) {
                return Ok(());
            }
            before = now;
        }
        eprintln!("figures: the processes {:?} do not come to rest", self.pids);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_per_operation_and_cores_per_second() {
        let (wall, cpu) = (Duration::from_millis(10), Duration::from_millis(4));
        let outcome = Outcome { ops: 1000, wall, cpu, cores: Some(1.9), ..Outcome::default() };
        let cost = Cost::of(outcome, Duration::from_millis(14), Duration::from_millis(15));
        let row = Cost::row(Spec::new("x", "us", None), &[&cost]);
        assert_eq!(row.value.map(rounded), Some(15.0));
        let also: Vec<_> = row.also.into_iter().take(4).map(|(name, value)| (name, rounded(value))).collect();
        let expected = [("generator_us", 4.0), ("cores", 1.9), ("own_cores", 1.8), ("ops_per_s", 100_000.0)];
        assert_eq!(also, expected);
    }
}
