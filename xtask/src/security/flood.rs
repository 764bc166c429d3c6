//! Two thousand half-open handshakes: latency of reads beside them, and the time of an honest login.
//!
//! Each of the connections sends the begin of a hello and no more. An address has 16 of them. Each is replaced after
//! some seconds, before the node gives it up.

use super::connection::{connect, trust};
use super::node::{PASSWORD, SecuredNodes};
use super::{Context, ratios};
use crate::Result;
use crate::load::Until;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::{median, percentile_us, spread};
use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

/// Half-open connections, and those of an address.
const HALF_OPEN: usize = 2_000;
const OF_ADDRESS: usize = 16;

/// Time between two new ones: each is replaced after four seconds.
const EACH: Duration = Duration::from_millis(2);

/// The begin of a record of TLS with a hello.
const BEGIN_OF_HELLO: [u8; 6] = [22, 3, 1, 2, 0, 1];

/// Reads a second beside them.
const RATE: u32 = 2_000;

/// Time between two honest logins.
const LOGIN_EACH: Duration = Duration::from_millis(200);

fn p99_spec() -> Spec {
    Spec::new("flood/GET p99 beside 2,000 half-open handshakes over without", "ratio", Some(Bar::AtMost(1.5)))
}

fn login_spec() -> Spec {
    Spec::new("flood/slowest honest login", "ms", Some(Bar::AtMost(1000.0)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![p99_spec(), login_spec()]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let nodes = SecuredNodes::start_filled(context, "flood")?;
    nodes.security("enable")?;
    let (mut p99, mut logins) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for round in 0..context.plan.rounds {
        for step in 0..2 {
            let at = (round + step) % 2;
            let measure = || measure(context, &nodes, round as u64);
            let (p99_us, millis) = if at == 1 { flooded(&nodes, measure)? } else { measure()? };
            p99[at].push(p99_us);
            logins[at].extend(millis);
        }
        eprintln!("figures: round {} of {}", round + 1, context.plan.rounds);
    }
    nodes.cluster.stop()?;

    let [without, with] = p99;
    let row = p99_spec().measured(&ratios(&with, &without));
    report.push(row.also("p99_us_without", median(&without)).also("p99_us_with", median(&with)))?;
    let [without, with] = logins;
    let slowest = |millis: &[f64]| millis.iter().copied().fold(0.0, f64::max);
    let row = login_spec().valued(slowest(&with), spread(&with));
    let row = row.also("ms_without", median(&without)).also("ms_with", median(&with));
    report.push(row.also("slowest_ms_without", Some(slowest(&without))))
}

/// The p99 of reads in microseconds, and the times of honest logins in milliseconds.
fn measure(context: &Context, nodes: &SecuredNodes, round: u64) -> Result<(f64, Vec<f64>)> {
    let load = nodes.steady_reads(RATE, round + 1)?;
    let tls = trust(nodes.ca(), false)?;
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let honest = scope.spawn(|| {
            let mut millis = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                let (time, told) = nodes.timed_login(PASSWORD, &tls)?;
                told.map_err(|text| format!("an honest login is answered: {text}"))?;
                millis.push(time.as_secs_f64() * 1e3);
                sleep(LOGIN_EACH);
            }
            Ok::<_, crate::Failure>(millis)
        });
        let outcome = nodes.cluster.servers.run(&load, Until::Elapsed(context.plan.window.time));
        ended.store(true, Ordering::Relaxed);
        let millis = honest.join().map_err(|_| "a login panicked")??;
        Ok((percentile_us(&outcome?.latencies, 99.0), millis))
    })
}

/// Measures beside half-open handshakes.
fn flooded<T>(nodes: &SecuredNodes, measure: impl FnOnce() -> Result<T>) -> Result<T> {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut open: Vec<_> = (0..HALF_OPEN).map(|_| None).collect();
            for at in (0..HALF_OPEN).cycle() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                // One that the node has ended is replaced too.
                open[at] = half_open(nodes, at);
                sleep(EACH);
            }
        });
        // The first round through all of them.
        sleep(EACH * HALF_OPEN as u32);
        let measured = measure();
        ended.store(true, Ordering::Relaxed);
        measured
    })
}

fn half_open(nodes: &SecuredNodes, at: usize) -> Option<std::net::TcpStream> {
    let number = (at / OF_ADDRESS) as u8;
    let mut stream =
        connect(Ipv4Addr::new(127, 2, number / 100, 1 + number % 100).into(), nodes.https).ok()?;
    stream.write_all(&BEGIN_OF_HELLO).ok()?;
    Some(stream)
}
