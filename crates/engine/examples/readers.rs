//! Reading on other threads, at a moment that stays, and ranges from either end.
//! `cargo run -p engine --example readers`.

use engine::{Embedded, Error, Machine, Options, Want};
use std::thread;

fn main() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let machine =
        Machine::new(os::OsDisk::blocking().blocking_handles(), os::OsClock::new(), os::OsRng::new());
    let mut store = Embedded::open(folder.path(), Options::default(), machine)?;
    for number in 0..100u32 {
        store.put(format!("{number:03}").as_bytes(), b"head", &[number as u8; 1000])?;
    }

    // A reader follows the store, without a lock, on any thread.
    let readers = [store.reader(), store.reader()];
    thread::scope(|scope| {
        for mut reader in readers {
            scope.spawn(move || {
                let found = reader.get(b"042").expect("it can be read").expect("it was put");
                assert_eq!(found.value.expect("a get brings it").len(), 1000);
            });
        }
    });

    // A snapshot stays what it was.
    let mut before = store.reader().pin();
    store.drop_range(b"", b"050")?;
    assert!(before.head(b"042")?.is_some() && store.head(b"042")?.is_none());

    let mut reader = store.reader();
    let mut range = reader.range(b"010", b"053", Want::Head)?;
    let last = range.next_back().expect("three are left")?;
    let first = range.next().expect("two are left")?;
    assert_eq!((&first.key[..], &last.key[..], range.count()), (&b"050"[..], &b"052"[..], 1));
    store.close()
}
