//! Our engine, with calls that wait.

use crate::backend::{Backend, Item, Lookup, Object, Visit, What, Write};
use crate::error::Error;
use crate::kind::Settings;
use bytes::Bytes;
use engine::fold::{Control, FoldRequest, JournalCheck, KeyRange};
use engine::store::Resources;
use engine::{Embedded, Machine, Options, Reader};
use std::ops::ControlFlow;
use std::path::Path;

/// A store of the engine.
pub struct Annulet {
    store: Embedded,
}

fn engine_options(settings: &Settings) -> Options {
    let fit = |memory_bytes| Resources { memory_bytes, cores: 1, stores: 1 }.options();
    let fit = settings.memory_bytes.map(fit);
    let segment_bytes = fit.as_ref().map_or(u64::MAX, |options| options.segment_bytes_target);
    Options {
        durability: settings.durability,
        block_cache_bytes: settings.cache_bytes,
        segment_bytes_target: settings.segment_bytes.min(segment_bytes),
        ..fit.unwrap_or_default()
    }
}

/// What it is told.
pub fn options(settings: &Settings) -> Vec<(&'static str, String)> {
    vec![("engine", format!("{:?}", engine_options(settings)))]
}

impl Annulet {
    /// Opens the store in `folder`, or makes one.
    pub fn open(folder: &Path, settings: &Settings, machine: Machine) -> Result<Annulet, Error> {
        Ok(Annulet { store: Embedded::open(folder, engine_options(settings), machine)? })
    }
}

impl Backend for Annulet {
    fn write(&mut self, batch: &[Write<'_>]) -> Result<(), Error> {
        // The engine takes a value in parts.
        let parts: Vec<[&[u8]; 1]> = batch
            .iter()
            .map(|write| match *write {
                Write::Put { value, .. } => [value],
                Write::Delete { .. } => [&[][..]],
            })
            .collect();
        let batch = batch.iter().zip(&parts).map(|(write, value)| match *write {
            Write::Put { key, head, .. } => engine::Write::Put { key, head, value },
            Write::Delete { key } => engine::Write::Delete { key },
        });
        let batch: Vec<engine::Write<'_>> = batch.collect();
        if !batch.is_empty() {
            self.store.write(&batch)?;
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], head: &[u8], value: &[u8]) -> Result<(), Error> {
        self.store.put(key, head, value)?;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.store.delete(key)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Object>, Error> {
        Ok(self.store.get(key)?.map(object))
    }

    fn head(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        Ok(self.store.head(key)?.map(|found| found.head))
    }

    fn fold(&mut self, from: &[u8], to: &[u8], what: What, visit: &mut Visit<'_>) -> Result<(), Error> {
        if !to.is_empty() && from >= to {
            return Ok(());
        }
        let snapshot = self.store.snapshot();
        let mut reader = self.store.reader_at(snapshot);
        let range = KeyRange::new(Bytes::copy_from_slice(from), Bytes::copy_from_slice(to));
        let wanted = match what {
            What::Heads => engine::fold::What::Heads(JournalCheck::None),
            What::Objects => engine::fold::What::Objects,
        };
        let end = reader.fold(FoldRequest::over(range, wanted), &mut |found| {
            let value = found.value.as_deref().unwrap_or_default();
            match visit(Item { key: found.key, head: found.head, value }) {
                ControlFlow::Continue(()) => Control::Next,
                ControlFlow::Break(()) => Control::Stop,
            }
        })?;
        match end.damaged_named.into_iter().next() {
            Some((_, damage)) => Err(Error::Damaged(damage)),
            None => Ok(()),
        }
    }

    fn reader(&mut self) -> Option<Box<dyn Lookup>> {
        Some(Box::new(Reads(self.store.reader())))
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(self.store.close()?)
    }
}

/// Reads beside the owner, without waiting for it.
struct Reads(Reader);

impl Lookup for Reads {
    fn get(&mut self, key: &[u8]) -> Result<Option<Object>, Error> {
        Ok(self.0.get(key)?.map(object))
    }

    fn head(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        Ok(self.0.head(key)?.map(|found| found.head))
    }
}

fn object(found: engine::Found) -> Object {
    Object { head: found.head, value: found.value.unwrap_or_default() }
}
