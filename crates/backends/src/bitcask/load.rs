//! Opening: the key directory, from hints and from segments that have none.

use super::hint::{self, Hint, HintEntry};
use super::{Bitcask, Newest, damaged, failed};
use crate::error::Error;
use base::disk::{self, DiskOp, FileId, OpenMode};
use bytes::Bytes;
use engine::Seq;
use engine::journal::fault::Fault;
use engine::journal::record::FLAG_MORE;
use engine::journal::scan::Scanned;
use engine::journal::segment::{HeaderError, SEGMENT_HEADER_BYTES, file_name, parse_file_name, parse_header};
use engine::journal::{Kind, Scanner, SegmentId};
use std::collections::BTreeSet;

/// A hint is read at once; it is as long as the keys of one segment, and far longer is none of ours.
const HINT_BYTES_MAX: u64 = 2 << 30;

impl Bitcask {
    /// Reads what is there, and seals what a crash has left unsealed, but for a last segment that can be gone on with.
    pub(super) fn load(&mut self) -> Result<(), Error> {
        let names = disk::list(&mut *self.disk, &self.folder).map_err(|error| failed(&error))?;
        let segments: BTreeSet<SegmentId> = names.iter().filter_map(|name| parse_file_name(name)).collect();
        for name in &names {
            // A crash came between a segment's removal and its hint's.
            if hint::parse_file_name(name).is_some_and(|segment| !segments.contains(&segment)) {
                self.run(DiskOp::Remove { path: self.folder.join(name) })?;
            }
        }
        let last = segments.last().copied();
        for segment in segments {
            let is_last = Some(segment) == last;
            let path = self.folder.join(file_name(segment));
            let (file, len) =
                disk::open(&mut *self.disk, &path, OpenMode::Write).map_err(|error| failed(&error))?;
            self.files.insert(segment, (file, len));
            let has_hint = names.contains(&hint::file_name(segment));
            // Where a hint was, its segment was synced as a whole.
            if !has_hint || !self.load_hint(segment, (file, len), is_last)? {
                self.load_segment(segment, (file, len), has_hint, is_last)?;
            }
        }
        Ok(())
    }

    /// Whether the hint told all that is in the segment.
    fn load_hint(
        &mut self,
        segment: SegmentId,
        (file, segment_len): (FileId, u64),
        is_last: bool,
    ) -> Result<bool, Error> {
        let bytes = self.read_hint(segment)?;
        match hint::parse(&bytes, segment) {
            Some((len, entries)) if len == segment_len => {
                entries.iter().for_each(|(key, entry)| self.apply(segment, key, *entry));
                if is_last && len < self.segment_bytes {
                    let mut hint = Hint::new(segment);
                    entries.iter().for_each(|(key, entry)| hint.push(key, *entry));
                    self.sealed = Some(Newest { segment, file, len, hint });
                }
                Ok(true)
            }
            Some(_) => Err(damaged(segment, segment_len, "the segment is not as long as it was")),
            None => Ok(false),
        }
    }

    /// The bytes of a segment's hint, which is there.
    pub(super) fn read_hint(&mut self, segment: SegmentId) -> Result<Bytes, Error> {
        let (path, disk) = (self.folder.join(hint::file_name(segment)), &mut *self.disk);
        let (file, len) = disk::open(disk, &path, OpenMode::Read).map_err(|error| failed(&error))?;
        let len = usize::try_from(len.min(HINT_BYTES_MAX)).unwrap_or(usize::MAX);
        let bytes = disk::read(disk, file, 0, len).map_err(|error| failed(&error))?;
        disk::run(disk, DiskOp::Close { file }).map_err(|error| failed(&error))?;
        Ok(bytes)
    }

    /// Scans a segment, and seals it, or goes on in it. `was_sealed`: all of it was promised.
    fn load_segment(
        &mut self,
        segment: SegmentId,
        (file, len): (FileId, u64),
        was_sealed: bool,
        is_last: bool,
    ) -> Result<(), Error> {
        let header = disk::read(&mut *self.disk, file, 0, SEGMENT_HEADER_BYTES);
        let header = header.map_err(|error| failed(&error))?;
        let was_synced = match parse_header(&header, segment) {
            Ok(header) => header.incarnation == 1,
            // It was being made when the machine went down: nothing can be in it.
            Err(HeaderError::Damaged) if len <= SEGMENT_HEADER_BYTES as u64 && !was_sealed => {
                self.files.remove(&segment);
                self.run(DiskOp::Close { file })?;
                return self.run(DiskOp::Remove { path: self.folder.join(file_name(segment)) });
            }
            Err(HeaderError::Damaged) => return Err(damaged(segment, 0, "segment header")),
            Err(HeaderError::Version(version)) => {
                return Err(Error::Refused(format!("{}: version {version} is newer", file_name(segment))));
            }
        };
        let mut newest = Newest { segment, file, len: SEGMENT_HEADER_BYTES as u64, hint: Hint::new(segment) };
        let mut scanner = Scanner::new(file, len, segment, newest.len);
        let mut batch: Vec<(Vec<u8>, HintEntry)> = Vec::new();
        let mut torn: Option<Fault> = None;
        while let Some(scanned) = scanner.next(&mut *self.disk)? {
            match scanned {
                Scanned::Record(found) => {
                    let record = found.record();
                    if let Some(fault) = &torn {
                        // What was written later was written when all before it was synced.
                        if record.seq > Seq(newest.next_number()) {
                            return Err(damaged(segment, fault.from, fault.what));
                        }
                        continue;
                    }
                    let is_delete = match record.kind {
                        Kind::Data => false,
                        Kind::Delete => true,
                        _ => return Err(damaged(segment, found.offset, "a record of another store")),
                    };
                    let (header, offset) = (found.header(), found.offset as u32);
                    let entry = HintEntry { is_delete, offset, lens: (header.head_len, header.value_len) };
                    batch.push((record.key.to_vec(), entry));
                    if record.flags & FLAG_MORE == 0 {
                        newest.len = found.offset + found.bytes().len() as u64;
                        for (key, entry) in batch.drain(..) {
                            newest.hint.push(&key, entry);
                            self.apply(segment, &key, entry);
                        }
                    }
                }
                // Nobody was promised anything of a segment that is not synced.
                Scanned::Gap(_) if !was_synced && !was_sealed => break,
                // In the batch that was being written any part may be missing.
                Scanned::Gap(fault) if !was_sealed => drop(torn.get_or_insert(fault)),
                Scanned::Gap(fault) => return Err(damaged(segment, fault.from, fault.what)),
                Scanned::Tail { fault, blank: false } if was_sealed => {
                    return Err(damaged(segment, fault.from, fault.what));
                }
                // What was being written, and, where writes are synced, promised to nobody.
                Scanned::Tail { .. } => break,
            }
        }
        self.run(DiskOp::Truncate { file, len: newest.len })?;
        self.files.insert(segment, (file, newest.len));
        if is_last && was_synced == self.is_synced && newest.len < self.segment_bytes {
            // What was cut off must not come back behind what is written next.
            self.run(DiskOp::Sync { file })?;
            self.newest = Some(newest);
            return Ok(());
        }
        self.seal(newest)
    }
}
