//! What `/proc` says: the busy time of all cores, a process's memory, the machine.
//!
//! Parsers take text and say `None` where it is not what the kernel writes.

use crate::Result;
use std::fs;
use std::time::Duration;

/// The kernel's unit in `/proc/stat`: USER_HZ, which is 100 on every Linux since 2.6.
const TICK: Duration = Duration::from_millis(10);

/// The time that all cores together have been busy since boot: user, nice, system and interrupts, of every
/// process. Idle, waiting for a disk, and what the host took away do not count.
pub fn busy() -> Result<Duration> {
    busy_of(&fs::read_to_string("/proc/stat")?).ok_or_else(|| "/proc/stat reads strangely".into())
}

fn busy_of(stat: &str) -> Option<Duration> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> =
        all.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = fields[..] else { return None };
    Some(TICK * u32::try_from(user + nice + system + irq + softirq).ok()?)
}

/// A process's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Resident now.
    pub resident: u64,
    /// The most that ever was.
    pub peak: u64,
    /// Of what is resident now, that which no file holds.
    pub anonymous: u64,
}

/// The memory of a process.
pub fn memory(pid: u32) -> Result<Memory> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    memory_of(&status).ok_or_else(|| format!("/proc/{pid}/status names no memory").into())
}

fn memory_of(status: &str) -> Option<Memory> {
    let bytes = |name| {
        let (number, unit) = field(status, name)?.split_once(' ')?;
        (unit == "kB").then_some(number.parse::<u64>().ok()? * 1024)
    };
    Some(Memory { resident: bytes("VmRSS")?, peak: bytes("VmHWM")?, anonymous: bytes("RssAnon")? })
}

/// Whether every thread of `pid` is traced by `tracer`.
pub fn is_traced_by(pid: u32, tracer: u32) -> Result<bool> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        if field(&status, "TracerPid").and_then(|value| value.parse().ok()) != Some(tracer) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The value of `name` in text of lines like `name: value`.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (left, right) = line.split_once(':')?;
        (left.trim_end() == name).then_some(right.trim())
    })
}

/// The type of the file system that `path` is on, from text like `/proc/mounts`.
pub fn file_system_of<'a>(mounts: &'a str, path: &str) -> Option<&'a str> {
    let mut best: Option<(&str, &str)> = None;
    for line in mounts.lines() {
        let mut words = line.split(' ');
        let (Some(_device), Some(point), Some(kind)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let inside = path
            .strip_prefix(point.trim_end_matches('/'))
            .is_some_and(|r| r.is_empty() || r.starts_with('/'));
        // The last of two mounts on one point hides the first.
        if inside && best.is_none_or(|(longest, _)| point.len() >= longest.len()) {
            best = Some((point, kind));
        }
    }
    best.map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_leaves_idle_waiting_and_stolen_time_out() {
        let stat = "cpu  100 20 30 5000 600 4 6 900 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\nintr 5 5\n";
        assert_eq!(busy_of(stat), Some(Duration::from_millis(1600)));
        assert_eq!(busy_of("cpu0 1 2 3 4 5 6 7\n"), None);
        assert_eq!(busy_of("cpu  1 2 3\n"), None);
        assert_eq!(busy_of("cpu  1 2 x 4 5 6 7\n"), None);
        assert!(busy().unwrap() > Duration::ZERO);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tannulet\nVmHWM:\t    3000 kB\nVmRSS:\t    2000 kB\nRssAnon:\t 1500 kB\n";
        let memory = Memory { resident: 2_048_000, peak: 3_072_000, anonymous: 1_536_000 };
        assert_eq!(memory_of(status), Some(memory));
        assert_eq!(memory_of("VmRSS:\t 2000 MB\n"), None);
        assert!(super::memory(std::process::id()).unwrap().resident > 0);
    }

    #[test]
    fn a_field_has_its_whole_name() {
        let text = "model name\t: Some CPU\nmodel\t: 1\nempty:\n";
        assert_eq!(field(text, "model name"), Some("Some CPU"));
        assert_eq!(field(text, "model"), Some("1"));
        assert_eq!(field(text, "empty"), Some(""));
        assert_eq!(field(text, "name"), None);
    }

    #[test]
    fn the_longest_mount_point_counts() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/data xfs rw 0 0\n";
        assert_eq!(file_system_of(mounts, "/home/x"), Some("ext4"));
        assert_eq!(file_system_of(mounts, "/tmp/x"), Some("tmpfs"));
        assert_eq!(file_system_of(mounts, "/tmp/data"), Some("xfs"));
        assert_eq!(file_system_of(mounts, "/tmp/database"), Some("tmpfs"));
        assert_eq!(file_system_of("", "/"), None);
    }

    #[test]
    fn an_untraced_process_is_not_traced() {
        assert!(!is_traced_by(std::process::id(), 1).unwrap());
    }
}
