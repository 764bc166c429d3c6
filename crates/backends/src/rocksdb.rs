//! RocksDB: an LSM tree in C++, the library of the system, whose values may be kept in blob files.
//!
//! Each batch is one of its batches. It flushes and merges on threads of its own.

use crate::backend::{Backend, Object, Visit, What, Write};
use crate::error::Error;
use crate::kind::Settings;
use crate::pair::Pair;
use ::rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Options, ReadOptions, WriteBatch, WriteOptions,
};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;

const NAME: &str = "rocksdb";

/// Bits of its filter for each key: what its guide tells everybody to set.
const FILTER_BITS: u8 = 10;

/// Values of so many bytes are kept in blob files, as in fjall's.
const BLOB_BYTES_MIN: u64 = 1024;

/// What it is told.
pub fn options(has_blobs: bool) -> Vec<(&'static str, String)> {
    let mut options = vec![("compression", "none".to_owned()), ("filter_bits", FILTER_BITS.to_string())];
    if has_blobs {
        options.push(("min_blob_size", BLOB_BYTES_MIN.to_string()));
        options.push(("enable_blob_garbage_collection", "true".to_owned()));
    }
    options
}

/// A database.
pub struct RocksDb {
    database: Arc<DB>,
    is_safe: bool,
    how: WriteOptions,
    pair: Vec<u8>,
}

impl RocksDb {
    /// Opens the database in `folder`, or makes one.
    pub fn open(folder: &Path, settings: &Settings, has_blobs: bool) -> Result<RocksDb, Error> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(settings.cache_bytes).map_err(Error::of(NAME))?);
        blocks.set_bloom_filter(f64::from(FILTER_BITS), false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(DBCompressionType::None);
        options.set_block_based_table_factory(&blocks);
        if has_blobs {
            options.set_enable_blob_files(true);
            options.set_min_blob_size(BLOB_BYTES_MIN);
            options.set_enable_blob_gc(true);
        }
        let database = DB::open(&options, folder).map_err(Error::of(NAME))?;
        Ok(RocksDb::over(Arc::new(database), settings.durability == engine::Durability::Sync))
    }

    fn over(database: Arc<DB>, is_safe: bool) -> RocksDb {
        let mut how = WriteOptions::default();
        how.set_sync(is_safe);
        RocksDb { database, is_safe, how, pair: Vec::new() }
    }

    fn find<T>(&self, key: &[u8], read: impl Fn(Pair<'_>) -> T) -> Result<Option<T>, Error> {
        let found = self.database.get_pinned(key).map_err(Error::of(NAME))?;
        found.map(|pair| Pair::decode(&pair).map(&read)).transpose()
    }
}

impl Backend for RocksDb {
    fn write(&mut self, batch: &[Write<'_>]) -> Result<(), Error> {
        let mut all = WriteBatch::default();
        for write in batch {
            match *write {
                Write::Put { key, head, value } => {
                    Pair::encode(head, value, &mut self.pair)?;
                    all.put(key, &self.pair);
                }
                Write::Delete { key } => all.delete(key),
            }
        }
        self.database.write_opt(all, &self.how).map_err(Error::of(NAME))
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Object>, Error> {
        self.find(key, |pair| pair.to_object())
    }

    fn head(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.find(key, |pair| Bytes::copy_from_slice(pair.head))
    }

    fn fold(&mut self, from: &[u8], to: &[u8], what: What, visit: &mut Visit<'_>) -> Result<(), Error> {
        let mut options = ReadOptions::default();
        if !to.is_empty() {
            options.set_iterate_upper_bound(to);
        }
        let mut at = self.database.raw_iterator_opt(options);
        at.seek(from);
        while let Some((key, pair)) = at.item() {
            // A range whose end is before its beginning.
            if !to.is_empty() && key >= to {
                break;
            }
            if visit(Pair::decode(pair)?.item(key, what)).is_break() {
                return Ok(());
            }
            at.next();
        }
        at.status().map_err(Error::of(NAME))
    }

    fn another(&self) -> Option<Box<dyn Backend>> {
        Some(Box::new(RocksDb::over(Arc::clone(&self.database), self.is_safe)))
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.database.flush_wal(true).map_err(Error::of(NAME))?;
        self.database.cancel_all_background_work(true);
        Ok(())
    }
}
