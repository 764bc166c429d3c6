//! A body in chunks: a size in hexadecimal, so many bytes, and again, until a size of zero.
//!
//! Chunk extensions and trailers are refused: nobody uses them but to be read differently by two readers.

use bytes::{Buf, BytesMut};

use super::refused::Refused;
use crate::frame::READ_STEP;

/// The most digits of a size: more than any body may be long, and few enough not to overflow.
const SIZE_DIGITS_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the line with a chunk's size.
    Size,
    /// So many bytes of the chunk are still to come.
    Data(usize),
    /// At the line end after a chunk.
    DataEnd,
    /// At the empty line after the last chunk.
    End,
}

/// A body that comes in chunks, as far as it has come.
#[derive(Debug)]
pub(super) struct Chunked {
    state: State,
    body: BytesMut,
    body_max: usize,
}

impl Chunked {
    /// Nothing yet of a body of at most `body_max` bytes.
    pub fn new(body_max: usize) -> Chunked {
        Chunked { state: State::Size, body: BytesMut::new(), body_max }
    }

    /// How much there is of it.
    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// Takes what is there of the body off `input`. The body, once it is complete.
    pub fn take(&mut self, input: &mut BytesMut) -> Result<Option<BytesMut>, Refused> {
        loop {
            match self.state {
                State::Size => {
                    let Some(size) = take_size(input)? else { return Ok(None) };
                    if size > self.body_max - self.body.len() {
                        return Err(too_large(self.body_max));
                    }
                    self.state = if size == 0 { State::End } else { State::Data(size) };
                }
                State::Data(left) => {
                    let taken = left.min(input.len());
                    if taken == 0 {
                        input.reserve(left.min(READ_STEP));
                        return Ok(None);
                    }
                    self.body.extend_from_slice(&input[..taken]);
                    input.advance(taken);
                    self.state = if taken == left { State::DataEnd } else { State::Data(left - taken) };
                }
                State::DataEnd => {
                    if !take_line_end(input)? {
                        return Ok(None);
                    }
                    self.state = State::Size;
                }
                State::End => {
                    return Ok(take_line_end(input)?.then(|| std::mem::take(&mut self.body)));
                }
            }
        }
    }
}

/// 413.
pub(super) fn too_large(body_max: usize) -> Refused {
    Refused::new(413, format!("the body is larger than {body_max} bytes"))
}

fn take_size(input: &mut BytesMut) -> Result<Option<usize>, Refused> {
    let malformed = Refused::bad("a chunk's size is malformed");
    let digits = input.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits > SIZE_DIGITS_MAX {
        return Err(malformed);
    }
    match &input[digits..] {
        [] | [b'\r'] if digits > 0 || input.is_empty() => return Ok(None),
        [b'\r', b'\n', ..] if digits > 0 => {}
        _ => return Err(malformed),
    }
    let text = std::str::from_utf8(&input[..digits]).expect("hexadecimal digits are ASCII");
    let size = usize::from_str_radix(text, 16).map_err(|_| malformed)?;
    input.advance(digits + 2);
    Ok(Some(size))
}

fn take_line_end(input: &mut BytesMut) -> Result<bool, Refused> {
    match &input[..] {
        [] | [b'\r'] => Ok(false),
        [b'\r', b'\n', ..] => {
            input.advance(2);
            Ok(true)
        }
        _ => Err(Refused::bad("a chunk does not end where its size says, or trailers follow the last")),
    }
}
