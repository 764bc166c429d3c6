//! A sorted load: entries go to the journal and straight into tables, past the memtable.
//!
//! 1. What is in the memtable is flushed, so that nothing older can stand above the load.
//! 2. Each entry is appended to the journal, which keeps its value, and to a table under construction.
//! 3. At the end the journal is synced, the tables are named by one manifest, and what was loaded shows, all at once.
//!
//! The tables go to the highest level that is large enough and whose keys, and those of the levels above it, they do
//! not overlap; into level 0 if there is none. So a load into an empty range is never merged just for having come.
//!
//! While it lasts the store takes no other write: the load has its owner. A load that is given up, or that a crash
//! cuts off, leaves no table; but the journal has what was appended, so after the next start the entries of its first
//! part are there, up to some point, as if they had been written one by one.

use crate::embedded::Embedded;
use crate::entry::Seq;
use crate::error::Error;
use crate::store::Write;
use crate::table::{Table, TableBuilder, TableId};
use base::Disk;
use base::disk::{self, DiskOp};
use std::path::PathBuf;
use std::sync::Arc;

/// A sorted load under way.
pub struct BulkLoad<'a> {
    store: &'a mut Embedded,
    disk: Box<dyn Disk>,
    dir: PathBuf,
    table_bytes_target: u64,
    builder: Option<TableBuilder>,
    made: Vec<TableId>,
    last_key: Option<Vec<u8>>,
    seq: Seq,
    entry: Vec<u8>,
}

impl<'a> BulkLoad<'a> {
    pub(crate) fn begin(store: &'a mut Embedded, disk: Box<dyn Disk>) -> Result<BulkLoad<'a>, Error> {
        store.flush()?;
        let (dir, table_bytes_target) =
            (store.store().tables_dir(), store.store().options().table_bytes_target);
        Ok(BulkLoad {
            store,
            disk,
            dir,
            table_bytes_target,
            builder: None,
            made: Vec::new(),
            last_key: None,
            seq: Seq(0),
            entry: Vec::new(),
        })
    }

    /// Adds a key's head and value. Keys must ascend strictly; one that does not is refused, and the load goes on.
    pub fn put(&mut self, key: &[u8], head: &[u8], value: &[u8]) -> Result<(), Error> {
        self.add(&Write::Put { key, head, value: &[value] }, key)
    }

    /// [`BulkLoad::put`] of a version that ends, in milliseconds since 1970.
    pub fn put_until(&mut self, key: &[u8], head: &[u8], value: &[u8], expires_ms: u64) -> Result<(), Error> {
        self.add(&Write::PutUntil { key, head, value: &[value], expires_ms }, key)
    }

    /// Ends the load: what was added is durable, and shows. Tells the newest version; `Seq(0)` of nothing.
    pub fn finish(mut self) -> Result<Seq, Error> {
        let tables = match self.tables() {
            Ok(tables) => tables,
            Err(error) => {
                self.discard();
                return Err(error);
            }
        };
        self.made.clear();
        if !tables.is_empty() {
            self.store.install(tables, self.seq)?;
        }
        Ok(self.seq)
    }

    fn add(&mut self, write: &Write<'_>, key: &[u8]) -> Result<(), Error> {
        if self.last_key.as_deref().is_some_and(|last| last >= key) {
            return Err(Error::Refused("a sorted load with keys that do not ascend"));
        }
        self.seq = loop {
            match self.store.store().append_loaded(write, &mut self.entry) {
                Ok(seq) => break seq,
                // The journal is behind; a turn lets it catch up.
                Err(Error::Full { .. }) => self.store.catch_up(),
                Err(error) => return Err(error),
            }
        };
        if self.builder.is_none() {
            let id = self.store.store().next_table_id();
            self.made.push(id);
            self.builder = Some(TableBuilder::create(&mut *self.disk, &self.dir, id)?);
        }
        let builder = self.builder.as_mut().expect("made above");
        builder.add(&mut *self.disk, key, self.seq, &self.entry)?;
        if builder.file_len() >= self.table_bytes_target {
            self.end_table()?;
            self.store.turn();
        }
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    fn end_table(&mut self) -> Result<(), Error> {
        match self.builder.take() {
            Some(builder) => builder.finish(&mut *self.disk).map(drop),
            None => Ok(()),
        }
    }

    fn tables(&mut self) -> Result<Vec<Arc<Table>>, Error> {
        self.end_table()?;
        let mut tables = Vec::with_capacity(self.made.len());
        if !self.made.is_empty() {
            disk::run(&mut *self.disk, DiskOp::SyncDir { path: self.dir.clone() })?;
        }
        for &id in &self.made {
            tables.push(Arc::new(Table::open(&mut *self.disk, &self.dir, id)?));
        }
        Ok(tables)
    }

    /// Removes what was made, as far as the disk lets it be; whatever stays is in no manifest, and goes when the store
    /// is opened.
    fn discard(&mut self) {
        if let Some(builder) = self.builder.take() {
            builder.abandon(&mut *self.disk);
        }
        for id in self.made.drain(..) {
            disk::run(&mut *self.disk, DiskOp::Remove { path: self.dir.join(id.file_name()) }).ok();
        }
    }
}

impl Drop for BulkLoad<'_> {
    fn drop(&mut self) {
        self.discard();
    }
}
