//! Asking for memory before it is wanted, so that several waits for it become one.

/// Has the processor fetch what is at `at`, if it knows how; nothing else comes of it, whatever the address.
#[inline]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: nothing is read or written, and no address is at fault; every processor of this architecture has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    // Other architectures have no stable way to ask.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    std::hint::black_box(at);
}
