//! Waste, damage, folds in passes, and an index that is as the one a new start makes.

use super::*;
use crate::testing::{all, content, cut, disk, flip, machine};
use base::Rng;
use base::rng::SplitMix64;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

const BLOCK: u64 = BLOCK_BYTES_MIN;

fn open(folder: &Path, durability: Durability) -> Result<Box<Hash>, Error> {
    let settings = Settings { durability, segment_bytes: 0, ..Settings::default() };
    Hash::open(folder, &settings, &machine()).map(Box::new)
}

/// Keys with objects of some kilobytes, written and deleted at random.
struct Churn {
    rng: SplitMix64,
    keys: u64,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Churn {
    fn new(seed: u64, keys: u64) -> Churn {
        Churn { rng: SplitMix64::new(seed), keys, model: BTreeMap::new() }
    }

    fn write(&mut self, store: &mut Hash) {
        let key = self.rng.below(self.keys).to_be_bytes();
        if self.rng.chance(1, 3) {
            store.delete(&key).unwrap();
            self.model.remove(&key[..]);
        } else {
            let value = self.rng.next_u64().to_be_bytes().repeat(1 + self.rng.below(700) as usize);
            store.put(&key, b"head", &value).unwrap();
            self.model.insert(key.to_vec(), value);
        }
    }
}

fn live_bytes(store: &Hash) -> u64 {
    store.blocks.iter().map(|block| u64::from(block.live_bytes)).sum()
}

/// What the index knows of each of these keys.
fn known(store: &Hash, keys: u64) -> Vec<Option<Entry>> {
    (0..keys).map(|key| store.index.get(store.hasher.digest(&key.to_be_bytes()))).collect()
}

#[test]
fn waste_is_reclaimed_and_the_index_is_what_a_start_makes_of_the_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), Durability::None).unwrap();
    let mut churn = Churn::new(7, 300);
    let mut live_max = 0;
    for round in 0..12 {
        for _ in 0..400 {
            churn.write(&mut store);
            live_max = live_max.max(live_bytes(&store));
            let most = u64::from(LIVE_PARTS) * live_max + (reclaim::COPIED_MAX as u64 + 3) * BLOCK;
            assert!(store.blocks.len() as u64 * BLOCK <= most, "{} blocks", store.blocks.len());
        }
        assert_eq!(all(&mut *store), churn.model);
        // Where the log goes on is part of what a start knows.
        store.end_block().unwrap();
        let (before, len, live) = (known(&store, 300), store.index.len(), live_bytes(&store));
        store.close().unwrap();
        store = open(folder.path(), Durability::None).unwrap();
        for (key, (now, before)) in known(&store, 300).into_iter().zip(before).enumerate() {
            assert_eq!(now, before, "key {key} in round {round}");
        }
        assert_eq!((store.index.len(), live_bytes(&store)), (len, live));
        assert_eq!(all(&mut *store), churn.model);
    }
    // 19 MB were written.
    assert!(store.seq > 60 && store.blocks.len() < 40, "{} lives of {}", store.seq, store.blocks.len());
}

/// How many times what is live a store may take.
const LIVE_PARTS: u32 = reclaim::LIVE_PART_MAX;

#[test]
fn a_delete_stays_until_all_that_it_covers_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), Durability::None).unwrap();
    // The old value lies in a block that stays half full of what lives.
    store.put(b"gone", b"", &[1; 100]).unwrap();
    (0..60u8).for_each(|key| store.put(&[key], b"", &[2; 2000]).unwrap());
    store.delete(b"gone").unwrap();
    let mut churn = Churn::new(3, 100);
    for _ in 0..10 {
        (0..300).for_each(|_| churn.write(&mut store));
        store.close().unwrap();
        store = open(folder.path(), Durability::None).unwrap();
        assert_eq!(store.get(b"gone"), Ok(None));
    }
    let digest = store.hasher.digest(b"gone");
    assert!(store.index.get(digest).is_some_and(|entry| entry.is_delete && entry.is_live()));
    // Now that block is reclaimed, and some time later the delete goes, too.
    (0..60u8).for_each(|key| store.delete(&[key]).unwrap());
    for _ in 0..4000 {
        churn.write(&mut store);
    }
    let digest = store.hasher.digest(b"gone");
    assert_eq!(store.index.get(digest), None);
    assert_eq!(all(&mut *store), churn.model);
}

#[test]
fn a_fold_takes_several_passes_where_its_keys_have_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), Durability::None).unwrap();
    let mut churn = Churn::new(5, 200);
    (0..600).for_each(|_| churn.write(&mut store));
    let keys: Vec<Vec<u8>> = churn.model.keys().cloned().collect();
    for (bytes_max, most) in [(1, 1000), (500, 1000), (5000, 1000), (5000, 70), (1 << 20, 1000)] {
        let mut seen = Vec::new();
        let mut visit = |item: crate::backend::Item<'_>| {
            seen.push(item.key.to_vec());
            if seen.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        store.fold_in(bytes_max, &keys[3], &[], What::Heads, &mut visit).unwrap();
        assert!(seen.iter().eq(keys[3..].iter().take(most)), "{bytes_max}");
    }
}

/// A store of one block with a few writes, and all of it with one byte changed.
#[test]
fn a_flipped_bit_is_damage_or_was_promised_to_nobody() {
    for is_closed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path(), Durability::Sync).unwrap();
        (0..4u8).for_each(|round| store.put(&[b'k', round], b"head", &[round; 60]).unwrap());
        let expected = all(&mut *store);
        let (last_at, len) = (store.place(&[b'k', 3]).unwrap(), store.newest.unwrap().len);
        let len = if is_closed { len as usize + END_BYTES } else { len as usize };
        if is_closed {
            store.close().unwrap();
        } else {
            drop(store);
        }
        let whole: Vec<(PathBuf, Vec<u8>)> = [SUPERBLOCK, BLOCKS]
            .map(|name| (folder.path().join(name), content(&folder.path().join(name))))
            .into();
        for (file, (path, bytes)) in whole.iter().enumerate() {
            for at in (0..bytes.len().min(len)).step_by(3) {
                let copy = tempfile::tempdir().unwrap();
                for (path, bytes) in &whole {
                    let to = copy.path().join(path.file_name().unwrap());
                    disk::replace_file(&mut *disk(), &to, Bytes::from(bytes.clone())).unwrap();
                }
                flip(&copy.path().join(path.file_name().unwrap()), at);
                let Ok(mut store) = open(copy.path(), Durability::Sync) else { continue };
                assert_eq!(file, 1, "byte {at} of the superblock went unseen");
                let found = all(&mut *store);
                let is_padding = found == expected;
                let last = !is_closed && at >= last_at.offset as usize && found.len() == expected.len() - 1;
                assert!(is_padding || last, "byte {at}: {found:?}");
            }
        }
    }
}

#[test]
fn damage_in_a_full_block_is_told_and_a_damaged_value_is_one_keys_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), Durability::None).unwrap();
    (0..200u8).for_each(|key| store.put(&[key], b"head", &[key; 2000]).unwrap());
    let place = store.place(&[9]).unwrap();
    store.close().unwrap();
    let path = folder.path().join(BLOCKS);
    let at = place.block as usize * BLOCK as usize + place.offset as usize;
    flip(&path, at + 1000);
    let mut store = open(folder.path(), Durability::None).unwrap();
    assert!(matches!(store.get(&[9]), Err(Error::Damaged(_))));
    assert_eq!(store.head(&[9]), Ok(Some(Bytes::from_static(b"head"))));
    assert_eq!(store.get(&[10]).unwrap().unwrap().value, vec![10; 2000]);
    // Its block is not reclaimed, others are, and writes go on.
    (0..8).for_each(|_| (10..200u8).for_each(|key| store.put(&[key], b"head", &[key; 2000]).unwrap()));
    assert!(matches!(store.get(&[9]), Err(Error::Damaged(_))));
    assert_eq!(store.get(&[8]).unwrap().unwrap().value, vec![8; 2000]);
    assert!(store.blocks.len() < 12, "{} blocks", store.blocks.len());
    store.close().unwrap();
    // A record whose key is damaged hides what is behind it.
    flip(&path, at + 10);
    assert!(matches!(open(folder.path(), Durability::None).map(drop), Err(Error::Damaged(_))));
}

/// How long the file was is written nowhere but in itself.
#[test]
fn a_file_that_is_cut_is_the_store_that_it_was_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), Durability::None).unwrap();
    // Up to where the file is after each write, and what is there.
    let (mut states, mut model) = (vec![(0, BTreeMap::new())], BTreeMap::new());
    for key in 0..200u8 {
        store.put(&[key], b"head", &[key; 2000]).unwrap();
        model.insert(vec![key], vec![key; 2000]);
        let newest = store.newest.unwrap();
        states.push((u64::from(newest.life.block) * BLOCK + u64::from(newest.len), model.clone()));
    }
    assert!(store.blocks.len() > 3);
    store.close().unwrap();
    let whole = content(&folder.path().join(BLOCKS));
    let ends = (1..=whole.len() as u64 / BLOCK).map(|block| block * BLOCK);
    for len in (0..whole.len() as u64).step_by(17_011).chain(ends) {
        let copy = tempfile::tempdir().unwrap();
        for name in [SUPERBLOCK, BLOCKS] {
            let bytes = Bytes::from(content(&folder.path().join(name)));
            disk::replace_file(&mut *disk(), &copy.path().join(name), bytes).unwrap();
        }
        cut(&copy.path().join(BLOCKS), len);
        let expected = states.iter().rev().find(|(end, _)| *end <= len).unwrap();
        assert_eq!(all(&mut *open(copy.path(), Durability::None).unwrap()), expected.1, "cut at {len}");
    }
}

#[test]
fn what_is_longer_than_a_block_is_refused_and_what_fits_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), Durability::None).unwrap();
    let most = store.batch_bytes_max() - HEADER_BYTES - 3;
    let value = vec![7; most];
    store.put(b"key", b"", &value).unwrap();
    let refused = store.put(b"key", b"", &vec![8; most + 1]);
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    store.put(b"two", b"", &value).unwrap();
    store.close().unwrap();
    let mut store = open(folder.path(), Durability::None).unwrap();
    assert_eq!(store.get(b"key").unwrap().unwrap().value, value);
    assert_eq!(store.get(b"two").unwrap().unwrap().value, value);
}
