//! Runs seeds of the simulator: many in parallel with totals, or one with its trace.

use sim::cluster::{gossip, overload, rolling, transfer};
use sim::elastic::{Shape, carried, idle, transitions};
use sim::kind::NODES_MAX;
use sim::report::{Report, Totals};
use sim::trace::Keep;
use sim::{Kind, Seed};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

const USAGE: &str = "usage: sim [--world W] [--seeds N] [--first SEED] [--jobs N]    run seeds and print totals
       sim [--world W] --trace SEED                             run one seed and print its trace
       sim --idle NODES                                         costs of idle clusters of 10, 100... nodes, up to NODES
       sim --changes NODES                                      changes of members in clusters of 10, 100... nodes
       sim --transitions SEED                                   a crash at each step of each change of members
       sim --transfers N [--first SEED] [--objects O]           N transfers, each interrupted many times
       sim --rolls N [--first SEED]                             N restarts of all nodes, one after the other
       sim --overloads N [--first SEED]                         N overloads: five times the requests that nodes can serve
       sim --gossip N [--nodes N] [--buckets B] [--first SEED]  metadata sync of many buckets, and a start of all nodes
Worlds:
  node (the default)             one node
  memory, bitcask, hash          one node on that backend
  cluster                        a few nodes, or --nodes N, 3 to 100
  cluster-bitcask, cluster-hash  a cluster on that backend
  cluster-types                  a cluster with a store of bitcask for a bucket type
  strong                         a few nodes with a consistent bucket type
  elastic                        a cluster on modelled stores: --nodes N, 6 to 1000, and --partitions P";

enum Command {
    Run { kind: Kind, first: u64, seeds: u64, jobs: u64 },
    Trace(Kind, Seed),
    Idle(u64),
    Changes(u64),
    Transitions(Seed),
    Scripts(Script, std::ops::Range<u64>),
}

/// A course of things that is played, and how large it is.
enum Script {
    Transfers { objects: u64 },
    Rolls,
    Overloads,
    Gossip { nodes: u64, buckets: u64 },
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(Command::Trace(kind, seed)) => trace(kind, seed),
        Ok(Command::Run { kind, first, seeds, jobs }) => run(kind, first, seeds, jobs),
        Ok(Command::Idle(nodes)) => idle(nodes),
        Ok(Command::Changes(nodes)) => changes(nodes),
        Ok(Command::Transitions(seed)) => transitions(seed),
        Ok(Command::Scripts(script, seeds)) => scripts(&script, seeds),
        Err(problem) => {
            eprintln!("sim: {problem}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Command, String> {
    let (mut kind, mut first, mut seeds, mut jobs) = (Kind::Node, 0, 100, 2);
    let (mut nodes, mut partitions, mut other) = (None, None, None);
    let (mut objects, mut buckets) = (3_000, 1_000);
    while let Some(flag) = args.next() {
        let value = args.next().ok_or(format!("{flag} needs a value"))?;
        if flag == "--world" {
            kind = Kind::named(&value).ok_or(format!("{flag} {value}: no such world"))?;
            continue;
        }
        let value: u64 = value.parse().map_err(|_| format!("{flag} {value}: not a number"))?;
        match flag.as_str() {
            "--first" => first = value,
            "--seeds" => seeds = value,
            "--jobs" => jobs = value.max(1),
            "--nodes" => nodes = Some(value),
            "--partitions" => partitions = Some(value),
            "--objects" => objects = value,
            "--buckets" => buckets = value,
            "--trace" | "--idle" | "--changes" | "--transitions" => other = Some((flag, value)),
            "--transfers" | "--rolls" | "--overloads" | "--gossip" => other = Some((flag, value)),
            _ => return Err(format!("{flag}: no such option")),
        }
    }
    if let Some((flag, count)) = &other
        && let Some(script) = match flag.as_str() {
            "--transfers" => Some(Script::Transfers { objects }),
            "--rolls" => Some(Script::Rolls),
            "--overloads" => Some(Script::Overloads),
            "--gossip" => {
                Some(Script::Gossip { nodes: nodes.unwrap_or(5).clamp(2, NODES_MAX.into()), buckets })
            }
            _ => None,
        }
    {
        return Ok(Command::Scripts(script, first..first + count));
    }
    let kind = kind.sized(nodes, partitions).ok_or("this world cannot be of that size")?;
    Ok(match other {
        Some((flag, seed)) if flag == "--trace" => Command::Trace(kind, Seed(seed)),
        Some((flag, nodes)) if flag == "--idle" => Command::Idle(nodes),
        Some((flag, nodes)) if flag == "--changes" => Command::Changes(nodes),
        Some((_, seed)) => Command::Transitions(Seed(seed)),
        None => Command::Run { kind, first, seeds, jobs },
    })
}

fn trace(kind: Kind, seed: Seed) -> ExitCode {
    let (report, trace) = kind.run(seed, Keep::Text);
    // Whoever reads a trace may stop before its end.
    let printed = writeln!(std::io::stdout(), "{}{report}", trace.text());
    if printed.is_ok() && report.violation.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Partitions for each node of a cluster that is measured: 16,384 for a thousand.
const PARTITIONS_EACH: u64 = 16;

/// The clusters that are measured, up to so many nodes.
fn shapes(nodes_max: u64) -> impl Iterator<Item = Shape> {
    let shape = |nodes: u64| {
        let partitions = (nodes * PARTITIONS_EACH).next_power_of_two();
        Shape::of(nodes, partitions).expect("each of these can be")
    };
    [10, 30, 100, 300, 1000].into_iter().filter(move |nodes| *nodes <= nodes_max).map(shape)
}

fn idle(nodes_max: u64) -> ExitCode {
    println!("{}", idle::HEAD);
    for shape in shapes(nodes_max) {
        println!("{}", idle::measure(Seed(1), shape));
    }
    ExitCode::SUCCESS
}

fn changes(nodes_max: u64) -> ExitCode {
    use transitions::Kind::{Grow, Join, Leave, Replace};
    println!("{}", carried::HEAD);
    for shape in shapes(nodes_max) {
        for kind in [Join, Leave, Replace, Grow] {
            match carried::measure(Seed(1), shape, kind) {
                Ok(carried) => println!("{carried}"),
                Err(violation) => {
                    println!("{kind:?} with {shape}: BROKEN: {violation}");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    ExitCode::SUCCESS
}

fn scripts(script: &Script, seeds: std::ops::Range<u64>) -> ExitCode {
    let mut broken = 0;
    for seed in seeds {
        let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let outcome = match script {
            Script::Transfers { objects } => transfer::run(Seed(seed), *objects).map(|it| it.to_string()),
            Script::Rolls => rolling::run(Seed(seed)).map(|it| it.to_string()),
            Script::Overloads => overload::run(Seed(seed)).map(|it| it.to_string()),
            Script::Gossip { nodes, buckets } => {
                let nodes = usize::try_from(*nodes).expect("it was checked");
                gossip::run(Seed(seed), nodes, small(*buckets)).map(|it| it.to_string())
            }
        };
        match outcome {
            Ok(outcome) => println!("seed {seed}: {outcome}"),
            Err(violation) => {
                broken += 1;
                println!("seed {seed}: BROKEN: {violation}");
            }
        }
    }
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn transitions(seed: Seed) -> ExitCode {
    let (mut cases, mut missed, mut broken) = (0, 0, 0);
    let mut served = std::collections::BTreeMap::<String, (u64, u64)>::new();
    for case in transitions::all() {
        cases += 1;
        match transitions::run(case, seed) {
            Ok(played) => {
                missed += u64::from(!played.has_died);
                let of = served.entry(format!("{:?} {:?}", case.kind, case.role)).or_default();
                *of = (of.0 + played.asked, of.1 + played.unserved);
            }
            Err(violation) => {
                broken += 1;
                eprintln!("{case:?}: BROKEN: {violation}");
            }
        }
    }
    for (case, (asked, unserved)) in served.iter().filter(|(_, (_, unserved))| *unserved > 0) {
        println!("{case}: {unserved} of {asked} requests were not served, asked twice");
    }
    println!("seed {seed}: {cases} cases, {missed} of them without the participant, {broken} broken");
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the seeds on `jobs` threads. Each world stays in one of them, so how they are spread changes nothing.
fn run(kind: Kind, first: u64, seeds: u64, jobs: u64) -> ExitCode {
    let (next, totals) = (AtomicU64::new(first), Mutex::new(Totals::new(kind)));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = Seed(next.fetch_add(1, Ordering::Relaxed));
                    if seed.0 - first >= seeds {
                        break;
                    }
                    let report = run_seed(kind, seed);
                    if report.violation.is_some() || !report.counts() {
                        eprintln!("{report}");
                    }
                    totals.lock().unwrap_or_else(PoisonError::into_inner).add(&report);
                }
            });
        }
    });
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    print!("{totals}");
    if totals.pass() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one seed; a panic in it is a broken promise of that seed.
fn run_seed(kind: Kind, seed: Seed) -> Report {
    catch_unwind(AssertUnwindSafe(|| kind.run(seed, Keep::Hash).0))
        .unwrap_or_else(|_| Report::panicked(kind, seed))
}
