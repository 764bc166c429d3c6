//! What several ranges are about, as one set: of either, of both, of one and not the other; all as of one moment.
//!
//! A range of index entries lies in the order of its terms, so what its entries are about ([`MemberOf`]: their objects)
//! comes in no order, and more than once. Each range is read into a sorted set, and two sets become one. So memory is
//! bounded by what is held, [`MEMBERS_BYTES_MAX`], and not by what is read; where a range is intersected with or taken
//! from a set, only what the set has of it is held.
//!
//! Left out: answers page by page, since any member may be the last to be found.

use super::request::{Control, FoldRequest, JournalCheck, KeyRange, Visited, What};
use crate::error::Error;
use std::collections::BTreeSet;

/// Ranges of one set: each is a walk of its own.
pub const SET_RANGES_MAX: usize = 64;

/// Bytes of members that are held at once, with [`MEMBER_BYTES`] for each.
pub const MEMBERS_BYTES_MAX: usize = 32 << 20;

/// What a member takes beside its bytes, as held bytes are counted.
pub const MEMBER_BYTES: usize = 48;

/// Reads out of a key what it is about; `None` if it is about nothing.
pub type MemberOf = fn(key: &[u8]) -> Option<Vec<u8>>;

/// A set of what the keys of ranges are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeSet {
    /// What the keys of one range are about.
    Of(KeyRange),
    /// What is in either.
    Union(Box<RangeSet>, Box<RangeSet>),
    /// What is in both.
    Intersect(Box<RangeSet>, Box<RangeSet>),
    /// What is in the first and not in the second.
    Subtract(Box<RangeSet>, Box<RangeSet>),
}

type Members = BTreeSet<Vec<u8>>;

impl RangeSet {
    /// What is in this one or in `other`.
    pub fn union(self, other: RangeSet) -> RangeSet {
        RangeSet::Union(Box::new(self), Box::new(other))
    }

    /// What is in this one and in `other`.
    pub fn intersect(self, other: RangeSet) -> RangeSet {
        RangeSet::Intersect(Box::new(self), Box::new(other))
    }

    /// What is in this one and not in `other`.
    pub fn subtract(self, other: RangeSet) -> RangeSet {
        RangeSet::Subtract(Box::new(self), Box::new(other))
    }

    /// How many ranges it has. Walks with a stack of its own: whoever made it has not been asked yet how deep it may
    /// be.
    fn ranges(&self) -> usize {
        let (mut sets, mut ranges) = (vec![self], 0);
        while let Some(set) = sets.pop() {
            match set {
                RangeSet::Of(_) => ranges += 1,
                RangeSet::Union(one, other)
                | RangeSet::Intersect(one, other)
                | RangeSet::Subtract(one, other) => sets.extend([&**one, &**other]),
            }
        }
        ranges
    }
}

/// What makes a fold, each time of the same snapshot.
type Fold<'f> = dyn FnMut(FoldRequest, &mut dyn FnMut(&Visited<'_>) -> Control) -> Result<(), Error> + 'f;

/// A set under way.
pub(crate) struct Combining<'f> {
    fold: &'f mut Fold<'f>,
    member_of: MemberOf,
    held: usize,
}

impl<'f> Combining<'f> {
    /// The members of `set`, ascending, as `fold` finds them.
    pub fn combine(
        set: &RangeSet,
        member_of: MemberOf,
        fold: &'f mut Fold<'f>,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let ranges = set.ranges();
        if ranges > SET_RANGES_MAX {
            return Err(Error::TooLarge { what: "a set of ranges", len: ranges, limit: SET_RANGES_MAX });
        }
        let members = Combining { fold, member_of, held: 0 }.members(set)?;
        Ok(members.into_iter().collect())
    }

    fn members(&mut self, set: &RangeSet) -> Result<Members, Error> {
        match set {
            RangeSet::Of(range) => self.read(range, None),
            RangeSet::Union(one, other) => {
                let mut all = self.members(one)?;
                for member in self.members(other)? {
                    let len = held_by(&member);
                    if !all.insert(member) {
                        self.held -= len;
                    }
                }
                Ok(all)
            }
            RangeSet::Intersect(one, other) => self.sift(one, other, true),
            RangeSet::Subtract(one, other) => self.sift(one, other, false),
        }
    }

    /// What is in `one` and, as `both` says, in `other` or not.
    fn sift(&mut self, one: &RangeSet, other: &RangeSet, both: bool) -> Result<Members, Error> {
        let mut left = self.members(one)?;
        let right = match other {
            RangeSet::Of(range) => self.read(range, Some(&left))?,
            other => self.members(other)?,
        };
        left.retain(|member| {
            let stays = right.contains(member) == both;
            self.held -= if stays { 0 } else { held_by(member) };
            stays
        });
        self.held -= right.iter().map(held_by).sum::<usize>();
        Ok(left)
    }

    /// What a range is about, as far as it is among `only`.
    fn read(&mut self, range: &KeyRange, only: Option<&Members>) -> Result<Members, Error> {
        let (mut members, member_of, held) = (Members::new(), self.member_of, &mut self.held);
        let mut visit = |item: &Visited<'_>| {
            let member = member_of(item.key).filter(|member| only.is_none_or(|only| only.contains(member)));
            if let Some(member) = member {
                let len = held_by(&member);
                *held += if members.insert(member) { len } else { 0 };
            }
            if *held > MEMBERS_BYTES_MAX { Control::Stop } else { Control::Next }
        };
        (self.fold)(FoldRequest::over(range.clone(), What::Heads(JournalCheck::None)), &mut visit)?;
        if self.held > MEMBERS_BYTES_MAX {
            let (what, limit) = ("what a set of ranges holds", MEMBERS_BYTES_MAX);
            return Err(Error::TooLarge { what, len: self.held, limit });
        }
        Ok(members)
    }
}

#[expect(clippy::ptr_arg, reason = "a member is a vector")]
fn held_by(member: &Vec<u8>) -> usize {
    member.len() + MEMBER_BYTES
}
