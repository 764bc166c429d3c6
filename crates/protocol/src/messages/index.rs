//! Messages that find objects by their index entries.

use super::Pair;
use bytes::Bytes;

/// How an index query names its terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum IndexQueryType {
    /// One term: `key`.
    Eq = 0,
    /// From `range_min` to `range_max`.
    Range = 1,
}

/// `RpbIndexReq` (25).
#[derive(Clone, PartialEq, prost::Message)]
pub struct IndexReq {
    /// The bucket.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub bucket: Bytes,
    /// The field.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub index: Bytes,
    /// Which of the following fields say the terms.
    #[prost(enumeration = "IndexQueryType", required, tag = "3")]
    pub qtype: i32,
    /// The only term.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub key: Option<Bytes>,
    /// The first term.
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub range_min: Option<Bytes>,
    /// The last term, included.
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub range_max: Option<Bytes>,
    /// Answer a range's terms with the keys.
    #[prost(bool, optional, tag = "7")]
    pub return_terms: Option<bool>,
    /// Answer in pieces.
    #[prost(bool, optional, tag = "8")]
    pub stream: Option<bool>,
    /// The size of a page.
    #[prost(uint32, optional, tag = "9")]
    pub max_results: Option<u32>,
    /// Where the page before ended.
    #[prost(bytes = "bytes", optional, tag = "10")]
    pub continuation: Option<Bytes>,
    /// Milliseconds; 0 for as long as it takes.
    #[prost(uint32, optional, tag = "11")]
    pub timeout: Option<u32>,
    /// The bucket type; absent for the default one.
    #[prost(bytes = "bytes", optional, tag = "12")]
    pub bucket_type: Option<Bytes>,
    /// Only terms that match this.
    #[prost(bytes = "bytes", optional, tag = "13")]
    pub term_regex: Option<Bytes>,
    /// Answer in order without being paged.
    #[prost(bool, optional, tag = "14")]
    pub pagination_sort: Option<bool>,
}

/// `RpbIndexResp` (26).
#[derive(Clone, PartialEq, prost::Message)]
pub struct IndexResp {
    /// Keys, where no terms were asked for.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub keys: Vec<Bytes>,
    /// Terms, each with a key.
    #[prost(message, repeated, tag = "2")]
    pub results: Vec<Pair>,
    /// Where the next page begins.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub continuation: Option<Bytes>,
    /// The end of a stream.
    #[prost(bool, optional, tag = "4")]
    pub done: Option<bool>,
}
