//! Bytes that lie in several pieces, in order: what a write takes.
//!
//! A journal's group grows while the disk is at work. In one buffer it would be moved each time the buffer is full; it
//! grows by pieces instead, which go to the disk one after the other.

use bytes::{Bytes, BytesMut};

/// Bytes in pieces. One piece, which is the usual case, takes no memory beside it.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    first: Bytes,
    more: Vec<Bytes>,
}

impl Pieces {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.iter().map(Bytes::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.iter().all(Bytes::is_empty)
    }

    /// The pieces, from the first on.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// All bytes in one piece: a copy, unless they are.
    pub fn joined(&self) -> Bytes {
        if self.more.is_empty() {
            return self.first.clone();
        }
        let mut joined = BytesMut::with_capacity(self.len());
        self.iter().for_each(|piece| joined.extend_from_slice(piece));
        joined.freeze()
    }
}

impl IntoIterator for Pieces {
    type Item = Bytes;
    type IntoIter = std::iter::Chain<std::iter::Once<Bytes>, std::vec::IntoIter<Bytes>>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self.first).chain(self.more)
    }
}

impl FromIterator<Bytes> for Pieces {
    fn from_iter<T: IntoIterator<Item = Bytes>>(pieces: T) -> Pieces {
        let mut pieces = pieces.into_iter();
        Pieces { first: pieces.next().unwrap_or_default(), more: pieces.collect() }
    }
}

impl<T: Into<Bytes>> From<T> for Pieces {
    fn from(piece: T) -> Pieces {
        Pieces { first: piece.into(), more: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_keep_their_order() {
        let words = ["one ", "", "two ", "three"];
        let pieces: Pieces = words.into_iter().map(Bytes::from).collect();
        assert_eq!((pieces.len(), pieces.is_empty()), (13, false));
        assert_eq!(pieces.joined(), "one two three");
        assert_eq!(pieces.into_iter().map(|piece| piece.len()).collect::<Vec<_>>(), [4, 0, 4, 5]);
    }

    #[test]
    fn one_piece_is_not_copied() {
        let bytes = Bytes::from(vec![1; 100]);
        let pieces = Pieces::from(bytes.clone());
        assert_eq!(pieces.joined().as_ptr(), bytes.as_ptr());
        assert!(Pieces::default().is_empty());
    }
}
