//! Records: their bytes, and that nothing but those bytes passes.

use super::record::*;
use super::segment::SegmentId;
use crate::entry::{Jsn, KEY_BYTES_MAX, Seq};
use base::Rng;
use base::checksum::crc32c;
use base::rng::SplitMix64;
use proptest::prelude::*;

const SEGMENT: SegmentId = SegmentId(7);
const OFFSET: u64 = 64;
const KINDS: [Kind; 12] = [
    Kind::Data,
    Kind::Delete,
    Kind::RangeDrop,
    Kind::Proposed,
    Kind::HardState,
    Kind::CommitMark,
    Kind::TruncateMark,
    Kind::GroupMark,
    Kind::HeadsV1,
    Kind::Seal,
    Kind::Index,
    Kind::Heads,
];

fn sample(kind: Kind) -> Vec<u8> {
    let mut out = Vec::new();
    let (key, head, value): (&[u8], &[u8], &[&[u8]]) = (b"key", b"head", &[b"val", b"ue"]);
    encode_record(&mut out, SEGMENT, OFFSET, kind, FLAG_INLINE | FLAG_MORE, Jsn(5), Seq(9), key, head, value);
    out
}

#[test]
fn golden_bytes() {
    assert_eq!(sample(Kind::Data), GOLDEN_DATA);
}

#[rustfmt::skip]
const GOLDEN_DATA: [u8; 64] = [
    0xF1, b'R', b'J', 0x9E,  0xFB, 0xCA, 0x69, 0x4A,  0x91, 0x71, 0x79, 0x20,  0x63, 0x03, 0xE0, 0xE1,
    1, 3, 0, 0,  3, 0, 0, 0,  5, 0, 0, 0, 0, 0, 0, 0,
    9, 0, 0, 0, 0, 0, 0, 0,  4, 0, 0, 0,  5, 0, 0, 0,
    b'k', b'e', b'y', b'h', b'e', b'a', b'd', b'v', b'a', b'l', b'u', b'e',  0, 0, 0, 0,
];

#[test]
fn golden_kinds_and_header_checksums() {
    let crcs = KINDS.map(|kind| {
        let bytes = sample(kind);
        assert_eq!(bytes[8..16], GOLDEN_DATA[8..16]);
        assert_eq!(bytes[17..], GOLDEN_DATA[17..]);
        (bytes[16], u32::from_le_bytes(bytes[4..8].try_into().unwrap()))
    });
    assert_eq!(crcs, GOLDEN_KINDS);
}

#[rustfmt::skip]
const GOLDEN_KINDS: [(u8, u32); 12] = [
    (1, 0x4A69_CAFB),    (2, 0x0C82_BBA6),
    (3, 0x3124_6B6D),    (4, 0x8154_591C),
    (5, 0xBCF2_89D7),    (6, 0xFA19_F88A),
    (7, 0xC7BF_2841),    (8, 0x9F15_EA99),
    (9, 0xA2B3_3A52),    (10, 0xE458_4B0F),
    (11, 0xD9FE_9BC4),    (12, 0x698E_A9B5),
];

#[test]
fn the_checksums_are_those_of_the_format_page() {
    let bytes = sample(Kind::Data);
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut covered = Vec::new();
    covered.extend_from_slice(&7u64.to_le_bytes());
    covered.extend_from_slice(&64u64.to_le_bytes());
    covered.extend_from_slice(&bytes[8..48]);
    assert_eq!((word(4), word(8), word(12)), (crc32c(&covered), crc32c(b"keyhead"), crc32c(b"value")));
}

#[test]
fn a_record_is_appended_and_its_span_is_what_a_reader_needs() {
    let mut out = b"before".to_vec();
    let span = encode_record(&mut out, SEGMENT, 128, Kind::Data, 0, Jsn(1), Seq(1), b"k", b"", &[b"v"]);
    assert_eq!((span.offset, span.len, span.end()), (128, 50, 184));
    assert_eq!(out.len(), 6 + 56);
    let record = parse(&out[6..6 + span.len as usize], SEGMENT, 128).unwrap();
    assert_eq!((record.key, record.value, record.value_range()), (&b"k"[..], &b"v"[..], 49..50));
}

#[test]
fn another_place_is_refused() {
    let bytes = sample(Kind::Data);
    assert!(parse(&bytes, SEGMENT, OFFSET).is_ok());
    assert_eq!(parse(&bytes, SEGMENT, OFFSET + 8), Err(ParseError::BadHeader));
    assert_eq!(parse(&bytes, SegmentId(8), OFFSET), Err(ParseError::BadHeader));
}

#[test]
fn every_flipped_bit_is_found_and_costs_no_more_than_it_must() {
    let good = sample(Kind::Data);
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match (bit / 8, parse(&bytes, SEGMENT, OFFSET)) {
            (0..48, Err(ParseError::BadHeader)) => {}
            (48..55, Err(ParseError::BadKey { header })) => {
                assert_eq!((header.jsn, header.seq), (Jsn(5), Seq(9)))
            }
            (55.., Err(ParseError::BadValue { header, key, head, .. })) => {
                assert_eq!((header.jsn, key, head), (Jsn(5), &b"key"[..], &b"head"[..]));
            }
            (byte, result) => panic!("a flip in byte {byte} gave {result:?}"),
        }
    }
}

#[test]
fn a_cut_record_says_how_long_it_must_be() {
    let good = sample(Kind::Data);
    for len in 0..60 {
        let needs = if len < HEADER_BYTES { HEADER_BYTES } else { 60 };
        assert_eq!(parse(&good[..len], SEGMENT, OFFSET), Err(ParseError::Truncated { needs }));
    }
    for len in 60..=64 {
        assert!(parse(&good[..len], SEGMENT, OFFSET).is_ok());
    }
}

/// A header with any fields and the right checksum.
fn forged(change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = sample(Kind::Data);
    change(&mut bytes);
    let mut covered = Vec::new();
    covered.extend_from_slice(&SEGMENT.0.to_le_bytes());
    covered.extend_from_slice(&OFFSET.to_le_bytes());
    covered.extend_from_slice(&bytes[8..48]);
    bytes[4..8].copy_from_slice(&crc32c(&covered).to_le_bytes());
    bytes
}

#[test]
fn a_good_checksum_does_not_make_a_newer_format_ours() {
    let kind = forged(|bytes| bytes[16] = 13);
    assert_eq!(parse(&kind, SEGMENT, OFFSET), Err(ParseError::Unknown("record kind")));
    for at in [17, 18, 19] {
        let flag = forged(|bytes| bytes[at] |= 0x80);
        assert_eq!(parse(&flag, SEGMENT, OFFSET), Err(ParseError::Unknown("record flag")));
    }
    let over = u32::try_from(KEY_BYTES_MAX + 1).unwrap().to_le_bytes();
    let long = forged(|bytes| bytes[20..24].copy_from_slice(&over));
    assert_eq!(parse(&long, SEGMENT, OFFSET), Err(ParseError::Unknown("record length over its limit")));
    for at in [40, 44] {
        let long = forged(|bytes| bytes[at..at + 4].fill(0xFF));
        assert_eq!(parse(&long, SEGMENT, OFFSET), Err(ParseError::Unknown("record length over its limit")));
    }
}

#[test]
#[should_panic(expected = "a part of")]
fn a_key_over_its_limit_is_the_callers_bug() {
    let key = vec![0; KEY_BYTES_MAX + 1];
    encode_record(&mut Vec::new(), SEGMENT, OFFSET, Kind::Data, 0, Jsn(1), Seq(1), &key, b"", &[]);
}

#[test]
fn random_bytes_are_no_record() {
    let mut rng = SplitMix64::new(1);
    let good = sample(Kind::Data);
    for round in 0..10_000 {
        let len = usize::try_from(rng.below(200)).unwrap();
        let mut bytes: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        if round % 2 == 0 {
            // Mostly right, so that every check is reached.
            let keep = len.min(good.len());
            bytes[..keep].copy_from_slice(&good[..keep]);
            if keep > 0 {
                let at = usize::try_from(rng.below(keep as u64)).unwrap();
                bytes[at] = bytes[at].wrapping_add(1 + rng.below(255) as u8);
            }
        }
        assert!(parse(&bytes, SEGMENT, OFFSET).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_comes_back(
        kind in 0usize..10, flags in 0u8..4, jsn: u64, seq: u64, segment: u64, slot in 0u64..1 << 28,
        key in proptest::collection::vec(any::<u8>(), 0..40),
        head in proptest::collection::vec(any::<u8>(), 0..40),
        value in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..4),
    ) {
        let (kind, offset, segment) = (KINDS[kind], slot * 8, SegmentId(segment));
        let parts: Vec<&[u8]> = value.iter().map(Vec::as_slice).collect();
        let mut out = Vec::new();
        let span = encode_record(&mut out, segment, offset, kind, flags, Jsn(jsn), Seq(seq), &key, &head, &parts);
        prop_assert_eq!(out.len(), padded_len(span.len as usize));
        let whole = value.concat();
        let wanted =
            Record { kind, flags, jsn: Jsn(jsn), seq: Seq(seq), key: &key, head: &head, value: &whole, expires_ms: None };
        let record = parse(&out[..span.len as usize], segment, offset).unwrap();
        prop_assert_eq!(record, wanted);
        prop_assert_eq!(&out[record.value_range()], &whole[..]);
        prop_assert_eq!(parse(&out, segment, offset).unwrap(), wanted);
    }
}

/// The bytes were computed apart from this program.
#[test]
fn golden_expiry() {
    let mut out = Vec::new();
    let head = [&1_700_000_000_000u64.to_le_bytes()[..], b"head"].concat();
    encode_record(
        &mut out,
        SEGMENT,
        OFFSET,
        Kind::Data,
        FLAG_EXPIRES,
        Jsn(5),
        Seq(9),
        b"key",
        &head,
        &[b"value"],
    );
    assert_eq!(out[4..16], GOLDEN_EXPIRY_CRCS);
    assert_eq!(out[48..68], *b"key\x00\x68\xE5\xCF\x8B\x01\x00\x00headvalue");
    let record = parse(&out, SEGMENT, OFFSET).unwrap();
    assert_eq!((record.head, record.expires_ms), (&b"head"[..], Some(1_700_000_000_000)));
}

/// An expiry needs a data record and eight bytes of head.
#[test]
fn an_expiry_without_a_place_is_refused() {
    for (kind, head) in [(Kind::Delete, &[0u8; 12][..]), (Kind::Data, b"1234567")] {
        let mut out = Vec::new();
        encode_record(&mut out, SEGMENT, OFFSET, kind, FLAG_EXPIRES, Jsn(5), Seq(9), b"key", head, &[]);
        assert!(matches!(parse(&out, SEGMENT, OFFSET), Err(ParseError::Unknown(_))));
    }
}

/// The bytes were computed apart from this program: an LZ4 block made by hand ([`crate::compression`]'s tests).
#[test]
fn golden_compressed() {
    let mut out = Vec::new();
    let value = b"\x2C\x01\0\0\x1Fa\x01\0\xFF\x14\x50aaaaa";
    let (flags, key) = (FLAG_LZ4, b"key");
    encode_record(&mut out, SEGMENT, OFFSET, Kind::Data, flags, Jsn(5), Seq(9), key, b"head", &[value]);
    assert_eq!((&out[4..16], out[17]), (&GOLDEN_COMPRESSED_CRCS[..], 8));
    let record = parse(&out, SEGMENT, OFFSET).unwrap();
    let codec = crate::compression::Codec::of_flags(record.flags).unwrap();
    assert_eq!(codec.decompress(record.value).unwrap(), vec![b'a'; 300]);
}

/// Only a value that the journal alone has can be compressed, and in one way.
#[test]
fn a_compression_without_a_place_is_refused() {
    for (kind, flags) in
        [(Kind::Delete, FLAG_LZ4), (Kind::Data, FLAG_LZ4 | FLAG_INLINE), (Kind::Data, FLAG_LZ4 | FLAG_ZSTD)]
    {
        let mut out = Vec::new();
        encode_record(&mut out, SEGMENT, OFFSET, kind, flags, Jsn(5), Seq(9), b"key", b"", &[]);
        assert!(matches!(parse(&out, SEGMENT, OFFSET), Err(ParseError::Unknown(_))));
    }
}

const GOLDEN_COMPRESSED_CRCS: [u8; 12] =
    [0xE5, 0xFA, 0x01, 0x4F, 0x91, 0x71, 0x79, 0x20, 0x6D, 0x92, 0x9E, 0x0D];

const GOLDEN_EXPIRY_CRCS: [u8; 12] = [0xA8, 0xA5, 0x2F, 0x1F, 0x55, 0x39, 0xC4, 0x7F, 0x63, 0x03, 0xE0, 0xE1];

/// An entry of a group's log takes no seq; its values may be compressed, and it alone may replace others.
#[test]
fn an_entry_of_a_groups_log_has_rules_of_its_own() {
    let encoded = |kind, flags| {
        let mut out = Vec::new();
        let (segment, jsn, seq) = (SegmentId(1), Jsn(5), Seq(9));
        encode_record(&mut out, segment, 64, kind, flags, jsn, seq, b"key", &[7; 32], &[b"\x05\0\0\0value"]);
        out
    };
    let allowed = |kind, flags| parse(&encoded(kind, flags), SegmentId(1), 64).is_ok();
    let flags = [0, FLAG_INLINE, FLAG_REPLACES, FLAG_LZ4, FLAG_REPLACES | FLAG_LZ4 | FLAG_MORE];
    assert_eq!(flags.map(|flags| allowed(Kind::Proposed, flags)), [true; 5]);
    assert_eq!(flags.map(|flags| allowed(Kind::Data, flags)), [true, true, false, true, false]);
    assert_eq!(flags.map(|flags| allowed(Kind::CommitMark, flags)), [true, true, false, false, false]);
    assert!(!allowed(Kind::Proposed, FLAG_LZ4 | FLAG_INLINE));
    let after = |kind: Kind| (kind.jsn_after(Jsn(5)), kind.seq_after(Seq(9)));
    assert_eq!(after(Kind::Proposed), (Jsn(6), Some(Seq(9))));
    assert_eq!(after(Kind::CommitMark), (Jsn(6), Some(Seq(10))));
}
