//! What slow senders cost the others: clients that send a request a byte at a time.
//!
//! The others are an open loop below the peak, since at the peak the longest latencies are the scheduler's: the same row as a
//! closed loop differed twenty-fold between rounds.

use super::{Context, OBJECTS};
use crate::Result;
use crate::annulet::Annulet;
use crate::generator::open::{OpenLoop, Slice};
use crate::measure::{self, Servers, Window};
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;
use crate::sys::allow_many_files;
use crate::workload::{Http, Keys, Op, Riak, SplitMix, Workload};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 16;

/// Slow senders of each protocol.
const SLOW: usize = 1_000;

/// Each sends a byte so often: all of them a few thousand in a second, and no request comes to its end in a window.
const DRIP: Duration = Duration::from_secs(1);

/// The rate of the others, of the most that they get done alone.
const RATE: f64 = 0.25;

/// The 99th percentile with slow senders, over that without.
const RATIO_MAX: f64 = 1.5;

/// The beginning of a request, and what it goes on with: a long key.
const HTTP_BEGUN: &[u8] = b"GET /buckets/figures/ke";
const HTTP_NEXT: u8 = b'y';
const PB_BEGUN: &[u8] = &[0, 0, 0, 120, 9, 10];

const PB_NEXT: u8 = b'y';

/// A round through all senders is made in so many bursts.
const BURSTS: u32 = 100;

const PROTOCOLS: [&str; 2] = ["pb", "http"];

fn spec(protocol: &str) -> Spec {
    let row = format!("{protocol}/{CONNECTIONS}/get p99, {} slow senders over none", 2 * SLOW);
    Spec::new(row, "ratio", Some(Bar::AtMost(RATIO_MAX)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    PROTOCOLS.map(spec).into()
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    allow_many_files()?;
    let node = Annulet::start(&context.setup("slow")?)?;
    node.load(OBJECTS)?;
    let window = context.plan.window;
    for protocol in PROTOCOLS {
        let rounds = context.plan.rounds;
        let (rate, pairs) = match protocol {
            "pb" => pairs(&node, &node.servers, || Riak::new(Op::Get), window, rounds)?,
            _ => pairs(&node, &node.by_http(), || Http::new(Op::Get), window, rounds)?,
        };
        let values = |of: fn(&Pair) -> f64| median(&pairs.iter().map(of).collect::<Vec<f64>>());
        let row = spec(protocol)
            .measured(&pairs.iter().map(|pair| pair.slowed_us / pair.calm_us).collect::<Vec<f64>>())
            .also("p99_us_without", values(|pair| pair.calm_us))
            .also("p99_us_with", values(|pair| pair.slowed_us))
            .also("offered_per_s", Some(rate));
        report.push(row)?;
    }
    node.stop()?;
    Ok(())
}

/// 99th percentiles, one measured right after the other.
struct Pair {
    calm_us: f64,
    slowed_us: f64,
}

/// The rate that was offered, and a pair for each round. Every other round begins with the slow senders, so that what comes second
/// is not always the same.
fn pairs<W: Workload>(
    node: &Annulet,
    servers: &Servers,
    workload: impl Fn() -> W,
    window: Window,
    rounds: usize,
) -> Result<(f64, Vec<Pair>)> {
    let rate = RATE * measure::cost(servers, CONNECTIONS, &mut workload(), &mut keys(), window)?.ops_per_s;
    let calm = || p99_us(servers, workload(), rate, window);
    let slowed = || {
        let senders = SlowSenders::connect(node)?;
        senders.while_they_drip(calm)
    };
    let pair = |round: usize| {
        if round.is_multiple_of(2) {
            Ok(Pair { calm_us: calm()?, slowed_us: slowed()? })
        } else {
            let slowed_us = slowed()?;
            Ok(Pair { calm_us: calm()?, slowed_us })
        }
    };
    Ok((rate, (0..rounds).map(pair).collect::<Result<Vec<Pair>>>()?))
}

fn keys() -> Keys {
    Keys::Uniform { from: 0, count: OBJECTS, rng: SplitMix::new(1) }
}

fn p99_us<W: Workload>(servers: &Servers, workload: W, rate: f64, window: Window) -> Result<f64> {
    let mut session = servers.connect(CONNECTIONS)?;
    let mut open = OpenLoop::new(&mut session, workload, keys(), window.time);
    open.offer(rate, window.warm_up)?;
    let counted = open.offer(rate, window.time)?.slices;
    let (slices, complaint) = open.finish()?;
    let sum = Slice::sum(&slices[counted]);
    match complaint {
        Some(complaint) => Err(complaint.into()),
        None => Ok(sum.latencies.percentile_us(99.0)),
    }
}

/// Clients of both protocols that have begun a request.
struct SlowSenders(Vec<(TcpStream, u8)>);

impl SlowSenders {
    fn connect(node: &Annulet) -> Result<SlowSenders> {
        let connect = |address: &SocketAddr, begun: &[u8], next: u8| -> Result<(TcpStream, u8)> {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.write_all(begun)?;
            Ok((stream, next))
        };
        let mut senders = Vec::with_capacity(2 * SLOW);
        for _ in 0..SLOW {
            senders.push(connect(&node.servers.addresses[0], PB_BEGUN, PB_NEXT)?);
            senders.push(connect(&node.by_http().addresses[0], HTTP_BEGUN, HTTP_NEXT)?);
        }
        Ok(SlowSenders(senders))
    }

    /// What `measure` says while each sends a byte every [`DRIP`], one after the other.
    fn while_they_drip(mut self, measure: impl Fn() -> Result<f64>) -> Result<f64> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let dripping = scope.spawn(|| self.drip(&over));
            let measured = measure();
            over.store(true, Ordering::Relaxed);
            dripping.join().map_err(|_| "the slow senders panicked")??;
            measured
        })
    }

    fn drip(&mut self, over: &AtomicBool) -> std::io::Result<()> {
        let pause = DRIP / BURSTS;
        let burst = self.0.len().div_ceil(BURSTS as usize);
        let mut due = Instant::now();
        for at in (0..BURSTS as usize).cycle() {
            if over.load(Ordering::Relaxed) {
                break;
            }
            for (stream, next) in self.0.iter_mut().skip(at * burst).take(burst) {
                stream.write_all(&[*next])?;
            }
            due += pause;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }
}
