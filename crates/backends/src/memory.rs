//! A map in memory: what the others are compared with, and what an engine could at best cost.
//!
//! Nothing of it is on a disk, and nothing of it is there after a restart.

use crate::backend::{Backend, Item, Object, Visit, What, Write};
use crate::error::Error;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The map.
#[derive(Default)]
pub struct Memory {
    objects: BTreeMap<Vec<u8>, Object>,
}

impl Backend for Memory {
    fn write(&mut self, batch: &[Write<'_>]) -> Result<(), Error> {
        for write in batch {
            match *write {
                Write::Put { key, head, value } => {
                    let object =
                        Object { head: Bytes::copy_from_slice(head), value: Bytes::copy_from_slice(value) };
                    match self.objects.get_mut(key) {
                        Some(old) => *old = object,
                        None => drop(self.objects.insert(key.to_vec(), object)),
                    }
                }
                Write::Delete { key } => drop(self.objects.remove(key)),
            }
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Object>, Error> {
        Ok(self.objects.get(key).cloned())
    }

    fn head(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        Ok(self.objects.get(key).map(|object| object.head.clone()))
    }

    fn fold(&mut self, from: &[u8], to: &[u8], what: What, visit: &mut Visit<'_>) -> Result<(), Error> {
        let objects = self.objects.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        for (key, object) in objects.take_while(|(key, _)| to.is_empty() || key.as_slice() < to) {
            let value: &[u8] = if what == What::Objects { &object.value } else { &[] };
            if visit(Item { key, head: &object.head, value }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}
