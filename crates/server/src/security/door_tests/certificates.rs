//! Certificates of clients and of the node: those of nodes, those that are read again, and those that are revoked.

use super::client::{PONG, ask, auth, ping, secured};
use super::fixture::{Doors, compute_threads, guard, policy, serve_at_doors};
use crate::security::Policies;
use crate::security::certificates::ClientCertificates;
use crate::security::door::DoorGuard;
use crate::security::reload::reload;
use crate::security::tls::tests::Certificates;
use protocol::codes;
use rustls::{ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

#[test]
pub(in crate::security) fn a_certificate_of_a_node_logs_nobody_in() {
    let (certificates, of_nodes) = (Certificates::new(), Certificates::new());
    of_nodes.issue("alice", "alice", Some("alice"));
    for file in ["alice.pem", "alice.key"] {
        std::fs::copy(of_nodes.path(file), certificates.path(file)).unwrap();
    }
    let policies = Arc::new(Policies::new());
    let lines = ["add-user alice", "add-source all 127.0.0.1/32 certificate", "enable"];
    policies.publish(policy(1, &lines));
    let loaded = ClientCertificates::load(certificates.files(true), Some(of_nodes.path("ca.pem"))).unwrap();
    let guard = Arc::new(DoorGuard::new(policies, Some(loaded), compute_threads()).unwrap());
    serve_at_doors(&guard, move |Doors { pb: address, .. }| {
        let mut stream = secured(&certificates, Some("alice"), address);
        let body = auth("alice", "");
        let mut frame = (body.len() as u32 + 1).to_be_bytes().to_vec();
        frame.push(codes::AUTH_REQ);
        frame.extend(&body);
        // The client hears of the refusal when it writes or when it reads.
        let mut code = [0; 5];
        let is_heard = stream.write_all(&frame).and_then(|()| stream.flush()).is_ok()
            && stream.read_exact(&mut code).is_ok();
        assert!(!is_heard, "the handshake fails");
    });
    assert_eq!(serde_json::to_value(guard.figures()).unwrap()["security_logins"], 0);
}

/// Has the guard read its files again.
fn reload_now(guard: &Arc<DoorGuard>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let reloaded = runtime.block_on(reload(Arc::clone(guard), None));
    reloaded.map(drop).map_err(|error| error.to_string())
}

/// The node's certificate, as a client sees it.
fn certificate_of_node(stream: &StreamOwned<ClientConnection, TcpStream>) -> Vec<u8> {
    stream.conn.peer_certificates().unwrap()[0].to_vec()
}

#[test]
fn certificates_are_reloaded_all_or_none() {
    let certificates = Arc::new(Certificates::new());
    let policies = Arc::new(Policies::new());
    let guard = guard(certificates.files(true), &policies);
    let (given, shared) = (Arc::clone(&certificates), Arc::clone(&guard));
    serve_at_doors(&guard, move |Doors { pb: address, .. }| {
        let mut open = secured(&given, None, address);
        assert_eq!(ask(&mut open, codes::PING_REQ, b""), PONG);
        let first = certificate_of_node(&open);

        let key = std::fs::read(given.path("node.key")).unwrap();
        given.issue("node", "localhost", None);
        let new_key = std::fs::read(given.path("node.key")).unwrap();
        std::fs::write(given.path("node.key"), key).unwrap();
        let told = reload_now(&shared).unwrap_err();
        assert!(
            told.contains("node.key: ") && told.ends_with("the certificates stay as they were"),
            "{told}"
        );
        let mut stream = secured(&given, None, address);
        assert_eq!(ask(&mut stream, codes::PING_REQ, b""), PONG);
        assert_eq!(certificate_of_node(&stream), first, "the old one is in force");

        std::fs::write(given.path("node.key"), new_key).unwrap();
        reload_now(&shared).unwrap();
        let mut stream = secured(&given, None, address);
        assert_eq!(ask(&mut stream, codes::PING_REQ, b""), PONG);
        assert_ne!(certificate_of_node(&stream), first);
        assert_eq!(ask(&mut open, codes::PING_REQ, b""), PONG, "an open connection stays");
    });
}

#[test]
pub(in crate::security) fn a_revoked_certificate_ends_its_connections() {
    let certificates = Arc::new(Certificates::new());
    for name in ["alice", "bob"] {
        certificates.issue(name, name, Some(name));
    }
    certificates.revoke("list", &[]);
    let policies = Arc::new(Policies::new());
    let lines = ["add-user alice", "add-user bob", "add-source all 127.0.0.1/32 certificate", "enable"];
    policies.publish(policy(1, &lines));
    let guard = guard(certificates.files_with_list("list"), &policies);
    let (given, shared) = (Arc::clone(&certificates), Arc::clone(&guard));
    serve_at_doors(&guard, move |Doors { pb, https, .. }| {
        let login = |name: &str| {
            let mut stream = secured(&given, Some(name), pb);
            assert_eq!(ask(&mut stream, codes::AUTH_REQ, &auth(name, "")).0, codes::AUTH_RESP);
            stream
        };
        let [mut alice, mut bob] = ["alice", "bob"].map(login);
        let mut by_http = given.client(Some("alice"), TcpStream::connect(https).unwrap());
        assert!(ping(&mut by_http, "").starts_with("HTTP/1.1 200 "));

        given.revoke("list", &["alice"]);
        reload_now(&shared).unwrap();
        assert_eq!(ask(&mut bob, codes::PING_REQ, b""), PONG);
        let has_ended = |stream: &mut StreamOwned<ClientConnection, TcpStream>, request: &[u8]| {
            let sent = stream.write_all(request).and_then(|()| stream.flush());
            sent.is_err() || stream.read(&mut [0; 64]).map_or(true, |read| read == 0)
        };
        let get = "GET /ping HTTP/1.1\r\nHost: h\r\n\r\n".as_bytes();
        assert!(has_ended(&mut alice, &[0, 0, 0, 1, codes::PING_REQ]));
        assert!(has_ended(&mut by_http, get));
        let mut again = secured(&given, Some("alice"), pb);
        assert!(has_ended(&mut again, &[0, 0, 0, 1, codes::PING_REQ]), "no handshake");
        let mut again = given.client(Some("alice"), TcpStream::connect(https).unwrap());
        assert!(has_ended(&mut again, get));
        assert_eq!(ask(&mut login("bob"), codes::PING_REQ, b""), PONG);
    });
}
