//! The result of a fold, of a page or of everything: sums are added up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::{Branches, Finds, Fold};
use crate::bucket::Bucket;
use crate::error::Error;
use crate::limits::LISTED_BUCKETS_MAX;

/// Bytes of what is found, in one answer: a fold over less has less to tell.
pub const ANSWER_BYTES_MAX: usize = 32 << 20;

/// What a name takes beside its bytes, as an answer's bytes are counted.
const NAME_BYTES: usize = 64;

/// A key with its context.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyClock {
    /// The bucket.
    pub bucket: Bucket,
    /// The key.
    pub key: Bytes,
    /// The context as clients get it.
    pub clock: Bytes,
}

impl KeyClock {
    /// Bytes of memory that it takes, about.
    pub fn bytes(&self) -> usize {
        let Bucket { bucket_type, name } = &self.bucket;
        bucket_type.len() + name.len() + self.key.len() + self.clock.len() + 3 * NAME_BYTES
    }
}

/// Counts of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// How many there are.
    pub count: u64,
    /// Bytes of all of them, with what they carry beside their values.
    pub bytes: u64,
    /// How many have sizes of so many decimal digits: 4 is 1,000 to 9,999 bytes.
    pub sizes: BTreeMap<u32, u64>,
    /// How many have so many siblings.
    pub siblings: BTreeMap<u32, u64>,
}

impl Stats {
    /// Counts an object.
    pub fn count(&mut self, bytes: u64, siblings: u32) {
        self.count += 1;
        self.bytes += bytes;
        *self.sizes.entry(bytes.checked_ilog10().map_or(1, |log| log + 1)).or_default() += 1;
        *self.siblings.entry(siblings).or_default() += 1;
    }

    fn add(&mut self, other: Stats) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        for (ours, theirs) in [(&mut self.sizes, other.sizes), (&mut self.siblings, other.siblings)] {
            for (number, count) in theirs {
                let sum = ours.entry(number).or_default();
                *sum = sum.saturating_add(count);
            }
        }
    }
}

/// What a fold has come to on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sum {
    /// Hashes of segments, or of branches, by number, ascending.
    Hashes(Vec<(u32, u32)>),
    /// Keys with their contexts.
    Clocks(Vec<KeyClock>),
    /// Keys with how many siblings they have, or bytes.
    Keys(Vec<(Bytes, u64)>),
    /// Counts of objects.
    Stats(Stats),
    /// How many keys there are.
    Count(u64),
    /// Buckets.
    Buckets(BTreeSet<Bucket>),
}

impl Sum {
    /// That of a fold that has found nothing.
    pub fn nothing(finds: &Finds) -> Sum {
        match finds {
            Finds::Root | Finds::Branches(_) | Finds::Tree { .. } => Sum::Hashes(Vec::new()),
            Finds::Clocks | Finds::Tombs | Finds::Objects => Sum::Clocks(Vec::new()),
            Finds::Siblings(_) | Finds::Sizes(_) => Sum::Keys(Vec::new()),
            Finds::Stats => Sum::Stats(Stats::default()),
            Finds::Count(_) => Sum::Count(0),
            Finds::Buckets => Sum::Buckets(BTreeSet::new()),
        }
    }

    /// Whether it can be what a shard has found for this fold.
    pub fn is_of(&self, fold: &Fold) -> bool {
        let is_kind = std::mem::discriminant(self) == std::mem::discriminant(&Sum::nothing(&fold.finds));
        let is_there = |number: u32| fold.finds.bits().is_some_and(|bits| number >> bits == 0);
        is_kind && !matches!(self, Sum::Hashes(hashes) if !hashes.iter().all(|(number, _)| is_there(*number)))
    }

    /// Bytes of memory that it takes, about.
    pub fn bytes(&self) -> usize {
        match self {
            Sum::Hashes(hashes) => hashes.len() * size_of::<(u32, u32)>(),
            Sum::Clocks(clocks) => clocks.iter().map(KeyClock::bytes).sum(),
            Sum::Keys(keys) => keys.iter().map(|(key, _)| key.len() + NAME_BYTES).sum(),
            Sum::Buckets(buckets) => {
                let bytes = |bucket: &Bucket| bucket.bucket_type.len() + bucket.name.len() + 2 * NAME_BYTES;
                buckets.iter().map(bytes).sum()
            }
            Sum::Stats(_) | Sum::Count(_) => 0,
        }
    }
}

/// All that a fold has come to, or what a page of a stream has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    /// The fold.
    pub fold: Arc<Fold>,
    /// What it finds, by bucket and key where it finds some; no hashes.
    pub sum: Sum,
    /// The hashes.
    pub tree: Branches,
    /// Whether this is the last answer.
    pub done: bool,
}

/// Adds up the pages of one fold, within what one answer holds.
#[derive(Debug)]
pub struct Adding {
    fold: Arc<Fold>,
    sum: Sum,
    tree: Branches,
    bytes: usize,
    stream: bool,
}

impl Adding {
    /// Nothing yet; `stream`: each page is answered, and nothing is added up but hashes.
    pub fn new(fold: Arc<Fold>, stream: bool) -> Adding {
        let sum = Sum::nothing(&fold.finds);
        Adding { fold, sum, tree: Branches::default(), bytes: 0, stream }
    }

    /// Asserts relations that hold after each page.
    pub fn invariants(&self) {
        let is_kind =
            std::mem::discriminant(&self.sum) == std::mem::discriminant(&Sum::nothing(&self.fold.finds));
        debug_assert!(is_kind, "the sum is of the kind that the fold finds");
        debug_assert!(
            !matches!(&self.sum, Sum::Hashes(hashes) if !hashes.is_empty()),
            "hashes go into the tree"
        );
        let holds_names = self.stream && self.fold.finds.bits().is_none();
        debug_assert!(!holds_names || self.bytes == 0, "a stream holds nothing but hashes");
    }

    /// Bytes that wait to be answered.
    pub fn gathered_bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a page's sum; an answer, if there is one to give already.
    ///
    /// # Errors
    /// [`Error::AnswerTooLong`] or [`Error::ListTooLong`] if it is more than one answer holds.
    ///
    /// # Panics
    /// If the sum is none of this fold ([`Sum::is_of`]).
    pub fn add(&mut self, page: Sum) -> Result<Option<Folded>, Error> {
        if cfg!(debug_assertions) {
            self.invariants();
        }
        if self.stream && !matches!(page, Sum::Hashes(_)) {
            return Ok(Some(Folded {
                fold: Arc::clone(&self.fold),
                sum: page,
                tree: Branches::default(),
                done: false,
            }));
        }
        self.bytes += page.bytes();
        match (&mut self.sum, page) {
            (Sum::Hashes(_), Sum::Hashes(hashes)) => {
                hashes.into_iter().for_each(|(number, hash)| self.tree.change(number, hash));
                return Ok(None);
            }
            (Sum::Clocks(ours), Sum::Clocks(theirs)) => ours.extend(theirs),
            (Sum::Keys(ours), Sum::Keys(theirs)) => ours.extend(theirs),
            (Sum::Stats(ours), Sum::Stats(theirs)) => ours.add(theirs),
            (Sum::Count(ours), Sum::Count(theirs)) => *ours = ours.saturating_add(theirs),
            (Sum::Buckets(ours), Sum::Buckets(theirs)) => {
                ours.extend(theirs);
                // The same ones come from many shards.
                let is_full = ours.len() > LISTED_BUCKETS_MAX;
                return if is_full {
                    Err(Error::ListTooLong { limit: LISTED_BUCKETS_MAX })
                } else {
                    Ok(None)
                };
            }
            _ => unreachable!("the sums of one fold are of one kind"),
        }
        if self.bytes > ANSWER_BYTES_MAX {
            return Err(Error::AnswerTooLong { limit: ANSWER_BYTES_MAX });
        }
        Ok(None)
    }

    /// All of it, in order.
    pub fn end(&mut self) -> Folded {
        let mut sum = std::mem::replace(&mut self.sum, Sum::nothing(&self.fold.finds));
        debug_assert!(sum.bytes() <= self.bytes, "the bytes of each page were counted");
        match &mut sum {
            Sum::Clocks(clocks) => clocks.sort_unstable(),
            Sum::Keys(keys) => keys.sort_unstable(),
            Sum::Hashes(_) | Sum::Stats(_) | Sum::Count(_) | Sum::Buckets(_) => {}
        }
        Folded { fold: Arc::clone(&self.fold), sum, tree: std::mem::take(&mut self.tree), done: true }
    }
}
