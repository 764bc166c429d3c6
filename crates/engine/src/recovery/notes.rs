//! What a rebuild knows of a group of segments besides the run of their heads.
//!
//! ```text
//! crc u32 | entries u64 | last_seq u64 | last_jsn u64 | has_groups u64 | drops | lost | accounts | damage
//! ```
//!
//! Each list is a count of 64 bits and its items. The file is written once the run is durable, all at once: that it is
//! there says that the group is done. The files live as long as a rebuild; only the program that wrote them reads them.

use crate::compaction::Account;
use crate::drops::RangeDrop;
use crate::entry::{Jsn, Seq};
use crate::error::{Damage, Error};
use crate::lost::{LOST_HERE, LostRange};
use crate::table::fields::{Fields, put_bytes};
use base::Disk;
use base::checksum::crc32c;
use base::disk::{self, DiskErrorKind, DiskOp, OpenMode};
use bytes::Bytes;
use std::path::{Path, PathBuf};

/// A segment that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub id: u64,
    pub first_jsn: Jsn,
    /// Its bytes by their use; which of them are dead is known later.
    pub account: Account,
}

/// What was found in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    /// Entries of the run; without any there is none.
    pub entries: u64,
    pub last_seq: Seq,
    pub last_jsn: Jsn,
    /// Whether there are entries of groups' logs, or commit marks.
    pub has_groups: bool,
    pub drops: Vec<RangeDrop>,
    /// Records that were lost with their keys.
    pub lost: Vec<LostRange>,
    pub accounts: Vec<Known>,
    pub damage: Vec<Damage>,
}

impl Notes {
    /// The greatest seq of a record.
    pub fn last_seq(&self) -> Seq {
        self.last_seq
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        let mut put = |number: u64, bytes: &[&[u8]]| {
            out.extend(number.to_le_bytes());
            bytes.iter().for_each(|bytes| put_bytes(&mut out, bytes));
        };
        [self.entries, self.last_seq.0, self.last_jsn.0, u64::from(self.has_groups)]
            .into_iter()
            .for_each(|number| put(number, &[]));
        put(self.drops.len() as u64, &[]);
        self.drops.iter().for_each(|drop| put(drop.seq.0, &[&drop.start, &drop.end]));
        put(self.lost.len() as u64, &[]);
        for lost in &self.lost {
            put(lost.below.0, &[&lost.start, &lost.end, lost.damage.file.as_bytes()]);
            put(lost.damage.offset, &[]);
        }
        put(self.accounts.len() as u64, &[]);
        for known in &self.accounts {
            let Account { value_bytes, log_bytes, .. } = known.account;
            [known.id, known.first_jsn.0, value_bytes, log_bytes]
                .into_iter()
                .for_each(|number| put(number, &[]));
        }
        put(self.damage.len() as u64, &[]);
        self.damage.iter().for_each(|damage| put(damage.offset, &[damage.file.as_bytes()]));
        let crc = crc32c(&out[4..]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Notes> {
        let mut fields = Fields::new(bytes);
        if fields.u32()? != crc32c(fields.rest()) {
            return None;
        }
        let fields = &mut fields;
        let mut notes = Notes {
            entries: fields.u64()?,
            last_seq: Seq(fields.u64()?),
            last_jsn: Jsn(fields.u64()?),
            has_groups: fields.u64()? > 0,
            ..Notes::default()
        };
        for _ in 0..fields.u64()? {
            let (seq, start, end) = (Seq(fields.u64()?), bytes_of(fields)?, bytes_of(fields)?);
            notes.drops.push(RangeDrop { start, end, seq });
        }
        for _ in 0..fields.u64()? {
            let (below, start, end) = (Seq(fields.u64()?), bytes_of(fields)?, bytes_of(fields)?);
            let file = text_of(fields)?;
            let damage = Damage { file, offset: fields.u64()?, what: LOST_HERE };
            notes.lost.push(LostRange { start, end, below, damage });
        }
        for _ in 0..fields.u64()? {
            let (id, first_jsn) = (fields.u64()?, Jsn(fields.u64()?));
            let account = Account { value_bytes: fields.u64()?, log_bytes: fields.u64()?, dead_bytes: 0 };
            notes.accounts.push(Known { id, first_jsn, account });
        }
        for _ in 0..fields.u64()? {
            let offset = fields.u64()?;
            notes.damage.push(Damage { file: text_of(fields)?, offset, what: DAMAGED });
        }
        fields.end().map(|()| notes)
    }
}

/// What is said of damage that was found by an earlier run.
const DAMAGED: &str = "a record is damaged";

fn bytes_of(fields: &mut Fields<'_>) -> Option<Bytes> {
    fields.bytes().map(Bytes::copy_from_slice)
}

fn text_of(fields: &mut Fields<'_>) -> Option<String> {
    Some(std::str::from_utf8(fields.bytes()?).ok()?.to_owned())
}

fn path(folder: &Path, group: usize) -> PathBuf {
    folder.join(format!("{group:08}.notes"))
}

/// The notes of a group that is done.
pub(super) fn read(disk: &mut dyn Disk, folder: &Path, group: usize) -> Result<Option<Notes>, Error> {
    let (file, len) = match disk::open(disk, &path(folder, group), OpenMode::Read) {
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let bytes = disk::read(disk, file, 0, usize::try_from(len).unwrap_or(usize::MAX).min(NOTES_BYTES_MAX));
    disk::run(disk, DiskOp::Close { file })?;
    Ok(Notes::decode(&bytes?))
}

/// A longer file is none of ours: a group has some hundred segments, and drops have keys of a few hundred bytes.
const NOTES_BYTES_MAX: usize = 1 << 30;

/// Says that a group is done.
pub(super) fn write(disk: &mut dyn Disk, folder: &Path, group: usize, notes: &Notes) -> Result<(), Error> {
    Ok(disk::replace_file(disk, &path(folder, group), Bytes::from(notes.encode()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back_and_damaged_ones_do_not() {
        let damage = Damage { file: "journal/1".to_owned(), offset: 9, what: LOST_HERE };
        let notes = Notes {
            entries: 3,
            last_seq: Seq(4),
            last_jsn: Jsn(5),
            has_groups: true,
            drops: vec![RangeDrop { start: "a".into(), end: Bytes::new(), seq: Seq(2) }],
            lost: vec![LostRange::of_keys(b"b", b"c", Seq(9), damage.clone())],
            accounts: vec![Known { id: 7, first_jsn: Jsn(1), account: Account::default() }],
            damage: vec![Damage { what: DAMAGED, ..damage }],
        };
        let bytes = notes.encode();
        assert_eq!(Notes::decode(&bytes), Some(notes));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Notes::decode(&damaged), None);
            assert_eq!(Notes::decode(&bytes[..at]), None);
        }
    }
}
