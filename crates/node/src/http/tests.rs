//! The session: what is sent ahead, what ends a connection, what random bytes do.

use base::Rng;
use base::rng::SplitMix64;
use bytes::{Bytes, BytesMut};
use kv::{Error, Found, Request, Response};
use object::{Actor, Context, Dot, Head, IndexEntry, Link, Metadata};
use protocol::http::Waits;

use super::{Incoming, Question, Session};

const NOW: u64 = 1_795_263_371;
const PING: &str = "GET /ping HTTP/1.1\r\nHost: h\r\n\r\n";
const GET: &str = "GET /buckets/b/keys/k HTTP/1.1\r\nHost: h\r\n\r\n";
const PUT: &str =
    "PUT /buckets/b/keys/k HTTP/1.1\r\nHost: h\r\nContent-Type: a/b\r\nContent-Length: 1\r\n\r\nv";

fn receive(session: &mut Session, input: &mut BytesMut, out: &mut Vec<u8>) -> Incoming {
    session.receive(NOW, input, out)
}

fn statuses(out: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(out);
    let answers = text.split("HTTP/1.1 ").skip(1).map(|answer| answer[..3].to_owned());
    answers.filter(|status| status.parse::<u16>().is_ok()).collect()
}

#[test]
fn what_is_sent_ahead_waits_and_is_answered_in_order() {
    let (mut session, mut out) = (Session::new(), Vec::new());
    let mut input = BytesMut::from([PING, GET, PUT, PING].concat().as_bytes());
    assert!(matches!(receive(&mut session, &mut input, &mut out), Incoming::Answered));
    assert!(matches!(receive(&mut session, &mut input, &mut out), Incoming::Request(Request::Get(_))));
    session.respond(Ok(Response::NotFound { deleted_context: None }), &mut out);
    assert!(matches!(receive(&mut session, &mut input, &mut out), Incoming::Request(Request::Put(_))));
    assert_eq!(&input[..], PING.as_bytes());
    session.respond(Err(Error::Overload), &mut out);
    assert!(matches!(receive(&mut session, &mut input, &mut out), Incoming::Answered));
    assert!(matches!(receive(&mut session, &mut input, &mut out), Incoming::Wait(Waits::Request)));
    assert_eq!(statuses(&out), ["200", "404", "503", "200"]);
}

#[test]
fn a_connection_ends_when_its_client_says_so_or_cannot_be_read() {
    for (bytes, status) in [
        ("GET /ping HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "200"),
        ("GET /ping HTTP/1.0\r\n\r\n", "200"),
        ("GET /ping HTTP/1.1\r\n\r\n", "400"),
        ("GET /ping HTTP/2.0\r\nHost: h\r\n\r\n", "505"),
        ("PUT /buckets/b/keys/k HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n", "413"),
    ] {
        let (mut session, mut out) = (Session::new(), Vec::new());
        let mut input = BytesMut::from([bytes, PING].concat().as_bytes());
        receive(&mut session, &mut input, &mut out);
        assert!(matches!(receive(&mut session, &mut input, &mut out), Incoming::Close), "{bytes}");
        assert_eq!(statuses(&out), [status], "{bytes}");
        assert!(String::from_utf8_lossy(&out).contains("\r\nConnection: close\r\n"));
    }
    let (mut session, mut out) = (Session::new(), Vec::new());
    let mut input = BytesMut::from(&b"GET /ping HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"[..]);
    assert!(matches!(receive(&mut session, &mut input, &mut out), Incoming::Answered));
    assert!(matches!(receive(&mut session, &mut input, &mut out), Incoming::Wait(_)));
    assert!(String::from_utf8_lossy(&out).contains("\r\nConnection: keep-alive\r\n"));
}

#[test]
fn a_connection_ends_with_an_answer_when_the_node_stops() {
    let (mut session, mut out) = (Session::new(), Vec::new());
    let mut input = BytesMut::from(PING.as_bytes());
    assert!(matches!(receive(&mut session, &mut input, &mut out), Incoming::Answered));
    session.stopping(true);
    assert!(matches!(receive(&mut session, &mut input, &mut out), Incoming::Wait(Waits::Request)));
    assert!(!String::from_utf8_lossy(&out).contains("close"));

    input.extend_from_slice([PING, PING].concat().as_bytes());
    assert!(matches!(receive(&mut session, &mut input, &mut out), Incoming::Answered));
    assert!(matches!(receive(&mut session, &mut input, &mut out), Incoming::Close));
    assert_eq!(statuses(&out), ["200", "200"]);
    assert!(String::from_utf8_lossy(&out).contains("\r\nConnection: close\r\n"));
}

#[test]
fn who_is_slow_or_too_many_is_told_so() {
    let (mut session, mut out) = (Session::new(), Vec::new());
    let mut input = BytesMut::from(&b"GET /pi"[..]);
    assert!(matches!(receive(&mut session, &mut input, &mut out), Incoming::Wait(Waits::Head)));
    session.time_out(NOW, &mut out);
    assert_eq!(statuses(&out), ["408"]);
    assert!(matches!(receive(&mut session, &mut input, &mut out), Incoming::Close));
    out.clear();
    Session::new().turn_away(NOW, 7, &mut out);
    assert!(String::from_utf8_lossy(&out).ends_with("too many connections: the limit is 7\n"));
}

#[test]
fn questions_are_answered_by_the_shell() {
    let (mut session, mut out) = (Session::new(), Vec::new());
    let mut input = BytesMut::from(&b"HEAD /stats HTTP/1.1\r\nHost: h\r\n\r\n"[..]);
    assert!(matches!(receive(&mut session, &mut input, &mut out), Incoming::Question(Question::Stats)));
    session.answer(200, "application/json", b"{}", &mut out);
    let text = String::from_utf8_lossy(&out);
    assert!(text.ends_with("Content-Length: 2\r\n\r\n"), "{text}");
}

#[test]
fn context_that_is_not_canonical_base64_is_refused() {
    let put = |context: &str| {
        let text = PUT.replace("Host: h", &format!("Host: h\r\nX-Riak-Vclock: {context}"));
        let (mut session, mut out) = (Session::new(), Vec::new());
        let incoming = receive(&mut session, &mut BytesMut::from(text.as_bytes()), &mut out);
        (incoming, String::from_utf8(out).unwrap())
    };
    for text in ["Z", "Zg", "Zg=", "Zh==", "Zg==Zg==", "=", "====", "Zm9v Zm9v", "Zm-v", "é", "Zm9vZ==="] {
        let (_, answer) = put(text);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{text}: {answer}");
        assert!(answer.ends_with("\r\n\r\nThe X-Riak-Vclock header is not base64\n"), "{text}: {answer}");
    }
    for (text, bytes) in [("Zm8=", "fo"), (" Zm9v ", "foo"), ("Zm9vYg==", "foob"), ("Zm9vYmE=", "fooba")] {
        let (Incoming::Request(Request::Put(put)), _) = put(text) else { panic!("{text} is refused") };
        assert_eq!(put.context.as_deref(), Some(bytes.as_bytes()), "{text}");
    }
}

/// An object with one sibling of this metadata.
fn found(metadata: Metadata, value: &'static [u8]) -> Response {
    let put = object::Put { context: None, metadata, value: Bytes::from_static(value) };
    let object = object::update(None, put, Dot::new(Actor(7), 1), object::Policy::AllowMult).unwrap();
    let (head, value) = object.into_parts();
    let mut encoded = Vec::new();
    head.encode(&mut encoded);
    assert_eq!(
        Head::decode(&encoded).unwrap().context(),
        &[Dot::new(Actor(7), 1)].into_iter().collect::<Context>()
    );
    Response::Found(Found { head: Bytes::from(encoded), value: Some(value), newest_only: false })
}

#[test]
fn metadata_that_came_by_another_protocol_writes_no_headers() {
    let hostile = || Bytes::from_static(b"x\r\nSet-Cookie: a=b\r\n\r\n\0<\"");
    let metadata = Metadata {
        content_type: Some(hostile()),
        charset: Some(hostile()),
        content_encoding: Some(hostile()),
        links: vec![Link { bucket: hostile(), key: hostile(), tag: hostile() }],
        user_meta: vec![(hostile(), Some(hostile())), (hostile(), None)],
        indexes: vec![IndexEntry { field: hostile(), value: hostile() }],
        ..Metadata::default()
    };
    let (mut session, mut out) = (Session::new(), Vec::new());
    let mut input = BytesMut::from(GET.as_bytes());
    receive(&mut session, &mut input, &mut out);
    session.respond(Ok(found(metadata, b"value")), &mut out);
    let text = String::from_utf8(out).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, "value");
    assert!(!head.contains('\0') && !head.lines().any(|line| line.starts_with("Set-Cookie")), "{head}");
}

#[test]
fn random_bytes_never_panic_and_always_end() {
    let chunked = "POST /riak/b HTTP/1.1\r\nHost: h\r\nContent-Type: a/b; charset=c\r\nTransfer-Encoding: chunked\r\n\
                   X-Riak-Vclock: AQGuGABp3eliNQFIz6y7\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let busy = "GET /types/default/buckets/b/keys/k%20l?r=1&vtag=x&timeout=5 HTTP/1.1\r\nHost: h\r\nAccept: */*;q=0.5\r\n\
                Accept-Encoding: gzip;q=0.5, *\r\nReferer: http://h/x\r\nIf-None-Match: \"a\", W/\"b\"\r\nIf-Modified-Since: Sat, 21 Nov 2026 11:36:10 GMT\r\nExpect: 100-continue\r\n\
                Link: </buckets/a/keys/b>; riaktag=\"c\"\r\nX-Riak-Index-a_int: 1, 2\r\n\r\n";
    let delete = "DELETE /buckets/b/keys/k?rw=all HTTP/1.0\r\nConnection: keep-alive\r\nIf-Match: *\r\n\r\n";
    let seeds = [GET, PUT, chunked, busy, delete, PING];
    let mut rng = SplitMix64::new(12);
    let below = |rng: &mut SplitMix64, bound: usize| usize::try_from(rng.below(bound as u64)).unwrap();
    for round in 0..20_000 {
        let mut bytes =
            [seeds[round % seeds.len()], seeds[below(&mut rng, seeds.len())]].concat().into_bytes();
        for _ in 0..rng.below(4) {
            let at = below(&mut rng, bytes.len());
            match rng.below(4) {
                0 => bytes[at] = rng.next_u64().to_le_bytes()[0],
                1 => bytes[at] = b"\r\n :;,/%\"0"[below(&mut rng, 10)],
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"\r\n :;,/%\"0"[below(&mut rng, 10)]),
            }
        }
        exhaust(&bytes);
    }
}

/// Reads a stream to its end, answering whatever is asked.
fn exhaust(bytes: &[u8]) {
    let (mut session, mut input, mut out) = (Session::new(), BytesMut::from(bytes), Vec::new());
    for _ in 0..=bytes.len() {
        match receive(&mut session, &mut input, &mut out) {
            Incoming::Wait(_) => return,
            Incoming::Close => return assert!(!out.is_empty()),
            Incoming::Answered => assert!(!out.is_empty()),
            Incoming::Login(_) => unreachable!("security is off"),
            Incoming::Question(_) => session.answer(200, "a/b", b"", &mut out),
            Incoming::Request(Request::Get(_)) => {
                let metadata = Metadata { content_type: Some("a/b".into()), ..Metadata::default() };
                if let Some(next) = session.respond(Ok(found(metadata, b"v")), &mut out) {
                    assert!(matches!(next, Request::Delete(_)));
                    session.respond(Ok(Response::Deleted), &mut out);
                }
            }
            Incoming::Request(_) => {
                assert_eq!(session.respond(Err(Error::Timeout), &mut out), None);
            }
        }
    }
    panic!("{} has no end", bytes.escape_ascii());
}
