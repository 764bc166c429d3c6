//! The whole program, ended by a signal while its nodes run.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A bound on waiting, far beyond what is usual.
const PATIENCE: Duration = Duration::from_secs(60);

/// In the place of a node: it notes its number and serves nobody.
const SERVER: &str =
    "#!/bin/sh\n[ \"$1\" = serve ] || exit 0\necho $$ >> \"$(dirname \"$0\")/pids\"\nexec sleep 300\n";

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn nodes_end_with_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let (server, pids) = (folder.path().join("server"), folder.path().join("pids"));
    fs::write(&server, SERVER).unwrap();
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();

    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["figures", "operations", "--quick", "--only", "answers", "--binary"]).arg(&server);
    let mut program = command.env("CARGO_TARGET_DIR", folder.path()).spawn().unwrap();
    let started = || fs::read_to_string(&pids).unwrap_or_default();
    until("three nodes have started", || started().lines().count() == 3);
    kill_process(Pid::from_child(&program), Signal::TERM).unwrap();
    assert!(!program.wait().unwrap().success());
    until("they have ended", || started().lines().all(has_ended));
}

/// Whether a process is gone, or waits for its parent to hear so.
fn has_ended(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, fields)| fields.trim_start().starts_with('Z'))
}
