//! The join of two replicas of one object.
//!
//! A sibling stays if both have it, or if only one has it and the other has never seen its write; a write that
//! was seen and is not there was overwritten. The contexts are joined. Merging is commutative, associative and
//! idempotent, so replicas that exchange objects in any order, late or twice, come to the same object.
//!
//! Like a write, a merge is planned on heads, and the values it needs are fetched after.

use bytes::Bytes;

use crate::dot::Dot;
use crate::error::Error;
use crate::head::{Head, SiblingHead};
use crate::object::Object;

/// Where a merged sibling comes from, and its place there. What both have is taken from the left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// The first object.
    Left(usize),
    /// The second.
    Right(usize),
}

/// The merged head, and where the values of its siblings are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergePlan {
    head: Head,
    picks: Vec<Pick>,
}

impl MergePlan {
    /// The merged head.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// For each merged sibling, where its value is.
    pub fn picks(&self) -> &[Pick] {
        &self.picks
    }

    /// The merged object, from the values of its siblings in the order of [`picks`](MergePlan::picks).
    ///
    /// # Panics
    /// If the values do not have the lengths their heads say.
    pub fn finish(self, values: &[Bytes]) -> Object {
        Object::from_values(self.head, values)
    }
}

/// Plans the merge of two replicas' heads of one key.
///
/// # Errors
/// [`Error::TooManyActors`] if the joined context would be too large.
pub fn plan_merge(left: &Head, right: &Head) -> Result<MergePlan, Error> {
    let mut context = left.context().clone();
    context.join(right.context());
    let context = context.bounded()?;
    let mut picks = pick(left, right, |other, dot| has(other, dot) || !other.context().covers(dot));
    if picks.is_empty() {
        // Each claims to have replaced all the other has: no history does that, but disks that were copied or
        // writes that read nothing can. Two siblings too many are better than none left.
        picks = pick(left, right, |_, _| true);
    }
    let siblings = picks.iter().map(|&pick| sibling(left, right, pick).clone()).collect();
    Ok(MergePlan { head: Head::new(context, siblings), picks })
}

/// Merges two objects whose values are at hand.
///
/// # Errors
/// Those of [`plan_merge`].
pub fn merge(left: &Object, right: &Object) -> Result<Object, Error> {
    let plan = plan_merge(left.head(), right.head())?;
    let values: Vec<Bytes> = plan
        .picks
        .iter()
        .map(|&pick| match pick {
            Pick::Left(at) => left.value(at),
            Pick::Right(at) => right.value(at),
        })
        .collect();
    Ok(plan.finish(&values))
}

fn has(head: &Head, dot: Dot) -> bool {
    head.siblings().binary_search_by_key(&dot, |sibling| sibling.dot).is_ok()
}

fn sibling<'a>(left: &'a Head, right: &'a Head, pick: Pick) -> &'a SiblingHead {
    match pick {
        Pick::Left(at) => &left.siblings()[at],
        Pick::Right(at) => &right.siblings()[at],
    }
}

/// The siblings that stay, each once, ascending by dot. `stays(other, dot)` judges a sibling by the
/// object that is not its own.
fn pick(left: &Head, right: &Head, stays: impl Fn(&Head, Dot) -> bool) -> Vec<Pick> {
    let mut picks = Vec::with_capacity(left.siblings().len().max(right.siblings().len()));
    for (at, sibling) in left.siblings().iter().enumerate() {
        if stays(right, sibling.dot) {
            picks.push(Pick::Left(at));
        }
    }
    for (at, sibling) in right.siblings().iter().enumerate() {
        if !has(left, sibling.dot) && stays(left, sibling.dot) {
            picks.push(Pick::Right(at));
        }
    }
    picks.sort_by_key(|&pick| self::sibling(left, right, pick).dot);
    picks
}
