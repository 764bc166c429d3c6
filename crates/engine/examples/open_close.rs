//! Opening, closing and destroying a store: `cargo run -p engine --example open_close`.

use engine::{Durability, Embedded, Error, Machine, Options};

/// Real files, clocks and randomness; any others that implement the traits of `base` do as well.
fn machine() -> Machine {
    Machine::new(os::OsDisk::blocking().blocking_handles(), os::OsClock::new(), os::OsRng::new())
}

fn main() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options { durability: Durability::Interval, ..Options::default() };

    let mut store = Embedded::open(folder.path(), options.clone(), machine())?;
    assert!(store.report().created && store.is_empty()?);
    store.put(b"key", b"head", b"value")?;
    store.close()?;

    let mut store = Embedded::open(folder.path(), options, machine())?;
    println!("opened again: {:?}", store.report());
    assert!(store.report().clean && store.report().replayed == 0, "after a clean stop nothing is replayed");
    assert_eq!(store.get(b"key")?.and_then(|found| found.value), Some("value".into()));
    store.destroy()
}
