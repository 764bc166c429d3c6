//! A write at one replica.
//!
//! 1. [`plan_update`] looks at the stored head only and says which of its siblings stay: those the put's context
//!    does not cover. The new context is the stored one, the put's and the new dot, joined.
//! 2. The caller fetches the values of the siblings that stay. In the common case none does.
//! 3. [`UpdatePlan::finish`] makes the object to store.
//!
//! A sibling goes only when a write that stays came after it: the put had seen it, or was made where it lay. Under
//! [`Policy::Newest`] the new write replaces all that is stored, unless something there, written at another store,
//! is newer: then it lies beside that, and replaces only what its own store wrote before. To drop a sibling for its
//! age alone would be a claim that no history bears out: two replicas can make such claims against each other, and
//! then exchange them forever. So [`crate::merge`] need not know the policy, an object holds at most one sibling of
//! each actor, and readers of such a bucket are shown [`Head::newest`].
//!
//! A delete is the put of a tombstone. A put without a context over a key that is absent to readers replaces the
//! tombstones there ([`Put::see_absent`]): a client that deletes a key and stores it anew has one value, not a value
//! beside a tombstone. The new context covers nothing that the stored one did not, so a value that another store
//! accepted meanwhile stays.

use bytes::Bytes;

use crate::context::Context;
use crate::dot::Dot;
use crate::error::Error;
use crate::head::{Head, SiblingHead};
use crate::metadata::Metadata;
use crate::object::Object;

/// What becomes of concurrent writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// `allow_mult=true`: they stay beside each other as siblings.
    AllowMult,
    /// `allow_mult=false`: readers are shown the newest. Between writes of one store that is the later one;
    /// between stores, the one with the later time.
    Newest,
    /// `last_write_wins=true`: this write stays. The stored head need not even be read.
    LastWriteWins,
}

/// A write as it comes from a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// What the client had seen; `None` is a blind write.
    pub context: Option<Context>,
    /// The new sibling's metadata.
    pub metadata: Metadata,
    /// The new sibling's value.
    pub value: Bytes,
}

impl Put {
    /// The put that deletes: a tombstone over what the client had seen, or, if it says nothing, over what is
    /// stored.
    pub fn delete(existing: Option<&Head>, context: Option<Context>, last_modified: u64) -> Put {
        let context = context.or_else(|| existing.map(|head| head.context().clone()));
        let metadata = Metadata { deleted: true, last_modified, ..Metadata::default() };
        Put { context, metadata, value: Bytes::new() }
    }

    /// Takes a put without a context to have seen `existing` if each of its siblings is a tombstone or has ended by
    /// then, in milliseconds since 1970. With a context, or beside a live sibling, the put stays as it is.
    pub fn see_absent(&mut self, existing: Option<&Head>, now_ms: u64) {
        if self.context.is_none() {
            self.context = existing.filter(|head| head.is_gone(now_ms)).map(|head| head.context().clone());
        }
    }
}

/// What a write does to a stored head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdatePlan {
    dot: Dot,
    context: Context,
    kept: Vec<usize>,
}

/// Plans the write `put`, with `dot` as its event, over `existing`.
///
/// # Errors
/// [`Error::DotCovered`] if a context has seen `dot` already, [`Error::TooManyActors`] if the new context would
/// be too large. Nothing is to be written then.
pub fn plan_update(
    existing: Option<&Head>,
    put: &Put,
    dot: Dot,
    policy: Policy,
) -> Result<UpdatePlan, Error> {
    let mut context = existing.map_or_else(Context::new, |head| head.context().clone());
    if let Some(seen) = &put.context {
        context.join(seen);
    }
    if context.covers(dot) {
        return Err(Error::DotCovered(dot));
    }
    context.add(dot);
    let context = context.bounded()?;
    let siblings = existing.map_or(&[][..], Head::siblings);
    let kept = match policy {
        Policy::AllowMult => concurrent(siblings, put).collect(),
        Policy::LastWriteWins => Vec::new(),
        Policy::Newest => unless_newest(siblings, put, dot),
    };
    Ok(UpdatePlan { dot, context, kept })
}

/// The siblings that `put` has not seen.
fn concurrent<'a>(siblings: &'a [SiblingHead], put: &'a Put) -> impl Iterator<Item = usize> + 'a {
    let seen = |dot| put.context.as_ref().is_some_and(|context| context.covers(dot));
    (0..siblings.len()).filter(move |&at| !seen(siblings[at].dot))
}

/// Those of other stores that `put` has not seen, if one of them is newer than it; else none.
fn unless_newest(siblings: &[SiblingHead], put: &Put, dot: Dot) -> Vec<usize> {
    let new = crate::head::recency(dot, put.metadata.last_modified, put.metadata.deleted);
    let rivals: Vec<usize> = concurrent(siblings, put)
        // This store wrote those before: no clock is needed to know which is later.
        .filter(|&at| siblings[at].dot.actor != dot.actor)
        .collect();
    // No time is later than the last one: what is written where it lies comes after it.
    let newer =
        put.metadata.last_modified < u64::MAX && rivals.iter().any(|&at| siblings[at].recency() > new);
    if newer { rivals } else { Vec::new() }
}

impl UpdatePlan {
    /// The stored siblings that stay, ascending.
    pub fn kept(&self) -> &[usize] {
        &self.kept
    }

    /// How many siblings the object will have.
    pub fn sibling_count(&self) -> usize {
        self.kept.len() + 1
    }

    /// The object to store, from the same `existing` and `put` as were planned, and the values of the siblings
    /// that stay, in the order of [`kept`](UpdatePlan::kept).
    ///
    /// # Panics
    /// If those are not what was planned, the value is 4 GiB or longer, or a tombstone has one.
    pub fn finish(self, existing: Option<Head>, kept_values: &[Bytes], put: Put) -> Object {
        assert_eq!(self.kept.len(), kept_values.len(), "each sibling that stays has a value");
        assert!(!put.metadata.deleted || put.value.is_empty(), "a tombstone has no value");
        let mut values = kept_values.to_vec();
        let mut siblings = existing.map_or_else(Vec::new, |head| head.into_parts().1);
        let mut at = 0;
        siblings.retain(|_| {
            at += 1;
            self.kept.binary_search(&(at - 1)).is_ok()
        });
        let place = siblings.partition_point(|sibling| sibling.dot < self.dot);
        let value_len = u32::try_from(put.value.len()).expect("values are far below 4 GiB");
        siblings.insert(place, SiblingHead { dot: self.dot, value_len, metadata: put.metadata });
        values.insert(place, put.value);
        Object::from_values(Head::new(self.context, siblings), &values)
    }
}

/// Plans and finishes a write over an object whose values are at hand. No sibling is taken to have ended.
///
/// # Errors
/// Those of [`plan_update`].
pub fn update(existing: Option<Object>, mut put: Put, dot: Dot, policy: Policy) -> Result<Object, Error> {
    put.see_absent(existing.as_ref().map(Object::head), 0);
    let plan = plan_update(existing.as_ref().map(Object::head), &put, dot, policy)?;
    let values: Vec<Bytes> =
        existing.iter().flat_map(|object| plan.kept().iter().map(|&at| object.value(at))).collect();
    Ok(plan.finish(existing.map(|object| object.into_parts().0), &values, put))
}
