//! CPU per operation of server processes under a closed loop.
//!
//! 1. Connect, and warm up for a while.
//! 2. Wait until the servers are idle, so that work left over from an earlier row is not this row's.
//! 3. Run; a server's CPU clock counts user and system time of all its threads.
//! 4. Wait until they are idle again: flushes and merges that the operations caused belong to them.
//!
//! The kernel's network work on loopback runs in the context of whoever sends, so it is part of both sides'
//! CPU; what the kernel writes back to disk by its own threads is in nobody's.

use crate::calibrate::Yardstick;
use crate::generator::{Outcome, Session, Until};
use crate::rows::{Row, Spec};
use crate::stats::{median, rounded};
use crate::workload::{Keys, Workload};
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
    /// Operations.
    pub ops: u64,
    /// CPU of the servers per operation, in microseconds.
    pub server_us: f64,
    /// CPU of the generator per operation, in microseconds.
    pub generator_us: f64,
    /// Busy cores in all, others' work included.
    pub cores: f64,
    /// Of these, those that were busy with the servers or the generator.
    pub own_cores: f64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Latency percentiles in microseconds.
    pub p50_us: f64,
    /// The 99th.
    pub p99_us: f64,
}

/// Measures `workload` against `servers` on new connections.
pub fn cost(
    servers: &Servers,
    connections: usize,
    workload: &mut impl Workload,
    keys: &mut Keys,
    window: Window,
) -> Result<Cost> {
    let mut session = servers.connect(connections)?;
    session.run(workload, keys, Until::Elapsed(window.warm_up))?;
    servers.rest()?;
    cost_on(servers, &mut session, workload, keys, Until::Elapsed(window.time))
}

/// Measures `workload` against `servers`, which are idle, on connections that are warm.
pub fn cost_on(
    servers: &Servers,
    session: &mut Session,
    workload: &mut impl Workload,
    keys: &mut Keys,
    until: Until,
) -> Result<Cost> {
    let before = servers.cpu()?;
    let outcome = session.run(workload, keys, until)?;
    let loaded = servers.cpu()? - before;
    servers.rest()?;
    let all = servers.cpu()? - before;
    Ok(Cost::of(&outcome, loaded, all))
}

impl Cost {
    fn of(outcome: &Outcome, loaded: Duration, all: Duration) -> Cost {
        let ops = outcome.ops.max(1) as f64;
        let wall = outcome.wall.as_secs_f64();
        Cost {
            ops: outcome.ops,
            server_us: all.as_secs_f64() * 1e6 / ops,
            generator_us: outcome.cpu.as_secs_f64() * 1e6 / ops,
            cores: outcome.busy.as_secs_f64() / wall,
            own_cores: (loaded + outcome.cpu).as_secs_f64() / wall,
            ops_per_s: ops / wall,
            p50_us: outcome.latencies.p50_us(),
            p99_us: outcome.latencies.percentile_us(99.0),
        }
    }

    /// The row of the median of some measurements, with its context.
    pub fn row(spec: Spec, costs: &[&Cost]) -> Row {
        let values = |field: fn(&Cost) -> f64| costs.iter().map(|cost| field(cost)).collect::<Vec<f64>>();
        let middle = |field| median(&values(field));
        let cores = middle(|cost| cost.cores).unwrap_or(0.0);
        let own_cores = middle(|cost| cost.own_cores).unwrap_or(0.0);
        let row = spec
            .measured(&values(|cost| cost.server_us))
            .also("generator_us", middle(|cost| cost.generator_us))
            .also("cores", Some(cores))
            .also("own_cores", Some(own_cores))
            .also("ops_per_s", middle(|cost| cost.ops_per_s))
            .also("p50_us", middle(|cost| cost.p50_us))
            .also("p99_us", middle(|cost| cost.p99_us));
        with_foreign_work(row, cores, own_cores)
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

/// The row with a remark if the machine was idle, or busy with something else: the kernel's own threads, above all
/// those that write to the disk, and whoever shares the machine.
pub fn with_foreign_work(row: Row, cores: f64, own_cores: f64) -> Row {
    if cores < CORES_MIN {
        return row.noted(format!("only {} cores busy", rounded(cores)));
    }
    if cores - own_cores > FOREIGN_CORES_MAX {
        return row.noted(format!("{} cores busy with none of the processes", rounded(cores - own_cores)));
    }
    row
}

impl Servers {
    /// Their user and system time so far.
    pub fn cpu(&self) -> Result<Duration> {
        Ok(self.pids.iter().map(|&pid| sys::process_cpu(pid)).sum::<std::io::Result<Duration>>()?)
    }

    /// Opens so many connections, spread evenly.
    pub fn connect(&self, connections: usize) -> Result<Session> {
        Session::connect(&self.addresses, connections)
    }

    /// Writes the keys from `first` on, each once.
    pub fn load(&self, workload: &mut impl Workload, first: u64, count: u64) -> Result<Outcome> {
        self.connect(64)?.patient().run(workload, &mut Keys::Sequence { next: first }, Until::Ops(count))
    }

    /// Waits until they are idle; says whether they came to rest.
    pub fn rest(&self) -> Result<bool> {
        let begin = Instant::now();
        let mut before = self.cpu()?;
        while begin.elapsed() < IDLE_WAIT_MAX {
            sleep(IDLE_LOOK);
            let now = self.cpu()?;
            if now - before <= IDLE_CPU * u32::try_from(self.pids.len()).unwrap_or(1) {
                return Ok(true);
            }
            before = now;
        }
        eprintln!("figures: the processes {:?} do not come to rest", self.pids);
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Latencies;

    #[test]
    fn cost_is_per_operation_and_cores_per_second() {
        let outcome = Outcome {
            ops: 1000,
            wall: Duration::from_millis(10),
            cpu: Duration::from_millis(4),
            busy: Duration::from_millis(19),
            latencies: Latencies::new(),
        };
        let cost = Cost::of(&outcome, Duration::from_millis(14), Duration::from_millis(15));
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(cost.server_us, 15.0) && near(cost.generator_us, 4.0), "{cost:?}");
        assert!(near(cost.cores, 1.9) && near(cost.own_cores, 1.8), "{cost:?}");
        assert!(near(cost.ops_per_s, 100_000.0), "{cost:?}");
    }
}
