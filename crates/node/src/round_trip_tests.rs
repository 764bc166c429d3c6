//! What one protocol takes, the other tells and takes back unchanged, or one of them refuses it with a sentence.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kv::index::Rows;
use kv::{BucketProps, Found, PutRequest, Request, Response};
use object::{Actor, Dot, Metadata};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::http::target;
use protocol::{Message, codes, messages as pb};
use serde_json::Value;

use crate::{http, riak};

const CASES: u32 = 2_000;

/// Bytes that mean something to a header, a path, a list, a quoted text or JSON, and some that are no text.
fn text() -> impl Strategy<Value = Bytes> {
    let pieces: Vec<&'static [u8]> = vec![
        b"a",
        b"B",
        b" ",
        b",",
        b", ",
        b";",
        b"=",
        b"\"",
        b"\\",
        b"%",
        b"%25",
        b"%2C",
        b"%0A",
        b"%20",
        b"%2c",
        b"\r\n",
        b"\n",
        b"\t",
        b"\0",
        b"\x7F",
        b"\xFF",
        b"\xC3\xA9",
        b"\xEF\xBF\xBD",
        b"+",
        b"/",
        b"<",
        b">",
        b":",
        b"charset",
        b"; charset=x",
        b"X-Riak-Meta-",
    ];
    let piece =
        prop_oneof![4 => prop::sample::select(pieces).prop_map(<[u8]>::to_vec), 1 => vec(any::<u8>(), 1..4)];
    vec(piece, 0..5).prop_map(|pieces| Bytes::from(pieces.concat()))
}

fn pair(key: impl Strategy<Value = Bytes>) -> impl Strategy<Value = pb::Pair> {
    (key, prop::option::weighted(0.9, text())).prop_map(|(key, value)| pb::Pair { key, value })
}

prop_compose! {
    // HTTP refuses a link of which a part is empty, with a sentence.
    fn link()(bucket in text(), key in text(), tag in text()) -> pb::Link {
        let filled = |part: Bytes| Some(if part.is_empty() { Bytes::from("x") } else { part });
        pb::Link { bucket: filled(bucket), key: filled(key), tag: filled(tag) }
    }
}

fn content() -> impl Strategy<Value = pb::Content> {
    let media_type = text().prop_map(|text| Bytes::from([&b"t/s"[..], &text].concat()));
    let field = text().prop_map(|name| Bytes::from([&name[..], b"_bin"].concat()));
    let kinds = (prop::option::of(media_type), prop::option::of(text()), prop::option::of(text()));
    let lists = (vec(link(), 0..3), vec(pair(text()), 0..4), vec(pair(field), 0..4));
    (kinds, lists, text()).prop_map(|(kinds, lists, value)| pb::Content {
        value,
        content_type: kinds.0,
        charset: kinds.1,
        content_encoding: kinds.2,
        links: lists.0,
        usermeta: lists.1,
        indexes: lists.2,
        ..pb::Content::default()
    })
}

fn riak_session() -> riak::Session {
    riak::Session::new(Arc::new(riak::Identity { node: "n@h".into(), version: "1.2.3".into() }))
}

fn frame(code: u8, message: &impl Message) -> BytesMut {
    let body = message.encode_to_vec();
    let len = u32::try_from(body.len() + 1).unwrap();
    BytesMut::from(&[&len.to_be_bytes()[..], &[code], &body].concat()[..])
}

/// A request by protocol buffers; the sentence if it is refused.
fn ask_riak(code: u8, message: &impl Message) -> Result<(riak::Session, Request), String> {
    let (mut session, mut out) = (riak_session(), Vec::new());
    match session.receive(&mut frame(code, message), &mut out) {
        riak::Incoming::Request(request) => Ok((session, request)),
        _ => Err(String::from_utf8(pb::ErrorResp::decode(&out[5..]).unwrap().errmsg.to_vec()).unwrap()),
    }
}

fn put_by_riak(content: &pb::Content) -> Result<PutRequest, String> {
    let (bucket, key) = (Bytes::from("b"), Some(Bytes::from("k")));
    let put = pb::PutReq { bucket, key, content: content.clone(), ..pb::PutReq::default() };
    match ask_riak(codes::PUT_REQ, &put)?.1 {
        Request::Put(put) => Ok(*put),
        other => panic!("{other:?}"),
    }
}

/// The object that a write makes.
fn stored(put: PutRequest) -> Found {
    let put = object::Put { context: None, metadata: put.metadata, value: put.value };
    let object = object::update(None, put, Dot::new(Actor(7), 1), object::Policy::AllowMult).unwrap();
    let (head, value) = object.into_parts();
    let mut encoded = Vec::new();
    head.encode(&mut encoded);
    Found { head: encoded.into(), value: Some(value), newest_only: false }
}

fn get_by_riak(found: &Found) -> pb::Content {
    let get = pb::GetReq { bucket: "b".into(), key: "k".into(), ..pb::GetReq::default() };
    let (mut session, _) = ask_riak(codes::GET_REQ, &get).unwrap();
    let mut out = Vec::new();
    session.respond(Ok(Response::Found(found.clone())), &mut out);
    let content = pb::GetResp::decode(&out[5..]).unwrap().content.remove(0);
    // These are the server's own.
    pb::Content { vtag: None, last_mod: None, last_mod_usecs: None, ..content }
}

/// What both protocols say of a content, in one form.
fn plain(content: pb::Content) -> pb::Content {
    let value_of = |pair: pb::Pair| pb::Pair { value: Some(pair.value.unwrap_or_default()), ..pair };
    let mut indexes: Vec<pb::Pair> = content.indexes.into_iter().map(value_of).collect();
    for entry in &mut indexes {
        entry.key = entry.key.to_ascii_lowercase().into();
    }
    indexes.sort_by(|one, other| (&one.key, &one.value).cmp(&(&other.key, &other.value)));
    // Equal entries are one.
    indexes.dedup();
    let link = |link: pb::Link| pb::Link {
        bucket: Some(link.bucket.unwrap_or_default()),
        key: Some(link.key.unwrap_or_default()),
        tag: Some(link.tag.unwrap_or_default()),
    };
    pb::Content {
        // HTTP has no value without a type.
        content_type: content.content_type.or(Some(Bytes::from("application/octet-stream"))),
        usermeta: content.usermeta.into_iter().map(value_of).collect(),
        links: content.links.into_iter().map(link).collect(),
        indexes,
        ..content
    }
}

type Headers = Vec<(Vec<u8>, Vec<u8>)>;

/// The answer to a request by HTTP: its headers and its body.
fn talk(path: &str, response: Response) -> (Headers, Vec<u8>) {
    let (mut session, mut out) = (http::Session::new(), Vec::new());
    let mut input = BytesMut::from(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
    assert!(matches!(session.receive(0, &mut input, &mut out), http::Incoming::Request(_)), "{path}");
    session.respond(Ok(response), &mut out);
    let end = out.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
    let body = out[end + 4..].to_vec();
    let headers = out[..end].split(|&byte| byte == b'\n').skip(1).map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let at = line.iter().position(|&byte| byte == b':').expect("a header");
        (line[..at].to_vec(), line[at + 1..].trim_ascii().to_vec())
    });
    (headers.collect(), body)
}

fn get_by_http(found: &Found) -> (Headers, Vec<u8>) {
    let (headers, body) = talk("/buckets/b/keys/k", Response::Found(found.clone()));
    let is_kept = |name: &[u8]| {
        let name = name.to_ascii_lowercase();
        name.starts_with(b"x-riak-meta-")
            || name.starts_with(b"x-riak-index-")
            || [&b"content-type"[..], b"content-encoding", b"link"].contains(&&name[..])
    };
    (headers.into_iter().filter(|(name, _)| is_kept(name)).collect(), body)
}

/// A write by HTTP; the status if it is refused.
fn put_by_http(headers: &Headers, body: &[u8]) -> Result<PutRequest, String> {
    let mut input = BytesMut::from(&b"PUT /buckets/b/keys/k HTTP/1.1\r\nHost: h\r\n"[..]);
    for (name, value) in headers {
        input.extend_from_slice(&[name, &b": "[..], value, b"\r\n"].concat());
    }
    input.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    input.extend_from_slice(body);
    let (mut session, mut out) = (http::Session::new(), Vec::new());
    match session.receive(0, &mut input, &mut out) {
        http::Incoming::Request(Request::Put(put)) => Ok(*put),
        _ => Err(String::from_utf8_lossy(&out).into_owned()),
    }
}

/// What an HTTP client sends: names and values that a header can hold.
fn headers() -> impl Strategy<Value = Headers> {
    let value = || {
        let is_held = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
        text().prop_map(move |text| {
            let held: Vec<u8> = text.iter().copied().filter(is_held).collect();
            held.trim_ascii().to_vec()
        })
    };
    let name = |prefix: &'static str| {
        prop::sample::select(vec!["f_bin", "F_Bin", "a%20b", "%C3%A9_bin", "x.y", ""])
            .prop_map(move |name| format!("{prefix}{name}").into_bytes())
    };
    let meta = vec((name("X-Riak-Meta-"), value()), 0..4);
    let index = vec((name("x-riak-index-"), value()), 0..3);
    let kinds = (value(), prop::option::of(value()));
    (meta, index, kinds).prop_map(|(meta, index, (media_type, coding))| {
        let mut headers = vec![(b"Content-Type".to_vec(), [&b"t/s"[..], &media_type].concat())];
        headers.extend(coding.map(|coding| (b"Content-Encoding".to_vec(), coding)));
        headers.into_iter().chain(meta).chain(index).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_came_by_protocol_buffers_survives_http(content in content()) {
        let put = match put_by_riak(&content) {
            Ok(put) => put,
            Err(sentence) => {
                prop_assert!(content.charset.is_some() && sentence.contains("quotes"), "{}", sentence);
                return Ok(());
            }
        };
        let found = stored(put);
        prop_assert_eq!(plain(get_by_riak(&found)), plain(content.clone()));
        let (headers, body) = get_by_http(&found);
        let again = put_by_http(&headers, &body);
        prop_assert!(again.is_ok(), "{:?}", again);
        prop_assert_eq!(plain(get_by_riak(&stored(again.unwrap()))), plain(content));
    }

    #[test]
    fn what_came_by_http_survives_protocol_buffers(headers in headers()) {
        let put = put_by_http(&headers, b"v").unwrap();
        let found = stored(put);
        let content = get_by_riak(&found);
        let again = put_by_riak(&content);
        prop_assert!(again.is_ok(), "{:?}", again);
        let shown = get_by_http(&found);
        prop_assert_eq!(&get_by_http(&stored(again.unwrap())), &shown);
        // A client finds its own values as it has sent them.
        let metas = |headers: &Headers| -> Headers {
            let is_meta = |(name, _): &&(Vec<u8>, Vec<u8>)| name.starts_with(b"X-Riak-Meta-");
            headers.iter().filter(is_meta).cloned().collect()
        };
        prop_assert_eq!(metas(&shown.0), metas(&headers));
    }

    #[test]
    fn names_are_told_so_that_each_can_be_fetched(names in vec(text(), 1..6)) {
        let names: BTreeSet<Bytes> = names.into_iter().filter(|name| !name.is_empty()).collect();
        let keys: Vec<Bytes> = names.iter().cloned().collect();
        for path in ["/buckets/b/keys?keys=true", "/buckets/b/keys?keys=stream"] {
            let (_, body) = talk(path, Response::Keys { keys: keys.clone(), done: true });
            prop_assert_eq!(&told(&unchunked(&body), "keys"), &names);
        }
        for path in ["/buckets?buckets=true", "/types/t/buckets?buckets=stream"] {
            let (_, body) = talk(path, Response::Buckets { names: keys.clone(), done: true });
            prop_assert_eq!(&told(&unchunked(&body), "buckets"), &names);
        }
        let rows = Rows { rows: keys.iter().map(|key| (None, key.clone())).collect(), continuation: None, done: true };
        let (_, body) = talk("/buckets/b/index/f_bin/a", Response::Rows(rows));
        prop_assert_eq!(&told(&body, "keys"), &names);
        let pairs = keys.iter().map(|key| (Some(key.clone()), key.clone())).collect();
        let rows = Rows { rows: pairs, continuation: None, done: true };
        let (_, body) = talk("/buckets/b/index/f_bin/a/b?return_terms=true", Response::Rows(rows));
        prop_assert_eq!(&told(&body, "results"), &names);
        for name in &names {
            let mut path = b"/types/".to_vec();
            target::encode(name, &mut path);
            path.extend_from_slice(b"/buckets/");
            target::encode(name, &mut path);
            path.extend_from_slice(b"/keys/");
            target::encode(name, &mut path);
            let mut input = BytesMut::from(&[b"GET ", &path[..], b" HTTP/1.1\r\nHost: h\r\n\r\n"].concat()[..]);
            let asked = http::Session::new().receive(0, &mut input, &mut Vec::new());
            let http::Incoming::Request(Request::Get(get)) = asked else { panic!("{asked:?}") };
            prop_assert_eq!((&get.bucket.bucket_type, &get.bucket.name, &get.key), (name, name, name));
        }
    }

    #[test]
    fn properties_survive_both_protocols(module in text(), function in text(), name in text()) {
        let fun = || pb::ModFun { module: module.clone(), function: function.clone() };
        let hooks = vec![
            pb::CommitHook { modfun: Some(fun()), name: None },
            pb::CommitHook { modfun: None, name: Some(name) },
        ];
        let props = pb::BucketProps {
            has_precommit: Some(true), precommit: hooks.clone(),
            has_postcommit: Some(true), postcommit: hooks,
            linkfun: Some(fun()), ..pb::BucketProps::default()
        };
        let set = pb::SetBucketReq { bucket: "b".into(), props, bucket_type: None };
        let (_, request) = ask_riak(codes::SET_BUCKET_REQ, &set).unwrap();
        let Request::SetProps(_, changes) = request else { panic!("{request:?}") };
        let props = BucketProps::default().with(&changes).unwrap();
        let (_, body) = talk("/buckets/b%FF/props", Response::Props(Arc::new(props.clone())));
        let mut input = BytesMut::from(
            format!("PUT /buckets/b%FF/props HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(),
        );
        input.extend_from_slice(&body);
        let asked = http::Session::new().receive(0, &mut input, &mut Vec::new());
        let http::Incoming::Request(Request::SetProps(_, again)) = asked else { panic!("{asked:?}") };
        prop_assert_eq!(BucketProps::default().with(&again).unwrap(), props);
    }
}

#[test]
fn parameters_of_a_content_type_survive_both_ways() {
    for (sent, charset) in [
        ("multipart/form-data; charset=utf-8; boundary=XX", Some("utf-8")),
        ("multipart/form-data; boundary=\"a;b\"; charset=\"UTF-8\"", Some("UTF-8")),
        ("text/plain;CHARSET=latin1", Some("latin1")),
        ("text/plain; format=flowed; delsp=yes", None),
    ] {
        let put = put_by_http(&vec![(b"content-type".to_vec(), sent.into())], b"v").unwrap();
        assert_eq!(put.metadata.charset.as_deref(), charset.map(str::as_bytes), "{sent}");
        let found = stored(put);
        let shown = get_by_http(&found).0.into_iter().find(|(name, _)| name == b"Content-Type").unwrap().1;
        for param in ["boundary=XX", "boundary=\"a;b\"", "format=flowed", "delsp=yes"] {
            assert_eq!(sent.contains(param), String::from_utf8_lossy(&shown).contains(param), "{sent}");
        }
        let again = stored(put_by_riak(&get_by_riak(&found)).unwrap());
        assert_eq!(get_by_http(&again), get_by_http(&found), "{sent}");
    }
}

#[test]
fn metadata_of_both_protocols_is_the_same() {
    let metadata = |put: PutRequest| Metadata { last_modified: 0, ..put.metadata };
    let entry = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    let headers = vec![
        entry("Content-Type", "text/plain; charset=utf-8"),
        entry("X-Riak-Meta-Name", "a%0Ab"),
        entry("X-Riak-Index-F_Bin", "x%2C, y, a b"),
    ];
    let pair = |key: &str, value: &str| pb::Pair {
        key: key.to_owned().into(),
        value: Some(value.to_owned().into()),
    };
    let content = pb::Content {
        value: "v".into(),
        content_type: Some("text/plain".into()),
        charset: Some("utf-8".into()),
        usermeta: vec![pair("Name", "a\nb")],
        indexes: vec![pair("f_bin", "x,"), pair("F_bin", "y"), pair("f_bin", "a b")],
        ..pb::Content::default()
    };
    let by_http = put_by_http(&headers, b"v").unwrap();
    assert_eq!(metadata(by_http), metadata(put_by_riak(&content).unwrap()));
}

/// A body that came in chunks.
fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let at = body.windows(2).position(|it| it == b"\r\n").unwrap();
        let len = usize::from_str_radix(std::str::from_utf8(&body[..at]).unwrap(), 16).unwrap();
        if len == 0 {
            return whole;
        }
        whole.extend_from_slice(&body[at + 2..at + 2 + len]);
        body = &body[at + 2 + len + 2..];
    }
}

/// The names that an answer tells in a field and the one beside it.
fn told(body: &[u8], field: &str) -> BTreeSet<Bytes> {
    let body: Value = serde_json::from_slice(body).unwrap();
    let decoded = |text: &str| target::decode(&Bytes::from(text.to_owned())).unwrap();
    let as_it_is = |text: &str| Bytes::from(text.to_owned());
    let mut names = BTreeSet::new();
    let beside = format!("{field}_percent_encoded");
    for (field, is_encoded) in [(field, false), (&beside, true)] {
        for name in body.get(field).and_then(Value::as_array).into_iter().flatten() {
            let text = match name {
                Value::String(key) => key,
                Value::Object(pair) => {
                    let (term, key) = pair.iter().next().unwrap();
                    assert_eq!(Some(term.as_str()), key.as_str(), "a term stands with its own key");
                    term
                }
                other => panic!("{other}"),
            };
            let name = if is_encoded { decoded(text) } else { as_it_is(text) };
            assert!(names.insert(name), "each name once");
        }
    }
    names
}
