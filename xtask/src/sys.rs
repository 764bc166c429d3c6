//! CPU clocks, and the programs that measurements need.
//!
//! The only unsafe code of this crate: std and rustix have no clock of another process.

use crate::Result;
use rustix::time::{ClockId, clock_gettime};
use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// User and system time of a process so far, threads that have ended included; exact to the nanosecond, where
/// `/proc/PID/stat` counts in hundredths of a second.
pub fn process_cpu(pid: u32) -> io::Result<Duration> {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: `clock` lives through the call, which writes one clock id to it.
    match unsafe { libc::clock_getcpuclockid(pid.cast_signed(), &mut clock) } {
        0 => {}
        error => return Err(io::Error::from_raw_os_error(error)),
    }
    // SAFETY: `time` lives through the call, which overwrites it.
    if unsafe { libc::clock_gettime(clock, &mut time) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

/// User and system time of the calling thread so far.
pub fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The time for which all threads of some processes waited for a core, so far. A thread that has ended counts no more.
pub fn run_delay(pids: &[u32]) -> io::Result<Duration> {
    let mut sum = Duration::ZERO;
    for pid in pids {
        for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let text = std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
            let waited = text.split(' ').nth(1).and_then(|it| it.parse().ok());
            sum += Duration::from_nanos(waited.unwrap_or_default());
        }
    }
    Ok(sum)
}

/// The folder of the workspace.
pub fn workspace() -> Result<&'static Path> {
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("this crate is in no workspace")?)
}

/// The folder that builds of it go to.
pub fn target(root: &Path) -> io::Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    std::path::absolute(target)
}

/// Builds a program of this workspace for use; returns its path. `debug` is the level of debug information, none if
/// empty.
pub fn build(package: &str, root: &Path, target: &Path, debug: &str) -> Result<PathBuf> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--release", "--quiet", "--package", package]);
    if !debug.is_empty() {
        command.env("CARGO_PROFILE_RELEASE_DEBUG", debug);
    }
    // stdout belongs to the rows.
    let built = command.current_dir(root).env("CARGO_TARGET_DIR", target).stdout(io::stderr()).status()?;
    let program = target.join("release").join(package);
    if built.success() && program.exists() { Ok(program) } else { Err("the build has failed".into()) }
}

/// That a program of the system is there.
pub fn ensure_tool(program: &str) -> Result<()> {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match version.is_ok_and(|status| status.success()) {
        true => Ok(()),
        false => Err(format!("{program} is missing: apt-get install {program}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_clocks_go_on() {
        let (process, thread) = (process_cpu(std::process::id()).unwrap(), thread_cpu());
        let mut sum = 0u64;
        while thread_cpu() < thread + Duration::from_millis(2) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(process_cpu(std::process::id()).unwrap() >= process + Duration::from_millis(2));
    }
}
