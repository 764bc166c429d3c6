//! Merges against a model of the ledger.

use super::{
    Item, LedgerSource, MemtableSource, MergeIter, MergeJob, MergeOutput, MergeRequest, Run, Source,
};
use crate::Seq;
use crate::drops::{DroppedRanges, RangeDrop};
use crate::entry::{Entry, Jsn, Location};
use crate::error::Error;
use crate::key_segments::KeySegments;
use crate::memtable::Memtable;
use crate::table::testing::{MemDisk, Model, as_version_2, deletion, dir, entry, table};
use crate::table::{BlockHandle, Table, TableIter};
use base::spawn::{Job, Outcome, Progress};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const FIRST_OUTPUT: u64 = 1000;

fn request(table_bytes_target: u64) -> MergeRequest {
    MergeRequest {
        dir: dir().to_path_buf(),
        next_table_id: Arc::new(AtomicU64::new(FIRST_OUTPUT)),
        output_level: 1,
        table_bytes_target,
        drop_deletions: false,
        dropped: DroppedRanges::none(),
        lost: Arc::default(),
        now_ms: 0,
    }
}

fn run(disk: &mut MemDisk, sources: Vec<LedgerSource>, request: MergeRequest) -> Result<MergeOutput, Error> {
    let outcome = Outcome::new();
    let mut job = MergeJob::new(sources, request, outcome.clone());
    while job.slice(disk) == Progress::More {
        assert!(outcome.take().is_none());
    }
    outcome.take().expect("a job that is done has an outcome")
}

fn collect(disk: &mut MemDisk, source: &mut dyn Source, key: &[u8]) -> Model {
    let mut model = Model::new();
    source.seek(disk, key).unwrap();
    while let Some(Item { key, seq, entry }) = source.item() {
        assert!(model.insert(key.to_vec(), (seq.0, entry.to_vec())).is_none(), "one version of each key");
        source.next(disk).unwrap();
    }
    model
}

fn contents(disk: &mut MemDisk, tables: &[Arc<Table>]) -> Model {
    collect(disk, &mut Run::new(tables.to_vec()), &[])
}

/// Versions (key, whether it is a deletion), cut into sources; the seq is the place in the whole list.
fn histories() -> impl Strategy<Value = Vec<Vec<(Vec<u8>, bool)>>> {
    vec(vec((vec(0u8..6, 0..4), any::<bool>()), 1..60), 1..6)
}

fn entry_of(key: &[u8], seq: u64, deleted: bool) -> Vec<u8> {
    if deleted { deletion(seq) } else { entry(key, seq, 20) }
}

/// Every other source is a memtable with all versions, the rest are tables with the newest of each key.
fn sources(disk: &mut MemDisk, history: &[Vec<(Vec<u8>, bool)>]) -> (Vec<LedgerSource>, Model) {
    let (mut sources, mut newest, mut seq) = (Vec::<LedgerSource>::new(), Model::new(), 0);
    for (number, versions) in history.iter().enumerate() {
        let (mut memtable, mut model) = (Memtable::new(1 << 16), Model::new());
        for (key, deleted) in versions {
            seq += 1;
            let bytes = entry_of(key, seq, *deleted);
            memtable.insert(key, seq, &[&bytes]);
            model.insert(key.clone(), (seq, bytes));
        }
        newest.extend(model.clone());
        sources.push(if number % 2 == 0 {
            MemtableSource::new(&memtable.reader(), Seq(u64::MAX)).into()
        } else {
            TableIter::new(table(disk, number as u64 + 1, &model)).into()
        });
    }
    (sources, newest)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_newest_version_of_each_key_is_left(
        history in histories(), from in vec(0u8..6, 0..3), end in vec(0u8..6, 1..3),
    ) {
        let mut disk = MemDisk::default();
        let (all, newest) = sources(&mut disk, &history);
        let mut iter = MergeIter::new(all);
        prop_assert_eq!(&collect(&mut disk, &mut iter, &[]), &newest);
        prop_assert_eq!(iter.versions_read() as usize >= newest.len(), true);
        let rest: Model = newest.range(from.clone()..).map(|(k, v)| (k.clone(), v.clone())).collect();
        prop_assert_eq!(&collect(&mut disk, &mut iter, &from), &rest);
        // With an end there is nothing behind it, and all before it; and the next walk may have none again.
        iter.expect_end(&end);
        let mut before_end = rest.clone();
        before_end.retain(|key, _| *key < end);
        prop_assert_eq!(collect(&mut disk, &mut iter, &from), before_end);
        iter.expect_end(&[]);
        prop_assert_eq!(collect(&mut disk, &mut iter, &from), rest);
    }

    #[test]
    fn jobs_write_what_the_model_says(history in histories(), drop_deletions: bool, cut in 0u8..7, target in 200u64..4000) {
        let mut disk = MemDisk::default();
        let (all, mut expected) = sources(&mut disk, &history);
        let (start, end) = (bytes::Bytes::from(vec![cut]), bytes::Bytes::from(vec![cut + 1]));
        let dropped = DroppedRanges::new(vec![RangeDrop { start, end, seq: Seq(100) }]);
        let whole = expected.len();
        expected.retain(|key, (seq, _)| !(key.first() == Some(&cut) && *seq < 100));
        let range_dropped = whole - expected.len();
        if drop_deletions {
            expected.retain(|_, (_, entry)| entry[0] != 3);
        }
        let request = MergeRequest { drop_deletions, dropped, ..request(target) };
        let output = run(&mut disk, all, request).unwrap();
        prop_assert_eq!(contents(&mut disk, &output.tables), expected.clone());
        prop_assert_eq!(output.stats.entries_written as usize, expected.len());
        prop_assert_eq!(output.stats.range_dropped as usize, range_dropped);
        prop_assert_eq!(output.stats.versions_read as usize, versions_in(&history));
        prop_assert_eq!(output.tables.is_empty(), expected.is_empty());
        prop_assert!(output.tables.iter().all(|table| table.meta().cut_seq == Seq(100)));
    }
}

/// In a table above others it goes on hiding what is below; in the last it goes.
#[test]
fn a_version_that_has_ended_is_a_deletion() {
    for drop_deletions in [false, true] {
        let mut disk = MemDisk::default();
        let mut memtable = Memtable::new(1 << 16);
        for (seq, key) in (1..).zip([b"a", b"b", b"c"]) {
            let location = Location::Journal { offset: 8, len: 9 };
            let expires_ms = Some(1000 * seq);
            let mut bytes = Vec::new();
            Entry { jsn: Jsn(seq), location, head: b"head", inline: b"", expires_ms }.encode(&mut bytes);
            memtable.insert(key, seq, &[&bytes]);
        }
        let source = MemtableSource::new(&memtable.reader(), Seq(u64::MAX));
        let request = MergeRequest { drop_deletions, now_ms: 2000, ..request(1000) };
        let output = run(&mut disk, vec![source.into()], request).unwrap();
        let left = contents(&mut disk, &output.tables);
        let gone = |key: &[u8]| left.get(key).map(|(_, entry)| Entry::decode(entry).unwrap().is_gone(0));
        let ended = (!drop_deletions).then_some(true);
        assert_eq!((gone(b"a"), gone(b"b"), gone(b"c")), (ended, ended, Some(false)));
        assert_eq!(output.stats.expired, 2);
        let meta = output.tables[0].meta();
        assert_eq!((meta.expiring, meta.last_expiry_ms), (1, 3000));
        assert_eq!(meta.ends_ms(), Some(3000));
    }
}

/// Memtables count all versions, tables one of each key.
fn versions_in(history: &[Vec<(Vec<u8>, bool)>]) -> usize {
    let keys = |versions: &[(Vec<u8>, bool)]| {
        versions.iter().map(|(key, _)| key).collect::<std::collections::BTreeSet<_>>().len()
    };
    history
        .iter()
        .enumerate()
        .map(|(n, versions)| if n % 2 == 0 { versions.len() } else { keys(versions) })
        .sum()
}

#[test]
fn a_memtable_can_be_read_as_of_a_seq() {
    let mut disk = MemDisk::default();
    let mut memtable = Memtable::new(1 << 16);
    for seq in 1..=10 {
        memtable.insert(b"a", seq, &[&entry(b"a", seq, 1)]);
    }
    memtable.insert(b"b", 11, &[&deletion(11)]);
    // Behind a version that is too new comes one of the same key that is not: no older version of what was shown.
    memtable.insert(b"b", 9, &[&deletion(9)]);
    for (seq_max, expected) in [(0, vec![]), (4, vec![4]), (10, vec![10, 9]), (11, vec![10, 11])] {
        let source = MemtableSource::new(&memtable.reader(), Seq(seq_max));
        let model = collect(&mut disk, &mut MergeIter::new(vec![source.into()]), &[]);
        assert_eq!(model.values().map(|(seq, _)| *seq).collect::<Vec<_>>(), expected);
    }
}

fn large_memtable() -> (Memtable, Model) {
    let (mut memtable, mut model) = (Memtable::new(1 << 20), Model::new());
    for seq in 0..12_000u64 {
        let key = format!("bucket/{:05}", seq * 7919 % 9973).into_bytes();
        let bytes = entry_of(&key, seq, seq % 10 == 0);
        memtable.insert(&key, seq, &[&bytes]);
        model.insert(key, (seq, bytes));
    }
    (memtable, model)
}

fn flush(disk: &mut MemDisk, memtable: &Memtable, target: u64) -> Result<MergeOutput, Error> {
    let source = MemtableSource::new(&memtable.reader(), Seq(u64::MAX));
    run(disk, vec![source.into()], request(target))
}

#[test]
fn large_merges_are_cut_into_slices_and_tables() {
    let mut disk = MemDisk::default();
    let (memtable, model) = large_memtable();
    let source = MemtableSource::new(&memtable.reader(), Seq(u64::MAX));
    let outcome = Outcome::new();
    let mut job = MergeJob::new(vec![source.into()], request(100_000), outcome.clone());
    let mut slices = 1;
    while job.slice(&mut disk) == Progress::More {
        slices += 1;
    }
    let output = outcome.take().unwrap().unwrap();
    assert!(output.tables.len() > 4 && slices > output.tables.len());
    assert!(output.tables.iter().all(|table| table.len() < 120_000));
    assert_eq!(contents(&mut disk, &output.tables), model);
    let files: BTreeMap<_, _> =
        disk.files.iter().map(|(path, bytes)| (path.clone(), bytes.len() as u64)).collect();
    assert_eq!(output.stats.bytes_written, files.values().sum::<u64>());
    assert_eq!(flush(&mut MemDisk::default(), &memtable, u64::MAX).unwrap().tables.len(), 1);
}

#[test]
fn nothing_left_is_no_table() {
    let mut disk = MemDisk::default();
    let mut memtable = Memtable::new(1 << 16);
    memtable.insert(b"a", 1, &[&deletion(1)]);
    let source = MemtableSource::new(&memtable.reader(), Seq(u64::MAX));
    let request = MergeRequest { drop_deletions: true, ..request(1000) };
    let output = run(&mut disk, vec![source.into()], request).unwrap();
    assert!(output.tables.is_empty() && disk.files.is_empty());
    assert_eq!(output.stats.deletions_dropped, 1);
}

/// Whatever fails, the job says so, and leaves neither a file nor an open handle.
#[test]
fn a_failed_job_leaves_nothing() {
    let (memtable, model) = large_memtable();
    let mut disk = MemDisk::default();
    flush(&mut disk, &memtable, 100_000).unwrap();
    let changes = disk.changes;
    for fail_at in 1..=changes {
        let mut disk = MemDisk { fail_at: Some(fail_at), ..MemDisk::default() };
        assert!(
            matches!(flush(&mut disk, &memtable, 100_000), Err(Error::Disk(_))),
            "change {fail_at} failed"
        );
        assert_eq!(disk.names(), Vec::<String>::new());
        disk.fail_at = None;
        assert_eq!(contents_of_retry(&mut disk, &memtable), model);
    }
}

fn contents_of_retry(disk: &mut MemDisk, memtable: &Memtable) -> Model {
    let output = flush(disk, memtable, u64::MAX).unwrap();
    contents(disk, &output.tables)
}

/// A damaged block is left out, the rest is merged, and what was in it is named: those keys and no others.
#[test]
fn a_damaged_block_is_cut_out() {
    let mut disk = MemDisk::default();
    let (_, model) = large_memtable();
    let input = table(&mut disk, 1, &model);
    let path = input.path().to_path_buf();
    let middle = disk.files[&path].len() / 2;
    disk.files.get_mut(&path).unwrap()[middle] ^= 1;
    let output = run(&mut disk, vec![Run::new(vec![input]).into()], request(50_000)).unwrap();
    let [lost] = &output.lost[..] else { panic!("{:?}", output.lost) };
    let is_lost = |key: &Vec<u8>| lost.contains(key);
    assert!(model.iter().all(|(key, (seq, _))| !is_lost(key) || *seq < lost.below.0));
    let kept: Model = model.into_iter().filter(|(key, _)| !is_lost(key)).collect();
    assert_eq!(contents(&mut disk, &output.tables), kept);
}

/// Keys of a source that are in the segments, beside others.
fn of_segments(disk: &mut MemDisk, layers: &[(Model, u8)], wanted: Option<&KeySegments>) -> MergeIter {
    let mut sources: Vec<LedgerSource> = Vec::new();
    let mut id = 0;
    for (model, kind) in layers {
        if *kind == 0 {
            let mut memtable = Memtable::new(1 << 16);
            model.iter().for_each(|(key, (seq, entry))| memtable.insert(key, *seq, &[entry]));
            sources.push(MemtableSource::new(&memtable.reader(), Seq(u64::MAX)).into());
            continue;
        }
        let model: Vec<_> = model.iter().collect();
        let mut tables = Vec::new();
        for (number, part) in model.chunks(if *kind == 1 { usize::MAX } else { 9 }).enumerate() {
            id += 1;
            let part = part.iter().map(|(key, version)| ((*key).clone(), (*version).clone())).collect();
            let new = table(disk, id, &part);
            // Tables of older versions stand beside new ones.
            tables.push(if (number + usize::from(*kind)) % 3 == 0 { as_version_2(disk, &new) } else { new });
        }
        sources.push(match (tables.as_slice(), wanted) {
            ([table], Some(wanted)) => TableIter::of_segments(Arc::clone(table), wanted.clone()).into(),
            ([table], None) => TableIter::new(Arc::clone(table)).into(),
            (_, Some(wanted)) => Run::new(tables).of_segments(wanted.clone()).into(),
            (_, None) => Run::new(tables).into(),
        });
    }
    MergeIter::new(sources)
}

/// A walk over the keys of some segments in a part of a run read a block behind its end, too, or went on to the next
/// table for one; and each walk read the lengths of all buckets of its tables once more.
#[test]
fn a_walk_of_segments_reads_what_it_lands_in() {
    let mut disk = MemDisk::default();
    let key = |number: u64| format!("key-{number:06}").into_bytes();
    let tables: Vec<Arc<Table>> = (0..6)
        .map(|at| {
            let keys = (at * 3000..(at + 1) * 3000).map(|number| (key(number), number));
            let model = keys.map(|(key, number)| (key.clone(), (number, entry(&key, number, 60))));
            table(&mut disk, at + 1, &model.collect())
        })
        .collect();
    let block_of = |key: &[u8]| {
        let table = tables.iter().find(|table| table.meta().covers(key)).unwrap();
        (table.id(), table.find_block(key).unwrap().index)
    };
    let ranges = [(1000, 2500), (1000, 2500), (2500, 3700), (9000, 9001), (17_000, 17_900)];
    let of_segments = ranges.map(|(start, end)| {
        // Of some of 2^14 segments, as an exchange asks: each has a key of the range, and one elsewhere.
        let numbers = (0..5).map(|at| KeySegments::number_of(&key(start + at * (end - start) / 5), 14));
        let wanted = KeySegments::new(14, numbers).unwrap();
        let mut run = Run::new(tables.clone()).of_segments(wanted.clone());
        disk.reads.clear();
        run.expect_end(&key(end));
        run.seek(&mut disk, &key(start)).unwrap();
        let mut found = Vec::new();
        while let Some(item) = run.item().filter(|item| *item.key < *key(end)) {
            found.extend(wanted.contains(item.key).then(|| item.key.to_vec()));
            run.next(&mut disk).unwrap();
        }
        let has_wanted = (0..18_000).map(key).filter(|key| wanted.contains(key));
        let expected: Vec<Vec<u8>> =
            has_wanted.clone().filter(|it| (key(start)..key(end)).contains(it)).collect();
        assert_eq!(found, expected);
        let blocks: BTreeSet<_> = has_wanted.map(|key| block_of(&key)).collect();
        let between = block_of(&key(start))..=block_of(&key(end));
        let (mut blocks_read, mut segments_read) = (BTreeSet::new(), 0);
        for (path, offset, len) in disk.reads.drain(..) {
            let table = tables.iter().find(|table| table.path() == path).unwrap();
            let is_read = |block: &BlockHandle| (offset..offset + len as u64).contains(&block.offset);
            let read: Vec<_> = (0..).map_while(|at| table.block(at)).filter(is_read).collect();
            segments_read += if read.is_empty() { len } else { 0 };
            for block in read {
                assert!(blocks_read.insert((table.id(), block.index)), "once");
            }
        }
        let expected: BTreeSet<_> = blocks.into_iter().filter(|block| between.contains(block)).collect();
        assert_eq!(blocks_read, expected, "from {start} to {end}");
        segments_read
    });
    // The lengths of 128 buckets, of one table.
    assert_eq!(of_segments[0], of_segments[1] + 128);
}

proptest! {
    #[test]
    fn a_merge_of_segments_is_a_filter_of_the_whole(
        layers in vec((vec((vec(0u8..6, 0..4), any::<bool>()), 1..80), 0u8..5), 1..6),
        bits in 0u32..12,
        picks in vec(any::<prop::sample::Index>(), 0..4),
        start in vec(0u8..6, 0..3),
        end in vec(0u8..6, 0..3),
    ) {
        let mut seq = 0;
        let layers: Vec<(Model, u8)> = layers.into_iter().map(|(keys, kind)| {
            let model = keys.into_iter().map(|(key, deleted)| {
                seq += 1;
                let bytes = if deleted { deletion(seq) } else { entry(&key, seq, 700) };
                (key, (seq, bytes))
            });
            (model.collect(), kind)
        }).collect();
        let numbers = picks.iter().map(|pick| pick.index(1 << bits) as u32);
        let wanted = KeySegments::new(bits, numbers).unwrap();
        let mut all_disk = MemDisk::default();
        let mut all = of_segments(&mut all_disk, &layers, None);
        let mut expected = collect(&mut all_disk, &mut all, &start);
        expected.retain(|key, _| wanted.contains(key));
        let mut disk = MemDisk::default();
        let mut some = of_segments(&mut disk, &layers, Some(&wanted));
        // Whatever end is expected, all keys before it come, in order.
        some.expect_end(&end);
        let mut seen = collect(&mut disk, &mut some, &start);
        seen.retain(|key, _| wanted.contains(key));
        let is_before_end = |key: &Vec<u8>| end.is_empty() || *key < end;
        seen.retain(|key, _| is_before_end(key));
        expected.retain(|key, _| is_before_end(key));
        prop_assert_eq!(seen, expected);
    }
}
