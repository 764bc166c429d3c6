//! What is not built says so, and the page about it is true.

use bytes::{Bytes, BytesMut};
use kv::Prop;
use protocol::request::DecodeError;
use std::collections::BTreeSet;

use super::route::{Route, route};
use super::{Incoming, Session};

const PAGE: &str = include_str!("../../../../docs/riak-compatibility.md");

/// What a new connection answers.
fn answered(method: &str, target: &str, headers: &str) -> String {
    let (mut session, mut out) = (Session::new(), Vec::new());
    let text = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
    let incoming = session.receive(0, &mut BytesMut::from(text.as_bytes()), &mut out);
    assert!(matches!(incoming, Incoming::Answered), "{method} {target}: {incoming:?}");
    String::from_utf8(out).unwrap()
}

#[test]
fn every_method_is_told_what_is_not_built() {
    for method in ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH", "BREW"] {
        for (path, word) in [
            ("/mapred?chunked=true", "map-reduce"),
            ("/types/t/buckets/b/datatypes/k", "data types"),
            ("/buckets/b/counters/k?returnvalue=true", "counters"),
            ("/buckets/b/keys/k/_,_,_", "link walking"),
            ("/riak/b/k/b,t,1", "link walking"),
            ("/search/query/i?q=x", "search"),
            ("/queuename/q", "replication queues"),
        ] {
            let answer = answered(method, path, "");
            assert!(answer.starts_with("HTTP/1.1 501 Not Implemented\r\n"), "{method} {path}: {answer}");
            let is_told = answer.contains(&format!("{word} "));
            assert!(is_told || matches!(method, "HEAD" | "BREW"), "{method} {path}: {answer}");
        }
    }
    assert!(answered("GET", "/nowhere", "").starts_with("HTTP/1.1 404 "));
    let few = answered("GET", "/buckets/b/index/f_bin", "");
    assert!(few.starts_with("HTTP/1.1 400 ") && few.ends_with("{too_few_arguments,[]}\n"), "{few}");
    assert!(answered("GET", "/buckets/b/index/f_bin/1/2/3", "").starts_with("HTTP/1.1 400 "));
}

#[test]
fn the_list_of_resources_has_what_is_built() {
    let built = |text: &str| {
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let link = head.lines().find_map(|line| line.strip_prefix("Link: ")).unwrap();
        (link.to_owned(), body.to_owned())
    };
    let (link, html) = built(&answered("GET", "/", ""));
    let (same, json) = built(&answered("GET", "/", "Accept: application/json\r\n"));
    assert_eq!(link, same);
    let json: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&json).unwrap();
    for (name, path) in [
        ("riak_kv_wm_preflist", "/buckets"),
        ("riak_kv_wm_index", "/buckets"),
        ("riak_kv_wm_query", "/buckets"),
        ("riak_kv_wm_aaefold", "/aaebucketlist"),
        ("riak_kv_wm_bucket_type", "/types"),
        ("riak_kv_wm_object", "/buckets"),
        ("riak_kv_wm_raw", "/riak"),
    ] {
        assert!(link.contains(&format!("<{path}>; rel=\"{name}\"")), "{name}: {link}");
        assert!(html.contains(&format!("<a href=\"{path}\">{name}</a>")), "{name}: {html}");
        assert_eq!(json[name], path, "{name}");
    }
    assert!(link.contains("</riak>; rel=\"riak_kv_wm_object\""), "{link}");
    for unbuilt in ["mapred", "crdt", "counter", "link_walker", "queue"] {
        assert!(!link.contains(&format!("riak_kv_wm_{unbuilt}\"")), "{unbuilt}: {link}");
    }
}

/// The rows of a section's table: first cell, the column of the status, all cells.
fn rows(section: &str, status: usize) -> Vec<(String, String)> {
    let start = PAGE.find(&format!("\n## {section}\n")).unwrap() + 1;
    let end = PAGE[start..].find("\n## ").map_or(PAGE.len(), |end| start + end);
    let lines = PAGE[start..end].lines().filter(|line| line.starts_with("| "));
    let cells = lines.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    // Under the names of the columns is a rule.
    let rows: Vec<_> = cells.skip(1).map(|cells| (cells[1].to_owned(), cells[status].to_owned())).collect();
    for (first, status) in rows.iter() {
        let is_status = ["there", "partly", "not", "refused"].contains(&&**status);
        assert!(is_status, "{section}, {first}: {status:?}");
    }
    rows
}

/// What stands between backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn the_page_has_each_message_code() {
    let is_unknown =
        |code: u8| matches!(protocol::Request::decode(code, Bytes::new()), Err(DecodeError::UnknownCode(_)));
    let mut listed = BTreeSet::new();
    for (codes, status) in rows("Protocol buffers", 3) {
        let numbers = |text: &str, between| -> Vec<u8> {
            text.split(between).map(|number| number.trim().parse().unwrap()).collect()
        };
        let numbers = match codes.contains(" to ") {
            true => (numbers(&codes, " to ")[0]..=numbers(&codes, " to ")[1]).collect(),
            false => numbers(&codes, ","),
        };
        // Behind a request's code is that of its answer.
        let is_answer = matches!(numbers[0], 0 | 220..=222);
        assert!(is_answer || is_unknown(numbers[0]) == (status == "not"), "{codes}: {status}");
        for number in numbers {
            assert!(listed.insert(number), "{number} twice");
        }
    }
    for code in 0..=u8::MAX {
        assert!(is_unknown(code) || listed.contains(&code), "{code} is there and not listed");
    }
}

#[test]
fn the_page_has_each_route() {
    let mut statuses = BTreeSet::new();
    for (paths, status) in rows("HTTP", 3) {
        let is_built = matches!(&*status, "there" | "partly");
        statuses.insert(status.clone());
        // Of rows of what is built the other paths are endings.
        let take = if is_built { 1 } else { usize::MAX };
        for path in quoted(&paths).take(take).filter(|path| !(is_built && path.contains('…'))) {
            let route = route(&Bytes::from(path.replace('…', "x"))).unwrap();
            let is_unbuilt = matches!(route, Some(Route::Unbuilt(_)));
            assert!(route.is_some() && is_unbuilt != is_built, "{path} is {status}, and names {route:?}");
        }
    }
    assert!(statuses.contains("there") && statuses.contains("not"));
}

#[test]
fn the_page_has_each_property() {
    let labels = ["name", "bucket_type", "active", "claimant"];
    let rows = rows("Bucket properties", 2);
    let listed: Vec<&str> = rows.iter().flat_map(|(names, _)| quoted(names)).collect();
    let known: BTreeSet<&str> = Prop::NAMES.iter().copied().chain(labels).collect();
    assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), known);
    assert_eq!(listed.len(), known.len(), "one twice: {listed:?}");
    assert!(!self::rows("Admin commands", 2).is_empty());
}
