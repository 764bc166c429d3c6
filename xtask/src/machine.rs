//! What a page of figures must say about where they come from.

use crate::proc::{field, file_system_of};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

/// The machine in one line: processor, cores, memory, kernel, the file system under `data`.
pub fn describe(data: &Path) -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (cpu, memory, mounts) = (read("/proc/cpuinfo"), read("/proc/meminfo"), read("/proc/mounts"));
    let memory_kb = memory_kb(&memory);
    format!(
        "{} cores of {}, {:.1} GiB memory, Linux {}, data on {}",
        available_parallelism().map_or(0, usize::from),
        field(&cpu, "model name").unwrap_or("an unknown processor"),
        memory_kb as f64 / f64::from(1 << 20),
        read("/proc/sys/kernel/osrelease").trim(),
        file_system_of(&mounts, &data.to_string_lossy()).unwrap_or("an unknown file system"),
    )
}

/// The machine's memory, of what the kernel says of it.
fn memory_kb(meminfo: &str) -> u64 {
    field(meminfo, "MemTotal")
        .and_then(|value| value.split_once(' '))
        .and_then(|(number, _)| number.parse().ok())
        .unwrap_or(0)
}

/// The commit that was measured, and whether the tree was other than it.
pub fn commit(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    // The page itself changes with every run.
    let changed = git(&["status", "--porcelain", "--", ".", ":!docs/benchmarks"]);
    if changed.is_some_and(|changed| changed.is_empty()) { commit } else { format!("{commit} with changes") }
}
