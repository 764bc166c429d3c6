//! Objects: what is stored under a key, and how concurrent writes of it are told apart.
//!
//! An object is a set of *siblings* (values with their metadata) under one causal [`Context`]. Every write is an
//! event with a [`Dot`] of its own, and a sibling carries the dot of the write that made it: a dotted version
//! vector set. So a put drops exactly the siblings its context covers and no others, N blind writers give N
//! siblings, and a writer who has read everything leaves one.
//!
//! The pieces:
//!
//! 1. [`Dot`], [`Context`]: events, and sets of events as version vectors.
//! 2. [`Metadata`], [`index`]: what a sibling carries beside its value.
//! 3. [`Head`], [`Object`]: everything but the values; and with them. A quorum comparison, a condition, a listing
//!    need the head alone. [`HeadView`] reads an encoded head in place, without allocating.
//! 4. [`update`], [`merge`]: a write at one replica; the join of two replicas. Both plan on heads first and name
//!    the values they need, which in the common case are none.
//! 5. [`key`]: how the ledger orders objects.
//!
//! Invariants, held by [`Head`] and checked by its decoder: a head has at least one sibling; siblings are in
//! ascending order of their dots; the context covers every dot of the siblings. A tombstone is a sibling too,
//! so a deleted object still has a context.
//!
//! Left out: when a tombstone may be reaped, how many siblings are too many, clocks. The caller decides.
//!
//! Follows Preguiça, Baquero, Almeida, Fonte, Gonçalves, *Brief Announcement: Efficient Causality Tracking in
//! Distributed Storage Systems With Dotted Version Vectors* (PODC 2012) and Riak's use of it. Different from
//! both: counters are store-wide, so the counters of one key skip numbers, and an entry `(a, c)` of a vector
//! means *all of this key's dots of actor `a` up to `c`*.

mod codec;
mod context;
mod dot;
mod error;
mod fold;
mod head;
pub mod index;
pub mod key;
mod merge;
mod metadata;
mod object;
mod update;
mod view;
mod vtag;

pub use context::{ACTORS_MAX, Context, ContextView};
pub use dot::{Actor, Dot};
pub use error::Error;
pub use fold::Overwritten;
pub use head::{Head, SiblingHead};
pub use index::IndexEntry;
pub use merge::{MergePlan, Pick, merge, plan_merge};
pub use metadata::{Link, Metadata};
pub use object::Object;
pub use update::{Policy, Put, UpdatePlan, plan_update, update};
pub use view::{HeadView, IndexView, Item, Items, LinkView, SiblingView, Siblings, UserMetaView};
pub use vtag::Vtag;
