//! Many connections to the real program, by both protocols: idle ones, slow ones, more than there may be, and bytes
//! that are no requests. The clients are this process, the node is another.
use crate::common::Server;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Connections that say nothing: what one machine's load balancers may keep.
const IDLE: usize = 9_000;

/// The most that one of them may cost.
const IDLE_BYTES_MAX: u64 = 16 << 10;

/// Connections that have stored a large value and say nothing more.
const IDLE_AFTER_LARGE: usize = 4;

/// That value: so large that the allocator takes its memory from the system, and gives it back when it is freed.
const LARGE: usize = 40 << 20;

/// What may be left of it, for each: nothing of the buffer, and what else memory is used for meanwhile.
const LEFT_MAX: u64 = 1 << 20;

/// Clients that begin a request and do not go on.
const SLOW: usize = 2_000;

/// Connections beyond what is allowed.
const STORM: usize = 6_000;

/// How many of them there may be.
const STORM_LIMIT: usize = 1_000;

/// A bound on waiting, far beyond what is usual.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Speaks {
    Pb,
    Http,
}

const BOTH: [Speaks; 2] = [Speaks::Pb, Speaks::Http];

impl Speaks {
    fn connect(self, server: &Server) -> TcpStream {
        let address = if self == Speaks::Pb { &server.pb } else { &server.http };
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A request that asks whether the node is there, and the end of its answer.
    fn ping(self) -> (&'static [u8], &'static [u8]) {
        match self {
            Speaks::Pb => (&[0, 0, 0, 1, 1], &[0, 0, 0, 1, 2]),
            Speaks::Http => (b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\r\n\r\nOK"),
        }
    }

    /// Whether the node answers a ping; not if the connection has ended.
    fn pings(self, stream: &mut TcpStream) -> bool {
        let (request, end) = self.ping();
        let mut answer = Vec::new();
        if stream.write_all(request).is_err() {
            return false;
        }
        while !answer.ends_with(end) {
            let mut some = [0; 512];
            match stream.read(&mut some) {
                Ok(0) => return false,
                Ok(read) => answer.extend_from_slice(&some[..read]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return false,
                Err(error) => panic!("{error} after {}", answer.escape_ascii()),
            }
        }
        true
    }
}

/// Lets this process, and what it starts, have as many files as it may.
fn allow_many_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    assert!(maximum.is_none_or(|maximum| maximum as usize > 2 * IDLE), "too few files: {maximum:?}");
}

fn start(folder: &tempfile::TempDir, connections_max: usize) -> Server {
    allow_many_files();
    let limit = connections_max.to_string();
    Server::start(folder.path(), &["--connections-max", &limit, "--durability", "none"])
}

/// What comes until the connection ends.
fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    match stream.read_to_end(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {}", text.escape_ascii()),
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn idle_connections_cost_little() {
    for speaks in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let server = start(&folder, IDLE + 10);
        let mut first = speaks.connect(&server);
        assert!(speaks.pings(&mut first));
        let before = server.resident_bytes();
        let mut idle: Vec<TcpStream> = (0..IDLE).map(|_| speaks.connect(&server)).collect();
        for stream in &mut idle {
            assert!(speaks.pings(stream));
        }
        let each = server.resident_bytes().saturating_sub(before) / IDLE as u64;
        assert!(each <= IDLE_BYTES_MAX, "{speaks:?}: {each} bytes for each idle connection");
        assert!(speaks.pings(&mut first) && speaks.pings(&mut idle[IDLE / 2]));
        drop(idle);
        server.stop();
    }
}

#[test]
fn what_large_requests_were_read_into_is_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder, IDLE_AFTER_LARGE + 10);
    let body = "x".repeat(LARGE);
    let head = "PUT /buckets/b/keys/k HTTP/1.1\r\nHost: localhost\r\nContent-Type: a/b\r\n";
    let by_http = format!("{head}Content-Length: {LARGE}\r\n\r\n{body}").into_bytes();
    let content = client::Content { value: body.into(), ..client::Content::default() };
    let put = protocol::messages::PutReq {
        bucket: "b".into(),
        key: Some("k".into()),
        content,
        ..protocol::messages::PutReq::default()
    };
    let mut by_pb = Vec::new();
    protocol::frame::put_message(&mut by_pb, protocol::codes::PUT_REQ, &put);
    for (speaks, request, answer) in [(Speaks::Pb, by_pb, 5), (Speaks::Http, by_http, 1)] {
        let store = || {
            let mut stream = speaks.connect(&server);
            // A stranger's first request may not be as large.
            assert!(speaks.pings(&mut stream));
            stream.write_all(&request).unwrap();
            stream.read_exact(&mut vec![0; answer]).unwrap();
            stream
        };
        drop(store());
        let before = server.resident_bytes();
        let idle: Vec<TcpStream> = (0..IDLE_AFTER_LARGE).map(|_| store()).collect();
        let each = || server.resident_bytes().saturating_sub(before) / IDLE_AFTER_LARGE as u64;
        // A connection is idle after a second; until then it may keep what it has read into.
        let begun = std::time::Instant::now();
        while each() > LEFT_MAX {
            assert!(begun.elapsed() < PATIENCE, "{speaks:?}: {} bytes for each connection", each());
            std::thread::yield_now();
        }
        drop(idle);
    }
    server.stop();
}

#[test]
fn who_is_slow_keeps_nobody_waiting_and_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder, 3 * SLOW);
    let mut slow = Vec::new();
    for speaks in BOTH {
        for number in 0..SLOW / 2 {
            let mut stream = speaks.connect(&server);
            let begun: &[u8] = match (speaks, number % 2) {
                (Speaks::Pb, _) => &[0, 0, 0, 200, 11, 1],
                (Speaks::Http, 0) => b"GET /buckets/b/ke",
                (Speaks::Http, _) => {
                    b"PUT /buckets/b/keys/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1"
                }
            };
            stream.write_all(begun).unwrap();
            slow.push((speaks, stream));
        }
    }
    for speaks in BOTH {
        let mut quick = speaks.connect(&server);
        assert!((0..100).all(|_| speaks.pings(&mut quick)));
    }
    for (speaks, stream) in &mut slow {
        let answer = rest(stream);
        match speaks {
            Speaks::Pb => assert_eq!(answer, ""),
            Speaks::Http => assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}"),
        }
    }
    server.stop();
}

#[test]
fn a_storm_is_served_or_refused_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder, STORM_LIMIT);
    let mut first = Speaks::Pb.connect(&server);
    assert!(Speaks::Pb.pings(&mut first));
    let sockets = server.open_sockets();
    for speaks in BOTH {
        let mut storm: Vec<TcpStream> = (0..STORM).map(|_| speaks.connect(&server)).collect();
        let mut served = 0;
        for (number, stream) in storm.iter_mut().enumerate() {
            // With the first one there are as many as there may be.
            if number < STORM_LIMIT - 1 {
                served += usize::from(speaks.pings(stream));
            } else if number % 2 == 0 {
                let refusal = rest(stream);
                assert!(refusal.contains("too many connections: the limit is 1000"), "{refusal}");
            }
            // The others are closed with the refusal unread, which resets them.
        }
        assert_eq!(served, STORM_LIMIT - 1);
        drop(storm);
        // Every connection is given back: as many can be served again.
        let mut again = Vec::new();
        while again.len() < STORM_LIMIT - 1 {
            let mut stream = speaks.connect(&server);
            // The node may still be closing those of before.
            if speaks.pings(&mut stream) {
                again.push(stream);
            }
        }
    }
    while server.open_sockets() > sockets {
        assert!(Speaks::Pb.pings(&mut first));
    }
    server.stop();
}

#[test]
fn what_is_no_request_is_refused_and_ends_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder, 100);
    let smuggled = "GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (request, status) in [
        (
            "PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd", 400),
        (
            "PUT /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n4;x\r\nabcd\r\n0\r\n\r\n",
            400,
        ),
        ("PUT /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n", 400),
        ("GET /x HTTP/1.1\r\nHost: localhost\r\nX: a\r\n folded\r\n\r\n", 400),
        ("GET /x HTTP/1.1\nHost: localhost\n\n", 400),
        ("GET /x HTTP/1.1\r\n\r\n", 400),
        ("GET http://x/ping HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /x HTTP/1.1\r\nHost: localhost\r\nX: \0\r\n\r\n", 400),
        ("GET /x HTTP/3.0\r\nHost: localhost\r\n\r\n", 505),
        ("PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n", 413),
        ("PUT /x HTTP/1.1\r\nHost: localhost\r\nExpect: more\r\n\r\n", 417),
    ] {
        let mut stream = Speaks::Http.connect(&server);
        stream.write_all([request, smuggled].concat().as_bytes()).unwrap();
        let answer = rest(&mut stream);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
        assert_eq!(
            answer.matches("HTTP/1.1 ").count(),
            1 + usize::from(status == 505),
            "{request:?}: {answer}"
        );
        assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    }
    // A client that waits for a word gets it, and its answer on the same connection as the next.
    let mut stream = Speaks::Http.connect(&server);
    let head = "PUT /buckets/b/keys/k HTTP/1.1\r\nHost: localhost\r\nContent-Type: a/b\r\nExpect: 100-continue\r\n\
                Content-Length: 3\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut word = [0; 25];
    stream.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"HTTP/1.1 100 Continue\r\n\r\n");
    let get = "GET /buckets/b/keys/k HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(format!("abc{get}").as_bytes()).unwrap();
    let answers = rest(&mut stream);
    assert!(answers.starts_with("HTTP/1.1 204 ") && answers.ends_with("\r\n\r\nabc"), "{answers}");
    server.stop();
}
