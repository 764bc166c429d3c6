use super::*;
use base::Rng;
use base::rng::SplitMix64;

fn sample() -> Index {
    let file = |name: &str, len, crc| FileEntry { name: name.to_owned(), len, crc, tail_crc: crc ^ 1 };
    Index {
        node: "n1@h".to_owned(),
        cluster: Some("c1".to_owned()),
        program: "annulet 0.1.0".to_owned(),
        created_ms: 1_700_000_000_000,
        stores: vec![StoreEntry { shard: 0, incarnation: "00000000000000ab".to_owned(), last_seq: 7 }],
        files: vec![file("membership/log", 3, 5), file("store-000/MANIFEST", 1 << 40, u32::MAX)],
    }
}

/// The checksum was computed by another program, bit by bit, with the polynomial 0x82F63B78.
const GOLDEN: &str = include_str!("golden.txt");

#[test]
fn an_index_has_the_bytes_that_are_described() {
    assert_eq!(String::from_utf8(sample().encode()).unwrap(), GOLDEN);
    assert_eq!(Index::decode(GOLDEN.as_bytes(), "BACKUP"), Ok(sample()));
    assert_eq!(sample().bytes(), (1 << 40) + 3);
    assert_eq!(sample().find("store-000/MANIFEST").map(|entry| entry.len), Some(1 << 40));
    assert_eq!(sample().find("store-000"), None);
    assert_eq!((sample().incarnation(0), sample().incarnation(1)), (Some("00000000000000ab"), None));
}

#[test]
fn every_changed_byte_is_noticed() {
    let good = sample().encode();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert!(Index::decode(&bad, "BACKUP").is_err(), "byte {at}");
        assert!(Index::decode(&good[..at], "BACKUP").is_err(), "cut at {at}");
    }
}

#[test]
fn a_newer_version_and_a_foreign_file_are_told_from_damage() {
    let newer = GOLDEN.replacen("annulet-backup 1 ", "annulet-backup 2 ", 1);
    let Err(Error::NotBackup(what)) = Index::decode(newer.as_bytes(), "BACKUP") else { panic!() };
    assert_eq!(what, "BACKUP has version 2; this program knows version 1");
    let foreign = Index::decode(b"something else 1 2 3\n", "BACKUP");
    assert_eq!(foreign, Err(Error::NotBackup("BACKUP is not the index of a backup".to_owned())));
}

#[test]
fn no_name_leads_out_of_the_folder() {
    for name in ["../x", "/etc/passwd", "store-000/../../x", "a//b", "", "store-000/.", "a\\b/\u{e9}"] {
        let mut index = sample();
        index.files[0].name = name.to_owned();
        assert!(matches!(Index::decode(&index.encode(), "BACKUP"), Err(Error::NotBackup(_))), "{name}");
    }
}

#[test]
fn random_bytes_are_no_index_and_no_panic() {
    let (mut rng, good) = (SplitMix64::new(11), sample().encode());
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[at] = rng.next_u64() as u8,
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, rng.next_u64() as u8),
            }
        }
        if bytes != good {
            assert!(Index::decode(&bytes, "BACKUP").is_err());
        }
    }
}
