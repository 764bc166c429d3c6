//! A real node: `annulet admin compact` frees the room of overwritten data.
use crate::common::{Server, run};
use bytes::Bytes;
use client::{Client, Content, ReadOptions, WriteOptions};
use serde_json::Value;
use std::path::Path;

const BUCKET: &[u8] = b"b";
const KEYS: u32 = 200;
const VALUE_BYTES: usize = 16 << 10;

/// The value of a key in a round of writes, which does not compress.
fn value(key: u32, round: u8) -> Bytes {
    let mut state = key.wrapping_mul(2_654_435_761).wrapping_add(u32::from(round));
    let byte = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..VALUE_BYTES).map(byte).collect()
}

fn put(client: &mut Client, key: u32, round: u8) {
    let content = Content { value: value(key, round), ..Content::default() };
    client.put(None, BUCKET, Some(&key.to_be_bytes()), content, &WriteOptions::default()).unwrap();
}

/// The state that `annulet admin compact` shows.
fn compact(dir: &Path, node: &str, words: &[&str]) -> Value {
    let output = run(dir, &[&["admin", "compact", "--json", "--node", node], words].concat());
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn overwritten_values_leave_the_disk_on_request() {
    let home = tempfile::tempdir().unwrap();
    let node = Server::start(home.path(), &["--data", "data", "--shards", "2"]);
    let mut client = node.connect();
    assert_eq!(compact(home.path(), &node.http, &["--status"])["state"], "none");
    for round in 0..3 {
        (0..KEYS).for_each(|key| put(&mut client, key, round));
    }

    let done = compact(home.path(), &node.http, &["--wait"]);

    let bytes = |name: &str| done[name].as_u64().unwrap();
    assert_eq!((&done["state"], &done["error"]), (&"done".into(), &Value::Null), "{done}");
    assert!(bytes("bytes_before") > 3 * u64::from(KEYS) * VALUE_BYTES as u64, "{done}");
    assert!(bytes("bytes") * 2 < bytes("bytes_before"), "two of three versions are gone: {done}");
    for key in 0..KEYS {
        let found = client.get(None, BUCKET, &key.to_be_bytes(), &ReadOptions::default()).unwrap().unwrap();
        assert_eq!((found.siblings.len(), &found.siblings[0].value), (1, &value(key, 2)), "key {key}");
    }
    assert_eq!(compact(home.path(), &node.http, &["--status"]), done);
    node.stop();
}
