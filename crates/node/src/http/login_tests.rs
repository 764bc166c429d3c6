//! Logins and permissions of requests, from the head on.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::BytesMut;
use security::Denied;

use super::{Claim, Incoming, Session};
use crate::riak::matrix_tests::policy;

const ON: [&str; 3] = ["add-user alice", "grant riak_kv.get,riak_kv.list_keys on any to alice", "enable"];

fn session(lines: &[&str], is_secure: bool) -> Session {
    let mut session = Session::new();
    session.access_mut().renew(policy(1, lines)).unwrap();
    if is_secure {
        session.secure(None);
    }
    session
}

fn basic(login: &str) -> String {
    format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode(login))
}

fn ask(session: &mut Session, request: &str, headers: &str, body: &str) -> (Incoming, String) {
    let text = format!("{request} HTTP/1.1\r\nHost: h\r\n{headers}\r\n{body}");
    step(session, &mut BytesMut::from(text.as_bytes()))
}

fn step(session: &mut Session, input: &mut BytesMut) -> (Incoming, String) {
    let mut out = Vec::new();
    let incoming = session.receive(0, input, &mut out);
    (incoming, String::from_utf8(out).unwrap())
}

/// Asks with a login, which is right.
fn ask_as(session: &mut Session, name: &str, request: &str) -> (Incoming, String) {
    let (incoming, out) = ask(session, request, &basic(&format!("{name}:p")), "");
    let Incoming::Login(claim) = incoming else { return (incoming, out) };
    assert_eq!(claim.user, name.as_bytes());
    session.on_login(Some(name.as_bytes()), 0, &mut Vec::new());
    step(session, &mut BytesMut::new())
}

#[test]
fn plaintext_is_refused_but_for_health() {
    for request in
        ["GET /", "GET /ping", "GET /stats", "PUT /buckets/b/keys/k", "GET /admin/status", "GET /nowhere"]
    {
        for headers in [String::new(), basic("alice:p")] {
            let (incoming, out) = ask(&mut session(&ON, false), request, &headers, "");
            assert!(matches!(incoming, Incoming::Close), "{request}: {incoming:?}");
            assert!(out.starts_with("HTTP/1.1 426 Upgrade Required\r\n"), "{out}");
            let text =
                "Security is enabled and Riak does not accept credentials over HTTP. Try HTTPS instead.";
            assert!(out.ends_with(&format!("{text}\n")), "{out}");
        }
    }
    for request in ["GET /health/live", "GET /health/ready"] {
        assert!(
            matches!(ask(&mut session(&ON, false), request, "", "").0, Incoming::Question(_)),
            "{request}"
        );
        assert!(
            matches!(ask(&mut session(&ON, true), request, "", "").0, Incoming::Question(_)),
            "{request}"
        );
    }
}

#[test]
fn https_without_a_login_is_unauthorized() {
    for request in
        ["GET /", "GET /ping", "GET /stats", "GET /admin/openapi.yaml", "GET /nowhere", "BREW /ping"]
    {
        for headers in ["", "Authorization: Bearer x\r\n", "X-Forwarded-For: 127.0.0.1\r\n"] {
            let mut session = session(&ON, true);
            let (incoming, out) = ask(&mut session, request, headers, "");
            assert!(matches!(incoming, Incoming::Answered), "{request}: {incoming:?}");
            assert!(out.starts_with("HTTP/1.1 401 Unauthorized\r\n"), "{out}");
            assert!(out.contains("\r\nWWW-Authenticate: Basic realm=\"Riak\"\r\n"), "{out}");
            assert!(matches!(ask(&mut session, request, headers, "").0, Incoming::Answered), "it stays open");
        }
    }
    let both = format!("{}{}", basic("alice:p"), basic("alice:p"));
    assert!(ask(&mut session(&ON, true), "GET /ping", &both, "").1.contains(" 401 "));
}

#[test]
fn no_body_is_read_before_its_login() {
    let (incoming, out) = ask(&mut session(&ON, true), "PUT /buckets/b/keys/k", "Content-Length: 9\r\n", "");
    assert!(matches!(incoming, Incoming::Close) && out.contains(" 401 "), "{out}");

    let headers = format!("{}Content-Length: 9\r\nExpect: 100-continue\r\n", basic("alice:p"));
    let mut refused = session(&ON, true);
    let (incoming, out) = ask(&mut refused, "PUT /buckets/b/keys/k", &headers, "");
    assert!(matches!(incoming, Incoming::Login(_)) && out.is_empty());
    let mut out = Vec::new();
    refused.on_login(None, 0, &mut out);
    assert!(String::from_utf8(out).unwrap().contains(" 401 "));
    assert!(matches!(step(&mut refused, &mut BytesMut::new()).0, Incoming::Close));

    let mut accepted = session(&["add-user alice", "grant riak_kv.put on any to alice", "enable"], true);
    let headers = format!("{headers}Content-Type: text/plain\r\n");
    assert!(matches!(ask(&mut accepted, "PUT /buckets/b/keys/k", &headers, "").0, Incoming::Login(_)));
    accepted.on_login(Some(b"alice"), 0, &mut Vec::new());
    let mut input = BytesMut::new();
    assert_eq!(step(&mut accepted, &mut input).1, "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(matches!(step(&mut accepted, &mut input).0, Incoming::Wait(_)));
    input.extend_from_slice(b"the value");
    assert!(matches!(step(&mut accepted, &mut input).0, Incoming::Request(kv::Request::Put(_))));
}

#[test]
fn each_request_proves_its_user_and_needs_its_permission() {
    let mut session = session(&ON, true);
    assert!(matches!(ask_as(&mut session, "alice", "GET /buckets/b/keys/k").0, Incoming::Request(_)));
    session.respond(Err(kv::Error::Timeout), &mut Vec::new());
    let (_, out) = ask_as(&mut session, "alice", "DELETE /buckets/b/keys/k");
    assert!(out.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{out}");
    assert!(
        out.ends_with("Permission denied: User 'alice' does not have 'riak_kv.delete' on default/b\n"),
        "{out}"
    );
    let (_, out) = ask_as(&mut session, "alice", "GET /admin/cluster");
    assert!(out.ends_with("does not have 'annulet.admin' on any\n"), "{out}");
    let (_, out) = ask_as(&mut session, "alice", "GET /tombs/buckets/b");
    assert!(out.ends_with("does not have 'annulet.fold' on default/b\n"), "{out}");
    assert!(
        ask(&mut session, "GET /buckets/b/keys/k", "", "").1.contains(" 401 "),
        "the login was of one request"
    );
    assert!(ask_as(&mut session, "bob", "GET /ping").1.contains(" 401 "), "there is no bob");
}

#[test]
fn a_certificate_names_the_user_unless_credentials_do() {
    let mut session = session(&ON, false);
    session.secure(Some(b"alice".to_vec()));
    let claimed = |session: &mut Session, headers: &str| match ask(session, "GET /ping", headers, "").0 {
        Incoming::Login(claim) => claim,
        other => panic!("{other:?}"),
    };
    let proof =
        |claim: Claim| (claim.user.clone(), claim.password.as_ref().map(|password| password.to_vec()));
    assert_eq!(proof(claimed(&mut session, "")), (b"alice".to_vec(), None));
    session.on_login(None, 0, &mut Vec::new());
    assert!(step(&mut session, &mut BytesMut::new()).1.contains(" 401 "));
    assert_eq!(proof(claimed(&mut session, &basic("bob:x"))), (b"bob".to_vec(), Some(b"x".to_vec())));
}

#[test]
fn a_revoked_permission_ends_a_listing() {
    let mut session = session(&ON, true);
    let listing = ask_as(&mut session, "alice", "GET /buckets/b/keys?keys=stream").0;
    assert!(matches!(listing, Incoming::Request(kv::Request::ListKeys(_))));
    session.access_mut().renew(policy(2, &ON)).unwrap();
    let denied = session.access_mut().renew(policy(3, &["add-user alice", "enable"])).unwrap_err();
    assert!(matches!(denied, Denied::Missing(_)));
    let mut out = Vec::new();
    session.deny(denied, &mut out);
    assert!(String::from_utf8(out).unwrap().contains(" 403 "));
}

#[test]
fn permissive_verifies_and_lets_in() {
    let mut session = session(&["add-user alice", "permissive"], true);
    assert!(matches!(ask(&mut session, "GET /buckets/b/keys/k", "", "").0, Incoming::Request(_)));
    session.respond(Err(kv::Error::Timeout), &mut Vec::new());
    assert_eq!(session.access_mut().take_would_refuse(), 1);
    assert!(matches!(ask(&mut session, "GET /ping", &basic("alice:p"), "").0, Incoming::Login(_)));
    session.on_login(None, 0, &mut Vec::new());
    assert!(step(&mut session, &mut BytesMut::new()).1.contains(" 200 "));
}
