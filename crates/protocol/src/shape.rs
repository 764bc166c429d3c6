//! The part of a request's schema that `prost` does not hold it to: required fields, and how many nested
//! messages it may carry.
//!
//! `prost` reads a missing required field as an empty one, so a put without content would store an empty
//! value. And a nested message of two bytes costs a hundred in memory, so a frame full of empty links
//! would take many times its size. One walk over the borrowed bytes settles both before anything is taken.
//!
//! A nested message written in several pieces (which proto2 would merge) must be complete in each piece.

use crate::wire::Fields;

/// Nested messages one request may carry: far beyond any object's links, metadata and indexes, while the
/// memory they decode to stays below 8 MiB.
pub(crate) const NESTED_MAX: usize = 65_536;

/// What a message must look like.
pub(crate) struct Shape {
    name: &'static str,
    /// Bit n stands for field n.
    required: u64,
    nested: &'static [(u32, &'static Shape)],
}

const fn shape(name: &'static str, required: &[u32], nested: &'static [(u32, &'static Shape)]) -> Shape {
    let mut bits = 0;
    let mut i = 0;
    while i < required.len() {
        bits |= 1 << required[i];
        i += 1;
    }
    Shape { name, required: bits, nested }
}

const LINK: Shape = shape("RpbLink", &[], &[]);
const PAIR: Shape = shape("RpbPair", &[1], &[]);
const CONTENT: Shape = shape("RpbContent", &[1], &[(6, &LINK), (9, &PAIR), (10, &PAIR)]);
const MOD_FUN: Shape = shape("RpbModFun", &[1, 2], &[]);
const COMMIT_HOOK: Shape = shape("RpbCommitHook", &[], &[(1, &MOD_FUN)]);
const PROPS: Shape =
    shape("RpbBucketProps", &[], &[(4, &COMMIT_HOOK), (6, &COMMIT_HOOK), (8, &MOD_FUN), (9, &MOD_FUN)]);

pub(crate) const EMPTY: Shape = shape("a request without fields", &[], &[]);
pub(crate) const SET_CLIENT_ID: Shape = shape("RpbSetClientIdReq", &[1], &[]);
pub(crate) const AUTH: Shape = shape("RpbAuthReq", &[1, 2], &[]);
pub(crate) const GET: Shape = shape("RpbGetReq", &[1, 2], &[]);
pub(crate) const PUT: Shape = shape("RpbPutReq", &[1, 4], &[(4, &CONTENT)]);
pub(crate) const DEL: Shape = shape("RpbDelReq", &[1, 2], &[]);
pub(crate) const LIST_BUCKETS: Shape = shape("RpbListBucketsReq", &[], &[]);
pub(crate) const LIST_KEYS: Shape = shape("RpbListKeysReq", &[1], &[]);
pub(crate) const INDEX: Shape = shape("RpbIndexReq", &[1, 2, 3], &[]);
pub(crate) const GET_BUCKET: Shape = shape("RpbGetBucketReq", &[1], &[]);
pub(crate) const SET_BUCKET: Shape = shape("RpbSetBucketReq", &[1, 2], &[(2, &PROPS)]);
pub(crate) const RESET_BUCKET: Shape = shape("RpbResetBucketReq", &[1], &[]);
pub(crate) const GET_BUCKET_TYPE: Shape = shape("RpbGetBucketTypeReq", &[1], &[]);
pub(crate) const SET_BUCKET_TYPE: Shape = shape("RpbSetBucketTypeReq", &[1, 2], &[(2, &PROPS)]);
pub(crate) const GET_PREFLIST: Shape = shape("RpbGetBucketKeyPreflistReq", &[1, 2], &[]);
pub(crate) const FOLD_NVAL: Shape = shape("a fold over a number of replicas", &[1], &[]);
pub(crate) const FOLD_BUCKETS: Shape = shape("RpbAaeFoldListBucketsReq", &[], &[]);
pub(crate) const FOLD_RANGE: Shape = shape("a fold over a bucket", &[2, 10, 40], &[]);
pub(crate) const FOLD_SEGMENTS: Shape = shape("a fold over a bucket", &[2, 10, 30, 40], &[]);
pub(crate) const FOLD_TREE: Shape = shape("RpbAaeFoldMergeTreesRangeReq", &[2, 10, 20, 30, 40, 50], &[]);
pub(crate) const FOLD_FIND_KEYS: Shape = shape("RpbAaeFoldFindKeysReq", &[2, 10, 40, 50, 51], &[]);
pub(crate) const FOLD_CHANGE: Shape = shape("a fold that changes a bucket", &[2, 10, 30, 40, 50], &[]);

/// Holds `body` to `shape`; the error says what is wrong with it.
pub(crate) fn check(shape: &Shape, body: &[u8]) -> Result<(), String> {
    let mut nested_left = NESTED_MAX;
    check_message(shape, body, &mut nested_left)
}

fn check_message(shape: &Shape, body: &[u8], nested_left: &mut usize) -> Result<(), String> {
    let mut seen = 0u64;
    let mut fields = Fields::of(body);
    while let Some(field) = fields.next().map_err(|reason| format!("{}: {reason}", shape.name))? {
        if field.number < 64 {
            seen |= 1 << field.number;
        }
        let Some(bytes) = field.delimited else { continue };
        if let Some((_, inner)) = shape.nested.iter().find(|(number, _)| *number == field.number) {
            *nested_left = nested_left
                .checked_sub(1)
                .ok_or_else(|| format!("{}: more than {NESTED_MAX} nested messages", shape.name))?;
            // The depth is the schema's (no message holds itself), not the input's.
            check_message(inner, bytes, nested_left)?;
        }
    }
    let missing = shape.required & !seen;
    if missing != 0 {
        return Err(format!("{}: required field {} is missing", shape.name, missing.trailing_zeros()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_fields_are_held_at_every_level() {
        assert_eq!(check(&GET, b"\x0a\x01b\x12\x01k"), Ok(()));
        assert_eq!(check(&GET, b"\x0a\x01b"), Err("RpbGetReq: required field 2 is missing".into()));
        assert_eq!(check(&PUT, b"\x0a\x01b\x22\x00"), Err("RpbContent: required field 1 is missing".into()));
        assert_eq!(
            check(&PUT, b"\x0a\x01b\x22\x05\x0a\x01v\x4a\x00"),
            Err("RpbPair: required field 1 is missing".into())
        );
        assert_eq!(
            check(&SET_BUCKET, b"\x0a\x01b\x12\x06\x22\x04\x0a\x02\x0a\x00"),
            Err("RpbModFun: required field 2 is missing".into())
        );
    }

    #[test]
    fn nested_messages_are_counted() {
        let put = |links: usize| {
            let mut content = b"\x0a\x01v".to_vec();
            content.extend_from_slice(&b"\x32\x00".repeat(links));
            let mut body = b"\x0a\x01b\x22".to_vec();
            crate::wire::put_varint(&mut body, content.len() as u64);
            body.extend_from_slice(&content);
            body
        };
        // The content itself is one of them.
        assert_eq!(check(&PUT, &put(NESTED_MAX - 1)), Ok(()));
        assert!(check(&PUT, &put(NESTED_MAX)).is_err());
    }
}
