//! Logins of requests: each request proves its user by itself, with Basic credentials or by the certificate of its
//! connection.
//!
//! Invariant: nothing of a body is read behind a head that nobody may send.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use protocol::http::{Framing, Head, Refused};
use security::{Access, Denied, Mode};
use std::borrow::Cow;
use std::fmt;
use zeroize::Zeroizing;

use super::fault::Fault;
use super::route::{Route, route};

/// Riak's sentence for requests in plaintext.
const PLAINTEXT: &str =
    "Security is enabled and Riak does not accept credentials over HTTP. Try HTTPS instead.";

/// The login that a request offers. `Debug` does not show its password, whose memory is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Claim {
    /// The user's name.
    pub user: Vec<u8>,
    /// The password; `None` if the certificate of the connection names the user.
    pub password: Option<Zeroizing<Vec<u8>>>,
    /// The address in a header, which the server believes under a planted bug alone.
    #[cfg(feature = "planted")]
    pub forwarded_for: Option<std::net::IpAddr>,
}

impl Claim {
    fn new(user: &[u8], password: Option<&[u8]>) -> Claim {
        Claim {
            user: user.to_vec(),
            password: password.map(|password| password.to_vec().into()),
            #[cfg(feature = "planted")]
            forwarded_for: None,
        }
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("user", &String::from_utf8_lossy(&self.user)).finish_non_exhaustive()
    }
}

/// The login that a head offers; none on a connection in plaintext or by the local socket, and with security off.
/// `certified` is the name in the certificate of the connection.
///
/// # Errors
/// 426 in plaintext, and 401 for a body without a login, where security is on.
pub(super) fn claim(
    head: &Head,
    access: &mut Access,
    certified: Option<&[u8]>,
) -> Result<Option<Claim>, Refused> {
    if access.mode() == Mode::Off || access.is_local() {
        return Ok(None);
    }
    access.log_out();
    let claim = if access.is_secure() { offered(head, certified) } else { None };
    #[cfg(feature = "planted")]
    let claim = claim.map(|claim| Claim { forwarded_for: forwarded_for(head), ..claim });
    let has_body = head.framing != Framing::Length(0);
    match access.admits() {
        Err(denied @ Denied::Plaintext) if !needs_nothing(head) => Err(refused(&denied)),
        Err(denied) if claim.is_none() && has_body && !needs_nothing(head) => Err(refused(&denied)),
        Ok(()) | Err(_) => Ok(claim),
    }
}

/// Whether a request needs no login: a balancer or a supervisor has none.
fn needs_nothing(head: &Head) -> bool {
    let target = head.target();
    let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
    matches!(route(&target.slice_ref(path)), Ok(Some(Route::Ready | Route::Live)))
}

/// The credentials of the only `Authorization`, or the name of the certificate if there is none.
fn offered(head: &Head, certified: Option<&[u8]>) -> Option<Claim> {
    let mut values = head.all("authorization");
    match (values.next(), values.next()) {
        (Some(value), None) => basic(value),
        (None, _) => certified.map(|name| Claim::new(name, None)),
        (Some(_), Some(_)) => None,
    }
}

/// Credentials of the scheme `Basic`. A name has no colon, so all behind the first one is the password.
fn basic(value: &[u8]) -> Option<Claim> {
    let (scheme, encoded) = value.split_at_checked(b"Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let text = Zeroizing::new(BASE64_STANDARD.decode(encoded.trim_ascii()).ok()?);
    let colon = text.iter().position(|&byte| byte == b':')?;
    Some(Claim::new(&text[..colon], Some(&text[colon + 1..])))
}

/// The address that a proxy, or anybody, has put into a header.
#[cfg(feature = "planted")]
fn forwarded_for(head: &Head) -> Option<std::net::IpAddr> {
    std::str::from_utf8(head.all("x-forwarded-for").next()?).ok()?.parse().ok()
}

/// The same refusal for a connection that ends with it.
pub(super) fn refused(denied: &Denied) -> Refused {
    let (status, text) = answer(denied);
    Refused::new(status, text)
}

impl From<Denied> for Fault {
    fn from(denied: Denied) -> Fault {
        let (status, text) = answer(&denied);
        Fault::new(status, text)
    }
}

fn answer(denied: &Denied) -> (u16, Cow<'static, str>) {
    match denied {
        Denied::Plaintext => (426, PLAINTEXT.into()),
        Denied::NoLogin => (401, "Unauthorized".into()),
        Denied::Missing(_) | Denied::NotLocal => (403, denied.to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Option<(String, String)> {
        let claim = basic(value.as_bytes())?;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Some((text(claim.user), text(claim.password.unwrap().to_vec())))
    }

    #[test]
    fn a_password_may_have_colons_or_nothing() {
        let encoded = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        let some = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(read(&encoded("alice:a:b:")), some("alice", "a:b:"));
        assert_eq!(read(&encoded("alice:")), some("alice", ""));
        assert_eq!(read(&encoded("alice")), None);
        assert_eq!(read(&encoded("a:b").replace("Basic", "bASIC")), some("a", "b"));
        assert_eq!(read("Basic"), None);
        assert_eq!(read("Basic \u{e9}"), None);
        assert_eq!(read("Bearer YTpi"), None);
    }
}
