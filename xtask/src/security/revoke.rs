//! The time until a revoke holds on the open connections of three nodes.
//!
//! A user reads one object in a loop on two connections of each node. The time is from the begin of the command, its
//! start as a process included, to the last read that any of them was granted.

use super::Context;
use super::connection::{Connection, HOME, trust};
use super::node::{PASSWORD, SecuredNodes, USER};
use crate::Result;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;
use protocol::messages::GetReq;
use protocol::{Message, codes};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// Nodes, and connections of each.
const NODES: u16 = 3;
const CONNECTIONS: usize = 2;

/// Time before a revoke, and after it, in which a read that is granted is told.
const AROUND: Duration = Duration::from_millis(1_500);

/// Time for a grant to hold at all connections.
const GRANT_MAX: Duration = Duration::from_secs(10);

const REVOKE: &str = "revoke riak_kv.get on any from ann";
const GRANT: &str = "grant riak_kv.get on any to ann";

fn spec() -> Spec {
    Spec::new(
        "revoke/slowest until it holds on open connections of three nodes",
        "ms",
        Some(Bar::Below(1000.0)),
    )
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![spec()]
}

/// The last answers of a connection.
#[derive(Clone, Copy)]
struct LastAnswers {
    granted: Instant,
    denied: Option<Instant>,
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let nodes = SecuredNodes::start(context, "revoke", NODES)?;
    nodes.security("enable")?;
    let tls = trust(nodes.ca(), true)?;
    let addresses = &nodes.cluster.servers.addresses;
    let ended = AtomicBool::new(false);
    let last: Vec<Mutex<LastAnswers>> = (0..addresses.len() * CONNECTIONS)
        .map(|_| Mutex::new(LastAnswers { granted: Instant::now(), denied: None }))
        .collect();
    let mut millis = Vec::new();
    let mut acknowledged = Vec::new();
    thread::scope(|scope| {
        let readers: Vec<_> = last
            .iter()
            .enumerate()
            .map(|(at, last)| {
                let (address, tls, ended) = (addresses[at % addresses.len()], &tls, &ended);
                scope.spawn(move || read(Connection::open(HOME, address, Some(tls))?, last, ended))
            })
            .collect();
        let repeated = (0..context.plan.repeats).try_for_each(|_| {
            sleep(AROUND);
            let begin = Instant::now();
            nodes.security(REVOKE)?;
            acknowledged.push(begin.elapsed().as_secs_f64() * 1e3);
            sleep(AROUND);
            let now: Vec<LastAnswers> = last.iter().map(look).collect();
            if now.iter().any(|last| last.denied.is_none_or(|denied| denied < begin)) {
                return Err("a connection goes on after a revoke".into());
            }
            let slowest = now.iter().map(|last| last.granted.saturating_duration_since(begin)).max();
            millis.push(slowest.unwrap_or_default().as_secs_f64() * 1e3);
            nodes.security(GRANT)?;
            await_grant(&last)
        });
        ended.store(true, Ordering::Relaxed);
        let read = readers.into_iter().map(|reader| reader.join().map_err(|_| "a reader panicked")?);
        repeated.and(read.collect::<Result<()>>())
    })?;
    nodes.cluster.stop()?;
    let slowest = millis.iter().copied().fold(0.0, f64::max);
    let row = spec().valued(slowest, crate::stats::spread(&millis));
    report.push(row.also("median_ms", median(&millis)).also("acknowledged_ms", median(&acknowledged)))
}

fn look(last: &Mutex<LastAnswers>) -> LastAnswers {
    *last.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits until each connection is granted a read again.
fn await_grant(last: &[Mutex<LastAnswers>]) -> Result<()> {
    let begin = Instant::now();
    while last.iter().any(|last| look(last).granted < begin) {
        if begin.elapsed() > GRANT_MAX {
            return Err("a grant does not hold at all nodes".into());
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Reads in a loop until the end.
fn read(mut connection: Connection, last: &Mutex<LastAnswers>, ended: &AtomicBool) -> Result<()> {
    connection.log_in(USER, PASSWORD)?.map_err(|text| format!("the right password is answered: {text}"))?;
    let get = GetReq { bucket: b"figures"[..].into(), key: b"none"[..].into(), ..GetReq::default() };
    let body = get.encode_to_vec();
    while !ended.load(Ordering::Relaxed) {
        let is_granted = connection.exchange(codes::GET_REQ, &body)?.0 == codes::GET_RESP;
        let now = Instant::now();
        let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if is_granted {
            last.granted = now;
        } else {
            last.denied = Some(now);
        }
        drop(last);
        if !is_granted {
            sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}
