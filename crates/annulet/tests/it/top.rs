//! `annulet top` and `annulet admin diag` of real nodes.
use crate::common::nodes::{Cluster, until};
use crate::common::{annulet, run};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::Stdio;

/// An address where nobody listens.
const NOBODY: &str = "127.0.0.1:1";

#[test]
fn a_table_has_each_node_the_dead_one_and_the_member_that_was_not_named() {
    let cluster = Cluster::new(2);
    let folder = cluster.dir.path();
    let servers = [cluster.start(1, &[]), cluster.start(2, &[])];
    let first = &servers[0].http;
    until("a cluster of two", || {
        run(folder, &["admin", "wait-for-service", "--timeout", "0", "--node", first]).status.success()
    });
    let output = run(folder, &["top", "--once", "--json", first, &servers[1].http, NOBODY]);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "a dead node is a row");
    assert_eq!(shown["nodes"][0]["name"], "n1@127.0.0.1");
    assert_eq!(
        (&shown["nodes"][1]["name"], &shown["nodes"][0]["ready"]),
        (&"n2@127.0.0.1".into(), &true.into())
    );
    assert!(shown["nodes"][0]["memory_bytes"].as_u64().unwrap() > 1 << 20, "{shown}");
    assert!(shown["nodes"][2]["error"].as_str().unwrap().contains("refused"), "{shown}");
    assert_eq!(shown["members"].as_array().unwrap().len(), 2);

    let text = run(folder, &["top", "--once", first, NOBODY]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(!text.contains('\x1b') && text.lines().count() == 5, "{text}");
    assert!(text.contains("2 members, 2 reached") && text.contains("its address was not given"), "{text}");
}

/// The beginning of each table on a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

#[test]
fn a_table_on_a_terminal_follows_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let own = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&own).unwrap();
    unlockpt(&own).unwrap();
    let name = ptsname(&own, Vec::new()).unwrap().into_string().unwrap();
    let resize = |columns| {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&own, size).unwrap();
    };
    resize(80);
    let theirs = OpenOptions::new().read(true).write(true).open(name).unwrap();
    let mut command = annulet(folder.path(), &["top", "--every", "1", NOBODY]);
    let mut child = command.stdout(theirs).stderr(Stdio::null()).spawn().unwrap();
    drop(command);
    let mut terminal = File::from(own.try_clone().unwrap());
    let mut seen = String::new();
    let mut tables = |count: usize| {
        let mut bytes = [0; 4096];
        while seen.matches(CLEAR).count() < count {
            let len = terminal.read(&mut bytes).unwrap();
            seen.push_str(&String::from_utf8_lossy(&bytes[..len]));
        }
        let last = seen.rsplit(CLEAR).nth(1).unwrap_or_default();
        last.lines().map(|line| line.trim_end().chars().count()).max().unwrap_or_default()
    };
    assert!(tables(2) > 40, "a dead node is a row, and the table goes on");
    resize(30);
    // A table that was begun before may be as wide as the terminal was.
    let widths = [tables(4), tables(5)];
    assert!(widths[1] <= 30, "{widths:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_file_for_a_problem_has_all_parts_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let server = crate::common::Server::start(folder.path(), &["--shards", "1"]);
    let log =
        "a line\npassword=hunter2\n-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\nlast\n";
    std::fs::write(folder.path().join("log"), log).unwrap();
    let words = ["admin", "diag", "--out", "diag.json", "--log", "log", "--node", &server.http];
    let output = run(folder.path(), &words);
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(folder.path().join("diag.json")).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
    let file: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(file["parts"]["figures"]["nodename"], "annulet@127.0.0.1");
    assert_eq!(file["parts"]["figures"]["options"]["shards"], "1");
    assert!(file["parts"]["cluster"]["members"].is_array() && file["parts"]["ready"]["reasons"].is_array());
    assert_eq!(file["log"].as_array().unwrap().len(), 4, "{}", file["log"]);
    assert_eq!(run(folder.path(), &words).status.code(), Some(1), "a file that exists is kept");
    server.stop();
    let words = ["admin", "diag", "--out", "dead.json", "--node", NOBODY];
    assert!(run(folder.path(), &words).status.success());
    let text = std::fs::read_to_string(folder.path().join("dead.json")).unwrap();
    assert!(text.contains("no_answer"), "{text}");
}
