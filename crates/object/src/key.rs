//! Ledger keys: how a store orders what it holds.
//!
//! | kind | bytes |
//! |---|---|
//! | object | `0x01`, prefix (u16 big-endian), type, bucket, key |
//! | index entry | `0x02`, type, bucket, field, term, key, prefix (u16 big-endian) |
//! | mark of a whole index | `0x02` |
//! | bucket properties | `0x03`, type, bucket |
//! | hint | `0x04`, node (u16 big-endian), the object's ledger key |
//! | bucket type | `0x05`, type |
//! | checkpoint of a copy | `0x06`, the node that it comes from (u16 big-endian) |
//!
//! The prefix is the top bits of the key's ring position, so that a partition is one range. Types and buckets are
//! written so that byte order is their order and none is a prefix of another: `0x00` becomes `0x00 0xFF`, and
//! `0x00 0x01` ends the name. An object's key comes last and is written as it is; in an index entry the prefix comes
//! last, so that a field is one range in the order of terms, whatever the ring (`key/entry.rs`).

mod entry;

use std::borrow::Cow;

use crate::error::Error;

pub use entry::{
    ENTRIES_END, ENTRIES_START, FIELD_LEN_MAX, INDEX_KEY_LEN_MAX, IndexKey, OBJECTS_END, OBJECTS_START,
    TERM_LEN_MAX, decode_index_key, encode_index_key, entries_of, entry_len_max, index_after, index_entries,
    index_prefix_of, index_range, object_of_entry, put_term_and_key,
};

/// The bucket type of buckets that were given none.
pub const DEFAULT_TYPE: &[u8] = b"default";
/// Longest bucket type: they are few and named by operators.
pub const TYPE_LEN_MAX: usize = 255;
/// Longest bucket: what two bytes of length can say, well above what Riak's backends can store.
pub const BUCKET_LEN_MAX: usize = 65_535;
/// Longest key: as for buckets.
pub const KEY_LEN_MAX: usize = 65_535;
/// Longest ledger key: the hint about a key in a type and a bucket of nothing but `0x00`.
pub const LEDGER_KEY_LEN_MAX: usize = 3 + 3 + (2 * TYPE_LEN_MAX + 2) + (2 * BUCKET_LEN_MAX + 2) + KEY_LEN_MAX;
const _: () = assert!(LEDGER_KEY_LEN_MAX <= 200 * 1024, "the engine takes keys of up to 200 KiB");

const TAG_OBJECT: u8 = 0x01;
const TAG_BUCKET: u8 = 0x03;
const TAG_HINT: u8 = 0x04;
const TAG_TYPE: u8 = 0x05;
const TAG_COPY: u8 = 0x06;
/// The first byte of the states of consistent groups, which the engine keeps.
pub const TAG_GROUP: u8 = 0x07;
const TAG_BIRTH: u8 = 0x08;
const ESCAPED: u8 = 0xFF;
const END: u8 = 0x01;

/// The key of the birth of a store.
pub const BIRTH: &[u8] = &[TAG_BIRTH];

/// A half-open range of ledger keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key inside.
    pub start: Vec<u8>,
    /// The first key behind.
    pub end: Vec<u8>,
}

impl KeyRange {
    /// All keys that begin with `prefix`, whose last byte is below `0xFF` or has one such before it.
    fn of_prefix(prefix: Vec<u8>) -> KeyRange {
        let mut end = prefix.clone();
        while end.pop_if(|byte| *byte == 0xFF).is_some() {}
        *end.last_mut().expect("a tag is below 0xFF") += 1;
        KeyRange { start: prefix, end }
    }

    /// Whether `key` is inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && key < self.end.as_slice()
    }
}

/// The parts of an object's ledger key. Names are borrowed but for those that hold a `0x00`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectKey<'a> {
    /// The top bits of the ring position.
    pub prefix: u16,
    /// The bucket type.
    pub bucket_type: Cow<'a, [u8]>,
    /// The bucket.
    pub bucket: Cow<'a, [u8]>,
    /// The key.
    pub key: &'a [u8],
}

/// Checks what a client calls an object.
///
/// # Errors
/// [`Error::Name`] if a part is empty or too long.
pub fn check_names(bucket_type: &[u8], bucket: &[u8], key: &[u8]) -> Result<(), Error> {
    check_name("the bucket type", bucket_type, TYPE_LEN_MAX)?;
    check_name("the bucket", bucket, BUCKET_LEN_MAX)?;
    check_name("the key", key, KEY_LEN_MAX)
}

fn check_name(what: &'static str, name: &[u8], max: usize) -> Result<(), Error> {
    if name.is_empty() || name.len() > max {
        return Err(Error::Name { what, len: name.len(), max });
    }
    Ok(())
}

/// Appends the ledger key of an object.
pub fn encode_object_key(prefix: u16, bucket_type: &[u8], bucket: &[u8], key: &[u8], out: &mut Vec<u8>) {
    out.reserve(3 + bucket_type.len() + bucket.len() + key.len() + 4);
    out.push(TAG_OBJECT);
    out.extend_from_slice(&prefix.to_be_bytes());
    put_name(out, bucket_type);
    put_name(out, bucket);
    out.extend_from_slice(key);
}

/// The prefix in an object's ledger key; zero if it is none.
pub fn prefix_of(ledger_key: &[u8]) -> u16 {
    match ledger_key {
        &[TAG_OBJECT, high, low, ..] => u16::from_be_bytes([high, low]),
        _ => 0,
    }
}

/// The ledger key of the hint that is kept for `node` about an object.
pub fn hint(node: u16, object_key: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(3 + object_key.len());
    key.push(TAG_HINT);
    key.extend_from_slice(&node.to_be_bytes());
    key.extend_from_slice(object_key);
    key
}

/// All hints for `node`.
pub fn hints(node: u16) -> KeyRange {
    KeyRange::of_prefix(hint(node, &[]))
}

/// The ledger key of the object that a hint is about.
///
/// # Errors
/// [`Error::Key`] if it is no hint.
pub fn hinted(hint: &[u8]) -> Result<&[u8], Error> {
    match hint {
        [TAG_HINT, _, _, object_key @ ..] => Ok(object_key),
        _ => Err(Error::Key("it is no hint's")),
    }
}

/// All hints, for whomever.
pub fn all_hints() -> KeyRange {
    KeyRange::of_prefix(vec![TAG_HINT])
}

/// The node that a hint is for.
///
/// # Errors
/// [`Error::Key`] if it is no hint.
pub fn hinted_node(hint: &[u8]) -> Result<u16, Error> {
    match hint {
        &[TAG_HINT, high, low, ..] => Ok(u16::from_be_bytes([high, low])),
        _ => Err(Error::Key("it is no hint's")),
    }
}

/// The ledger key of the checkpoint of what is copied from a node.
pub fn copy(from: u16) -> Vec<u8> {
    let [high, low] = from.to_be_bytes();
    vec![TAG_COPY, high, low]
}

/// The checkpoints of all copies.
pub fn copies() -> KeyRange {
    KeyRange::of_prefix(vec![TAG_COPY])
}

/// The node in the ledger key of a checkpoint.
///
/// # Errors
/// [`Error::Key`] if it is not one.
pub fn copied_from(bytes: &[u8]) -> Result<u16, Error> {
    match bytes {
        &[TAG_COPY, high, low] => Ok(u16::from_be_bytes([high, low])),
        _ => Err(Error::Key("it is no checkpoint's")),
    }
}

/// The parts of an object's ledger key.
///
/// # Errors
/// [`Error::Key`] if it is not one.
pub fn decode_object_key(bytes: &[u8]) -> Result<ObjectKey<'_>, Error> {
    let Some((&[TAG_OBJECT, high, low], rest)) = bytes.split_first_chunk() else {
        return Err(Error::Key("it is not an object's"));
    };
    let (bucket_type, rest) = take_name(rest)?;
    let (bucket, key) = take_name(rest)?;
    Ok(ObjectKey { prefix: u16::from_be_bytes([high, low]), bucket_type, bucket, key })
}

/// The bucket type of the object that a ledger key is about: its own, that of an index entry or of a hint; `None` of
/// all others.
pub fn bucket_type_of(ledger_key: &[u8]) -> Option<Cow<'_, [u8]>> {
    let names = match hinted(ledger_key).unwrap_or(ledger_key) {
        [TAG_OBJECT, _, _, names @ ..] | [entry::TAG_ENTRY, names @ ..] => names,
        _ => return None,
    };
    take_name(names).ok().map(|(bucket_type, _)| bucket_type)
}

/// Appends the ledger key of a bucket's properties.
pub fn encode_bucket_key(bucket_type: &[u8], bucket: &[u8], out: &mut Vec<u8>) {
    out.push(TAG_BUCKET);
    put_name(out, bucket_type);
    put_name(out, bucket);
}

/// The type and bucket in the ledger key of a bucket's properties.
///
/// # Errors
/// [`Error::Key`] if it is not one.
#[expect(clippy::type_complexity, reason = "a pair of names")]
pub fn decode_bucket_key(bytes: &[u8]) -> Result<(Cow<'_, [u8]>, Cow<'_, [u8]>), Error> {
    let Some((&TAG_BUCKET, rest)) = bytes.split_first() else {
        return Err(Error::Key("it is not a bucket's"));
    };
    let (bucket_type, rest) = take_name(rest)?;
    let (bucket, rest) = take_name(rest)?;
    if !rest.is_empty() {
        return Err(Error::Key("bytes follow the bucket"));
    }
    Ok((bucket_type, bucket))
}

/// The ledger key of a bucket type.
pub fn bucket_type(name: &[u8]) -> Vec<u8> {
    let mut out = vec![TAG_TYPE];
    put_name(&mut out, name);
    out
}

/// The name in the ledger key of a bucket type.
///
/// # Errors
/// [`Error::Key`] if it is not one.
pub fn decode_bucket_type(bytes: &[u8]) -> Result<Cow<'_, [u8]>, Error> {
    let Some((&TAG_TYPE, rest)) = bytes.split_first() else {
        return Err(Error::Key("it is not a bucket type's"));
    };
    let (name, rest) = take_name(rest)?;
    if rest.is_empty() { Ok(name) } else { Err(Error::Key("bytes follow the bucket type")) }
}

/// All objects.
pub fn objects() -> KeyRange {
    KeyRange::of_prefix(vec![TAG_OBJECT])
}

/// All buckets' properties.
pub fn bucket_properties() -> KeyRange {
    KeyRange::of_prefix(vec![TAG_BUCKET])
}

/// All bucket types.
pub fn bucket_types() -> KeyRange {
    KeyRange::of_prefix(vec![TAG_TYPE])
}

/// All objects at a prefix of the ring.
pub fn objects_at(prefix: u16) -> KeyRange {
    KeyRange::of_prefix(object_prefix(prefix))
}

/// All objects of a bucket type at a prefix of the ring.
pub fn objects_of_type(prefix: u16, bucket_type: &[u8]) -> KeyRange {
    let mut start = object_prefix(prefix);
    put_name(&mut start, bucket_type);
    KeyRange::of_prefix(start)
}

/// All objects of a bucket at a prefix of the ring. Its end is where a scan for buckets goes on: it skips the
/// bucket's other keys.
pub fn objects_of_bucket(prefix: u16, bucket_type: &[u8], bucket: &[u8]) -> KeyRange {
    let mut start = object_prefix(prefix);
    put_name(&mut start, bucket_type);
    put_name(&mut start, bucket);
    KeyRange::of_prefix(start)
}

fn object_prefix(prefix: u16) -> Vec<u8> {
    let [high, low] = prefix.to_be_bytes();
    vec![TAG_OBJECT, high, low]
}

fn put_name(out: &mut Vec<u8>, name: &[u8]) {
    for part in name.split_inclusive(|&byte| byte == 0) {
        out.extend_from_slice(part);
        if part.ends_with(&[0]) {
            out.push(ESCAPED);
        }
    }
    out.extend_from_slice(&[0, END]);
}

/// The name at the front of `bytes`, and what follows it.
fn take_name(bytes: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), Error> {
    let (part, end, rest) = take_part(bytes)?;
    if end == END {
        return Ok((Cow::Borrowed(part), rest));
    }
    let mut name = Vec::with_capacity(bytes.len());
    let rest = read_name(bytes, &mut name)?;
    Ok((Cow::Owned(name), rest))
}

/// Appends the name at the front of `bytes`, and answers what follows it.
fn read_name<'a>(mut bytes: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], Error> {
    loop {
        let (part, end, rest) = take_part(bytes)?;
        out.extend_from_slice(part);
        if end == END {
            return Ok(rest);
        }
        out.push(0);
        bytes = rest;
    }
}

/// What is before the first zero, what the zero means, and what follows.
#[inline]
fn take_part(bytes: &[u8]) -> Result<(&[u8], u8, &[u8]), Error> {
    let zero = bytes.iter().position(|&byte| byte == 0).ok_or_else(|| Error::Key("a name does not end"))?;
    match bytes.get(zero + 1) {
        Some(&end @ (END | ESCAPED)) => Ok((&bytes[..zero], end, &bytes[zero + 2..])),
        _ => Err(Error::Key("a name has an unknown escape")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object_key(prefix: u16, bucket_type: &[u8], bucket: &[u8], key: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_object_key(prefix, bucket_type, bucket, key, &mut out);
        out
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(
            object_key(0x0102, b"t", b"a\0b", b"k\0"),
            b"\x01\x01\x02t\x00\x01a\x00\xffb\x00\x01k\x00"
        );
        let mut out = Vec::new();
        encode_bucket_key(DEFAULT_TYPE, b"b", &mut out);
        assert_eq!(out, b"\x03default\x00\x01b\x00\x01");
        assert_eq!(decode_bucket_key(&out), Ok((DEFAULT_TYPE.into(), b"b"[..].into())));
        assert_eq!(bucket_type(b"t\0"), b"\x05t\x00\xff\x00\x01");
        assert_eq!(decode_bucket_type(b"\x05t\x00\xff\x00\x01"), Ok(b"t\0"[..].into()));
    }

    #[test]
    fn damage_is_refused() {
        for bad in [&b""[..], b"\x01\x00", b"\x02\x00\x00t\x00\x01b\x00\x01k", b"\x01\x00\x00t\x00\x01b"] {
            assert!(matches!(decode_object_key(bad), Err(Error::Key(_))), "{bad:?}");
        }
        assert!(decode_object_key(b"\x01\x00\x00t\x00\x02b\x00\x01k").is_err());
        assert!(decode_object_key(b"\x01\x00\x00t\x00").is_err());
        assert!(decode_bucket_key(b"\x03t\x00\x01b\x00\x01k").is_err());
        assert!(decode_bucket_key(b"\x01").is_err());
        assert!(
            decode_bucket_type(b"\x05t\x00\x01k").is_err() && decode_bucket_type(b"\x03t\x00\x01").is_err()
        );
    }

    #[test]
    fn the_last_prefix_has_a_range() {
        let range = objects_at(u16::MAX);
        assert_eq!((range.start.as_slice(), range.end.as_slice()), (&b"\x01\xff\xff"[..], &b"\x02"[..]));
        assert!(range.contains(&object_key(u16::MAX, b"\xff", b"\xff", b"\xff")));
        assert!(!objects_at(0x00FF).contains(&object_key(0x0100, b"t", b"b", b"k")));
    }

    #[test]
    fn names_have_bounds() {
        assert_eq!(check_names(b"t", b"b", b"k"), Ok(()));
        assert_eq!(
            check_names(b"t", b"", b"k").expect_err("empty").to_string(),
            "the bucket is 0 bytes long; 1 to 65535 are allowed"
        );
        assert!(check_names(b"t", b"b", &[0; KEY_LEN_MAX + 1]).is_err());
        let longest = object_key(0, &[0; TYPE_LEN_MAX], &[0; BUCKET_LEN_MAX], &[0; KEY_LEN_MAX]);
        assert_eq!(hint(0, &longest).len(), LEDGER_KEY_LEN_MAX);
    }

    #[test]
    fn a_hint_is_under_its_node_and_names_its_object() {
        let key = object_key(7, b"t", b"b", b"k");
        let hint = hint(0x0102, &key);
        let bytes = [&[4, 1, 2][..], &[1, 0, 7, b't', 0, 1, b'b', 0, 1, b'k']].concat();
        assert_eq!(hint, bytes);
        assert!(
            hints(0x0102).contains(&hint) && !hints(0x0103).contains(&hint) && !objects().contains(&hint)
        );
        assert_eq!(hinted(&hint), Ok(&key[..]));
        assert!(hinted(&key).is_err());
        assert_eq!((prefix_of(&key), prefix_of(&hint)), (7, 0));
        assert_eq!((hinted_node(&hint), hinted_node(&key).is_err()), (Ok(0x0102), true));
        assert!(all_hints().contains(&hint) && !all_hints().contains(&key));
    }

    #[test]
    fn a_checkpoint_names_its_sender() {
        assert_eq!(copy(0x0102), [6, 1, 2]);
        assert_eq!((copied_from(&[6, 1, 2]), copied_from(&[6, 1]).is_err()), (Ok(0x0102), true));
        assert!(copies().contains(&copy(u16::MAX)) && !copies().contains(&bucket_type(b"t")));
    }

    /// Names with many bytes that the escape is about.
    fn name() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(
            prop_oneof![Just(0u8), Just(1), Just(2), Just(0xFE), Just(0xFF), any::<u8>()],
            0..6,
        )
    }

    fn parts() -> impl Strategy<Value = (u16, Vec<u8>, Vec<u8>, Vec<u8>)> {
        (prop_oneof![0u16..3, any::<u16>()], name(), name(), name())
    }

    fn encode(parts: &(u16, Vec<u8>, Vec<u8>, Vec<u8>)) -> Vec<u8> {
        object_key(parts.0, &parts.1, &parts.2, &parts.3)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn byte_order_is_the_order_of_the_parts(a in parts(), b in parts()) {
            prop_assert_eq!(encode(&a).cmp(&encode(&b)), a.cmp(&b));
        }

        #[test]
        fn keys_round_trip(parts in parts()) {
            let bytes = encode(&parts);
            let decoded = decode_object_key(&bytes).unwrap();
            prop_assert_eq!(decoded.prefix, parts.0);
            prop_assert_eq!(decoded.bucket_type.as_ref(), parts.1.as_slice());
            prop_assert_eq!(decoded.bucket.as_ref(), parts.2.as_slice());
            prop_assert_eq!(decoded.key, parts.3.as_slice());
        }

        #[test]
        fn what_is_about_an_object_has_its_type(parts in parts(), node: u16, field in name()) {
            let (prefix, bucket_type, bucket, key) = &parts;
            let object = encode(&parts);
            let mut entry = Vec::new();
            encode_index_key(bucket_type, bucket, &field, b"1", key, *prefix, &mut entry);
            for about in [hint(node, &object), object, entry] {
                prop_assert_eq!(bucket_type_of(&about), Some(Cow::from(&bucket_type[..])));
            }
            let mut properties = Vec::new();
            encode_bucket_key(bucket_type, bucket, &mut properties);
            for other in [properties, super::bucket_type(bucket_type), copy(node), ENTRIES_START.to_vec()] {
                prop_assert_eq!(bucket_type_of(&other), None);
            }
        }

        #[test]
        fn ranges_hold_what_they_name(range in parts(), other in parts()) {
            let (prefix, bucket_type, bucket, _) = &range;
            let key = encode(&other);
            prop_assert!(objects().contains(&key));
            prop_assert!(!bucket_properties().contains(&key));
            prop_assert_eq!(objects_at(*prefix).contains(&key), *prefix == other.0);
            prop_assert_eq!(
                objects_of_type(*prefix, bucket_type).contains(&key),
                (prefix, bucket_type) == (&other.0, &other.1)
            );
            prop_assert_eq!(
                objects_of_bucket(*prefix, bucket_type, bucket).contains(&key),
                (prefix, bucket_type, bucket) == (&other.0, &other.1, &other.2)
            );
        }

        #[test]
        fn random_bytes_never_panic(bytes in name(), tag in 0u8..4) {
            let bytes = [&[tag, 0, 0], bytes.as_slice()].concat();
            if let Ok(key) = decode_object_key(&bytes) {
                let again = object_key(key.prefix, &key.bucket_type, &key.bucket, key.key);
                prop_assert_eq!(again, bytes);
            } else if let Ok((bucket_type, bucket)) = decode_bucket_key(&bytes) {
                let mut again = Vec::new();
                encode_bucket_key(&bucket_type, &bucket, &mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
