//! Limits of sizes and their reasons. The error of a request above a limit has its name ([`Error::TooLarge`]).

use object::Metadata;
use object::key::{BUCKET_LEN_MAX, FIELD_LEN_MAX, KEY_LEN_MAX, TERM_LEN_MAX, TYPE_LEN_MAX, entry_len_max};

use crate::bucket::Bucket;
use crate::error::{Error, Name};

/// The most buckets in one listing: the set is held in memory, and Riak warns against listing at all.
pub const LISTED_BUCKETS_MAX: usize = 100_000;

/// The largest value of one sibling: Riak's default `max_object_size`, and what a frame carries.
pub const VALUE_BYTES_MAX: usize = 50 << 20;

/// The largest object, all siblings' values together: twice a value, so that a conflict between two of the
/// largest can be written and then resolved; an answer still fits a frame's length by far.
pub const OBJECT_BYTES_MAX: usize = 2 * VALUE_BYTES_MAX;

/// The most metadata (types, user metadata, links, index terms) one sibling may carry: heads are kept in the
/// ledger and in memory, and Riak's HTTP interface never took more than this in headers.
pub const METADATA_BYTES_MAX: usize = 256 << 10;

/// The most bytes of ledger keys that the index entries of one sibling may take: they are written in one batch with the
/// object, and those of as many siblings as there may be still fit one.
pub const INDEX_KEYS_BYTES_MAX: usize = 4 << 20;

/// The largest encoded head: what the engine takes.
pub const HEAD_BYTES_MAX: usize = 1 << 20;

/// The most siblings a key may have: Riak's default `max_siblings`. A key beyond it is written by clients that
/// never send a context, and each further sibling makes every read of it slower.
pub const SIBLINGS_MAX: usize = 100;

/// Bytes of values that the work of one shard may hold before a client's request is refused: ten of the largest. What
/// other nodes ask may hold as much again, so that two nodes that are full do not keep each other so.
pub const WORK_BYTES_MAX: usize = 512 << 20;

/// The limits in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// See [`VALUE_BYTES_MAX`].
    pub value_bytes_max: usize,
    /// See [`OBJECT_BYTES_MAX`].
    pub object_bytes_max: usize,
    /// See [`METADATA_BYTES_MAX`].
    pub metadata_bytes_max: usize,
    /// See [`HEAD_BYTES_MAX`].
    pub head_bytes_max: usize,
    /// See [`SIBLINGS_MAX`].
    pub siblings_max: usize,
    /// See [`WORK_BYTES_MAX`].
    pub work_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            value_bytes_max: VALUE_BYTES_MAX,
            object_bytes_max: OBJECT_BYTES_MAX,
            metadata_bytes_max: METADATA_BYTES_MAX,
            head_bytes_max: HEAD_BYTES_MAX,
            siblings_max: SIBLINGS_MAX,
            work_bytes_max: WORK_BYTES_MAX,
        }
    }
}

impl Limits {
    /// Checks a bucket's names.
    pub fn check_bucket(&self, bucket: &Bucket) -> Result<(), Error> {
        check_name(Name::Bucket, &bucket.name, BUCKET_LEN_MAX)?;
        self.check_type(&bucket.bucket_type)
    }

    /// Checks a bucket type's name.
    pub fn check_type(&self, name: &[u8]) -> Result<(), Error> {
        check_name(Name::Type, name, TYPE_LEN_MAX)
    }

    /// Checks a bucket's names and a key.
    pub fn check_names(&self, bucket: &Bucket, key: &[u8]) -> Result<(), Error> {
        self.check_bucket(bucket)?;
        check_name(Name::Key, key, KEY_LEN_MAX)
    }

    /// Checks what a client wants to store.
    pub fn check_sibling(&self, metadata: &Metadata, value: &[u8]) -> Result<(), Error> {
        check("value", value.len(), self.value_bytes_max)?;
        check("metadata", metadata_bytes(metadata), self.metadata_bytes_max)
    }

    /// Checks the index terms of what a client wants to store under this key.
    pub fn check_indexes(&self, bucket: &Bucket, key: &[u8], metadata: &Metadata) -> Result<(), Error> {
        let names = bucket.bucket_type.len() + bucket.name.len() + key.len();
        let mut keys = 0;
        for entry in &metadata.indexes {
            check("index field", entry.field.len(), FIELD_LEN_MAX)?;
            check("index term", entry.value.len(), TERM_LEN_MAX)?;
            keys += entry_len_max(names + entry.field.len() + entry.value.len());
        }
        check("ledger keys of all index entries", keys, INDEX_KEYS_BYTES_MAX)
    }

    /// Checks what is about to be written, all siblings together.
    pub fn check_object(&self, head: &[u8], values: &[u8]) -> Result<(), Error> {
        check("object head", head.len(), self.head_bytes_max)?;
        check("object", values.len(), self.object_bytes_max)
    }

    /// Checks how many siblings a write would leave.
    pub fn check_siblings(&self, got: usize) -> Result<(), Error> {
        let limit = self.siblings_max;
        if got > limit { Err(Error::TooManySiblings { got, limit }) } else { Ok(()) }
    }
}

fn check_name(name: Name, bytes: &[u8], limit: usize) -> Result<(), Error> {
    if bytes.is_empty() {
        return Err(Error::EmptyName(name));
    }
    check(name.as_str(), bytes.len(), limit)
}

fn check(what: &'static str, len: usize, limit: usize) -> Result<(), Error> {
    if len > limit { Err(Error::TooLarge { what, len, limit }) } else { Ok(()) }
}

/// What one part of the metadata costs beside its bytes, so that a million empty parts are not free.
const PART_BYTES: usize = 8;

fn metadata_bytes(metadata: &Metadata) -> usize {
    let texts = [&metadata.content_type, &metadata.charset, &metadata.content_encoding];
    let texts = texts.into_iter().flatten().map(|text| PART_BYTES + text.len());
    let links = metadata.links.iter().map(|l| PART_BYTES + l.bucket.len() + l.key.len() + l.tag.len());
    let pairs = metadata.user_meta.iter();
    let pairs = pairs.map(|(name, value)| PART_BYTES + name.len() + value.as_ref().map_or(0, |v| v.len()));
    let indexes = metadata.indexes.iter().map(|entry| PART_BYTES + entry.field.len() + entry.value.len());
    texts.chain(links).chain(pairs).chain(indexes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn each_limit_names_itself() {
        let limits = Limits::default();
        let bucket = |len| Bucket::untyped(Bytes::from(vec![b'b'; len]));
        assert_eq!(limits.check_names(&bucket(0), b"k"), Err(Error::EmptyName(Name::Bucket)));
        assert_eq!(limits.check_names(&bucket(1), b""), Err(Error::EmptyName(Name::Key)));
        let too_large = |what, limit: usize| Err(Error::TooLarge { what, len: limit + 1, limit });
        assert_eq!(limits.check_names(&bucket(65_536), b"k"), too_large("bucket", 65_535));
        assert_eq!(limits.check_names(&bucket(1), &[b'k'; 65_536]), too_large("key", 65_535));
        assert_eq!(limits.check_names(&bucket(65_535), &[b'k'; 65_535]), Ok(()));

        let entry = |field: usize, value: usize| object::IndexEntry {
            field: Bytes::from(vec![b'f'; field]),
            value: Bytes::from(vec![b'v'; value]),
        };
        let indexes = |indexes: Vec<_>| {
            let metadata = Metadata { indexes, ..Metadata::default() };
            limits.check_indexes(&bucket(1), b"k", &metadata)
        };
        assert_eq!(indexes(vec![entry(1024, 32_768); 62]), Ok(()));
        assert_eq!(indexes(vec![entry(1025, 0)]), too_large("index field", 1024));
        assert_eq!(indexes(vec![entry(0, 32_769)]), too_large("index term", 32_768));
        assert!(matches!(
            indexes(vec![entry(1024, 32_768); 63]),
            Err(Error::TooLarge {
                what: "ledger keys of all index entries",
                limit: INDEX_KEYS_BYTES_MAX,
                ..
            })
        ));

        let small = Limits { value_bytes_max: 3, metadata_bytes_max: 20, ..limits };
        let plain = Metadata::default();
        assert_eq!(small.check_sibling(&plain, b"abc"), Ok(()));
        assert_eq!(small.check_sibling(&plain, b"abcd"), too_large("value", 3));
        let meta =
            |len| Metadata { user_meta: vec![(Bytes::from(vec![b'm'; len]), None)], ..Metadata::default() };
        assert_eq!(small.check_sibling(&meta(12), b""), Ok(()));
        assert_eq!(small.check_sibling(&meta(13), b""), too_large("metadata", 20));
        assert_eq!(limits.check_siblings(SIBLINGS_MAX), Ok(()));
        assert_eq!(
            limits.check_siblings(SIBLINGS_MAX + 1),
            Err(Error::TooManySiblings { got: SIBLINGS_MAX + 1, limit: SIBLINGS_MAX })
        );
    }
}
