//! What every store of objects does.
//!
//! Ten methods, of which two are made of another, one has an answer that does for most, and two are capabilities that
//! most do without: other threads get handles of the same store ([`Backend::another`]), or read what its owner writes
//! ([`Backend::reader`]). Not among them, on purpose: opening, which differs ([`Kind::open`](crate::Kind)); when a
//! write is safe, which is said once, at opening, since some engines decide it there; how much room it takes, which the
//! file system says of all alike.

use crate::error::Error;
use bytes::Bytes;
use engine::entry::{HEAD_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use std::ops::ControlFlow;

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// What can be had without the value.
    pub head: Bytes,
    /// The value.
    pub value: Bytes,
}

/// A part of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<'a> {
    /// Sets a key's head and value.
    Put {
        /// The key.
        key: &'a [u8],
        /// The head.
        head: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// Removes a key, whether it is there or not.
    Delete {
        /// The key.
        key: &'a [u8],
    },
}

impl<'a> Write<'a> {
    /// The key.
    pub fn key(&self) -> &'a [u8] {
        match self {
            Write::Put { key, .. } | Write::Delete { key } => key,
        }
    }
}

/// What a fold tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Keys and heads.
    Heads,
    /// Values, too.
    Objects,
}

/// A key that a fold has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its head.
    pub head: &'a [u8],
    /// Its value; empty where the fold is over heads.
    pub value: &'a [u8],
}

/// What is told of each key of a fold, and says whether it goes on.
pub type Visit<'v> = dyn FnMut(Item<'_>) -> ControlFlow<()> + 'v;

/// What a store takes at most. A batch that keeps to it is not refused for its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a head.
    pub head_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Bytes of a batch: of its keys, heads and values, and [`Limits::write_bytes`] for each of its writes.
    pub batch_bytes: usize,
    /// What a write of a batch counts beside what it has.
    pub write_bytes: usize,
}

/// As our engine's, and a batch that memory has room for.
impl Default for Limits {
    fn default() -> Limits {
        Limits {
            key_bytes: KEY_BYTES_MAX,
            head_bytes: HEAD_BYTES_MAX,
            value_bytes: VALUE_BYTES_MAX,
            batch_bytes: 1 << 30,
            write_bytes: 64,
        }
    }
}

impl Limits {
    /// What a write counts in its batch.
    ///
    /// # Errors
    /// [`Error::TooLarge`]: it is beyond a limit by itself.
    pub fn check(&self, write: &Write<'_>) -> Result<usize, Error> {
        let (head, value) = match *write {
            Write::Put { head, value, .. } => (head.len(), value.len()),
            Write::Delete { .. } => (0, 0),
        };
        Error::check_len("a key", write.key().len(), self.key_bytes)?;
        Error::check_len("a head", head, self.head_bytes)?;
        Error::check_len("a value", value, self.value_bytes)?;
        let bytes = self.write_bytes + write.key().len() + head + value;
        Error::check_len("a batch", bytes, self.batch_bytes)?;
        Ok(bytes)
    }
}

/// A store of objects, which one owner has; each call returns when it is done.
pub trait Backend: Send {
    /// Applies a batch, all of it or nothing; of two writes of one key the later one counts. It returns when the batch
    /// is as safe as was asked for at opening.
    fn write(&mut self, batch: &[Write<'_>]) -> Result<(), Error>;

    /// Sets a key's head and value.
    fn put(&mut self, key: &[u8], head: &[u8], value: &[u8]) -> Result<(), Error> {
        self.write(&[Write::Put { key, head, value }])
    }

    /// Removes a key, whether it is there or not.
    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.write(&[Write::Delete { key }])
    }

    /// A key's head and value.
    fn get(&mut self, key: &[u8]) -> Result<Option<Object>, Error>;

    /// A key's head.
    fn head(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error>;

    /// Tells of each key from `from` up to `to`, which is not among them, in order, as of when the fold began. An empty
    /// `to` is no end.
    fn fold(&mut self, from: &[u8], to: &[u8], what: What, visit: &mut Visit<'_>) -> Result<(), Error>;

    /// What it takes at most.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// A handle of the same store for another thread: the engine sees to what they do at once. `None` of a store that
    /// has one owner.
    fn another(&self) -> Option<Box<dyn Backend>> {
        None
    }

    /// A handle that reads on another thread what this one has written. `None` where only the owner reads.
    fn reader(&mut self) -> Option<Box<dyn Lookup>> {
        None
    }

    /// Stops; all that was written is safe then. Other handles of the store are gone before.
    fn close(self: Box<Self>) -> Result<(), Error>;
}

/// Reads a store that another thread owns.
pub trait Lookup: Send {
    /// A key's head and value.
    fn get(&mut self, key: &[u8]) -> Result<Option<Object>, Error>;

    /// A key's head.
    fn head(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error>;
}
