//! The bytes of a file: sparse, zero where nothing was written, and cheap to clone.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The unit in which images share memory.
const CHUNK: usize = 4096;
const CHUNK_LEN: u64 = CHUNK as u64;

/// A file's contents. Clones share the chunks that neither has changed since.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    len: u64,
    /// The space that is taken though nothing may have been written there: to this length.
    room: u64,
    chunks: BTreeMap<u64, Arc<[u8; CHUNK]>>,
}

impl Image {
    /// The length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes of memory, and so of simulated space, that are taken.
    pub(super) fn allocated(&self) -> u64 {
        let room = self.room.div_ceil(CHUNK_LEN);
        (room + self.chunks.range(room..).count() as u64) * CHUNK_LEN
    }

    /// Copies out what lies at `offset` and tells how much that was: less than asked for at the end only.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = buf.len().min(left);
        for part in parts(offset, len, CHUNK_LEN) {
            let within = usize::try_from(part.offset % CHUNK_LEN).expect("a chunk fits memory");
            let out = &mut buf[part.start..part.start + part.len];
            match self.chunks.get(&part.block) {
                Some(chunk) => out.copy_from_slice(&chunk[within..within + part.len]),
                None => out.fill(0),
            }
        }
        len
    }

    /// Puts `data` at `offset`, growing the file to hold it.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        for part in parts(offset, data.len(), CHUNK_LEN) {
            let within = usize::try_from(part.offset % CHUNK_LEN).expect("a chunk fits memory");
            let chunk = Arc::make_mut(self.chunks.entry(part.block).or_insert_with(|| Arc::new([0; CHUNK])));
            chunk[within..within + part.len].copy_from_slice(&data[part.start..part.start + part.len]);
        }
        if !data.is_empty() {
            self.len = self.len.max(offset + data.len() as u64);
        }
    }

    /// Takes space for `len` bytes, and extends the file with zeros if it is shorter.
    pub(super) fn make_room(&mut self, len: u64) {
        self.len = self.len.max(len);
        self.room = self.room.max(len);
    }

    /// Cuts the file, or extends it with zeros.
    pub(super) fn truncate(&mut self, len: u64) {
        if len < self.len {
            self.chunks.split_off(&len.div_ceil(CHUNK_LEN));
            if let Some(chunk) = self.chunks.get_mut(&(len / CHUNK_LEN)) {
                let within = usize::try_from(len % CHUNK_LEN).expect("a chunk fits memory");
                Arc::make_mut(chunk)[within..].fill(0);
            }
        }
        self.len = len;
        self.room = self.room.min(len);
    }
}

/// The part of a range of bytes that lies in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The number of the block.
    pub(super) block: u64,
    /// Where the part begins in the file.
    pub(super) offset: u64,
    /// Where the part begins in the range.
    pub(super) start: usize,
    /// How long it is.
    pub(super) len: usize,
}

/// Cuts `len` bytes at `offset` at the bounds of blocks.
pub(super) fn parts(offset: u64, len: usize, block_len: u64) -> impl Iterator<Item = Part> {
    let mut start = 0;
    std::iter::from_fn(move || {
        (start < len).then(|| {
            let at = offset + start as u64;
            let room = usize::try_from(block_len - at % block_len).expect("a block fits memory");
            let part = Part { block: at / block_len, offset: at, start, len: room.min(len - start) };
            start += part.len;
            part
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;
    use crate::seed::index_below;

    #[test]
    fn it_is_a_vec_of_bytes() {
        let mut rng = Seed(1).stream("image", 0);
        let (mut image, mut model) = (Image::default(), Vec::new());
        for round in 0..2000 {
            let offset = index_below(&mut rng, 20_000);
            let len = index_below(&mut rng, 9000);
            match index_below(&mut rng, 8) {
                0 => {
                    image.truncate(offset as u64);
                    model.resize(offset, 0);
                }
                4 => {
                    image.make_room(offset as u64);
                    model.resize(model.len().max(offset), 0);
                    assert!(image.allocated() >= offset as u64);
                }
                1..4 => {
                    let data = vec![round as u8; len];
                    image.write(offset as u64, &data);
                    if len > 0 {
                        model.resize(model.len().max(offset + len), 0);
                        model[offset..offset + len].copy_from_slice(&data);
                    }
                }
                _ => {
                    let mut buf = vec![0xEE; len];
                    let read = image.read(offset as u64, &mut buf);
                    let end = model.len().min(offset + len);
                    assert_eq!(&buf[..read], model.get(offset..end).unwrap_or_default());
                }
            }
            assert_eq!(image.len(), model.len() as u64);
        }
    }

    #[test]
    fn parts_end_at_block_bounds() {
        let cut: Vec<_> = parts(510, 600, 512).map(|p| (p.block, p.offset, p.start, p.len)).collect();
        assert_eq!(cut, [(0, 510, 0, 2), (1, 512, 2, 512), (2, 1024, 514, 86)]);
        assert_eq!(parts(5, 0, 512).count(), 0);
    }
}
