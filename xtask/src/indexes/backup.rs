//! Backups of a node that serves: what they do to its clients, and what the second one copies.
//!
//! 1. A node is filled, and clients read and write at a fixed rate for a while.
//! 2. It is told to back itself up, by copies; the clients go on in runs of the same length for as long as that takes, and only runs that ended before
//!    it did count.
//! 3. Some objects are written again, the node comes to rest, and it is told once more. What changed is what clients have written since the first backup
//!    began: keys and values, each write once.

use super::Context;
use crate::Result;
use crate::annulet::{Annulet, Setup};
use crate::process::make_dir;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;
use results::{OperationSecond, Summary};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Operations a second: less than a fifth of what a node of one shard does here beside a generator, so neither is the limit.
const RATE: u32 = 4_000;

/// As in the experiments that were published of clusters. Smaller objects have more of their bytes in tables, which merges write anew.
const VALUE_BYTES: u64 = 8_000;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Objects.
    pub objects: u64,
    /// Of these, written again between the backups.
    pub changed: u64,
    /// Runs without a backup, and the most that are counted beside it.
    pub runs: usize,
    /// Measured seconds of each.
    pub seconds: u64,
}

pub const FULL: Size = Size { objects: 1_250_000, changed: 125_000, runs: 9, seconds: 10 };
pub const QUICK: Size = Size { objects: 125_000, changed: 12_500, runs: 3, seconds: 3 };

fn slower() -> Spec {
    Spec::new("backup/p99 of clients beside it over without", "ratio", Some(Bar::AtMost(1.5)))
}

fn copied() -> Spec {
    Spec::new("backup/the second one's copies over what changed", "ratio", Some(Bar::AtMost(1.1)))
}

fn verified() -> Spec {
    Spec::new("backup/both verified", "backups", Some(Bar::Exactly(2.0)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![slower(), copied(), verified()]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let plan = context.plan.backup;
    let home = make_dir(&context.home, "backup")?;
    let setup = Setup { binary: context.binary.clone(), home, durability: "none", shards: None };
    let node = Annulet::start(&setup)?;
    load(context, &node, &writes(0, plan.objects))?;
    node.servers.rest()?;

    let mut alone = Vec::new();
    for run in 0..plan.runs {
        alone.push(p99_ms(&load(context, &node, &steady(plan, run))?.0));
    }
    let mut written = 0;
    let mut first = Backup::begin(context, &node)?;
    let (mut beside, mut run) = (Vec::new(), plan.runs);
    while first.goes_on()? {
        run += 1;
        let (summary, all) = load(context, &node, &steady(plan, run))?;
        written += all.bytes_written;
        if first.goes_on()? && beside.len() < plan.runs {
            beside.push(p99_ms(&summary));
        }
    }
    let first = first.end()?;
    let pair = median(&beside).zip(median(&alone));
    let row = match pair {
        Some((beside, alone)) => slower().valued(beside / alone, format!("{} runs of each", plan.runs)),
        None => slower().failed("the backup was over before a run was"),
    };
    report.push(
        row.also("alone_ms", median(&alone))
            .also("beside_ms", median(&beside))
            .also("runs_beside", Some(beside.len() as f64))
            .also("gb", Some(first.of("bytes") / 1e9)),
    )?;

    written += load(context, &node, &writes(0, plan.changed))?.1.bytes_written;
    node.servers.rest()?;
    let second = Backup::begin(context, &node)?.end()?;
    report.push(
        copied()
            .valued(second.of("copied") / written as f64, "once")
            .also("changed_mb", Some(written as f64 / 1e6))
            .also("copied_mb", Some(second.of("copied") / 1e6))
            .also("kept_mb", Some(second.of("kept") / 1e6)),
    )?;
    let right = [&first, &second].iter().filter(|made| made.is_right(context)).count();
    report.push(verified().valued(right as f64, "every byte of them read"))?;
    node.stop()?;
    Ok(())
}

/// A backup that is made: the command that waits for it.
struct Backup {
    child: Child,
}

/// What became of one.
struct Made(Value);

impl Backup {
    fn begin(context: &Context, node: &Annulet) -> Result<Backup> {
        let mut command = Command::new(&context.binary);
        command.args(["backup", "create", "--copy", "--json", "--node", &node.http().to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        Ok(Backup { child })
    }

    fn goes_on(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    fn end(self) -> Result<Made> {
        let output = self.child.wait_with_output()?;
        match output.status.success() {
            true => Ok(Made(serde_json::from_slice(&output.stdout)?)),
            false => Err(format!("the backup has failed: {}", output.status).into()),
        }
    }
}

impl Made {
    fn of(&self, name: &str) -> f64 {
        self.0[name].as_f64().unwrap_or_default()
    }

    fn is_right(&self, context: &Context) -> bool {
        let folder = Path::new(self.0["folder"].as_str().unwrap_or_default());
        let mut command = Command::new(&context.binary);
        command.args(["backup", "verify"]).arg(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    }
}

fn p99_ms(summary: &Summary) -> f64 {
    summary.total.response.p99_us / 1000.0
}

fn objects(head: &str, operations: &str) -> String {
    format!("{head}\n[value]\nsize = {VALUE_BYTES}\n{operations}\n")
}

/// Each of some objects, once.
fn writes(from: u64, count: u64) -> String {
    objects(
        "concurrency = 64\npipeline = 8\nwarm_up = \"0s\"\nduration = \"1h\"\n\
         retry = { attempts = 100, backoff = \"100ms\" }\ncheck = { audit = 0 }",
        &format!(
            "[[operation]]\nop = \"put\"\nkeys = {{ kind = \"sequential\", start = {from}, count = {count} }}"
        ),
    )
}

/// What clients do all the time. Each run has keys of its own: what one writes again and again is dead before the next backup, which then copies less
/// than was written.
fn steady(plan: Size, run: usize) -> String {
    objects(
        &format!(
            "seed = {run}\nconcurrency = 32\nwarm_up = \"0s\"\nduration = \"{}s\"\ncheck = {{ audit = 0 }}\n\
             load = {{ kind = \"poisson\", rate = {RATE} }}\nkeys = {{ kind = \"uniform\", count = {} }}",
            plan.seconds, plan.objects
        ),
        "[[operation]]\nop = \"get\"\nweight = 9\n[[operation]]\nop = \"put\"",
    )
}

/// Runs a workload against the node. An error if anything in it was wrong.
fn load(context: &Context, node: &Annulet, text: &str) -> Result<(Summary, OperationSecond)> {
    super::load(&context.home, &node.servers, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::Workload;

    #[test]
    fn workloads_are_read() {
        for text in [writes(10, 100), steady(QUICK, 1)] {
            Workload::parse(&text, "figures").unwrap();
        }
    }
}
