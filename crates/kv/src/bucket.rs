//! Buckets: names within bucket types.

use bytes::Bytes;

pub use object::key::DEFAULT_TYPE;

/// A bucket: a name within a bucket type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket {
    /// The bucket type; [`DEFAULT_TYPE`] for the untyped name space.
    pub bucket_type: Bytes,
    /// The bucket's name.
    pub name: Bytes,
}

impl Bucket {
    /// A bucket of the default type.
    pub fn untyped(name: Bytes) -> Bucket {
        Bucket { bucket_type: Bytes::from_static(DEFAULT_TYPE), name }
    }

    /// A bucket of the type named, or of the default type if none is.
    pub fn typed(bucket_type: Option<Bytes>, name: Bytes) -> Bucket {
        Bucket { bucket_type: bucket_type.unwrap_or(Bytes::from_static(DEFAULT_TYPE)), name }
    }
}
