//! Frames: a four-byte big-endian length that counts the rest, one byte of message code, the body.
//!
//! [`next_frame`] cuts frames off the front of a read buffer without copying: a body is a slice of the
//! memory the bytes were read into, so whoever keeps a part of it for long must copy that part or keep the
//! whole buffer alive.
//!
//! Invariant: a length is only a claim. It is compared with a limit before anything else, and memory is
//! asked for in steps of [`READ_STEP`], so a peer that claims much and sends little costs little.

use std::borrow::Cow;

use bytes::{Buf, Bytes, BytesMut};
use prost::Message;

/// The largest frame on a connection that has not yet sent a valid request. Above Riak's default object
/// size warning (5 MB), so a client whose first act is a large put still works, and low enough that
/// strangers holding many connections open cannot fill memory.
pub const FRAME_BEFORE_FIRST_MAX: usize = 8 << 20;

/// The largest frame on a connection that has: Riak's default limit of an object's size, with its metadata.
pub const FRAME_MAX: usize = 50 << 20;

/// The most room [`next_frame`] asks for ahead of the bytes that have arrived: a few socket buffers' worth,
/// and one growth step holds the usual object.
pub const READ_STEP: usize = 64 << 10;

const LENGTH_LEN: usize = 4;

/// How large a frame may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest length field that is accepted (message code and body).
    pub frame_max: usize,
}

impl Limits {
    /// The limits of a connection that has not yet sent a valid request.
    pub const BEFORE_FIRST: Limits = Limits { frame_max: FRAME_BEFORE_FIRST_MAX };
    /// The limits of a connection that has.
    pub const ESTABLISHED: Limits = Limits { frame_max: FRAME_MAX };

    /// The smaller of both.
    #[inline]
    #[must_use]
    pub fn within(self, frame_max: usize) -> Limits {
        Limits { frame_max: self.frame_max.min(frame_max) }
    }
}

/// One frame, cut out of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The message code.
    pub code: u8,
    /// The encoded message; often empty.
    pub body: Bytes,
}

/// A length field that cannot be followed: the stream has no further frame boundary and must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame without even a message code. Riak closes without an answer.
    #[error("zero-length frame")]
    Empty,
    /// A frame over the limit.
    #[error("frame of {len} bytes, {max} allowed")]
    TooLarge {
        /// The length claimed.
        len: usize,
        /// The limit it passed.
        max: usize,
    },
}

impl FrameError {
    /// The text of the error answer due before the connection is closed, if one is.
    pub fn reply(&self) -> Option<Cow<'static, str>> {
        match self {
            FrameError::Empty => None,
            // A limit of our own, which a client can pass: it is told how.
            FrameError::TooLarge { len, max: FRAME_BEFORE_FIRST_MAX } if *len <= FRAME_MAX => {
                Some(Cow::Owned(format!(
                    "the first request of a connection has at most {FRAME_BEFORE_FIRST_MAX} bytes, and this one has \
                     {len}: send a smaller one first, such as a ping"
                )))
            }
            FrameError::TooLarge { .. } => Some(Cow::Borrowed("Invalid message packet, reason: invalid")),
        }
    }
}

/// Bytes of the frame at the front of `buf`, its length field included: as many as it claims, once that is known.
pub fn arriving_bytes(buf: &[u8]) -> usize {
    match buf.first_chunk::<LENGTH_LEN>() {
        Some(length) => LENGTH_LEN.saturating_add(u32::from_be_bytes(*length) as usize),
        None => buf.len(),
    }
}

/// Cuts the next complete frame off the front of `buf`. `None` says that more bytes must be read first, and
/// leaves room for some of them. After an error `buf` is untouched and every later call returns the same.
pub fn next_frame(buf: &mut BytesMut, limits: Limits) -> Result<Option<Frame>, FrameError> {
    let Some(length) = buf.first_chunk::<LENGTH_LEN>() else {
        buf.reserve(READ_STEP);
        return Ok(None);
    };
    // A length that does not fit is over any limit.
    let len = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if len == 0 {
        return Err(FrameError::Empty);
    }
    if len > limits.frame_max {
        return Err(FrameError::TooLarge { len, max: limits.frame_max });
    }
    let missing = (LENGTH_LEN + len).saturating_sub(buf.len());
    if missing > 0 {
        buf.reserve(missing.min(READ_STEP));
        return Ok(None);
    }
    buf.advance(LENGTH_LEN);
    let mut body = buf.split_to(len).freeze();
    let code = body.get_u8();
    Ok(Some(Frame { code, body }))
}

/// Appends a frame that holds `message`. The size must fit a length field, which any message built within
/// [`FRAME_MAX`] does.
pub fn put_message(out: &mut Vec<u8>, code: u8, message: &impl Message) {
    let start = begin(out, code);
    out.reserve(message.encoded_len());
    message.encode_raw(out);
    assert!(end(out, start), "a message beyond the reach of a length field");
}

/// Starts a frame: writes its header with the length left blank, and returns where it starts.
pub(crate) fn begin(out: &mut Vec<u8>, code: u8) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, code]);
    start
}

/// Ends the frame begun at `start`: fills its length in. If no length field can hold it, takes the frame
/// back and returns false.
pub(crate) fn end(out: &mut Vec<u8>, start: usize) -> bool {
    match u32::try_from(out.len() - start - LENGTH_LEN) {
        Ok(len) => {
            out[start..start + LENGTH_LEN].copy_from_slice(&len.to_be_bytes());
            true
        }
        Err(_) => {
            out.truncate(start);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { frame_max: 100 };

    #[test]
    fn frames_are_cut_and_the_rest_stays() {
        let mut buf = BytesMut::from(&b"\0\0\0\x01\x01\0\0\0\x03\x09ab\0\0"[..]);
        assert_eq!(next_frame(&mut buf, LIMITS), Ok(Some(Frame { code: 1, body: Bytes::new() })));
        assert_eq!(
            next_frame(&mut buf, LIMITS),
            Ok(Some(Frame { code: 9, body: Bytes::from_static(b"ab") }))
        );
        assert_eq!(next_frame(&mut buf, LIMITS), Ok(None));
        assert_eq!(&buf[..], b"\0\0");
    }

    #[test]
    fn a_body_is_not_copied() {
        let mut buf = BytesMut::from(&b"\0\0\0\x03\x09ab"[..]);
        let there = buf.as_ptr() as usize + 5;
        let frame = next_frame(&mut buf, LIMITS).unwrap().unwrap();
        assert_eq!(frame.body.as_ptr() as usize, there);
    }

    #[test]
    fn bad_lengths_are_refused() {
        let mut empty = BytesMut::from(&b"\0\0\0\0"[..]);
        assert_eq!(next_frame(&mut empty, LIMITS), Err(FrameError::Empty));
        assert_eq!(FrameError::Empty.reply(), None);
        let mut large = BytesMut::from(&b"\0\0\0\x65\x01"[..]);
        assert_eq!(next_frame(&mut large, LIMITS), Err(FrameError::TooLarge { len: 101, max: 100 }));
        assert_eq!(large.len(), 5);
        let mut hostile = BytesMut::from(&b"\x7f\xff\xff\xff\x01"[..]);
        let error = next_frame(&mut hostile, Limits::ESTABLISHED).unwrap_err();
        assert_eq!(error.reply().as_deref(), Some("Invalid message packet, reason: invalid"));
        assert!(hostile.capacity() < 2 * READ_STEP);
        let mut first = BytesMut::from(&(FRAME_MAX as u32).to_be_bytes()[..]);
        let error = next_frame(&mut first, Limits::BEFORE_FIRST).unwrap_err();
        let text = error.reply().unwrap();
        assert!(text.starts_with("the first request of a connection has at most 8388608 bytes"), "{text}");
    }

    #[test]
    fn a_claim_takes_no_more_than_a_step() {
        let mut buf = BytesMut::from(&b"\0\x20\0\0\x0b"[..]);
        assert_eq!(next_frame(&mut buf, Limits::ESTABLISHED), Ok(None));
        assert!(buf.capacity() >= READ_STEP);
        assert!(buf.capacity() <= 2 * READ_STEP);
    }

    #[test]
    fn a_frame_says_how_long_it_will_be() {
        let arriving: Vec<usize> = (0..7).map(|len| arriving_bytes(&b"\0\x01\0\0\x0bxx"[..len])).collect();
        assert_eq!(arriving, [0, 1, 2, 3, 65_540, 65_540, 65_540]);
        assert_eq!(Limits::ESTABLISHED.within(7), Limits { frame_max: 7 });
        assert_eq!(Limits::BEFORE_FIRST.within(FRAME_MAX), Limits::BEFORE_FIRST);
    }

    #[test]
    fn a_frame_that_is_taken_back_leaves_no_trace() {
        let mut out = b"before".to_vec();
        let start = begin(&mut out, 10);
        assert!(end(&mut out, start));
        assert_eq!(out, b"before\0\0\0\x01\x0a");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn any_bytes_cut_to_frames_or_an_error(bytes in prop::collection::vec(prop_oneof![3 => 0u8..4, 1 => any::<u8>()], 0..64)) {
            let mut buf = BytesMut::from(&bytes[..]);
            let mut cut = 0;
            while let Ok(Some(frame)) = next_frame(&mut buf, LIMITS) {
                prop_assert!(frame.body.len() < LIMITS.frame_max);
                cut += LENGTH_LEN + 1 + frame.body.len();
            }
            prop_assert_eq!(cut + buf.len(), bytes.len());
            prop_assert_eq!(&buf[..], &bytes[cut..]);
        }

        #[test]
        fn frames_survive_any_fragmentation(
            sent in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..40)), 1..6),
            step in 1usize..30,
        ) {
            let mut stream = Vec::new();
            for (code, body) in &sent {
                let start = begin(&mut stream, *code);
                stream.extend_from_slice(body);
                prop_assert!(end(&mut stream, start));
            }
            let mut buf = BytesMut::new();
            let mut received = Vec::new();
            for piece in stream.chunks(step) {
                buf.extend_from_slice(piece);
                while let Some(frame) = next_frame(&mut buf, LIMITS).unwrap() {
                    received.push((frame.code, frame.body.to_vec()));
                }
            }
            prop_assert_eq!(received, sent);
            prop_assert!(buf.is_empty());
        }
    }
}
