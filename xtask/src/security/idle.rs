//! Memory of idle connections under TLS, beside the same in plaintext.

use super::Context;
use super::connection::{Connection, HOME, trust};
use super::node::SecuredNodes;
use crate::Result;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use protocol::codes;
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

/// Time after which a connection has given back its buffers, and more.
const REST: Duration = Duration::from_secs(4);

/// Connections before those that count: they fault in memory that is there once.
const FIRST: usize = 200;

fn tls_spec() -> Spec {
    Spec::new("idle/connection under TLS", "KiB", Some(Bar::AtMost(32.0)))
}

fn plain_spec() -> Spec {
    Spec::new("idle/connection in plaintext", "KiB", None)
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![plain_spec(), tls_spec()]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    for (spec, is_tls) in [(plain_spec(), false), (tls_spec(), true)] {
        let kib = measure(context, is_tls)?;
        report.push(spec.valued(kib, format!("{} connections", context.plan.connections)))?;
    }
    Ok(())
}

/// Resident memory of the node for an idle connection, in KiB.
fn measure(context: &Context, is_tls: bool) -> Result<f64> {
    let nodes = SecuredNodes::start(context, if is_tls { "idle-tls" } else { "idle-plain" }, 1)?;
    let tls = is_tls.then(|| trust(nodes.ca(), false)).transpose()?;
    let open = |count: usize| -> Result<Vec<TcpStream>> {
        (0..count)
            .map(|_| {
                let address = nodes.cluster.servers.addresses[0];
                let mut connection = Connection::open(HOME, address, tls.as_ref())?;
                connection.ask(codes::PING_REQ, &[], codes::PING_RESP)?;
                Ok(connection.into_socket())
            })
            .collect()
    };
    let first = open(FIRST)?;
    sleep(REST);
    let before = resident_kib(nodes.cluster.pid())?;
    let idle = open(context.plan.connections - FIRST)?;
    sleep(REST);
    let kib = (resident_kib(nodes.cluster.pid())? - before) / idle.len() as f64;
    drop((first, idle));
    nodes.cluster.stop()?;
    Ok(kib)
}

fn resident_kib(pid: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
