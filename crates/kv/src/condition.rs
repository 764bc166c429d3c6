//! HTTP's preconditions of a request on an object (RFC 9110, section 13).
//!
//! A write's are decided by its coordinator, on what a majority of the primaries has, as `if_none_match` and
//! `if_not_modified` are. A read's are decided on what it read, by the session.

use bytes::Bytes;
use object::{HeadView, Vtag};

const MICROS: u64 = 1_000_000;

/// The tags that a condition names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tags {
    /// `*`: whatever there is.
    Any,
    /// Any of these. None of them, for a write that depends on tags which prove nothing.
    Named(Vec<Bytes>),
}

/// Conditions, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// The object has one of these tags.
    pub if_match: Option<Tags>,
    /// The object has none of these tags.
    pub if_none_match: Option<Tags>,
    /// The object was written after this second since 1970. Only reads have it, and only without `if_none_match`.
    pub if_modified_since: Option<u64>,
    /// The object was not written after this second since 1970. Not looked at beside `if_match`.
    pub if_unmodified_since: Option<u64>,
}

/// Which kind of condition does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// The object is not what the client takes it to be.
    Changed,
    /// The object is still what the client has.
    Unchanged,
}

/// What conditions are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validators {
    /// The object's tag, as its readers are told.
    pub etag: Vtag,
    /// When it was last written, in seconds since 1970.
    pub last_modified: u64,
}

impl Validators {
    /// Those of an object, of which readers see only the newest sibling or all.
    pub fn of(head: &HeadView<'_>, newest_only: bool) -> Validators {
        let newest = head.newest();
        let etag = if newest_only { newest.vtag() } else { head.etag() };
        Validators { etag, last_modified: newest.last_modified / MICROS }
    }
}

impl Tags {
    fn have(&self, etag: Vtag) -> bool {
        match self {
            Tags::Any => true,
            Tags::Named(tags) => tags.iter().any(|tag| tag == etag.as_ref()),
        }
    }
}

impl Conditions {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Conditions::default()
    }

    /// Holds them against an object; `None` if there is none.
    ///
    /// # Errors
    /// The first that does not hold, in the order of RFC 9110, section 13.2.2.
    pub fn check(&self, object: Option<Validators>) -> Result<(), Unmet> {
        let is_as_known = match (&self.if_match, self.if_unmodified_since) {
            (Some(tags), _) => object.is_some_and(|object| tags.have(object.etag)),
            (None, Some(time)) => object.is_none_or(|object| object.last_modified <= time),
            (None, None) => true,
        };
        if !is_as_known {
            return Err(Unmet::Changed);
        }
        let is_news = match (&self.if_none_match, self.if_modified_since) {
            (Some(tags), _) => object.is_none_or(|object| !tags.have(object.etag)),
            (None, Some(time)) => object.is_none_or(|object| object.last_modified > time),
            (None, None) => true,
        };
        if is_news { Ok(()) } else { Err(Unmet::Unchanged) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Actor, Dot};

    fn object(last_modified: u64) -> Option<Validators> {
        Some(Validators { etag: Vtag::of_dot(Dot::new(Actor(1), 1), 5), last_modified })
    }

    fn tags(tags: &[&str]) -> Option<Tags> {
        Some(Tags::Named(tags.iter().map(|tag| Bytes::copy_from_slice(tag.as_bytes())).collect()))
    }

    #[test]
    fn each_condition_and_its_precedence() {
        let etag = object(0).unwrap().etag;
        let (ours, other) = (tags(&["x", etag.as_str()]), tags(&["x"]));
        let none = Conditions::default();
        let check = |conditions: Conditions, object| conditions.check(object);
        assert!(none.is_empty());
        assert_eq!(check(none.clone(), None), Ok(()));

        let if_match = |tags| Conditions { if_match: tags, ..none.clone() };
        assert_eq!(check(if_match(ours.clone()), object(0)), Ok(()));
        assert_eq!(check(if_match(other.clone()), object(0)), Err(Unmet::Changed));
        assert_eq!(check(if_match(Some(Tags::Any)), object(0)), Ok(()));
        assert_eq!(check(if_match(Some(Tags::Any)), None), Err(Unmet::Changed));
        assert_eq!(check(if_match(tags(&[])), object(0)), Err(Unmet::Changed));

        let if_none_match = |tags| Conditions { if_none_match: tags, ..none.clone() };
        assert_eq!(check(if_none_match(ours.clone()), object(0)), Err(Unmet::Unchanged));
        assert_eq!(check(if_none_match(other.clone()), object(0)), Ok(()));
        assert_eq!(check(if_none_match(Some(Tags::Any)), object(0)), Err(Unmet::Unchanged));
        assert_eq!(check(if_none_match(Some(Tags::Any)), None), Ok(()));

        let unmodified = Conditions { if_unmodified_since: Some(7), ..none.clone() };
        assert_eq!(check(unmodified.clone(), object(7)), Ok(()));
        assert_eq!(check(unmodified.clone(), object(8)), Err(Unmet::Changed));
        assert_eq!(check(Conditions { if_match: ours.clone(), ..unmodified }, object(8)), Ok(()));

        let modified = Conditions { if_modified_since: Some(7), ..none };
        assert_eq!(check(modified.clone(), object(7)), Err(Unmet::Unchanged));
        assert_eq!(check(modified.clone(), object(8)), Ok(()));
        assert_eq!(check(Conditions { if_none_match: other, ..modified.clone() }, object(7)), Ok(()));
        assert_eq!(check(Conditions { if_match: ours, ..modified }, object(7)), Err(Unmet::Unchanged));
    }
}
