//! What the machine says of itself and of this process: figures that Riak takes from the operating system, by its
//! names. Where the kernel does not say, they are 0.

use crate::proc_file::read;
use serde::Serialize;
use std::path::Path;

/// Riak's averages count 256 for each process that runs or waits to run.
const PROCESS: f64 = 256.0;

/// The figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SystemFigures {
    /// Bytes of memory that the process holds.
    memory_total: u64,
    /// Bytes of memory of the machine, and those of them that are in use.
    mem_total: u64,
    mem_allocated: u64,
    /// Processes that run or wait to run, in the last one, five and fifteen minutes, times 256.
    cpu_avg1: u64,
    cpu_avg5: u64,
    cpu_avg15: u64,
    /// Processes of the machine, each thread counted.
    cpu_nprocs: u64,
    /// Processors that this process may use.
    sys_logical_processors: usize,
}

/// The space of the disk that has the data folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiskSpace {
    disk_free_bytes: u64,
    disk_size_bytes: u64,
}

impl DiskSpace {
    /// The space as of now, for a process that is not the superuser's.
    pub fn of(folder: &Path) -> DiskSpace {
        let Ok(space) = rustix::fs::statvfs(folder) else { return DiskSpace::default() };
        DiskSpace {
            disk_free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
            disk_size_bytes: space.f_blocks.saturating_mul(space.f_frsize),
        }
    }
}

impl SystemFigures {
    /// The figures as of now.
    pub fn now() -> SystemFigures {
        SystemFigures {
            sys_logical_processors: std::thread::available_parallelism().map_or(1, usize::from),
            ..SystemFigures::of(&read("/proc/self/statm"), &read("/proc/meminfo"), &read("/proc/loadavg"))
        }
    }

    fn of(statm: &str, meminfo: &str, loadavg: &str) -> SystemFigures {
        let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
        let kib = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0)
        };
        let mut load = loadavg.split(' ');
        // Not negative, and far from what 64 bits hold.
        let mut average =
            || load.next().and_then(|it| it.parse::<f64>().ok()).map_or(0, |it| (it * PROCESS) as u64);
        let (cpu_avg1, cpu_avg5, cpu_avg15) = (average(), average(), average());
        let processes = load.next().and_then(|it| it.split_once('/')).and_then(|(_, all)| all.parse().ok());
        SystemFigures {
            memory_total: pages.unwrap_or(0) * 4096,
            mem_total: kib("MemTotal:") << 10,
            mem_allocated: kib("MemTotal:").saturating_sub(kib("MemAvailable:")) << 10,
            cpu_avg1,
            cpu_avg5,
            cpu_avg15,
            cpu_nprocs: processes.unwrap_or(0),
            sys_logical_processors: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_kernels_files() {
        let meminfo = "MemTotal:        1000 kB\nMemFree:          10 kB\nMemAvailable:     400 kB\n";
        let figures = SystemFigures::of("900 25 3 1 0 2 0\n", meminfo, "0.50 1.00 2.25 3/421 7777\n");
        assert_eq!(
            (figures.memory_total, figures.mem_total, figures.mem_allocated),
            (25 * 4096, 1_024_000, 614_400)
        );
        assert_eq!((figures.cpu_avg1, figures.cpu_avg5, figures.cpu_avg15), (128, 256, 576));
        assert_eq!(figures.cpu_nprocs, 421);
        assert_eq!(SystemFigures::of("", "", ""), SystemFigures::default());
        assert!(SystemFigures::now().memory_total > 0);
    }
}
