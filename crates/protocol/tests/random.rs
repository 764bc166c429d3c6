//! Random messages and random bytes: encoders against `prost`, decoders against everything.

use bytes::Bytes;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::Index;
use protocol::messages::*;
use protocol::response::{self, Body};
use protocol::{DecodeError, Message, Request, codes};

const CASES: u32 = 10_000;

fn bytes() -> impl Strategy<Value = Bytes> {
    // Now and then long enough for a length of two bytes.
    prop_oneof![9 => 0..12usize, 1 => 120..140usize]
        .prop_flat_map(|len| prop::collection::vec(any::<u8>(), len))
        .prop_map(Bytes::from)
}

fn name() -> impl Strategy<Value = Bytes> {
    bytes().prop_filter("a name is not empty", |name| !name.is_empty())
}

fn pair() -> impl Strategy<Value = Pair> {
    (bytes(), of(bytes())).prop_map(|(key, value)| Pair { key, value })
}

fn link() -> impl Strategy<Value = Link> {
    (of(bytes()), of(bytes()), of(bytes())).prop_map(|(bucket, key, tag)| Link { bucket, key, tag })
}

prop_compose! {
    fn content()(
        value in bytes(),
        (content_type, charset, content_encoding, vtag) in (of(bytes()), of(bytes()), of(bytes()), of(bytes())),
        links in prop::collection::vec(link(), 0..3),
        usermeta in prop::collection::vec(pair(), 0..3),
        indexes in prop::collection::vec(pair(), 0..3),
        (last_mod, last_mod_usecs) in (of(any::<u32>()), of(0u32..1_000_000)),
        deleted in any::<bool>(),
    ) -> Content {
        Content {
            value, content_type, charset, content_encoding, vtag, links, last_mod, last_mod_usecs, usermeta,
            indexes, deleted: deleted.then_some(true),
        }
    }
}

prop_compose! {
    fn put_req()(
        bucket in name(), key in of(name()), vclock in of(bytes()), content in content(),
        (w, dw, pw, n_val, timeout) in
            (of(any::<u32>()), of(any::<u32>()), of(any::<u32>()), of(any::<u32>()), of(any::<u32>())),
        (return_body, if_not_modified, asis) in (of(any::<bool>()), of(any::<bool>()), of(any::<bool>())),
        bucket_type in of(name()),
    ) -> PutReq {
        PutReq {
            bucket, key, vclock, content, w, dw, pw, n_val, timeout, return_body, if_not_modified, asis,
            bucket_type, ..PutReq::default()
        }
    }
}

prop_compose! {
    fn props()(
        (n_val, r, allow_mult) in (of(any::<u32>()), of(any::<u32>()), of(any::<bool>())),
        hooks in prop::collection::vec((of((bytes(), bytes())), of(bytes())), 0..3),
        (backend, hll_precision) in (of(bytes()), of(any::<u32>())),
    ) -> BucketProps {
        let hook = |(modfun, name): (Option<(Bytes, Bytes)>, Option<Bytes>)| CommitHook {
            modfun: modfun.map(|(module, function)| ModFun { module, function }),
            name,
        };
        BucketProps {
            n_val, r, allow_mult, backend, hll_precision,
            precommit: hooks.into_iter().map(hook).collect(), has_precommit: Some(true),
            repl: Some(ReplMode::Fullsync.into()),
            ..BucketProps::default()
        }
    }
}

fn request() -> impl Strategy<Value = Request> {
    let get = (name(), name(), of(name()), of(bytes()), of(any::<u32>())).prop_map(
        |(bucket, key, bucket_type, if_modified, r)| {
            Request::Get(GetReq { bucket, key, bucket_type, if_modified, r, ..GetReq::default() })
        },
    );
    let del = (name(), name(), of(name()), of(bytes()), of(any::<u32>())).prop_map(
        |(bucket, key, bucket_type, vclock, rw)| {
            Request::Del(DelReq { bucket, key, bucket_type, vclock, rw, ..DelReq::default() })
        },
    );
    let bucket_and_type = || (name(), of(name()));
    prop_oneof![
        get,
        del,
        put_req().prop_map(|put| Request::Put(Box::new(put))),
        (0..4usize, of(any::<u32>()), prop::collection::vec(any::<u32>(), 0..4)).prop_map(
            |(code, last_mod_end, id_filter)| {
                let codes = [codes::FOLD_ROOT_REQ, codes::FOLD_BRANCH_REQ, codes::FOLD_CLOCKS_NVAL_REQ];
                let code = codes.get(code).copied().unwrap_or(codes::FOLD_LIST_BUCKETS_REQ);
                let fold = FoldNValReq { n_val: Some(3), id_filter, last_mod_end, ..FoldNValReq::default() };
                Request::FoldNVal(code, fold)
            }
        ),
        (name(), of(name()), of(bytes()), any::<[bool; 2]>(), any::<u32>()).prop_map(
            |(bucket, bucket_type, start_key, [key_range, modified_range], number)| {
                Request::FoldRange(
                    codes::FOLD_ERASE_REQ,
                    FoldRangeReq {
                        bucket,
                        bucket_type,
                        key_range,
                        start_key,
                        modified_range,
                        segment_filter: Some(true),
                        id_filter: vec![number],
                        choice: Some(2),
                        ..FoldRangeReq::default()
                    },
                )
            }
        ),
        Just(Request::Ping),
        Just(Request::GetClientId),
        Just(Request::GetServerInfo),
        Just(Request::StartTls),
        (bytes(), bytes()).prop_map(|(user, password)| Request::Auth(AuthReq { user, password })),
        bytes().prop_map(|client_id| Request::SetClientId(SetClientIdReq { client_id })),
        (of(any::<u32>()), of(any::<bool>()), of(name())).prop_map(|(timeout, stream, bucket_type)| {
            Request::ListBuckets(ListBucketsReq { timeout, stream, bucket_type })
        }),
        (bucket_and_type(), of(any::<u32>())).prop_map(|((bucket, bucket_type), timeout)| {
            Request::ListKeys(ListKeysReq { bucket, timeout, bucket_type })
        }),
        (bucket_and_type(), name(), of(bytes()), of(any::<u32>())).prop_map(
            |((bucket, bucket_type), index, key, max_results)| {
                let range_max = key.clone();
                Request::Index(Box::new(IndexReq {
                    bucket,
                    bucket_type,
                    index,
                    key,
                    range_max,
                    max_results,
                    ..IndexReq::default()
                }))
            }
        ),
        bucket_and_type()
            .prop_map(|(bucket, bucket_type)| Request::GetBucket(GetBucketReq { bucket, bucket_type })),
        bucket_and_type()
            .prop_map(|(bucket, bucket_type)| Request::ResetBucket(ResetBucketReq { bucket, bucket_type })),
        (bucket_and_type(), props()).prop_map(|((bucket, bucket_type), props)| {
            Request::SetBucket(Box::new(SetBucketReq { bucket, props, bucket_type }))
        }),
        name().prop_map(|bucket_type| Request::GetBucketType(GetBucketTypeReq { bucket_type })),
        (name(), props()).prop_map(|(bucket_type, props)| Request::SetBucketType(Box::new(
            SetBucketTypeReq { bucket_type, props }
        ))),
        (bucket_and_type(), name()).prop_map(|((bucket, bucket_type), key)| {
            Request::GetPreflist(GetPreflistReq { bucket, key, bucket_type })
        }),
    ]
}

/// The frame of `request`, cut into code and body.
fn encoded(request: &Request) -> (u8, Vec<u8>) {
    let mut out = Vec::new();
    request.encode(&mut out);
    (out[4], out.split_off(5))
}

fn frame_of(code: u8, message: &impl Message) -> Vec<u8> {
    let mut out = Vec::new();
    protocol::frame::put_message(&mut out, code, message);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES / 10))]

    #[test]
    fn requests_round_trip(request in request()) {
        let (code, body) = encoded(&request);
        prop_assert_eq!(Request::decode(code, body.into()), Ok(request));
    }

    #[test]
    fn a_get_answer_is_what_prost_writes(
        content in prop::collection::vec(content(), 1..4),
        vclock in bytes(),
    ) {
        let mut out = b"what was there".to_vec();
        let before = out.len();
        response::get(&mut out, &content, &vclock, Body::Full);
        let message = GetResp { content, vclock: Some(vclock), unchanged: None };
        prop_assert_eq!(&out[before..], &frame_of(codes::GET_RESP, &message));
    }

    #[test]
    fn a_put_answer_is_what_prost_writes(
        mut content in prop::collection::vec(content(), 1..4),
        vclock in bytes(),
        key in of(bytes()),
    ) {
        let mut out = Vec::new();
        response::put(&mut out, content.clone(), &vclock, key.as_deref(), Body::Head);
        for sibling in &mut content {
            sibling.value = Bytes::new();
        }
        let message = PutResp { content, vclock: Some(vclock), key };
        prop_assert_eq!(out, frame_of(codes::PUT_RESP, &message));
    }

    #[test]
    fn a_listing_is_what_prost_writes(keys in prop::collection::vec(bytes(), 0..5), done in any::<bool>()) {
        let mut out = Vec::new();
        response::list_keys(&mut out, &keys, done);
        let message = ListKeysResp { keys, done: done.then_some(true) };
        prop_assert_eq!(out, frame_of(codes::LIST_KEYS_RESP, &message));
    }

    #[test]
    fn a_request_survives_damage_without_a_panic(
        request in request(),
        damage in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        cut in of(any::<Index>()),
    ) {
        let (code, mut body) = encoded(&request);
        if let Some(cut) = cut {
            body.truncate(cut.index(body.len() + 1));
        }
        if !body.is_empty() {
            for (place, byte) in damage {
                let place = place.index(body.len());
                body[place] = byte;
            }
        }
        settles(code, body)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn any_body_settles_under_every_code(body in noise()) {
        for code in 0..=u8::MAX {
            settles(code, body.clone())?;
        }
    }

    #[test]
    fn any_body_settles_as_a_put(body in noise()) {
        // A name first, so that the noise is read as the rest of the message.
        settles(codes::PUT_REQ, [b"\x0a\x01b\x22\x03\x0a\x01v", &body[..]].concat())?;
    }
}

/// Bytes that look like fields more often than chance would have it.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let key = (0u8..18, 0u8..6).prop_map(|(field, wire_type)| field << 3 | wire_type);
    prop::collection::vec(prop_oneof![2 => key, 2 => 0u8..6, 1 => any::<u8>()], 0..48)
}

/// A body is refused, or is a request that means the same when it is written and read again.
fn settles(code: u8, body: Vec<u8>) -> Result<(), TestCaseError> {
    match Request::decode(code, body.into()) {
        Ok(request) => {
            prop_assert_eq!(request.code(), code);
            let (code, body) = encoded(&request);
            prop_assert_eq!(Request::decode(code, body.into()), Ok(request));
        }
        Err(DecodeError::UnknownCode(unknown)) => {
            prop_assert_eq!(unknown, code);
            let is_request = matches!(codes::describe(code), Some((_, codes::Direction::Request)));
            prop_assert!(!is_request);
        }
        Err(DecodeError::Refused(text)) => prop_assert!(text.ends_with("cannot be zero-length")),
        Err(DecodeError::Malformed(text)) => prop_assert!(!text.is_empty()),
    }
    Ok(())
}

#[test]
fn a_value_is_a_slice_of_the_body() {
    let content = Content { value: Bytes::from(vec![7; 1000]), ..Content::default() };
    let put = PutReq { bucket: "b".into(), content, ..PutReq::default() };
    let (code, body) = encoded(&Request::Put(Box::new(put)));
    let body = Bytes::from(body);
    let Ok(Request::Put(put)) = Request::decode(code, body.clone()) else { panic!("not a put") };
    assert!(body.as_ptr_range().contains(&put.content.value.as_ptr()));
}

#[test]
fn deep_groups_and_endless_varints_are_refused() {
    for body in
        [vec![0x0B; 100_000], vec![0x0A; 100_000], vec![0xFF; 100_000], b"\x22\xff\xff\xff\xff\x0f".to_vec()]
    {
        let error = Request::decode(codes::PUT_REQ, body.into()).unwrap_err();
        assert!(error.closes(), "{error}");
    }
}
