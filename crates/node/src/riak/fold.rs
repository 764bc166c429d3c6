//! Folds: Riak's messages for them, and their answers.

use bytes::Bytes;
use kv::bucket::DEFAULT_TYPE;
use kv::fold::{
    BRANCH, Finds, Fold, FoldRequest, Folded, KeyClock, KeySpan, Modified, Purge, Scope, Segments, Sum,
    TreeSize,
};
use kv::{Bucket, Request};
use protocol::messages as pb;
use protocol::request::DecodeError;
use protocol::{codes, response};

use crate::trees::{branch, level_one};

/// Riak's numbers for what is found, and for what is done.
const SIBLING_COUNT: u32 = 0;
const OBJECT_SIZE: u32 = 1;
const COUNT: u32 = 2;

/// What a message asks that is about all buckets with so many replicas.
pub(super) fn over_n_val(code: u8, message: pb::FoldNValReq) -> Request {
    // Buckets are looked for everywhere if it does not say.
    let scope = Scope::NVal(message.n_val.unwrap_or(1));
    let fold = match code {
        codes::FOLD_ROOT_REQ => Fold::new(scope, Finds::Root),
        codes::FOLD_BRANCH_REQ => Fold::new(scope, Finds::Branches(message.id_filter)),
        codes::FOLD_LIST_BUCKETS_REQ => Fold::new(scope, Finds::Buckets),
        _ => Fold {
            segments: Some(Segments { size: TreeSize::Large, numbers: message.id_filter }),
            modified: modified(
                message.modified_range.unwrap_or(false),
                message.last_mod_start,
                message.last_mod_end,
            ),
            ..Fold::new(scope, Finds::Clocks)
        },
    };
    Request::Fold(Box::new(FoldRequest { fold, timeout: None, stream: false }))
}

/// What a message asks that is about a bucket.
pub(super) fn over_bucket(code: u8, message: pb::FoldRangeReq) -> Result<Request, DecodeError> {
    let refused = |text| Err(DecodeError::Refused(text));
    let (choice, number) = (message.choice.unwrap_or_default(), message.number.unwrap_or_default());
    let finds = match code {
        codes::FOLD_TREE_REQ => {
            Finds::Tree { size: tree_size(message.tree_size)?, seed: message.number.filter(|_| choice == 0) }
        }
        codes::FOLD_FIND_KEYS_REQ => match choice {
            SIBLING_COUNT => Finds::Siblings(number),
            OBJECT_SIZE => Finds::Sizes(number),
            _ => return refused("Invalid finder"),
        },
        codes::FOLD_STATS_REQ => Finds::Stats,
        codes::FOLD_CLOCKS_RANGE_REQ => Finds::Clocks,
        codes::FOLD_FIND_TOMBS_REQ => Finds::Tombs,
        _ if choice != COUNT => return refused("only change_method count is served here"),
        codes::FOLD_REAP_REQ => Finds::Count(Purge::Reap),
        _ => Finds::Count(Purge::Erase),
    };
    let keys = match (message.key_range, message.start_key, message.end_key) {
        (false, ..) => None,
        (true, Some(first), Some(last)) => Some(KeySpan { first, last }),
        (true, ..) => return refused("Invalid key range: it needs start_key and end_key"),
    };
    let segments = match message.segment_filter {
        Some(true) => {
            Some(Segments { size: tree_size(message.filter_tree_size)?, numbers: message.id_filter })
        }
        _ => None,
    };
    let modified = modified(message.modified_range, message.last_mod_start, message.last_mod_end);
    let scope = Scope::Bucket(Bucket::typed(message.bucket_type, message.bucket));
    let fold = Fold { scope, keys, segments, modified, finds };
    Ok(Request::Fold(Box::new(FoldRequest { fold, timeout: None, stream: false })))
}

fn tree_size(number: Option<u32>) -> Result<TreeSize, DecodeError> {
    let size = number.and_then(TreeSize::numbered);
    size.ok_or(DecodeError::Refused("Invalid tree size"))
}

fn modified(is_asked: bool, from: Option<u32>, to: Option<u32>) -> Option<Modified> {
    is_asked.then(|| Modified { from: from.unwrap_or(0).into(), to: to.unwrap_or(u32::MAX).into() })
}

/// Appends the answer.
pub(super) fn answer(folded: &Folded, out: &mut Vec<u8>) {
    let finds = &folded.fold.finds;
    match &folded.sum {
        Sum::Hashes(_) => response::fold(out, codes::FOLD_TREE_RESP, &tree(folded)),
        Sum::Clocks(clocks) => {
            let keys_value = clocks.iter().map(key_clock).collect();
            let answer = pb::FoldKeyValueResp { response_type: Bytes::from_static(b"clock"), keys_value };
            response::fold(out, codes::FOLD_KEY_VALUE_RESP, &answer);
        }
        Sum::Keys(keys) => {
            let counts = keys.iter().map(|(key, number)| count(key.clone(), None, *number));
            counted("find_keys", counts, out);
        }
        Sum::Stats(stats) => {
            let word = |word: &'static str| Bytes::from_static(word.as_bytes());
            let totals = [(word("total_count"), stats.count), (word("total_size"), stats.bytes)];
            let totals = totals.into_iter().map(|(tag, number)| count(tag, None, number));
            let orders = [(word("sizes"), &stats.sizes), (word("siblings"), &stats.siblings)];
            let orders = orders.into_iter().flat_map(|(tag, counts)| {
                counts.iter().map(move |(&order, &number)| count(tag.clone(), Some(order), number))
            });
            counted("stats", totals.chain(orders), out);
        }
        Sum::Count(number) => {
            let name = if *finds == Finds::Count(Purge::Reap) { "reap_tombs" } else { "erase_keys" };
            let counts = [count(Bytes::from_static(b"dispatched_count"), None, *number)];
            counted(name, counts.into_iter(), out);
        }
        Sum::Buckets(buckets) => {
            let one = |bucket: &Bucket| pb::FoldBucket {
                bucket_type: named_type(bucket),
                bucket: bucket.name.clone(),
            };
            let answer = pb::FoldListBucketsResp { bucket_list: buckets.iter().map(one).collect() };
            response::fold(out, codes::FOLD_LIST_BUCKETS_RESP, &answer);
        }
    }
}

fn tree(folded: &Folded) -> pb::FoldTreeResp {
    let tree = &folded.tree;
    let (size, level_one, level_two) = match &folded.fold.finds {
        Finds::Branches(asked) => {
            let branches = asked.iter().map(|&number| numbered(number, &tree.of(number)));
            (TreeSize::Large, Vec::new(), branches.collect())
        }
        Finds::Tree { size, .. } => {
            let branches = tree.iter().map(|(number, hashes)| numbered(number, hashes));
            (*size, level_one(folded), branches.collect())
        }
        _ => (TreeSize::Large, level_one(folded), Vec::new()),
    };
    pb::FoldTreeResp { size: size.number(), level_one: Some(level_one.into()), level_two }
}

/// A branch behind its number.
fn numbered(number: u32, hashes: &[u32; BRANCH]) -> Bytes {
    [&number.to_be_bytes()[..], &branch(hashes)].concat().into()
}

fn key_clock(of: &KeyClock) -> pb::KeysValue {
    pb::KeysValue {
        bucket_type: named_type(&of.bucket),
        bucket: of.bucket.name.clone(),
        key: of.key.clone(),
        value: of.clock.clone(),
    }
}

/// The default type goes without saying.
fn named_type(bucket: &Bucket) -> Option<Bytes> {
    Some(bucket.bucket_type.clone()).filter(|name| name != DEFAULT_TYPE)
}

fn count(tag: Bytes, order: Option<u32>, count: u64) -> pb::KeysCount {
    pb::KeysCount { tag, order, count }
}

fn counted(name: &'static str, counts: impl Iterator<Item = pb::KeysCount>, out: &mut Vec<u8>) {
    let response_type = Bytes::from_static(name.as_bytes());
    let answer = pb::FoldKeyCountResp { response_type, keys_count: counts.collect() };
    response::fold(out, codes::FOLD_KEY_COUNT_RESP, &answer);
}
