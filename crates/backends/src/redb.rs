//! Redb: a B-tree in Rust, copied as it is written, in one file.
//!
//! Each batch is a transaction. At durability `none` redb keeps what was committed in memory, and does not use its free
//! pages again until it commits durably: so every [`SAFE_EVERY`]th transaction is, which bounds both.

use crate::backend::{Backend, Object, Visit, What, Write};
use crate::error::Error;
use crate::kind::Settings;
use crate::pair::{Pair, bounds};
use ::redb::{Database, Durability, ReadableDatabase, TableDefinition, WriteTransaction};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const NAME: &str = "redb";
const FILE: &str = "objects.redb";
const OBJECTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("objects");

/// Transactions of which one is durable, where writes need not be: a sync among so many costs each little.
const SAFE_EVERY: u32 = 1000;

/// What it is told.
pub fn options(settings: &Settings) -> Vec<(&'static str, String)> {
    match settings.durability {
        engine::Durability::Sync => Vec::new(),
        _ => vec![("durable_commit_every", SAFE_EVERY.to_string())],
    }
}

/// A database with one table.
pub struct Redb {
    database: Arc<Database>,
    is_safe: bool,
    /// Transactions that were begun since the last durable one, by all handles.
    unsafe_count: Arc<AtomicU32>,
    pair: Vec<u8>,
}

impl Redb {
    /// Opens the database in `folder`, or makes one.
    pub fn open(folder: &Path, settings: &Settings) -> Result<Redb, Error> {
        let mut builder = Database::builder();
        builder.set_cache_size(settings.cache_bytes);
        let database = builder.create(folder.join(FILE)).map_err(Error::of(NAME))?;
        let is_safe = settings.durability == engine::Durability::Sync;
        let redb =
            Redb { database: Arc::new(database), is_safe, unsafe_count: Arc::default(), pair: Vec::new() };
        // Readers find no table before it was opened to be written.
        let transaction = redb.database.begin_write().map_err(Error::of(NAME))?;
        transaction.open_table(OBJECTS).map(drop).map_err(Error::of(NAME))?;
        transaction.commit().map_err(Error::of(NAME))?;
        Ok(redb)
    }

    /// A transaction, of which there is one at a time, whatever handle has it. One that need not be durable is, when it
    /// is time.
    fn begin(&self, must_be_safe: bool) -> Result<WriteTransaction, Error> {
        let mut transaction = self.database.begin_write().map_err(Error::of(NAME))?;
        let count = self.unsafe_count.load(Relaxed) + 1;
        let is_safe = must_be_safe || count >= SAFE_EVERY;
        self.unsafe_count.store(if is_safe { 0 } else { count }, Relaxed);
        let durability = if is_safe { Durability::Immediate } else { Durability::None };
        transaction.set_durability(durability).map_err(Error::of(NAME))?;
        Ok(transaction)
    }

    fn find<T>(&self, key: &[u8], read: impl Fn(Pair<'_>) -> T) -> Result<Option<T>, Error> {
        let transaction = self.database.begin_read().map_err(Error::of(NAME))?;
        let table = transaction.open_table(OBJECTS).map_err(Error::of(NAME))?;
        let found = table.get(key).map_err(Error::of(NAME))?;
        found.map(|found| Pair::decode(found.value()).map(&read)).transpose()
    }
}

impl Backend for Redb {
    fn write(&mut self, batch: &[Write<'_>]) -> Result<(), Error> {
        let transaction = self.begin(self.is_safe)?;
        let mut table = transaction.open_table(OBJECTS).map_err(Error::of(NAME))?;
        for write in batch {
            match *write {
                Write::Put { key, head, value } => {
                    Pair::encode(head, value, &mut self.pair)?;
                    table.insert(key, self.pair.as_slice()).map(drop).map_err(Error::of(NAME))?;
                }
                Write::Delete { key } => table.remove(key).map(drop).map_err(Error::of(NAME))?,
            }
        }
        drop(table);
        transaction.commit().map_err(Error::of(NAME))
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Object>, Error> {
        self.find(key, |pair| pair.to_object())
    }

    fn head(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.find(key, |pair| Bytes::copy_from_slice(pair.head))
    }

    fn fold(&mut self, from: &[u8], to: &[u8], what: What, visit: &mut Visit<'_>) -> Result<(), Error> {
        let Some(range) = bounds(from, to, usize::MAX) else { return Ok(()) };
        let transaction = self.database.begin_read().map_err(Error::of(NAME))?;
        let table = transaction.open_table(OBJECTS).map_err(Error::of(NAME))?;
        let range = table.range::<&[u8]>(range).map_err(Error::of(NAME))?;
        for found in range {
            let (key, value) = found.map_err(Error::of(NAME))?;
            if visit(Pair::decode(value.value())?.item(key.value(), what)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn another(&self) -> Option<Box<dyn Backend>> {
        let (database, unsafe_count) = (Arc::clone(&self.database), Arc::clone(&self.unsafe_count));
        Some(Box::new(Redb { database, is_safe: self.is_safe, unsafe_count, pair: Vec::new() }))
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.begin(true)?.commit().map_err(Error::of(NAME))
    }
}
