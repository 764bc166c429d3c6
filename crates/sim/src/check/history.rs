//! All writes that a node was asked for, and what became of each as far as it has told.

use super::siblings::Shown;
use base::Monotonic;
use bytes::Bytes;
use kv::Bucket;
use object::{Context, Dot};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The bucket in which concurrent writes stay beside each other.
pub const SIBLINGS_BUCKET: &[u8] = b"siblings";
/// The bucket in which the last write stays.
pub const NEWEST_BUCKET: &[u8] = b"newest";
/// The bucket in which a write replaces what is there unread.
pub const LAST_WRITE_BUCKET: &[u8] = b"last-write";
/// The bucket of which keys are meant to be written once, and its type.
pub const ONCE_BUCKET: &[u8] = b"once";
/// The type of that bucket.
pub const ONCE_TYPE: &[u8] = b"once";
/// The bucket whose properties change.
pub const PROPS_BUCKET: &[u8] = b"props";
/// Numbers of writes begin above the default of the property that carries them.
pub const NUMBERS_FROM: u64 = 1000;

/// Whether a property shows a write, and not its default.
pub(super) fn is_props_number(number: u64) -> bool {
    number >= NUMBERS_FROM
}

/// A point in the order of what passes the node's boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(u64);

/// What is written: a key of a bucket, or a bucket's properties.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyName {
    bucket: Bytes,
    key: Option<Bytes>,
}

impl KeyName {
    /// A key.
    pub fn of(bucket: &Bucket, key: &Bytes) -> KeyName {
        KeyName { bucket: bucket.name.clone(), key: Some(key.clone()) }
    }

    /// A bucket's properties.
    pub fn props(bucket: &Bucket) -> KeyName {
        KeyName { bucket: bucket.name.clone(), key: None }
    }

    /// The bucket's name.
    pub fn bucket(&self) -> &Bytes {
        &self.bucket
    }

    /// The key; of a bucket's properties, nothing.
    pub fn key(&self) -> &[u8] {
        self.key.as_deref().unwrap_or_default()
    }

    /// Whether it is a bucket's properties.
    pub fn is_props(&self) -> bool {
        self.key.is_none()
    }

    /// Whether concurrent writes stay beside each other.
    pub fn has_siblings(&self) -> bool {
        self.key.is_some() && self.bucket == SIBLINGS_BUCKET
    }

    /// Whether all writes are events of one actor, which the clocks of the nodes that take them order.
    pub fn is_of_clocks(&self) -> bool {
        self.bucket == ONCE_BUCKET
    }

    /// Whether a version remembers all that came before it: not where a write replaces what is there unread.
    pub fn has_memory(&self) -> bool {
        self.bucket != LAST_WRITE_BUCKET
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.bucket.escape_ascii())?;
        self.key.iter().try_for_each(|key| write!(f, "{}", key.escape_ascii()))
    }
}

/// A kind of write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of the value with this number.
    Put(u64),
    /// Of nothing.
    Delete,
}

/// Since when something is known for certain to be there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) at: Moment,
    time: Monotonic,
}

/// A write that reached the node.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) kind: Kind,
    pub(super) context: Option<Context>,
    pub(super) started: Moment,
    /// When it had taken effect or never will.
    pub(super) ended: Option<Moment>,
    pub(super) acknowledged: Option<Known>,
    /// It was refused, and so never takes effect.
    pub(super) refused: bool,
}

impl Write {
    /// Whether it takes away versions with this dot.
    pub(super) fn covers(&self, dot: Dot) -> bool {
        self.context.as_ref().is_some_and(|context| context.covers(dot))
    }

    /// Whether it takes away whatever it finds.
    pub(super) fn covers_all(&self) -> bool {
        self.kind == Kind::Delete && self.context.is_none()
    }

    pub(super) fn puts(&self, number: u64) -> bool {
        self.kind == Kind::Put(number)
    }
}

/// All writes of one key.
#[derive(Debug, Default)]
pub(super) struct KeyHistory {
    pub(super) writes: Vec<Write>,
    /// Since when each number has been shown.
    pub(super) observed: BTreeMap<u64, Known>,
    /// The dots that each number was shown with.
    pub(super) dots: BTreeMap<u64, BTreeSet<Dot>>,
}

impl KeyHistory {
    /// The writes of `number`: several if the network doubled the request.
    pub(super) fn of(&self, number: u64) -> impl Iterator<Item = &Write> {
        self.writes.iter().filter(move |write| write.puts(number))
    }

    /// Since when `write` is known to have taken effect.
    pub(super) fn known(&self, write: &Write) -> Option<Moment> {
        let shown = match write.kind {
            Kind::Put(number) if self.of(number).count() == 1 => self.observed.get(&number),
            _ => None,
        };
        [write.acknowledged.as_ref(), shown].into_iter().flatten().map(|known| known.at).min()
    }

    /// When `write` had taken effect at the latest, or never will.
    pub(super) fn ended(&self, write: &Write) -> Option<Moment> {
        [write.ended, self.known(write)].into_iter().flatten().min()
    }
}

/// The history of a node.
#[derive(Debug, Default)]
pub struct History {
    moments: u64,
    keys: BTreeMap<KeyName, KeyHistory>,
    /// Some death may have lost what was known before.
    lossy: bool,
}

impl History {
    /// The next moment.
    pub(super) fn moment(&mut self) -> Moment {
        self.moments += 1;
        Moment(self.moments)
    }

    /// Whether some death may have lost what was known before.
    pub(super) fn is_lossy(&self) -> bool {
        self.lossy
    }

    pub(super) fn key(&self, key: &KeyName) -> Option<&KeyHistory> {
        self.keys.get(key)
    }

    fn key_mut(&mut self, key: &KeyName) -> &mut KeyHistory {
        self.keys.entry(key.clone()).or_default()
    }

    /// A write has begun; the answer is its place among its key's.
    pub(super) fn begin(
        &mut self,
        key: &KeyName,
        kind: Kind,
        context: Option<Context>,
        started: Moment,
    ) -> usize {
        let writes = &mut self.key_mut(key).writes;
        writes.push(Write { kind, context, started, ended: None, acknowledged: None, refused: false });
        writes.len() - 1
    }

    pub(super) fn acknowledge(&mut self, key: &KeyName, at: usize, time: Monotonic) {
        let now = self.moment();
        let write = &mut self.key_mut(key).writes[at];
        write.ended = Some(now);
        write.acknowledged = Some(Known { at: now, time });
    }

    pub(super) fn refuse(&mut self, key: &KeyName, at: usize) {
        self.key_mut(key).writes[at].refused = true;
    }

    pub(super) fn remember_dots(&mut self, key: &KeyName, shown: &Shown) {
        let history = self.key_mut(key);
        for (dot, number) in &shown.numbers {
            history.dots.entry(*number).or_default().extend(*dot);
        }
    }

    /// A reader has been told.
    pub(super) fn observe(&mut self, key: &KeyName, shown: &Shown, time: Monotonic) {
        let known = Known { at: self.moment(), time };
        let history = self.key_mut(key);
        for (_, number) in &shown.numbers {
            history.observed.entry(*number).or_insert(known);
        }
    }

    /// What was under way has happened or never will; what became known after `lost_after` may be lost.
    pub(super) fn on_death(&mut self, lost_after: Option<Monotonic>) {
        let now = self.moment();
        self.lossy |= lost_after.is_some();
        let survives = |known: &Known| lost_after.is_none_or(|limit| known.time <= limit);
        for history in self.keys.values_mut() {
            for write in &mut history.writes {
                write.ended.get_or_insert(now);
                write.acknowledged = write.acknowledged.filter(survives);
            }
            history.observed.retain(|_, known| survives(known));
        }
    }
}
