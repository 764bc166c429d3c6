//! The options of a cluster, together.

use super::Config;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The longest name of a node in a cluster: as hexadecimal digits it must fit a name of a certificate, which has
/// at most 253 bytes.
pub const NODE_NAME_BYTES_MAX: usize = 100;

/// The most nodes of a cluster: each has links to every other.
const MEMBERS_MAX: usize = 256;

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Where other nodes connect to it.
    pub address: SocketAddr,
}

impl fmt::Display for Member {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.name, self.address)
    }
}

/// What a node is told of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Its nodes, by name.
    pub members: Vec<Member>,
    /// Where this node listens to the others.
    pub listen: SocketAddr,
    /// The file of the certificate authority's certificate.
    pub ca: PathBuf,
    /// The file of this node's certificate.
    pub cert: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
}

impl Config {
    /// The cluster; `None` for a node alone. Else the option that is at fault, and what is wrong with it.
    pub fn cluster(&self) -> Result<Option<Cluster>, (&'static str, String)> {
        let files =
            [("peer_ca", &self.peer_ca), ("peer_cert", &self.peer_cert), ("peer_key", &self.peer_key)];
        if self.cluster.is_empty() {
            let listens = self.peer_listen.is_some().then_some("peer_listen");
            let given = files.iter().find(|(_, file)| file.is_some()).map(|(name, _)| *name);
            // A node that is alone by mistake would take writes that the others never see.
            return match listens.or(given) {
                Some(name) => Err((name, "needs cluster, the list of all nodes".to_owned())),
                None => Ok(None),
            };
        }
        let Some(here) = self.cluster.iter().find(|member| member.name == self.name) else {
            return Err(("cluster", format!("this node, {}, is not in it", self.name)));
        };
        let file = |at: usize| {
            let (name, file) = files[at];
            file.clone().ok_or_else(|| (name, "a cluster needs it; see `annulet admin cert`".to_owned()))
        };
        let (ca, cert, key) = (file(0)?, file(1)?, file(2)?);
        let listen = self.peer_listen.unwrap_or(here.address);
        Ok(Some(Cluster { members: self.cluster.clone(), listen, ca, cert, key }))
    }
}

/// Reads `name=addr:port,...`.
pub(super) fn read(text: &str) -> Result<Vec<Member>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut members = text.split(',').map(read_member).collect::<Result<Vec<_>, _>>()?;
    members.sort();
    if members.len() > MEMBERS_MAX {
        return Err(format!("{} nodes; the most is {MEMBERS_MAX}", members.len()));
    }
    if let Some(pair) = members.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(format!("{} is in it twice", pair[0].name));
    }
    let mut addresses: Vec<_> = members.iter().map(|member| member.address).collect();
    addresses.sort_unstable();
    match addresses.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("{} is in it twice", pair[0])),
        None => Ok(members),
    }
}

/// Whether a node of a cluster may be called so.
pub fn check_node_name(name: &str) -> Result<(), String> {
    super::settings::check_name(name)?;
    if name.len() > NODE_NAME_BYTES_MAX {
        return Err(format!("{name:?} is longer than {NODE_NAME_BYTES_MAX} bytes"));
    }
    Ok(())
}

fn read_member(text: &str) -> Result<Member, String> {
    let text = text.trim();
    let refused = || format!("{text:?} is not of the form name@host=address:port");
    let (name, address) = text.split_once('=').ok_or_else(refused)?;
    check_node_name(name)?;
    let address: SocketAddr = address.parse().map_err(|_| refused())?;
    if address.port() == 0 {
        return Err(format!("{text:?}: the others must know the port"));
    }
    Ok(Member { name: name.to_owned(), address })
}

/// The text that [`read`] reads.
pub(super) fn show(members: &[Member]) -> String {
    members.iter().map(Member::to_string).collect::<Vec<_>>().join(",")
}
