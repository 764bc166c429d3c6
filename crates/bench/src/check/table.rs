//! The known state of each key: the table behind the rules of [`super`].
//!
//! Striped by a hash of the key, each stripe behind its own lock, held for a lookup at a time.

use super::Suspicion;
use crate::rng::mix;
use base::FastMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A key as a number: that of its bucket mixed with its own.
pub type Key = u64;

/// Locks: far more than threads, so that two rarely meet.
const STRIPES: usize = 1024;

/// Writes in doubt that are remembered of one key. With more, everything is allowed of it.
const DOUBTS_MAX: usize = 16;

/// What is known of one key.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The number of the last write that began.
    last: u32,
    /// All writes below it were certainly replaced.
    floor: u32,
    /// The first write under way since there was none.
    burst: u32,
    /// Writes under way.
    under_way: u32,
    /// The last delete that began; 0 for the time before all writes.
    last_delete: u32,
    /// Nothing may be found at any time: a delete is in doubt, or a loss was counted.
    nothing_is_right: bool,
    /// Too much is in doubt to know anything.
    unknown: bool,
    /// Suspicions for whose sake it is not written.
    frozen: u16,
    /// Losses of what should have been seen up to here were counted.
    lost_below: u32,
}

#[derive(Default)]
struct Stripe {
    entries: FastMap<Key, Entry>,
    /// Versions that may show at any time.
    doubts: FastMap<Key, Vec<u32>>,
}

/// The table.
pub struct Table {
    stripes: Box<[Mutex<Stripe>]>,
    /// Suspicions that freeze keys: hardly ever any.
    freezing: AtomicUsize,
    sample: u64,
    stripe_max: usize,
}

/// A write under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteTicket {
    /// The number that the value carries.
    pub sequence: u32,
    covers: u32,
    is_delete: bool,
    /// Whether the table knows of it.
    tracked: bool,
}

/// A read under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadTicket {
    floor: u32,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server said that it is done.
    Acknowledged,
    /// It may be done, now or later, or never.
    InDoubt,
    /// It was certainly not done, and will not be.
    NotDone,
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// The version that this write of this run made.
    Version(u32),
    /// Something from before this run.
    Earlier,
}

/// What a read was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Allowed.
    Right,
    /// Nothing is known of this key.
    NotCompared,
    /// Too old: to be read again.
    Suspect(Suspicion),
    /// A version that no write has had.
    Corrupt,
}

impl Table {
    /// A table of `keys_max` keys at most, of which only one in `sample` is looked at.
    pub fn new(keys_max: usize, sample: u64) -> Table {
        let stripes = (0..STRIPES).map(|_| Mutex::default()).collect();
        Table {
            stripes,
            freezing: AtomicUsize::new(0),
            sample: sample.max(1),
            stripe_max: keys_max.div_ceil(STRIPES),
        }
    }

    /// A write begins.
    pub fn begin_write(&self, key: Key, is_delete: bool) -> WriteTicket {
        let untracked = WriteTicket { sequence: 0, covers: 0, is_delete, tracked: false };
        if !self.is_sampled(key) {
            return untracked;
        }
        let mut stripe = self.stripe(key);
        if stripe.entries.len() >= self.stripe_max && !stripe.entries.contains_key(&key) {
            return untracked;
        }
        let entry = stripe.entries.entry(key).or_default();
        entry.last += 1;
        if entry.under_way == 0 {
            entry.burst = entry.last;
        }
        entry.under_way += 1;
        if is_delete {
            entry.last_delete = entry.last;
        }
        WriteTicket { sequence: entry.last, covers: entry.burst, is_delete, tracked: true }
    }

    /// A write has ended.
    pub fn end_write(&self, key: Key, ticket: WriteTicket, outcome: Outcome) {
        if !ticket.tracked {
            return;
        }
        let mut stripe = self.stripe(key);
        let Some(entry) = stripe.entries.get_mut(&key) else { return };
        entry.under_way -= 1;
        match outcome {
            Outcome::Acknowledged => entry.floor = entry.floor.max(ticket.covers),
            Outcome::InDoubt if ticket.is_delete => entry.nothing_is_right = true,
            Outcome::InDoubt => stripe.allow(key, ticket.sequence),
            Outcome::NotDone => {}
        }
    }

    /// A read begins.
    pub fn begin_read(&self, key: Key) -> ReadTicket {
        if !self.is_sampled(key) {
            return ReadTicket::default();
        }
        ReadTicket { floor: self.stripe(key).entries.get(&key).map_or(0, |entry| entry.floor) }
    }

    /// A read has ended.
    pub fn end_read(&self, key: Key, ticket: ReadTicket, found: Found) -> Judgement {
        if !self.is_sampled(key) {
            return Judgement::NotCompared;
        }
        let stripe = self.stripe(key);
        let Some(entry) = stripe.entries.get(&key) else {
            // Where there is room for every key, this one has not been written in this run.
            return match found {
                _ if stripe.entries.len() >= self.stripe_max => Judgement::NotCompared,
                Found::Version(_) => Judgement::Corrupt,
                Found::Nothing | Found::Earlier => Judgement::Right,
            };
        };
        let right = match found {
            _ if entry.unknown => return Judgement::NotCompared,
            Found::Version(version) if version == 0 || version > entry.last => return Judgement::Corrupt,
            Found::Version(version) => version >= ticket.floor || stripe.is_doubtful(key, version),
            Found::Earlier => ticket.floor == 0 || stripe.is_doubtful(key, 0),
            Found::Nothing => entry.last_delete >= ticket.floor || entry.nothing_is_right,
        };
        if right {
            return Judgement::Right;
        }
        let before_delete = match found {
            Found::Version(version) => version < entry.last_delete,
            Found::Earlier => entry.last_delete > 0,
            Found::Nothing => false,
        };
        Judgement::Suspect(Suspicion {
            key,
            found,
            floor: ticket.floor,
            from_before_delete: before_delete,
            newest: entry.last,
        })
    }

    /// A key is not to be written until [`Table::thaw`].
    pub fn freeze(&self, key: Key) {
        let mut stripe = self.stripe(key);
        let entry = stripe.entries.entry(key).or_default();
        entry.frozen = entry.frozen.saturating_add(1);
        self.freezing.fetch_add(1, Ordering::Relaxed);
    }

    /// A suspicion that froze a key has been judged.
    pub fn thaw(&self, key: Key) {
        let mut stripe = self.stripe(key);
        let entry = stripe.entries.entry(key).or_default();
        entry.frozen = entry.frozen.saturating_sub(1);
        self.freezing.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a key is not to be written.
    pub fn is_frozen(&self, key: Key) -> bool {
        let any = self.freezing.load(Ordering::Relaxed) > 0;
        any && self.stripe(key).entries.get(&key).is_some_and(|entry| entry.frozen > 0)
    }

    /// Counts a loss of what should have been seen up to `floor`; false if it has been.
    pub fn count_loss(&self, key: Key, floor: u32) -> bool {
        let mut stripe = self.stripe(key);
        let entry = stripe.entries.entry(key).or_default();
        let is_new = floor > entry.lost_below;
        entry.lost_below = floor.max(entry.lost_below);
        is_new
    }

    /// Allows what is wrong and will stay so; false if it was allowed already.
    pub fn tolerate(&self, key: Key, found: Found) -> bool {
        let mut stripe = self.stripe(key);
        match found {
            Found::Nothing => {
                let entry = stripe.entries.entry(key).or_default();
                !std::mem::replace(&mut entry.nothing_is_right, true)
            }
            Found::Version(version) => stripe.newly_allow(key, version),
            Found::Earlier => stripe.newly_allow(key, 0),
        }
    }

    /// Some keys that have been written: at most `count`, spread over the stripes.
    #[cfg(test)]
    pub fn written(&self, count: usize) -> Vec<Key> {
        let each = count.div_ceil(STRIPES);
        let mut keys: Vec<Key> = (0..STRIPES)
            .flat_map(|at| self.lock(at).entries.keys().copied().take(each).collect::<Vec<_>>())
            .collect();
        keys.truncate(count);
        keys
    }

    fn is_sampled(&self, key: Key) -> bool {
        self.sample == 1 || mix(key).is_multiple_of(self.sample)
    }

    fn stripe(&self, key: Key) -> MutexGuard<'_, Stripe> {
        self.lock((mix(key) >> 48) as usize % STRIPES)
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, Stripe> {
        // A thread that panicked ends the run; what it held is as it was.
        self.stripes[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stripe {
    fn is_doubtful(&self, key: Key, version: u32) -> bool {
        self.doubts.get(&key).is_some_and(|doubts| doubts.contains(&version))
    }

    fn allow(&mut self, key: Key, version: u32) {
        self.newly_allow(key, version);
    }

    fn newly_allow(&mut self, key: Key, version: u32) -> bool {
        let doubts = self.doubts.entry(key).or_default();
        if doubts.contains(&version) {
            return false;
        }
        doubts.push(version);
        if doubts.len() > DOUBTS_MAX {
            self.doubts.remove(&key);
            self.entries.entry(key).or_default().unknown = true;
        }
        true
    }
}
