//! One node of three paused or slowed: what the clients of the other two see, and how soon these know.

use super::{Context, OBJECTS};
use crate::cluster::{Cluster, LOOK_AT_PEERS, NODES, peers_up};
use crate::generator::{Outcome, Session, Until};
use crate::report::Report;
use crate::rows::{Bar, Row, Spec};
use crate::stats::{median, rounded};
use crate::workload::{Keys, Op, Riak, SplitMix};
use crate::{Result, sys};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

const OPS: [Op; 2] = [Op::Get, Op::Put];

/// Connections to the nodes that are well.
const CONNECTIONS: usize = 16;

/// Which node gets into trouble, counted from 0.
const SICK: usize = NODES - 1;

/// A slowed node runs for this long, and is stopped for [`SLOWED_STOPS`]: slower by 100.
const SLOWED_RUNS: Duration = Duration::from_millis(1);
const SLOWED_STOPS: Duration = Duration::from_millis(99);

/// Kinds of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Paused,
    Slowed,
}

const TROUBLES: [Trouble; 2] = [Trouble::Paused, Trouble::Slowed];

impl Trouble {
    fn name(self) -> &'static str {
        match self {
            Trouble::Paused => "paused",
            Trouble::Slowed => "slowed",
        }
    }

    fn latency(self, op: Op) -> Spec {
        let row = format!("one {}/{} p99 over healthy", self.name(), op.name());
        Spec::new(row, "ratio", Some(Bar::AtMost(3.0)))
    }

    fn noticed(self) -> Spec {
        Spec::new(format!("one {} noticed", self.name()), "s", Some(Bar::AtMost(5.0)))
    }
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    TROUBLES
        .into_iter()
        .flat_map(|trouble| [trouble.latency(OPS[0]), trouble.latency(OPS[1]), trouble.noticed()])
        .collect()
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let cluster = Cluster::start(&context.setup("gray", "none")?)?;
    cluster.servers.load(&mut Riak::new(Op::Put), 0, OBJECTS)?;
    for trouble in TROUBLES {
        let mut noticed = Vec::new();
        for op in OPS {
            match episodes(context, &cluster, trouble, op) {
                Ok(episodes) => {
                    report.push(latency_row(trouble, op, &episodes))?;
                    noticed.extend(episodes.into_iter().map(|episode| episode.noticed));
                }
                Err(failure) => report.push(trouble.latency(op).failed(failure))?,
            }
        }
        report.push(noticed_row(trouble, &noticed))?;
    }
    cluster.stop()
}

/// Once well, once in trouble.
struct Episode {
    healthy: Outcome,
    sick: Outcome,
    /// When both others had seen it; `None` if one never did.
    noticed: Option<Duration>,
}

fn episodes(context: &Context, cluster: &Cluster, trouble: Trouble, op: Op) -> Result<Vec<Episode>> {
    let (others, watched) = cluster.but(SICK);
    let mut session = others.connect(CONNECTIONS)?;
    let mut keys = Keys::Uniform { from: 0, count: OBJECTS, rng: SplitMix::new(op as u64) };
    session.run(&mut Riak::new(op), &mut keys, Until::Elapsed(context.plan.window.warm_up))?;
    let mut episodes = Vec::new();
    for _ in 0..context.plan.troubles {
        cluster.reunite()?;
        cluster.servers.rest()?;
        let until = Until::Elapsed(context.plan.trouble);
        let healthy = session.run(&mut Riak::new(op), &mut keys, until)?;
        let pid = cluster.servers.pids[SICK];
        let (sick, noticed) =
            in_trouble(trouble, pid, &watched, || session_run(&mut session, op, &mut keys, until))?;
        episodes.push(Episode { healthy, sick, noticed });
    }
    cluster.reunite()?;
    Ok(episodes)
}

fn session_run(session: &mut Session, op: Op, keys: &mut Keys, until: Until) -> Result<Outcome> {
    session.run(&mut Riak::new(op), keys, until)
}

/// Does `work` while a process is in trouble; what came of it, and when all who are watched had noticed.
fn in_trouble<T>(
    trouble: Trouble,
    pid: u32,
    watched: &[SocketAddr],
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Option<Duration>)> {
    let over = AtomicBool::new(false);
    let begin = Instant::now();
    thread::scope(|scope| {
        sys::signal(pid, libc::SIGSTOP)?;
        let slowing = (trouble == Trouble::Slowed).then(|| scope.spawn(|| slow(pid, &over)));
        let watching = scope.spawn(|| watch(watched, begin, &over));
        let done = work();
        over.store(true, Ordering::Relaxed);
        if let Some(slowing) = slowing {
            slowing.join().map_err(|_| "who slows the node has panicked")?;
        }
        sys::signal(pid, libc::SIGCONT)?;
        let noticed = watching.join().map_err(|_| "who watches the nodes has panicked")??;
        Ok((done?, noticed))
    })
}

/// Lets a process run now and then.
fn slow(pid: u32, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        for (signal, time) in [(libc::SIGCONT, SLOWED_RUNS), (libc::SIGSTOP, SLOWED_STOPS)] {
            if sys::signal(pid, signal).is_err() {
                // It has ended; the requests will tell.
                return;
            }
            sleep(time);
        }
    }
}

/// When each of the watched nodes has said at least once that it sees one node less.
fn watch(watched: &[SocketAddr], begin: Instant, over: &AtomicBool) -> Result<Option<Duration>> {
    let mut left = watched.to_vec();
    loop {
        for http in std::mem::take(&mut left) {
            if peers_up(http)? == NODES as u64 - 1 {
                left.push(http);
            }
        }
        if left.is_empty() {
            return Ok(Some(begin.elapsed()));
        }
        if over.load(Ordering::Relaxed) {
            return Ok(None);
        }
        sleep(LOOK_AT_PEERS);
    }
}

fn latency_row(trouble: Trouble, op: Op, episodes: &[Episode]) -> Row {
    let p99 = |outcome: &Outcome| outcome.latencies.percentile_us(99.0);
    let values = |value: fn(&Episode) -> f64| episodes.iter().map(value).collect::<Vec<f64>>();
    let ratios: Vec<f64> =
        episodes.iter().map(|episode| p99(&episode.sick) / p99(&episode.healthy)).collect();
    trouble
        .latency(op)
        .measured(&ratios)
        .also("healthy_p99_us", median(&values(|episode| episode.healthy.latencies.percentile_us(99.0))))
        .also("p99_us", median(&values(|episode| episode.sick.latencies.percentile_us(99.0))))
        .also("healthy_max_us", median(&values(|episode| episode.healthy.latencies.percentile_us(100.0))))
        .also("max_us", median(&values(|episode| episode.sick.latencies.percentile_us(100.0))))
        .also("healthy_ops_per_s", median(&values(|episode| rate(&episode.healthy))))
        .also("ops_per_s", median(&values(|episode| rate(&episode.sick))))
}

fn rate(outcome: &Outcome) -> f64 {
    outcome.ops as f64 / outcome.wall.as_secs_f64()
}

fn noticed_row(trouble: Trouble, noticed: &[Option<Duration>]) -> Row {
    let spec = trouble.noticed();
    let seconds: Option<Vec<f64>> = noticed.iter().map(|time| time.map(|time| time.as_secs_f64())).collect();
    match seconds {
        None => {
            let missed = noticed.iter().filter(|time| time.is_none()).count();
            spec.failed(format!("not noticed in {missed} of {} times", noticed.len()))
        }
        Some(seconds) => {
            let mut row = spec.measured(&seconds);
            row.value = seconds.iter().copied().reduce(f64::max);
            let middle = median(&seconds).map(rounded);
            row.noted("the slowest counts").also("median_s", middle)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_that_is_not_noticed_has_failed() {
        let seconds = |s| Some(Duration::from_secs(s));
        let row = noticed_row(Trouble::Paused, &[seconds(1), seconds(3), seconds(2)]);
        assert_eq!((row.value, row.reached()), (Some(3.0), true));
        assert!(!noticed_row(Trouble::Paused, &[seconds(1), None]).reached());
        assert!(!noticed_row(Trouble::Paused, &[seconds(1), seconds(6)]).reached());
        assert!(!noticed_row(Trouble::Paused, &[]).reached());
    }

    #[test]
    fn a_process_is_stopped_only_for_as_long_as_the_work_takes() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.as_bytes()[0]
        };
        let wait_for = |stopped: bool| {
            while (state() == b'T') != stopped {
                thread::yield_now()
            }
        };
        for trouble in TROUBLES {
            let ((), noticed) = in_trouble(trouble, pid, &[], || {
                wait_for(true);
                Ok(())
            })
            .unwrap();
            assert!(noticed.is_some());
            wait_for(false);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
