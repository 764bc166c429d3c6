//! What a Redis answers: its end is found or refused, a whole answer is read, and what is cut off is not.
#![no_main]

use bench::driver::redis::resp::{frame_len, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match frame_len(bytes) {
        Ok(Some(len)) if len <= bytes.len() => {
            let parsed = parse(&bytes[..len]);
            assert!(parsed.is_ok() || parsed == Err("a value of another length than it said"));
        }
        _ => assert!(parse(bytes).is_err()),
    }
});
