//! What arrives on a link between nodes. First as a stream, raw: greetings and frames, however it is cut. Then as the
//! body of a sound frame: refused, or a message that is read the same again after it is written.
#![no_main]

use bytes::{BufMut, Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use node::PeerMessage;
use protocol::peer::{FRAME_BYTES_MAX, Frame, Greeting, Reply, VERSION, next_frame};

fn frames(bytes: &[u8], step: usize) -> Vec<Frame> {
    let mut buf = BytesMut::new();
    let mut frames = Vec::new();
    for piece in bytes.chunks(step) {
        buf.extend_from_slice(piece);
        loop {
            match next_frame(&mut buf, 1 << 20) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return frames,
            }
        }
    }
    frames
}

fuzz_target!(|input: (u8, u8, u64, &[u8])| {
    let (step, kind, id, bytes) = input;
    assert_eq!(frames(bytes, usize::from(step) + 1), frames(bytes, usize::MAX));
    let _ = Greeting::read(&mut BytesMut::from(bytes));
    let _ = Reply::read(&mut BytesMut::from(bytes));

    let frame = Frame { kind, id, ttl_ms: 1, body: Bytes::copy_from_slice(bytes) };
    if let Ok(message) = PeerMessage::decode(frame) {
        let mut buf = BytesMut::new();
        if let Some(value) = message.encode(VERSION, &mut buf).expect("it was read from less than a frame") {
            buf.put_slice(&value);
        }
        let frame = next_frame(&mut buf, FRAME_BYTES_MAX).ok().flatten().expect("our own frame");
        assert_eq!(PeerMessage::decode(frame), Ok(message));
    }
});
