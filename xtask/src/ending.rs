//! The end of this program by a signal: the servers that it has started end with it.
//!
//! 1. A thread waits for the signals of a terminal and of `kill`.
//! 2. It kills all children, each with its process group: nodes are in groups of their own.
//! 3. This program ends as one that the signal has killed. Its temporary folders stay.
//!
//! Invariant: from step 2 on no other thread begins a part, writes a page or ends the program ([`stop_if_ending`]).
//!
//! Left out: SIGKILL, which no program hears of.

use crate::Result;
use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Looks for children: one that is started between two looks is found by the next one.
const LOOKS: usize = 3;

/// The exit code of a program that a signal has ended, without the number of the signal.
const BY_SIGNAL: i32 = 128;

/// Whether a signal has come.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Does not return when a signal has come: the failure of a killed server is no result.
pub fn stop_if_ending() {
    while IS_ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Has children end with this program.
pub fn end_children_by_signals() -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            IS_ENDING.store(true, Ordering::SeqCst);
            for child in (0..LOOKS).flat_map(|_| children()) {
                end(child);
            }
            process::exit(BY_SIGNAL + signal);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    Ok(())
}

/// Kills a child. One that has ended meanwhile is no failure.
fn end(child: Pid) {
    let leads_group = getpgid(Some(child)).is_ok_and(|group| group == child);
    let killed = match leads_group {
        true => kill_process_group(child, Signal::KILL),
        false => kill_process(child, Signal::KILL),
    };
    killed.unwrap_or_default();
}

/// The children of this process, those without a parent of their own any more included.
fn children() -> Vec<Pid> {
    let here = process::id().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Behind the name, which may have any byte: the state, and the parent.
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
        fields.split_whitespace().nth(1) == Some(here.as_str())
    };
    pids.filter(is_child).filter_map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn children_are_found_and_end_with_their_groups() {
        let mut alone = Command::new("sleep").arg("300").spawn().unwrap();
        let mut led = Command::new("sleep").arg("300").process_group(0).spawn().unwrap();
        let started = [Pid::from_child(&alone), Pid::from_child(&led)];
        let found = children();
        assert!(started.iter().all(|child| found.contains(child)), "{found:?}");
        started.into_iter().for_each(end);
        for child in [&mut alone, &mut led] {
            assert!(!child.wait().unwrap().success());
        }
    }
}
