//! Messages about the connection and the node rather than the data.

use std::fmt;

use bytes::Bytes;

/// `RpbErrorResp` (0): the answer to any request that failed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ErrorResp {
    /// What went wrong, as text; clients compare some of these.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub errmsg: Bytes,
    /// Always zero in Riak, and always present.
    #[prost(uint32, required, tag = "2")]
    pub errcode: u32,
}

/// `RpbGetClientIdResp` (4).
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetClientIdResp {
    /// The id set before, or four zero bytes.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub client_id: Bytes,
}

/// `RpbSetClientIdReq` (5): stored and echoed, otherwise without effect.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetClientIdReq {
    /// The id to hold for this connection.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub client_id: Bytes,
}

/// `RpbGetServerInfoResp` (8).
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetServerInfoResp {
    /// The node's name, as `name@host`.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub node: Option<Bytes>,
    /// The version; clients parse it as three numbers.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub server_version: Option<Bytes>,
}

/// `RpbGetBucketKeyPreflistReq` (33).
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetPreflistReq {
    /// The bucket.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub bucket: Bytes,
    /// The key.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub key: Bytes,
    /// The bucket type; absent for the default one.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub bucket_type: Option<Bytes>,
}

/// `RpbGetBucketKeyPreflistResp` (34).
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetPreflistResp {
    /// The preference list, first choice first.
    #[prost(message, repeated, tag = "1")]
    pub preflist: Vec<PreflistItem>,
}

/// One vnode of a preference list.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PreflistItem {
    /// The partition's number on the ring.
    #[prost(int64, required, tag = "1")]
    pub partition: i64,
    /// The node that holds it.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub node: Bytes,
    /// Whether that is a primary, not a fallback.
    #[prost(bool, required, tag = "3")]
    pub primary: bool,
}

/// `RpbAuthReq` (253): a login. Its password is not shown by `Debug`.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct AuthReq {
    /// The user's name.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub user: Bytes,
    /// The password; empty if a certificate or the address is the proof.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub password: Bytes,
}

impl fmt::Debug for AuthReq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthReq").field("user", &self.user).finish_non_exhaustive()
    }
}
