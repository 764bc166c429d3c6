//! Figures of this process, by the names that every exporter of Prometheus gives them. Those that the kernel does not
//! tell are 0.

use serde::Serialize;
use std::fs::{read_dir, read_to_string};

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
        let read = |path: &str| read_to_string(path).unwrap_or_default();
        ProcessFigures {
            // The folder's own descriptor is among them.
            process_open_fds: read_dir("/proc/self/fd").map_or(0, |fds| fds.count().saturating_sub(1)),
            ..ProcessFigures::of(&read("/proc/self/stat"), &read("/proc/self/limits"), &read("/proc/stat"))
        }
    }

    fn of(stat: &str, limits: &str, machine: &str) -> ProcessFigures {
        // The name of the program, in brackets, may have blanks. Behind it is the third field.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
        let booted = machine.lines().find_map(|line| line.strip_prefix("btime "));
        let booted = booted.and_then(|it| it.trim().parse::<u64>().ok()).unwrap_or(0);
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        let files = files.and_then(|it| it.split_whitespace().next()?.parse().ok());
        ProcessFigures {
            process_virtual_memory_bytes: field(23),
            process_cpu_seconds_total: (field(14) + field(15)) as f64 / TICKS,
            process_start_time_seconds: booted as f64 + field(22) as f64 / TICKS,
            process_open_fds: 0,
            process_max_fds: files.unwrap_or(0),
            process_threads: field(20),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_kernels_files() {
        let stat = "7 (a b) c) S 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0 9 0 1200 4096000 30 0";
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files    1024     4096 files\n";
        let figures = ProcessFigures::of(stat, limits, "cpu 1 2\nbtime 1000\n");
        let expected = ProcessFigures {
            process_virtual_memory_bytes: 4_096_000,
            process_cpu_seconds_total: 3.0,
            process_start_time_seconds: 1012.0,
            process_open_fds: 0,
            process_max_fds: 1024,
            process_threads: 9,
        };
        assert_eq!(figures, expected);
        assert_eq!(ProcessFigures::of("", "", ""), ProcessFigures::default());
        let now = ProcessFigures::now();
        assert!(now.process_open_fds > 0 && now.process_start_time_seconds > 1e9, "{now:?}");
    }
}
