//! A store that many threads use: each has a [`Handle`].
//!
//! Engines differ in what they let threads do, and so does what stands behind a handle; [`options`] says which it is:
//!
//! * An engine that is made for many threads has one store, and each thread a handle of it ([`Backend::another`]).
//! * Any other has several stores, as a server has a shard for each core. A key's hash decides in which of them it is.
//!   Each is behind a lock; where the engine has readers ([`Backend::reader`]), reads do not take it. Writes that come
//!   while a store is written queue, and are its next batch (`group.rs`).
//!
//! Invariants: what one handle has written is read by all from then on; entries of a pack that several set at once are
//! all set (`packs.rs`); a store is closed when no handle is left.
//!
//! Left out: batches and folds, which would be over several stores at different moments.

mod group;
mod packs;

use crate::backend::{Backend, Lookup, Object, Write};
use crate::error::Error;
use crate::kind::{Kind, Settings};
use base::checksum::crc32c;
use base::disk::{self, DiskOp};
use bytes::Bytes;
use engine::Machine;
use group::{Owned, Slot};
use packs::Stripes;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// How many use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Threads that will have a handle.
    pub threads: usize,
    /// Stores, where an engine's store has one owner: as many as there are cores. The same at each opening of a folder.
    pub stores: usize,
}

impl Sharing {
    /// The stores that there are of this engine.
    fn stores_of(&self, kind: Kind) -> usize {
        if kind.has_handles() { 1 } else { self.stores }
    }

    /// What each store is told: together they have the cache and the memory that are asked for. The readers of a store
    /// share one of its size, and its owner, which does not read where there are readers, uses none.
    fn settings(&self, kind: Kind, settings: &Settings) -> Settings {
        let stores = self.stores_of(kind);
        Settings {
            cache_bytes: settings.cache_bytes / stores,
            memory_bytes: settings.memory_bytes.map(|bytes| bytes / stores as u64),
            ..settings.clone()
        }
    }
}

/// What an engine is told, and what stands behind a handle.
pub fn options(kind: Kind, settings: &Settings, sharing: Sharing) -> BTreeMap<String, String> {
    let mut options = kind.options(&sharing.settings(kind, settings));
    let Sharing { threads, stores } = sharing;
    let shared = match (kind.has_handles(), kind.has_readers()) {
        (true, _) => format!("one store, {threads} handles"),
        (false, true) => format!("{stores} stores, each with a queue of writes and {threads} readers"),
        (false, false) => format!("{stores} stores, each behind a lock, with a queue of writes"),
    };
    options.insert("shared".to_owned(), shared);
    options
}

/// Stores of one engine that many threads use.
pub struct Shared {
    kind: Kind,
    stores: Vec<Arc<Owned>>,
    stripes: Arc<Stripes>,
}

impl Shared {
    /// Opens the stores in `folder`, or makes them.
    ///
    /// # Errors
    /// [`Error::Refused`] if this program has no such engine; what opening says.
    pub fn open(
        kind: Kind,
        folder: &Path,
        settings: &Settings,
        machine: &Machine,
        sharing: Sharing,
    ) -> Result<Shared, Error> {
        let own = sharing.settings(kind, settings);
        let open = |at: usize| {
            let folder = folder.join(format!("store-{at}"));
            disk::run(&mut *machine.disk(), DiskOp::CreateDir { path: folder.clone() })
                .map_err(|error| Error::Failed { engine: kind.name(), what: error.to_string() })?;
            let store = kind.open(&folder, &own, machine.clone())?;
            Ok(Arc::new(Owned::new(store)))
        };
        let stores = (0..sharing.stores_of(kind)).map(open).collect::<Result<Vec<Arc<Owned>>, Error>>()?;
        Ok(Shared { kind, stores, stripes: Arc::default() })
    }

    /// A handle for a thread.
    pub fn handle(&self) -> Handle {
        let part = |store: &Arc<Owned>| {
            let mut owner = store.lock();
            match owner.another().filter(|_| self.kind.has_handles()) {
                Some(handle) => Part::Own(handle),
                None => {
                    let (store, slot) = (Arc::clone(store), Arc::default());
                    Part::Locked { store, slot, reader: owner.reader() }
                }
            }
        };
        Handle { parts: self.stores.iter().map(part).collect(), stripes: Arc::clone(&self.stripes) }
    }

    /// Closes the stores; all that was written is safe then.
    ///
    /// # Errors
    /// [`Error::Refused`] while a handle is left; what closing says.
    pub fn close(self) -> Result<(), Error> {
        for store in self.stores {
            let store = Arc::into_inner(store);
            let store =
                store.ok_or_else(|| Error::Refused("a store is closed when no thread uses it".to_owned()))?;
            store.into_inner().close()?;
        }
        Ok(())
    }
}

/// A thread's handle.
pub struct Handle {
    parts: Vec<Part>,
    stripes: Arc<Stripes>,
}

/// One of the stores, as a thread has it.
enum Part {
    Own(Box<dyn Backend>),
    Locked { store: Arc<Owned>, slot: Arc<Slot>, reader: Option<Box<dyn Lookup>> },
}

impl Handle {
    /// Sets a key's head and value.
    pub fn put(&mut self, key: &[u8], head: &[u8], value: &[u8]) -> Result<(), Error> {
        part(&mut self.parts, key).write(Write::Put { key, head, value })
    }

    /// Removes a key, whether it is there or not.
    pub fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        part(&mut self.parts, key).write(Write::Delete { key })
    }

    /// A key's head and value.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Object>, Error> {
        part(&mut self.parts, key).get(key)
    }

    /// A key's head.
    pub fn head(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        part(&mut self.parts, key).head(key)
    }
}

/// The one that has a key.
fn part<'p>(parts: &'p mut [Part], key: &[u8]) -> &'p mut Part {
    let at = crc32c(key) as usize % parts.len();
    &mut parts[at]
}

impl Part {
    fn write(&mut self, write: Write<'_>) -> Result<(), Error> {
        match self {
            Part::Own(store) => store.write(&[write]),
            Part::Locked { store, slot, .. } => store.write(slot, write),
        }
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Object>, Error> {
        match self {
            Part::Own(store) => store.get(key),
            Part::Locked { reader: Some(reader), .. } => reader.get(key),
            Part::Locked { store, reader: None, .. } => store.lock().get(key),
        }
    }

    fn head(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        match self {
            Part::Own(store) => store.head(key),
            Part::Locked { reader: Some(reader), .. } => reader.head(key),
            Part::Locked { store, reader: None, .. } => store.lock().head(key),
        }
    }
}
