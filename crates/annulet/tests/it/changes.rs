//! Real processes: members that leave, are replaced, restarted or lost while clients go on.
use crate::common::nodes::{agreed, count, free_ports, make_certificates, name, until};
use crate::common::{ANNULET, Server, run};
use bytes::Bytes;
use client::{Client, Content, Quorum, ReadOptions, WriteOptions};
use serde_json::Value;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

/// Keys that are there before something changes.
const KEYS: u32 = 400;

/// Nodes that were founded together.
struct Cluster {
    dir: TempDir,
    port: u16,
    founders: u16,
    ring_size: u32,
}

impl Cluster {
    fn new(founders: u16) -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = (1..=usize::from(founders) + 1).map(name).collect();
        make_certificates(&dir.path().join("certs"), &names);
        Cluster { dir, port: free_ports(), founders, ring_size: 16 }
    }

    fn start(&self, node: u16, more: &[&str]) -> Server {
        self.start_by(Path::new(ANNULET), node, more)
    }

    fn start_by(&self, program: &Path, node: u16, more: &[&str]) -> Server {
        let file = |name: &str| self.dir.path().join("certs").join(name).display().to_string();
        let (cert, key) = (file(&format!("n{node}.pem")), file(&format!("n{node}.key")));
        let (name, data) = (name(usize::from(node)), format!("n{node}"));
        let files = ["--peer-ca", &file("ca.pem"), "--peer-cert", &cert, "--peer-key", &key];
        let options = ["--name", &name, "--data", &data, "--shards", "2", "--durability", "interval"];
        Server::start_by(program, self.dir.path(), &[&options[..], &files, more].concat())
    }

    fn found(&self, node: u16) -> Server {
        self.found_by(Path::new(ANNULET), node)
    }

    fn found_by(&self, program: &Path, node: u16) -> Server {
        let entry = |node: u16| format!("{}=127.0.0.1:{}", name(usize::from(node)), self.port + node);
        let list = (1..=self.founders).map(entry).collect::<Vec<_>>().join(",");
        let size = self.ring_size.to_string();
        self.start_by(program, node, &["--cluster", &list, "--ring-size", &size])
    }

    fn found_all(&self) -> Vec<Server> {
        self.found_all_by(Path::new(ANNULET))
    }

    fn found_all_by(&self, program: &Path) -> Vec<Server> {
        let servers: Vec<Server> = (1..=self.founders).map(|node| self.found_by(program, node)).collect();
        until("a leader", || agreed(&servers[0])["leader"] != Value::Null);
        servers
    }

    fn join(&self, node: u16) -> Server {
        let contact = format!("127.0.0.1:{}", self.port + 1);
        self.start(node, &["--join", &contact, "--peer-listen", "127.0.0.1:0"])
    }

    /// What is wrong with what an operator wants.
    fn refused(&self, server: &Server, words: &[&str]) -> String {
        let output = run(self.dir.path(), &[&["admin"], words, &["--node", &server.http]].concat());
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// What an operator does at a node; tried again while another change is in its way.
    fn admin(&self, server: &Server, words: &[&str]) -> String {
        let mut said = String::new();
        until(&format!("{words:?}"), || {
            let output = run(self.dir.path(), &[&["admin"], words, &["--node", &server.http]].concat());
            said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            output.status.success()
        });
        said
    }
}

fn value(key: u32, bytes: usize) -> Bytes {
    let text = format!("value {key} ");
    Bytes::from(text.repeat(bytes / text.len() + 1))
}

fn put(client: &mut Client, key: u32, bytes: usize) -> Result<(), client::Error> {
    let content = Content { value: value(key, bytes), ..Content::default() };
    client.put(None, b"b", Some(&key.to_be_bytes()), content, &WriteOptions::default()).map(drop)
}

fn put_all(server: &Server, keys: Range<u32>, bytes: usize) {
    let mut client = server.connect();
    keys.for_each(|key| put(&mut client, key, bytes).unwrap());
}

fn has_all(server: &Server, keys: Range<u32>, bytes: usize) {
    let mut client = server.connect();
    let read = ReadOptions { r: Quorum::Quorum, ..ReadOptions::default() };
    for key in keys {
        let found = client.get(None, b"b", &key.to_be_bytes(), &read).unwrap();
        let found = found.unwrap_or_else(|| panic!("key {key} is not found at {}", server.http));
        assert_eq!(found.siblings[0].value, value(key, bytes));
    }
}

fn transfers(server: &Server) -> Value {
    let answer = server.http_get("/admin/cluster/transfers");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn is_settled(server: &Server) -> bool {
    agreed(server)["change"]["settled"] == true
}

/// A client that writes and reads until it is told to stop, and bears no error; says how far it has come.
fn traffic(server: &Server, first: u32, over: &Arc<AtomicBool>) -> std::thread::JoinHandle<u32> {
    let (mut client, over) = (server.connect(), Arc::clone(over));
    std::thread::spawn(move || {
        let mut key = first;
        while !over.load(Ordering::Relaxed) {
            put(&mut client, key, 0).unwrap();
            let read = ReadOptions { r: Quorum::Quorum, ..ReadOptions::default() };
            let old = key % KEYS;
            let found = client.get(None, b"b", &old.to_be_bytes(), &read).unwrap();
            assert_eq!(found.unwrap().siblings[0].value, value(old, 0));
            key += 1;
        }
        key
    })
}

#[test]
fn a_member_leaves_and_clients_do_not_notice() {
    let cluster = Cluster::new(4);
    let mut servers = cluster.found_all();
    put_all(&servers[0], 0..KEYS, 0);
    let over = Arc::new(AtomicBool::new(false));
    let clients = [traffic(&servers[0], 1_000_000, &over), traffic(&servers[1], 2_000_000, &over)];
    cluster.admin(&servers[1], &["cluster", "leave", &name(4)]);
    let said = cluster.admin(&servers[1], &["cluster", "commit", "--wait"]);
    assert!(said.ends_with("settled\n"), "{said}");
    let told = cluster.admin(&servers[1], &["cluster", "clear", "--json"]);
    assert!(serde_json::from_str::<Value>(&told).unwrap()["version"].is_u64(), "{told}");
    let told: Value =
        serde_json::from_str(&cluster.admin(&servers[1], &["stat", "node_put*_total", "--json"])).unwrap();
    assert!(told.as_object().unwrap().contains_key("node_puts_total"), "{told}");
    let wrong = ["admin", "stat", "nothing.of*it", "--node", &servers[1].http];
    assert_eq!(run(cluster.dir.path(), &wrong).status.code(), Some(1));

    // It has nothing any more, sends balancers away, and goes on serving whom it has.
    let leaver = servers.pop().unwrap();
    until("503 to balancers", || leaver.http_get("/ping").starts_with("HTTP/1.1 503"));
    has_all(&leaver, 0..KEYS, 0);
    assert!(leaver.wait().success(), "it ends by itself");
    until("it is forgotten", || {
        servers.iter().all(|server| agreed(server)["members"].as_array().unwrap().len() == 3)
    });
    over.store(true, Ordering::Relaxed);
    let written = clients.map(|client| client.join().unwrap());

    // The option cluster, which has four, only founded it.
    servers.remove(1).stop();
    servers.insert(1, cluster.found(2));
    until("all is settled", || servers.iter().all(is_settled));
    for server in &servers {
        has_all(server, 0..KEYS, 0);
        has_all(server, 1_000_000..written[0], 0);
        has_all(server, 2_000_000..written[1], 0);
    }
}

/// All of them, twice. If `ANNULET_OLDER` names a program they begin with that: then the first time both programs are
/// there at once, and each node opens what the older one has written.
#[test]
fn nodes_are_restarted_one_after_the_other_and_clients_do_not_notice() {
    let older = std::env::var_os("ANNULET_OLDER").map_or_else(|| PathBuf::from(ANNULET), PathBuf::from);
    let cluster = Cluster::new(3);
    let mut servers = cluster.found_all_by(&older);
    let are_linked = |servers: &[Server]| servers.iter().all(|server| count(server, "peers_up") == 2);
    until("all links", || are_linked(&servers));
    put_all(&servers[0], 0..KEYS, 0);
    let mut written = Vec::new();
    for turn in 0..6 {
        // Its clients have left it.
        let stops = servers.remove(turn % 3);
        let over = Arc::new(AtomicBool::new(false));
        let first = [1, 2].map(|client| (2 * turn as u32 + client) * 1_000_000);
        let clients = [0, 1].map(|at| traffic(&servers[at], first[at], &over));
        stops.stop();
        servers.insert(turn % 3, cluster.found(turn as u16 % 3 + 1));
        until("all links", || are_linked(&servers));
        over.store(true, Ordering::Relaxed);
        written.extend(first.into_iter().zip(clients).map(|(first, client)| first..client.join().unwrap()));
    }
    assert!(written.iter().all(|keys| !keys.is_empty()), "clients went on");
    for (server, keys) in servers.iter().flat_map(|server| written.iter().map(move |keys| (server, keys))) {
        has_all(server, keys.clone(), 0);
    }
}

#[test]
fn a_receiver_that_is_killed_goes_on_where_it_was() {
    /// Two parts of a copy, and some, for each of three receivers with two shards.
    const MANY: u32 = 4_000;
    const BYTES: usize = 2_000;
    let cluster = Cluster::new(4);
    let mut servers = cluster.found_all();
    put_all(&servers[0], 0..MANY, BYTES);
    cluster.admin(&servers[1], &["transfer-limit", "--rate", "1"]);
    cluster.admin(&servers[1], &["cluster", "leave", &name(4)]);
    cluster.admin(&servers[1], &["cluster", "commit"]);
    let objects = |server: &Server| {
        let received = transfers(server)["received"].as_array().cloned().unwrap_or_default();
        received.iter().map(|it| it["objects"].as_u64().unwrap()).sum::<u64>()
    };
    let mut before = 0;
    until("a part has come", || {
        before = objects(&servers[0]);
        before > 0
    });
    let is_copying = agreed(&servers[1])["change"]["step"] == "copying";
    servers.remove(0).kill();
    servers.insert(0, cluster.found(1));
    let mut after = 0;
    until("the change is carried out", || {
        after = after.max(objects(&servers[0]));
        servers[..3].iter().all(is_settled)
    });
    assert!(is_copying && after > 0, "it was killed in the middle");
    // Of what each shard is to have, which is some 1,000 keys in all, what had come was not sent again.
    let all = u64::from(MANY) / 3;
    assert!(before + after <= all + all / 4, "{before} came before the end, {after} after it");
    servers[..3].iter().for_each(|server| has_all(server, 0..MANY, BYTES));
}

#[test]
fn what_a_lost_member_held_comes_from_those_who_stay() {
    let cluster = Cluster::new(4);
    let mut servers = cluster.found_all();
    put_all(&servers[0], 0..KEYS, 0);
    servers.pop().unwrap().kill();
    cluster.admin(&servers[0], &["cluster", "force-remove", &name(4)]);
    let said = cluster.admin(&servers[0], &["cluster", "commit", "--wait"]);
    assert!(said.ends_with("settled\n"), "{said}");
    assert_eq!(agreed(&servers[0])["members"].as_array().unwrap().len(), 3);
    // Each of them has what it is to have: any two of three know each key.
    servers.pop().unwrap().kill();
    servers[..2].iter().for_each(|server| has_all(server, 0..KEYS, 0));
    // The one that was removed hears of it, and ends.
    assert_eq!(cluster.found(4).wait().code(), Some(1));
}

#[test]
fn a_newcomer_takes_the_place_of_a_member() {
    let cluster = Cluster::new(3);
    let mut servers = cluster.found_all();
    put_all(&servers[0], 0..KEYS, 0);
    let newcomer = cluster.join(4);
    cluster.admin(&servers[0], &["cluster", "replace", &name(3), &name(4)]);
    let said = cluster.admin(&servers[0], &["cluster", "commit", "--wait"]);
    assert!(said.ends_with("settled\n"), "{said}");
    // The one that goes votes no more.
    let voters = agreed(&servers[0])["voters"].as_array().unwrap().clone();
    assert!(voters.len() == 3 && !voters.contains(&name(3).into()), "{voters:?}");
    assert!(servers.pop().unwrap().wait().success());
    servers.push(newcomer);
    until("it is forgotten", || {
        servers.iter().all(|it| agreed(it)["members"].as_array().unwrap().len() == 3)
    });
    let shown = agreed(&servers[0]);
    let owns = |at: usize| shown["members"][at]["partitions"].as_u64().unwrap();
    assert_eq!(owns(0) + owns(1) + owns(2), 16);
    assert_eq!((&shown["members"][2]["name"], owns(2)), (&Value::from(name(4)), 5));
    servers.iter().for_each(|server| has_all(server, 0..KEYS, 0));
}

#[test]
fn a_survivor_goes_on_without_the_others() {
    let cluster = Cluster::new(3);
    let mut servers = cluster.found_all();
    put_all(&servers[0], 0..KEYS, 0);
    servers.drain(1..).for_each(Server::kill);
    let survivor = &servers[0];
    let mut shown = Value::Null;
    until("the others are missed", || {
        let answer = survivor.http_get("/admin/cluster/recover");
        shown = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        shown["lost"] == true
    });
    cluster.admin(survivor, &["cluster", "recover", shown["word"].as_str().unwrap()]);
    until("it leads", || agreed(survivor)["leader"] == name(1));
    cluster.admin(survivor, &["cluster", "force-remove", &name(2)]);
    cluster.admin(survivor, &["cluster", "force-remove", &name(3)]);
    let said = cluster.admin(survivor, &["cluster", "commit", "--wait"]);
    assert!(said.ends_with("settled\n"), "{said}");
    assert_eq!(agreed(survivor)["members"].as_array().unwrap().len(), 1);
    put_all(survivor, KEYS..KEYS + 10, 0);
    has_all(survivor, 0..KEYS + 10, 0);
}

#[test]
fn a_ring_grows_and_clients_do_not_notice() {
    let cluster = Cluster { ring_size: 64, ..Cluster::new(3) };
    let mut servers = cluster.found_all();
    put_all(&servers[0], 0..KEYS, 0);
    let over = Arc::new(AtomicBool::new(false));
    let clients = [traffic(&servers[0], 1_000_000, &over), traffic(&servers[1], 2_000_000, &over)];
    let resize = |to| ["cluster", "resize-ring", to];
    let said = cluster.refused(&servers[0], &resize("100"));
    assert!(said.contains("is not a power of two from 8 to 65536"), "{said}");
    for size in ["64", "32", "2048"] {
        let said = cluster.refused(&servers[0], &resize(size));
        assert!(said.contains("this one has 64 partitions, and at most 1024"), "{said}");
    }
    cluster.admin(&servers[1], &resize("128"));
    cluster.admin(&servers[1], &["cluster", "clear"]);
    assert!(cluster.admin(&servers[1], &["cluster", "status"]).contains("nothing is staged"));

    let staged = cluster.admin(&servers[1], &["cluster", "resize-ring", "256", "--json"]);
    assert!(staged.starts_with('{'), "{staged}");
    let said = cluster.admin(&servers[0], &["cluster", "status"]);
    assert!(said.contains("the ring will have 256 partitions"), "{said}");
    let said = cluster.admin(&servers[0], &["cluster", "plan"]);
    assert!(said.contains("of 256 partitions get another owner; 0.0 % of the data moves"), "{said}");
    // One is away when it begins, and starts again in the middle.
    servers.pop().unwrap().kill();
    cluster.admin(&servers[1], &["cluster", "commit"]);
    let said = cluster.refused(&servers[0], &resize("512"));
    assert!(said.contains("another change is under way"), "{said}");
    servers.push(cluster.found(3));
    let partitions = |server: &Server| agreed(server)["ring"]["partitions"].as_u64().unwrap();
    until("it has grown", || servers.iter().all(|it| is_settled(it) && partitions(it) == 256));
    until("shards go by it", || servers.iter().all(|it| count(it, "ring_num_partitions") == 256));

    // Smaller partitions are what a newcomer gets.
    servers.push(cluster.join(4));
    let said = cluster.admin(&servers[0], &["cluster", "commit", "--wait"]);
    assert!(said.ends_with("settled\n"), "{said}");
    over.store(true, Ordering::Relaxed);
    let written = clients.map(|client| client.join().unwrap());
    let shown = agreed(&servers[0]);
    assert!((0..4).all(|at| shown["members"][at]["partitions"] == 64), "{shown}");
    // What a folder was made with is what it goes on with.
    servers.remove(1).stop();
    servers.insert(1, cluster.found(2));
    until("all is settled", || servers.iter().all(is_settled));
    for server in &servers {
        has_all(server, 0..KEYS, 0);
        has_all(server, 1_000_000..written[0], 0);
        has_all(server, 2_000_000..written[1], 0);
    }
}
