//! What tests of several nodes share.

use super::{Server, run};
use serde_json::Value;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

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

/// Forty ports that are free, of this test alone. They are below those that the system gives to connections: a node that
/// was down would else find its port taken, perhaps by a peer that tries to reach it.
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
