//! Five times the load that the nodes can serve: no election, and most of the work is still done.
//!
//! 1. The capacity is the rate of a closed loop of 64 connections.
//! 2. An open load asks for five times as much, by 512 connections. A node is killed in its last quarter.
//! 3. Elections are counted until the kill. Goodput is the rate of requests that are done until then, as a share of the
//!    capacity.

use super::Context;
use super::kill::{await_leaders, kill};
use super::recorded::Recorded;
use crate::Result;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use bench::Control;

/// The load, as a multiple of the capacity.
const TIMES: f64 = 5.0;

/// Connections of the overload.
const CONNECTIONS: usize = 512;

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![
        Spec::new("overload/elections before the kill", "elections", Some(Bar::Exactly(0.0))),
        Spec::new("overload/requests done, of the capacity", "share", Some(Bar::AtLeast(0.8))),
        Spec::new("overload/longest wait of a group with requests", "s", Some(Bar::AtMost(2.0))),
        Spec::new("overload/longest wait of any group", "s", Some(Bar::AtMost(3.0))),
        Spec::new("overload/keys with wrong answers", "keys", Some(Bar::Exactly(0.0))),
    ]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let mut cluster = context.cluster("overload")?;
    await_leaders(&cluster)?;
    let time = context.plan.overload;
    let load = Recorded { connections: 64, rate: None, time: time / 4 };
    let addresses = cluster.servers.addresses.clone();
    load.run(&addresses, None, &Control::default())?;
    let capacity = load.run(&addresses, None, &Control::default())?.total.throughput.median;

    let load = Recorded { connections: CONNECTIONS, rate: Some(TIMES * capacity), time };
    let killed = kill(context, &mut cluster, 0, (load, time * 3 / 4))?;
    cluster.stop()?;

    let [elections, goodput, waiting, any, wrong] = &specs()[..] else { return Err("five rows".into()) };
    let once = "one run";
    report.push(elections.clone().valued(killed.elections, once))?;
    let rate = killed.waits.done_before as f64 / (time * 3 / 4).as_secs_f64();
    let row = goodput.clone().valued(rate / capacity, once);
    report.push(row.also("capacity", Some(capacity)).also("errors", Some(killed.waits.errors as f64)))?;
    report.push(waiting.clone().valued(killed.waits.waiting, once))?;
    report.push(any.clone().valued(killed.waits.any, once))?;
    report.push(wrong.clone().valued(killed.wrong as f64, once))
}
