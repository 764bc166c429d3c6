use super::*;
use crate::driver::IndexRange;
use bytes::BytesMut;
use proptest::prelude::*;
use protocol::messages::Content;
use protocol::response::{self, Body};
use protocol::{Limits, next_frame};

fn common() -> Common {
    let quorums = [("r".to_owned(), 2), ("w".to_owned(), 3)].into();
    Common { bucket_type: Some("t".to_owned()), quorums, returns_context: true }
}

/// What a server makes of a request.
fn decoded(command: Command<'_>) -> protocol::Request {
    let (mut codec, mut out) = (Pb::new(&common()), b"before".to_vec());
    codec.encode(&Request { token: 1, bucket: b"b", key: b"k", command }, 0, &mut out);
    let mut buf = BytesMut::from(&out[6..]);
    let frame = next_frame(&mut buf, Limits::ESTABLISHED).unwrap().unwrap();
    assert!(buf.is_empty());
    protocol::Request::decode(frame.code, frame.body).unwrap()
}

#[test]
fn a_server_reads_what_was_meant() {
    let protocol::Request::Get(get) = decoded(Command::Get) else { panic!("not a get") };
    assert_eq!((&get.bucket[..], &get.key[..], get.r), (&b"b"[..], &b"k"[..], Some(2)));
    assert_eq!((get.bucket_type.as_deref(), get.head), (Some(&b"t"[..]), None));
    let protocol::Request::Get(head) = decoded(Command::Head) else { panic!("not a get") };
    assert_eq!(head.head, Some(true));
    let (value, indexes) = (vec![7; 300], [("f_bin", b"term".to_vec()), ("g_bin", vec![1; 200])]);
    let put = Command::Put { value: &value, context: Some(b"clock"), indexes: &indexes };
    let protocol::Request::Put(put) = decoded(put) else { panic!("not a put") };
    assert_eq!(
        (&put.content.value[..], put.vclock.as_deref(), put.w),
        (&value[..], Some(&b"clock"[..]), Some(3))
    );
    assert_eq!(put.content.indexes.len(), 2);
    assert_eq!(put.content.indexes[1].value.as_deref(), Some(&[1u8; 200][..]));
    assert_eq!(put.return_head, Some(true));
    for context in [None, Some(&b"clock"[..])] {
        let protocol::Request::Del(delete) = decoded(Command::Delete { context }) else {
            panic!("not a delete")
        };
        assert_eq!((&delete.key[..], delete.bucket_type.as_deref()), (&b"k"[..], Some(&b"t"[..])));
        assert_eq!(delete.vclock.as_deref(), context);
    }
    assert!(matches!(decoded(Command::ListKeys), protocol::Request::ListKeys(_)));
    assert!(matches!(decoded(Command::Ping), protocol::Request::Ping));
}

#[test]
fn a_query_is_riaks_message() {
    let encoded = |range| {
        let (mut codec, mut out) = (Pb::new(&Common::default()), Vec::new());
        codec.encode(
            &Request { token: 1, bucket: b"b", key: b"", command: Command::Query(range) },
            0,
            &mut out,
        );
        assert_eq!(out[4], 25);
        out.split_off(5)
    };
    let range = IndexRange {
        index: "f_bin",
        from: b"a",
        to: b"b",
        return_terms: true,
        term_regex: Some("x"),
        max_results: None,
        continuation: None,
    };
    assert_eq!(encoded(range), b"\x0a\x01b\x12\x05f_bin\x18\x01\x2a\x01a\x32\x01b\x38\x01\x6a\x01x");
    let page =
        IndexRange { to: b"a", term_regex: None, max_results: Some(300), continuation: Some(b"c"), ..range };
    assert_eq!(encoded(page), b"\x0a\x01b\x12\x05f_bin\x18\x00\x22\x01a\x38\x01\x48\xac\x02\x52\x01c");
}

fn rows(rows: &Rows<'_>) -> Vec<(Option<String>, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    rows.iter().map(|(term, key)| (term.map(text), text(key))).collect()
}

#[test]
fn rows_are_those_of_the_server() {
    let mut codec = Pb::new(&Common::default());
    let pairs = [(Some("t"), "k"), (Some("u"), ""), (None, "l")];
    let written = pairs.iter().map(|(term, key)| (term.map(str::as_bytes), key.as_bytes()));
    let page = answer(|out| response::index(out, written, Some(b"place"), false));
    match codec.decode(Asked::Rows, 0, &page) {
        Decoded::Answer(Answer::Rows(found)) => {
            let expected = pairs.map(|(term, key)| (term.map(str::to_owned), key.to_owned()));
            assert_eq!((rows(&found), found.continuation), (expected.to_vec(), Some(&b"place"[..])));
        }
        _ => panic!("no rows"),
    }
    let nothing = answer(|out| response::index(out, std::iter::empty(), None, false));
    match codec.decode(Asked::Rows, 0, &nothing) {
        Decoded::Answer(Answer::Rows(found)) => {
            assert!(found.places.is_empty() && found.continuation.is_none())
        }
        _ => panic!("no rows"),
    }
}

fn answer(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

#[test]
fn answers_are_told_apart() {
    let mut codec = Pb::new(&Common::default());
    let content = |value: &'static str| Content { value: value.into(), ..Content::default() };
    let tombstone = Content { deleted: Some(true), ..content("") };
    let object =
        answer(|out| response::get(out, [content("xy"), tombstone, content("z")], b"clock", Body::Full));
    assert_eq!(codec.frame_len(Asked::Read, &object[..3]), Ok(None));
    assert_eq!(codec.frame_len(Asked::Read, &object[..9]), Ok(Some(object.len())));
    match codec.decode(Asked::Read, 0, &object) {
        Decoded::Answer(Answer::Found { context, values, body }) => {
            let values: Vec<&[u8]> = values.iter().map(|at| &body[at.clone()]).collect();
            assert_eq!((context, values), (&b"clock"[..], vec![&b"xy"[..], b"z"]));
        }
        _ => panic!("not found"),
    }
    let nothing = answer(|out| response::get_notfound(out, None));
    assert!(matches!(codec.decode(Asked::Read, 0, &nothing), Decoded::Answer(Answer::NotFound)));
    let stored = answer(|out| response::put_done(out, None));
    assert!(matches!(codec.decode(Asked::Write, 0, &stored), Decoded::Answer(Answer::Done)));
    let head = answer(|out| response::put(out, [content("")], b"clock", None, Body::Head));
    match codec.decode(Asked::Write, 0, &head) {
        Decoded::Answer(Answer::Stored { context }) => assert_eq!(context, b"clock"),
        _ => panic!("no context"),
    }
    // The answer to another request is not one to this.
    let wrong = Decoded::Answer(Answer::Failed { kind: ErrorKind::Protocol, text: "" });
    assert_eq!(kind_of(codec.decode(Asked::Read, 0, &stored)), kind_of(wrong));
    let part = answer(|out| response::list_keys(out, ["a", "b"], false));
    assert!(matches!(codec.decode(Asked::List, 3, &part), Decoded::Part(5)));
    let end = answer(|out| response::list_keys(out, ["c"], true));
    assert!(matches!(codec.decode(Asked::List, 5, &end), Decoded::Answer(Answer::Listed(6))));
}

fn kind_of(decoded: Decoded<'_>) -> Option<ErrorKind> {
    match decoded {
        Decoded::Answer(Answer::Failed { kind, .. }) => Some(kind),
        _ => None,
    }
}

#[test]
fn errors_have_kinds() {
    let mut codec = Pb::new(&Common::default());
    for (text, kind) in [
        ("timeout", ErrorKind::Timeout),
        ("overload", ErrorKind::Overload),
        ("rate_limited", ErrorKind::Overload),
        ("{r_val_unsatisfied,2,1}", ErrorKind::Unavailable),
        ("{insufficient_vnodes,1,need,2}", ErrorKind::Unavailable),
        ("modified", ErrorKind::Precondition),
        ("failed", ErrorKind::Precondition),
        ("unavailable", ErrorKind::Unavailable),
        ("Unknown message code: 25", ErrorKind::Unsupported),
        ("no", ErrorKind::Other),
    ] {
        let error = answer(|out| response::error(out, text));
        assert_eq!(kind_of(codec.decode(Asked::Read, 0, &error)), Some(kind), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn any_answer_is_read_or_refused(code in 0u8..30, body in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut frame = vec![0, 0, 0, 0, code];
        frame.extend_from_slice(&body);
        let mut codec = Pb::new(&Common::default());
        for asked in [Asked::Read, Asked::Head, Asked::Write, Asked::List, Asked::Rows] {
            match codec.decode(asked, 0, &frame) {
                Decoded::Answer(Answer::Found { values, body, .. }) => {
                    prop_assert!(values.iter().all(|at| at.end <= body.len()));
                }
                Decoded::Answer(Answer::Rows(rows)) => prop_assert_eq!(rows.iter().count(), rows.places.len()),
                _ => {}
            }
        }
    }
}
