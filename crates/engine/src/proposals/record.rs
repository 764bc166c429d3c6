//! The bytes of entries and of commit marks: `docs/formats/journal.md`.
//!
//! Invariant: no bytes make a function here panic.

use super::{GroupNumber, LogPlace};
use crate::entry::{get_varint, put_varint};

/// Bytes of [`ProposedHead`]: four numbers.
pub(crate) const PROPOSED_HEAD_BYTES: usize = 32;

/// The beginning of the head of a proposed entry's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProposedHead {
    pub group: GroupNumber,
    pub place: LogPlace,
    /// The index up to which entries were known to be committed.
    pub commit: u64,
}

impl ProposedHead {
    pub fn encode(&self) -> [u8; PROPOSED_HEAD_BYTES] {
        let mut bytes = [0; PROPOSED_HEAD_BYTES];
        let numbers = [self.group.0, self.place.term, self.place.index, self.commit];
        for (field, number) in bytes.chunks_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// The fields at the front of `head`, and the rest of it.
    pub fn split(head: &[u8]) -> Option<(ProposedHead, &[u8])> {
        let (bytes, rest) = head.split_at_checked(PROPOSED_HEAD_BYTES)?;
        let mut numbers = bytes.chunks_exact(8).map(|field| field.try_into().map_or(0, u64::from_le_bytes));
        let mut next = || numbers.next();
        let (group, term, index, commit) = (GroupNumber(next()?), next()?, next()?, next()?);
        Some((ProposedHead { group, place: LogPlace { index, term }, commit }, rest))
    }
}

/// Entries of one group that a mark has take effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MarkedRange {
    pub group: GroupNumber,
    /// The index before the first one.
    pub after: u64,
    pub through: LogPlace,
    /// Ascending.
    pub skipped: Vec<u64>,
}

impl MarkedRange {
    /// How many entries there are.
    pub fn count(&self) -> u64 {
        self.through.index - self.after
    }
}

/// Appends a commit mark's value.
pub(crate) fn put_mark(out: &mut Vec<u8>, ranges: &[MarkedRange]) {
    put_varint(out, ranges.len() as u64);
    for range in ranges {
        out.extend_from_slice(&range.group.0.to_le_bytes());
        put_varint(out, range.after);
        put_varint(out, range.count());
        put_varint(out, range.through.term);
        put_varint(out, range.skipped.len() as u64);
        let mut before = range.after;
        for &index in &range.skipped {
            put_varint(out, index - before);
            before = index;
        }
    }
}

/// A commit mark's value; `None` if it is none. Every byte must be accounted for.
pub(crate) fn mark_of(mut bytes: &[u8]) -> Option<Vec<MarkedRange>> {
    let bytes = &mut bytes;
    let mut ranges = Vec::new();
    // Lists grow as their items are read, so a count that is too large costs nothing.
    for _ in 0..get_varint(bytes)? {
        let (group, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        let (after, count, term) = (get_varint(bytes)?, get_varint(bytes)?, get_varint(bytes)?);
        let through = LogPlace { index: after.checked_add(count)?, term };
        let (mut skipped, mut before) = (Vec::new(), after);
        for _ in 0..get_varint(bytes)? {
            let step = get_varint(bytes)?;
            before = before.checked_add(step).filter(|&index| step > 0 && index <= through.index)?;
            skipped.push(before);
        }
        if count == 0 {
            return None;
        }
        ranges.push(MarkedRange { group: GroupNumber(u64::from_le_bytes(*group)), after, through, skipped });
    }
    (bytes.is_empty() && !ranges.is_empty()).then_some(ranges)
}

/// The version of a state's head.
const STATE_VERSION: u8 = 1;

/// Bytes of the fixed part of [`StateHead`].
const STATE_FIXED_BYTES: usize = 2 + 4 * 8;

/// The head of the ledger entry of a group's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateHead<'a> {
    /// Whether it takes the place of all entries before it, as a snapshot does.
    pub installed: bool,
    pub applied: LogPlace,
    pub commit: u64,
    /// The highest index that may have been acknowledged of what is missing; zero if nothing is.
    pub suspect_through: u64,
    /// The owner's.
    pub state: &'a [u8],
}

impl<'a> StateHead<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(STATE_FIXED_BYTES + self.state.len());
        out.extend_from_slice(&[STATE_VERSION, u8::from(self.installed)]);
        for number in [self.applied.index, self.applied.term, self.commit, self.suspect_through] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(self.state);
        out
    }

    /// The fields of a head; `None` if it is not one of this version.
    pub fn decode(head: &'a [u8]) -> Option<StateHead<'a>> {
        let (fixed, state) = head.split_at_checked(STATE_FIXED_BYTES)?;
        let installed = match fixed[..2] {
            [STATE_VERSION, flag @ (0 | 1)] => flag == 1,
            _ => return None,
        };
        let mut numbers =
            fixed[2..].chunks_exact(8).map(|field| field.try_into().map_or(0, u64::from_le_bytes));
        let mut next = || numbers.next();
        let (index, term, commit, suspect_through) = (next()?, next()?, next()?, next()?);
        Some(StateHead { installed, applied: LogPlace { index, term }, commit, suspect_through, state })
    }
}

/// The key of a group's state.
pub(crate) fn state_key(state_tag: u8, group: GroupNumber) -> [u8; 9] {
    let mut key = [state_tag; 9];
    key[1..].copy_from_slice(&group.0.to_be_bytes());
    key
}

/// The group of which this is the state's key.
pub(crate) fn group_of(state_tag: u8, key: &[u8]) -> Option<GroupNumber> {
    let (&tag, number) = key.split_first()?;
    let number: [u8; 8] = number.try_into().ok()?;
    (tag == state_tag).then_some(GroupNumber(u64::from_be_bytes(number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    #[test]
    fn golden_bytes() {
        let place = LogPlace { index: 0x0203, term: 4 };
        let head = ProposedHead { group: GroupNumber(0x0105), place, commit: 0x0202 };
        let expected = b"\x05\x01\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x03\x02\0\0\0\0\0\0\x02\x02\0\0\0\0\0\0";
        assert_eq!(head.encode(), *expected);
        assert_eq!(ProposedHead::split(&[&expected[..], b"rest"].concat()), Some((head, &b"rest"[..])));
        assert_eq!(ProposedHead::split(&expected[1..]), None);

        let range = |group, skipped: &[u64]| MarkedRange {
            group: GroupNumber(group),
            after: 300,
            through: LogPlace { index: 305, term: 7 },
            skipped: skipped.to_vec(),
        };
        let ranges = [range(1, &[]), range(2, &[301, 305])];
        let mut bytes = Vec::new();
        put_mark(&mut bytes, &ranges);
        let first = b"\x02\x01\0\0\0\0\0\0\0\xAC\x02\x05\x07\x00";
        let second = b"\x02\0\0\0\0\0\0\0\xAC\x02\x05\x07\x02\x01\x04";
        assert_eq!(bytes, [&first[..], second].concat());
        assert_eq!(mark_of(&bytes), Some(ranges.to_vec()));

        let (applied, state) = (LogPlace { index: 9, term: 3 }, &b"own"[..]);
        let head = StateHead { installed: true, applied, commit: 10, suspect_through: 12, state };
        let fields = [&b"\x01\x01\x09\0\0\0\0\0\0\0"[..], b"\x03\0\0\0\0\0\0\0", b"\x0A\0\0\0\0\0\0\0"];
        let rest = b"\x0C\0\0\0\0\0\0\0own";
        assert_eq!(head.encode(), [&fields.concat()[..], rest].concat());
        assert_eq!(StateHead::decode(&head.encode()), Some(head));

        let key = state_key(7, GroupNumber(0x0102));
        assert_eq!(key, *b"\x07\0\0\0\0\0\0\x01\x02");
        assert_eq!(group_of(7, &key), Some(GroupNumber(0x0102)));
        assert_eq!([group_of(6, &key), group_of(7, &key[1..]), group_of(7, b"")], [None; 3]);
    }

    #[test]
    fn nonsense_is_refused() {
        let range = |after, skipped: &[u64]| MarkedRange {
            group: GroupNumber(1),
            after,
            through: LogPlace { index: after + 2, term: 1 },
            skipped: skipped.to_vec(),
        };
        let encoded = |ranges: &[MarkedRange]| {
            let mut bytes = Vec::new();
            put_mark(&mut bytes, ranges);
            bytes
        };
        let good = encoded(&[range(5, &[6, 7])]);
        assert!(mark_of(&good).is_some());
        for len in 0..good.len() {
            assert_eq!(mark_of(&good[..len]), None);
        }
        assert_eq!(mark_of(&[&good[..], &[0]].concat()), None);
        assert_eq!(mark_of(&encoded(&[])), None, "a mark of nothing");
        assert_eq!(mark_of(&encoded(&[range(5, &[8])])), None, "skipped beyond the last");
        let mut head = StateHead::encode(&StateHead {
            installed: false,
            applied: LogPlace::FOUNDED,
            commit: 1,
            suspect_through: 0,
            state: b"",
        });
        assert_eq!(StateHead::decode(&head[1..]), None);
        head[1] = 2;
        assert_eq!(StateHead::decode(&head), None);
        let mut rng = SplitMix64::new(5);
        for _ in 0..20_000 {
            let mut bad = good.clone();
            let at = usize::try_from(rng.below(bad.len() as u64)).unwrap();
            bad[at] = u8::try_from(rng.below(256)).unwrap();
            if let Some(ranges) = mark_of(&bad) {
                assert_eq!(mark_of(&encoded(&ranges)), Some(ranges));
            }
        }
    }
}
