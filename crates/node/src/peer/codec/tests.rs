use super::error::{NAMES, OTHER};
use super::*;
use crate::peer::{CopyPart, Load};
use base::Monotonic;
use bytes::BufMut;
use kv::aae::{Axis, Grouping, KeyPage, TreeAnswer, TreeAsk, TreeId};
use kv::fold::{Finds, Fold, KeyClock, KeySpan, Modified, Purge, Scope, Segments, Stats, Sum, TreeSize};
use kv::index::{Pick, Query, Row, RowsAsk, RowsPage, Span};
use kv::props::{PropsSums, Reason as PropReason, StampedProps, StampedType, TypeStatus};
use kv::reap::Round;
use kv::replica::{Answer, Ask, NodeId, Reason};
use kv::{
    Bucket, BucketProps, Conditions, DeleteRequest, Found, GetRequest, Listed, Page, PageAsk, Prop,
    PutRequest, Quorum, Request, Response, Stored, Tags, Want,
};
use object::Metadata;
use protocol::peer::frame::{HEADER_LEN, SMALL_VALUE_MAX};
use protocol::peer::{VERSION, next_frame};
use std::sync::Arc;

const ID: AskId = AskId(0xA5);

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn encode(message: &PeerMessage) -> BytesMut {
    let mut out = BytesMut::new();
    if let Some(value) = message.encode(VERSION, &mut out).unwrap() {
        out.put_slice(&value);
    }
    out
}

fn frame(mut bytes: BytesMut) -> Frame {
    let frame = next_frame(&mut bytes, FRAME_BYTES_MAX).unwrap().unwrap();
    assert!(bytes.is_empty());
    frame
}

fn back(message: &PeerMessage) -> PeerMessage {
    PeerMessage::decode(frame(encode(message))).unwrap()
}

fn body(kind: u8, body: &'static [u8]) -> Result<PeerMessage, DecodeError> {
    PeerMessage::decode(Frame { kind, id: ID.0, ttl_ms: 0, body: Bytes::from_static(body) })
}

fn answer(result: Result<Answer, Error>) -> PeerMessage {
    PeerMessage::Answer { id: ID, result, load: Load(2) }
}

fn forwarded(result: Result<Response, Error>) -> PeerMessage {
    PeerMessage::Forwarded { id: ID, result: Box::new(result) }
}

fn merge(value: Bytes) -> PeerMessage {
    let hints = vec![NodeId(1), NodeId(0x0203)];
    let ask = Ask::Merge { head: bytes("head"), value, hints, reason: Reason::Handoff };
    PeerMessage::Ask { id: ID, ttl_ms: 9, life: 0, key: bytes("key"), ask }
}

fn reap(round: Round) -> PeerMessage {
    let ask = Ask::Reap { round, tombstone: bytes("head") };
    PeerMessage::Ask { id: ID, ttl_ms: 9, life: 0, key: bytes("key"), ask }
}

/// The question to one process only.
fn of_life(message: PeerMessage) -> PeerMessage {
    let PeerMessage::Ask { id, ttl_ms, key, ask, .. } = message else { panic!("not a question") };
    PeerMessage::Ask { id, ttl_ms, life: 8, key, ask }
}

fn put_if() -> PeerMessage {
    let conditions = Conditions {
        if_match: Some(Tags::Named(vec![bytes("tag")])),
        if_none_match: Some(Tags::Any),
        if_modified_since: None,
        if_unmodified_since: Some(7),
    };
    let put = PutRequest {
        conditions: Some(Box::new(conditions)),
        ..PutRequest::new(Bucket::untyped(bytes("b")), None, Metadata::default(), bytes("value"))
    };
    PeerMessage::Forward { id: ID, ttl_ms: 9, request: Box::new(Request::put(put)) }
}

fn put(value: Bytes) -> PeerMessage {
    let metadata = Metadata {
        content_type: Some(bytes("t")),
        user_meta: vec![(bytes("m"), None), (bytes("n"), Some(bytes("v")))],
        last_modified: 5,
        ..Metadata::default()
    };
    let put = PutRequest {
        w: Quorum::Exactly(2),
        n_val: Some(3),
        sloppy_quorum: Some(false),
        if_none_match: true,
        ..PutRequest::new(Bucket::untyped(bytes("b")), Some(bytes("k")), metadata, value)
    };
    PeerMessage::Forward { id: ID, ttl_ms: 9, request: Box::new(Request::put(put)) }
}

fn sums(all: u64, sets: Option<u64>) -> Option<PropsSums> {
    Some(PropsSums { all, sets, is_kept: sets.is_some() })
}

fn ping(props: Option<PropsSums>) -> PeerMessage {
    PeerMessage::Ping { id: ID, life: 7, load: Load(2), props, promise: None }
}

fn pong(props: Option<PropsSums>) -> PeerMessage {
    PeerMessage::Pong { id: ID, life: 7, load: Load(2), props, promise: None }
}

/// A block that asks for a promise, and has heard the receiver.
fn block() -> Block {
    let (stamp, echo) = (Monotonic(8), Some(Monotonic(9)));
    Block { stamp, echo, promise: None, asks: true, is_released: false }
}

/// A message for every kind, its kind, its time to live and its body.
fn golden() -> Vec<(PeerMessage, u8, u32, &'static [u8])> {
    let delete =
        DeleteRequest { rw: Quorum::One, ..DeleteRequest::new(Bucket::untyped(bytes("b")), bytes("k")) };
    let delete = Box::new(Request::Delete(delete));
    let stored = Stored { head: bytes("head"), value: Some(bytes("value")) };
    let found = Found { head: bytes("head"), value: Some(bytes("value")), newest_only: true };
    let done = Response::Put { key: Some(bytes("k")), object: Some(found) };
    let props = Arc::new(BucketProps::default());
    let bucket = Bucket::untyped(bytes("b"));
    vec![
        (ping(None), 1, 0, b"\x07\0\0\0\0\0\0\0\x02\0\0\0"),
        (pong(None), 2, 0, b"\x07\0\0\0\0\0\0\0\x02\0\0\0"),
        (ping(sums(9, None)), 18, 0, b"\x07\0\0\0\0\0\0\0\x02\0\0\0\x09\0\0\0\0\0\0\0"),
        (pong(sums(9, None)), 19, 0, b"\x07\0\0\0\0\0\0\0\x02\0\0\0\x09\0\0\0\0\0\0\0"),
        (
            ping(sums(9, Some(3))),
            25,
            0,
            b"\x07\0\0\0\0\0\0\0\x02\0\0\0\x09\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x01",
        ),
        (
            pong(sums(9, Some(3))),
            26,
            0,
            b"\x07\0\0\0\0\0\0\0\x02\0\0\0\x09\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x01",
        ),
        (
            PeerMessage::AskProps { id: ID, leaves: vec![1, 2] },
            17,
            0,
            b"\x02\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0",
        ),
        (
            PeerMessage::Ask {
                id: ID,
                ttl_ms: 9,
                life: 0,
                key: bytes("key"),
                ask: Ask::Read { want: Want::Value },
            },
            3,
            9,
            b"\x03key\x01\x02",
        ),
        (merge(bytes("value")), 3, 9, b"\x03key\x02\x04\x02\x01\0\x03\x02\x04headvalue"),
        (answer(Ok(Answer::Read(Some(stored)))), 4, 0, b"\x02\0\0\0\0\x01\x01\x04head\x01value"),
        (answer(Ok(Answer::Read(None))), 4, 0, b"\x02\0\0\0\0\x01\0"),
        (answer(Ok(Answer::Merged)), 4, 0, b"\x02\0\0\0\0\x02"),
        (
            of_life(merge(bytes("value"))),
            12,
            9,
            b"\x08\0\0\0\0\0\0\0\x03key\x02\x04\x02\x01\0\x03\x02\x04headvalue",
        ),
        (of_life(reap(Round::Confirm)), 12, 9, b"\x08\0\0\0\0\0\0\0\x03key\x03\x02\x04head"),
        (
            answer(Ok(Answer::Reaping { round: Round::Remove, agrees: true })),
            4,
            0,
            b"\x02\0\0\0\0\x03\x03\x01",
        ),
        (answer(Err(Error::NValViolation(3))), 4, 0, b"\x02\0\0\0\x01\x01\x03\0\0\0"),
        (
            put(bytes("value")),
            5,
            9,
            b"\x01\x07default\x01b\x01\x01k\0\0\
              \x01\x01t\0\0\0\x02\x01m\0\x01n\x01\x01v\0\x05\0\0\0\0\0\0\0\0\
              \x05\x02\0\0\0\x01\x01\x01\x01\x03\0\0\0\x01\0\0\x01\x01\0\0value",
        ),
        (
            put_if(),
            5,
            9,
            b"\x03\x01\x02\x01\x03tag\x01\x01\0\x01\x07\0\0\0\0\0\0\0\
              \x07default\x01b\0\0\0\
              \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
              \x01\x01\x01\x01\0\0\0\x01\0\0\0value",
        ),
        (
            PeerMessage::Forward { id: ID, ttl_ms: 9, request: delete },
            5,
            9,
            b"\x02\x07default\x01b\x01k\0\x02\x01\x01\x01\x01\x01\0\0\0",
        ),
        (forwarded(Ok(done)), 6, 0, b"\x01\x01\x01k\x01\x04head\x01\x01value"),
        (forwarded(Ok(Response::Deleted)), 6, 0, b"\x02"),
        (forwarded(Err(Error::Timeout)), 6, 0, b"\x03\x12"),
        (
            PeerMessage::Props {
                id: ID,
                change: PropsChange::Bucket(bucket.clone(), StampedProps { stamp: 6, props: Some(props.clone()) }),
            },
            7,
            0,
            b"\x07default\x01b\x06\0\0\0\0\0\0\0\x01\x06\x01\0\xA5\xEF\xC3\xE2",
        ),
        (PeerMessage::PropsInForce { id: ID }, 8, 0, b""),
        (
            PeerMessage::Props {
                id: ID,
                change: PropsChange::Type(bytes("t"), StampedType { stamp: 7, active: true, props }),
            },
            9,
            0,
            b"\x01t\x07\0\0\0\0\0\0\0\x01\x06\x01\0\xA5\xEF\xC3\xE2",
        ),
        (
            PeerMessage::AskPage {
                id: ID,
                ttl_ms: 9,
                ask: PageAsk {
                    listed: Listed::Buckets(bytes("t")),
                    partitions: vec![3, 0x0102],
                    start: Some(bytes("s")),
                },
            },
            10,
            9,
            b"\x02\x01t\x02\x03\0\x02\x01\x01\x01s",
        ),
        (
            PeerMessage::Page {
                id: ID,
                page: Ok(Page { names: vec![bytes("a"), bytes("bc")], rest: vec![5], ..Page::default() }),
            },
            11,
            0,
            b"\0\x02\x01a\x02bc\x01\x05\0\0",
        ),
        (
            PeerMessage::AskPage {
                id: ID,
                ttl_ms: 9,
                ask: PageAsk { listed: Listed::Fold(Arc::new(fold())), partitions: vec![3], start: None },
            },
            10,
            9,
            b"\x03\x01\x01t\x01b\x01\x01a\x01z\x01\x04\0\0\0\x01\x07\0\0\0\x01\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\
              \x03\x02\0\0\0\x01\x09\0\0\0\x01\x03\0\0",
        ),
        (
            PeerMessage::Page {
                id: ID,
                page: Ok(Page { sum: Some(Sum::Hashes(vec![(5, 6)])), rest: vec![5], ..Page::default() }),
            },
            24,
            0,
            b"\x01\x01\x05\0\0\0\x06\0\0\0\0\x01\x05\0\0",
        ),
        (PeerMessage::Page { id: ID, page: Err(Error::Overload) }, 11, 0, b"\x01\x13"),
        (
            PeerMessage::AskRows {
                id: ID,
                ttl_ms: 9,
                ask: Box::new(RowsAsk {
                    query: Query {
                        bucket,
                        span: Span::Terms { field: bytes("f_bin"), first: bytes("a"), last: bytes("b") },
                        pick: Pick::Matching(bytes("^a")),
                    },
                    prefixes: [0, 9].into_iter().collect(),
                    after: Some(Row { term: bytes("a"), key: bytes("k") }),
                    rows_max: 7,
                }),
            },
            20,
            9,
            b"\x07default\x01b\x01\x05f_bin\x01a\x01b\x02\x02^a\x01\x01\x02\0\0\0\0\0\0\x01\x01a\x01k\x07\0\0\0",
        ),
        (
            PeerMessage::Rows {
                id: ID,
                page: Ok(RowsPage {
                    rows: [Row { term: bytes("a"), key: bytes("k") }].into_iter().collect(),
                    next: None,
                    others: vec![[64].into_iter().collect()],
                }),
            },
            21,
            0,
            b"\0\x01\x01a\x01k\0\x01\x02\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0",
        ),
        (
            PeerMessage::AskCopy {
                id: ID,
                target: 0x0506,
                partitions: vec![3, 0x0102],
                start: Some(bytes("s")),
            },
            14,
            0,
            b"\x06\x05\0\0\0\0\0\0\x02\x03\0\x02\x01\x01\x01s",
        ),
        (
            PeerMessage::CopyPart {
                id: ID,
                part: Ok(CopyPart { rest: vec![5], objects: 2, bytes: 0x0304, ..CopyPart::default() }),
            },
            15,
            0,
            b"\0\x01\x05\0\0\x02\0\0\0\0\0\0\0\x04\x03\0\0\0\0\0\0",
        ),
        (
            PeerMessage::CopyPart { id: ID, part: Ok(lossy()) },
            16,
            0,
            b"\x01\x03\0\x01\x05\0\0\x02\0\0\0\0\0\0\0\x04\x03\0\0\0\0\0\0",
        ),
        (PeerMessage::CopyPart { id: ID, part: Err(Error::Unreachable) }, 15, 0, b"\x01\x04"),
        (ask_tree(TreeAsk::Roots { roots: vec![(TREE, 9)] }), 22, 0, b"\x10\0\0\0\x01\x01\x05\0\x03\0\0\0\x09\0\0\0"),
        (
            ask_tree(TreeAsk::Groups { tree: TREE, by: ROWS, groups: vec![(1, 2)] }),
            22,
            0,
            b"\x10\0\0\0\x02\x05\0\x03\0\0\0\x0A\0\0\0\x01\x01\0\0\0\x02\0\0\0",
        ),
        (
            ask_tree(TreeAsk::Groups { tree: TREE, by: COLUMNS, groups: Vec::new() }),
            22,
            0,
            b"\x10\0\0\0\x02\x05\0\x03\0\0\0\x0A\0\0\x80\0",
        ),
        (
            ask_tree(TreeAsk::Keys { tree: TREE, bits: 10, segments: vec![7], from: Some(bytes("k")) }),
            22,
            0,
            b"\x10\0\0\0\x03\x05\0\x03\0\0\0\x0A\0\0\0\x01\x07\0\0\0\x01\x01k",
        ),
        (
            tree(TreeAnswer::Roots { differ: vec![TREE], others: Vec::new() }),
            23,
            0,
            b"\0\x01\x01\x05\0\x03\0\0\0\0",
        ),
        (tree(TreeAnswer::Groups { bits: 10, differ: vec![7] }), 23, 0, b"\0\x02\x0A\0\0\0\x01\x07\0\0\0"),
        (
            tree(TreeAnswer::Keys(KeyPage { keys: vec![(bytes("k"), 9)], next: None })),
            23,
            0,
            b"\0\x03\x01\x01k\x09\0\0\0\0",
        ),
        (PeerMessage::Tree { id: ID, answer: Err(Error::Unreachable) }, 23, 0, b"\x01\x04"),
    ]
}

const TREE: TreeId = TreeId { first: 5, n_val: 3, day: 0 };
const ROWS: Grouping = Grouping { axis: Axis::Rows, bits: 10 };
const COLUMNS: Grouping = Grouping { axis: Axis::Columns, bits: 10 };

fn ask_tree(ask: TreeAsk) -> PeerMessage {
    PeerMessage::AskTree { id: ID, partitions: 16, ask }
}

fn tree(answer: TreeAnswer) -> PeerMessage {
    PeerMessage::Tree { id: ID, answer: Ok(answer) }
}

fn fold() -> Fold {
    Fold {
        scope: Scope::Bucket(Bucket { bucket_type: bytes("t"), name: bytes("b") }),
        keys: Some(KeySpan { first: bytes("a"), last: bytes("z") }),
        segments: Some(Segments { size: TreeSize::Large, numbers: vec![7] }),
        modified: Some(Modified { from: 1, to: 2 }),
        finds: Finds::Tree { size: TreeSize::Small, seed: Some(9) },
    }
}

fn ask_fold(fold: Fold) -> PeerMessage {
    let ask = PageAsk { listed: Listed::Fold(Arc::new(fold)), partitions: vec![3], start: None };
    PeerMessage::AskPage { id: ID, ttl_ms: 9, ask }
}

#[test]
fn folds_survive_and_go_to_newer_programs_only() {
    let bucket = || Bucket { bucket_type: bytes("t"), name: bytes("b") };
    let over = |finds| Fold { finds, ..fold() };
    let of_all = |finds| Fold::new(Scope::NVal(3), finds);
    for fold in [
        of_all(Finds::Root),
        of_all(Finds::Branches(vec![1, 4_095])),
        of_all(Finds::Buckets),
        over(Finds::Clocks),
        over(Finds::Tombs),
        over(Finds::Objects),
        over(Finds::Siblings(1)),
        over(Finds::Sizes(2)),
        over(Finds::Stats),
        over(Finds::Count(Purge::Reap)),
        over(Finds::Count(Purge::Erase)),
    ] {
        assert_eq!(back(&ask_fold(fold.clone())), ask_fold(fold.clone()));
        assert_eq!(ask_fold(fold).encode(6, &mut BytesMut::new()), Err(EncodeError::TooNew));
    }
    // Another node cannot have it done what no client could.
    let mut frame = frame(encode(&ask_fold(of_all(Finds::Root))));
    frame.body = Bytes::from_static(b"\x03\x02\0\0\0\0\0\0\0\x01\x01\x03\0\0");
    assert!(PeerMessage::decode(frame).is_err());

    let mut stats = Stats::default();
    stats.count(1_000, 2);
    let clock = KeyClock { bucket: bucket(), key: bytes("k"), clock: bytes("c") };
    for sum in [
        Sum::Hashes(vec![(1, 2), (3, 4)]),
        Sum::Clocks(vec![clock]),
        Sum::Keys(vec![(bytes("k"), 9)]),
        Sum::Stats(stats),
        Sum::Count(7),
        Sum::Buckets([bucket()].into()),
    ] {
        let page = Page { sum: Some(sum), rest: vec![5], next: Some(bytes("n")), ..Page::default() };
        let message = PeerMessage::Page { id: ID, page: Ok(page) };
        assert_eq!(back(&message), message);
    }
}

/// A part whose sender has lost something of a partition.
fn lossy() -> CopyPart {
    CopyPart { rest: vec![5], next: None, objects: 2, bytes: 0x0304, lost: vec![3] }
}

#[test]
fn golden_bodies() {
    for (message, kind, ttl_ms, body) in golden() {
        let frame = frame(encode(&message));
        assert_eq!((frame.kind, frame.id, frame.ttl_ms), (kind, ID.0, ttl_ms), "{message:?}");
        assert_eq!(frame.body, body, "{message:?}: {}", frame.body.escape_ascii());
        assert_eq!(PeerMessage::decode(frame), Ok(message));
    }
}

#[test]
fn an_older_program_is_written_what_it_knows() {
    let mut out = BytesMut::new();
    let value = of_life(merge(bytes("value"))).encode(1, &mut out).unwrap();
    assert_eq!(value, None);
    assert_eq!(PeerMessage::decode(frame(out)), Ok(merge(bytes("value"))));
    let mut out = BytesMut::new();
    assert_eq!(of_life(reap(Round::Promise)).encode(1, &mut out), Err(EncodeError::TooNew));
    let ask = PeerMessage::AskCopy { id: ID, target: 1, partitions: vec![3], start: None };
    assert_eq!(ask.encode(2, &mut out), Err(EncodeError::TooNew));
    assert!(out.is_empty());
    // What is not all is not to be taken for all.
    PeerMessage::CopyPart { id: ID, part: Ok(lossy()) }.encode(3, &mut out).unwrap();
    let told = PeerMessage::decode(frame(out)).unwrap();
    assert!(matches!(told, PeerMessage::CopyPart { part: Err(Error::Damaged(_)), .. }), "{told:?}");
}

#[test]
fn words_of_membership_survive_and_go_to_newer_programs_only() {
    let word = PeerMessage::Membership { bytes: bytes("word") };
    assert_eq!(back(&word), word);
    assert_eq!(body(13, b"\x04word"), Ok(word.clone()));
    assert_eq!(word.encode(2, &mut BytesMut::new()), Err(EncodeError::TooNew));
}

#[test]
fn an_older_program_is_told_of_properties_as_it_knows_it() {
    let encoded = |message: &PeerMessage, version| {
        let mut out = BytesMut::new();
        message.encode(version, &mut out).map(|_| PeerMessage::decode(frame(out)).unwrap())
    };
    assert_eq!(encoded(&ping(sums(9, None)), 4), Ok(ping(None)));
    assert_eq!(encoded(&pong(sums(9, None)), 4), Ok(pong(None)));
    assert_eq!(encoded(&pong(sums(9, None)), 5), Ok(pong(sums(9, None))));
    assert_eq!(encoded(&ping(sums(9, Some(3))), 7), Ok(ping(sums(9, None))));
    let ask = PeerMessage::AskProps { id: ID, leaves: Vec::new() };
    assert_eq!(encoded(&ask, 4), Err(EncodeError::TooNew));
    let ask = ask_tree(TreeAsk::Roots { roots: Vec::new() });
    assert_eq!(encoded(&ask, 5), Err(EncodeError::TooNew));
}

#[test]
fn a_golden_frame() {
    assert_eq!(
        encode(&ping(None))[..],
        *b"\x1E\0\0\0\xC7\xF1\xF1\xB8\x01\0\xA5\0\0\0\0\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x02\0\0\0"
    );
}

#[test]
fn errors_survive() {
    use kv::error::Name;
    use kv::need::Need;
    use object::index::{IndexError, IndexErrors};
    let needs = [Need::R, Need::Pr, Need::W, Need::Pw, Need::Dw, Need::NodeConfirms];
    let names = [Name::Bucket, Name::Key, Name::Type];
    let index_errors = vec![
        IndexError::FieldParsingFailed { field: bytes("a_int"), value: bytes("x") },
        IndexError::UnknownFieldType { field: bytes("b") },
    ];
    let mut errors = vec![
        Error::NValViolation(3),
        Error::InsufficientVnodes { have: 1, need: 2 },
        Error::Unreachable,
        Error::MatchFound,
        Error::Modified,
        Error::NotFoundCondition,
        Error::NoType(bytes("type")),
        Error::BadContext,
        Error::BadIndex(IndexErrors(index_errors)),
        Error::TooManySiblings { got: 101, limit: 100 },
        Error::TooManyBuckets { limit: 1_000 },
        Error::DefaultTypeFixed,
        Error::ListTooLong { limit: 100_000 },
        Error::Timeout,
        Error::Overload,
        Error::Damaged("segment 3, ä".into()),
        Error::Fenced("fenced".into()),
        Error::Exhausted("full".into()),
        Error::Store(String::new()),
        Error::NotCovered,
        Error::TypeStatus(TypeStatus::Ready),
        Error::TooManyTypes { limit: 4 },
        Error::BadQuery("no such field".into()),
        Error::AnswerTooLong { limit: 4 },
        Error::Unsupported("no".into()),
        Error::TooManyResets { limit: 5 },
        Error::Precommit("{hook}".into()),
        Error::Failed,
        Error::Unavailable,
        Error::NotInConsistentTypes("index terms".into()),
    ];
    errors.extend(needs.map(|need| Error::Unsatisfied { need, want: 3, got: 1 }));
    errors.extend(needs.map(|need| Error::NoRoom { need, want: 3, got: 1, full: 2 }));
    errors.extend(names.map(Error::EmptyName));
    errors.extend(NAMES.map(|what| Error::TooLarge { what, len: usize::MAX, limit: 0 }));
    errors.extend(Prop::NAMES.iter().map(|name| {
        let reasons = [PropReason::Word("not_integer"), PropReason::Text("no".into())];
        Error::InvalidProps(reasons.map(|reason| (*name, reason)).to_vec())
    }));
    for error in errors {
        assert_eq!(back(&answer(Err(error.clone()))), answer(Err(error.clone())));
        assert_eq!(back(&forwarded(Err(error.clone()))), forwarded(Err(error)));
    }
}

#[test]
fn limits_name_what_is_known_to_both() {
    let limits = kv::Limits { value_bytes_max: 0, ..kv::Limits::default() };
    let error = limits.check_sibling(&Metadata::default(), b"v").unwrap_err();
    assert_eq!(back(&answer(Err(error.clone()))), answer(Err(error)));
    let new = Error::TooLarge { what: "name of later", len: 2, limit: 1 };
    assert_eq!(back(&answer(Err(new))), answer(Err(Error::TooLarge { what: OTHER, len: 2, limit: 1 })));
}

#[test]
fn values_are_not_copied() {
    let value = Bytes::from(vec![7; SMALL_VALUE_MAX + 1]);
    let stored = Stored { head: bytes("head"), value: Some(value.clone()) };
    let found = Found { head: bytes("head"), value: Some(value.clone()), newest_only: false };
    for message in [
        merge(value.clone()),
        answer(Ok(Answer::Read(Some(stored)))),
        put(value.clone()),
        forwarded(Ok(Response::Put { key: None, object: Some(found) })),
    ] {
        let mut out = BytesMut::new();
        let sent = message.encode(VERSION, &mut out).unwrap().unwrap();
        assert_eq!(sent.as_ptr(), value.as_ptr());
        assert!(out.len() < HEADER_LEN + 100);
        out.put_slice(&sent);
        let read = frame(out);
        let range = read.body.as_ptr_range();
        let decoded = PeerMessage::decode(read).unwrap();
        assert_eq!(decoded, message);
        if let PeerMessage::Ask { key, ask: Ask::Merge { head, value, .. }, .. } = decoded {
            assert!([key, head, value].iter().all(|part| range.contains(&part.as_ptr())));
        }
    }
}

#[test]
fn what_is_too_large_is_told_and_not_sent() {
    let large = Bytes::from(vec![0; FRAME_BYTES_MAX + 1]);
    let mut out = BytesMut::from(&b"before"[..]);
    let error = merge(large.clone()).encode(VERSION, &mut out).unwrap_err();
    assert!(matches!(error, EncodeError::TooLarge(_)), "{error}");
    assert_eq!(out[..], *b"before");
    let stored = Stored { head: bytes("head"), value: Some(large) };
    let PeerMessage::Answer { id, result: Err(error), load } = back(&answer(Ok(Answer::Read(Some(stored)))))
    else {
        panic!("not an error")
    };
    assert_eq!((id, load), (ID, Load(2)));
    assert!(matches!(error, Error::TooLarge { what: "object", limit: FRAME_BYTES_MAX, .. }), "{error}");
}

#[test]
fn what_nodes_do_not_say_is_not_sent() {
    let listing = Box::new(Request::GetTypeProps(bytes("type")));
    let mut out = BytesMut::new();
    let forward = PeerMessage::Forward { id: ID, ttl_ms: 9, request: listing };
    assert_eq!(forward.encode(VERSION, &mut out), Err(EncodeError::Unspoken));
    assert!(out.is_empty());
    let keys = Response::Keys { keys: Vec::new(), done: true };
    let error = Error::Store(EncodeError::Unspoken.to_string());
    assert_eq!(back(&forwarded(Ok(keys))), forwarded(Err(error)));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (kind, bytes, what) in [
        (0, &b""[..], "there is no such kind"),
        (13, b"\x05word", "it ends early"),
        (17, b"", "truncated varint"),
        (99, b"", "there is no such kind"),
        (1, b"\x07\0\0\0\0\0\0\0\x02\0\0", "it ends early"),
        (1, b"\x07\0\0\0\0\0\0\0\x02\0\0\0\0", "bytes after its end"),
        (3, b"\x03key", "it ends early"),
        (3, b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01key", "it ends early"),
        (3, b"\x03key\x04", "no such question"),
        (3, b"\x03key\x03\x04\x01t", "no such round"),
        (12, b"\x08\0\0\0\0\0\0", "it ends early"),
        (3, b"\x03key\x01\x02value", "bytes after its end"),
        (3, b"\x03key\x02\x01\x81\x80\x04", "a list is too long"),
        (21, b"\0\x81\x80\x04", "a list is too long"),
        (4, b"\0\0\0\0\x02", "a flag is neither 0 nor 1"),
        (4, b"\0\0\0\0\0\x01\x01\x04head\0value", "bytes after its end"),
        (4, b"\0\0\0\0\x01\x15\x01\xFF", "a text is not UTF-8"),
        (5, b"\x09", "no such request"),
        (7, b"\x01t\x01b\x06\0\0\0\0\0\0\0\x01\x06\x01\0\xA5\xEF\xC3\xE3", "unreadable bucket properties"),
    ] {
        assert_eq!(body(kind, bytes), Err(DecodeError { kind, what }), "{}", bytes.escape_ascii());
    }
    for (message, kind, ttl_ms, bytes) in golden() {
        for len in 0..bytes.len() {
            let cut = PeerMessage::decode(Frame {
                kind,
                id: ID.0,
                ttl_ms,
                body: Bytes::from_static(&bytes[..len]),
            });
            assert_ne!(cut, Ok(message.clone()));
        }
    }
}

#[test]
fn an_older_program_is_not_told_of_full_disks() {
    let need = kv::need::Need::W;
    let no_room = forwarded(Err(Error::NoRoom { need, want: 2, got: 0, full: 3 }));
    assert_eq!(back(&no_room), no_room);
    let mut out = BytesMut::new();
    no_room.encode(8, &mut out).unwrap();
    let unmet = Error::Unsatisfied { need, want: 2, got: 0 };
    assert_eq!(PeerMessage::decode(frame(out)).unwrap(), forwarded(Err(unmet)));
}

#[test]
fn an_older_program_is_told_of_a_backend_in_words_that_it_knows() {
    let rows = |error| PeerMessage::Rows { id: ID, page: Err(error) };
    let unsupported = rows(Error::Unsupported("no".into()));
    assert_eq!(back(&unsupported), unsupported);
    let mut out = BytesMut::new();
    unsupported.encode(6, &mut out).unwrap();
    assert_eq!(PeerMessage::decode(frame(out)).unwrap(), rows(Error::Store("no".into())));
}

#[test]
fn an_older_program_is_not_told_of_errors_that_it_does_not_know() {
    let too_new = Error::Store(EncodeError::TooNew.to_string());
    for error in [Error::Failed, Error::Unavailable, Error::NotInConsistentTypes("index terms".into())] {
        for (message, instead) in [
            (answer(Err(error.clone())), answer(Err(too_new.clone()))),
            (forwarded(Err(error.clone())), forwarded(Err(too_new.clone()))),
        ] {
            let mut out = BytesMut::new();
            message.encode(8, &mut out).unwrap();
            assert_eq!(PeerMessage::decode(frame(out)).unwrap(), instead);
        }
    }
}

/// Messages of consistent groups, and the kind and body of each.
fn of_groups() -> Vec<(PeerMessage, u8, &'static [u8])> {
    let (to, envelope) = (ShardId(5), bytes("envelope"));
    let answer = |answer| PeerMessage::LeaderAnswer { id: ID, answer };
    let of_store = |lane, block, birth| {
        let envelope = Bytes::from_static(b"envelope");
        PeerMessage::Groups { to, lane, block, birth, envelope }
    };
    let groups = |lane, block| of_store(lane, block, None);
    let birth = Birth::of(0x0605_0403_0201);
    let done = |result| answer(LeaderAnswer::Done(Box::new(result)));
    let ask = |number, request| {
        let request = Box::new(request);
        PeerMessage::AskLeader { id: ID, ttl_ms: 9, life: 1, number, request }
    };
    let bucket = Bucket { bucket_type: bytes("t"), name: bytes("b") };
    let get = GetRequest { head: true, ..GetRequest::new(bucket.clone(), bytes("k")) };
    let delete = DeleteRequest::new(bucket, bytes("k"));
    let origin = Endpoint { life: 2, shard: 3 };
    let found = Found { head: bytes("head"), value: Some(bytes("value")), newest_only: false };
    vec![
        (groups(Lane::Liveness, None), 27, b"envelope"),
        (groups(Lane::Requests, None), 28, b"envelope"),
        (groups(Lane::Liveness, Some(block())), 32, b"\x01\x05\x08\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0envelope"),
        (groups(Lane::Requests, Some(block())), 33, b"\x01\x05\x08\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0envelope"),
        (of_store(Lane::Liveness, None, birth), 36, b"\x01\x02\x03\x04\x05\x06\0\0\0envelope"),
        (
            of_store(Lane::Requests, Some(block()), birth),
            37,
            b"\x01\x02\x03\x04\x05\x06\0\0\x01\x01\x05\x08\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0envelope",
        ),
        (PeerMessage::CatchUp { to, message: envelope }, 29, b"envelope"),
        (ask(None, Request::Get(get)), 30, b"\x01\0\0\0\0\0\0\0\0\x04\x01t\x01b\x01k\0\x01\0"),
        (
            ask(Some((origin, 4)), Request::Delete(delete)),
            30,
            b"\x01\0\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x03\0\x04\0\0\0\0\0\0\0\
              \x02\x01t\x01b\x01k\0\x01\x01\x01\x01\x01\x01\0\0\0",
        ),
        (answer(LeaderAnswer::NotLeader { leader: Some(NodeId(0x0201)) }), 31, b"\x07\x01\x01\x02"),
        (answer(LeaderAnswer::NotLeader { leader: None }), 31, b"\x07\0"),
        (done(Ok(Response::Found(found))), 31, b"\x04\x04head\0\x01value"),
        (done(Ok(Response::NotFound { deleted_context: None })), 31, b"\x05\0"),
        (done(Ok(Response::Unchanged)), 31, b"\x06"),
        (done(Ok(Response::Deleted)), 31, b"\x02"),
        (done(Err(Error::Unreachable)), 31, b"\x03\x04"),
    ]
}

#[test]
fn messages_of_groups_survive_and_go_to_newer_programs_only() {
    for (message, kind, body) in of_groups() {
        let frame = frame(encode(&message));
        assert_eq!((frame.kind, &frame.body[..]), (kind, body), "{message:?}");
        assert_eq!(PeerMessage::decode(frame).unwrap(), message);
        assert_eq!(message.encode(8, &mut BytesMut::new()), Err(EncodeError::TooNew));
    }
    let frame = Frame { kind: 28, id: 1 << 16, ttl_ms: 0, body: Bytes::new() };
    assert!(PeerMessage::decode(frame).is_err(), "there is no such shard");
    let frame = Frame { kind: 36, id: 1, ttl_ms: 0, body: Bytes::from_static(&[0; 9]) };
    assert!(PeerMessage::decode(frame).is_err(), "no birth is zero");
}

#[test]
fn promises_are_told_to_newer_programs_only() {
    let promise = || Some(PromiseBlock { life: 6, block: block() });
    let (life, load) = (7, Load(2));
    for props in [None, sums(9, Some(3))] {
        let ping = |promise| PeerMessage::Ping { id: ID, life, load, props, promise };
        let pong = |promise| PeerMessage::Pong { id: ID, life, load, props, promise };
        for (with, without) in [(ping(promise()), ping(None)), (pong(promise()), pong(None))] {
            let body = frame(encode(&with)).body;
            let promised = b"\x07\0\0\0\0\0\0\0\x02\0\0\0\x06\0\0\0\0\0\0\0\x01\x05\x08\0\0\0\0\0\0\0\x09";
            assert!(body.starts_with(promised), "{body:?}");
            assert_eq!(PeerMessage::decode(frame(encode(&with))), Ok(with.clone()));
            assert_eq!(decoded(&with, 10), without);
        }
    }
    let (to, lane, envelope) = (ShardId(5), Lane::Liveness, bytes("envelope"));
    let groups = |block, birth| PeerMessage::Groups { to, lane, block, birth, envelope: envelope.clone() };
    let message = groups(Some(block()), Birth::of(7));
    assert_eq!(decoded(&message, 12), message);
    assert_eq!(decoded(&message, 11), groups(Some(block()), None));
    assert_eq!(decoded(&message, 10), groups(None, None));
}

/// A message as a program of a version reads it.
fn decoded(message: &PeerMessage, version: u16) -> PeerMessage {
    let mut out = BytesMut::new();
    let value = message.encode(version, &mut out).unwrap();
    out.extend_from_slice(&value.unwrap_or_default());
    PeerMessage::decode(frame(out)).unwrap()
}

#[test]
fn an_older_program_is_told_of_no_consistent_type() {
    for is_consistent in [false, true] {
        let props = Arc::new(BucketProps { consistent: is_consistent, ..BucketProps::of_new_type() });
        let change = PropsChange::Type(bytes("t"), StampedType { stamp: 7, active: false, props });
        let message = PeerMessage::Props { id: ID, change };
        assert_eq!(back(&message), message);
        let told = message.encode(8, &mut BytesMut::new());
        assert_eq!(told, if is_consistent { Err(EncodeError::TooNew) } else { Ok(None) });
    }
}
