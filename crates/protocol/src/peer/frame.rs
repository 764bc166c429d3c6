//! Frames between nodes.
//!
//! ```text
//! length u32 | crc32c u32 | kind u8 | 0 u8 | id u64 | ttl_ms u32 | body
//! ```
//!
//! The length counts what follows it, the checksum covers what follows that. A body may end in a value, which the
//! sender leaves where it is: [`end`] sums it up without copying it, unless it is small. The receiver's body is a
//! slice of the memory it was read into, so whoever keeps a part of it for long must copy that part or keep the
//! whole buffer alive.
//!
//! The checksum is not against an attacker (the link is TLS) but against memory and programs that go wrong at either
//! end: a replica must not make a damaged version durable because the path to it was encrypted.

use base::checksum::{crc32c, crc32c_append};
use bytes::{BufMut, Bytes, BytesMut};

/// The largest length field that is accepted or sent: the largest object (100 MiB of values), its head (1 MiB), and
/// another MiB, which is more than a key and all small fields of any message take.
pub const FRAME_BYTES_MAX: usize = 102 << 20;

/// The largest value that is copied into the buffer of the frames' other parts. To copy a page costs less than to
/// pass it on by itself: a reference count, a place in the queue of what is to be written, a TLS record of its own.
pub const SMALL_VALUE_MAX: usize = 4 << 10;

/// The most room that [`next_frame`] asks for ahead of the bytes that have arrived, so that a claim alone costs
/// little, and yet a value of usual size moves once at most while it is read.
pub const READ_STEP: usize = 256 << 10;

/// The bytes before a body.
pub const HEADER_LEN: usize = 22;

const LENGTH_LEN: usize = 4;
/// Where the bytes that the checksum covers begin.
const SUMMED_AT: usize = 8;
/// What the length of a frame without a body is.
const LENGTH_MIN: usize = HEADER_LEN - LENGTH_LEN;
/// Room for a usual frame without its value, so that a new buffer is allocated once.
const HEAD_USUAL: usize = 128;

/// What stands before a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the body is.
    pub kind: u8,
    /// The number of the question that the frame asks or answers.
    pub id: u64,
    /// For how many milliseconds from now somebody waits for the answer; zero where that does not matter.
    pub ttl_ms: u32,
}

/// One frame, cut out of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What the body is.
    pub kind: u8,
    /// The number of the question that the frame asks or answers.
    pub id: u64,
    /// For how many milliseconds from the time of sending somebody waits for the answer.
    pub ttl_ms: u32,
    /// Its fields.
    pub body: Bytes,
}

/// A frame over the limit, be it read or to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {len} bytes, {max} allowed")]
pub struct TooLarge {
    /// Its length.
    pub len: usize,
    /// The limit.
    pub max: usize,
}

/// Bytes that are no frame. The stream has no further frame boundary to be trusted: it must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A length below that of the header.
    #[error("a frame of {0} bytes is none")]
    TooSmall(usize),
    /// A frame over the limit.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The bytes are not those that were sent.
    #[error("a frame fails its checksum")]
    Checksum,
    /// A byte that is zero in this version is not.
    #[error("a frame with flags {0}, which this version has not")]
    Flags(u8),
}

/// Cuts the next complete frame off the front of `buf`, if its length field is `limit` at most. `None` says that more
/// bytes must be read first, and leaves room for some of them. After an error `buf` is untouched.
///
/// # Errors
/// [`FrameError`], after which the stream has no frame boundary left.
pub fn next_frame(buf: &mut BytesMut, limit: usize) -> Result<Option<Frame>, FrameError> {
    let Some(length) = buf.first_chunk::<LENGTH_LEN>() else {
        buf.reserve(READ_STEP);
        return Ok(None);
    };
    // A length that does not fit is over any limit.
    let len = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if len < LENGTH_MIN {
        return Err(FrameError::TooSmall(len));
    }
    if len > limit {
        return Err(TooLarge { len, max: limit }.into());
    }
    let missing = (LENGTH_LEN + len).saturating_sub(buf.len());
    if missing > 0 {
        buf.reserve(missing.min(READ_STEP));
        return Ok(None);
    }
    let header = parse_header(&buf[..LENGTH_LEN + len])?;
    let body = buf.split_to(LENGTH_LEN + len).freeze().split_off(HEADER_LEN);
    Ok(Some(Frame { kind: header.kind, id: header.id, ttl_ms: header.ttl_ms, body }))
}

/// Bytes of the frame at the front of `buf`, its length field included: as many as it claims, once that is known.
pub fn arriving_bytes(buf: &[u8]) -> usize {
    match buf.first_chunk::<LENGTH_LEN>() {
        Some(length) => LENGTH_LEN.saturating_add(u32::from_le_bytes(*length) as usize),
        None => buf.len(),
    }
}

/// The kind and the number that the frame at the front of `buf` claims to have, once they have come. Its checksum is
/// not looked at.
pub fn claimed(buf: &[u8]) -> Option<(u8, u64)> {
    let header = buf.first_chunk::<HEADER_LEN>()?;
    Some((header[8], u64::from_le_bytes(*header[10..].first_chunk()?)))
}

/// Checks a whole frame and reads its header.
fn parse_header(frame: &[u8]) -> Result<Header, FrameError> {
    const WHOLE: &str = "the frame is as long as a header";
    let crc = u32::from_le_bytes(*frame[LENGTH_LEN..].first_chunk().expect(WHOLE));
    if crc != crc32c(&frame[SUMMED_AT..]) {
        return Err(FrameError::Checksum);
    }
    if frame[9] != 0 {
        return Err(FrameError::Flags(frame[9]));
    }
    Ok(Header {
        kind: frame[8],
        id: u64::from_le_bytes(*frame[10..].first_chunk().expect(WHOLE)),
        ttl_ms: u32::from_le_bytes(*frame[18..].first_chunk().expect(WHOLE)),
    })
}

/// Begins a frame: leaves room for its header, and returns where it starts. The body's fields are appended to `out`
/// next, then [`end`] is called.
pub fn begin(out: &mut BytesMut) -> usize {
    let start = out.len();
    out.reserve(HEAD_USUAL);
    out.put_bytes(0, HEADER_LEN);
    start
}

/// Ends the frame begun at `start`, whose body ends with `value`. Returns the value if it is to be sent right after
/// `out` and before anything else; a small one is appended to `out` instead.
///
/// # Errors
/// [`TooLarge`] beyond [`FRAME_BYTES_MAX`]; the frame is taken back.
pub fn end(
    out: &mut BytesMut,
    start: usize,
    header: Header,
    value: Option<&Bytes>,
) -> Result<Option<Bytes>, TooLarge> {
    let value = value.filter(|value| !value.is_empty());
    let len = out.len() - start - LENGTH_LEN + value.map_or(0, Bytes::len);
    if len > FRAME_BYTES_MAX {
        out.truncate(start);
        return Err(TooLarge { len, max: FRAME_BYTES_MAX });
    }
    let length = u32::try_from(len).expect("FRAME_BYTES_MAX fits");
    let frame = &mut out[start..];
    frame[..LENGTH_LEN].copy_from_slice(&length.to_le_bytes());
    frame[8] = header.kind;
    frame[10..18].copy_from_slice(&header.id.to_le_bytes());
    frame[18..HEADER_LEN].copy_from_slice(&header.ttl_ms.to_le_bytes());
    let mut crc = crc32c(&frame[SUMMED_AT..]);
    if let Some(value) = value {
        crc = crc32c_append(crc, value);
    }
    frame[LENGTH_LEN..SUMMED_AT].copy_from_slice(&crc.to_le_bytes());
    match value {
        Some(value) if value.len() > SMALL_VALUE_MAX => Ok(Some(value.clone())),
        Some(value) => {
            out.extend_from_slice(value);
            Ok(None)
        }
        None => Ok(None),
    }
}
