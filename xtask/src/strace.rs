//! System calls of a running process, as strace sees them: the check of our own counters.

use crate::{Result, sys};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long attaching may take, and how often it is looked at.
const ATTACH_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);

/// A strace that is attached to all threads of a process.
pub struct Strace {
    child: Child,
    log: PathBuf,
}

impl Strace {
    /// Attaches to a process and to the threads that it starts later. `calls` is a list with commas.
    pub fn attach(pid: u32, calls: &str, log: &Path) -> Result<Strace> {
        sys::ensure_tool("strace")?;
        let child = Command::new("strace")
            .args(["-qq", "-f", "-s", "0", "-e", "signal=none", "-e", &format!("trace={calls}")])
            .args(["-p", &pid.to_string(), "-o"])
            .arg(log)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let mut strace = Strace { child, log: log.to_owned() };
        let begin = Instant::now();
        while !is_traced_by(pid, strace.child.id())? {
            if begin.elapsed() > ATTACH_MAX || strace.child.try_wait()?.is_some() {
                return Err("strace cannot attach".into());
            }
            sleep(LOOK);
        }
        Ok(strace)
    }

    /// Detaches; the results of all calls that have returned. Negative ones are errors.
    pub fn finish(mut self) -> Result<Vec<i64>> {
        kill_process(Pid::from_child(&self.child), Signal::INT)?;
        self.child.wait()?;
        Ok(fs::read_to_string(&self.log)?.lines().filter_map(result_of).collect())
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        // A strace that dies lets go of its threads. It may have ended long ago.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Whether every thread of `pid` is traced by `tracer`.
fn is_traced_by(pid: u32, tracer: u32) -> Result<bool> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        if bench::field(&status, "TracerPid").and_then(|value| value.parse().ok()) != Some(tracer) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The result in a line of strace's output; `None` if it is no call that has returned. A call that is interrupted by
/// another thread's has two lines, the second with its result.
fn result_of(line: &str) -> Option<i64> {
    let (_, result) = line.rsplit_once(" = ")?;
    result.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_results() {
        let lines = r#"
12 preadv2(12, [{iov_base=""..., iov_len=600}, {iov_base=""..., iov_len=500}], 2, 4096, RWF_NOWAIT) = 700
12 preadv2(12, [{iov_base=0x7f, iov_len=1100}], 1, 4096, RWF_NOWAIT) = -1 EAGAIN (Resource temporarily unavailable)
13 pread64(9,  <unfinished ...>
12 fdatasync(12)      = 0
13 <... pread64 resumed>""..., 8192, 16384) = 5000
12 preadv2(12,  <detached ...>
"#;
        assert_eq!(lines.lines().filter_map(result_of).collect::<Vec<_>>(), [700, -1, 0, 5000]);
    }

    #[test]
    fn an_untraced_process_is_not_traced() {
        assert!(!is_traced_by(std::process::id(), 1).unwrap());
    }
}
