//! Runs seeds of the simulator: many in parallel with totals, or one with its trace.

use sim::Seed;
use sim::report::{Report, Totals};
use sim::trace::Keep;
use sim::world;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

const USAGE: &str = "usage: sim [--seeds N] [--first SEED] [--jobs N]    run seeds and print totals
       sim --trace SEED                             run one seed and print its trace";

enum Command {
    Run { first: u64, seeds: u64, jobs: u64 },
    Trace(Seed),
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(Command::Trace(seed)) => trace(seed),
        Ok(Command::Run { first, seeds, jobs }) => run(first, seeds, jobs),
        Err(problem) => {
            eprintln!("sim: {problem}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Command, String> {
    let (mut first, mut seeds, mut jobs, mut traced) = (0, 100, 2, None);
    while let Some(flag) = args.next() {
        let value = args.next().ok_or(format!("{flag} needs a number"))?;
        let value: u64 = value.parse().map_err(|_| format!("{flag} {value}: not a number"))?;
        match flag.as_str() {
            "--first" => first = value,
            "--seeds" => seeds = value,
            "--jobs" => jobs = value.max(1),
            "--trace" => traced = Some(Seed(value)),
            _ => return Err(format!("{flag}: no such option")),
        }
    }
    Ok(traced.map_or(Command::Run { first, seeds, jobs }, Command::Trace))
}

fn trace(seed: Seed) -> ExitCode {
    let (report, trace) = world::run(seed, Keep::Text);
    // Whoever reads a trace may stop before its end.
    let printed = writeln!(std::io::stdout(), "{}{report}", trace.text());
    if printed.is_ok() && report.violation.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the seeds on `jobs` threads. Each world stays in one of them, so how they are spread changes nothing.
fn run(first: u64, seeds: u64, jobs: u64) -> ExitCode {
    let (next, totals) = (AtomicU64::new(first), Mutex::new(Totals::default()));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = Seed(next.fetch_add(1, Ordering::Relaxed));
                    if seed.0 - first >= seeds {
                        break;
                    }
                    let report = run_seed(seed);
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
fn run_seed(seed: Seed) -> Report {
    catch_unwind(AssertUnwindSafe(|| world::run(seed, Keep::Hash).0))
        .unwrap_or_else(|_| Report::panicked(seed))
}
