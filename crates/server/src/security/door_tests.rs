//! The doors with a policy in force, by clients over real sockets.

use super::Policies;
use super::certificates::ClientCertificates;
use super::door::DoorGuard;
use super::hashing::Hashing;
use super::password::{SALT_BYTES, hash};
use super::reload::reload;
use super::tls::ClientFiles;
use super::tls::tests::Certificates;
use crate::backup::Backups;
use crate::compact::Compactions;
use crate::connections::Connections;
use crate::connects::Connects;
use crate::drain::Drain;
use crate::groups::NodeGroups;
use crate::http::{self, HttpDoor};
use crate::levels::LogLevels;
use crate::mailbox::Mailboxes;
use crate::memory::{MemoryBudgets, MemoryPlan};
use crate::peer::test_local;
use crate::stream::Stream;
use crate::trees::NodeTrees;
use crate::{membership, pb};
use base::Monotonic;
use engine::fold::JournalCheck;
use node::riak::Identity;
use protocol::messages::{AuthReq, ErrorResp, GetReq};
use protocol::{Message, codes};
use rustls::{ClientConnection, StreamOwned};
use security::{Command, Policy, Slots};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::LocalSet;

/// The policy that commands make; a password is hashed.
pub(super) fn policy(version: u64, lines: &[&str]) -> Policy {
    Policy::compile(&records(version, lines), version)
}

/// The records that commands make; a password is hashed with a salt of this number.
pub(super) fn records(salt: u64, lines: &[&str]) -> Slots {
    let mut slots = Slots::default();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let command = Command::parse(&words).unwrap();
        let credential = command.password().map(|password| hash(password, &[salt as u8; SALT_BYTES]));
        let changes = command.plan(&slots, credential).unwrap();
        slots.apply(&changes).unwrap();
    }
    slots
}

/// The addresses of a node's doors.
#[derive(Clone, Copy)]
struct Doors {
    pb: SocketAddr,
    http: SocketAddr,
    https: SocketAddr,
}

/// Serves connections while `client` talks to the doors.
fn with_doors(
    certificates: &Certificates,
    policies: &Arc<Policies>,
    client: impl FnOnce(Doors) + Send + 'static,
) -> Arc<DoorGuard> {
    let guard = guard(certificates.files(true), policies);
    serve_at_doors(&guard, client);
    guard
}

/// The guard of doors with these files.
fn guard(files: ClientFiles, policies: &Arc<Policies>) -> Arc<DoorGuard> {
    let certificates = ClientCertificates::load(files, None).unwrap();
    Arc::new(DoorGuard::new(Arc::clone(policies), Some(certificates)).unwrap())
}

/// Serves connections at doors of this guard while `client` talks to them.
fn serve_at_doors(guard: &Arc<DoorGuard>, client: impl FnOnce(Doors) + Send + 'static) {
    let data = tempfile::tempdir().unwrap();
    let listeners: [std::net::TcpListener; 3] = std::array::from_fn(|_| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    });
    let [pb, http, https] = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
    let client = std::thread::spawn(move || client(Doors { pb, http, https }));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let shared = Arc::clone(guard);
    LocalSet::new().block_on(&runtime, async move {
        let (membership, _inbox) = membership::queue(1);
        let local = test_local(data.path(), membership.clone());
        let budgets = MemoryBudgets::new(&MemoryPlan::new(1 << 30, 1, 0));
        let connections = Rc::new(Connections::new(Arc::default(), budgets, 1 << 20));
        for (door, listener) in listeners.into_iter().enumerate() {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let (local, shared, membership) = (Rc::clone(&local), Arc::clone(&shared), membership.clone());
            let connections = Rc::clone(&connections);
            tokio::task::spawn_local(async move {
                loop {
                    let stream = Stream::plain(listener.accept().await.unwrap().0);
                    let (local, guard) = (Rc::clone(&local), Arc::clone(&shared));
                    let membership = membership.clone();
                    connections.add(Duration::from_secs(3600), |id, about, patience| {
                        if door == 0 {
                            let identity = Arc::new(Identity { node: "n@h".into(), version: "1.2.3".into() });
                            let connected = Rc::new(Connects::default()).begin(Monotonic(0));
                            let node = (identity, guard);
                            let served = pb::serve(stream, local, node, about, patience, id, connected);
                            return tokio::task::spawn_local(served).abort_handle();
                        }
                        let door = if door == 2 { HttpDoor::Https } else { HttpDoor::Http };
                        let wide = wide(membership, guard, door);
                        let served = http::serve(stream, local, wide, about, patience, id);
                        tokio::task::spawn_local(served).abort_handle()
                    });
                }
            });
        }
        tokio::task::spawn_blocking(move || client.join().unwrap()).await.unwrap();
    });
}

/// What a door of HTTP has of the node: here, of one that answers no question.
fn wide(membership: membership::Handle, guard: Arc<DoorGuard>, door: HttpDoor) -> http::Wide {
    let mailboxes = Arc::new(Mailboxes::new(1));
    let names = ("n@h".to_owned(), None);
    let backups = Backups::new(Default::default(), names, (1, 0), Arc::clone(&mailboxes));
    http::Wide {
        stats: Arc::new(|| Box::pin(std::future::pending())),
        membership,
        backups: Arc::new(backups),
        compactions: Arc::new(Compactions::new(1, Arc::clone(&mailboxes))),
        trees: Arc::new(NodeTrees::new(1, Arc::clone(&mailboxes), JournalCheck::None)),
        groups: Arc::new(NodeGroups::new(1, mailboxes)),
        purges: Arc::default(),
        hashing: Hashing::new(),
        has_births: false,
        hosts: Arc::default(),
        guard,
        door,
        http: SocketAddr::from(([127, 0, 0, 1], 8098)).into(),
        drain: Arc::new(Drain::new(Duration::ZERO)),
        log: Arc::new(NoLog),
        slow: node::SlowRequests::off(),
        peers: None,
    }
}

/// A log without levels.
struct NoLog;

impl LogLevels for NoLog {
    fn levels(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn set(&self, _target: Option<&str>, _level: &str) -> Result<(), String> {
        Err("no log".to_owned())
    }
}

/// Sends a message; the code of its answer, and the text if that is an error.
fn ask(stream: &mut (impl Read + Write), code: u8, body: &[u8]) -> (u8, String) {
    let len = u32::try_from(body.len() + 1).unwrap();
    stream.write_all(&[&len.to_be_bytes()[..], &[code], body].concat()).unwrap();
    stream.flush().unwrap();
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    let mut frame = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut frame).unwrap();
    let is_error = frame[0] == codes::ERROR_RESP;
    let text = is_error.then(|| ErrorResp::decode(&frame[1..]).unwrap().errmsg.to_vec());
    (frame[0], String::from_utf8(text.unwrap_or_default()).unwrap())
}

fn auth(user: &str, password: &str) -> Vec<u8> {
    let bytes = |text: &str| text.as_bytes().to_vec().into();
    AuthReq { user: bytes(user), password: bytes(password) }.encode_to_vec()
}

fn get() -> Vec<u8> {
    GetReq { bucket: "b".into(), key: "k".into(), ..GetReq::default() }.encode_to_vec()
}

/// A connection that goes on under TLS.
fn secured(
    certificates: &Certificates,
    name: Option<&str>,
    address: SocketAddr,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut tcp = TcpStream::connect(address).unwrap();
    assert_eq!(ask(&mut tcp, codes::START_TLS, b"").0, codes::START_TLS);
    certificates.client(name, tcp)
}

const PONG: (u8, String) = (codes::PING_RESP, String::new());

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
pub(super) fn a_certificate_of_a_node_logs_nobody_in() {
    let (certificates, of_nodes) = (Certificates::new(), Certificates::new());
    of_nodes.issue("alice", "alice", Some("alice"));
    for file in ["alice.pem", "alice.key"] {
        std::fs::copy(of_nodes.path(file), certificates.path(file)).unwrap();
    }
    let policies = Arc::new(Policies::new());
    let lines = ["add-user alice", "add-source all 127.0.0.1/32 certificate", "enable"];
    policies.publish(policy(1, &lines));
    let loaded = ClientCertificates::load(certificates.files(true), Some(of_nodes.path("ca.pem"))).unwrap();
    let guard = Arc::new(DoorGuard::new(policies, Some(loaded)).unwrap());
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

/// The base64 of `alice:secret`, and of other logins.
const ALICE: &str = "YWxpY2U6c2VjcmV0";
const ALICE_WRONG: &str = "YWxpY2U6d3Jvbmc=";
const BOB: &str = "Ym9iOng=";

/// The head of the answer to a ping with these headers.
fn ping(stream: &mut (impl Read + Write), headers: &str) -> String {
    http_head(stream, "GET /ping", headers)
}

/// The head of the answer to a request with these headers.
fn http_head(stream: &mut (impl Read + Write), request: &str, headers: &str) -> String {
    write!(stream, "{request} HTTP/1.1\r\nHost: h\r\n{headers}\r\n").unwrap();
    stream.flush().unwrap();
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        answer.extend_from_slice(&byte);
    }
    let head = String::from_utf8(answer).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    head
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
pub(super) fn a_revoked_certificate_ends_its_connections() {
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

#[test]
fn a_pool_of_one_address_may_shake_hands_at_once() {
    let certificates = Arc::new(Certificates::new());
    let given = Arc::clone(&certificates);
    let guard = with_doors(&certificates, &Arc::new(Policies::new()), move |Doors { https, .. }| {
        let begin = |_| {
            let mut stream = given.client(None, TcpStream::connect(https).unwrap());
            stream.conn.write_tls(&mut stream.sock).unwrap();
            stream
        };
        let pool: Vec<_> = (0..64).map(begin).collect();
        for mut stream in pool {
            assert!(ping(&mut stream, "").starts_with("HTTP/1.1 200 "));
        }
    });
    let told = serde_json::to_value(guard.figures()).unwrap();
    assert_eq!(told["security_handshakes_dropped"], 0);
}

#[test]
fn half_open_handshakes_keep_nobody_out() {
    let certificates = Arc::new(Certificates::new());
    let given = Arc::clone(&certificates);
    let guard = with_doors(&certificates, &Arc::new(Policies::new()), move |Doors { https, .. }| {
        // The first bytes of a hello, and no more: all of them from the address of the client that follows.
        let half_open = || {
            let mut tcp = TcpStream::connect(https).unwrap();
            tcp.write_all(&[22, 3, 1]).unwrap();
            tcp
        };
        let held: Vec<TcpStream> = (0..300).map(|_| half_open()).collect();
        let silent: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(https).unwrap()).collect();
        let mut stream = given.client(None, TcpStream::connect(https).unwrap());
        assert!(ping(&mut stream, "").starts_with("HTTP/1.1 200 "));
        drop((held, silent));
    });
    let told = serde_json::to_value(guard.figures()).unwrap();
    // All but those of 16 places; the silent ones have none.
    let dropped = told["security_handshakes_dropped"].as_u64().unwrap();
    assert!((1..=301 - 16).contains(&dropped), "{told}");
}
