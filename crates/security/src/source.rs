//! Sources: the addresses from which a user may log in, and how.
//!
//! A peer with an IPv4-mapped IPv6 address is an IPv4 peer, so a network of IPv4 addresses has it. A network of IPv6
//! addresses has no IPv4 peer, and a network of IPv4 addresses no other IPv6 peer, unlike `0.0.0.0/0` in Riak.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::name::Name;
use crate::slot::Options;

/// Bits in front of the IPv4 address in an IPv4-mapped one.
const MAPPED_BITS: u8 = 96;

/// The users that a source is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceUser {
    /// One user.
    User(Name),
    /// All users.
    All,
}

/// How a user proves to be the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Not at all.
    Trust,
    /// By a password.
    Password,
    /// By a client certificate with the user's name.
    Certificate,
}

impl Method {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Method::Trust => "trust",
            Method::Password => "password",
            Method::Certificate => "certificate",
        }
    }

    /// The method of a name.
    pub fn named(name: &str) -> Option<Method> {
        [Method::Trust, Method::Password, Method::Certificate]
            .into_iter()
            .find(|method| method.name() == name)
    }
}

/// A network from which users may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The users.
    pub user: SourceUser,
    /// The network, as [`normal_net`] has it.
    pub net: IpNet,
    /// How they log in.
    pub method: Method,
    /// Other options; kept, and without meaning here.
    pub options: Options,
}

/// The address of a peer, an IPv4-mapped one as IPv4.
pub fn normal_address(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// A network without bits behind its prefix, an IPv4-mapped one as IPv4: two that are equal are the same.
pub fn normal_net(net: IpNet) -> IpNet {
    let net = net.trunc();
    let IpNet::V6(v6) = net else { return net };
    let mapped = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(MAPPED_BITS));
    let v4 = mapped.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok());
    v4.map_or(net, IpNet::V4)
}

/// Whether a peer is in a network; both are normal.
pub(crate) fn covers(net: &IpNet, address: IpAddr) -> bool {
    if base::planted!(V4NetMatchesMapped) {
        return covers_as_mapped(net, address);
    }
    net.contains(&address)
}

/// The bug that makes IPv6 peers match `0.0.0.0/0`: an IPv4 network is mapped, and keeps its prefix.
fn covers_as_mapped(net: &IpNet, address: IpAddr) -> bool {
    let mapped = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let address: Ipv6Addr = mapped(address);
    Ipv6Net::new(mapped(net.addr()), net.prefix_len()).is_ok_and(|net| net.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(net: &str, address: &str) -> bool {
        covers(&normal_net(net.parse().unwrap()), normal_address(address.parse().unwrap()))
    }

    #[test]
    fn networks_are_normal() {
        for (net, normal) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("::ffff:10.1.2.3/104", "10.0.0.0/8"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::ffff:10.1.2.3/95", "::fffe:0:0/95"),
            ("2001:db8::1/32", "2001:db8::/32"),
        ] {
            assert_eq!(normal_net(net.parse().unwrap()), normal.parse::<IpNet>().unwrap(), "{net}");
        }
    }

    #[test]
    fn a_mapped_peer_is_an_ipv4_peer_and_no_other_is() {
        assert!(has("10.0.0.0/8", "10.9.9.9") && has("10.0.0.0/8", "::ffff:10.9.9.9"));
        assert!(has("::ffff:10.0.0.0/104", "10.9.9.9"));
        assert!(!has("10.0.0.0/8", "11.0.0.1") && !has("10.0.0.0/8", "::ffff:11.0.0.1"));
        assert!(has("0.0.0.0/0", "::ffff:1.2.3.4") && !has("0.0.0.0/0", "2001:db8::1"));
        assert!(has("::/0", "2001:db8::1") && !has("::/0", "1.2.3.4") && !has("::/0", "::ffff:1.2.3.4"));
    }
}
