//! The origin of figures, for their page.

use std::path::Path;
use std::process::Command;

/// The machine in one line: processor, cores, memory, kernel, the file system under `data`.
pub fn describe(data: &Path) -> String {
    let machine = bench::machine();
    format!(
        "{} cores of {}, {:.1} GiB memory, Linux {}, data on {}",
        machine.cores,
        machine.processor,
        machine.memory_bytes as f64 / f64::from(1 << 30),
        machine.kernel,
        bench::mount_of(data).map_or_else(|| "an unknown file system".to_owned(), |(_, kind)| kind),
    )
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
