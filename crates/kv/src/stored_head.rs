//! Heads and values as a store has them: bytes that cannot be read are damage.

use crate::error::Error;
use crate::props::BucketProps;
use bytes::Bytes;
use object::{Head, HeadView};

/// Reads a stored head in place; one that cannot be read is damage.
pub(crate) fn view(head: &[u8]) -> Result<HeadView<'_>, Error> {
    HeadView::parse(head).map_err(damaged)
}

/// Stored bytes that make no sense.
pub(crate) fn damaged(error: object::Error) -> Error {
    Error::Damaged(error.to_string())
}

/// Whether readers of a bucket are to be told that there is no object, at a time in milliseconds since 1970.
pub(crate) fn is_absent(head: &HeadView<'_>, props: &BucketProps, now_ms: u64) -> bool {
    let newest_is_deleted = || head.newest_at(now_ms).is_none_or(|newest| newest.deleted);
    head.is_gone(now_ms) || (head.sibling_count() > 1 && props.shows_newest_only() && newest_is_deleted())
}

/// The values, which are as long as the head says unless something is damaged.
pub(crate) fn checked_values(len: u64, values: Bytes) -> Result<Bytes, Error> {
    if len != values.len() as u64 {
        return Err(Error::Damaged(format!("values of {} bytes under a head for {len}", values.len())));
    }
    Ok(values)
}

/// Decodes a stored head.
pub(crate) fn decode(head: &Bytes) -> Result<Head, Error> {
    Head::decode(head).map_err(damaged)
}

/// Most heads are shorter: a context of a few actors, a content type, an index entry or two.
const HEAD_BYTES_USUAL: usize = 128;

/// Encodes a head for the store.
pub(crate) fn encode(head: &Head) -> Bytes {
    let mut bytes = Vec::with_capacity(HEAD_BYTES_USUAL);
    head.encode(&mut bytes);
    bytes.into()
}
