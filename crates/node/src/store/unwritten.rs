//! What was told to a backend and it has not written yet: batches in their order, and over them the newest of each key.
//!
//! A batch stays here until the backend has written it, also while a call writes it: so whoever asks for a key finds
//! what was written last, here or in the backend.
//!
//! Invariant: what is here is newer than what the backend has.

use super::entries;
use crate::indexing::INDEXING;
use backends::{Limits, Write as BackendWrite};
use bytes::Bytes;
use engine::{Error, Seq, Write};
use std::collections::{BTreeMap, VecDeque};

/// A head and a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub head: Bytes,
    pub value: Bytes,
}

/// A write of its own.
#[derive(Clone, Debug)]
pub enum Change {
    /// What a key has from now on; `None` for nothing.
    Key(Bytes, Option<Content>),
    /// No key from the first up to the second has anything.
    Drop(Bytes, Bytes),
}

impl Change {
    /// Of a store's write; when an object ends its head says, too.
    pub fn of(write: &Write<'_>) -> Change {
        match *write {
            Write::PutUntil { key, expires_ms, .. } if INDEXING.is_entry(key) => {
                let (head, value) = (entries::head_of(Some(expires_ms)), Bytes::new());
                Change::Key(Bytes::copy_from_slice(key), Some(Content { head, value }))
            }
            Write::Put { key, head, value } | Write::PutUntil { key, head, value, .. } => {
                let (head, value) = (Bytes::copy_from_slice(head), Bytes::from(value.concat()));
                Change::Key(Bytes::copy_from_slice(key), Some(Content { head, value }))
            }
            Write::Delete { key } => Change::Key(Bytes::copy_from_slice(key), None),
            Write::DropRange { start, end } => {
                Change::Drop(Bytes::copy_from_slice(start), Bytes::copy_from_slice(end))
            }
        }
    }

    /// As a backend takes it; `None` of a range.
    pub fn as_write(&self) -> Option<BackendWrite<'_>> {
        match self {
            Change::Key(key, Some(Content { head, value })) => Some(BackendWrite::Put { key, head, value }),
            Change::Key(key, None) => Some(BackendWrite::Delete { key }),
            Change::Drop(..) => None,
        }
    }
}

/// Changes that are made together.
#[derive(Clone, Debug)]
pub struct Batch {
    pub seq: Seq,
    pub changes: Vec<Change>,
    /// What it counts towards the backend's limit.
    pub bytes: usize,
    /// Whether index entries go with the objects of a range that it drops.
    pub drops_entries: bool,
}

impl Batch {
    /// That of a list of writes, within these limits.
    pub fn of(seq: Seq, writes: &[Write<'_>], limits: &Limits) -> Result<Batch, Error> {
        let changes: Vec<Change> = writes.iter().map(Change::of).collect();
        let mut bytes = 0;
        for write in changes.iter().filter_map(Change::as_write) {
            bytes += limits.check(&write)?;
        }
        if bytes > limits.batch_bytes {
            return Err(Error::TooLarge { what: "a batch", len: bytes, limit: limits.batch_bytes });
        }
        let drops = changes.iter().filter(|change| matches!(change, Change::Drop(..))).count();
        if drops > 0 && drops < changes.len() {
            return Err(Error::Refused("a range that is dropped in one batch with something else"));
        }
        Ok(Batch { seq, changes, bytes, drops_entries: false })
    }

    /// Whether it drops ranges.
    pub fn drops(&self) -> bool {
        matches!(self.changes.first(), Some(Change::Drop(..)))
    }
}

/// All of it.
#[derive(Default)]
pub struct Unwritten {
    /// Those that no call writes yet.
    waiting: VecDeque<Batch>,
    newest: BTreeMap<Bytes, (Seq, Option<Content>)>,
    drops: Vec<(Seq, Bytes, Bytes)>,
    bytes: usize,
}

impl Unwritten {
    /// Adds a batch, behind all others.
    pub fn push(&mut self, batch: Batch) {
        debug_assert!(self.waiting.back().is_none_or(|last| last.seq < batch.seq), "batches are in order");
        self.bytes += batch.bytes;
        for change in &batch.changes {
            match change {
                Change::Key(key, content) => {
                    self.newest.insert(key.clone(), (batch.seq, content.clone()));
                }
                Change::Drop(start, end) => {
                    for (_, newest) in
                        self.newest.range_mut(start.clone()..).take_while(|(key, _)| *key < end)
                    {
                        *newest = (batch.seq, None);
                    }
                    self.drops.push((batch.seq, start.clone(), end.clone()));
                }
            }
        }
        self.waiting.push_back(batch);
    }

    /// What a key has: `None` if that is for the backend to say.
    pub fn find(&self, key: &[u8]) -> Option<(Seq, Option<&Content>)> {
        if let Some((seq, content)) = self.newest.get(key) {
            return Some((*seq, content.as_ref()));
        }
        let dropped = self.drops.iter().rev().find(|(_, start, end)| **start <= *key && *key < **end);
        dropped.map(|(seq, ..)| (*seq, None))
    }

    /// The batches that are written next, together: the first, and as many behind it as count so much.
    pub fn take(&mut self, bytes_max: usize) -> Vec<Batch> {
        let (mut taken, mut bytes): (Vec<Batch>, usize) = (Vec::new(), 0);
        while let Some(next) = self.waiting.front() {
            let is_alone = next.drops() || taken.first().is_some_and(Batch::drops);
            if !taken.is_empty() && (is_alone || bytes + next.bytes > bytes_max) {
                break;
            }
            bytes += next.bytes;
            taken.extend(self.waiting.pop_front());
        }
        taken
    }

    /// These are in the backend.
    pub fn written(&mut self, batches: &[Batch]) {
        for batch in batches {
            self.bytes -= batch.bytes;
            for change in &batch.changes {
                match change {
                    Change::Key(key, _) => {
                        if self.newest.get(key).is_some_and(|(seq, _)| *seq <= batch.seq) {
                            self.newest.remove(key);
                        }
                    }
                    Change::Drop(start, end) => {
                        self.newest.retain(|key, (seq, _)| *seq > batch.seq || !(start..end).contains(&key));
                    }
                }
            }
            self.drops.retain(|(seq, ..)| *seq > batch.seq);
        }
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self) {
        let first = self.waiting.front().map_or(0, |batch| batch.bytes);
        assert!(first <= self.bytes, "a batch that waits is counted");
        let ends = self.drops.first().zip(self.drops.last());
        assert!(ends.is_none_or(|((first, ..), (last, ..))| first <= last), "drops are in order");
    }

    /// Whether a batch waits for a call.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What all batches count, those that are being written included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(seq: u64, writes: &[Write<'_>]) -> Batch {
        Batch::of(Seq(seq), writes, &Limits::default()).unwrap()
    }

    fn put<'a>(key: &'a [u8], value: &'a [&'a [u8]]) -> Write<'a> {
        Write::Put { key, head: b"head", value }
    }

    fn value(unwritten: &Unwritten, key: &[u8]) -> Option<Option<Bytes>> {
        unwritten.find(key).map(|(_, content)| content.map(|content| content.value.clone()))
    }

    #[test]
    fn what_was_written_last_is_found_until_the_backend_has_it() {
        let mut unwritten = Unwritten::default();
        unwritten.push(batch(1, &[put(b"a", &[b"1"]), put(b"b", &[b"1"])]));
        unwritten.push(batch(2, &[put(b"a", &[b"2", b"!"])]));
        unwritten.push(batch(3, &[Write::Delete { key: b"b" }]));
        let first = unwritten.take(1);
        assert_eq!(first.len(), 1, "the first, however large");
        assert_eq!(value(&unwritten, b"a"), Some(Some("2!".into())));
        unwritten.written(&first);
        assert_eq!(value(&unwritten, b"a"), Some(Some("2!".into())));
        assert_eq!(value(&unwritten, b"b"), Some(None));
        let rest = unwritten.take(usize::MAX);
        assert_eq!((rest.len(), unwritten.waits()), (2, false));
        unwritten.written(&rest);
        assert_eq!((value(&unwritten, b"a"), value(&unwritten, b"b"), unwritten.bytes()), (None, None, 0));
    }

    #[test]
    fn a_range_that_is_dropped_has_what_was_written_since() {
        let mut unwritten = Unwritten::default();
        unwritten.push(batch(1, &[put(b"b", &[b"1"])]));
        unwritten.push(batch(2, &[Write::DropRange { start: b"b", end: b"d" }]));
        unwritten.push(batch(3, &[put(b"c", &[b"3"])]));
        let found = |unwritten: &Unwritten| [b"a", b"b", b"c", b"d"].map(|key| value(unwritten, key));
        let three = Some(Some("3".into()));
        assert_eq!(found(&unwritten), [None, Some(None), three.clone(), None]);
        for left in [3, 2, 1] {
            let group = unwritten.take(usize::MAX);
            assert_eq!(group.len(), 1, "a drop goes alone");
            unwritten.written(&group);
            let dropped = (left > 2).then_some(None);
            let newest = if left > 1 { three.clone() } else { None };
            assert_eq!(found(&unwritten), [None, dropped, newest, None]);
        }
        assert!(unwritten.newest.is_empty() && unwritten.drops.is_empty());
    }

    #[test]
    fn what_is_too_large_is_refused_as_a_whole() {
        let limits = Limits { batch_bytes: 100, write_bytes: 40, ..Limits::default() };
        let two = [put(b"a", &[b"1"]), put(b"b", &[b"1"])];
        assert!(Batch::of(Seq(1), &two[..1], &limits).is_ok());
        assert_eq!(Batch::of(Seq(1), &two, &limits).unwrap().bytes, 92);
        let three = [two[0], two[1], two[0]];
        let error = Batch::of(Seq(1), &three, &limits).unwrap_err();
        assert!(matches!(error, Error::TooLarge { what: "a batch", len: 138, limit: 100 }), "{error}");
        let mixed = [two[0], Write::DropRange { start: b"a", end: b"b" }];
        assert!(matches!(Batch::of(Seq(1), &mixed, &limits), Err(Error::Refused(_))));
    }
}
