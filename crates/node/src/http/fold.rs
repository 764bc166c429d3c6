//! Folds: what Riak's paths and filters ask for, and the answers, JSON all of them.
//!
//! | path | answer |
//! |---|---|
//! | `/cachedtrees/nvals/N/root` | `{"root":base64}` |
//! | `/cachedtrees/nvals/N/branch?filter` | `{"branches":[{"branch-id":n,"branch":base64},…]}` |
//! | `/cachedtrees/nvals/N/keysclocks?filter`, `/rangetrees/…B/keysclocks`, `/tombs/…B` | `{"keys-clocks":[{"bucket-type","bucket","key","clock":base64},…]}` |
//! | `/rangetrees/…B/trees/SIZE` | `{"tree":{"level1":base64,"level2":{"n":base64,…}}}` |
//! | `/siblings/…B/counts/N`, `/objectsizes/…B/sizes/N` | `{"results":[{"key","value":n},…]}` |
//! | `/objectstats/…B` | `{"total_count":n,"total_size":n,"sizes":{"n":n,…},"siblings":{"n":n,…}}` |
//! | `/reap/…B`, `/erase/…B` | `{"dispatched_count":n}` |
//! | `/aaebucketlist?nval` | `{"results":[{"bucket-type","bucket"},…]}` |
//!
//! …B is `buckets/B` or `types/T/buckets/B`. A filter is JSON in base64.
//!
//! Names are text in JSON; what is no UTF-8 in them is replaced. Clients whose names are not text ask by protocol
//! buffers.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use kv::bucket::DEFAULT_TYPE;
use kv::fold::{
    Finds, Fold, FoldRequest, Folded, KeyClock, KeySpan, Modified, Purge, Scope, Segments, Sum, TreeSize,
};
use kv::{Bucket, Error, Request, Response};
use protocol::http::target::{Query, decode};
use protocol::http::{Answer, Connection, Refused};
use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::{names, options};
use crate::trees::{branch, joined, level_one};

/// What a path asks for, before its filter.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// `/cachedtrees/nvals/N/…`: a number, and a word.
    NVal(Bytes, Bytes),
    /// A word that says what is found, a bucket, and a number or a size.
    Bucket(Word, Bucket, Bytes),
    /// `/aaebucketlist`
    Buckets,
}

/// What is found of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Tree,
    Clocks,
    Siblings,
    Sizes,
    Stats,
    Tombs,
    Reap,
    Erase,
}

/// What a path names that begins with this word; `None` if nothing.
pub(super) fn path(first: &[u8], mut rest: impl Iterator<Item = Bytes>) -> Result<Option<Path>, Refused> {
    if first == b"aaebucketlist" {
        return Ok(rest.next().is_none().then_some(Path::Buckets));
    }
    let mut next = || rest.next().unwrap_or_default();
    let second = next();
    if first == b"cachedtrees" {
        let (n_val, word) = (next(), next());
        return Ok((second == "nvals" && rest.next().is_none()).then_some(Path::NVal(n_val, word)));
    }
    let (bucket_type, word) = match &second[..] {
        b"types" => (Some(decode(&next())?), next()),
        _ => (None, second),
    };
    if word != "buckets" {
        return Ok(None);
    }
    let bucket = Bucket::typed(bucket_type, decode(&next())?);
    let (word, argument) = (next(), next());
    let word = match (first, &word[..], &argument[..]) {
        (b"rangetrees", b"trees", _) => Word::Tree,
        (b"rangetrees", b"keysclocks", b"") => Word::Clocks,
        (b"siblings", b"counts", _) => Word::Siblings,
        (b"objectsizes", b"sizes", _) => Word::Sizes,
        (b"objectstats", b"", b"") => Word::Stats,
        (b"tombs", b"", b"") => Word::Tombs,
        (b"reap", b"", b"") => Word::Reap,
        (b"erase", b"", b"") => Word::Erase,
        _ => return Ok(None),
    };
    Ok(rest.next().is_none().then_some(Path::Bucket(word, bucket, argument)))
}

/// The request for what a path and its query ask.
pub(super) fn request(path: Path, query: &Query) -> Result<Request, Fault> {
    let fold = match path {
        Path::Buckets => {
            let n_val = query.get("nval").map(|text| positive(text, "Invalid n_val"));
            Fold::new(Scope::NVal(n_val.transpose()?.unwrap_or(1)), Finds::Buckets)
        }
        Path::NVal(n_val, word) => {
            let scope = Scope::NVal(positive(&n_val, "Cached tree request invalid nval")?);
            of_n_val(scope, &word, query)?
        }
        Path::Bucket(word, bucket, argument) => of_bucket(word, bucket, &argument, query)?,
    };
    Ok(Request::Fold(Box::new(FoldRequest { fold, timeout: options::timeout(query)?, stream: false })))
}

fn of_n_val(scope: Scope, word: &[u8], query: &Query) -> Result<Fold, Fault> {
    let invalid = || Fault::bad("Invalid branch | segment filter");
    let filter = || filter(query)?.ok_or(Fault::bad("Filter query param required for this aae fold"));
    match word {
        b"root" => Ok(Fold::new(scope, Finds::Root)),
        b"branch" => {
            let numbers = numbers(&filter()?).ok_or_else(invalid)?;
            Ok(Fold::new(scope, Finds::Branches(numbers)))
        }
        b"keysclocks" => {
            let fold = Fold::new(scope, Finds::Clocks);
            match filter()? {
                Value::Object(filter) => filtered(Fold { keys: None, ..fold }, &filter),
                list => {
                    let numbers = numbers(&list).ok_or_else(invalid)?;
                    let segments = Some(Segments { size: TreeSize::Large, numbers });
                    Ok(Fold { segments, ..fold })
                }
            }
        }
        _ => Err(Fault::bad("unknown cached aae tree query")),
    }
}

fn of_bucket(word: Word, bucket: Bucket, argument: &[u8], query: &Query) -> Result<Fold, Fault> {
    let filter = match filter(query)? {
        None => Map::new(),
        Some(Value::Object(filter)) => filter,
        Some(_) => return Err(Fault::bad("Invalid range filter")),
    };
    let finds = match word {
        Word::Tree => {
            let size = std::str::from_utf8(argument).ok().and_then(TreeSize::named);
            let size = size.ok_or(Fault::bad("Invalid treesize"))?;
            Finds::Tree { size, seed: number(&filter, "hash_iv")? }
        }
        Word::Clocks => Finds::Clocks,
        Word::Siblings => Finds::Siblings(positive(argument, "sibling_count requires integer for count")?),
        Word::Sizes => Finds::Sizes(positive(argument, "object_size requires integer for size")?),
        Word::Stats => Finds::Stats,
        Word::Tombs => Finds::Tombs,
        Word::Reap | Word::Erase => {
            if filter.get("change_method").is_some_and(|method| method != "count") {
                return Err(Fault::bad("only change_method count is served here"));
            }
            Finds::Count(if word == Word::Reap { Purge::Reap } else { Purge::Erase })
        }
    };
    filtered(Fold::new(Scope::Bucket(bucket), finds), &filter)
}

/// The fold with what a filter leaves of it.
pub(super) fn filtered(mut fold: Fold, filter: &Map<String, Value>) -> Result<Fold, Fault> {
    let bad = |name: &str| Fault::bad(format!("Invalid range filter {name}"));
    let part = |name| match filter.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(all)) if all == "all" => Ok(None),
        Some(Value::Object(part)) => Ok(Some(part)),
        Some(_) => Err(bad(name)),
    };
    if let Some(span) = part("key_range")? {
        let bound =
            |name| span.get(name).and_then(Value::as_str).map(|text| Bytes::copy_from_slice(text.as_bytes()));
        let (first, last) = bound("start").zip(bound("end")).ok_or_else(|| bad("key_range"))?;
        fold.keys = Some(KeySpan { first, last });
    }
    if let Some(range) = part("date_range")? {
        let bound = |name| range.get(name).and_then(Value::as_u64);
        let (from, to) = bound("start").zip(bound("end")).ok_or_else(|| bad("date_range"))?;
        fold.modified = Some(Modified { from, to });
    }
    if let Some(segments) = part("segment_filter")? {
        let size = segments.get("tree_size").and_then(Value::as_str).and_then(TreeSize::named);
        let numbers = segments.get("segments").and_then(numbers);
        let (size, numbers) = size.zip(numbers).ok_or_else(|| bad("segment_filter"))?;
        fold.segments = Some(Segments { size, numbers });
    }
    Ok(fold)
}

/// The filter in a query: JSON in base64.
fn filter(query: &Query) -> Result<Option<Value>, Fault> {
    let Some(text) = query.get("filter") else { return Ok(None) };
    // Who does not encode a plus sends a space.
    let text: Vec<u8> = text.iter().map(|&byte| if byte == b' ' { b'+' } else { byte }).collect();
    let json = BASE64_STANDARD.decode(&text).ok().and_then(|json| serde_json::from_slice(&json).ok());
    json.map(Some).ok_or(Fault::bad("Invalid range filter: it is to be JSON in base64"))
}

fn numbers(list: &Value) -> Option<Vec<u32>> {
    list.as_array()?.iter().map(|number| u32::try_from(number.as_u64()?).ok()).collect()
}

fn number(filter: &Map<String, Value>, name: &str) -> Result<Option<u32>, Fault> {
    let Some(value) = filter.get(name) else { return Ok(None) };
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    number.map(Some).ok_or_else(|| Fault::bad(format!("Invalid range filter {name}")))
}

fn positive(text: &[u8], why: &'static str) -> Result<u32, Fault> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.filter(|&number| number > 0).ok_or(Fault::bad(why))
}

/// Writes the answer.
pub(super) fn respond(result: Result<Response, Error>, connection: Connection, out: &mut Vec<u8>) {
    let folded = match result {
        Ok(Response::Folded(folded)) => folded,
        Ok(other) => unreachable!("the node was asked for a fold and answered {other:?}"),
        Err(error) => return Fault::from(&error).write(connection, out),
    };
    let mut answer = Answer::new(out, connection, 200);
    answer.header("Vary", "Accept-Encoding");
    answer.header("Content-Type", "application/json");
    answer.body(text(&folded).to_string().as_bytes());
}

fn text(folded: &Folded) -> Value {
    let numbered = |counts: &std::collections::BTreeMap<u32, u64>| -> Map<String, Value> {
        counts.iter().map(|(number, count)| (number.to_string(), json!(count))).collect()
    };
    match &folded.sum {
        Sum::Hashes(_) => tree(folded),
        Sum::Clocks(clocks) => json!({ "keys-clocks": clocks.iter().map(key_clock).collect::<Vec<_>>() }),
        Sum::Keys(keys) => {
            let one = |(key, number): &(Bytes, u64)| {
                let mut object = names::named("key", key);
                object.insert("value".into(), json!(number));
                Value::Object(object)
            };
            json!({ "results": keys.iter().map(one).collect::<Vec<_>>() })
        }
        Sum::Stats(stats) => json!({
            "total_count": stats.count,
            "total_size": stats.bytes,
            "sizes": numbered(&stats.sizes),
            "siblings": numbered(&stats.siblings),
        }),
        Sum::Count(count) => json!({ "dispatched_count": count }),
        Sum::Buckets(buckets) => {
            json!({ "results": buckets.iter().map(|bucket| Value::Object(named(bucket))).collect::<Vec<_>>() })
        }
    }
}

fn tree(folded: &Folded) -> Value {
    let tree = &folded.tree;
    match &folded.fold.finds {
        Finds::Branches(asked) => {
            let one = |number: &u32| {
                let branch = BASE64_STANDARD.encode(joined(tree.of(*number)));
                json!({ "branch-id": number, "branch": branch })
            };
            json!({ "branches": asked.iter().map(one).collect::<Vec<_>>() })
        }
        Finds::Tree { .. } => {
            let branches = tree
                .iter()
                .map(|(number, hashes)| (number.to_string(), json!(BASE64_STANDARD.encode(branch(hashes)))));
            let branches: Map<String, Value> = branches.collect();
            json!({ "tree": { "level1": BASE64_STANDARD.encode(level_one(folded)), "level2": branches } })
        }
        _ => json!({ "root": BASE64_STANDARD.encode(level_one(folded)) }),
    }
}

fn key_clock(of: &KeyClock) -> Value {
    let mut object = named(&of.bucket);
    names::put_name(&mut object, "key", &of.key);
    object.insert("clock".into(), BASE64_STANDARD.encode(&of.clock).into());
    Value::Object(object)
}

/// A bucket; the default type goes without saying.
fn named(bucket: &Bucket) -> Map<String, Value> {
    let mut object = names::named("bucket", &bucket.name);
    if bucket.bucket_type != DEFAULT_TYPE {
        names::put_name(&mut object, "bucket-type", &bucket.bucket_type);
    }
    object
}
