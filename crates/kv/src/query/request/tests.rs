#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn part(tag: u32) -> QueryPart {
    QueryPart { tag, field: bytes("f_bin"), first: bytes("a"), last: bytes("z"), pick: Pick::All }
}

fn request(accumulation: Accumulation, parts: Vec<QueryPart>, sets: Option<&str>) -> QueryRequest {
    QueryRequest {
        bucket: Bucket::untyped(bytes("b")),
        parts,
        sets: sets.map(|text| SetExpression::parse(text).unwrap()),
        accumulation,
        term: None,
        max_results: None,
        continuation: None,
        timeout: None,
    }
}

fn rows(rows: &[(&str, &str)]) -> Rows {
    let rows = rows.iter().map(|(term, key)| (Some(bytes(term)), bytes(key))).collect();
    Rows { rows, continuation: None, done: true }
}

/// What comes of these rows, part by part.
fn found(request: QueryRequest, parts: &[&[(&str, &str)]]) -> Findings {
    let mut tally = Tally::new(request).unwrap();
    for part in parts {
        assert!(tally.next_part().unwrap().is_some());
        tally.take(rows(part)).unwrap();
    }
    assert!(tally.next_part().unwrap().is_none());
    tally.end()
}

const ROWS: &[(&str, &str)] = &[("a|1", "k1"), ("a|2", "k1"), ("b|1", "k2")];

#[test]
fn each_way_to_accumulate() {
    let of = |accumulation| found(request(accumulation, vec![part(1)], None), &[ROWS]);
    assert_eq!(of(Accumulation::Keys), Findings::Keys(vec![bytes("k1"), bytes("k2")], None));
    assert_eq!(of(Accumulation::MatchCount), Findings::Count(Accumulation::MatchCount, 3));
    assert_eq!(of(Accumulation::KeyCount), Findings::Count(Accumulation::KeyCount, 2));
    let Findings::Terms(terms, None) = of(Accumulation::TermWithKeys) else { panic!("terms") };
    assert_eq!(terms[1], (bytes("a|2"), bytes("k1")));
}

#[test]
fn terms_are_counted_by_an_attribute() {
    let pick = Pick::Where { pipeline: "delim($term, \"|\", ($x))".into(), condition: String::new() };
    let of = |accumulation| {
        let term = Some(Name("x".to_owned()));
        let parts = vec![QueryPart { pick: pick.clone(), ..part(1) }];
        found(QueryRequest { term, ..request(accumulation, parts, None) }, &[ROWS])
    };
    let counts = |a, b| Findings::TermCounts([(bytes("a"), a), (bytes("b"), b)].into());
    assert_eq!(of(Accumulation::TermWithMatchCount), counts(2, 1));
    assert_eq!(of(Accumulation::TermWithKeyCount), counts(1, 1));
}

#[test]
fn parts_are_combined() {
    let parts: &[&[(&str, &str)]] = &[ROWS, &[("x", "k2"), ("x", "k3")]];
    let of = |sets, accumulation| found(request(accumulation, vec![part(1), part(2)], Some(sets)), parts);
    assert_eq!(of("$1 INTERSECT $2", Accumulation::Keys), Findings::Keys(vec![bytes("k2")], None));
    assert_eq!(of("$2 SUBTRACT $1", Accumulation::Keys), Findings::Keys(vec![bytes("k3")], None));
    assert_eq!(of("$1 UNION $2", Accumulation::KeyCount), Findings::Count(Accumulation::KeyCount, 3));
}

#[test]
fn what_cannot_be_asked_says_at_which_stage() {
    let text = |request| Tally::new(request).unwrap_err().to_string();
    let keys = |parts, sets| request(Accumulation::Keys, parts, sets);
    let at = |stage: &str, why: &str| format!("Validation failure at stage {stage} due to {why}");
    let int = QueryPart { field: bytes("n_int"), ..part(1) };
    assert_eq!(text(keys(vec![int], None)), at("query_evaluation", "Invalid index name"));
    let back = QueryPart { first: bytes("z"), last: bytes("a"), ..part(1) };
    assert_eq!(text(keys(vec![back], None)), at("query_evaluation", "Invalid query range"));
    let bad = QueryPart { pick: Pick::Matching(bytes("(")), ..part(1) };
    assert_eq!(text(keys(vec![bad], None)), at("query_evaluation", "Invalid regex"));
    assert!(text(keys(Vec::new(), None)).contains("query_list"));
    assert!(text(keys(vec![part(1), part(2)], None)).contains("aggregation_expression"));
    assert!(text(keys(vec![part(1), part(1)], Some("$1"))).contains("same aggregation_tag"));
    assert!(text(keys(vec![part(1)], Some("$1 UNION $2"))).contains("not there"));
    let terms = request(Accumulation::TermWithKeys, vec![part(1)], Some("$1"));
    assert!(text(terms).contains("accumulation_option"));
    let paged = QueryRequest { max_results: Some(1), ..request(Accumulation::KeyCount, vec![part(1)], None) };
    assert!(text(paged).contains("max_results"));
}
