//! Where a page ended: what a client sends back to have the next one. To it these are bytes without meaning.
//!
//! Layout: version (1), a checksum of the type, the bucket and the field (u32 little-endian), the length of the row's
//! term (u32 little-endian), the term, the key. The checksum keeps one query's place from being taken for another's. A place
//! shows nothing that its query would not, so it is not signed.

use base::checksum::crc32c;
use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{Row, RowRef};
use crate::error::Error;
use crate::request::Bucket;

const VERSION: u8 = 1;

/// The bytes of a place in a query over a field of a bucket.
pub(super) fn encode(bucket: &Bucket, field: &[u8], row: RowRef<'_>) -> Bytes {
    let mut out = BytesMut::with_capacity(9 + row.term.len() + row.key.len());
    out.put_u8(VERSION);
    out.put_u32_le(of_query(bucket, field));
    out.put_u32_le(u32::try_from(row.term.len()).expect("a term is part of a head"));
    out.put_slice(row.term);
    out.put_slice(row.key);
    out.freeze()
}

/// The place in such bytes.
///
/// # Errors
/// [`Error::BadQuery`] if they are not what [`encode`] writes for a query over this field of this bucket.
pub(crate) fn decode(bucket: &Bucket, field: &[u8], mut place: Bytes) -> Result<Row, Error> {
    let bad = || Error::BadQuery("Invalid continuation".to_owned());
    if place.len() < 9 || place.get_u8() != VERSION || place.get_u32_le() != of_query(bucket, field) {
        return Err(bad());
    }
    let len = usize::try_from(place.get_u32_le()).map_err(|_| bad())?;
    if len > place.len() {
        return Err(bad());
    }
    let term = place.split_to(len);
    Ok(Row { term, key: place })
}

fn of_query(bucket: &Bucket, field: &[u8]) -> u32 {
    let parts = [&bucket.bucket_type[..], &bucket.name, field];
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 4).sum());
    for part in parts {
        bytes.put_u32_le(u32::try_from(part.len()).unwrap_or(u32::MAX));
        bytes.put_slice(part);
    }
    crc32c(&bytes)
}
