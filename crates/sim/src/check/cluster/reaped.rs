//! What was reaped: replicas may have lost it, and a replica that still has such a tombstone is no different from one
//! that has nothing.
//!
//! What the nodes say to each other tells: a tombstone is removed by all when somebody asks for the last round. That
//! nothing comes back which it had deleted is for the other checkers: it was written, and a delete had seen it.

use crate::check::history::KeyName;
use bytes::Bytes;
use object::{Context, HeadView};
use std::collections::{BTreeMap, BTreeSet};

/// The tombstones of all keys that were reaped.
#[derive(Debug, Default)]
pub struct Reaped {
    keys: BTreeMap<KeyName, (Context, BTreeSet<Bytes>)>,
    /// By the number of their last round.
    times: BTreeSet<u64>,
}

impl Reaped {
    /// Somebody asks others to remove a tombstone.
    pub(super) fn on_removed(&mut self, key: &KeyName, tombstone: &Bytes, number: u64) {
        let (context, tombstones) = self.keys.entry(key.clone()).or_default();
        if let Ok(view) = HeadView::parse(tombstone) {
            context.join(&view.context().to_context());
            tombstones.insert(tombstone.clone());
        }
        self.times.insert(number);
    }

    /// `context`, and all that was reaped: what a replica may say to have that has so much.
    pub(super) fn with(&self, key: &KeyName, mut context: Context) -> Context {
        if let Some((reaped, _)) = self.keys.get(key) {
            context.join(reaped);
        }
        context
    }

    /// Whether this is a tombstone that was reaped.
    pub(super) fn has(&self, key: &KeyName, head: &Bytes) -> bool {
        self.keys.get(key).is_some_and(|(_, tombstones)| tombstones.contains(head))
    }

    /// How often something was reaped.
    pub(super) fn count(&self) -> u64 {
        self.times.len() as u64
    }
}
