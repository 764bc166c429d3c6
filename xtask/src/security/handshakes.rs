//! CPU of new connections: in plaintext, with a full handshake, with a resumed one, by TLS 1.2, and with a certificate
//! of the client, which is verified by a node of its own.

use super::connection::{Connection, HOME, trust};
use super::node::SecuredNodes;
use super::{Context, differences};
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;
use crate::{Result, sys};
use protocol::codes;
use rustls::ClientConfig;
use std::sync::Arc;

fn plain_spec() -> Spec {
    Spec::new("handshakes/connection in plaintext", "us", None)
}

fn full_spec() -> Spec {
    Spec::new("handshakes/full handshake adds", "us", Some(Bar::AtMost(1500.0)))
}

fn resumed_spec() -> Spec {
    Spec::new("handshakes/resumed handshake adds", "us", Some(Bar::AtMost(300.0)))
}

fn tls12_spec() -> Spec {
    Spec::new("handshakes/full handshake of TLS 1.2 adds", "us", Some(Bar::AtMost(1500.0)))
}

fn certified_spec() -> Spec {
    Spec::new("handshakes/handshake with a client certificate adds", "us", None)
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![plain_spec(), full_spec(), resumed_spec(), tls12_spec(), certified_spec()]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let nodes = SecuredNodes::start(context, "handshakes", 1)?;
    let verifying = SecuredNodes::start_as(context, "certificates", 1, true)?;
    let (full, resumed) = (trust(nodes.ca(), false)?, trust(nodes.ca(), true)?);
    let (tls12, certified) = (nodes.tls12()?, verifying.certified()?);
    // The session that the first one resumes.
    connect(&nodes, Some(&resumed))?;
    let ways = [
        (&nodes, None),
        (&nodes, Some(&full)),
        (&nodes, Some(&resumed)),
        (&nodes, Some(&tls12)),
        (&verifying, Some(&certified)),
    ];
    let mut values = ways.map(|_| Vec::new());
    for _ in 0..context.plan.rounds {
        for (values, (nodes, tls)) in values.iter_mut().zip(ways) {
            values.push(measure(context, nodes, tls, tls.is_some_and(|tls| Arc::ptr_eq(tls, &resumed)))?);
        }
    }
    nodes.cluster.stop()?;
    verifying.cluster.stop()?;

    let [plain, added @ ..] = values;
    report.push(plain_spec().measured(&plain))?;
    let specs = [full_spec(), resumed_spec(), tls12_spec(), certified_spec()];
    for (spec, with) in specs.into_iter().zip(added) {
        let row = spec.measured(&differences(&with, &plain));
        report.push(row.also("with_its_connection_us", median(&with)))?;
    }
    Ok(())
}

/// CPU of the node for a connection with one request, in microseconds.
fn measure(
    context: &Context,
    nodes: &SecuredNodes,
    tls: Option<&Arc<ClientConfig>>,
    is_resumed: bool,
) -> Result<f64> {
    nodes.cluster.servers.rest()?;
    let before = sys::process_cpu(nodes.cluster.pid())?;
    for _ in 0..context.plan.handshakes {
        if connect(nodes, tls)? != is_resumed {
            return Err("the handshake is of another kind".into());
        }
    }
    let cpu = sys::process_cpu(nodes.cluster.pid())? - before;
    Ok(cpu.as_secs_f64() * 1e6 / f64::from(context.plan.handshakes))
}

/// Opens a connection, asks once, and closes it; whether a session was resumed.
fn connect(nodes: &SecuredNodes, tls: Option<&Arc<ClientConfig>>) -> Result<bool> {
    let mut connection = Connection::open(HOME, nodes.cluster.servers.addresses[0], tls)?;
    connection.ask(codes::PING_REQ, &[], codes::PING_RESP)?;
    Ok(connection.is_resumed())
}
