//! Index entries of the workload's own fields: those that an object is given, and whether it can have had one.
//!
//! A term is a number, in decimal. Under a `_bin` field it has twelve digits at least, so that the order of the bytes
//! is that of the numbers. What does not change is drawn from the number of the key alone: so every run, and every
//! generator, knows it of each object, and can judge a row without having kept anything.

use crate::keys::{Inserted, Keys};
use crate::rng::{Rng, mix};
use crate::workload::Index;
use std::io::Write;

/// Index entries of the workload's own fields.
pub struct Entries<'a> {
    indexes: &'a [Index],
    /// How their terms are drawn, in the same order.
    terms: Vec<Option<Keys>>,
    nothing: Inserted,
}

impl<'a> Entries<'a> {
    /// Of these fields.
    pub fn new(indexes: &'a [Index]) -> Entries<'a> {
        let terms = indexes.iter().map(|index| index.terms.clone().map(|shape| Keys::new(shape, 0, 1)));
        Entries { indexes, terms: terms.collect(), nothing: Inserted::default() }
    }

    /// A field.
    pub fn field(&self, index: usize) -> &'a Index {
        &self.indexes[index]
    }

    /// Writes the entries of an object in place of what is in `out`.
    pub fn write(&mut self, id: u64, rng: &mut Rng, out: &mut Vec<(&'a str, Vec<u8>)>) {
        let mut written = 0;
        for (at, index) in self.indexes.iter().enumerate() {
            let mut own = own_rng(at, id);
            for _ in 0..index.entries {
                let drawn = self.draw(at, id, if index.changes { &mut *rng } else { &mut own });
                if written == out.len() {
                    out.push(("", Vec::new()));
                }
                let (field, term) = &mut out[written];
                *field = &index.field;
                put_term(index, drawn, term);
                written += 1;
            }
        }
        out.truncate(written);
    }

    /// Whether the object of this number has this term, where that does not change. True where it does.
    pub fn may_have(&mut self, at: usize, id: u64, term: u64) -> bool {
        let index = &self.indexes[at];
        let mut own = own_rng(at, id);
        index.changes || (0..index.entries).any(|_| self.draw(at, id, &mut own) == term)
    }

    /// Whether the object of this number has a term from one to another, where that does not change. True where it
    /// does.
    pub fn may_have_one(&mut self, at: usize, id: u64, from: u64, to: u64) -> bool {
        let index = &self.indexes[at];
        let mut own = own_rng(at, id);
        index.changes || (0..index.entries).any(|_| (from..=to).contains(&self.draw(at, id, &mut own)))
    }

    fn draw(&mut self, at: usize, id: u64, rng: &mut Rng) -> u64 {
        match &mut self.terms[at] {
            None => id,
            // These distributions always draw something; see `workload::index`.
            Some(terms) => terms.draw(rng, &self.nothing).unwrap_or(0),
        }
    }
}

/// What the terms of an object come from that do not change.
fn own_rng(at: usize, id: u64) -> Rng {
    Rng::new(mix(mix(id) ^ at as u64))
}

/// Writes a term in place of what is in `out`.
pub fn put_term(index: &Index, number: u64, out: &mut Vec<u8>) {
    out.clear();
    let written = if index.is_int() { write!(out, "{number}") } else { write!(out, "{number:012}") };
    written.expect("a Vec takes everything");
}

/// The number of a term.
pub fn term_number(term: &[u8]) -> Option<u64> {
    std::str::from_utf8(term).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Shape;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    fn index(field: &str, entries: u32, count: Option<u64>, changes: bool) -> Index {
        let terms = count.map(|count| Shape::Zipf { count, theta: 0.9, scrambled: true });
        Index { field: field.to_owned(), entries, terms, changes }
    }

    #[test]
    fn an_object_has_the_entries_of_each_field() {
        let indexes = [
            index("n_int", 1, None, false),
            index("g_bin", 3, Some(50), false),
            index("c_int", 2, Some(50), true),
        ];
        let (mut entries, mut rng, mut out) = (Entries::new(&indexes), Rng::new(1), Vec::new());
        let mut seen = Vec::new();
        for _ in 0..2 {
            entries.write(42, &mut rng, &mut out);
            assert_eq!((out.len(), out[0].clone()), (6, ("n_int", b"42".to_vec())));
            assert!(out[1..4].iter().all(|(field, term)| *field == "g_bin" && term.len() == 12));
            seen.push(out.clone());
        }
        assert_eq!(seen[0][..4], seen[1][..4], "what does not change");
        assert_ne!(seen[0][4..], seen[1][4..], "what does");
    }

    proptest! {
        #[test]
        fn what_was_written_may_be_found(id in 0u64..1 << 40, other in 0u64..1 << 40, changes: bool, count in 1u64..1000) {
            let indexes = [index("n_int", 1, None, false), index("g_bin", 4, Some(count), changes)];
            let (mut entries, mut out) = (Entries::new(&indexes), Vec::new());
            entries.write(id, &mut Rng::new(other), &mut out);
            for (field, term) in &out {
                let at = usize::from(*field == "g_bin");
                let term = term_number(term).unwrap();
                prop_assert!(entries.may_have(at, id, term) && entries.may_have_one(at, id, term, term));
                prop_assert!(at == 0 || term < count);
            }
            prop_assert_eq!(entries.may_have(0, id, other), id == other);
            prop_assert_eq!(entries.may_have_one(0, id, other, other + 5), (other..=other + 5).contains(&id));
        }
    }
}
