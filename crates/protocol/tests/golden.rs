//! The bytes of a real node: every exchange in `data/exchanges.txt` must decode to a request and encode
//! back to the same answer, or be refused in the same words.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use bytes::{Bytes, BytesMut};
use protocol::messages::*;
use protocol::response::{self, Body};
use protocol::{DecodeError, FrameError, Limits, Message, Request, next_frame};

struct Exchange {
    name: String,
    sent: Vec<u8>,
    /// Code and body; `None` for a body too long to be kept.
    answers: Vec<(u8, Option<Vec<u8>>)>,
    closed: bool,
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn exchanges() -> Vec<Exchange> {
    let mut all: Vec<Exchange> = Vec::new();
    for line in include_str!("data/exchanges.txt").lines() {
        let (mark, rest) = line.split_at_checked(1).unwrap_or(("#", ""));
        let rest = rest.trim();
        if mark == "=" {
            all.push(Exchange { name: rest.into(), sent: Vec::new(), answers: Vec::new(), closed: false });
        }
        let last = all.last_mut();
        match (mark, last) {
            (">", Some(exchange)) => exchange.sent = unhex(rest),
            ("<", Some(exchange)) => {
                let (code, body) = rest.split_once(' ').unwrap_or((rest, ""));
                let body = (body != "...").then(|| unhex(body));
                exchange.answers.push((code.parse().unwrap(), body));
            }
            ("!", Some(exchange)) => exchange.closed = true,
            _ => {}
        }
    }
    all
}

fn find(name: &str) -> Exchange {
    exchanges().into_iter().find(|exchange| exchange.name == name).expect(name)
}

fn request(name: &str) -> Request {
    let mut buf = BytesMut::from(&find(name).sent[..]);
    let frame = next_frame(&mut buf, Limits::BEFORE_FIRST).unwrap().unwrap();
    Request::decode(frame.code, frame.body).unwrap()
}

fn answer<M: Message + Default>(name: &str) -> M {
    let (_, body) = find(name).answers.remove(0);
    M::decode(Bytes::from(body.unwrap())).unwrap()
}

fn frame_of(code: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(body.len() + 1).unwrap().to_be_bytes().to_vec();
    frame.push(code);
    frame.extend_from_slice(body);
    frame
}

/// Sent with fields out of order, repeated or unknown, or with a bool of 9: read, but not written back the
/// same.
const NOT_CANONICAL: &[&str] = &[
    "put asis=9",
    "get notfound with pr/basic_quorum/notfound_ok false",
    "get, key field repeated (last wins)",
    "get with unknown field 99",
];

/// Sound as messages; what is wrong is the clock, which is opaque here.
const BAD_CLOCK: &[&str] = &["get if_modified different vclock", "put bad vclock"];

#[test]
fn requests_are_read_as_the_node_read_them() {
    let (mut read, mut refused, mut malformed) = (0, 0, 0);
    for Exchange { name, sent, answers, closed } in exchanges() {
        let mut buf = BytesMut::from(&sent[..]);
        let frame = match next_frame(&mut buf, Limits::ESTABLISHED) {
            Ok(frame) => frame.expect("whole frames were recorded"),
            Err(FrameError::Empty) => {
                assert!(closed && answers.is_empty(), "{name}");
                continue;
            }
            Err(error) => {
                let mut out = Vec::new();
                response::error(&mut out, &error.reply().unwrap());
                assert_eq!(out, frame_of(0, answers[0].1.as_ref().unwrap()), "{name}");
                continue;
            }
        };
        match Request::decode(frame.code, frame.body) {
            Ok(request) => {
                assert!(!closed || BAD_CLOCK.contains(&name.as_str()), "{name}");
                assert_eq!(request.code(), frame.code);
                let mut out = Vec::new();
                request.encode(&mut out);
                assert_eq!(out == sent, !NOT_CANONICAL.contains(&name.as_str()), "{name}");
                read += 1;
            }
            Err(error @ DecodeError::Malformed(_)) => {
                assert!(error.closes());
                // The one place where we are stricter.
                assert!(closed || name == "get missing required key", "{name}");
                malformed += 1;
            }
            // A real node closes; here it is a code that nobody serves, as any other.
            Err(DecodeError::UnknownCode(10)) => refused += 1,
            Err(error) => {
                assert!(!error.closes() && !closed, "{name}");
                let mut out = Vec::new();
                response::error(&mut out, &error.to_string());
                assert_eq!(out, frame_of(0, answers[0].1.as_ref().unwrap()), "{name}");
                refused += 1;
            }
        }
    }
    assert_eq!((refused, malformed), (8, 4), "requests that are refused, and that cost the connection");
    assert!(read > 60, "{read} requests read");
}

/// Writes an answer of the node with our encoders.
fn rewrite(code: u8, body: Bytes) -> Vec<u8> {
    let mut out = Vec::new();
    match code {
        0 => {
            let message = ErrorResp::decode(body).unwrap();
            response::error(&mut out, std::str::from_utf8(&message.errmsg).unwrap());
        }
        2 | 6 | 14 | 22 | 30 => response::empty(&mut out, code),
        4 => response::client_id(&mut out, &GetClientIdResp::decode(body).unwrap().client_id),
        8 => {
            let message = GetServerInfoResp::decode(body).unwrap();
            let text = |field: Option<Bytes>| String::from_utf8(field.unwrap().to_vec()).unwrap();
            response::server_info(&mut out, &text(message.node), &text(message.server_version));
        }
        10 => {
            let message = GetResp::decode(body).unwrap();
            if message.unchanged == Some(true) {
                response::get_unchanged(&mut out);
            } else if message.content.is_empty() {
                response::get_notfound(&mut out, message.vclock.as_deref());
            } else {
                response::get(&mut out, &message.content, &message.vclock.unwrap(), Body::Full);
            }
        }
        12 => {
            let message = PutResp::decode(body).unwrap();
            let key = message.key.as_deref();
            match message.vclock {
                Some(vclock) => response::put(&mut out, &message.content, &vclock, key, Body::Full),
                None => response::put_done(&mut out, key),
            }
        }
        16 => {
            let message = ListBucketsResp::decode(body).unwrap();
            response::list_buckets(&mut out, &message.buckets, message.done == Some(true));
        }
        18 => {
            let message = ListKeysResp::decode(body).unwrap();
            response::list_keys(&mut out, &message.keys, message.done == Some(true));
        }
        20 => response::bucket_props(&mut out, &GetBucketResp::decode(body).unwrap().props),
        34 => {
            let message = GetPreflistResp::decode(body).unwrap();
            let item = |item: &PreflistItem| {
                let node = String::from_utf8(item.node.to_vec()).unwrap();
                (u32::try_from(item.partition).unwrap(), node, item.primary)
            };
            let items: Vec<_> = message.preflist.iter().map(item).collect();
            response::preflist(&mut out, items.iter().map(|(p, n, primary)| (*p, n.as_str(), *primary)));
        }
        _ => panic!("no encoder for code {code}"),
    }
    out
}

#[test]
fn answers_are_written_as_the_node_wrote_them() {
    let mut written = 0;
    for exchange in exchanges() {
        for (code, body) in exchange.answers {
            let Some(body) = body else { continue };
            assert_eq!(rewrite(code, Bytes::from(body.clone())), frame_of(code, &body), "{}", exchange.name);
            written += 1;
        }
    }
    assert!(written > 60, "{written} answers written");
}

#[test]
fn a_put_is_read_field_by_field() {
    let Request::Put(put) = request("put return_head with meta/index/links") else { panic!("not a put") };
    assert_eq!((&put.bucket[..], put.key.as_deref()), (&b"wb"[..], Some(&b"k2"[..])));
    assert_eq!((put.return_head, put.return_body, put.w), (None, Some(true), None));
    let content = put.content;
    assert_eq!(&content.value[..], b"v");
    assert_eq!(content.content_type.as_deref(), Some(&b"text/plain"[..]));
    assert_eq!(content.charset.as_deref(), Some(&b"utf-8"[..]));
    assert_eq!(content.content_encoding.as_deref(), Some(&b"gzip"[..]));
    assert_eq!(content.links[0].tag.as_deref(), Some(&b"tag"[..]));
    assert_eq!(content.usermeta[0].value.as_deref(), Some(&b"uv"[..]));
    assert_eq!(&content.indexes[1].key[..], b"n_int");

    let Request::Put(put) = request("put pw quorum symbolic") else { panic!("not a put") };
    assert_eq!(protocol::Quorum::from_field(put.pw), protocol::Quorum::Quorum);
}

#[test]
fn a_repeated_field_counts_last_and_an_unknown_one_not_at_all() {
    let Request::Get(get) = request("get, key field repeated (last wins)") else { panic!("not a get") };
    assert_eq!(&get.key[..], b"k1");
    let Request::Get(unknown) = request("get with unknown field 99") else { panic!("not a get") };
    assert_eq!(unknown, get);
    let Request::Get(typed) = request("get type default") else { panic!("not a get") };
    assert_eq!(typed.bucket_type.as_deref(), Some(&b"default"[..]));
}

#[test]
fn properties_are_read_field_by_field() {
    let GetBucketResp { props } = answer("get bucket props");
    assert_eq!((props.n_val, props.allow_mult, props.r), (Some(3), Some(false), Some(0xFFFF_FFFD)));
    assert_eq!(props.linkfun.clone().unwrap().function, "mapreduce_linkfun");
    assert_eq!((props.has_precommit, props.precommit.len()), (Some(true), 0));
    assert_eq!((props.repl(), props.write_once), (ReplMode::True, Some(false)));
    let GetBucketResp { props } = answer("get bucket type props");
    assert_eq!(props.datatype.as_deref(), Some(&b"set"[..]));
}
