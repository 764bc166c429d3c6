//! A code and a body, as each request in turn: refused, or read the same again after it is written.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use protocol::Request;

fuzz_target!(|input: (u8, &[u8])| {
    let (code, body) = input;
    if let Ok(request) = Request::decode(code, Bytes::copy_from_slice(body)) {
        let mut out = Vec::new();
        request.encode(&mut out);
        assert_eq!(out[4], code);
        assert_eq!(Request::decode(code, Bytes::from(out).slice(5..)), Ok(request));
    }
});
