//! A server process that is measured: started with its log in a file, ended with its owner.

use crate::{Result, sys};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often something that is waited for is looked at. Short, because starts are timed by it.
pub const LOOK: Duration = Duration::from_millis(1);

/// How much of a log is shown when a server fails.
const LOG_TAIL: usize = 2000;

/// A running server. Dropping it kills it.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; whatever it prints is appended to `log`.
    pub fn start(command: &mut Command, log: PathBuf) -> Result<Process> {
        let out = File::options().create(true).append(true).open(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .map_err(|error| format!("{:?} does not start: {error}", command.get_program()))?;
        Ok(Process { child, log })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready` brings something; fails when the process ends or `limit` passes before.
    pub fn wait_until<T>(&mut self, limit: Duration, mut ready: impl FnMut() -> Option<T>) -> Result<T> {
        let begin = Instant::now();
        loop {
            if let Some(value) = ready() {
                return Ok(value);
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("the server ended ({status}): {}", self.log_tail()).into());
            }
            if begin.elapsed() > limit {
                return Err(format!("the server was not ready in {limit:?}: {}", self.log_tail()).into());
            }
            sleep(LOOK);
        }
    }

    /// Asks it to end by SIGTERM and waits until it has, `limit` at most.
    pub fn stop(mut self, limit: Duration) -> Result<ExitStatus> {
        sys::signal(self.pid(), libc::SIGTERM)?;
        let begin = Instant::now();
        while begin.elapsed() < limit {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            sleep(LOOK);
        }
        Err(format!("the server did not stop in {limit:?}: {}", self.log_tail()).into())
    }

    /// Ends it by SIGKILL.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn log_tail(&self) -> String {
        tail(&self.log)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended long ago; then both calls only say so.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The end of a log.
pub fn tail(log: &Path) -> String {
    let log = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL)..]).trim().to_owned()
}

/// A loopback address on which nobody listens at the moment.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Makes sure that the Debian package of that name is there: `program` runs, or can be installed.
pub fn ensure_tool(program: &str, package: &str) -> Result<()> {
    if runs(program) {
        return Ok(());
    }
    if !sys::is_root() {
        return Err(format!("{program} is missing, and only root can install it").into());
    }
    eprintln!("figures: installs {package}");
    let installed = Command::new("apt-get")
        .args(["install", "-y", "-qq", package])
        .env("DEBIAN_FRONTEND", "noninteractive")
        // stdout belongs to the rows.
        .stdout(std::io::stderr())
        .status()?;
    if installed.success() && runs(program) {
        return Ok(());
    }
    Err(format!("{program} is missing and cannot be installed").into())
}

fn runs(program: impl AsRef<OsStr>) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// A new folder `name` in `parent`.
pub fn make_dir(parent: &Path, name: &str) -> Result<PathBuf> {
    let dir = parent.join(name);
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// Makes `to` a copy of `from`.
pub fn replace_dir(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    copy(from, to)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let there = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &there)?;
        } else {
            fs::copy(entry.path(), there)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ends_early_shows_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such flag; exit 3"]);
        let mut process = Process::start(&mut command, dir.path().join("log")).unwrap();
        let failure = process.wait_until(Duration::from_secs(60), || None::<()>).unwrap_err().to_string();
        assert!(failure.contains("no such flag") && failure.contains('3'), "{failure}");
    }

    #[test]
    fn a_stopped_process_tells_how_it_ended() {
        let dir = tempfile::tempdir().unwrap();
        let ready = dir.path().join("ready");
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("trap 'exit 7' TERM; touch {}; while :; do sleep 0.01; done", ready.display()));
        let mut process = Process::start(&mut command, dir.path().join("log")).unwrap();
        process.wait_until(Duration::from_secs(60), || ready.exists().then_some(())).unwrap();
        assert_eq!(process.stop(Duration::from_secs(60)).unwrap().code(), Some(7));
    }

    #[test]
    fn what_does_not_exist_does_not_run() {
        assert!(!runs("no-such-program-anywhere"));
        assert!(runs("cargo"));
    }

    #[test]
    fn a_folder_is_replaced_with_all_that_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("a")).unwrap();
        fs::write(from.join("a/b"), "new").unwrap();
        fs::create_dir_all(&to).unwrap();
        fs::write(to.join("gone"), "old").unwrap();
        replace_dir(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("a/b")).unwrap(), b"new");
        assert!(!to.join("gone").exists());
    }
}
