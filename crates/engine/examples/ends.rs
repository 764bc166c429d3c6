//! Versions that end: by a time to live, and with a range that is dropped. `cargo run -p engine --example ends`.

use engine::{Embedded, Error, Machine, Options, Write};
use std::time::Duration;

fn main() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let machine =
        Machine::new(os::OsDisk::blocking().blocking_handles(), os::OsClock::new(), os::OsRng::new());
    let mut store = Embedded::open(folder.path(), Options::default(), machine)?;

    store.put_for(b"session/1", b"", b"token", Duration::from_secs(3600))?;
    let ends = store.head(b"session/1")?.expect("an hour has not passed").expires_ms;
    println!("the session ends at {ends:?} ms after 1970");
    // Milliseconds since 1970 can be given as they are: this one ended long ago.
    store.write(&[Write::PutUntil { key: b"session/2", head: b"", value: &[b"token"], expires_ms: 1 }])?;
    assert_eq!(store.get(b"session/2")?, None);

    for number in 0..1000 {
        store.put(format!("tenant-7/{number:04}").as_bytes(), b"", b"")?;
    }
    // One small record, however many keys; and the range can be written again at once.
    store.drop_range(b"tenant-7/", b"tenant-70")?;
    assert_eq!(store.head(b"tenant-7/0500")?, None);
    store.put(b"tenant-7/0500", b"back", b"")?;
    assert_eq!(store.head(b"tenant-7/0500")?.map(|found| found.head), Some("back".into()));
    store.close()
}
