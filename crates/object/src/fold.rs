//! Folding: which entries of a key's context say nothing any more, and the same version without them.
//!
//! A version H has *overwritten* each write that its context covers and that is none of its siblings. Once no version
//! anywhere has an overwritten write as a sibling, and none can come, an entry that covers only such writes keeps
//! nothing away: it may go. This module says which writes and which entries those are; when it is so, the caller has to
//! know.
//!
//! Invariants:
//! * An entry goes only if each write that it covers was overwritten by H. So it stays if its actor has a sibling in H,
//!   or if it covers later writes of its actor than H does.
//! * An entry stays if its actor has a sibling in the version itself.
//! * The entry of [`Actor::WRITE_ONCE`] stays: its writes are made without reading, and may come late.

use bytes::Bytes;

use crate::context::Context;
use crate::dot::{Actor, Dot};
use crate::head::{Head, SiblingHead};
use crate::object::Object;

/// What a version has overwritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overwritten {
    context: Context,
    /// The version's siblings, ascending.
    kept: Vec<Dot>,
}

impl Overwritten {
    /// By the version with this head.
    pub fn by(head: &Head) -> Overwritten {
        let kept = head.siblings().iter().map(|sibling| sibling.dot).collect();
        Overwritten { context: head.context().clone(), kept }
    }

    /// Whether this write was overwritten.
    pub fn has(&self, dot: Dot) -> bool {
        self.context.covers(dot) && self.kept.binary_search(&dot).is_err()
    }

    /// Whether a version with this head has seen all that the overwriting one had, and has no overwritten sibling.
    pub fn is_left_out_by(&self, head: &Head) -> bool {
        head.context().descends(&self.context) && !self.is_in(head)
    }

    /// Whether a sibling of this head was overwritten.
    pub fn is_in(&self, head: &Head) -> bool {
        head.siblings().iter().any(|sibling| self.has(sibling.dot))
    }

    /// How many entries of the overwriting version may go.
    pub fn entries(&self) -> usize {
        self.context.entries().iter().filter(|&&(actor, counter)| self.frees(actor, counter)).count()
    }

    /// The version without its overwritten siblings; `None` if no sibling is left.
    pub fn left_of(&self, object: &Object) -> Option<Object> {
        let head = self.left_of_head(object.head())?;
        let places = (0..).zip(object.head().siblings());
        let left = places.filter(|(_, sibling)| !self.has(sibling.dot));
        let values: Vec<Bytes> = left.map(|(at, _)| object.value(at)).collect();
        Some(Object::from_values(head, &values))
    }

    /// The same of a head.
    pub fn left_of_head(&self, head: &Head) -> Option<Head> {
        let left = head.siblings().iter().filter(|sibling| !self.has(sibling.dot));
        let left: Vec<SiblingHead> = left.cloned().collect();
        (!left.is_empty()).then(|| Head::new(head.context().clone(), left))
    }

    /// A head without the entries that may go; `None` if all stay.
    pub fn folded(&self, head: &Head) -> Option<Head> {
        let has_sibling = |of: Actor| head.siblings().iter().any(|sibling| sibling.dot.actor == of);
        let stays = |&&(actor, counter): &&(Actor, u64)| has_sibling(actor) || !self.frees(actor, counter);
        let entries = head.context().entries();
        let left: Context =
            entries.iter().filter(stays).map(|&(actor, counter)| Dot::new(actor, counter)).collect();
        let goes = left.entries().len() < entries.len();
        goes.then(|| Head::new(left, head.siblings().to_vec()))
    }

    /// Whether an entry covers nothing but overwritten writes.
    fn frees(&self, actor: Actor, counter: u64) -> bool {
        let has_sibling = self.kept.iter().any(|dot| dot.actor == actor);
        actor != Actor::WRITE_ONCE && !has_sibling && counter <= self.context.counter(actor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Metadata;
    use crate::update::{Policy, Put, update};

    fn context(entries: &[(u64, u64)]) -> Context {
        entries.iter().map(|&(actor, counter)| Dot::new(Actor(actor), counter)).collect()
    }

    fn version(existing: Option<Object>, seen: &[(u64, u64)], dot: (u64, u64)) -> Object {
        let value = Bytes::from(format!("{dot:?}"));
        let put = Put { context: Some(context(seen)), metadata: Metadata::default(), value };
        update(existing, put, Dot::new(Actor(dot.0), dot.1), Policy::AllowMult).unwrap()
    }

    #[test]
    fn entries_of_siblings_stay_and_others_go() {
        let first = version(None, &[(1, 5), (2, 6), (3, 7)], (4, 8));
        let both = version(Some(first), &[(1, 5)], (3, 9));
        let over = Overwritten::by(both.head());
        assert!(over.has(Dot::new(Actor(3), 7)) && !over.has(Dot::new(Actor(3), 9)));
        assert!(!over.has(Dot::new(Actor(4), 8)) && !over.has(Dot::new(Actor(1), 6)));
        assert_eq!(over.entries(), 2);
        let folded = over.folded(both.head()).unwrap();
        assert_eq!(*folded.context(), context(&[(3, 9), (4, 8)]));
        assert_eq!(folded.siblings(), both.head().siblings());
        assert_eq!(over.folded(&folded), None, "nothing more goes");
    }

    #[test]
    fn later_writes_keep_their_entries() {
        let old = version(None, &[(1, 5), (2, 6)], (3, 7));
        let over = Overwritten::by(old.head());
        // Actor 1 has written since, and actor 3's sibling was overwritten since: elsewhere it may still lie.
        let later = version(Some(old), &[(1, 5), (2, 6), (3, 7)], (1, 8));
        let later = version(Some(later), &[(1, 8)], (9, 9));
        assert_eq!(*over.folded(later.head()).unwrap().context(), context(&[(1, 8), (3, 7), (9, 9)]));
    }

    #[test]
    fn versions_lose_what_was_overwritten() {
        let old = version(None, &[], (1, 1));
        let new = version(Some(old.clone()), &[(1, 1)], (2, 2));
        let over = Overwritten::by(new.head());
        assert_eq!(over.left_of(&old), None);
        assert!(over.is_left_out_by(new.head()) && !over.is_left_out_by(old.head()));
        let beside = version(Some(old), &[], (3, 3));
        let left = over.left_of(&beside).unwrap();
        assert_eq!(left.head().siblings().len(), 1);
        assert_eq!((left.value(0), left.head().context()), (beside.value(1), beside.head().context()));
        assert_eq!(over.left_of(&new), Some(new));
    }

    #[test]
    fn a_fold_does_not_change_what_joins_come_to() {
        let old = version(None, &[(1, 1), (2, 2)], (3, 3));
        let over = Overwritten::by(old.head());
        let fold = |object: &Object| match over.folded(object.head()) {
            Some(head) => Object::new(head, object.values().clone()).unwrap(),
            None => object.clone(),
        };
        let versions = [
            version(Some(old.clone()), &[(3, 3)], (4, 4)),
            version(Some(old.clone()), &[], (5, 5)),
            version(Some(old.clone()), &[(1, 1)], (1, 6)),
            old,
        ];
        for one in &versions {
            for other in &versions {
                let siblings = |object: Object| object.head().siblings().to_vec();
                let whole = siblings(crate::merge(one, other).unwrap());
                assert_eq!(whole, siblings(crate::merge(&fold(one), &fold(other)).unwrap()));
                assert_eq!(whole, siblings(crate::merge(&fold(one), other).unwrap()));
            }
        }
    }

    #[test]
    fn writes_that_read_nothing_keep_their_entry() {
        let old = version(None, &[(0, 7), (2, 2)], (3, 3));
        assert_eq!(Overwritten::by(old.head()).entries(), 1);
    }
}
