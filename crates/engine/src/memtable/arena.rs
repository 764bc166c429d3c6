//! The memtable's memory: chunks handed out from front to back and freed all at once.
//!
//! Invariants:
//! - memory handed out never moves and is never handed out twice;
//! - it stays valid until the [`Arena`] is dropped, whatever happens to the [`Bump`] that handed it out.
//!
//! The two halves let the one writer allocate without a lock while readers keep the memory alive: the [`Arena`],
//! shared, owns the chunks, and the [`Bump`], the writer's, fills the newest. Only a new chunk takes the lock, and
//! nobody else takes it before the drop.
//!
//! Left out: freeing or reusing a single allocation. A memtable only grows, until it is flushed and dropped.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// Every allocation is aligned to this: enough for a pointer or a `u64`.
pub(super) const ALIGN: usize = 8;

/// The first chunk: small, since an idle or a test memtable should cost little.
const CHUNK_BYTES_MIN: usize = 64 << 10;

/// Chunks double up to this: few enough calls to the allocator, and little memory ahead of its use.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// An allocation above this gets a chunk of its own, so that a new chunk never abandons more than this of the old.
const SHARED_BYTES_MAX: usize = CHUNK_BYTES_MIN / 4;

/// The chunks, freed on drop.
pub(super) struct Arena {
    chunks: Mutex<Vec<Chunk>>,
}

/// The writer's place in the newest chunk of an [`Arena`].
pub(super) struct Bump {
    next: NonNull<u8>,
    left: usize,
    chunk_bytes: usize,
}

/// One block of raw memory. A pointer, not a `Box`: nodes alias it, which a moved `Box` would forbid.
struct Chunk {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a chunk is plain memory of the global allocator, owned by this value alone, and no method reads it.
unsafe impl Send for Chunk {}

// SAFETY: as for `Chunk`: the bump only computes addresses; using what they point to is the caller's unsafe code.
unsafe impl Send for Bump {}
// SAFETY: `Bump` has no method on `&self`.
unsafe impl Sync for Bump {}

impl Arena {
    pub(super) fn new() -> Self {
        Self { chunks: Mutex::new(Vec::new()) }
    }

    fn grow(&self, bytes: usize) -> NonNull<u8> {
        let chunk = Chunk::new(bytes);
        let start = chunk.start;
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner).push(chunk);
        start
    }
}

impl Bump {
    pub(super) fn new() -> Self {
        Self { next: NonNull::dangling(), left: 0, chunk_bytes: CHUNK_BYTES_MIN }
    }

    /// Uninitialised memory of `bytes`, a multiple of [`ALIGN`], aligned to [`ALIGN`], valid until `arena` is dropped.
    pub(super) fn alloc(&mut self, arena: &Arena, bytes: usize) -> NonNull<u8> {
        assert!(bytes > 0 && bytes.is_multiple_of(ALIGN), "an allocation keeps the next one aligned");
        if bytes > SHARED_BYTES_MAX {
            return arena.grow(bytes);
        }
        if bytes > self.left {
            self.next = arena.grow(self.chunk_bytes);
            self.left = self.chunk_bytes;
            self.chunk_bytes = (self.chunk_bytes * 2).min(CHUNK_BYTES_MAX);
        }
        let start = self.next;
        // SAFETY: `bytes <= left`, so the result is inside the chunk or one past its end.
        self.next = unsafe { start.add(bytes) };
        self.left -= bytes;
        start
    }
}

impl Chunk {
    fn new(bytes: usize) -> Self {
        let layout =
            Layout::from_size_align(bytes, ALIGN).expect("an entry that is in memory has a valid size");
        assert!(layout.size() > 0);
        // SAFETY: the size is not zero.
        let start = unsafe { alloc(layout) };
        Self { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc` with this same layout, and this value alone owns it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_aligned_and_apart() {
        let (arena, mut bump) = (Arena::new(), Bump::new());
        let mut taken = Vec::new();
        for round in 0..3_000 {
            let bytes = match round % 500 {
                0 => CHUNK_BYTES_MAX + ALIGN,
                1 => SHARED_BYTES_MAX,
                n => n / 8 * 8 + 8,
            };
            let start = bump.alloc(&arena, bytes);
            // SAFETY: the arena just handed out `bytes` at `start`.
            unsafe { start.write_bytes(0xA5, bytes) };
            taken.push((start.addr().get(), bytes));
        }
        taken.sort_unstable();
        assert!(taken.iter().all(|(start, _)| start.is_multiple_of(ALIGN)));
        assert!(taken.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    }

    #[test]
    fn an_oversize_allocation_leaves_the_chunk_in_use() {
        let (arena, mut bump) = (Arena::new(), Bump::new());
        let first = bump.alloc(&arena, 8);
        bump.alloc(&arena, SHARED_BYTES_MAX + ALIGN);
        let second = bump.alloc(&arena, 8);
        assert_eq!(second.addr().get(), first.addr().get() + 8);
        assert_eq!(arena.chunks.lock().unwrap().len(), 2);
    }
}
