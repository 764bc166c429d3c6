//! Little-endian integers of structures whose lengths were checked before.

/// The four bytes at `at`.
pub fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("the structure's length was checked"))
}

/// The eight bytes at `at`.
pub fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("the structure's length was checked"))
}
