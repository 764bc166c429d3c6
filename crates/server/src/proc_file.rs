//! Files of `/proc` that figures are read from.

use std::fs::File;
use std::io::Read;

/// The longest of these files: `/proc/meminfo` has half of it.
const BYTES_MAX: usize = 4 << 10;

/// The text of a file; empty if the kernel has none. One read brings it, where `read_to_string` begins with 32 bytes.
pub fn read(path: &str) -> String {
    let mut bytes = [0; BYTES_MAX];
    let len = File::open(path).and_then(|mut file| file.read(&mut bytes)).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}
