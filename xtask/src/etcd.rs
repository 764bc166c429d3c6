//! The peer of consistent types: Debian's etcd-server, three members, each answer synced by a majority.

use crate::Result;
use crate::measure::Servers;
use crate::nodes::free_base;
use experiments::scenario::etcd;
use experiments::scenario::launch::NodeAddresses;
use experiments::scenario::nodes::Nodes;
use std::net::Ipv4Addr;
use std::path::Path;

/// Members: as many as measured nodes.
const MEMBERS: u16 = 3;

/// A running cluster.
pub struct EtcdCluster {
    /// Its processes and their addresses.
    pub servers: Servers,
    _nodes: Nodes,
}

impl EtcdCluster {
    /// Starts one with its folders in `parent`.
    pub fn start(parent: &Path) -> Result<EtcdCluster> {
        etcd::check()?;
        let base = free_base(MEMBERS)?;
        let member = |number| NodeAddresses::of(Ipv4Addr::LOCALHOST.into(), base, number);
        let members: Vec<NodeAddresses> = (1..=MEMBERS).map(member).collect();
        let plans = etcd::plans(&parent.join("etcd"), &members);
        let addresses: Vec<_> = plans.iter().map(|plan| plan.pb).collect();
        let nodes = Nodes::start_all(plans, members.len())?;
        etcd::await_leader(addresses[0])?;
        Ok(EtcdCluster { servers: Servers { pids: nodes.pids(), addresses }, _nodes: nodes })
    }
}
