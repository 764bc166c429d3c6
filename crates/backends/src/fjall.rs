//! Fjall: an LSM tree in Rust, whose values may be kept apart from its keys.
//!
//! Each batch is one of its batches. It flushes and merges on threads of its own.

use crate::backend::{Backend, Limits, Object, Visit, What, Write};
use crate::error::Error;
use crate::kind::Settings;
use crate::pair::{Pair, bounds};
use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};
use bytes::Bytes;
use std::path::Path;

const NAME: &str = "fjall";

/// What its format has room for.
const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// Values of so many bytes are kept apart, where they are: its own default, said so that it is told.
const APART_BYTES_MIN: u32 = 1024;

/// What it is told.
pub fn options(is_apart: bool) -> Vec<(&'static str, String)> {
    let apart = ("kv_separation_threshold", APART_BYTES_MIN.to_string());
    [("compression", "none".to_owned())].into_iter().chain(is_apart.then_some(apart)).collect()
}

/// A database with one keyspace.
pub struct Fjall {
    database: Database,
    objects: Keyspace,
    persist: Option<PersistMode>,
}

impl Fjall {
    /// Opens the database in `folder`, or makes one.
    pub fn open(folder: &Path, settings: &Settings, is_apart: bool) -> Result<Fjall, Error> {
        let is_safe = settings.durability == engine::Durability::Sync;
        let database = Database::builder(folder)
            .cache_size(settings.cache_bytes as u64)
            .manual_journal_persist(true)
            .open()
            .map_err(Error::of(NAME))?;
        let apart = is_apart.then(|| KvSeparationOptions::default().separation_threshold(APART_BYTES_MIN));
        let options =
            || KeyspaceCreateOptions::default().manual_journal_persist(true).with_kv_separation(apart);
        let objects = database.keyspace("objects", options).map_err(Error::of(NAME))?;
        Ok(Fjall { database, objects, persist: is_safe.then_some(PersistMode::SyncData) })
    }

    fn find(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        // It panics at such keys, which cannot be there.
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        Ok(self.objects.get(key).map_err(Error::of(NAME))?.map(Bytes::from))
    }
}

/// The parts of what it holds, without a copy.
fn object(pair: &Bytes) -> Result<Object, Error> {
    let parts = Pair::decode(pair)?;
    Ok(Object { head: pair.slice_ref(parts.head), value: pair.slice_ref(parts.value) })
}

impl Backend for Fjall {
    fn write(&mut self, batch: &[Write<'_>]) -> Result<(), Error> {
        let mut all = self.database.batch().durability(self.persist);
        for write in batch {
            let key = write.key();
            if key.is_empty() {
                return Err(Error::Refused("fjall has no empty key".to_owned()));
            }
            Error::check_len("a key", key.len(), KEY_BYTES_MAX)?;
            match *write {
                Write::Put { head, value, .. } => {
                    let mut pair = Vec::new();
                    Pair::encode(head, value, &mut pair)?;
                    all.insert(&self.objects, key, pair);
                }
                Write::Delete { .. } => all.remove(&self.objects, key),
            }
        }
        all.commit().map_err(Error::of(NAME))
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Object>, Error> {
        let found = self.find(key)?;
        found.map(|pair| object(&pair)).transpose()
    }

    fn head(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        // A copy: a head that is kept must not keep its value.
        let found = self.find(key)?;
        found.map(|pair| Pair::decode(&pair).map(|it| Bytes::copy_from_slice(it.head))).transpose()
    }

    fn fold(&mut self, from: &[u8], to: &[u8], what: What, visit: &mut Visit<'_>) -> Result<(), Error> {
        let Some(range) = bounds(from, to, KEY_BYTES_MAX) else { return Ok(()) };
        for found in self.objects.range::<&[u8], _>(range) {
            let (key, pair) = found.into_inner().map_err(Error::of(NAME))?;
            if visit(Pair::decode(&pair)?.item(&key, what)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits { key_bytes: KEY_BYTES_MAX, ..Limits::default() }
    }

    fn another(&self) -> Option<Box<dyn Backend>> {
        let (database, objects) = (self.database.clone(), self.objects.clone());
        Some(Box::new(Fjall { database, objects, persist: self.persist }))
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.database.persist(PersistMode::SyncAll).map_err(Error::of(NAME))
    }
}
