//! The doors with a policy in force, by clients over real sockets: logins, permissions and limits.
//!
//! * `fixture.rs`: the doors. `client.rs`: their clients.
//! * `certificates.rs`: certificates that are foreign, new or revoked. `handshakes.rs`: many clients at once.

mod certificates;
mod client;
mod fixture;
mod handshakes;

#[cfg(feature = "planted")]
pub(super) use certificates::{
    a_certificate_of_a_node_logs_nobody_in, a_revoked_certificate_ends_its_connections,
};
pub(super) use fixture::{policy, records};

use super::Policies;
use super::tls::tests::Certificates;
use client::{ALICE, ALICE_WRONG, BOB, PONG, ask, auth, get, http_head, ping, secured};
use fixture::{Doors, with_doors};
use protocol::codes;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

#[test]
fn a_client_starts_tls_and_logs_in_and_is_revoked() {
    let certificates = Arc::new(Certificates::new());
    let policies = Arc::new(Policies::new());
    let alice = ["add-user alice password=secret", "add-source all 127.0.0.1/32 password"];
    let on = policy(2, &[&alice[..], &["enable"]].concat());
    let (given, published) = (Arc::clone(&certificates), Arc::clone(&policies));
    let guard = with_doors(&certificates, &policies, move |Doors { pb: address, .. }| {
        let mut open = TcpStream::connect(address).unwrap();
        assert_eq!(ask(&mut open, codes::PING_REQ, b""), PONG);
        published.publish(on);
        assert_eq!(ask(&mut open, codes::PING_REQ, b"").1, "Security is enabled, please STARTTLS first");

        let mut stream = secured(&given, None, address);
        assert_eq!(
            ask(&mut stream, codes::GET_REQ, &get()).1,
            "Security is enabled, please authenticate first"
        );
        assert_eq!(ask(&mut stream, codes::AUTH_REQ, &auth("alice", "wrong")).1, "Authentication failed");
        assert_eq!(ask(&mut stream, codes::AUTH_REQ, &auth("nobody", "secret")).1, "Authentication failed");
        assert_eq!(ask(&mut stream, codes::AUTH_REQ, &auth("alice", "secret")).0, codes::AUTH_RESP);
        assert_eq!(ask(&mut stream, codes::PING_REQ, b""), PONG);
        let denied = "Permission denied: User 'alice' does not have 'riak_kv.get' on default/b";
        assert_eq!(ask(&mut stream, codes::GET_REQ, &get()).1, denied);

        published.publish(policy(3, &["enable"]));
        assert_eq!(
            ask(&mut stream, codes::PING_REQ, b"").1,
            "Security is enabled, please authenticate first"
        );
    });
    let told = serde_json::to_value(guard.figures()).unwrap();
    assert_eq!((&told["security_logins"], &told["security_logins_refused"]), (&1.into(), &2.into()));
    assert_eq!(told["security_denied"], 1);
}

#[test]
fn a_certificate_is_the_proof_of_its_common_name() {
    let certificates = Arc::new(Certificates::new());
    certificates.issue("alice", "alice", Some("alice"));
    let policies = Arc::new(Policies::new());
    let lines = ["add-user alice", "add-user bob", "add-source all 127.0.0.1/32 certificate", "enable"];
    policies.publish(policy(1, &lines));
    let given = Arc::clone(&certificates);
    with_doors(&certificates, &policies, move |Doors { pb: address, .. }| {
        let mut stream = secured(&given, Some("alice"), address);
        assert_eq!(ask(&mut stream, codes::AUTH_REQ, &auth("bob", "")).1, "Authentication failed");
        assert_eq!(ask(&mut stream, codes::AUTH_REQ, &auth("alice", "")).0, codes::AUTH_RESP);
        assert_eq!(ask(&mut stream, codes::PING_REQ, b""), PONG);
        let mut stream = secured(&given, None, address);
        assert_eq!(ask(&mut stream, codes::AUTH_REQ, &auth("alice", "")).1, "Authentication failed");
    });
}

#[test]
fn plaintext_behind_starttls_ends_the_connection() {
    let certificates = Certificates::new();
    with_doors(&certificates, &Arc::new(Policies::new()), |Doors { pb: address, .. }| {
        let mut tcp = TcpStream::connect(address).unwrap();
        tcp.write_all(b"\0\0\0\x01\xff\0\0\0\x01\x01").unwrap();
        let mut answer = Vec::new();
        tcp.read_to_end(&mut answer).unwrap();
        assert!(answer.is_empty(), "{answer:?}");
    });
}

#[test]
fn permissive_lets_in_and_counts() {
    let certificates = Certificates::new();
    let policies = Arc::new(Policies::new());
    policies.publish(policy(1, &["add-user alice", "permissive"]));
    let guard = with_doors(&certificates, &policies, |Doors { pb: address, .. }| {
        let mut tcp = TcpStream::connect(address).unwrap();
        assert_eq!(ask(&mut tcp, codes::PING_REQ, b""), PONG);
    });
    assert_eq!(serde_json::to_value(guard.figures()).unwrap()["security_would_refuse"], 1);
}

/// Asks for a key until it is refused: requests before that, and the refusal's text.
fn gets_until_refused(stream: &mut (impl Read + Write)) -> (u32, String) {
    (0..)
        .map(|asked| (asked, ask(stream, codes::GET_REQ, &get())))
        .find_map(|(asked, (code, text))| (code == codes::ERROR_RESP).then_some((asked, text)))
        .unwrap()
}

/// A user with limits, and grants for all.
const LIMITED: [&str; 4] = [
    "add-user alice password=secret ops_per_s=3 bytes_per_s=1000000",
    "add-source all 127.0.0.1/32 password",
    "grant riak_kv.get,riak_kv.put on any to all",
    "enable",
];

#[test]
fn a_user_beyond_a_limit_is_refused_and_told_when_to_return() {
    let certificates = Arc::new(Certificates::new());
    let policies = Arc::new(Policies::new());
    policies.publish(policy(1, &LIMITED));
    let given = Arc::clone(&certificates);
    let guard = with_doors(&certificates, &policies, move |Doors { pb, https, .. }| {
        let mut stream = secured(&given, None, pb);
        assert_eq!(ask(&mut stream, codes::AUTH_REQ, &auth("alice", "secret")).0, codes::AUTH_RESP);
        let (asked, text) = gets_until_refused(&mut stream);
        assert!(asked >= 3 && text == "rate_limited", "{asked}, {text}");
        assert_eq!(
            ask(&mut stream, codes::PING_REQ, b""),
            PONG,
            "pings are free, and the connection goes on"
        );

        let mut stream = given.client(None, TcpStream::connect(https).unwrap());
        let login = format!("Authorization: Basic {ALICE}\r\n");
        let refused = (0..).map(|_| http_head(&mut stream, "GET /buckets/b/keys/k", &login));
        let refused = { refused }.find(|head| !head.contains(" 404 ")).unwrap();
        assert!(refused.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{refused}");
        assert!(refused.contains("\r\nRetry-After: 1\r\n"), "{refused}");
    });
    assert!(guard.usage().refused() >= 2);
    assert_eq!(
        serde_json::to_value(guard.figures()).unwrap()["security_rate_limited"],
        guard.usage().refused()
    );
}

#[test]
pub(super) fn each_request_by_https_logs_in() {
    let certificates = Arc::new(Certificates::new());
    let policies = Arc::new(Policies::new());
    let alice = ["add-user alice password=secret", "add-source alice 127.0.0.1/32 password"];
    let bob = ["add-user bob", "add-source bob 10.0.0.0/8 trust", "enable"];
    policies.publish(policy(1, &[&alice[..], &bob].concat()));
    let (given, published) = (Arc::clone(&certificates), Arc::clone(&policies));
    let guard = with_doors(&certificates, &policies, move |doors| {
        let login = |base64: &str| format!("Authorization: Basic {base64}\r\n");
        let mut plain = TcpStream::connect(doors.http).unwrap();
        assert!(ping(&mut plain, &login(ALICE)).starts_with("HTTP/1.1 426 "));

        let mut stream = given.client(None, TcpStream::connect(doors.https).unwrap());
        assert!(ping(&mut stream, "").starts_with("HTTP/1.1 401 "));
        assert!(ping(&mut stream, &login(ALICE)).starts_with("HTTP/1.1 200 "));
        assert!(ping(&mut stream, &login(ALICE_WRONG)).starts_with("HTTP/1.1 401 "));
        let forwarded = format!("X-Forwarded-For: 10.0.0.1\r\n{}", login(BOB));
        assert!(
            ping(&mut stream, &forwarded).starts_with("HTTP/1.1 401 "),
            "the address is the connection's"
        );
        assert!(ping(&mut stream, &login(ALICE)).starts_with("HTTP/1.1 200 "));
        published.publish(policy(2, &["enable"]));
        assert!(ping(&mut stream, &login(ALICE)).starts_with("HTTP/1.1 401 "));
    });
    let told = serde_json::to_value(guard.figures()).unwrap();
    assert_eq!((&told["security_logins"], &told["security_logins_refused"]), (&2.into(), &3.into()));
}
