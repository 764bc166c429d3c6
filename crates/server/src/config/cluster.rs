//! The options of a cluster, together.

use super::Config;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
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
    /// The nodes that found it, by name; empty if this one joins.
    pub members: Vec<Member>,
    /// Where members listen, one of which this node asks to be admitted; empty if it founds.
    pub join: Vec<SocketAddr>,
    /// Where this node listens to the others.
    pub listen: SocketAddr,
    /// Where the others reach it, if that was given.
    pub address: Option<SocketAddr>,
    /// Its host in the list of members: what a listener on all addresses is reached by.
    pub host: Option<IpAddr>,
    /// The file of the certificate authority's certificate.
    pub ca: PathBuf,
    /// The file of this node's certificate.
    pub cert: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
}

impl Cluster {
    /// Where the others reach this node, whose listener is bound to `bound`. The list of members only finds others: a
    /// node that listens elsewhere than an old list says is reached where it listens.
    pub fn reached_at(&self, bound: SocketAddr) -> SocketAddr {
        match (self.address, self.host) {
            (Some(address), _) => address,
            (None, Some(host)) if bound.ip().is_unspecified() => SocketAddr::new(host, bound.port()),
            (None, _) => bound,
        }
    }
}

/// Where a node listens to the others, and where they reach it.
struct Place {
    listen: SocketAddr,
    address: Option<SocketAddr>,
    host: Option<IpAddr>,
}

impl Config {
    /// The cluster; `None` for a node alone. Else the option that is at fault, and what is wrong with it.
    pub fn cluster(&self) -> Result<Option<Cluster>, (&'static str, String)> {
        let files =
            [("peer_ca", &self.peer_ca), ("peer_cert", &self.peer_cert), ("peer_key", &self.peer_key)];
        if self.cluster.is_empty() && self.join.is_empty() {
            let listens = self.peer_listen.is_some().then_some("peer_listen");
            let given = files.iter().find(|(_, file)| file.is_some()).map(|(name, _)| *name);
            // A node that is alone by mistake would take writes that the others never see.
            return match listens.or(given) {
                Some(name) => {
                    let what =
                        "needs cluster, the list of those who found it, or join, where a member listens";
                    Err((name, what.to_owned()))
                }
                None => Ok(None),
            };
        }
        let file = |at: usize| {
            let (name, file) = files[at];
            file.clone().ok_or_else(|| (name, "a cluster needs it; see `annulet admin cert`".to_owned()))
        };
        let Place { listen, address, host } = self.place()?;
        let (ca, cert, key) = (file(0)?, file(1)?, file(2)?);
        let (members, join) = (self.cluster.clone(), self.join.clone());
        Ok(Some(Cluster { members, join, listen, address, host, ca, cert, key }))
    }

    fn place(&self) -> Result<Place, (&'static str, String)> {
        if let Some(address) = self.peer_address.filter(|it| it.port() == 0 || it.ip().is_unspecified()) {
            return Err(("peer_address", format!("{address}: others cannot connect to it")));
        }

        if self.join.is_empty() {
            let Some(here) = self.cluster.iter().find(|member| member.name == self.name) else {
                return Err(("cluster", format!("this node, {}, is not in it", self.name)));
            };
            if self.cluster.len() > 1 && !self.zone.is_empty() {
                return Err((
                    "zone",
                    "only a node that joins, or founds a cluster alone, says its zone".to_owned(),
                ));
            }
            let listen = self.peer_listen.unwrap_or(here.address);
            let host = Some(here.address.ip()).filter(|host| !host.is_unspecified());
            if listen.ip().is_unspecified() && self.peer_address.is_none() && host.is_none() {
                return Err(("peer_listen", format!("{listen}: the others must know peer_address")));
            }
            return Ok(Place { listen, address: self.peer_address, host });
        }
        if !self.cluster.is_empty() {
            return Err(("join", "a node joins a cluster or founds one, as cluster says".to_owned()));
        }
        check_node_name(&self.name).map_err(|what| ("name", what))?;
        let Some(listen) = self.peer_listen else {
            return Err(("join", "needs peer_listen, where this node listens to the others".to_owned()));
        };
        if listen.ip().is_unspecified() && self.peer_address.is_none() {
            return Err(("peer_listen", format!("{listen}: the others must know peer_address")));
        }
        Ok(Place { listen, address: self.peer_address, host: None })
    }
}

/// The longest name of a zone.
const ZONE_BYTES_MAX: usize = 100;

/// More contacts would be tried for longer than anybody waits.
const CONTACTS_MAX: usize = 16;

/// Reads `addr:port,...`.
pub(super) fn read_contacts(text: &str) -> Result<Vec<SocketAddr>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let contact =
        |text: &str| text.trim().parse().map_err(|_| format!("{text:?} is not an address and a port"));
    let contacts = text.split(',').map(contact).collect::<Result<Vec<SocketAddr>, _>>()?;
    match contacts.len() {
        0..=CONTACTS_MAX => Ok(contacts),
        many => Err(format!("{many} addresses; the most is {CONTACTS_MAX}")),
    }
}

/// The text that [`read_contacts`] reads.
pub(super) fn show_contacts(contacts: &[SocketAddr]) -> String {
    contacts.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
}

/// Whether a zone may be called so.
pub(super) fn check_zone(text: &str) -> Result<(), String> {
    if text.len() > ZONE_BYTES_MAX || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(format!("{text:?} is longer than {ZONE_BYTES_MAX} bytes, or has spaces"));
    }
    Ok(())
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
