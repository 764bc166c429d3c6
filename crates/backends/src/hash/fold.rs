//! Folds, in the order of keys, over records that are in none.
//!
//! Each pass reads all blocks and keeps the first keys of what is left of the range, as many as have room, in order;
//! then their records are read. A fold that is broken off early, or over a small range, costs a pass all the same.

use super::block::{Kind, padded};
use super::index::Place;
use super::{Hash, State, damaged};
use crate::backend::{Item, Object, Visit, What};
use crate::error::Error;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Keys of one pass take so much memory, or are one.
const KEYS_BYTES_MAX: usize = 32 << 20;

/// What a key takes beside itself.
const KEY_EXTRA_BYTES: usize = 64;

/// Keys of a pass.
struct Keys {
    places: BTreeMap<Vec<u8>, Place>,
    bytes: usize,
    bytes_max: usize,
    /// Some that come after all of these were left out.
    is_cut: bool,
}

impl Keys {
    fn add(&mut self, key: &[u8], place: Place) {
        let is_behind = || self.places.last_key_value().is_some_and(|(last, _)| key > &last[..]);
        if self.is_cut && is_behind() {
            return;
        }
        self.places.insert(key.to_vec(), place);
        self.bytes += key.len() + KEY_EXTRA_BYTES;
        while self.bytes > self.bytes_max && self.places.len() > 1 {
            let last = self.places.pop_last().expect("there are two");
            self.bytes -= last.0.len() + KEY_EXTRA_BYTES;
            self.is_cut = true;
        }
    }
}

impl Hash {
    pub(super) fn fold_sorted(
        &mut self,
        from: &[u8],
        to: &[u8],
        what: What,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        self.fold_in(KEYS_BYTES_MAX, from, to, what, visit)
    }

    /// With so much room for the keys of a pass.
    pub(super) fn fold_in(
        &mut self,
        bytes_max: usize,
        from: &[u8],
        to: &[u8],
        what: What,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let is_in = |key: &[u8]| {
                key >= from
                    && (to.is_empty() || key < to)
                    && after.as_ref().is_none_or(|after| key > &after[..])
            };
            let keys = self.keys(bytes_max, &is_in)?;
            for (key, &place) in &keys.places {
                let Object { head, value } = match what {
                    What::Heads => Object { head: self.read_head(key, place)?, value: Bytes::new() },
                    What::Objects => self.read(key, place)?,
                };
                if visit(Item { key, head: &head, value: &value }).is_break() {
                    return Ok(());
                }
            }
            if !keys.is_cut {
                return Ok(());
            }
            after = keys.places.into_iter().next_back().map(|(key, _)| key);
        }
    }

    /// The first of the keys that are in a range.
    fn keys(&mut self, bytes_max: usize, is_in: &dyn Fn(&[u8]) -> bool) -> Result<Keys, Error> {
        let mut keys = Keys { places: BTreeMap::new(), bytes: 0, bytes_max, is_cut: false };
        for number in 0..self.blocks.len() as u32 {
            if self.blocks[number as usize].live_bytes == 0 {
                continue;
            }
            let Some(life) = self.life_of(number) else { continue };
            let mut bytes = self.read_block(number)?;
            let is_newest = self.blocks[number as usize].state == State::Newest;
            if let Some(newest) = self.newest.filter(|_| is_newest) {
                // What a failed write has left behind it is none of the log.
                bytes.truncate(newest.len as usize);
            }
            let content = life.read(&bytes, false);
            let is_whole = match self.newest {
                Some(newest) if is_newest => newest.len == content.end,
                _ => content.next.is_some(),
            };
            if !is_whole {
                return Err(damaged(number, content.end, "records that should be here"));
            }
            for (offset, record) in content.records {
                if record.kind == Kind::Put && is_in(record.key) {
                    let place = Place { block: number, offset, len: padded(record.stored_len()) as u32 };
                    if self.place(record.key) == Some(place) {
                        keys.add(record.key, place);
                    }
                }
            }
        }
        Ok(keys)
    }
}
