//! Changes of the leaves of trees, as a write makes them.

use bytes::Bytes;
use engine::Seq;
use engine::fold::KeySegments;
use kv::aae::{TreeId, day_of, leaf};

/// The bits of a key's place in a tree.
pub(crate) const PLACE_BITS: u32 = 32;

/// A change of a tree: the leaf that a write has replaced, and the new one.
pub(crate) struct Change {
    /// The ledger key.
    pub key: Bytes,
    pub seq: Seq,
    pub tree: TreeId,
    pub place: u32,
    pub old: Option<u32>,
    pub new: Option<u32>,
    /// Whether the replaced head is not known.
    pub unsure: bool,
}

/// How trees change when one head takes the place of another: the day of each tree, and the leaf there before and
/// after. They are two where one ends on another day than the other.
pub(crate) fn leaves(
    place: u32,
    old: Option<&[u8]>,
    new: Option<&[u8]>,
) -> impl Iterator<Item = (u32, Option<u32>, Option<u32>)> {
    let of = |head: &[u8]| (day_of(head), leaf(place, head));
    let changes = match (old.map(of), new.map(of)) {
        (Some((before, old)), Some((after, new))) if before != after => {
            let left = Some((before, Some(old), None)).filter(|_| !base::planted!(DayNotLeft));
            [left, Some((after, None, Some(new)))]
        }
        (old, new) => {
            let day = new.or(old).map_or(0, |(day, _)| day);
            [Some((day, old.map(|(_, leaf)| leaf), new.map(|(_, leaf)| leaf))), None]
        }
    };
    changes.into_iter().flatten()
}

/// The place of a key in a tree, and the hash of its head there.
pub(crate) fn placed_leaf(ledger_key: &[u8], head: &[u8]) -> (u32, u32) {
    let place = KeySegments::number_of(ledger_key, PLACE_BITS);
    (place, leaf(place, head))
}
