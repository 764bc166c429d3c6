//! The commands that start the nodes of this machine, one alone or some as a cluster.
//!
//! Each node has ten ports above a base: for protocol buffers, for HTTP, and for other nodes. The folder of a cluster
//! has a folder for each node, and the certificates of all.

use super::nodes::Plan;
use bench::Error;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// In the ten ports of a node: the place of each protocol, as with `annulet dev`.
const PORTS_PER_NODE: u16 = 10;
const PB_PORT: u16 = 7;
const HTTP_PORT: u16 = 8;
const PEER_PORT: u16 = 9;

/// The ports above a base that so many nodes may have.
pub fn ports(nodes: u16) -> std::ops::RangeInclusive<u16> {
    PB_PORT..=PORTS_PER_NODE * nodes + PEER_PORT
}

/// A node's name and addresses.
#[derive(Clone, Debug)]
pub struct NodeAddresses {
    pub(super) name: String,
    pub(super) pb: SocketAddr,
    http: SocketAddr,
    pub(super) peers: SocketAddr,
}

impl NodeAddresses {
    /// Those of a node on `host`, counted from 1.
    pub fn of(host: IpAddr, base_port: u16, number: u16) -> NodeAddresses {
        let address = |port| SocketAddr::new(host, base_port + number * PORTS_PER_NODE + port);
        NodeAddresses {
            name: format!("n{number}@{host}"),
            pb: address(PB_PORT),
            http: address(HTTP_PORT),
            peers: address(PEER_PORT),
        }
    }
}

/// The start of nodes.
#[derive(Debug)]
pub struct Launcher<'a> {
    /// The program `annulet`.
    pub program: &'a Path,
    /// The folder of all nodes.
    pub home: &'a Path,
    /// The nodes; a single one is no cluster.
    pub nodes: &'a [NodeAddresses],
    /// The number of those that found the cluster. The others join it.
    pub founders: usize,
    /// Further options of all nodes, by their names and values.
    pub options: Vec<(String, String)>,
}

impl Launcher<'_> {
    /// Makes the certificates of a cluster.
    ///
    /// # Errors
    /// If the program cannot be run, or fails.
    pub fn make_certificates(&self) -> Result<(), Error> {
        if self.nodes.len() < 2 {
            return Ok(());
        }
        let mut command = Command::new(self.program);
        command.args(["admin", "cert", "--dir"]).arg(self.certificates()).stdout(Stdio::null());
        for node in self.nodes {
            command.args(["--name", &node.name]);
        }
        let status = command.status().map_err(Error::file(self.program))?;
        let failed = || Error::Unusable(format!("{} admin cert: {status}", self.program.display()));
        if status.success() { Ok(()) } else { Err(failed()) }
    }

    /// The plan of a node, by its index.
    pub fn plan(&self, at: usize) -> Plan {
        let node = &self.nodes[at];
        let data = self.home.join(format!("n{}", at + 1));
        let mut command: Vec<OsString> = vec![self.program.into(), "serve".into()];
        let mut flag = |name: &str, value: OsString| command.extend([format!("--{name}").into(), value]);
        flag("name", node.name.clone().into());
        flag("pb-listen", node.pb.to_string().into());
        flag("http-listen", node.http.to_string().into());
        if !node.pb.ip().is_loopback() {
            // The nodes and the load are alone in their network.
            command.push("--insecure".into());
        }
        let mut flag = |name: &str, value: OsString| command.extend([format!("--{name}").into(), value]);
        flag("data", data.clone().into());
        if self.nodes.len() > 1 {
            let certificates = self.certificates();
            let founders = &self.nodes[..self.founders];
            let listed = |it: &NodeAddresses| match at < self.founders {
                true => format!("{}={}", it.name, it.peers),
                false => it.peers.to_string(),
            };
            let founders = founders.iter().map(listed).collect::<Vec<_>>().join(",");
            flag(if at < self.founders { "cluster" } else { "join" }, founders.into());
            flag("peer-listen", node.peers.to_string().into());
            flag("peer-ca", certificates.join("ca.pem").into());
            flag("peer-cert", certificates.join(format!("n{}.pem", at + 1)).into());
            flag("peer-key", certificates.join(format!("n{}.key", at + 1)).into());
            // Nodes share this machine's cores.
            if !self.options.iter().any(|(name, _)| name == "shards") {
                flag("shards", "1".into());
            }
        }
        self.options.iter().for_each(|(name, value)| flag(name, value.into()));
        Plan {
            name: node.name.clone(),
            pb: node.pb,
            http: node.http,
            data,
            program: self.program.to_owned(),
            command,
            groups: Vec::new(),
            ends_by_signal: false,
        }
    }

    fn certificates(&self) -> PathBuf {
        self.home.join("certs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn founders_know_each_other_and_the_rest_joins() {
        let nodes: Vec<_> =
            (1..=3).map(|number| NodeAddresses::of(Ipv4Addr::LOCALHOST.into(), 20_000, number)).collect();
        let options = vec![("read-form".to_owned(), "heads".to_owned())];
        let (program, home) = (Path::new("annulet"), Path::new("/home"));
        let launcher = Launcher { program, home, nodes: &nodes, founders: 2, options };
        let words = |at: usize| {
            let plan = launcher.plan(at);
            plan.command.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let founders = "--cluster n1@127.0.0.1=127.0.0.1:20019,n2@127.0.0.1=127.0.0.1:20029 --peer-listen";
        assert!(words(1).contains(founders), "{}", words(1));
        let joins = "--join 127.0.0.1:20019,127.0.0.1:20029 --peer-listen 127.0.0.1:20039";
        assert!(words(2).contains(joins), "{}", words(2));
        assert!(
            words(2).ends_with("--peer-key /home/certs/n3.key --shards 1 --read-form heads"),
            "{}",
            words(2)
        );
        let alone = Launcher { nodes: &nodes[..1], founders: 1, options: Vec::new(), ..launcher };
        let command = alone.plan(0).command;
        assert_eq!(command.len(), 10, "a node alone has a name, two addresses and a folder: {command:?}");
    }
}
