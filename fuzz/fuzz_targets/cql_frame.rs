//! What a Cassandra answers: read or refused, and what is told of it lies within it.
#![no_main]

use bench::driver::cassandra::frame::{Message, frame_len, parse, stream};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    stream(bytes);
    let parsed = parse(bytes);
    assert!(parsed.is_none() || frame_len(bytes) == Ok(Some(bytes.len())));
    if let Some(Message::Rows(Some(Some(at)))) = parsed {
        assert!(at.start <= at.end && at.end <= bytes.len());
    }
});
