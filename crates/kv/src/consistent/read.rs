//! Reads of consistent objects.

use bytes::Bytes;

use super::version::{head_in_epoch, version_in};
use crate::error::Error;
use crate::get::decode_context;
use crate::limits::Limits;
use crate::request::GetRequest;
use crate::response::{Found, Response};
use crate::stored_head::{checked_values, view};

/// Checks a read before it goes to a group.
///
/// # Errors
/// Names that are empty or too long; [`Error::BadContext`].
pub fn check_get(request: &GetRequest, limits: &Limits) -> Result<(), Error> {
    limits.check_names(&request.bucket, &request.key)?;
    decode_context(request.if_modified.as_ref()).map(drop)
}

/// The response to a confirmed read in an epoch. `found`: head and value as they are stored, if anything is.
///
/// A deleted key is absent: its context is not given out, since no write may rest on it.
///
/// # Errors
/// [`Error::Damaged`] for stored bytes that are no object; [`Error::BadContext`].
pub fn get_response(
    request: &GetRequest,
    found: Option<(Bytes, Bytes)>,
    epoch: u16,
) -> Result<Response, Error> {
    let absent = Response::NotFound { deleted_context: None };
    let Some((head, value)) = found else { return Ok(absent) };
    let Some(version) = super::version_of(&head)? else { return Ok(absent) };
    let known = decode_context(request.if_modified.as_ref())?;
    let is_known =
        |version| known.is_some_and(|it| version_in(it.entries().iter().copied()) == Some(version));
    if is_known(version.in_epoch(epoch)) {
        return Ok(Response::Unchanged);
    }
    let value = match request.head {
        true => None,
        false => Some(checked_values(view(&head)?.values_len(), value)?),
    };
    let head = head_in_epoch(head, version, epoch)?;
    Ok(Response::Found(Found { head, value, newest_only: false }))
}
