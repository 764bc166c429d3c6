//! Folds by protocol buffers: what is asked of the node, and how its answers read.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kv::fold::{
    Adding, Finds, Fold, KeyClock, KeySpan, Modified, Purge, Scope, Segments, Stats, Sum, TreeSize,
};
use kv::{Bucket, Request, Response};
use protocol::messages as pb;
use protocol::{Message, codes};

use super::{Identity, Incoming, Session};

/// What a message asks, and what is answered to it: a code and a body.
fn exchange(request: &protocol::Request, sum: Option<Sum>) -> Result<(Fold, u8, Bytes), String> {
    let mut session = Session::new(Arc::new(Identity { node: "n@h".into(), version: "1.2.3".into() }));
    let (mut bytes, mut out) = (Vec::new(), Vec::new());
    request.encode(&mut bytes);
    match session.receive(&mut BytesMut::from(&bytes[..]), &mut out) {
        Incoming::Request(Request::Fold(request)) => {
            let mut adding = Adding::new(Arc::new(request.fold.clone()), false);
            if let Some(sum) = sum {
                adding.add(sum).unwrap();
            }
            session.respond(Ok(Response::Folded(Box::new(adding.end()))), &mut out);
            Ok((request.fold, out[4], Bytes::copy_from_slice(&out[5..])))
        }
        _ => Err(pb::ErrorResp::decode(&out[5..]).unwrap().errmsg.escape_ascii().to_string()),
    }
}

fn name(name: &'static str) -> Bytes {
    Bytes::from(name)
}

fn bucket() -> Bucket {
    Bucket { bucket_type: name("t"), name: name("b") }
}

/// A message over all of a bucket.
fn over_bucket() -> pb::FoldRangeReq {
    pb::FoldRangeReq {
        bucket_type: Some(name("t")),
        bucket: name("b"),
        segment_filter: Some(false),
        ..pb::FoldRangeReq::default()
    }
}

#[test]
fn what_messages_ask() {
    let of_n_val = |code, id_filter: &[u32]| {
        let message =
            pb::FoldNValReq { n_val: Some(3), id_filter: id_filter.to_vec(), ..pb::FoldNValReq::default() };
        exchange(&protocol::Request::FoldNVal(code, message), None).unwrap().0
    };
    let all = |finds| Fold::new(Scope::NVal(3), finds);
    assert_eq!(of_n_val(codes::FOLD_ROOT_REQ, &[]), all(Finds::Root));
    assert_eq!(of_n_val(codes::FOLD_BRANCH_REQ, &[1, 2]), all(Finds::Branches(vec![1, 2])));
    assert_eq!(of_n_val(codes::FOLD_LIST_BUCKETS_REQ, &[]), all(Finds::Buckets));
    let segments = Some(Segments { size: TreeSize::Large, numbers: vec![7] });
    assert_eq!(of_n_val(codes::FOLD_CLOCKS_NVAL_REQ, &[7]), Fold { segments, ..all(Finds::Clocks) });

    let asked = |code, message| exchange(&protocol::Request::FoldRange(code, message), None).map(|it| it.0);
    let over = |finds| Fold::new(Scope::Bucket(bucket()), finds);
    let choice = |choice, number| pb::FoldRangeReq { choice: Some(choice), number, ..over_bucket() };
    let tree = |choice_of, number| pb::FoldRangeReq { tree_size: Some(2), ..choice(choice_of, number) };
    let size = TreeSize::Small;
    for (code, message, finds) in [
        (codes::FOLD_TREE_REQ, tree(1, None), Finds::Tree { size, seed: None }),
        (codes::FOLD_TREE_REQ, tree(0, Some(9)), Finds::Tree { size, seed: Some(9) }),
        (codes::FOLD_CLOCKS_RANGE_REQ, over_bucket(), Finds::Clocks),
        (codes::FOLD_FIND_KEYS_REQ, choice(0, Some(4)), Finds::Siblings(4)),
        (codes::FOLD_FIND_KEYS_REQ, choice(1, Some(5)), Finds::Sizes(5)),
        (codes::FOLD_STATS_REQ, over_bucket(), Finds::Stats),
        (codes::FOLD_FIND_TOMBS_REQ, over_bucket(), Finds::Tombs),
        (codes::FOLD_REAP_REQ, choice(2, None), Finds::Count(Purge::Reap)),
        (codes::FOLD_ERASE_REQ, choice(2, None), Finds::Count(Purge::Erase)),
    ] {
        assert_eq!(asked(code, message), Ok(over(finds)));
    }
    let filtered = pb::FoldRangeReq {
        key_range: true,
        start_key: Some(name("a")),
        end_key: Some(name("z")),
        segment_filter: Some(true),
        id_filter: vec![7],
        filter_tree_size: Some(5),
        modified_range: true,
        last_mod_start: Some(1),
        last_mod_end: Some(2),
        ..over_bucket()
    };
    let fold = Fold {
        keys: Some(KeySpan { first: name("a"), last: name("z") }),
        segments: Some(Segments { size: TreeSize::XLarge, numbers: vec![7] }),
        modified: Some(Modified { from: 1, to: 2 }),
        ..over(Finds::Tombs)
    };
    assert_eq!(asked(codes::FOLD_FIND_TOMBS_REQ, filtered), Ok(fold));
    for (code, bad) in [
        (codes::FOLD_STATS_REQ, pb::FoldRangeReq { key_range: true, ..over_bucket() }),
        (codes::FOLD_TREE_REQ, pb::FoldRangeReq { tree_size: Some(6), ..choice(1, None) }),
        (codes::FOLD_FIND_KEYS_REQ, choice(2, Some(1))),
        (codes::FOLD_REAP_REQ, choice(0, Some(1))),
        (codes::FOLD_FIND_TOMBS_REQ, pb::FoldRangeReq { segment_filter: None, ..over_bucket() }),
    ] {
        assert!(asked(code, bad).is_err());
    }
}

#[test]
fn how_answers_read() {
    let of_n_val = |code, sum| {
        let message = pb::FoldNValReq { n_val: Some(3), id_filter: vec![2], ..pb::FoldNValReq::default() };
        let (_, code, body) = exchange(&protocol::Request::FoldNVal(code, message), Some(sum)).unwrap();
        (code, body)
    };
    let over = |code, sum| {
        let message =
            pb::FoldRangeReq { choice: Some(1), number: Some(1), tree_size: Some(0), ..over_bucket() };
        let message = match code {
            codes::FOLD_REAP_REQ => pb::FoldRangeReq { choice: Some(2), ..message },
            _ => message,
        };
        let (_, code, body) = exchange(&protocol::Request::FoldRange(code, message), Some(sum)).unwrap();
        (code, body)
    };
    let tree = |(code, body): (u8, Bytes)| {
        assert_eq!(code, codes::FOLD_TREE_RESP);
        pb::FoldTreeResp::decode(body).unwrap()
    };
    let root = tree(of_n_val(codes::FOLD_ROOT_REQ, Sum::Hashes(vec![(1, 5)])));
    let level_one = root.level_one.unwrap();
    assert_eq!((root.size, level_one.len(), &level_one[..8]), (4, 4 * 4_096, &[0, 0, 0, 0, 0, 0, 0, 5][..]));
    let branches = tree(of_n_val(codes::FOLD_BRANCH_REQ, Sum::Hashes(vec![(2 * 256, 5)])));
    let [branch] = &branches.level_two[..] else { panic!("one was asked for") };
    assert_eq!(branch[..6], [0, 0, 0, 2, 0x78, 1]);
    assert_eq!(branch[11..15], [0, 0, 0, 5]);
    let ranged = tree(over(codes::FOLD_TREE_REQ, Sum::Hashes(vec![(256, 1), (257, 2)])));
    assert_eq!((ranged.size, &ranged.level_one.unwrap()[4..8]), (0, &[0, 0, 0, 3][..]));

    let clock = KeyClock { bucket: bucket(), key: name("k"), clock: name("c") };
    let (code, body) = over(codes::FOLD_FIND_TOMBS_REQ, Sum::Clocks(vec![clock]));
    assert_eq!(
        (code, &body[..]),
        (codes::FOLD_KEY_VALUE_RESP, &b"\x0A\x05clock\x12\x0C\x0A\x01t\x12\x01b\x1A\x01k\x22\x01c"[..])
    );

    let counts = |(code, body): (u8, Bytes)| {
        assert_eq!(code, codes::FOLD_KEY_COUNT_RESP);
        let answer = pb::FoldKeyCountResp::decode(body).unwrap();
        let counts = answer.keys_count.into_iter().map(|it| (it.tag, it.order, it.count));
        (answer.response_type, counts.collect::<Vec<_>>())
    };
    let keys = Sum::Keys(vec![(name("k"), 1 << 40)]);
    let found = (name("find_keys"), vec![(name("k"), None, 1 << 40)]);
    assert_eq!(counts(over(codes::FOLD_FIND_KEYS_REQ, keys)), found);
    let mut stats = Stats::default();
    stats.count(1_000, 2);
    let told = vec![
        (name("total_count"), None, 1),
        (name("total_size"), None, 1_000),
        (name("sizes"), Some(4), 1),
        (name("siblings"), Some(2), 1),
    ];
    assert_eq!(counts(over(codes::FOLD_STATS_REQ, Sum::Stats(stats))), (name("stats"), told));
    let reap = (name("reap_tombs"), vec![(name("dispatched_count"), None, 7)]);
    assert_eq!(counts(over(codes::FOLD_REAP_REQ, Sum::Count(7))), reap);

    let untyped = Bucket::untyped(name("a"));
    let (code, body) = of_n_val(codes::FOLD_LIST_BUCKETS_REQ, Sum::Buckets([bucket(), untyped].into()));
    assert_eq!(code, codes::FOLD_LIST_BUCKETS_RESP);
    assert_eq!(body[..], *b"\x0A\x03\x12\x01a\x0A\x06\x0A\x01t\x12\x01b");
}
