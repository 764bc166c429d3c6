use super::*;
use histogram::Recorder;
use proptest::prelude::*;

fn of(values: &[u64]) -> Histogram {
    let mut recorder = Recorder::default();
    values.iter().for_each(|&value| recorder.record(value));
    recorder.take()
}

fn sample() -> Vec<u8> {
    let mut bytes = begin(&["get".to_owned()]);
    append(&mut bytes, &Latencies { second: 3, label: 0, kind: Kind::Service, histogram: of(&[5, 5, 3000]) });
    bytes
}

/// Computed by hand from `docs/formats/bench-results.md`; the checksums by another program's CRC-32C.
#[test]
fn golden_bytes() {
    let bytes = sample();
    assert_eq!(&bytes[..12], b"ANULHIST\x01\0\0\0");
    assert_eq!(&bytes[16..20], [6, 0, 0, 0]);
    assert_eq!(&bytes[24..30], b"\x00\x01\x03get");
    // 3,010 = 0xBC2 and 9,000,050 = 0x895472 as LEB128; 3,000 is in bucket 1024 + 3000 / 2 = 2524, 2519 above 5.
    let body = [1, 3, 0, 1, 5, 0xB8, 0x17, 0xC2, 0x17, 0xF2, 0xA8, 0xA5, 0x04, 2, 5, 2, 0xD7, 0x13, 1];
    assert_eq!(&bytes[30..34], [19, 0, 0, 0]);
    assert_eq!(&bytes[38..], body);
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!([word(12), word(20), word(34)], GOLDEN_CRCS);
}

const GOLDEN_CRCS: [u32; 3] = [0x48AC_8EDB, 0x347E_9A04, 0x77D8_4D1B];

#[test]
fn what_was_written_is_read() {
    let (labels, all) = decode(&sample()).unwrap();
    assert_eq!(labels, ["get"]);
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].second, all[0].kind, &all[0].histogram), (3, Kind::Service, &of(&[5, 5, 3000])));
}

#[test]
fn a_cut_file_keeps_what_was_whole_and_a_flipped_one_is_damaged() {
    let bytes = sample();
    let whole = begin(&["get".to_owned()]).len();
    for len in HEADER_LEN..bytes.len() {
        let (labels, all) = decode(&bytes[..len]).unwrap();
        assert_eq!((labels.len(), all.len()), (usize::from(len >= whole), 0), "{len}");
    }
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        // A length that is now too great looks like a cut; nothing else does.
        assert!(decode(&bad).map_or(true, |(_, all)| all.is_empty()), "byte {at}");
    }
}

#[test]
fn newer_files_are_refused() {
    let mut bytes = sample();
    bytes[8] = 2;
    let crc = crc32c(&bytes[..12]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(decode(&bytes).unwrap_err(), "written by a newer program");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn any_histogram_survives(values in prop::collection::vec(0u64..1 << 43, 1..40), second in 0u64..1 << 40) {
        let mut bytes = begin(&["a".to_owned(), "b".to_owned()]);
        let latencies = Latencies { second, label: 1, kind: Kind::Failed, histogram: of(&values) };
        append(&mut bytes, &latencies);
        prop_assert_eq!(decode(&bytes).unwrap().1, vec![latencies]);
    }

    #[test]
    fn any_body_is_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..60), kind in 0u8..3) {
        let mut bytes = begin(&["a".to_owned()]);
        put_block(&mut bytes, &[&[kind][..], &body].concat());
            drop(decode(&bytes));
    }
}
