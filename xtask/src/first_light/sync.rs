//! Group commit: acknowledged writes per fdatasync, and the latency of a write that is alone.

use super::{Context, OBJECTS};
use crate::Result;
use crate::calibrate::{append_and_sync, ping_pong, two_wake_ups};
use crate::load::{Load, Op, Until};
use crate::nodes::Cluster;
use crate::report::Report;
use crate::rows::{Bar, Row, Spec};
use crate::stats::{median, percentile_us, rounded};
use crate::strace::Strace;
use histogram::Histogram;
use std::time::Duration;

/// Under strace: everything is slower, and this is enough for hundreds of syncs.
const TRACED: Duration = Duration::from_secs(1);

/// A yardstick whose p50 changes by this factor within the run measures the machine's other work.
const UNSTEADY: f64 = 3.0;

fn per_sync() -> Spec {
    Spec::new("sync/64/put per fdatasync", "writes", Some(Bar::AtLeast(8.0)))
}

fn counted_right() -> Spec {
    Spec::new("sync/64/fdatasync by strace over counted", "ratio", None)
}

fn over_parts() -> Spec {
    Spec::new("sync/1/put p50 over its parts", "ratio", Some(Bar::AtMost(1.3)))
}

fn parts() -> [Spec; 4] {
    [
        "sync/1/put p50",
        "calibration/append and fdatasync p50",
        "calibration/ping-pong p50",
        "calibration/two wake-ups p50",
    ]
    .map(|name| Spec::new(name, "us", None))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let mut specs = vec![per_sync(), counted_right(), over_parts()];
    specs.extend(parts());
    specs
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let node = Cluster::start(&context.setup("sync", "sync")?)?;
    group_commit(context, &node, report)?;
    let traced = cross_check(context, &node);
    report.push(match traced {
        Ok((by_strace, counted)) => counted_right().valued(
            by_strace as f64 / counted.max(1) as f64,
            format!("{by_strace} by strace, {counted} counted"),
        ),
        Err(failure) => counted_right().failed(failure),
    })?;
    latency(context, &node, report)?;
    node.stop()?;
    Ok(())
}

/// So many writers, each on a connection of its own.
fn put(writers: usize) -> Load {
    Load::new(Op::Put, writers, OBJECTS)
}

/// 64 writers; all writes of all rounds over all syncs of all stores.
fn group_commit(context: &Context, node: &Cluster, report: &mut Report) -> Result<()> {
    let (mut writes, mut syncs, mut ratios) = (0, 0.0, Vec::new());
    let (mut rates, mut latencies) = (Vec::new(), Histogram::default());
    for _ in 0..context.plan.sync_rounds {
        let before = node.counts()?;
        let outcome = node.servers.run(&put(64), Until::Elapsed(context.plan.sync_window))?;
        let synced = node.counts()?.since(&before).get("disk_syncs")?;
        writes += outcome.ops;
        syncs += synced;
        ratios.push(outcome.ops as f64 / synced.max(1.0));
        rates.push(outcome.rate());
        latencies.merge(&outcome.latencies);
    }
    if syncs == 0.0 {
        return Err("writes were acknowledged without a sync, or syncs are not counted".into());
    }
    let mut row = per_sync().measured(&ratios);
    row.value = Some(writes as f64 / syncs);
    let row = row
        .also("writes", Some(writes as f64))
        .also("syncs", Some(syncs))
        .also("writes_per_s", median(&rates))
        .also("p50_us", Some(percentile_us(&latencies, 50.0)))
        .also("p99_us", Some(percentile_us(&latencies, 99.0)));
    report.push(row)
}

/// The syncs of one run, as strace and as the node count them.
fn cross_check(context: &Context, node: &Cluster) -> Result<(u64, u64)> {
    let before = node.counts()?;
    let strace = Strace::attach(node.pid(), "fdatasync", &context.home.join("strace-sync"))?;
    node.servers.run(&put(64), Until::Elapsed(TRACED))?;
    // The last acknowledged write has been synced, and nothing else is asked for.
    let calls = strace.finish()?;
    let counted = node.counts()?.since(&before).get("disk_syncs")? as u64;
    Ok((calls.len() as u64, counted))
}

/// One writer against the sum of what it cannot avoid, in slices of each by turns.
fn latency(context: &Context, node: &Cluster, report: &mut Report) -> Result<()> {
    let time = context.plan.slice;
    node.servers.run(&put(1), Until::Elapsed(time))?;
    let mut all: [Histogram; 4] = Default::default();
    let mut p50s: [Vec<f64>; 4] = Default::default();
    let mut ratios = Vec::new();
    for _ in 0..context.plan.slices {
        let slice = [
            node.servers.run(&put(1), Until::Elapsed(time))?.latencies,
            append_and_sync(&context.home, time)?,
            ping_pong(time / 4)?.latencies,
            two_wake_ups(time / 4)?,
        ];
        ratios.push(over_its_parts(&slice));
        for (index, latencies) in slice.iter().enumerate() {
            p50s[index].push(percentile_us(latencies, 50.0));
            all[index].merge(latencies);
        }
    }
    report.push(over_parts_row(&ratios, over_its_parts(&all), &p50s[1]))?;
    for ((spec, latencies), p50s) in parts().into_iter().zip(&all).zip(&p50s) {
        let mut row = spec.measured(p50s).also("p99_us", Some(percentile_us(latencies, 99.0)));
        row.value = Some(percentile_us(latencies, 50.0));
        report.push(row)?;
    }
    Ok(())
}

/// The worse of two readings counts: the median slice, and the medians of all slices together. They differ when the
/// machine is not the same for both sides, and then neither is worth much.
fn over_parts_row(ratios: &[f64], pooled: f64, appends: &[f64]) -> Row {
    let mut row = over_parts().measured(ratios);
    let slice = row.value.unwrap_or(pooled);
    row.value = Some(slice.max(pooled));
    let row = row.noted(format!("median slice {}, all together {}", rounded(slice), rounded(pooled)));
    let low = appends.iter().copied().fold(f64::INFINITY, f64::min);
    if appends.iter().any(|&append| append > UNSTEADY * low) {
        return row.noted("the bare append itself was unsteady, measure again on a quiet machine");
    }
    row
}

fn over_its_parts([put, append, ping_pong, wake_ups]: &[Histogram; 4]) -> f64 {
    let [put, append, ping_pong, wake_ups] =
        [put, append, ping_pong, wake_ups].map(|it| percentile_us(it, 50.0));
    put / (append + ping_pong + wake_ups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worse_reading_counts_and_an_unsteady_yardstick_is_told() {
        let steady = over_parts_row(&[1.1, 1.2, 1.5], 1.4, &[300.0, 310.0, 320.0]);
        assert_eq!(steady.value, Some(1.4));
        assert!(!steady.reached() && !steady.noise.contains("unsteady"), "{}", steady.noise);
        let unsteady = over_parts_row(&[1.1, 1.2, 1.5], 0.1, &[300.0, 4000.0, 320.0]);
        assert_eq!(unsteady.value, Some(1.2));
        assert!(unsteady.reached() && unsteady.noise.contains("unsteady"), "{}", unsteady.noise);
    }
}
