//! Index queries over several nodes: whole, in order, each row once, or an error.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::cluster::*;
use bytes::Bytes;
use kv::index::{EncodedRows, Pick, Rows, Terms};
use kv::query::{Accumulation, Findings, QueryPart, QueryRequest, SetExpression};
use kv::{Bucket, DeleteRequest, Error, IndexRequest, PutRequest, ReadStrategy, Request, Response};
use node::RequestId;
use object::{IndexEntry, Metadata};
use std::time::Duration;

fn in_bucket() -> Bucket {
    Bucket::untyped(Bytes::from_static(b"b"))
}

fn name(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn range(field: &str, first: &str, last: &str) -> IndexRequest {
    IndexRequest::new(in_bucket(), name(field), Terms::Range(name(first), name(last)))
}

fn all() -> IndexRequest {
    IndexRequest::new(in_bucket(), name("$bucket"), Terms::Exact(name("_")))
}

/// Object i has the number i, and a word with as many letters as i has tens.
fn fill(cluster: &mut Cluster, objects: impl Iterator<Item = usize>, nodes: usize) {
    for (count, at) in objects.enumerate() {
        let entry = |field: &str, value: String| IndexEntry { field: name(field), value: value.into() };
        let indexes = vec![entry("n_int", at.to_string()), entry("w_bin", "x".repeat(at / 10))];
        let metadata = Metadata { indexes, ..Metadata::default() };
        let put = PutRequest::new(in_bucket(), Some(name(&format!("k{at:05}"))), metadata, name("v"));
        cluster.last_request += 1;
        let id = RequestId(cluster.last_request);
        cluster.nodes[at % nodes].as_mut().unwrap().request(id, Request::put(put));
        if count % 100 == 99 {
            cluster.run();
        }
    }
    cluster.run();
    assert!(std::mem::take(&mut cluster.answers).into_values().all(|answer| answer.is_ok()));
}

fn outcome(cluster: &mut Cluster, id: RequestId) -> Option<Result<Found, Error>> {
    let last = match cluster.answers.remove(&id)? {
        Ok(last) => last,
        Err(error) => return Some(Err(error)),
    };
    let (mut rows, mut end) = (Vec::new(), None);
    for piece in cluster.pieces.remove(&id).unwrap_or_default().into_iter().chain([last]) {
        let Response::Rows(Rows { rows: piece, continuation, .. }) = piece else { panic!("{piece:?}") };
        rows.extend(owned(&piece));
        end = continuation;
    }
    Some(Ok((rows, end)))
}

/// Rows as they were told.
fn owned(told: &EncodedRows) -> impl Iterator<Item = Row> {
    told.iter().map(|(term, key)| (term.map(Bytes::copy_from_slice), Bytes::copy_from_slice(key)))
}

type Row = (Option<Bytes>, Bytes);

/// Rows, and where the next page begins.
type Found = (Vec<Row>, Option<Bytes>);

fn find(cluster: &mut Cluster, node: usize, request: IndexRequest) -> Result<Found, Error> {
    let id = cluster.begin(node, Request::Index(Box::new(request)));
    outcome(cluster, id).expect("a query is over when nothing moves")
}

fn keys(of: impl Iterator<Item = usize>) -> Vec<Bytes> {
    of.map(|at| name(&format!("k{at:05}"))).collect()
}

fn keys_of(cluster: &mut Cluster, node: usize, request: IndexRequest) -> Vec<Bytes> {
    let (rows, end) = find(cluster, node, request).unwrap();
    assert_eq!(end, None);
    rows.into_iter().map(|(_, key)| key).collect()
}

/// All pages of a query, of this size.
fn by_page(cluster: &mut Cluster, nodes: usize, request: &IndexRequest, size: u32) -> Vec<Row> {
    let (mut told, mut place) = (Vec::new(), None);
    for round in 0.. {
        let page = IndexRequest { max_results: Some(size), continuation: place, ..request.clone() };
        let page = IndexRequest { stream: round % 2 == 0, ..page };
        let (rows, end) = find(cluster, round % nodes, page).unwrap();
        assert!(rows.len() <= size as usize);
        assert_eq!(end.is_some(), rows.len() == size as usize);
        told.extend(rows);
        place = end;
        if place.is_none() {
            return told;
        }
    }
    unreachable!("it has an end");
}

#[test]
fn keys_are_found_between_bounds() {
    let data = folder();
    let mut five = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    fill(&mut five, 0..3_000, 5);
    let gone = DeleteRequest::new(in_bucket(), name("k00007"));
    five.ask(1, Request::Delete(gone)).unwrap();
    let there: Vec<usize> = (0..3_000).filter(|at| *at != 7).collect();
    for node in 0..5 {
        let mut found = keys_of(&mut five, node, all());
        found.sort();
        assert_eq!(found, keys(there.iter().copied()));
        let sorted = IndexRequest { sort: true, ..range("$key", "k00005", "k00011") };
        assert_eq!(keys_of(&mut five, node, sorted), keys([5, 6, 8, 9, 10, 11].into_iter()));
        let ends_in_3 =
            IndexRequest { term_regex: Some(name("3$")), sort: true, ..range("$key", "k00000", "k00040") };
        assert_eq!(keys_of(&mut five, node, ends_in_3), keys([3, 13, 23, 33].into_iter()));
        assert_eq!(keys_of(&mut five, node, range("$key", "k2", "k1")), Vec::<Bytes>::new());
    }
    let exact = IndexRequest::new(in_bucket(), name("$key"), Terms::Exact(name("k00042")));
    assert_eq!(keys_of(&mut five, 0, exact), keys([42].into_iter()));
    for size in [1_000, 77] {
        let told = by_page(&mut five, 5, &all(), size);
        assert_eq!(told.into_iter().map(|(_, key)| key).collect::<Vec<_>>(), keys(there.iter().copied()));
    }
    assert!(five.idle());
}

#[test]
fn a_query_needs_a_primary_of_every_partition() {
    let data = folder();
    let mut three = three(&data);
    fill(&mut three, 0..300, 3);
    three.cut(1);
    three.pass(Duration::from_secs(3));
    assert_eq!(keys_of(&mut three, 0, IndexRequest { sort: true, ..all() }), keys(0..300));
    let unknown = Bucket { bucket_type: name("nope"), name: name("b") };
    let unknown = IndexRequest { bucket: unknown, ..all() };
    assert!(matches!(find(&mut three, 0, unknown), Err(Error::NoType(_))));
    assert!(matches!(find(&mut three, 0, range("nosuffix", "a", "b")), Err(Error::BadQuery(_))));
}

/// Those of fields, whose entries the stores keep.
#[test]
fn terms_are_found_in_order_by_page_and_by_expression() {
    let data = folder();
    let mut five = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    fill(&mut five, 0..500, 5);
    five.ask(1, Request::Delete(DeleteRequest::new(in_bucket(), name("k00207")))).unwrap();
    for node in 0..5 {
        let found = keys_of(&mut five, node, range("n_int", "-5", "12"));
        assert_eq!(found, keys(0..=12));
        assert_eq!(
            keys_of(&mut five, node, range("n_int", "205", "209")),
            keys([205, 206, 208, 209].into_iter())
        );
        let exact = IndexRequest::new(in_bucket(), name("w_bin"), Terms::Exact(name("xx")));
        assert_eq!(keys_of(&mut five, node, exact), keys(20..30));
        let terms = IndexRequest { return_terms: true, ..range("n_int", "99", "101") };
        let (rows, _) = find(&mut five, node, terms).unwrap();
        let expected = [(99, "99"), (100, "100"), (101, "101")];
        let expected = expected.map(|(at, term)| (Some(name(term)), name(&format!("k{at:05}"))));
        assert_eq!(rows, expected);
        let regex = IndexRequest { term_regex: Some(name("^x{3}$")), ..range("w_bin", "x", "y") };
        assert_eq!(keys_of(&mut five, node, regex), keys(30..40));
    }
    let there: Vec<usize> = (0..500).filter(|at| *at != 207).collect();
    for size in [1_000, 77] {
        let told = by_page(&mut five, 5, &range("n_int", "0", "1000"), size);
        assert_eq!(told.into_iter().map(|(_, key)| key).collect::<Vec<_>>(), keys(there.iter().copied()));
    }
    let part = |tag, last: &str| QueryPart {
        tag,
        field: name("w_bin"),
        first: name("x"),
        last: name(last),
        pick: Pick::Where { pipeline: String::new(), condition: "NOT ends_with($key, \"7\")".to_owned() },
    };
    let query = |sets, accumulation| {
        Request::Query(Box::new(QueryRequest {
            bucket: in_bucket(),
            parts: vec![part(1, "xxx"), part(2, "x")],
            sets: Some(SetExpression::parse(sets).unwrap()),
            accumulation,
            term: None,
            max_results: None,
            continuation: None,
            timeout: None,
        }))
    };
    let answer = five.ask(2, query("$1 SUBTRACT $2", Accumulation::Keys)).unwrap();
    let Response::Findings(Findings::Keys(found, None)) = answer else { panic!("{answer:?}") };
    assert_eq!(found, keys((20..40).filter(|at| at % 10 != 7)));
    let answer = five.ask(3, query("$1 UNION $2", Accumulation::KeyCount)).unwrap();
    assert_eq!(answer, Response::Findings(Findings::Count(Accumulation::KeyCount, 27)));
    assert!(five.idle());
}
