//! Messages of folds over many keys.
//!
//! Riak has a message for each fold, and gives a field the same number in all that have it. So two messages here hold
//! what any of them can: which one it is, its code says.

use bytes::Bytes;

/// What a fold over all buckets with so many replicas asks for (210 to 212), or for buckets (223).
#[derive(Clone, PartialEq, prost::Message)]
pub struct FoldNValReq {
    /// The number of replicas; only 223 can do without.
    #[prost(uint32, optional, tag = "1")]
    pub n_val: Option<u32>,
    /// 211: branches; 212: segments; of a large tree.
    #[prost(uint32, repeated, packed = "false", tag = "2")]
    pub id_filter: Vec<u32>,
    /// 212: whether the next two say when objects were modified.
    #[prost(bool, optional, tag = "40")]
    pub modified_range: Option<bool>,
    /// The first second, since 1970.
    #[prost(uint32, optional, tag = "41")]
    pub last_mod_start: Option<u32>,
    /// The last second, included.
    #[prost(uint32, optional, tag = "42")]
    pub last_mod_end: Option<u32>,
}

/// What a fold over a bucket asks for (213 to 216, 218, 230, 231).
#[derive(Clone, PartialEq, prost::Message)]
pub struct FoldRangeReq {
    /// The bucket type; absent for the default one.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub bucket_type: Option<Bytes>,
    /// The bucket.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub bucket: Bytes,
    /// Whether the next two are bounds.
    #[prost(bool, required, tag = "10")]
    pub key_range: bool,
    /// The first key.
    #[prost(bytes = "bytes", optional, tag = "11")]
    pub start_key: Option<Bytes>,
    /// The last key, included.
    #[prost(bytes = "bytes", optional, tag = "12")]
    pub end_key: Option<Bytes>,
    /// 213: how large a tree.
    #[prost(uint32, optional, tag = "20")]
    pub tree_size: Option<u32>,
    /// Whether the next two name segments.
    #[prost(bool, optional, tag = "30")]
    pub segment_filter: Option<bool>,
    /// Segments.
    #[prost(uint32, repeated, packed = "false", tag = "31")]
    pub id_filter: Vec<u32>,
    /// How large the tree is whose segments they are.
    #[prost(uint32, optional, tag = "32")]
    pub filter_tree_size: Option<u32>,
    /// Whether the next two say when objects were modified.
    #[prost(bool, required, tag = "40")]
    pub modified_range: bool,
    /// The first second, since 1970.
    #[prost(uint32, optional, tag = "41")]
    pub last_mod_start: Option<u32>,
    /// The last second, included.
    #[prost(uint32, optional, tag = "42")]
    pub last_mod_end: Option<u32>,
    /// 213: `use_prehash`; 215: `finder`; 230 and 231: `change_method`.
    #[prost(uint32, optional, tag = "50")]
    pub choice: Option<u32>,
    /// 213: `init_vector`; 215: `find_limit`; 230 and 231: `job_id`.
    #[prost(uint32, optional, tag = "51")]
    pub number: Option<u32>,
}

/// `RpbAaeFoldTreeResp` (220).
#[derive(Clone, PartialEq, prost::Message)]
pub struct FoldTreeResp {
    /// How large the tree is.
    #[prost(uint32, required, tag = "1")]
    pub size: u32,
    /// The hashes of its branches, four bytes each, big-endian.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub level_one: Option<Bytes>,
    /// Branches: a number of four bytes, big-endian, then the hashes of its segments in zlib's form.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub level_two: Vec<Bytes>,
}

/// A key with a value that something says of it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeysValue {
    /// The bucket type; absent for the default one.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub bucket_type: Option<Bytes>,
    /// The bucket.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub bucket: Bytes,
    /// The key.
    #[prost(bytes = "bytes", required, tag = "3")]
    pub key: Bytes,
    /// Its clock.
    #[prost(bytes = "bytes", required, tag = "4")]
    pub value: Bytes,
}

/// `RpbAaeFoldKeyValueResp` (221).
#[derive(Clone, PartialEq, prost::Message)]
pub struct FoldKeyValueResp {
    /// What the values are: `clock`.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub response_type: Bytes,
    /// Keys.
    #[prost(message, repeated, tag = "2")]
    pub keys_value: Vec<KeysValue>,
}

/// A count of something.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeysCount {
    /// Of what: a key, or a word.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub tag: Bytes,
    /// Of which size.
    #[prost(uint32, optional, tag = "2")]
    pub order: Option<u32>,
    /// The count. It has 32 bits by Riak's definition, and its servers write as many as are needed.
    #[prost(uint64, required, tag = "3")]
    pub count: u64,
}

/// `RpbAaeFoldKeyCountResp` (222).
#[derive(Clone, PartialEq, prost::Message)]
pub struct FoldKeyCountResp {
    /// What is counted.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub response_type: Bytes,
    /// Counts.
    #[prost(message, repeated, tag = "2")]
    pub keys_count: Vec<KeysCount>,
}

/// `RpbAaeFoldListBucketsResp` (224).
#[derive(Clone, PartialEq, prost::Message)]
pub struct FoldListBucketsResp {
    /// Buckets.
    #[prost(message, repeated, tag = "1")]
    pub bucket_list: Vec<FoldBucket>,
}

/// A bucket that is listed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FoldBucket {
    /// The bucket type; absent for the default one.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub bucket_type: Option<Bytes>,
    /// The bucket.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub bucket: Bytes,
}
