//! Numbered values and their metadata, and the check that a shown value was written under its key, whole.

use super::Violation;
use super::history::KeyName;
use base::Rng;
use base::rng::{SplitMix64, mix64};
use bytes::Bytes;
use kv::response::Found;
use object::{Dot, Head, IndexEntry, Metadata};

const CHECKER: &str = "reads return only written values";

/// The user metadata that carries a write's number, so that a head can be held against its value.
const NUMBER: &[u8] = b"number";

/// The terms of the field `n_int`, as they are ordered: as text they are not.
pub const NUMBERS: [&str; 5] = ["-40", "-3", "0", "7", "1000"];
/// The terms of the field `t_bin`, as they are ordered: some begin with others.
pub const TEXTS: [&str; 7] = ["", "0", "0\0", "02", "4", "6", "8"];

/// What an answer shows of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The numbers of values, with their dots if they have any.
    pub numbers: Vec<(Option<Dot>, u64)>,
    /// The dots of tombstones.
    pub tombstones: Vec<Dot>,
}

impl Shown {
    /// Whether it shows this value.
    pub fn shows(&self, number: u64) -> bool {
        self.numbers.iter().any(|(_, shown)| *shown == number)
    }
}

/// The value with this number: a client can tell it from every other, and from half of itself.
pub fn value_of(number: u64) -> Bytes {
    let mut rng = SplitMix64::new(mix64(number));
    // Small enough to be kept beside the head, larger, and over several blocks of the disk.
    let len = match rng.below(8) {
        0..3 => rng.below(64),
        3..7 => 64 + rng.below(1000),
        _ => 1000 + rng.below(5000),
    };
    let mut value = number.to_le_bytes().to_vec();
    (0..len / 8).for_each(|_| value.extend_from_slice(&rng.next_u64().to_le_bytes()));
    value.into()
}

/// The index entries of the write with this number: none, one or two, of terms that others have, too.
pub fn entries_of(number: u64) -> impl Iterator<Item = (&'static str, &'static str)> {
    let of = |terms: &[&'static str]| terms[(number % terms.len() as u64) as usize];
    [("n_int", of(&NUMBERS)), ("t_bin", of(&TEXTS))].into_iter().take((number % 3) as usize)
}

/// The metadata of the write with this number.
pub fn metadata_of(number: u64) -> Metadata {
    let text = Bytes::from(number.to_string());
    let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
    let entry = |(field, term)| IndexEntry { field: bytes(field), value: bytes(term) };
    let indexes = entries_of(number).map(entry).collect();
    let user_meta = vec![(Bytes::from_static(NUMBER), Some(text))];
    Metadata { user_meta, indexes, ..Metadata::default() }
}

/// The number of the write that carries this metadata.
pub(super) fn number_of(metadata: &Metadata) -> Option<u64> {
    let (_, text) = metadata.user_meta.iter().find(|(name, _)| name == NUMBER)?;
    std::str::from_utf8(text.as_ref()?).ok()?.parse().ok()
}

/// Takes an answer apart, and holds each value against its head and its number.
pub(super) fn read(key: &KeyName, found: &Found) -> Result<Shown, Violation> {
    let broken = |what: &str| Violation::new(CHECKER, format!("{key}: {what}"));
    let head = Head::decode(&found.head).map_err(|error| broken(&format!("its head: {error}")))?;
    let mut shown = Shown::default();
    let mut rest = found.value.clone();
    for sibling in head.siblings() {
        let len = usize::try_from(sibling.value_len).expect("32 bits fit");
        let value = match &mut rest {
            Some(rest) if rest.len() < len => return Err(broken("its values end before its head does")),
            Some(rest) => Some(rest.split_to(len)),
            None => None,
        };
        if sibling.metadata.deleted {
            shown.tombstones.push(sibling.dot);
            continue;
        }
        let number = number_of(&sibling.metadata).ok_or_else(|| broken("metadata that was never written"))?;
        let expected = value_of(number);
        if expected.len() != len || value.is_some_and(|value| value != expected) {
            return Err(broken(&format!("half or foreign value under number {number}")));
        }
        shown.numbers.push((Some(sibling.dot), number));
    }
    if rest.is_some_and(|rest| !rest.is_empty()) {
        return Err(broken("more values than its head says"));
    }
    Ok(shown)
}
