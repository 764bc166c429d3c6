//! The file as bytes: golden, torn, damaged.

use super::*;
use crate::log::{Conf, Identity, Log, Payload};
use crate::state::Command;
use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use std::collections::BTreeSet;

const CLUSTER: ClusterId = ClusterId(0xC1);
const NODE: NodeId = NodeId(2);

/// Made by another program, from `docs/formats/membership.md`.
const GOLDEN: &str = "\
414e4d4c02c10000000000000002007d68906b2400000096dfa9bd040100000009000000000000000500000000000000\
02000000000000000200000200000018000000a8a2816301010000000900000000000000030000000000000001020015\
00000059cf1e7502060000000000000003000000000000000207020009000000525c3ea5030600000000000000";

fn golden() -> Bytes {
    let digits = GOLDEN.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn records() -> Vec<Record> {
    let epoch = Epoch { number: 1, nonce: 9 };
    let voters = BTreeSet::from([NodeId(0), NODE]);
    let conf = Conf { voters, learners: BTreeSet::new() };
    let command = Payload::Command(Command::Gone { node: NODE });
    vec![
        Record::Base { epoch, snapshot: Snapshot { index: 5, term: 2, conf, state: Bytes::new() } },
        Record::Hard { epoch, term: 3, voted: Some(NODE) },
        Record::Entry(Entry { index: 6, term: 3, payload: command }),
        Record::Commit(6),
    ]
}

fn written() -> Bytes {
    let mut out = BytesMut::new();
    put_header(&mut out, CLUSTER, NODE);
    records().iter().for_each(|record| record.put(&mut out));
    out.freeze()
}

#[test]
fn golden_bytes() {
    assert_eq!(written(), golden());
    assert_eq!(read(&golden(), CLUSTER, NODE), Ok((records(), golden().len())));
}

#[test]
fn a_torn_end_is_cut_off_and_damage_is_not() {
    let whole = written();
    for len in HEADER_LEN..whole.len() {
        let (read, sound) = read(&whole.slice(..len), CLUSTER, NODE).unwrap();
        assert!(sound <= len && records().starts_with(&read));
    }
    let last = whole.len() - (FRAME_LEN + 9);
    for at in HEADER_LEN..last {
        let mut bad = BytesMut::from(&whole[..]);
        bad[at] ^= 1;
        assert!(matches!(read(&bad.freeze(), CLUSTER, NODE), Err(FileError::Damage(_))), "byte {at}");
    }
}

#[test]
fn what_is_not_ours_is_refused() {
    let whole = written();
    assert_eq!(read(&Bytes::new(), CLUSTER, NODE), Err(FileError::Magic));
    let error = FileError::Foreign { cluster: CLUSTER, node: NODE };
    assert_eq!(read(&whole, ClusterId(1), NODE), Err(error));
    assert_eq!(read(&whole, CLUSTER, NodeId(1)), Err(error));
    let mut newer = BytesMut::from(&whole[..]);
    newer[4] = 3;
    assert_eq!(read(&newer.freeze(), CLUSTER, NODE), Err(FileError::Version(3)));
    let mut header = BytesMut::from(&whole[..]);
    header[7] ^= 1;
    assert_eq!(read(&header.freeze(), CLUSTER, NODE), Err(FileError::Damage(0)));
}

#[test]
fn entries_before_the_snapshot_alone_are_malformed() {
    let base = Record::Base {
        epoch: Epoch { number: 1, nonce: 9 },
        snapshot: Snapshot { index: 5, term: 2, conf: Conf::default(), state: Bytes::new() },
    };
    let entry = Record::Entry(Entry { index: 3, term: 2, payload: Payload::Nothing });
    let mut out = BytesMut::new();
    put_header(&mut out, CLUSTER, NODE);
    [base, entry].iter().for_each(|record| record.put(&mut out));

    let identity = Identity { cluster: CLUSTER, node: NODE, starts: 1, start: 1, address: "h:2".into() };
    let rng = Box::new(SplitMix64::new(1));
    let error = Log::open(identity, &out.freeze(), rng, Monotonic(0)).err();
    assert_eq!(error, Some(FileError::Malformed(Malformed("entries end before the snapshot"))));
}

#[test]
fn random_bytes_make_no_panic() {
    let mut rng = SplitMix64::new(3);
    for _ in 0..20_000 {
        let mut out = BytesMut::new();
        put_header(&mut out, CLUSTER, NODE);
        let body: Vec<u8> = (0..1 + rng.below(60)).map(|_| u8::try_from(rng.below(6)).unwrap()).collect();
        let len = u32::try_from(body.len()).unwrap().to_le_bytes();
        out.put_slice(&len);
        out.put_u32_le(crc32c(&[&len, &body[..]].concat()));
        out.put_slice(&body);
        // It is whole and sound: it is a record, or an error, and nothing is cut off.
        let len = out.len();
        match read(&out.freeze(), CLUSTER, NODE) {
            Ok((records, sound)) => assert_eq!((records.len(), sound), (1, len)),
            Err(error) => assert!(matches!(error, FileError::Malformed(_)), "{error}"),
        }
    }
}
