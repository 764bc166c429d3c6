//! Packing: arrays of small entries of one size, many of which share a key.
//!
//! What a store keeps for a key, in memory or on the disk, is often more than an entry of 16 bytes has. A *pack* is the
//! entries of one key: entry `n` of an array is slot `n % slots` of pack `n / slots`. The head of a pack says which
//! slots are set, and the value is all slots, those that are not set as zeros. The bytes are in
//! docs/formats/backends.md.
//!
//! Invariants:
//!
//! * A write sets all of its entries or none, and leaves their neighbours as they were: several entries of one pack in
//!   one write are one change of it, and writes that follow each other are each on what is stored. A [`Packed`] has its
//!   store for itself, so no write comes between the read and the write of another; where threads share a store, its
//!   handles see to that ([`Handle::set_entry`](crate::shared::Handle::set_entry)).
//! * A pack without entries is not there.
//!
//! Left out: packs as objects of a cluster, whose siblings would have to be joined by slot.

use crate::backend::{Backend, Item, Object, What, Write};
use crate::error::Error;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{ControlFlow, Range};

const VERSION: u8 = 1;
const FRONT_BYTES: usize = 6;

/// A pack has at most so many bytes: to set one entry all of them are read and written.
pub const PACK_BYTES_MAX: usize = 64 << 10;

/// A name has at most so many bytes: with a number behind it it is a key that every engine takes.
pub const NAME_BYTES_MAX: usize = 255;

/// A range over so many packs is read one by one; a longer one is a fold, which costs some engines more than a few
/// reads.
const READ_ONE_BY_ONE_MAX: u64 = 64;

/// What an array is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    name: Bytes,
    slots: u16,
    entry_bytes: u16,
}

impl Layout {
    /// The array whose keys begin with `name`, which those of nothing else in the store may; `slots` entries of
    /// `entry_bytes` each have one.
    pub fn new(name: &[u8], slots: u16, entry_bytes: u16) -> Result<Layout, Error> {
        Error::check_len("the name of an array", name.len(), NAME_BYTES_MAX)?;
        if slots == 0 || entry_bytes == 0 {
            return Err(Error::Refused("a pack has at least one entry of one byte".to_owned()));
        }
        let layout = Layout { name: Bytes::copy_from_slice(name), slots, entry_bytes };
        Error::check_len("a pack", layout.value_bytes(), PACK_BYTES_MAX)?;
        Ok(layout)
    }

    fn key(&self, pack: u64) -> Vec<u8> {
        [&self.name[..], &pack.to_be_bytes()].concat()
    }

    /// The key of an entry's pack, and the entry's slot there.
    pub(crate) fn place(&self, number: u64) -> (Vec<u8>, usize) {
        let slots = u64::from(self.slots);
        (self.key(number / slots), (number % slots) as usize)
    }

    fn bytes(&self, slot: usize) -> Range<usize> {
        let entry_bytes = usize::from(self.entry_bytes);
        slot * entry_bytes..(slot + 1) * entry_bytes
    }

    /// What the heads of this array's packs begin with.
    fn front(&self) -> [u8; FRONT_BYTES] {
        let ([s0, s1], [e0, e1]) = (self.slots.to_le_bytes(), self.entry_bytes.to_le_bytes());
        [VERSION, 0, s0, s1, e0, e1]
    }

    fn head_bytes(&self) -> usize {
        FRONT_BYTES + usize::from(self.slots).div_ceil(8)
    }

    fn value_bytes(&self) -> usize {
        usize::from(self.slots) * usize::from(self.entry_bytes)
    }

    /// That this is the head of a pack of this array.
    fn check_head(&self, head: &[u8]) -> Result<(), Error> {
        let ours = self.front();
        let front = head.first_chunk::<FRONT_BYTES>().filter(|front| front[..2] == ours[..2]);
        match front {
            Some(front) if *front != ours => {
                Err(Error::Refused("the array has packs or entries of another size".to_owned()))
            }
            Some(_) if head.len() == self.head_bytes() => Ok(()),
            _ => Err(Error::damaged("a pack", "it is none")),
        }
    }

    /// That this is a pack of this array.
    fn check(&self, head: &[u8], value: &[u8]) -> Result<(), Error> {
        self.check_head(head)?;
        match value.len() == self.value_bytes() {
            true => Ok(()),
            false => Err(Error::damaged("a pack", "it is none")),
        }
    }

    /// Whether an entry is set, by the head of its pack.
    pub(crate) fn is_set(&self, slot: usize, head: &[u8]) -> Result<bool, Error> {
        self.check_head(head)?;
        Ok(is_set(head, slot))
    }

    /// An entry of its pack, if it is set.
    pub(crate) fn entry(&self, slot: usize, pack: &Object) -> Result<Option<Bytes>, Error> {
        self.check(&pack.head, &pack.value)?;
        Ok(is_set(&pack.head, slot).then(|| pack.value.slice(self.bytes(slot))))
    }
}

/// Whether the head of a pack, which was checked, says that a slot is set.
fn is_set(head: &[u8], slot: usize) -> bool {
    head[FRONT_BYTES + slot / 8] >> (slot % 8) & 1 == 1
}

/// The entries of one key, to be changed.
pub(crate) struct Pack<'l> {
    layout: &'l Layout,
    head: Vec<u8>,
    value: Vec<u8>,
}

impl<'l> Pack<'l> {
    /// What is stored, or one without entries.
    pub(crate) fn of(layout: &'l Layout, stored: Option<&Object>) -> Result<Pack<'l>, Error> {
        let (head, value) = match stored {
            Some(Object { head, value }) => {
                layout.check(head, value)?;
                (head.to_vec(), value.to_vec())
            }
            None => {
                let mut head = layout.front().to_vec();
                head.resize(layout.head_bytes(), 0);
                (head, vec![0; layout.value_bytes()])
            }
        };
        Ok(Pack { layout, head, value })
    }

    /// Sets an entry, or removes it.
    ///
    /// # Errors
    /// [`Error::Refused`] if it has not the size of this array's entries.
    pub(crate) fn set(&mut self, slot: usize, entry: Option<&[u8]>) -> Result<(), Error> {
        let (bytes, bit) = (self.layout.bytes(slot), 1 << (slot % 8));
        match entry {
            Some(entry) if entry.len() != bytes.len() => {
                return Err(Error::Refused(format!("an entry of this array has {} bytes", bytes.len())));
            }
            Some(entry) => {
                self.value[bytes].copy_from_slice(entry);
                self.head[FRONT_BYTES + slot / 8] |= bit;
            }
            None => {
                self.value[bytes].fill(0);
                self.head[FRONT_BYTES + slot / 8] &= !bit;
            }
        }
        Ok(())
    }

    /// What stores it under its key.
    pub(crate) fn write<'w>(&'w self, key: &'w [u8]) -> Write<'w> {
        match self.head[FRONT_BYTES..].iter().all(|bits| *bits == 0) {
            true => Write::Delete { key },
            false => Write::Put { key, head: &self.head, value: &self.value },
        }
    }
}

/// What is told of each entry of a range, and says whether it goes on.
pub type VisitEntry<'v> = dyn FnMut(u64, &[u8]) -> ControlFlow<()> + 'v;

/// An array in a store.
pub struct Packed<'s> {
    store: &'s mut dyn Backend,
    layout: Layout,
}

impl<'s> Packed<'s> {
    /// The array of this layout in `store`.
    pub fn new(store: &'s mut dyn Backend, layout: Layout) -> Packed<'s> {
        Packed { store, layout }
    }

    /// Sets entries, or removes those that are `None`, all or nothing; of two of one number the later one counts.
    pub fn write(&mut self, entries: &[(u64, Option<&[u8]>)]) -> Result<(), Error> {
        let mut packs: BTreeMap<Vec<u8>, Pack<'_>> = BTreeMap::new();
        for &(number, entry) in entries {
            let (key, slot) = self.layout.place(number);
            let pack = match packs.entry(key) {
                Entry::Occupied(pack) => pack.into_mut(),
                Entry::Vacant(place) => {
                    let stored = self.store.get(place.key())?;
                    place.insert(Pack::of(&self.layout, stored.as_ref())?)
                }
            };
            pack.set(slot, entry)?;
        }
        let batch: Vec<Write<'_>> = packs.iter().map(|(key, pack)| pack.write(key)).collect();
        self.store.write(&batch)
    }

    /// Sets an entry.
    pub fn set(&mut self, number: u64, entry: &[u8]) -> Result<(), Error> {
        self.write(&[(number, Some(entry))])
    }

    /// Removes an entry, whether it is there or not.
    pub fn remove(&mut self, number: u64) -> Result<(), Error> {
        self.write(&[(number, None)])
    }

    /// An entry.
    pub fn get(&mut self, number: u64) -> Result<Option<Bytes>, Error> {
        let (key, slot) = self.layout.place(number);
        match self.store.get(&key)? {
            Some(pack) => self.layout.entry(slot, &pack),
            None => Ok(None),
        }
    }

    /// Whether an entry is set, which the head of its pack tells.
    pub fn contains(&mut self, number: u64) -> Result<bool, Error> {
        let (key, slot) = self.layout.place(number);
        match self.store.head(&key)? {
            Some(head) => self.layout.is_set(slot, &head),
            None => Ok(false),
        }
    }

    /// Tells of each entry that is set of those from `from` up to `to`, which is not among them, in order.
    pub fn range(&mut self, from: u64, to: u64, visit: &mut VisitEntry<'_>) -> Result<(), Error> {
        if from >= to {
            return Ok(());
        }
        let slots = u64::from(self.layout.slots);
        let layout = self.layout.clone();
        let (first, last) = (from / slots, (to - 1) / slots);
        // Of a pack that was checked.
        let mut tell = |number: u64, head: &[u8], value: &[u8]| {
            let told =
                (0..usize::from(layout.slots)).filter(|&slot| is_set(head, slot)).try_for_each(|slot| {
                    let entry = number * slots + slot as u64;
                    if (from..to).contains(&entry) {
                        visit(entry, &value[layout.bytes(slot)])
                    } else {
                        ControlFlow::Continue(())
                    }
                });
            told.is_break()
        };
        if last - first < READ_ONE_BY_ONE_MAX {
            for number in first..=last {
                let Some(Object { head, value }) = self.store.get(&layout.key(number))? else { continue };
                layout.check(&head, &value)?;
                if tell(number, &head, &value) {
                    return Ok(());
                }
            }
            return Ok(());
        }
        // The key behind the last one: a name and a number have no other key between them and the next number's.
        let end = [&layout.key(last)[..], &[0]].concat();
        let mut failed = None;
        self.store.fold(&layout.key(first), &end, What::Objects, &mut |Item { key, head, value }| {
            let number = key.get(layout.name.len()..).and_then(|number| number.try_into().ok());
            match (number.map(u64::from_be_bytes), layout.check(head, value)) {
                (Some(number), Ok(())) if !tell(number, head, value) => ControlFlow::Continue(()),
                (Some(_), Ok(())) => ControlFlow::Break(()),
                (None, _) => {
                    failed = Some(Error::damaged("an array", "a key that is none of its own"));
                    ControlFlow::Break(())
                }
                (_, Err(error)) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        failed.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    #[test]
    fn the_bytes_of_a_pack_stay_what_they_are() {
        let mut store = Memory::default();
        let mut array = Packed::new(&mut store, Layout::new(b"lba/", 10, 3).unwrap());
        array.write(&[(71, Some(b"one")), (79, Some(b"nin"))]).unwrap();
        let object = store.get(b"lba/\0\0\0\0\0\0\0\x07").unwrap().unwrap();
        assert_eq!(object.head, &b"\x01\0\x0a\0\x03\0\x02\x02"[..]);
        assert_eq!(object.value, [&[0; 3][..], b"one", &[0; 21], b"nin"].concat());
    }

    #[test]
    fn a_head_tells_which_entries_are_set() {
        let mut store = Memory::default();
        let mut array = Packed::new(&mut store, Layout::new(b"lba/", 10, 3).unwrap());
        array.write(&[(7, Some(b"one")), (9, Some(b"nin"))]).unwrap();
        array.remove(9).unwrap();
        let set: Vec<u64> = (0..30).filter(|&number| array.contains(number).unwrap()).collect();
        assert_eq!(set, [7]);
        array.remove(7).unwrap();
        assert!(!array.contains(7).unwrap());
        assert_eq!(store.head(b"lba/\0\0\0\0\0\0\0\0").unwrap(), None);
    }

    #[test]
    fn what_is_no_pack_is_damage_and_another_size_is_refused() {
        let layout = Layout::new(b"a", 10, 3).unwrap();
        let (head, value) = (b"\x01\0\x0a\0\x03\0\x02\x02", [0; 30]);
        assert_eq!(layout.check(head, &value), Ok(()));
        for (head, value) in [
            (&head[..5], &value[..]),
            (&head[..7], &value),
            (head, &value[1..]),
            (b"\x02\0\x0a\0\x03\0\0\0", &value),
        ] {
            assert!(matches!(layout.check(head, value), Err(Error::Damaged(_))), "{head:?}");
        }
        let other = Layout::new(b"a", 12, 3).unwrap();
        assert!(matches!(other.check(head, &value), Err(Error::Refused(_))));
        for (slots, entry_bytes) in [(0, 1), (1, 0)] {
            assert!(matches!(Layout::new(b"a", slots, entry_bytes), Err(Error::Refused(_))));
        }
        assert!(matches!(Layout::new(b"a", 10_000, 100), Err(Error::TooLarge { .. })));
        assert!(matches!(Layout::new(&[0; 300], 1, 1), Err(Error::TooLarge { .. })));
    }
}
