//! What consistent groups read of peers and of the disk: refused, or read the same again after it is written.
//!
//! * The body of a frame with messages, and each message in it.
//! * The payload of an entry, the state of a group, and messages and the checkpoint of a catch-up.
//! * The promises that a frame carries.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use protocol::peer::Reader;
use strong::catch_up::{CatchUpMessage, Checkpoint};
use strong::envelope::Envelope;
use strong::group::{GroupState, Message, Payload};
use strong::promise::Block;

fuzz_target!(|bytes: &[u8]| {
    let bytes = Bytes::copy_from_slice(bytes);
    if let Ok(payload) = Payload::read(bytes.clone()) {
        assert_eq!(Payload::read(payload.encode()), Ok(payload));
    }
    if let Ok(state) = GroupState::read(bytes.clone()) {
        assert_eq!(GroupState::read(state.encode()), Ok(state));
    }
    if let Ok(checkpoint) = Checkpoint::read(bytes.clone()) {
        assert_eq!(Checkpoint::read(checkpoint.encode()), Ok(checkpoint));
    }
    if let Ok(message) = CatchUpMessage::read(bytes.clone()) {
        assert_eq!(CatchUpMessage::read(message.encode()), Ok(message));
    }

    if let Ok(block) = Block::read(&mut Reader::new(bytes.clone())) {
        let mut out = BytesMut::new();
        block.put(&mut out);
        assert_eq!(Block::read(&mut Reader::new(out.freeze())), Ok(block));
    }

    let Ok(envelope) = Envelope::read(bytes) else { return };
    assert_eq!(Envelope::read(envelope.encode()).as_ref(), Ok(&envelope));
    for (_, message) in envelope.messages {
        if let Ok(message) = Message::read(message) {
            assert_eq!(Message::read(message.encode()), Ok(message));
        }
    }
});
