//! Tables against a model, and against every kind of damage.

use super::testing::{MemDisk, Model, as_version_3, deletion, dir, entry, get, table};
use super::{BLOCK_BYTES_TARGET, Table, TableId, TableIter};
use crate::entry::{Jsn, Seq};
use crate::error::Error;
use crate::key_segments::KeySegments;
use base::checksum::crc32c;
use base::rng::{Rng, SplitMix64};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

fn path(id: u64) -> PathBuf {
    dir().join(TableId(id).file_name())
}

/// A key, its seq and its entry.
type Version = (Vec<u8>, (u64, Vec<u8>));

/// All entries from `key` on.
fn walk(disk: &mut MemDisk, table: &Arc<Table>, key: &[u8]) -> Result<Vec<Version>, Error> {
    entries(disk, TableIter::new(Arc::clone(table)), key)
}

/// The entries of blocks that may have keys of `segments`.
fn walk_segments(
    disk: &mut MemDisk,
    table: &Arc<Table>,
    segments: &KeySegments,
) -> Result<Vec<Version>, Error> {
    entries(disk, TableIter::of_segments(Arc::clone(table), segments.clone()), b"")
}

fn entries(disk: &mut MemDisk, mut iter: TableIter, key: &[u8]) -> Result<Vec<Version>, Error> {
    let mut entries = Vec::new();
    iter.seek(disk, key)?;
    while iter.valid() {
        entries.push((iter.key().to_vec(), (iter.seq().0, iter.entry().to_vec())));
        iter.next(disk)?;
    }
    Ok(entries)
}

/// Keys with long common beginnings, short ones, and an empty one.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    let prefix = prop_oneof![Just(&b""[..]), Just(&b"bucket"[..]), Just(&b"bucket/long-common-part/"[..])];
    (prefix, vec(0u8..4, 0..6)).prop_map(|(prefix, rest)| [prefix, &rest].concat())
}

fn models() -> impl Strategy<Value = Model> {
    let sizes = prop_oneof![8 => 0usize..40, 2 => 300usize..1500, 1 => 4000usize..9000];
    btree_map(keys(), (0u64..1 << 40, sizes, 0u8..5), 1..200).prop_map(|model| {
        let make = |(key, (seq, size, kind)): (Vec<u8>, _)| {
            let bytes = if kind == 0 { deletion(seq) } else { entry(&key, seq, size) };
            (key, (seq, bytes))
        };
        model.into_iter().map(make).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn it_answers_like_a_map(model in models(), probes in vec(keys(), 50)) {
        let mut disk = MemDisk::default();
        let table = table(&mut disk, 1, &model);
        for key in model.keys().chain(&probes) {
            prop_assert_eq!(get(&mut disk, &table, key).unwrap(), model.get(key).cloned());
        }
        for key in probes.iter().take(10) {
            let expected: Vec<_> = model.range(key.clone()..).map(|(k, v)| (k.clone(), v.clone())).collect();
            prop_assert_eq!(walk(&mut disk, &table, key).unwrap(), expected);
        }
        for (bits, some) in [(0, 1), (4, 5), (20, 3), (32, 10)] {
            let numbers = probes.iter().chain(model.keys()).take(some).map(|key| KeySegments::number_of(key, bits));
            let segments = KeySegments::new(bits, numbers).unwrap();
            for from in probes.iter().take(5).chain([&Vec::new()]) {
                let iter = TableIter::of_segments(Arc::clone(&table), segments.clone());
                let mut seen = entries(&mut disk, iter, from).unwrap();
                let in_block = |key: &[u8]| table.find_block(key).unwrap().index;
                let blocks: BTreeSet<u32> =
                    model.keys().filter(|key| segments.contains(key)).map(|key| in_block(key)).collect();
                if bits <= 20 {
                    prop_assert!(seen.iter().all(|(key, _)| blocks.contains(&in_block(key))));
                }
                seen.retain(|(key, _)| segments.contains(key));
                let expected = model.range(from.clone()..).filter(|(key, _)| segments.contains(key));
                prop_assert_eq!(seen, expected.map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>());
            }
        }
        let meta = table.meta();
        prop_assert_eq!(meta.entries, model.len() as u64);
        prop_assert_eq!(meta.deletions, model.values().filter(|(_, entry)| entry[0] == 3).count() as u64);
        prop_assert_eq!(Some(&meta.min_key.to_vec()), model.keys().next());
        prop_assert_eq!(Some(&meta.max_key.to_vec()), model.keys().last());
        prop_assert_eq!(meta.max_seq.0, model.values().map(|(seq, _)| *seq).max().unwrap());
        prop_assert_eq!(meta.min_jsn.0, model.values().map(|(seq, _)| *seq).min().unwrap() + 1);
    }
}

#[test]
fn golden_bytes() {
    let mut disk = MemDisk::default();
    let model = Model::from([
        (b"key-a".to_vec(), (5, vec![1, 6, 64, 100, 2, b'h', b'a'])),
        (
            b"key-b".to_vec(),
            (4, [&[0x82, 5, 0, 0, 1, 0x80, 0xD0, 0x95, 0xFF, 0xBC, 0x31][..], b"hv"].concat()),
        ),
        (b"key-c".to_vec(), (300, vec![3, 7, 0, 0, 0])),
    ]);
    let table = table(&mut disk, 0x1F, &model);
    let bytes = &disk.files[&PathBuf::from("/data/000000000000001f.tbl")];
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("golden.hex").replace('\n', ""));
    assert_eq!((table.meta().inlines, table.meta().max_jsn), (1, Jsn(7)));
    assert_eq!((table.meta().expiring, table.meta().last_expiry_ms), (1, 1_700_000_000_000));
}

/// What an older version of the format wrote.
fn old_table(disk: &mut MemDisk, hex: &str) -> Arc<Table> {
    let hex = hex.replace('\n', "");
    let bytes = (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap());
    disk.files.insert(path(0x1F), bytes.collect());
    Arc::new(Table::open(disk, dir(), TableId(0x1F)).unwrap())
}

#[test]
fn golden_bytes_of_version_3_are_read() {
    let mut disk = MemDisk::default();
    let table = old_table(&mut disk, include_str!("golden_v3.hex"));
    let segments = KeySegments::new(32, [KeySegments::number_of(b"key-b", 32)]).unwrap();
    assert_eq!(table.blocks_of(&mut disk, &segments).unwrap(), Some(vec![0]));
    assert_eq!(get(&mut disk, &table, b"key-c").unwrap(), Some((300, vec![3, 7, 0, 0, 0])));
}

#[test]
fn larger_buckets_of_version_3_name_the_same_blocks() {
    let mut disk = MemDisk::default();
    let key = |number: u64| format!("key{number:06}").into_bytes();
    let model: Model =
        (0..5000).map(|number| (key(number), (number, entry(&key(number), number, 40)))).collect();
    let table = table(&mut disk, 1, &model);
    let segments: Vec<KeySegments> = (0..40)
        .map(|number| KeySegments::new(20, [KeySegments::number_of(&key(number * 101), 20)]).unwrap())
        .collect();
    let named = |disk: &mut MemDisk, table: &Table| -> Vec<Vec<u32>> {
        segments.iter().map(|segments| table.blocks_of(disk, segments).unwrap().unwrap()).collect()
    };
    let blocks = named(&mut disk, &table);
    assert!(blocks.iter().all(|blocks| (1..5).contains(&blocks.len())), "{blocks:?}");
    let len = table.len();
    let old = as_version_3(&mut disk, &table, &model);
    assert!(old.len() < len, "it has fewer buckets");
    assert_eq!(named(&mut disk, &old), blocks);
}

#[test]
fn golden_bytes_of_version_2_are_read() {
    let mut disk = MemDisk::default();
    let table = old_table(&mut disk, include_str!("golden_v2.hex"));
    assert_eq!((table.meta().entries, table.meta().last_expiry_ms), (3, 1_700_000_000_000));
    // It does not say where the keys of a segment are: they are found all the same.
    let segments = KeySegments::new(32, [KeySegments::number_of(b"key-b", 32)]).unwrap();
    assert_eq!(table.blocks_of(&mut disk, &segments).unwrap(), None);
    assert!(walk_segments(&mut disk, &table, &segments).unwrap().iter().any(|(key, _)| key == b"key-b"));
    assert_eq!(get(&mut disk, &table, b"key-c").unwrap(), Some((300, vec![3, 7, 0, 0, 0])));
}

#[test]
fn golden_bytes_of_version_1_are_read() {
    let mut disk = MemDisk::default();
    let table = old_table(&mut disk, include_str!("golden_v1.hex"));
    assert_eq!((table.meta().entries, table.meta().expiring), (3, 0));
    let found = get(&mut disk, &table, b"key-b").unwrap();
    assert_eq!(found, Some((4, vec![2, 5, 0, 0, 1, b'h', b'v'])));
}

#[test]
fn large_tables_have_many_blocks_and_large_entries_their_own() {
    let mut disk = MemDisk::default();
    let mut model = Model::new();
    for number in 0..20_000u64 {
        let key = format!("bucket/user{:08}", number * 7919 % 1_000_003).into_bytes();
        let size = if number % 1000 == 0 { 300_000 } else { 40 };
        model.insert(key.clone(), (number, entry(&key, number, size)));
    }
    model.insert(vec![b'c'; 100_000], (1 << 60, deletion(1 << 60)));
    model.insert(vec![b'c'; 100_001], (1 << 61, deletion(1 << 61)));
    let table = table(&mut disk, 1, &model);
    assert!(table.blocks() > 300, "{}", table.blocks());
    assert_eq!(walk(&mut disk, &table, b"").unwrap(), model.clone().into_iter().collect::<Vec<_>>());
    for key in model.keys().step_by(37).chain([&vec![b'c'; 100_001]]) {
        assert_eq!(get(&mut disk, &table, key).unwrap().as_ref(), model.get(key));
    }
    let regular = (0..table.blocks() as u32).filter_map(|n| table.block(n)).map(|block| block.len as usize);
    let sizes: Vec<usize> = regular.filter(|&len| len < 100_000).collect();
    assert!(sizes.iter().all(|&len| len <= BLOCK_BYTES_TARGET));
    assert!(sizes.iter().filter(|&&len| len > BLOCK_BYTES_TARGET * 9 / 10).count() > sizes.len() * 3 / 4);
}

fn small_model() -> Model {
    let mut model = Model::new();
    for number in 0..60u64 {
        let key = format!("bucket/key{number:03}").into_bytes();
        let bytes = if number % 7 == 0 { deletion(number) } else { entry(&key, number, 60) };
        model.insert(key, (number, bytes));
    }
    model
}

/// Opens and reads all of table 1: whether damage was found; panics on a wrong answer.
fn finds_damage(disk: &mut MemDisk, model: &Model) -> bool {
    let opened = match Table::open(disk, dir(), TableId(1)) {
        Ok(table) => Arc::new(table),
        Err(Error::Damaged(_)) => return true,
        Err(other) => panic!("damage was taken for {other}"),
    };
    let mut damaged = false;
    for (key, expected) in model {
        match get(disk, &opened, key) {
            Ok(answer) => assert_eq!(answer.as_ref(), Some(expected), "a wrong answer"),
            Err(Error::Damaged(_)) => damaged = true,
            Err(other) => panic!("damage was taken for {other}"),
        }
    }
    let walked = walk(disk, &opened, b"");
    let segments_damaged = opened.check_segments(disk).is_err();
    // Where they cannot be read, all blocks are; and no key is missing.
    if let Some((key, _)) = model.iter().next() {
        let one = KeySegments::new(32, [KeySegments::number_of(key, 32)]).unwrap();
        let seen = walk_segments(disk, &opened, &one);
        assert!(seen.map_or(damaged, |seen| seen.iter().any(|(other, _)| other == key)));
    }
    base::disk::run(disk, opened.close_op()).unwrap();
    assert_eq!(damaged, walked.is_err());
    damaged || segments_damaged
}

#[test]
fn every_flipped_bit_is_found() {
    let mut disk = MemDisk::default();
    let model = small_model();
    table(&mut disk, 1, &model);
    assert!(!finds_damage(&mut disk, &model));
    let len = disk.files[&path(1)].len();
    assert!(len > BLOCK_BYTES_TARGET, "more than one block");
    for bit in 0..len * 8 {
        disk.files.get_mut(&path(1)).unwrap()[bit / 8] ^= 1 << (bit % 8);
        assert!(finds_damage(&mut disk, &model), "bit {bit} of {len} bytes");
        disk.files.get_mut(&path(1)).unwrap()[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_file_of_another_length_or_name_is_found() {
    let mut disk = MemDisk::default();
    let model = small_model();
    table(&mut disk, 1, &model);
    let bytes = disk.files[&path(1)].clone();
    for len in (0..bytes.len()).step_by(13).chain([bytes.len() - 1]) {
        disk.files.insert(path(1), bytes[..len].to_vec());
        assert!(finds_damage(&mut disk, &model), "cut to {len}");
    }
    for extra in [&[0u8][..], &[0; 4096], &bytes] {
        disk.files.insert(path(1), [extra, &bytes].concat());
        assert!(finds_damage(&mut disk, &model));
        disk.files.insert(path(1), [&bytes, extra].concat());
        // Twice the same file, end to end, ends in a footer that is right but for the length.
        assert!(finds_damage(&mut disk, &model));
    }
    disk.files.insert(path(2), bytes);
    assert!(matches!(Table::open(&mut disk, dir(), TableId(2)), Err(Error::Damaged(_))));
    assert!(matches!(Table::open(&mut disk, dir(), TableId(3)), Err(Error::Disk(_))));
}

#[test]
fn a_newer_version_is_no_damage() {
    let mut disk = MemDisk::default();
    table(&mut disk, 1, &small_model());
    let bytes = disk.files.get_mut(&path(1)).unwrap();
    let footer = bytes.len() - super::FOOTER_BYTES;
    let crc_at = bytes.len() - 12;
    bytes[crc_at - 4] = super::TABLE_VERSION as u8 + 1;
    let crc = crc32c(&bytes[footer..crc_at]);
    bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(Table::open(&mut disk, dir(), TableId(1)), Err(Error::Format { .. })));
}

#[test]
fn random_files_never_panic() {
    let mut disk = MemDisk::default();
    let mut rng = SplitMix64::new(11);
    table(&mut disk, 1, &small_model());
    let good = disk.files[&path(1)].clone();
    for _ in 0..10_000 {
        let mut bytes = good.clone();
        for _ in 0..rng.below(8) + 1 {
            let at = bytes.len() - 1 - rng.below(400) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        // Half of them with a footer that looks right, so that what is behind it is read.
        if rng.chance(1, 2) {
            let (footer, crc_at) = (bytes.len() - super::FOOTER_BYTES, bytes.len() - 12);
            bytes[crc_at - 4..crc_at].copy_from_slice(&super::TABLE_VERSION.to_le_bytes());
            let crc = crc32c(&bytes[footer..crc_at]);
            bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
            bytes[crc_at + 4..].copy_from_slice(b"ANULTABL");
        }
        disk.files.insert(path(1), bytes);
        if let Ok(table) = Table::open(&mut disk, dir(), TableId(1)) {
            table.check_segments(&mut disk).ok();
        }
    }
}

#[test]
fn names_and_retirement() {
    assert_eq!(TableId(0xABC).file_name(), "0000000000000abc.tbl");
    assert_eq!(TableId::from_file_name("0000000000000abc.tbl"), Some(TableId(0xABC)));
    for name in ["abc.tbl", "0000000000000ABC.tbl", "0000000000000abc.tmp", "+000000000000abc.tbl", ""] {
        assert_eq!(TableId::from_file_name(name), None, "{name}");
    }
    let mut disk = MemDisk::default();
    let table = table(&mut disk, 1, &small_model());
    assert!(!table.is_obsolete());
    table.retire();
    assert!(table.is_obsolete());
    base::disk::run(&mut disk, table.close_op()).unwrap();
    base::disk::run(&mut disk, table.remove_op()).unwrap();
    assert!(disk.files.is_empty() && disk.open_files() == 0);
}

#[test]
#[should_panic(expected = "the keys of a table ascend")]
fn disorder_is_our_bug() {
    let mut disk = MemDisk::default();
    let mut builder = super::TableBuilder::create(&mut disk, dir(), TableId(1)).unwrap();
    for key in [b"b", b"a"] {
        builder.add(&mut disk, key, Seq(1), &deletion(1)).unwrap();
    }
}
