//! How much memory a store's life takes, by an allocator that counts: all of a store that is used alone is on its
//! owner's thread.

use base::Rng;
use base::rng::SplitMix64;
use engine::{Durability, Embedded, Machine, Options};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has taken and not given back. What goes from one thread to another counts wrongly.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: isize) {
    // A thread that ends has no more cells: what it still does is not counted.
    let Ok(live) = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        live.get()
    }) else {
        return;
    };
    MOST.try_with(|most| most.set(most.get().max(live))).ok();
}

// SAFETY: everything is handed on to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the same promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the same promise.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes as isize - layout.size() as isize);
        // SAFETY: the caller keeps the same promise.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

const KEYS: u64 = 40_000;

/// Some 10 MiB of heads, and a store that is to do with a fraction of it.
pub fn options() -> Options {
    Options {
        durability: Durability::None,
        inline_value_bytes_max: 0,
        memtable_bytes_max: 256 << 10,
        segment_bytes_target: 1 << 20,
        table_bytes_target: 256 << 10,
        level0_tables_max: 4,
        leveled_bytes_target: 4 << 20,
        block_cache_bytes: 512 << 10,
        ..Options::default()
    }
}

/// What a store may take that was told [`options`].
pub fn allowed() -> isize {
    let options = options();
    // Three, with what a chunk has ahead of its use, and the index: a sixteenth.
    let memtables = 3 * (options.memtable_bytes_max + (128 << 10));
    // The heads of the segment that is written, and once more as they are sealed.
    let heads = 2 * options.segment_bytes_target as usize;
    // A group that waits and one under way, a table that is made, blocks that are read, filters and indexes.
    let buffers = 2 << 20;
    (memtables + heads + options.block_cache_bytes + buffers) as isize
}

/// The most bytes that loading a store and reading all its heads take.
pub fn most() -> isize {
    let folder = tempfile::tempdir().unwrap();
    LIVE.set(0);
    MOST.set(0);
    let machine =
        Machine::new(os::OsDisk::blocking().blocking_handles(), os::OsClock::new(), SplitMix64::new(1));
    let mut store = Embedded::open(folder.path(), options(), machine).unwrap();
    for number in 0..KEYS {
        store.put(&number.to_be_bytes(), &[number as u8; 240], b"value").unwrap();
    }
    store.flush().unwrap();
    let mut rng = SplitMix64::new(3);
    for _ in 0..2 * KEYS {
        assert!(store.head(&rng.below(KEYS).to_be_bytes()).unwrap().is_some());
    }
    store.close().unwrap();
    MOST.get()
}
