//! Values that are compressed for their clients, and those that are not.

use bytes::{Bytes, BytesMut};
use kv::{Found, Response};
use object::{Actor, Dot, Metadata};

use super::{Incoming, Session};

/// The answer to a GET with this `Accept-Encoding` of a value that was stored in this coding.
fn get(method: &str, codings: &str, stored: Option<&'static str>, value: Bytes) -> (String, Vec<u8>) {
    let metadata = Metadata { content_encoding: stored.map(Bytes::from), ..Metadata::default() };
    let put = object::Put { context: None, metadata, value };
    let object = object::update(None, put, Dot::new(Actor(7), 1), object::Policy::AllowMult).unwrap();
    let (head, value) = object.into_parts();
    let mut encoded = Vec::new();
    head.encode(&mut encoded);
    let (mut session, mut out) = (Session::new(), Vec::new());
    let request =
        format!("{method} /buckets/b/keys/k HTTP/1.1\r\nHost: h\r\nAccept-Encoding: {codings}\r\n\r\n");
    let mut input = BytesMut::from(request.as_bytes());
    assert!(matches!(session.receive(0, &mut input, &mut out), Incoming::Request(_)));
    let value = (method == "GET").then_some(value);
    session.respond(Ok(Response::Found(Found { head: encoded.into(), value, newest_only: false })), &mut out);
    let end = out.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
    let body = out.split_off(end);
    (String::from_utf8(out).unwrap(), body)
}

fn text(len: usize) -> Bytes {
    b"all work and no play ".iter().copied().cycle().take(len).collect()
}

#[test]
fn a_value_is_compressed_where_that_is_preferred() {
    let value = text(5000);
    let (head, body) = get("GET", "gzip, deflate, br", None, value.clone());
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("\r\nContent-Encoding: gzip\r\n"), "{head}");
    assert!(head.contains("\r\nVary: Accept-Encoding\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    // RFC 1952: ten bytes of head, then what was deflated, eight bytes of checksum and length.
    assert!(body.len() < 200 && body.starts_with(&[0x1F, 0x8B, 8, 0]), "{}", body.len());
    assert_eq!(body[body.len() - 4..], 5000_u32.to_le_bytes());
    for codings in ["", "identity", "gzip, identity", "gzip;q=0, *", "br"] {
        let (head, body) = get("GET", codings, None, value.clone());
        assert!(!head.contains("Content-Encoding"), "{codings}: {head}");
        assert_eq!(body, value, "{codings}");
    }
}

#[test]
fn what_gains_nothing_or_takes_long_goes_as_it_is() {
    let noise: Bytes = (0..4000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    for value in [text(1000), text((256 << 10) + 1), noise] {
        let (head, body) = get("GET", "gzip", None, value.clone());
        let is_plain = !head.contains("Content-Encoding");
        assert!(is_plain && body == value || body.len() < value.len() && value.len() == 4000, "{head}");
    }
    // A head tells of what is stored.
    let (head, body) = get("HEAD", "gzip", None, text(5000));
    assert!(head.contains("\r\nContent-Length: 5000\r\n") && body.is_empty(), "{head}");
}

#[test]
fn what_is_stored_in_a_coding_leaves_in_it_or_not_at_all() {
    let value = text(5000);
    for codings in ["gzip", "GZIP;q=0.1", "*"] {
        let (head, body) = get("GET", codings, Some("gzip"), value.clone());
        assert!(head.contains("\r\nContent-Encoding: gzip\r\n") && body == value, "{codings}: {head}");
    }
    for codings in ["identity", "br", "gzip;q=0"] {
        let (head, _) = get("GET", codings, Some("gzip"), value.clone());
        assert!(head.starts_with("HTTP/1.1 406"), "{codings}: {head}");
    }
    let (head, _) = get("GET", "identity;q=0", None, value);
    assert!(head.starts_with("HTTP/1.1 406"), "{head}");
}
