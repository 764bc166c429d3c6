//! Writes of consistent objects.

use base::Wall;
use bytes::Bytes;
use object::Metadata;
use strong::group::{Condition, Version};

use super::version::{NEVER, as_seen, stored, tombstone};
use crate::condition::{Conditions, Tags};
use crate::error::Error;
use crate::get::decode_context;
use crate::limits::Limits;
use crate::props::BucketProps;
use crate::request::{DeleteRequest, PutRequest, Return};
use crate::response::{Found, Response};

/// A client's write, checked once: its condition, and the object to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    condition: Condition,
    change: Change,
}

#[derive(Clone, Debug, PartialEq)]
enum Change {
    Put {
        metadata: Box<Metadata>,
        value: Bytes,
        returned: Return,
        /// The key, if the node invented it.
        invented: Option<Bytes>,
    },
    Delete,
}

impl Plan {
    /// The plan of a put, which has a key by now ([`PutRequest::invent_key`]). Without a context the key must be
    /// absent; with one it must have the version that the context names.
    ///
    /// # Errors
    /// Names and sizes beyond the limits, [`Error::BadContext`], [`Error::Precommit`], and
    /// [`Error::NotInConsistentTypes`] for index terms and for conditions on tags and times.
    pub fn put(request: PutRequest, props: &BucketProps, limits: &Limits) -> Result<Plan, Error> {
        let key = request.key.as_ref().expect("the node invents a missing key before it picks a shard");
        limits.check_names(&request.bucket, key)?;
        limits.check_sibling(&request.metadata, &request.value)?;
        limits.check_object(&[], &request.value)?;
        if !request.metadata.indexes.is_empty() {
            return Err(Error::NotInConsistentTypes("index terms".to_owned()));
        }
        props.check_precommit()?;
        let condition = condition_of_put(&request)?;
        let PutRequest { mut metadata, value, returned, key, key_invented, .. } = request;
        (metadata.deleted, metadata.expires_ms) = (false, None);
        let invented = key.filter(|_| key_invented);
        Ok(Plan {
            condition,
            change: Change::Put { metadata: Box::new(metadata), value, returned, invented },
        })
    }

    /// The plan of a delete. Without a context nothing is asked of the key; with one it must have the version that the
    /// context names.
    ///
    /// # Errors
    /// Names beyond the limits, [`Error::BadContext`] and [`Error::Precommit`].
    pub fn delete(request: DeleteRequest, props: &BucketProps) -> Result<Plan, Error> {
        // Names have the same limits in every configuration.
        Limits::default().check_names(&request.bucket, &request.key)?;
        props.check_precommit()?;
        let seen = decode_context(request.context.as_ref())?;
        let condition = seen.as_ref().map_or(Condition::None, as_seen);
        Ok(Plan { condition, change: Change::Delete })
    }

    /// The condition under which the group is to apply it.
    pub fn condition(&self) -> Condition {
        self.condition
    }

    /// Head and value as they are stored under a version. `wall`: the leader's clock, for the time of the last change;
    /// a tombstone has none.
    ///
    /// # Panics
    /// If no entry has the version.
    pub fn object(&self, version: Version, wall: Wall) -> (Bytes, Bytes) {
        match &self.change {
            Change::Put { metadata, value, .. } => {
                let metadata = Metadata { last_modified: wall.0, ..Metadata::clone(metadata) };
                stored(version, metadata, value.clone())
            }
            Change::Delete => (tombstone(version), Bytes::new()),
        }
    }

    /// The response to a write that was applied with that object.
    pub fn response(&self, head: &Bytes, value: &Bytes) -> Response {
        let Change::Put { returned, invented, .. } = &self.change else { return Response::Deleted };
        let found = |value| Found { head: head.clone(), value, newest_only: false };
        let object = match returned {
            Return::Nothing => None,
            Return::Head => Some(found(None)),
            Return::Body => Some(found(Some(value.clone()))),
        };
        Response::Put { object, key: invented.clone() }
    }

    /// Whether it deletes: its entry has no object.
    pub fn is_deletion(&self) -> bool {
        matches!(self.change, Change::Delete)
    }
}

/// The condition of a put: all that the client asks for, as one.
fn condition_of_put(request: &PutRequest) -> Result<Condition, Error> {
    let seen = decode_context(request.context.as_ref())?;
    let condition = match &seen {
        // A key that had something when it was read is not to be absent as well.
        Some(_) if request.if_none_match => Condition::Is(NEVER),
        Some(seen) => as_seen(seen),
        None if base::planted!(BlindPutReplaces) => Condition::None,
        None => Condition::Absent,
    };
    match &request.conditions {
        Some(conditions) => with_standards(condition, conditions),
        None => Ok(condition),
    }
}

/// A condition with those of HTTP's standard, as far as they say nothing more, or what cannot be.
///
/// # Errors
/// [`Error::NotInConsistentTypes`] where tags or times of what is stored would decide.
fn with_standards(condition: Condition, conditions: &Conditions) -> Result<Condition, Error> {
    let Conditions { if_match, if_none_match, if_modified_since: _, if_unmodified_since } = conditions;
    // Of an absent key all but `If-Match` hold.
    if condition == Condition::Absent && if_match.is_none() {
        return Ok(condition);
    }
    let excludes_all = *if_none_match == Some(Tags::Any);
    let asks_for_any = if_match.as_ref().is_none_or(|tags| *tags == Tags::Any);
    let is_decided =
        asks_for_any && (if_none_match.is_none() || excludes_all) && if_unmodified_since.is_none();
    match condition {
        _ if !is_decided => Err(Error::NotInConsistentTypes("conditions on tags and times".to_owned())),
        // `If-Match: *` says that the key is not absent.
        Condition::Absent | Condition::None => Ok(Condition::Is(NEVER)),
        Condition::Is(_) if excludes_all => Ok(Condition::Is(NEVER)),
        Condition::Is(version) => Ok(Condition::Is(version)),
    }
}
