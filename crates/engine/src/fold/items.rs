//! The keys and heads of a page: one behind the other in chunks, and where each ends.
//!
//! A share of its chunk for each key and head would cost as much as finding them. So a page has bytes and places, and
//! whoever reads it takes what it reads by reference, or makes shares of what it keeps.

use bytes::Bytes;
use std::fmt;
use std::ops::Range;

/// Long enough that an allocation for each is cheap; and whoever keeps a share of one item keeps no more than this, or
/// what came with it.
const CHUNK_BYTES: usize = 4 << 10;

/// Keys, each with its head, in the order in which they were added.
#[derive(Clone, Default)]
pub struct Items {
    places: Vec<Place>,
    /// Full chunks, and how many items there are up to the end of each.
    full: Vec<(Bytes, usize)>,
    /// The chunk that is filled.
    open: Vec<u8>,
}

/// Where an item lies in its chunk: the key, and behind it the head.
#[derive(Clone, Copy)]
struct Place {
    start: u32,
    key_end: u32,
    end: u32,
}

impl Items {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds a copy. One that is longer than a chunk has a chunk for itself; it must be far below 4 GiB, as keys and
    /// heads are.
    #[inline]
    pub fn push(&mut self, key: &[u8], head: &[u8]) {
        if self.open.capacity() - self.open.len() < key.len() + head.len() {
            self.begin_chunk(key.len() + head.len());
        }
        let start = self.open.len() as u32;
        self.open.extend_from_slice(key);
        let key_end = self.open.len() as u32;
        // Those of index entries are empty.
        if !head.is_empty() {
            self.open.extend_from_slice(head);
        }
        self.places.push(Place { start, key_end, end: self.open.len() as u32 });
    }

    #[cold]
    fn begin_chunk(&mut self, len: usize) {
        self.end_chunk();
        self.open.reserve_exact(CHUNK_BYTES.max(len));
    }

    fn end_chunk(&mut self) {
        if self.full.last().map_or(0, |(_, count)| *count) < self.len() {
            self.full.push((std::mem::take(&mut self.open).into(), self.len()));
        }
    }

    /// The key of the last one.
    pub fn last_key(&self) -> Option<&[u8]> {
        let place = self.places.last()?;
        let chunk = match self.full.last() {
            Some((chunk, count)) if *count == self.len() => &chunk[..],
            _ => &self.open[..],
        };
        Some(&chunk[place.key()])
    }

    /// Keys and heads.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let full = self.full.iter().map(|(chunk, count)| (&chunk[..], *count));
        let chunks = full.chain(std::iter::once((&self.open[..], self.len())));
        by_chunk(chunks, &self.places).map(|(chunk, place)| (&chunk[place.key()], &chunk[place.head()]))
    }
}

impl Place {
    fn key(self) -> Range<usize> {
        self.start as usize..self.key_end as usize
    }

    fn head(self) -> Range<usize> {
        self.key_end as usize..self.end as usize
    }
}

/// Each place with its chunk; a chunk comes with how many items there are up to its end.
fn by_chunk<C: Copy>(
    chunks: impl Iterator<Item = (C, usize)>,
    places: &[Place],
) -> impl Iterator<Item = (C, Place)> {
    let mut first = 0;
    chunks.flat_map(move |(chunk, count)| {
        let places = &places[std::mem::replace(&mut first, count)..count];
        places.iter().map(move |place| (chunk, *place))
    })
}

/// Shares of keys and heads. One that is empty shares nothing.
impl IntoIterator for Items {
    type Item = (Bytes, Bytes);
    type IntoIter = std::vec::IntoIter<(Bytes, Bytes)>;

    fn into_iter(mut self) -> Self::IntoIter {
        self.end_chunk();
        let chunks = self.full.iter().map(|(chunk, count)| (chunk, *count));
        let share = |(chunk, place): (&Bytes, Place)| (chunk.slice(place.key()), chunk.slice(place.head()));
        let mut shares = Vec::with_capacity(self.len());
        shares.extend(by_chunk(chunks, &self.places).map(share));
        shares.into_iter()
    }
}

impl<K: AsRef<[u8]>, H: AsRef<[u8]>> FromIterator<(K, H)> for Items {
    fn from_iter<I: IntoIterator<Item = (K, H)>>(pairs: I) -> Items {
        let mut items = Items::default();
        pairs.into_iter().for_each(|(key, head)| items.push(key.as_ref(), head.as_ref()));
        items
    }
}

impl PartialEq for Items {
    fn eq(&self, other: &Items) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Items {}

impl fmt::Debug for Items {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_what_there_is() {
        // Of every length around that of a chunk, and of none.
        let lens = (0..200).chain([0, CHUNK_BYTES - 1, CHUNK_BYTES, 0, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 7]);
        let pairs: Vec<(Bytes, Bytes)> = lens
            .zip((0..u8::MAX).cycle())
            .map(|(len, byte)| (vec![byte; len / 2].into(), vec![!byte; len - len / 2].into()))
            .collect();
        // At each of its lengths, since the last chunk is another then.
        let mut items = Items::default();
        for (number, (key, head)) in pairs.iter().enumerate() {
            let expected = &pairs[..number];
            assert_eq!(items.len(), expected.len());
            assert_eq!(items.last_key(), expected.last().map(|(key, _)| &key[..]));
            assert!(items.iter().eq(expected.iter().map(|(key, head)| (&key[..], &head[..]))));
            assert_eq!(items.clone().into_iter().collect::<Vec<_>>(), expected);
            items.push(key, head);
        }
        assert_eq!(items, pairs.iter().cloned().collect::<Items>());
        assert!(
            !items.is_empty() && Items::default().is_empty() && Items::default().into_iter().next().is_none()
        );
    }

    /// A share keeps a chunk, and not a page.
    #[test]
    fn a_share_keeps_no_more_than_its_chunk() {
        let items: Items = (0..1_000u32).map(|number| (number.to_be_bytes(), [7; 40])).collect();
        let shares: Vec<(Bytes, Bytes)> = items.into_iter().collect();
        let chunks = |shares: &[(Bytes, Bytes)]| {
            let apart = |pair: &&[(Bytes, Bytes)]| pair[0].1.as_ptr_range().end != pair[1].0.as_ptr();
            shares.windows(2).filter(apart).count() + 1
        };
        assert_eq!(chunks(&shares), 1_000usize.div_ceil(CHUNK_BYTES / 44));
    }
}
