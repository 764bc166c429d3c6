//! An object answer, read and written by hand: the encoder must agree with the derived one.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use protocol::messages::GetResp;
use protocol::response::{self, Body};
use protocol::{Message, codes, frame};

fuzz_target!(|body: &[u8]| {
    let Ok(mut message) = GetResp::decode(Bytes::copy_from_slice(body)) else { return };
    message.unchanged = None;
    let vclock = message.vclock.get_or_insert_default().clone();
    // An absent flag and one that is false mean the same; ours writes the shorter.
    for content in &mut message.content {
        content.deleted = content.deleted.filter(|deleted| *deleted);
    }
    let mut expected = Vec::new();
    frame::put_message(&mut expected, codes::GET_RESP, &message);
    let mut out = Vec::new();
    response::get(&mut out, &message.content, &vclock, Body::Full);
    assert_eq!(out, expected);
});
