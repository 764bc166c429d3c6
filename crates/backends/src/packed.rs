//! Packing: arrays of small entries of one size, many of which share a key.
//!
//! What a store keeps for a key, in memory or on the disk, is often more than an entry of 16 bytes has. A *pack* is the entries of
//! one key: entry `n` of an array is slot `n % slots` of pack `n / slots`. The head of a pack says which slots are set, and the value is all
//! slots, those that are not set as zeros. The bytes are in docs/formats/backends.md.
//!
//! Invariants:
//!
//! * A write sets all of its entries or none, and leaves their neighbours as they were: several entries of one pack in one write are
//!   one change of it, and writes that follow each other are each on what is stored. A store has one owner, so no write comes between
//!   the read and the write of another.
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

/// A range over so many packs is read one by one; a longer one is a fold, which costs some engines more than a few reads.
const READ_ONE_BY_ONE_MAX: u64 = 64;

/// What an array is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    name: Vec<u8>,
    slots: u16,
    entry_bytes: u16,
}

impl Layout {
    /// The array whose keys begin with `name`, which those of nothing else in the store may; `slots` entries of `entry_bytes` each have one.
    pub fn new(name: &[u8], slots: u16, entry_bytes: u16) -> Result<Layout, Error> {
        Error::check_len("the name of an array", name.len(), NAME_BYTES_MAX)?;
        if slots == 0 || entry_bytes == 0 {
            return Err(Error::Refused("a pack has at least one entry of one byte".to_owned()));
        }
        Error::check_len("a pack", usize::from(slots) * usize::from(entry_bytes), PACK_BYTES_MAX)?;
        Ok(Layout { name: name.to_vec(), slots, entry_bytes })
    }

    fn key(&self, pack: u64) -> Vec<u8> {
        [&self.name[..], &pack.to_be_bytes()].concat()
    }

    /// The pack of an entry, and its slot there.
    fn place(&self, number: u64) -> (u64, usize) {
        let slots = u64::from(self.slots);
        (number / slots, (number % slots) as usize)
    }
}

/// The entries of one key.
struct Pack {
    head: Vec<u8>,
    value: Vec<u8>,
    entry_bytes: usize,
}

impl Pack {
    fn empty(layout: &Layout) -> Pack {
        let mut head = vec![VERSION, 0];
        head.extend_from_slice(&layout.slots.to_le_bytes());
        head.extend_from_slice(&layout.entry_bytes.to_le_bytes());
        head.resize(FRONT_BYTES + usize::from(layout.slots).div_ceil(8), 0);
        let value = vec![0; usize::from(layout.slots) * usize::from(layout.entry_bytes)];
        Pack { head, value, entry_bytes: layout.entry_bytes.into() }
    }

    /// One that was stored, of this layout.
    fn of(layout: &Layout, head: &[u8], value: &[u8]) -> Result<Pack, Error> {
        let mut pack = Pack::empty(layout);
        let is_sound = head.len() >= FRONT_BYTES && head[..2] == pack.head[..2];
        if is_sound && head[2..FRONT_BYTES] != pack.head[2..FRONT_BYTES] {
            return Err(Error::Refused("the array has packs or entries of another size".to_owned()));
        }
        if !is_sound || head.len() != pack.head.len() || value.len() != pack.value.len() {
            return Err(Error::damaged("a pack", "it is none"));
        }
        pack.head.copy_from_slice(head);
        pack.value.copy_from_slice(value);
        Ok(pack)
    }

    fn is_set(&self, slot: usize) -> bool {
        self.head[FRONT_BYTES + slot / 8] >> (slot % 8) & 1 == 1
    }

    fn is_empty(&self) -> bool {
        self.head[FRONT_BYTES..].iter().all(|bits| *bits == 0)
    }

    fn bytes(&self, slot: usize) -> Range<usize> {
        slot * self.entry_bytes..(slot + 1) * self.entry_bytes
    }

    fn set(&mut self, slot: usize, entry: Option<&[u8]>) {
        let (bytes, bit) = (self.bytes(slot), 1 << (slot % 8));
        match entry {
            Some(entry) => {
                self.value[bytes].copy_from_slice(entry);
                self.head[FRONT_BYTES + slot / 8] |= bit;
            }
            None => {
                self.value[bytes].fill(0);
                self.head[FRONT_BYTES + slot / 8] &= !bit;
            }
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
        let entry_bytes = usize::from(self.layout.entry_bytes);
        let mut packs: BTreeMap<u64, Pack> = BTreeMap::new();
        for &(number, entry) in entries {
            if entry.is_some_and(|entry| entry.len() != entry_bytes) {
                return Err(Error::Refused(format!("an entry of this array has {entry_bytes} bytes")));
            }
            let (number, slot) = self.layout.place(number);
            let pack = match packs.entry(number) {
                Entry::Occupied(pack) => pack.into_mut(),
                Entry::Vacant(place) => {
                    let stored = self.store.get(&self.layout.key(number))?;
                    place.insert(match stored {
                        Some(Object { head, value }) => Pack::of(&self.layout, &head, &value)?,
                        None => Pack::empty(&self.layout),
                    })
                }
            };
            pack.set(slot, entry);
        }
        let packs: Vec<(Vec<u8>, Pack)> =
            packs.into_iter().map(|(number, pack)| (self.layout.key(number), pack)).collect();
        let batch = packs.iter().map(|(key, pack)| match pack.is_empty() {
            true => Write::Delete { key },
            false => Write::Put { key, head: &pack.head, value: &pack.value },
        });
        self.store.write(&batch.collect::<Vec<_>>())
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
        let (number, slot) = self.layout.place(number);
        let Some(Object { head, value }) = self.store.get(&self.layout.key(number))? else { return Ok(None) };
        let pack = Pack::of(&self.layout, &head, &value)?;
        Ok(pack.is_set(slot).then(|| value.slice(pack.bytes(slot))))
    }

    /// Tells of each entry that is set of those from `from` up to `to`, which is not among them, in order.
    pub fn range(&mut self, from: u64, to: u64, visit: &mut VisitEntry<'_>) -> Result<(), Error> {
        if from >= to {
            return Ok(());
        }
        let slots = u64::from(self.layout.slots);
        let layout = self.layout.clone();
        let (first, last) = (from / slots, (to - 1) / slots);
        let mut tell = |number: u64, pack: &Pack| {
            let told =
                (0..usize::from(layout.slots)).filter(|&slot| pack.is_set(slot)).try_for_each(|slot| {
                    let entry = number * slots + slot as u64;
                    if (from..to).contains(&entry) {
                        visit(entry, &pack.value[pack.bytes(slot)])
                    } else {
                        ControlFlow::Continue(())
                    }
                });
            told.is_break()
        };
        if last - first < READ_ONE_BY_ONE_MAX {
            for number in first..=last {
                if let Some(Object { head, value }) = self.store.get(&layout.key(number))?
                    && tell(number, &Pack::of(&layout, &head, &value)?)
                {
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
            let pack = Pack::of(&layout, head, value);
            match (number.map(u64::from_be_bytes), pack) {
                (Some(number), Ok(pack)) if !tell(number, &pack) => ControlFlow::Continue(()),
                (Some(_), Ok(_)) => ControlFlow::Break(()),
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
    fn what_is_no_pack_is_damage_and_another_size_is_refused() {
        let layout = Layout::new(b"a", 10, 3).unwrap();
        let (head, value) = (b"\x01\0\x0a\0\x03\0\x02\x02", [0; 30]);
        assert!(Pack::of(&layout, head, &value).is_ok());
        let of = |head: &[u8], value: &[u8]| Pack::of(&layout, head, value).map(|pack| pack.is_empty());
        for (head, value) in [
            (&head[..5], &value[..]),
            (&head[..7], &value),
            (head, &value[1..]),
            (b"\x02\0\x0a\0\x03\0\0\0", &value),
        ] {
            assert!(matches!(of(head, value), Err(Error::Damaged(_))), "{head:?}");
        }
        let other = Layout::new(b"a", 12, 3).unwrap();
        assert!(matches!(Pack::of(&other, head, &value).map(|_| ()), Err(Error::Refused(_))));
        for (slots, entry_bytes) in [(0, 1), (1, 0)] {
            assert!(matches!(Layout::new(b"a", slots, entry_bytes), Err(Error::Refused(_))));
        }
        assert!(matches!(Layout::new(b"a", 10_000, 100), Err(Error::TooLarge { .. })));
        assert!(matches!(Layout::new(&[0; 300], 1, 1), Err(Error::TooLarge { .. })));
    }
}
