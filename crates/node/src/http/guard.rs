//! Requests that a page of another site makes its reader's browser send. They are refused, so that nobody who reads a
//! page inside a firewall writes into a store there for it.
//!
//! Each head is looked at before its route and its body:
//!
//! 1. `Origin` must be one, of this host. `Sec-Fetch-Site` must be `same-origin` or `none`. `Referer`, which Riak looks
//!    at as well, must be of this host, but for `/` and `/ping`.
//! 2. A request with any of these must name this node in `Host` ([`HostNames`]). So must every request where HTTP is
//!    served to this machine alone. Other requests may have come through a balancer under any name.
//! 3. Whether a browser will show the answer: then what a client has stored is answered as a page without scripts and
//!    without an origin, whose requests are refused by the first rule.
//!
//! Invariant: what clients send that are no browsers is not refused, except for a foreign `Host` on a loopback
//! listener.

use std::net::IpAddr;
use std::sync::Arc;

use protocol::http::{Head, Refused};

use super::hosts::HostNames;

/// The scheme of a connection: the text before the host in an origin or an address, and the port that is not named.
#[derive(Clone, Copy, Debug)]
struct Scheme {
    text: &'static [u8],
    port: &'static [u8],
}

const HTTP: Scheme = Scheme { text: b"http://", port: b":80" };
const HTTPS: Scheme = Scheme { text: b"https://", port: b":443" };

/// The rules for one connection.
#[derive(Debug)]
pub(super) struct Guard {
    hosts: Arc<HostNames>,
    /// The address that the connection came to.
    local: Option<IpAddr>,
    /// The last `Host` that was found to be one of this node's: a connection hardly names another.
    known_host: Vec<u8>,
    scheme: Scheme,
    is_shown: bool,
}

/// Headers that browsers send, and that make a difference.
#[derive(Default)]
struct Marks<'a> {
    host: Option<&'a [u8]>,
    origin: bool,
    site: bool,
    referer: bool,
    shows: bool,
}

impl Guard {
    /// For a connection to the address `local` of a node with these names.
    pub fn new(hosts: Arc<HostNames>, local: Option<IpAddr>) -> Guard {
        Guard { hosts, local, known_host: Vec::new(), scheme: HTTP, is_shown: false }
    }

    /// The connection is under TLS.
    pub fn secure(&mut self) {
        self.scheme = HTTPS;
    }

    /// Looks at the next request.
    ///
    /// # Errors
    /// 403 if it comes from a page of another site, or names another host.
    pub fn admit(&mut self, head: &Head) -> Result<(), Refused> {
        let marks = Marks::of(head);
        self.is_shown = marks.shows;
        let host = marks.host.unwrap_or_default();
        let is_of_page = marks.origin || marks.site || marks.referer;
        if is_of_page && self.scheme.is_foreign(head, host) {
            return Err(Refused::new(403, "the request comes from a page of another site"));
        }

        // HTTP/1.0 has requests without a Host, and no browser that sends one.
        let is_held = is_of_page || (self.hosts.is_loopback() && marks.host.is_some());
        if is_held && !self.knows(host) {
            let text = "the Host header names another host: the option --http-host adds names of this node";
            return Err(Refused::new(403, text));
        }
        Ok(())
    }

    /// Whether a browser will show the answer to it.
    pub fn is_shown(&self) -> bool {
        self.is_shown
    }

    fn knows(&mut self, host: &[u8]) -> bool {
        if !self.known_host.is_empty() && self.known_host == host {
            return true;
        }
        let is_known = self.hosts.has(host, self.local);
        if is_known {
            self.known_host = host.to_vec();
        }
        is_known
    }
}

impl Marks<'_> {
    fn of(head: &Head) -> Marks<'_> {
        let mut marks = Marks::default();
        for (name, value) in head.headers() {
            // Most headers are none of these, and are told apart by their length.
            match name.len() {
                4 if name.eq_ignore_ascii_case(b"host") => marks.host = Some(value),
                6 => marks.origin |= name.eq_ignore_ascii_case(b"origin"),
                7 => marks.referer |= name.eq_ignore_ascii_case(b"referer"),
                // Browsers tell a plain address none of `Sec-Fetch-*`, but this with each page that is opened.
                25 if name.eq_ignore_ascii_case(b"upgrade-insecure-requests") => marks.shows = true,
                11.. if name[..10].eq_ignore_ascii_case(b"sec-fetch-") => {
                    marks.shows = true;
                    marks.site |= name[10..].eq_ignore_ascii_case(b"site");
                }
                _ => {}
            }
        }
        marks
    }
}

impl Scheme {
    /// Whether one of the headers tells of another site, or makes no sense.
    fn is_foreign(self, head: &Head, host: &[u8]) -> bool {
        let mut origins = head.all("origin");
        if let Some(origin) = origins.next()
            && (!self.is_own_origin(origin, host) || origins.next().is_some())
        {
            return true;
        }

        let mut sites = head.all("sec-fetch-site");
        if let Some(site) = sites.next()
            && (!matches!(site, b"same-origin" | b"none") || sites.next().is_some())
        {
            return true;
        }

        let target = head.target();
        let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
        let is_foreign = |referer| !self.is_own_page(referer, host);
        !matches!(path, b"/" | b"/ping") && head.all("referer").any(is_foreign)
    }

    /// Whether an origin is this host's: the scheme and the host with its port, and nothing else.
    fn is_own_origin(self, origin: &[u8], host: &[u8]) -> bool {
        self.authority(origin).is_some_and(|it| self.same_authority(it, host))
    }

    /// Whether a page's address is of this host.
    fn is_own_page(self, address: &[u8], host: &[u8]) -> bool {
        let Some(rest) = self.authority(address) else { return false };
        let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
        self.same_authority(&rest[..end], host)
    }

    /// The text behind the scheme.
    fn authority(self, address: &[u8]) -> Option<&[u8]> {
        let (scheme, rest) = address.split_at_checked(self.text.len())?;
        scheme.eq_ignore_ascii_case(self.text).then_some(rest)
    }

    /// Whether two hosts with their ports are the same.
    fn same_authority(self, one: &[u8], other: &[u8]) -> bool {
        let named = |text: &'_ [u8]| text.strip_suffix(self.port).unwrap_or(text).to_ascii_lowercase();
        named(one) == named(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::hosts::HostName;
    use bytes::BytesMut;
    use protocol::http::{Progress, Reader};
    use std::net::SocketAddr;

    fn guard(listening: &[&str], named: &[&str]) -> Guard {
        let listening: Vec<SocketAddr> = listening.iter().map(|text| text.parse().unwrap()).collect();
        let named: Vec<HostName> =
            named.iter().map(|name| HostName::read(name.as_bytes()).unwrap()).collect();
        Guard::new(Arc::new(HostNames::new(&listening, &named)), None)
    }

    /// The verdict on a request: whether a browser shows the answer; `None` if it is refused.
    fn admitted(guard: &mut Guard, request: &str) -> Option<bool> {
        let mut input = BytesMut::from(request.as_bytes());
        let progress =
            Reader::default().next(&mut input).unwrap_or_else(|error| panic!("{request}: {error}"));
        let Progress::Request(head, _) = progress else { panic!("{request}: {progress:?}") };
        let admitted = guard.admit(&head).map(|()| guard.is_shown());
        admitted.map_err(|refused| assert_eq!(refused.status, 403)).ok()
    }

    /// The verdict on a write to a node that serves a network, asked as `h:8098`.
    fn write(headers: &str) -> Option<bool> {
        let mut guard = guard(&["0.0.0.0:8098"], &["h"]);
        admitted(&mut guard, &format!("POST /buckets/b/keys HTTP/1.1\r\nHost: h:8098\r\n{headers}\r\n"))
    }

    #[test]
    fn only_one_origin_of_this_host_is_at_home() {
        for own in ["http://h:8098", "HTTP://H:8098"] {
            assert_eq!(write(&format!("Origin: {own}\r\n")), Some(false), "{own}");
            assert_eq!(write(&format!("oRIGIN:{own}\r\n")), Some(false), "{own}");
        }
        for foreign in [
            "null",
            "",
            "*",
            "http://other:8098",
            "http://h",
            "http://h:8099",
            "http://h:80",
            "https://h:8098",
            "file://",
            "h:8098",
            "//h:8098",
            "http://",
            "http:h:8098",
            "http://h:8098/",
            "http://h:8098.",
            "http://h.:8098",
            "http://h:8098?",
            "http://h:8098@other",
            "http://user@h:8098",
            "http://h:8098, http://h:8098",
            "http://h:8098 http://other",
            "http://h:08098",
        ] {
            assert_eq!(write(&format!("Origin: {foreign}\r\n")), None, "{foreign}");
        }
        assert_eq!(write("Origin: http://h:8098\r\nOrigin: http://other\r\n"), None);
        assert_eq!(write("Origin: http://other\r\norigin: http://h:8098\r\n"), None);
        assert_eq!(write("Origin: http://h:8098\r\nOrigin: http://h:8098\r\n"), None);
    }

    #[test]
    fn an_origin_has_the_scheme_of_the_connection() {
        let mut guard = guard(&["0.0.0.0:8098"], &["h"]);
        guard.secure();
        let mut write = |host: &str, origin: &str| {
            admitted(
                &mut guard,
                &format!("POST /buckets/b/keys HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\r\n"),
            )
        };
        assert_eq!(write("h:8498", "https://h:8498"), Some(false));
        assert_eq!(write("h:8498", "http://h:8498"), None);
        assert_eq!(write("h", "https://h:443"), Some(false));
        assert_eq!(write("h", "https://h:80"), None);
    }

    #[test]
    fn the_default_port_may_be_named_or_not() {
        let mut guard = guard(&["0.0.0.0:80"], &["h", "[fd00::1]"]);
        for (host, origin, is_home) in [
            ("h", "http://h", true),
            ("h", "http://h:80", true),
            ("h:80", "http://h", true),
            ("[fd00::1]", "http://[fd00::1]", true),
            ("[fd00::1]:8098", "http://[FD00::1]:8098", true),
            ("[fd00::1]:8098", "http://[fd00::1]", false),
            ("[fd00::1]", "http://[fd00::2]", false),
            ("h:8080", "http://h:80", false),
            ("h:8080", "http://h:80:80", false),
        ] {
            let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\r\n");
            assert_eq!(admitted(&mut guard, &request).is_some(), is_home, "{host}, {origin}");
        }
    }

    #[test]
    fn fetches_of_other_sites_are_refused() {
        for (site, is_home) in [
            ("same-origin", true),
            ("none", true),
            ("same-site", false),
            ("cross-site", false),
            ("", false),
            ("Same-Origin", false),
            ("same-origin, none", false),
        ] {
            let admitted = write(&format!("sec-fetch-SITE: {site}\r\n"));
            assert_eq!(admitted, is_home.then_some(true), "{site}");
        }
        assert_eq!(write("Sec-Fetch-Site: none\r\nSec-Fetch-Site: none\r\n"), None);
        assert_eq!(write("Sec-Fetch-Site: none\r\nOrigin: null\r\n"), None);
    }

    #[test]
    fn pages_of_other_hosts_are_refused() {
        for (referer, is_home) in [
            ("http://h:8098/a?b", true),
            ("HTTP://H:8098", true),
            ("http://h:8098#x", true),
            ("http://h:8099/", false),
            ("http://other:8098/", false),
            ("http://h:8098@other/", false),
            ("https://h:8098/", false),
            ("about:blank", false),
            ("", false),
        ] {
            assert_eq!(write(&format!("Referer: {referer}\r\n")).is_some(), is_home, "{referer}");
        }
        assert_eq!(write("Referer: http://h:8098/\r\nReferer: http://other/\r\n"), None);
        let mut guard = guard(&["0.0.0.0:8098"], &["h"]);
        for (target, is_home) in
            [("/", true), ("/ping", true), ("/?x", true), ("/ping/", false), ("/x", false)]
        {
            let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\nReferer: http://other/\r\n\r\n");
            assert_eq!(admitted(&mut guard, &request).is_some(), is_home, "{target}");
        }
    }

    #[test]
    fn a_page_must_name_this_node_however_its_name_resolves() {
        let rebound = "GET /stats HTTP/1.1\r\nHost: evil.example:8098\r\n";
        for marks in [
            "Origin: http://evil.example:8098\r\n",
            "Sec-Fetch-Site: same-origin\r\n",
            "Referer: http://evil.example:8098/\r\n",
        ] {
            for listening in ["0.0.0.0:8098", "127.0.0.1:8098"] {
                let request = format!("{rebound}{marks}\r\n");
                assert_eq!(admitted(&mut guard(&[listening], &[]), &request), None, "{marks}");
                let named = &mut guard(&[listening], &["evil.example"]);
                assert!(admitted(named, &request).is_some(), "{marks}: named by the operator");
            }
        }
        let bare = "GET /stats HTTP/1.0\r\n";
        for (marks, is_home) in
            [("", true), ("Sec-Fetch-Site: none\r\n", false), ("Origin: http://\r\n", false)]
        {
            let admitted = admitted(&mut guard(&["127.0.0.1:1"], &[]), &format!("{bare}{marks}\r\n"));
            assert_eq!(admitted.is_some(), is_home, "{marks}: without a Host");
        }
    }

    #[test]
    fn a_loopback_node_is_asked_by_its_names_alone() {
        let request = |host: &str| format!("GET /ping HTTP/1.1\r\nhost: {host}\r\n\r\n");
        for (host, is_known) in
            [("127.0.0.1:8098", true), ("[::1]:8098", true), ("balancer.example", false), ("", false)]
        {
            let mut at_home = guard(&["127.0.0.1:8098"], &[]);
            assert_eq!(admitted(&mut at_home, &request(host)).is_some(), is_known, "{host}");
            assert_eq!(admitted(&mut guard(&["0.0.0.0:1"], &[]), &request(host)), Some(false), "{host}");
        }
        // A connection is held to it with each request.
        let mut at_home = guard(&["127.0.0.1:8098"], &[]);
        for (host, is_known) in
            [("localhost", true), ("localhost", true), ("x", false), ("localhost:1", true)]
        {
            assert_eq!(admitted(&mut at_home, &request(host)).is_some(), is_known, "{host}");
        }
    }

    #[test]
    fn browsers_are_told_from_other_clients() {
        assert_eq!(write(""), Some(false));
        assert_eq!(write("User-Agent: Mozilla/5.0\r\nAccept: text/html\r\n"), Some(false));
        assert_eq!(write("Sec-Fetch\r\n".replace("\r\n", ": x\r\n").as_str()), Some(false));
        for marks in [
            "Sec-Fetch-Mode: navigate\r\n",
            "sec-fetch-dest: document\r\n",
            "SEC-FETCH-USER: ?1\r\n",
            "Sec-Fetch-Site: none\r\n",
            "Sec-Fetch-Storage-Access: active\r\n",
            "Upgrade-Insecure-Requests: 1\r\n",
        ] {
            assert_eq!(write(marks), Some(true), "{marks}");
        }
    }
}
