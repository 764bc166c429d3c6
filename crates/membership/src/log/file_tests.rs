//! The file as bytes: golden, torn, damaged.

use super::*;
use crate::log::{Conf, Identity, Log, Payload};
use crate::state::{Command, State};
use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use ring::RingSize;
use std::collections::BTreeSet;

const CLUSTER: ClusterId = ClusterId(0xC1);
const NODE: NodeId = NodeId(2);

/// Made by another program, from `docs/formats/membership.md`.
const GOLDEN: &str = "\
414e4d4c02c10000000000000002007d68906b2400000096dfa9bd040100000009000000000000000500000000000000\
02000000000000000200000200000018000000a8a2816301010000000900000000000000030000000000000001020015\
00000059cf1e7502060000000000000003000000000000000207020009000000525c3ea5030600000000000000\
01000000850d924805";

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
        Record::Restored,
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
    let last = whole.len() - (FRAME_LEN + 1);
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

/// A file's log, or the reason why it is not opened.
fn opened(file: BytesMut) -> Result<(), FileError> {
    let identity = Identity { cluster: CLUSTER, node: NODE, starts: 1, start: 1, address: "h:2".into() };
    Log::open(identity, &file.freeze(), Box::new(SplitMix64::new(1)), Monotonic(0)).map(drop)
}

/// A program goes on with a log only if it knows all that is in it.
#[test]
fn a_log_of_a_newer_program_is_not_opened() {
    let founded = State::found(CLUSTER, RingSize::new(8).unwrap(), "a@h", "h:1", "").unwrap().encode();
    let with_base = |state: Bytes| {
        let conf = Conf { voters: BTreeSet::from([NODE]), learners: BTreeSet::new() };
        let snapshot = Snapshot { index: 1, term: 1, conf, state };
        let mut out = BytesMut::new();
        put_header(&mut out, CLUSTER, NODE);
        let epoch = Epoch { number: 1, nonce: 9 };
        Record::Base { epoch, snapshot }.put(&mut out);
        Record::Hard { epoch, term: 1, voted: None }.put(&mut out);
        out
    };
    assert_eq!(opened(with_base(founded.clone())), Ok(()));
    let section: Bytes = [b"\x04", &founded[1..], b"\x01\xff\0"].concat().into();
    let newer = FileError::Malformed(Malformed("a state of a newer program"));
    assert_eq!(opened(with_base(section)), Err(newer));

    let mut entry = BytesMut::new();
    let payload = Payload::Command(Command::PrepareStores);
    Record::Entry(Entry { index: 2, term: 1, payload }).put(&mut entry);
    let mut known = with_base(founded.clone());
    known.extend_from_slice(&entry);
    assert_eq!(opened(known), Ok(()));
    // Another kind of command, with the checksum of its record.
    *entry.last_mut().unwrap() = 0xff;
    let crc = crc32c(&[&entry[..4], &entry[FRAME_LEN..]].concat());
    entry[4..FRAME_LEN].copy_from_slice(&crc.to_le_bytes());
    let mut newer = with_base(founded);
    newer.extend_from_slice(&entry);
    assert_eq!(opened(newer), Err(FileError::Malformed(Malformed("an unknown command"))));
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
