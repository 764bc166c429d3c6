//! Changes that operators ask for, as the audit log names them: of the pages for operators, and of bucket properties.
//!
//! A head is looked at before anything is refused, so refused changes are named as well. Writes of objects are none.

use bytes::Bytes;
use protocol::http::{Head, Method};

/// The longest path that is named; the rest of a longer one is left out.
const PATH_BYTES_MAX: usize = 256;

/// A change that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The method of the request.
    pub method: &'static str,
    /// Its path, without the query.
    pub path: Bytes,
}

impl Change {
    /// The change of a request; `None` if it asks for none.
    pub(super) fn of(head: &Head) -> Option<Change> {
        let method = match head.method {
            Method::Get | Method::Head => return None,
            Method::Put => "PUT",
            Method::Post => "POST",
            Method::Delete => "DELETE",
            Method::NotAllowed | Method::Unknown => "other",
        };
        let target = head.target();
        let end = target.iter().position(|&byte| byte == b'?').unwrap_or(target.len());
        let path = &target[..end];
        let is_bucket = path.starts_with(b"/riak/") && path.iter().filter(|&&byte| byte == b'/').count() == 2;
        let is_change = path.starts_with(b"/admin/")
            || path.ends_with(b"/props")
            || (is_bucket && head.method == Method::Put);
        let path = Bytes::copy_from_slice(&path[..path.len().min(PATH_BYTES_MAX)]);
        is_change.then_some(Change { method, path })
    }
}
