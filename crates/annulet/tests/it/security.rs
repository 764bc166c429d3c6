//! Security of a cluster of real processes: a policy that is changed at one node is that of all, also after restarts.

use crate::common::nodes::{Cluster, until};
use crate::common::{Server, annulet, run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;

const PASSWORD: &str = "correct-horse-battery";

/// Starts a node that logs all to a file.
fn start(cluster: &Cluster, node: usize) -> Server {
    let args = Cluster::args(node, &cluster.list(), &cluster.dir.path().join("certs"), &[]);
    let ports = ["serve", "--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    let args: Vec<&str> = ports.into_iter().chain(args.iter().map(String::as_str)).collect();
    let log = log_of(cluster, node);
    let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
    let mut command = annulet(cluster.dir.path(), &args);
    Server::started(command.env("ANNULET_LOG", "debug").stderr(log))
}

fn log_of(cluster: &Cluster, node: usize) -> PathBuf {
    cluster.dir.path().join(format!("n{node}.log"))
}

/// `annulet admin security` at a node.
fn security(server: &Server, words: &[&str]) -> Output {
    run(Path::new("."), &[&["admin", "--node", &server.http, "security"], words].concat())
}

/// The text of an answer; of a refusal, none.
fn said(server: &Server, words: &[&str]) -> String {
    String::from_utf8(security(server, words).stdout).unwrap().trim_end().to_owned()
}

#[track_caller]
fn text(server: &Server, words: &[&str]) -> String {
    let output = security(server, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[track_caller]
fn refused(server: &Server, words: &[&str]) -> String {
    let output = security(server, words);
    assert!(!output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The files below a folder that have some bytes.
fn files_with(folder: &Path, bytes: &[u8], found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_with(&path, bytes, found);
        } else if std::fs::read(&path).is_ok_and(|it| it.windows(bytes.len()).any(|part| part == bytes)) {
            found.push(path.display().to_string());
        }
    }
}

#[test]
fn a_policy_is_that_of_all_nodes_and_outlives_them() {
    let cluster = Cluster::new(3);
    let mut servers: Vec<Server> = (1..=3).map(|node| start(&cluster, node)).collect();
    let file = cluster.dir.path().join("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    let words = ["add-user", "Ann", "--new-password-file", file.to_str().unwrap()];
    // The members are reached soon after their start.
    assert_eq!(text(&servers[0], &words), "");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(text(&servers[0], &["add-group", "ops"]), "");
    let password = format!("password={PASSWORD}");
    assert_eq!(text(&servers[0], &["add-user", "bob", "groups=ops", &password]), "");

    until("the policy at another node", || said(&servers[1], &["print-users"]).contains("bob"));
    let users = text(&servers[1], &["print-users"]);
    assert!(users.contains("ann") && users.contains("ops") && users.contains("set"), "{users}");
    assert_eq!(
        text(&servers[1], &["grant", "riak_kv.get,riak_kv.put", "on", "t", "b", "to", "ops"]),
        "Successfully granted"
    );
    let explain = ["explain", "bob", "riak_kv.put", "t", "b"];
    let granted = "'bob' has 'riak_kv.put' by the grant to group/ops on t/b";
    until("the grant at another node", || said(&servers[2], &explain) == granted);
    assert_eq!(
        text(&servers[1], &["add-source", "all", "127.0.0.1/32", "password"]),
        "Successfully added source"
    );
    assert!(refused(&servers[1], &["add-user", "ann"]).contains("This name is already in use"));
    assert!(refused(&servers[1], &["print-user", "nobody"]).contains("User not recognized: nobody"));
    assert!(refused(&servers[1], &["add-user", "a b"]).contains("Illegal character(s) in name"));

    assert_eq!(text(&servers[0], &["permissive"]), "Permissive");
    until("the mode at another node", || said(&servers[2], &["status"]) == "Permissive");
    let third = servers.pop().unwrap();
    third.stop();
    assert_eq!(text(&servers[0], &["del-user", "ann"]), "Successfully deleted ann");
    servers.push(start(&cluster, 3));
    until("the change that the node has missed", || !text(&servers[2], &["print-users"]).contains("ann"));
    assert_eq!(text(&servers[2], &["status"]), "Permissive");
    assert_eq!(text(&servers[2], &explain), granted);
    let status: Value = serde_json::from_str(&text(&servers[2], &["status", "--json"])).unwrap();
    assert_eq!(status["tables"][0]["rows"][0]["users"], "1");

    servers.into_iter().for_each(Server::stop);
    let audit = std::fs::read_to_string(log_of(&cluster, 1)).unwrap();
    assert!(audit.contains("add-user bob groups=ops password=…"), "{audit}");
    let mut found = Vec::new();
    files_with(cluster.dir.path(), PASSWORD.as_bytes(), &mut found);
    assert_eq!(found, Vec::<String>::new(), "these files of the nodes and their logs have the password");
}
