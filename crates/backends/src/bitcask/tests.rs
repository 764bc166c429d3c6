//! Crashes and damage: files are cut and changed between two lives of a store.

use super::*;
use crate::testing::{all, content, cut, disk, flip, machine, names};
use base::Rng;
use base::rng::SplitMix64;
use std::collections::BTreeMap;

const SEGMENT_BYTES: u64 = 4096;

fn open(folder: &Path, durability: Durability) -> Result<Bitcask, Error> {
    let settings = Settings { durability, segment_bytes: SEGMENT_BYTES, ..Settings::default() };
    Bitcask::open(folder, &settings, &machine())
}

#[test]
fn a_cut_leaves_whole_batches() {
    for durability in [Durability::Sync, Durability::None] {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path(), durability).unwrap();
        // After each batch: how long the segment is, and what is there.
        let mut states = vec![(SEGMENT_HEADER_BYTES as u64, BTreeMap::new())];
        for round in 0..6u8 {
            let (one, two) = ([b'a', round], [b'b', round % 2]);
            let value = [round; 40];
            let mut batch = vec![
                Write::Put { key: &one, head: b"head", value: &value },
                Write::Put { key: &two, head: b"", value: &value[..10] },
            ];
            let gone = [b'a', round.wrapping_sub(2)];
            batch.push(Write::Delete { key: &gone });
            store.write(&batch).unwrap();
            let len = store.newest.as_ref().unwrap().len;
            states.push((len, all(&mut store)));
        }
        drop(store);
        let path = names(folder.path(), ".seg").pop().unwrap();
        let whole = content(&path);
        // Not at each byte: each look takes several syncs.
        for len in (SEGMENT_HEADER_BYTES..=whole.len()).rev().step_by(7) {
            let copy = tempfile::tempdir().unwrap();
            let to = copy.path().join(path.file_name().unwrap());
            disk::replace_file(&mut *disk(), &to, Bytes::from(whole[..len].to_vec())).unwrap();
            let expected = states.iter().rev().find(|(end, _)| *end <= len as u64).unwrap();
            let mut store = open(copy.path(), durability).unwrap();
            assert_eq!(all(&mut store), expected.1, "cut at {len}");
            // It goes on behind what was left.
            store.put(b"later", b"", b"value").unwrap();
            drop(store);
            assert_eq!(all(&mut open(copy.path(), durability).unwrap()).len(), expected.1.len() + 1);
        }
    }
}

#[test]
fn many_starts_leave_no_more_segments_than_few() {
    for durability in [Durability::Sync, Durability::None] {
        let folder = tempfile::tempdir().unwrap();
        let mut expected = BTreeMap::new();
        for start in 0..100u8 {
            let mut store = Box::new(open(folder.path(), durability).unwrap());
            assert_eq!(all(&mut *store), expected, "start {start}");
            let value = vec![start; 200];
            store.write(&[Write::Put { key: &[start], head: b"", value: &value }]).unwrap();
            expected.insert(vec![start], value);
            // Some are killed, and some stop.
            if start % 3 == 0 {
                store.close().unwrap();
            }
        }
        let bytes: usize = names(folder.path(), ".seg").iter().map(|path| content(path).len()).sum();
        let full = bytes / SEGMENT_BYTES as usize;
        assert!(full > 2 && names(folder.path(), ".seg").len() <= full + 1, "{bytes} bytes");
    }
}

#[test]
fn a_segment_is_gone_on_with_as_it_was_begun() {
    // What is synced must not lie behind what was not, nor the other way round.
    for (first, then) in [(Durability::Sync, Durability::None), (Durability::None, Durability::Sync)] {
        for stops in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let mut store = Box::new(open(folder.path(), first).unwrap());
            store.put(b"a", b"", b"1").unwrap();
            if stops {
                store.close().unwrap();
            } else {
                drop(store);
            }
            let mut store = open(folder.path(), then).unwrap();
            store.put(b"b", b"", b"2").unwrap();
            drop(store);
            assert_eq!(names(folder.path(), ".seg").len(), 2);
            assert_eq!(all(&mut open(folder.path(), then).unwrap()).len(), 2);
        }
    }
}

#[test]
fn a_flipped_bit_is_damage_or_was_promised_to_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), Durability::Sync).unwrap();
    for round in 0..4u8 {
        store.put(&[b'k', round], b"head", &[round; 60]).unwrap();
    }
    let expected = all(&mut store);
    let last_at = store.keys[&[b'k', 3][..]].offset as usize;
    drop(store);
    let path = names(folder.path(), ".seg").pop().unwrap();
    let whole = content(&path);
    for at in (0..whole.len()).step_by(3) {
        let copy = tempfile::tempdir().unwrap();
        let to = copy.path().join(path.file_name().unwrap());
        disk::replace_file(&mut *disk(), &to, Bytes::from(whole.clone())).unwrap();
        flip(&to, at);
        match open(copy.path(), Durability::Sync) {
            Ok(mut store) => {
                // Only the last write can pass for one that was under way.
                assert!(at >= last_at, "a bit at {at} went unseen");
                assert_eq!(all(&mut store).len(), expected.len() - 1);
            }
            Err(error) => assert!(matches!(error, Error::Damaged(_)), "{error}"),
        }
    }
}

#[test]
fn a_damaged_value_is_an_error_of_its_key_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Box::new(open(folder.path(), Durability::None).unwrap());
    store.put(b"good", b"head", &[1; 500]).unwrap();
    store.put(b"poor", b"head", &[2; 500]).unwrap();
    let at = store.keys[&b"poor"[..]].offset as usize;
    store.close().unwrap();
    let path = names(folder.path(), ".seg").pop().unwrap();
    flip(&path, at + HEADER_BYTES + 4 + 4 + 100);
    let mut store = open(folder.path(), Durability::None).unwrap();
    assert!(store.get(b"good").unwrap().is_some());
    assert!(matches!(store.get(b"poor"), Err(Error::Damaged(_))));
    assert_eq!(store.head(b"poor").unwrap().as_deref(), Some(&b"head"[..]));
    drop(store);
    flip(&path, at + HEADER_BYTES + 4 + 1);
    assert!(matches!(open(folder.path(), Durability::None).unwrap().head(b"poor"), Err(Error::Damaged(_))));
}

#[test]
fn a_damaged_value_stays_where_it_is_and_writes_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Box::new(open(folder.path(), Durability::None).unwrap());
    store.put(b"poor", b"head", &[1; 500]).unwrap();
    store.put(b"gone", b"head", &[2; 500]).unwrap();
    store.put(b"good", b"head", &[3; 3500]).unwrap();
    assert!(store.newest.is_none(), "they fill a segment");
    store.delete(b"gone").unwrap();
    let first = names(folder.path(), ".seg").remove(0);
    flip(&first, store.keys[&b"poor"[..]].offset as usize + HEADER_BYTES + 4 + 4 + 100);

    for _ in 0..2 {
        for round in 0..100u8 {
            store.put(&[round % 5], b"head", &[round; 500]).unwrap();
            let most = WASTE_FACTOR * store.live_bytes.max(SEGMENT_BYTES) + 3 * SEGMENT_BYTES;
            assert!(store.total_bytes() <= most, "{} bytes", store.total_bytes());
        }
        assert!(matches!(store.get(b"poor"), Err(Error::Damaged(_))));
        assert_eq!(store.get(b"good").unwrap().unwrap().value, vec![3; 3500]);
        assert_eq!(names(folder.path(), ".seg")[0], first, "the segment with the damage stays");
        store.close().unwrap();
        // What covered the key that is gone was merged away, and what it covered was not.
        store = Box::new(open(folder.path(), Durability::None).unwrap());
        assert_eq!(store.get(b"gone"), Ok(None));
    }

    // Once nothing live in it is damaged it goes, too.
    store.put(b"poor", b"head", b"whole").unwrap();
    (0..100u8).for_each(|round| store.put(&[round % 5], b"head", &[round; 500]).unwrap());
    assert!(!names(folder.path(), ".seg").contains(&first));
    store.close().unwrap();
    let all = all(&mut open(folder.path(), Durability::None).unwrap());
    assert_eq!((all.len(), all.get(&b"poor"[..]).unwrap().as_slice()), (7, &b"whole"[..]));
}

#[test]
fn a_damaged_hint_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Box::new(open(folder.path(), Durability::None).unwrap());
    for round in 0..20u8 {
        store.put(&[round % 7], b"head", &[round; 300]).unwrap();
        store.delete(&[round % 7 + 3]).unwrap();
    }
    let expected = all(&mut *store);
    store.close().unwrap();
    let hints = names(folder.path(), ".hint");
    assert!(hints.len() > 1);
    hints.iter().for_each(|hint| flip(hint, 40));
    assert_eq!(all(&mut open(folder.path(), Durability::None).unwrap()), expected);
    // A segment that is shorter than its hint says has lost something.
    cut(&names(folder.path(), ".seg")[0], 1000);
    assert!(matches!(open(folder.path(), Durability::None).map(drop), Err(Error::Damaged(_))));
}

#[test]
fn waste_is_merged_away_and_what_was_deleted_stays_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Box::new(open(folder.path(), Durability::None).unwrap());
    let (mut rng, mut model) = (SplitMix64::new(7), BTreeMap::new());
    for round in 0..4000u64 {
        let key = (rng.next_u64() % 50).to_be_bytes();
        if rng.next_u64().is_multiple_of(3) {
            store.delete(&key).unwrap();
            model.remove(&key[..]);
        } else {
            let value = round.to_be_bytes().repeat(10);
            store.put(&key, b"head", &value).unwrap();
            model.insert(key.to_vec(), value);
        }
        let most = WASTE_FACTOR * store.live_bytes.max(SEGMENT_BYTES) + 2 * SEGMENT_BYTES;
        assert!(store.total_bytes() <= most, "{} bytes", store.total_bytes());
    }
    assert_eq!(all(&mut *store), model);
    store.close().unwrap();
    assert_eq!(names(folder.path(), ".seg").len(), names(folder.path(), ".hint").len());
    assert_eq!(all(&mut open(folder.path(), Durability::None).unwrap()), model);
}

#[test]
fn a_merge_that_a_crash_stopped_is_done_over() {
    // Before the old segments go: with all of them, and with the first ones removed.
    for removed in 0..3 {
        let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut store = Box::new(open(folder.path(), Durability::None).unwrap());
        for round in 0..30u8 {
            store.put(&[round % 10], b"head", &[round; 400]).unwrap();
        }
        (0..5).for_each(|key| store.delete(&[key]).unwrap());
        let expected = all(&mut *store);
        store.close().unwrap();
        let old: Vec<PathBuf> = names(folder.path(), "");
        for path in &old {
            let to = copy.path().join(path.file_name().unwrap());
            disk::replace_file(&mut *disk(), &to, Bytes::from(content(path))).unwrap();
        }
        let mut store = Box::new(open(folder.path(), Durability::None).unwrap());
        store.merge().unwrap();
        store.close().unwrap();
        for path in names(folder.path(), "").iter().filter(|path| !old.contains(path)) {
            let to = copy.path().join(path.file_name().unwrap());
            disk::replace_file(&mut *disk(), &to, Bytes::from(content(path))).unwrap();
        }
        for path in names(copy.path(), ".seg").iter().take(removed) {
            disk::run(&mut *disk(), DiskOp::Remove { path: path.clone() }).unwrap();
        }
        assert_eq!(all(&mut open(copy.path(), Durability::None).unwrap()), expected, "{removed} removed");
    }
}

#[test]
fn the_bytes_of_a_hint_stay_what_they_are() {
    let mut hint = Hint::new(SegmentId(3));
    hint.push(b"key", HintEntry { is_delete: false, offset: 64, lens: (4, 5) });
    hint.push(b"", HintEntry { is_delete: true, offset: 128, lens: (0, 0) });
    let bytes = hint.finish(176);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, GOLDEN);
    let (len, entries) = hint::parse(&bytes, SegmentId(3)).unwrap();
    assert_eq!((len, entries.len(), entries[0].0), (176, 2, &b"key"[..]));
    assert!(hint::parse(&bytes, SegmentId(4)).is_none());
    for at in 0..bytes.len() {
        let mut changed = bytes.to_vec();
        changed[at] ^= 1;
        assert!(hint::parse(&changed, SegmentId(3)).is_none(), "byte {at}");
        assert!(hint::parse(&bytes[..at], SegmentId(3)).is_none(), "cut at {at}");
    }
}

const GOLDEN: &str = "\
414e4e554c45544801000000000000000300000000000000b000000000000000\
00400000000300000004000000050000006b65790180000000000000000000000000000000f03e90a3";
