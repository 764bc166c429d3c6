//! What every store of objects does.
//!
//! Seven methods, and two that are made of them. Not among them, on purpose: opening, which differs ([`Kind::open`](crate::Kind));
//! when a write is safe, which is said once, at opening, since some engines decide it there; how much room it takes, which the file
//! system says of all alike.

use crate::error::Error;
use bytes::Bytes;
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

/// A store of objects, which one owner has; each call returns when it is done.
pub trait Backend: Send {
    /// Applies a batch, all of it or nothing; of two writes of one key the later one counts. It returns when the batch is as
    /// safe as was asked for at opening.
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

    /// Tells of each key from `from` up to `to`, which is not among them, in order, as of when the fold began. An empty `to` is
    /// no end.
    fn fold(&mut self, from: &[u8], to: &[u8], what: What, visit: &mut Visit<'_>) -> Result<(), Error>;

    /// Stops; all that was written is safe then.
    fn close(self: Box<Self>) -> Result<(), Error>;
}
