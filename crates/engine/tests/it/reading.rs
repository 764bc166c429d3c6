//! Readers, ranges and folds beside a map: as of now, and as of a moment that has long passed.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::{HandClock, open, small};
use base::Rng;
use base::rng::SplitMix64;
use bytes::Bytes;
use engine::fold::{
    Control, FoldEnd, FoldRequest, JournalCheck, KeyRange, KeySegments, MEMBER_BYTES, MEMBERS_BYTES_MAX,
    Modified, RangeSet, SET_RANGES_MAX, Visited, What,
};
use engine::{Embedded, Error, Options, Reader, Want};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Head and value.
type Parts = (Vec<u8>, Vec<u8>);
type Model = BTreeMap<Vec<u8>, Parts>;
/// Key, head, and value if there is one.
type Seen = (Vec<u8>, Vec<u8>, Option<Bytes>);

fn key(number: u64) -> Vec<u8> {
    format!("bucket{:02}/key-{number:05}", number % 13).into_bytes()
}

/// Random writes, deletes and drops.
fn write(store: &mut Embedded, model: &mut Model, rng: &mut SplitMix64, writes: u64) {
    for _ in 0..writes {
        let key = key(rng.below(900));
        match rng.below(40) {
            0..7 => {
                store.delete(&key).unwrap();
                model.remove(&key);
            }
            7 => {
                let end = [&key[..], b"9"].concat();
                store.drop_range(&key, &end).unwrap();
                model.retain(|other, _| !(*other >= key && *other < end));
            }
            _ => {
                let head = rng.next_u64().to_le_bytes().to_vec();
                let value = vec![rng.next_u64() as u8; rng.below(200) as usize];
                store.put(&key, &head, &value).unwrap();
                model.insert(key, (head, value));
            }
        }
    }
}

/// Everything that can be asked of a reader agrees with the map.
fn agree(reader: &mut Reader, model: &Model, rng: &mut SplitMix64) {
    let keys: Vec<Vec<u8>> = (0..150).map(|_| key(rng.below(1000))).collect();
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let (many, heads) = (reader.get_many(&asked).unwrap(), reader.head_many(&asked).unwrap());
    for ((key, many), head) in keys.iter().zip(many).zip(heads) {
        let one = reader.get(key).unwrap();
        assert_eq!(one, many.unwrap());
        let parts = one.as_ref().map(|found| (found.head.to_vec(), found.value.clone().unwrap().to_vec()));
        assert_eq!(parts.as_ref(), model.get(key));
        let head = head.unwrap();
        assert_eq!(head.as_ref().map(|found| &found.head), one.as_ref().map(|found| &found.head));
        assert_eq!(reader.version(key).unwrap(), one.map(|found| found.seq));
    }
    assert_eq!(reader.is_empty().unwrap(), model.is_empty());
    ranges_agree(reader, model, rng);
    folds_agree(reader, model, rng);
}

fn bounds(rng: &mut SplitMix64) -> (Vec<u8>, Vec<u8>) {
    let start = if rng.chance(1, 3) { Vec::new() } else { key(rng.below(900)) };
    let end = if rng.chance(1, 3) { Vec::new() } else { key(rng.below(900)) };
    (start, end)
}

fn within<'m>(model: &'m Model, start: &[u8], end: &[u8]) -> Vec<(&'m Vec<u8>, &'m Parts)> {
    if !end.is_empty() && start >= end {
        return Vec::new();
    }
    let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end.to_vec()) };
    model.range((Bound::Included(start.to_vec()), end)).collect()
}

fn ranges_agree(reader: &mut Reader, model: &Model, rng: &mut SplitMix64) {
    for _ in 0..6 {
        let (start, end) = bounds(rng);
        let mut expected = std::collections::VecDeque::from(within(model, &start, &end));
        let want = if rng.chance(1, 2) { Want::Head } else { Want::Value };
        let mut range = reader.range(&start, &end, want).unwrap();
        // One in four walks goes one way, the others turn at random.
        let (front, of) = [(1, 1), (0, 1), (1, 2), (1, 5)][rng.below(4) as usize];
        loop {
            let forward = rng.below(of) < front;
            let (item, expected) = if forward {
                (range.next(), expected.pop_front())
            } else {
                (range.next_back(), expected.pop_back())
            };
            let item = item.transpose().unwrap();
            assert_eq!(item.as_ref().map(|item| &item.key[..]), expected.map(|(key, _)| &key[..]));
            let (Some(item), Some((_, (head, value)))) = (item, expected) else { break };
            assert_eq!(item.found.head, head);
            assert_eq!(
                item.found.value.as_ref().map(|v| &v[..]),
                (want == Want::Value).then_some(&value[..])
            );
        }
        assert!(range.next().is_none() && range.next_back().is_none());
    }
}

fn collect(reader: &mut Reader, request: FoldRequest) -> (Vec<Seen>, FoldEnd) {
    let mut seen = Vec::new();
    let mut visit = |item: &Visited<'_>| {
        seen.push((item.key.to_vec(), item.head.to_vec(), item.value.clone()));
        Control::Next
    };
    let end = reader.fold(request, &mut visit).unwrap();
    assert_eq!(end.visited as usize, seen.len());
    (seen, end)
}

/// All keys, or those of some segments: of many, of few, of none.
fn segments(rng: &mut SplitMix64) -> Option<KeySegments> {
    let bits = [0, 3, 6, 20][rng.below(4) as usize];
    let mut numbers: Vec<u32> = (0..rng.below(6)).map(|_| rng.below(1 << bits) as u32).collect();
    numbers.extend((0..rng.below(10)).map(|_| KeySegments::number_of(&key(rng.below(900)), bits)));
    (!rng.chance(1, 3)).then(|| KeySegments::new(bits, numbers).unwrap())
}

fn folds_agree(reader: &mut Reader, model: &Model, rng: &mut SplitMix64) {
    let (start, end) = bounds(rng);
    let whats = [
        What::Heads(JournalCheck::None),
        What::Heads(JournalCheck::Presence),
        What::Heads(JournalCheck::Checksum),
        What::Objects,
        What::ObjectsByJournal,
    ];
    for what in whats {
        let range = KeyRange::new(start.clone(), end.clone());
        let ranges = vec![range, KeyRange::prefix(&b"bucket03/"[..]), KeyRange::prefix(&b"bucket01/"[..])];
        let mut expected: Vec<_> = within(model, &start, &end);
        expected.extend(within(model, b"bucket03/", b"bucket030"));
        expected.extend(within(model, b"bucket01/", b"bucket010"));
        let segments = segments(rng);
        if let Some(segments) = &segments {
            expected.retain(|(key, _)| segments.contains(key));
        }
        let request = FoldRequest { ranges, segments, ..FoldRequest::over(KeyRange::all(), what) };
        // In one go, and resumed after every few items.
        let (mut whole, fold_end) = collect(reader, request.clone());
        assert_eq!((fold_end.next, fold_end.damaged), (None, 0));
        let (mut pieces, mut from) = (Vec::new(), None);
        loop {
            let items_max = 1 + rng.below(200);
            let (mut piece, end) = collect(reader, FoldRequest { items_max, from, ..request.clone() });
            pieces.append(&mut piece);
            from = end.next;
            if from.is_none() {
                break;
            }
        }
        let with_values = matches!(what, What::Objects | What::ObjectsByJournal);
        let mut expected: Vec<_> = expected
            .into_iter()
            .map(|(key, (head, value))| {
                (key.clone(), head.clone(), with_values.then(|| Bytes::from(value.clone())))
            })
            .collect();
        for seen in [&mut whole, &mut pieces] {
            if matches!(what, What::ObjectsByJournal) {
                seen.sort();
                expected.sort();
            }
            assert!(*seen == expected, "{what:?}: {} of {}", seen.len(), expected.len());
        }
    }
}

#[test]
fn readers_follow_and_snapshots_stay() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let mut store = open(folder.path(), &small(), &clock);
    let (mut model, mut rng) = (Model::new(), SplitMix64::new(3));
    let mut live = store.reader();
    agree(&mut live, &model, &mut rng);
    let mut kept = Vec::new();
    for round in 0..8 {
        write(&mut store, &mut model, &mut rng, 700);
        agree(&mut live, &model, &mut rng);
        match round % 4 {
            0 => kept.push((store.snapshot(), model.clone())),
            1 => kept.push((live.snapshot(), model.clone())),
            2 => agree(&mut live.another(), &model, &mut rng),
            _ => {}
        }
    }
    assert!(store.store().stats().counters.merges > 5);
    for (snapshot, model) in &kept {
        agree(&mut store.reader_at(snapshot.clone()), model, &mut rng);
        // Twice is the same.
        agree(&mut store.reader_at(snapshot.clone()).another(), model, &mut rng);
    }
    let mut pinned = live.pin();
    write(&mut store, &mut Model::new(), &mut rng, 200);
    agree(&mut pinned, &model, &mut rng);
}

#[test]
fn folds_of_segments_go_on_after_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let (mut model, mut rng) = (Model::new(), SplitMix64::new(5));
    for round in 0..12 {
        let mut store = open(folder.path(), &small(), &clock);
        write(&mut store, &mut model, &mut rng, 500);
        for _ in 0..4 {
            folds_agree(&mut store.reader(), &model, &mut rng);
        }
        // A clean stop, or none.
        if round % 2 == 0 {
            store.close().unwrap();
        }
    }
}

/// What a key is about: what stands behind its bucket.
fn member_of(key: &[u8]) -> Option<Vec<u8>> {
    let at = key.iter().position(|&byte| byte == b'-')? + 1;
    // Every tenth is about nothing, and many about the same.
    (!key.ends_with(b"0")).then(|| key[at..key.len() - 1].to_vec())
}

fn any_set(rng: &mut SplitMix64, depth: u64) -> RangeSet {
    if rng.below(4) < depth {
        let (one, other) = (any_set(rng, depth - 1), any_set(rng, depth - 1));
        return match rng.below(3) {
            0 => one.union(other),
            1 => one.intersect(other),
            _ => one.subtract(other),
        };
    }
    let (start, end) = bounds(rng);
    RangeSet::Of(KeyRange::new(start, end))
}

fn members(model: &Model, set: &RangeSet) -> BTreeSet<Vec<u8>> {
    match set {
        RangeSet::Of(range) => within(model, &range.start, &range.end)
            .into_iter()
            .filter_map(|(key, _)| member_of(key))
            .collect(),
        RangeSet::Union(one, other) => &members(model, one) | &members(model, other),
        RangeSet::Intersect(one, other) => &members(model, one) & &members(model, other),
        RangeSet::Subtract(one, other) => &members(model, one) - &members(model, other),
    }
}

#[test]
fn ranges_are_combined_as_sets_of_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), &small(), &HandClock::new());
    let (mut model, mut rng) = (Model::new(), SplitMix64::new(8));
    let mut live = store.reader();
    let (mut pinned, mut pinned_model) = (live.pin(), model.clone());
    for round in 0..8 {
        write(&mut store, &mut model, &mut rng, 400);
        for _ in 0..30 {
            let set = any_set(&mut rng, 4);
            let expected: Vec<_> = members(&model, &set).into_iter().collect();
            assert_eq!(live.combine(&set, member_of).unwrap(), expected, "{set:?}");
            let expected: Vec<_> = members(&pinned_model, &set).into_iter().collect();
            assert_eq!(pinned.combine(&set, member_of).unwrap(), expected, "{set:?}");
        }
        if round % 3 == 1 {
            (pinned, pinned_model) = (live.pin(), model.clone());
        }
    }
}

#[test]
fn a_set_of_ranges_holds_no_more_than_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), &small(), &HandClock::new());
    store.put(b"a", b"", b"").unwrap();
    for number in 0..40u8 {
        store.put(&[b'b', number], b"", b"").unwrap();
    }
    let of = |prefix: &'static [u8]| RangeSet::Of(KeyRange::prefix(prefix));
    // Forty members of a fortieth of what may be held are too much, but not where only a few of them can matter.
    fn large(key: &[u8]) -> Option<Vec<u8>> {
        Some(vec![*key.last()?; MEMBERS_BYTES_MAX / 40 - MEMBER_BYTES + 1])
    }
    let mut reader = store.reader();
    assert!(matches!(reader.combine(&of(b"b"), large), Err(Error::TooLarge { .. })));
    assert_eq!(reader.combine(&of(b"a").intersect(of(b"b")), large).unwrap().len(), 0);
    assert_eq!(reader.combine(&of(b"a").subtract(of(b"b")), large).unwrap().len(), 1);
    let many = |count| (1..count).fold(of(b"a"), |set, _| set.union(of(b"a")));
    assert_eq!(reader.combine(&many(SET_RANGES_MAX), member_of).unwrap().len(), 0);
    let refused = reader.combine(&many(SET_RANGES_MAX + 1), member_of);
    assert!(matches!(refused, Err(Error::TooLarge { .. })));
}

/// Readers on other threads see a key's versions in their order, and whole.
#[test]
fn other_threads_read_while_the_owner_writes() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), &small(), &HandClock::new());
    let (keys, rounds) = (50u64, 60u64);
    let readers: Vec<Reader> = (0..3).map(|_| store.reader()).collect();
    std::thread::scope(|scope| {
        for mut reader in readers {
            scope.spawn(move || {
                let mut seen = vec![0u64; keys as usize];
                while seen.iter().any(|&round| round < rounds) {
                    for number in 0..keys {
                        let Some(found) = reader.get(&key(number)).unwrap() else { continue };
                        let round = u64::from_le_bytes(found.head[..].try_into().unwrap());
                        assert!(round >= seen[number as usize], "an older version came back");
                        assert_eq!(found.value.unwrap(), vec![round as u8; 20 + round as usize * 3]);
                        seen[number as usize] = round;
                    }
                }
            });
        }
        for round in 1..=rounds {
            for number in 0..keys {
                let value = vec![round as u8; 20 + round as usize * 3];
                store.put(&key(number), &round.to_le_bytes(), &value).unwrap();
            }
        }
    });
    assert!(store.store().stats().counters.merges > 0);
}

#[test]
fn buckets_are_found_by_seeking() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), &small(), &HandClock::new());
    for number in 0..3000 {
        store.put(&key(number), b"", b"").unwrap();
    }
    store.drop_range(b"bucket05", b"bucket06").unwrap();
    let what = What::Buckets(|key| key.iter().position(|&byte| byte == b'/').unwrap_or(key.len()));
    let (seen, end) = collect(&mut store.reader(), FoldRequest::over(KeyRange::all(), what));
    let buckets: Vec<String> =
        seen.iter().map(|(key, ..)| String::from_utf8_lossy(&key[..8]).into_owned()).collect();
    let expected: Vec<String> = (0..13).filter(|n| *n != 5).map(|n| format!("bucket{n:02}")).collect();
    assert_eq!((buckets, end.next), (expected, None));
}

#[test]
fn a_fold_is_limited_by_time_and_by_its_visitor() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), &small(), &HandClock::new());
    for number in 0..500u64 {
        let head = if number == 7 { Vec::new() } else { number.to_le_bytes().to_vec() };
        store.put(format!("{number:04}").as_bytes(), &head, &vec![1; (number % 200) as usize]).unwrap();
    }
    let of = |_: &[u8], head: &[u8]| Some(u64::from_le_bytes(head.try_into().ok()?));
    let modified = Some(Modified { of, from: 100, to: 110 });
    for what in [What::Heads(JournalCheck::None), What::Objects, What::ObjectsByJournal] {
        let request = FoldRequest { modified, ..FoldRequest::over(KeyRange::all(), what) };
        let (seen, _) = collect(&mut store.reader(), request);
        assert_eq!(seen.len(), 12, "eleven in time, and one of unknown time");
        // A visitor that stops is resumed behind what it saw, but for a window of the journal's order.
        let mut heads = Vec::new();
        let mut visit = |item: &Visited<'_>| {
            heads.push(item.key.to_vec());
            if heads.len() % 100 == 99 { Control::Stop } else { Control::Next }
        };
        let mut request = FoldRequest::over(KeyRange::all(), what);
        let end = store.reader().fold(request.clone(), &mut visit).unwrap();
        assert_eq!(end.visited, 99);
        request.from = end.next;
        let (rest, _) = collect(&mut store.reader(), request);
        let expected = if matches!(what, What::ObjectsByJournal) { 500 } else { 401 };
        assert_eq!(rest.len(), expected);
    }
    let ranges = vec![KeyRange::all(); engine::fold::RANGES_MAX + 1];
    let request = FoldRequest { ranges, ..FoldRequest::over(KeyRange::all(), What::Objects) };
    let refused = store.reader().fold(request, &mut |_| Control::Next);
    assert!(matches!(refused, Err(Error::TooLarge { .. })));
}

/// What a missing segment had is named by a fold that reads nothing, and visited only if that is wanted.
#[test]
#[allow(clippy::disallowed_methods, reason = "it takes a file of the store away")]
fn a_fold_knows_what_a_missing_segment_had() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let mut store = open(folder.path(), &small(), &clock);
    for number in 0..900 {
        store.put(&key(number), b"head", &[7; 150]).unwrap();
    }
    store.close().unwrap();
    let journal = std::fs::read_dir(folder.path().join("journal")).unwrap();
    let mut segments: Vec<_> = journal.map(|entry| entry.unwrap().path()).collect();
    segments.sort();
    assert!(segments.len() > 2);
    std::fs::remove_file(&segments[0]).unwrap();
    let mut store = open(folder.path(), &small(), &clock);
    let mut reader = store.reader();
    let lost = (0..900).filter(|&number| reader.get(&key(number)).is_err()).count();
    assert!((100..800).contains(&lost), "{lost}");
    for check in [JournalCheck::Presence, JournalCheck::Checksum] {
        let heads = FoldRequest::over(KeyRange::all(), What::Heads(check));
        let (seen, end) = collect(&mut reader, heads.clone());
        assert_eq!((seen.len(), end.damaged), (900 - lost, lost as u64), "{check:?}");
        let mut marked = 0;
        let mut visit = |item: &Visited<'_>| {
            marked += usize::from(item.is_damaged);
            Control::Next
        };
        let end = reader.fold(FoldRequest { damaged_too: true, ..heads }, &mut visit).unwrap();
        assert_eq!((end.visited, end.damaged, marked), (900, lost as u64, lost), "{check:?}");
    }
}

/// Who has found keys by a fold and looks them up next read their blocks twice.
#[test]
fn what_a_fold_keeps_is_not_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let mut store = open(folder.path(), &Options::default(), &clock);
    for number in 0..5000 {
        store.put(&key(number), b"head", b"").unwrap();
    }
    store.close().unwrap();
    let wanted: Vec<Vec<u8>> = (0..5000).step_by(100).map(key).collect();
    let misses_of = |keeps_blocks: bool| {
        let mut store = open(folder.path(), &Options::default(), &clock);
        let numbers = wanted.iter().map(|key| KeySegments::number_of(key, 20));
        let segments = Some(KeySegments::new(20, numbers).unwrap());
        let heads = FoldRequest::over(KeyRange::all(), What::Heads(JournalCheck::None));
        let request = FoldRequest { segments, keeps_blocks, ..heads };
        store.store().fold(request, Box::new(|_| Control::Next)).unwrap();
        store.put(b"another", b"", b"").unwrap();
        for key in &wanted {
            assert_eq!(store.head(key).unwrap().unwrap().head, &b"head"[..]);
        }
        let misses = store.store().stats().cache.1;
        store.close().unwrap();
        misses
    };
    assert!(misses_of(false) > 10);
    assert_eq!(misses_of(true), 0);
}
