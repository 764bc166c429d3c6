//! The store and its parts.

use super::shard::Standing;
use super::{KEYS, OPERATIONS, Operation, WARM, asked, key, keys, value};
use crate::Result;
use crate::micro::disk::MemoryDisk;
use base::rng::{SplitMix64, mix64};
use bytes::Bytes;
use engine::fold::{Control, FoldRequest, JournalCheck, KeyRange, ScanRequest, Visit, Visited, What};
use engine::journal::SegmentId;
use engine::journal::record::{Kind, encode_record, parse};
use engine::memtable::hash;
use engine::table::{Block, Table, TableBuilder, TableId};
use engine::{Embedded, Entry, Jsn, Location, Machine, Options, Seq};
use object::{index, key as ledger};
use std::hint::black_box;
use std::path::Path;

/// As long as an object's head with one sibling and a content type.
const HEAD: &[u8] = &[0x5A; 64];

fn open(disk: &MemoryDisk) -> Result<Embedded> {
    let disk = disk.clone();
    let machine = Machine::new(move || disk.clone(), Standing, SplitMix64::new(11));
    Ok(Embedded::open(Path::new("/store"), Options::default(), machine)?)
}

/// A store whose keys are all in the memtable.
fn in_memtable() -> Result<Embedded> {
    let (mut store, value) = (open(&MemoryDisk::default())?, value());
    for key in keys(KEYS) {
        store.put(&key, HEAD, &value)?;
    }
    Ok(store)
}

/// A store whose keys are all in a table: a clean stop has flushed them.
fn in_table() -> Result<Embedded> {
    let disk = MemoryDisk::default();
    let (mut store, value) = (open(&disk)?, value());
    for key in keys(KEYS) {
        store.put(&key, HEAD, &value)?;
    }
    store.close()?;
    open(&disk)
}

pub fn put() -> Result<Operation> {
    let (mut store, value) = (in_memtable()?, value());
    let new: Vec<_> = (KEYS..KEYS + WARM + OPERATIONS).map(key).collect();
    Ok(Box::new(move |number| {
        black_box(store.put(&new[number as usize], HEAD, &value).expect("the disk is memory"));
    }))
}

pub fn overwrite() -> Result<Operation> {
    let (mut store, value, keys, at) = (in_table()?, value(), keys(KEYS), asked(KEYS));
    Ok(Box::new(move |number| {
        black_box(store.put(&keys[at(number)], HEAD, &value).expect("the disk is memory"));
    }))
}

fn get(mut store: Embedded) -> Operation {
    let (keys, at) = (keys(KEYS), asked(KEYS));
    Box::new(move |number| {
        let found = store.get(&keys[at(number)]).expect("the disk is memory");
        assert_eq!(found.expect("it was put").value.map_or(0, |value| value.len()), super::VALUE_BYTES);
    })
}

fn head(mut store: Embedded) -> Operation {
    let (keys, at) = (keys(KEYS), asked(KEYS));
    Box::new(move |number| {
        let found = store.head(&keys[at(number)]).expect("the disk is memory");
        assert_eq!(found.expect("it was put").head.len(), HEAD.len());
    })
}

fn miss(mut store: Embedded) -> Operation {
    let absent: Vec<_> = (KEYS..KEYS + WARM + OPERATIONS).map(key).collect();
    Box::new(move |number| {
        assert!(store.get(&absent[number as usize]).expect("the disk is memory").is_none());
    })
}

pub fn get_memtable() -> Result<Operation> {
    Ok(get(in_memtable()?))
}

pub fn get_table() -> Result<Operation> {
    Ok(get(in_table()?))
}

pub fn head_memtable() -> Result<Operation> {
    Ok(head(in_memtable()?))
}

pub fn head_table() -> Result<Operation> {
    Ok(head(in_table()?))
}

pub fn miss_memtable() -> Result<Operation> {
    Ok(miss(in_memtable()?))
}

pub fn miss_table() -> Result<Operation> {
    Ok(miss(in_table()?))
}

/// Folds over the heads of a hundred keys, from five tables and a memtable that have each key up to three times.
pub fn fold() -> Result<Operation> {
    const FOLDED: u64 = 100;
    let (mut store, keys) = (open(&MemoryDisk::default())?, keys(KEYS));
    for (first, step) in [(0, 1), (0, 2), (1, 3), (2, 5), (3, 7), (4, 11)] {
        store.flush()?;
        for key in keys.iter().skip(first).step_by(step) {
            store.put(key, HEAD, b"")?;
        }
    }
    let snapshot = store.snapshot();
    let (mut reader, at) = (store.reader_at(snapshot), asked(KEYS));
    Ok(Box::new(move |number| {
        let range = KeyRange::new(keys[at(number)].clone(), Bytes::new());
        let request = FoldRequest::over(range, What::Heads(JournalCheck::None));
        let request = FoldRequest { items_max: FOLDED, ..request };
        let mut visit = |found: &Visited<'_>| {
            assert_eq!(found.head.len(), HEAD.len());
            Control::Next
        };
        assert!(reader.fold(request, &mut visit).expect("the disk is memory").visited > 0);
    }))
}

/// Entries of an index that stand in a store, and how many of them a query takes.
const ENTRIES: u64 = 20_000;
const QUERIED: u64 = 1_000;

/// An entry of an index: of the integer of this number.
fn index_entry(number: u64) -> Vec<u8> {
    let term = index::term(b"number_int", number.to_string().as_bytes()).expect("an integer");
    let mut out = Vec::new();
    let prefix = (number % 1024) as u16;
    ledger::encode_index_key(
        b"default",
        b"bucket",
        b"number_int",
        &term,
        &number.to_be_bytes(),
        prefix,
        &mut out,
    );
    out
}

/// Takes a thousand entries of an index, from five tables and a memtable that each have a share of all, at random.
pub fn query() -> Result<Operation> {
    const SOURCES: u64 = 6;
    let mut store = open(&MemoryDisk::default())?;
    for part in 0..SOURCES {
        store.flush()?;
        for number in (0..ENTRIES).filter(|&number| mix64(number) % SOURCES == part) {
            store.put(&index_entry(number), b"", b"")?;
        }
    }
    let at = asked(ENTRIES - QUERIED);
    Ok(Box::new(move |number| {
        let first = at(number) as u64;
        let (start, end) = (index_entry(first).into(), index_entry(first + QUERIED).into());
        let visitor = Box::new(|entry: &[u8], _: &[u8]| match ledger::index_prefix_of(entry) < 1024 {
            true => Visit::Take,
            false => Visit::Skip,
        });
        let request = ScanRequest { start, end, items_max: 10_000, visitor, past_losses: false };
        let page = store.scan(request).expect("the disk is memory");
        assert_eq!(page.items.len() as u64, QUERIED);
    }))
}

/// A table with all keys, and its blocks.
fn table() -> Result<(Table, Vec<Block>)> {
    let (disk, folder) = (MemoryDisk::default(), Path::new("/tables"));
    let mut disk = disk.handle();
    let mut sorted = keys(KEYS);
    sorted.sort();
    let mut entry = Vec::new();
    let location = Location::Journal { offset: 4_096, len: 1_200 };
    Entry { jsn: Jsn(1), location, head: HEAD, inline: &[], expires_ms: None }.encode(&mut entry);
    let mut builder = TableBuilder::create(&mut *disk, folder, TableId(1))?;
    for (number, key) in sorted.iter().enumerate() {
        builder.add(&mut *disk, key, Seq(number as u64 + 1), &entry)?;
    }
    builder.finish(&mut *disk)?;
    let table = Table::open(&mut *disk, folder, TableId(1))?;
    let handles = (0..).map_while(|number| table.block(number));
    let blocks: std::result::Result<Vec<_>, _> =
        handles.map(|handle| table.read_block(&mut *disk, handle)).collect();
    Ok((table, blocks?))
}

pub fn filter() -> Result<Operation> {
    let (table, _) = table()?;
    let hashes: Vec<u64> = (0..KEYS + WARM + OPERATIONS).map(|number| hash(&key(number))).collect();
    // Every second one is there.
    let at = asked(hashes.len() as u64);
    Ok(Box::new(move |number| {
        black_box(table.may_contain(black_box(hashes[at(number)])));
    }))
}

pub fn block_find() -> Result<Operation> {
    let (table, blocks) = table()?;
    let (keys, at) = (keys(KEYS), asked(KEYS));
    let of_key = |key: &Vec<u8>| {
        let handle = table.find_block(key).expect("the table has the key");
        (0..).find(|&number| table.block(number).is_some_and(|block| block.offset == handle.offset))
    };
    let places: Vec<u32> = keys.iter().map(|key| of_key(key).expect("the block is one of them")).collect();
    Ok(Box::new(move |number| {
        let index = at(number);
        let block = &blocks[places[index] as usize];
        assert!(block.find(&keys[index]).expect("it is whole").is_some());
    }))
}

/// A record of the usual size, appended to `out`.
fn record(out: &mut Vec<u8>, number: u64, key: &[u8], value: &Bytes) {
    let (jsn, seq) = (Jsn(number + 1), Seq(number + 1));
    encode_record(out, SegmentId(3), 4_096, Kind::Data, 0, jsn, seq, key, HEAD, &[value]);
}

pub fn encode_record_case() -> Result<Operation> {
    let (mut out, value, keys, at) = (Vec::with_capacity(4_096), value(), keys(KEYS), asked(KEYS));
    Ok(Box::new(move |number| {
        out.clear();
        record(&mut out, number, &keys[at(number)], &value);
        black_box(&out);
    }))
}

pub fn parse_record() -> Result<Operation> {
    let mut bytes = Vec::new();
    record(&mut bytes, 1, &key(1), &value());
    Ok(Box::new(move |_| {
        assert!(black_box(parse(black_box(&bytes), SegmentId(3), 4_096)).is_ok());
    }))
}
