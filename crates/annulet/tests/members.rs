//! Real processes: members whose addresses change, members without a majority.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use bytes::Bytes;
use client::{Content, Quorum, ReadOptions, WriteOptions};
use common::nodes::{Cluster, agreed, count, name, until};
use common::{Server, annulet, run};
use serde_json::{Value, json};
use std::fs::File;

/// A listener for clients of the protocols, on ports of the system's choice.
const CLIENT_PORTS: [&str; 5] = ["serve", "--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];

/// Whether a node is ready, and why not.
fn ready(server: &Server) -> (bool, Value) {
    let answer = server.http_get("/health/ready");
    let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let is_ready = body["ready"] == true;
    assert!(answer.starts_with(if is_ready { "HTTP/1.1 200" } else { "HTTP/1.1 503" }), "{answer}");
    assert_eq!(body["reasons"].as_array().unwrap().is_empty(), is_ready, "{answer}");
    (is_ready, body)
}

/// All reach each other, and agree on where they are.
fn until_all_agree(servers: &[&Server], ports: &[u16]) {
    let addresses: Vec<Value> = ports.iter().map(|port| json!(format!("127.0.0.1:{port}"))).collect();
    until("agreement on addresses", || {
        servers.iter().all(|server| {
            let agreed = agreed(server);
            let members = agreed["members"].as_array().unwrap().iter();
            count(server, "peer_links_up") == 2
                && count(server, "peer_links_in") == 2
                && members.map(|it| it["address"].clone()).collect::<Vec<_>>() == addresses
        })
    });
}

fn write_to_all(server: &Server, key: &str) {
    let all = WriteOptions { w: Quorum::All, pw: Quorum::All, ..WriteOptions::default() };
    let content = Content { value: Bytes::from_static(b"v"), ..Content::default() };
    let mut client = server.connect();
    until("a write to all", || client.put(None, b"b", Some(key.as_bytes()), content.clone(), &all).is_ok());
}

fn has(server: &Server, key: &str) -> bool {
    server.connect().get(None, b"b", key.as_bytes(), &ReadOptions::default()).unwrap().is_some()
}

/// The list of members stays as it was when they founded the cluster.
#[test]
fn a_member_that_listens_elsewhere_is_found_there_whatever_an_old_list_says() {
    let cluster = Cluster::new(3);
    let mut ports = cluster.ports.clone();
    let mut servers: Vec<Option<Server>> = (1..=3).map(|node| Some(cluster.start(node, &[]))).collect();
    let all_agree = |servers: &[Option<Server>], ports: &[u16]| {
        until_all_agree(&servers.iter().flatten().collect::<Vec<_>>(), ports);
    };
    all_agree(&servers, &ports);
    let free = cluster.ports[0] + 10;
    for (listen, more, port) in [
        (format!("127.0.0.1:{free}"), String::new(), free),
        // On all addresses: its host is that of the list.
        (format!("0.0.0.0:{}", free + 1), String::new(), free + 1),
        (format!("0.0.0.0:{}", free + 2), format!("127.0.0.1:{}", free + 2), free + 2),
    ] {
        servers[1].take().unwrap().stop();
        let mut options = vec!["--peer-listen", &*listen];
        if !more.is_empty() {
            options.extend(["--peer-address", &*more]);
        }
        servers[1] = Some(cluster.start(2, &options));
        ports[1] = port;
        all_agree(&servers, &ports);
        write_to_all(servers[1].as_ref().unwrap(), &listen);
        assert!(has(servers[0].as_ref().unwrap(), &listen));
    }

    // Two change places, and the third is away meanwhile.
    servers.iter_mut().for_each(|server| server.take().unwrap().stop());
    ports.swap(1, 2);
    for node in [2, 3] {
        let listen = format!("127.0.0.1:{}", ports[node - 1]);
        servers[node - 1] = Some(cluster.start(node, &["--peer-listen", &listen]));
    }
    until("the two find each other", || {
        servers.iter().flatten().all(|server| count(server, "peer_links_up") == 1 && ready(server).0)
    });
    servers[0] = Some(cluster.start(1, &[]));
    all_agree(&servers, &ports);
    servers.into_iter().flatten().for_each(Server::stop);
}

#[test]
fn a_member_without_a_majority_says_so_and_serves() {
    let cluster = Cluster::new(3);
    let mut others = vec![cluster.start(1, &[]), cluster.start(3, &[])];
    // The second one's log is looked at.
    let certs = cluster.dir.path().join("certs");
    let file = |name: &str| certs.join(name).display().to_string();
    let (ca, cert, key, list) = (file("ca.pem"), file("n2.pem"), file("n2.key"), cluster.list());
    let files = ["--peer-ca", &*ca, "--peer-cert", &*cert, "--peer-key", &*key];
    let about =
        ["--name", &*name(2), "--cluster", &*list, "--data", "n2", "--shards", "1"].map(str::to_owned);
    let about: Vec<&str> = about.iter().map(String::as_str).collect();
    let mut command = annulet(cluster.dir.path(), &[&CLIENT_PORTS[..], &files[..], &about[..]].concat());
    let log = cluster.dir.path().join("n2.log");
    let server = Server::started(command.env("ANNULET_LOG", "warn").stderr(File::create(&log).unwrap()));
    until("a majority", || ready(&server).0 && others.iter().all(|other| ready(other).0));
    until("all members", || count(&server, "cluster_members_reached") == 3);
    assert_eq!(count(&server, "cluster_majority"), 1);
    let status = |server: &Server| {
        let output = run(cluster.dir.path(), &["admin", "member-status", "--node", &server.http]);
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(!status(&server).contains("no majority"));

    others.drain(..).for_each(Server::stop);
    until("no majority", || !ready(&server).0);
    let reasons = ready(&server).1["reasons"].to_string();
    assert!(reasons.contains("this node reaches 1 of 3 members: no majority"), "{reasons}");
    assert!(server.http_get("/ping").ends_with("OK"));
    assert_eq!(count(&server, "cluster_majority"), 0);
    assert!(server.http_get("/metrics").contains("\nannulet_cluster_majority 0\n"));
    assert!(status(&server).starts_with("n2@127.0.0.1: this node reaches 1 of 3 members: no majority\n"));
    until("a line in the log", || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.contains("this node reaches 1 of 3 members: no majority")
            && text.contains("n1@127.0.0.1, n3@127.0.0.1")
    });

    let back = cluster.start(1, &[]);
    until("a majority again", || ready(&server).0 && ready(&back).0);
    server.stop();
    back.stop();
}

#[test]
fn a_node_alone_is_ready() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--data", "n", "--shards", "1"]);
    until("its readiness", || ready(&server).0);
    assert_eq!((count(&server, "cluster_majority"), count(&server, "cluster_members")), (1, 1));
    server.stop();
}
