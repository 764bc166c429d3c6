//! Writing and reading keys: put, get, head, version, delete, many at once, batches, and conditions.
//! `cargo run -p engine --example put_get`.

use engine::{Condition, Durability, Embedded, Error, Machine, Options, Write};

fn main() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let machine =
        Machine::new(os::OsDisk::blocking().blocking_handles(), os::OsClock::new(), os::OsRng::new());
    let mut store = Embedded::open(folder.path(), Options::default(), machine)?;

    // A head is what can be had without reading the value: sizes, dates, index terms. The engine does not read it.
    let first = store.put(b"apple", b"a fruit", b"red, round")?;
    let found = store.get(b"apple")?.expect("it was put");
    assert_eq!(
        (found.seq, &found.head[..], found.value.as_deref()),
        (first, &b"a fruit"[..], Some(&b"red, round"[..]))
    );
    assert_eq!(store.head(b"apple")?.expect("it was put").value, None);

    // All of a batch or nothing, and as safe as the batch itself asks, whatever the store's default.
    let batch = [
        Write::Put { key: b"pear", head: b"a fruit", value: &[b"green, ", b"not round"] },
        Write::Put { key: b"index/fruit/pear", head: b"", value: &[] },
        Write::Delete { key: b"apple" },
    ];
    store.write_with(&batch, Durability::Sync)?;
    let many = store.head_many(&[b"apple", b"pear"]);
    let there: Vec<bool> =
        many.into_iter().map(|found| Ok(found?.is_some())).collect::<Result<_, Error>>()?;
    assert_eq!(there, [false, true]);

    // Only if nobody came between.
    let seen = store.version(b"pear")?;
    let second = store.put_if(b"pear", seen, b"a fruit", b"yellow by now")?.expect("nobody did");
    assert_eq!(store.put_if(b"pear", seen, b"a fruit", b"too late")?, Err(Some(second)));
    let both = [Condition { key: b"pear", version: Some(second) }, Condition { key: b"plum", version: None }];
    assert!(store.write_if(&both, &[Write::Put { key: b"plum", head: b"", value: &[b"blue"] }])?.is_ok());

    store.delete(b"pear")?;
    assert_eq!(store.get(b"pear")?, None);
    store.close()
}
