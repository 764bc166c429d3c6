//! Figures of this process, by the names that every exporter of Prometheus gives them. Those that the kernel does not
//! tell are 0.

use crate::proc_file::read;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use std::fs::{metadata, read_dir, read_to_string};
use std::sync::LazyLock;

/// Units of CPU time in a second, as `/proc` has them on all of Linux's architectures.
const TICKS: f64 = 100.0;

/// The figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessFigures {
    process_virtual_memory_bytes: u64,
    process_cpu_seconds_total: f64,
    process_start_time_seconds: f64,
    process_open_fds: usize,
    process_max_fds: u64,
    process_threads: u64,
}

impl ProcessFigures {
    /// The figures as of now.
    pub fn now() -> ProcessFigures {
        ProcessFigures {
            process_open_fds: open_fds(),
            process_max_fds: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            ..ProcessFigures::of(&read("/proc/self/stat"), *BOOTED)
        }
    }

    fn of(stat: &str, booted: u64) -> ProcessFigures {
        // The name of the program, in brackets, may have blanks. Behind it is the third field.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
        ProcessFigures {
            process_virtual_memory_bytes: field(23),
            process_cpu_seconds_total: (field(14) + field(15)) as f64 / TICKS,
            process_start_time_seconds: booted as f64 + field(22) as f64 / TICKS,
            process_open_fds: 0,
            process_max_fds: 0,
            process_threads: field(20),
        }
    }
}

/// The start of the machine, in seconds since 1970. It is read once: the file has the counts of all interrupts too.
static BOOTED: LazyLock<u64> = LazyLock::new(|| booted(&read_to_string("/proc/stat").unwrap_or_default()));

fn booted(machine: &str) -> u64 {
    let booted = machine.lines().find_map(|line| line.strip_prefix("btime "));
    booted.and_then(|it| it.trim().parse().ok()).unwrap_or(0)
}

/// Open file descriptors. Linux tells their number since 6.2; before, the folder has size 0 and is read, which opens
/// one more.
fn open_fds() -> usize {
    const FOLDER: &str = "/proc/self/fd";
    let told = metadata(FOLDER).map_or(0, |folder| folder.len());
    match usize::try_from(told) {
        Ok(0) | Err(_) => read_dir(FOLDER).map_or(0, |fds| fds.count().saturating_sub(1)),
        Ok(told) => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_kernels_files() {
        let stat = "7 (a b) c) S 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0 9 0 1200 4096000 30 0";
        let figures = ProcessFigures::of(stat, booted("cpu 1 2\nbtime 1000\n"));
        let expected = ProcessFigures {
            process_virtual_memory_bytes: 4_096_000,
            process_cpu_seconds_total: 3.0,
            process_start_time_seconds: 1012.0,
            process_open_fds: 0,
            process_max_fds: 0,
            process_threads: 9,
        };
        assert_eq!(figures, expected);
        assert_eq!(ProcessFigures::of("", booted("")), ProcessFigures::default());
        let now = ProcessFigures::now();
        assert!(now.process_max_fds > 0 && now.process_start_time_seconds > 1e9, "{now:?}");
        let file = std::fs::File::open("/proc/self/stat");
        assert!(file.is_ok() && ProcessFigures::now().process_open_fds > 3, "{now:?}");
    }
}
