//! Folds: over heads with a check of the journal, objects in two orders, buckets; limited, stopped and resumed; the
//! heads of a few key segments.
//! `cargo run -p engine --example folds`.

use engine::fold::{Control, FoldRequest, JournalCheck, KeyRange, KeySegments, Modified, What};
use engine::{Embedded, Error, Machine, Options};

fn main() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let machine =
        Machine::new(os::OsDisk::blocking().blocking_handles(), os::OsClock::new(), os::OsRng::new());
    let mut store = Embedded::open(folder.path(), Options::default(), machine)?;
    for number in 0..1000u64 {
        // This application's heads begin with the time of the last change.
        let key = format!("bucket-{}/{number:04}", number % 3);
        store.put(key.as_bytes(), &(10_000 + number).to_be_bytes(), &[1; 500])?;
    }
    let mut reader = store.reader();

    // Heads of one bucket whose records are whole; what is damaged is counted and named.
    let what = What::Heads(JournalCheck::Checksum);
    let end =
        reader.fold(FoldRequest::over(KeyRange::prefix(&b"bucket-1/"[..]), what), &mut |_| Control::Next)?;
    assert_eq!((end.visited, end.damaged), (333, 0));

    // What was modified in a stretch of time, in two buckets; ten at a time.
    let of = |_: &[u8], head: &[u8]| Some(u64::from_be_bytes(head.try_into().ok()?));
    let mut request = FoldRequest {
        ranges: vec![KeyRange::prefix(&b"bucket-0/"[..]), KeyRange::prefix(&b"bucket-2/"[..])],
        modified: Some(Modified { of, from: 10_100, to: 10_199 }),
        items_max: 10,
        ..FoldRequest::over(KeyRange::all(), What::Heads(JournalCheck::None))
    };
    let mut visited = 0;
    loop {
        let end = reader.fold(request.clone(), &mut |_| Control::Next)?;
        visited += end.visited;
        request.from = end.next;
        if request.from.is_none() {
            break;
        }
    }
    assert_eq!(visited, 66);

    // Of 64 segments of the keys' hashes, two: what is asked for where hash trees differ in two leaves.
    let segments = KeySegments::new(6, [17, 42])?;
    let mut request = FoldRequest::over(KeyRange::all(), What::Heads(JournalCheck::None));
    request.segments = Some(segments.clone());
    let mut keys = 0;
    reader.fold(request, &mut |item| {
        assert!(segments.contains(item.key));
        keys += 1;
        Control::Next
    })?;
    assert!((1..200).contains(&keys));

    // Whole objects, in key order, or, with nearly sequential reads, as they lie in the journal.
    for what in [What::Objects, What::ObjectsByJournal] {
        let mut bytes = 0;
        reader.fold(FoldRequest::over(KeyRange::all(), what), &mut |object| {
            bytes += object.value.as_ref().map_or(0, |value| value.len());
            Control::Next
        })?;
        assert_eq!(bytes, 500_000);
    }

    // The buckets alone: a seek for each, however many keys they have.
    let what = What::Buckets(|key| key.iter().position(|&byte| byte == b'/').unwrap_or(key.len()));
    let mut buckets = Vec::new();
    reader.fold(FoldRequest::over(KeyRange::all(), what), &mut |item| {
        buckets.push(String::from_utf8_lossy(&item.key[..8]).into_owned());
        Control::Next
    })?;
    assert_eq!(buckets, ["bucket-0", "bucket-1", "bucket-2"]);
    store.close()
}
