use super::frame::{HEADER_LEN, Header, READ_STEP, SMALL_VALUE_MAX, TooLarge, begin, end};
use super::hello::{HELLO_BYTES_MAX, TEXT_BYTES_MAX, VERSION};
use super::*;
use base::Rng;
use base::checksum::crc32c;
use base::rng::SplitMix64;
use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::*;

const HEADER: Header = Header { kind: 3, id: 0x0102_0304_0506_0708, ttl_ms: 1_000 };

fn frame(fields: &[u8], value: Option<&Bytes>) -> (BytesMut, Option<Bytes>) {
    let mut out = BytesMut::new();
    let start = begin(&mut out);
    out.put_slice(fields);
    let left = end(&mut out, start, HEADER, value).unwrap();
    (out, left)
}

fn read(bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
    next_frame(&mut BytesMut::from(bytes), FRAME_BYTES_MAX)
}

#[test]
fn golden_frame() {
    let (bytes, left) = frame(b"abc", Some(&Bytes::from_static(b"de")));
    assert_eq!(
        bytes[..],
        *b"\x17\0\0\0\x49\xB0\x27\x00\x03\0\x08\x07\x06\x05\x04\x03\x02\x01\xE8\x03\0\0abcde"
    );
    assert_eq!(left, None);
    let body = Bytes::from_static(b"abcde");
    assert_eq!(read(&bytes), Ok(Some(Frame { kind: 3, id: HEADER.id, ttl_ms: 1_000, body })));
}

#[test]
fn large_values_stay_where_they_are() {
    for len in [SMALL_VALUE_MAX, SMALL_VALUE_MAX + 1, 1 << 20] {
        let value = Bytes::from(vec![7; len]);
        let (mut bytes, left) = frame(b"head", Some(&value));
        assert_eq!(left.is_some(), len > SMALL_VALUE_MAX, "{len}");
        if let Some(left) = left {
            assert_eq!(left.as_ptr(), value.as_ptr());
            bytes.put_slice(&left);
        }
        let whole = bytes.clone();
        let frame = next_frame(&mut bytes, FRAME_BYTES_MAX).unwrap().unwrap();
        assert_eq!(frame.body, [b"head", &value[..]].concat());
        assert!(bytes.is_empty());
        assert_eq!(whole.len(), HEADER_LEN + 4 + len);
    }
}

#[test]
fn a_body_is_a_slice_of_what_was_read() {
    let mut buf = frame(b"some body", None).0;
    let range = buf.as_ptr_range();
    let frame = next_frame(&mut buf, FRAME_BYTES_MAX).unwrap().unwrap();
    assert!(range.contains(&frame.body.as_ptr()));
}

#[test]
fn frames_of_a_turn_share_a_buffer() {
    let mut out = BytesMut::new();
    for fields in [&b"one"[..], b"", b"three"] {
        let start = begin(&mut out);
        out.put_slice(fields);
        assert_eq!(end(&mut out, start, HEADER, None), Ok(None));
    }
    let mut bodies = Vec::new();
    while let Some(frame) = next_frame(&mut out, FRAME_BYTES_MAX).unwrap() {
        bodies.push(frame.body);
    }
    assert_eq!(bodies, [&b"one"[..], b"", b"three"]);
}

#[test]
fn every_damaged_byte_is_found() {
    let good = frame(b"fields", Some(&Bytes::from_static(b"value"))).0;
    for at in 4..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert_eq!(read(&bad), Err(FrameError::Checksum), "byte {at}");
    }
    let mut shorter = good;
    shorter[0] -= 1;
    assert_eq!(read(&shorter), Err(FrameError::Checksum));
}

#[test]
fn lengths_are_checked_before_anything_else() {
    assert_eq!(read(b"\x11\0\0\0"), Err(FrameError::TooSmall(17)));
    assert_eq!(read(b"\0\0\0\0"), Err(FrameError::TooSmall(0)));
    let error = TooLarge { len: 1_001, max: 1_000 };
    let mut buf = BytesMut::from(&b"\xE9\x03\0\0"[..]);
    assert_eq!(next_frame(&mut buf, 1_000), Err(error.into()));
    assert_eq!(buf.len(), 4, "the buffer is as it was");
    // A large claim costs a step, not what it claims.
    let mut buf = BytesMut::from(&(100u32 << 20).to_le_bytes()[..]);
    assert_eq!(next_frame(&mut buf, FRAME_BYTES_MAX), Ok(None));
    assert!(buf.capacity() <= 4 + 2 * READ_STEP, "{}", buf.capacity());
}

#[test]
fn flags_are_of_another_version() {
    let mut bytes = frame(b"", None).0;
    bytes[9] = 2;
    let crc = crc32c(&bytes[8..]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(read(&bytes), Err(FrameError::Flags(2)));
}

#[test]
fn what_is_too_large_is_not_begun() {
    let mut out = BytesMut::from(&b"before"[..]);
    let start = begin(&mut out);
    let value = Bytes::from(vec![0; FRAME_BYTES_MAX]);
    let len = HEADER_LEN - 4 + FRAME_BYTES_MAX;
    assert_eq!(end(&mut out, start, HEADER, Some(&value)), Err(TooLarge { len, max: FRAME_BYTES_MAX }));
    assert_eq!(out[..], *b"before");
}

fn hello() -> Hello {
    Hello {
        versions: Versions::OURS,
        cluster: 0xC1,
        life: 0x1F,
        from: "n1@host".into(),
        address: "h:1".into(),
    }
}

fn encoded(put: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::new();
    put(&mut out);
    out
}

#[test]
fn golden_hello() {
    let mut bytes = encoded(|out| hello().encode(out));
    assert_eq!(
        bytes[..],
        *b"ANNULETP$\0\x01\0\x0C\0\xC1\0\0\0\0\0\0\0\x1F\0\0\0\0\0\0\0\x07n1@host\x03h:1\x90\x91\xA5\xE0"
    );
    bytes.put_slice(b"more");
    assert_eq!(Hello::read(&mut bytes), Ok(Some(hello())));
    assert_eq!(bytes[..], *b"more");
    // An older program says nothing of where it is.
    let older = b"ANNULETP\x20\0\x01\0\x03\0\xC1\0\0\0\0\0\0\0\x1F\0\0\0\0\0\0\0\x07n1@host\x13\x8A\x8F\x1E";
    let older = Hello::read(&mut BytesMut::from(&older[..]));
    assert_eq!(
        older,
        Ok(Some(Hello { versions: Versions { min: 1, max: 3 }, address: String::new(), ..hello() }))
    );
}

#[test]
fn golden_replies() {
    let welcome = Reply::Welcome { version: 1 };
    let mut bytes = encoded(|out| welcome.encode(out));
    assert_eq!(bytes[..], *b"ANNULETW\x07\0\x01\x01\0\xD9\x11\xB2\xE7");
    assert_eq!(Reply::read(&mut bytes), Ok(Some(welcome)));
    let refused = Reply::Refused { text: "no".into() };
    let mut bytes = encoded(|out| refused.encode(out));
    assert_eq!(bytes[..], *b"ANNULETW\x08\0\x02\x02no\x15\x6E\x2A\xDC");
    assert_eq!(Reply::read(&mut bytes), Ok(Some(refused)));
    let unknown = Reply::NotMember { epoch: 2, commit: 7 };
    let mut bytes = encoded(|out| unknown.encode(out));
    assert_eq!(bytes[..], *b"ANNULETW\x11\0\x03\x02\0\0\0\x07\0\0\0\0\0\0\0\x1F\x80\x8A]");
    assert_eq!(Reply::read(&mut bytes), Ok(Some(unknown)));
    let copy = Reply::Copy { original: 9, epoch: 2, commit: 7, is_registered: true };
    let mut bytes = encoded(|out| copy.encode(out));
    assert_eq!(
        bytes[..],
        *b"ANNULETW\x1A\0\x04\x09\0\0\0\0\0\0\0\x02\0\0\0\x07\0\0\0\0\0\0\0\x01\x3D\x94\x58\x36"
    );
    assert_eq!(Reply::read(&mut bytes), Ok(Some(copy)));
    let long = Reply::Refused { text: "ä".repeat(TEXT_BYTES_MAX) };
    let cut = Reply::Refused { text: "ä".repeat(TEXT_BYTES_MAX / 2) };
    assert_eq!(Reply::read(&mut encoded(|out| long.encode(out))), Ok(Some(cut)));
}

fn join() -> Join {
    let (address, zone) = ("127.0.0.1:809".into(), "z1".into());
    Join { versions: Versions::OURS, weight: 100, from: "n4@host".into(), address, zone }
}

#[test]
fn golden_join() {
    let mut bytes = encoded(|out| join().encode(out));
    assert_eq!(bytes[..], *b"ANNULETJ#\0\x01\0\x0C\0d\0\x07n4@host\x0D127.0.0.1:809\x02z1\xCE\x31\x39\x1B");
    bytes.put_slice(b"more");
    assert_eq!(Greeting::read(&mut bytes), Ok(Some(Greeting::Join(join()))));
    assert_eq!(bytes[..], *b"more");
}

#[test]
fn a_greeting_comes_byte_by_byte() {
    let hello = (encoded(|out| hello().encode(out)), Greeting::Hello(hello()));
    let join = (encoded(|out| join().encode(out)), Greeting::Join(join()));
    for (bytes, greeting) in [hello, join] {
        let mut buf = BytesMut::new();
        let (last, rest) = bytes.split_last().unwrap();
        for &byte in rest {
            buf.put_u8(byte);
            assert_eq!(Greeting::read(&mut buf), Ok(None));
        }
        buf.put_u8(*last);
        assert_eq!(Greeting::read(&mut buf), Ok(Some(greeting)));
    }
}

/// A greeting of any fields.
fn sealed(fields: &[u8]) -> BytesMut {
    encoded(|out| {
        out.put_slice(b"ANNULETP");
        out.put_u16_le(u16::try_from(fields.len() + 4).unwrap());
        out.put_slice(fields);
        let crc = crc32c(out);
        out.put_u32_le(crc);
    })
}

#[test]
fn strangers_are_known_at_once() {
    let read = |bytes: &[u8]| Greeting::read(&mut BytesMut::from(bytes));
    assert_eq!(read(b"BNNULETJ"), Err(HelloError::Magic));
    assert_eq!(read(b"G"), Err(HelloError::Magic));
    assert_eq!(read(b"ANNULETW"), Err(HelloError::Magic));
    assert_eq!(read(b"ANNULETP\0\x10"), Err(HelloError::TooLarge(10 + HELLO_BYTES_MAX)));
    assert_eq!(read(b"ANNULETP\0\0"), Err(HelloError::Checksum));
    assert!(matches!(read(&sealed(b"\x01\0")), Err(HelloError::Malformed(_))));
    let mut damaged = encoded(|out| hello().encode(out));
    damaged[30] ^= 1;
    assert_eq!(read(&damaged), Err(HelloError::Checksum));
}

#[test]
fn what_a_newer_program_appends_is_skipped() {
    let bytes = encoded(|out| hello().encode(out));
    let mut newer = sealed(&[&bytes[10..bytes.len() - 4], b"and more"].concat());
    assert_eq!(Hello::read(&mut newer), Ok(Some(hello())));
}

#[test]
fn nodes_agree_or_say_why_not() {
    let speaks = |min, max| Hello { versions: Versions { min, max }, ..hello() };
    assert_eq!(negotiate(&hello(), &hello()), Ok(VERSION));
    assert_eq!(negotiate(&speaks(1, 3), &speaks(2, 5)), Ok(3));
    assert_eq!(negotiate(&speaks(2, 5), &speaks(1, 3)), Ok(3));
    let refusal = negotiate(&speaks(1, 2), &speaks(3, 4)).unwrap_err();
    assert_eq!(refusal.to_string(), "peer protocol versions 3 to 4 are offered, 1 to 2 spoken here");
    assert!(negotiate(&speaks(3, 4), &speaks(1, 2)).is_err());
    let other = Hello { cluster: 0xC2, ..hello() };
    assert_eq!(negotiate(&hello(), &other), Err(Refusal::Cluster { ours: 0xC1, theirs: 0xC2 }));
}

#[test]
fn a_cluster_is_its_ring_size_and_its_members() {
    let cluster = cluster_fingerprint(64, 64, ["n1@h", "n2@h"]);
    assert_eq!(cluster, 0x7809_A954_1A68_4372);
    for other in [
        cluster_fingerprint(128, 128, ["n1@h", "n2@h"]),
        cluster_fingerprint(64, 64, ["n1@h"]),
        cluster_fingerprint(64, 1024, ["n1@h", "n2@h"]),
        cluster_fingerprint(64, 64, ["n1@hn2@h"]),
        cluster_fingerprint(64, 64, ["n1@h", "n3@h"]),
    ] {
        assert_ne!(other, cluster);
    }
}

#[test]
fn a_reader_stays_within_its_bytes() {
    let reader = || Reader::new(Bytes::from_static(b"\x05\x01\x02\x03"));
    assert!(reader().bytes().is_err());
    assert!(reader().u64().is_err());
    assert_eq!(reader().u32(), Ok(0x0302_0105));
    assert!(reader().end().is_err());
    let mut one = reader();
    assert_eq!(
        (one.u8(), one.u16(), one.varint(), one.u8()),
        (Ok(5), Ok(0x0201), Ok(3), Err(Malformed("it ends early")))
    );
    assert_eq!(one.end(), Ok(()));
    assert!(Reader::new(Bytes::from_static(&[0xFF; 11])).varint().is_err());
}

#[test]
fn random_bytes_never_panic() {
    let mut rng = SplitMix64::new(1);
    let below = |rng: &mut SplitMix64, end: usize| usize::try_from(rng.below(end as u64)).unwrap();
    let good = [
        frame(b"some fields", Some(&Bytes::from_static(b"value"))).0,
        encoded(|out| hello().encode(out)),
        encoded(|out| join().encode(out)),
        encoded(|out| Reply::Refused { text: "reason".into() }.encode(out)),
    ];
    for round in 0..10_000 {
        let mut bytes = good[round % good.len()].clone();
        for _ in 0..=below(&mut rng, 3) {
            let at = below(&mut rng, bytes.len());
            bytes[at] = rng.next_u64().to_le_bytes()[0];
        }
        // With a right checksum, so that the fields behind it are reached.
        let summed = bytes.len() - 4;
        let crc = crc32c(&bytes[..summed]).to_le_bytes();
        if round % good.len() > 0 && rng.below(2) == 0 {
            bytes[summed..].copy_from_slice(&crc);
        }
        bytes.truncate(bytes.len() - below(&mut rng, 2));
        drop(next_frame(&mut bytes.clone(), 1 << 10));
        drop(Greeting::read(&mut bytes.clone()));
        drop(Reply::read(&mut bytes));
    }
}

proptest! {
    #[test]
    fn frames_come_back_however_they_are_cut(
        frames in prop::collection::vec(
            (any::<u8>(), any::<u64>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..40)), 0..5),
        step in 1usize..40,
    ) {
        let mut out = BytesMut::new();
        for (kind, id, ttl_ms, body) in &frames {
            let start = begin(&mut out);
            let (fields, value) = body.split_at(body.len() / 2);
            out.put_slice(fields);
            let header = Header { kind: *kind, id: *id, ttl_ms: *ttl_ms };
            prop_assert_eq!(end(&mut out, start, header, Some(&Bytes::copy_from_slice(value))), Ok(None));
        }
        let (mut buf, mut back) = (BytesMut::new(), Vec::new());
        for piece in out.chunks(step) {
            buf.put_slice(piece);
            while let Some(frame) = next_frame(&mut buf, FRAME_BYTES_MAX).unwrap() {
                back.push((frame.kind, frame.id, frame.ttl_ms, frame.body.to_vec()));
            }
        }
        prop_assert_eq!(back, frames);
    }
}
