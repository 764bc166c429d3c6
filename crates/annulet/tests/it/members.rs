//! Real processes: members whose addresses change, members without a majority, copies of data folders.
use crate::common::nodes::{Cluster, agreed, count, name, until};
use crate::common::{Server, annulet, run};
use bytes::Bytes;
use client::{Content, Quorum, ReadOptions, WriteOptions};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::File;
use std::process::{Child, Command, Stdio};

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
    let all_linked = |servers: &[Option<Server>]| {
        until("links", || {
            let linked = |it: &Server| count(it, "peer_links_up") == 2 && count(it, "peer_links_in") == 2;
            servers.iter().flatten().all(linked)
        });
    };
    all_linked(&servers);
    // A listener on all addresses is reached at its host in the list.
    for (host, port) in [("127.0.0.1", cluster.ports[0] + 10), ("0.0.0.0", cluster.ports[0] + 11)] {
        servers[1].take().unwrap().stop();
        let listen = format!("{host}:{port}");
        servers[1] = Some(cluster.start(2, &["--peer-listen", &listen]));
        ports[1] = port;
        all_linked(&servers);
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
    until_all_agree(&servers.iter().flatten().collect::<Vec<_>>(), &ports);
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

/// What a process says that ends as a copy.
const IS_COPY: &str = "this data folder is a copy, and its original is alive";

/// A copy of node 2's data folder as it is now, and where its process is to listen.
struct Copy<'a> {
    cluster: &'a Cluster,
    data: String,
    port: u16,
}

impl Copy<'_> {
    fn of(cluster: &Cluster, number: u16) -> Copy<'_> {
        let data = format!("n2c{number}");
        let copied = Command::new("cp").current_dir(cluster.dir.path()).args(["-r", "n2", &data]).status();
        assert!(copied.unwrap().success());
        Copy { cluster, data, port: cluster.ports[0] + 20 + number }
    }

    /// The command that starts node 2 on this folder; its log goes to a file beside it.
    fn command(&self, more: &[&str]) -> Command {
        let certs = self.cluster.dir.path().join("certs");
        let file = |name: &str| certs.join(name).display().to_string();
        let (ca, cert, key) = (file("ca.pem"), file("n2.pem"), file("n2.key"));
        let (list, name, listen) = (self.cluster.list(), name(2), format!("127.0.0.1:{}", self.port));
        let files = ["--peer-ca", &*ca, "--peer-cert", &*cert, "--peer-key", &*key, "--shards", "1"];
        let about = ["--name", &*name, "--cluster", &*list, "--data", &*self.data, "--peer-listen", &*listen];
        let words = [&CLIENT_PORTS[..], &files[..], &about[..], more].concat();
        let mut command = annulet(self.cluster.dir.path(), &words);
        command.env("ANNULET_LOG", "warn").stderr(File::create(self.log()).unwrap());
        command
    }

    fn log(&self) -> std::path::PathBuf {
        self.cluster.dir.path().join(format!("{}.log", self.data))
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap()
    }

    fn spawn(&self, more: &[&str]) -> Child {
        self.command(more).stdout(Stdio::null()).spawn().unwrap()
    }

    fn ends(&self, more: &[&str]) {
        self.has_ended(&mut self.spawn(more));
    }

    /// Its process ends as a copy's does.
    fn has_ended(&self, child: &mut Child) {
        until("the copy's end", || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(1), "{}", self.said());
        assert!(self.said().contains(IS_COPY), "{}", self.said());
    }
}

fn all_ready(servers: &[&Server]) {
    until("readiness", || servers.iter().all(|server| ready(server).0));
}

#[test]
fn a_copy_ends_beside_its_original_and_serves_when_that_has_ended() {
    let cluster = Cluster::new(3);
    let (first, third) = (cluster.start(1, &[]), cluster.start(3, &[]));
    let mut original = cluster.start(2, &[]);
    all_ready(&[&first, &original, &third]);
    write_to_all(&original, "before");
    let (copy, other) = (Copy::of(&cluster, 0), Copy::of(&cluster, 1));
    // One claims to be where the original is.
    let at_original = format!("127.0.0.1:{}", cluster.ports[1]);
    let mut children = [(&copy, copy.spawn(&[])), (&other, other.spawn(&["--peer-address", &at_original]))];
    children.iter_mut().for_each(|(copy, child)| copy.has_ended(child));
    original.signal(Signal::STOP);
    copy.ends(&[]);
    original.signal(Signal::CONT);
    all_ready(&[&first, &original, &third]);
    write_to_all(&original, "during");
    assert!(original.ended().is_none());

    // A restart of the original is none.
    original.kill();
    original = cluster.start(2, &[]);
    all_ready(&[&first, &original, &third]);

    // Of a node that is gone the copy is the node, and the original is a copy of that.
    original.kill();
    let copied = Server::started(&mut copy.command(&[]));
    all_ready(&[&first, &copied, &third]);
    write_to_all(&copied, "copied");
    let there = Copy { cluster: &cluster, data: "n2".to_owned(), port: cluster.ports[1] };
    there.ends(&[]);
    copied.kill();
    original = cluster.start(2, &[]);
    all_ready(&[&first, &original, &third]);
    write_to_all(&original, "after");
    [original, first, third].into_iter().for_each(Server::stop);
}

#[test]
fn of_two_processes_that_start_together_one_stays() {
    let cluster = Cluster::new(3);
    let (first, third) = (cluster.start(1, &[]), cluster.start(3, &[]));
    let original = cluster.start(2, &[]);
    all_ready(&[&first, &original, &third]);
    original.stop();
    let copies = [Copy::of(&cluster, 0), Copy::of(&cluster, 1)];
    let mut children = copies.each_ref().map(|copy| copy.spawn(&[]));
    let ended = |children: &mut [Child; 2]| -> Vec<usize> {
        (0..2).filter(|&at| children[at].try_wait().unwrap().is_some()).collect()
    };
    until("the end of one", || !ended(&mut children).is_empty());
    until("the other's links", || {
        [&first, &third]
            .iter()
            .all(|server| count(server, "peer_links_in") == 2 && count(server, "peer_links_up") == 2)
    });
    let ended = ended(&mut children);
    assert_eq!(ended.len(), 1, "{} {}", copies[0].said(), copies[1].said());
    assert!(copies[ended[0]].said().contains(IS_COPY), "{}", copies[ended[0]].said());
    all_ready(&[&first, &third]);
    for child in &mut children {
        child.kill().ok();
        child.wait().unwrap();
    }
    [first, third].into_iter().for_each(Server::stop);
}

#[test]
fn a_copy_that_reached_nobody_ends_when_it_reaches_a_member() {
    let cluster = Cluster::new(3);
    let mut others = vec![cluster.start(1, &[]), cluster.start(3, &[])];
    let mut original = cluster.start(2, &[]);
    all_ready(&[&others[0], &original, &others[1]]);
    until("its registration by all", || {
        others.iter().all(|other| agreed(other)["members"][1]["starts"] == 1)
    });
    others.drain(..).for_each(Server::stop);
    let copy = Copy::of(&cluster, 0);
    let mut copied = Server::started(&mut copy.command(&[]));
    assert!(copied.http_get("/ping").ends_with("OK"), "nobody says that it is a copy");
    others = vec![cluster.start(1, &[]), cluster.start(3, &[])];
    until("the copy's end", || copied.ended().is_some());
    assert_eq!(copied.wait().code(), Some(1), "{}", copy.said());
    assert!(copy.said().contains(IS_COPY), "{}", copy.said());
    all_ready(&[&others[0], &original, &others[1]]);
    write_to_all(&original, "after");
    assert!(original.ended().is_none());
    others.push(original);
    others.into_iter().for_each(Server::stop);
}
