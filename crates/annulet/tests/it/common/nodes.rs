//! What tests of several nodes share.

use super::{Server, run};
use serde_json::Value;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// How long something may take that is expected to happen. Only a failure takes so long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `what` is there.
#[track_caller]
pub fn until(what: &str, mut is_there: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_there() {
        assert!(began.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The name of a node.
pub fn name(node: usize) -> String {
    format!("n{node}@127.0.0.1")
}

/// A node's statistics.
pub fn stats(server: &Server) -> Value {
    let answer = server.http_get("/stats");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// One of its numbers.
pub fn count(server: &Server, what: &str) -> u64 {
    stats(server)[what].as_u64().unwrap()
}

/// Forty ports that are free, of this test alone. They are below those that the system gives to connections: a node
/// that was down would else find its port taken, perhaps by a peer that tries to reach it.
pub fn free_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let first = u16::try_from(10_000 + std::process::id() % 10_000).unwrap();
    loop {
        let base = first + 40 * NEXT.fetch_add(1, Ordering::Relaxed);
        if (base..base + 40).all(is_free) {
            return base;
        }
    }
}

/// Makes an authority, if there is none, and certificates.
pub fn make_certificates(dir: &Path, names: &[String]) {
    let names: Vec<_> = names.iter().flat_map(|name| ["--name", name]).collect();
    let output =
        run(Path::new("."), &[&["admin", "cert", "--dir", dir.to_str().unwrap()], &names[..]].concat());
    assert!(output.status.success(), "{output:?}");
}

/// What a node says that all agree on.
pub fn agreed(server: &Server) -> Value {
    let answer = server.http_get("/admin/cluster");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}
/// A folder with certificates, and a list of members of which not all need run.
pub struct Cluster {
    pub dir: TempDir,
    /// By node, from 1.
    pub ports: Vec<u16>,
}

impl Cluster {
    pub fn new(nodes: usize) -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let certs = dir.path().join("certs");
        make_certificates(&certs, &(1..=nodes).map(name).collect::<Vec<_>>());
        let first = free_ports();
        let ports = (first..).take(nodes).collect();
        Cluster { dir, ports }
    }

    pub fn list(&self) -> String {
        let members: Vec<_> = self
            .ports
            .iter()
            .enumerate()
            .map(|(at, port)| format!("{}=127.0.0.1:{port}", name(at + 1)))
            .collect();
        members.join(",")
    }

    pub fn start(&self, node: usize, more: &[&str]) -> Server {
        self.start_with(node, &self.list(), &self.dir.path().join("certs"), more)
    }

    pub fn start_with(&self, node: usize, list: &str, certs: &Path, more: &[&str]) -> Server {
        let args = Cluster::args(node, list, certs, more);
        Server::start(self.dir.path(), &args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// What a node is started with, besides where it listens to clients.
    pub fn args(node: usize, list: &str, certs: &Path, more: &[&str]) -> Vec<String> {
        let file = |name: &str| certs.join(name).display().to_string();
        let (ca, cert) = (file("ca.pem"), file(&format!("n{node}.pem")));
        let (key, name, data) = (file(&format!("n{node}.key")), name(node), format!("n{node}"));
        let files = ["--peer-ca", &ca, "--peer-cert", &cert, "--peer-key", &key];
        let args = ["--name", &name, "--cluster", list, "--data", &data];
        let one_shard = if more.contains(&"--shards") { &[][..] } else { &["--shards", "1"] };
        [&args[..], &files, one_shard, more].concat().into_iter().map(str::to_owned).collect()
    }
}
