//! The forms of reads: bytes between nodes and CPU per GET, by size, with equal and with differing replicas.
//!
//! 1. Write all objects, stop, and keep a copy of node 3's data.
//! 2. Start, write a second version of those objects that are to differ, stop.
//! 3. For each form: give node 3 its old data back, start, read. A read repairs, so what differs is read once.

use super::Context;
use crate::Result;
use crate::cluster::{Cluster, NODES, Setup, Traffic};
use crate::generator::Until;
use crate::measure::Cost;
use crate::process::replace_dir;
use crate::report::Report;
use crate::rows::{Row, Spec};
use crate::stats::{median, rounded};
use crate::workload::{Keys, Op, Riak, Shape, SplitMix};
use std::path::Path;
use std::process::Command;

/// The forms, by the names of the setting.
const FORMS: [&str; 3] = ["local", "heads", "values"];

const SETTING: &str = "--read-form";

const CONNECTIONS: usize = 64;

/// At so many connections the default's form is looked at.
const DEFAULT_CONNECTIONS: [usize; 3] = [1, 64, 256];

/// The default is looked at with values of this size, where the forms differ most clearly from each other.
const DEFAULT_SIZE: Size = SIZES[1];

/// Nearer than this to a form's bytes, the default is that form.
const NEAR: f64 = 0.1;

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
    /// The first key of those objects.
    fn first(self, replicas: Replicas) -> u64 {
        self.kb * 1_000_000 + if replicas == Replicas::Equal { 0 } else { 500_000 }
    }

    fn shape(self, version: u64) -> Shape {
        Shape { len: (self.kb << 10) as usize, version }
    }

    /// What is read in the end.
    fn read(self, replicas: Replicas) -> Riak {
        Riak::shaped(Op::Get, self.shape(if replicas == Replicas::Equal { 1 } else { 2 }))
    }
}

/// A row of a form: which form, size and replicas.
type Load = (&'static str, Size, Replicas);

fn loads() -> impl Iterator<Item = Load> {
    let cases = SIZES.into_iter().flat_map(|size| [(size, Replicas::Equal), (size, Replicas::Differing)]);
    cases.flat_map(|(size, replicas)| FORMS.map(|form| (form, size, replicas)))
}

fn name((form, size, replicas): Load) -> String {
    let replicas = if replicas == Replicas::Equal { "equal" } else { "differing" };
    format!("{form}/{} KB/{replicas}", size.kb)
}

fn cost_spec(load: Load) -> Spec {
    Spec::new(format!("{} cpu", name(load)), "us/get", None)
}

fn bytes_spec(load: Load) -> Spec {
    Spec::new(format!("{} bytes between nodes", name(load)), "bytes/get", None)
}

fn default_spec(connections: usize) -> Spec {
    let row = format!("default/{} KB/equal at {connections} connections", DEFAULT_SIZE.kb);
    Spec::new(row, "bytes/get", None)
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let rows = loads().flat_map(|load| [cost_spec(load), bytes_spec(load)]);
    rows.chain(DEFAULT_CONNECTIONS.map(default_spec)).collect()
}

/// What one round measured of one load.
type Measured = (Load, Cost, Traffic);

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let setup = context.setup("forms", "none")?;
    let has_setting = Command::new(&setup.binary).args(["serve", "--help"]).output()?;
    if !String::from_utf8_lossy(&has_setting.stdout).contains(SETTING) {
        return Err(format!("serve has no {SETTING}").into());
    }
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
    for load in loads() {
        let of_load: Vec<&Measured> = measured.iter().filter(|(other, ..)| *other == load).collect();
        let costs: Vec<&Cost> = of_load.iter().map(|(_, cost, _)| cost).collect();
        report.push(Cost::row(cost_spec(load), &costs))?;
        report.push(bytes_row(load, &of_load))?;
    }
    defaults(context, &setup, &measured, report)
}

/// Steps 1 and 2.
fn prepare(setup: &Setup, old: &Path) -> Result<()> {
    let cluster = Cluster::start(setup)?;
    for size in SIZES {
        for replicas in [Replicas::Equal, Replicas::Differing] {
            let put = &mut Riak::shaped(Op::Put, size.shape(1));
            cluster.servers.load(put, size.first(replicas), size.objects)?;
        }
    }
    cluster.servers.rest()?;
    cluster.stop()?;
    replace_dir(&setup.folder(NODES), old)?;
    let cluster = Cluster::start(setup)?;
    for size in SIZES {
        let put = &mut Riak::shaped(Op::Put, size.shape(2));
        cluster.servers.load(put, size.first(Replicas::Differing), size.objects)?;
    }
    cluster.servers.rest()?;
    cluster.stop()
}

/// Step 3 for one form.
fn read_all(context: &Context, setup: &Setup, form: &'static str, round: u64) -> Result<Vec<Measured>> {
    let cluster = Cluster::start(&Setup { read_form: Some(form), ..setup.clone() })?;
    let window = context.plan.window;
    let mut measured = Vec::new();
    for size in SIZES {
        let mut session = cluster.servers.connect(CONNECTIONS)?.verifying_all();
        let (mut get, mut keys) = (size.read(Replicas::Equal), equal_keys(size, round));
        session.run(&mut get, &mut keys, Until::Elapsed(window.warm_up))?;
        let (cost, traffic) =
            cluster.observe(&mut session, &mut get, &mut keys, Until::Elapsed(window.time))?;
        measured.push(((form, size, Replicas::Equal), cost, traffic));
        let mut once = Keys::Sequence { next: size.first(Replicas::Differing) };
        let (mut get, until) = (size.read(Replicas::Differing), Until::Ops(size.objects));
        let (cost, traffic) = cluster.observe(&mut session, &mut get, &mut once, until)?;
        measured.push(((form, size, Replicas::Differing), cost, traffic));
    }
    cluster.stop()?;
    Ok(measured)
}

fn equal_keys(size: Size, seed: u64) -> Keys {
    Keys::Uniform { from: size.first(Replicas::Equal), count: size.objects, rng: SplitMix::new(seed) }
}

fn bytes_row(load: Load, measured: &[&Measured]) -> Row {
    let per_get = |count: fn(&Traffic) -> u64| {
        measured.iter().map(|(_, cost, traffic)| count(traffic) as f64 / cost.ops.max(1) as f64).collect()
    };
    let bytes: Vec<f64> = per_get(|traffic| traffic.bytes);
    let frames: Vec<f64> = per_get(|traffic| traffic.frames);
    bytes_spec(load).measured(&bytes).also("frames_per_get", median(&frames))
}

/// Which form the nodes choose by themselves, told from its bytes.
fn defaults(context: &Context, setup: &Setup, measured: &[Measured], report: &mut Report) -> Result<()> {
    let cluster = Cluster::start(setup)?;
    let forms: Vec<(&str, f64)> = measured
        .iter()
        .filter(|((_, size, replicas), ..)| *size == DEFAULT_SIZE && *replicas == Replicas::Equal)
        .map(|((form, ..), cost, traffic)| (*form, traffic.bytes as f64 / cost.ops.max(1) as f64))
        .collect();
    for connections in DEFAULT_CONNECTIONS {
        let mut session = cluster.servers.connect(connections)?;
        let (mut get, mut keys) = (DEFAULT_SIZE.read(Replicas::Equal), equal_keys(DEFAULT_SIZE, 9));
        session.run(&mut get, &mut keys, Until::Elapsed(context.plan.window.warm_up))?;
        let until = Until::Elapsed(context.plan.window.time);
        let (cost, traffic) = cluster.observe(&mut session, &mut get, &mut keys, until)?;
        let bytes = traffic.bytes as f64 / cost.ops.max(1) as f64;
        let row = default_spec(connections).valued(bytes, which(bytes, &forms));
        report.push(row.also("cpu_us", Some(cost.server_us)).also("ops_per_s", Some(cost.ops_per_s)))?;
    }
    cluster.stop()
}

/// Which form so many bytes per GET are.
fn which(bytes: f64, forms: &[(&str, f64)]) -> String {
    let distance = |of_form: f64| (bytes - of_form).abs() / of_form.max(1.0);
    let nearest = forms.iter().min_by(|(_, a), (_, b)| distance(*a).total_cmp(&distance(*b)));
    match nearest {
        Some((form, of_form)) if distance(*of_form) <= NEAR => format!("picks {form}"),
        Some((form, of_form)) => {
            let share = rounded(100.0 * bytes / of_form.max(1.0));
            format!("a mixture: {share} % of the bytes of {form}, the nearest")
        }
        None => "no form was measured".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_form_is_named_and_a_mixture_is_told() {
        let forms = [("local", 100.0), ("heads", 8400.0), ("values", 16_600.0)];
        assert_eq!(which(103.0, &forms), "picks local");
        assert_eq!(which(16_500.0, &forms), "picks values");
        assert!(which(6000.0, &forms).starts_with("a mixture: 71.43 % of the bytes of heads"));
        assert_eq!(which(1.0, &[]), "no form was measured");
    }

    #[test]
    fn keys_of_different_rows_do_not_meet() {
        let mut ranges: Vec<(u64, u64)> = SIZES
            .into_iter()
            .flat_map(|size| [Replicas::Equal, Replicas::Differing].map(|r| (size.first(r), size.objects)))
            .collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    }
}
