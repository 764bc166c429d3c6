//! Versions of consistent objects, as heads and contexts say them.

use bytes::Bytes;
use object::{Actor, Context, Dot, Metadata, Object, Policy, Put};
use strong::group::{Condition, Version};

use crate::error::Error;
use crate::stored_head::{decode, encode, view};

/// The actor of all versions of consistent objects. Stores draw theirs from 64 random bits.
pub const ACTOR: Actor = Actor::CONSISTENT;

/// A version that no entry has, since indexes start at 1: a condition on it never holds.
pub(super) const NEVER: Version = Version(0);

/// A stored object of a consistent type, as the leader knows it before it decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Current {
    /// Its version; none if the key is absent or deleted.
    pub version: Option<Version>,
}

impl Current {
    /// Of the stored head, if there is one, in a group of an epoch.
    ///
    /// # Errors
    /// Those of [`version_of`].
    pub fn of(head: Option<&[u8]>, epoch: u16) -> Result<Current, Error> {
        let version = head.map(version_of).transpose()?.flatten();
        Ok(Current { version: version.map(|version| version.in_epoch(epoch)) })
    }
}

/// A stored head as clients see it in an epoch: under the epoch's name of its version.
pub(super) fn head_in_epoch(head: Bytes, stored: Version, epoch: u16) -> Result<Bytes, Error> {
    let version = stored.in_epoch(epoch);
    match version == stored {
        true => Ok(head),
        false => Ok(encode(&decode(&head)?.with_dot(Dot::new(ACTOR, version.0)))),
    }
}

/// The version of a stored head; none for a tombstone.
///
/// # Errors
/// [`Error::Damaged`] for bytes that are no head of one sibling of [`ACTOR`] with its context.
pub fn version_of(head: &[u8]) -> Result<Option<Version>, Error> {
    read_head(head).map(|(version, is_deleted)| (!is_deleted).then_some(version))
}

/// The version of a stored head, also of a tombstone.
///
/// # Errors
/// Those of [`version_of`].
pub fn stored_version(head: &[u8]) -> Result<Version, Error> {
    read_head(head).map(|(version, _)| version)
}

/// The version of a head, and whether it is a tombstone.
fn read_head(head: &[u8]) -> Result<(Version, bool), Error> {
    let view = view(head)?;
    let mut siblings = view.siblings();
    let (Some(only), None) = (siblings.next(), siblings.next()) else { return Err(misshapen()) };
    let version = version_in(view.context().iter()).ok_or_else(misshapen)?;
    if only.dot != Dot::new(ACTOR, version.0) || only.expires_ms.is_some() {
        return Err(misshapen());
    }
    Ok((version, only.deleted))
}

fn misshapen() -> Error {
    Error::Damaged("malformed head: it is not of a consistent object".to_owned())
}

/// The version that a context names, if it names one of a consistent object and nothing else.
pub(super) fn version_in(mut entries: impl Iterator<Item = (Actor, u64)>) -> Option<Version> {
    match (entries.next(), entries.next()) {
        (Some((ACTOR, counter)), None) => Some(Version(counter)),
        _ => None,
    }
}

/// The condition that the key has what a client has seen. A context that names other actors is of another type: what it
/// names is never there.
pub(super) fn as_seen(context: &Context) -> Condition {
    if base::planted!(ForeignContextIgnored) && version_in(context.entries().iter().copied()).is_none() {
        return Condition::None;
    }
    Condition::Is(version_in(context.entries().iter().copied()).unwrap_or(NEVER))
}

/// The head of a deleted key: what each replica stores for a deletion of this version.
///
/// # Panics
/// If no entry has the version.
pub fn tombstone(version: Version) -> Bytes {
    stored(version, Metadata { deleted: true, ..Metadata::default() }, Bytes::new()).0
}

/// Head and value of a version: one sibling under its own context.
pub(super) fn stored(version: Version, metadata: Metadata, value: Bytes) -> (Bytes, Bytes) {
    let put = Put { context: None, metadata, value };
    let object: Object = object::update(None, put, Dot::new(ACTOR, version.0), Policy::LastWriteWins)
        .expect("nothing is stored and nothing was seen, so the dot is new");
    let (head, value) = object.into_parts();
    (encode(&head), value)
}
