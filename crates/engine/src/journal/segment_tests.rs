//! What stands around the records: names, header, heads, seal, trailer.

use super::record::{self, Kind};
use super::segment::*;
use crate::entry::{Entry, Jsn, Location, Seq};
use crate::error::Error;
use base::Rng;
use base::rng::SplitMix64;
use proptest::prelude::*;

const SEGMENT: SegmentId = SegmentId(0x1F);

#[test]
fn names_go_both_ways_and_nothing_else_is_taken() {
    assert_eq!(file_name(SEGMENT), "000000000000001f.seg");
    assert_eq!(path_in_store(SEGMENT), "journal/000000000000001f.seg");
    for segment in [SegmentId(0), SEGMENT, SegmentId(u64::MAX)] {
        assert_eq!(parse_file_name(&file_name(segment)), Some(segment));
    }
    for name in ["", ".seg", "1f.seg", "000000000000001F.seg", "+00000000000001f.seg", "000000000000001f.tmp"]
    {
        assert_eq!(parse_file_name(name), None, "{name}");
    }
}

#[test]
fn golden_header() {
    let bytes = encode_header(SEGMENT, 0x0102_0304_0506_0708);
    let mut wanted = *b"ANNULETJ\x01\0\0\0\0\0\0\0\x1F\0\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\
        \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    wanted[60..].copy_from_slice(&GOLDEN_HEADER_CRC.to_le_bytes());
    assert_eq!(bytes, wanted);
    let header = parse_header(&bytes, SEGMENT).unwrap();
    assert_eq!(
        header,
        SegmentHeader { segment: SEGMENT, incarnation: 0x0102_0304_0506_0708, stands_for: (Jsn(0), Jsn(0)) }
    );
}

const GOLDEN_HEADER_CRC: u32 = 0x8CF3_ABB6;

#[test]
fn every_flip_and_cut_of_a_header_is_found() {
    let good = encode_header(SEGMENT, 5);
    for bit in 0..good.len() * 8 {
        let mut bytes = good;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(parse_header(&bytes, SEGMENT), Err(HeaderError::Damaged));
    }
    for len in 0..good.len() {
        assert_eq!(parse_header(&good[..len], SEGMENT), Err(HeaderError::Damaged));
    }
    assert_eq!(parse_header(&good, SegmentId(0x20)), Err(HeaderError::Damaged));
}

#[test]
fn a_newer_version_says_so() {
    let mut bytes = encode_header(SEGMENT, 5);
    bytes[8] = 2;
    let crc = base::checksum::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(parse_header(&bytes, SEGMENT), Err(HeaderError::Version(2)));
}

#[test]
fn golden_group_mark_head() {
    let durable = Position { segment: SegmentId(3), offset: 0x0102 };
    let head = durable_mark(durable);
    assert_eq!(head, [3, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(parse_durable_mark(&head), Some(durable));
    assert_eq!(parse_durable_mark(&head[1..]), None);
}

#[test]
fn golden_trailer_and_its_flips() {
    let good = encode_trailer(SEGMENT, 0x0102);
    let mut wanted = *b"ANNULETE\x02\x01\0\0\0\0\0\0\x1F\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0";
    wanted[28..].copy_from_slice(&GOLDEN_TRAILER_CRC.to_le_bytes());
    assert_eq!(good, wanted);
    assert_eq!(parse_trailer(&good, SEGMENT), Some(0x0102));
    for bit in 0..good.len() * 8 {
        let mut bytes = good;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(parse_trailer(&bytes, SEGMENT), None);
    }
    assert_eq!(parse_trailer(&good, SegmentId(1)), None);
    assert_eq!(parse_trailer(&good[1..], SEGMENT), None);
}

const GOLDEN_TRAILER_CRC: u32 = 0xB946_C24A;

fn prefix(jsn: u64, head: &[u8]) -> Vec<u8> {
    let mut prefix = Vec::new();
    let location = Location::Journal { offset: 64, len: 100 };
    Entry { jsn: Jsn(jsn), location, head, inline: b"", expires_ms: None }.encode_prefix(&mut prefix);
    prefix
}

#[test]
fn golden_seal() {
    let mut builder = SealBuilder::new();
    builder.push(Jsn(10), Seq(20), b"key", &[&prefix(10, b"head"), b"head", b""]);
    builder.push(Jsn(11), Seq(18), b"oth", &[&prefix(11, b"head"), b"head"]);
    builder.count(Jsn(12), Seq(19));
    let end = builder.finish(SEGMENT, 0x100);
    assert_eq!(end.parts.len(), 2);
    let heads = record::parse(&end.parts[0], SEGMENT, 0x100).unwrap();
    assert_eq!((heads.kind, heads.jsn, heads.seq), (Kind::Heads, Jsn(13), Seq(0)));
    assert_eq!(
        heads.value,
        b"\x03key\x28\x09\x01\x0A\x40\x64\x04head\x03oth\x03\x09\x01\x0B\x40\x64\x04head"
    );
    let seal = record::parse(&end.parts[1], SEGMENT, end.seal_offset).unwrap();
    assert_eq!((seal.kind, seal.jsn, seal.seq), (Kind::Seal, Jsn(13), Seq(0)));
    let fields = [10u64, 13, 18, 20, 3, 2, 0x100];
    assert_eq!(seal.head, fields.map(u64::to_le_bytes).concat());
    assert_eq!(Seal::from_record(&seal).unwrap(), end.seal);
    assert_eq!(end.parts[1][end.parts[1].len() - TRAILER_BYTES..], encode_trailer(SEGMENT, end.seal_offset));
    let written: usize = end.parts.iter().map(|part| part.len()).sum();
    assert_eq!(end.end, 0x100 + written as u64);
}

#[test]
fn heads_with_whole_seqs_are_read() {
    let heads: Result<Vec<_>, _> = Heads::new(Kind::HeadsV1, b"\x03key\x14\x02ab\x00\x13\x00").collect();
    let [first, second] = [(&b"key"[..], 20, &b"ab"[..]), (b"", 19, b"")].map(|(key, seq, entry)| Head {
        key,
        seq: Seq(seq),
        entry,
    });
    assert_eq!(heads, Ok(vec![first, second]));
}

proptest! {
    #[test]
    fn seqs_go_any_way(seqs in prop::collection::vec(any::<u64>(), 1..50)) {
        let mut builder = SealBuilder::new();
        for (jsn, seq) in (0..).zip(&seqs) {
            builder.push(Jsn(jsn), Seq(*seq), b"", &[b""]);
        }
        let end = builder.finish(SEGMENT, 64);
        let record = record::parse(&end.parts[0], SEGMENT, 64).unwrap();
        let found = Heads::new(record.kind, record.value).map(|head| Ok(head?.seq.0));
        prop_assert_eq!(found.collect::<Result<Vec<u64>, Error>>(), Ok(seqs));
    }
}

#[test]
fn many_heads_come_in_chunks_and_in_order() {
    const COUNT: u64 = 3000;
    let head = vec![b'h'; 1000];
    let mut builder = SealBuilder::new();
    for jsn in 0..COUNT {
        builder.push(Jsn(jsn), Seq(jsn + 7), format!("key {jsn}").as_bytes(), &[&prefix(jsn, &head), &head]);
    }
    let gathered = builder.bytes();
    assert_eq!(builder.records(), COUNT);
    let end = builder.finish(SEGMENT, 4096);
    assert!(end.parts.len() == 4, "{} parts", end.parts.len());
    assert!(end.end - 4096 - (gathered as u64) < 300, "bytes() says what the end will take");
    let (mut at, mut jsn) = (4096, 0);
    for part in &end.parts[..3] {
        let record = record::parse(part, SEGMENT, at).unwrap();
        for found in Heads::new(record.kind, record.value) {
            let found = found.unwrap();
            let entry = Entry::decode(found.entry).unwrap();
            assert_eq!((entry.jsn, found.seq, entry.head), (Jsn(jsn), Seq(jsn + 7), &head[..]));
            assert_eq!(found.key, format!("key {jsn}").as_bytes());
            jsn += 1;
        }
        at += part.len() as u64;
    }
    assert_eq!((jsn, at), (COUNT, end.seal_offset));
}

#[test]
fn random_bytes_as_heads_end() {
    let mut rng = SplitMix64::new(2);
    for _ in 0..10_000 {
        let len = usize::try_from(rng.below(60)).unwrap();
        let bytes: Vec<u8> = (0..len).map(|_| rng.below(16) as u8).collect();
        for kind in [Kind::Heads, Kind::HeadsV1] {
            let found: Vec<_> = Heads::new(kind, &bytes).collect();
            assert!(found.len() <= len);
            if let Some(bad) = found.iter().position(Result::is_err) {
                assert_eq!(bad, found.len() - 1, "nothing follows nonsense");
                assert_eq!(found[bad], Err(Error::Malformed("block of heads")));
            }
        }
    }
}
