//! The log's file (docs/formats/trees.md): a header, and records that each name the journal's record behind them.
//!
//! ```text
//! magic 8 | version u32 | crc u32 | incarnation u64
//! crc u32 | len u32 | jsn u64 | seq u64 | record
//! ```
//!
//! It is appended to. When the records behind the first have become longer than that one, those that the manifest's
//! tables have are joined into one, and the file is replaced: so its length is bounded by what the owner's thing is
//! worth, and what is written by twice what is given.

use super::JoinRecords;
use crate::entry::{Jsn, Seq};
use crate::error::{Damage, Error};
use crate::table::fields::Fields;
use base::Disk;
use base::checksum::crc32c;
use base::disk::{self, DiskErrorKind, DiskOp, OpenMode};
use base::spawn::{Job, Outcome, Progress};
use bytes::Bytes;
use std::path::{Path, PathBuf};

/// The file's name in the store's folder.
pub(crate) const CHECKPOINT_FILE: &str = "CHECKPOINTS";

const MAGIC: [u8; 8] = *b"ANULCKPT";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 24;
const FRAME_BYTES: usize = 24;

/// A longer log is none of ours: with two bytes for a key this is a shard of a hundred million keys, twice over.
const LOG_BYTES_MAX: u64 = 1 << 30;

/// Records behind the first may be so much longer than it is: replacing a small file is dearer than appending to it.
const SLACK_BYTES: u64 = 4 << 10;

/// The file as far as it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogEnd {
    /// Where the next record goes.
    pub len: u64,
    /// Where the first one ends.
    pub first_len: u64,
}

/// What a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AsOf {
    /// All of the journal before this record.
    pub jsn: Jsn,
    /// The last version in it.
    pub seq: Seq,
}

/// A log that says what the tables have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundLog {
    /// In their order.
    pub records: Vec<Bytes>,
    /// Of the last one.
    pub seq: Seq,
    pub end: LogEnd,
}

/// A record being written.
pub(crate) struct Running {
    pub as_of: AsOf,
    pub outcome: Outcome<Result<Written, Error>>,
}

/// The log as it is now, and how many bytes it took.
pub(crate) struct Written {
    pub end: LogEnd,
    pub bytes: u64,
}

fn header(incarnation: u64) -> Vec<u8> {
    let crc = crc32c(&incarnation.to_le_bytes());
    [&MAGIC[..], &VERSION.to_le_bytes(), &crc.to_le_bytes(), &incarnation.to_le_bytes()].concat()
}

fn put_frame(as_of: AsOf, record: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    let len = u32::try_from(record.len()).ok().filter(|len| u64::from(*len) < LOG_BYTES_MAX);
    let limit = usize::try_from(LOG_BYTES_MAX).unwrap_or(usize::MAX);
    let Some(len) = len else {
        return Err(Error::TooLarge { what: "a checkpoint", len: record.len(), limit });
    };
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&as_of.jsn.0.to_le_bytes());
    out.extend_from_slice(&as_of.seq.0.to_le_bytes());
    out.extend_from_slice(record);
    let crc = crc32c(&out[at + 4..]);
    out[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// The records before the first one that is torn or damaged, and whether the header is that of this store.
fn parse(bytes: &Bytes, incarnation: u64) -> Option<Vec<(AsOf, Bytes)>> {
    let body = bytes.strip_prefix(&header(incarnation)[..])?;
    let (mut records, mut rest) = (Vec::new(), Fields::new(body));
    while let Some(record) = frame_of(&mut rest) {
        records.push((record.0, bytes.slice_ref(record.1)));
    }
    Some(records)
}

fn frame_of<'a>(rest: &mut Fields<'a>) -> Option<(AsOf, &'a [u8])> {
    let crc = rest.u32()?;
    let whole = rest.rest();
    let len = usize::try_from(rest.u32()?).ok()?;
    let as_of = AsOf { jsn: Jsn(rest.u64()?), seq: Seq(rest.u64()?) };
    let record = rest.take(len)?;
    (crc == crc32c(&whole[..FRAME_BYTES - 4 + len])).then_some((as_of, record))
}

fn read(disk: &mut dyn Disk, path: &Path, len: Option<u64>) -> Result<Bytes, Error> {
    let (file, there) = disk::open(disk, path, OpenMode::Read)?;
    let bytes = match usize::try_from(len.unwrap_or(there)) {
        Ok(fits) if there <= LOG_BYTES_MAX => disk::read(disk, file, 0, fits).map_err(Error::from),
        _ => Err(damage("far too long")),
    };
    // It was only read.
    disk::run(disk, DiskOp::Close { file }).ok();
    bytes
}

fn damage(what: &'static str) -> Error {
    Damage { file: CHECKPOINT_FILE.to_owned(), offset: 0, what }.into()
}

/// The log's records up to the one that says what tables with the records before `flushed` have; what is behind is cut
/// off, durably. The outer `None` if there is no log, the inner one if it has none such. Blocks.
pub(crate) fn find(
    disk: &mut dyn Disk,
    dir: &Path,
    incarnation: u64,
    flushed: Jsn,
) -> Result<Option<Option<FoundLog>>, Error> {
    let path = dir.join(CHECKPOINT_FILE);
    let bytes = match read(disk, &path, None) {
        Err(Error::Disk(error)) if error.kind == DiskErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let Some(mut records) = parse(&bytes, incarnation) else { return Err(damage("the header")) };
    let last = match base::planted!(TreeAheadAfterCrash) {
        true => records.len().checked_sub(1),
        false => records.iter().position(|(as_of, _)| as_of.jsn == flushed),
    };
    let Some(last) = last else { return Ok(Some(None)) };
    records.truncate(last + 1);
    let seq = records[last].0.seq;
    let records: Vec<Bytes> = records.into_iter().map(|(_, record)| record).collect();
    let mut ends = records.iter().scan(HEADER_BYTES as u64, |end, record| {
        *end += (FRAME_BYTES + record.len()) as u64;
        Some(*end)
    });
    let first_len = ends.next().unwrap_or_default();
    let end = LogEnd { len: ends.last().unwrap_or(first_len), first_len };
    if end.len < bytes.len() as u64 {
        let (file, _) = disk::open(disk, &path, OpenMode::Write)?;
        let cut = disk::run(disk, DiskOp::Truncate { file, len: end.len })
            .and_then(|_| disk::run(disk, DiskOp::Sync { file }));
        disk::run(disk, DiskOp::Close { file })?;
        cut?;
    }
    Ok(Some(Some(FoundLog { records, seq, end })))
}

/// Removes the log, durably, if there is one. Blocks.
pub(crate) fn remove(disk: &mut dyn Disk, dir: &Path) -> Result<(), Error> {
    match disk::run(disk, DiskOp::Remove { path: dir.join(CHECKPOINT_FILE) }) {
        Ok(_) => disk::run(disk, DiskOp::SyncDir { path: dir.to_path_buf() })?,
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    Ok(())
}

/// Writes a record to the log, or the log anew. One runs at a time.
pub(crate) struct WriteRecord {
    pub dir: PathBuf,
    pub incarnation: u64,
    /// The log so far; without it, it is begun.
    pub log: Option<LogEnd>,
    /// The manifest's tables have the records before this one: a crash may yet ask for them.
    pub flushed: Jsn,
    pub as_of: AsOf,
    pub record: Bytes,
    pub join: JoinRecords,
    pub outcome: Outcome<Result<Written, Error>>,
}

impl WriteRecord {
    fn run(&self, disk: &mut dyn Disk) -> Result<Written, Error> {
        let Some(log) = self.log else { return self.replace(disk, &[(self.as_of, self.record.clone())]) };
        let longest = 2 * log.first_len + SLACK_BYTES;
        if log.len + (FRAME_BYTES + self.record.len()) as u64 > longest {
            let records = self.joined(disk, log)?;
            return self.replace(disk, &records);
        }
        let mut frame = Vec::new();
        put_frame(self.as_of, &self.record, &mut frame)?;
        let bytes = frame.len() as u64;
        let (file, _) = disk::open(disk, &self.path(), OpenMode::Write)?;
        let write = DiskOp::Write { file, offset: log.len, data: frame.into(), room: 0, sync: true };
        let written = disk::run(disk, write);
        disk::run(disk, DiskOp::Close { file })?;
        written?;
        Ok(Written { end: LogEnd { len: log.len + bytes, ..log }, bytes })
    }

    /// All records with the new one, those that the tables have as one.
    fn joined(&self, disk: &mut dyn Disk, log: LogEnd) -> Result<Vec<(AsOf, Bytes)>, Error> {
        let bytes = read(disk, &self.path(), Some(log.len))?;
        let mut known = parse(&bytes, self.incarnation).ok_or_else(|| damage("the header"))?;
        let lens = known.iter().map(|(_, record)| (FRAME_BYTES + record.len()) as u64);
        if lens.sum::<u64>() + HEADER_BYTES as u64 != log.len {
            return Err(damage("a record"));
        }
        let later = known.split_off(known.partition_point(|(as_of, _)| as_of.jsn <= self.flushed));
        let first = known.last().map(|(as_of, _)| *as_of);
        let known: Vec<Bytes> = known.into_iter().map(|(_, record)| record).collect();
        let joined = match first {
            Some(as_of) => {
                Some((as_of, (self.join)(&known).ok_or_else(|| damage("the contents of a record"))?))
            }
            None => None,
        };
        Ok(joined.into_iter().chain(later).chain([(self.as_of, self.record.clone())]).collect())
    }

    fn replace(&self, disk: &mut dyn Disk, records: &[(AsOf, Bytes)]) -> Result<Written, Error> {
        let (mut bytes, mut first_len) = (header(self.incarnation), None);
        for (as_of, record) in records {
            put_frame(*as_of, record, &mut bytes)?;
            first_len.get_or_insert(bytes.len() as u64);
        }
        let len = bytes.len() as u64;
        disk::replace_file(disk, &self.path(), bytes.into())?;
        Ok(Written { end: LogEnd { len, first_len: first_len.unwrap_or(len) }, bytes: len })
    }

    fn path(&self) -> PathBuf {
        self.dir.join(CHECKPOINT_FILE)
    }
}

impl Job for WriteRecord {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        self.outcome.set(self.run(disk));
        Progress::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes were made by hand; the checksums by another program.
    #[test]
    fn a_log_is_as_its_page_says() {
        let as_of = AsOf { jsn: Jsn(9), seq: Seq(5) };
        let mut log = header(7);
        put_frame(as_of, b"abc", &mut log).unwrap();
        assert_eq!(log, GOLDEN);
        let records = vec![(as_of, Bytes::from_static(b"abc"))];
        assert_eq!(parse(&Bytes::from_static(GOLDEN), 7), Some(records));
        assert_eq!(parse(&Bytes::from_static(GOLDEN), 8), None);
        for at in 0..GOLDEN.len() {
            let mut bad = GOLDEN.to_vec();
            bad[at] ^= 1;
            let known = parse(&bad.into(), 7).unwrap_or_default();
            assert!(known.is_empty(), "byte {at}");
            assert!(
                parse(&Bytes::from_static(&GOLDEN[..at]), 7).unwrap_or_default().is_empty(),
                "{at} bytes"
            );
        }
    }

    const GOLDEN: &[u8] = b"ANULCKPT\x01\0\0\0\x8e\xb7qv\x07\0\0\0\0\0\0\0\
        \xadv\x8a,\x03\0\0\0\x09\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0abc";
}
