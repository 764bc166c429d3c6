//! The continuation of a page: a client sends it back to get the next one. To it these are bytes without meaning.
//!
//! Layout: version (2), a checksum of the query (u32 little-endian), the length of the row's term (u32 little-endian),
//! the term, the key. The query is the bucket's type and name, the field, the bounds and the condition on rows: a place
//! is of use for the next page of the same query, and refused for another. A place shows nothing that its query would
//! not, so it is not signed. In version 1, of older programs, the checksum is of the type, the bucket and the field; it
//! is read.

use base::checksum::crc32c;
use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{Pick, Query, Row, RowRef, Span};
use crate::bucket::Bucket;
use crate::error::Error;

const VERSION: u8 = 2;
/// The version whose checksum leaves bounds and conditions out.
const VERSION_OF_FIELD: u8 = 1;

/// The checksum of a query, for its places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuerySum(u32);

impl QuerySum {
    /// The sum of a query; the order in which its rows come is not part of it.
    pub fn of(query: &Query) -> QuerySum {
        let (field, first, last) = match &query.span {
            Span::Terms { field, first, last } => (&field[..], &first[..], Some(&last[..])),
            Span::Keys { first, last, .. } => (&b"$key"[..], &first[..], last.as_deref()),
        };
        let (pick, condition) = match &query.pick {
            Pick::All => (&b""[..], &b""[..]),
            Pick::Matching(pattern) => (&pattern[..], &b""[..]),
            Pick::Where { pipeline, condition } => (pipeline.as_bytes(), condition.as_bytes()),
        };
        // Without a last key there is one part less than with an empty one.
        let bounds = [Some(first), last].into_iter().flatten();
        let parts = [&query.bucket.bucket_type[..], &query.bucket.name, field, pick, condition];
        QuerySum(sum_of(parts.into_iter().chain(bounds)))
    }
}

/// The bytes of a place in a query.
pub(super) fn encode(query: QuerySum, row: RowRef<'_>) -> Bytes {
    let mut out = BytesMut::with_capacity(9 + row.term.len() + row.key.len());
    out.put_u8(VERSION);
    out.put_u32_le(query.0);
    out.put_u32_le(u32::try_from(row.term.len()).expect("a term is part of a head"));
    out.put_slice(row.term);
    out.put_slice(row.key);
    out.freeze()
}

/// The place in such bytes. `field` is the queried field's name.
///
/// # Errors
/// [`Error::BadQuery`] if they are not the bytes of a place in this query.
pub(crate) fn decode(query: &Query, field: &[u8], mut place: Bytes) -> Result<Row, Error> {
    let bad = || Error::BadQuery("Invalid continuation".to_owned());
    if place.len() < 9 {
        return Err(bad());
    }
    let expected = match place.get_u8() {
        VERSION => QuerySum::of(query).0,
        VERSION_OF_FIELD => of_field(&query.bucket, field),
        _ => return Err(bad()),
    };
    if place.get_u32_le() != expected {
        let text = "Invalid continuation: it is of another query";
        return Err(Error::BadQuery(text.to_owned()));
    }
    let len = usize::try_from(place.get_u32_le()).map_err(|_| bad())?;
    if len > place.len() {
        return Err(bad());
    }
    let term = place.split_to(len);
    Ok(Row { term, key: place })
}

fn of_field(bucket: &Bucket, field: &[u8]) -> u32 {
    sum_of([&bucket.bucket_type[..], &bucket.name, field].into_iter())
}

/// A checksum of parts, each with its length.
fn sum_of<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u32 {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.put_u32_le(u32::try_from(part.len()).unwrap_or(u32::MAX));
        bytes.put_slice(part);
    }
    crc32c(&bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn query(first: &'static str, last: &'static str, pick: Pick) -> Query {
        let span = Span::Terms { field: "f_bin".into(), first: first.into(), last: last.into() };
        Query { bucket: Bucket::untyped("b".into()), span, pick }
    }

    #[test]
    fn a_place_is_of_one_query() {
        let asked = || query("a", "m", Pick::All);
        let row = RowRef { term: b"c", key: b"k" };
        let place = encode(QuerySum::of(&asked()), row);
        assert_eq!(place, b"\x02\x24\x7E\x29\x07\x01\0\0\0ck"[..]);
        assert_eq!(decode(&asked(), b"f_bin", place.clone()).unwrap().as_ref(), row);

        for other in [
            query("b", "m", Pick::All),
            query("a", "n", Pick::All),
            query("am", "", Pick::All),
            query("a", "m", Pick::Matching("c".into())),
            query("a", "m", Pick::Where { pipeline: "c".to_owned(), condition: String::new() }),
        ] {
            let refused = decode(&other, b"f_bin", place.clone()).unwrap_err();
            assert_eq!(refused.to_string(), "Invalid continuation: it is of another query", "{other:?}");
        }
    }

    #[test]
    fn places_of_older_programs_are_read() {
        let sum = of_field(&Bucket::untyped("b".into()), b"f_bin").to_le_bytes();
        let place = Bytes::from([&[1][..], &sum, &[1, 0, 0, 0], b"ck"].concat());
        let row = decode(&query("a", "m", Pick::All), b"f_bin", place.clone()).unwrap();
        assert_eq!(row.as_ref(), RowRef { term: b"c", key: b"k" });
        assert!(decode(&query("a", "m", Pick::All), b"g_bin", place).is_err());
    }
}
