//! How a coordinator and the shard loop speak.
//!
//! A coordinator is stepped with what happened ([`Event`]) and answers what to do next ([`Action`]). It starts
//! with [`Event::Start`] and ends with [`Action::Reply`]; between them each `Read` is answered by one
//! `Event::Read` and each `Write` by one `Event::Written`. The loop keeps other requests for the same key
//! waiting from a coordinator's first read to its reply where it may write, so what was read is still there
//! when the write arrives.

use base::Wall;
use bytes::Bytes;
use object::Dot;

use crate::error::Error;
use crate::limits::Limits;
use crate::props::BucketProps;
use crate::response::Response;

/// What a coordinator asks of the shard loop.
#[derive(Debug)]
pub enum Action {
    /// Look the key up.
    Read {
        /// How much of it is needed.
        want: Want,
    },
    /// Append this version of the key, and say when it is as durable as configured.
    Write {
        /// The encoded head.
        head: Vec<u8>,
        /// The values of all siblings, one after the other.
        value: Bytes,
    },
    /// The request is over.
    Reply(Result<Response, Error>),
}

/// How much of an object a read fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The head. A value that comes for free (stored in line) may come with it.
    Head,
    /// The head and the value.
    Value,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The request came up.
    Start,
    /// The answer to a read; `None` if the store has nothing under the key.
    Read(Result<Option<Stored>, Error>),
    /// The answer to a write.
    Written(Result<(), Error>),
}

/// A version of a key as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The encoded head.
    pub head: Bytes,
    /// The values, if they were asked for or came for free.
    pub value: Option<Bytes>,
}

/// What a coordinator may use during one step.
pub struct Turn<'a> {
    /// The wall clock, for last-modified stamps.
    pub wall: Wall,
    /// The next dot of this store's actor: never given twice, also across crashes.
    pub next_dot: &'a mut dyn FnMut() -> Result<Dot, Error>,
    /// The bucket's properties.
    pub props: &'a BucketProps,
    /// The limits in force.
    pub limits: &'a Limits,
}
