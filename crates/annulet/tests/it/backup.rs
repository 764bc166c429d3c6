//! Real processes: backups of nodes that serve, and nodes that start with what was restored.
use crate::common::nodes::{Cluster, agreed, free_ports, make_certificates, name, until};
use crate::common::{Server, annulet, run};
use bytes::Bytes;
use client::{Client, Content, ReadOptions, WriteOptions};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

const BUCKET: &[u8] = b"b";

fn put(client: &mut Client, key: u32, value: &str) {
    let content = Content { value: Bytes::from(value.repeat(40)), ..Content::default() };
    client.put(None, BUCKET, Some(key.to_string().as_bytes()), content, &WriteOptions::default()).unwrap();
}

fn get(client: &mut Client, key: u32) -> Option<Bytes> {
    let found = client.get(None, BUCKET, key.to_string().as_bytes(), &ReadOptions::default()).unwrap();
    found.map(|object| object.siblings[0].value.clone())
}

/// Runs `annulet backup`: its exit code, and what it says.
fn backup(dir: &Path, words: &[&str]) -> (Option<i32>, String) {
    let output = run(dir, &[&["backup"], words].concat());
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

fn created(dir: &Path, words: &[&str]) -> Value {
    let (code, text) = backup(dir, &[&["create", "--json", "--rate", "10000"], words].concat());
    assert_eq!(code, Some(0), "{text}");
    serde_json::from_str(text.lines().next().unwrap()).unwrap()
}

#[test]
fn a_node_is_backed_up_while_it_is_written_and_is_as_it_was_when_it_is_restored() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let node = Server::start(dir, &["--data", "data", "--shards", "2"]);
    let mut client = node.connect();
    (0..500).for_each(|key| put(&mut client, key, "before"));
    let (is_over, written) = (AtomicBool::new(false), AtomicU32::new(1_000));
    let (acknowledged, first) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = node.connect();
            while !is_over.load(SeqCst) {
                put(&mut client, written.load(SeqCst), "during");
                written.fetch_add(1, SeqCst);
            }
        });
        let acknowledged = written.load(SeqCst);
        let first = created(dir, &["--node", &node.http, "--name", "first"]);
        is_over.store(true, SeqCst);
        (acknowledged, first)
    });
    assert_eq!((&first["state"], &first["copied"]), (&"done".into(), &0.into()), "{first}");
    (0..500).for_each(|key| put(&mut client, key, "after!"));
    let second = created(dir, &["--node", &node.http, "--name", "second", "--copy"]);
    assert_eq!(second["earlier"], "first");
    assert!(second["kept"].as_u64() > Some(0) && second["copied"].as_u64() > Some(0), "{second}");
    let (code, text) = backup(dir, &["create", "--node", &node.http, "--name", "first"]);
    assert!(code == Some(1) && text.contains("there is a backup of that name"), "{text}");
    let (code, text) = backup(dir, &["create", "--node", &node.http, "/tmp/elsewhere"]);
    assert!(code == Some(2) && text.contains("backup_dir"), "{text}");
    node.kill();
    let third = created(dir, &["--data", "data", "--name", "third", "data/backups"]);
    assert_eq!(third["earlier"], "second");

    for (name, value) in [("first", "before"), ("second", "after!"), ("third", "after!")] {
        let folder = format!("data/backups/{name}");
        let (code, text) = backup(dir, &["verify", &folder]);
        assert!(code == Some(0) && text.ends_with("no damage\n"), "{text}");
        let data = format!("restored-{name}");
        let (code, text) = backup(dir, &["restore", &folder, "--data", &data]);
        assert_eq!(code, Some(0), "{text}");
        let again = Server::start(dir, &["--data", &data]);
        let mut client = again.connect();
        for key in (0..500).step_by(7) {
            assert_eq!(get(&mut client, key), Some(value.repeat(40).into()), "{key} of {name}");
        }
        let last = if name == "first" { acknowledged } else { written.load(SeqCst) };
        for key in 1_000..last {
            assert!(get(&mut client, key).is_some(), "{key} of {name}");
        }
        put(&mut client, 1, "goes on");
        again.stop();
    }
    let (code, text) = backup(dir, &["restore", "data/backups/first", "--data", "data"]);
    assert!(code == Some(2) && text.contains("not empty"), "{text}");
    let (code, text) = backup(dir, &["verify", "data"]);
    assert!(code == Some(2) && text.contains("no backup"), "{text}");
    let manifest = dir.join("data/backups/second/store-001/MANIFEST");
    let mut bytes = std::fs::read(&manifest).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&manifest, bytes).unwrap();
    let (code, text) = backup(dir, &["verify", "data/backups/second"]);
    assert!(code == Some(1) && text.contains("store-001/MANIFEST"), "{text}");

    // Without a reader of what is printed.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut unread = annulet(dir, &["backup", "verify", "data/backups/second"]);
    assert_eq!(unread.stdout(writer).status().unwrap().code(), Some(1));
}

#[test]
fn a_cluster_is_restored_and_grows() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    make_certificates(&dir.join("certs"), &[name(1), name(2)]);
    let contact = format!("127.0.0.1:{}", free_ports());
    let start = |node: usize, data: &str, more: &[&str]| {
        let file = |name: &str| dir.join("certs").join(name).display().to_string();
        let (ca, cert, key) = (file("ca.pem"), file(&format!("n{node}.pem")), file(&format!("n{node}.key")));
        let name = name(node);
        let options = ["--name", &name, "--data", data, "--shards", "1", "--peer-ca", &ca];
        Server::start(dir, &[&options[..], &["--peer-cert", &cert, "--peer-key", &key], more].concat())
    };
    let list = format!("{}={contact}", name(1));
    let found = ["--cluster", &list, "--ring-size", "16"];
    let node = start(1, "n1", &found);
    let mut client = node.connect();
    (0..200).for_each(|key| put(&mut client, key, "kept"));
    created(dir, &["--node", &node.http, "--name", "b"]);
    (0..200).for_each(|key| put(&mut client, key, "lost"));
    node.kill();
    let (code, text) = backup(dir, &["restore", "n1/backups/b", "--data", "again"]);
    assert!(code == Some(0) && text.contains("a member of the cluster"), "{text}");

    let first = start(1, "again", &found);
    let second = start(2, "n2", &["--join", &contact, "--peer-listen", "127.0.0.1:0"]);
    let admin = |words: &[&str]| {
        let output = run(dir, &[&["admin", "cluster"], words, &["--node", &first.http]].concat());
        output.status.success()
    };
    until("the newcomer to be known", || {
        agreed(&first)["members"].as_array().is_some_and(|all| all.len() == 2)
    });
    until("a plan to be committed", || admin(&["commit", "--wait"]));
    until("the newcomer to have its share", || {
        let seen = agreed(&first);
        seen["change"]["settled"] == true && seen["members"].as_array().is_some_and(|all| all.len() == 2)
    });
    let mut client = second.connect();
    for key in 0..200 {
        assert_eq!(get(&mut client, key), Some("kept".repeat(40).into()), "{key}");
    }
}

/// The metadata log has the limit, which no other repair would bring.
#[test]
fn a_cluster_is_restored_in_any_order_of_starts() {
    let cluster = Cluster::new(3);
    let dir = cluster.dir.path();
    let start = |node: usize| cluster.start(node, &["--backup-dir", &format!("backups-{node}")]);
    let admin = |server: &Server, words: &[&str]| {
        let output = run(dir, &[&["admin"], words, &["--node", &server.http]].concat());
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let limit = |server: &Server| agreed(server)["transfer_limit"]["count"].clone();
    let servers: Vec<Server> = (1..=3).map(start).collect();
    until("a leader", || admin(&servers[0], &["transfer-limit", "5"]).0);
    until("all know the limit", || servers.iter().all(|server| limit(server) == 5));
    for (at, server) in servers.iter().enumerate() {
        if at == 2 {
            until("a change that only the last backup has", || admin(server, &["transfer-limit", "7"]).0);
            until("it is known", || limit(server) == 7);
        }
        created(dir, &["--node", &server.http, "--name", "b", "--copy"]);
    }
    servers.into_iter().for_each(Server::kill);
    for node in 1..=3 {
        let data = format!("n{node}");
        std::fs::remove_dir_all(dir.join(&data)).unwrap();
        let (code, text) = backup(dir, &["restore", &format!("backups-{node}/b"), "--data", &data]);
        assert!(code == Some(0) && text.contains("when all members of the cluster run"), "{text}");
    }

    // The older ones first: two of three are a majority, and wait nevertheless.
    let mut servers: Vec<Server> = (1..=2).map(start).collect();
    for server in &servers {
        until("it waits for the third", || {
            let shown = admin(server, &["cluster", "recover", "--json"]).1;
            let shown: Value = serde_json::from_str(&shown).unwrap();
            shown["awaited"] == serde_json::json!([name(3)])
        });
        let findings = server.http_get("/health/ready");
        assert!(findings.contains("its metadata log waits for other members"), "{findings}");
    }
    let (done, text) = admin(&servers[0], &["transfer-limit", "9"]);
    assert!(!done && text.contains("no leader"), "{text}");

    servers.push(start(3));
    for server in &servers {
        until("all have the change", || limit(server) == 7);
        until("a leader is known", || agreed(server)["leader"].is_string());
        until("nobody waits", || !server.http_get("/health/ready").contains("waits for other members"));
    }
    until("a change", || admin(&servers[1], &["transfer-limit", "11"]).0);
    until("all know it", || servers.iter().all(|server| limit(server) == 11));
}

/// The bytes of all files below a folder.
fn bytes_below(folder: &Path) -> Vec<u8> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { bytes_below(&path) } else { std::fs::read(&path).unwrap() })
        .collect()
}

#[test]
fn a_node_is_restored_without_its_users() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let admin = |data: &str, words: &[&str]| {
        let output = run(dir, &[&["admin", "--data", data, "security"], words].concat());
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let node = Server::start(dir, &["--data", "data", "--shards", "1"]);
    put(&mut node.connect(), 1, "kept");
    for words in [
        &["add-group", "staff"][..],
        &["add-user", "zoe", "groups=staff", "password=correct-horse-battery"],
        &["add-source", "zoe", "127.0.0.1/32", "password"],
        &["grant", "riak_kv.get", "on", "any", "to", "zoe"],
    ] {
        assert!(admin("data", words).0, "{words:?}");
    }
    let folder = created(dir, &["--node", &node.http, "--name", "b"])["folder"].as_str().unwrap().to_owned();
    node.stop();
    let has = |folder: &str, text: &str| {
        bytes_below(&dir.join(folder)).windows(text.len()).any(|bytes| bytes == text.as_bytes())
    };
    assert!(has(&folder, "$argon2id$"), "the backup has the verifier");

    let (code, text) = backup(dir, &["restore", &folder, "--data", "again", "--without-users"]);
    assert!(code == Some(0) && text.contains("nobody can log in"), "{text}");
    for gone in ["$argon2id$", "zoe", "staff"] {
        assert!(!has("again/membership", gone), "{gone}");
    }
    for file in ["data/backups/b/membership/log", "again/membership/log", "again/membership/starts"] {
        let mode = std::fs::metadata(dir.join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }

    let again = Server::start(dir, &["--data", "again"]);
    let refused = again.connect().get(None, BUCKET, b"1", &ReadOptions::default());
    assert!(refused.is_err_and(|error| error.to_string().contains("please STARTTLS first")));
    assert_eq!(admin("again", &["status"]), (true, "Enabled\n".to_owned()));
    assert!(!admin("again", &["print-users"]).1.contains("zoe"));
    assert_eq!(admin("again", &["disable"]), (true, "Disabled\n".to_owned()));
    assert_eq!(get(&mut again.connect(), 1), Some("kept".repeat(40).into()));
    assert!(admin("again", &["add-user", "bob"]).0);
    again.stop();
}
