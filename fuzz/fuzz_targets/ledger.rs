//! What the ledger keeps: keys, entries, and the heads at a segment's end.
#![no_main]

use engine::Entry;
use engine::journal::record::Kind;
use engine::journal::segment::Heads;
use libfuzzer_sys::fuzz_target;
use object::key;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(parts) = key::decode_object_key(bytes) {
        let mut again = Vec::new();
        key::encode_object_key(parts.prefix, &parts.bucket_type, &parts.bucket, parts.key, &mut again);
        assert_eq!(again, bytes);
    }
    if let Ok((bucket_type, bucket)) = key::decode_bucket_key(bytes) {
        let mut again = Vec::new();
        key::encode_bucket_key(&bucket_type, &bucket, &mut again);
        assert_eq!(again, bytes);
    }
    if let Ok(object_key) = key::hinted(bytes) {
        let node = u16::from_be_bytes([bytes[1], bytes[2]]);
        assert_eq!(key::hint(node, object_key), bytes);
    }
    if let Ok(entry) = Entry::decode(bytes) {
        let mut again = Vec::new();
        entry.encode(&mut again);
        assert_eq!(Entry::decode(&again).ok(), Some(entry));
    }
    for kind in [Kind::Heads, Kind::HeadsV1] {
        let _ = Heads::new(kind, bytes).take(1 << 16).count();
    }
});
