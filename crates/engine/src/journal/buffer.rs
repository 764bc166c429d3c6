//! The bytes of a group, in pieces.
//!
//! What gathers while a sync is slow grows to tens of megabytes. One buffer for it would be moved each time it is full,
//! and moving so much, or the pages under it, stops its thread for milliseconds; so a buffer that is full is left as it
//! is, and the next record begins another.
//!
//! Invariants: a record lies in one piece; only the last piece grows.

use base::disk::Pieces;
use bytes::Bytes;

/// A piece holds so much, or one record that is larger: a write of it takes the system some hundred microseconds,
/// beside which what each piece costs is nothing.
const PIECE_BYTES: usize = 1 << 20;

/// Pieces kept for later groups: what gathers in a few milliseconds, so that steady writing allocates nothing.
const SPARE_PIECES_MAX: usize = 8;

/// Bytes that grow at their end.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// The pieces that are full, and their length.
    full: Vec<Vec<u8>>,
    full_len: usize,
    last: Vec<u8>,
}

impl Buffer {
    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.full_len + self.last.len()
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The end, to which a record of `len` bytes can be appended without a move of what is there.
    pub(super) fn end(&mut self, len: usize, spares: &mut Spares) -> &mut Vec<u8> {
        if self.last.capacity() == 0 {
            self.last = spares.take();
        } else if self.last.len() + len > PIECE_BYTES && !self.last.is_empty() {
            let full = std::mem::replace(&mut self.last, spares.take());
            self.full_len += full.len();
            self.full.push(full);
            self.last.reserve(PIECE_BYTES.max(len));
        }
        &mut self.last
    }

    /// The first bytes, which lie in one piece.
    pub(super) fn start(&mut self) -> &mut [u8] {
        self.full.first_mut().unwrap_or(&mut self.last)
    }

    /// A copy of `len` bytes from `from` on, of one record.
    pub(super) fn copy(&self, from: usize, len: usize) -> Bytes {
        let (piece, from) = piece_with(self.full.iter().chain([&self.last]), from, len);
        Bytes::copy_from_slice(&piece[from..from + len])
    }

    /// The same bytes, for the disk.
    pub(super) fn freeze(self) -> Pieces {
        if self.full.is_empty() {
            return self.last.into();
        }
        self.full.into_iter().chain([self.last]).map(Bytes::from).collect()
    }

    /// Takes back what was frozen.
    pub(super) fn thaw(pieces: Pieces) -> Buffer {
        let mut full: Vec<Vec<u8>> = pieces.into_iter().map(Vec::from).collect();
        let last = full.pop().unwrap_or_default();
        Buffer { full_len: full.iter().map(Vec::len).sum(), full, last }
    }
}

/// `len` bytes from `from` on, of one record, of what the disk is being given.
pub(super) fn slice(pieces: &Pieces, from: usize, len: usize) -> Bytes {
    let (piece, from) = piece_with(pieces.iter(), from, len);
    piece.slice(from..from + len)
}

/// The piece that has a part of a record, and where the part begins in it.
fn piece_with<'a, P: AsRef<[u8]>>(
    pieces: impl Iterator<Item = &'a P>,
    from: usize,
    len: usize,
) -> (&'a P, usize) {
    let mut start = 0;
    for piece in pieces {
        let end = start + piece.as_ref().len();
        if from < end {
            assert!(from + len <= end, "a record lies in one piece");
            return (piece, from - start);
        }
        start = end;
    }
    panic!("{len} bytes from {from} on are asked for of {start}");
}

/// Empty pieces that are used again.
#[derive(Debug, Default)]
pub(super) struct Spares(Vec<Vec<u8>>);

impl Spares {
    /// A piece, with room if there is one.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    /// Keeps the pieces that nobody else holds. One that grew for a huge record is not kept: one value must not pin its
    /// size.
    pub(super) fn keep(&mut self, pieces: Pieces) {
        for piece in pieces {
            if self.0.len() == SPARE_PIECES_MAX {
                return;
            }
            if let Ok(piece) = piece.try_into_mut()
                && (1..=2 * PIECE_BYTES).contains(&piece.capacity())
            {
                let mut piece = Vec::from(piece);
                piece.clear();
                self.0.push(piece);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn appended(lens: &[usize], spares: &mut Spares) -> (Buffer, Vec<u8>) {
        let (mut buffer, mut all) = (Buffer::default(), Vec::new());
        for (at, &len) in lens.iter().enumerate() {
            let record = vec![at as u8; len];
            let end = buffer.end(len, spares);
            let capacity = end.capacity();
            let stays = end.is_empty() || end.len() + len > capacity || PIECE_BYTES >= end.len() + len;
            assert!(stays, "a piece that holds something does not grow past its bound");
            end.extend_from_slice(&record);
            all.extend(record);
            assert_eq!(buffer.len(), all.len());
        }
        (buffer, all)
    }

    #[test]
    fn a_record_lies_in_one_piece() {
        let lens = [100, PIECE_BYTES - 100, 8, 3 * PIECE_BYTES, 8, 8, PIECE_BYTES - 16, 40];
        let (buffer, all) = appended(&lens, &mut Spares::default());
        let pieces = buffer.freeze();
        let ends: Vec<usize> = pieces.iter().map(Bytes::len).collect();
        assert_eq!(ends, [PIECE_BYTES, 8, 3 * PIECE_BYTES, PIECE_BYTES, 40]);
        assert_eq!(pieces.joined(), all);
        assert_eq!(Buffer::thaw(pieces).freeze().joined(), all);
    }

    #[test]
    fn any_part_of_a_record_is_found() {
        let (mut buffer, all) = appended(&[100, PIECE_BYTES, 50, 2 * PIECE_BYTES], &mut Spares::default());
        buffer.start()[..2].copy_from_slice(&[7, 8]);
        let places = [(2, 98), (100, PIECE_BYTES), (PIECE_BYTES + 120, 30), (all.len() - 1, 1)];
        for (from, len) in places {
            assert_eq!(buffer.copy(from, len), all[from..from + len], "{from} {len}");
        }
        let pieces = buffer.freeze();
        assert_eq!(slice(&pieces, 0, 3), [7, 8, 0][..]);
        for (from, len) in places {
            assert_eq!(slice(&pieces, from, len), all[from..from + len], "{from} {len}");
        }
    }

    #[test]
    fn pieces_that_only_we_hold_are_used_again() {
        let mut spares = Spares::default();
        let (buffer, _) = appended(&[PIECE_BYTES, 10, 5 * PIECE_BYTES], &mut spares);
        let pieces = buffer.freeze();
        let held = pieces.iter().next().cloned();
        spares.keep(pieces);
        drop(held);
        assert_eq!(spares.0.len(), 1, "of three one is held, one too large");
        for _ in 0..3 {
            let (buffer, _) = appended(&[PIECE_BYTES; 7], &mut spares);
            spares.keep(buffer.freeze());
        }
        assert!(spares.0.len() <= SPARE_PIECES_MAX);
        assert!(spares.take().is_empty());
    }
}
