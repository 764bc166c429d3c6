//! Index queries by HTTP: what is asked of the node, and how its answers read.

use bytes::{Bytes, BytesMut};
use kv::index::{Pick, Rows, Terms};
use kv::query::{Accumulation, Findings};
use kv::{Error, IndexRequest, Request, Response};

use super::pages_tests::{Talk, answered, request};
use super::session::Incoming;

fn asked(path: &str) -> (Talk, IndexRequest) {
    let (talk, asked) = request("GET", path, "");
    let Request::Index(index) = asked else { panic!("{asked:?}") };
    (talk, *index)
}

fn rows(rows: &[(Option<&'static str>, &'static str)], place: Option<&'static str>, done: bool) -> Response {
    let row = |(term, key): &(Option<&'static str>, &'static str)| (term.map(Bytes::from), Bytes::from(*key));
    let continuation = place.map(Bytes::from);
    Response::Rows(Rows { rows: rows.iter().map(row).collect(), continuation, done })
}

#[test]
fn what_a_path_asks() {
    let (_, index) = asked(
        "/types/t/buckets/b/index/F_bin/a/b?return_terms=true&max_results=7&continuation=cGxh%2BY2U&pagination_sort=true&term_regex=%5Ea&timeout=5",
    );
    assert_eq!((&index.bucket.bucket_type[..], &index.field[..]), (&b"t"[..], &b"f_bin"[..]));
    assert_eq!(index.terms, Terms::Range("a".into(), "b".into()));
    assert!(index.return_terms && index.sort && !index.stream);
    assert_eq!((index.max_results, index.timeout), (Some(7), Some(5)));
    assert_eq!(index.term_regex.as_deref(), Some(&b"^a"[..]));
    assert!(index.continuation.is_some());
    for bad in ["max_results=0", "max_results=x", "continuation=%25", "stream=maybe", "timeout=x"] {
        assert_eq!(answered("GET", &format!("/buckets/b/index/f_bin/a?{bad}"), "").0, 400, "{bad}");
    }
    assert_eq!(answered("POST", "/buckets/b/index/f_bin/a", "").0, 405);
}

#[test]
fn an_answer_is_one_object() {
    let (mut talk, _) = asked("/buckets/b/index/f_bin/a");
    let answer = talk.respond(Ok(rows(&[(None, "k1"), (None, "k\"2")], None, true)));
    assert_eq!(answer, (200, r#"{"keys":["k1","k\"2"]}"#.to_owned()));
    let (mut talk, _) = asked("/buckets/b/index/f_bin/a/b?return_terms=true&max_results=1");
    let answer = talk.respond(Ok(rows(&[(Some("a"), "k")], Some("place"), true)));
    assert_eq!(answer, (200, r#"{"continuation":"cGxhY2U=","results":[{"a":"k"}]}"#.to_owned()));
    let (mut talk, _) = asked("/buckets/b/index/f_bin/a/b?return_terms=true");
    assert_eq!(talk.respond(Ok(rows(&[], None, true))).1, r#"{"results":[]}"#);
    let (mut talk, _) = asked("/buckets/b/index/$bucket/_?return_terms=true");
    assert_eq!(talk.respond(Ok(rows(&[], None, true))).1, r#"{"keys":[]}"#, "terms are those of a range");
    let (mut talk, _) = asked("/buckets/b/index/f/a");
    assert_eq!(
        talk.respond(Err(Error::BadQuery("Invalid query: x".into()))),
        (400, "Invalid query: x\n".to_owned())
    );
}

#[test]
fn a_stream_is_in_parts() {
    let (mut talk, index) = asked("/buckets/b/index/f_bin/a?stream=true&max_results=2");
    assert!(index.stream);
    let (status, text) = talk.respond(Ok(rows(&[(None, "k1")], None, false)));
    assert_eq!(status, 200);
    let part = "\r\n--annulet-index-query\r\nContent-Type: application/json\r\n\r\n";
    assert!(text.contains(&format!("{part}{{\"keys\":[\"k1\"]}}")), "{text}");
    talk.out.clear();
    assert_eq!(talk.session.respond(Ok(rows(&[], Some("place"), true)), &mut talk.out), None);
    let text = String::from_utf8(talk.out.clone()).unwrap();
    assert!(text.contains(&format!("{part}{{\"continuation\":\"cGxhY2U=\"}}")), "{text}");
    assert!(text.ends_with("\r\n--annulet-index-query--\r\n\r\n0\r\n\r\n"), "{text}");

    let (mut talk, _) = asked("/buckets/b/index/f_bin/a?stream=true");
    talk.respond(Ok(rows(&[(None, "k1")], None, false)));
    talk.out.clear();
    assert_eq!(talk.session.respond(Err(Error::Timeout), &mut talk.out), None);
    let text = String::from_utf8(talk.out.clone()).unwrap();
    assert!(text.contains("{\"error\":\"request timed out\"}") && text.ends_with("0\r\n\r\n"), "{text}");
    assert!(!matches!(talk.session.receive(0, &mut BytesMut::new(), &mut Vec::new()), Incoming::Close));

    let (mut talk, _) = asked("/buckets/b/index/f_bin/a?stream=true");
    assert_eq!(talk.respond(Err(Error::NotCovered)).0, 503);
}

#[test]
fn a_query_of_parts() {
    let body = r#"{"substitutions": [{"dl": "|", "year": 1965}], "accumulation_option": "term_with_matchcount",
        "accumulation_term": "$x", "timeout": 3, "query_list": [{"index_name": "f_bin", "start_term": "a", "end_term": "b",
        "evaluation_expression": "delim($term, :dl, ($x))", "filter_expression": "$x = :year"}]}"#;
    let (mut talk, asked) = request("POST", "/types/t/buckets/b/query", body);
    let Request::Query(query) = asked else { panic!("{asked:?}") };
    let pick = Pick::Where { pipeline: "delim($term, \"|\", ($x))".into(), condition: "$x = 1965".into() };
    assert_eq!((&query.parts[0].pick, query.parts[0].tag), (&pick, 1));
    assert_eq!((query.timeout, query.accumulation), (Some(3000), Accumulation::TermWithMatchCount));
    let counts = Findings::TermCounts([("a".into(), 2)].into());
    assert_eq!(talk.respond(Ok(Response::Findings(counts))), (200, r#"{"results":{"a":2}}"#.to_owned()));
    for (bad, stage) in [
        (r#"[]"#, "the body"),
        (r#"{}"#, "query_list"),
        (r#"{"query_list": [{"index_name": "f_bin"}]}"#, "start_term is missing"),
        (
            r#"{"query_list": [], "accumulation_option": "some"}"#,
            "accumulation_option due to Unrecognised option some",
        ),
        (r#"{"query_list": [], "aggregation_expression": "$x"}"#, "aggregation_expression"),
        (r#"{"query_list": [], "substitutions": {"a": []}}"#, "substitutions"),
        (r#"{"query_list": [], "max_results": -1}"#, "max_results"),
        (
            r#"{"query_list": [{"filter_expression": "$a = :b"}]}"#,
            "filter_expression due to nothing is given for :b",
        ),
    ] {
        let (status, text) = answered("POST", "/buckets/b/query", bad);
        assert!(status == 400 && text.contains(stage), "{text}");
    }
    assert_eq!(answered("GET", "/buckets/b/query", "").0, 405);
}
