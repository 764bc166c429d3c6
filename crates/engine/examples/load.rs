//! A sorted load, and a store of heads only. `cargo run -p engine --example load`.

use engine::{Embedded, Error, Machine, Options};

fn main() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let machine =
        Machine::new(os::OsDisk::blocking().blocking_handles(), os::OsClock::new(), os::OsRng::new());
    let options = Options { heads_only: true, ..Options::default() };
    let mut store = Embedded::open(folder.path(), options, machine)?;

    // Straight into tables; all of it shows at the end.
    let mut load = store.load()?;
    for number in 0..100_000 {
        load.put(format!("{number:06}").as_bytes(), b"head", b"")?;
    }
    assert!(matches!(load.put(b"000000", b"", b""), Err(Error::Refused(_))), "keys must ascend");
    load.finish()?;
    assert_eq!(store.head(b"099999")?.map(|found| found.head), Some("head".into()));
    assert_eq!(store.store().stats().counters.flushes, 0);

    // This store keeps no values.
    assert!(matches!(store.put(b"key", b"head", b"value"), Err(Error::Refused(_))));
    store.close()
}
