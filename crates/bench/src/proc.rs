//! Figures of processes, disks and the machine from `/proc` and `/sys`.
//!
//! Everything is `None` or zero where the kernel does not tell, or a process belongs to somebody else: a run on a
//! machine that says less has less in its results.

use results::{Limits, Machine};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The kernel's unit in `/proc/stat` and `/proc/PID/stat`: USER_HZ, 100 on every Linux since 2.6; in microseconds.
const TICK_US: u64 = 10_000;

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or(0)
}

/// The value of `name` in lines like `name: value`.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (left, right) = line.split_once(':')?;
        (left.trim_end() == name).then_some(right.trim())
    })
}

/// What a process has used since it began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// User and system time of all threads, to a hundredth of a second.
    pub cpu_us: u64,
    /// Resident memory.
    pub rss_bytes: u64,
    /// The most that was resident.
    pub peak_bytes: u64,
    /// Resident memory that no file holds.
    pub anonymous_bytes: u64,
    /// Bytes that it had the disk read.
    pub read_bytes: u64,
    /// Bytes that it had the disk write, or the page cache for it.
    pub write_bytes: u64,
    /// Threads.
    pub threads: u32,
    /// When it began, in ticks since boot: another process with its number has another.
    pub started: u64,
}

/// What a process has used; none if there is no such process.
pub fn usage(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may have spaces.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.first() == Some(&"Z") {
        return None;
    }
    let at = |index: usize| fields.get(index).map_or(0, |field| number(field));
    let (status, io) = (text(format!("/proc/{pid}/status")), text(format!("/proc/{pid}/io")));
    let memory = |name| {
        let kb = field(&status, name).and_then(|value| value.split_once(' '));
        kb.map_or(0, |(kb, _)| number(kb)) * 1024
    };
    Some(Usage {
        cpu_us: (at(11) + at(12)) * TICK_US,
        rss_bytes: memory("VmRSS"),
        peak_bytes: memory("VmHWM"),
        anonymous_bytes: memory("RssAnon"),
        read_bytes: field(&io, "read_bytes").map_or(0, number),
        write_bytes: field(&io, "write_bytes").map_or(0, number),
        threads: at(17) as u32,
        started: at(19),
    })
}

/// Time of all cores together, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cores {
    pub busy: u64,
    pub stolen: u64,
    pub total: u64,
}

/// What the cores have done since boot.
pub fn cores() -> Cores {
    cores_of(&text("/proc/stat")).unwrap_or_default()
}

fn cores_of(stat: &str) -> Option<Cores> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line.split_whitespace().map(number).collect();
    let [user, nice, system, idle, iowait, irq, softirq, stolen, ..] = fields[..] else { return None };
    let busy = user + nice + system + irq + softirq;
    Some(Cores { busy, stolen, total: busy + idle + iowait + stolen })
}

/// What a disk has done since boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    pub reads: u64,
    pub read_bytes: u64,
    pub read_ms: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub write_ms: u64,
    pub busy_ms: u64,
}

/// What a device has done; none if there is no such device.
pub fn disk(device: &str) -> Option<Disk> {
    disk_of(&text("/proc/diskstats"), device)
}

fn disk_of(stats: &str, device: &str) -> Option<Disk> {
    const SECTOR: u64 = 512;
    let fields: Vec<&str> = stats
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|it| it.get(2) == Some(&device))?;
    let at = |index: usize| fields.get(index).map_or(0, |field| number(field));
    Some(Disk {
        reads: at(3),
        read_bytes: at(5) * SECTOR,
        read_ms: at(6),
        writes: at(7),
        write_bytes: at(9) * SECTOR,
        write_ms: at(10),
        busy_ms: at(12),
    })
}

/// The device and the type of the file system that a folder is on.
pub fn mount_of(path: &Path) -> Option<(String, String)> {
    let path = path.canonicalize().ok()?;
    let mounts = text("/proc/mounts");
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (device, point, kind) = (words.next()?, words.next()?, words.next()?);
        path.starts_with(point).then_some((point.len(), device, kind))
    });
    // The last of two mounts on one point hides the first.
    let (_, device, kind) = mounts.max_by_key(|(len, ..)| *len)?;
    let device = fs::canonicalize(device).unwrap_or_else(|_| PathBuf::from(device));
    let name = device.file_name()?.to_string_lossy().into_owned();
    Some((name, kind.to_owned()))
}

/// Files that are counted of a folder at most: a data folder has some thousands.
const FILES_MAX: usize = 200_000;

/// The bytes that a folder's files take on the disk.
pub fn folder_bytes(dir: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let (mut sum, mut left, mut dirs) = (0, FILES_MAX, vec![dir.to_path_buf()]);
    dir.read_dir().ok()?;
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = dir.read_dir() else { continue };
        for entry in entries.flatten() {
            left = left.checked_sub(1)?;
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => dirs.push(entry.path()),
                Ok(meta) => sum += meta.blocks() * 512,
                // Removed since.
                Err(_) => {}
            }
        }
    }
    Some(sum)
}

/// The process on this machine that listens at an address.
pub fn listener(address: SocketAddr) -> Option<u32> {
    let inode =
        ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|path| socket_of(&text(path), address.port()))?;
    let wanted = format!("socket:[{inode}]");
    let pids =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_it = |pid: &u32| {
        let Ok(links) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        links
            .flatten()
            .any(|link| fs::read_link(link.path()).is_ok_and(|it| it.as_os_str() == wanted.as_str()))
    };
    pids.into_iter().find(has_it)
}

/// The inode of the socket that listens on a port.
fn socket_of(table: &str, port: u16) -> Option<u64> {
    const LISTENS: &str = "0A";
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, own) = fields.get(1)?.rsplit_once(':')?;
        let is_it = u16::from_str_radix(own, 16) == Ok(port) && fields.get(3) == Some(&LISTENS);
        is_it.then(|| fields.get(9).map(|inode| number(inode)))?
    })
}

/// A process's command line.
pub fn command_line(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|&byte| byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The variables of a process that begin with a prefix.
pub fn variables(pid: u32, prefix: &str) -> BTreeMap<String, String> {
    let all = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let pairs = all.split(|&byte| byte == 0).filter_map(|pair| {
        let (name, value) = std::str::from_utf8(pair).ok()?.split_once('=')?;
        name.starts_with(prefix).then(|| (name.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

/// Where a process works.
pub fn working_folder(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// This machine.
pub fn machine() -> Machine {
    let (cpu, memory) = (text("/proc/cpuinfo"), text("/proc/meminfo"));
    let memory_kb =
        field(&memory, "MemTotal").and_then(|value| value.split_once(' ')).map_or(0, |(kb, _)| number(kb));
    let setting = |path: &str| text(path).trim().to_owned();
    let settings = [
        ("transparent_hugepage", setting("/sys/kernel/mm/transparent_hugepage/enabled")),
        ("clocksource", setting("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        ("governor", setting("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        ("swappiness", setting("/proc/sys/vm/swappiness")),
        ("dirty_ratio", setting("/proc/sys/vm/dirty_ratio")),
    ];
    let known = settings.into_iter().filter(|(_, value)| !value.is_empty());
    Machine {
        host: setting("/proc/sys/kernel/hostname"),
        processor: field(&cpu, "model name").unwrap_or("unknown").to_owned(),
        cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u32),
        memory_bytes: memory_kb * 1024,
        kernel: setting("/proc/sys/kernel/osrelease"),
        load_average: setting("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
        settings: known.map(|(name, value)| (name.to_owned(), value)).collect(),
    }
}

/// What a process is limited to.
pub fn limits(pid: u32) -> Limits {
    let open_files = text(format!("/proc/{pid}/limits"));
    let open_files = open_files.lines().find_map(|line| line.strip_prefix("Max open files"));
    let open_files = open_files.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    let groups = text(format!("/proc/{pid}/cgroup"));
    let group = |controller: &str, file: &str| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, names, path) = (parts.next()?, parts.next()?, parts.next()?.trim_start_matches('/'));
            let root = match names {
                "" => PathBuf::from("/sys/fs/cgroup"),
                names if names.split(',').any(|name| name == controller) => {
                    Path::new("/sys/fs/cgroup").join(controller)
                }
                _ => return None,
            };
            fs::read_to_string(root.join(path).join(file)).ok()
        })
    };
    // "No limit" is `max` in version 2 of control groups, and a number beyond any memory in version 1.
    let memory = group("memory", "memory.max").or_else(|| group("memory", "memory.limit_in_bytes"));
    let memory_bytes = memory.and_then(|text| text.trim().parse().ok()).filter(|bytes| *bytes < 1 << 60);
    let quota = group("cpu", "cpu.max").or_else(|| {
        Some(format!(
            "{} {}",
            group("cpu", "cpu.cfs_quota_us")?.trim(),
            group("cpu", "cpu.cfs_period_us")?.trim()
        ))
    });
    let cpus = quota.and_then(|text| {
        let (quota, period) = text.trim().split_once(' ')?;
        Some(quota.parse::<f64>().ok().filter(|quota| *quota > 0.0)? / period.parse::<f64>().ok()?)
    });
    Limits { memory_bytes, cpus, open_files }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn tables_of_the_kernel_are_read() {
        let stat = "cpu  100 20 30 5000 600 4 6 900 0 0\ncpu0 1 1\n";
        let cores = cores_of(stat).unwrap();
        assert_eq!((cores.busy, cores.stolen, cores.total), (160, 900, 6660));
        assert!(cores_of("cpu 1 2\n").is_none());
        let stats = " 254 0 vda 10 1 80 5 20 2 160 7 0 30 12 0 0 0 0 0 0\n 254 1 vda1 1 1 1\n";
        let disk = disk_of(stats, "vda").unwrap();
        assert_eq!((disk.reads, disk.read_bytes, disk.read_ms), (10, 80 * 512, 5));
        assert_eq!((disk.writes, disk.write_bytes, disk.write_ms, disk.busy_ms), (20, 160 * 512, 7, 30));
        assert!(disk_of(stats, "vd").is_none());
    }

    #[test]
    fn this_process_is_found() {
        let pid = std::process::id();
        let usage = usage(pid).unwrap();
        assert!(usage.rss_bytes > 0 && usage.threads > 0);
        assert!(usage.peak_bytes >= usage.rss_bytes && usage.anonymous_bytes > 0);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(super::listener(listener.local_addr().unwrap()), Some(pid));
        assert!(!command_line(pid).is_empty());
        assert!(machine().memory_bytes > 0);
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x"), [1; 5000]).unwrap();
        assert!(folder_bytes(folder.path()).unwrap() >= 5000);
        assert!(mount_of(folder.path()).is_some());
    }
}
