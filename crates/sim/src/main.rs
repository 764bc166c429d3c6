//! Runs seeds of the simulator: many in parallel with totals, or one with its trace.

use sim::report::{Report, Totals};
use sim::trace::Keep;
use sim::{Kind, Seed};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

const USAGE: &str =
    "usage: sim [--world W] [--seeds N] [--first SEED] [--jobs N]    run seeds and print totals
       sim [--world W] --trace SEED                             run one seed and print its trace
The world is node, which is the default, or cluster.";

enum Command {
    Run { kind: Kind, first: u64, seeds: u64, jobs: u64 },
    Trace(Kind, Seed),
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(Command::Trace(kind, seed)) => trace(kind, seed),
        Ok(Command::Run { kind, first, seeds, jobs }) => run(kind, first, seeds, jobs),
        Err(problem) => {
            eprintln!("sim: {problem}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Command, String> {
    let (mut kind, mut first, mut seeds, mut jobs, mut traced) = (Kind::Node, 0, 100, 2, None);
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
            "--trace" => traced = Some(Seed(value)),
            _ => return Err(format!("{flag}: no such option")),
        }
    }
    Ok(traced.map_or(Command::Run { kind, first, seeds, jobs }, |seed| Command::Trace(kind, seed)))
}

fn trace(kind: Kind, seed: Seed) -> ExitCode {
    let (report, trace) = kind.run(seed, Keep::Text);
    // Whoever reads a trace may stop before its end.
    let printed = writeln!(std::io::stdout(), "{}{report}", trace.text());
    if printed.is_ok() && report.violation.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
