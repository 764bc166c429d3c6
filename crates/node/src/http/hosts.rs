//! The names by which clients may ask a node's HTTP, and how a `Host` header names one of them.
//!
//! A page of another site can have its own name resolve to this node's address (DNS rebinding). Its requests are then
//! of one origin for the browser, and only their `Host` tells that they are not of this node. So a node knows its
//! names: the loopback ones, the addresses that it listens at, and what its operator adds.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest name of a host, as DNS has it.
const NAME_BYTES_MAX: usize = 253;

/// One host: an address or a name, without a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostName {
    /// An address. IPv4 in the clothes of IPv6 is IPv4.
    Address(IpAddr),
    /// A name in small letters, without a dot at its end.
    Name(String),
}

impl HostName {
    /// Reads a host as URLs write it: IPv6 in brackets. `None` if it is malformed.
    pub fn read(text: &[u8]) -> Option<HostName> {
        let text = std::str::from_utf8(text).ok()?;
        if let Some(inner) = text.strip_prefix('[') {
            let address = inner.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?;
            return Some(HostName::address(address.into()));
        }

        // A dot at the end only says that no search list applies.
        let text = text.strip_suffix('.').unwrap_or(text);
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(HostName::address(address.into()));
        }

        let is_label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        (text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label))
            .then(|| HostName::Name(text.to_ascii_lowercase()))
    }

    /// The host of this address.
    pub fn address(address: IpAddr) -> HostName {
        HostName::Address(address.to_canonical())
    }

    /// Whether it is this machine whatever its network says.
    fn is_loopback(&self) -> bool {
        match self {
            HostName::Address(address) => address.is_loopback(),
            HostName::Name(name) => name == "localhost",
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostName::Address(IpAddr::V6(address)) => write!(out, "[{address}]"),
            HostName::Address(address) => write!(out, "{address}"),
            HostName::Name(name) => write!(out, "{name}"),
        }
    }
}

/// The hosts that requests may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames {
    hosts: Vec<HostName>,
    is_loopback: bool,
}

impl HostNames {
    /// Those of a node that serves HTTP at the addresses `listening`, and those that its operator has `named`.
    pub fn new(listening: &[SocketAddr], named: &[HostName]) -> HostNames {
        let addresses = listening.iter().map(|address| HostName::address(address.ip()));
        let is_loopback = listening.iter().all(|address| address.ip().to_canonical().is_loopback());
        HostNames { hosts: addresses.chain(named.iter().cloned()).collect(), is_loopback }
    }

    /// Whether HTTP is served to this machine alone. Then nothing but its names can be meant.
    pub(super) fn is_loopback(&self) -> bool {
        self.is_loopback
    }

    /// Whether a `Host` header names one of them, on a connection to the address `local`.
    pub(super) fn has(&self, host: &[u8], local: Option<IpAddr>) -> bool {
        let Some(host) = without_port(host).and_then(HostName::read) else { return false };
        host.is_loopback() || self.hosts.contains(&host) || local.map(HostName::address) == Some(host)
    }
}

/// The host of a `Host` header, with or without a port; `None` if its port is none.
fn without_port(host: &[u8]) -> Option<&[u8]> {
    let end = match host.first() {
        Some(b'[') => host.iter().position(|&byte| byte == b']')? + 1,
        _ => host.iter().position(|&byte| byte == b':').unwrap_or(host.len()),
    };
    let (host, port) = host.split_at(end);
    match port {
        [] => Some(host),
        [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(digits).ok()?.parse::<u16>().ok().map(|_| host)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(listening: &[&str], named: &[&str]) -> HostNames {
        let listening: Vec<SocketAddr> = listening.iter().map(|text| text.parse().unwrap()).collect();
        let named: Vec<HostName> =
            named.iter().map(|name| HostName::read(name.as_bytes()).unwrap()).collect();
        HostNames::new(&listening, &named)
    }

    #[test]
    fn loopback_names_are_known_with_and_without_a_port() {
        let none = HostNames::default();
        for known in [
            "localhost",
            "LocalHost:8098",
            "localhost.:1",
            "127.0.0.1",
            "127.0.0.1:65535",
            "127.9.8.7:80",
            "127.0.0.1.",
            "[::1]",
            "[::1]:8098",
            "[0:0:0:0:0:0:0:1]:1",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(none.has(known.as_bytes(), None), "{known}");
        }
        for unknown in [
            "",
            ".",
            ":8098",
            "localhost..",
            "localhost:",
            "localhost:x",
            "localhost:65536",
            "localhost:+80",
            "localhost:80:80",
            "localhost.evil.example",
            "evil.localhost",
            "xlocalhost",
            "127.0.0.1.evil.example",
            "127.1",
            "0x7f.0.0.1",
            "2130706433",
            "128.0.0.1",
            "::1",
            "[::1",
            "[::1]x",
            "[::1]8098",
            "[::2]",
            "[::1%25lo]",
            "[localhost]",
            "0.0.0.0",
            "local\u{e9}",
        ] {
            assert!(!none.has(unknown.as_bytes(), None), "{unknown}");
        }
    }

    #[test]
    fn listening_addresses_and_given_names_are_known() {
        let names = names(&["10.0.0.5:8098", "[fd00::5]:8098"], &["Db.Example.", "[fd00::6]", "10.0.0.6"]);
        for known in
            ["10.0.0.5", "10.0.0.5:99", "[fd00::5]:8098", "db.example", "DB.EXAMPLE.:8098", "[FD00::6]"]
        {
            assert!(names.has(known.as_bytes(), None), "{known}");
        }
        for unknown in ["10.0.0.7", "[fd00::7]", "a.db.example", "db.example.com"] {
            assert!(!names.has(unknown.as_bytes(), None), "{unknown}");
        }
        let local = Some("::ffff:10.0.0.7".parse().unwrap());
        assert!(names.has(b"10.0.0.7:8098", local), "the address that a connection came to");
    }

    #[test]
    fn a_node_is_of_this_machine_if_all_its_listeners_are() {
        assert!(names(&["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"], &[]).is_loopback());
        for beyond in ["0.0.0.0:1", "[::]:1", "10.0.0.5:1"] {
            assert!(!names(&["127.0.0.1:1", beyond], &["localhost"]).is_loopback(), "{beyond}");
        }
    }
}
