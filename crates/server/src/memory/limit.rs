//! How much memory this process may use: the smallest of the machine's, of all its control groups', and of its address
//! space.
//!
//! 1. `/proc/self/cgroup` names the process's group in each hierarchy, `/proc/self/mountinfo` where hierarchies are
//!    mounted, and which group is the root of each mount.
//! 2. The group's path below the mount's root is its folder below the mount point. Where the path does not begin with
//!    that root, the mount belongs to another namespace: the path as it stands is tried, then the mount point itself.
//! 3. Each level from there up to the mount point is read: in version 2 `memory.max` and `memory.high`, in version 1
//!    `memory.limit_in_bytes`, and `memory.stat` for limits of levels that the mount does not show.
//!
//! `memory.high` counts as a limit: above it the kernel stops the process again and again to reclaim memory, and a node
//! that stands still is worse than one that refuses requests. Swap is ignored: a store that swaps is too slow to be of
//! use. Parsing is pure: files come from a function.

use std::fmt;
use std::path::{Component, Path, PathBuf};

/// The limit where the kernel does not tell one.
const MEMORY_UNKNOWN: u64 = 2 << 30;

/// Version 1 writes "no limit" as the largest number of whole pages in 63 bits; no machine has so much.
const UNLIMITED_FROM: u64 = 1 << 60;

/// Memory that the process may use, and the source of that number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes.
    pub bytes: u64,
    /// Its source.
    pub source: LimitSource,
}

/// The source of a memory limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// The option `--memory`.
    Option,
    /// The memory of the machine.
    Machine,
    /// This file of a control group.
    Group(PathBuf),
    /// The limit of the process's address space (`ulimit -v`).
    AddressSpace,
    /// Nothing: a guess.
    Unknown,
}

impl fmt::Display for LimitSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitSource::Option => write!(out, "--memory"),
            LimitSource::Machine => write!(out, "the machine's memory"),
            LimitSource::Group(file) => write!(out, "{}", file.display()),
            LimitSource::AddressSpace => write!(out, "the limit of the address space, ulimit -v"),
            LimitSource::Unknown => write!(out, "assumed: unknown to the system"),
        }
    }
}

/// The limit that rules now, or the `said` bytes.
pub fn memory_limit(said: Option<u64>) -> MemoryLimit {
    match said {
        Some(bytes) => MemoryLimit { bytes, source: LimitSource::Option },
        None => find(&|path| std::fs::read_to_string(path).ok()),
    }
}

/// The smallest limit of those that `read` has files of.
fn find(read: &dyn Fn(&Path) -> Option<String>) -> MemoryLimit {
    let text = |path: &str| read(Path::new(path)).unwrap_or_default();
    let mut limits = Vec::new();
    let mut add = |bytes: Option<u64>, source: LimitSource| {
        let limit = bytes.filter(|bytes| (1..UNLIMITED_FROM).contains(bytes));
        limits.extend(limit.map(|bytes| MemoryLimit { bytes, source }));
    };
    add(total_of(&text("/proc/meminfo")), LimitSource::Machine);
    add(address_space_of(&text("/proc/self/limits")), LimitSource::AddressSpace);

    let mounts: Vec<Mount> = text("/proc/self/mountinfo").lines().filter_map(Mount::parse).collect();
    for (version, path) in text("/proc/self/cgroup").lines().filter_map(group_of) {
        for mount in mounts.iter().filter(|mount| mount.version == version) {
            for level in mount.levels(&path, read) {
                for file in version.files() {
                    let file = level.join(file);
                    let bytes = read(&file).and_then(|text| text.trim().parse().ok());
                    add(bytes, LimitSource::Group(file));
                }
            }
            let stat = mount.folder(&path, read).join("memory.stat");
            add(read(&stat).and_then(|text| hierarchical_of(&text)), LimitSource::Group(stat));
        }
    }
    // Of equal ones the first found, which is the more general.
    let smallest = limits.into_iter().min_by_key(|limit| limit.bytes);
    smallest.unwrap_or(MemoryLimit { bytes: MEMORY_UNKNOWN, source: LimitSource::Unknown })
}

/// A version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// Where a group's limits stand.
    fn files(self) -> &'static [&'static str] {
        match self {
            Version::One => &["memory.limit_in_bytes"],
            Version::Two => &["memory.max", "memory.high"],
        }
    }
}

/// A line of `/proc/self/cgroup`, if its hierarchy may limit memory: `4:memory:/a/b`, `0::/a/b`.
fn group_of(line: &str) -> Option<(Version, PathBuf)> {
    let (id, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    // Of a process whose group was removed meanwhile.
    let path = PathBuf::from(path.strip_suffix(" (deleted)").unwrap_or(path));
    match (id, controllers) {
        ("0", "") => Some((Version::Two, path)),
        _ if controllers.split(',').any(|name| name == "memory") => Some((Version::One, path)),
        _ => None,
    }
}

/// Where a hierarchy is mounted.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    version: Version,
    /// The group that is seen at the mount point.
    root: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// A line of `/proc/self/mountinfo`, if it mounts a hierarchy that may limit memory.
    fn parse(line: &str) -> Option<Mount> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (root, point) = (unescaped(front.next()?), unescaped(front.next()?));
        let mut back = back.split(' ');
        let (kind, options) = (back.next()?, back.nth(1).unwrap_or_default());
        let version = match kind {
            "cgroup2" => Version::Two,
            "cgroup" if options.split(',').any(|option| option == "memory") => Version::One,
            _ => return None,
        };
        Some(Mount { version, root, point })
    }

    /// The folder of the group that the process is in, or the nearest one that the mount shows.
    fn folder(&self, path: &Path, read: &dyn Fn(&Path) -> Option<String>) -> PathBuf {
        let is_inside = |path: &Path| path.components().all(|part| part != Component::ParentDir);
        let below = |path: &Path| self.point.join(path.strip_prefix("/").unwrap_or(path));
        // Of a process outside of this namespace's root nothing is shown but what the mount begins with.
        if !is_inside(path) {
            return self.point.clone();
        }
        if let Ok(rest) = path.strip_prefix(&self.root) {
            return self.point.join(rest);
        }
        let as_it_stands = below(path);
        match read(&as_it_stands.join("cgroup.procs")) {
            Some(_) => as_it_stands,
            None => self.point.clone(),
        }
    }

    /// The folders from the mount point down to the process's group.
    fn levels(&self, path: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Vec<PathBuf> {
        let folder = self.folder(path, read);
        let mut levels: Vec<PathBuf> = folder
            .ancestors()
            .take_while(|level| level.starts_with(&self.point))
            .map(Path::to_path_buf)
            .collect();
        levels.reverse();
        levels
    }
}

/// A path of `mountinfo`, in which blanks and the like are octal: `\040`.
fn unescaped(text: &str) -> PathBuf {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let byte = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match byte.filter(u8::is_ascii) {
            Some(byte) => {
                path.push(byte.into());
                path.push_str(&part[3..]);
            }
            None => {
                path.push('\\');
                path.push_str(part);
            }
        }
    }
    PathBuf::from(path)
}

/// The total that the kernel states, in bytes.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The soft limit of the address space.
fn address_space_of(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The limit of all levels together in `memory.stat` of version 1.
fn hierarchical_of(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("hierarchical_memory_limit "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const MEMINFO: &str = "MemTotal:       24586636 kB\nMemFree: 1 kB\n";
    const MACHINE: u64 = 24_586_636 << 10;
    const V2_AT_ROOT: &str =
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1_AT_ROOT: &str = "34 25 0:29 / /sys/fs/cgroup/cpu rw shared:15 - cgroup cgroup rw,cpu\n\
                              35 25 0:30 / /sys/fs/cgroup/memory rw shared:16 - cgroup cgroup rw,memory\n";
    const UNLIMITED: &str = "9223372036854771712\n";

    /// The limit by these files, and the file that says so.
    #[track_caller]
    fn check(files: &[(&str, &str)], bytes: u64, file: &str) {
        let mut all = BTreeMap::from([("/proc/meminfo", MEMINFO)]);
        all.extend(files.iter().copied());
        let found = find(&|path| all.get(path.to_str().unwrap()).map(|text| (*text).to_owned()));
        let source = match file {
            "" => LimitSource::Machine,
            file => LimitSource::Group(PathBuf::from(file)),
        };
        assert_eq!(found, MemoryLimit { bytes, source });
    }

    #[test]
    fn a_unit_of_version_two_is_limited_by_any_level() {
        let own = ("/proc/self/cgroup", "0::/system.slice/annulet.service\n");
        let mounts = ("/proc/self/mountinfo", V2_AT_ROOT);
        let unit = "/sys/fs/cgroup/system.slice/annulet.service/memory.max";
        let slice = "/sys/fs/cgroup/system.slice/memory.max";
        check(&[own, mounts, (unit, "1073741824\n")], 1 << 30, unit);
        check(&[own, mounts, (unit, "max\n"), (slice, "536870912\n")], 512 << 20, slice);
        check(&[own, mounts, (unit, "1073741824\n"), (slice, "536870912\n")], 512 << 20, slice);
        check(&[own, mounts, (unit, "max\n"), (slice, "max\n")], MACHINE, "");
        let high = "/sys/fs/cgroup/system.slice/annulet.service/memory.high";
        check(&[own, mounts, (unit, "1073741824\n"), (high, "805306368\n")], 768 << 20, high);
    }

    #[test]
    fn a_container_with_a_namespace_sees_its_group_at_the_mount_point() {
        let file = "/sys/fs/cgroup/memory.max";
        let files = [("/proc/self/cgroup", "0::/\n"), ("/proc/self/mountinfo", V2_AT_ROOT)];
        check(&[&files[..], &[(file, "268435456\n")]].concat(), 256 << 20, file);
        // A nested container, in the folder of the outer one's mount.
        let inner = "/sys/fs/cgroup/inner/memory.max";
        let files = [("/proc/self/cgroup", "0::/inner\n"), ("/proc/self/mountinfo", V2_AT_ROOT)];
        let both = [(file, "268435456\n"), (inner, "134217728\n")];
        check(&[&files[..], &both].concat(), 128 << 20, inner);
        check(&[&files[..], &[both[0], (inner, "max\n")]].concat(), 256 << 20, file);
    }

    #[test]
    fn a_container_without_a_namespace_has_its_group_as_the_mounts_root() {
        let path = "/docker/0123";
        let group = format!("4:memory:{path}\n0::{path}\n");
        let mounts =
            format!("35 25 0:30 {path} /sys/fs/cgroup/memory ro master:16 - cgroup cgroup rw,memory\n");
        let file = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        let files =
            [("/proc/self/cgroup", &*group), ("/proc/self/mountinfo", &*mounts), (file, "1073741824\n")];
        check(&files, 1 << 30, file);
        // In a child of it.
        let group = format!("4:memory:{path}/child\n");
        let child = "/sys/fs/cgroup/memory/child/memory.limit_in_bytes";
        let files = [
            ("/proc/self/cgroup", &*group),
            ("/proc/self/mountinfo", &*mounts),
            (file, UNLIMITED),
            (child, "536870912\n"),
        ];
        check(&files, 512 << 20, child);
    }

    #[test]
    fn version_one_shows_limits_above_the_mount_in_its_statistics() {
        let own = ("/proc/self/cgroup", "11:cpu:/\n4:memory:/a/b\n");
        let mounts = ("/proc/self/mountinfo", V1_AT_ROOT);
        let [a, b] = [
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
        ];
        check(&[own, mounts, (a, "268435456\n"), (b, UNLIMITED)], 256 << 20, a);
        check(&[own, mounts, (a, UNLIMITED), (b, "268435456\n")], 256 << 20, b);
        check(&[own, mounts, (a, UNLIMITED), (b, UNLIMITED)], MACHINE, "");
        let stat = "/sys/fs/cgroup/memory/a/b/memory.stat";
        let text =
            "cache 0\nhierarchical_memory_limit 134217728\nhierarchical_memsw_limit 9223372036854771712\n";
        check(&[own, mounts, (a, UNLIMITED), (b, UNLIMITED), (stat, text)], 128 << 20, stat);
        // Together with other controllers in one hierarchy.
        let own = ("/proc/self/cgroup", "3:cpu,memory:/a\n");
        let mounts = "35 25 0:30 / /cg rw - cgroup none rw,cpu,memory\n";
        let file = "/cg/a/memory.limit_in_bytes";
        check(&[own, ("/proc/self/mountinfo", mounts), (file, "4096\n")], 4096, file);
    }

    #[test]
    fn hybrid_hierarchies_are_all_asked() {
        let mounts = format!("{V1_AT_ROOT}41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
        let own = "4:memory:/jobs/1\n1:name=systemd:/x\n0::/session\n";
        let one = "/sys/fs/cgroup/memory/jobs/1/memory.limit_in_bytes";
        let two = "/sys/fs/cgroup/unified/session/memory.max";
        let files = [("/proc/self/cgroup", own), ("/proc/self/mountinfo", &*mounts)];
        check(&[&files[..], &[(one, "1073741824\n")]].concat(), 1 << 30, one);
        check(&[&files[..], &[(one, "1073741824\n"), (two, "536870912\n")]].concat(), 512 << 20, two);
    }

    #[test]
    fn a_path_of_another_namespace_leaves_what_the_mount_shows() {
        let file = "/sys/fs/cgroup/memory.max";
        for path in ["0::/../other\n", "0::/../..\n", "0::/elsewhere/entirely\n"] {
            let mounts = "30 23 0:26 /docker/0123 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
            let files = [("/proc/self/cgroup", path), ("/proc/self/mountinfo", mounts), (file, "1048576\n")];
            check(&files, 1 << 20, file);
        }
        // A mount of the whole tree, whose root is above the namespace's.
        let mounts = "30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let (procs, deep) = ("/sys/fs/cgroup/a/b/cgroup.procs", "/sys/fs/cgroup/a/b/memory.max");
        let files = [
            ("/proc/self/cgroup", "0::/a/b (deleted)\n"),
            ("/proc/self/mountinfo", mounts),
            (procs, ""),
            (deep, "2097152\n"),
        ];
        check(&files, 2 << 20, deep);
    }

    #[test]
    fn odd_lines_and_paths_are_no_limits() {
        let own = ("/proc/self/cgroup", "nonsense\n::\n0::/a b\n4:memory\n");
        let mounts = "short\n30 23 0:26 / /mnt/c\\040g\\134x rw - cgroup2 none rw\n1 2 3 4 - cgroup2\n";
        let file = "/mnt/c g\\x/a b/memory.max";
        check(&[own, ("/proc/self/mountinfo", mounts), (file, "1234567\n")], 1_234_567, file);
        for text in ["", "0\n", "-5\n", "99999999999999999999999\n", "max"] {
            check(&[own, ("/proc/self/mountinfo", mounts), (file, text)], MACHINE, "");
        }
        check(&[], MACHINE, "");
    }

    #[test]
    fn the_address_space_and_the_option_are_limits_too() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max address space         1073741824           unlimited            bytes     \n";
        let files = |path: &Path| match path.to_str().unwrap() {
            "/proc/meminfo" => Some(MEMINFO.to_owned()),
            "/proc/self/limits" => Some(limits.to_owned()),
            _ => None,
        };
        assert_eq!(find(&files), MemoryLimit { bytes: 1 << 30, source: LimitSource::AddressSpace });
        assert_eq!(address_space_of(&limits.replace("1073741824", "unlimited ")), None);
        assert_eq!(find(&|_| None), MemoryLimit { bytes: MEMORY_UNKNOWN, source: LimitSource::Unknown });
        assert_eq!(memory_limit(Some(7)), MemoryLimit { bytes: 7, source: LimitSource::Option });
        assert!(memory_limit(None).bytes > 0);
    }
}
