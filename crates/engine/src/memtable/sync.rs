//! The atomics the memtable is made of: the standard ones, or loom's when its models run (`--cfg loom`).

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

/// A value written when it is made and only read afterwards, by whoever was shown it through an atomic pointer.
/// It costs nothing; under loom a read that does not happen after the write fails the model.
#[cfg(not(loom))]
pub(super) struct Written<T>(T);

#[cfg(not(loom))]
impl<T: Copy> Written<T> {
    pub(super) fn new(value: T) -> Self {
        Self(value)
    }

    pub(super) fn get(&self) -> T {
        self.0
    }
}

/// A value written when it is made and only read afterwards, with each access checked by loom.
#[cfg(loom)]
pub(super) struct Written<T>(loom::cell::UnsafeCell<T>);

#[cfg(loom)]
impl<T: Copy> Written<T> {
    pub(super) fn new(value: T) -> Self {
        let cell = loom::cell::UnsafeCell::new(value);
        // Loom counts accesses, not the making of the cell: this one is the write that readers must see.
        cell.with_mut(|_| ());
        Self(cell)
    }

    pub(super) fn get(&self) -> T {
        // SAFETY: only `new` writes, and loom fails the model if a read does not happen after it.
        self.0.with(|value| unsafe { *value })
    }
}
