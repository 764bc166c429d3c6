//! The head's format: golden bytes, round trips, and whatever bytes a disk or a peer may send.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::dot::Actor;
use crate::index::IndexEntry;
use crate::metadata::Link;
use crate::object::Object;
use crate::view::SiblingView;

fn encoded(head: &Head) -> Vec<u8> {
    let mut out = Vec::new();
    head.encode(&mut out);
    out
}

fn sibling(actor: u64, counter: u64, value_len: u32) -> SiblingHead {
    SiblingHead { dot: Dot::new(Actor(actor), counter), value_len, metadata: Metadata::default() }
}

/// Two actors, two siblings, every field once.
fn example() -> Head {
    let context = [Dot::new(Actor(1), 5), Dot::new(Actor(0x0807_0605_0403_0201), 300)].into_iter().collect();
    let mut full = sibling(0x0807_0605_0403_0201, 299, 200);
    full.metadata = Metadata {
        content_type: Some(Bytes::from("a/b")),
        charset: Some(Bytes::from("u8")),
        content_encoding: Some(Bytes::new()),
        links: vec![Link { bucket: Bytes::from("b"), key: Bytes::from("k"), tag: Bytes::from("t") }],
        user_meta: vec![(Bytes::from("m"), Some(Bytes::from("v"))), (Bytes::from("n"), None)],
        indexes: vec![IndexEntry { field: Bytes::from("f_bin"), value: Bytes::from("x") }],
        last_modified: 1000,
        deleted: false,
        expires_ms: None,
    };
    let mut tombstone = sibling(1, 5, 0);
    tombstone.metadata.deleted = true;
    Head::new(context, vec![tombstone, full])
}

#[test]
fn golden_bytes() {
    let mut expected = vec![1, 0, 2, 20, 2];
    expected.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 5]);
    expected.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 0xac, 0x02]);
    expected.extend_from_slice(&[0x01, 0, 0, 0, 0]);
    expected.extend_from_slice(&[0x7e, 1, 1, 0xe8, 0x07, 0xc8, 0x01]);
    expected
        .extend_from_slice(b"\x03a/b\x02u8\x00\x01\x01b\x01k\x01t\x02\x01m\x02v\x01n\x00\x01\x05f_bin\x01x");
    assert_eq!(encoded(&example()), expected);
    assert_eq!(Head::decode(&expected), Ok(example()));
}

/// A sibling that ends at 300, and one that ends at 700.
fn ending() -> Head {
    let context = [Dot::new(Actor(1), 5), Dot::new(Actor(2), 6)].into_iter().collect();
    let (mut first, mut last) = (sibling(1, 5, 3), sibling(2, 6, 4));
    first.metadata.expires_ms = Some(300);
    last.metadata.expires_ms = Some(700);
    Head::new(context, vec![first, last])
}

#[test]
fn golden_bytes_of_what_ends() {
    let mut expected = vec![2, 0, 2, 19, 2];
    expected.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 5]);
    expected.extend_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 6]);
    expected.extend_from_slice(&[0x80, 0, 0, 0, 3, 0xac, 0x02]);
    expected.extend_from_slice(&[0x80, 1, 0, 0, 4, 0xbc, 0x05]);
    assert_eq!(encoded(&ending()), expected);
    assert_eq!(Head::decode(&expected), Ok(ending()));
    expected[0] = 1;
    assert!(Head::decode(&expected).is_err(), "of the other version");
}

#[test]
fn siblings_end_one_by_one_and_the_object_with_the_last() {
    let bytes = encoded(&ending());
    let view = HeadView::parse(&bytes).unwrap();
    assert_eq!((view.expires_ms(), HeadView::expiry_of(&bytes)), (Some(700), Some(700)));
    assert_eq!(HeadView::expiry_of(&encoded(&example())), None);
    let at = |now_ms| (view.has_ended(now_ms), view.is_gone(now_ms));
    assert_eq!([299, 300, 699, 700].map(at), [(false, false), (true, false), (true, false), (true, true)]);
    let left = |now_ms| ending().without_ended(now_ms).map(|head| head.siblings().len());
    assert_eq!([299, 300, 699, 700].map(left), [Some(2), Some(1), Some(1), None]);
    assert_eq!(ending().without_ended(300).unwrap().context(), ending().context(), "it has seen them");
    assert_eq!(view.newest_at(300).map(|it| it.dot.actor), Some(Actor(2)));
    assert!(view.newest_at(700).is_none());
    let values = Bytes::from_static(b"onelast");
    let object = Object::new(ending(), values).unwrap().without_ended(300).unwrap();
    assert_eq!(object.values(), &Bytes::from_static(b"last"));
}

/// A tombstone keeps away what it deleted for as long as somebody may have that.
#[test]
fn an_object_with_a_tombstone_does_not_end() {
    let mut head = ending();
    head.siblings[0].value_len = 0;
    head.siblings[0].metadata = Metadata { deleted: true, ..Metadata::default() };
    let bytes = encoded(&head);
    let view = HeadView::parse(&bytes).unwrap();
    assert_eq!((view.expires_ms(), view.is_gone(699), view.is_gone(700)), (None, false, true));
}

#[test]
fn an_encoded_head_answers_without_being_decoded() {
    let head = example();
    let bytes = encoded(&head);
    let view = HeadView::parse(&bytes).unwrap();
    assert_eq!((view.sibling_count(), view.values_len(), view.is_tombstone()), (2, 200, false));
    assert!(view.is_unmodified(head.context()) && !view.is_unmodified(&Context::new()));
    assert_eq!(view.newest().dot, head.siblings()[1].dot);
    assert_eq!(view.newest().dot, head.siblings()[head.newest()].dot);
    assert_eq!(view.etag(), head.etag());
    let mut client = Vec::new();
    view.context().write_client_bytes(&mut client);
    assert_eq!(client, head.context().encode());
    assert_eq!(client.len(), view.context().client_len());
    let full: SiblingView<'_> = view.siblings().nth(1).unwrap();
    assert_eq!((full.content_type, full.user_meta.len()), (Some(&b"a/b"[..]), 2));
    assert_eq!(full.vtag(), head.siblings()[1].vtag());
}

#[test]
fn each_truncation_and_each_extra_byte_is_refused() {
    let bytes = encoded(&example());
    for len in 0..bytes.len() {
        assert!(Head::decode(&bytes[..len]).is_err(), "{len} bytes");
    }
    assert!(Head::decode(&[&bytes[..], &[0]].concat()).is_err());
}

#[test]
fn a_head_that_breaks_an_invariant_is_refused() {
    let bytes = encoded(&example());
    let refused = |at: usize, byte: u8, why: &str| {
        let mut bad = bytes.clone();
        bad[at] = byte;
        let error = Head::decode(&bad).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(0, 2, "version");
    refused(1, 1, "flags do not match");
    refused(1, 2, "flags do not match");
    refused(2, 0, "no sibling");
    refused(24, 0x81, "a tombstone ends");
    refused(0, 3, "version is not known");
    refused(25, 9, "not in the context");
    refused(26, 5, "counter is not above 0");
    refused(28, 1, "tombstone has a value");
    refused(30, 0, "out of order");
    let mut huge = vec![HEAD_VERSION, 0];
    put_varint(&mut huge, u64::MAX);
    put_varint(&mut huge, u64::MAX);
    assert!(Head::decode(&huge).is_err());
}

#[test]
fn a_value_beats_a_tombstone_of_the_same_time() {
    let context = [Dot::new(Actor(1), 1), Dot::new(Actor(2), 9)].into_iter().collect();
    let mut tombstone = sibling(2, 9, 0);
    tombstone.metadata.deleted = true;
    assert_eq!(Head::new(context, vec![sibling(1, 1, 1), tombstone]).newest(), 0);
}

fn text() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..4).prop_map(Bytes::from)
}

fn metadata() -> impl Strategy<Value = Metadata> {
    let texts = (prop::option::of(text()), prop::option::of(text()), prop::option::of(text()));
    let links = vec((text(), text(), text()), 0..3);
    let user_meta = vec((text(), prop::option::of(text())), 0..3);
    let indexes = vec((text(), text()), 0..3);
    let end = prop::option::of(any::<u64>());
    (texts, links, user_meta, indexes, any::<u64>(), (any::<bool>(), end)).prop_map(
        |(texts, links, user_meta, indexes, last_modified, (deleted, end))| {
            let (content_type, charset, content_encoding) = texts;
            Metadata {
                content_type,
                charset,
                content_encoding,
                links: links.into_iter().map(|(bucket, key, tag)| Link { bucket, key, tag }).collect(),
                user_meta,
                indexes: indexes.into_iter().map(|(field, value)| IndexEntry { field, value }).collect(),
                last_modified,
                deleted,
                expires_ms: end.filter(|_| !deleted),
            }
        },
    )
}

fn heads() -> impl Strategy<Value = Head> {
    let dots = prop::collection::btree_map((0u64..4, 1u64..300), (metadata(), any::<u32>()), 1..5);
    (dots, vec((0u64..8, 1u64..1 << 40), 0..3)).prop_map(|(dots, seen)| {
        let siblings: Vec<SiblingHead> = dots
            .into_iter()
            .map(|((actor, counter), (metadata, value_len))| SiblingHead {
                dot: Dot::new(Actor(actor), counter),
                value_len: if metadata.deleted { 0 } else { value_len },
                metadata,
            })
            .collect();
        let seen = seen.into_iter().map(|(actor, counter)| Dot::new(Actor(actor), counter));
        let context = siblings.iter().map(|sibling| sibling.dot).chain(seen).collect();
        Head::new(context, siblings)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn heads_round_trip(head in heads()) {
        let bytes = encoded(&head);
        let view = HeadView::parse(&bytes).unwrap();
        prop_assert_eq!(view.is_tombstone(), head.is_tombstone());
        prop_assert_eq!(view.values_len(), head.values_len());
        prop_assert_eq!(view.newest().dot, head.siblings()[head.newest()].dot);
        prop_assert_eq!(view.etag(), head.etag());
        prop_assert_eq!(HeadView::expiry_of(&bytes), view.expires_ms());
        for now_ms in head.siblings().iter().filter_map(|sibling| sibling.metadata.expires_ms) {
            prop_assert_eq!(view.is_gone(now_ms), head.is_gone(now_ms));
        }
        prop_assert_eq!(view.to_head(), head);
    }

    /// Damaged heads are refused, or are heads: whatever is accepted has exactly one encoding.
    #[test]
    fn damaged_heads_never_panic(
        head in heads(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = encoded(&head);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(head) = Head::decode(&bytes) {
            prop_assert_eq!(encoded(&head), bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn random_bytes_never_panic(mut bytes in vec(prop_oneof![0u8..4, any::<u8>()], 2..80), plain: bool) {
        if plain {
            bytes[0] = HEAD_VERSION;
        }
        if let Ok(head) = Head::decode(&bytes) {
            prop_assert_eq!(encoded(&head), bytes);
        }
    }
}
