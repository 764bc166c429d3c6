//! System calls of a running process, as strace sees them: the check of our own counters.

use crate::process::{LOOK, ensure_tool};
use crate::{Result, proc, sys};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long attaching may take.
const ATTACH_MAX: Duration = Duration::from_secs(10);

/// A strace that is attached to all threads of a process, and writes a file for each.
pub struct Strace {
    child: Child,
    dir: PathBuf,
}

/// One call that has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The system call.
    pub name: String,
    /// The file of its first argument.
    pub path: String,
    /// What it returned; negative is an error.
    pub result: i64,
    /// Of a read: how many bytes were asked for.
    pub asked: u64,
    /// Of a read: whether it was told not to wait.
    pub nowait: bool,
}

/// What the reads among some calls brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Data: all that was asked for, or what there is when waiting was allowed.
    pub with_data: u64,
    /// Less than asked for, from a try without waiting.
    pub tries_short: u64,
    /// Nothing.
    pub empty: u64,
}

impl Strace {
    /// Attaches to a process and to what threads it starts later. `calls` is a list with commas.
    pub fn attach(pid: u32, calls: &str, dir: &Path) -> Result<Strace> {
        ensure_tool("strace", "strace")?;
        fs::create_dir_all(dir)?;
        let child = Command::new("strace")
            .args(["-ff", "-y", "-s", "0", "-e", &format!("trace={calls}"), "-p", &pid.to_string(), "-o"])
            .arg(dir.join("thread"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(dir.join("log"))?)
            .spawn()?;
        let mut strace = Strace { child, dir: dir.to_owned() };
        let begin = Instant::now();
        while !proc::is_traced_by(pid, strace.child.id())? {
            if begin.elapsed() > ATTACH_MAX || strace.child.try_wait()?.is_some() {
                let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
                return Err(format!("strace cannot attach: {}", log.trim()).into());
            }
            sleep(LOOK);
        }
        Ok(strace)
    }

    /// Detaches and says what was called.
    pub fn finish(mut self) -> Result<Vec<Call>> {
        sys::signal(self.child.id(), libc::SIGINT)?;
        self.child.wait()?;
        let mut calls = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.file_stem().is_some_and(|stem| stem == "thread") {
                calls.extend(fs::read_to_string(path)?.lines().filter_map(parse));
            }
        }
        Ok(calls)
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        // A strace that dies lets go of what it traced. It may have ended long ago.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Reads {
    /// Counts the reads among `calls`.
    pub fn of<'a>(calls: impl IntoIterator<Item = &'a Call>) -> Reads {
        let mut reads = Reads::default();
        for call in calls.into_iter().filter(|call| call.name.starts_with("pread")) {
            match u64::try_from(call.result) {
                Err(_) | Ok(0) => reads.empty += 1,
                Ok(came) if call.nowait && came < call.asked => reads.tries_short += 1,
                Ok(_) => reads.with_data += 1,
            }
        }
        reads
    }
}

/// A line of strace's output; `None` if it is no call that has returned.
fn parse(line: &str) -> Option<Call> {
    let (name, rest) = line.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(") = ").or_else(|| {
        // Short calls are padded: `fdatasync(3</x>)        = 0`.
        let (before, result) = rest.rsplit_once(" = ")?;
        Some((before.trim_end().strip_suffix(')')?, result))
    })?;
    let result = result.split([' ', '<']).next()?.parse().ok()?;
    let path =
        arguments.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("", |(path, _)| path);
    let asked = if name == "pread64" {
        arguments.rsplit(", ").nth(1)?.parse().ok()?
    } else {
        arguments.split("iov_len=").skip(1).filter_map(leading_number).sum()
    };
    let nowait = arguments.contains("RWF_NOWAIT");
    Some(Call { name: name.to_owned(), path: path.to_owned(), result, asked, nowait })
}

fn leading_number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"
preadv2(12</d/journal/0001.seg>, [{iov_base=""..., iov_len=1100}], 1, 4096, RWF_NOWAIT) = 1100
preadv2(12</d/journal/0001.seg>, [{iov_base=""..., iov_len=600}, {iov_base=""..., iov_len=500}], 2, 4096, RWF_NOWAIT) = 700
preadv2(12</d/journal/0001.seg>, [{iov_base=0x7f, iov_len=1100}], 1, 4096, RWF_NOWAIT) = -1 EAGAIN (Resource temporarily unavailable)
pread64(9</d/tables/7>, ""..., 8192, 16384) = 5000
pread64(9</d/tables/7>, "", 8192, 999424)  = 0
fdatasync(12</d/journal/0001.seg>)      = 0
preadv2(12</d/journal/0001.seg>,  <detached ...>
--- SIGINT {si_signo=SIGINT} ---
"#;

    #[test]
    fn lines_become_calls() {
        let calls: Vec<Call> = LINES.lines().filter_map(parse).collect();
        assert_eq!(calls.len(), 6);
        assert_eq!(
            calls[1],
            Call {
                name: "preadv2".to_owned(),
                path: "/d/journal/0001.seg".to_owned(),
                result: 700,
                asked: 1100,
                nowait: true
            }
        );
        assert_eq!((calls[3].asked, calls[3].nowait, &calls[3].path[..]), (8192, false, "/d/tables/7"));
        assert_eq!((&calls[5].name[..], calls[5].result), ("fdatasync", 0));
        assert_eq!(Reads::of(&calls), Reads { with_data: 2, tries_short: 1, empty: 2 });
    }
}
