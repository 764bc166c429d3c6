//! Nodes that come, go and die under load: scenarios of the measured program itself, and what their results say.
//!
//! Clients send at a fixed rate, a quarter of what three nodes of this machine can do, and never try again: an error is
//! an error. Every read is checked.

use super::Context;
use crate::Result;
use crate::report::Report;
use crate::rows::{Bar, Row, Spec};
use crate::stats::rounded;
use results::{Event, Kind, Results};
use std::fmt::Write;
use std::fs;
use std::process::{Command, Stdio};

/// Operations under way at most; those on one of nine nodes when it is killed are some of them.
const CONCURRENCY: u32 = 36;
const RATE: u32 = 1000;
const KEYS: u32 = 20_000;

/// When it happens, in seconds after the beginning; before it, all is well.
const CALM_S: u32 = 20;

/// What is looked at before and after it.
const WINDOW_S: f64 = 10.0;

/// Nodes that join are there before the commit.
const JOINED_S: u32 = 10;

/// Throughput is back when a second has this share of the median before.
const BACK: f64 = 0.9;

/// What happens.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    Grow,
    Kill,
    Shrink,
}

const CHANGES: [Change; 3] = [Change::Grow, Change::Kill, Change::Shrink];

impl Change {
    fn name(self) -> &'static str {
        match self {
            Change::Grow => "6 to 9",
            Change::Kill => "1 of 9 killed",
            Change::Shrink => "7 to 5",
        }
    }

    fn failed(self) -> Spec {
        // What was on its way at the node that is killed, and no more.
        let most = if self == Change::Kill { CONCURRENCY.div_ceil(9) } else { 0 };
        Spec::new(format!("{}/failed", self.name()), "operations", Some(Bar::AtMost(most.into())))
    }

    fn gone(self) -> Spec {
        Spec::new(format!("{}/acknowledged and gone", self.name()), "values", Some(Bar::AtMost(0.0)))
    }

    fn slower(self) -> Spec {
        Spec::new(format!("{}/p99 after it over before", self.name()), "ratio", Some(Bar::AtMost(2.0)))
    }

    fn back(self) -> Spec {
        Spec::new(format!("{}/throughput back", self.name()), "s", Some(Bar::AtMost(10.0)))
    }

    fn specs(self) -> Vec<Spec> {
        vec![self.failed(), self.gone(), self.slower(), self.back()]
    }

    /// The words of the step that it is about.
    fn mark(self) -> &'static str {
        if self == Change::Kill { "kill n4" } else { "cluster commit" }
    }

    fn scenario(self) -> String {
        let run = |second: u32, words: &str| {
            format!(
                "[[at]]\nsecond = {second}\ndo = \"run\"\n\
                 command = [\"{{annulet}}\", \"admin\", \"cluster\", {words}, \"--node\", \"{{n1.http}}\"]\n"
            )
        };
        let mut text = String::from("workload = \"workload.toml\"\n");
        let (nodes, more) = match self {
            Change::Grow => (9, "founders = 6\n"),
            Change::Kill => (9, ""),
            Change::Shrink => (7, "clients = [1, 2, 3, 4, 5]\n"),
        };
        write!(text, "nodes = {nodes}\n{more}[options]\ndurability = \"none\"\n").expect("a string grows");
        match self {
            Change::Grow => {
                for node in 7..=9 {
                    write!(text, "[[at]]\nsecond = {JOINED_S}\ndo = \"start\"\nnode = {node}\n")
                        .expect("a string grows");
                }
                text + &run(CALM_S, "\"commit\"")
            }
            Change::Kill => text + &format!("[[at]]\nsecond = {CALM_S}\ndo = \"kill\"\nnode = 4\n"),
            Change::Shrink => {
                let leave = |node: u32| run(CALM_S - 2, &format!("\"leave\", \"n{node}@127.0.0.1\""));
                text + &leave(6) + &leave(7) + &run(CALM_S, "\"commit\"")
            }
        }
    }
}

fn workload(seconds: u32) -> String {
    format!(
        "driver = \"pb\"\nconcurrency = {CONCURRENCY}\nwarm_up = \"5s\"\nduration = \"{seconds}s\"\n\
         [load]\nkind = \"poisson\"\nrate = {RATE}\n[keys]\nkind = \"uniform\"\ncount = {KEYS}\n\
         [value]\nsize = 1000\n[check]\ntolerate = [\"stale\"]\n\
         [[operation]]\nop = \"get\"\nweight = 9\n[[operation]]\nop = \"update\"\n"
    )
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    CHANGES.into_iter().flat_map(Change::specs).collect()
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    for change in CHANGES {
        match play(context, change).and_then(|results| rows(change, &results)) {
            Ok(rows) => rows.into_iter().try_for_each(|row| report.push(row))?,
            Err(failure) => {
                change.specs().into_iter().try_for_each(|spec| report.push(spec.failed(&failure)))?;
            }
        }
    }
    Ok(())
}

/// Plays a scenario by the measured binary, as a person would.
fn play(context: &Context, change: Change) -> Result<Results> {
    let folder = tempfile::Builder::new().prefix("elastic").tempdir_in(&context.home)?;
    let file = folder.path().join("scenario.toml");
    fs::write(&file, change.scenario())?;
    fs::write(folder.path().join("workload.toml"), workload(context.plan.elastic_s))?;
    let out = folder.path().join("results");
    let played = Command::new(&context.binary)
        .args(["bench", "scenario"])
        .arg(&file)
        .arg("--out")
        .arg(&out)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()?;
    // A run that found something wrong has results that say what; one that could not be made has none.
    Results::open(&out)
        .map_err(|error| format!("{error}; {}", String::from_utf8_lossy(&played.stderr).trim_end()).into())
}

fn rows(change: Change, results: &Results) -> Result<Vec<Row>> {
    let is_it = |event: &&Event| event.text.contains(change.mark());
    let at = results.events.iter().find(is_it).ok_or("the step was never done")?.at_s;
    if let Some(failed) = results.events.iter().find(|event| event.text.starts_with("failed")) {
        return Err(failed.text.clone().into());
    }
    let summary = &results.summary;
    let kinds = results.errors.iter().map(|error| format!("{} ({})", error.kind, error.text));
    let mut kinds: Vec<String> = kinds.collect();
    kinds.sort();
    kinds.dedup();
    let noise =
        if kinds.is_empty() { "one run".to_owned() } else { format!("one run; {}", kinds.join("; ")) };
    let p99_ms = |from: f64, to: f64| {
        let within = |second: u64| (from..to).contains(&(second as f64));
        let all = results.merged(|second, _, kind| kind == Kind::Response && within(second));
        all.percentile(99.0) as f64 / 1e6
    };
    let (before, after) = (p99_ms(at - WINDOW_S, at.floor()), p99_ms(at.floor(), at + WINDOW_S));
    let done = |from: f64, to: f64| {
        let seconds = results.seconds.iter().filter(move |it| (from..to).contains(&(it.second as f64)));
        seconds.map(|it| (it.second as f64, it.done(None) as f64)).collect::<Vec<(f64, f64)>>()
    };
    let mut calm: Vec<f64> = done(at - WINDOW_S, at.floor()).into_iter().map(|(_, done)| done).collect();
    calm.sort_by(f64::total_cmp);
    let median = calm.get(calm.len() / 2).copied().ok_or("the run was too short")?;
    // The last second below it, if any, counts.
    let low = done(at.floor(), at + 3.0 * WINDOW_S).into_iter().rfind(|(_, done)| *done < BACK * median);
    let back = low.map_or(0.0, |(second, _)| second + 1.0 - at);
    Ok(vec![
        change.failed().valued(summary.total.failed as f64, noise),
        change.gone().valued((summary.check.lost + summary.check.corrupt) as f64, "one run"),
        change
            .slower()
            .valued(after / before.max(f64::MIN_POSITIVE), "one run")
            .also("before_ms", Some(rounded(before)))
            .also("after_ms", Some(rounded(after))),
        change.back().valued(back, "one run").also("median_per_s", Some(median)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::Workload;
    use experiments::scenario::{Action, Scenario};

    #[test]
    fn what_is_played_can_be_read() {
        let counts = CHANGES.map(|change| {
            let scenario = Scenario::parse(&change.scenario()).unwrap();
            let is_marked = scenario.steps.iter().any(|step| step.action.text().contains(change.mark()));
            assert!(is_marked, "{}", change.name());
            (scenario.founders, scenario.clients.len(), scenario.steps.len())
        });
        assert_eq!(counts, [(6, 6, 4), (9, 9, 1), (7, 5, 3)]);
        let shrink = Scenario::parse(&Change::Shrink.scenario()).unwrap();
        let Action::Run(command) = &shrink.steps[0].action else { panic!("it is a command") };
        assert_eq!(command[1..5], ["admin", "cluster", "leave", "n6@127.0.0.1"]);
        Workload::parse(&workload(30), "elastic").unwrap();
    }
}
