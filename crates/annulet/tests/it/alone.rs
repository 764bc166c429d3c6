//! A node alone: its first start makes its metadata log.

use crate::common::nodes::agreed;
use crate::common::{Server, annulet};
use client::{Content, ReadOptions, WriteOptions};
use std::path::Path;
use std::process::{Child, Stdio};

const DATA: [&str; 4] = ["--data", "data", "--shards", "2"];

fn spawn(dir: &Path) -> Child {
    let ports = ["serve", "--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    let mut command = annulet(dir, &[&ports[..], &DATA].concat());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn put_and_stop(dir: &Path, starts: u64) {
    let server = Server::start(dir, &DATA);
    let mut client = server.connect();
    let content = Content { value: "v".into(), ..Content::default() };
    client.put(None, b"b", Some(b"k"), content, &WriteOptions::default()).unwrap();
    assert!(client.get(None, b"b", b"k", &ReadOptions::default()).unwrap().is_some());
    let members = agreed(&server)["members"].clone();
    assert_eq!((members.as_array().unwrap().len(), &members[0]["votes"]), (1, &true.into()));
    assert!(members[0]["starts"].as_u64().unwrap() < starts, "{members}");
    server.stop();
}

#[test]
fn a_node_alone_that_is_killed_in_its_first_start_starts_again() {
    let moments =
        ["data", "data/membership", "data/membership/starts", "data/membership/log", "data/shard-001"];
    for moment in moments {
        let dir = tempfile::tempdir().unwrap();
        let mut first = spawn(dir.path());
        while !dir.path().join(moment).exists() {
            assert!(first.try_wait().unwrap().is_none(), "{moment} was not made");
        }
        first.kill().unwrap();
        first.wait().unwrap();
        put_and_stop(dir.path(), 3);
        put_and_stop(dir.path(), 4);
        assert!(dir.path().join("data/membership/log").exists(), "{moment}");
        assert!(!dir.path().join("data/membership/standing").exists(), "{moment}");
    }
}

/// As a program before kept it.
#[test]
fn a_folder_without_a_metadata_log_gets_one() {
    let dir = tempfile::tempdir().unwrap();
    put_and_stop(dir.path(), 2);
    std::fs::remove_dir_all(dir.path().join("data/membership")).unwrap();
    put_and_stop(dir.path(), 2);
    assert!(dir.path().join("data/membership/log").exists());
}
