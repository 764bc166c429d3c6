//! What an owner keeps beside the ledger is there after a start, as of what the store has: never ahead of it, never
//! behind.
//!
//! The owner here keeps a copy of all heads, and tells it as a list of changes.

use crate::common::disk::MemoryDisk;
use crate::common::strain::{Slow, options};
use base::Rng;
use base::rng::SplitMix64;
use bytes::Bytes;
use engine::checkpoint::NotTaken;
use engine::fold::{Control, FoldRequest, JournalCheck, KeyRange, Replaced, What};
use engine::store::{Event, OpenReport};
use engine::{Durability, Options, Seq, Write};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

const LOG: &str = "/store/CHECKPOINTS";
const KEYS: u64 = 80;

type Heads = BTreeMap<Vec<u8>, Vec<u8>>;
type Change = (Vec<u8>, Option<Vec<u8>>);
/// What was replayed, with what was there before.
type Parts = BTreeMap<Seq, Vec<(Change, Option<Vec<u8>>)>>;

/// One change a line, in hexadecimal; the first line of a record that is told whole says so.
fn encode(whole: bool, changes: &[Change]) -> Bytes {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut out = String::from(if whole { "whole\n" } else { "" });
    for (key, head) in changes {
        out += &format!("{} {}\n", hex(key), head.as_ref().map_or("-".to_owned(), |head| hex(head)));
    }
    out.into()
}

fn decode(records: &[Bytes]) -> Heads {
    let unhex = |text: &str| {
        (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
    };
    let mut heads = Heads::new();
    for record in records {
        for line in std::str::from_utf8(record).unwrap().lines() {
            match line.split_once(' ') {
                None => heads.clear(),
                Some((key, "-")) => drop(heads.remove(&unhex(key) as &Vec<u8>)),
                Some((key, head)) => drop(heads.insert(unhex(key), unhex(head))),
            }
        }
    }
    heads
}

fn join(records: &[Bytes]) -> Option<Bytes> {
    Some(encode(true, &decode(records).into_iter().map(|(key, head)| (key, Some(head))).collect::<Vec<_>>()))
}

/// A store and its owner.
struct Owner {
    slow: Slow,
    heads: Heads,
    changes: Vec<Change>,
}

impl Owner {
    fn open(disk: MemoryDisk, options: Options) -> (Owner, OpenReport, bool) {
        let (slow, report) = Slow::open_on(disk, options);
        let mut owner = Owner { slow, heads: Heads::new(), changes: Vec::new() };
        let found = owner.slow.store.take_checkpoint();
        let is_kept = found.is_some();
        match found {
            Some(found) => {
                owner.slow.store.keep_checkpoints(join);
                owner.heads = decode(&found.records);
                let parts: Arc<Mutex<Parts>> = Arc::default();
                let noted = Arc::clone(&parts);
                let visitor = move |item: &Replaced<'_>| {
                    let change = (item.key.to_vec(), item.after.map(<[u8]>::to_vec));
                    let before = item.before.map(<[u8]>::to_vec);
                    noted.lock().unwrap().entry(item.last_seq).or_default().push((change, before));
                };
                owner.slow.store.fold_replayed(found.replayed, KeyRange::all(), Box::new(visitor));
                while !owner.slow.events.drain(..).any(|event| matches!(event, Event::Fold(_, Ok(_)))) {
                    owner.slow.run_slice();
                    owner.slow.turn();
                }
                for (last_seq, changes) in std::mem::take(&mut *parts.lock().unwrap()) {
                    owner.give_before(last_seq);
                    for (change, before) in changes {
                        assert_eq!(owner.heads.get(&change.0), before.as_ref());
                        owner.change(change);
                    }
                }
            }
            None => {
                // What it reads is as of now, and no checkpoint of a memtable that was frozen before.
                owner.slow.rest();
                owner.heads = owner.read();
                owner.slow.store.keep_checkpoints(join);
            }
        }
        (owner, report, is_kept)
    }

    fn change(&mut self, change: Change) {
        match &change.1 {
            Some(head) => drop(self.heads.insert(change.0.clone(), head.clone())),
            None => drop(self.heads.remove(&change.0)),
        }
        self.changes.push(change);
    }

    fn give_before(&mut self, seq: Seq) {
        while let Some(wanted) = self.slow.store.wants_checkpoint().filter(|wanted| wanted.seq < seq) {
            let changes = std::mem::take(&mut self.changes);
            let all = || self.heads.iter().map(|(key, head)| (key.clone(), Some(head.clone()))).collect();
            let changes: Vec<Change> = if wanted.whole { all() } else { changes };
            self.slow.store.checkpoint(encode(wanted.whole, &changes));
        }
    }

    fn turn(&mut self) {
        self.slow.turn();
        self.give_before(Seq(u64::MAX));
    }

    fn write(&mut self, key: &[u8], head: Option<&[u8]>) {
        let write = match head {
            Some(head) => Write::Put { key, head, value: &[b"value"] },
            None => Write::Delete { key },
        };
        // Refused while too much waits.
        let Ok(seq) = self.slow.store.write(&[write]) else { return };
        self.give_before(seq);
        self.change((key.to_vec(), head.map(<[u8]>::to_vec)));
    }

    /// All heads that the store has.
    fn read(&mut self) -> Heads {
        let heads: Arc<Mutex<Heads>> = Arc::default();
        let seen = Arc::clone(&heads);
        let request = FoldRequest {
            past_losses: true,
            ..FoldRequest::over(KeyRange::all(), What::Heads(JournalCheck::None))
        };
        let snapshot = self.slow.store.snapshot();
        let visitor = move |item: &engine::fold::Visited<'_>| {
            seen.lock().unwrap().insert(item.key.to_vec(), item.head.to_vec());
            Control::Next
        };
        self.slow.store.fold_at(request, snapshot, Box::new(visitor)).unwrap();
        while !self.slow.events.drain(..).any(|event| matches!(event, Event::Fold(_, Ok(_)))) {
            self.slow.run_slice();
            self.slow.turn();
        }
        std::mem::take(&mut *heads.lock().unwrap())
    }

    fn close(mut self) -> MemoryDisk {
        self.slow.store.begin_close();
        while !self.slow.events.drain(..).any(|event| matches!(event, Event::Closed(Ok(())))) {
            self.turn();
            self.slow.run_slice();
        }
        self.slow.disk.after_power_cut()
    }
}

fn small() -> Options {
    Options { durability: Durability::Sync, memtable_bytes_max: 3 << 10, ..options() }
}

fn live(owner: &mut Owner, rng: &mut SplitMix64, writes: u64, slices: u64) {
    for number in 0..writes {
        let key = format!("key-{}", rng.below(KEYS)).into_bytes();
        let head = number.to_le_bytes();
        owner.write(&key, (rng.below(4) > 0).then_some(&head));
        if rng.below(3) == 0 {
            owner.turn();
            (0..rng.below(slices)).for_each(|_| _ = owner.slow.run_slice());
        }
    }
}

/// Whatever a life was cut short in. The log is begun with the first flush, so a start before that has none.
#[test]
fn what_is_kept_is_what_the_store_has() {
    let (mut kept, mut joined) = (0, 0);
    for seed in 0..40 {
        let mut rng = SplitMix64::new(seed);
        let mut disk = MemoryDisk::default();
        for life in 0..10 {
            let (mut owner, report, is_kept) = Owner::open(disk, small());
            let read = owner.read();
            assert_eq!(owner.heads, read, "seed {seed}, life {life}");
            assert!(is_kept || report.checkpoint.is_none() || seed % 4 == 3, "seed {seed}, life {life}");
            kept += u64::from(is_kept);
            let writes = rng.below(300);
            // In some seeds the disk is so slow that flushes go without.
            live(&mut owner, &mut rng, writes, if seed % 4 == 3 { 3 } else { 20 });
            let stats = owner.slow.store.stats().counters;
            joined += u64::from(stats.checkpoint_bytes > 8 << 10);
            disk = match rng.below(3) {
                0 => owner.close(),
                1 => owner.slow.disk.after_kill(),
                _ => owner.slow.disk.after_power_cut(),
            };
        }
    }
    assert!(kept > 250, "{kept} of 400 starts");
    assert!(joined > 20, "{joined} lives in which the log became long");
}

#[test]
fn a_clean_stop_replays_nothing_and_keeps_all() {
    let (owner, _, is_kept) = Owner::open(MemoryDisk::default(), small());
    assert!(!is_kept);
    // Nothing was written, and yet it is kept.
    let (mut owner, _, is_kept) = Owner::open(owner.close(), small());
    assert!(is_kept);
    live(&mut owner, &mut SplitMix64::new(1), 30, 5);
    // A number that no memtable has.
    owner.slow.store.write(&[Write::DropRange { start: b"x", end: b"y" }]).unwrap();
    let heads = owner.heads.clone();
    let (owner, report, is_kept) = Owner::open(owner.close(), small());
    assert!(is_kept && report.clean && owner.heads == heads);
}

/// Each change of each of its bytes: it is as before, or there is none.
#[test]
fn a_damaged_log_is_not_taken() {
    let (mut owner, ..) = Owner::open(MemoryDisk::default(), small());
    live(&mut owner, &mut SplitMix64::new(2), 30, 5);
    let heads = owner.heads.clone();
    let disk = owner.close();
    for at in 0..disk.bytes(Path::new(LOG)).len() {
        let disk = disk.after_kill();
        disk.damage(Path::new(LOG), |bytes| bytes[at] ^= 1);
        let (owner, report, is_kept) = Owner::open(disk, small());
        assert!(!is_kept && report.checkpoint.is_some(), "byte {at}");
        assert_eq!(owner.heads, heads);
    }
}

#[test]
fn nothing_is_taken_where_a_range_was_dropped_or_something_lost() {
    let (mut owner, ..) = Owner::open(MemoryDisk::default(), small());
    live(&mut owner, &mut SplitMix64::new(3), 200, 20);
    owner.slow.rest();
    owner.turn();
    owner.slow.store.write(&[Write::DropRange { start: b"key-1", end: b"key-2" }]).unwrap();
    // A manifest names it before a flush.
    owner.slow.store.accept_losses();
    owner.slow.rest();
    let (mut owner, report, is_kept) = Owner::open(owner.slow.disk.after_kill(), small());
    assert_eq!((report.checkpoint, is_kept), (Some(NotTaken::Drops), false));
    live(&mut owner, &mut SplitMix64::new(4), 200, 20);
    let disk = owner.close();
    let table = disk.names().into_iter().rfind(|name| name.to_str().unwrap().ends_with(".tbl"));
    disk.remove(&table.unwrap());
    let (_, report, is_kept) = Owner::open(disk, small());
    assert_eq!((report.checkpoint, is_kept), (Some(NotTaken::Losses), false));
}
