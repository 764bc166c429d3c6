//! A request's headers, as metadata, contexts and conditions.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use kv::{Bucket, Conditions, Tags};
use object::{IndexEntry, Link, Metadata};
use protocol::http::escape::{Part, unescape};
use protocol::http::media_type::{self, ContentType};
use protocol::http::{Head, date, etag, link};

use crate::http::fault::Fault;

/// The causal context that was read.
pub(super) const VCLOCK: &str = "X-Riak-Vclock";
/// The context that a write depends on.
pub(super) const IF_NOT_MODIFIED: &str = "X-Riak-If-Not-Modified";
/// What the names of the client's own pairs begin with.
pub(super) const META: &str = "X-Riak-Meta-";
/// The prefix of index fields' header names: lower case in answers, as Riak writes it, since clients compare it so.
pub(super) const INDEX: &str = "x-riak-index-";

/// A context that a header holds.
pub(super) fn context(head: &Head, name: &str) -> Result<Option<Bytes>, Fault> {
    let Some(value) = head.header(name) else { return Ok(None) };
    let decoded = BASE64_STANDARD.decode(value.trim_ascii());
    decoded
        .map(|bytes| Some(Bytes::from(bytes)))
        .map_err(|_| Fault::bad(format!("The {name} header is not base64")))
}

/// What is stored beside a value.
pub(super) fn metadata(head: &Head, bucket: &Bucket) -> Result<Metadata, Fault> {
    let mut metadata = Metadata::default();
    for (name, value) in head.headers() {
        if name.eq_ignore_ascii_case(b"content-type") {
            let ContentType { media_type, charset } = content_type(head.share(value))?;
            metadata.content_type = Some(media_type);
            metadata.charset = charset;
        } else if name.eq_ignore_ascii_case(b"content-encoding") {
            metadata.content_encoding = Some(plain(head, value, Part::Value));
        } else if name.eq_ignore_ascii_case(b"link") {
            add_links(value, bucket, &mut metadata.links)?;
        } else if let Some(name) = after_prefix(name, META) {
            let pair = (plain(head, name, Part::Name), Some(plain(head, value, Part::Value)));
            metadata.user_meta.push(pair);
        } else if let Some(field) = after_prefix(name, INDEX) {
            let field = Bytes::from(plain(head, field, Part::Name).to_ascii_lowercase());
            let entry = |term| IndexEntry { field: field.clone(), value: plain(head, term, Part::Item) };
            metadata.indexes.extend(terms(value).map(entry));
        }
    }
    if metadata.content_type.is_none() {
        return Err(Fault::bad("Missing Content-Type request header"));
    }
    Ok(metadata)
}

/// The terms of a header: as in Riak, a comma and a blank stand between them.
fn terms(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        let text = rest?;
        let at = text.windows(2).position(|pair| pair[0] == b',' && matches!(pair[1], b' ' | b'\t'));
        rest = at.map(|at| &text[at + 2..]);
        Some(&text[..at.unwrap_or(text.len())])
    })
}

/// A name or a value, as it was before it was escaped.
fn plain(head: &Head, text: &[u8], part: Part) -> Bytes {
    unescape(text, part).unwrap_or_else(|| head.share(text))
}

fn after_prefix<'a>(name: &'a [u8], prefix: &str) -> Option<&'a [u8]> {
    let (start, rest) = name.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix.as_bytes()).then_some(rest)
}

/// A media type without its character set, and that. Other parameters (a multipart's boundary, say) belong to the type.
fn content_type(value: Bytes) -> Result<ContentType, Fault> {
    let essence = value.split(|&byte| byte == b';').next().unwrap_or_default();
    if !matches!(essence.iter().position(|&byte| byte == b'/'), Some(1..)) {
        return Err(Fault::new(415, "The Content-Type is not a media type"));
    }
    Ok(media_type::read(&value))
}

fn add_links(value: &[u8], bucket: &Bucket, links: &mut Vec<Link>) -> Result<(), Fault> {
    let malformed = || {
        Fault::bad(
            "Invalid Link header. Links must be of the form\n</buckets/BUCKET/keys/KEY>; riaktag=\"TAG\"",
        )
    };
    for to in link::parse(value, &bucket.name).ok_or_else(malformed)? {
        // A link is stored without a type, and so stays within the type of its object.
        if to.bucket_type.is_some_and(|named| named != bucket.bucket_type) {
            return Err(Fault::bad("Invalid Link header. A link stays within its object's bucket type"));
        }
        links.push(Link { bucket: to.bucket, key: to.key, tag: to.tag });
    }
    Ok(())
}

/// The standard's conditions; `None` if there are none. A date that cannot be read is no condition, as the standard
/// has it.
pub(super) fn conditions(head: &Head, is_read: bool) -> Option<Box<Conditions>> {
    let date = |name| head.header(name).and_then(date::parse);
    let if_none_match = tags(head, "if-none-match", true);
    let conditions = Conditions {
        if_match: tags(head, "if-match", false),
        if_modified_since: date("if-modified-since").filter(|_| is_read && if_none_match.is_none()),
        if_unmodified_since: date("if-unmodified-since"),
        if_none_match,
    };
    (!conditions.is_empty()).then(|| Box::new(conditions))
}

fn tags(head: &Head, name: &str, weak_too: bool) -> Option<Tags> {
    let mut named: Option<Vec<Bytes>> = None;
    for value in head.all(name) {
        let Some(list) = etag::list(value) else { return Some(Tags::Any) };
        let list = list.filter(|tag| weak_too || !tag.is_weak).map(|tag| head.share(tag.tag));
        named.get_or_insert_default().extend(list);
    }
    named.map(Tags::Named)
}
