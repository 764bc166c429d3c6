//! The log's file: `docs/formats/membership.md`.
//!
//! A header, then records, appended. Replaying them in order gives the log as it was. A file is replaced as a whole, by
//! a new one with a snapshot in front, when it has grown.
//!
//! Invariants: only the end of a file can be torn, since every write is synced before the next: what does not check out
//! and has nothing sound behind it is cut off, anything else that does not check out is damage, and an error. Nothing
//! is believed before its checksum, but for a length, which is compared with what is there.

use base::checksum::crc32c;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader};
use ring::NodeId;

use super::entry::{Entry, Epoch, Snapshot, number};
use crate::ClusterId;

/// The format written, and the only one read.
pub const FILE_VERSION: u8 = 2;

const MAGIC: [u8; 4] = *b"ANML";
const HEADER_LEN: usize = 4 + 1 + 8 + 2 + 4;
/// Length and checksum in front of a record.
const FRAME_LEN: usize = 8;

const HARD: u8 = 1;
const ENTRY: u8 = 2;
const COMMIT: u8 = 3;
const BASE: u8 = 4;
const RESTORED: u8 = 5;

/// Why a file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It is no log's file.
    #[error("not a metadata log")]
    Magic,
    /// It was written in another format.
    #[error("metadata log of format {0}, {FILE_VERSION} is read here")]
    Version(u8),
    /// It is another cluster's or another node's.
    #[error("the metadata log of node {node} of cluster {cluster}")]
    Foreign {
        /// The file's cluster.
        cluster: ClusterId,
        /// The file's node.
        node: NodeId,
    },
    /// The bytes at this offset are not those that were written.
    #[error("damage at byte {0} of the metadata log")]
    Damage(usize),
    /// The checksums are right and the records make no sense.
    #[error("malformed metadata log: {0}")]
    Malformed(#[from] Malformed),
}

/// What must be durable before a log's next outputs are acted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Append to the file.
    Append(Bytes),
    /// Replace the file, as a whole or not at all.
    Replace(Bytes),
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Hard {
        epoch: Epoch,
        term: u64,
        voted: Option<NodeId>,
    },
    Entry(Entry),
    Commit(u64),
    Base {
        epoch: Epoch,
        snapshot: Snapshot,
    },
    /// The log was restored from a backup, and is held.
    Restored,
}

/// Appends a file's first bytes.
pub(super) fn put_header(out: &mut BytesMut, cluster: ClusterId, node: NodeId) {
    let start = out.len();
    out.put_slice(&MAGIC);
    out.put_u8(FILE_VERSION);
    out.put_u64_le(cluster.0);
    out.put_u16_le(node.0);
    let crc = crc32c(&out[start..]);
    out.put_u32_le(crc);
}

impl Record {
    pub(super) fn put(&self, out: &mut BytesMut) {
        let start = out.len();
        out.put_u64_le(0);
        match self {
            Record::Hard { epoch, term, voted } => {
                out.put_u8(HARD);
                epoch.put(out);
                out.put_u64_le(*term);
                out.put_u8(voted.is_some().into());
                out.put_u16_le(voted.map_or(0, |node| node.0));
            }
            Record::Entry(entry) => {
                out.put_u8(ENTRY);
                entry.put(out);
            }
            Record::Commit(index) => {
                out.put_u8(COMMIT);
                out.put_u64_le(*index);
            }
            Record::Base { epoch, snapshot } => {
                out.put_u8(BASE);
                epoch.put(out);
                snapshot.put(out);
            }
            Record::Restored => out.put_u8(RESTORED),
        }
        let body = start + FRAME_LEN;
        let len = u32::try_from(out.len() - body).expect("a state is bounded by MESSAGE_BYTES_MAX");
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
        let crc = crc32c(&[&len.to_le_bytes(), &out[body..]].concat());
        out[start + 4..body].copy_from_slice(&crc.to_le_bytes());
    }

    fn read(body: Bytes) -> Result<Record, Malformed> {
        let mut fields = Reader::new(body);
        let fields = &mut fields;
        let record = match fields.u8()? {
            HARD => {
                let (epoch, term, has_voted) = (Epoch::read(fields)?, number(fields)?, fields.u8()?);
                let node = NodeId(fields.u16()?);
                Record::Hard { epoch, term, voted: (has_voted != 0).then_some(node) }
            }
            ENTRY => Record::Entry(Entry::read(fields)?),
            COMMIT => Record::Commit(number(fields)?),
            BASE => Record::Base { epoch: Epoch::read(fields)?, snapshot: Snapshot::read(fields)? },
            RESTORED => Record::Restored,
            _ => return Err(Malformed("an unknown record")),
        };
        fields.end()?;
        Ok(record)
    }
}

/// Cluster and node of a file.
pub(super) fn owner(bytes: &Bytes) -> Result<(ClusterId, NodeId), FileError> {
    let mut header = bytes.slice(..HEADER_LEN.min(bytes.len()));
    if !header.starts_with(&MAGIC) {
        return Err(FileError::Magic);
    }
    header.advance(MAGIC.len());
    let mut fields = Reader::new(header);
    let version = fields.u8()?;
    if version != FILE_VERSION {
        return Err(FileError::Version(version));
    }
    let owner = (ClusterId(fields.u64()?), NodeId(fields.u16()?));
    let is_sound = fields.u32()? == crc32c(&bytes[..HEADER_LEN - 4]);
    if is_sound { Ok(owner) } else { Err(FileError::Damage(0)) }
}

/// The records of a file, and how many of its bytes are sound; what is behind them is to be cut off.
pub(super) fn read(
    bytes: &Bytes,
    cluster: ClusterId,
    node: NodeId,
) -> Result<(Vec<Record>, usize), FileError> {
    let (theirs, owner) = owner(bytes)?;
    if (theirs, owner) != (cluster, node) {
        return Err(FileError::Foreign { cluster: theirs, node: owner });
    }
    let (mut records, mut at) = (Vec::new(), HEADER_LEN);
    while at < bytes.len() {
        let Some(body) = sound(bytes, at) else {
            let behind = (at + 1..bytes.len()).any(|at| sound(bytes, at).is_some());
            return if behind { Err(FileError::Damage(at)) } else { Ok((records, at)) };
        };
        at += FRAME_LEN + body.len();
        records.push(Record::read(body)?);
    }
    Ok((records, at))
}

/// The body of the record at `at`, if it is whole and sound.
fn sound(bytes: &Bytes, at: usize) -> Option<Bytes> {
    let frame = bytes.get(at..at + FRAME_LEN)?;
    let (len, crc) = frame.split_at(4);
    let end = usize::try_from(u32::from_le_bytes(len.try_into().ok()?)).ok()?.checked_add(at + FRAME_LEN)?;
    let body = bytes.get(at + FRAME_LEN..end).filter(|body| !body.is_empty())?;
    let sum = crc32c(&[len, body].concat());
    (sum == u32::from_le_bytes(crc.try_into().ok()?)).then(|| bytes.slice(at + FRAME_LEN..end))
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
