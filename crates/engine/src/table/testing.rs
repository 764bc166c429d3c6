//! A disk in memory for the tests of tables, merges and the manifest: complete at once, and able to fail.

use super::block::{Block, BlockBuilder};
use super::footer::{FOOTER_BYTES, Footer, SegmentsPart};
use super::segments::{self, Buckets};
use super::{Table, TableBuilder, TableId};
use crate::Seq;
use crate::entry::{Entry, Jsn, Location};
use crate::memtable::hash;
use base::checksum::crc32c;
use base::disk::{Completion, Disk, DiskAnswer, DiskError, DiskErrorKind, DiskOp, FileId, OpenMode, Token};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files by path. What is removed or closed is gone at once, so a use after it fails the test.
#[derive(Default)]
pub(crate) struct MemDisk {
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    pub open: BTreeMap<FileId, PathBuf>,
    pub opened: u32,
    pub done: Vec<Completion>,
    /// How many operations that change something have been asked for.
    pub changes: u64,
    /// The change with this number fails.
    pub fail_at: Option<u64>,
    /// What was read: of which file, where, and how much.
    pub reads: Vec<(PathBuf, u64, usize)>,
}

impl MemDisk {
    pub fn names(&self) -> Vec<String> {
        self.files.keys().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    pub fn open_files(&self) -> usize {
        self.open.len()
    }

    fn perform(&mut self, op: DiskOp) -> Result<DiskAnswer, DiskError> {
        let error = |kind, path: &Path| DiskError {
            kind,
            path: path.display().to_string(),
            message: format!("{kind:?}"),
        };
        if !matches!(
            op,
            DiskOp::Open { mode: OpenMode::Read, .. } | DiskOp::Read { .. } | DiskOp::List { .. }
        ) {
            self.changes += 1;
            if self.fail_at == Some(self.changes) {
                return Err(error(DiskErrorKind::Io, Path::new("injected")));
            }
        }
        match op {
            DiskOp::Open { path, mode } => {
                match (mode, self.files.contains_key(&path)) {
                    (OpenMode::Create | OpenMode::CreatePrivate, true) => {
                        return Err(error(DiskErrorKind::Exists, &path));
                    }
                    (OpenMode::Create | OpenMode::CreatePrivate, false) => {
                        drop(self.files.insert(path.clone(), Vec::new()));
                    }
                    (_, false) => return Err(error(DiskErrorKind::NotFound, &path)),
                    (_, true) => {}
                }
                self.opened += 1;
                let (file, len) = (FileId(self.opened), self.files[&path].len() as u64);
                self.open.insert(file, path);
                return Ok(DiskAnswer::Opened { file, len });
            }
            DiskOp::Close { file } => drop(self.open.remove(&file).expect("an open file")),
            DiskOp::Write { file, offset, data, .. } => {
                let bytes = self.files.get_mut(&self.open[&file]).unwrap();
                let end = offset as usize + data.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[offset as usize..end].copy_from_slice(&data.joined());
            }
            DiskOp::Read { file, offset, len } => {
                self.reads.push((self.open[&file].clone(), offset, len));
                let bytes = &self.files[&self.open[&file]];
                let start = bytes.len().min(offset as usize);
                let end = bytes.len().min(start + len);
                return Ok(DiskAnswer::Data(Bytes::copy_from_slice(&bytes[start..end])));
            }
            DiskOp::Rename { from, to } => {
                let bytes = self.files.remove(&from).ok_or_else(|| error(DiskErrorKind::NotFound, &from))?;
                self.files.insert(to, bytes);
            }
            DiskOp::Remove { path } => {
                self.files.remove(&path).ok_or_else(|| error(DiskErrorKind::NotFound, &path))?;
            }
            DiskOp::Sync { .. } | DiskOp::SyncDir { .. } => {}
            other => unimplemented_in_tests(&other),
        }
        Ok(DiskAnswer::Done)
    }
}

fn unimplemented_in_tests(op: &DiskOp) {
    panic!("no test here needs {op:?}");
}

impl Disk for MemDisk {
    fn submit(&mut self, op: DiskOp, token: Token) {
        let result = self.perform(op);
        self.done.push(Completion { token, result });
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.done);
    }

    fn wait(&mut self) {
        panic!("every operation completes at once");
    }

    fn try_read(&mut self, _file: FileId, _offset: u64, _buf: &mut [u8]) -> Option<usize> {
        None
    }
}

pub(crate) fn dir() -> &'static Path {
    Path::new("/data")
}

/// A ledger entry whose head tells the key and the seq, so that a wrong answer shows; `len` more bytes follow.
pub(crate) fn entry(key: &[u8], seq: u64, len: usize) -> Vec<u8> {
    let head = [key, &seq.to_le_bytes(), &vec![b'.'; len]].concat();
    let location = Location::Journal { offset: 64, len: 1000 };
    let mut out = Vec::new();
    Entry { jsn: Jsn(seq + 1), location, head: &head, inline: b"", expires_ms: None }.encode(&mut out);
    out
}

pub(crate) fn deletion(seq: u64) -> Vec<u8> {
    let mut out = Vec::new();
    Entry { jsn: Jsn(seq + 1), location: Location::Deleted, head: b"", inline: b"", expires_ms: None }
        .encode(&mut out);
    out
}

/// A model of a table or a ledger: key to seq and entry.
pub(crate) type Model = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

/// Writes `entries` as table `id` and opens it.
pub(crate) fn table(disk: &mut MemDisk, id: u64, entries: &Model) -> Arc<Table> {
    let mut builder = TableBuilder::create(disk, dir(), TableId(id)).unwrap();
    for (key, (seq, entry)) in entries {
        builder.add(disk, key, Seq(*seq), entry).unwrap();
    }
    let meta = builder.finish(disk).unwrap();
    let table = Table::open(disk, dir(), TableId(id)).unwrap();
    assert_eq!(*table.meta(), meta);
    Arc::new(table)
}

/// The same table as version 3 of the format would have it: with larger buckets of segments.
pub(crate) fn as_version_3(disk: &mut MemDisk, table: &Table, entries: &Model) -> Arc<Table> {
    let hashes: Vec<u64> = entries.keys().map(|key| hash(key)).collect();
    let mut ends = Vec::new();
    for index in 0..table.blocks() as u32 {
        let block = table.read_block(disk, table.block(index).unwrap()).unwrap();
        ends.push(ends.last().unwrap_or(&0) + block.count());
    }
    let bytes = disk.files.get_mut(table.path()).unwrap();
    let footer_at = bytes.len() - FOOTER_BYTES;
    let mut footer = Footer::decode(&bytes[footer_at..], table.id(), bytes.len() as u64).unwrap();
    let tail = bytes[footer_at - footer.tail_len().unwrap()..footer_at - SegmentsPart::BYTES].to_vec();
    bytes.truncate(footer.blocks_len as usize);
    let buckets = Buckets::of(hashes.len() as u64, 3);
    let directory = segments::encode(table.id(), buckets, &hashes, &ends, bytes);
    let len = bytes.len() as u64 - footer.blocks_len;
    bytes.extend_from_slice(&tail);
    SegmentsPart::encode(len, directory, buckets, bytes);
    footer.version = 3;
    footer.meta_len -= 4;
    footer.meta_crc = crc32c(&bytes[bytes.len() - footer.meta_len as usize..]);
    footer.encode(bytes);
    Arc::new(Table::open(disk, dir(), table.id()).unwrap())
}

/// The same table as version 2 of the format would have it: without segments.
pub(crate) fn as_version_2(disk: &mut MemDisk, table: &Table) -> Arc<Table> {
    let bytes = disk.files.get_mut(table.path()).unwrap();
    let footer_at = bytes.len() - FOOTER_BYTES;
    let mut footer = Footer::decode(&bytes[footer_at..], table.id(), bytes.len() as u64).unwrap();
    let tail_at = footer_at - footer.tail_len().unwrap();
    bytes.truncate(footer_at - SegmentsPart::BYTES);
    footer.version = 2;
    footer.meta_len -= SegmentsPart::BYTES as u32;
    footer.meta_crc = crc32c(&bytes[bytes.len() - footer.meta_len as usize..]);
    bytes.drain(footer.blocks_len as usize..tail_at);
    footer.encode(bytes);
    let table = Table::open(disk, dir(), table.id()).unwrap();
    assert!(table.segments.is_none());
    Arc::new(table)
}

/// A lookup as the store does it, with blocking reads.
pub(crate) fn get(
    disk: &mut MemDisk,
    table: &Table,
    key: &[u8],
) -> Result<Option<(u64, Vec<u8>)>, crate::Error> {
    if !table.may_contain(crate::memtable::hash(key)) {
        return Ok(None);
    }
    let Some(handle) = table.find_block(key) else { return Ok(None) };
    let block = table.read_block(disk, handle)?;
    Ok(block.find(key)?.map(|(seq, entry)| (seq.0, block.share(entry).to_vec())))
}

/// A block of one entry, as `table` has it at its start.
pub(crate) fn block_of(table: TableId, key: &[u8], seq: Seq, entry: &[u8]) -> Block {
    let (mut builder, mut out) = (BlockBuilder::default(), Vec::new());
    builder.add(key, hash(key), seq, entry);
    builder.finish(table, 0, &mut out);
    Block::parse(out.into(), table, 0).unwrap()
}
