//! Folds by HTTP: what is asked of the node, and how its answers read.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use kv::fold::{
    Adding, Finds, Fold, KeyClock, KeySpan, Modified, Purge, Scope, Segments, Stats, Sum, TreeSize,
};
use kv::{Bucket, Error, Request, Response};
use std::sync::Arc;

use super::pages_tests::{Talk, answered, request};

fn asked(path: &str) -> (Talk, Fold) {
    let (talk, asked) = request("GET", path, "");
    let Request::Fold(request) = asked else { panic!("{asked:?}") };
    (talk, request.fold)
}

/// A path with a filter.
fn with(path: &str, filter: &str) -> String {
    let filter = BASE64_STANDARD.encode(filter).replace('+', "%2B").replace('=', "%3D");
    format!("{path}?filter={filter}")
}

fn in_bucket(bucket_type: &'static str) -> Bucket {
    Bucket { bucket_type: Bytes::from(bucket_type), name: Bytes::from("b") }
}

fn over(finds: Finds) -> Fold {
    Fold::new(Scope::Bucket(in_bucket("t")), finds)
}

#[test]
fn what_a_path_asks() {
    let of_n_val = |finds| Fold::new(Scope::NVal(3), finds);
    let segments = |size, numbers| Some(Segments { size, numbers });
    let large = segments(TreeSize::Large, vec![1, 2]);
    for (path, fold) in [
        ("/cachedtrees/nvals/3/root".to_owned(), of_n_val(Finds::Root)),
        (with("/cachedtrees/nvals/3/branch", "[1,2]"), of_n_val(Finds::Branches(vec![1, 2]))),
        (
            with("/cachedtrees/nvals/3/keysclocks", "[1,2]"),
            Fold { segments: large, ..of_n_val(Finds::Clocks) },
        ),
        (
            with("/cachedtrees/nvals/3/keysclocks", r#"{"date_range":{"start":1,"end":2}}"#),
            Fold { modified: Some(Modified { from: 1, to: 2 }), ..of_n_val(Finds::Clocks) },
        ),
        (
            with("/rangetrees/types/t/buckets/b/trees/small", r#"{"hash_iv":7}"#),
            over(Finds::Tree { size: TreeSize::Small, seed: Some(7) }),
        ),
        (
            with(
                "/rangetrees/types/t/buckets/b/keysclocks",
                r#"{"key_range":{"start":"a","end":"z"},"segment_filter":{"segments":[3],"tree_size":"xxsmall"},"date_range":"all"}"#,
            ),
            Fold {
                keys: Some(KeySpan { first: Bytes::from("a"), last: Bytes::from("z") }),
                segments: segments(TreeSize::XxSmall, vec![3]),
                ..over(Finds::Clocks)
            },
        ),
        ("/siblings/types/t/buckets/b/counts/2".to_owned(), over(Finds::Siblings(2))),
        ("/objectsizes/types/t/buckets/b/sizes/9".to_owned(), over(Finds::Sizes(9))),
        ("/objectstats/types/t/buckets/b".to_owned(), over(Finds::Stats)),
        ("/tombs/types/t/buckets/b".to_owned(), over(Finds::Tombs)),
        (with("/reap/types/t/buckets/b", r#"{"change_method":"count"}"#), over(Finds::Count(Purge::Reap))),
        ("/erase/types/t/buckets/b".to_owned(), over(Finds::Count(Purge::Erase))),
        ("/aaebucketlist".to_owned(), Fold::new(Scope::NVal(1), Finds::Buckets)),
        ("/aaebucketlist?nval=3".to_owned(), of_n_val(Finds::Buckets)),
    ] {
        assert_eq!(asked(&path).1, fold, "{path}");
    }
    let untyped = Fold::new(Scope::Bucket(in_bucket("default")), Finds::Stats);
    assert_eq!(asked("/objectstats/buckets/b").1, untyped);
}

#[test]
fn what_is_wrong_is_told() {
    let filters = [
        "1",
        "{",
        r#"{"key_range":1}"#,
        r#"{"key_range":{"start":"a"}}"#,
        r#"{"date_range":{"start":-1,"end":1}}"#,
    ];
    let filters = filters.map(|filter| with("/objectstats/buckets/b", filter));
    let paths = [
        "/cachedtrees/nvals/0/root",
        "/cachedtrees/nvals/x/root",
        "/cachedtrees/nvals/3/branch",
        "/cachedtrees/nvals/3/other",
        "/rangetrees/buckets/b/trees/tiny",
        "/siblings/buckets/b/counts/x",
        "/objectstats/buckets/b?filter=%25",
        "/aaebucketlist?nval=0",
    ];
    for path in paths.map(str::to_owned).into_iter().chain(filters) {
        assert_eq!(answered("GET", &path, "").0, 400, "{path}");
    }
    assert_eq!(answered("GET", &with("/reap/buckets/b", r#"{"change_method":"local"}"#), "").0, 400);
    for path in [
        "/cachedtrees",
        "/cachedtrees/nvals/3/root/x",
        "/tombs/buckets/b/x",
        "/rangetrees/b",
        "/aaebucketlist/x",
    ] {
        assert_eq!(answered("GET", path, "").0, 404, "{path}");
    }
    assert_eq!(answered("PUT", "/objectstats/buckets/b", "").0, 405);
}

fn told(path: &str, sum: Sum) -> String {
    let (mut talk, fold) = asked(path);
    let mut adding = Adding::new(Arc::new(fold), false);
    adding.add(sum).unwrap();
    let (status, text) = talk.respond(Ok(Response::Folded(Box::new(adding.end()))));
    assert_eq!(status, 200, "{text}");
    text
}

#[test]
fn how_answers_read() {
    let clock = |bucket_type| KeyClock {
        bucket: in_bucket(bucket_type),
        key: Bytes::from("k"),
        clock: Bytes::from("clock"),
    };
    let clocks = told("/tombs/buckets/b", Sum::Clocks(vec![clock("t"), clock("default")]));
    assert_eq!(
        clocks,
        r#"{"keys-clocks":[{"bucket":"b","clock":"Y2xvY2s=","key":"k"},{"bucket":"b","bucket-type":"t","clock":"Y2xvY2s=","key":"k"}]}"#
    );
    let keys = told("/siblings/buckets/b/counts/1", Sum::Keys(vec![(Bytes::from("k"), 3)]));
    assert_eq!(keys, r#"{"results":[{"key":"k","value":3}]}"#);
    let mut stats = Stats::default();
    [(9, 1), (1_000, 1), (1_024, 2)].into_iter().for_each(|(bytes, siblings)| stats.count(bytes, siblings));
    assert_eq!(
        told("/objectstats/buckets/b", Sum::Stats(stats)),
        r#"{"siblings":{"1":2,"2":1},"sizes":{"1":1,"4":2},"total_count":3,"total_size":2033}"#
    );
    assert_eq!(told("/reap/buckets/b", Sum::Count(7)), r#"{"dispatched_count":7}"#);
    let buckets = Sum::Buckets([in_bucket("default"), in_bucket("t")].into());
    assert_eq!(
        told("/aaebucketlist", buckets),
        r#"{"results":[{"bucket":"b"},{"bucket":"b","bucket-type":"t"}]}"#
    );
    let (mut talk, _) = asked("/objectstats/buckets/b");
    assert_eq!(talk.respond(Err(Error::NotCovered)).0, 503);
}

#[test]
fn how_trees_read() {
    let field = |text: &str, path: &[&str]| -> Vec<u8> {
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        let value = path.iter().fold(&json, |value, name| match name.parse::<usize>() {
            Ok(at) if value.is_array() => &value[at],
            _ => &value[*name],
        });
        BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap()
    };
    let root = field(&told("/cachedtrees/nvals/3/root", Sum::Hashes(vec![(1, 0x0102_0304)])), &["root"]);
    assert_eq!((root.len(), &root[..8]), (4 * 4_096, &[0, 0, 0, 0, 1, 2, 3, 4][..]));

    let hashes = Sum::Hashes(vec![(2 * 256 + 1, 5)]);
    let branches = told(&with("/cachedtrees/nvals/3/branch", "[2,9]"), hashes);
    assert!(branches.contains(r#""branch-id":9"#), "{branches}");
    let branch = field(&branches, &["branches", "0", "branch"]);
    assert_eq!((branch.len(), &branch[..8]), (1_024, &[0, 0, 0, 0, 0, 0, 0, 5][..]));
    assert!(field(&branches, &["branches", "1", "branch"]).iter().all(|byte| *byte == 0));

    let tree = told("/rangetrees/buckets/b/trees/xxsmall", Sum::Hashes(vec![(256, 1), (257, 2)]));
    let one = field(&tree, &["tree", "level1"]);
    assert_eq!((one.len(), &one[..8]), (4 * 16, &[0, 0, 0, 0, 0, 0, 0, 3][..]));
    let two = field(&tree, &["tree", "level2", "1"]);
    // A head of zlib's, a block that is stored, a checksum.
    assert_eq!((&two[..2], two.len()), (&[0x78, 1][..], 2 + 5 + 1_024 + 4));
    assert_eq!(&two[7..15], [0, 0, 0, 1, 0, 0, 0, 2]);
}
