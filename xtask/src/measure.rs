//! CPU per operation of a server process under a closed loop.
//!
//! 1. Connect, and warm up for a while.
//! 2. Wait until the server is idle, so that work left over from an earlier row is not this row's.
//! 3. Run; the server's CPU clock counts user and system time of all its threads.
//! 4. Wait until it is idle again: flushes and merges that the operations caused belong to them.
//!
//! The kernel's network work on loopback runs in the context of whoever sends, so it is part of both sides'
//! CPU; what the kernel writes back to disk by its own threads is in nobody's.

use crate::generator::{Outcome, Session, Until};
use crate::workload::{Keys, Workload};
use crate::{Result, sys};
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A server is idle when it used at most [`IDLE_CPU`] in [`IDLE_LOOK`].
const IDLE_LOOK: Duration = Duration::from_millis(100);
const IDLE_CPU: Duration = Duration::from_millis(2);

/// How long idleness is waited for. A server that never rests is measured with what it does.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(20);

/// The cores that must be busy for a figure to stand for a loaded machine.
pub const CORES_MIN: f64 = 1.7;

/// How long a measurement takes.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Not counted.
    pub warm_up: Duration,
    /// Counted.
    pub time: Duration,
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Cost {
    /// CPU of the server per operation, in microseconds.
    pub server_us: f64,
    /// CPU of the generator per operation, in microseconds.
    pub generator_us: f64,
    /// Busy cores in all, others' work included.
    pub cores: f64,
    /// Of these, those that were busy with the server or the generator.
    pub own_cores: f64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Latency percentiles in microseconds.
    pub p50_us: f64,
    /// The 99th.
    pub p99_us: f64,
}

/// Measures `workload` against the server with this process id.
pub fn cost(
    pid: u32,
    address: SocketAddr,
    connections: usize,
    workload: &mut impl Workload,
    keys: &mut Keys,
    window: Window,
) -> Result<Cost> {
    let mut session = Session::connect(address, connections)?;
    session.run(workload, keys, Until::Elapsed(window.warm_up))?;
    rest(pid)?;
    let before = sys::process_cpu(pid)?;
    let outcome = session.run(workload, keys, Until::Elapsed(window.time))?;
    let loaded = sys::process_cpu(pid)? - before;
    rest(pid)?;
    let all = sys::process_cpu(pid)? - before;
    Ok(Cost::of(&outcome, loaded, all))
}

impl Cost {
    fn of(outcome: &Outcome, loaded: Duration, all: Duration) -> Cost {
        let ops = outcome.ops.max(1) as f64;
        let wall = outcome.wall.as_secs_f64();
        Cost {
            server_us: all.as_secs_f64() * 1e6 / ops,
            generator_us: outcome.cpu.as_secs_f64() * 1e6 / ops,
            cores: outcome.busy.as_secs_f64() / wall,
            own_cores: (loaded + outcome.cpu).as_secs_f64() / wall,
            ops_per_s: ops / wall,
            p50_us: outcome.latencies.p50_us(),
            p99_us: outcome.latencies.percentile_us(99.0),
        }
    }
}

/// Waits until the process is idle; says whether it came to rest.
pub fn rest(pid: u32) -> Result<bool> {
    let begin = Instant::now();
    let mut before = sys::process_cpu(pid)?;
    while begin.elapsed() < IDLE_WAIT_MAX {
        sleep(IDLE_LOOK);
        let now = sys::process_cpu(pid)?;
        if now - before <= IDLE_CPU {
            return Ok(true);
        }
        before = now;
    }
    eprintln!("figures: process {pid} does not come to rest");
    Ok(false)
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
