//! The figures of the load generator itself: `cargo xtask figures bench`.
//!
//! What it can do where nothing is in its way ([`null()`]), what it costs against a node and whether it keeps a
//! rate ([`node()`]), and whether a node that is stopped for a moment shows as the latencies that it caused
//! ([`stop()`]). That planted faults are found and named is a test of `bench`.

use crate::Result;
use crate::figures::{self, Part, Set};
use crate::load;
use crate::nodes::{Cluster, Setup};
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;
use bench::Workload;
use results::{Kind, Results, Summary};
use rustix::process::{Pid, Signal, kill_process};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    rounds: usize,
    /// Measured seconds of a run.
    seconds: u64,
}

const FULL: Plan = Plan { rounds: 5, seconds: 10 };
const QUICK: Plan = Plan { rounds: 3, seconds: 4 };

type Context = figures::Context<Plan>;

/// Operations under way on one connection, where there are several.
const PIPELINE: u32 = 16;

/// How long the node is stopped.
const STOP: Duration = Duration::from_millis(100);

/// The rate at which it is asked meanwhile.
const STOP_RATE: f64 = 2000.0;

/// Latencies above this are counted: half of what the stop lasts.
const STOP_LONG_NS: u64 = 50_000_000;

pub const SET: Set<Plan> = Set {
    name: "bench",
    title: "The load generator",
    method: include_str!("../method/bench.md"),
    plans: [FULL, QUICK],
    needs_binary: true,
    quick_leaves_out: "quick: no row is left out, but runs are shorter (4 s, not 10) and fewer (3, not 5)",
    parts: &[
        Part { name: "null", specs: null_specs, run: null },
        Part { name: "node", specs: node_specs, run: node },
        Part { name: "stop", specs: stop_specs, run: stop },
    ],
};

/// Runs a workload. An error if the store was wrong.
fn run_workload(name: &str, text: &str) -> Result<(Summary, Results)> {
    load::run(&Workload::parse(text, name)?)
}

/// A mix of reads and writes; `head` stands before its tables.
fn mix(head: &str, tables: &str, size: usize, keys: u64, reads: u32) -> String {
    format!(
        "concurrency = 64\nwarm_up = \"1s\"\n{head}\n{tables}\n[keys]\nkind = \"uniform\"\ncount = {keys}\n\
         [value]\nsize = {size}\n[[operation]]\nop = \"get\"\nweight = {reads}\n[[operation]]\nop = \"put\"\n"
    )
}

fn null_specs() -> Vec<Spec> {
    vec![Spec::new("null/op a second and core", "op/s", Some(Bar::AtLeast(1e6)))]
}

fn null(context: &Context, report: &mut Report) -> Result<()> {
    let head = format!("driver = \"null\"\nduration = \"{}s\"", context.plan.seconds);
    let (mut rates, mut verified) = (Vec::new(), Vec::new());
    for _ in 0..context.plan.rounds {
        let (summary, results) = run_workload("null", &mix(&head, "", 100, 10_000, 5))?;
        let (mut ops, mut cpu_s) = (0, 0.0);
        for second in results.measured() {
            ops += second.done(None);
            cpu_s += second.generator.cpu_us as f64 / 1e6;
        }
        rates.push(ops as f64 / cpu_s);
        // Work that was done: values that were made, came back, and were read and compared, warm-up and the end
        // included.
        verified.push(summary.check.verified as f64 / ops as f64);
    }
    let [spec] = &null_specs()[..] else { return Err("one row".into()) };
    report.push(spec.clone().measured(&rates).also("reads_verified_per_op", median(&verified)))
}

fn node_specs() -> Vec<Spec> {
    vec![
        Spec::new("pb/own CPU per operation, 1 on a connection", "us", None),
        Spec::new("pb/own CPU per operation, 16 on a connection", "us", Some(Bar::AtMost(6.0))),
        Spec::new("open/achieved less than asked", "%", Some(Bar::AtMost(1.0))),
    ]
}

fn start(context: &Context, name: &str) -> Result<Cluster> {
    Cluster::start(&Setup::new(&context.binary, context.home.join(name), 1, "none")?)
}

fn node(context: &Context, report: &mut Report) -> Result<()> {
    let node = start(context, "node")?;
    let head =
        format!("addresses = [\"{}\"]\nduration = \"{}s\"", node.servers.addresses[0], context.plan.seconds);
    let pipelined = format!("{head}\npipeline = {PIPELINE}");
    let (mut single, mut piped, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..context.plan.rounds {
        let (closed, _) = run_workload("closed", &mix(&head, "", 1000, 100_000, 5))?;
        piped.push(run_workload("pipelined", &mix(&pipelined, "", 1000, 100_000, 5))?.0);
        let half = closed.total.throughput.median / 2.0;
        let tables = format!("[load]\nkind = \"poisson\"\nrate = {half:.1}");
        let (open, _) = run_workload("open", &mix(&head, &tables, 1000, 100_000, 5))?;
        // Of random arrivals their own number counts: what was due.
        missing.push(100.0 * (1.0 - open.generator.achieved.unwrap_or(0.0)).abs());
        single.push(closed);
    }
    node.stop()?;
    let [cost, cost_piped, achieved] = &node_specs()[..] else { return Err("three rows".into()) };
    for (spec, costs) in [(cost, single), (cost_piped, piped)] {
        let values = |of: fn(&Summary) -> f64| costs.iter().map(of).collect::<Vec<f64>>();
        let row = spec.clone().measured(&values(|it| it.generator.cpu_us_per_op));
        report.push(row.also("closed_ops", median(&values(|it| it.total.throughput.median))))?;
    }
    report.push(achieved.clone().measured(&missing))
}

fn stop_specs() -> Vec<Spec> {
    vec![
        Spec::new("stop/long waits found of those there were", "share", Some(Bar::AtLeast(0.95))),
        Spec::new("stop/longest wait of the stop", "share", Some(Bar::AtLeast(0.95))),
    ]
}

fn stop(context: &Context, report: &mut Report) -> Result<()> {
    let node = start(context, "stop")?;
    let head = format!("addresses = [\"{}\"]\nduration = \"4s\"", node.servers.addresses[0]);
    let text = mix(&head, &format!("[load]\nkind = \"fixed\"\nrate = {STOP_RATE}"), 1000, 10_000, 5);
    let (mut found, mut longest) = (Vec::new(), Vec::new());
    for _ in 0..context.plan.rounds {
        let (loaded, stood) = scope(|scope| {
            let pid = node.pid();
            let stopper = scope.spawn(move || stop_for_a_moment(pid));
            (run_workload("stop", &text), stopper.join())
        });
        let (_, results) = loaded?;
        let stood = stood.map_err(|_| "the thread that stops the node has panicked")??;
        let all = results.merged(|_, _, kind| kind == Kind::Response);
        let long = all.share_above(STOP_LONG_NS) * all.count() as f64;
        let there_were = (stood.as_secs_f64() - STOP_LONG_NS as f64 / 1e9) * STOP_RATE;
        found.push(long / there_were);
        longest.push(all.max() as f64 / stood.as_nanos() as f64);
    }
    node.stop()?;
    let [share, most] = &stop_specs()[..] else { return Err("two rows".into()) };
    report.push(share.clone().measured(&found))?;
    report.push(most.clone().measured(&longest))
}

/// Stops the node in the middle of what is measured; says how long it stood still.
fn stop_for_a_moment(pid: u32) -> Result<Duration> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or("no process has the number 0")?;
    sleep(Duration::from_secs(3));
    let begin = Instant::now();
    kill_process(pid, Signal::STOP)?;
    sleep(STOP);
    kill_process(pid, Signal::CONT)?;
    Ok(begin.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_of_rows_are_read() {
        let text = mix("driver = \"null\"", "[load]\nkind = \"fixed\"\nrate = 2000.5", 100, 10, 5);
        assert_eq!(Workload::parse(&text, "row").unwrap().operations.len(), 2);
    }
}
