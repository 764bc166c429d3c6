//! Many groups of which nobody asks anything: the CPU of idle nodes, and the time of a start.
//!
//! * Idle: five nodes, 16,384 partitions. Each of many keys of the consistent type is written once, so most groups were
//!   in use. Then the CPU of each node is measured, when the work that writes leave behind is done.
//! * Start: a node alone with 65,536 groups that were in use, stopped and started; beside it the same keys in the
//!   default type. The time is from the spawn to the first answer. A start after a kill replays the journal, too, as
//!   much of it as the last writes left: that row has no bar.

use super::{Context, TYPE};
use crate::load::{Load, Op};
use crate::nodes::{Cluster, Setup};
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;
use crate::{Result, sys};
use std::thread::sleep;
use std::time::Duration;

const NODES: u16 = 5;
const PARTITIONS: u32 = 16_384;

/// The most groups of an `n_val`.
const GROUPS_MAX: u32 = 65_536;

/// The time from the last write to the measurement of idle nodes: tables are merged, and peers are pinged often until
/// they were unused for some seconds.
const SETTLES_IN: Duration = Duration::from_secs(25);

/// The time for which a node runs after its start.
const AFTER_START: Duration = Duration::from_millis(500);

/// Keys for each group: a key for nine of ten groups.
const KEYS_PER_GROUP: f64 = 2.3;

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![
        Spec::new("idle/CPU of a node, 16,384 partitions", "% of a core", Some(Bar::AtMost(0.2))),
        Spec::new("start/65,536 groups, longer than without", "ms", Some(Bar::AtMost(100.0))),
        Spec::new("start/65,536 groups after a kill, longer than without", "ms", None),
    ]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let [idle, start, killed] = &specs()[..] else { return Err("three rows".into()) };
    let shares = idle_shares(context)?;
    let row = idle.clone().measured(&shares);
    report.push(row.also("busiest", shares.into_iter().reduce(f64::max)))?;

    let with = start_times(context, true)?;
    let without = start_times(context, false)?;
    for (row, of) in [(start, Starts::stopped as fn(&Starts) -> f64), (killed, Starts::killed)] {
        let (with, without) = (of(&with), of(&without));
        let row = row.clone().valued(with - without, "difference of two medians");
        report.push(row.also("with_ms", Some(with)).also("without_ms", Some(without)))?;
    }
    Ok(())
}

/// The times of some starts, in milliseconds.
struct Starts {
    after_stops: Vec<f64>,
    after_kills: Vec<f64>,
}

impl Starts {
    fn stopped(&self) -> f64 {
        median(&self.after_stops).unwrap_or_default()
    }

    fn killed(&self) -> f64 {
        median(&self.after_kills).unwrap_or_default()
    }
}

/// The load that touches most of so many groups.
fn touching(groups: u32, is_consistent: bool) -> Load {
    let keys = (f64::from(groups) * KEYS_PER_GROUP) as u64;
    match is_consistent {
        true => {
            let load = Load::new(Op::PutOnce, 64, keys);
            Load { consistent_type: Some(TYPE), in_order: true, value_len: 100, ..load }
        }
        false => Load { value_len: 100, ..Load::fill(keys) },
    }
}

/// The CPU of each node at rest, in percent of a core.
fn idle_shares(context: &Context) -> Result<Vec<f64>> {
    let setup = Setup::new(&context.binary, context.home.join("idle"), NODES, "none")?;
    let cluster = Cluster::start(&setup.with("ring-size", PARTITIONS))?;
    cluster.make_consistent_type(TYPE)?;
    cluster.servers.fill(&touching(PARTITIONS, true))?;
    cluster.servers.rest()?;
    sleep(SETTLES_IN);
    let cpu =
        || cluster.servers.pids.iter().map(|&pid| sys::process_cpu(pid)).collect::<std::io::Result<Vec<_>>>();
    let before = cpu()?;
    sleep(context.plan.idle);
    let used = cpu()?.into_iter().zip(before).map(|(after, before)| (after - before).as_secs_f64());
    let shares = used.map(|used| 100.0 * used / context.plan.idle.as_secs_f64()).collect();
    cluster.stop()?;
    Ok(shares)
}

/// The times of some starts of a node alone.
fn start_times(context: &Context, is_consistent: bool) -> Result<Starts> {
    let name = if is_consistent { "with-groups" } else { "without-groups" };
    let setup = Setup::new(&context.binary, context.home.join(name), 1, "none")?;
    let setup = setup.with("ring-size", GROUPS_MAX).with("shards", 1);
    let cluster = Cluster::start(&setup)?;
    if is_consistent {
        cluster.make_consistent_type(TYPE)?;
    }
    cluster.servers.fill(&touching(GROUPS_MAX, is_consistent))?;
    cluster.servers.rest()?;
    cluster.kill()?;

    let started = || {
        let cluster = Cluster::start(&setup)?;
        sleep(AFTER_START);
        Ok::<_, crate::Failure>((cluster.start_time.as_secs_f64() * 1e3, cluster))
    };
    let mut starts = Starts { after_stops: Vec::new(), after_kills: Vec::new() };
    for _ in 0..context.plan.rounds {
        let (time, cluster) = started()?;
        starts.after_kills.push(time);
        cluster.kill()?;
    }
    started()?.1.stop()?;
    for _ in 0..context.plan.rounds {
        let (time, cluster) = started()?;
        starts.after_stops.push(time);
        cluster.stop()?;
    }
    Ok(starts)
}
