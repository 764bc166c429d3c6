//! Memory that the machine has before a load takes it.
//!
//! The host of a virtual machine may take back what is free in it; the first touch of such a page then waits for the host,
//! microseconds each, in whatever the kernel is about to do: here in copying a write into the page cache, where it was 2.6 us
//! of a put's 7. That is none of the store's. So as much as a load will take as page cache is touched before, as a file in
//! memory, and given to the load bit by bit: what was free for long would go back to the host.

use crate::Result;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// Where files are in memory.
const FOLDER: &str = "/dev/shm";

/// What is written, and given back, at a time.
const PIECE_BYTES: u64 = 8 << 20;

/// Of the memory that is free so much is touched at most.
const SHARE: u64 = 2;

/// Memory that is held for a load.
pub struct Backed {
    file: File,
    path: PathBuf,
    /// How much there was.
    bytes: u64,
    left: u64,
}

impl Backed {
    /// Touches `wanted` bytes, or half of what memory is free.
    pub fn new(wanted: u64) -> Result<Backed> {
        let path = PathBuf::from(FOLDER).join(format!("annulet-figures-{}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let bytes = wanted.min(available_bytes()? / SHARE) / PIECE_BYTES * PIECE_BYTES;
        let mut backed = Backed { file, path, bytes, left: bytes };
        let piece = vec![1; PIECE_BYTES as usize];
        for _ in 0..bytes / PIECE_BYTES {
            backed.file.write_all(&piece)?;
        }
        Ok(backed)
    }

    /// Gives back so much that a load has it which has done so many of all its operations.
    pub fn give(&mut self, done: u64, of: u64) -> Result<()> {
        let share = u128::from(self.bytes) * u128::from(of - done.min(of)) / u128::from(of.max(1));
        // Some more than the load has taken so far, so that it does not wait for it.
        let keep = u64::try_from(share)?.saturating_sub(2 * PIECE_BYTES) / PIECE_BYTES * PIECE_BYTES;
        if keep < self.left {
            self.file.set_len(keep)?;
            self.left = keep;
        }
        Ok(())
    }

    /// How much there was, in MiB.
    pub fn mib(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20)
    }
}

impl Drop for Backed {
    fn drop(&mut self) {
        // What is left behind goes with the machine's memory.
        std::fs::remove_file(&self.path).ok();
    }
}

/// Memory that could be taken without swapping.
fn available_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()).ok_or("/proc/meminfo has another form")?;
    Ok(kib.parse::<u64>()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_given_in_the_end() {
        let mut backed = Backed::new(5 * PIECE_BYTES).unwrap();
        let len = |backed: &Backed| backed.file.metadata().unwrap().len();
        assert_eq!(len(&backed), 5 * PIECE_BYTES);
        backed.give(0, 10).unwrap();
        assert_eq!(len(&backed), 3 * PIECE_BYTES);
        backed.give(10, 10).unwrap();
        assert_eq!(len(&backed), 0);
        let path = backed.path.clone();
        drop(backed);
        assert!(!path.exists());
    }
}
