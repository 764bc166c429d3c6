//! The mark that security is on: refused, or the bytes that its content is written as.
#![no_main]

use libfuzzer_sys::fuzz_target;
use security::EnabledMark;

fuzz_target!(|bytes: &[u8]| {
    if let Some(mark) = EnabledMark::read(bytes) {
        assert_eq!(mark.encode(), bytes);
    }
});
