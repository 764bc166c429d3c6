//! The forms of reads: bytes between nodes and CPU per GET, by size, with equal and with differing replicas.
//!
//! 1. Write all objects, stop, and keep a copy of node 3's data.
//! 2. Start, write a second version of those objects that are to differ, stop.
//! 3. For each form: give node 3 its old data back, start, read. A read repairs, so what differs is read once.

use super::{Context, NODES};
use crate::Result;
use crate::load::{Load, Op, Until};
use crate::measure::Cost;
use crate::nodes::{Cluster, Counts, Setup};
use crate::report::Report;
use crate::rows::{Row, Spec};
use crate::stats::median;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The forms, by the values of `serve --read-form`.
const FORMS: [&str; 3] = ["local", "heads", "values"];

const CONNECTIONS: usize = 64;

/// Values of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Size {
    kb: u64,
    /// How many objects have equal replicas, and how many differing ones.
    objects: u64,
}

const SIZES: [Size; 3] =
    [Size { kb: 1, objects: 20_000 }, Size { kb: 8, objects: 6000 }, Size { kb: 64, objects: 1500 }];

/// Whether the replicas that are read are equal.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Replicas {
    Equal,
    Differing,
}

impl Size {
    /// The operation on those objects, of the first version or of the second, a byte longer.
    fn load(self, op: Op, replicas: Replicas, version: usize) -> Load {
        let value_len = (self.kb << 10) as usize + version - 1;
        Load {
            bucket: format!("{}-{replicas:?}", self.kb),
            value_len,
            ..Load::new(op, CONNECTIONS, self.objects)
        }
    }

    /// Writes a version of those objects.
    fn fill(self, cluster: &Cluster, replicas: Replicas, version: usize) -> Result<()> {
        let load = Load { in_order: true, ..self.load(Op::Put, replicas, version) };
        cluster.servers.fill(&load).map(drop)
    }
}

/// A row of a form: which form, size and replicas.
type Case = (&'static str, Size, Replicas);

fn cases() -> impl Iterator<Item = Case> {
    let sizes = SIZES.into_iter().flat_map(|size| [(size, Replicas::Equal), (size, Replicas::Differing)]);
    sizes.flat_map(|(size, replicas)| FORMS.map(|form| (form, size, replicas)))
}

fn name((form, size, replicas): Case) -> String {
    let replicas = if replicas == Replicas::Equal { "equal" } else { "differing" };
    format!("{form}/{} KB/{replicas}", size.kb)
}

fn cost_spec(case: Case) -> Spec {
    Spec::new(format!("{} cpu", name(case)), "us/get", None)
}

fn bytes_spec(case: Case) -> Spec {
    Spec::new(format!("{} bytes between nodes", name(case)), "bytes/get", None)
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    cases().flat_map(|case| [cost_spec(case), bytes_spec(case)]).collect()
}

/// The measurement of one case in one round.
type Measured = (Case, Cost, Counts);

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let setup = context.setup("forms", "none")?;
    let old = setup.home.join("old");
    prepare(&setup, &old)?;
    let mut measured = Vec::new();
    for round in 0..context.plan.form_rounds {
        for form in FORMS {
            replace_dir(&old, &setup.folder(NODES))?;
            measured.extend(read_all(context, &setup, form, round as u64)?);
        }
        eprintln!("figures: round {} of {} of the forms of reads", round + 1, context.plan.form_rounds);
    }
    for case in cases() {
        let of_case: Vec<&Measured> = measured.iter().filter(|(other, ..)| *other == case).collect();
        let costs: Vec<&Cost> = of_case.iter().map(|(_, cost, _)| cost).collect();
        report.push(Cost::row(cost_spec(case), &costs))?;
        report.push(bytes_row(case, &of_case)?)?;
    }
    Ok(())
}

/// Steps 1 and 2.
fn prepare(setup: &Setup, old: &Path) -> Result<()> {
    let cluster = Cluster::start(setup)?;
    for size in SIZES {
        size.fill(&cluster, Replicas::Equal, 1)?;
        size.fill(&cluster, Replicas::Differing, 1)?;
    }
    cluster.servers.rest()?;
    cluster.stop()?;

    replace_dir(&setup.folder(NODES), old)?;
    let cluster = Cluster::start(setup)?;
    SIZES.into_iter().try_for_each(|size| size.fill(&cluster, Replicas::Differing, 2))?;
    cluster.servers.rest()?;
    cluster.stop().map(drop)
}

/// Step 3 for one form.
fn read_all(context: &Context, setup: &Setup, form: &'static str, round: u64) -> Result<Vec<Measured>> {
    let cluster = Cluster::start(&setup.clone().with("read-form", form))?;
    let mut measured = Vec::new();
    for size in SIZES {
        let equal = Load { seed: round, ..size.load(Op::Get, Replicas::Equal, 1) };
        let (cost, counts) = cluster.observe_in(&equal, context.plan.window)?;
        measured.push(((form, size, Replicas::Equal), cost, counts));

        let once = Load { in_order: true, ..size.load(Op::Get, Replicas::Differing, 2) };
        let (cost, counts) = cluster.observe(&once, Duration::ZERO, Until::Ops(size.objects))?;
        if cost.outcome.bytes_read != size.objects * once.value_len as u64 {
            return Err(format!("{form}, {} KB: reads were answered with the version before", size.kb).into());
        }
        measured.push(((form, size, Replicas::Differing), cost, counts));
    }
    cluster.stop()?;
    Ok(measured)
}

/// Makes `to` a copy of `from`.
fn replace_dir(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    match Command::new("cp").arg("-r").arg(from).arg(to).status()?.success() {
        true => Ok(()),
        false => Err(format!("{} was not copied", from.display()).into()),
    }
}

fn per_get(cost: &Cost, counts: &Counts, name: &str) -> Result<f64> {
    Ok(counts.get(name)? / cost.outcome.ops.max(1) as f64)
}

fn bytes_row(case: Case, measured: &[&Measured]) -> Result<Row> {
    let each = |name| {
        measured.iter().map(|(_, cost, counts)| per_get(cost, counts, name)).collect::<Result<Vec<f64>>>()
    };
    let (bytes, frames) = (each("peer_bytes_sent")?, each("peer_frames_sent")?);
    Ok(bytes_spec(case).measured(&bytes).also("frames_per_get", median(&frames)))
}
