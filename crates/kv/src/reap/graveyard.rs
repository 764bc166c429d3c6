//! Tombstones that a shard has promised to reap, or has reaped.
//!
//! Invariants: a grave is kept for [`Graveyard::new`]'s time at least after its last promise, counted while the process
//! is awake: a pause counts as a second at most, so that whatever waited for the process while it stood still is
//! taken first. There are [`GRAVES_MAX`] graves of [`GRAVE_BYTES_MAX`] in all at most; beyond it nothing is promised.

use base::Monotonic;
use bytes::Bytes;
use object::Object;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::fold::{Cleared, FoldGrave};
use crate::error::Error;
use crate::stored_head::{damaged, view};
use crate::stored_head::{decode, encode};

/// Graves of one shard: a thousand deletes a second, each for two minutes.
pub const GRAVES_MAX: usize = 131_072;

/// Bytes of their keys and tombstones.
pub const GRAVE_BYTES_MAX: usize = 32 << 20;

/// The most that one tick counts.
const AWAKE_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Grave {
    /// The encoded head.
    tombstone: Bytes,
    /// If it is no tombstone, but the head of a version whose context is folded: what that does to others.
    fold: Option<FoldGrave>,
    /// Whether all have promised, so that the tombstone need not come back either.
    reaped: bool,
    /// When it was promised last.
    since: Duration,
}

impl Grave {
    /// Asserts that the grave and its fold agree.
    fn invariants(&self) {
        let agrees = |fold: &FoldGrave| fold.is_closed() == self.reaped;
        debug_assert!(self.fold.as_ref().is_none_or(agrees), "a fold closes when all have promised");
    }
}

/// The graves of one shard.
#[derive(Debug)]
pub struct Graveyard {
    /// Keyed by what clients choose, so not hashed.
    graves: BTreeMap<Bytes, Grave>,
    /// By the time of their promise; some were promised again since.
    order: VecDeque<(Duration, Bytes)>,
    bytes: usize,
    keep_for: Duration,
    /// How long the process has been awake.
    awake: Duration,
    ticked: Option<Monotonic>,
}

impl Graveyard {
    /// One that keeps each grave for so long.
    pub fn new(keep_for: Duration) -> Graveyard {
        Graveyard {
            graves: BTreeMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            keep_for,
            awake: Duration::ZERO,
            ticked: None,
        }
    }

    /// Asserts that the graves, their order and their bytes fit each other.
    pub fn invariants(&self) {
        debug_assert!(self.graves.len() <= self.order.len(), "each grave has its place in the order");
        debug_assert!(self.order.len() <= GRAVES_MAX, "there are not more graves than may be promised");
        debug_assert!(self.bytes <= GRAVE_BYTES_MAX, "graves are not larger than may be promised");
        debug_assert!(!self.graves.is_empty() || self.bytes == 0, "without a grave no bytes are counted");
        let (first, last) = (self.order.front(), self.order.back());
        let since = |it: Option<&(Duration, Bytes)>| it.map_or(Duration::ZERO, |(since, _)| *since);
        debug_assert!(since(first) <= since(last), "the grave that was promised first expires first");
        debug_assert!(since(last) <= self.awake, "no grave was promised later than now");
    }

    /// How many graves there are.
    pub fn len(&self) -> usize {
        self.graves.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.graves.is_empty()
    }

    /// The place of a key.
    pub fn plot<'a>(&'a mut self, key: &'a Bytes) -> Plot<'a> {
        Plot { yard: self, key }
    }

    /// Time passes.
    pub fn tick(&mut self, now: Monotonic) {
        let passed = self.ticked.map_or(Duration::ZERO, |before| now.since(before));
        self.ticked = Some(now);
        self.awake += passed.min(AWAKE_MAX);

        if cfg!(debug_assertions) {
            self.invariants();
        }
    }

    /// Whether some grave has been kept for long enough.
    pub fn has_due(&self) -> bool {
        self.order.front().is_some_and(|(since, _)| self.awake.saturating_sub(*since) >= self.keep_for)
    }

    /// Forgets the graves that have been kept for long enough, but for those of keys that `is_busy`: work remembers
    /// what the tombstone covers, perhaps. Those are kept as long again.
    pub fn expire(&mut self, is_busy: impl Fn(&Bytes) -> bool) {
        while self.has_due()
            && let Some((since, key)) = self.order.pop_front()
        {
            let Some(grave) = self.graves.get_mut(&key).filter(|grave| grave.since == since) else {
                continue;
            };
            if is_busy(&key) {
                grave.since = self.awake;
                self.order.push_back((self.awake, key));
            } else if let Some(grave) = self.graves.remove(&key) {
                self.bytes -= weight(&key, &grave.tombstone);
            }
        }

        if cfg!(debug_assertions) {
            self.invariants();
        }
    }

    /// A version of the key that is about to be sent: joined with the key's tombstone, or without what was overwritten.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is none.
    pub fn clear(&self, key: &Bytes, head: &Bytes, value: &Bytes) -> Result<Cleared, Error> {
        match self.graves.get(key) {
            Some(Grave { fold: Some(fold), .. }) => fold.clear(head, value),
            Some(grave) if has_deleted(&grave.tombstone, head)? => {
                let (head, value) = joined(&grave.tombstone, head, value)?;
                Ok(Cleared::Instead(head, value))
            }
            _ => Ok(Cleared::Same),
        }
    }

    fn promise(&mut self, key: &Bytes, tombstone: &Bytes) -> bool {
        if base::planted!(ReapWithHintOutstanding) {
            return true;
        }
        let added = weight(key, tombstone);
        let before = self.graves.get(key);
        let has_seen = |grave: &Grave| match (view(tombstone), view(&grave.tombstone)) {
            (Ok(new), Ok(old)) => new.context().to_context().descends(&old.context().to_context()),
            _ => false,
        };
        let fits = self.order.len() < GRAVES_MAX && self.bytes + added <= GRAVE_BYTES_MAX;
        if !fits || before.is_some_and(|grave| !has_seen(grave)) {
            return false;
        }
        let reaped = before.is_some_and(|grave| grave.reaped && grave.tombstone == *tombstone);
        let mut fold = FoldGrave::of(tombstone);
        fold.iter_mut().filter(|_| reaped).for_each(FoldGrave::close);
        let grave = Grave { tombstone: tombstone.clone(), fold, reaped, since: self.awake };
        grave.invariants();
        if let Some(before) = self.graves.insert(key.clone(), grave) {
            self.bytes -= weight(key, &before.tombstone);
        }
        self.bytes += added;
        self.order.push_back((self.awake, key.clone()));

        if cfg!(debug_assertions) {
            self.invariants();
        }
        true
    }
}

/// The place of one key in the graveyard, empty mostly.
#[derive(Debug)]
pub struct Plot<'a> {
    yard: &'a mut Graveyard,
    key: &'a Bytes,
}

impl Plot<'_> {
    fn grave(&self) -> Option<&Grave> {
        if self.yard.graves.is_empty() { None } else { self.yard.graves.get(self.key) }
    }

    /// Whether nothing is remembered of any key.
    pub(crate) fn is_in_empty_yard(&self) -> bool {
        self.yard.graves.is_empty()
    }

    /// The tombstone that is remembered.
    pub(crate) fn tombstone(&self) -> Option<&Bytes> {
        self.grave().filter(|grave| grave.fold.is_none()).map(|grave| &grave.tombstone)
    }

    /// The head that was promised last: a tombstone's, or that of a version whose context is folded.
    pub(crate) fn promised(&self) -> Option<&Bytes> {
        self.grave().map(|grave| &grave.tombstone)
    }

    /// What is remembered of a fold.
    pub(crate) fn fold(&self) -> Option<&FoldGrave> {
        self.grave()?.fold.as_ref()
    }

    /// Whether exactly this tombstone was reaped.
    pub(crate) fn is_reaped(&self, tombstone: &Bytes) -> bool {
        self.grave().is_some_and(|grave| grave.reaped && grave.tombstone == *tombstone)
    }

    /// Remembers a tombstone; false if there is no room, or another one that this has not seen.
    pub(crate) fn promise(&mut self, tombstone: &Bytes) -> bool {
        self.yard.promise(self.key, tombstone)
    }

    /// All have promised.
    pub(crate) fn close(&mut self) {
        if let Some(grave) = self.yard.graves.get_mut(self.key) {
            grave.reaped = true;
            grave.fold.iter_mut().for_each(FoldGrave::close);
            grave.invariants();
        }
    }
}

fn weight(key: &Bytes, tombstone: &Bytes) -> usize {
    key.len() + tombstone.len()
}

/// Whether a version has something that was deleted by a tombstone that it has not seen.
pub(crate) fn has_deleted(tombstone: &Bytes, head: &Bytes) -> Result<bool, Error> {
    if base::planted!(GraveyardIgnored) {
        return Ok(false);
    }
    let (seen, head) = (view(tombstone)?.context().to_context(), view(head)?);
    Ok(!head.context().to_context().descends(&seen)
        && head.siblings().any(|sibling| seen.covers(sibling.dot)))
}

/// A version joined with a tombstone.
pub(crate) fn joined(tombstone: &Bytes, head: &Bytes, value: &Bytes) -> Result<(Bytes, Bytes), Error> {
    let tombstone = Object::new(decode(tombstone)?, Bytes::new()).map_err(damaged)?;
    let version = Object::new(decode(head)?, value.clone()).map_err(damaged)?;
    let (head, values) = object::merge(&version, &tombstone).map_err(damaged)?.into_parts();
    Ok((encode(&head), values))
}
