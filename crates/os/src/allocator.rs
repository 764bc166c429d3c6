//! What the C library's allocator gives back.
//!
//! glibc serves large blocks by mappings of their own, which go back to the kernel as soon as they are freed, but it
//! learns: a freed mapping of up to 32 MiB moves its threshold there, and from then on blocks of that size come out of
//! its heaps, whose ends it keeps up to twice the threshold. A journal's group grows to tens of MiB for as long as a
//! disk is slow, once; every shard's heap would keep room for the next (docs/decisions/0068). A threshold that is set
//! is never moved.
//!
//! Left out: other C libraries, which learn nothing, and whoever uses the engine in a program of their own, whose
//! allocator is theirs.

/// Blocks of this size and above are given back when they are freed. Above the sizes that come and go all the time
/// (blocks of tables, messages, a memtable's chunks), below those that come seldom and are large (groups, memtables'
/// rest, answers of many MiB), for which a mapping costs less than filling it.
const MAPPED_FROM: i32 = 2 << 20;

/// What the end of a heap keeps: what comes and goes between two trims, so that no request waits for the kernel.
const KEPT_AT_MOST: i32 = 4 << 20;

/// Holds the allocator's thresholds where they are set here. Returns whether it did: a program goes on without.
///
/// For the start of a program, before its threads: what was freed before has moved the thresholds already.
pub fn give_back_large_blocks() -> bool {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: `mallopt` takes two integers, touches no memory of ours, and takes the allocator's own lock, so it
        // may be called at any time from any thread (mallopt(3): MT-Unsafe only against another `mallopt` and the first
        // allocation, both of which are over when `main` of a program with one thread runs).
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM) == 1
                && libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_AT_MOST) == 1
        }
    }
    #[cfg(not(target_env = "gnu"))]
    false
}
