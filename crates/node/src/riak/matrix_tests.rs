//! Each message code on a connection in plaintext, without a login, without a grant and with one; and the same
//! connection under policies that change.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kv::Response;
use protocol::messages::{self as pb, AuthReq};
use protocol::{Message, Request, codes};
use security::{Command, Denied, Policy, Slots};

use super::needs::tests::message;
use super::{Identity, Incoming, LOGINS_FAILED_MAX, Session};

/// The policy that commands make.
pub(crate) fn policy(version: u64, lines: &[&str]) -> Arc<Policy> {
    let mut slots = Slots::default();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let changes = Command::parse(&words).unwrap().plan(&slots, None).unwrap();
        slots.apply(&changes).unwrap();
    }
    Arc::new(Policy::compile(&slots, version))
}

/// All permissions that messages need.
pub(crate) const GRANT_ALL: &str = "grant riak_kv.get,riak_kv.put,riak_kv.delete,riak_kv.index,riak_kv.list_keys,\
     riak_kv.list_buckets,riak_kv.get_preflist,riak_core.get_bucket,riak_core.set_bucket,riak_core.get_bucket_type,\
     riak_core.set_bucket_type,annulet.fold,annulet.purge on any to alice";

/// A connection of a policy, in plaintext.
fn session(lines: &[&str]) -> Session {
    let mut session = Session::new(Arc::new(Identity { node: "n@h".into(), version: "1.2.3".into() }));
    session.offer_tls(true);
    session.access_mut().renew(policy(1, lines)).unwrap();
    session
}

/// The same under TLS, with this login.
fn logged_in(lines: &[&str], name: &str) -> Session {
    let mut session = session(lines);
    session.on_secure();
    let login = ask(&mut session, codes::AUTH_REQ, &auth(name)).0;
    assert!(matches!(login, Incoming::Login(login) if login.user == name.as_bytes()));
    let mut out = Vec::new();
    session.on_login(Some(name.as_bytes()), &mut out);
    assert_eq!(out, [0, 0, 0, 1, codes::AUTH_RESP]);
    session
}

fn auth(name: &str) -> Vec<u8> {
    let (user, password) = (Bytes::copy_from_slice(name.as_bytes()), Bytes::from_static(b"secret"));
    AuthReq { user, password }.encode_to_vec()
}

fn frame(code: u8, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len() + 1).unwrap();
    [&len.to_be_bytes()[..], &[code], body].concat()
}

/// What a frame comes to, and the text of its error.
fn ask(session: &mut Session, code: u8, body: &[u8]) -> (Incoming, String) {
    let (mut input, mut out) = (BytesMut::from(&frame(code, body)[..]), Vec::new());
    let incoming = session.receive(&mut input, &mut out);
    let is_error = out.get(4) == Some(&codes::ERROR_RESP);
    let error = is_error.then(|| pb::ErrorResp::decode(&out[5..]).unwrap().errmsg.to_vec());
    (incoming, String::from_utf8(error.unwrap_or_default()).unwrap())
}

/// The body of a message of this code, with all names that it needs.
fn body(code: u8) -> Vec<u8> {
    let key = Bytes::from_static(b"k");
    let request = match message(code) {
        Request::Get(m) => Request::Get(pb::GetReq { key, ..m }),
        Request::Del(m) => Request::Del(pb::DelReq { key, ..m }),
        Request::GetPreflist(m) => Request::GetPreflist(pb::GetPreflistReq { key, ..m }),
        Request::FoldNVal(code, m) => Request::FoldNVal(code, pb::FoldNValReq { n_val: Some(3), ..m }),
        Request::FoldRange(code, m) => {
            let one = Some(1);
            let sizes = pb::FoldRangeReq { tree_size: one, choice: one, number: one, ..m };
            Request::FoldRange(code, pb::FoldRangeReq { segment_filter: Some(false), ..sizes })
        }
        Request::Auth(_) => return auth("alice"),
        other => other,
    };
    let mut frame = Vec::new();
    request.encode(&mut frame);
    frame.split_off(5)
}

fn requests() -> impl Iterator<Item = u8> {
    let is_request =
        |code: &u8| codes::describe(*code).is_some_and(|(_, way)| way == codes::Direction::Request);
    (0..=u8::MAX).filter(is_request)
}

const ON: [&str; 2] = ["add-user alice", "enable"];

#[test]
fn plaintext_has_starttls_and_nothing_else() {
    for code in 0..=u8::MAX {
        let mut session = session(&ON);
        let (incoming, error) = ask(&mut session, code, b"no message at all");
        if code == codes::START_TLS {
            assert_eq!(incoming, Incoming::StartTls);
        } else if code != codes::AUTH_REQ {
            assert_eq!(error, "Security is enabled, please STARTTLS first", "{code}");
        }
        assert!(code == codes::AUTH_REQ || ask(&mut session, 1, b"").0 != Incoming::Close, "{code}");
    }
    let (incoming, error) = ask(&mut session(&ON), codes::AUTH_REQ, &auth("alice"));
    assert_eq!(incoming, Incoming::Answered);
    assert_eq!(
        error, "Security is enabled, please STARTTLS first",
        "a password in plaintext is not verified"
    );
}

#[test]
fn tls_without_a_login_has_a_login_and_nothing_else() {
    for code in 0..=u8::MAX {
        let mut session = session(&ON);
        session.on_secure();
        let (incoming, error) = ask(&mut session, code, &body_or_nothing(code));
        if code == codes::AUTH_REQ {
            assert!(matches!(incoming, Incoming::Login(_)));
        } else {
            assert_eq!(error, "Security is enabled, please authenticate first", "{code}");
            assert_eq!(incoming, Incoming::Answered);
        }
    }
}

fn body_or_nothing(code: u8) -> Vec<u8> {
    if requests().any(|request| request == code) { body(code) } else { Vec::new() }
}

#[test]
fn a_login_without_a_grant_reads_no_data() {
    for code in requests() {
        let mut session = logged_in(&ON, "alice");
        let (incoming, error) = ask(&mut session, code, &body(code));
        match code {
            codes::PING_REQ
            | codes::GET_CLIENT_ID_REQ
            | codes::SET_CLIENT_ID_REQ
            | codes::GET_SERVER_INFO_REQ => assert_eq!((&incoming, &*error), (&Incoming::Answered, "")),
            codes::AUTH_REQ | codes::START_TLS => assert_eq!(error, format!("Unknown message code: {code}")),
            _ => {
                assert!(
                    error.starts_with("Permission denied: User 'alice' does not have '"),
                    "{code}: {error}"
                );
                assert_eq!(incoming, Incoming::Answered, "{code}");
            }
        }
    }
}

#[test]
fn a_login_with_all_grants_is_denied_nothing() {
    for code in requests() {
        let mut session = logged_in(&["add-user alice", GRANT_ALL, "enable"], "alice");
        let (_, error) = ask(&mut session, code, &body(code));
        assert!(
            !error.contains("Permission denied") && !error.contains("Security is enabled"),
            "{code}: {error}"
        );
    }
}

#[test]
fn security_off_is_as_it_was() {
    for code in 0..=u8::MAX {
        let (mut plain, mut off) = (session(&[]), session(&["add-user alice"]));
        plain.offer_tls(false);
        off.offer_tls(false);
        assert_eq!(
            ask(&mut plain, code, &body_or_nothing(code)),
            ask(&mut off, code, &body_or_nothing(code))
        );
    }
    let mut off = session(&["add-user alice"]);
    assert_eq!(ask(&mut off, codes::AUTH_REQ, &auth("alice")).1, "Unknown message code: 253");
    off.offer_tls(false);
    assert_eq!(ask(&mut off, codes::START_TLS, b"").1, "Security not enabled; STARTTLS not allowed.");
}

#[test]
fn bytes_behind_starttls_end_the_connection() {
    let mut session = session(&ON);
    let mut input = BytesMut::from(&[frame(codes::START_TLS, b""), frame(codes::PING_REQ, b"")].concat()[..]);
    let mut out = Vec::new();
    assert_eq!(session.receive(&mut input, &mut out), Incoming::Close);
    assert!(out.is_empty());
    assert_eq!(session.receive(&mut input, &mut out), Incoming::Close);
}

#[test]
fn a_large_frame_before_a_login_is_refused() {
    let mut session = session(&ON);
    let mut input = BytesMut::from(&b"\0\x01\0\x01\x0b"[..]);
    assert_eq!(session.receive(&mut input, &mut Vec::new()), Incoming::Close);
    let mut session = logged_in(&ON, "alice");
    let mut input = BytesMut::from(&b"\0\x01\0\x01\x0b"[..]);
    assert_eq!(session.receive(&mut input, &mut Vec::new()), Incoming::Wait);
    assert_eq!(session.wants_memory(&input), (64 << 10) + 5);
}

#[test]
fn the_third_failed_login_ends_the_connection() {
    let mut session = session(&ON);
    session.on_secure();
    for failed in 1..=LOGINS_FAILED_MAX {
        assert!(matches!(ask(&mut session, codes::AUTH_REQ, &auth("alice")).0, Incoming::Login(_)));
        let mut out = Vec::new();
        session.on_login(None, &mut out);
        let error = pb::ErrorResp::decode(&out[5..]).unwrap().errmsg;
        assert_eq!(error, "Authentication failed");
        let closes = ask(&mut session, codes::PING_REQ, b"").0 == Incoming::Close;
        assert_eq!(closes, failed == LOGINS_FAILED_MAX);
    }
}

#[test]
fn an_open_connection_goes_by_the_policy_in_force() {
    let mut open = session(&[]);
    assert_eq!(ask(&mut open, codes::PING_REQ, b"").1, "");
    open.access_mut().renew(policy(2, &ON)).unwrap();
    assert_eq!(ask(&mut open, codes::PING_REQ, b"").1, "Security is enabled, please STARTTLS first");
}

#[test]
fn a_revoked_permission_ends_a_listing() {
    let granted = ["add-user alice", "grant riak_kv.list_keys on any to alice", "enable"];
    let mut session = logged_in(&granted, "alice");
    let (incoming, _) = ask(&mut session, codes::LIST_KEYS_REQ, &body(codes::LIST_KEYS_REQ));
    assert!(matches!(incoming, Incoming::Request(kv::Request::ListKeys(_))));
    let mut out = Vec::new();
    session.respond(Ok(Response::Keys { keys: vec![Bytes::from_static(b"k")], done: false }), &mut out);
    session.access_mut().renew(policy(2, &granted)).unwrap();
    let denied = session.access_mut().renew(policy(3, &ON)).unwrap_err();
    assert!(matches!(denied, Denied::Missing(_)));
    out.clear();
    session.deny(&denied, &mut out);
    let error = pb::ErrorResp::decode(&out[5..]).unwrap().errmsg;
    assert_eq!(error, "Permission denied: User 'alice' does not have 'riak_kv.list_keys' on default/b");
    assert_eq!(ask(&mut session, codes::PING_REQ, b"").1, "");
    session.access_mut().renew(policy(4, &["enable"])).unwrap();
    assert_eq!(ask(&mut session, codes::PING_REQ, b"").1, "Security is enabled, please authenticate first");
}

#[test]
fn permissive_lets_in_and_counts() {
    let mut session = session(&["add-user alice", "permissive"]);
    assert!(matches!(ask(&mut session, codes::GET_REQ, &body(codes::GET_REQ)).0, Incoming::Request(_)));
    assert_eq!(session.access_mut().take_would_refuse(), 1);
    session.on_secure();
    assert!(matches!(ask(&mut session, codes::AUTH_REQ, &auth("alice")).0, Incoming::Login(_)));
}

/// Planted bugs, each of which a story here finds.
#[cfg(feature = "planted")]
mod planted {
    use base::planted::{Planted, plant};
    use std::panic::catch_unwind;

    fn is_caught(bug: Planted, story: fn()) {
        plant(Some(bug));
        let told = catch_unwind(story);
        plant(None);
        assert!(told.is_err(), "{bug:?} is not caught");
    }

    #[test]
    fn planted_starttls_plaintext_kept() {
        is_caught(Planted::StartTlsPlaintextKept, super::bytes_behind_starttls_end_the_connection);
    }

    #[test]
    fn planted_open_connection_stays_trusted() {
        is_caught(Planted::OpenConnectionStaysTrusted, super::an_open_connection_goes_by_the_policy_in_force);
    }

    #[test]
    fn planted_revoke_unseen() {
        is_caught(Planted::RevokeUnseen, super::a_revoked_permission_ends_a_listing);
    }

    #[test]
    fn planted_route_without_permission() {
        is_caught(Planted::RouteWithoutPermission, super::a_login_without_a_grant_reads_no_data);
    }
}
