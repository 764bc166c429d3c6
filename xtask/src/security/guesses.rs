//! A hundred wrong passwords a second: latency of reads beside them, the share of the thread that hashes, and logins of
//! a user from an address that has had one.
//!
//! A hundred threads have a connection each. A refusal takes a second, so each has one guess a second.

use super::connection::{Connection, trust};
use super::node::{PASSWORD, SecuredNodes, USER};
use super::{Context, ratios};
use crate::Result;
use crate::load::Until;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::{median, percentile_us};
use rustls::ClientConfig;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// Threads that guess.
const GUESSERS: u8 = 100;

/// Time between the begins of two threads, so that guesses are spread over the second.
const APART: Duration = Duration::from_millis(10);

/// Reads a second beside them.
const RATE: u32 = 2_000;

/// Time of guesses before a window: failures that are taken at once have been then.
const WARM_UP: Duration = Duration::from_secs(3);

/// The origin of guesses, and their user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guesses {
    None,
    /// From one address, each at another name.
    OneAddress,
    /// From a hundred addresses, each at another name.
    ManyAddresses,
    /// From a hundred addresses, at the user.
    AtUser,
}

const BESIDE: [(Guesses, &str); 2] =
    [(Guesses::OneAddress, "one address"), (Guesses::ManyAddresses, "100 addresses")];

fn p99_spec(name: &str) -> Spec {
    Spec::new(format!("guesses/GET p99 beside 100/s of {name} over without"), "ratio", Some(Bar::AtMost(1.2)))
}

fn share_spec(name: &str) -> Spec {
    Spec::new(format!("guesses/hashing beside 100/s of {name}"), "% of a core", Some(Bar::AtMost(10.0)))
}

fn refused_spec() -> Spec {
    Spec::new("guesses/refused logins of the user at a known address", "logins", Some(Bar::Exactly(0.0)))
}

fn login_spec() -> Spec {
    Spec::new("guesses/login at a known address beside guesses over without", "ratio", None)
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let beside = BESIDE.into_iter().flat_map(|(_, name)| [p99_spec(name), share_spec(name)]);
    beside.chain([refused_spec(), login_spec()]).collect()
}

/// Latency of reads, and the share of the thread that hashes.
#[derive(Clone, Copy)]
struct Measured {
    p99_us: f64,
    hashing: f64,
    guesses_per_s: f64,
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let nodes = SecuredNodes::start_filled(context, "guesses")?;
    nodes.security("enable")?;
    let order = [Guesses::None, Guesses::OneAddress, Guesses::ManyAddresses];
    let mut measured: Vec<(Guesses, Measured)> = Vec::new();
    for round in 0..context.plan.rounds {
        for step in 0..order.len() {
            let guesses = order[(round + step) % order.len()];
            measured.push((guesses, measure(context, &nodes, guesses, round as u64)?));
        }
        eprintln!("figures: round {} of {}", round + 1, context.plan.rounds);
    }
    let values = |guesses, field: fn(&Measured) -> f64| {
        let of = measured.iter().filter(|(of, _)| *of == guesses);
        of.map(|(_, measured)| field(measured)).collect::<Vec<f64>>()
    };
    for (guesses, name) in BESIDE {
        let (with, without) = (values(guesses, |it| it.p99_us), values(Guesses::None, |it| it.p99_us));
        let row = p99_spec(name).measured(&ratios(&with, &without));
        let row = row.also("p99_us_without", median(&without)).also("p99_us_with", median(&with));
        report.push(row.also("guesses_per_s", median(&values(guesses, |it| it.guesses_per_s))))?;
        report.push(share_spec(name).measured(&values(guesses, |it| it.hashing)))?;
    }
    logins(context, &nodes, report)?;
    nodes.cluster.stop()?;
    Ok(())
}

fn measure(context: &Context, nodes: &SecuredNodes, guesses: Guesses, round: u64) -> Result<Measured> {
    let load = nodes.steady_reads(RATE, round + 1)?;
    beside(nodes, guesses, |count| {
        sleep(WARM_UP);
        let (before, counted, begin) = (hashing(nodes)?, count.load(Ordering::Relaxed), Instant::now());
        let outcome = nodes.cluster.servers.run(&load, Until::Elapsed(context.plan.window.time))?;
        let wall = begin.elapsed().as_secs_f64();
        Ok(Measured {
            p99_us: percentile_us(&outcome.latencies, 99.0),
            hashing: 100.0 * (hashing(nodes)? - before).as_secs_f64() / wall,
            guesses_per_s: (count.load(Ordering::Relaxed) - counted) as f64 / wall,
        })
    })
}

/// Logins of the user at an address that has had one. Each has a new password, so none is remembered.
fn logins(context: &Context, nodes: &SecuredNodes, report: &mut Report) -> Result<()> {
    let tls = trust(nodes.ca(), false)?;
    let (_, told) = nodes.timed_login(PASSWORD, &tls)?;
    told.map_err(|text| format!("the right password is answered: {text}"))?;
    let (mut millis, mut refused) = ([const { Vec::new() }; 2], 0);
    for (at, guesses) in [Guesses::None, Guesses::AtUser].into_iter().enumerate() {
        beside(nodes, guesses, |_| {
            sleep(WARM_UP);
            for number in 0..context.plan.repeats {
                let password = format!("new-{at}-{number}");
                nodes.security(&format!("alter-user {USER} password={password}"))?;
                let (time, told) = nodes.timed_login(&password, &tls)?;
                refused += u32::from(told.is_err());
                millis[at].push(time.as_secs_f64() * 1e3);
            }
            Ok(())
        })?;
    }
    report.push(refused_spec().valued(refused.into(), format!("of {}", 2 * context.plan.repeats)))?;
    let [without, with] = millis;
    let row = login_spec().measured(&ratios(&with, &without));
    report.push(row.also("ms_without", median(&without)).also("ms_with", median(&with)))
}

/// Measures beside guesses, whose answered ones are counted.
fn beside<T>(
    nodes: &SecuredNodes,
    guesses: Guesses,
    measure: impl FnOnce(&AtomicU64) -> Result<T>,
) -> Result<T> {
    let (tls, to) = (trust(nodes.ca(), true)?, nodes.cluster.servers.addresses[0]);
    let (ended, count) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let threads = if guesses == Guesses::None { 0 } else { GUESSERS };
        for number in 0..threads {
            let host = if guesses == Guesses::OneAddress { 1 } else { number + 1 };
            let guesser =
                Guesser { from: Ipv4Addr::new(127, 1, 0, host).into(), to, tls: &tls, number, guesses };
            let (ended, count) = (&ended, &count);
            scope.spawn(move || {
                sleep(APART * number.into());
                while !ended.load(Ordering::Relaxed) {
                    if guesser.guess(ended, count).is_err() {
                        // The node has put the handshake off.
                        sleep(APART);
                    }
                }
            });
        }
        let measured = measure(&count);
        ended.store(true, Ordering::Relaxed);
        measured
    })
}

struct Guesser<'a> {
    from: IpAddr,
    to: SocketAddr,
    tls: &'a Arc<ClientConfig>,
    number: u8,
    guesses: Guesses,
}

impl Guesser<'_> {
    /// Guesses until the node ends the connection.
    fn guess(&self, ended: &AtomicBool, count: &AtomicU64) -> Result<()> {
        let mut connection = Connection::open(self.from, self.to, Some(self.tls))?;
        while !ended.load(Ordering::Relaxed) {
            let name = match self.guesses {
                Guesses::AtUser => USER.to_owned(),
                _ => format!("guess-{}-{}", self.number, count.load(Ordering::Relaxed)),
            };
            // It is refused as wrong, or put off.
            drop(connection.log_in(&name, "a wrong password")?);
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// CPU of the thread that hashes, so far.
fn hashing(nodes: &SecuredNodes) -> Result<Duration> {
    for thread in std::fs::read_dir(format!("/proc/{}/task", nodes.cluster.pid()))? {
        let thread = thread?.path();
        if std::fs::read_to_string(thread.join("comm"))?.trim() == "annulet-logins" {
            let text = std::fs::read_to_string(thread.join("schedstat"))?;
            let cpu = text.split(' ').next().and_then(|it| it.parse().ok()).ok_or("no schedstat")?;
            return Ok(Duration::from_nanos(cpu));
        }
    }
    Err("the node has no thread annulet-logins".into())
}
