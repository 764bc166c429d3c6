//! Real nodes whose disks have less room than is to be kept back.
use crate::common::nodes::{Cluster, until};
use crate::common::{Server, annulet, run};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;

/// More than any disk has.
const RESERVE: [&str; 2] = ["--disk-reserve", "1024TiB"];

/// The answer to a write over HTTP.
fn put(server: &Server) -> String {
    let mut stream = TcpStream::connect(&server.http).unwrap();
    let head = "PUT /buckets/b/keys/k HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    write!(stream, "{head}Content-Type: text/plain\r\nContent-Length: 1\r\n\r\nv").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn full_disks_are_logged_and_named_where_a_quorum_fails() {
    let cluster = Cluster::new(3);
    let folder = cluster.dir.path();
    let log = |node: usize| folder.join(format!("log{node}"));
    let start = |node: usize| {
        let args = Cluster::args(node, &cluster.list(), &folder.join("certs"), &RESERVE);
        let ports = ["serve", "--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
        let args: Vec<&str> = ports.into_iter().chain(args.iter().map(String::as_str)).collect();
        Server::started(annulet(folder, &args).stderr(File::create(log(node)).unwrap()))
    };
    let servers = [1, 2, 3].map(start);
    for (node, server) in (1..).zip(&servers) {
        until("a line in the log", || {
            let text = std::fs::read_to_string(log(node)).unwrap();
            text.contains("the store takes no writes: no room: ")
        });
        let words = ["admin", "wait-for-service", "--timeout", "0", "--node", &server.http];
        let waited = run(folder, &words);
        let text = String::from_utf8_lossy(&waited.stderr);
        assert!(!waited.status.success() && text.contains("not ready: "), "{text}");
        assert!(run(folder, &[&words[..], &["--live"]].concat()).status.success(), "it is alive");
    }
    let mut answer = String::new();
    until("an answer about the disks", || {
        answer = put(&servers[0]);
        answer.contains("no room on the disk of")
    });
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("W-value unsatisfied: 0/2\n"), "{answer}");
}
