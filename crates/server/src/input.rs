//! A connection's input buffer, which is small while the connection is idle.
//!
//! Requests are slices of the memory that they were read into, and what is left of a buffer keeps all of it alive,
//! however little that is. So a buffer counts what has gone through it, and is replaced, when nothing is in it, once
//! that is more than ten thousand idle connections may each keep.

use bytes::BytesMut;

/// Where a buffer starts: most requests without a value fit.
const INPUT_BYTES: usize = 2 << 10;

/// What an idle connection may keep of its input.
const INPUT_BYTES_KEPT: usize = 8 << 10;

/// Once more has gone through a buffer than this, its memory belongs to a large request, which counts it for as long as
/// somebody holds the request, and not for longer: the buffer parts with it at once.
const INPUT_BYTES_LARGE: usize = 64 << 10;

/// What a client has sent and nobody has taken yet.
pub struct Input {
    /// The bytes.
    pub bytes: BytesMut,
    through: usize,
}

impl Input {
    /// Nothing.
    pub fn new() -> Input {
        Input { bytes: BytesMut::with_capacity(INPUT_BYTES), through: 0 }
    }

    /// So many bytes were read into it.
    pub fn count(&mut self, read: usize) {
        self.through += read;
    }

    /// Parts with the memory of a large request that was just taken off; keeps what has come behind it.
    pub fn part(&mut self) {
        if self.through <= INPUT_BYTES_LARGE {
            return;
        }
        let rest = std::mem::replace(self, Input::new());
        self.bytes.extend_from_slice(&rest.bytes);
        self.through = rest.bytes.len();
    }

    /// Whether it is empty and may hold more memory than an idle connection should.
    pub fn is_worn(&self) -> bool {
        self.through > INPUT_BYTES_KEPT && self.bytes.is_empty()
    }

    /// Begins anew. Nothing may be in it.
    pub fn renew(&mut self) {
        assert!(self.bytes.is_empty(), "input would be lost");
        *self = Input::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads so many bytes and takes them off, as a request.
    fn pass(input: &mut Input, bytes: usize) -> bytes::Bytes {
        input.bytes.reserve(bytes);
        input.bytes.extend_from_slice(&vec![7; bytes]);
        input.count(bytes);
        input.bytes.split_to(bytes).freeze()
    }

    #[test]
    fn small_requests_one_after_the_other_wear_it_too() {
        let mut input = Input::new();
        assert_eq!((0..).find(|_| (drop(pass(&mut input, 100)), input.is_worn()).1), Some(81));
        input.renew();
        assert!(!input.is_worn() && input.bytes.capacity() == INPUT_BYTES);
    }

    #[test]
    fn what_a_large_request_was_read_into_is_given_back() {
        let mut input = Input::new();
        let request = pass(&mut input, 1 << 20);
        assert!(!request.is_unique(), "the rest of the buffer keeps it alive, whatever its own capacity");
        assert!(input.is_worn());
        input.renew();
        assert!(request.is_unique());
    }

    #[test]
    fn a_large_request_has_its_memory_to_itself() {
        let mut input = Input::new();
        let request = pass(&mut input, 1 << 20);
        input.bytes.extend_from_slice(b"next");
        input.part();
        assert!(request.is_unique() && input.bytes[..] == b"next"[..] && !input.is_worn());
        let small = pass(&mut input, 100);
        input.part();
        assert!(!small.is_unique());
    }

    #[test]
    fn what_has_begun_is_kept() {
        let mut input = Input::new();
        drop(pass(&mut input, 1 << 20));
        input.bytes.extend_from_slice(b"a");
        assert!(!input.is_worn());
    }
}
