//! Folds over the heads of a cluster: for comparisons with another cluster, and for the care of its data.
//!
//! 1. [`Fold`] names the keys, and the findings that are wanted ([`Finds`]).
//! 2. Each shard of a covering set is asked as for a listing ([`crate::KeyScan`]). It collects the findings of its
//!    heads ([`FoldCollector`]), a page at a time, into a [`Sum`].
//! 3. Sums are added up where the client is. The end of a fold means that all of them are in it.
//!
//! A key has a *place*, 32 bits, and a hash there, its *leaf* ([`place`], [`leaf`]). Both are of the name of the object
//! and of the context that clients get with it, and of nothing else. So two clusters can compare their objects with
//! any rings and programs. A tree has segments, by the first bits of places; 256 of them are a branch
//! ([`Branches`]).
//!
//! * `sum.rs`: the findings so far. `branches.rs`: trees of hashes. `collector.rs`: the findings of one head.
//!
//! Invariants: sums can be added in any order; a page counts once, so each key counts once.
//!
//! Left out: the trees that nodes keep for each other ([`crate::aae`]). Their places depend on the ring.
//!
//! Follows Riak's AAE folds.

mod branches;
mod collector;
mod sum;

pub use branches::{BRANCH, Branches};
pub use collector::{FoldCollector, PAGE_BYTES_MAX, PAGE_ITEMS_MAX, Taken, leaf, place};
pub use sum::{ANSWER_BYTES_MAX, Adding, Folded, KeyClock, Stats, Sum};

use bytes::Bytes;

use crate::bucket::Bucket;
use crate::error::Error;

/// Segments or branches that one fold may name: a comparison goes on with a few at a time.
pub const SEGMENTS_MAX: usize = 65_536;

/// How long a client waits that does not say, in milliseconds: an hour, as in Riak. A fold goes through all heads.
pub const TIMEOUT_DEFAULT: u32 = 3_600_000;

/// A client's request for a fold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldRequest {
    /// Which.
    pub fold: Fold,
    /// Milliseconds.
    pub timeout: Option<u32>,
    /// Whether each page is an answer of its own, in the order in which they come, whatever they hold together. Trees
    /// are not.
    pub stream: bool,
}

/// Over which keys, and what is to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// Of which buckets.
    pub scope: Scope,
    /// Only keys between two bounds.
    pub keys: Option<KeySpan>,
    /// Only keys of these segments.
    pub segments: Option<Segments>,
    /// Only objects that were modified then.
    pub modified: Option<Modified>,
    /// What is to be found.
    pub finds: Finds,
}

/// Of which buckets keys are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Of this one.
    Bucket(Bucket),
    /// Of all whose objects have so many replicas; where buckets are found, at least as many.
    NVal(u32),
}

/// Keys between two bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpan {
    /// The first key.
    pub first: Bytes,
    /// The last key, included.
    pub last: Bytes,
}

/// Some segments of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments {
    /// How large that tree is.
    pub size: TreeSize,
    /// Their numbers.
    pub numbers: Vec<u32>,
}

/// A time in which an object was modified last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modified {
    /// The first second, since 1970.
    pub from: u64,
    /// The last second, included.
    pub to: u64,
}

/// What is found of the keys that a fold is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finds {
    /// The hashes of the branches of a large tree.
    Root,
    /// The hashes of the segments of some branches of a large tree.
    Branches(Vec<u32>),
    /// The hashes of the segments of a tree of this size; of other leaves if a number is mixed in.
    Tree {
        /// How large.
        size: TreeSize,
        /// Mixed into each leaf, so that two versions that happened to have the same leaf have not the same again.
        seed: Option<u32>,
    },
    /// Keys with their contexts, deleted ones included.
    Clocks,
    /// The same of tombstones alone.
    Tombs,
    /// The same of all others.
    Objects,
    /// Keys with more siblings than this.
    Siblings(u32),
    /// Keys of objects of more bytes than this.
    Sizes(u32),
    /// How many objects there are, and of what sizes.
    Stats,
    /// How many tombstones might be reaped, or objects erased.
    Count(Purge),
    /// The buckets that hold an object.
    Buckets,
}

/// What may be done with the keys that a fold finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purge {
    /// Tombstones are reaped.
    Reap,
    /// Objects are deleted.
    Erase,
}

impl Purge {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Purge::Reap => "reap",
            Purge::Erase => "erase",
        }
    }

    /// What it is named so.
    pub fn named(name: &str) -> Option<Purge> {
        [Purge::Reap, Purge::Erase].into_iter().find(|purge| purge.as_str() == name)
    }

    /// What has to be found for it, with contexts.
    pub fn finds(self) -> Finds {
        match self {
            Purge::Reap => Finds::Tombs,
            Purge::Erase => Finds::Objects,
        }
    }
}

/// How many segments a tree has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are Riak's")]
pub enum TreeSize {
    XxSmall,
    XSmall,
    Small,
    Medium,
    Large,
    XLarge,
}

impl TreeSize {
    /// All of them with their names, ascending. Where messages have a number for a size, it is its place here.
    pub const NAMES: [(TreeSize, &'static str); 6] = [
        (TreeSize::XxSmall, "xxsmall"),
        (TreeSize::XSmall, "xsmall"),
        (TreeSize::Small, "small"),
        (TreeSize::Medium, "medium"),
        (TreeSize::Large, "large"),
        (TreeSize::XLarge, "xlarge"),
    ];

    /// The size of this name.
    pub fn named(name: &str) -> Option<TreeSize> {
        TreeSize::NAMES.iter().find(|(_, known)| *known == name).map(|(size, _)| *size)
    }

    /// The size of this number.
    pub fn numbered(number: u32) -> Option<TreeSize> {
        TreeSize::NAMES.get(usize::try_from(number).ok()?).map(|(size, _)| *size)
    }

    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            TreeSize::XxSmall => 0,
            TreeSize::XSmall => 1,
            TreeSize::Small => 2,
            TreeSize::Medium => 3,
            TreeSize::Large => 4,
            TreeSize::XLarge => 5,
        }
    }

    /// How many first bits of a place say its branch.
    pub fn branch_bits(self) -> u32 {
        4 + 2 * self.number()
    }

    /// How many first bits of a place say its segment.
    pub fn bits(self) -> u32 {
        self.branch_bits() + BRANCH.trailing_zeros()
    }

    /// How many branches it has.
    pub fn branches(self) -> u32 {
        1 << self.branch_bits()
    }
}

impl Finds {
    /// Of how many first bits of a place there is a hash, if hashes are found.
    pub fn bits(&self) -> Option<u32> {
        match self {
            Finds::Root => Some(TreeSize::Large.branch_bits()),
            Finds::Branches(_) => Some(TreeSize::Large.bits()),
            Finds::Tree { size, .. } => Some(size.bits()),
            _ => None,
        }
    }
}

impl Fold {
    /// One over all keys that are in scope.
    pub fn new(scope: Scope, finds: Finds) -> Fold {
        Fold { scope, keys: None, segments: None, modified: None, finds }
    }

    /// Checks what a client or another node asks for.
    ///
    /// # Errors
    /// [`Error::BadQuery`] if it cannot be.
    pub fn check(&self) -> Result<(), Error> {
        let bad = |text: &str| Err(Error::BadQuery(text.to_owned()));
        let (scope, finds) = (&self.scope, &self.finds);
        match (scope, finds) {
            (Scope::NVal(0), _) => return bad("n_val is to be above 0"),
            (Scope::NVal(_), Finds::Root | Finds::Branches(_) | Finds::Clocks | Finds::Buckets) => {}
            (Scope::NVal(_), _) => return bad("this is found of one bucket"),
            (Scope::Bucket(_), Finds::Buckets) => return bad("buckets are found among all"),
            (Scope::Bucket(_), _) => {}
        }
        if matches!(scope, Scope::NVal(_)) && self.keys.is_some() {
            return bad("a range of keys is of one bucket");
        }
        let named = self.segments.as_ref().map(|segments| segments.numbers.len());
        let branches = match finds {
            Finds::Branches(numbers) => numbers.len(),
            _ => 0,
        };
        if named.unwrap_or(0).max(branches) > SEGMENTS_MAX {
            return bad("too many segments are named");
        }
        if self.keys.as_ref().is_some_and(|span| span.last < span.first) {
            return bad("the last key is before the first");
        }
        if self.modified.is_some_and(|modified| modified.to < modified.from) {
            return bad("the last second is before the first");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
