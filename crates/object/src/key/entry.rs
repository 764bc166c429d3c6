//! Index entries as ledger keys: which there are of an object, and how a field of a bucket is one range of them.
//!
//! An entry is only a key; its head and value are empty. Type, bucket, field, term and key are escaped names, so that
//! byte order is the order of these parts. The prefix behind them tells whose entry it is: a query over some partitions
//! is one scan that leaves others out, at any size of the ring, and a dropped partition takes its entries along.
//!
//! An object has the entries of all its siblings, each once. Two writings of an integer are one term, and fields that
//! every object has, or whose term cannot be ordered, have none ([`crate::index::term`]).

use std::borrow::Cow;

use super::{KeyRange, TAG_OBJECT, encode_object_key, put_name, read_name, take_name};
use crate::error::Error;
use crate::index::ordered;
use crate::view::HeadView;

pub(super) const TAG_ENTRY: u8 = 0x02;

/// The first key of all objects.
pub const OBJECTS_START: &[u8] = &[TAG_OBJECT];
/// The key behind all objects.
pub const OBJECTS_END: &[u8] = &[TAG_OBJECT + 1];
/// The first key of all index entries: none has it, and it marks that they are all there.
pub const ENTRIES_START: &[u8] = &[TAG_ENTRY];
/// The key behind all index entries.
pub const ENTRIES_END: &[u8] = &[TAG_ENTRY + 1];

/// Longest field of an index entry: a name that people choose, and write often.
pub const FIELD_LEN_MAX: usize = 1 << 10;
/// Longest term of an index entry: with the longest names beside it, all escaped, it is still a key that the engine
/// takes.
pub const TERM_LEN_MAX: usize = 32 << 10;
/// Longest ledger key of an index entry.
pub const INDEX_KEY_LEN_MAX: usize = 1
    + (2 * super::TYPE_LEN_MAX + 2)
    + (2 * super::BUCKET_LEN_MAX + 2)
    + (2 * FIELD_LEN_MAX + 2)
    + (2 * TERM_LEN_MAX + 2)
    + (2 * super::KEY_LEN_MAX + 2)
    + PREFIX_LEN;
const _: () = assert!(INDEX_KEY_LEN_MAX <= 400 << 10, "the engine takes keys of up to 400 KiB");

const PREFIX_LEN: usize = 2;

/// The parts of an index entry. Names are borrowed but for those that hold a `0x00`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexKey<'a> {
    /// The bucket type.
    pub bucket_type: Cow<'a, [u8]>,
    /// The bucket.
    pub bucket: Cow<'a, [u8]>,
    /// The field, with its suffix.
    pub field: Cow<'a, [u8]>,
    /// The term as it is ordered ([`crate::index::term`]).
    pub term: Cow<'a, [u8]>,
    /// The object's key.
    pub key: Cow<'a, [u8]>,
    /// The top bits of the object's position on the ring.
    pub prefix: u16,
}

/// Appends the ledger key of an index entry. `term` is as it is ordered ([`crate::index::term`]).
pub fn encode_index_key(
    bucket_type: &[u8],
    bucket: &[u8],
    field: &[u8],
    term: &[u8],
    key: &[u8],
    prefix: u16,
    out: &mut Vec<u8>,
) {
    out.push(TAG_ENTRY);
    for name in [bucket_type, bucket, field, term, key] {
        put_name(out, name);
    }
    out.extend_from_slice(&prefix.to_be_bytes());
}

/// The parts of the ledger key of an index entry.
///
/// # Errors
/// [`Error::Key`] if it is not one.
pub fn decode_index_key(bytes: &[u8]) -> Result<IndexKey<'_>, Error> {
    let Some((&TAG_ENTRY, rest)) = bytes.split_first() else {
        return Err(Error::Key("it is not an index entry's"));
    };
    let (bucket_type, rest) = take_name(rest)?;
    let (bucket, rest) = take_name(rest)?;
    let (field, rest) = take_name(rest)?;
    let (term, rest) = take_name(rest)?;
    let (key, rest) = take_name(rest)?;
    let prefix = rest.try_into().map_err(|_| Error::Key("an index entry has no prefix"))?;
    Ok(IndexKey { bucket_type, bucket, field, term, key, prefix: u16::from_be_bytes(prefix) })
}

/// Appends the term, as it is ordered ([`crate::index::term`]), and then the object's key of an entry that begins with
/// the `names` of its type, bucket and field, where its field's range starts ([`index_entries`]): a third of the work
/// of [`decode_index_key`], for who reads many of one field. Answers the term's length.
///
/// # Errors
/// [`Error::Key`] if it is no entry of this field; something may have been appended.
pub fn put_term_and_key(names: &[u8], entry: &[u8], out: &mut Vec<u8>) -> Result<usize, Error> {
    let start = out.len();
    let rest = entry.strip_prefix(names);
    let rest = rest.ok_or_else(|| Error::Key("it is not an index entry of this field"))?;
    let rest = read_name(rest, out)?;
    let term_len = out.len() - start;
    let rest = read_name(rest, out)?;
    if rest.len() == PREFIX_LEN { Ok(term_len) } else { Err(Error::Key("an index entry has no prefix")) }
}

/// The prefix at the end of an index entry's ledger key, which is not taken apart for it; zero if there is none.
#[inline]
pub fn index_prefix_of(entry: &[u8]) -> u16 {
    entry.last_chunk().map_or(0, |prefix| u16::from_be_bytes(*prefix))
}

/// All entries of a field of a bucket.
pub fn index_entries(bucket_type: &[u8], bucket: &[u8], field: &[u8]) -> KeyRange {
    KeyRange::of_prefix(names(&[bucket_type, bucket, field]))
}

/// The entries of a field of a bucket from one term to another, both among them; none if the last is before the first.
/// Terms are as they are ordered ([`crate::index::term`]).
pub fn index_range(bucket_type: &[u8], bucket: &[u8], field: &[u8], first: &[u8], last: &[u8]) -> KeyRange {
    let start = names(&[bucket_type, bucket, field, first]);
    let end = KeyRange::of_prefix(names(&[bucket_type, bucket, field, last])).end;
    KeyRange { end: end.max(start.clone()), start }
}

/// The first ledger key behind all entries of this term and key.
pub fn index_after(bucket_type: &[u8], bucket: &[u8], field: &[u8], term: &[u8], key: &[u8]) -> Vec<u8> {
    KeyRange::of_prefix(names(&[bucket_type, bucket, field, term, key])).end
}

/// The ledger key of the object that an entry is about; `None` if it is no entry.
pub fn object_of_entry(entry: &[u8]) -> Option<Vec<u8>> {
    let parts = decode_index_key(entry).ok()?;
    let mut key = Vec::new();
    encode_object_key(parts.prefix, &parts.bucket_type, &parts.bucket, &parts.key, &mut key);
    Some(key)
}

/// Hands `each` the ledger key of every index entry that an object with this ledger key and this head has; one of
/// several siblings may come more than once. None of what is no object's key, or no head.
pub fn entries_of(object_key: &[u8], head: &[u8], each: &mut dyn FnMut(&[u8])) {
    let Ok(head) = HeadView::parse(head) else { return };
    let Ok(parts) = super::decode_object_key(object_key) else { return };
    let mut entry = vec![TAG_ENTRY];
    put_name(&mut entry, &parts.bucket_type);
    put_name(&mut entry, &parts.bucket);
    let bucket_len = entry.len();
    for sibling in head.siblings().filter(|sibling| !sibling.deleted) {
        for index in sibling.indexes {
            let Some(term) = ordered(index.field, index.value) else { continue };
            entry.truncate(bucket_len);
            put_name(&mut entry, index.field);
            put_name(&mut entry, &term);
            put_name(&mut entry, parts.key);
            entry.extend_from_slice(&parts.prefix.to_be_bytes());
            each(&entry);
        }
    }
}

/// How long the ledger key of an entry can be at most, with parts of these lengths together.
pub fn entry_len_max(names_len: usize) -> usize {
    1 + 2 * names_len + 5 * 2 + PREFIX_LEN
}

fn names(names: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![TAG_ENTRY];
    names.iter().for_each(|name| put_name(&mut out, name));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Actor, Context, Dot, Head, IndexEntry, Metadata, SiblingHead, index::term};
    use bytes::Bytes;
    use proptest::prelude::*;

    type Parts = (Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>, u16);

    fn encode((bucket_type, bucket, field, term, key, prefix): &Parts) -> Vec<u8> {
        let mut out = Vec::new();
        encode_index_key(bucket_type, bucket, field, term, key, *prefix, &mut out);
        out
    }

    #[test]
    fn golden_bytes() {
        let parts = (b"t".to_vec(), b"a\0b".to_vec(), b"f_bin".to_vec(), vec![], b"k".to_vec(), 0x0102);
        assert_eq!(encode(&parts), b"\x02t\0\x01a\0\xffb\0\x01f_bin\0\x01\0\x01k\0\x01\x01\x02");
        let minus_one = term(b"n_int", b"-1").unwrap();
        assert_eq!(&minus_one[..], b"\x7f\xff\xff\xff\xff\xff\xff\xff");
        assert_eq!(object_of_entry(&encode(&parts)).unwrap(), b"\x01\x01\x02t\0\x01a\0\xffb\0\x01k");
        assert_eq!(index_prefix_of(&encode(&parts)), 0x0102);
        for bad in [&b""[..], b"\x02", b"\x01t\0\x01", b"\x02t\0\x01b\0\x01f\0\x01v\0\x01k\0\x01\x01"] {
            assert!(decode_index_key(bad).is_err() && object_of_entry(bad).is_none(), "{bad:?}");
        }
        assert!(ENTRIES_START < &encode(&parts)[..] && &encode(&parts)[..] < ENTRIES_END);
    }

    fn head(siblings: &[(&[(&'static str, &'static str)], bool)]) -> Vec<u8> {
        let dots: Vec<Dot> =
            (1..).map(|counter| Dot { actor: Actor(7), counter }).take(siblings.len()).collect();
        let mut context = Context::new();
        dots.iter().for_each(|dot| context.add(*dot));
        let siblings = dots.iter().zip(siblings).map(|(&dot, (indexes, deleted))| {
            let entry = |&(field, value): &(&'static str, &'static str)| IndexEntry {
                field: Bytes::from(field),
                value: Bytes::from(value),
            };
            let indexes = indexes.iter().map(entry).collect();
            SiblingHead {
                dot,
                value_len: 0,
                metadata: Metadata { indexes, deleted: *deleted, ..Metadata::default() },
            }
        });
        let mut out = Vec::new();
        Head::new(context, siblings.collect()).encode(&mut out);
        out
    }

    #[test]
    fn an_object_has_the_entries_of_its_siblings() {
        let mut key = Vec::new();
        encode_object_key(9, b"t", b"b", b"k\0", &mut key);
        let of = |siblings: &[(&[(&'static str, &'static str)], bool)]| {
            let (head, mut found) = (head(siblings), Vec::new());
            assert_eq!(
                HeadView::may_have_indexes(&head),
                siblings.iter().any(|(terms, _)| !terms.is_empty())
            );
            entries_of(&key, &head, &mut |entry| {
                assert_eq!(object_of_entry(entry).as_ref(), Some(&key));
                let parts = decode_index_key(entry).unwrap();
                found.push((parts.field.into_owned(), parts.term.into_owned()));
            });
            found
                .into_iter()
                .map(|(f, t)| format!("{}={}", f.escape_ascii(), t.escape_ascii()))
                .collect::<Vec<_>>()
        };
        assert!(of(&[(&[], false)]).is_empty());
        assert_eq!(of(&[(&[("a_bin", "x"), ("$key", "k"), ("n_int", "q")], false)]), ["a_bin=x"]);
        assert_eq!(
            of(&[(&[("a_bin", "")], false), (&[("n_int", "007")], false)]),
            ["a_bin=", r"n_int=\x80\x00\x00\x00\x00\x00\x00\x07"]
        );
        entries_of(b"\x03", &head(&[(&[("a_bin", "x")], false)]), &mut |_| panic!("no object's key"));
        entries_of(&key, b"\x01\x00", &mut |_| panic!("no head"));
    }

    fn name() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xFF), any::<u8>()], 0..4)
    }

    fn parts() -> impl Strategy<Value = Parts> {
        (name(), name(), name(), name(), name(), any::<u16>())
    }

    #[test]
    fn names_are_read_whether_they_stand_there_as_they_are_or_not() {
        let of = index_entries(b"type", b"bucket", b"field_bin").start;
        let names: [(&[u8], &[u8]); 4] =
            [(b"plain", b"key"), (b"\x80\0\0\0\0\0\0\x07", b"a\0b"), (b"", b"\0"), (b"\0\0", b"last")];
        for (term, key) in names {
            let (mut entry, mut read) = (Vec::new(), Vec::new());
            encode_index_key(b"type", b"bucket", b"field_bin", term, key, 7, &mut entry);
            assert_eq!(put_term_and_key(&of, &entry, &mut read), Ok(term.len()));
            assert_eq!(read, [term, key].concat());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn byte_order_is_the_order_of_the_parts(a in parts(), b in parts()) {
            prop_assert_eq!(encode(&a).cmp(&encode(&b)), a.cmp(&b));
        }

        #[test]
        fn entries_round_trip_and_lie_in_their_ranges(a in parts(), first in name(), last in name()) {
            let bytes = encode(&a);
            let (bucket_type, bucket, field, term, key, prefix) = a;
            let decoded = decode_index_key(&bytes).unwrap();
            prop_assert_eq!(decoded.key.as_ref(), &key[..]);
            prop_assert_eq!((decoded.term.as_ref(), decoded.prefix), (&term[..], prefix));
            let entries = index_entries(&bucket_type, &bucket, &field);
            prop_assert!(entries.contains(&bytes));
            let mut read = b"before".to_vec();
            let term_len = put_term_and_key(&entries.start, &bytes, &mut read).unwrap();
            prop_assert_eq!(term_len, term.len());
            prop_assert_eq!(read, [b"before", &term[..], &key].concat());
            prop_assert!(put_term_and_key(&entries.start, &bytes[..bytes.len() - 1], &mut Vec::new()).is_err());
            prop_assert!(put_term_and_key(&entries.end, &bytes, &mut Vec::new()).is_err());
            let range = index_range(&bucket_type, &bucket, &field, &first, &last);
            prop_assert_eq!(range.contains(&bytes), first <= term && term <= last);
            prop_assert!(range.start <= range.end);
            let after = index_after(&bucket_type, &bucket, &field, &term, &key);
            prop_assert!(bytes < after);
            let names = [&bucket_type, &bucket, &field, &term, &key].map(Vec::len).iter().sum();
            prop_assert!(bytes.len() <= entry_len_max(names));
            let mut next = Vec::new();
            let larger = [&key[..], &[0]].concat();
            encode_index_key(&bucket_type, &bucket, &field, &term, &larger, 0, &mut next);
            prop_assert!(next >= after);
        }

        #[test]
        fn integers_are_ordered_as_numbers(a in any::<i64>(), b in any::<i64>()) {
            let of = |n: i64| term(b"n_int", n.to_string().as_bytes()).unwrap();
            prop_assert_eq!(of(a).cmp(&of(b)), a.cmp(&b));
            let mut text = Vec::new();
            crate::index::put_integer(&of(a), &mut text);
            prop_assert_eq!(text, a.to_string().into_bytes());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(parts) = decode_index_key(&bytes) {
                let mut again = Vec::new();
                let IndexKey { bucket_type, bucket, field, term, key, prefix } = &parts;
                encode_index_key(bucket_type, bucket, field, term, key, *prefix, &mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
