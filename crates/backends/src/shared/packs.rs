//! Arrays of small entries ([`packed`](crate::packed)) in a store that many threads use.
//!
//! To set an entry is to read its pack and to write it. A thread holds the lock of the pack's stripe from the read to
//! the answer of the write, so of two that set entries of one pack the second one reads what the first has written,
//! whatever engine stands behind the handles. Reads take no stripe: a pack is written as a whole.
//!
//! Invariants: a thread holds one stripe at most, and whoever leads others' writes (`group.rs`) takes none for them, so
//! that nobody waits for one who waits for it; what is written without this (the keys of packs by [`Handle::put`]) is
//! not kept apart.
//!
//! Left out: several entries at once, which may be in several packs and stores.

use super::{Handle, part};
use crate::error::Error;
use crate::packed::{Layout, Pack};
use base::checksum::crc32c;
use bytes::Bytes;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks: far more than threads, so that two that change different packs rarely meet.
const STRIPES: usize = 1024;

/// Locks of packs, which all handles of a store share; a key's hash decides which is a pack's.
pub(super) struct Stripes(Box<[Mutex<()>]>);

impl Default for Stripes {
    fn default() -> Stripes {
        Stripes((0..STRIPES).map(|_| Mutex::default()).collect())
    }
}

impl Stripes {
    fn lock(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        // A thread that has panicked has written its pack or has not: nothing is half done.
        self.0[crc32c(key) as usize % STRIPES].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handle {
    /// Sets an entry of an array, or removes it if it is `None`, and leaves the others of its pack as they are, whoever
    /// sets them meanwhile.
    ///
    /// # Errors
    /// [`Error::Refused`] if it has not the size of this array's entries, or what is stored has another layout; [`Error::Damaged`] if that is no pack; what
    /// the store says.
    pub fn set_entry(&mut self, layout: &Layout, number: u64, entry: Option<&[u8]>) -> Result<(), Error> {
        let (key, slot) = layout.place(number);
        let part = part(&mut self.parts, &key);
        let _turn = self.stripes.lock(&key);
        let stored = part.get(&key)?;
        let mut pack = Pack::of(layout, stored.as_ref())?;
        pack.set(slot, entry)?;
        part.write(pack.write(&key))
    }

    /// An entry of an array, if it is set.
    ///
    /// # Errors
    /// As those of [`Handle::set_entry`].
    pub fn entry(&mut self, layout: &Layout, number: u64) -> Result<Option<Bytes>, Error> {
        let (key, slot) = layout.place(number);
        match self.get(&key)? {
            Some(pack) => layout.entry(slot, &pack),
            None => Ok(None),
        }
    }

    /// Whether an entry of an array is set, which the head of its pack tells.
    ///
    /// # Errors
    /// As those of [`Handle::set_entry`].
    pub fn has_entry(&mut self, layout: &Layout, number: u64) -> Result<bool, Error> {
        let (key, slot) = layout.place(number);
        match self.head(&key)? {
            Some(head) => layout.is_set(slot, &head),
            None => Ok(false),
        }
    }
}
