//! Merging: what is live in all segments is copied behind them, and they are removed, but for those in which something
//! live is damaged.

use super::hint::{self, HintEntry};
use super::{Bitcask, Newest, Place, damaged};
use crate::backend::Write;
use crate::error::Error;
use base::disk::DiskOp;
use engine::journal::SegmentId;
use engine::journal::segment::file_name;
use std::collections::BTreeSet;

/// Records that are copied with one write.
const CHUNK_BYTES: usize = 1 << 20;

/// The longest part of a segment that is announced for one of those writes: where less than a quarter of it lives, the
/// disk would fetch more in vain than reads one by one cost.
const ANNOUNCED_BYTES_MAX: usize = 4 * CHUNK_BYTES;

/// Deletes that are written with one write.
const DELETES: usize = 1024;

/// A key and where it is.
type Live = (Box<[u8]>, Place);

/// A key, and what the record says that was written behind all others for it.
type Moved<'l> = (&'l [u8], SegmentId, HintEntry);

impl Bitcask {
    /// Merges all segments, which are sealed.
    pub(super) fn merge(&mut self) -> Result<(), Error> {
        assert!(self.newest.is_none(), "the newest segment was sealed before");
        // It goes with the others.
        self.sealed = None;
        let old: Vec<SegmentId> = self.files.keys().copied().collect();
        let mut live: Vec<Live> = self.keys.iter().map(|(key, place)| (key.clone(), *place)).collect();
        // As they lie: the disk is read from one end to the other.
        live.sort_unstable_by_key(|(_, place)| (place.segment, place.offset));
        let (mut moved, mut kept) = (Vec::with_capacity(live.len()), BTreeSet::new());
        let mut rest = &live[..];
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(chunk(rest));
            self.copy(part, &mut moved, &mut kept)?;
            rest = behind;
        }
        kept.iter().try_for_each(|&segment| self.delete_again(segment))?;
        if let Some(newest) = self.newest.take() {
            self.seal(newest)?;
        }
        // Only now: until all is synced, what is read is what was there.
        for (key, segment, entry) in moved {
            self.apply(segment, key, entry);
        }
        self.kept_bytes = kept.iter().map(|segment| self.files[segment].1).sum();
        old.into_iter().filter(|segment| !kept.contains(segment)).try_for_each(|segment| self.remove(segment))
    }

    /// Removes a segment, durably before the next is: what a delete covers goes before the delete.
    fn remove(&mut self, segment: SegmentId) -> Result<(), Error> {
        if let Some((file, _)) = self.files.remove(&segment) {
            self.run(DiskOp::Close { file })?;
        }
        self.run(DiskOp::Remove { path: self.folder.join(file_name(segment)) })?;
        self.run(DiskOp::SyncDir { path: self.folder.clone() })?;
        // After its segment, which without it would not be known to be whole.
        self.run(DiskOp::Remove { path: self.folder.join(hint::file_name(segment)) })
    }

    /// Copies live records to the newest segment, each by itself: no batch is left among them. One that is damaged
    /// stays where it is: whoever asks for it is told so, and nothing else need suffer.
    fn copy<'l>(
        &mut self,
        live: &'l [Live],
        moved: &mut Vec<Moved<'l>>,
        kept: &mut BTreeSet<SegmentId>,
    ) -> Result<(), Error> {
        self.announce(live);
        let (mut newest, mut data) = (self.begin_copies()?, Vec::new());
        for (key, place) in live {
            let object = match self.read(key, *place) {
                Err(Error::Damaged(_)) => {
                    kept.insert(place.segment);
                    continue;
                }
                object => object?,
            };
            let write = Write::Put { key, head: &object.head, value: &object.value };
            let number = newest.next_number();
            moved.push((key, newest.segment, newest.push(&mut data, &write, number, 0)));
        }
        self.end_copies(newest, data)
    }

    /// Has the disk fetch these, which ascend, with what lies between them.
    fn announce(&mut self, live: &[Live]) {
        for part in live.chunk_by(|(_, a), (_, b)| a.segment == b.segment) {
            let ((_, first), (key, last)) = (&part[0], &part[part.len() - 1]);
            let len = last.offset as usize + last.len(key.len()) - first.offset as usize;
            let (file, _) = self.files[&first.segment];
            if len <= ANNOUNCED_BYTES_MAX {
                self.disk.will_read(file, first.offset.into(), len);
            }
        }
    }

    /// Writes deletes, behind all others, of the keys that a segment has and that are gone: it stays, and what deleted
    /// them goes.
    fn delete_again(&mut self, segment: SegmentId) -> Result<(), Error> {
        let hint = self.read_hint(segment)?;
        let (_, entries) =
            hint::parse(&hint, segment).ok_or_else(|| damaged(segment, 0, "the entries of its hint file"))?;
        let keys: BTreeSet<&[u8]> = entries.into_iter().map(|(key, _)| key).collect();
        let gone: Vec<&[u8]> = keys.into_iter().filter(|key| !self.keys.contains_key(*key)).collect();
        for part in gone.chunks(DELETES) {
            let (mut newest, mut data) = (self.begin_copies()?, Vec::new());
            for key in part {
                let number = newest.next_number();
                newest.push(&mut data, &Write::Delete { key }, number, 0);
            }
            self.end_copies(newest, data)?;
        }
        Ok(())
    }

    /// The segment to copy to.
    fn begin_copies(&mut self) -> Result<Newest, Error> {
        match self.newest.take() {
            Some(newest) => Ok(newest),
            // Not synced as it is written: what is lost of it is still where it was.
            None => self.begin_segment(false),
        }
    }

    fn end_copies(&mut self, mut newest: Newest, data: Vec<u8>) -> Result<(), Error> {
        self.write_out(&mut newest, data, false)?;
        if newest.len < self.segment_bytes {
            self.newest = Some(newest);
            Ok(())
        } else {
            self.seal(newest)
        }
    }
}

/// How many records make about a chunk; one may make a longer one.
fn chunk(live: &[Live]) -> usize {
    let mut bytes = 0;
    let fits = |(key, place): &&Live| {
        bytes += place.len(key.len());
        bytes < CHUNK_BYTES
    };
    live.iter().take_while(fits).count().max(1)
}
