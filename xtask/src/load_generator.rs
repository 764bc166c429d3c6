//! The figures of the load generator itself: `cargo xtask figures bench`.
//!
//! What it can do where nothing is in its way ([`Part::Null`]), what it costs against a node and whether it keeps a rate
//! ([`Part::Node`]), whether a node that is stopped for a moment shows as the latencies that it caused ([`Part::Stop`]),
//! and whether planted faults are found and named ([`Part::Planted`]).

use crate::annulet::{Annulet, Setup};
use crate::figures::{self, How, Part as Run, Set};
use crate::process::make_dir;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::{Result, sys};
use bench::{Control, Identity, Workload};
use clap::{Args, ValueEnum};
use results::{Kind, Results, Summary};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// How the figures of the load generator are taken.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    how: How,
    /// Only these parts. The page is not written then.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Operations a second against nothing.
    Null,
    /// Its own cost against a node, and an open loop.
    Node,
    /// A node that is stopped for a moment.
    Stop,
    /// Planted faults.
    Planted,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Plan {
    rounds: usize,
    /// Measured seconds of a run.
    seconds: u64,
    /// Operations of a run with planted faults: some per million, in any case.
    planted_ops: u64,
}

const FULL: Plan = Plan { rounds: 5, seconds: 10, planted_ops: 40_000_000 };
const QUICK: Plan = Plan { rounds: 3, seconds: 4, planted_ops: 24_000_000 };

type Context = figures::Context<Plan>;

/// Operations under way on one connection, where there are several.
const PIPELINE: u32 = 16;

/// How long the node is stopped.
const STOP: Duration = Duration::from_millis(100);

/// The rate at which it is asked meanwhile.
const STOP_RATE: f64 = 2000.0;

/// Latencies above this are counted: half of what the stop lasts.
const STOP_LONG_NS: u64 = 50_000_000;

const METHOD: &str = "\
The generator runs in the measuring process, one thread, 64 operations outstanding, every read checked. They are on as many
connections, or 16 on each of 4 where a row says so: then requests of one connection leave, and answers come, several in a system
call, which is how a client works that has many requests at a time. `null` is a map in memory
behind the same driver interface, with values of 100 bytes, five reads to one write: what is left is the generator's own work,
checker included; its rate is divided by the share of a core that its thread had. Against a node values have 1,000 bytes; the
generator's cost is its thread's CPU time by the scheduler's count. The open loop begins operations at random times (Poisson) at
half the rate that the closed loop has reached just before. The node is stopped by SIGSTOP in the middle of a run at a fixed rate:
of the operations that were due while it stood still, those in the first part waited longer than 50 ms, and the row says which
share of them the histogram of responses has. Planted faults: the driver itself drops one write of a million, or answers one
read of a million with an older version.";

const SET: Set<Part, Plan> = Set {
    name: "bench",
    title: "The load generator",
    method: METHOD,
    needs_binary: true,
    quick_leaves_out: "quick: no row is left out, but runs are shorter (4 s instead of 10 s) and fewer (3 instead of 5)",
    parts: &[
        Run { name: Part::Null, specs: null_specs, run: null },
        Run { name: Part::Node, specs: node_specs, run: node },
        Run { name: Part::Stop, specs: stop_specs, run: stop },
        Run { name: Part::Planted, specs: planted_specs, run: planted },
    ],
};

/// Measures, prints, writes the page.
pub fn run(options: &Options) -> Result<()> {
    SET.run(if options.how.quick { QUICK } else { FULL }, &options.how, &options.only, "")
}

/// Runs a workload into a folder of its own.
fn load(context: &Context, name: &str, text: &str) -> Result<(Summary, Results)> {
    let dir = tempfile::Builder::new().prefix(name).tempdir_in(&context.home)?;
    let workload = Workload::parse(text, name)?;
    let control = Control::default();
    let summary =
        bench::run(&workload, &dir.path().join("results"), &Identity::default(), &control, &mut ())?;
    Ok((summary, Results::open(&dir.path().join("results"))?))
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
        let (summary, results) = load(context, "null", &mix(&head, "", 100, 10_000, 5))?;
        fail_if_wrong(&summary)?;
        let (mut ops, mut cpu_s) = (0, 0.0);
        for second in results.measured() {
            ops += second.done(None);
            cpu_s += second.generator.cpu_us as f64 / 1e6;
        }
        rates.push(ops as f64 / cpu_s);
        // Work that was done: values that were made, came back, and were read and compared, warm-up and the end included.
        verified.push(summary.check.verified as f64 / ops as f64);
    }
    let [spec] = &null_specs()[..] else { return Err("one row".into()) };
    report.push(spec.clone().measured(&rates).also("reads_verified_per_op", crate::stats::median(&verified)))
}

fn node_specs() -> Vec<Spec> {
    vec![
        Spec::new("pb/own CPU per operation, 1 on a connection", "us", None),
        Spec::new("pb/own CPU per operation, 16 on a connection", "us", Some(Bar::AtMost(6.0))),
        Spec::new("open/achieved less than asked", "%", Some(Bar::AtMost(1.0))),
    ]
}

fn start(context: &Context, name: &str) -> Result<Annulet> {
    let home = make_dir(&context.home, name)?;
    Annulet::start(&Setup { binary: context.binary.clone(), home, durability: "none", shards: None })
}

fn node(context: &Context, report: &mut Report) -> Result<()> {
    let node = start(context, "node")?;
    let head =
        format!("addresses = [\"{}\"]\nduration = \"{}s\"", node.servers.addresses[0], context.plan.seconds);
    let pipelined = format!("{head}\npipeline = {PIPELINE}");
    let (mut single, mut piped, mut missing) = (Costs::default(), Costs::default(), Vec::new());
    for _ in 0..context.plan.rounds {
        let (closed, _) = load(context, "closed", &mix(&head, "", 1000, 100_000, 5))?;
        single.push(&closed)?;
        piped.push(&load(context, "pipelined", &mix(&pipelined, "", 1000, 100_000, 5))?.0)?;
        let half = closed.total.throughput.median / 2.0;
        let tables = format!("[load]\nkind = \"poisson\"\nrate = {half:.1}");
        let (open, _) = load(context, "open", &mix(&head, &tables, 1000, 100_000, 5))?;
        fail_if_wrong(&open)?;
        // Of random arrivals their own number counts: what was due.
        missing.push(100.0 * (1.0 - open.generator.achieved.unwrap_or(0.0)).abs());
    }
    node.stop()?;
    let [cost, cost_piped, achieved] = &node_specs()[..] else { return Err("three rows".into()) };
    for (spec, costs) in [(cost, single), (cost_piped, piped)] {
        let row = spec.clone().measured(&costs.own_us);
        report.push(row.also("closed_ops", crate::stats::median(&costs.rates)))?;
    }
    report.push(achieved.clone().measured(&missing))
}

/// What closed loops have cost the generator, and how fast they were.
#[derive(Default)]
struct Costs {
    own_us: Vec<f64>,
    rates: Vec<f64>,
}

impl Costs {
    fn push(&mut self, closed: &Summary) -> Result<()> {
        fail_if_wrong(closed)?;
        self.own_us.push(closed.generator.cpu_us_per_op);
        self.rates.push(closed.total.throughput.median);
        Ok(())
    }
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
            (load(context, "stop", &text), stopper.join())
        });
        let (summary, results) = loaded?;
        let stood = stood.map_err(|_| "the thread that stops the node has panicked")??;
        fail_if_wrong(&summary)?;
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
fn stop_for_a_moment(pid: u32) -> std::io::Result<Duration> {
    sleep(Duration::from_secs(3));
    let begin = Instant::now();
    sys::signal(pid, libc::SIGSTOP)?;
    sleep(STOP);
    sys::signal(pid, libc::SIGCONT)?;
    Ok(begin.elapsed())
}

fn planted_specs() -> Vec<Spec> {
    vec![
        Spec::new("planted/dropped writes found, as lost", "found", Some(Bar::AtLeast(1.0))),
        Spec::new("planted/older versions found, as stale", "found", Some(Bar::AtLeast(1.0))),
    ]
}

fn planted(context: &Context, report: &mut Report) -> Result<()> {
    let head = format!("driver = \"null\"\noperations_max = {}", context.plan.planted_ops);
    let mut rows = planted_specs().into_iter();
    for fault in ["drop_writes", "stale_reads"] {
        let tables = format!("[plant]\n{fault} = 1000000");
        // So many keys that few are written again before a loss has been looked at twice.
        let (summary, _) = load(context, fault, &mix(&head, &tables, 100, 1_000_000, 2))?;
        let check = &summary.check;
        let (named, others) = match fault {
            "drop_writes" => (check.lost, check.resurrected + check.corrupt),
            _ => (check.stale, check.lost + check.resurrected + check.corrupt),
        };
        let spec = rows.next().ok_or("two rows")?;
        if others > 0 || summary.verdict.passed {
            return Err(format!("{fault}: {check:?}").into());
        }
        let note = format!("in {} operations", context.plan.planted_ops);
        report.push(spec.valued(named as f64, note).also("unresolved", Some(check.unresolved as f64)))?;
    }
    Ok(())
}

fn fail_if_wrong(summary: &Summary) -> Result<()> {
    match summary.verdict.passed {
        true => Ok(()),
        false => Err(summary.verdict.failures.join("; ").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        figures::assert_named_once(&SET.specs());
    }

    #[test]
    fn workloads_of_rows_are_read() {
        let text = mix("driver = \"null\"", "[load]\nkind = \"fixed\"\nrate = 2000.5", 100, 10, 5);
        assert_eq!(Workload::parse(&text, "row").unwrap().operations.len(), 2);
    }
}
