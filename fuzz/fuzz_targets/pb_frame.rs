//! A connection's bytes, arriving in pieces: cut to frames whose requests are decoded, as a server does.
//! However they are cut, the frames are the same.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use protocol::{Frame, Limits, Request, next_frame};

fn frames(bytes: &[u8], step: usize) -> Vec<Frame> {
    let mut buf = BytesMut::new();
    let mut frames = Vec::new();
    for piece in bytes.chunks(step) {
        buf.extend_from_slice(piece);
        loop {
            match next_frame(&mut buf, Limits::BEFORE_FIRST) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return frames,
            }
        }
    }
    frames
}

fuzz_target!(|input: (u8, &[u8])| {
    let (step, bytes) = input;
    let pieces = frames(bytes, usize::from(step) + 1);
    assert_eq!(pieces, frames(bytes, usize::MAX));
    for frame in pieces {
        let _ = Request::decode(frame.code, frame.body);
    }
});
