//! Runs cases under callgrind, two at a time, and reads what it counted.

use super::cases;
use crate::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Cases under way at once. The counts do not depend on it.
const WORKERS: usize = 2;

/// The function that counts, as callgrind sees its name: of whichever crate and hash.
const MEASURED: &str = "*micro*measured*";

/// What decides how many instructions the same source takes.
pub fn toolchain() -> Result<String> {
    let first_line = |program: &str, arguments: &[&str]| -> Result<String> {
        let output = Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().next().unwrap_or_default().trim().to_owned())
    };
    let rustc = first_line("rustc", &["--version"])?;
    let libc = first_line("getconf", &["GNU_LIBC_VERSION"])?;
    // The C library chooses its copies by it. Callgrind's processor has no wider ones.
    #[cfg(target_arch = "x86_64")]
    let wide = if std::arch::is_x86_feature_detected!("avx2") { "avx2" } else { "sse" };
    #[cfg(not(target_arch = "x86_64"))]
    let wide = "as it is";
    Ok(format!("{rustc}, {libc}, {} {wide}", std::env::consts::ARCH))
}

/// Instructions per operation of each case.
pub fn count_all(names: &[&str]) -> Result<BTreeMap<String, f64>> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Err("valgrind is missing: apt-get install valgrind".into());
    }
    let folder = tempfile::tempdir()?;
    let program = without_debug_info(folder.path())?;
    let next = Mutex::new(names.iter());
    let counts = Mutex::new(Ok(BTreeMap::new()));
    let lock = "no case panics while it holds a lock";
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (next, counts, program) = (&next, &counts, &program);
            let file = folder.path().join(format!("counts.{worker}"));
            scope.spawn(move || {
                loop {
                    let Some(name) = next.lock().expect(lock).next() else { return };
                    let counted = count(program, name, &file);
                    let mut counts = counts.lock().expect(lock);
                    match (&mut *counts, counted) {
                        (Ok(counts), Ok(count)) => {
                            counts.insert((*name).to_owned(), count);
                        }
                        (Ok(_), Err(failure)) => *counts = Err(failure),
                        (Err(_), _) => return,
                    }
                }
            });
        }
    });
    counts.into_inner().expect(lock)
}

/// Callgrind reads all debug information of a program before it starts it, in each process; the names of functions
/// are all that is needed.
fn without_debug_info(folder: &Path) -> Result<PathBuf> {
    let (own, copy) = (std::env::current_exe()?, folder.join("xtask"));
    let status = Command::new("strip").args(["--strip-debug", "-o"]).args([&copy, &own]).status();
    match status.map_err(|failure| format!("strip: {failure}; apt-get install binutils"))?.success() {
        true => Ok(copy),
        false => Err("strip failed".into()),
    }
}

fn count(program: &Path, name: &str, file: &Path) -> Result<f64> {
    let total = total(&profile(program, name, file)?).ok_or("callgrind has counted nothing")?;
    if total == 0 {
        return Err(format!("case {name}: callgrind has not seen {MEASURED}").into());
    }
    Ok((total as f64 / cases::OPERATIONS as f64 * 10.0).round() / 10.0)
}

/// Runs a case of this program, or of another build of it, and gives the output of callgrind.
pub fn profile(program: &Path, name: &str, file: &Path) -> Result<String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--dump-instr=no", "--quiet"])
        .arg(format!("--toggle-collect={MEASURED}"))
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args(["micro", "--case", name])
        // Symbols that are found at their first call would count in the first operation.
        .env("LD_BIND_NOW", "1")
        // With the allocator's usual seven, whether an eighth block of a size is at hand or is put together from others
        // depends on what lies where in the heap: a get took 18 % more or not, by changes elsewhere. Zeroed blocks
        // never are at hand, so engine.get_memtable has 3,202 or 3,494 instructions by the layout of the heap.
        .env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=100")
        .output()
        .map_err(|failure| format!("valgrind: {failure}; apt-get install valgrind"))?;
    if !output.status.success() {
        return Err(format!("case {name}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(std::fs::read_to_string(file)?)
}

/// The sum that stands at the end of callgrind's file.
fn total(text: &str) -> Option<u64> {
    let line = |name| text.lines().rev().find_map(|line| line.strip_prefix(name));
    line("totals:").or_else(|| line("summary:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::total;

    #[test]
    fn the_sum_is_read_from_the_file_of_callgrind() {
        assert_eq!(total("version: 1\nevents: Ir\nsummary: 12\n\nfn=(1) a\n1 5\n\ntotals: 42\n"), Some(42));
        assert_eq!(total("events: Ir\nsummary: 12\n"), Some(12));
        assert_eq!(total("events: Ir\n"), None);
    }
}
