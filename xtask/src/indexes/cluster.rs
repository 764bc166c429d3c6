//! Index queries of three nodes: 1,000 results with their terms, at rings of several sizes and of a store that grows tenfold.
//!
//! 1. Three nodes are started for each size of the ring, and filled by the load generator with objects of one integer term each.
//! 2. One connection asks for 1,000 terms, from any on, one query at a time: every row is judged, and none may be missing.
//! 3. At the first size the same was done when a tenth of the objects was there.

use super::Context;
use crate::Result;
use crate::cluster::{Cluster, Setup};
use crate::process::make_dir;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;
use results::{OperationSecond, Summary};

/// Partitions of the measured rings; the store grows on the first.
pub const RINGS: [u32; 3] = [64, 1024, 16_384];

/// Rows of a query.
const FOUND: u64 = 1_000;

const CPU_MAX_MS: f64 = 1.5;
const LEAST_MAX_MS: f64 = 5.0;

const VALUE_BYTES: usize = 200;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Objects that the store has in the end.
    pub objects: u64,
    /// Of queries.
    pub rounds: usize,
    /// Measured seconds of each.
    pub seconds: u64,
}

pub const FULL: Size = Size { objects: 1_000_000, rounds: 5, seconds: 10 };
pub const QUICK: Size = Size { objects: 100_000, rounds: 3, seconds: 4 };

/// The rows of one store: CPU of all servers for a query, and the least latency.
fn pair(name: &str) -> [Spec; 2] {
    [
        Spec::new(format!("cluster/{name}/CPU of a query"), "ms", Some(Bar::AtMost(CPU_MAX_MS))),
        Spec::new(format!("cluster/{name}/least latency"), "ms", Some(Bar::AtMost(LEAST_MAX_MS))),
    ]
}

fn ring(size: u32) -> String {
    format!("ring {size}")
}

fn tenth() -> [Spec; 2] {
    pair(&format!("{}, a tenth of the objects", ring(RINGS[0])))
}

fn over(what: &str) -> Spec {
    Spec::new(format!("cluster/CPU of a query, {what}"), "ratio", None)
}

fn largest_over_smallest() -> Spec {
    over("largest ring over smallest")
}

fn grown() -> Spec {
    over("ten times the objects over a tenth")
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let rings = RINGS.into_iter().flat_map(|size| pair(&ring(size)));
    tenth().into_iter().chain(rings).chain([largest_over_smallest(), grown()]).collect()
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let mut of_rings = Vec::new();
    let mut of_tenth = None;
    for size in RINGS {
        let cluster = start(context, &format!("ring-{size}"), size, None)?;
        let all = context.plan.cluster.objects;
        if size == RINGS[0] {
            fill(context, &cluster, 0, all / 10)?;
            of_tenth = Some(measured(context, &cluster, all / 10, tenth(), report)?);
            fill(context, &cluster, all / 10, all)?;
        } else {
            fill(context, &cluster, 0, all)?;
        }
        of_rings.push(measured(context, &cluster, all, pair(&ring(size)), report)?);
        cluster.stop()?;
    }
    let (Some(tenth), [smallest, .., largest]) = (of_tenth, &of_rings[..]) else {
        return Err("no rings".into());
    };
    report.push(largest_over_smallest().valued(largest / smallest, "of the medians above"))?;
    report.push(grown().valued(smallest / tenth, "of the medians above"))
}

/// Starts three nodes, with a ring of that size, on that backend.
pub fn start(
    context: &Context,
    name: &str,
    ring_size: u32,
    backend: Option<&'static str>,
) -> Result<Cluster> {
    Cluster::start(&Setup {
        binary: context.binary.clone(),
        home: make_dir(&context.home, name)?,
        durability: "none",
        read_form: None,
        ring_size: Some(ring_size),
        anti_entropy: None,
        backend,
    })
}

/// Measures the two rows of a store; answers the median of the first.
fn measured(
    context: &Context,
    cluster: &Cluster,
    objects: u64,
    [cpu, least]: [Spec; 2],
    report: &mut Report,
) -> Result<f64> {
    cluster.servers.rest()?;
    let plan = context.plan.cluster;
    let (mut cpu_ms, mut least_ms, mut mean_ms, mut done) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..plan.rounds {
        let summary = ask(context, cluster, objects)?;
        let us = summary.server_cpu_us_per_op.ok_or("the servers' CPU time is not known")?;
        cpu_ms.push(us / 1000.0);
        least_ms.push(summary.total.response.min_us / 1000.0);
        mean_ms.push(summary.total.response.mean_us / 1000.0);
        done += summary.total.done;
    }
    report.push(
        cpu.measured(&cpu_ms).also("objects", Some(objects as f64)).also("queries", Some(done as f64)),
    )?;
    report.push(least.measured(&least_ms).also("mean_ms", median(&mean_ms)))?;
    median(&cpu_ms).ok_or_else(|| "no rounds".into())
}

/// Writes the objects of these numbers.
pub fn fill(context: &Context, cluster: &Cluster, from: u64, to: u64) -> Result<()> {
    load_objects(context, cluster, &fills(from, to), to - from)
}

/// Runs a workload that writes so many objects.
pub fn load_objects(context: &Context, cluster: &Cluster, text: &str, objects: u64) -> Result<()> {
    let (_, OperationSecond { done, .. }) = load(context, cluster, text)?;
    match done == objects {
        true => Ok(()),
        false => Err(format!("{done} of {objects} objects were written").into()),
    }
}

/// What all workloads have: the index, and small values.
pub fn indexed(head: &str, objects: u64, operation: &str) -> String {
    format!(
        "{head}\nbucket = \"people\"\n[keys]\nkind = \"uniform\"\ncount = {objects}\n[value]\nsize = {VALUE_BYTES}\n\
         [[index]]\nfield = \"number_int\"\n[[operation]]\n{operation}\n"
    )
}

fn fills(from: u64, to: u64) -> String {
    let operation =
        format!("op = \"put\"\nkeys = {{ kind = \"sequential\", start = {from}, count = {} }}", to - from);
    // All replicas have answered: a query that asks any of them finds everything.
    let head = "concurrency = 64\npipeline = 8\nwarm_up = \"0s\"\nduration = \"1h\"\n\
                quorums = { w = 3 }\nretry = { attempts = 100, backoff = \"100ms\" }\ncheck = { audit = 0 }";
    indexed(head, to, &operation)
}

fn queries(plan: Size, objects: u64) -> String {
    let head = format!("concurrency = 1\nwarm_up = \"1s\"\nduration = \"{}s\"", plan.seconds);
    indexed(&head, objects, &query())
}

/// The query: [`FOUND`] terms, with them.
pub fn query() -> String {
    format!(
        "op = \"query\"\nquery = {{ kind = \"terms\", index = \"number_int\", results = {FOUND}, whole = true, \
         return_terms = true }}"
    )
}

/// What one run of queries measured.
pub fn ask(context: &Context, cluster: &Cluster, objects: u64) -> Result<Summary> {
    Ok(load(context, cluster, &queries(context.plan.cluster, objects))?.0)
}

/// Runs a workload on a cluster, as [`super::load`].
pub fn load(context: &Context, cluster: &Cluster, text: &str) -> Result<(Summary, OperationSecond)> {
    super::load(&context.home, &cluster.servers, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::Workload;

    #[test]
    fn workloads_are_read() {
        for text in [fills(10, 100), queries(QUICK, 100_000)] {
            Workload::parse(&text, "figures").unwrap();
        }
    }
}
