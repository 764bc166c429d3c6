//! WiredTiger: a B-tree in C with a cache and a log of its own, the library of the system.
//!
//! Each batch is a transaction of one table of byte strings, in rows; its other shape, an LSM tree, is not used. A
//! write is in its log, and the tree is written out by threads of its own. At durability `none` each transaction is
//! given to the operating system, so that a kill costs nothing; at `sync` it is on the disk. Blocks have checksums.
//! What goes wrong it explains on the standard error.
//!
//! What a transaction writes stays in the cache until it is committed: a batch is at most an eighth of that, and so is
//! a value.

mod table;

use crate::backend::{Backend, Limits, Object, Visit, What, Write};
use crate::error::Error;
use crate::kind::Settings;
use crate::pair::Pair;
use bytes::Bytes;
use engine::Durability;
use std::ffi::CStr;
use std::path::Path;
use table::{Stop, Table};

const NAME: &str = "wiredtiger";
const OBJECTS: &CStr = c"table:objects";

/// Keys and values are bytes as they are.
const OBJECTS_CONFIG: &CStr = c"key_format=u,value_format=u";

/// When the tree is written out as a whole, so that the log before it can go: after so many seconds or bytes of log.
/// What its best known user tells it; by itself it would keep all of its log until it is closed.
const CHECKPOINT: &str = "(wait=60,log_size=2GB)";

/// The smallest cache that it takes.
const CACHE_BYTES_MIN: usize = 1 << 20;

/// What part of the cache a batch may take: less than the fifth of it that, when it is changed and not written, makes a
/// writer wait and write. Batches of a quarter took five times as long for each of their writes.
const CACHE_PER_BATCH: usize = 8;

/// Beside what it has, what a write of a batch takes of the cache.
const WRITE_BYTES: usize = 256;

/// Sessions at once, one for each handle: as many as LMDB has readers, and its own threads'. Its default is 100.
const SESSIONS_MAX: u32 = 1100;

/// A batch is tried so often while others write the same keys: one of those that are in each other's way is always
/// written.
const TRIES_MAX: u32 = 1000;

/// What it is told.
pub fn options(settings: &Settings) -> Vec<(&'static str, String)> {
    vec![
        ("log", "enabled".to_owned()),
        ("transaction_sync", sync_method(settings).to_owned()),
        ("checkpoint", CHECKPOINT.to_owned()),
    ]
}

/// How a transaction is made safe; with `none` its log is written, and not synced.
fn sync_method(settings: &Settings) -> &'static str {
    match settings.durability {
        Durability::Sync => "fsync",
        _ => "none",
    }
}

/// A database with one table.
pub struct WiredTiger {
    objects: Table,
    batch_bytes_max: usize,
    pair: Vec<u8>,
}

impl WiredTiger {
    /// Opens the database in `folder`, or makes one.
    pub fn open(folder: &Path, settings: &Settings) -> Result<WiredTiger, Error> {
        let cache_bytes = settings.cache_bytes.max(CACHE_BYTES_MIN);
        let config = format!(
            "create,cache_size={cache_bytes},session_max={SESSIONS_MAX},log=(enabled=true),checkpoint={CHECKPOINT},\
             transaction_sync=(enabled=true,method={})",
            sync_method(settings)
        );
        let objects = Table::open(folder, &config, OBJECTS, OBJECTS_CONFIG)?;
        Ok(WiredTiger { objects, batch_bytes_max: cache_bytes / CACHE_PER_BATCH, pair: Vec::new() })
    }

    fn try_write(&mut self, batch: &[Write<'_>]) -> Result<(), Stop> {
        let mut transaction = self.objects.begin()?;
        for write in batch {
            match *write {
                Write::Put { key, head, value } => {
                    Pair::encode(head, value, &mut self.pair)?;
                    transaction.put(key, &self.pair)?;
                }
                Write::Delete { key } => transaction.remove(key)?,
            }
        }
        transaction.commit()
    }

    fn find<T>(&mut self, key: &[u8], read: impl Fn(Pair<'_>) -> T) -> Result<Option<T>, Error> {
        // It refuses such a key, which cannot be there.
        if key.is_empty() {
            return Ok(None);
        }
        self.objects.find(key, |pair| Pair::decode(pair).map(&read))?.transpose()
    }
}

impl Backend for WiredTiger {
    fn write(&mut self, batch: &[Write<'_>]) -> Result<(), Error> {
        let limits = self.limits();
        let mut bytes = 0;
        for write in batch {
            if write.key().is_empty() {
                return Err(Error::Refused("WiredTiger has no empty key".to_owned()));
            }
            bytes += limits.check(write)?;
        }
        Error::check_len("a batch", bytes, limits.batch_bytes)?;
        for _ in 0..TRIES_MAX {
            match self.try_write(batch) {
                Ok(()) => return Ok(()),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Conflict) => std::thread::yield_now(),
            }
        }
        Err(Error::of(NAME)(format!("{TRIES_MAX} times others wrote the same keys")))
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Object>, Error> {
        self.find(key, |pair| pair.to_object())
    }

    fn head(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.find(key, |pair| Bytes::copy_from_slice(pair.head))
    }

    fn fold(&mut self, from: &[u8], to: &[u8], what: What, visit: &mut Visit<'_>) -> Result<(), Error> {
        let mut transaction = self.objects.begin()?;
        let mut found = transaction.seek(from)?;
        while let Some((key, pair)) = found {
            let is_behind = !to.is_empty() && key >= to;
            if is_behind || visit(Pair::decode(pair)?.item(key, what)).is_break() {
                break;
            }
            found = transaction.next()?;
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            head_bytes: default.head_bytes.min(self.batch_bytes_max),
            value_bytes: default.value_bytes.min(self.batch_bytes_max),
            batch_bytes: self.batch_bytes_max,
            write_bytes: WRITE_BYTES,
            ..default
        }
    }

    fn another(&self) -> Option<Box<dyn Backend>> {
        // `None` where it has too many sessions: whoever asks shares this one then.
        let objects = self.objects.another().ok()?;
        Some(Box::new(WiredTiger { objects, batch_bytes_max: self.batch_bytes_max, pair: Vec::new() }))
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.objects.close()
    }
}
