//! Messages about bucket properties and bucket types.

use bytes::Bytes;

/// `RpbModFun`: the name of an Erlang function. Kept and reported as it came; nothing is called.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ModFun {
    /// The module.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub module: Bytes,
    /// The function.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub function: Bytes,
}

/// `RpbCommitHook`: one or the other.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CommitHook {
    /// A hook in Erlang.
    #[prost(message, optional, tag = "1")]
    pub modfun: Option<ModFun>,
    /// The name of a hook in JavaScript.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub name: Option<Bytes>,
}

/// The `repl` property: which of Riak's enterprise replications take the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum ReplMode {
    /// Neither.
    False = 0,
    /// Real-time only.
    Realtime = 1,
    /// Full-sync only.
    Fullsync = 2,
    /// Both.
    True = 3,
}

/// `RpbBucketProps`: an absent property is, in a request, one to leave as it is.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BucketProps {
    /// Replicas of each object.
    #[prost(uint32, optional, tag = "1")]
    pub n_val: Option<u32>,
    /// Whether concurrent writes are kept as siblings.
    #[prost(bool, optional, tag = "2")]
    pub allow_mult: Option<bool>,
    /// Whether writes replace what is there without reading it.
    #[prost(bool, optional, tag = "3")]
    pub last_write_wins: Option<bool>,
    /// Hooks before a write.
    #[prost(message, repeated, tag = "4")]
    pub precommit: Vec<CommitHook>,
    /// Tells "no hooks" from "hooks not given".
    #[prost(bool, optional, tag = "5")]
    pub has_precommit: Option<bool>,
    /// Hooks after a write.
    #[prost(message, repeated, tag = "6")]
    pub postcommit: Vec<CommitHook>,
    /// Tells "no hooks" from "hooks not given".
    #[prost(bool, optional, tag = "7")]
    pub has_postcommit: Option<bool>,
    /// The function that hashes keys to the ring.
    #[prost(message, optional, tag = "8")]
    pub chash_keyfun: Option<ModFun>,
    /// The function that finds an object's links.
    #[prost(message, optional, tag = "9")]
    pub linkfun: Option<ModFun>,
    /// Clock pruning: seconds.
    #[prost(uint32, optional, tag = "10")]
    pub old_vclock: Option<u32>,
    /// Clock pruning: seconds.
    #[prost(uint32, optional, tag = "11")]
    pub young_vclock: Option<u32>,
    /// Clock pruning: entries.
    #[prost(uint32, optional, tag = "12")]
    pub big_vclock: Option<u32>,
    /// Clock pruning: entries.
    #[prost(uint32, optional, tag = "13")]
    pub small_vclock: Option<u32>,
    /// Default pr; this and the next five are read by [`crate::Quorum`].
    #[prost(uint32, optional, tag = "14")]
    pub pr: Option<u32>,
    /// Default r.
    #[prost(uint32, optional, tag = "15")]
    pub r: Option<u32>,
    /// Default w.
    #[prost(uint32, optional, tag = "16")]
    pub w: Option<u32>,
    /// Default pw.
    #[prost(uint32, optional, tag = "17")]
    pub pw: Option<u32>,
    /// Default dw.
    #[prost(uint32, optional, tag = "18")]
    pub dw: Option<u32>,
    /// Default rw.
    #[prost(uint32, optional, tag = "19")]
    pub rw: Option<u32>,
    /// Default basic_quorum.
    #[prost(bool, optional, tag = "20")]
    pub basic_quorum: Option<bool>,
    /// Default notfound_ok.
    #[prost(bool, optional, tag = "21")]
    pub notfound_ok: Option<bool>,
    /// The backend's name.
    #[prost(bytes = "bytes", optional, tag = "22")]
    pub backend: Option<Bytes>,
    /// Old search; inert.
    #[prost(bool, optional, tag = "23")]
    pub search: Option<bool>,
    /// Enterprise replication; inert.
    #[prost(enumeration = "ReplMode", optional, tag = "24")]
    pub repl: Option<i32>,
    /// The Solr index; inert.
    #[prost(bytes = "bytes", optional, tag = "25")]
    pub search_index: Option<Bytes>,
    /// The data type of the bucket type.
    #[prost(bytes = "bytes", optional, tag = "26")]
    pub datatype: Option<Bytes>,
    /// Whether objects are strongly consistent.
    #[prost(bool, optional, tag = "27")]
    pub consistent: Option<bool>,
    /// Whether keys are written once.
    #[prost(bool, optional, tag = "28")]
    pub write_once: Option<bool>,
    /// The precision of hyperloglogs.
    #[prost(uint32, optional, tag = "29")]
    pub hll_precision: Option<u32>,
}

/// `RpbGetBucketReq` (19).
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetBucketReq {
    /// The bucket.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub bucket: Bytes,
    /// The bucket type; absent for the default one.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub bucket_type: Option<Bytes>,
}

/// `RpbGetBucketResp` (20): the answer for a bucket and for a type.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetBucketResp {
    /// The properties.
    #[prost(message, required, tag = "1")]
    pub props: BucketProps,
}

/// `RpbSetBucketReq` (21).
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetBucketReq {
    /// The bucket.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub bucket: Bytes,
    /// The properties to change.
    #[prost(message, required, tag = "2")]
    pub props: BucketProps,
    /// The bucket type; absent for the default one.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub bucket_type: Option<Bytes>,
}

/// `RpbResetBucketReq` (29).
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResetBucketReq {
    /// The bucket.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub bucket: Bytes,
    /// The bucket type; absent for the default one.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub bucket_type: Option<Bytes>,
}

/// `RpbGetBucketTypeReq` (31).
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetBucketTypeReq {
    /// The bucket type.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub bucket_type: Bytes,
}

/// `RpbSetBucketTypeReq` (32).
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetBucketTypeReq {
    /// The bucket type.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub bucket_type: Bytes,
    /// The properties to change.
    #[prost(message, required, tag = "2")]
    pub props: BucketProps,
}
