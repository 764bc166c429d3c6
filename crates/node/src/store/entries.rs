//! Index entries in the store of another backend: keys beside its objects, as the engine has them ([`engine::index`]).
//!
//! 1. Whoever replaces an object says what head it had; what goes and what comes is derived as in the engine, and
//!    written in one batch with the object.
//! 2. An entry has no value. Its head is empty, or says when the entry ends, which is when its object does.
//! 3. When a range of objects is dropped, their entries go with them (`call.rs`).
//! 4. A mark, the first key of their space, says that all are there. It is missing in stores of older programs, and is
//!    taken away with a version that cannot be read when it is replaced, of whose entries nobody knows. Then whatever
//!    is in the space is dropped, and the entries are made anew, a part with each call, while the store serves. Until
//!    then nobody may ask for them.
//!
//! Invariant, also while they are made: of the objects that were gone through the backend has all entries, of the
//! others some, and of what is no object's none. For a part is read and written in one call, between batches, and a
//! batch has what changes against the version that the backend has when it is written. So writes take no heed of the
//! making.
//!
//! Left out: taking away what has ended. An entry that has, and whose key was replaced since by a version without it,
//! stays, and is shown to nobody.

use crate::indexing::INDEXING;
use backends::{Backend, What, Write};
use bytes::Bytes;
use engine::{Error, Seq};
use object::HeadView;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Heads that one call goes through, about: a millisecond or two from memory, as for a page.
const PART_HEADS: usize = 4096;

/// Bytes of entries that one call makes, about.
const PART_BYTES: usize = 128 << 10;

/// What is known of a store's entries.
pub struct Entries {
    /// Whether there may be one.
    may_be: bool,
    /// The version that dropped all there were, if one has.
    dropped: Seq,
    /// Until all are there.
    making: Option<Making>,
}

/// How far it has come.
struct Making {
    /// The first object that was not gone through.
    at: Vec<u8>,
    /// Whether it waits for a tick, since the backend has failed it.
    is_held: bool,
}

impl Entries {
    /// Those of a store that was opened, and whether all are there; a new one is marked. Blocks.
    pub fn find(backend: &mut dyn Backend) -> Result<(Entries, bool), Error> {
        let behind_mark = [INDEXING.mark(), &[0]].concat();
        let may_be = has_any(backend, &behind_mark, INDEXING.entries.1);
        // One that cannot be read is made again.
        let mut are_whole = matches!(backend.head(INDEXING.mark()), Ok(Some(_)));
        if !are_whole && !may_be && !has_any(backend, INDEXING.objects.0, INDEXING.objects.1) {
            backend.put(INDEXING.mark(), b"", b"")?;
            are_whole = true;
        }
        Ok((Entries { may_be, dropped: Seq(0), making: None }, are_whole))
    }

    /// Whether there may be entries.
    pub fn may_be(&self) -> bool {
        self.may_be
    }

    /// Some are written.
    pub fn come(&mut self) {
        self.may_be = true;
    }

    /// Whether those of all objects are there.
    pub fn are_whole(&self) -> bool {
        self.making.is_none()
    }

    /// The version that dropped all there were: what was seen before is not of what was seen behind it.
    pub fn dropped(&self) -> Seq {
        self.dropped
    }

    /// All are made anew, behind the version that drops those there are.
    pub fn make(&mut self, dropped: Seq) {
        (self.may_be, self.dropped) = (true, dropped);
        self.making = Some(Making { at: INDEXING.objects.0.to_vec(), is_held: false });
    }

    /// Whether a part is to be made.
    pub fn waits(&self, acknowledged: Seq) -> bool {
        self.making.as_ref().is_some_and(|making| !making.is_held) && self.dropped <= acknowledged
    }

    /// The part that is to be made.
    ///
    /// # Panics
    /// If none is.
    pub fn part(&self) -> Part {
        let making = self.making.as_ref().expect("one waits");
        Part { dropped: self.dropped, at: making.at.clone(), made: Ok(None) }
    }

    /// Takes what came of a part.
    pub fn take(&mut self, part: Part) {
        let Some(making) = &mut self.making else { return };
        // It may have begun anew meanwhile.
        if part.dropped != self.dropped {
            return;
        }
        match part.made {
            Ok(Some(next)) => making.at = next,
            Ok(None) => self.making = None,
            Err(_) => making.is_held = true,
        }
    }

    /// To be called a few times a second: what has failed is tried again.
    pub fn tick(&mut self) {
        if let Some(making) = &mut self.making {
            making.is_held = false;
        }
    }
}

/// Whether there is a key in a range, or one that cannot be read.
fn has_any(backend: &mut dyn Backend, start: &[u8], end: &[u8]) -> bool {
    let mut has_one = false;
    let read = backend.fold(start, end, What::Heads, &mut |_| {
        has_one = true;
        ControlFlow::Break(())
    });
    has_one || read.is_err()
}

/// Some objects, whose entries are made by one call.
pub struct Part {
    dropped: Seq,
    at: Vec<u8>,
    /// Where the next one begins; `None` behind the last.
    made: Result<Option<Vec<u8>>, Error>,
}

impl Part {
    /// Makes them; with the last ones the mark.
    pub fn step(&mut self, backend: &mut dyn Backend) {
        self.made = make(backend, &self.at).map_err(Error::from);
    }
}

fn make(backend: &mut dyn Backend, at: &[u8]) -> Result<Option<Vec<u8>>, backends::Error> {
    let (mut entries, mut bytes, mut heads, mut next) = (Vec::new(), 0, 0, None);
    backend.fold(at, INDEXING.objects.1, What::Heads, &mut |item| {
        if heads == PART_HEADS || bytes >= PART_BYTES {
            next = Some(item.key.to_vec());
            return ControlFlow::Break(());
        }
        heads += 1;
        if (INDEXING.may_have)(item.head) {
            let head = head_of(HeadView::expiry_of(item.head));
            (INDEXING.entries_of)(item.key, item.head, &mut |entry| {
                bytes += entry.len();
                entries.push((entry.to_vec(), head.clone()));
            });
        }
        ControlFlow::Continue(())
    })?;
    let put = |(key, head)| Write::Put { key, head, value: b"" };
    let mut writes: Vec<Write<'_>> = entries.iter().map(|(key, head)| put((&key[..], &head[..]))).collect();
    if next.is_none() {
        writes.push(put((INDEXING.mark(), &b""[..])));
    }
    write_in_order(backend, &writes)?;
    Ok(next)
}

/// Writes what need not be there as a whole, in as many batches as the backend's limits ask for.
pub fn write_in_order(backend: &mut dyn Backend, mut writes: &[Write<'_>]) -> Result<(), backends::Error> {
    let limits = backend.limits();
    while !writes.is_empty() {
        let (mut count, mut bytes) = (0, 0);
        for write in writes {
            bytes += limits.check(write)?;
            if bytes > limits.batch_bytes {
                break;
            }
            count += 1;
        }
        let (batch, rest) = writes.split_at(count);
        backend.write(batch)?;
        writes = rest;
    }
    Ok(())
}

/// What is wrong with the entries of a store, as of a time in milliseconds since 1970; nothing can be said of one whose
/// mark is missing. In memory and at once: for tests and simulations.
pub fn check_entries(backend: &mut dyn Backend, now_ms: u64) -> Result<Option<Vec<String>>, Error> {
    if backend.head(INDEXING.mark())?.is_none() {
        return Ok(None);
    }
    let (mut of_objects, mut findings) = (BTreeMap::new(), Vec::new());
    let has_ended = |end: Option<u64>| end.is_some_and(|end| end <= now_ms);
    let (start, end) = INDEXING.objects;
    backend.fold(start, end, What::Heads, &mut |item| {
        let end = HeadView::expiry_of(item.head);
        (INDEXING.entries_of)(item.key, item.head, &mut |entry| {
            of_objects.insert(entry.to_vec(), end);
        });
        ControlFlow::Continue(())
    })?;
    of_objects.retain(|_, end| !has_ended(*end));
    let behind_mark = [INDEXING.mark(), &[0]].concat();
    backend.fold(&behind_mark, INDEXING.entries.1, What::Heads, &mut |item| {
        let (end, entry) = (end_of(item.head), item.key.escape_ascii());
        match of_objects.remove(item.key) {
            Some(of_object) if of_object == end => {}
            Some(of_object) => findings.push(format!("{entry} ends at {end:?}, its object at {of_object:?}")),
            None if has_ended(end) => {}
            None => findings.push(format!("{entry} is no object's")),
        }
        ControlFlow::Continue(())
    })?;
    findings.extend(of_objects.keys().map(|entry| format!("{} is missing", entry.escape_ascii())));
    Ok(Some(findings))
}

/// The head of an entry that ends then, in milliseconds since 1970.
pub fn head_of(expires_ms: Option<u64>) -> Bytes {
    expires_ms.map_or_else(Bytes::new, |end| Bytes::copy_from_slice(&end.to_le_bytes()))
}

/// When an entry with this head ends.
pub fn end_of(head: &[u8]) -> Option<u64> {
    head.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_stay_what_they_are() {
        assert_eq!(head_of(None), b""[..]);
        assert_eq!(head_of(Some(0x0102_0304_0506_0708)), [8, 7, 6, 5, 4, 3, 2, 1][..]);
        assert_eq!([None, Some(7)].map(|end| end_of(&head_of(end))), [None, Some(7)]);
    }
}
