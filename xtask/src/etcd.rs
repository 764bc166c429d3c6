//! The peer of consistent types: Debian's etcd-server, three members, each answer synced by a majority.

use crate::load::Load;
use crate::measure::Servers;
use crate::nodes::free_address;
use crate::{Failure, Result, sys};
use experiments::scenario::Plan;
use experiments::scenario::nodes::Nodes;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Members: as many as measured nodes.
const MEMBERS: usize = 3;

/// Time until the members have a leader, at most.
const START_MAX: Duration = Duration::from_secs(30);

/// Time between two looks for it.
const LOOK: Duration = Duration::from_millis(100);

/// A running cluster.
pub struct EtcdCluster {
    /// Its processes and their addresses.
    pub servers: Servers,
    _nodes: Vec<Nodes>,
}

impl EtcdCluster {
    /// Starts one with its folders in `parent`.
    pub fn start(parent: &Path) -> Result<EtcdCluster> {
        sys::ensure_tool("etcd")?;
        let places =
            (0..MEMBERS).map(|_| Ok([free_address()?, free_address()?])).collect::<Result<Vec<_>>>()?;
        let peers: Vec<String> =
            places.iter().enumerate().map(|(at, [_, peer])| format!("m{at}=http://{peer}")).collect();
        let peers = peers.join(",");
        let members = places.iter().enumerate();
        let plans: Vec<Plan> = members.map(|(at, place)| plan(parent, at, place, &peers)).collect();
        // Each listens at once, and serves when it has found the others.
        let start = |plan| Ok::<Nodes, Failure>(Nodes::start_all(vec![plan], 1)?);
        let nodes: Vec<Nodes> = plans.into_iter().map(start).collect::<Result<_>>()?;
        let addresses = places.iter().map(|[client, _]| *client).collect();
        let servers = Servers { pids: nodes.iter().flat_map(Nodes::pids).collect(), addresses };
        await_leader(&servers)?;
        Ok(EtcdCluster { servers, _nodes: nodes })
    }
}

/// Until a write is done.
fn await_leader(servers: &Servers) -> Result<()> {
    let begin = Instant::now();
    while let Err(error) = servers.fill(&Load { driver: "etcd", ..Load::fill(1) }) {
        if begin.elapsed() > START_MAX {
            return Err(error);
        }
        sleep(LOOK);
    }
    Ok(())
}

/// The plan of a member.
fn plan(parent: &Path, at: usize, &[client, peer]: &[SocketAddr; 2], peers: &str) -> Plan {
    let (name, data) = (format!("m{at}"), parent.join(format!("etcd{at}")));
    let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
    let flags = [
        ["--name", &name],
        ["--initial-cluster", peers],
        ["--listen-client-urls", &client_url],
        ["--advertise-client-urls", &client_url],
        ["--listen-peer-urls", &peer_url],
        ["--initial-advertise-peer-urls", &peer_url],
        // A run writes more than the default of 2 GiB.
        ["--quota-backend-bytes", "8589934592"],
    ];
    let mut command: Vec<OsString> = vec!["etcd".into()];
    command.extend(flags.as_flattened().iter().map(|word| word.into()));
    command.extend(["--data-dir".into(), data.join("data").into()]);
    Plan { name, pb: client, http: client, data, program: "etcd".into(), command, groups: Vec::new() }
}
