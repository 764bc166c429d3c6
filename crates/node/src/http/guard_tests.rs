//! What pages of other sites can have a browser send, and what browsers are told of stored objects, on every route.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kv::{Error, Found, Request, Response};
use object::{Actor, Dot, Metadata};

use super::{HostNames, Incoming, Session};

/// Each route, with a method that it has.
const ROUTES: &[&str] = &[
    "GET /",
    "GET /ping",
    "GET /stats",
    "GET /metrics",
    "GET /buckets/b/keys/k",
    "HEAD /types/t/buckets/b/keys/k",
    "PUT /riak/b/k",
    "POST /buckets/b/keys",
    "DELETE /buckets/b/keys/k",
    "GET /buckets/b/keys/k/preflist",
    "GET /buckets/b/keys?keys=true",
    "GET /riak/b",
    "GET /buckets?buckets=stream",
    "GET /buckets/b/index/f_bin/a",
    "POST /buckets/b/query",
    "PUT /buckets/b/props",
    "GET /types/t/props",
    "GET /tombs/buckets/b",
    "POST /mapred",
    "GET /admin/status",
    "POST /admin/purge",
    "PUT /admin/bucket-types/t",
    "POST /admin/cluster/commit",
    "GET /nowhere",
    "OPTIONS /buckets/b/keys/k",
    "BREW /buckets/b/keys/k",
];

fn session() -> Session {
    let listening = ["127.0.0.1:8098".parse().unwrap()];
    Session::guarded(Arc::new(HostNames::new(&listening, &[])), None)
}

/// What a new connection answers to a request for `localhost`, and what is to be done then.
fn asked(request: &str, headers: &str, body: &str) -> (Session, Incoming, Vec<u8>) {
    let (mut session, mut out) = (session(), Vec::new());
    let text = format!("{request} HTTP/1.1\r\nHost: localhost:8098\r\n{headers}\r\n{body}");
    let incoming = session.receive(0, &mut BytesMut::from(text.as_bytes()), &mut out);
    (session, incoming, out)
}

fn status(out: &[u8]) -> u16 {
    String::from_utf8_lossy(out).split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn every_route_refuses_pages_of_other_sites_before_it_reads_a_body() {
    for request in ROUTES {
        for foreign in [
            "Origin: null\r\n",
            "Origin: http://localhost:9000\r\n",
            "Sec-Fetch-Site: cross-site\r\n",
            "Sec-Fetch-Site: same-site\r\nReferer: http://localhost:8098/\r\n",
        ] {
            // The body has not come, and is too long.
            let body = "Content-Length: 99999999\r\nExpect: 100-continue\r\n";
            let (mut session, incoming, out) = asked(request, &format!("{foreign}{body}"), "");
            assert!(matches!(incoming, Incoming::Close), "{request}, {foreign}: {incoming:?}");
            assert_eq!(status(&out), 403, "{request}, {foreign}");
            let text = String::from_utf8(out).unwrap();
            let (_, body) = text.split_once("\r\n\r\n").unwrap();
            assert_eq!(body.is_empty(), request.starts_with("HEAD"), "{request}: {text}");
            // What was sent ahead is not looked at.
            let mut ahead = BytesMut::from("GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert!(matches!(session.receive(0, &mut ahead, &mut Vec::new()), Incoming::Close));
        }
        let elsewhere = format!("{request} HTTP/1.1\r\nHost: evil.example\r\n\r\n");
        let (mut session, mut out) = (session(), Vec::new());
        session.receive(0, &mut BytesMut::from(elsewhere.as_bytes()), &mut out);
        assert_eq!(status(&out), 403, "{request}: a name that was made to resolve here");
    }
}

#[test]
fn pages_of_this_node_and_other_clients_are_served() {
    for request in ROUTES {
        for own in [
            "",
            "Origin: http://localhost:8098\r\nSec-Fetch-Site: same-origin\r\n",
            "Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n",
            "Referer: http://localhost:8098/\r\n",
        ] {
            let json = "Content-Type: application/json\r\nContent-Length: 2\r\n";
            let (_, _, out) = asked(request, &format!("{own}{json}"), "{}");
            assert!(out.is_empty() || !matches!(status(&out), 403 | 415), "{request}, {own}");
        }
    }
}

#[test]
fn each_request_of_a_connection_is_looked_at() {
    let put =
        "PUT /buckets/b/keys/k HTTP/1.1\r\nHost: localhost\r\nContent-Type: a/b\r\nContent-Length: 1\r\n";
    let mut input = BytesMut::from(format!("{put}\r\nv{put}Origin: null\r\n\r\nw{put}\r\nx").as_bytes());
    let (mut session, mut out) = (session(), Vec::new());
    assert!(matches!(session.receive(0, &mut input, &mut out), Incoming::Request(Request::Put(_))));
    session.respond(Err(Error::Overload), &mut out);
    assert!(matches!(session.receive(0, &mut input, &mut out), Incoming::Close));
    assert!(matches!(session.receive(0, &mut input, &mut out), Incoming::Close));
}

#[test]
fn changes_by_operators_come_as_json() {
    let changes = [
        ("PUT /admin/bucket-types/t", ""),
        ("POST /admin/bucket-types/t", "{\"props\":{}}"),
        ("POST /admin/bucket-types/t/activate", ""),
        ("POST /admin/cluster/stage", "{}"),
        ("POST /admin/cluster/clear", ""),
        ("POST /admin/cluster/recover", "{}"),
        ("POST /admin/cluster/declare-lost", "{}"),
        ("POST /admin/aae/rebuild", "{}"),
        ("POST /admin/backup", "{}"),
        ("POST /admin/backup/stop", ""),
        ("POST /admin/purge", "{\"purge\":\"erase\",\"bucket\":\"b\"}"),
        ("POST /admin/purge/stop", ""),
    ];
    for (request, body) in changes {
        let asked = |types: &[&str]| {
            let types: String = types.iter().map(|it| format!("Content-Type: {it}\r\n")).collect();
            asked(request, &format!("{types}Content-Length: {}\r\n", body.len()), body)
        };
        for json in ["application/json", "Application/JSON; charset=utf-8", "application/json;x=y"] {
            let (_, incoming, out) = asked(&[json]);
            let is_taken = matches!(incoming, Incoming::Request(_) | Incoming::Question(_));
            assert!(is_taken, "{request}, {json}: {}", String::from_utf8_lossy(&out));
        }
        for other in [
            &[][..],
            &[""],
            &["text/plain"],
            &["text/plain; application/json"],
            &["application/jsonx"],
            &["application/json, text/plain"],
            &["application/x-www-form-urlencoded"],
            &["multipart/form-data; boundary=x"],
            &["application/json", "text/plain"],
            &["text/plain", "application/json"],
        ] {
            let (_, _, out) = asked(other);
            assert_eq!(status(&out), 415, "{request}, {other:?}");
        }
    }
    let (_, incoming, _) = asked("GET /admin/status", "", "");
    assert!(matches!(incoming, Incoming::Question(_)), "what changes nothing needs no type");
}

/// An object with these values.
fn found(values: &[&'static str]) -> Response {
    let mut stored: Option<object::Object> = None;
    for (counter, value) in (1..).zip(values) {
        let metadata = Metadata { content_type: Some(Bytes::from("text/html")), ..Metadata::default() };
        let put = object::Put { context: None, metadata, value: Bytes::from_static(value.as_bytes()) };
        let updated = object::update(stored, put, Dot::new(Actor(7), counter), object::Policy::AllowMult);
        stored = Some(updated.unwrap());
    }
    let (head, value) = stored.unwrap().into_parts();
    let mut encoded = Vec::new();
    head.encode(&mut encoded);
    Response::Found(Found { head: Bytes::from(encoded), value: Some(value), newest_only: false })
}

/// The answer without what a browser is told, and whether it was told.
fn answer(request: &str, headers: &str, response: Option<Response>) -> (String, bool) {
    const SANDBOX: &str = "Content-Security-Policy: sandbox\r\nX-Content-Type-Options: nosniff\r\n";
    let (mut session, _, mut out) = asked(request, headers, "");
    if let Some(response) = response {
        session.respond(Ok(response), &mut out);
    }
    let text = String::from_utf8(out).unwrap();
    let (head, _) = text.split_once("\r\n\r\n").unwrap();
    let is_told = format!("{head}\r\n").contains(SANDBOX);
    assert_eq!(text.matches("Content-Security-Policy").count(), usize::from(is_told), "{text}");
    (text.replacen(SANDBOX, "", 1), is_told)
}

#[test]
fn browsers_run_nothing_that_clients_have_stored() {
    let html = "<script>fetch('/buckets/b/keys/k', {method: 'DELETE'})</script>";
    let keys = || Response::Keys { keys: vec![Bytes::from(html)], done: true };
    type Answers<'a> = (&'a str, &'a dyn Fn() -> Option<Response>);
    let answers: [Answers<'_>; 8] = [
        ("GET /buckets/b/keys/k", &|| Some(found(&[html]))),
        ("HEAD /buckets/b/keys/k", &|| Some(found(&[html]))),
        ("GET /riak/b/k", &|| Some(found(&[html, "other"]))),
        ("GET /riak/b/k?vtag=none", &|| Some(found(&[html, "other"]))),
        ("GET /buckets/b/keys/k", &|| Some(Response::NotFound { deleted_context: None })),
        ("GET /buckets/b/keys?keys=true", &|| Some(keys())),
        ("GET /buckets/b/keys?keys=stream", &|| Some(keys())),
        ("GET /nowhere", &|| None),
    ];
    for (request, response) in answers {
        for accept in ["", "Accept: multipart/mixed, */*;q=0.1\r\n"] {
            let (plain, is_told) = answer(request, accept, response());
            assert!(!is_told, "{request}: other clients see what they always saw");
            for browser in ["Sec-Fetch-Dest: document\r\n", "Upgrade-Insecure-Requests: 1\r\n"] {
                let (shown, is_told) = answer(request, &format!("{accept}{browser}"), response());
                assert!(is_told, "{request}, {browser}: {shown}");
                assert_eq!(shown, plain, "{request}");
            }
        }
    }
    let (_, is_told) = answer("GET /", "Sec-Fetch-Dest: document\r\n", None);
    assert!(!is_told, "its links are to be followed");
}
