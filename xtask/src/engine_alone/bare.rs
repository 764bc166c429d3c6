//! What the machine itself takes for values of one size: a plain file of as many, written from one buffer, and read at random
//! places with a checksum. It is what a store that gives its values to the page cache builds upon; on a virtual machine whose host
//! takes memory back it can be most of what large values cost.

use super::bed::Cpu;
use crate::Result;
use crate::workload::SplitMix;
use base::checksum::crc32c;
use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a write: so many that the calls cost next to nothing beside the copy (a journal at `none` writes a quarter of it).
const WRITE_LEN: usize = 1 << 20;

/// CPU in microseconds for each value.
pub struct Bare {
    pub write_us: f64,
    /// A read at a random place and a checksum.
    pub read_us: f64,
}

/// Writes `count` values of `len` bytes into a file in `home`, reads `reads` of them, and removes it.
pub fn measure(home: &Path, count: u64, len: usize, reads: u64) -> Result<Bare> {
    let path = home.join("bare");
    let file = File::options().create_new(true).read(true).write(true).open(&path)?;
    let mut rng = SplitMix::new(1);
    let buffer: Vec<u8> = (0..WRITE_LEN / 8).flat_map(|_| rng.next().to_le_bytes()).collect();
    let writes = (count * len as u64).div_ceil(WRITE_LEN as u64);
    let cpu = Cpu::start()?;
    for number in 0..writes {
        file.write_all_at(&buffer, number * WRITE_LEN as u64)?;
    }
    let write_us = cpu.us_per(count)?;
    let mut value = vec![0; len];
    let cpu = Cpu::start()?;
    for _ in 0..reads {
        file.read_exact_at(&mut value, rng.below(count) * len as u64)?;
        black_box(crc32c(&value));
    }
    let read_us = cpu.us_per(reads)?;
    fs::remove_file(&path)?;
    Ok(Bare { write_us, read_us })
}
