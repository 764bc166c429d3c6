//! Real processes as a cluster: who gets in, who does not, and what a stranger costs; certificates; `dev`.
use crate::common::nodes::{
    Cluster, PATIENCE, agreed, count, free_ports, make_certificates, name, stats, until,
};
use crate::common::{Server, annulet, run};
use bytes::{Bytes, BytesMut};
use client::{Content, Quorum, ReadOptions, WriteOptions};
use protocol::peer::{Hello, Reply, Versions, cluster_fingerprint};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;

impl Cluster {
    /// A connection to node 1's port for peers, with the certificate of `node` from the folder `certs`.
    fn stranger(&self, certs: &Path, node: Option<&str>) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        let ca = self.dir.path().join("certs/ca.pem");
        roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let config = match node {
            None => builder.with_no_client_auth(),
            Some(node) => {
                let cert = CertificateDer::from_pem_file(certs.join(format!("{node}.pem"))).unwrap();
                let key = PrivateKeyDer::from_pem_file(certs.join(format!("{node}.key"))).unwrap();
                builder.with_client_auth_cert(vec![cert], key).unwrap()
            }
        };
        let reached = ServerName::try_from(server::peer::certificate_name(&name(1))).unwrap();
        let tls = ClientConnection::new(Arc::new(config), reached).unwrap();
        StreamOwned::new(tls, self.connect())
    }

    fn connect(&self) -> TcpStream {
        let tcp = TcpStream::connect(("127.0.0.1", self.ports[0])).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp
    }

    fn hello(&self, from: &str, ring_size: u32) -> Hello {
        let names: Vec<_> = (1..=self.ports.len()).map(name).collect();
        // A new cluster's keys are ordered by sixteen prefixes for each partition.
        let cluster = cluster_fingerprint(ring_size, 16 * ring_size, names.iter().map(|name| &**name));
        Hello { versions: Versions::OURS, cluster, life: 1, from: from.to_owned(), address: String::new() }
    }
}

fn send(stream: &mut StreamOwned<ClientConnection, TcpStream>, hello: &Hello) {
    let mut out = BytesMut::new();
    hello.encode(&mut out);
    stream.write_all(&out).unwrap();
}

fn reply(stream: &mut StreamOwned<ClientConnection, TcpStream>) -> Reply {
    let mut input = BytesMut::new();
    loop {
        if let Some(reply) = Reply::read(&mut input).unwrap() {
            return reply;
        }
        let mut bytes = [0; 1024];
        let read = stream.read(&mut bytes).unwrap();
        assert!(read > 0, "closed without an answer");
        input.extend_from_slice(&bytes[..read]);
    }
}

/// Whether a connection ends without a word.
fn ends(stream: &mut impl Read) -> bool {
    match stream.read(&mut [0; 1024]) {
        Ok(read) => read == 0,
        // An alert says why, and is no data.
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

#[test]
fn strangers_get_nothing_and_the_node_goes_on() {
    let cluster = Cluster::new(3);
    let certs = cluster.dir.path().join("certs");
    let server = cluster.start(1, &[]);
    let mut refused = 0;
    let mut is_refused = || {
        refused += 1;
        until("a refusal", || count(&server, "peer_strangers_refused") >= refused);
    };

    let mut plain = cluster.connect();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).ok();
    assert!(answer.len() < 16, "a TLS alert at most: {answer:?}");
    is_refused();

    let mut without = cluster.stranger(&certs, None);
    without.write_all(b"x").ok();
    assert!(ends(&mut without));
    is_refused();

    let other = tempfile::tempdir().unwrap();
    make_certificates(other.path(), &[name(2)]);
    let mut foreign = cluster.stranger(other.path(), Some("n2"));
    foreign.write_all(b"x").ok();
    assert!(ends(&mut foreign));
    is_refused();

    make_certificates(&certs, &["spare@h".to_owned()]);
    for (certificate, from, ring_size, reason) in [
        ("spare", "spare@h", 64, "no member"),
        ("n2", "n3@127.0.0.1", 64, "the certificate does not name \"n3@127.0.0.1\""),
        ("n1", "n1@127.0.0.1", 64, "this node's own name"),
        ("n2", "n2@127.0.0.1", 128, "another cluster"),
    ] {
        let mut stream = cluster.stranger(&certs, Some(certificate));
        send(&mut stream, &cluster.hello(from, ring_size));
        match reply(&mut stream) {
            Reply::Refused { text } => assert!(text.contains(reason), "{reason}: {text}"),
            Reply::NotMember { epoch: 1, .. } => assert_eq!(reason, "no member"),
            welcome => panic!("{reason}: {welcome:?}"),
        }
        assert!(ends(&mut stream));
        is_refused();
    }

    let mut peer = cluster.stranger(&certs, Some("n2"));
    send(&mut peer, &cluster.hello(&name(2), 64));
    assert!(matches!(reply(&mut peer), Reply::Welcome { .. }));
    until("the link", || count(&server, "peer_links_in") == 1);
    peer.write_all(&[0xff; 64]).unwrap();
    assert!(ends(&mut peer), "a malformed frame costs the connection");
    until("its end", || count(&server, "peer_links_in") == 0);

    assert!(server.http_get("/ping").ends_with("OK"));
    server.stop();
}

#[test]
fn who_says_nothing_is_shown_the_door() {
    let cluster = Cluster::new(2);
    let server = cluster.start(1, &[]);
    let mut silent: Vec<_> = (0..200).map(|_| cluster.connect()).collect();
    // Most find the place taken, the others' time runs out.
    assert!(silent.iter_mut().all(ends));
    until("their refusal", || count(&server, "peer_strangers_refused") == 200);
    let certs = cluster.dir.path().join("certs");
    let mut hello = BytesMut::new();
    cluster.hello(&name(2), 64).encode(&mut hello);
    // They keep their places for a moment longer.
    until("a welcome", || {
        let mut peer = cluster.stranger(&certs, Some("n2"));
        peer.write_all(&hello).is_ok() && matches!(reply(&mut peer), Reply::Welcome { .. })
    });
    server.stop();
}

#[test]
fn links_come_up_go_down_and_come_back() {
    let cluster = Cluster::new(3);
    let start = |node| cluster.start(node, &["--durability", "none"]);
    let mut servers: Vec<_> = (1..=3).map(start).collect();
    let have = |server: &Server, links| {
        until("links", || count(server, "peer_links_up") == links && count(server, "peer_links_in") == links);
    };
    servers.iter().for_each(|server| have(server, 2));
    assert!(servers[0].banner.contains("(a cluster of 3 nodes)"), "{}", servers[0].banner);
    servers.pop().unwrap().kill();
    servers.iter().for_each(|server| have(server, 1));
    let one = stats(&servers[0]);
    assert_eq!(one["peers"][name(2)]["peer_links_up"], 1);
    assert_eq!(one["peers"][name(3)]["peer_links_up"], 0);
    servers.push(start(3));
    servers.iter().for_each(|server| have(server, 2));
    servers.into_iter().for_each(Server::stop);
}

/// No member is where all agreed that it is, so none could even say so; but each is told of the others, as at first.
#[test]
fn nodes_that_are_all_started_elsewhere_find_each_other() {
    let mut cluster = Cluster::new(3);
    let start = |cluster: &Cluster| -> Vec<Server> { (1..=3).map(|node| cluster.start(node, &[])).collect() };
    let all_agree = |cluster: &Cluster, servers: &[Server]| {
        until("agreement", || {
            servers.iter().all(|server| {
                let agreed = agreed(server);
                let members = agreed["members"].as_array().unwrap().iter().zip(&cluster.ports);
                count(server, "peers_up") == 2
                    && members.clone().count() == 3
                    && members.clone().all(|(member, port)| member["address"] == format!("127.0.0.1:{port}"))
            })
        });
    };
    let mut servers = start(&cluster);
    all_agree(&cluster, &servers);
    let content = Content { value: Bytes::from_static(b"v"), ..Content::default() };
    servers[0].connect().put(None, b"b", Some(b"k"), content, &WriteOptions::default()).unwrap();
    servers.into_iter().for_each(Server::stop);
    cluster.ports.iter_mut().for_each(|port| *port += 10);
    servers = start(&cluster);
    all_agree(&cluster, &servers);
    let found = servers[2].connect().get(None, b"b", b"k", &ReadOptions::default()).unwrap();
    assert_eq!(found.unwrap().siblings[0].value, Bytes::from_static(b"v"));
    servers.into_iter().for_each(Server::stop);
}

#[test]
fn values_of_all_sizes_travel_between_nodes_with_different_shards() {
    let cluster = Cluster::new(3);
    // Ten shards: some have no links of their own.
    let shards = ["1", "2", "10"];
    let start = |(at, shards)| cluster.start(at + 1, &["--durability", "none", "--shards", shards]);
    let servers: Vec<_> = shards.into_iter().enumerate().map(start).collect();
    for (server, (up, come)) in servers.iter().zip([(2, 10), (4, 9), (16, 3)]) {
        until("links", || count(server, "peer_links_up") == up && count(server, "peer_links_in") == come);
    }
    let write = WriteOptions { w: Quorum::All, pw: Quorum::All, ..WriteOptions::default() };
    let read = ReadOptions { r: Quorum::All, pr: Quorum::All, ..ReadOptions::default() };
    let mut clients: Vec<_> = servers.iter().map(Server::connect).collect();
    for (at, size) in [0, 1, 4000, 5000, 100_000, 3 << 20].into_iter().enumerate() {
        for n in 0..8 {
            let key = format!("{size} {n}");
            let value = Bytes::from(vec![u8::try_from(n).unwrap(); size]);
            let content = Content { value: value.clone(), ..Content::default() };
            // Each shard has to hear of the others first.
            let client = &mut clients[(at + n) % 3];
            until("a write to all", || {
                client.put(None, b"b", Some(key.as_bytes()), content.clone(), &write).is_ok()
            });
            let client = &mut clients[(at + n + 1) % 3];
            let mut found = None;
            until("a read of all", || {
                found = client.get(None, b"b", key.as_bytes(), &read).ok();
                found.is_some()
            });
            assert!(found.flatten().unwrap().siblings[0].value == value, "{key}");
        }
    }
    for server in &servers {
        assert!(count(server, "peer_bytes_sent") > 3 << 20);
    }
    drop(clients);
    servers.into_iter().for_each(Server::stop);
}

/// Nobody reads anything: what the wiped node held comes back because nodes compare what they hold, shard by shard,
/// though they have different numbers of them.
#[test]
fn a_wiped_disk_is_filled_by_anti_entropy() {
    let cluster = Cluster::new(3);
    let more = |shards| ["--durability", "none", "--anti-entropy", "200ms", "--shards", shards];
    let start = |(at, shards)| cluster.start(at + 1, &more(shards));
    let mut servers: Vec<_> = ["1", "2", "3"].into_iter().enumerate().map(start).collect();
    let mut client = servers[0].connect();
    let write = WriteOptions { w: Quorum::All, pw: Quorum::All, ..WriteOptions::default() };
    for key in 0..200 {
        let content = Content { value: Bytes::from(vec![7; 300]), ..Content::default() };
        until("a write to all", || {
            client.put(None, b"b", Some(format!("k{key}").as_bytes()), content.clone(), &write).is_ok()
        });
    }
    drop(client);
    for server in &servers {
        until("trees of all", || count(server, "tree_keys") == 200 && count(server, "trees_due") == 0);
    }
    servers.pop().unwrap().kill();
    std::fs::remove_dir_all(cluster.dir.path().join("n3")).unwrap();
    servers.push(cluster.start(3, &more("3")));
    until("all keys on the wiped node", || count(&servers[2], "tree_keys") == 200);
    let sum = |what| servers.iter().map(|server| count(server, what)).sum::<u64>();
    assert!(sum("exchange_keys") >= 200 && sum("trees_wrong") == 0, "{}", sum("trees_wrong"));
    let admin = |words: &[&str]| {
        let output =
            run(cluster.dir.path(), &[&["admin"], words, &["--node", &servers[2].http, "--json"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let made = count(&servers[2], "trees_made");
    let partitions = admin(&["aae-rebuild", "--check", "values"])["partitions"].as_u64().unwrap();
    assert_eq!(admin(&["aae-repair", "--partition", "3"])["partitions"], 1);
    until("rebuilds", || count(&servers[2], "trees_made") == made + partitions);
    let begun = run(cluster.dir.path(), &["admin", "aae-repair", "--node", &servers[2].http]);
    assert!(String::from_utf8_lossy(&begun.stdout).contains("comparison begun; "), "{begun:?}");
    let compared = admin(&["aae-repair", "--wait"]);
    assert_eq!((&compared["differed"], &compared["repaired"]), (&0.into(), &0.into()), "{compared}");
    let trees = admin(&["aae-status"]);
    let trees = trees.as_array().unwrap();
    assert_eq!(trees.len() as u64, partitions);
    assert!(
        trees.iter().all(|tree| tree["check"] == "values" && tree["damaged"] == 0 && tree["whole"] == true)
    );
    assert_eq!(trees.iter().filter_map(|tree| tree["keys"].as_u64()).sum::<u64>(), 200);
    let text = run(cluster.dir.path(), &["admin", "aae-status", "--node", &servers[2].http]);
    assert!(String::from_utf8_lossy(&text.stdout).contains(", 200 keys; "));
    let none = run(
        cluster.dir.path(),
        &["admin", "aae-rebuild", "--partition", "70000", "--node", &servers[2].http],
    );
    fails(&none, 1, "no hash trees for this now");
    servers.into_iter().for_each(Server::stop);
}

#[test]
fn nodes_of_different_clusters_do_not_link() {
    let cluster = Cluster::new(3);
    let certs = cluster.dir.path().join("certs");
    let one = cluster.start(1, &["--ring-size", "16"]);
    let other_ring = cluster.start(2, &["--ring-size", "32"]);
    let list: Vec<_> = cluster.list().split(',').map(str::to_owned).collect();
    let other_list = cluster.start_with(3, &[&*list[0], &*list[2]].join(","), &certs, &["--ring-size", "16"]);
    for server in [&one, &other_ring, &other_list] {
        until("a refusal", || count(server, "peer_strangers_refused") > 0);
        assert_eq!(count(server, "peer_links_up"), 0);
        assert!(server.http_get("/ping").ends_with("OK"));
    }
}

#[test]
fn hosts_are_named_in_every_address_option() {
    let mut cluster = Cluster::new(4);
    let dir = cluster.dir.path().to_owned();
    let newcomer = cluster.ports.pop().unwrap();
    let list = cluster.list().replace("=127.0.0.1:", "=localhost:");
    let certs = dir.join("certs");

    // One by flags, one by variables, one by a file.
    let local = ["--pb-listen", "localhost:0", "--http-listen", "localhost:0"];
    let by_flags = Server::started(command_without_addresses(&cluster, 1, &list).args(local));
    let variables = [("ANNULET_PB_LISTEN", "localhost:0"), ("ANNULET_HTTP_LISTEN", "localhost:0")];
    let by_variables = Server::started(command_without_addresses(&cluster, 2, &list).envs(variables));
    let file = "pb_listen = \"localhost:0\"\nhttp_listen = \"localhost:0\"\n";
    std::fs::write(dir.join("names.toml"), file).unwrap();
    let mut by_file = command_without_addresses(&cluster, 3, &list);
    let by_file = Server::started(by_file.args(["--config", "names.toml"]));
    let mut servers = vec![by_flags, by_variables, by_file];

    let addresses = |server: &Server| -> Vec<String> {
        let members = agreed(server)["members"].as_array().unwrap().clone();
        members.iter().map(|member| member["address"].as_str().unwrap().to_owned()).collect()
    };
    let named = |ports: &[u16]| ports.iter().map(|port| format!("localhost:{port}")).collect::<Vec<_>>();
    until("all links by name", || servers.iter().all(|server| count(server, "peers_up") == 2));
    until("all addresses", || servers.iter().all(|server| addresses(server) == named(&cluster.ports)));

    // One that joins by a name, and is reached by one. The first contact's name is not known.
    let file = |name: &str| certs.join(name).display().to_string();
    let (ca, cert, key) = (file("ca.pem"), file("n4.pem"), file("n4.key"));
    let contacts = format!("no-such-host.invalid:1,localhost:{}", cluster.ports[0]);
    let listen = format!("localhost:{newcomer}");
    let mut args = vec!["serve", "--data", "n4", "--name", "n4@127.0.0.1", "--shards", "1"];
    args.extend(local);
    args.extend(["--join", &contacts, "--peer-listen", &listen, "--peer-address", &listen]);
    args.extend(["--peer-ca", &ca, "--peer-cert", &cert, "--peer-key", &key]);
    let fourth = Server::started(&mut annulet(&dir, &args));
    until("a link to the fourth", || servers.iter().all(|server| count(server, "peers_up") == 3));
    assert_eq!(addresses(&servers[1])[3], listen);

    // The command line finds a node by name, and its port for protocol buffers behind that.
    let node = format!("localhost:{}", fourth.http.rsplit_once(':').unwrap().1);
    let put = || run(&dir, &["kv", "put", "--node", &node, "b", "k", "v"]);
    until("a write", || put().status.success());
    assert_eq!(run(&dir, &["kv", "--node", &node, "get", "b", "k"]).stdout, b"v");
    assert!(run(&dir, &["admin", "member-status", "--node", &node]).status.success());
    servers.push(fourth);
    servers.into_iter().for_each(Server::stop);
}

/// What starts a node of a cluster; where it listens to clients is not said.
fn command_without_addresses(cluster: &Cluster, node: usize, list: &str) -> Command {
    let args = Cluster::args(node, list, &cluster.dir.path().join("certs"), &[]);
    let args: Vec<&str> = ["serve"].into_iter().chain(args.iter().map(String::as_str)).collect();
    annulet(cluster.dir.path(), &args)
}

#[test]
fn names_of_members_that_are_not_known_yet_do_not_end_a_node() {
    let cluster = Cluster::new(2);
    let dir = cluster.dir.path();
    let place = format!("127.0.0.1:{}", cluster.ports[1]);
    let list = cluster.list().replace(&place, "no-such-host.invalid:1");
    let log = dir.join("log");
    let any = ["--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    let mut first = command_without_addresses(&cluster, 1, &list);
    let first = Server::started(first.args(any).stderr(std::fs::File::create(&log).unwrap()));
    until("a word on the name", || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.contains("no-such-host.invalid:1: the name is not resolved: ")
    });

    // The second says where it is, and is reached there.
    let mut second = command_without_addresses(&cluster, 2, &list);
    let second = Server::started(second.args(any).args(["--peer-listen", &place]));
    until("links", || [&first, &second].into_iter().all(|server| count(server, "peers_up") == 1));
    first.stop();
    second.stop();

    let unknown = run(dir, &["serve", "--data", "new", "--pb-listen", "no-such-host.invalid:1"]);
    let told = "annulet: pb_listen: cannot listen on no-such-host.invalid:1: the name is not resolved (";
    fails(&unknown, 1, told);
    fails(&unknown, 1, "give a name or an address of this machine");
}

#[test]
fn a_folder_is_of_the_cluster_that_it_was_made_for() {
    let cluster = Cluster::new(2);
    cluster.start(1, &["--ring-size", "16"]).stop();
    let data = cluster.dir.path().join("n1").display().to_string();
    let alone = run(cluster.dir.path(), &["serve", "--data", &data, "--pb-listen", "127.0.0.1:0"]);
    fails(&alone, 1, "is of node 0 of the cluster ");
    fails(&alone, 1, ", but this node is to be of a node alone");
    let again = cluster.start(1, &[]);
    assert!(again.http_get("/ping").ends_with("OK"));
}

#[track_caller]
fn fails(output: &Output, code: i32, reason: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.starts_with("annulet: ") && text.contains(reason), "{text}");
}

#[test]
fn certificates_are_made_once_and_keys_are_secret() {
    let dir = tempfile::tempdir().unwrap();
    let cert = |names: &[&str]| {
        let names: Vec<_> = names.iter().flat_map(|name| ["--name", name]).collect();
        run(dir.path(), &[&["admin", "cert", "--dir", "certs"], &names[..]].concat())
    };
    let text = |output: Output| String::from_utf8(output.stdout).unwrap();
    assert_eq!(text(cert(&["n1@h"])), "made  certs/ca.pem\nmade  certs/n1.pem\n");
    let certs = dir.path().join("certs");
    let read = |name: &str| std::fs::read(certs.join(name)).unwrap();
    let (ca, key) = (read("ca.key"), read("n1.key"));
    assert_eq!(text(cert(&["n1@h", "n2@h"])), "kept  certs/ca.pem\nkept  certs/n1.pem\nmade  certs/n2.pem\n");
    assert!(read("ca.key") == ca && read("n1.key") == key);
    for name in ["ca.key", "n1.key", "n2.key"] {
        let mode = std::fs::metadata(certs.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    fails(&cert(&["n1@elsewhere"]), 1, "certs/n1.pem: it does not name n1@elsewhere");
    fails(&cert(&["n3"]), 2, "\"n3\" is not of the form name@host");
    fails(&cert(&["../n3@h"]), 2, "cannot be the name of a node's files");
    fails(&cert(&["ca@h"]), 2, "cannot be the name of a node's files");
    std::fs::remove_file(certs.join("n2.key")).unwrap();
    fails(&cert(&["n2@h"]), 1, "certs/n2.key: missing, though its certificate is there");
    std::fs::remove_file(certs.join("ca.key")).unwrap();
    fails(&cert(&["n4@h"]), 1, "certs/ca.key: missing, though its certificate is there");

    let serve = |more: &[&str]| {
        let any = ["serve", "--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--name", "n1@h"];
        let files = ["--peer-ca", "certs/ca.pem", "--peer-key", "certs/n1.key", "--peer-cert"];
        run(dir.path(), &[&any[..], &files, more].concat())
    };
    let list = "n1@h=127.0.0.1:1,n2@h=127.0.0.1:2";
    fails(
        &serve(&["certs/n1.pem", "--cluster", "n2@h=127.0.0.1:2"]),
        2,
        "--cluster: this node, n1@h, is not in the list",
    );
    fails(&serve(&["certs/n2.pem", "--cluster", list]), 1, "certs/n2.pem: it does not name n1@h");
    fails(&serve(&["certs/none.pem", "--cluster", list]), 1, "certs/none.pem: ");
    assert!(!dir.path().join("annulet-data").exists(), "nothing was made");
}

/// `annulet dev`, and where it listens. It is killed when this is dropped, and its nodes stop with it.
pub struct Dev {
    pub child: Child,
    _stdout: BufReader<ChildStdout>,
    table: String,
}

impl Drop for Dev {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Dev {
    fn start(dir: &Path, base_port: u16) -> Dev {
        Dev::start_nodes(dir, base_port, "3", "none")
    }

    fn start_nodes(dir: &Path, base_port: u16, nodes: &str, durability: &str) -> Dev {
        let port = base_port.to_string();
        let args = [
            "dev",
            nodes,
            "--data",
            "dev",
            "--base-port",
            &port,
            "--ring-size",
            "16",
            "--durability",
            durability,
        ];
        Dev::started(&mut annulet(dir, &args))
    }

    /// Runs `command` and waits until its nodes serve.
    pub fn started(command: &mut Command) -> Dev {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut table = String::new();
        while !table.contains("annulet kv get") {
            if stdout.read_line(&mut table).unwrap() == 0 {
                panic!("dev ended: {:?}\n{table}", child.wait_with_output());
            }
        }
        Dev { child, _stdout: stdout, table }
    }

    /// The processes of three nodes with their data in `data`.
    pub fn pids(data: &Path) -> Vec<Pid> {
        let pid = |node| std::fs::read_to_string(data.join(format!("n{node}/pid"))).unwrap();
        (1..=3).map(|node| Pid::from_raw(pid(node).trim().parse().unwrap()).unwrap()).collect()
    }

    /// The processes of those that run now.
    fn running(dir: &Path) -> Vec<Pid> {
        let pid = |node| std::fs::read_to_string(dir.join(format!("dev/n{node}/pid"))).ok();
        let raw = (1..=3).filter_map(pid).map(|pid| pid.trim().parse().unwrap());
        raw.map(|pid| Pid::from_raw(pid).unwrap()).collect()
    }

    pub fn end(mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (self.child.wait().unwrap().code(), text)
    }
}

#[test]
fn dev_runs_a_cluster_and_stops_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let base = free_ports();
    let dev = Dev::start(dir.path(), base);
    for node in 1..=3 {
        let port = |which| format!("127.0.0.1:{}", base + 10 * node + which);
        let row =
            dev.table.lines().find(|line| line.trim().starts_with(&format!("n{node}@127.0.0.1"))).unwrap();
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(cells[1..4], [port(7), port(8), port(9)]);
    }
    let pids = Dev::pids(&dir.path().join("dev"));
    assert!(pids.iter().all(|&pid| test_kill_process(pid).is_ok()));
    // What is printed works as it is printed, in another terminal; and one variable names a node for all commands.
    let export = format!("export ANNULET_NODE=127.0.0.1:{}\n", base + 18);
    assert!(dev.table.contains(&export), "{}", dev.table);
    let shell = |text: &str| {
        let mut command = std::process::Command::new("sh");
        let output = command.args(["-ec", text]).current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    until("a first write", || {
        let node = format!("127.0.0.1:{}", base + 18);
        run(dir.path(), &["kv", "put", "--node", &node, "b", "k", "v"]).status.success()
    });
    let tried: Vec<&str> = dev.table.lines().skip_while(|line| *line != "try it:").skip(1).collect();
    assert_eq!(shell(&tried.join("\n")), "A beginning is a very delicate time.");
    let program = crate::common::ANNULET;
    let text = format!(
        "eval \"$({program} dev env n2 --data dev)\"\n{program} kv put b k w\n{program} kv get b k\n\
         {program} kv props get b\n{program} admin member-status\necho $ANNULET_NODE"
    );
    let shown = shell(&text);
    assert!(shown.starts_with('w') && shown.contains("\nn_val: 3\n"), "{shown}");
    assert!(shown.contains("n3@127.0.0.1") && shown.ends_with(&format!(":{}\n", base + 28)), "{shown}");
    for node in 1..=3 {
        let http = format!("127.0.0.1:{}", base + 10 * node + 8);
        until("links", || {
            let answer = crate::common::http_get(&http, "/stats");
            let stats: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
            stats["peer_links_up"] == 2 && stats["ring_num_partitions"] == 16 && stats["shards"] == 1
        });
    }
    kill_process(Pid::from_child(&dev.child), Signal::INT).unwrap();
    assert_eq!(dev.end(), (Some(0), String::new()));
    assert!(pids.iter().all(|&pid| test_kill_process(pid).is_err()));
    assert!((1..=3).all(|node| !dir.path().join(format!("dev/n{node}/pid")).exists()));
}

/// Runs `annulet dev` in `dir` with these words, on the folder `dev`.
fn ask_dev(dir: &Path, words: &[&str]) -> (bool, String) {
    let output = run(dir, &[&["dev"], words, &["--data", "dev"]].concat());
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn dev_survives_killed_nodes_and_starts_them_again() {
    let dir = tempfile::tempdir().unwrap();
    let none = ask_dev(dir.path(), &["status"]);
    assert!(!none.0 && none.1.contains("no cluster runs on dev"), "{none:?}");
    let base = free_ports();
    // All nodes are killed at once below: without syncs they may lose what they acknowledged.
    let dev = Dev::start_nodes(dir.path(), base, "3", "sync");
    let pids = Dev::pids(&dir.path().join("dev"));
    let put = |node: u16, key: &str| {
        let address = format!("127.0.0.1:{}", base + 10 * node + 7);
        run(dir.path(), &["kv", "put", "--address", &address, "b", key, "v"]).status.success()
    };

    // By a command, and by somebody else.
    let killed = ask_dev(dir.path(), &["kill", "2"]);
    assert!(killed.0 && killed.1.starts_with("n2@127.0.0.1 ended (signal: 9 (SIGKILL))\n"), "{killed:?}");
    assert!(killed.1.contains("dev start 2 --data "), "{killed:?}");
    assert!(test_kill_process(pids[1]).is_err());
    until("a write without the second", || put(1, "k1"));
    kill_process(pids[2], Signal::KILL).unwrap();
    until("the third's end", || ask_dev(dir.path(), &["status"]).1.contains("1 of 3 nodes run\n"));
    let status = ask_dev(dir.path(), &["status"]).1;
    assert_eq!(status.matches("  ended (signal: 9 (SIGKILL))").count(), 2, "{status}");

    // Nobody is killed who has got the number of a process that is gone.
    std::fs::write(dir.path().join("dev/n2/pid"), format!("{}\n", std::process::id())).unwrap();
    let gone = ask_dev(dir.path(), &["kill", "2"]);
    assert!(!gone.0 && gone.1.contains("n2@127.0.0.1 does not run"), "{gone:?}");
    for (words, text) in [(["stop", "4"], "nodes 1 to 3"), (["start", "1"], "n1@127.0.0.1 runs already")] {
        let refused = ask_dev(dir.path(), &words);
        assert!(!refused.0 && refused.1.contains(text), "{refused:?}");
    }

    let started = ask_dev(dir.path(), &["start", "n2", "3"]);
    assert!(started.0 && started.1.starts_with("n2@127.0.0.1 serves, process "), "{started:?}");
    assert!((1..=3).all(|node| put(node, &format!("k2 {node}"))), "all serve");
    assert!(ask_dev(dir.path(), &["status"]).1.starts_with("3 of 3 nodes run\n"));

    // All of them at once: what was acknowledged is there when they are back.
    assert!(ask_dev(dir.path(), &["kill", "1", "2", "3"]).0);
    assert!(ask_dev(dir.path(), &["start", "1", "2", "3"]).0);
    for (node, key) in [(2, "k1"), (3, "k2 1"), (1, "k2 3")] {
        let address = format!("127.0.0.1:{}", base + 10 * node + 7);
        until("a read of what was written", || {
            run(dir.path(), &["kv", "get", "--address", &address, "b", key]).stdout == b"v"
        });
    }
    assert!(ask_dev(dir.path(), &["stop", "1"]).1.starts_with("n1@127.0.0.1 ended (exit status: 0)\n"));
    let second = run(dir.path(), &["dev", "3", "--data", "dev", "--base-port", &base.to_string()]);
    assert!(String::from_utf8_lossy(&second.stderr).contains("already"), "{second:?}");

    let pids = [pids, Dev::running(dir.path())].concat();
    kill_process(Pid::from_child(&dev.child), Signal::TERM).unwrap();
    let (code, text) = dev.end();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("n3@127.0.0.1 ended (signal: 9 (SIGKILL)); the others go on\n"), "{text}");
    assert!(text.contains("start it again: ") && text.contains("dev start 3 --data "), "{text}");
    assert!(pids.iter().all(|&pid| test_kill_process(pid).is_err()));
}

#[test]
fn dev_goes_on_without_a_node_that_fails_and_ends_where_all_do() {
    let dir = tempfile::tempdir().unwrap();
    let base = free_ports();
    let taken = TcpListener::bind(("127.0.0.1", base + 28)).unwrap();
    let dev = Dev::start(dir.path(), base);
    assert!(dev.table.contains("  ended (exit status: 1)  "), "{}", dev.table);
    let again = ask_dev(dir.path(), &["start", "2"]);
    let cause = format!("cannot listen on {}", taken.local_addr().unwrap());
    assert!(!again.0 && again.1.contains("n2@127.0.0.1 ended (exit status: 1)"), "{again:?}");
    drop(taken);
    let again = ask_dev(dir.path(), &["start", "2"]);
    assert!(again.0, "it founds with the others, as it was to: {again:?}");
    kill_process(Pid::from_child(&dev.child), Signal::INT).unwrap();
    let (code, text) = dev.end();
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains(&cause) && text.contains("n2@127.0.0.1 ended (exit status: 1); the others go on"),
        "{text}"
    );

    let args = ["dev", "2", "--data", "other", "--base-port", &base.to_string(), "--durability", "some"];
    let output = run(dir.path(), &args);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("annulet: no node came to serve: n1@127.0.0.1 ended (exit status: 2), "), "{text}");
    assert!(text.contains("none of none, interval, sync"), "{text}");
}

#[test]
fn nodes_of_a_dev_that_was_killed_stop_by_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(dir.path(), free_ports());
    kill_process(Pid::from_child(&dev.child), Signal::KILL).unwrap();
    let log = |node| std::fs::read_to_string(dir.path().join(format!("dev/n{node}/log"))).unwrap();
    until("clean stops", || (1..=3).all(|node| log(node).contains("stopped; all data is on disk")));
    assert_eq!(dev.end().0, None);
}

#[test]
fn dev_with_more_nodes_than_before_has_them_join() {
    let dir = tempfile::tempdir().unwrap();
    let base = free_ports();
    let stop = |dev: Dev| {
        kill_process(Pid::from_child(&dev.child), Signal::INT).unwrap();
        assert_eq!(dev.end(), (Some(0), String::new()));
    };
    let dev = Dev::start_nodes(dir.path(), base, "2", "none");
    assert!(!dev.table.contains("nodes that are new"), "{}", dev.table);
    stop(dev);
    // And again as they are now.
    for is_new in [true, false] {
        let dev = Dev::start_nodes(dir.path(), base, "3", "none");
        assert_eq!(dev.table.contains("nodes that are new own nothing yet"), is_new, "{}", dev.table);
        for node in 1..=3 {
            let http = format!("127.0.0.1:{}", base + 10 * node + 8);
            until("the third", || {
                let answer = crate::common::http_get(&http, "/admin/cluster");
                let shown: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
                shown["members"][2]["state"] == "joining" && shown["members"][2]["reachable"] == true
            });
        }
        stop(dev);
    }
}

#[test]
fn nodes_agree_on_who_they_are_and_operators_see_it() {
    let cluster = Cluster::new(3);
    let dir = cluster.dir.path();
    let mut servers: Vec<Server> = (1..=3).map(|node| cluster.start(node, &[])).collect();
    let state_of = |server: &Server, at: usize| agreed(server)["members"][at]["state"].clone();
    let settled = |servers: &[Server]| {
        let all: Vec<Value> = servers.iter().map(agreed).collect();
        all.iter().all(|it| {
            let members = it["members"].as_array().unwrap();
            it["version"] == all[0]["version"]
                && it["leader"].is_string()
                && members.iter().all(|member| member["reachable"] == true && member["starts"] != 0)
        })
    };
    until("agreement", || settled(&servers));
    let admin = |server: &Server, words: &[&str]| -> (bool, String) {
        let output = run(dir, &[&["admin"], words, &["--node", &server.http]].concat());
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    let (is_done, text) = admin(&servers[0], &["member-status"]);
    assert!(
        is_done && text.lines().filter(|line| line.contains("valid  yes      yes")).count() == 3,
        "{text}"
    );
    let (is_done, text) = admin(&servers[1], &["ring-status", "--json"]);
    let ring: Value = serde_json::from_str(&text).unwrap();
    assert!(is_done && ring["voters"].as_array().unwrap().len() == 3, "{text}");
    assert_eq!(ring["ring"]["partitions"], 64);
    assert!(admin(&servers[1], &["transfers"]).1.contains("settled\n\nno transfers to n2@"));
    // Staged at one node, seen at another; shown, forgotten.
    let (is_done, text) = admin(&servers[0], &["cluster", "leave", &name(3)]);
    assert!(is_done && text.contains("staged\nwarning: 2 nodes are left"), "{text}");
    until("the staged change at another node", || agreed(&servers[1])["staged"][0]["change"] == "leave");
    let (is_done, text) = admin(&servers[1], &["cluster", "plan"]);
    assert!(is_done && text.contains("21 of 64 partitions get another owner"), "{text}");
    assert!(
        text.contains("\nwarning: 2 nodes are left, fewer than the 3 copies of the largest n_val"),
        "{text}"
    );
    let (_, text) = admin(&servers[1], &["cluster", "plan", "--json"]);
    let plan: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(plan["warnings"].as_array().map(Vec::len), Some(1), "{text}");
    assert!(!admin(&servers[0], &["cluster", "leave", "nobody@127.0.0.1"]).0);
    assert!(admin(&servers[2], &["cluster", "clear"]).0);
    until("nothing staged", || agreed(&servers[0])["staged"].as_array().unwrap().is_empty());
    // One goes, and is noted to be down; when it comes back it is valid, and knows all that it missed.
    servers.pop().unwrap().kill();
    let mut noted = false;
    until("down", || {
        noted = noted || admin(&servers[0], &["cluster", "down", &name(3)]).0;
        noted && state_of(&servers[1], 2) == "down"
    });
    servers.push(cluster.start(3, &[]));
    // In this order: all have what the first one has by then.
    until("agreement again", || state_of(&servers[0], 2) == "valid" && settled(&servers));
    assert_eq!(agreed(&servers[2])["members"][2]["starts"], 2);
    servers.into_iter().for_each(Server::stop);
}
