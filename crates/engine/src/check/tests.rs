//! A store is built, broken in one place at a time, and checked.

use super::{Finding, FindingKind, Summary, check_store};
use crate::error::Error;
use crate::store::{Durability, Options};
use crate::{Embedded, Machine, Write};
use base::rng::SplitMix64;
use base::{DiskErrorKind, Rng};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Small enough that a few hundred writes make several segments, tables and levels.
fn small() -> Options {
    Options {
        durability: Durability::None,
        inline_value_bytes_max: 64,
        memtable_bytes_max: 16 << 10,
        segment_bytes_target: 32 << 10,
        table_bytes_target: 8 << 10,
        leveled_bytes_target: 32 << 10,
        // Records that nothing points at are looked at, too.
        space_target_percent: 200,
        ..Options::default()
    }
}

fn open(dir: &Path, options: Options) -> Embedded {
    let disks = os::OsDisk::blocking().blocking_handles();
    Embedded::open(dir, options, Machine::new(disks, os::OsClock::new(), os::OsRng::new())).unwrap()
}

fn fill(store: &mut Embedded, writes: u64, seed: u64) {
    let mut rng = SplitMix64::new(seed);
    for n in 0..writes {
        let key = format!("key-{:04}", rng.below(400)).into_bytes();
        let value = vec![n as u8; rng.below(300) as usize];
        match rng.below(8) {
            0 => store.write(&[Write::Delete { key: &key }]),
            1 => store.write(&[
                Write::Put { key: &key, head: b"1", value: &[&value] },
                Write::Delete { key: b"key-x" },
            ]),
            _ => store.put(&key, b"head", &value),
        }
        .unwrap();
    }
}

/// A store that was stopped cleanly.
fn clean_store() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), small());
    fill(&mut store, 1500, 1);
    store.close().unwrap();
    folder
}

fn check(dir: &Path) -> (Summary, Vec<Finding>) {
    let mut findings = Vec::new();
    let summary =
        check_store(&mut os::OsDisk::blocking(), dir, &mut |finding| findings.push(finding)).unwrap();
    let count = |kind| findings.iter().filter(|finding| finding.kind == kind).count() as u64;
    assert_eq!(
        (summary.damaged, summary.torn, summary.leftovers),
        (count(FindingKind::Damage), count(FindingKind::Torn), count(FindingKind::Leftover))
    );
    (summary, findings)
}

/// Every file with its content, by its name in the store.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for folder in ["", "journal", "tables"] {
        for entry in std::fs::read_dir(dir.join(folder)).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                let path = Path::new(folder).join(entry.file_name());
                #[expect(clippy::disallowed_methods, reason = "a test looks behind the disk's back")]
                files.insert(path, std::fs::read(entry.path()).unwrap());
            }
        }
    }
    files
}

#[expect(clippy::disallowed_methods, reason = "a test breaks files behind the disk's back")]
fn overwrite(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_clean_store_has_no_findings_and_stays_as_it_is() {
    let folder = clean_store();
    let before = files(folder.path());
    let (summary, findings) = check(folder.path());
    assert_eq!(findings, []);
    assert!(summary.tables > 3 && summary.blocks > summary.tables && summary.entries > 300, "{summary:?}");
    assert!(summary.segments > 3 && summary.records > 700, "{summary:?}");
    assert!(files(folder.path()) == before, "a check changes nothing");
}

#[test]
fn one_flipped_bit_in_any_file_names_that_file() {
    let folder = clean_store();
    let mut rng = SplitMix64::new(11);
    let mut flips = 0;
    for (name, good) in files(folder.path()).into_iter().filter(|(_, good)| !good.is_empty()) {
        let len = good.len() as u64;
        // The ends of a file hold its headers, trailers and footers.
        let edges = [1, 30, 40, 100].into_iter().filter_map(|back| len.checked_sub(back));
        let edges = edges.chain([0, 9, 63].into_iter().filter(|at| *at < len));
        for at in edges.chain((0..12).map(|_| rng.below(len))).collect::<Vec<_>>() {
            let mut bad = good.clone();
            bad[at as usize] ^= 1 << rng.below(8);
            overwrite(&folder.path().join(&name), &bad);
            let (summary, findings) = check(folder.path());
            assert!(summary.damaged > 0, "bit at {at} of {}: {findings:?}", name.display());
            let named =
                |f: &Finding| f.kind == FindingKind::Damage && Path::new(&f.file) == name && f.offset <= at;
            assert!(findings.iter().any(named), "bit at {at} of {}: {findings:?}", name.display());
            flips += 1;
        }
        overwrite(&folder.path().join(&name), &good);
    }
    assert!(flips > 150, "{flips}");
    assert_eq!(check(folder.path()).1, []);
}

#[test]
fn a_missing_file_is_damage() {
    let folder = clean_store();
    for (name, good) in files(folder.path()) {
        let path = folder.path().join(&name);
        let is_spare = good.len() <= 64;
        #[expect(clippy::disallowed_methods, reason = "a test breaks files behind the disk's back")]
        std::fs::remove_file(&path).unwrap();
        let (summary, findings) = check(folder.path());
        if !is_spare {
            assert!(summary.damaged > 0, "{}", name.display());
            assert!(findings.iter().any(|f| Path::new(&f.file) == name), "{}: {findings:?}", name.display());
        }
        overwrite(&path, &good);
    }
}

#[test]
fn what_a_crash_cut_off_is_torn_and_not_damage() {
    let folder = clean_store();
    let mut store = open(folder.path(), Options { durability: Durability::Sync, ..small() });
    fill(&mut store, 40, 3);
    drop(store);
    let (summary, findings) = check(folder.path());
    assert_eq!((summary.damaged, summary.torn), (0, 0), "{findings:?}");
    let (name, good) = files(folder.path())
        .into_iter()
        .rfind(|(name, bytes)| name.to_string_lossy().starts_with("journal/0") && bytes.len() > 64)
        .unwrap();
    // Behind the records there is the room that they were given ahead.
    let end = (good.iter().rposition(|byte| *byte != 0).unwrap() + 1).next_multiple_of(8);
    assert!(end < good.len() - 8, "{end} of {} bytes", good.len());
    overwrite(&folder.path().join(&name), &good[..end]);
    let (summary, findings) = check(folder.path());
    assert_eq!((summary.damaged, summary.torn), (0, 0), "{findings:?}");
    // Only the last record can be torn: the group after it would say that it was synced.
    let zeros = [&good[..end - 8], &vec![0; good.len() - end + 8]].concat();
    for torn in [&good[..end - 8], &zeros] {
        overwrite(&folder.path().join(&name), torn);
        let (summary, findings) = check(folder.path());
        assert_eq!((summary.damaged, summary.torn), (0, 1), "{findings:?}");
        assert_eq!((findings[0].kind, Path::new(&findings[0].file)), (FindingKind::Torn, &*name));
    }
    let mut bad = good;
    bad[end / 2] ^= 1;
    overwrite(&folder.path().join(&name), &bad);
    let (summary, findings) = check(folder.path());
    assert_eq!((summary.damaged, summary.torn), (1, 0), "{findings:?}");
}

#[test]
fn a_crash_s_files_that_nothing_names_are_leftovers() {
    let folder = clean_store();
    overwrite(&folder.path().join("MANIFEST.tmp"), b"half a mani");
    overwrite(&folder.path().join("tables/00000000ffffffff.tbl"), b"half a table");
    let (summary, findings) = check(folder.path());
    assert_eq!((summary.damaged, summary.leftovers), (0, 2), "{findings:?}");
}

#[test]
fn an_open_store_and_no_store_cannot_be_checked() {
    let folder = tempfile::tempdir().unwrap();
    let refused = || check_store(&mut os::OsDisk::blocking(), folder.path(), &mut |_| {}).unwrap_err();
    assert!(matches!(refused(), Error::Format { .. }));
    assert_eq!(files_in(folder.path()), 0, "nothing is made");
    let _store = open(folder.path(), small());
    assert!(matches!(refused(), Error::Disk(error) if error.kind == DiskErrorKind::Locked));
}

fn files_in(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}
