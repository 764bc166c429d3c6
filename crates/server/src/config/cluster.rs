//! The options of a cluster, together.

use super::Config;
use os::Address;
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
    pub address: Address,
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
    pub join: Vec<Address>,
    /// Where this node listens to the others.
    pub listen: Address,
    /// The option that says so.
    pub listen_option: &'static str,
    /// Where the others reach it, if that was given.
    pub address: Option<Address>,
    /// Its address in the list of members, whose host is what a listener on all addresses is reached by.
    pub listed: Option<Address>,
    /// The file of the certificate authority's certificate.
    pub ca: PathBuf,
    /// The file of this node's certificate.
    pub cert: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
}

impl Cluster {
    /// Where the others reach this node, whose listener is bound to `bound`. The list of members only finds others: a
    /// node that listens elsewhere than an old list says is reached where it listens. A name stays a name.
    pub fn reached_at(&self, bound: SocketAddr) -> Address {
        match (&self.address, &self.listed) {
            (Some(address), _) => address.clone(),
            (None, Some(listed)) if bound.ip().is_unspecified() => listed.with_port(bound.port()),
            (None, _) if self.listen.number().is_none() => self.listen.with_port(bound.port()),
            (None, _) => bound.into(),
        }
    }
}

/// Where a node listens to the others, and where they reach it.
struct Place {
    listen: Address,
    address: Option<Address>,
    listed: Option<Address>,
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
        let Place { listen, address, listed } = self.place()?;
        let listen_option = if self.peer_listen.is_some() { "peer_listen" } else { "cluster" };
        let (ca, cert, key) = (file(0)?, file(1)?, file(2)?);
        let (members, join) = (self.cluster.clone(), self.join.clone());
        Ok(Some(Cluster { members, join, listen, listen_option, address, listed, ca, cert, key }))
    }

    fn place(&self) -> Result<Place, (&'static str, String)> {
        if let Some(address) = self.peer_address.as_ref().filter(|it| !it.is_reachable()) {
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
            let listen = self.peer_listen.clone().unwrap_or_else(|| here.address.clone());
            let listed = Some(here.address.clone()).filter(|address| !address.is_unspecified());
            if listen.is_unspecified() && self.peer_address.is_none() && listed.is_none() {
                return Err(("peer_listen", format!("{listen}: the others must know peer_address")));
            }
            return Ok(Place { listen, address: self.peer_address.clone(), listed });
        }
        if !self.cluster.is_empty() {
            return Err(("join", "a node joins a cluster or founds one, as cluster says".to_owned()));
        }
        check_node_name(&self.name).map_err(|what| ("name", what))?;
        let Some(listen) = self.peer_listen.clone() else {
            return Err(("join", "needs peer_listen, where this node listens to the others".to_owned()));
        };
        if listen.is_unspecified() && self.peer_address.is_none() {
            return Err(("peer_listen", format!("{listen}: the others must know peer_address")));
        }
        Ok(Place { listen, address: self.peer_address.clone(), listed: None })
    }
}

/// The longest name of a zone.
const ZONE_BYTES_MAX: usize = 100;

/// More contacts would be tried for longer than anybody waits.
const CONTACTS_MAX: usize = 16;

/// Reads `host:port,...`.
pub(super) fn read_contacts(text: &str) -> Result<Vec<Address>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let contact = |text: &str| text.trim().parse();
    let contacts = text.split(',').map(contact).collect::<Result<Vec<Address>, _>>()?;
    match contacts.len() {
        0..=CONTACTS_MAX => Ok(contacts),
        many => Err(format!("{many} addresses; the most is {CONTACTS_MAX}")),
    }
}

/// The text that [`read_contacts`] reads.
pub(super) fn show_contacts(contacts: &[Address]) -> String {
    contacts.iter().map(Address::to_string).collect::<Vec<_>>().join(",")
}

/// Whether a zone may be called so.
pub(super) fn check_zone(text: &str) -> Result<(), String> {
    if text.len() > ZONE_BYTES_MAX || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(format!("{text:?} is longer than {ZONE_BYTES_MAX} bytes, or has spaces"));
    }
    Ok(())
}

/// Reads `name=host:port,...`.
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
    let mut addresses: Vec<_> = members.iter().map(|member| &member.address).collect();
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
    let refused = || format!("{text:?} is not of the form name@host=host:port");
    let (name, address) = text.split_once('=').ok_or_else(refused)?;
    check_node_name(name)?;
    let address: Address = address.parse().map_err(|why| format!("{text:?}: {why}"))?;
    if address.port() == 0 {
        return Err(format!("{text:?}: the others must know the port"));
    }
    Ok(Member { name: name.to_owned(), address })
}

/// The text that [`read`] reads.
pub(super) fn show(members: &[Member]) -> String {
    members.iter().map(Member::to_string).collect::<Vec<_>>().join(",")
}
