//! Bodies that a node has memory for, and bodies that it has none for.

use super::session::{Incoming, Session};
use base::Budget;
use bytes::{Buf, BytesMut};
use protocol::http::Waits;

const BODY: usize = 100_000;

fn head(length: usize) -> String {
    format!(
        "PUT /buckets/b/keys/k HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n"
    )
}

#[test]
fn a_body_holds_memory_as_soon_as_its_length_is_known() {
    let budget = Budget::new(2 * BODY);
    let (mut session, mut out) = (Session::new(), Vec::new());
    let mut input = BytesMut::from(head(BODY).as_bytes());
    assert!(matches!(session.receive(0, &mut input, &mut out), Incoming::Wait(Waits::Body)));
    assert!(session.holds_memory(input.len(), |bytes| budget.reserve(bytes)));
    assert_eq!(budget.used(), BODY);
    input.extend_from_slice(&[b'v'; BODY]);
    let Incoming::Request(request) = session.receive(0, &mut input, &mut out) else { panic!("it is whole") };
    assert_eq!(budget.used(), BODY, "the request holds it");
    drop(request);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_refused_body_is_skipped_and_the_connection_stays() {
    let budget = Budget::new(BODY);
    let _others = budget.reserve(1).unwrap();
    let (mut session, mut out) = (Session::new(), Vec::new());
    let mut input = BytesMut::from(head(BODY).as_bytes());
    input.extend_from_slice(b"some");
    assert!(matches!(session.receive(0, &mut input, &mut out), Incoming::Wait(Waits::Body)));
    assert!(!session.holds_memory(input.len(), |bytes| budget.reserve(bytes)));
    let left = session.give_up(0, &mut out);
    assert_eq!((left, input.len()), (BODY, 4));
    assert!(out.starts_with(b"HTTP/1.1 503"));

    input.extend_from_slice(&vec![b'v'; BODY - 4]);
    input.extend_from_slice(b"GET /ping HTTP/1.1\r\nHost: h\r\n\r\n");
    input.advance(left);
    out.clear();
    assert!(matches!(session.receive(0, &mut input, &mut out), Incoming::Answered));
    assert!(out.starts_with(b"HTTP/1.1 200"));
}

#[test]
fn a_body_in_chunks_takes_memory_as_it_comes_and_ends_the_connection_without() {
    let budget = Budget::new(BODY);
    let (mut session, mut out) = (Session::new(), Vec::new());
    let text = "PUT /buckets/b/keys/k HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    let mut input = BytesMut::from(text.as_bytes());
    let chunk = [&b"8000\r\n"[..], &[b'v'; 0x8000], b"\r\n"].concat();
    let mut held = Vec::new();
    let is_held =
        |session: &mut Session, input: usize| session.holds_memory(input, |bytes| budget.reserve(bytes));
    loop {
        assert!(matches!(session.receive(0, &mut input, &mut out), Incoming::Wait(Waits::Body)));
        let fits = is_held(&mut session, input.len());
        held.push(budget.used());
        if !fits {
            break;
        }
        input.extend_from_slice(&chunk);
    }
    assert_eq!(held, [0, 0x8000, 0x1_0000, 0x1_8000, 0x1_8000]);
    assert_eq!(session.give_up(0, &mut out), 0);
    assert_eq!(budget.used(), 0);
    assert!(out.starts_with(b"HTTP/1.1 503"));
    assert!(matches!(session.receive(0, &mut input, &mut out), Incoming::Close));
}

#[test]
fn a_body_that_there_is_no_memory_for_is_413() {
    let (mut session, mut out) = (Session::new(), Vec::new());
    session.bound(1000);
    let mut input = BytesMut::from(head(1001).as_bytes());
    assert!(matches!(session.receive(0, &mut input, &mut out), Incoming::Close));
    assert!(out.starts_with(b"HTTP/1.1 413") && String::from_utf8_lossy(&out).contains("1000 bytes"));
}
