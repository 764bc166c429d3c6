//! MDBX: LMDB's B-tree in C, gone on with: it reuses and gives back pages better, and takes longer keys.
//!
//! Each batch is a transaction. The map is as large as the database may become, which costs nothing before it is used;
//! the file grows and shrinks by its library's steps of 16 MiB. Pages are written as LMDB's are, not through the map,
//! and nothing is read ahead there, as of LMDB. It has no checksums of what it stores: what a damaged disk gives back
//! is answered, unless it makes no tree any more.
//!
//! At durability `none` its mode is `UTTERLY_NOSYNC`, which is LMDB's `NO_SYNC`: a power cut may leave a database that
//! cannot be read. The safer `SAFE_NOSYNC` reuses no page before a sync, and nothing asks for one here, so that its
//! file would grow with every write.

use crate::backend::{Backend, Limits, Object, Visit, What, Write};
use crate::error::Error;
use crate::kind::Settings;
use crate::pair::Pair;
use bytes::Bytes;
use engine::Durability;
use signet_libmdbx::{
    Database, DatabaseFlags, Environment, EnvironmentFlags, Geometry, MdbxError, Mode, ReadError, SyncMode,
    WriteFlags, ffi,
};
use std::borrow::Cow;
use std::path::Path;

const NAME: &str = "mdbx";

/// The file of the folder that has what is stored.
const FILE: &str = "mdbx.dat";

/// As LMDB's: more than the disks that one store is kept on here; a fixed part of the address space, not of memory.
const MAP_BYTES: usize = 1 << 40;

/// Threads that read at once, as LMDB's.
const READERS_MAX: u64 = 1024;

/// What it is told.
pub fn options() -> Vec<(&'static str, String)> {
    vec![
        ("map_bytes", MAP_BYTES.to_string()),
        ("max_readers", READERS_MAX.to_string()),
        ("read_ahead", "off".to_owned()),
    ]
}

/// An environment with one database.
pub struct Mdbx {
    env: Environment,
    objects: Database,
    key_bytes_max: usize,
    pair: Vec<u8>,
}

impl Mdbx {
    /// Opens the environment in `folder`, or makes one.
    pub fn open(folder: &Path, settings: &Settings) -> Result<Mdbx, Error> {
        let sync_mode = match settings.durability {
            Durability::Sync => SyncMode::Durable,
            _ => SyncMode::UtterlyNoSync,
        };
        let mode = Mode::ReadWrite { sync_mode };
        let flags = EnvironmentFlags { mode, no_rdahead: true, ..EnvironmentFlags::default() };
        let env = Environment::builder()
            .set_geometry(Geometry { size: Some(..MAP_BYTES), ..Geometry::default() })
            .set_max_readers(READERS_MAX)
            .set_flags(flags)
            .open(folder)
            .map_err(failed)?;
        let transaction = env.begin_rw_unsync().map_err(failed)?;
        let objects = transaction.create_db(None, DatabaseFlags::empty()).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        let page_bytes = env.stat().map_err(failed)?.page_size();
        let key_bytes_max = key_bytes_max(page_bytes)?;
        Ok(Mdbx { env, objects, key_bytes_max, pair: Vec::new() })
    }

    fn find<T>(&self, key: &[u8], read: impl Fn(Pair<'_>) -> T) -> Result<Option<T>, Error> {
        // It refuses such keys, which cannot be there.
        if key.len() > self.key_bytes_max {
            return Ok(None);
        }
        let transaction = self.env.begin_ro_unsync().map_err(failed)?;
        let found: Option<Cow<'_, [u8]>> = transaction.get(self.objects.dbi(), key).map_err(failed)?;
        found.map(|found| Pair::decode(&found).map(&read)).transpose()
    }
}

impl Backend for Mdbx {
    fn write(&mut self, batch: &[Write<'_>]) -> Result<(), Error> {
        let transaction = self.env.begin_rw_unsync().map_err(failed)?;
        for write in batch {
            let key = write.key();
            // The library would end the process.
            Error::check_len("a key", key.len(), self.key_bytes_max)?;
            match *write {
                Write::Put { head, value, .. } => {
                    Pair::encode(head, value, &mut self.pair)?;
                    transaction.put(self.objects, key, &self.pair, WriteFlags::UPSERT).map_err(failed)?;
                }
                Write::Delete { .. } => {
                    transaction.del(self.objects, key, None).map(drop).map_err(failed)?;
                }
            }
        }
        transaction.commit().map_err(failed)
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Object>, Error> {
        self.find(key, |pair| pair.to_object())
    }

    fn head(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.find(key, |pair| Bytes::copy_from_slice(pair.head))
    }

    fn fold(&mut self, from: &[u8], to: &[u8], what: What, visit: &mut Visit<'_>) -> Result<(), Error> {
        let transaction = self.env.begin_ro_unsync().map_err(failed)?;
        let mut cursor = transaction.cursor(self.objects).map_err(failed)?;
        // It refuses longer keys also as bounds; of its own only one may lie before such a bound and not before its
        // beginning.
        let start = &from[..from.len().min(self.key_bytes_max)];
        let mut items = cursor.iter_from::<Cow<'_, [u8]>, Cow<'_, [u8]>>(start).map_err(failed)?;
        while let Some((key, pair)) = items.borrow_next().map_err(failed)? {
            if *key < *from {
                continue;
            }
            let is_behind = !to.is_empty() && *key >= *to;
            if is_behind || visit(Pair::decode(&pair)?.item(&key, what)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits { key_bytes: self.key_bytes_max, ..Limits::default() }
    }

    fn another(&self) -> Option<Box<dyn Backend>> {
        let (env, objects) = (self.env.clone(), self.objects);
        Some(Box::new(Mdbx { env, objects, key_bytes_max: self.key_bytes_max, pair: Vec::new() }))
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.env.sync(true).map(drop).map_err(failed)
    }
}

/// How long a key may be, where pages have so many bytes.
fn key_bytes_max(page_bytes: u32) -> Result<usize, Error> {
    // SAFETY: it computes with its arguments, and reads and writes no memory.
    let bytes = unsafe { ffi::mdbx_limits_keysize_max(page_bytes as isize, ffi::MDBX_DB_DEFAULTS) };
    usize::try_from(bytes).map_err(|_| Error::Refused(format!("MDBX has no pages of {page_bytes} bytes")))
}

/// What the library said.
fn failed(error: impl Into<ReadError>) -> Error {
    match error.into() {
        ReadError::Mdbx(MdbxError::Corrupted | MdbxError::PageNotFound) => {
            Error::damaged(FILE, "MDBX finds its pages damaged")
        }
        other => Error::of(NAME)(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_may_be_as_long_as_the_manual_says() {
        assert_eq!(key_bytes_max(4096), Ok(2022));
        assert!(matches!(key_bytes_max(1), Err(Error::Refused(_))));
    }
}
