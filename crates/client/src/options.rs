//! What a request asks for beyond the object's name. The defaults leave everything to the bucket.

use bytes::Bytes;
use protocol::Quorum;
use protocol::messages::{DelReq, GetReq, IndexReq, PutReq};

/// Options of a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Replies needed.
    pub r: Quorum,
    /// Primaries among them.
    pub pr: Quorum,
    /// Distinct nodes among them.
    pub node_confirms: Quorum,
    /// Whether a notfound counts as a good reply.
    pub notfound_ok: Option<bool>,
    /// Whether a quorum of notfounds ends the request.
    pub basic_quorum: Option<bool>,
    /// Answer a tombstone's clock: a deleted object then reads as one without siblings.
    pub deletedvclock: bool,
    /// The server's time limit in milliseconds.
    pub timeout_ms: Option<u32>,
}

/// Options of a put or a delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// The clock this write follows; `None` writes blindly.
    pub vclock: Option<Bytes>,
    /// Replies needed.
    pub w: Quorum,
    /// Primaries among them.
    pub pw: Quorum,
    /// Backend replies among them.
    pub dw: Quorum,
    /// Distinct nodes among them. Not for deletes.
    pub node_confirms: Quorum,
    /// Answer the siblings that result. Not for deletes.
    pub return_body: bool,
    /// Fail with `match_found` if there is an object. Not for deletes.
    pub if_none_match: bool,
    /// Fail with `modified` if the object's clock is not `vclock`. Not for deletes.
    pub if_not_modified: bool,
    /// The server's time limit in milliseconds.
    pub timeout_ms: Option<u32>,
}

/// Options of an index query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryOptions {
    /// Answer the terms of a range with the keys.
    pub return_terms: bool,
    /// The size of a page; `None` for everything, as it is found.
    pub max_results: Option<u32>,
    /// Where the page before ended.
    pub continuation: Option<Bytes>,
    /// Only terms that match this.
    pub term_regex: Option<Bytes>,
    /// The server's time limit in milliseconds.
    pub timeout_ms: Option<u32>,
}

impl QueryOptions {
    pub(crate) fn apply(&self, request: IndexReq) -> IndexReq {
        IndexReq {
            return_terms: flag(self.return_terms),
            // Everything comes as it is found; so does a page, which may be large.
            stream: Some(true),
            max_results: self.max_results,
            continuation: self.continuation.clone(),
            term_regex: self.term_regex.clone(),
            timeout: self.timeout_ms,
            ..request
        }
    }
}

impl ReadOptions {
    pub(crate) fn apply(&self, request: GetReq) -> GetReq {
        GetReq {
            r: field(self.r),
            pr: field(self.pr),
            node_confirms: field(self.node_confirms),
            notfound_ok: self.notfound_ok,
            basic_quorum: self.basic_quorum,
            deletedvclock: flag(self.deletedvclock),
            timeout: self.timeout_ms,
            ..request
        }
    }
}

impl WriteOptions {
    pub(crate) fn apply_to_put(&self, request: PutReq) -> PutReq {
        PutReq {
            vclock: self.vclock.clone(),
            w: field(self.w),
            pw: field(self.pw),
            dw: field(self.dw),
            node_confirms: field(self.node_confirms),
            return_body: flag(self.return_body),
            if_none_match: flag(self.if_none_match),
            if_not_modified: flag(self.if_not_modified),
            timeout: self.timeout_ms,
            ..request
        }
    }

    pub(crate) fn apply_to_delete(&self, request: DelReq) -> DelReq {
        DelReq {
            vclock: self.vclock.clone(),
            w: field(self.w),
            pw: field(self.pw),
            dw: field(self.dw),
            timeout: self.timeout_ms,
            ..request
        }
    }
}

/// The default is not sent: it is what an absent field means.
fn field(quorum: Quorum) -> Option<u32> {
    (quorum != Quorum::Default).then(|| quorum.to_wire())
}

/// False is not sent either.
fn flag(set: bool) -> Option<bool> {
    set.then_some(true)
}
