//! Properties, listings and pages for operators, as a client sees them.

use super::question::Question;
use super::session::{Incoming, Session};
use bytes::{Bytes, BytesMut};
use kv::props::Reason;
use kv::{Bucket, BucketProps, Error, Prop, Request, Response, TypeChange, TypeStatus};
use std::sync::Arc;

/// A connection in the middle of one request.
pub(super) struct Talk {
    pub session: Session,
    pub out: Vec<u8>,
}

impl Talk {
    pub fn ask(method: &str, target: &str, body: &str) -> (Talk, Incoming) {
        Talk::ask_by("1.1", method, target, body)
    }

    pub fn ask_by(version: &str, method: &str, target: &str, body: &str) -> (Talk, Incoming) {
        let mut talk = Talk { session: Session::new(), out: Vec::new() };
        let text = format!(
            "{method} {target} HTTP/{version}\r\nHost: h\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut input = BytesMut::from(text.as_bytes());
        let incoming = talk.session.receive(0, &mut input, &mut talk.out);
        (talk, incoming)
    }

    pub fn respond(&mut self, result: Result<Response, Error>) -> (u16, String) {
        self.out.clear();
        assert_eq!(self.session.respond(result, &mut self.out), None);
        self.answered()
    }

    /// The status and the body; chunks put together.
    pub fn answered(&self) -> (u16, String) {
        let text = String::from_utf8(self.out.clone()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

pub(super) fn request(method: &str, target: &str, body: &str) -> (Talk, Request) {
    match Talk::ask(method, target, body) {
        (talk, Incoming::Request(request)) => (talk, request),
        (talk, other) => panic!("{method} {target} became {other:?}: {:?}", talk.answered()),
    }
}

pub(super) fn answered(method: &str, target: &str, body: &str) -> (u16, String) {
    let (talk, incoming) = Talk::ask(method, target, body);
    assert!(matches!(incoming, Incoming::Answered), "{method} {target}");
    talk.answered()
}

fn bucket(bucket_type: &'static str) -> Bucket {
    Bucket { bucket_type: bucket_type.into(), name: "b".into() }
}

#[test]
fn properties_are_read_changed_and_reset() {
    for (target, bucket_type) in
        [("/buckets/b/props", "default"), ("/riak/b", "default"), ("/types/t/buckets/b/props", "t")]
    {
        let (mut talk, asked) = request("GET", target, "");
        assert_eq!(asked, Request::GetProps(bucket(bucket_type)));
        let (status, body) = talk.respond(Ok(Response::Props(Arc::new(BucketProps::default()))));
        assert!(status == 200 && body.contains("\"n_val\":3") && body.contains("\"name\":\"b\""), "{body}");
        assert_eq!(
            body.contains("\"bucket_type\":\"t\",") || body.contains("\"bucket_type\":\"t\"}"),
            bucket_type == "t"
        );
        let (mut talk, asked) = request("PUT", target, r#"{"props":{"n_val":5,"allow_mult":"true"}}"#);
        let Request::SetProps(of, mut changes) = asked else { panic!("{asked:?}") };
        changes.sort_by_key(Prop::name);
        assert_eq!((of, changes), (bucket(bucket_type), vec![Prop::AllowMult(true), Prop::NVal(5)]));
        assert_eq!(talk.respond(Ok(Response::PropsSet)), (204, String::new()));
    }
    let (mut talk, asked) = request("DELETE", "/buckets/b/props", "");
    assert_eq!(asked, Request::ResetProps(bucket("default")));
    assert_eq!(talk.respond(Ok(Response::PropsReset)), (204, String::new()));
}

#[test]
fn properties_that_cannot_be_are_400_by_name() {
    assert_eq!(answered("PUT", "/buckets/b/props", "{").0, 400);
    let wrong = answered("PUT", "/buckets/b/props", r#"{"props":{"n_val":"x"}}"#);
    assert_eq!(wrong, (400, r#"{"n_val":"not_integer"}"#.to_owned()));
    let (mut talk, _) = request("PUT", "/buckets/b/props", r#"{"props":{"n_val":0}}"#);
    let refused = Error::InvalidProps(vec![("n_val", Reason::Word("not_integer"))]);
    assert_eq!(talk.respond(Err(refused)), (400, r#"{"n_val":"not_integer"}"#.to_owned()));
    let (mut talk, asked) = request("GET", "/types/nope/props", "");
    assert_eq!(asked, Request::GetTypeProps("nope".into()));
    assert_eq!(talk.respond(Err(Error::NoType("nope".into()))).0, 404);
    assert_eq!(answered("DELETE", "/types/t/props", "").0, 405);
}

#[test]
fn a_whole_listing_is_one_object_in_chunks() {
    let keys = |names: &[&'static str], done| {
        Ok(Response::Keys { keys: names.iter().map(|name| Bytes::from(*name)).collect(), done })
    };
    let (mut talk, asked) = request("GET", "/buckets/b/keys?keys=true&timeout=7", "");
    assert!(matches!(asked, Request::ListKeys(list) if list.timeout == Some(7)));
    assert_eq!(talk.session.respond(keys(&["a", "b\""], false), &mut talk.out), None);
    assert!(talk.out.is_empty(), "held back, for it may run out of time");
    let (status, all) = talk.respond(keys(&["c"], true));
    assert_eq!(
        (status, all.as_str()),
        (200, "9\r\n{\"keys\":[\r\nf\r\n\"a\",\"b\\\"\",\"c\"]}\r\n0\r\n\r\n")
    );
}

/// A key of 1 KiB: a little more than as many fit into what is held back of a listing.
fn long_keys() -> Result<Response, Error> {
    Ok(Response::Keys { keys: vec![Bytes::from(vec![b'k'; 1024]); 1024], done: false })
}

#[test]
fn a_large_listing_goes_out_as_it_comes() {
    let (mut talk, _) = request("GET", "/buckets/b/keys?keys=true", "");
    let (status, first) = talk.respond(long_keys());
    assert!(status == 200 && first.contains("{\"keys\":[") && first.len() > 1 << 20);
    talk.out.clear();
    let last = Response::Keys { keys: vec!["c".into()], done: true };
    assert_eq!(talk.session.respond(Ok(last), &mut talk.out), None);
    assert_eq!(talk.out, b"6\r\n,\"c\"]}\r\n0\r\n\r\n");
}

#[test]
fn a_stream_is_an_object_for_each_piece() {
    let (mut talk, asked) = request("GET", "/types/t/buckets?buckets=stream", "");
    assert!(matches!(asked, Request::ListBuckets(list) if list.stream && list.bucket_type == "t"));
    let piece = |done| Ok(Response::Buckets { names: vec!["b".into()], done });
    assert!(talk.respond(piece(false)).1.contains("{\"buckets\":[\"b\"]}"));
    talk.out.clear();
    assert_eq!(talk.session.respond(Err(Error::Timeout), &mut talk.out), None);
    assert!(talk.out.ends_with(b"{\"error\":\"timeout\"}\r\n0\r\n\r\n"));
    assert!(!matches!(talk.session.receive(0, &mut BytesMut::new(), &mut Vec::new()), Incoming::Close));
}

#[test]
fn a_listing_that_fails_says_so_or_breaks_off() {
    let (mut talk, _) = request("GET", "/buckets/b/keys?keys=true", "");
    assert_eq!(talk.respond(Err(Error::NotCovered)).0, 503);
    // One that runs out of time says so with 200, as in Riak.
    for target in ["/buckets?buckets=true", "/buckets?buckets=stream"] {
        let (mut talk, _) = request("GET", target, "");
        assert_eq!(
            talk.respond(Err(Error::Timeout)),
            (200, "{\"error\":\"timeout\"}".to_owned()),
            "{target}"
        );
    }
    let (mut talk, _) = request("GET", "/buckets?buckets=true", "");
    talk.session.respond(Ok(Response::Buckets { names: vec!["b".into()], done: false }), &mut talk.out);
    assert_eq!(talk.respond(Err(Error::Timeout)), (200, "{\"error\":\"timeout\"}".to_owned()));
    let (mut talk, _) = request("GET", "/buckets/b/keys?keys=true", "");
    talk.respond(long_keys());
    talk.out.clear();
    assert_eq!(talk.session.respond(Err(Error::Timeout), &mut talk.out), None);
    assert!(talk.out.is_empty(), "a client sees that its end is missing");
    assert!(matches!(talk.session.receive(0, &mut BytesMut::new(), &mut Vec::new()), Incoming::Close));
    let (talk, _) = Talk::ask_by("1.0", "GET", "/buckets/b/keys?keys=true", "");
    assert_eq!(talk.answered().0, 505);
}

#[test]
fn nothing_is_listed_unless_it_is_asked_for() {
    for target in ["/buckets", "/buckets/b/keys", "/types/t/buckets?buckets=no"] {
        assert_eq!(answered("GET", target, ""), (200, "{}".to_owned()), "{target}");
    }
    assert_eq!(answered("HEAD", "/buckets/b/keys?keys=true", "").0, 405);
}

#[test]
fn operators_make_types() {
    let t = || Bytes::from("t");
    let (mut talk, asked) = request("PUT", "/admin/bucket-types/t", r#"{"props":{"write_once":true}}"#);
    assert_eq!(asked, Request::ChangeType(t(), TypeChange::Create(vec![Prop::WriteOnce(true)])));
    assert_eq!(talk.respond(Ok(Response::PropsSet)), (204, String::new()));
    let told = |method: &str, target: &str, error: Error| {
        let (mut talk, _) = request(method, target, "");
        talk.respond(Err(error))
    };
    let wrong = |status, text: &str| (status, format!("{{\"error\":\"{text}\"}}"));
    let page = "/admin/bucket-types/t";
    let is = Error::TypeStatus;
    assert_eq!(told("PUT", page, is(TypeStatus::Active)), wrong(409, "already_active"));
    assert_eq!(told("POST", page, is(TypeStatus::Created)), wrong(409, "not_active"));
    assert_eq!(told("PUT", page, Error::DefaultTypeFixed), wrong(409, "default_type"));
    assert_eq!(told("POST", page, Error::DefaultTypeFixed), wrong(409, "no_default_update"));
    let activate = "/admin/bucket-types/t/activate";
    assert_eq!(told("POST", activate, is(TypeStatus::Created)), wrong(409, "not_ready"));
    assert_eq!(told("POST", activate, Error::NoType(t())), wrong(404, "undefined"));
    assert_eq!(told("POST", activate, Error::Timeout), wrong(503, "request timed out"));
    assert_eq!(answered("PUT", page, "[]"), wrong(400, "invalid json"));
    let refused = answered("PUT", page, r#"{"props":{"n_val":"x"}}"#);
    assert_eq!(
        refused,
        (400, r#"{"error":"invalid properties","props":{"n_val":"not_integer"}}"#.to_owned())
    );
}

#[test]
fn operators_see_types_and_members() {
    let types = || {
        let props = Arc::new(BucketProps::of_new_type());
        Ok(Response::Types(vec![("t".into(), TypeStatus::Ready, props)]))
    };
    let (mut talk, asked) = request("GET", "/admin/bucket-types", "");
    assert_eq!(asked, Request::ListTypes);
    let (status, body) = talk.respond(types());
    assert!(status == 200 && body.starts_with("{\"types\":[{") && body.contains("\"status\":\"ready\""));
    let (mut talk, _) = request("GET", "/admin/bucket-types/t", "");
    assert!(talk.respond(types()).1.contains("\"name\":\"t\""));
    let (mut talk, _) = request("GET", "/admin/bucket-types/nope", "");
    assert_eq!(talk.respond(types()), (404, "{\"error\":\"undefined\"}".to_owned()));
    let (mut talk, asked) = request("GET", "/admin/members", "");
    assert_eq!(asked, Request::ListMembers);
    let member = kv::Member { name: Arc::from("n@h"), here: true, up: true };
    assert_eq!(
        talk.respond(Ok(Response::Members(vec![member]))),
        (200, r#"{"members":[{"here":true,"name":"n@h","up":true}]}"#.to_owned())
    );
    for (target, question) in [
        ("/admin/status", Question::Status),
        ("/metrics", Question::Metrics { accept: Bytes::new() }),
        ("/health/ready", Question::Ready),
        ("/health/live", Question::Live),
        ("/admin/prometheus/targets", Question::Targets),
        ("/admin/log", Question::Log(None)),
        ("/admin/slow", Question::Slow(None)),
    ] {
        let (_, incoming) = Talk::ask("GET", target, "");
        assert!(matches!(incoming, Incoming::Question(asked) if asked == question));
    }
    assert!(answered("GET", "/admin/openapi.yaml", "").1.starts_with("openapi: 3"));
}

#[test]
fn changes_are_named_also_if_they_are_refused() {
    let named = |method: &str, target: &str, more: &str| {
        let mut session = Session::new();
        let request = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{more}Content-Length: 2\r\n\r\n{{}}");
        let (mut input, mut out) = (BytesMut::from(request.as_bytes()), Vec::new());
        session.receive(0, &mut input, &mut out);
        session
            .take_change()
            .map(|change| format!("{} {}", change.method, String::from_utf8_lossy(&change.path)))
    };
    let json = "Content-Type: application/json\r\n";
    for (method, target, more, change) in [
        ("POST", "/admin/cluster/commit?x", json, Some("POST /admin/cluster/commit")),
        ("POST", "/admin/cluster/commit", "", Some("POST /admin/cluster/commit")),
        ("POST", "/admin/members", json, Some("POST /admin/members")),
        ("POST", "/admin/cluster/commit", "Origin: http://other\r\n", Some("POST /admin/cluster/commit")),
        ("PUT", "/buckets/b/props", json, Some("PUT /buckets/b/props")),
        ("PUT", "/riak/b", json, Some("PUT /riak/b")),
        ("PUT", "/riak/b/k", json, None),
        ("PUT", "/buckets/b/keys/k", json, None),
        ("GET", "/admin/members", "", None),
    ] {
        assert_eq!(named(method, target, more).as_deref(), change, "{method} {target}");
    }
}
