//! The memtable against a model, and under threads.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;

type Model = BTreeMap<(Vec<u8>, Reverse<u64>), Vec<u8>>;

/// A number spread over all 64 bits (splitmix64).
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

fn entries(memtable: &Memtable) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
    memtable.reader().iter().map(|(key, seq, entry)| (key.to_vec(), seq, entry.to_vec())).collect()
}

#[test]
fn the_newest_entry_at_or_below_the_seq_is_found() {
    let mut memtable = Memtable::new(0);
    memtable.insert(b"key", 5, &[b"five"]);
    memtable.insert(b"key", 9, &[b"ni", b"", b"ne"]);
    memtable.insert(b"key", 7, &[b"seven"]);
    memtable.insert(b"ke", 8, &[]);
    for (seq_max, found) in [
        (4, None),
        (5, Some((5, &b"five"[..]))),
        (6, Some((5, b"five"))),
        (8, Some((7, b"seven"))),
        (9, Some((9, b"nine"))),
        (u64::MAX, Some((9, b"nine"))),
    ] {
        assert_eq!(memtable.get(b"key", seq_max), found);
        assert_eq!(memtable.reader().get_hashed(b"key", hash(b"key"), seq_max), found);
    }
    assert_eq!(memtable.get(b"ke", u64::MAX), Some((8, &b""[..])));
    assert_eq!(memtable.get(b"k", u64::MAX), None);
    assert_eq!(memtable.get(b"keys", u64::MAX), None);
}

#[test]
fn an_empty_memtable_has_nothing() {
    let reader = Memtable::new(1 << 20).reader();
    assert!(reader.is_empty());
    assert_eq!((reader.len(), reader.bytes()), (0, 0));
    assert_eq!(reader.get(b"", u64::MAX), None);
    assert_eq!(reader.iter().count(), 0);
    let mut cursor = reader.cursor();
    assert!(!cursor.valid());
    cursor.seek_first();
    assert!(!cursor.valid());
}

#[test]
fn empty_keys_and_extreme_seqs_are_ordinary() {
    let mut memtable = Memtable::new(0);
    memtable.insert(b"", 0, &[b"a"]);
    memtable.insert(b"", u64::MAX, &[b"b"]);
    assert_eq!(memtable.get(b"", 0), Some((0, &b"a"[..])));
    assert_eq!(memtable.get(b"", u64::MAX - 1), Some((0, &b"a"[..])));
    assert_eq!(memtable.get(b"", u64::MAX), Some((u64::MAX, &b"b"[..])));
}

#[test]
#[cfg_attr(miri, ignore = "megabytes take minutes to hash there")]
fn keys_and_entries_larger_than_a_chunk_are_held() {
    let mut memtable = Memtable::new(0);
    let large = b"more than a chunk ".repeat(60_000);
    memtable.insert(b"small", 1, &[b"1"]);
    memtable.insert(b"large", 2, &[&large, &large]);
    memtable.insert(&large, 3, &[b"3"]);
    assert_eq!(memtable.get(b"large", 2).unwrap().1, [&large[..], &large[..]].concat());
    assert_eq!(memtable.get(&large, 3), Some((3, &b"3"[..])));
    assert_eq!(memtable.get(b"small", 3), Some((1, &b"1"[..])));
    assert!(memtable.bytes() > 3 << 20);
}

#[test]
#[should_panic(expected = "a (key, seq) is inserted once")]
fn a_second_insert_of_a_key_and_seq_panics() {
    let mut memtable = Memtable::new(0);
    memtable.insert(b"a", 1, &[]);
    memtable.insert(b"b", 1, &[]);
    memtable.insert(b"a", 1, &[]);
}

#[test]
fn keys_that_share_a_hash_are_all_found() {
    let mut inserter = Inserter::new(1);
    let key = |n: u64| n.to_be_bytes();
    let versions = || (0..100).flat_map(|n| [(n, 5), (n, 9), (n, 7)]);
    for (n, seq) in versions() {
        inserter.insert(&key(n), 1, seq, &[&key(n + seq)]); // far more than the index takes of one hash
    }
    for (n, seq) in versions() {
        assert_eq!(inserter.list().get(&key(n), 1, seq), Some((seq, &key(n + seq)[..])));
        assert_eq!(inserter.list().get(&key(n), 1, u64::MAX), Some((9, &key(n + 9)[..])));
        assert_eq!(inserter.list().get(&key(n), 1, 4), None);
    }
    assert_eq!(inserter.list().get(&key(100), 1, u64::MAX), None);
}

#[test]
fn len_and_bytes_count_every_entry() {
    let mut memtable = Memtable::new(0);
    let reader = memtable.reader();
    let mut bytes = 0;
    for n in 0..300_usize {
        memtable.insert(b"key", n as u64, &[&[0; 100]]);
        assert_eq!(memtable.len(), n + 1);
        assert!((bytes + 100..bytes + 300).contains(&memtable.bytes()));
        bytes = memtable.bytes();
        assert_eq!((reader.len(), reader.bytes()), (n + 1, bytes));
    }
}

#[test]
fn keys_in_order_in_reverse_and_mixed_give_one_list() {
    let n = if cfg!(miri) { 100_u64 } else { 3_000 };
    let mut mixed: Vec<u64> = (0..n).collect();
    mixed.sort_by_key(|key| mix(*key));
    let lists: Vec<_> = [(0..n).collect(), (0..n).rev().collect(), mixed]
        .iter()
        .map(|keys: &Vec<u64>| {
            let mut memtable = Memtable::new(0);
            for key in keys {
                memtable.insert(&key.to_be_bytes(), 1, &[&key.to_le_bytes()]);
            }
            entries(&memtable)
        })
        .collect();
    assert_eq!(lists[0].len() as u64, n);
    assert!(lists[0].is_sorted_by(|a, b| a.0 < b.0));
    assert!(lists.iter().all(|list| *list == lists[0]));
}

#[test]
fn equal_histories_take_equal_bytes() {
    let bytes = || {
        let mut memtable = Memtable::new(0);
        (0..500_u64).for_each(|n| memtable.insert(&mix(n).to_be_bytes(), n, &[]));
        memtable.bytes()
    };
    assert_eq!(bytes(), bytes());
}

#[test]
fn a_cursor_outlives_the_memtable_and_its_reader() {
    let mut memtable = Memtable::new(0);
    for key in [b"a", b"c", b"e"] {
        memtable.insert(key, 1, &[key]);
    }
    let mut cursor = memtable.reader().cursor();
    cursor.seek(b"b");
    let end = {
        let mut end = cursor.clone();
        end.seek(b"f");
        end
    };
    drop(memtable);
    assert!(!end.valid());
    assert_eq!((cursor.key(), cursor.seq(), cursor.entry()), (&b"c"[..], 1, &b"c"[..]));
    cursor.step();
    assert_eq!(cursor.key(), b"e");
    cursor.step();
    assert!(!cursor.valid());
    cursor.seek_first();
    assert_eq!(cursor.key(), b"a");
}

#[test]
fn a_cursor_goes_on_into_what_was_inserted_since() {
    let mut memtable = Memtable::new(0);
    memtable.insert(b"a", 1, &[]);
    let mut cursor = memtable.reader().cursor();
    cursor.seek_first();
    memtable.insert(b"b", 3, &[]);
    memtable.insert(b"b", 2, &[]);
    cursor.step();
    assert_eq!((cursor.key(), cursor.seq()), (&b"b"[..], 3));
    cursor.seek_seq(b"b", 2);
    assert_eq!((cursor.key(), cursor.seq()), (&b"b"[..], 2));
}

#[test]
#[cfg_attr(miri, ignore = "only long walks go ahead, and they take minutes")]
fn a_long_walk_goes_ahead_and_meets_everything_all_the_same() {
    let mut memtable = Memtable::new(0);
    let mut keys: BTreeSet<Vec<u8>> = (0..5_000).map(|number| mix(number).to_be_bytes().to_vec()).collect();
    keys.iter().for_each(|key| memtable.insert(key, 1, &[key]));
    let mut cursor = memtable.reader().cursor();
    // From several places: walks that are not long yet at their end, and ones that end within what they have fetched.
    for from in [0, 1, 100, 2_500, 4_700, 4_990] {
        let first = keys.iter().nth(from).unwrap().clone();
        cursor.seek(&first);
        let mut met = Vec::new();
        while cursor.valid() {
            let key = cursor.key().to_vec();
            // What is linked behind it meanwhile it meets next.
            let behind = [&key[..], &[0]].concat();
            if met.len() % 5 == 0 && keys.insert(behind.clone()) {
                memtable.insert(&behind, 1, &[&behind]);
            }
            assert_eq!(cursor.entry(), key);
            met.push(key);
            cursor.step();
        }
        assert!(met.iter().eq(keys.range(first..)));
    }
}

const INSERTS: usize = if cfg!(miri) { 30 } else { 300 };

/// Few distinct keys with long common prefixes, so that versions and neighbours are many.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(0..3_u8, 0..4),
        prop::collection::vec(any::<u8>(), 0..12),
        (0..40_u16).prop_map(|n| [&b"objects/type/bucket/"[..], &n.to_be_bytes()].concat()),
        (0..40_u8).prop_map(|n| vec![b'x'; usize::from(n)]),
    ]
}

fn newest<'a>(model: &'a Model, key: &[u8], seq_max: u64) -> Option<(u64, &'a [u8])> {
    let ((found, Reverse(seq)), entry) = model.range((key.to_vec(), Reverse(seq_max))..).next()?;
    (found == key).then_some((*seq, entry))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn agrees_with_a_sorted_map(
        inserts in prop::collection::vec((key(), 0..20_u64, prop::collection::vec(any::<u8>(), 0..40)), 0..=INSERTS),
        lookups in prop::collection::vec((key(), 0..21_u64), INSERTS / 5),
    ) {
        let mut memtable = Memtable::new(0);
        let reader = memtable.reader();
        let mut model = Model::new();
        for (key, seq, entry) in inserts {
            if !model.contains_key(&(key.clone(), Reverse(seq))) {
                let (front, back) = entry.split_at(entry.len() / 3);
                memtable.insert(&key, seq, &[front, back]);
                prop_assert_eq!(reader.get(&key, seq), Some((seq, &entry[..])));
                model.insert((key, Reverse(seq)), entry);
            }
        }
        prop_assert_eq!(memtable.len(), model.len());
        let all = model.iter().map(|((key, Reverse(seq)), entry)| (&key[..], *seq, &entry[..]));
        prop_assert!(reader.iter().eq(all));
        for (key, seq_max) in lookups {
            let found = newest(&model, &key, seq_max);
            prop_assert_eq!(memtable.get(&key, seq_max), found);
            prop_assert_eq!(reader.get_hashed(&key, hash(&key), seq_max), found);

            let rest = || model
                .range((key.clone(), Reverse(u64::MAX))..)
                .map(|((key, Reverse(seq)), entry)| (&key[..], *seq, &entry[..]));
            prop_assert!(reader.iter_from(&key).eq(rest()));
            let mut cursor = reader.cursor();
            cursor.seek(&key);
            for expected in rest() {
                prop_assert!(cursor.valid());
                prop_assert_eq!((cursor.key(), cursor.seq(), cursor.entry()), expected);
                cursor.step();
            }
            prop_assert!(!cursor.valid());
        }
    }
}

/// What happens to an entry.
#[derive(Clone, Copy, Debug)]
enum How {
    Insert,
    Defer,
    DeferAndLink,
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_deferred_is_found_at_once_and_walked_once_it_is_linked(
        entries in prop::collection::vec(
            (key(), prop_oneof![2 => Just(How::Insert), 40 => Just(How::Defer), 3 => Just(How::DeferAndLink)]),
            0..=INSERTS,
        ),
    ) {
        let mut memtable = Memtable::new(0);
        let reader = memtable.reader();
        let mut model = Model::new();
        let mut linked = None;
        for (seq, (key, how)) in entries.into_iter().enumerate() {
            let (seq, entry) = (seq as u64, mix(seq as u64).to_le_bytes());
            match how {
                How::Insert => memtable.insert(&key, seq, &[&entry]),
                How::Defer | How::DeferAndLink => memtable.defer_hashed(&key, hash(&key), seq, &[&entry]),
            }
            model.insert((key.clone(), Reverse(seq)), entry.to_vec());
            prop_assert_eq!(memtable.get(&key, u64::MAX), Some((seq, &entry[..])));
            if !matches!(how, How::Defer) {
                memtable.link();
                prop_assert!(memtable.is_linked_to(u64::MAX));
                linked = Some(seq);
                let all = model.iter().map(|((key, Reverse(seq)), entry)| (&key[..], *seq, &entry[..]));
                prop_assert!(reader.iter().eq(all));
            }
            // A reader that keeps to what is linked sees no difference.
            if let Some(linked) = linked {
                prop_assert!(memtable.is_linked_to(linked));
                prop_assert_eq!(reader.get(&key, linked), newest(&model, &key, linked));
            }
        }
        prop_assert_eq!(memtable.len(), model.len());
        for (key, _) in model.keys() {
            prop_assert_eq!(memtable.get(key, u64::MAX), newest(&model, key, u64::MAX));
        }
    }
}

#[test]
fn many_that_are_deferred_give_the_same_list() {
    let count = if cfg!(miri) { 100_u64 } else { 20_000 };
    let (mut deferred, mut inserted) = (Memtable::new(0), Memtable::new(0));
    for n in 0..count {
        // Some keys come again, and some in order.
        let key = if n % 7 < 2 { n.to_be_bytes() } else { mix(n % (count / 2)).to_be_bytes() };
        deferred.defer_hashed(&key, hash(&key), n, &[&n.to_le_bytes()]);
        inserted.insert(&key, n, &[&n.to_le_bytes()]);
        if n % 1000 == 0 {
            deferred.link();
        }
    }
    deferred.link();
    assert_eq!(deferred.bytes(), inserted.bytes());
    assert_eq!(entries(&deferred), entries(&inserted));
    for n in 0..count {
        let key = mix(n).to_be_bytes();
        assert_eq!(deferred.reader().get(&key, count / 2), inserted.reader().get(&key, count / 2));
    }
}

const STRESS_INSERTS: u64 = if cfg!(miri) { 60 } else { 60_000 };
/// Each key gets about this many versions, far apart in time.
const STRESS_VERSIONS: u64 = 3;

fn stress_key(n: u64) -> Vec<u8> {
    let id = mix(n % (STRESS_INSERTS / STRESS_VERSIONS));
    [&b"stress/"[..], &id.to_be_bytes(), &vec![b'.'; (id % 30) as usize]].concat()
}

/// What the entry must be, so that a torn or a foreign one shows.
fn stress_entry(key: &[u8], seq: u64) -> Vec<u8> {
    let hash = hash(key) ^ mix(seq);
    hash.to_le_bytes().repeat((hash % 9) as usize)
}

/// Lookups of what the writer said is in, and of what it may be about to put in.
fn look_up(reader: &MemtableReader, inserted: &AtomicU64, salt: u64) {
    for round in 0.. {
        let seq_now = inserted.load(Ordering::Acquire);
        for n in 0..20 {
            let seq = mix(round * 20 + n + salt) % STRESS_INSERTS;
            let key = stress_key(seq);
            match reader.get(&key, seq) {
                Some((found, entry)) => {
                    assert!(found == seq || found < seq && seq >= seq_now);
                    assert_eq!(entry, stress_entry(&key, found));
                }
                None => assert!(seq >= seq_now, "an insert that happened before the lookup is found"),
            }
        }
        if seq_now == STRESS_INSERTS {
            return;
        }
    }
}

/// Walks over the whole list: in order, complete as of the start, entries whole.
fn walk(reader: &MemtableReader, inserted: &AtomicU64) {
    loop {
        let seq_now = inserted.load(Ordering::Acquire);
        let mut cursor = reader.cursor();
        cursor.seek_first();
        let (mut seen, mut last) = (0, None);
        while cursor.valid() {
            let at = (cursor.key().to_vec(), Reverse(cursor.seq()));
            assert_eq!(cursor.entry(), stress_entry(cursor.key(), cursor.seq()));
            let found = reader.get(cursor.key(), cursor.seq());
            assert_eq!(found, Some((cursor.seq(), cursor.entry())), "what a walk meets a lookup finds");
            seen += u64::from(cursor.seq() < seq_now);
            assert!(last.as_ref().is_none_or(|last| *last < at));
            last = Some(at);
            cursor.step();
        }
        assert_eq!(seen, seq_now, "every insert that happened before the walk is met");
        if seq_now == STRESS_INSERTS {
            return;
        }
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a race needs real threads; the scope joins them")]
fn readers_race_the_writer() {
    let mut memtable = Memtable::new(0);
    let (reader, inserted) = (memtable.reader(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| look_up(&reader, &inserted, 1));
        scope.spawn(|| walk(&reader, &inserted));
        for seq in 0..STRESS_INSERTS {
            let key = stress_key(seq);
            let entry = stress_entry(&key, seq);
            if seq % 64 < 32 {
                memtable.insert(&key, seq, &[&entry]);
                inserted.store(seq + 1, Ordering::Release);
                continue;
            }
            // Said to be in once it is linked, in groups of several sizes.
            memtable.defer_hashed(&key, hash(&key), seq, &[&entry]);
            if mix(seq).is_multiple_of(8) || seq % 64 == 63 {
                memtable.link();
                inserted.store(seq + 1, Ordering::Release);
            }
        }
    });
    assert_eq!(memtable.len() as u64, STRESS_INSERTS);
}
