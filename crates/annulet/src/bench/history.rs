//! `annulet bench check`: judges the history of a run on single keys.
//!
//! Exit codes: 0 linearizable, 1 a violation, 2 no history, 3 unknown: the search of some key was given up.

use crate::failure::{FAILED, Failure, UNUSABLE};
use bench::history::{self, Offence, Report, Request, STATES_MAX};
use clap::ValueHint;
use std::io::{self, Write};
use std::path::PathBuf;

/// No verdict, since the search of some key was given up.
const UNKNOWN: u8 = 3;

/// Violations and unknown keys that are printed: more would be the same story.
const KEYS_SHOWN_MAX: usize = 5;

/// Requests before a violation that are printed; the file has the rest.
const EARLIER_SHOWN_MAX: usize = 20;

/// Arguments of `bench check`.
#[derive(clap::Args)]
pub struct Args {
    /// History of a run, as `bench run --history` writes it.
    #[arg(value_hint = ValueHint::FilePath, value_name = "FILE")]
    file: PathBuf,
    /// States that the search of one key visits at most, before its verdict is unknown.
    #[arg(long, value_name = "N", default_value_t = STATES_MAX)]
    states: usize,
}

/// Judges a history, and prints the verdict.
pub fn run(args: &Args) -> Result<(), Failure> {
    let history = history::read(&args.file).map_err(|error| Failure::new(UNUSABLE, error.to_string()))?;
    let report = history::check(&history, args.states);
    let mut out = io::stdout();
    writeln!(out, "operations: {}", report.operations)?;
    writeln!(out, "keys: {}", report.keys)?;
    writeln!(out, "verdict: {}", verdict(&report))?;
    for offence in report.violations.iter().take(KEYS_SHOWN_MAX) {
        out.write_all(&explained(offence))?;
    }
    for key in report.unknown.iter().take(KEYS_SHOWN_MAX) {
        writeln!(out, "\nunknown key: {key}")?;
    }
    ended(&report, args.states)
}

fn verdict(report: &Report) -> &'static str {
    match (report.violations.is_empty(), report.unknown.is_empty()) {
        (false, _) => "violation",
        (true, false) => "unknown",
        (true, true) => "linearizable",
    }
}

fn ended(report: &Report, states: usize) -> Result<(), Failure> {
    let (violations, unknown) = (report.violations.len(), report.unknown.len());
    match verdict(report) {
        "violation" => {
            Err(Failure::new(FAILED, format!("not linearizable: {violations} of {} keys", report.keys)))
        }
        "unknown" => {
            let what = format!(
                "no verdict on {unknown} of {} keys after {states} states each; --states allows more",
                report.keys
            );
            Err(Failure::new(UNKNOWN, what))
        }
        _ => Ok(()),
    }
}

/// A violation in the lines of the file.
fn explained(offence: &Offence) -> Vec<u8> {
    let mut out = format!("\nviolation on key {}\n", offence.key).into_bytes();
    let mut part = |title: String, requests: &[Request]| {
        if !requests.is_empty() {
            out.extend_from_slice(format!("{title}:\n").as_bytes());
        }
        requests.iter().for_each(|request| request.line(&offence.key).put(&mut out));
    };
    part("no order has a place for".to_owned(), &[offence.request]);
    part("it overlaps".to_owned(), &offence.concurrent);
    let shown = offence.earlier.len().saturating_sub(EARLIER_SHOWN_MAX);
    let earlier = &offence.earlier[shown..];
    part(format!("before it, the last {} of {} requests", earlier.len(), offence.earlier.len()), earlier);
    let name = |state: &Option<u64>| state.map_or("absent".to_owned(), |value| format!("value {value}"));
    let states: Vec<String> = offence.states.iter().map(name).collect();
    out.extend_from_slice(format!("the key could be: {}\n", states.join(", ")).as_bytes());
    out
}
