//! Scans beside a map: whatever the visitor wants, wherever a page ends, and wherever the page cache lacks a block, the
//! pages together have just the items that were to be taken, and each entry is visited once.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::disk::MemoryDisk;
use crate::common::strain::{Slow, options};
use crate::common::{HandClock, small};
use base::rng::{Rng, SplitMix64};
use bytes::Bytes;
use engine::fold::{ScanRequest, Visit};
use engine::store::Event;
use engine::{Embedded, Machine, Options, Write};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// What is wanted of a key depends on nothing but the key.
fn visit(key: &[u8], seeks: bool) -> Visit {
    let number: u64 = std::str::from_utf8(&key[key.len() - 5..]).unwrap().parse().unwrap();
    let further = || [&key[..key.len() - 5], format!("{:05}", number + number % 300).as_bytes()].concat();
    match number % 7 {
        0 => Visit::Skip,
        1 if seeks => Visit::Seek(further()),
        2 if seeks => Visit::TakeAndSeek(further()),
        // Not ahead, and so as if it were none.
        3 if seeks => Visit::TakeAndSeek(Vec::new()),
        _ => Visit::Take,
    }
}

/// The keys that are visited, and the items that are taken.
fn expected(map: &Map, start: &[u8], end: &[u8], seeks: bool) -> (Vec<Vec<u8>>, Map) {
    let (mut visited, mut taken, mut at) = (Vec::new(), Map::new(), start.to_vec());
    for (key, head) in map.range(start.to_vec()..end.to_vec()) {
        if *key < at {
            continue;
        }
        visited.push(key.clone());
        let visit = visit(key, seeks);
        if matches!(visit, Visit::Take | Visit::TakeAndSeek(_)) {
            taken.insert(key.clone(), head.clone());
        }
        if let Visit::Seek(to) | Visit::TakeAndSeek(to) = visit {
            at = to.max(key.clone());
        }
    }
    (visited, taken)
}

fn key(number: u64) -> Vec<u8> {
    // Some blocks have keys of one beginning only, and some keys are longer than most.
    let beginning =
        if number < 3_000 { "first-keys/" } else { "later/which-are-longer-than-others-and-begin-alike/" };
    format!("{beginning}{number:05}").into_bytes()
}

#[test]
fn pages_have_what_was_to_be_taken_and_nothing_is_visited_twice() {
    let (disk, clock) = (MemoryDisk::default(), HandClock::new());
    let machine = Machine::new(move || disk.clone(), clock, SplitMix64::new(3));
    let mut store = Embedded::open(Path::new("/store"), small(), machine).unwrap();
    let (mut map, mut rng) = (Map::new(), SplitMix64::new(17));
    for round in 0..12_000u64 {
        let key = key(rng.below(6_000));
        if rng.chance(1, 5) {
            store.delete(&key).unwrap();
            map.remove(&key);
        } else {
            let head = vec![b'h'; rng.below(40) as usize];
            store.put(&key, &head, &round.to_be_bytes()).unwrap();
            map.insert(key, head);
        }
    }
    for _ in 0..300 {
        let (one, other) = (key(rng.below(6_000)), key(rng.below(6_000)));
        let (first, end) = (one.clone().min(other.clone()), one.max(other));
        let items_max = [1, 7, 100, 5_000][rng.below(4) as usize].max(map.len() / 50);
        let seeks = rng.chance(1, 2);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut items, mut next) = (Map::new(), Some(Bytes::from(first.clone())));
        while let Some(start) = next {
            let seen = Arc::clone(&seen);
            let visitor = Box::new(move |key: &[u8], _: &[u8]| {
                seen.lock().unwrap().push(key.to_vec());
                visit(key, seeks)
            });
            let end = Bytes::from(end.clone());
            let page =
                store.scan(ScanRequest { start, end, items_max, visitor, past_losses: false }).unwrap();
            assert!(page.items.len() <= items_max && (page.next.is_none() || page.items.len() == items_max));
            items.extend(page.items.iter().map(|(key, head)| (key.to_vec(), head.to_vec())));
            next = page.next;
        }
        let (visited, taken) = expected(&map, &first, &end, seeks);
        assert_eq!(items, taken);
        assert_eq!(*seen.lock().unwrap(), visited);
    }
}

/// A short scan needs no job, and a longer one goes on as one.
#[test]
fn what_is_at_hand_is_there_with_the_next_turn() {
    let mut slow = Slow::open(Options { memtable_bytes_max: 1 << 20, ..options() });
    for number in 0..3_000 {
        slow.store.write(&[Write::Put { key: &key(number), head: b"head", value: &[] }]).unwrap();
    }
    slow.rest();
    let begin = |slow: &mut Slow, items_max| {
        let (start, end) = (key(0).into(), key(3_000).into());
        let visitor = Box::new(|_: &[u8], _: &[u8]| Visit::Take);
        let request = ScanRequest { start, end, items_max, visitor, past_losses: false };
        slow.store.scan_ahead(request).unwrap();
        slow.store.wants_turn()
    };
    let end = |slow: &mut Slow| {
        slow.turn();
        slow.events.drain(..).find_map(|event| match event {
            Event::Scan(_, page) => Some(page.unwrap().items.len()),
            _ => None,
        })
    };
    assert!(begin(&mut slow, 1_000));
    assert_eq!(end(&mut slow), Some(1_000));
    assert!(!slow.store.wants_turn(), "nothing more is to be had");
    assert!(!begin(&mut slow, 2_500));
    assert_eq!(end(&mut slow), None);
    while slow.run_slice() {}
    assert_eq!(end(&mut slow), Some(2_500));
}
