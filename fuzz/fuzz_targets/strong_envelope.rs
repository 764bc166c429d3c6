//! The body of a frame with messages of consistent groups: refused, or read the same again after it is written. So is
//! each message in it.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use strong::envelope::Envelope;
use strong::group::Message;

fuzz_target!(|bytes: &[u8]| {
    let Ok(envelope) = Envelope::read(Bytes::copy_from_slice(bytes)) else { return };
    assert_eq!(Envelope::read(envelope.encode()).as_ref(), Ok(&envelope));
    for (_, message) in envelope.messages {
        if let Ok(message) = Message::read(message) {
            assert_eq!(Message::read(message.encode()), Ok(message));
        }
    }
});
