//! The address of a listener or a server: a host, by name or number, and a port.
//!
//! A name stays a name until a socket is opened, and is then resolved again: the machine behind it may change. A number
//! is resolved without a question to anybody.
//!
//! Invariants: the text is normalised (numbers as the standard library prints them, names in small letters), so that
//! equal addresses have equal texts. It has at most [`ADDRESS_BYTES_MAX`] bytes.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;

/// The longest name of a host. The domain name system allows 253 bytes; with a port, the text must fit the 255 bytes of
/// a text in the metadata log.
const NAME_BYTES_MAX: usize = 249;

/// The longest part of a name, between two dots, as in the domain name system.
const LABEL_BYTES_MAX: usize = 63;

/// The longest address: a name, a colon and five digits.
pub const ADDRESS_BYTES_MAX: usize = NAME_BYTES_MAX + 6;

/// The most addresses of one name that are used: each of them is tried, and takes its time.
pub const NUMBERS_MAX: usize = 16;

/// A host and a port, as `localhost:8087`, `10.0.0.1:8087` or `[::1]:8087`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(Arc<str>);

impl Address {
    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address as a number; `None` if it has a name.
    pub fn number(&self) -> Option<SocketAddr> {
        self.0.parse().ok()
    }

    /// The name of the host; `None` if it is a number.
    pub fn name(&self) -> Option<&str> {
        self.number().is_none().then(|| self.split().0)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.split().1.parse().expect("it was read with a port")
    }

    /// The same host with another port.
    pub fn with_port(&self, port: u16) -> Address {
        Address(format!("{}:{port}", self.split().0).into())
    }

    /// Whether it stands for every address of this machine, which nobody else can connect to.
    pub fn is_unspecified(&self) -> bool {
        self.number().is_some_and(|number| number.ip().is_unspecified())
    }

    /// Whether others can connect there.
    pub fn is_reachable(&self) -> bool {
        self.port() > 0 && !self.is_unspecified()
    }

    /// The numbers of the host now, IP version 4 first: a client that is given a number mostly has one of these. Blocks
    /// for a name, half a minute where no name server answers.
    ///
    /// # Errors
    /// Those of the system's resolver.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        if let Some(number) = self.number() {
            return Ok(vec![number]);
        }
        let mut found: Vec<SocketAddr> = self.as_str().to_socket_addrs()?.collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        found.dedup();
        found.truncate(NUMBERS_MAX);
        match found.is_empty() {
            true => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
            false => Ok(found),
        }
    }

    fn split(&self) -> (&str, &str) {
        self.0.rsplit_once(':').expect("it was read with a port")
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Ok(number) = text.parse::<SocketAddr>() {
            return Ok(number.into());
        }
        read_named(text).map_err(|why| {
            format!("{text:?} is not a host and a port, such as 127.0.0.1:8087 or localhost:8087: {why}")
        })
    }
}

/// Reads an address whose host is no number, or says why that is none.
fn read_named(text: &str) -> Result<Address, String> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err("an IPv6 address stands in brackets, and a port follows them".to_owned());
    }
    let (host, port) = text.rsplit_once(':').ok_or("it has no port")?;
    if host.is_empty() {
        return Err("it has no host".to_owned());
    }
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port: u16 = port.parse().ok().filter(|_| is_number).ok_or("its port is no number up to 65535")?;
    if host.contains([':', '[', ']']) {
        return Err("its host is no IPv6 address in brackets, and no name".to_owned());
    }
    check_name(host)?;
    Ok(Address(format!("{}:{port}", host.to_ascii_lowercase()).into()))
}

/// Whether a host may be called so.
fn check_name(name: &str) -> Result<(), String> {
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("the name of its host has {} bytes, the most is {NAME_BYTES_MAX}", name.len()));
    }
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    if let Some(c) = name.chars().find(|c| !is_plain(c)) {
        return Err(format!(
            "the name of its host has {c:?}; letters, digits, '-', '_' and '.' may stand there"
        ));
    }

    // A dot at the end says that no search list applies.
    let labels = name.strip_suffix('.').unwrap_or(name);
    for label in labels.split('.') {
        match label.len() {
            0 => return Err("the name of its host has an empty part".to_owned()),
            1..=LABEL_BYTES_MAX => {}
            len => {
                return Err(format!(
                    "a part of the name of its host has {len} bytes, the most is {LABEL_BYTES_MAX}"
                ));
            }
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err("a part of the name of its host begins or ends with '-'".to_owned());
        }
    }

    // The system's resolver would read such a name as a number of an older form: 127.1, 2130706433.
    let last = labels.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("its host looks like an IPv4 address, and is none".to_owned());
    }
    Ok(())
}

impl From<SocketAddr> for Address {
    fn from(number: SocketAddr) -> Address {
        Address(number.to_string().into())
    }
}

impl From<(IpAddr, u16)> for Address {
    fn from(number: (IpAddr, u16)) -> Address {
        SocketAddr::from(number).into()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    fn read(text: &str) -> Address {
        text.parse().unwrap_or_else(|why| panic!("{why}"))
    }

    #[test]
    fn hosts_are_names_or_numbers() {
        for text in [
            "127.0.0.1:8087",
            "[::1]:1",
            "localhost:0",
            "node-1.example.org:65535",
            "annulet_1:8099",
            "n1.:1",
            "3com.example:1",
        ] {
            assert_eq!(read(text).to_string(), text);
        }
        assert_eq!(read("N1.Example:08099").as_str(), "n1.example:8099");
        assert_eq!(read("[0:0::1]:1").as_str(), "[::1]:1");
        let name = read("n1:8099");
        assert_eq!((name.port(), name.number(), name.with_port(7).as_str()), (8099, None, "n1:7"));
        assert_eq!((name.name(), read("[::1]:1").name()), (Some("n1"), None));
        assert!(name.is_reachable() && !name.with_port(0).is_reachable());
        let all = read("[::]:1");
        assert!(all.is_unspecified() && !all.is_reachable());
        assert_eq!(all.with_port(2).as_str(), "[::]:2");
    }

    #[test]
    fn refused_addresses_are_told_the_reason() {
        let long = format!("{}n:1", "n.".repeat(125));
        let label = format!("{}.example:1", "n".repeat(64));
        for (text, why) in [
            ("", "it has no port"),
            ("host", "it has no port"),
            ("8087", "it has no port"),
            (":", "it has no host"),
            (":1", "it has no host"),
            ("host:", "its port is no number up to 65535"),
            ("host:65536", "its port is no number up to 65535"),
            ("host:+1", "its port is no number up to 65535"),
            ("host:x", "its port is no number up to 65535"),
            ("127.0.0.1:x", "its port is no number up to 65535"),
            ("1.2.3:4", "its host looks like an IPv4 address, and is none"),
            ("256.0.0.1:4", "its host looks like an IPv4 address, and is none"),
            ("2130706433:4", "its host looks like an IPv4 address, and is none"),
            ("::1", "an IPv6 address stands in brackets, and a port follows them"),
            ("fe80::x:1", "its host is no IPv6 address in brackets, and no name"),
            ("[::x]:1", "its host is no IPv6 address in brackets, and no name"),
            ("http://n1:8098", "its host is no IPv6 address in brackets, and no name"),
            ("a b:1", "the name of its host has ' '; letters, digits, '-', '_' and '.' may stand there"),
            ("a/b:1", "the name of its host has '/'; letters, digits, '-', '_' and '.' may stand there"),
            ("é:1", "the name of its host has 'é'; letters, digits, '-', '_' and '.' may stand there"),
            ("-a:1", "a part of the name of its host begins or ends with '-'"),
            ("a-.b:1", "a part of the name of its host begins or ends with '-'"),
            (".a:1", "the name of its host has an empty part"),
            ("a..b:1", "the name of its host has an empty part"),
            (".:1", "the name of its host has an empty part"),
            (&label, "a part of the name of its host has 64 bytes, the most is 63"),
            (&long, "the name of its host has 251 bytes, the most is 249"),
        ] {
            let refused = text.parse::<Address>().expect_err(text);
            assert!(
                refused.starts_with(&format!("{text:?} is not a host and a port, such as ")),
                "{refused}"
            );
            assert!(refused.ends_with(&format!(": {why}")), "{refused}");
        }
        let longest = format!("{}n:65535", "n.".repeat(124));
        assert_eq!(read(&longest).as_str().len(), ADDRESS_BYTES_MAX);
    }

    #[test]
    fn names_are_resolved() {
        let found = read("localhost:7").resolve().unwrap();
        assert!(found.iter().all(|number| number.ip().is_loopback() && number.port() == 7), "{found:?}");
        assert!(found.is_sorted_by_key(SocketAddr::is_ipv6), "{found:?}");
        assert_eq!(read("[::1]:7").resolve().unwrap(), ["[::1]:7".parse().unwrap()]);
        assert!(read("no-such-host.invalid:7").resolve().is_err());
    }

    #[test]
    fn random_texts_are_read_or_refused_without_panic() {
        let mut rng = SplitMix64::new(11);
        let pieces = [
            "127.0.0.1",
            "[::1]",
            "::1",
            "[",
            "]",
            ":",
            ":8087",
            ":65536",
            ".",
            "-",
            "N1",
            "_",
            "7",
            "%2",
            "é",
            "\0",
            " ",
        ];
        let mut read = 0;
        for _ in 0..20_000 {
            let mut text: String =
                (0..rng.below(4)).map(|_| pieces[rng.below(pieces.len() as u64) as usize]).collect();
            if rng.below(2) == 0 {
                text.push_str(":8087");
            }
            let Ok(address) = text.parse::<Address>() else { continue };
            read += 1;
            assert_eq!(address.as_str().parse(), Ok(address.clone()), "{text:?}");
            assert_eq!(address.with_port(address.port()), address, "{text:?}");
            assert!(address.as_str().len() <= ADDRESS_BYTES_MAX);
            assert_eq!(address.name().is_none(), address.number().is_some(), "{text:?}");
        }
        assert!(read > 100, "{read}");
    }
}
