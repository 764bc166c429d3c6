//! Real processes: nodes that join a cluster by the address of a member, and those that may not.
use crate::common::nodes::{agreed, count, free_ports, make_certificates, name, until};
use crate::common::{Server, annulet, run};
use bytes::Bytes;
use client::{Content, Quorum, ReadOptions, WriteOptions};
use std::path::Path;
use std::process::{Output, Stdio};
use tempfile::TempDir;

/// Keys that are written before a node joins.
const KEYS: u32 = 300;

/// A cluster that node 1 founds.
struct Cluster {
    dir: TempDir,
    port: u16,
}

impl Cluster {
    fn new() -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        make_certificates(&dir.path().join("certs"), &(1..=5).map(name).collect::<Vec<_>>());
        Cluster { dir, port: free_ports() }
    }

    fn contact(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The options of a node in the folder `data`.
    fn options(&self, node: usize, data: &str) -> Vec<String> {
        let file = |name: &str| self.dir.path().join("certs").join(name).display().to_string();
        let (cert, key) = (file(&format!("n{node}.pem")), file(&format!("n{node}.key")));
        let options = ["--name", &name(node), "--data", data, "--shards", "1", "--peer-ca", &file("ca.pem")];
        let files = ["--peer-cert", &cert, "--peer-key", &key];
        [&options[..], &files].concat().into_iter().map(str::to_owned).collect()
    }

    fn start(&self, node: usize, more: &[&str]) -> Server {
        let options = self.options(node, &format!("n{node}"));
        let options: Vec<&str> = options.iter().map(String::as_str).chain(more.iter().copied()).collect();
        Server::start(self.dir.path(), &options)
    }

    fn found(&self) -> Server {
        let list = format!("{}={}", name(1), self.contact());
        self.start(1, &["--cluster", &list, "--ring-size", "16"])
    }

    /// A node that joins. It listens where there is room, and says where that is.
    fn join(&self, node: usize) -> Server {
        self.start(node, &["--join", &self.contact(), "--peer-listen", "127.0.0.1:0"])
    }

    /// What becomes of a node that may not serve.
    fn refused(&self, node: usize, data: &str, more: &[&str]) -> String {
        let options = self.options(node, data);
        let ports = ["serve", "--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
        let words: Vec<&str> = ports.into_iter().chain(options.iter().map(String::as_str)).collect();
        let output = run(self.dir.path(), &[&words[..], more].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        text
    }

    fn refused_to_join(&self, node: usize, data: &str) -> String {
        self.refused(node, data, &["--join", &self.contact(), "--peer-listen", "127.0.0.1:0"])
    }

    fn admin(&self, server: &Server, words: &[&str]) -> (bool, String) {
        let output: Output = run(self.dir.path(), &[&["admin"], words, &["--node", &server.http]].concat());
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }
}

fn put(server: &Server, keys: std::ops::Range<u32>) {
    let mut client = server.connect();
    for key in keys {
        let content = Content { value: Bytes::from(format!("value {key}")), ..Content::default() };
        client.put(None, b"b", Some(&key.to_be_bytes()), content, &WriteOptions::default()).unwrap();
    }
}

fn has_all(server: &Server, keys: std::ops::Range<u32>) {
    let mut client = server.connect();
    let read = ReadOptions { r: Quorum::Quorum, ..ReadOptions::default() };
    for key in keys {
        let found = client.get(None, b"b", &key.to_be_bytes(), &read).unwrap();
        assert_eq!(found.unwrap().siblings[0].value, format!("value {key}"));
    }
}

/// All see the same members, and each other.
fn until_all_agree(servers: &[&Server]) {
    until("agreement", || {
        let all: Vec<_> = servers.iter().map(|server| agreed(server)).collect();
        let sees_all = |it: &serde_json::Value| {
            let members = it["members"].as_array();
            members.is_some_and(|members| {
                members.len() == servers.len()
                    && members.iter().all(|it| it["reachable"] == true && it["starts"] != 0)
            })
        };
        all.iter().all(|it| sees_all(it) && it["version"] == all[0]["version"])
    });
    let links = servers.len() as u64 - 1;
    until("links", || {
        servers.iter().all(|it| count(it, "peer_links_up") == links && count(it, "peer_links_in") == links)
    });
}

#[test]
fn a_node_joins_by_the_address_of_a_member_and_serves_at_once() {
    let cluster = Cluster::new();
    let first = cluster.found();
    assert!(first.banner.contains("(a cluster of 1 node)"), "{}", first.banner);
    put(&first, 0..KEYS);
    let second = cluster.join(2);
    assert!(second.banner.contains("(a cluster of 2 nodes)"), "{}", second.banner);
    assert!(second.banner.contains("owns nothing yet"), "{}", second.banner);
    // Its clients are served by those who own the keys.
    has_all(&second, 0..KEYS);
    put(&second, KEYS..KEYS + 20);
    let third = cluster.join(3);
    until_all_agree(&[&first, &second, &third]);
    has_all(&third, 0..KEYS + 20);
    let shown = agreed(&third);
    assert_eq!(shown["members"][2]["state"], "joining");
    assert_eq!(shown["staged"].as_array().unwrap().len(), 2);
    let (is_shown, plan) = cluster.admin(&third, &["cluster", "plan"]);
    assert!(is_shown && plan.contains("of 16 partitions get another owner"), "{plan}");

    // It is a member now: with the flag or without the cluster's list, started again, elsewhere.
    second.stop();
    let second = cluster.join(2);
    until_all_agree(&[&first, &second, &third]);
    has_all(&second, 0..KEYS);
    until("its new start at all", || {
        [&first, &second, &third].iter().all(|it| agreed(it)["members"][1]["starts"] == 2)
    });
    assert_eq!(agreed(&first)["members"][1]["address"], agreed(&second)["members"][1]["address"]);

    // Its folder is one node's, and its name too.
    let text = cluster.refused_to_join(2, "elsewhere");
    assert!(text.contains("waits to join from"), "{text}");
    let text = cluster.refused_to_join(1, "elsewhere");
    assert!(text.contains("n1@127.0.0.1 is the name of a member, which is valid"), "{text}");
    let text = cluster.refused(4, "n2", &["--join", &cluster.contact(), "--peer-listen", "127.0.0.1:0"]);
    assert!(text.contains("another process is using the data"), "{text}");
    [first, second, third].into_iter().for_each(Server::stop);
}

#[test]
fn newcomers_get_their_share_by_a_plan_and_every_key_is_found_everywhere() {
    let cluster = Cluster::new();
    let mut servers = vec![cluster.found()];
    put(&servers[0], 0..KEYS);
    let mut keys = KEYS;
    for newcomers in [&[2, 3][..], &[4]] {
        servers.extend(newcomers.iter().map(|&node| cluster.join(node)));
        until_all_agree(&servers.iter().collect::<Vec<_>>());
        let (is_done, text) = cluster.admin(&servers[0], &["cluster", "commit", "--wait"]);
        assert!(is_done, "{text}");
        for server in &servers {
            until("the plan at every node", || {
                let shown = agreed(server);
                let members = shown["members"].as_array().unwrap();
                let share = 16 / servers.len() as u64;
                members.iter().all(|it| {
                    it["state"] == "valid" && it["partitions"].as_u64().is_some_and(|owns| owns >= share)
                })
            });
            has_all(server, 0..keys);
        }
        put(&servers[servers.len() - 1], keys..keys + 50);
        keys += 50;
    }
    // One of four that is away is not missed.
    servers.swap_remove(1).kill();
    for server in &servers {
        has_all(server, 0..keys);
    }
    servers.into_iter().for_each(Server::stop);
}

#[test]
fn who_is_forgotten_ends_and_may_come_again_with_an_empty_folder() {
    let cluster = Cluster::new();
    let first = cluster.found();
    let options = cluster.options(2, "n2");
    let contact = cluster.contact();
    let more = ["--join", &contact, "--peer-listen", "127.0.0.1:0"];
    let ports = ["serve", "--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    let words: Vec<&str> = ports.into_iter().chain(options.iter().map(String::as_str)).chain(more).collect();
    let mut command = annulet(cluster.dir.path(), &words);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("admission", || agreed(&first)["members"][1]["reachable"] == true);
    until("its start", || agreed(&first)["members"][1]["starts"] == 1);
    assert!(cluster.admin(&first, &["cluster", "clear"]).0);
    let ended = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{text}");
    assert!(text.contains("this node was removed from the cluster: empty its data folder"), "{text}");
    let text = cluster.refused_to_join(2, "n2");
    assert!(text.contains("this node was removed from the cluster"), "{text}");
    std::fs::remove_dir_all(cluster.dir.path().join("n2")).unwrap();
    let again = cluster.join(2);
    until_all_agree(&[&first, &again]);
    assert_eq!(agreed(&again)["members"][1]["starts"], 1);
    [first, again].into_iter().for_each(Server::stop);
}

#[test]
fn a_node_with_data_or_of_another_authority_does_not_get_in() {
    let cluster = Cluster::new();
    let first = cluster.found();
    let alone = Server::start(cluster.dir.path(), &["--data", "alone", "--name", &name(2), "--shards", "1"]);
    alone.stop();
    let text = cluster.refused_to_join(2, "alone");
    assert!(text.contains("is of a node alone: a node joins a cluster with an empty data folder"), "{text}");
    let text = cluster.refused(
        2,
        "other-ring",
        &["--join", &cluster.contact(), "--peer-listen", "127.0.0.1:0", "--ring-size", "64"],
    );
    assert!(text.contains("the cluster's ring has 16 partitions, not 64"), "{text}");
    let other = Cluster { dir: tempfile::tempdir().unwrap(), port: cluster.port };
    make_certificates(&other.dir.path().join("certs"), &[name(3)]);
    let text = other.refused_to_join(3, "n3");
    assert!(text.contains("certificate"), "{text}");
    until("the refusals", || count(&first, "peer_strangers_refused") >= 1);
    // Another cluster that was founded in the same way is another.
    let apart = Cluster::new();
    let copy = |from: &Path, to: &Path| {
        for file in std::fs::read_dir(from).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    };
    copy(&cluster.dir.path().join("certs"), &apart.dir.path().join("certs"));
    let foreign = apart.found();
    assert_ne!(agreed(&foreign)["cluster"], agreed(&first)["cluster"]);
    [first, foreign].into_iter().for_each(Server::stop);
}

#[test]
fn a_founder_whose_folder_was_emptied_does_not_go_on_with_a_second_cluster() {
    let cluster = Cluster::new();
    let first = cluster.found();
    let second = cluster.join(2);
    until_all_agree(&[&first, &second]);
    let (is_done, text) = cluster.admin(&first, &["cluster", "commit", "--wait"]);
    assert!(is_done, "{text}");
    first.stop();
    std::fs::remove_dir_all(cluster.dir.path().join("n1")).unwrap();
    // It serves until the other one connects to it: also when it is started again by a supervisor.
    for _ in 0..2 {
        let list = format!("{}={}", name(1), cluster.contact());
        let text = cluster.refused(1, "n1", &["--cluster", &list, "--ring-size", "16"]);
        assert!(text.contains("n2@127.0.0.1 is of the cluster "), "{text}");
        assert!(text.contains("has founded another cluster"), "{text}");
    }
    assert!(second.http_get("/ping").ends_with("OK"));
}
