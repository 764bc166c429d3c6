//! LMDB: a B-tree in C, copied as it is written, read where it is mapped.
//!
//! Each batch is a transaction. The map is as large as the database may become, which costs nothing before it is used.
//! It has no checksums: what a damaged disk gives back is answered. The system is told not to read ahead in the map, as
//! our engine and RocksDB tell it of their files: lookups are at random, and a map that is larger than memory is of no
//! use with what nobody asked for.

use crate::backend::{Backend, Limits, Object, Visit, What, Write};
use crate::error::Error;
use crate::kind::Settings;
use crate::pair::{Pair, bounds};
use bytes::Bytes;
use engine::Durability;
use heed::types::Bytes as Raw;
use heed::{CommitOrAbort, EnvFlags, EnvOpenOptions};
use std::path::Path;

const NAME: &str = "lmdb";

/// More than the disks that one store is kept on here; a fixed part of the address space, not of memory.
const MAP_BYTES: usize = 1 << 40;

/// Threads that read at once: more than any load has; its default is 126.
const READERS_MAX: u32 = 1024;

/// What it is told.
pub fn options() -> Vec<(&'static str, String)> {
    vec![
        ("map_bytes", MAP_BYTES.to_string()),
        ("max_readers", READERS_MAX.to_string()),
        ("read_ahead", "off".to_owned()),
    ]
}

/// An environment with one database.
pub struct Lmdb {
    env: heed::Env,
    objects: heed::Database<'static, Raw, Raw>,
    key_bytes_max: usize,
    pair: Vec<u8>,
}

impl Lmdb {
    /// Opens the environment in `folder`, or makes one.
    pub fn open(folder: &Path, settings: &Settings) -> Result<Lmdb, Error> {
        let mut builder = EnvOpenOptions::new();
        builder.map_size(MAP_BYTES).max_dbs(0).max_readers(READERS_MAX);
        let syncs =
            if settings.durability == Durability::Sync { EnvFlags::empty() } else { EnvFlags::NO_SYNC };
        // SAFETY: without syncs a power cut may leave a database that cannot be read; memory stays sound. What is read
        // ahead is speed only.
        unsafe { builder.flags(syncs | EnvFlags::NO_READ_AHEAD) };
        // SAFETY: the files are this store's own: whoever writes to them meanwhile does so against its lock.
        let env = unsafe { builder.open(folder) }.map_err(Error::of(NAME))?;
        let transaction = env.write_txn().map_err(Error::of(NAME))?;
        let objects = env
            .create_databases_and_commit(transaction, |opener, transaction| {
                opener.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
            })
            .map_err(Error::of::<heed::Error>(NAME))?
            .unwrap_commit();
        let key_bytes_max = env.max_key_size();
        Ok(Lmdb { env, objects, key_bytes_max, pair: Vec::new() })
    }

    fn find<T>(&self, key: &[u8], read: impl Fn(Pair<'_>) -> T) -> Result<Option<T>, Error> {
        // It refuses such keys, which cannot be there.
        if key.is_empty() || key.len() > self.key_bytes_max {
            return Ok(None);
        }
        let transaction = self.env.read_txn().map_err(Error::of(NAME))?;
        let found = self.objects.get(&transaction, key).map_err(Error::of(NAME))?;
        found.map(|found| Pair::decode(found).map(&read)).transpose()
    }
}

impl Backend for Lmdb {
    fn write(&mut self, batch: &[Write<'_>]) -> Result<(), Error> {
        let mut transaction = self.env.write_txn().map_err(Error::of(NAME))?;
        for write in batch {
            let key = write.key();
            if key.is_empty() {
                return Err(Error::Refused("LMDB has no empty key".to_owned()));
            }
            Error::check_len("a key", key.len(), self.key_bytes_max)?;
            match *write {
                Write::Put { head, value, .. } => {
                    Pair::encode(head, value, &mut self.pair)?;
                    self.objects.put(&mut transaction, key, &self.pair).map_err(Error::of(NAME))?;
                }
                Write::Delete { .. } => {
                    self.objects.delete(&mut transaction, key).map(drop).map_err(Error::of(NAME))?;
                }
            }
        }
        transaction.commit().map_err(Error::of(NAME))
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Object>, Error> {
        self.find(key, |pair| pair.to_object())
    }

    fn head(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.find(key, |pair| Bytes::copy_from_slice(pair.head))
    }

    fn fold(&mut self, from: &[u8], to: &[u8], what: What, visit: &mut Visit<'_>) -> Result<(), Error> {
        let Some(range) = bounds(from, to, self.key_bytes_max) else { return Ok(()) };
        let transaction = self.env.read_txn().map_err(Error::of(NAME))?;
        let range = self.objects.range(&transaction, &range).map_err(Error::of(NAME))?;
        for found in range {
            let (key, pair) = found.map_err(Error::of(NAME))?;
            if visit(Pair::decode(pair)?.item(key, what)).is_break() {
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
        Some(Box::new(Lmdb { env, objects, key_bytes_max: self.key_bytes_max, pair: Vec::new() }))
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.env.force_sync().map_err(Error::of(NAME))?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}
