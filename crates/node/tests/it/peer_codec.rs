//! Random messages between nodes come back as they were; random bytes never make the decoder panic.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use bytes::{BufMut, Bytes, BytesMut};
use kv::aae::{Axis, Grouping, KeyPage, TreeAnswer, TreeAsk, TreeId};
use kv::props::{PropsSums, StampedProps, StampedType};
use kv::reap::Round;
use kv::replica::{Answer, Ask, NodeId, Reason};
use kv::{
    Bucket, BucketProps, Conditions, DeleteRequest, Error, Found, Listed, Page, PageAsk, Prop, PropsChange,
    PutRequest, Quorum, Request, Response, Return, Stored, Tags, Want,
};
use node::peer::PromiseBlock;
use node::{AskId, CopyPart, Load, PeerMessage};
use object::index::IndexEntry;
use object::{Link, Metadata};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRng, TestRunner};
use protocol::peer::{FRAME_BYTES_MAX, Frame, VERSION, next_frame};
use std::sync::Arc;
use strong::promise::Block;

fn bytes() -> impl Strategy<Value = Bytes> {
    // Now and then long enough for a length of two bytes.
    prop_oneof![9 => vec(any::<u8>(), 0..12), 1 => vec(any::<u8>(), 120..140)].prop_map(Bytes::from)
}

fn value() -> impl Strategy<Value = Bytes> {
    // Now and then one that is not copied.
    prop_oneof![9 => bytes(), 1 => (4_090usize..4_110).prop_map(|len| Bytes::from(vec![1; len]))]
}

fn bucket() -> impl Strategy<Value = Bucket> {
    (bytes(), bytes()).prop_map(|(bucket_type, name)| Bucket { bucket_type, name })
}

fn quorum() -> impl Strategy<Value = Quorum> {
    prop_oneof![
        Just(Quorum::Default),
        Just(Quorum::One),
        Just(Quorum::Quorum),
        Just(Quorum::All),
        any::<u32>().prop_map(Quorum::Exactly),
    ]
}

fn metadata() -> impl Strategy<Value = Metadata> {
    let link = (bytes(), bytes(), bytes()).prop_map(|(bucket, key, tag)| Link { bucket, key, tag });
    let index = (bytes(), bytes()).prop_map(|(field, value)| IndexEntry { field, value });
    (
        (of(bytes()), of(bytes()), of(bytes())),
        vec(link, 0..3),
        vec((bytes(), of(bytes())), 0..3),
        vec(index, 0..3),
        (any::<u64>(), any::<bool>()),
    )
        .prop_map(|(texts, links, user_meta, indexes, (last_modified, deleted))| Metadata {
            content_type: texts.0,
            charset: texts.1,
            content_encoding: texts.2,
            links,
            user_meta,
            indexes,
            last_modified,
            deleted,
            expires_ms: None,
        })
}

fn conditions() -> impl Strategy<Value = Conditions> {
    let tags = || {
        let named = prop::collection::vec(bytes(), 0..3).prop_map(Tags::Named);
        of(prop_oneof![Just(Tags::Any), named])
    };
    (tags(), tags(), of(any::<u64>()), of(any::<u64>())).prop_map(
        |(if_match, if_none_match, if_modified_since, if_unmodified_since)| Conditions {
            if_match,
            if_none_match,
            if_modified_since,
            if_unmodified_since,
        },
    )
}

fn put() -> impl Strategy<Value = Request> {
    (
        (bucket(), of(bytes()), of(bytes()), metadata(), value()),
        (quorum(), quorum(), quorum(), quorum()),
        (of(any::<u32>()), of(any::<bool>()), of(any::<u32>())),
        prop_oneof![Just(Return::Nothing), Just(Return::Head), Just(Return::Body)],
        (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        of(conditions().prop_map(Box::new)),
    )
        .prop_map(|(object, quorums, options, returned, flags, conditions)| {
            let (bucket, key, context, metadata, value) = object;
            Request::put(PutRequest {
                bucket,
                key,
                key_invented: flags.0,
                context,
                metadata,
                value,
                w: quorums.0,
                dw: quorums.1,
                pw: quorums.2,
                node_confirms: quorums.3,
                n_val: options.0,
                sloppy_quorum: options.1,
                timeout: options.2,
                returned,
                if_none_match: flags.1,
                if_not_modified: flags.2,
                asis: flags.3,
                conditions,
            })
        })
}

fn delete() -> impl Strategy<Value = Request> {
    (
        (bucket(), bytes(), of(bytes())),
        (quorum(), quorum(), quorum(), quorum(), quorum(), quorum()),
        (of(any::<u32>()), of(any::<bool>()), of(any::<u32>())),
    )
        .prop_map(|((bucket, key, context), quorums, (n_val, sloppy_quorum, timeout))| {
            Request::Delete(DeleteRequest {
                bucket,
                key,
                context,
                rw: quorums.0,
                r: quorums.1,
                w: quorums.2,
                pr: quorums.3,
                pw: quorums.4,
                dw: quorums.5,
                n_val,
                sloppy_quorum,
                timeout,
            })
        })
}

fn error() -> impl Strategy<Value = Error> {
    prop_oneof![
        any::<u32>().prop_map(Error::NValViolation),
        (any::<u32>(), any::<u32>()).prop_map(|(have, need)| Error::InsufficientVnodes { have, need }),
        bytes().prop_map(Error::NoType),
        (any::<usize>(), any::<usize>()).prop_map(|(len, limit)| Error::TooLarge {
            what: "object",
            len,
            limit
        }),
        ".{0,20}".prop_map(Error::Damaged),
        Just(Error::Overload),
    ]
}

fn round() -> impl Strategy<Value = Round> {
    prop_oneof![Just(Round::Promise), Just(Round::Confirm), Just(Round::Remove)]
}

fn ask() -> impl Strategy<Value = Ask> {
    let reason = prop_oneof![
        Just(Reason::Write),
        Just(Reason::Repair),
        Just(Reason::Heal),
        Just(Reason::Handoff),
        Just(Reason::DualWrite),
        Just(Reason::Copy)
    ];
    prop_oneof![
        prop_oneof![Just(Want::Head), Just(Want::Value)].prop_map(|want| Ask::Read { want }),
        (bytes(), value(), vec(any::<u16>().prop_map(NodeId), 0..4), reason)
            .prop_map(|(head, value, hints, reason)| Ask::Merge { head, value, hints, reason }),
        (round(), bytes()).prop_map(|(round, tombstone)| Ask::Reap { round, tombstone }),
    ]
}

fn answer() -> impl Strategy<Value = Result<Answer, Error>> {
    let stored = (bytes(), of(value())).prop_map(|(head, value)| Stored { head, value });
    prop_oneof![
        of(stored).prop_map(|stored| Ok(Answer::Read(stored))),
        Just(Ok(Answer::Merged)),
        (round(), any::<bool>()).prop_map(|(round, agrees)| Ok(Answer::Reaping { round, agrees })),
        error().prop_map(Err),
    ]
}

fn response() -> impl Strategy<Value = Result<Response, Error>> {
    let found = (bytes(), of(value()), any::<bool>()).prop_map(|(head, value, newest_only)| Found {
        head,
        value,
        newest_only,
    });
    prop_oneof![
        (of(bytes()), of(found)).prop_map(|(key, object)| Ok(Response::Put { key, object })),
        Just(Ok(Response::Deleted)),
        error().prop_map(Err),
    ]
}

fn props() -> impl Strategy<Value = Option<Arc<BucketProps>>> {
    of((1u32..10, any::<bool>()).prop_map(|(n, allow_mult)| {
        let props = BucketProps::default().with(&[Prop::NVal(n), Prop::AllowMult(allow_mult)]);
        Arc::new(props.unwrap())
    }))
}

fn tree() -> impl Strategy<Value = TreeId> {
    (any::<u16>(), 0_u32..=255, 0..=kv::aae::DAY_MAX).prop_map(|(first, n_val, day)| TreeId {
        first,
        n_val,
        day,
    })
}

fn tree_ask() -> impl Strategy<Value = TreeAsk> {
    let number = any::<u32>;
    prop_oneof![
        vec((tree(), number()), 0..4).prop_map(|roots| TreeAsk::Roots { roots }),
        (tree(), any::<bool>(), 0..64_u32, vec((number(), number()), 0..4)).prop_map(
            |(tree, is_row, bits, groups)| {
                let axis = if is_row { Axis::Rows } else { Axis::Columns };
                TreeAsk::Groups { tree, by: Grouping { axis, bits }, groups }
            }
        ),
        (tree(), number(), vec(number(), 0..4), of(bytes()))
            .prop_map(|(tree, bits, segments, from)| TreeAsk::Keys { tree, bits, segments, from }),
    ]
}

fn tree_answer() -> impl Strategy<Value = TreeAnswer> {
    prop_oneof![
        (vec(tree(), 0..4), vec(tree(), 0..4))
            .prop_map(|(differ, others)| TreeAnswer::Roots { differ, others }),
        (any::<u32>(), vec(any::<u32>(), 0..4))
            .prop_map(|(bits, differ)| TreeAnswer::Groups { bits, differ }),
        (vec((bytes(), any::<u32>()), 0..4), of(bytes()))
            .prop_map(|(keys, next)| TreeAnswer::Keys(KeyPage { keys, next })),
    ]
}

fn sums() -> impl Strategy<Value = PropsSums> {
    (any::<u64>(), of((any::<u64>(), any::<bool>()))).prop_map(|(all, sets)| PropsSums {
        all,
        sets: sets.map(|(sets, _)| sets),
        is_kept: sets.is_some_and(|(_, is_kept)| is_kept),
    })
}

fn promise() -> impl Strategy<Value = PromiseBlock> {
    let stamp = || any::<u64>().prop_map(Monotonic);
    let told = of((1..u64::MAX, stamp()));
    (any::<u64>(), stamp(), of(stamp()), told, any::<bool>(), any::<bool>()).prop_map(
        |(life, stamp, echo, promise, asks, is_released)| PromiseBlock {
            life,
            block: Block { stamp, echo, promise, asks, is_released },
        },
    )
}

fn message() -> impl Strategy<Value = PeerMessage> {
    let id = any::<u64>().prop_map(AskId);
    let ttl = any::<u32>();
    prop_oneof![
        (id.clone(), any::<u64>(), any::<u32>(), of(sums()), of(promise())).prop_map(
            |(id, life, load, props, promise)| {
                let promise = promise.filter(|_| props.is_none_or(|props| props.sets.is_some()));
                PeerMessage::Ping { id, life, load: Load(load), props, promise }
            }
        ),
        (id.clone(), any::<u64>(), any::<u32>(), of(sums()), of(promise())).prop_map(
            |(id, life, load, props, promise)| {
                let promise = promise.filter(|_| props.is_none_or(|props| props.sets.is_some()));
                PeerMessage::Pong { id, life, load: Load(load), props, promise }
            }
        ),
        (id.clone(), vec(any::<u64>(), 0..4)).prop_map(|(id, leaves)| PeerMessage::AskProps { id, leaves }),
        (id.clone(), ttl, any::<u64>(), bytes(), ask())
            .prop_map(|(id, ttl_ms, life, key, ask)| PeerMessage::Ask { id, ttl_ms, life, key, ask }),
        (id.clone(), answer(), any::<u32>()).prop_map(|(id, result, load)| PeerMessage::Answer {
            id,
            result,
            load: Load(load)
        }),
        (id.clone(), ttl, prop_oneof![put(), delete()]).prop_map(|(id, ttl_ms, request)| {
            PeerMessage::Forward { id, ttl_ms, request: Box::new(request) }
        }),
        (id.clone(), response())
            .prop_map(|(id, result)| PeerMessage::Forwarded { id, result: Box::new(result) }),
        (id.clone(), bucket(), any::<u64>(), props()).prop_map(|(id, bucket, stamp, props)| {
            PeerMessage::Props { id, change: PropsChange::Bucket(bucket, StampedProps { stamp, props }) }
        }),
        (id.clone(), bucket(), any::<u64>(), any::<bool>(), props()).prop_map(
            |(id, bucket, stamp, active, props)| {
                let change = StampedType { stamp, active, props: props.unwrap_or_default() };
                PeerMessage::Props { id, change: PropsChange::Type(bucket.name, change) }
            }
        ),
        (id.clone(), any::<u32>(), bucket(), any::<bool>(), vec(any::<u16>(), 0..4), of(bytes())).prop_map(
            |(id, ttl_ms, bucket, keys, partitions, start)| {
                let listed = if keys { Listed::Keys(bucket) } else { Listed::Buckets(bucket.name) };
                PeerMessage::AskPage { id, ttl_ms, ask: PageAsk { listed, partitions, start } }
            }
        ),
        (id.clone(), vec(bytes(), 0..4), vec(any::<u16>(), 0..4), of(bytes())).prop_map(
            |(id, names, rest, next)| PeerMessage::Page {
                id,
                page: Ok(Page { names, sum: None, rest, next })
            }
        ),
        (id.clone(), any::<u64>(), vec(any::<u16>(), 0..4), of(bytes())).prop_map(
            |(id, target, partitions, start)| PeerMessage::AskCopy { id, target, partitions, start }
        ),
        (
            id.clone(),
            vec(any::<u16>(), 0..4),
            of(bytes()),
            any::<u64>(),
            any::<u64>(),
            vec(any::<u16>(), 0..3)
        )
            .prop_map(|(id, rest, next, objects, bytes, lost)| PeerMessage::CopyPart {
                id,
                part: Ok(CopyPart { rest, next, objects, bytes, lost })
            }),
        (id.clone(), any::<u32>(), tree_ask()).prop_map(|(id, partitions, ask)| PeerMessage::AskTree {
            id,
            partitions,
            ask
        }),
        (id.clone(), prop_oneof![tree_answer().prop_map(Ok), error().prop_map(Err)])
            .prop_map(|(id, answer)| PeerMessage::Tree { id, answer }),
        id.prop_map(|id| PeerMessage::PropsInForce { id }),
    ]
}

fn encode(message: &PeerMessage, out: &mut BytesMut) {
    if let Some(value) = message.encode(VERSION, out).unwrap() {
        out.put_slice(&value);
    }
}

fn decode(buf: &mut BytesMut) -> PeerMessage {
    PeerMessage::decode(next_frame(buf, FRAME_BYTES_MAX).unwrap().unwrap()).unwrap()
}

proptest! {
    #![proptest_config(Config::with_cases(500))]

    #[test]
    fn messages_come_back(messages in vec(message(), 1..8)) {
        let mut buf = BytesMut::new();
        messages.iter().for_each(|message| encode(message, &mut buf));
        for message in messages {
            prop_assert_eq!(decode(&mut buf), message);
        }
        prop_assert!(buf.is_empty());
    }
}

/// Bodies of messages with a few bytes changed, under every kind: refused, or a message that comes back.
#[test]
fn random_bytes_never_panic() {
    let config = Config::default();
    let rng = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let mut rng = SplitMix64::new(1);
    let (mut refused, mut read) = (0, 0);
    for _ in 0..500 {
        let mut buf = BytesMut::new();
        encode(&message().new_tree(&mut runner).unwrap().current(), &mut buf);
        let good = next_frame(&mut buf, FRAME_BYTES_MAX).unwrap().unwrap();
        for _ in 0..20 {
            let mut body = BytesMut::from(&good.body[..]);
            body.put_u8(0);
            for _ in 0..=rng.below(3) {
                let at = usize::try_from(rng.below(body.len() as u64)).unwrap();
                body[at] = rng.next_u64().to_le_bytes()[0];
            }
            body.truncate(body.len() - usize::from(rng.below(4) > 0));
            let kind = if rng.below(8) == 0 { rng.next_u64().to_le_bytes()[0] % 10 } else { good.kind };
            match PeerMessage::decode(Frame { kind, body: body.freeze(), ..good.clone() }) {
                Ok(message) => {
                    read += 1;
                    let mut buf = BytesMut::new();
                    encode(&message, &mut buf);
                    assert_eq!(decode(&mut buf), message);
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 1_000 && read > 1_000, "{refused} refused, {read} read");
}
