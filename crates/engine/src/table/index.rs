//! A table's index: for each block the least key that can be in it, and where it lies.
//!
//! ```text
//! count u32 | (block_len u32 | key_len u32) * count | keys
//! ```
//!
//! The blocks stand one after another from the file's start, so their lengths say where each begins. The first
//! block's key is its first key; another block's is the shortest beginning of its first key that is still after
//! the last key of the block before.

use super::fields::Fields;
use super::keys::{KeyArray, common_prefix};
use crate::prefetch::prefetch;

/// Where a block lies in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHandle {
    /// Its number in the table, from 0.
    pub index: u32,
    /// Its first byte in the file.
    pub offset: u64,
    /// Its length.
    pub len: u32,
}

/// The index in memory. Offsets have 32 bits: a table is far below 4 GiB.
#[derive(Debug)]
pub(super) struct Index {
    lower_bounds: KeyArray,
    /// Where each block ends.
    ends: Box<[u32]>,
}

impl Index {
    /// Reads an index of blocks that fill `blocks_len` bytes.
    pub fn decode(bytes: &[u8], blocks_len: u64) -> Option<Index> {
        let mut fields = Fields::new(bytes);
        let count = usize::try_from(fields.u32()?).ok()?;
        let lens = fields.take(count.checked_mul(8)?)?;
        let lens = lens.as_chunks::<8>().0.iter().map(|both| {
            let both = u64::from_le_bytes(*both);
            ((both & 0xFFFF_FFFF) as u32, (both >> 32) as usize)
        });
        let mut ends = Vec::with_capacity(count);
        let mut keys = Vec::with_capacity(count);
        let mut end = 0u32;
        for (block_len, key_len) in lens {
            end = end.checked_add(block_len)?;
            ends.push(end);
            keys.push(fields.take(key_len)?);
        }
        fields.end()?;
        if count == 0 || u64::from(end) != blocks_len {
            return None;
        }
        Some(Index { lower_bounds: KeyArray::new(keys.into_iter())?, ends: ends.into() })
    }

    /// The one block that can hold `key`; `None` if all keys are after it.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<BlockHandle> {
        // Where it ends is asked for together with what tells which it is.
        let count = self.lower_bounds.count_at_most_near(key, |near| {
            self.ends.get(near).inspect(|end| prefetch::<u32>(*end));
        });
        let index = count.checked_sub(1)?;
        self.block(u32::try_from(index).expect("the count was read from 32 bits"))
    }

    /// The block numbered `index`, if there are so many.
    pub fn block(&self, index: u32) -> Option<BlockHandle> {
        let at = index as usize;
        let end = *self.ends.get(at)?;
        let offset = if at == 0 { 0 } else { self.ends[at - 1] };
        Some(BlockHandle { index, offset: u64::from(offset), len: end - offset })
    }

    /// The least key that can be in the block numbered `index`, if there are so many.
    pub fn lower_bound(&self, index: u32) -> Option<Vec<u8>> {
        self.lower_bounds.get(index as usize)
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of memory it takes.
    pub fn memory(&self) -> usize {
        self.lower_bounds.memory() + self.ends.len() * 4
    }
}

/// Collects an index while its blocks are written.
#[derive(Default)]
pub(super) struct IndexBuilder {
    count: u32,
    lens: Vec<u8>,
    keys: Vec<u8>,
    /// The length of the key of the block that is not ended yet.
    key_len: usize,
}

impl IndexBuilder {
    /// A block begins with `key`; the entry before it, if any, was `before`.
    pub fn begin(&mut self, before: Option<&[u8]>, key: &[u8]) {
        let len = before.map_or(key.len(), |before| common_prefix(before, key) + 1);
        self.keys.extend_from_slice(&key[..len]);
        self.key_len = len;
    }

    /// The block that began last took `len` bytes.
    pub fn end(&mut self, len: usize) {
        self.count += 1;
        for len in [len, self.key_len] {
            let len = u32::try_from(len).expect("keys and entries are far below 4 GiB");
            self.lens.extend_from_slice(&len.to_le_bytes());
        }
    }

    /// Appends the index.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.lens);
        out.extend_from_slice(&self.keys);
    }

    /// About how long the index is so far.
    pub fn len(&self) -> usize {
        self.lens.len() + self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{Rng, SplitMix64};

    fn built() -> Vec<u8> {
        let mut builder = IndexBuilder::default();
        for (before, key, len) in [
            (None, &b"apple"[..], 100),
            (Some(&b"banana"[..]), b"beetroot", 50),
            (Some(b"carrot"), b"carrots", 7),
        ] {
            builder.begin(before, key);
            builder.end(len);
        }
        let mut bytes = Vec::new();
        builder.encode(&mut bytes);
        bytes
    }

    #[test]
    fn each_key_has_its_block() {
        let bytes = built();
        assert!(bytes.ends_with(b"applebecarrots"));
        assert!(Index::decode(&bytes, 158).is_none());
        let index = Index::decode(&bytes, 157).unwrap();
        assert_eq!(index.find(b"app"), None);
        for (key, block, offset, len) in [
            (&b"apple"[..], 0, 0, 100),
            (b"bd", 0, 0, 100),
            (b"be", 1, 100, 50),
            (b"carrots", 2, 150, 7),
            (b"z", 2, 150, 7),
        ] {
            assert_eq!(index.find(key), Some(BlockHandle { index: block, offset, len }), "{key:?}");
        }
        assert_eq!(index.block(3), None);
    }

    #[test]
    fn nonsense_is_refused_without_panic() {
        let good = built();
        let mut rng = SplitMix64::new(5);
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
            for _ in 0..rng.below(4) {
                if !bytes.is_empty() {
                    let at = rng.below(bytes.len() as u64) as usize;
                    bytes[at] = rng.next_u64() as u8;
                }
            }
            if let Some(index) = Index::decode(&bytes, 157) {
                index.find(b"carrot");
            }
        }
        assert!(Index::decode(&[0xFF; 4], 0).is_none());
    }
}
