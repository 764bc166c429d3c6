//! Rebuilds of trees: keys a second, what a look for values costs, and what clients notice.

use super::{Context, RARELY, wait_for_all_trees, wait_for_trees};
use crate::annulet::{Counts, post};
use crate::cluster::{Cluster, NODES};
use crate::generator::Until;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;
use crate::workload::{Keys, Op, Riak, SplitMix};
use crate::{Result, sys};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

const CONNECTIONS: usize = 16;

/// What is looked for, and the bar of the CPU that it takes over that of looking for nothing.
const CHECKS: [(&str, Option<Bar>); 2] = [("presence", Some(Bar::AtMost(1.5))), ("values", None)];

/// How often nodes are asked for rebuilds while clients are served: what is under way goes on.
const ASK_EVERY: Duration = Duration::from_millis(200);

fn memory() -> Spec {
    Spec::new("trees/memory", "bytes/key", Some(Bar::AtMost(2.0)))
}

fn speed() -> Spec {
    Spec::new("rebuild/without a check", "M keys/s per core", Some(Bar::AtLeast(3.0)))
}

fn check((name, bar): (&str, Option<Bar>)) -> Spec {
    Spec::new(format!("rebuild/CPU with a look for {name} over without"), "ratio", bar)
}

fn beside() -> Spec {
    Spec::new("rebuild/p99 of clients beside it over without", "ratio", Some(Bar::AtMost(1.2)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    [memory(), speed()].into_iter().chain(CHECKS.map(check)).chain([beside()]).collect()
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let cluster = Cluster::start(&context.setup("rebuild", 64, RARELY)?)?;
    let objects = context.plan.objects;
    cluster.servers.load(&mut Riak::new(Op::Put), 0, objects)?;
    cluster.servers.rest()?;
    let counts = wait_for_all_trees(&cluster)?;
    let (bytes, keys) = (counts[0].get("tree_bytes")?, counts[0].get("tree_keys")?);
    report.push(memory().valued(bytes as f64 / keys as f64, "once").also("keys", Some(keys as f64)))?;

    let (mut none, mut others) = (Vec::new(), CHECKS.map(|_| Vec::new()));
    for _ in 0..context.plan.rounds {
        let without = rebuild(&cluster, "none")?;
        none.push(without);
        for ((name, _), of_check) in CHECKS.iter().zip(&mut others) {
            of_check.push(rebuild(&cluster, name)?.cpu_us / without.cpu_us);
        }
    }
    let speeds: Vec<f64> = none.iter().map(|took| 1.0 / took.cpu_us).collect();
    let by_the_clock = median(&none.iter().map(|took| 1.0 / took.wall_us).collect::<Vec<f64>>());
    report
        .push(speed().measured(&speeds).also("keys", Some(keys as f64)).also("by_the_clock", by_the_clock))?;
    for (which, ratios) in CHECKS.into_iter().zip(&others) {
        report.push(check(which).measured(ratios))?;
    }
    clients(context, &cluster, report)?;
    cluster.stop()
}

/// What one of all partitions took for each key.
#[derive(Clone, Copy)]
struct Took {
    /// CPU of the node's process, in microseconds.
    cpu_us: f64,
    /// Time in which parts were under way.
    wall_us: f64,
}

fn rebuild(cluster: &Cluster, check: &str) -> Result<Took> {
    cluster.servers.rest()?;
    let before = Counts::fetch(cluster.http(0))?;
    let cpu = sys::process_cpu(cluster.servers.pids[0])?;
    post(cluster.http(0), "/admin/aae/rebuild", &format!("{{\"check\": \"{check}\"}}"))?;
    let after = wait_for_trees(cluster, 0..1)?;
    let cpu = sys::process_cpu(cluster.servers.pids[0])? - cpu;
    let keys = after[0].since(&before, "rebuild_keys")?.max(1) as f64;
    if after[0].since(&before, "rebuild_damaged")? > 0 {
        return Err("values are missing".into());
    }
    let wall_us = after[0].since(&before, "rebuild_micros")? as f64 / keys;
    Ok(Took { cpu_us: cpu.as_secs_f64() * 1e6 / keys, wall_us })
}

/// Clients without rebuilds and with them, in turns.
fn clients(context: &Context, cluster: &Cluster, report: &mut Report) -> Result<()> {
    let window = context.plan.window;
    let mut keys = Keys::Uniform { from: 0, count: context.plan.objects, rng: SplitMix::new(2) };
    let mut session = cluster.servers.connect(CONNECTIONS)?;
    let mut p99_of = |keys: &mut Keys| -> Result<f64> {
        session.run(&mut Riak::new(Op::Put), keys, Until::Elapsed(window.warm_up))?;
        Ok(session
            .run(&mut Riak::new(Op::Put), keys, Until::Elapsed(window.time))?
            .latencies
            .percentile_us(99.0))
    };
    let (mut ratios, mut quiet) = (Vec::new(), Vec::new());
    for _ in 0..context.plan.rounds {
        wait_for_all_trees(cluster)?;
        let without = p99_of(&mut keys)?;
        let over = AtomicBool::new(false);
        let with = scope(|scope| {
            let asking = scope.spawn(|| -> Result<()> {
                while !over.load(Ordering::Relaxed) {
                    for node in 0..NODES {
                        post(cluster.http(node), "/admin/aae/rebuild", "{\"check\": \"presence\"}")?;
                    }
                    sleep(ASK_EVERY);
                }
                Ok(())
            });
            let with = p99_of(&mut keys);
            over.store(true, Ordering::Relaxed);
            asking.join().map_err(|_| "the thread that asks for rebuilds has ended")??;
            with
        })?;
        ratios.push(with / without);
        quiet.push(without);
    }
    report.push(beside().measured(&ratios).also("p99_us_without", median(&quiet)))
}
