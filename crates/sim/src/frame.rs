//! Messages between nodes as the network carries them: encoded, and decoded again.

use crate::check::Violation;
use bytes::{Bytes, BytesMut};
use node::PeerMessage;
use node::peer::EncodeError;

const CODEC: &str = "a message arrives as it was sent";

/// A message as bytes; `None` if this version does not know of such.
pub(crate) fn encode(message: &PeerMessage, version: u16) -> Result<Option<Bytes>, Violation> {
    let mut frame = BytesMut::new();
    match message.encode(version, &mut frame) {
        Ok(value) => {
            frame.extend_from_slice(&value.unwrap_or_default());
            Ok(Some(frame.freeze()))
        }
        Err(EncodeError::TooNew) => Ok(None),
        Err(error) => Err(Violation::new(CODEC, error.to_string())),
    }
}

/// The message of a frame.
pub(crate) fn decode(bytes: Bytes) -> Result<PeerMessage, Violation> {
    let mut buffer = BytesMut::from(bytes);
    let broken = |what: &str| Violation::new(CODEC, what);
    let frame = protocol::peer::next_frame(&mut buffer, protocol::peer::FRAME_BYTES_MAX);
    let frame = frame.map_err(|error| broken(&error.to_string()))?.ok_or_else(|| broken("half a frame"))?;
    if !buffer.is_empty() {
        return Err(broken("more than a frame"));
    }
    PeerMessage::decode(frame).map_err(|error| broken(&error.to_string()))
}
