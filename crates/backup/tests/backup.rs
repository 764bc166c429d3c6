//! Backups of stores that go on: what is restored is what there was, and what is damaged or half is found out.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

#[path = "../../engine/tests/common/mod.rs"]
mod common;

use backup::{Control, Create, Created, Error, How, Index, Part, Progress, create, restore, verify};
use base::rng::SplitMix64;
use base::spawn::Outcome;
use base::{Clock, Rng};
use common::disk::MemoryDisk;
use common::{HandClock, small};
use engine::backup::StoreFiles;
use engine::{Embedded, Machine, Options};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const STORE: &str = "/data/shard-000";

fn open(disk: &MemoryDisk, dir: &str) -> Embedded {
    let (disk, seed) = (disk.clone(), dir.len() as u64);
    let options = Options { reserve_bytes: 0, ..small() };
    let machine = Machine::new(move || disk.clone(), HandClock::new(), SplitMix64::new(seed));
    Embedded::open(Path::new(dir), options, machine).unwrap()
}

/// Writes, deletes and overwrites so many keys, in the store and in the model.
fn churn(store: &mut Embedded, model: &mut Model, rng: &mut SplitMix64, writes: usize) {
    for _ in 0..writes {
        let key = format!("key-{:04}", rng.below(600)).into_bytes();
        if rng.below(5) == 0 {
            store.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = vec![rng.next_u64() as u8; rng.below(600) as usize];
            store.put(&key, b"head", &value).unwrap();
            model.insert(key, value);
        }
    }
}

fn turn(store: &mut Embedded) {
    store.store().tick();
    store.store().turn(HandClock::new().now(), &mut Vec::new());
}

/// What the store is made up of now.
fn files(store: &mut Embedded) -> StoreFiles {
    let asked = Outcome::new();
    store.store().begin_backup(asked.clone()).unwrap();
    for _ in 0..10_000 {
        if let Some(files) = asked.take() {
            return files.unwrap();
        }
        turn(store);
    }
    panic!("the store does not say what it is made up of");
}

fn request(name: &str, how: How, files: StoreFiles, beside: &[&str]) -> Create {
    Create {
        dest: PathBuf::from("/backups"),
        name: name.to_owned(),
        beside: beside.iter().map(|&name| name.to_owned()).collect(),
        how,
        node: "n@h".to_owned(),
        cluster: None,
        program: "test".to_owned(),
        now_ms: name.len() as u64,
        parts: vec![Part { shard: 0, files }],
        others: vec![("membership/log".to_owned(), "log".into())],
        spare_bytes: 0,
    }
}

fn go(_: &Progress) -> Control {
    Control::Continue
}

fn make(disk: &MemoryDisk, request: &Create) -> Result<Created, Error> {
    create(&mut disk.clone(), request, &mut go)
}

fn restore_to(disk: &MemoryDisk, name: &str, data: &str) -> Result<(), Error> {
    let (folder, data) = (Path::new("/backups").join(name), Path::new(data));
    let shard_dir = |shard: u16| data.join(format!("shard-{shard:03}"));
    let rng = &mut SplitMix64::new(99);
    let same = &|_: &str, bytes| Ok(bytes);
    restore(&mut disk.clone(), &folder, (data, &shard_dir), rng, same, &mut go).map(drop)
}

fn contents(store: &mut Embedded, keys: impl Iterator<Item = Vec<u8>>) -> Model {
    keys.filter_map(|key| Some((key.clone(), store.get(&key).unwrap()?.value.unwrap().to_vec()))).collect()
}

fn all_keys() -> impl Iterator<Item = Vec<u8>> {
    (0..600).map(|key| format!("key-{key:04}").into_bytes())
}

/// What is in the data folder `data`.
fn restored(disk: &MemoryDisk, data: &str) -> Model {
    let mut store = open(&disk.after_kill(), &format!("{data}/shard-000"));
    let found = contents(&mut store, all_keys());
    store.close().unwrap();
    found
}

#[test]
fn what_is_restored_is_what_there_was_when_it_was_asked_for() {
    for how in [How::Link, How::Copy] {
        let disk = MemoryDisk::default();
        let (mut store, mut model, mut rng) = (open(&disk, STORE), Model::new(), SplitMix64::new(3));
        churn(&mut store, &mut model, &mut rng, 3_000);
        let then = model.clone();
        let files = files(&mut store);
        // It goes on, and would remove what the backup has yet to take.
        churn(&mut store, &mut model, &mut rng, 3_000);
        store.compact().unwrap();
        let made = make(&disk, &request("one", how, files, &[])).unwrap();
        assert_eq!(made.copied > 0, how == How::Copy);
        assert_eq!(made.linked > 0, how == How::Link);
        churn(&mut store, &mut model, &mut rng, 2_000);
        store.compact().unwrap();
        let incarnation = store.store().incarnation();
        assert_eq!(contents(&mut store, all_keys()), model);
        store.close().unwrap();
        let verified = verify(&mut disk.clone(), Path::new("/backups/one"), &mut go).unwrap();
        assert_eq!(verified.problems, []);
        restore_to(&disk, "one", "/again").unwrap();
        assert_eq!(restored(&disk, "/again"), then);
        let mut again = open(&disk, "/again/shard-000");
        assert_ne!(again.store().incarnation(), incarnation, "it goes on as another one");
        churn(&mut again, &mut Model::new(), &mut rng, 2_000);
        again.compact().unwrap();
        again.close().unwrap();
        let verified = verify(&mut disk.clone(), Path::new("/backups/one"), &mut go).unwrap();
        assert_eq!(verified.problems, [], "nothing that is restored writes to the backup");
    }
}

#[test]
fn an_empty_store_is_backed_up_too() {
    let disk = MemoryDisk::default();
    let mut store = open(&disk, STORE);
    let files = files(&mut store);
    make(&disk, &request("none", How::Link, files, &[])).unwrap();
    assert_eq!(verify(&mut disk.clone(), Path::new("/backups/none"), &mut go).unwrap().problems, []);
    restore_to(&disk, "none", "/again").unwrap();
    assert_eq!(restored(&disk, "/again"), Model::new());
}

#[test]
fn the_second_backup_copies_what_is_new() {
    let disk = MemoryDisk::default();
    let (mut store, mut model, mut rng) = (open(&disk, STORE), Model::new(), SplitMix64::new(5));
    churn(&mut store, &mut model, &mut rng, 4_000);
    let first = {
        let files = files(&mut store);
        make(&disk, &request("1", How::Copy, files, &[])).unwrap()
    };
    assert_eq!((first.kept, first.earlier), (0, None));
    let same = {
        let files = files(&mut store);
        make(&disk, &request("11", How::Copy, files, &["1"])).unwrap()
    };
    assert_eq!((same.copied, same.earlier.as_deref()), (0, Some("1")), "nothing has changed");
    churn(&mut store, &mut model, &mut rng, 300);
    let second = {
        let files = files(&mut store);
        make(&disk, &request("111", How::Copy, files, &["1", "11"])).unwrap()
    };
    assert_eq!(second.earlier.as_deref(), Some("11"), "the newest");
    let is_new = |index: &Index, name: &str| first.index.find(name).is_none() && index.find(name).is_some();
    let data = |name: &str| name.contains("/journal/") || name.contains("/tables/");
    let new: u64 = second
        .index
        .files
        .iter()
        .filter(|file| data(&file.name) && is_new(&second.index, &file.name))
        .map(|file| file.len)
        .sum();
    assert_eq!(second.copied, new);
    assert!(second.kept > 0 && second.copied > 0, "{} and {}", second.kept, second.copied);
    restore_to(&disk, "111", "/again").unwrap();
    assert_eq!(restored(&disk, "/again"), model);
}

#[test]
fn a_stopped_store_is_backed_up_whatever_its_stop() {
    for is_clean in [true, false] {
        let mut disk = MemoryDisk::default();
        let (mut store, mut model, mut rng) = (open(&disk, STORE), Model::new(), SplitMix64::new(7));
        churn(&mut store, &mut model, &mut rng, 2_500);
        if is_clean {
            store.close().unwrap();
            disk = disk.after_kill();
        } else {
            turn(&mut store);
            disk = disk.after_kill();
        }
        let files = StoreFiles::of_stopped(&mut disk.clone(), Path::new(STORE)).unwrap().unwrap();
        assert_eq!(files.files().iter().all(|file| file.is_fixed), is_clean);
        make(&disk, &request("stopped", How::Link, files, &[])).unwrap();
        assert_eq!(verify(&mut disk.clone(), Path::new("/backups/stopped"), &mut go).unwrap().problems, []);
        restore_to(&disk, "stopped", "/again").unwrap();
        assert_eq!(restored(&disk, "/again"), model);
    }
}

#[test]
fn every_damaged_or_missing_file_is_found_and_not_restored() {
    let disk = MemoryDisk::default();
    let (mut store, mut model, mut rng) = (open(&disk, STORE), Model::new(), SplitMix64::new(9));
    churn(&mut store, &mut model, &mut rng, 1_500);
    let files = files(&mut store);
    let made = make(&disk, &request("one", How::Copy, files, &[])).unwrap();
    for (at, entry) in made.index.files.iter().enumerate() {
        let hurt = disk.after_kill();
        let path = Path::new("/backups/one").join(&entry.name);
        match at % 3 {
            0 => hurt.remove(&path),
            1 => hurt.damage(&path, |bytes| *bytes.last_mut().unwrap() ^= 1),
            _ => hurt.damage(&path, |bytes| bytes.truncate(bytes.len() - 1)),
        }
        let found = verify(&mut hurt.clone(), Path::new("/backups/one"), &mut go).unwrap();
        assert!(found.problems.iter().any(|problem| problem.file == entry.name), "{}", entry.name);
        if !entry.name.contains("MANIFEST") {
            assert!(restore_to(&hurt, "one", "/again").is_err(), "{}", entry.name);
        }
    }
}

/// Whatever of it was done, and whatever of that a power cut left: a backup is whole, or there is none.
#[test]
fn a_backup_that_is_broken_off_is_none() {
    let (mut broken, mut whole) = (0, 0);
    for step in 1.. {
        let disk = MemoryDisk::default();
        let (mut store, mut model, mut rng) = (open(&disk, STORE), Model::new(), SplitMix64::new(13));
        churn(&mut store, &mut model, &mut rng, 400);
        let files = files(&mut store);
        let begin = disk.ops();
        disk.fail(begin + step, u64::MAX);
        let how = if step % 2 == 0 { How::Link } else { How::Copy };
        let made = make(&disk, &request("one", how, files, &[]));
        for left in [disk.after_kill(), disk.after_power_cut()] {
            let folder = Path::new("/backups/one");
            match Index::read(&mut left.clone(), folder) {
                Err(error) => {
                    assert!(matches!(error, Error::NotBackup(_)), "{error}");
                    assert!(made.is_err());
                    broken += 1;
                }
                Ok(_) => {
                    assert_eq!(verify(&mut left.clone(), folder, &mut go).unwrap().problems, []);
                    restore_to(&left, "one", "/again").unwrap();
                    assert_eq!(restored(&left, "/again"), model);
                    whole += 1;
                }
            }
        }
        if made.is_ok() {
            break;
        }
    }
    assert!(broken > 40 && whole >= 2, "{broken} {whole}");
}

#[test]
fn a_name_is_used_once_and_room_is_looked_for_first() {
    let disk = MemoryDisk::default();
    let (mut store, mut model, mut rng) = (open(&disk, STORE), Model::new(), SplitMix64::new(15));
    churn(&mut store, &mut model, &mut rng, 500);
    let first = files(&mut store);
    make(&disk, &request("one", How::Copy, first, &[])).unwrap();
    let again = files(&mut store);
    assert!(matches!(make(&disk, &request("one", How::Copy, again, &[])), Err(Error::Taken(_))));
    let stopped = request("two", How::Copy, files(&mut store), &[]);
    let end = create(&mut disk.clone(), &stopped, &mut |_| Control::Stop);
    assert_eq!(end.map(drop), Err(Error::Stopped));
    let tight = Create { spare_bytes: u64::MAX, ..request("three", How::Copy, files(&mut store), &[]) };
    disk.bound(Some(1 << 20));
    assert!(matches!(make(&disk, &tight), Err(Error::NoRoom { .. })));
    let missing = verify(&mut { disk }, Path::new("/backups/none"), &mut go);
    assert!(matches!(missing.map(drop), Err(Error::NotBackup(_))));
}
