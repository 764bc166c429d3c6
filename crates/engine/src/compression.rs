//! Compression of values in the journal.
//!
//! A record's flag says how its value is compressed, so values of all kinds stand beside each other, and what a store
//! is told may change at every start. What stands for a compressed value is
//!
//! ```text
//! length of the value u32 | LZ4 block, or Zstandard frame
//! ```
//!
//! Invariants
//! * A value that does not become an eighth smaller is stored as it is: reading it costs nothing then.
//! * The record's checksum covers the stored bytes: scans, compaction and checks never decompress.
//! * The length is checked against its limit, and against what so few bytes can become, before memory is taken.
//!
//! Follows leveled, which marks each value with its codec, and RocksDB's least saving of an eighth. Left out: inline
//! values, dictionaries, and blocks of tables (docs/decisions/0020).

use crate::journal::record::{FLAG_LZ4, FLAG_ZSTD};
use crate::store::Options;
use bytes::Bytes;
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use std::ops::RangeInclusive;

/// Values of more bytes are stored as they are: the shard's thread decompresses what it reads, a megabyte in a
/// millisecond, and everything else waits meanwhile.
pub const COMPRESSED_VALUE_BYTES_MAX: usize = 1 << 20;

/// No length beyond this is believed: room for a later program to compress larger values.
const RAW_BYTES_LIMIT: usize = 16 << 20;

/// An LZ4 block becomes at most so many times as long.
const LZ4_RATIO_MAX: usize = 255;

/// One byte in so many is to be saved at least.
const SAVING_MIN: usize = 8;

/// Before the compressed bytes: the value's length.
pub(crate) const RAW_LEN_BYTES: usize = 4;

/// Levels of Zstandard that a store can be told. The ones above want tens of megabytes for each compressor, and are for
/// archives.
pub const ZSTD_LEVELS: RangeInclusive<i32> = 1..=19;

/// How a value may be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// LZ4: half a gigabyte a second in, more than one out.
    Lz4,
    /// Zstandard: smaller by a third or more than LZ4 for text, at half its speed. Only in builds with the cargo
    /// feature `zstd`.
    Zstd,
}

/// When values are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressAt {
    /// When they are written: less is written from the start, on the shard's thread.
    #[default]
    Receipt,
    /// When compaction moves them: writing costs nothing, and what is overwritten soon is never compressed.
    Compaction,
}

/// Why a value cannot be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Its checksum is right, and its bytes are no compressed value.
    Malformed,
    /// This build cannot decompress it.
    #[cfg_attr(feature = "zstd", expect(dead_code, reason = "such a build has all codecs"))]
    NotBuilt,
}

impl Codec {
    /// Whether this build has it.
    pub fn is_built(self) -> bool {
        self == Codec::Lz4 || cfg!(feature = "zstd")
    }

    /// The record's flag.
    pub(crate) fn flag(self) -> u8 {
        match self {
            Codec::Lz4 => FLAG_LZ4,
            Codec::Zstd => FLAG_ZSTD,
        }
    }

    /// What a record's flags say of its value.
    #[inline]
    pub(crate) fn of_flags(flags: u8) -> Option<Codec> {
        match flags & (FLAG_LZ4 | FLAG_ZSTD) {
            0 => None,
            FLAG_LZ4 => Some(Codec::Lz4),
            _ => Some(Codec::Zstd),
        }
    }

    /// The value that `stored` stands for.
    pub(crate) fn decompress(self, stored: &[u8]) -> Result<Bytes, Unreadable> {
        let (len, packed) = stored.split_first_chunk::<RAW_LEN_BYTES>().ok_or(Unreadable::Malformed)?;
        let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| Unreadable::Malformed)?;
        if len > RAW_BYTES_LIMIT || (self == Codec::Lz4 && len / LZ4_RATIO_MAX > packed.len()) {
            return Err(Unreadable::Malformed);
        }
        let mut value = vec![0; len];
        let filled = match self {
            Codec::Lz4 => decompress_into(packed, &mut value).map_err(|_| Unreadable::Malformed)?,
            Codec::Zstd => unpack_zstd(packed, &mut value)?,
        };
        if filled == len { Ok(value.into()) } else { Err(Unreadable::Malformed) }
    }
}

/// Compresses values, with room of its own that is used again.
pub(crate) struct Compressor {
    codec: Codec,
    at: CompressAt,
    table: CompressTable,
    #[cfg(feature = "zstd")]
    zstd: Option<zstd::bulk::Compressor<'static>>,
    #[cfg(feature = "zstd")]
    zstd_level: i32,
    /// A value that came in parts.
    whole: Vec<u8>,
    /// What stands for it.
    stored: Vec<u8>,
}

impl Compressor {
    /// As `options` say; `None` if nothing is to be compressed.
    pub fn new(options: &Options) -> Option<Compressor> {
        Some(Compressor {
            codec: options.compression?,
            at: options.compress_at,
            table: CompressTable::large(),
            #[cfg(feature = "zstd")]
            zstd: None,
            #[cfg(feature = "zstd")]
            zstd_level: options.zstd_level,
            whole: Vec::new(),
            stored: Vec::new(),
        })
    }

    /// A record's flag and what stands for the value that the parts make, if that is an eighth shorter. For a write.
    pub fn on_receipt(&mut self, value: &[&[u8]], len: usize) -> Option<(u8, &[u8])> {
        if self.at != CompressAt::Receipt || len > COMPRESSED_VALUE_BYTES_MAX {
            return None;
        }
        let [one] = value else {
            let mut whole = std::mem::take(&mut self.whole);
            whole.clear();
            value.iter().for_each(|part| whole.extend_from_slice(part));
            let len = self.pack(&whole);
            self.whole = whole;
            return self.packed(len?);
        };
        let len = self.pack(one);
        self.packed(len?)
    }

    /// The same for a record of these flags that compaction moves. It may have been written when nothing was
    /// compressed.
    pub fn on_compaction(&mut self, flags: u8, value: &[u8]) -> Option<(u8, &[u8])> {
        if Codec::of_flags(flags).is_some() || value.len() > COMPRESSED_VALUE_BYTES_MAX {
            return None;
        }
        let len = self.pack(value);
        self.packed(len?)
    }

    fn packed(&self, len: usize) -> Option<(u8, &[u8])> {
        Some((self.codec.flag(), &self.stored[..len]))
    }

    fn pack(&mut self, value: &[u8]) -> Option<usize> {
        let room = RAW_LEN_BYTES + get_maximum_output_size(value.len());
        if self.stored.len() < room {
            self.stored.resize(room, 0);
        }
        let (prefix, packed) = self.stored.split_at_mut(RAW_LEN_BYTES);
        prefix.copy_from_slice(&u32::try_from(value.len()).ok()?.to_le_bytes());
        let len = RAW_LEN_BYTES
            + match self.codec {
                Codec::Lz4 => compress_into_with_table(value, packed, &mut self.table).ok()?,
                Codec::Zstd => self.pack_zstd(value)?,
            };
        (len + len.div_ceil(SAVING_MIN - 1) <= value.len()).then_some(len)
    }

    #[cfg(feature = "zstd")]
    fn pack_zstd(&mut self, value: &[u8]) -> Option<usize> {
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Compressor::new(self.zstd_level).ok();
        }
        // What does not fit is not smaller.
        self.zstd.as_mut()?.compress_to_buffer(value, &mut self.stored[RAW_LEN_BYTES..]).ok()
    }

    #[cfg(not(feature = "zstd"))]
    fn pack_zstd(&mut self, _value: &[u8]) -> Option<usize> {
        unreachable!("a store is not opened with a codec that is not built")
    }
}

#[cfg(feature = "zstd")]
fn unpack_zstd(packed: &[u8], value: &mut [u8]) -> Result<usize, Unreadable> {
    zstd::bulk::decompress_to_buffer(packed, value).map_err(|_| Unreadable::Malformed)
}

#[cfg(not(feature = "zstd"))]
fn unpack_zstd(_packed: &[u8], _value: &mut [u8]) -> Result<usize, Unreadable> {
    Err(Unreadable::NotBuilt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    fn compressor(codec: Codec) -> Compressor {
        Compressor::new(&Options { compression: Some(codec), ..Options::default() }).unwrap()
    }

    fn built() -> impl Iterator<Item = Codec> {
        [Codec::Lz4, Codec::Zstd].into_iter().filter(|codec| codec.is_built())
    }

    /// 300 times `a`: one literal, a match of 294 bytes at distance 1, the last five literals. Made by hand after LZ4's
    /// description of its block format.
    const GOLDEN_LZ4: &[u8] =
        &[0x2C, 1, 0, 0, 0x1F, b'a', 1, 0, 0xFF, 20, 0x50, b'a', b'a', b'a', b'a', b'a'];

    /// 200 times `a`: a frame of one run, by hand after RFC 8878.
    const GOLDEN_ZSTD: &[u8] = &[200, 0, 0, 0, 0x28, 0xB5, 0x2F, 0xFD, 0x20, 200, 0x43, 0x06, 0, b'a'];

    #[test]
    fn golden_bytes() {
        assert_eq!(Codec::Lz4.decompress(GOLDEN_LZ4).unwrap(), vec![b'a'; 300]);
        let zstd = Codec::Zstd.decompress(GOLDEN_ZSTD);
        let expected =
            if Codec::Zstd.is_built() { Ok(vec![b'a'; 200].into()) } else { Err(Unreadable::NotBuilt) };
        assert_eq!(zstd, expected);
    }

    #[test]
    fn what_shrinks_comes_back_and_the_rest_is_left_alone() {
        let mut rng = SplitMix64::new(4);
        for codec in built() {
            let mut compressor = compressor(codec);
            for len in
                [0, 1, 12, 300, 5000, 70_000, COMPRESSED_VALUE_BYTES_MAX, COMPRESSED_VALUE_BYTES_MAX + 1]
            {
                let text: Vec<u8> = (0..len).map(|at| b"annulet "[at % 8]).collect();
                let cut = len / 3;
                let parts: [&[u8]; 2] = [&text[..cut], &text[cut..]];
                let packed = compressor.on_receipt(&parts, len).map(|(flag, stored)| (flag, stored.to_vec()));
                assert_eq!(
                    packed.is_some(),
                    (300..=COMPRESSED_VALUE_BYTES_MAX).contains(&len),
                    "{codec:?} {len}"
                );
                if let Some((flag, stored)) = packed {
                    assert_eq!(Codec::of_flags(flag), Some(codec));
                    assert!(stored.len() + len / SAVING_MIN <= len);
                    assert_eq!(codec.decompress(&stored).unwrap(), text);
                    assert_eq!(compressor.on_compaction(0, &text), Some((flag, &stored[..])));
                    assert_eq!(compressor.on_compaction(flag, &text), None);
                }
                let noise: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
                assert_eq!(compressor.on_receipt(&[&noise], len), None);
            }
        }
        let late = Options {
            compression: Some(Codec::Lz4),
            compress_at: CompressAt::Compaction,
            ..Options::default()
        };
        let mut late = Compressor::new(&late).unwrap();
        assert_eq!(late.on_receipt(&[&[7; 1000]], 1000), None);
        assert!(late.on_compaction(0, &[7; 1000]).is_some());
        assert!(Compressor::new(&Options::default()).is_none());
    }

    #[test]
    fn a_length_that_cannot_be_takes_no_memory() {
        for stored in [
            &[][..],
            &[1, 0, 0],
            &[0xFF, 0xFF, 0xFF, 0xFF, 0x10, b'a'],
            &[0, 16, 0, 0, 0x10, b'a'],
            // A byte more, and one less, than the block has.
            &[2, 0, 0, 0, 0x10, b'a'],
            &[0, 0, 0, 0, 0x10, b'a'],
        ] {
            assert_eq!(Codec::Lz4.decompress(stored), Err(Unreadable::Malformed), "{stored:?}");
        }
    }

    #[test]
    fn random_bytes_are_refused_or_become_what_they_say() {
        let mut rng = SplitMix64::new(9);
        for codec in built() {
            let text: Vec<u8> = (0..3000u32).map(|at| (at / 7) as u8).collect();
            let good = compressor(codec).on_compaction(0, &text).unwrap().1.to_vec();
            for round in 0..20_000 {
                let mut bytes = good.clone();
                if round % 2 == 0 {
                    bytes = (0..rng.below(100)).map(|_| rng.next_u64() as u8).collect();
                }
                for _ in 0..rng.below(4) {
                    if !bytes.is_empty() {
                        let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
                        bytes[at] = rng.next_u64() as u8;
                    }
                }
                if let Ok(value) = codec.decompress(&bytes) {
                    assert_eq!(value.len() as u32, u32::from_le_bytes(bytes[..4].try_into().unwrap()));
                }
            }
        }
    }
}
