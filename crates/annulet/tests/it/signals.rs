//! Signals to a real node: none of them ends it uncleanly.
use crate::common::nodes::{free_ports, until};
use crate::common::{Server, annulet, run};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Signals that a node goes on after.
const IGNORED: [Signal; 11] = [
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
    Signal::PIPE,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::POWER,
    Signal::STKFLT,
    Signal::XFSZ,
];

/// The first and the last signal of real time.
const REAL_TIME: [i32; 2] = [34, 64];

/// An address of this machine alone, with a port of the system's choice.
const LOOPBACK: &str = "127.0.0.1:0";

/// A node whose log goes to the file `log` of the folder.
fn start(folder: &Path, pb: &str, args: &[&str]) -> Server {
    let ports = ["serve", "--pb-listen", pb, "--http-listen", "127.0.0.1:0", "--shards", "1"];
    let mut command = annulet(folder, &[&ports, args].concat());
    Server::started(command.stderr(File::create(folder.join("log")).unwrap()))
}

fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap()
}

#[test]
fn signals_are_ignored_or_stop_a_node_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = start(folder.path(), LOOPBACK, &[]);
    for signal in IGNORED {
        server.signal(signal);
        assert!(server.http_get("/ping").ends_with("OK"), "after {signal:?}");
    }
    for number in REAL_TIME {
        // The shell knows them by their numbers alone.
        let kill = format!("kill -{number} {}", server.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        assert!(server.http_get("/ping").ends_with("OK"), "after signal {number}");
    }
    until("a line in the log", || log(folder.path()).contains("the signal SIGUSR1 is ignored"));
    until("a line about certificates", || log(folder.path()).contains("this node has no certificates"));
    for signal in [Signal::QUIT, Signal::XCPU, Signal::TERM, Signal::INT] {
        server.signal(signal);
        assert!(server.wait().success(), "{signal:?} stops it");
        assert!(log(folder.path()).contains("stopped; all data is on disk"), "{}", log(folder.path()));
        server = start(folder.path(), LOOPBACK, &[]);
        assert!(server.banner.contains("stopped cleanly before"), "{signal:?}: {}", server.banner);
    }
    server.stop();
}

#[test]
fn a_hang_up_of_a_dev_stops_its_nodes_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    let base = free_ports().to_string();
    let mut command = annulet(folder.path(), &["dev", "1", "--data", "dev", "--base-port", &base]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("annulet kv get")), "it serves");
    // A shell and the system may both say that the terminal is gone: later words come while the node stops.
    let dev = Pid::from_child(&child);
    let mut ended = None;
    until("an end", || {
        kill_process(dev, Signal::HUP).ok();
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success());
    let log = std::fs::read_to_string(folder.path().join("dev/n1/log")).unwrap();
    assert!(log.contains("stopped; all data is on disk"), "{log}");
}

#[test]
fn node_without_security_serves_other_machines_only_if_that_is_intended() {
    let folder = tempfile::tempdir().unwrap();
    for args in [&[][..], &["--insecure=off"]] {
        let ports = ["serve", "--pb-listen", "0.0.0.0:0", "--http-listen", LOOPBACK, "--shards", "1"];
        let output = run(folder.path(), &[&ports, args].concat());
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("pb_listen: 0.0.0.0:") && text.contains("or set --insecure"), "{text}");
    }
    // The folder of a refused start is as good as new.
    start(folder.path(), "0.0.0.0:0", &["--insecure"]).stop();
    start(folder.path(), LOOPBACK, &[]).stop();
}
