//! Requests that a page of another site makes its reader's browser send. As in Riak they are refused, so that somebody who
//! reads a page inside a firewall does not write into a store there for it.
//!
//! A browser tells by `Referer` which page it was, or by `Origin: null` that it will not say. Clients that are no browser
//! send neither.

use protocol::http::Head;

/// Whether a request comes from a page that this node has not served.
pub(super) fn is_foreign(head: &Head) -> bool {
    head.headers().any(|(name, value)| match name.len() {
        6 => name.eq_ignore_ascii_case(b"origin") && value == b"null",
        7 => {
            name.eq_ignore_ascii_case(b"referer")
                && !is_of_host(value, head.header("host").unwrap_or_default())
        }
        _ => false,
    })
}

/// Whether a page's address is of this host. Nothing but HTTP is served here.
fn is_of_host(address: &[u8], host: &[u8]) -> bool {
    const SCHEME: &[u8] = b"http://";
    let Some((scheme, rest)) = address.split_at_checked(SCHEME.len()) else { return false };
    let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
    let authority = |text: &[u8]| text.strip_suffix(b":80").unwrap_or(text).to_ascii_lowercase();
    scheme.eq_ignore_ascii_case(SCHEME) && authority(&rest[..end]) == authority(host)
}

#[cfg(test)]
mod tests {
    use super::is_of_host;

    #[test]
    fn pages_of_this_host_alone_are_at_home() {
        for (address, host, is_home) in [
            ("http://h:8098/a?b", "h:8098", true),
            ("HTTP://H/", "h:80", true),
            ("http://h:80#x", "h", true),
            ("http://h:8099/", "h:8098", false),
            ("http://other:8098/", "h:8098", false),
            ("http://h:8098@other/", "h:8098", false),
            ("https://h:8098/", "h:8098", false),
            ("about:blank", "h", false),
            ("", "h", false),
        ] {
            assert_eq!(is_of_host(address.as_bytes(), host.as_bytes()), is_home, "{address}");
        }
    }
}
