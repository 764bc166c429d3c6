//! Takes requests off a connection's input, one after the other.

use bytes::{Bytes, BytesMut};

use super::chunked::{Chunked, too_large};
use super::head::{Framing, HEAD_BYTES_MAX, Head};
use super::refused::Refused;
use crate::frame::READ_STEP;

/// The largest body: Riak's default limit of an object's size.
pub const BODY_BYTES_MAX: usize = 50 << 20;

/// What is being waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// The next request, of which nothing has come.
    Request,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body,
}

/// What the input came to.
#[derive(Debug)]
pub enum Progress {
    /// More must be read first; the input has room for some of it.
    Wait(Waits),
    /// The client is to be told that it may send the body; then go on.
    Continue,
    /// A request.
    Request(Head, Bytes),
}

/// A connection's input, as far as it has been read.
#[derive(Debug)]
pub struct Reader {
    state: State,
    body_max: usize,
}

#[derive(Debug)]
enum State {
    /// No line end that ends the head is among the first so many bytes.
    Head(usize),
    Length(Box<Head>, usize),
    Chunked(Box<Head>, Chunked),
}

impl Default for Reader {
    fn default() -> Reader {
        Reader::new(BODY_BYTES_MAX)
    }
}

impl Reader {
    /// For bodies of at most `body_max` bytes.
    pub fn new(body_max: usize) -> Reader {
        Reader { state: State::Head(0), body_max }
    }

    /// Refuses bodies that are larger than this.
    pub fn bound(&mut self, body_max: usize) {
        self.body_max = body_max;
    }

    /// Bytes of the body that is arriving, of which `input` is a part: all of it where its head says how many they are.
    pub fn arriving(&self, input: usize) -> usize {
        match &self.state {
            State::Head(_) => 0,
            State::Length(_, length) => *length,
            State::Chunked(_, chunked) => chunked.len() + input,
        }
    }

    /// Gives up the request whose body is arriving, if its end is known: its head, and how many bytes of it are still
    /// to come before the next request.
    pub fn give_up(&mut self) -> Option<(Head, usize)> {
        match std::mem::replace(&mut self.state, State::Head(0)) {
            State::Length(head, length) => Some((*head, length)),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Bytes of a body that were taken off the input and not given out yet.
    pub fn held(&self) -> usize {
        match &self.state {
            State::Chunked(_, chunked) => chunked.len(),
            State::Head(_) | State::Length(..) => 0,
        }
    }

    /// Takes the next request off the front of `input`, if all of it is there.
    ///
    /// # Errors
    /// [`Refused`] if it cannot be one. The connection has to end then.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Progress, Refused> {
        self.next_if(input, |_| Ok(()))
    }

    /// The same, but `admit` is asked once for each head, before anything of the body is read.
    ///
    /// # Errors
    /// [`Refused`] as well if `admit` says so.
    pub fn next_if(
        &mut self,
        input: &mut BytesMut,
        admit: impl FnOnce(&Head) -> Result<(), Refused>,
    ) -> Result<Progress, Refused> {
        if let State::Head(looked) = self.state {
            let Some(end) = find_end(input, looked) else {
                return self.wait_for_head(input);
            };
            if end > HEAD_BYTES_MAX {
                return Err(head_too_large(input));
            }
            let head = Head::parse(input.split_to(end).freeze())?;
            admit(&head)?;

            // Most requests have no body, and those that have one mostly have it in the same packet.
            match head.framing {
                Framing::Length(0) => {
                    self.state = State::Head(0);
                    return Ok(Progress::Request(head, Bytes::new()));
                }
                Framing::Length(length) => {
                    let length = usize::try_from(length).ok().filter(|&length| length <= self.body_max);
                    let length = length.ok_or_else(|| too_large(self.body_max))?;
                    if input.len() >= length {
                        self.state = State::Head(0);
                        return Ok(Progress::Request(head, input.split_to(length).freeze()));
                    }
                    self.state = State::Length(Box::new(head), length);
                }
                Framing::Chunked => {
                    self.state = State::Chunked(Box::new(head), Chunked::new(self.body_max));
                }
            }
            if let State::Length(head, _) | State::Chunked(head, _) = &self.state
                && head.expects_continue
                && input.is_empty()
            {
                return Ok(Progress::Continue);
            }
        }
        self.take_body(input)
    }

    fn wait_for_head(&mut self, input: &mut BytesMut) -> Result<Progress, Refused> {
        if input.len() > HEAD_BYTES_MAX {
            return Err(head_too_large(input));
        }
        self.state = State::Head(input.len());
        let waits = if input.is_empty() { Waits::Request } else { Waits::Head };
        input.reserve(HEAD_STEP);
        Ok(Progress::Wait(waits))
    }

    fn take_body(&mut self, input: &mut BytesMut) -> Result<Progress, Refused> {
        let body = match &mut self.state {
            State::Head(_) => unreachable!("a body comes after its head"),
            State::Length(_, length) => {
                let missing = length.saturating_sub(input.len());
                input.reserve(missing.min(READ_STEP));
                (missing == 0).then(|| input.split_to(*length))
            }
            State::Chunked(_, chunked) => {
                let body = chunked.take(input)?;
                input.reserve(if body.is_none() { HEAD_STEP } else { 0 });
                body
            }
        };
        let Some(body) = body else { return Ok(Progress::Wait(Waits::Body)) };
        match std::mem::replace(&mut self.state, State::Head(0)) {
            State::Length(head, _) | State::Chunked(head, _) => Ok(Progress::Request(*head, body.freeze())),
            State::Head(_) => unreachable!("a body comes after its head"),
        }
    }
}

/// How much is read at a time where it is not known how much will come: most requests.
const HEAD_STEP: usize = 2 << 10;

/// Where the head ends: behind its empty line. What was looked at before is not looked at again.
fn find_end(input: &[u8], looked: usize) -> Option<usize> {
    const END: &[u8; 4] = b"\r\n\r\n";
    let from = looked.saturating_sub(END.len() - 1);
    let mut at = from;
    while let Some(line_end) = input.get(at..)?.iter().position(|&byte| byte == b'\n') {
        at += line_end + 1;
        if input[..at].ends_with(END) {
            return Some(at);
        }
        // Lines that another reader may take for the end: the head's parser says what is wrong with them.
        if !input[..at].ends_with(b"\r\n") || at == 2 {
            return Some(at);
        }
    }
    None
}

fn head_too_large(input: &[u8]) -> Refused {
    let is_line = input[..HEAD_BYTES_MAX].contains(&b'\n');
    let (status, what) = if is_line { (431, "head") } else { (414, "request line") };
    Refused::new(status, format!("the {what} is larger than {HEAD_BYTES_MAX} bytes"))
}
