//! A ledger that is lost, in part or as a whole, and made again from the journal: what was acknowledged is there, what
//! was deleted, dropped or has ended stays away, and what cannot be known is an error. Never an older value.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::HandClock;
use crate::common::disk::MemoryDisk;
use base::Rng;
use base::rng::SplitMix64;
use bytes::Bytes;
use engine::fold::{Control, FoldRequest, JournalCheck, KeyRange, ScanRequest, Visit, What, read_all};
use engine::recovery::{RebuildReport, in_turn, repair_store};
use engine::{CompactionSchedule, Durability, Embedded, Error, Machine, Options, Write};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const DIR: &str = "/store";
const KEYS: u64 = 120;

fn options(inline_value_bytes_max: usize) -> Options {
    Options {
        durability: Durability::Sync,
        inline_value_bytes_max,
        memtable_bytes_max: 4 << 10,
        segment_bytes_target: 8 << 10,
        table_bytes_target: 4 << 10,
        level0_tables_max: 2,
        runs_max: 2,
        leveled_bytes_target: 3 << 10,
        compaction: CompactionSchedule::Never,
        metadata: [(b"shard".to_vec(), b"7".to_vec())].into(),
        ..Options::default()
    }
}

type Version = (Vec<u8>, Vec<u8>, Option<u64>);
type Model = BTreeMap<u64, Version>;

struct World {
    disk: MemoryDisk,
    clock: HandClock,
    options: Options,
    rng: SplitMix64,
    model: Model,
    writes: u64,
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:04}").into_bytes()
}

impl World {
    fn new(seed: u64, inline_value_bytes_max: usize) -> World {
        let (disk, clock) = (MemoryDisk::default(), HandClock::new());
        let (options, rng) = (options(inline_value_bytes_max), SplitMix64::new(seed));
        World { disk, clock, options, rng, model: Model::new(), writes: 0 }
    }

    fn open(&self) -> Result<Embedded, Error> {
        let disk = self.disk.clone();
        let machine = Machine::new(move || disk.clone(), self.clock.clone(), SplitMix64::new(1));
        Embedded::open(Path::new(DIR), self.options.clone(), machine)
    }

    /// One life of the store, which ends by a clean stop or a kill.
    fn live(&mut self, ops: u64) {
        let mut store = self.open().unwrap();
        for _ in 0..ops {
            self.writes += 1;
            let number = self.rng.below(KEYS);
            let head = self.writes.to_le_bytes().to_vec();
            let len = 1 + self.rng.below(120) as usize;
            let value = vec![self.writes as u8; len];
            match self.rng.below(40) {
                0..8 => {
                    store.delete(&key(number)).unwrap();
                    self.model.remove(&number);
                }
                8 => {
                    let (from, to) = (number, number + self.rng.below(6));
                    store.drop_range(&key(from), &key(to)).unwrap();
                    self.model.retain(|number, _| !(from..to).contains(number));
                }
                9 => {
                    let end = self.clock.ms() + 50;
                    store.put_for(&key(number), &head, &value, Duration::from_millis(50)).unwrap();
                    self.model.insert(number, (head, value, Some(end)));
                }
                10 => self.clock.advance_ms(20),
                11 => {
                    let other = (number + 1) % KEYS;
                    let value = [&value[..]];
                    let put = |key| Write::Put { key, head: &head, value: &value };
                    store.write(&[put(&key(number)), put(&key(other))]).unwrap();
                    for number in [number, other] {
                        self.model.insert(number, (head.clone(), value.concat(), None));
                    }
                }
                12 if self.rng.chance(1, 3) => store.compact().unwrap(),
                _ => {
                    store.put(&key(number), &head, &value).unwrap();
                    self.model.insert(number, (head, value, None));
                }
            }
        }
        if self.rng.chance(1, 2) {
            store.close().unwrap();
        }
        self.disk = self.disk.after_kill();
    }

    fn files(&self, folder: &str) -> Vec<PathBuf> {
        let folder = Path::new(DIR).join(folder);
        self.disk.names().into_iter().filter(|path| path.parent() == Some(&folder)).collect()
    }

    fn lose(&self, path: &Path) {
        self.disk.remove(path);
    }

    fn lose_ledger(&self) {
        let manifests = ["MANIFEST", "MANIFEST.copy"].map(|name| Path::new(DIR).join(name));
        manifests.iter().chain(&self.files("tables")).for_each(|path| self.lose(path));
    }

    fn repair(&mut self) -> Result<RebuildReport, Error> {
        let mut disk = self.disk.clone();
        let mut rng = SplitMix64::new(9);
        let (dir, run) = (Path::new(DIR), &mut in_turn);
        let report = repair_store(&mut disk, dir, &self.options, &mut rng, run, &Arc::default());
        self.disk = self.disk.after_kill();
        report
    }

    /// Reads every key; how many answers are errors. Others must be right.
    fn no_wrong_answer(&self, store: &mut Embedded, what: &str) -> u64 {
        let now_ms = self.clock.ms();
        let mut errors = 0;
        for number in 0..KEYS {
            let live = self.model.get(&number).filter(|(_, _, end)| end.is_none_or(|end| end > now_ms));
            let expected = live.map(|(head, value, _)| (head.clone(), value.clone()));
            match store.get(&key(number)) {
                Ok(found) => {
                    let found = found.map(|found| (found.head.to_vec(), found.value.unwrap().to_vec()));
                    assert_eq!(found, expected, "key {number} {what}");
                }
                Err(Error::Damaged(_)) => errors += 1,
                Err(error) => panic!("key {number} {what}: {error}"),
            }
        }
        errors
    }

    /// What was repaired goes on to be a store: over writes, compactions, restarts and another loss.
    fn goes_on(&mut self, what: &str) {
        for _ in 0..2 {
            self.live(150);
            let mut store = self.open().unwrap();
            self.no_wrong_answer(&mut store, what);
            self.disk = self.disk.after_kill();
        }
    }
}

/// Values in the journal alone: all of the ledger is there again, also after compactions.
#[test]
fn a_lost_ledger_is_made_again() {
    for seed in 0..40 {
        let mut world = World::new(seed, 0);
        (0..1 + seed % 4).for_each(|_| world.live(250));
        world.lose_ledger();
        assert!(world.open().is_err(), "a store without its ledger is no new one");
        world.disk = world.disk.after_kill();
        let report = world.repair().unwrap();
        assert_eq!((report.lost.len(), report.damage.len() <= 1), (0, true), "seed {seed}: {report:?}");
        let mut store = world.open().unwrap();
        assert_eq!(store.store().metadata(), &world.options.metadata);
        assert_eq!(world.no_wrong_answer(&mut store, &format!("of seed {seed}")), 0, "seed {seed}");
        drop(store);
        world.disk = world.disk.after_kill();
        world.goes_on(&format!("of seed {seed}, later"));
    }
}

/// Inline values whose records compaction has let go of were in tables alone: what is not found is an error.
#[test]
fn what_only_tables_had_is_an_error() {
    let (mut errors, mut whole) = (0, 0);
    for seed in 0..40 {
        let mut world = World::new(seed, 64);
        (0..1 + seed % 4).for_each(|_| world.live(250));
        let is_whole = world.disk.names().contains(&Path::new(DIR).join("JOURNAL-IS-WHOLE"));
        world.lose_ledger();
        world.options.rebuild_lost_ledger = true;
        let mut store = world.open().unwrap();
        let some = world.no_wrong_answer(&mut store, &format!("of seed {seed}"));
        assert!(!is_whole || some == 0, "seed {seed}");
        errors += some;
        whole += u64::from(is_whole);
        drop(store);
        world.disk = world.disk.after_kill();
        world.goes_on(&format!("of seed {seed}, later"));
    }
    assert!(errors > 0 && whole > 0, "{errors} errors, {whole} whole journals");
}

/// With a manifest, only what was lost is an error, and a repair finds again what the journal has.
#[test]
fn a_lost_table_is_healed_from_the_journal() {
    let (mut lost, mut left) = (0, 0);
    for seed in 0..40 {
        let inline = if seed % 2 == 0 { 0 } else { 64 };
        let mut world = World::new(seed, inline);
        (0..2).for_each(|_| world.live(250));
        let tables = world.files("tables");
        let victim = &tables[world.rng.below(tables.len() as u64) as usize];
        match world.rng.chance(1, 2) {
            true => world.lose(victim),
            false => world.disk.damage(victim, |bytes| bytes[7] ^= 1),
        }
        let what = format!("of seed {seed}");
        let before = world.disk.after_kill();
        if let Ok(mut store) = world.open() {
            lost += world.no_wrong_answer(&mut store, &what);
            drop(store);
        }
        // As it was, or after a start has named what is lost.
        world.disk = if seed % 3 == 0 { before } else { world.disk.after_kill() };
        world.repair().unwrap();
        let mut store = world.open().unwrap();
        let some = world.no_wrong_answer(&mut store, &what);
        assert!(inline > 0 || some == 0, "seed {seed}: {some} errors");
        left += some;
        drop(store);
        world.disk = world.disk.after_kill();
        world.goes_on(&format!("{what}, later"));
    }
    assert!(lost > left, "{lost} lost, {left} after the repair");
}

/// Small values leave the journal once tables have them; not where a table is lost, and the journal has what a repair
/// needs.
#[test]
fn what_a_lost_table_had_stays_in_the_journal() {
    let mut world = World::new(3, 64);
    let mut store = world.open().unwrap();
    for number in 0..KEYS {
        store.put(&key(number), b"head", b"small").unwrap();
        world.model.insert(number, (b"head".to_vec(), b"small".to_vec(), None));
        // Several tables: with none left the whole ledger would be lost.
        if number % 40 == 39 {
            store.flush().unwrap();
        }
    }
    drop(store);
    world.disk = world.disk.after_kill();
    world.lose(&world.files("tables")[0]);

    let mut store = world.open().unwrap();
    assert!(world.no_wrong_answer(&mut store, "of a lost table") > 0);
    // A flush tells how far tables go, and a compaction that nothing is older than the journal's first records.
    for _ in 0..KEYS / 2 {
        store.put(b"other", b"head", b"small").unwrap();
    }
    store.flush().unwrap();
    store.compact().unwrap();
    store.close().unwrap();
    world.disk = world.disk.after_kill();
    world.repair().unwrap();
    let mut store = world.open().unwrap();
    assert_eq!(world.no_wrong_answer(&mut store, "after the repair"), 0);
}

/// A manifest that is damaged has a copy, whatever it was that the store did last.
#[test]
fn a_lost_manifest_has_a_copy() {
    for seed in 0..20 {
        let mut world = World::new(seed, 64);
        (0..2).for_each(|_| world.live(150));
        let manifest = Path::new(DIR).join("MANIFEST");
        match seed % 2 {
            0 => world.lose(&manifest),
            _ => world.disk.damage(&manifest, |bytes| bytes[100] ^= 1),
        }
        let mut store = world.open().unwrap();
        assert_eq!(store.report().damage.len(), 1);
        assert_eq!(world.no_wrong_answer(&mut store, "from the copy"), 0);
    }
}

/// A segment that is missing costs its values, and gives them back when it is there again. The last ones are missed.
#[test]
fn a_missing_segment_costs_its_own_values() {
    let (mut refused, mut errors) = (0, 0);
    for seed in 0..20 {
        let mut world = World::new(seed, 64);
        (0..2).for_each(|_| world.live(200));
        world.open().unwrap().close().unwrap();
        let whole = world.disk.after_kill();
        for path in world.files("journal") {
            world.disk = whole.after_kill();
            world.lose(&path);
            let what = format!("of seed {seed} without {}", path.display());
            match world.open() {
                Ok(mut store) => {
                    errors += world.no_wrong_answer(&mut store, &what);
                    store.compact().unwrap();
                    world.no_wrong_answer(&mut store, &what);
                    store.close().unwrap();
                    world.disk = world.disk.after_kill();
                    let left = world.no_wrong_answer(&mut world.open().unwrap(), &what);
                    world.disk = world.disk.after_kill();
                    world.repair().unwrap();
                    assert!(world.no_wrong_answer(&mut world.open().unwrap(), &what) <= left, "{what}");
                }
                Err(Error::Damaged(damage)) => {
                    refused += 1;
                    assert_eq!(damage.what, "the segment is missing");
                }
                Err(error) => panic!("{what}: {error}"),
            }
        }
    }
    assert!(refused > 0 && errors > 20, "{refused} stores refused, {errors} errors");
}

/// Folders of different ages, as a careless restore makes them: what is older than the other is told, or caught up
/// with.
#[test]
fn folders_of_different_ages_give_no_older_value() {
    let (mut served, mut refused) = (0, 0);
    for seed in 0..30 {
        let mut world = World::new(seed, if seed % 2 == 0 { 0 } else { 64 });
        world.live(200);
        let old = world.disk.after_kill();
        (0..1 + seed % 3).for_each(|_| world.live(150));
        let new = world.disk.after_kill();
        for is_ledger_old in [true, false] {
            world.disk = new.after_kill();
            let is_of_journal = |path: &PathBuf| path.starts_with("/store/journal");
            for path in new.names().iter().filter(|path| is_of_journal(path) != is_ledger_old) {
                world.lose(path);
            }
            let files = old.names().into_iter().filter(|path| is_of_journal(path) != is_ledger_old);
            files.for_each(|path| world.disk.copy(&old, &path));
            let what = format!("of seed {seed}, with the older ledger: {is_ledger_old}");
            let folders = world.disk.after_kill();
            if let Ok(mut store) = world.open() {
                served += 1;
                world.no_wrong_answer(&mut store, &what);
                continue;
            }
            refused += 1;
            if is_ledger_old {
                world.disk = folders;
                world.repair().unwrap();
                world.no_wrong_answer(&mut world.open().unwrap(), &what);
            }
        }
    }
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
}

/// A crash may bring back what compactions removed: outputs that were inputs of later ones, or of which nothing was
/// left.
#[test]
fn what_comes_back_of_a_compaction_is_removed() {
    let mut back = 0;
    for seed in 0..30 {
        let mut world = World::new(seed, 0);
        world.live(300);
        world.open().unwrap().compact().unwrap();
        world.disk = world.disk.after_kill();
        let old = world.disk.after_kill();
        (0..3).for_each(|_| world.live(200));
        world.open().unwrap().compact().unwrap();
        world.disk = world.disk.after_kill();
        let new = world.disk.names();
        for path in old.names().into_iter().filter(|path| path.starts_with("/store/journal")) {
            if !new.contains(&path) {
                world.disk.copy(&old, &path);
                back += 1;
            }
        }
        let mut store = world.open().unwrap();
        assert_eq!(world.no_wrong_answer(&mut store, &format!("of seed {seed}")), 0);
    }
    assert!(back > 30, "{back} files came back");
}

/// What a start reads, and a scan, would else pass over what was lost: a node took older bucket properties, or none.
#[test]
fn a_scan_of_lost_versions_is_an_error() {
    let mut world = World::new(1, 0);
    (0..3).for_each(|_| world.live(250));
    world.lose(&world.files("tables")[0]);
    let mut store = world.open().unwrap();
    let all = |end: &[u8]| ScanRequest {
        start: Bytes::new(),
        end: Bytes::copy_from_slice(end),
        items_max: usize::MAX,
        visitor: Box::new(|_, _| Visit::Take),
        past_losses: false,
    };
    assert!(matches!(store.scan(all(b"l")), Err(Error::Damaged(_))));
    assert!(store.scan(all(b"k")).unwrap().items.is_empty(), "nothing was lost there");
    let left = store.scan(ScanRequest { past_losses: true, ..all(b"l") }).unwrap();
    assert!(!left.items.is_empty() && left.next.is_none(), "what is left there can be asked for");
    let heads = FoldRequest::over(KeyRange::new(&b""[..], &b"l"[..]), What::Heads(JournalCheck::None));
    let folded = store.reader().fold(heads.clone(), &mut |_| Control::Next);
    assert!(matches!(folded, Err(Error::Damaged(_))), "{folded:?}");
    let folded = store.reader().fold(FoldRequest { past_losses: true, ..heads }, &mut |_| Control::Next);
    assert_eq!(folded.unwrap().visited, left.items.len() as u64);
    let snapshot = store.snapshot();
    assert!(matches!(read_all(&mut world.disk.clone(), &snapshot, b"", b"l"), Err(Error::Damaged(_))));
    assert_eq!(read_all(&mut world.disk, &snapshot, b"l", b"m"), Ok(Vec::new()));
}

/// Killed at any operation, a repair is taken up again, and comes to the same.
#[test]
fn a_repair_that_is_killed_goes_on() {
    let mut world = World::new(3, 0);
    (0..3).for_each(|_| world.live(250));
    world.lose_ledger();
    let lost = world.disk.after_kill();
    world.repair().unwrap();
    let ops = world.disk.ops();
    assert!(ops == 0, "a disk after a kill counts anew");
    let (mut resumed, mut k) = (0, 1);
    loop {
        world.disk = lost.after_kill();
        world.disk.fail(k, u64::MAX);
        let ended = world.repair().is_ok();
        let report = world.repair().unwrap();
        resumed += u64::from(report.segments_resumed > 0);
        let mut store = world.open().unwrap();
        assert_eq!(world.no_wrong_answer(&mut store, &format!("after operation {k}")), 0);
        if ended {
            break;
        }
        k += 3;
    }
    assert!(k > 50 && resumed > 5, "{k} operations, {resumed} resumed");
}

/// Whatever is damaged, and whatever is repaired, no answer is wrong.
#[test]
fn no_damage_and_no_repair_gives_an_older_value() {
    let mut errors = 0;
    for seed in 0..60 {
        let mut world = World::new(seed, if seed % 2 == 0 { 0 } else { 64 });
        (0..2).for_each(|_| world.live(200));
        // The last group has no mark that vouches for it; the manifest of a clean stop does.
        world.open().unwrap().close().unwrap();
        world.disk = world.disk.after_kill();
        let files: Vec<PathBuf> =
            world.disk.names().into_iter().filter(|path| !path.ends_with("LOCK")).collect();
        for _ in 0..1 + world.rng.below(3) {
            let path = &files[world.rng.below(files.len() as u64) as usize];
            let at = world.rng.next_u64() as usize;
            world.disk.damage(path, |bytes| {
                if !bytes.is_empty() {
                    let at = at % bytes.len();
                    bytes[at] ^= 0x10;
                }
            });
        }
        let what = format!("of seed {seed}");
        if seed % 4 > 1
            && let Ok(mut store) = world.open()
        {
            world.no_wrong_answer(&mut store, &what);
            drop(store);
            world.disk = world.disk.after_kill();
        }
        world.disk = world.disk.after_kill();
        world.repair().unwrap();
        let mut store = world.open().unwrap();
        errors += world.no_wrong_answer(&mut store, &what);
    }
    assert!(errors > 0);
}
