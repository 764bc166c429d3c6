//! The names of keys and of bucket properties, and the kinds of writes to them.

use bytes::Bytes;
use kv::Bucket;
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
