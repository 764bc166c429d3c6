//! The kill of a node that leads groups, under load: the time until each group answers again, and the history of all
//! requests, judged.
//!
//! 1. A load reads and writes 4,000 keys of the consistent type by 64 connections, and records its history.
//! 2. Some seconds later a node is killed, another one each time.
//! 3. The waits come from the history ([`super::recorded`]).
//! 4. The node is started again, and the next kill waits until all groups have leaders.
//!
//! A kill is repeated if a plain fsync beside the nodes took longer than 100 ms meanwhile: then the disk stood.
//!
//! Left out: the time for which processes waited for a core is printed beside the row, and not subtracted.

use super::recorded::{Recorded, Waits, wrong_keys};
use super::{Context, NODES};
use crate::nodes::Cluster;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;
use crate::{Result, sys};
use bench::{Control, history};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// Time of the load before a kill, and after it.
const BEFORE: Duration = Duration::from_secs(3);
const AFTER: Duration = Duration::from_secs(7);

/// A plain fsync that takes longer says that the disk stood.
const SYNC_MAX: Duration = Duration::from_millis(100);

/// Kills that are repeated at most: a disk that always stands is the machine's.
const REPEATS_MAX: usize = 5;

/// The wait for leaders of all groups after a start.
const LEADERS_MAX: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(50);

/// How leaders prove that they lead: the option, the prefix of its rows, and the bars of waits.
const READS: [(&str, &str, f64, f64); 2] = [("ask", "", 2.0, 3.0), ("lease", "lease/", 1.3, 2.5)];

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    READS.iter().flat_map(|(_, prefix, waiting, any)| specs_of(prefix, *waiting, *any)).collect()
}

fn specs_of(prefix: &str, waiting: f64, any: f64) -> [Spec; 5] {
    let spec = |of, unit, bar| Spec::new(format!("{prefix}kill -9/{of}"), unit, Some(bar));
    [
        spec("longest wait of a group with requests", "s", Bar::AtMost(waiting)),
        spec("longest wait of any group", "s", Bar::AtMost(any)),
        spec("p99 of keys led elsewhere, over before", "times", Bar::AtMost(2.0)),
        spec("keys with wrong answers", "keys", Bar::Exactly(0.0)),
        spec("errors but timeouts of requests under way", "errors", Bar::Exactly(0.0)),
    ]
}

/// One kill.
#[derive(Clone, Copy, Debug)]
pub struct Killed {
    /// The waits of groups, and errors.
    pub waits: Waits,
    /// Keys that no order of requests explains, or whose search was given up.
    pub wrong: usize,
    /// Elections before the kill.
    pub elections: f64,
    /// The longest plain fsync.
    sync: Duration,
    /// The time for which all threads of the surviving processes waited for a core after the kill.
    run_queue: Duration,
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    for (reads, prefix, waiting, any) in READS {
        kill_each(context, report, reads, specs_of(prefix, waiting, any))?;
    }
    Ok(())
}

/// Kills each node in turn, and fills the rows of one way to prove that a leader leads.
fn kill_each(context: &Context, report: &mut Report, reads: &str, specs: [Spec; 5]) -> Result<()> {
    let mut cluster = context.cluster_with(&format!("kill-{reads}"), &[("strong-reads", reads)])?;
    await_leaders(&cluster)?;
    let load = Recorded { connections: 64, rate: None, time: BEFORE };
    load.run(&cluster.servers.addresses, None, &Control::default())?;
    let load = Recorded { time: BEFORE + AFTER, ..load };
    let (mut kills, mut repeats) = (Vec::new(), 0);
    while kills.len() < context.plan.rounds {
        let victim = (kills.len() + repeats) % usize::from(NODES);
        let killed = kill(context, &mut cluster, victim, (load, BEFORE))?;
        if killed.sync > SYNC_MAX && repeats < REPEATS_MAX {
            repeats += 1;
            report.remark(format!("a kill is repeated: a plain fsync took {:?}", killed.sync));
            continue;
        }
        kills.push(killed);
    }
    cluster.stop()?;

    let values = |of: fn(&Killed) -> f64| kills.iter().map(of).collect::<Vec<f64>>();
    let most = |of: fn(&Killed) -> f64| values(of).into_iter().reduce(f64::max);
    let [waiting, any, elsewhere, wrong, errors] = specs;
    let row = waiting.measured(&values(|it| it.waits.waiting));
    report.push(
        row.also("longest", most(|it| it.waits.waiting))
            .also("groups", median(&values(|it| it.waits.groups as f64)))
            .also("done", median(&values(|it| it.waits.done as f64)))
            .also("timeouts", median(&values(|it| it.waits.timeouts as f64)))
            .also("plain_fsync_s", most(|it| it.sync.as_secs_f64()))
            .also("run_queue_s", median(&values(|it| it.run_queue.as_secs_f64()))),
    )?;
    let row = any.measured(&values(|it| it.waits.any));
    report.push(row.also("longest", most(|it| it.waits.any)))?;
    report.push(elsewhere.measured(&values(|it| it.waits.elsewhere)))?;
    let sum = |of: fn(&Killed) -> usize| kills.iter().map(of).sum::<usize>() as f64;
    report.push(wrong.valued(sum(|it| it.wrong), "sum of all kills"))?;
    report.push(errors.valued(sum(|it| it.waits.errors), "sum of all kills"))
}

/// Runs a load, kills a node so long after its begin, and starts it again.
pub fn kill(
    context: &Context,
    cluster: &mut Cluster,
    victim: usize,
    (load, before): (Recorded, Duration),
) -> Result<Killed> {
    let file = context.home.join("history.jsonl");
    let addresses = cluster.servers.addresses.clone();
    let mut survivors = cluster.servers.pids.clone();
    survivors.remove(victim);
    let elections = |cluster: &Cluster| cluster.counts()?.get("consistent_elections_total");
    let earlier = elections(cluster)?;
    let (control, is_over) = (Control::default(), AtomicBool::new(false));

    let (killed, loaded, sync) = scope(|scope| {
        let load = scope.spawn(|| load.run(&addresses, Some(&file), &control));
        let prober = scope.spawn(|| longest_sync(&context.home, &is_over));
        while control.elapsed_s().is_none_or(|at_s| at_s < before.as_secs_f64()) && !load.is_finished() {
            sleep(PAUSE);
        }
        let killed = (|| {
            let held = elections(cluster)? - earlier;
            let led = cluster.led_prefixes(victim)?;
            let queued = sys::run_delay(&survivors)?;
            let elapsed_s = || control.elapsed_s().ok_or("the load has not begun");
            let begin = elapsed_s()?;
            cluster.kill_node(victim)?;
            Ok::<_, crate::Failure>((begin..elapsed_s()?, held, queued, led))
        })();
        let loaded = load.join();
        is_over.store(true, Ordering::Relaxed);
        (killed, loaded, prober.join())
    });
    loaded.map_err(|_| "the load has panicked")??;
    let (at_s, elections, queued, led) = killed?;
    let sync = sync.map_err(|_| "the prober has panicked")??;
    let run_queue = sys::run_delay(&survivors)?.saturating_sub(queued);
    cluster.start_node(victim)?;
    await_leaders(cluster)?;

    let history = history::read(&file)?;
    std::fs::remove_file(&file)?;
    let ns = |at_s: f64| (at_s * 1e9) as u64;
    let waits = Waits::of(&history, ns(at_s.start)..ns(at_s.end), &led);
    let wrong = wrong_keys(&history);
    let killed = Killed { waits, wrong, elections, sync, run_queue };
    eprintln!("figures: node {} was killed: {killed:?}", victim + 1);
    Ok(killed)
}

/// Waits until all groups that nodes hold have leaders.
pub fn await_leaders(cluster: &Cluster) -> Result<()> {
    let begin = Instant::now();
    while cluster.counts()?.get("consistent_groups_without_leader")? > 0.0 {
        if begin.elapsed() > LEADERS_MAX {
            return Err(format!("groups are without leaders after {LEADERS_MAX:?}").into());
        }
        sleep(PAUSE);
    }
    Ok(())
}

/// The longest plain fsync of a file beside the nodes, until it is over.
fn longest_sync(home: &Path, is_over: &AtomicBool) -> Result<Duration> {
    let mut file = File::create(home.join("plain"))?;
    let mut longest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        file.write_all(&[0; 512])?;
        file.sync_data()?;
        longest = longest.max(begin.elapsed());
        sleep(PAUSE);
    }
    Ok(longest)
}
