//! What the machine has, as far as this process may use it.

use engine::store::Resources;
use std::num::NonZero;
use std::thread;

/// What to plan with where the kernel does not say.
const MEMORY_UNKNOWN: u64 = 2 << 30;

/// Processors that this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// What the stores of so many shards may use together: of `memory` bytes, or of what there is.
pub fn resources(memory: Option<u64>, shards: u16) -> Resources {
    Resources { memory_bytes: memory.unwrap_or_else(self::memory), cores: cores(), stores: shards.into() }
}

/// The machine's memory, or what the process's control group leaves of it.
fn memory() -> u64 {
    let read = |path| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| total_of(&text));
    let group = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(group).min().unwrap_or(MEMORY_UNKNOWN)
}

/// The total that the kernel states, in bytes.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        assert_eq!(total_of("MemTotal:       24586636 kB\nMemFree: 1 kB\n"), Some(24_586_636 << 10));
        assert_eq!(total_of("MemFree: 1 kB\n"), None);
        assert!(memory() > 0 && cores() > 0);
        assert_eq!(resources(Some(7), 3), Resources { memory_bytes: 7, cores: cores(), stores: 3 });
    }
}
