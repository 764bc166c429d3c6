//! CPU of reads: in plaintext, under TLS, with a login, with limits; by protocol buffers and by HTTP.
//!
//! One node serves all rows. Its mode of security changes in each round, and every other round begins with security on.

use super::connection::{HOME, connect, secure, trust};
use super::node::{LIMITED, PASSWORD, SecuredNodes, USER};
use super::{Context, OBJECTS, checks, differences};
use crate::load::{Load, Op};
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;
use crate::{Result, answer, sys};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bench::Login;
use rustls::ClientConfig;
use std::io::Write;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

/// Connections of a load by protocol buffers.
const CONNECTIONS: usize = 64;

/// Connections of a load by HTTP, a thread each.
const HTTP_CONNECTIONS: u64 = 8;

/// A way of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Tls,
    Tls12,
    Login,
    Limits,
    Http,
    Https,
    HttpsLogin,
}

/// Those with security off, and those with security on.
const OFF: [Way; 5] = [Way::Plain, Way::Tls, Way::Tls12, Way::Http, Way::Https];
const ON: [Way; 3] = [Way::Login, Way::Limits, Way::HttpsLogin];

/// Differences: name, minuend, subtrahend, bar in microseconds.
const ADDED: [(&str, Way, Way, Option<Bar>); 6] = [
    ("requests/TLS adds to a GET", Way::Tls, Way::Plain, Some(Bar::AtMost(6.0))),
    ("requests/TLS 1.2 adds to a GET", Way::Tls12, Way::Plain, Some(Bar::AtMost(6.0))),
    ("requests/security on adds to a GET under TLS", Way::Login, Way::Tls, None),
    ("requests/limits of a user add to a GET", Way::Limits, Way::Login, None),
    ("requests/HTTPS adds to an HTTP GET", Way::Https, Way::Http, None),
    ("requests/cached password adds to an HTTPS GET", Way::HttpsLogin, Way::Https, Some(Bar::AtMost(3.0))),
];

fn way_spec(way: Way) -> Spec {
    let name = match way {
        Way::Plain => "GET, plaintext",
        Way::Tls => "GET, TLS",
        Way::Tls12 => "GET, TLS 1.2",
        Way::Login => "GET, TLS, security on",
        Way::Limits => "GET, TLS, security on, limits",
        Way::Http => "HTTP GET",
        Way::Https => "HTTPS GET",
        Way::HttpsLogin => "HTTPS GET, security on, cached password",
    };
    Spec::new(format!("requests/{name}"), "us", None)
}

fn off_spec() -> Spec {
    Spec::new("requests/checks with security off, part of a GET", "%", Some(Bar::AtMost(0.5)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let added = ADDED.map(|(name, _, _, bar)| Spec::new(name, "us", bar));
    OFF.into_iter().chain(ON).map(way_spec).chain(added).chain([off_spec()]).collect()
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let nodes = SecuredNodes::start_filled(context, "requests")?;
    let mut measured: Vec<(Way, f64)> = Vec::new();
    for round in 0..context.plan.rounds {
        for is_on in [!round.is_multiple_of(2), round.is_multiple_of(2)] {
            nodes.security(if is_on { "enable" } else { "disable" })?;
            for &way in if is_on { &ON[..] } else { &OFF[..] } {
                measured.push((way, measure(context, &nodes, way, round as u64)?));
            }
        }
        eprintln!("figures: round {} of {}", round + 1, context.plan.rounds);
    }
    nodes.cluster.stop()?;

    let values = |way| measured.iter().filter(|(of, _)| *of == way).map(|(_, us)| *us).collect::<Vec<f64>>();
    for way in OFF.into_iter().chain(ON) {
        report.push(way_spec(way).measured(&values(way)))?;
    }
    for (name, with, without, bar) in ADDED {
        let (with, without) = (values(with), values(without));
        let row = Spec::new(name, "us", bar).measured(&differences(&with, &without));
        let ratio = median(&with).zip(median(&without)).map(|(with, without)| with / without);
        report.push(row.also("ratio", ratio))?;
    }
    let plain_us = median(&values(Way::Plain)).ok_or("no round")?;
    let parts: Vec<f64> = checks::off_nanos().iter().map(|ns| 100.0 * ns / (1e3 * plain_us)).collect();
    report.push(off_spec().measured(&parts))
}

/// CPU of the node for a read, in microseconds.
fn measure(context: &Context, nodes: &SecuredNodes, way: Way, seed: u64) -> Result<f64> {
    let login = match way {
        Way::Plain => None,
        Way::Tls => Some(nodes.login(None)?),
        Way::Tls12 => Some(Login { tls: nodes.tls12()?, ..nodes.login(None)? }),
        Way::Login => Some(nodes.login(Some(USER))?),
        Way::Limits => Some(nodes.login(Some(LIMITED))?),
        Way::Http | Way::Https | Way::HttpsLogin => return http(context, nodes, way),
    };
    let load = Load { login, seed: seed + 1, ..Load::new(Op::Get, CONNECTIONS, OBJECTS) };
    Ok(nodes.cluster.servers.cost(&load, context.plan.window)?.server_us)
}

/// The same by HTTP: a thread for each connection, one request after the other.
fn http(context: &Context, nodes: &SecuredNodes, way: Way) -> Result<f64> {
    let tls = trust(nodes.ca(), true)?;
    let credentials = BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let login = match way {
        Way::HttpsLogin => format!("Authorization: Basic {credentials}\r\n"),
        _ => String::new(),
    };
    let servers = &nodes.cluster.servers;
    servers.rest()?;
    let end = Instant::now() + context.plan.window.time;
    let before = sys::process_cpu(nodes.cluster.pid())?;
    let ops = thread::scope(|scope| {
        let threads: Vec<_> = (0..HTTP_CONNECTIONS)
            .map(|number| {
                let (tls, login) = ((way != Way::Http).then_some(&tls), &login);
                scope.spawn(move || read_all(nodes, tls, login, (number, end)))
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| "a reader panicked")?);
        joined.sum::<Result<u64>>()
    })?;
    servers.rest()?;
    let cpu = sys::process_cpu(nodes.cluster.pid())? - before;
    Ok(cpu.as_secs_f64() * 1e6 / ops.max(1) as f64)
}

/// Reads objects on one connection until the end: their number.
fn read_all(
    nodes: &SecuredNodes,
    tls: Option<&Arc<ClientConfig>>,
    login: &str,
    (number, end): (u64, Instant),
) -> Result<u64> {
    let mut stream: Box<dyn super::connection::Bytes> = match tls {
        Some(tls) => Box::new(secure(connect(HOME, nodes.https)?, tls)?),
        None => Box::new(connect(HOME, nodes.cluster.http[0])?),
    };
    let mut ops = 0;
    let mut input = Vec::new();
    while Instant::now() < end {
        let key = base::rng::mix64(number << 32 | ops) % OBJECTS;
        let path = format!("/buckets/figures/keys/{key:012}");
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{login}\r\n");
        stream.write_all(request.as_bytes())?;
        answer::read(&mut *stream, &mut input)?;
        ops += 1;
    }
    Ok(ops)
}
