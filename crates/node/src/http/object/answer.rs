//! How an object is answered: as a body if it is one value, as a list of tags or in parts if it has siblings.
//!
//! A GET's way out allocates nothing but room in the output. Header names and values that come from metadata may hold
//! anything a protocol lets through, and are escaped.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use kv::{Error, Found, Request, Response, Unmet, Validators};
use object::{HeadView, SiblingView};
use protocol::http::escape::{Part, escape};
use protocol::http::target::encode;
use protocol::http::{Answer, Connection, date, media_type};

use super::accepted::not_acceptable;
use super::headers::{INDEX, META, VCLOCK};
use super::{Asked, Step};
use crate::contents::{Content, Contents};
use crate::http::fault::Fault;
use crate::http::route::Place;

/// What a value is that came without a type.
const CONTENT_TYPE_DEFAULT: &[u8] = b"application/octet-stream";

const MICROS: u64 = 1_000_000;

/// Writes the answer, or says what the node is to be asked next.
pub(in crate::http) fn respond(
    asked: &mut Asked,
    result: Result<Response, Error>,
    connection: Connection,
    out: &mut Vec<u8>,
) -> Option<Request> {
    let answer = match result {
        Err(error) => Err(fault(&error, asked)),
        Ok(response) => match (&asked.step, response) {
            (Step::Check(_), Response::Found(found)) => match confirm(asked, &found) {
                Ok(request) => return Some(request),
                Err(fault) => Err(fault),
            },
            (Step::Get | Step::Check(_), Response::NotFound { deleted_context }) => {
                not_found(asked, deleted_context, connection, out)
            }
            (Step::Get, Response::Found(found)) => object(asked, &found, None, connection, out),
            (Step::Put, Response::Put { object: Some(found), key }) => {
                object(asked, &found, key.as_ref(), connection, out)
            }
            (Step::Put, Response::Put { object: None, key }) => {
                written(asked, key.as_ref(), connection, out);
                Ok(())
            }
            (Step::Delete, Response::Deleted) => {
                Answer::new(out, connection, 204).empty();
                Ok(())
            }
            (_, other) => unreachable!("the node was asked for an object and answered {other:?}"),
        },
    };
    if let Err(fault) = answer {
        fault.write(connection, out);
    }
    None
}

fn fault(error: &Error, asked: &Asked) -> Fault {
    match error {
        Error::Modified | Error::NotFoundCondition if asked.by_context => Fault::new(409, ""),
        error => Fault::from(error),
    }
}

fn view(found: &Found) -> Result<HeadView<'_>, Fault> {
    HeadView::parse(&found.head).map_err(|error| Fault::from(&Error::Damaged(error.to_string())))
}

/// There is something to delete: goes on to do so, if the conditions hold.
fn confirm(asked: &mut Asked, found: &Found) -> Result<Request, Fault> {
    let head = view(found)?;
    let conditions = asked.conditions.take();
    if let Some(conditions) = &conditions {
        let object = Some(Validators::of(&head, found.newest_only));
        conditions.check(object).map_err(|_| Fault::new(412, ""))?;
    }
    let Step::Check(mut delete) = std::mem::replace(&mut asked.step, Step::Delete) else {
        unreachable!("the caller has looked");
    };
    if conditions.is_some() && delete.context.is_none() {
        // Only what the conditions were held against is deleted; what is written meanwhile stays.
        let mut context = Vec::with_capacity(head.context().client_len());
        head.context().write_client_bytes(&mut context);
        delete.context = Some(Bytes::from(context));
    }
    Ok(Request::Delete(*delete))
}

fn not_found(
    asked: &Asked,
    deleted_context: Option<Bytes>,
    connection: Connection,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    if let Some(conditions) = &asked.conditions
        && conditions.check(None) == Err(Unmet::Changed)
    {
        return Err(Fault::new(412, ""));
    }
    let mut answer = Answer::new(out, connection, 404);
    if let Some(context) = deleted_context {
        answer.header_with(VCLOCK, |out| put_context(&context, out));
        answer.header("X-Riak-Deleted", "true");
    }
    answer.header("Content-Type", "text/plain");
    answer.body(b"not found\n");
    Ok(())
}

fn written(asked: &Asked, invented: Option<&Bytes>, connection: Connection, out: &mut Vec<u8>) {
    let status = if invented.is_some() { 201 } else { 204 };
    let mut answer = Answer::new(out, connection, status);
    answer.header("Vary", "Accept-Encoding");
    match invented {
        None => answer.empty(),
        Some(key) => {
            put_location(asked, key, &mut answer);
            answer.body(b"");
        }
    }
}

fn put_location(asked: &Asked, key: &[u8], answer: &mut Answer<'_>) {
    let place = &asked.place;
    answer.header_with("Location", |out| place.put_object_path(&place.bucket.name, key, out));
}

fn object(
    asked: &Asked,
    found: &Found,
    invented: Option<&Bytes>,
    connection: Connection,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let head = view(found)?;
    let is_read = matches!(asked.step, Step::Get);
    let one = match asked.vtag.as_ref().filter(|_| is_read) {
        Some(vtag) => {
            let named = Contents::new(&head, found).find(|content| content.vtag.as_ref() == &vtag[..]);
            Some(named.ok_or(Fault::new(404, "not found"))?)
        }
        None if head.sibling_count() == 1 || found.newest_only => Contents::new(&head, found).next(),
        None => None,
    };
    if let (Some(conditions), true) = (&asked.conditions, is_read) {
        match conditions.check(Some(Validators::of(&head, found.newest_only))) {
            Ok(()) => {}
            Err(Unmet::Changed) => return Err(Fault::new(412, "")),
            Err(Unmet::Unchanged) => {
                not_modified(&head, found, connection, out);
                return Ok(());
            }
        }
    }
    match one {
        Some(content) => {
            let content_type = content.sibling.content_type.unwrap_or(CONTENT_TYPE_DEFAULT);
            let packed = match is_read {
                true => asked.accepted.pack_value(&content.sibling, content_type, content.value)?,
                // It was looked at before it was written; what it has become is written, and must be told.
                false => None,
            };
            let status = if invented.is_some() { 201 } else { 200 };
            let mut answer = begin(&head, status, connection, out);
            invented.inspect(|key| put_location(asked, key, &mut answer));
            put_metadata(&asked.place, &content.sibling, &mut answer);
            if content.sibling.deleted {
                answer.header("X-Riak-Deleted", "true");
            }
            answer.header_with("ETag", |out| put_quoted(content.vtag.as_ref(), out));
            match packed {
                Some(packed) => put_packed(&packed, answer),
                None => body_of(&content, found, answer),
            }
        }
        None => siblings(asked, &head, found, connection, out)?,
    }
    Ok(())
}

fn begin<'a>(head: &HeadView<'_>, status: u16, connection: Connection, out: &'a mut Vec<u8>) -> Answer<'a> {
    let mut answer = Answer::new(out, connection, status);
    let mut context = Vec::with_capacity(head.context().client_len());
    head.context().write_client_bytes(&mut context);
    answer.header_with(VCLOCK, |out| put_context(&context, out));
    answer.header("Vary", "Accept-Encoding");
    answer
}

/// A causal context in base64.
fn put_context(context: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + context.len().div_ceil(3) * 4, 0);
    BASE64_STANDARD.encode_slice(context, &mut out[start..]).expect("four digits for three bytes");
}

fn not_modified(head: &HeadView<'_>, found: &Found, connection: Connection, out: &mut Vec<u8>) {
    let validators = Validators::of(head, found.newest_only);
    let mut answer = begin(head, 304, connection, out);
    answer.header_with("ETag", |out| put_quoted(validators.etag.as_ref(), out));
    answer.header("Last-Modified", date::format(validators.last_modified));
    answer.empty();
}

fn put_packed(packed: &[u8], mut answer: Answer<'_>) {
    answer.header("Content-Encoding", "gzip");
    answer.body(packed);
}

/// Ends an answer with a body, compressed if that was preferred.
fn put_body(body: &[u8], packed: Option<&[u8]>, answer: Answer<'_>) {
    match packed {
        Some(packed) => put_packed(packed, answer),
        None => answer.body(body),
    }
}

/// Ends an answer with a value, or with its length where values were left out.
fn body_of(content: &Content<'_>, found: &Found, mut answer: Answer<'_>) {
    if found.value.is_some() {
        return answer.body(content.value);
    }
    answer.header("Content-Length", content.sibling.value_len.to_string());
    answer.empty();
}

fn siblings(
    asked: &Asked,
    head: &HeadView<'_>,
    found: &Found,
    connection: Connection,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    const LIST: &[u8] = b"text/plain";
    const PARTS: &[u8] = b"multipart/mixed";
    // As in Riak: a read offers the list first, a write's returned body the parts; without `Accept` both are answered
    // by the list, and so is a write whose answer is not acceptable, since it has been done.
    let (offered, otherwise) = match asked.step {
        Step::Put => ([PARTS, LIST], Some(LIST)),
        _ => ([LIST, PARTS], None),
    };
    let chosen = asked.accepted.prefer(&offered, LIST).or(otherwise).ok_or_else(not_acceptable)?;
    let etag = head.etag();
    let (content_type, body) = match chosen == LIST {
        true => ("text/plain".to_owned(), Some(list(head, found))),
        // Nobody who writes a value knows what will be the tag of the object that it is to be part of.
        false => {
            let parts = found.value.is_some().then(|| parts(&asked.place, head, found, etag.as_ref()));
            (format!("multipart/mixed; boundary={etag}"), parts)
        }
    };
    let packed = asked.accepted.pack(None, body.as_deref().unwrap_or_default())?;
    let mut answer = begin(head, 300, connection, out);
    answer.header_with("ETag", |out| put_quoted(etag.as_ref(), out));
    answer.header("Last-Modified", date::format(head.newest().last_modified / MICROS));
    answer.header("Content-Type", content_type);
    match body {
        Some(body) => put_body(&body, packed.as_deref(), answer),
        // The parts are as long as their values, which were left out.
        None => answer.empty(),
    }
    Ok(())
}

fn list(head: &HeadView<'_>, found: &Found) -> Vec<u8> {
    let mut list = b"Siblings:\n".to_vec();
    for content in Contents::new(head, found) {
        list.extend_from_slice(content.vtag.as_ref());
        list.push(b'\n');
    }
    list
}

fn parts(place: &Place, head: &HeadView<'_>, found: &Found, boundary: &[u8]) -> Vec<u8> {
    let mut parts = Vec::new();
    for content in Contents::new(head, found) {
        parts.extend_from_slice(&[b"\r\n--", boundary, b"\r\n"].concat());
        put_part(place, &content, &mut parts);
    }
    parts.extend_from_slice(&[b"\r\n--", boundary, b"--\r\n"].concat());
    parts
}

fn put_part(place: &Place, content: &Content<'_>, parts: &mut Vec<u8>) {
    let mut part = Answer::part(parts);
    put_metadata(place, &content.sibling, &mut part);
    part.header("Etag", content.vtag.as_ref());
    if content.sibling.deleted {
        part.header("X-Riak-Deleted", "true");
    }
    part.empty();
    parts.extend_from_slice(content.value);
}

/// What is stored beside a value, as headers.
fn put_metadata(place: &Place, sibling: &SiblingView<'_>, answer: &mut Answer<'_>) {
    answer.header_with("Link", |out| put_links(place, sibling, out));
    answer.header("Last-Modified", date::format(sibling.last_modified / MICROS));
    let content_type = sibling.content_type.unwrap_or(CONTENT_TYPE_DEFAULT);
    answer.header_with("Content-Type", |out| {
        // The character set of a type whose quotes do not end cannot be told apart from it.
        if !media_type::write(content_type, sibling.charset, out) {
            escape(content_type, Part::Value, out);
        }
    });
    if let Some(encoding) = sibling.content_encoding {
        answer.escaped_header("Content-Encoding", encoding);
    }
    for pair in sibling.user_meta.clone() {
        answer.named_header(META, pair.key, Part::Value, [pair.value.unwrap_or_default()]);
    }
    if sibling.indexes.len() > 0 {
        put_indexes(sibling, answer);
    }
}

fn put_links(place: &Place, sibling: &SiblingView<'_>, out: &mut Vec<u8>) {
    out.push(b'<');
    place.put_path(out);
    out.extend_from_slice(b">; rel=\"up\"");
    for link in sibling.links.clone() {
        out.extend_from_slice(b", <");
        place.put_object_path(link.bucket, link.key, out);
        out.extend_from_slice(b">; riaktag=\"");
        encode(link.tag, out);
        out.push(b'"');
    }
}

/// One header for each field, its terms one after the other.
fn put_indexes(sibling: &SiblingView<'_>, answer: &mut Answer<'_>) {
    let mut entries: Vec<(&[u8], &[u8])> =
        sibling.indexes.clone().map(|entry| (entry.field, entry.value)).collect();
    entries.sort();
    // Equal entries are one: they make one row.
    entries.dedup();
    for terms in entries.chunk_by(|one, next| one.0 == next.0) {
        answer.named_header(INDEX, terms[0].0, Part::Item, terms.iter().map(|(_, term)| *term));
    }
}

fn put_quoted(tag: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(tag);
    out.push(b'"');
}
