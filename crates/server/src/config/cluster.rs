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

/// The longest name of a zone.
const ZONE_BYTES_MAX: usize = 100;

/// More contacts would be tried for longer than anybody waits.
const CONTACTS_MAX: usize = 16;

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

/// An option at fault, and the description of the fault.
type Fault = (&'static str, String);

impl Config {
    /// The cluster; `None` for a node alone. Else the option that is at fault, and what is wrong with it.
    pub fn cluster(&self) -> Result<Option<Cluster>, Fault> {
        if self.cluster.is_empty() && self.join.is_empty() {
            return self.check_alone().map(|()| None);
        }
        if let Some(address) = self.peer_address.as_ref().filter(|it| !it.is_reachable()) {
            return Err(("peer_address", format!("{address}: other nodes cannot connect to this address")));
        }
        let here = match self.join.is_empty() {
            true => Some(self.founder()?),
            false => self.check_newcomer().map(|()| None)?,
        };

        let missing = || {
            ("join", "needs peer_listen, the address at which this node listens to other nodes".to_owned())
        };
        let listen = self.peer_listen.as_ref().or(here).ok_or_else(missing)?.clone();
        let listen_option = if self.peer_listen.is_some() { "peer_listen" } else { "cluster" };
        let listed = here.filter(|address| !address.is_unspecified()).cloned();
        if listen.is_unspecified() && self.peer_address.is_none() && listed.is_none() {
            return Err((
                "peer_listen",
                format!("{listen}: needs peer_address, the address at which other nodes reach this one"),
            ));
        }

        let [ca, cert, key] = self.peer_files().map(|(name, file)| {
            file.clone().ok_or_else(|| (name, "a cluster needs it; see `annulet admin cert`".to_owned()))
        });
        let (mut members, join, address) =
            (self.cluster.clone(), self.join.clone(), self.peer_address.clone());
        members.sort();
        let (ca, cert, key) = (ca?, cert?, key?);
        Ok(Some(Cluster { members, join, listen, listen_option, address, listed, ca, cert, key }))
    }

    fn peer_files(&self) -> [(&'static str, &Option<PathBuf>); 3] {
        [("peer_ca", &self.peer_ca), ("peer_cert", &self.peer_cert), ("peer_key", &self.peer_key)]
    }

    /// A node that is alone by mistake would take writes that the others never see.
    fn check_alone(&self) -> Result<(), Fault> {
        let listens = self.peer_listen.is_some().then_some("peer_listen");
        let given = || self.peer_files().into_iter().find_map(|(name, file)| file.is_some().then_some(name));
        let what = "needs the option cluster (the founding nodes) or join (the address of a member)";
        listens.or_else(given).map_or(Ok(()), |name| Err((name, what.to_owned())))
    }

    /// The address in the list of this node, which founds its cluster.
    fn founder(&self) -> Result<&Address, Fault> {
        if self.cluster.len() > MEMBERS_MAX {
            return Err(("cluster", format!("{} nodes; the most is {MEMBERS_MAX}", self.cluster.len())));
        }
        let names = self.cluster.iter().map(|member| member.name.clone()).collect();
        let addresses = self.cluster.iter().map(|member| member.address.to_string()).collect();
        if let Some(twice) = duplicate(names).or_else(|| duplicate(addresses)) {
            return Err(("cluster", format!("{twice} is in the list twice")));
        }
        let here = self.cluster.iter().find(|member| member.name == self.name);
        let here =
            here.ok_or_else(|| ("cluster", format!("this node, {}, is not in the list", self.name)))?;
        if self.cluster.len() > 1 && !self.zone.is_empty() {
            let what = "only a node that joins, or that founds a cluster alone, takes a zone";
            return Err(("zone", what.to_owned()));
        }
        Ok(&here.address)
    }

    /// A node that joins stands in no list.
    fn check_newcomer(&self) -> Result<(), Fault> {
        if !self.cluster.is_empty() {
            return Err((
                "join",
                "give either join or cluster: a node joins a cluster or founds one".to_owned(),
            ));
        }
        if self.join.len() > CONTACTS_MAX {
            return Err(("join", format!("{} addresses; the most is {CONTACTS_MAX}", self.join.len())));
        }
        check_node_name(&self.name).map_err(|what| ("name", what))
    }
}

fn duplicate(mut texts: Vec<String>) -> Option<String> {
    texts.sort();
    texts.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone())
}

/// Whether a zone may be called so.
pub(super) fn check_zone(text: &str) -> Result<(), String> {
    if text.len() > ZONE_BYTES_MAX || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(format!("{text:?} is longer than {ZONE_BYTES_MAX} bytes, or has spaces"));
    }
    Ok(())
}

/// A node's name; it may not have what stands between names in a list.
pub(super) fn check_name(text: &str) -> Result<(), String> {
    let sound = text.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty());
    if !sound || text.contains(|c: char| c.is_whitespace() || c == ',' || c == '=') {
        return Err(format!("{text:?} is not of the form name@host"));
    }
    Ok(())
}

/// Whether a node of a cluster may be called so.
pub fn check_node_name(name: &str) -> Result<(), String> {
    check_name(name)?;
    if name.len() > NODE_NAME_BYTES_MAX {
        return Err(format!("{name:?} is longer than {NODE_NAME_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// Reads `name@host=host:port`.
pub(super) fn read_member(text: &str) -> Result<Member, String> {
    let refused = || format!("{text:?} is not of the form name@host=host:port");
    let (name, address) = text.split_once('=').ok_or_else(refused)?;
    check_node_name(name)?;
    let address: Address = address.parse().map_err(|why| format!("{text:?}: {why}"))?;
    if address.port() == 0 {
        return Err(format!("{text:?}: other nodes need the port"));
    }
    Ok(Member { name: name.to_owned(), address })
}
