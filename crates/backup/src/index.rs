//! The index of a backup, the file `BACKUP`: docs/formats/backup.md.
//!
//! A line for programs, `annulet-backup 1 CHECKSUM LENGTH`, and JSON that people can read. The line says in every
//! version what the rest must come to, so that damage is told from a newer version's index.

use crate::error::Error;
use base::Disk;
use base::checksum::crc32c;
use base::disk::{self, DiskErrorKind, DiskOp, OpenMode};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file's name in the folder of a backup.
pub const INDEX_FILE: &str = "BACKUP";

/// A longer name of a backup is none: it is a folder's.
pub const NAME_BYTES_MAX: usize = 128;

const MAGIC: &str = "annulet-backup";
const VERSION: u32 = 1;

/// A longer index is none of ours: a million files take 160 MB.
const INDEX_BYTES_MAX: u64 = 256 << 20;

/// What a backup consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// The node's name.
    pub node: String,
    /// The cluster that the node is a member of, as text; `None` for a node alone.
    pub cluster: Option<String>,
    /// The program that made the backup.
    pub program: String,
    /// When it was begun, in milliseconds since 1970.
    pub created_ms: u64,
    /// The node's stores, in the order of their shards.
    pub stores: Vec<StoreEntry>,
    /// All files but the index, in the order of their names.
    pub files: Vec<FileEntry>,
}

/// A store, as of the moment that the backup is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreEntry {
    /// The shard.
    pub shard: u16,
    /// The store's incarnation, in hexadecimal digits.
    pub incarnation: String,
    /// The newest version in the backup.
    pub last_seq: u64,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its name, relative to the backup's folder, with slashes.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
    /// The CRC-32C of its bytes.
    pub crc: u32,
    /// The CRC-32C of its last bytes, up to 4 KiB: by which a file is known again without reading all of it.
    pub tail_crc: u32,
}

impl Index {
    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body =
            serde_json::to_string_pretty(self).expect("an index has nothing but texts and numbers");
        body.push('\n');
        format!("{MAGIC} {VERSION} {:08x} {}\n{body}", crc32c(body.as_bytes()), body.len()).into_bytes()
    }

    /// Reads the bytes of `file`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if they are not what was written, [`Error::NotBackup`] if they never were an index, or a
    /// newer program wrote it.
    pub fn decode(bytes: &[u8], file: &str) -> Result<Index, Error> {
        let damaged = |what: &str| Error::Damaged { file: file.to_owned(), what: what.to_owned() };
        let end =
            bytes.iter().position(|&byte| byte == b'\n').ok_or_else(|| damaged("it has no first line"))?;
        let (line, body) = (&bytes[..end], &bytes[end + 1..]);
        let line = std::str::from_utf8(line).map_err(|_| damaged("its first line is no text"))?;
        let mut words = line.split(' ');
        if words.next() != Some(MAGIC) {
            return Err(Error::NotBackup(format!("{file} is not the index of a backup")));
        }
        let version = words.next().and_then(|word| word.parse::<u32>().ok());
        let crc = words.next().and_then(|word| u32::from_str_radix(word, 16).ok());
        let len = words.next().and_then(|word| word.parse::<usize>().ok());
        let (Some(version), Some(crc), Some(len), None) = (version, crc, len, words.next()) else {
            return Err(damaged("its first line"));
        };
        if len != body.len() {
            return Err(damaged("its length"));
        }
        if crc != crc32c(body) {
            return Err(damaged("its checksum"));
        }
        if version != VERSION {
            let text = format!("{file} has version {version}; this program knows version {VERSION}");
            return Err(Error::NotBackup(text));
        }
        let index: Index =
            serde_json::from_slice(body).map_err(|error| Error::NotBackup(format!("{file}: {error}")))?;
        match index.files.iter().find(|entry| !is_safe(&entry.name)) {
            Some(entry) => Err(Error::NotBackup(format!("{file} names a file {:?}", entry.name))),
            None => Ok(index),
        }
    }

    /// Reads the index of the backup in `folder`. Blocks.
    ///
    /// # Errors
    /// [`Error::NotBackup`] if there is none, and those of [`Index::decode`].
    pub fn read(disk: &mut dyn Disk, folder: &Path) -> Result<Index, Error> {
        let path = folder.join(INDEX_FILE);
        let (file, len) = match disk::open(disk, &path, OpenMode::Read) {
            Err(error) if error.kind == DiskErrorKind::NotFound => {
                let text = format!(
                    "{} has no file {INDEX_FILE}: it is no backup, or an unfinished one",
                    folder.display()
                );
                return Err(Error::NotBackup(text));
            }
            opened => opened?,
        };
        let read = match usize::try_from(len) {
            Ok(len_here) if len <= INDEX_BYTES_MAX => {
                disk::read(disk, file, 0, len_here).map_err(Error::from)
            }
            _ => Err(Error::NotBackup(format!("{} is far too long", path.display()))),
        };
        disk::run(disk, DiskOp::Close { file })?;
        Index::decode(&read?, &path.display().to_string())
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, entry| sum.saturating_add(entry.len))
    }

    /// The incarnation of the store of this shard.
    pub fn incarnation(&self, shard: u16) -> Option<&str> {
        self.stores.iter().find(|store| store.shard == shard).map(|store| &*store.incarnation)
    }

    /// The file of this name.
    pub fn find(&self, name: &str) -> Option<&FileEntry> {
        let at = self.files.binary_search_by(|entry| (*entry.name).cmp(name)).ok()?;
        self.files.get(at)
    }
}

/// Whether a backup can have this name: it is a folder's, and no other.
///
/// # Errors
/// What is wrong with it.
pub fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@+:".contains(&byte);
    match name {
        "" => Err("a backup needs a name".to_owned()),
        _ if name.len() > NAME_BYTES_MAX => {
            Err(format!("a backup's name has at most {NAME_BYTES_MAX} bytes"))
        }
        _ if name.starts_with('.') || !name.bytes().all(plain) => Err(format!(
            "{name:?} cannot be a backup's name: letters, digits and -_.@+: can be in one, and no dot at its beginning"
        )),
        _ => Ok(()),
    }
}

/// Whether a name stays below the folder that it is relative to.
fn is_safe(name: &str) -> bool {
    !name.is_empty() && name.split('/').all(|part| check_name(part).is_ok())
}

#[cfg(test)]
mod tests;
