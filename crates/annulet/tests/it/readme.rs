//! The cluster of README.md that survives a killed node, as a person types it.
//!
//! The lines come from the page itself. Only the first one gets an option: ports of the test's own.

use crate::cluster::Dev;
use crate::common::nodes::free_ports;
use crate::common::{ANNULET, other};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::path::Path;

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");

/// Seconds until a step that hangs is stopped.
const STEPS_MAX: &str = "60";

/// The lines of the block that begins with this one, without the text before and behind them.
fn block(first: &str) -> Vec<String> {
    let page = std::fs::read_to_string(README).unwrap();
    let lines = page.lines().map(|line| line.strip_prefix("    ").unwrap_or_default().to_owned());
    lines.skip_while(|line| !line.starts_with(first)).take_while(|line| !line.is_empty()).collect()
}

#[test]
fn cluster_of_the_readme_survives_a_killed_node() {
    let lines = block("annulet dev 3");
    let [dev, steps @ ..] = &lines[..] else { panic!("README.md has no cluster") };
    assert_eq!(steps.len(), 4, "{steps:?}");

    // The program is found by its name, as after the page's installation.
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(ANNULET, dir.path().join("annulet")).unwrap();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let shell = |program: &str, args: &[&str]| {
        let mut command = other(Path::new(program), dir.path(), args);
        command.env("PATH", &path);
        command
    };
    let words = dev.split('#').next().unwrap();
    let dev = Dev::started(&mut shell("sh", &["-ec", &format!("exec {words} --base-port {}", free_ports())]));
    let pids = Dev::pids(&dir.path().join("annulet-dev"));

    let steps = shell("timeout", &[STEPS_MAX, "sh", "-ec", &steps.join("\n")]).output().unwrap();
    let [text, errors] = [steps.stdout, steps.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(steps.status.success(), "{text}{errors}");
    assert!(text.starts_with("n2@127.0.0.1 ended (signal: 9 (SIGKILL))\n"), "{text}");
    assert!(text.ends_with("{\"born\": 1815}"), "{text}");
    assert!(test_kill_process(pids[1]).is_err(), "node 2 has ended");

    kill_process(Pid::from_child(&dev.child), Signal::INT).unwrap();
    let (code, errors) = dev.end();
    assert_eq!(code, Some(0), "{errors}");
    assert!(pids.iter().all(|&pid| test_kill_process(pid).is_err()));
}
