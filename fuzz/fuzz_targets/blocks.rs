//! Blocks of a store with a hash index, of both versions: noise, and noise in a sound block behind its header.
#![no_main]

use backends::hash::block::{BLOCK_HEADER_BYTES, Superblock};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, u32, &[u8])| {
    let (seq, block, bytes) = input;
    if let Ok(superblock) = Superblock::parse(bytes) {
        assert_eq!(superblock.encode(), bytes);
    }
    let new = Superblock::new(128 << 10, 7);
    for store in [new, Superblock { version: 1, ..new }] {
        let _ = store.parse_header(block, bytes);
        let life = store.life(block, seq);
        let whole = [&life.header()[..], bytes].concat();
        assert_eq!(store.parse_header(block, &whole), Some(seq));
        let content = life.read(&whole, true);
        assert!(content.end as usize <= whole.len().max(BLOCK_HEADER_BYTES).next_multiple_of(16));
        let _ = life.is_damage(&whole, content.end);
    }
});
