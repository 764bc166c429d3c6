//! Five times the load that can be done, as an open loop: what is still done, how soon the rest is refused, and how
//! soon all is normal again.

use super::{Context, OBJECTS};
use crate::Result;
use crate::cluster::Cluster;
use crate::generator::Until;
use crate::generator::open::{OpenLoop, Phase, Slice};
use crate::measure::{Servers, with_foreign_work};
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::rounded;
use crate::workload::{Keys, Op, Riak, SplitMix};
use std::time::Duration;

const OPS: [Op; 2] = [Op::Get, Op::Put];

/// How often the peak is looked for; odd.
const PEAKS: usize = 3;

/// Connections of the closed loops that find the peak, of which the one in the middle counts: what else the machine
/// does must not decide.
const PEAK_CONNECTIONS: usize = 64;

/// Connections of the open loop: at the peak of these machines, a tenth of a second's operations.
const CONNECTIONS: usize = 1536;

/// Of the peak: the load before and after the overload, and the overload.
const CALM: f64 = 0.5;
const STORM: f64 = 5.0;

/// Latency is looked at in slices of this length.
const SLICE: Duration = Duration::from_millis(500);

/// Not looked at: long enough for every connection to be used.
const WARM_UP: Duration = Duration::from_secs(2);

/// After the overload the load is kept up for so long: the bar and what shows that it holds.
const AFTER: Duration = Duration::from_secs(12);

/// Normal is a p99 within this factor of what it was before, over so many slices in a row.
const NORMAL: f64 = 2.0;
const NORMAL_SLICES: usize = 4;

fn goodput(op: Op) -> Spec {
    Spec::new(format!("overload/{} goodput over peak", op.name()), "ratio", Some(Bar::AtLeast(0.8)))
}

fn refusal(op: Op) -> Spec {
    Spec::new(format!("overload/{} refusal p99", op.name()), "ms", Some(Bar::AtMost(50.0)))
}

fn recovery(op: Op) -> Spec {
    Spec::new(format!("overload/{} normal again", op.name()), "s", Some(Bar::AtMost(10.0)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    OPS.into_iter().flat_map(|op| [goodput(op), refusal(op), recovery(op)]).collect()
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let cluster = Cluster::start(&context.setup("overload", "none")?)?;
    cluster.servers.load(&mut Riak::new(Op::Put), 0, OBJECTS)?;
    for op in OPS {
        let peak = peak(context, &cluster.servers, op)?;
        let course = course(context, &cluster.servers, op, peak.ops_per_s)?;
        push_rows(op, &peak, &course, report)?;
    }
    cluster.stop()
}

/// The most that was done in a closed loop.
struct Peak {
    ops_per_s: f64,
    server_cores: f64,
}

fn keys(op: Op) -> Keys {
    Keys::Uniform { from: 0, count: OBJECTS, rng: SplitMix::new(op as u64) }
}

fn peak(context: &Context, servers: &Servers, op: Op) -> Result<Peak> {
    let mut session = servers.connect(PEAK_CONNECTIONS)?;
    let mut keys = keys(op);
    let mut runs = Vec::new();
    for _ in 0..PEAKS {
        let before = servers.cpu()?;
        let outcome = session.run(&mut Riak::new(op), &mut keys, Until::Elapsed(context.plan.peak))?;
        let wall = outcome.wall.as_secs_f64();
        let server_cores = (servers.cpu()? - before).as_secs_f64() / wall;
        runs.push(Peak { ops_per_s: outcome.ops as f64 / wall, server_cores });
    }
    runs.sort_by(|one, other| one.ops_per_s.total_cmp(&other.ops_per_s));
    Ok(runs.swap_remove(PEAKS / 2))
}

/// Calm, storm, and calm again.
struct Course {
    before: Vec<Slice>,
    storm: Vec<Slice>,
    after: Vec<Slice>,
    /// The storm's phase and what the servers used in it.
    phase: Phase,
    server_cpu: Duration,
    complaint: Option<String>,
}

fn course(context: &Context, servers: &Servers, op: Op, peak: f64) -> Result<Course> {
    servers.rest()?;
    let mut session = servers.connect(CONNECTIONS)?;
    let mut open = OpenLoop::new(&mut session, Riak::new(op), keys(op), SLICE);
    // Each connection's first operation costs more than those that follow.
    let warm_up = open.offer(CALM * peak, WARM_UP)?;
    open.offer(CALM * peak, context.plan.calm)?;
    let before = servers.cpu()?;
    let phase = open.offer(STORM * peak, context.plan.storm)?;
    let server_cpu = servers.cpu()? - before;
    open.offer(CALM * peak, AFTER)?;
    let (mut slices, complaint) = open.finish()?;
    let after = slices.split_off(phase.slices.end);
    let storm = slices.split_off(phase.slices.start);
    let before = slices.split_off(warm_up.slices.end);
    Ok(Course { before, storm, after, phase, server_cpu, complaint })
}

fn push_rows(op: Op, peak: &Peak, course: &Course, report: &mut Report) -> Result<()> {
    let wall = course.phase.wall.as_secs_f64();
    let storm = Slice::sum(&course.storm);
    let cores = |time: Duration| time.as_secs_f64() / wall;
    let per_s = |count: u64| Some(count as f64 / wall);
    let complaint = course.complaint.as_ref().map(|text| format!("; a failure: {text}")).unwrap_or_default();
    let row = goodput(op)
        .valued(storm.answered as f64 / wall / peak.ops_per_s, format!("1 run of {wall:.1} s{complaint}"))
        .also("peak_per_s", Some(peak.ops_per_s))
        .also("due_per_s", per_s(storm.due))
        .also("answered_per_s", per_s(storm.answered))
        .also("refused_per_s", per_s(storm.refused))
        .also("unsent_per_s", per_s(storm.unsent))
        .also("failed_per_s", per_s(storm.failed))
        .also("p50_ms", Some(storm.latencies.p50_us() / 1e3))
        .also("p99_ms", Some(storm.latencies.percentile_us(99.0) / 1e3))
        .also("server_us_at_peak", Some(peak.server_cores / peak.ops_per_s * 1e6))
        .also("server_us", Some(course.server_cpu.as_secs_f64() / storm.answered.max(1) as f64 * 1e6))
        .also("server_cores_at_peak", Some(peak.server_cores))
        .also("server_cores", Some(cores(course.server_cpu)))
        .also("generator_cores", Some(cores(course.phase.cpu)))
        .also("cores", Some(cores(course.phase.busy)));
    let own_cores = cores(course.server_cpu + course.phase.cpu);
    report.push(with_foreign_work(row, cores(course.phase.busy), own_cores))?;
    report.push(if storm.refused == 0 {
        // All that was sent was answered, and an answer may not take longer than a refusal. What was not sent found all
        // connections busy, and no server knew of it.
        let (unsent, due) = (storm.unsent, storm.due);
        let noise = format!(
            "nothing was refused, so the answers count; {unsent} of {due} found all connections busy"
        );
        refusal(op).valued(storm.latencies.percentile_us(99.0) / 1e3, noise)
    } else {
        refusal(op)
            .valued(storm.refusals.percentile_us(99.0) / 1e3, format!("{} refusals", storm.refused))
            .also("p50_ms", Some(storm.refusals.p50_us() / 1e3))
            .also("max_ms", Some(storm.refusals.percentile_us(100.0) / 1e3))
    })?;
    let healthy = p99_us(&course.before);
    let end = course.after.len().saturating_sub(NORMAL_SLICES);
    report.push(
        match normal_from(healthy, &course.after) {
            Some(from) => recovery(op).valued((SLICE * from as u32).as_secs_f64(), "1 run, to half a second"),
            None => recovery(op).failed(format!("not in {AFTER:?}: p99 was {} us before", rounded(healthy))),
        }
        .also("healthy_p99_us", Some(healthy))
        .also("p99_us_in_the_end", Some(p99_us(&course.after[end..])))
        .also("unsent_since", Some(Slice::sum(&course.after).unsent as f64))
        .also("refused_since", Some(Slice::sum(&course.after).refused as f64)),
    )
}

fn p99_us(slices: &[Slice]) -> f64 {
    Slice::sum(slices).latencies.percentile_us(99.0)
}

/// The first slice with which some begin that are normal together.
fn normal_from(healthy_us: f64, after: &[Slice]) -> Option<usize> {
    let is_normal = |slices: &[Slice]| {
        let all_answered = slices.iter().all(|slice| slice.answered == slice.due);
        all_answered && p99_us(slices) <= NORMAL * healthy_us
    };
    after.windows(NORMAL_SLICES).position(is_normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(p99_us: u64, refused: u64) -> Slice {
        let mut slice = Slice::sum([]);
        slice.due = 1 + refused;
        slice.answered = 1;
        slice.refused = refused;
        slice.latencies.record(Duration::from_micros(p99_us));
        slice
    }

    #[test]
    fn normal_is_what_stays_normal() {
        let after = [(900, 0), (150, 0), (150, 7), (150, 0), (190, 0), (100, 0), (150, 0), (900, 0)];
        let after: Vec<Slice> = after.into_iter().map(|(p99, refused)| slice(p99, refused)).collect();
        assert_eq!(normal_from(100.0, &after), Some(3));
        assert_eq!(normal_from(50.0, &after), None);
        assert_eq!(normal_from(100.0, &[]), None);
    }
}
