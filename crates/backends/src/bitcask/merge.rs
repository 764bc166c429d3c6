//! Merging: what is live in all segments is copied behind them, and they are removed.

use super::hint::{self, HintEntry};
use super::{Bitcask, Place};
use crate::backend::Write;
use crate::error::Error;
use base::disk::DiskOp;
use engine::journal::SegmentId;
use engine::journal::segment::file_name;

/// Records that are copied with one write.
const CHUNK_BYTES: usize = 1 << 20;

/// A key and where it is.
type Live = (Box<[u8]>, Place);

impl Bitcask {
    /// Merges all segments, which are sealed.
    pub(super) fn merge(&mut self) -> Result<(), Error> {
        assert!(self.newest.is_none(), "the newest segment was sealed before");
        let old: Vec<SegmentId> = self.files.keys().copied().collect();
        let live: Vec<Live> = self.keys.iter().map(|(key, place)| (key.clone(), *place)).collect();
        let mut moved = Vec::with_capacity(live.len());
        let mut rest = &live[..];
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(chunk(rest));
            self.copy(part, &mut moved)?;
            rest = behind;
        }
        if let Some(newest) = self.newest.take() {
            self.seal(newest)?;
        }
        // Only now: until all is synced, what is read is what was there.
        for ((key, _), (segment, entry)) in live.iter().zip(moved) {
            self.apply(segment, key, entry);
        }
        old.into_iter().try_for_each(|segment| self.remove(segment))
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

    /// Copies live records to the newest segment, each by itself: no batch is left among them.
    fn copy(&mut self, live: &[Live], moved: &mut Vec<(SegmentId, HintEntry)>) -> Result<(), Error> {
        let mut newest = match self.newest.take() {
            Some(newest) => newest,
            // Not synced as it is written: what is lost of it is still where it was.
            None => self.begin_segment(false)?,
        };
        let mut data = Vec::new();
        for (key, place) in live {
            let object = self.read(key, *place)?;
            let write = Write::Put { key, head: &object.head, value: &object.value };
            let number = newest.next_number();
            moved.push((newest.segment, newest.push(&mut data, &write, number, 0)));
        }
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
