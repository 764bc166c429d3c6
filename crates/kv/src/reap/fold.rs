//! Folding a key's context by the rounds of a reaping: the entries that say nothing any more go at all replicas.
//!
//! Where a tombstone is reaped it goes; where a context is folded the versions stay, without some entries. What makes
//! it safe is the same: after the second round no disk, hint or frame has a write that the proposed version has
//! overwritten, and graves keep late ones away. [`object::Overwritten`] says which entries go then.
//!
//! * *Proposal*: a primary proposes the head that it has ([`Reap::of_context`](super::Reap::of_context)).
//! * *Promise*: a primary agrees if it has seen all that the proposed version has, and has nothing of what that has
//!   overwritten. So a key that is written all the time is folded too. A node that is no primary removes a version that
//!   the proposed one covers.
//! * *Grave*: it remembers the proposed head. What comes loses its overwritten siblings; if no sibling is left, it is
//!   dropped: all primaries have something newer.
//! * *Last round*: each node removes the entries from what it has by then. From then on what comes loses these entries
//!   too, so that a late frame does not bring them back.
//!
//! A program that does not know of this refuses to promise what is no tombstone, so a cluster with such a member folds
//! nothing.

use bytes::Bytes;
use object::{Object, Overwritten};
use std::sync::Arc;

use crate::error::Error;
use crate::stored::Stored;
use crate::stored_head::{damaged, view};
use crate::stored_head::{decode, encode};

/// More entries than this in a context are a reason to fold it: far more than a key's replicas make in a day, and some
/// 250 bytes.
pub const FOLD_ACTORS: usize = 24;

/// The effect of a grave on arriving versions.
#[derive(Clone, Debug)]
pub(crate) struct FoldGrave {
    over: Arc<Overwritten>,
    /// Whether all have promised, so that entries go too.
    is_closed: bool,
}

/// A version as a grave leaves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// As it is.
    Same,
    /// This in its place.
    Instead(Bytes, Bytes),
    /// Nothing of it is left.
    Nothing,
}

impl FoldGrave {
    /// That of a proposed head; `None` if it is a tombstone, or no head.
    pub fn of(head: &Bytes) -> Option<FoldGrave> {
        let is_live = view(head).is_ok_and(|head| !head.is_tombstone());
        let head = decode(head).ok().filter(|_| is_live)?;
        Some(FoldGrave { over: Arc::new(Overwritten::by(&head)), is_closed: false })
    }

    /// Whether all have promised.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// All have promised.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// The rest of a version.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is none.
    pub fn clear(&self, head: &Bytes, value: &Bytes) -> Result<Cleared, Error> {
        if base::planted!(FoldedLateStored) {
            return Ok(Cleared::Same);
        }
        let decoded = decode(head)?;
        if !self.over.is_in(&decoded) {
            let folded = self.folded(&decoded);
            return Ok(folded.map_or(Cleared::Same, |head| Cleared::Instead(head, value.clone())));
        }
        let version = Object::new(decoded, value.clone()).map_err(damaged)?;
        let Some(left) = self.over.left_of(&version) else { return Ok(Cleared::Nothing) };
        let (left, value) = left.into_parts();
        Ok(Cleared::Instead(self.folded(&left).unwrap_or_else(|| encode(&left)), value))
    }

    /// What is left of a reply to a read, whose value may not have come with it.
    pub fn clear_reply(&self, stored: Stored) -> Result<Option<Stored>, Error> {
        if let Some(value) = &stored.value {
            return Ok(match self.clear(&stored.head, value)? {
                Cleared::Same => Some(stored),
                Cleared::Instead(head, value) => Some(Stored { head, value: Some(value) }),
                Cleared::Nothing => None,
            });
        }
        let decoded = decode(&stored.head)?;
        if !self.over.is_in(&decoded) {
            let head = self.folded(&decoded).unwrap_or(stored.head);
            return Ok(Some(Stored { head, value: None }));
        }
        let left = self.over.left_of_head(&decoded);
        Ok(left.map(|left| Stored { head: self.folded(&left).unwrap_or_else(|| encode(&left)), value: None }))
    }

    fn folded(&self, head: &object::Head) -> Option<Bytes> {
        self.over.folded(head).filter(|_| self.is_closed).map(|head| encode(&head))
    }
}

/// How a node that is asked to promise stands to the proposed head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has seen all of the proposed version, and has none of the versions that this has overwritten.
    Clean,
    /// It has something that the proposed version covers.
    Behind,
    /// Neither.
    Apart,
}

impl Standing {
    /// Of a stored head to a proposed one.
    pub fn of(stored: &Bytes, proposed: &Bytes) -> Result<Standing, Error> {
        let (stored, proposed) = (decode(stored)?, decode(proposed)?);
        Ok(if Overwritten::by(&proposed).is_left_out_by(&stored) {
            Standing::Clean
        } else if proposed.context().descends(stored.context()) {
            Standing::Behind
        } else {
            Standing::Apart
        })
    }
}

/// A stored head without the entries that go with a proposed one; `None` if none goes.
pub(super) fn folded(stored: &Bytes, proposed: &Bytes) -> Result<Option<Bytes>, Error> {
    let (stored, proposed) = (decode(stored)?, decode(proposed)?);
    Ok(Overwritten::by(&proposed).folded(&stored).map(|head| encode(&head)))
}

/// Whether a head has entries that may go.
pub(super) fn is_foldable(head: &Bytes) -> bool {
    let is_live = view(head).is_ok_and(|head| !head.is_tombstone());
    is_live && decode(head).is_ok_and(|head| Overwritten::by(&head).entries() > 0)
}
