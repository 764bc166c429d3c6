//! The stored form of a bucket's properties: only those that differ from the defaults.
//!
//! ```text
//! version u8 = 1 | count u8 | count x (tag u8, value) | crc32c u32 of all before
//! ```
//!
//! Tags ascend, numbers are little-endian; `docs/formats/bucket-props.md` lists tags and values. Decoding is
//! strict: every byte is accounted for, and bytes that the encoder would not have written are refused.

use base::checksum::crc32c;
use bytes::Bytes;

use super::{BucketProps, HOOKS_MAX, Hook, ModFun, N_VAL_MAX, PROP_BYTES_MAX, Prop, Repl, SyncOnWrite};
use crate::quorum::Quorum;

const VERSION: u8 = 1;
const CRC_LEN: usize = 4;

/// Stored properties that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The checksum is wrong, or too few bytes for one.
    #[error("bucket properties fail their checksum")]
    Checksum,
    /// Written by a newer program.
    #[error("bucket properties of version {0}")]
    Version(u8),
    /// The checksum is right and the bytes still make no sense.
    #[error("malformed bucket properties")]
    Malformed,
}

impl BucketProps {
    /// Encodes what differs from the defaults.
    pub fn encode(&self) -> Vec<u8> {
        let props = self.differences(&BucketProps::default());
        let count = u8::try_from(props.len()).expect("there are fewer than 256 properties");
        let mut out = vec![VERSION, count];
        for prop in props {
            out.push(prop.tag());
            prop.encode_value(&mut out);
        }
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes what [`BucketProps::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<BucketProps, DecodeError> {
        let (body, crc) = bytes.split_last_chunk::<CRC_LEN>().ok_or(DecodeError::Checksum)?;
        if crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(DecodeError::Checksum);
        }
        let (&version, body) = body.split_first().ok_or(DecodeError::Malformed)?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        decode_props(body).ok_or(DecodeError::Malformed)
    }
}

fn decode_props(mut bytes: &[u8]) -> Option<BucketProps> {
    let count = take(&mut bytes, 1)?[0];
    let mut props = BucketProps::default();
    let mut last_tag = 0;
    for _ in 0..count {
        let tag = take(&mut bytes, 1)?[0];
        if tag <= last_tag {
            return None;
        }
        last_tag = tag;
        props.set(Prop::decode(tag, &mut bytes)?);
    }
    // A placement counts replicas in a byte: a peer or a disk with more of them is refused here.
    (bytes.is_empty() && props.n_val <= N_VAL_MAX).then_some(props)
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (front, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(front)
}

/// A property's value as bytes.
pub(super) trait Value: Sized {
    fn encode(&self, out: &mut Vec<u8>);
    fn decode(bytes: &mut &[u8]) -> Option<Self>;
}

impl Value for u8 {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    fn decode(bytes: &mut &[u8]) -> Option<u8> {
        Some(take(bytes, 1)?[0])
    }
}

impl Value for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn decode(bytes: &mut &[u8]) -> Option<bool> {
        match u8::decode(bytes)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Value for u32 {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
    fn decode(bytes: &mut &[u8]) -> Option<u32> {
        let (number, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        Some(u32::from_le_bytes(*number))
    }
}

impl Value for Bytes {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::try_from(self.len()).expect("names are checked against PROP_BYTES_MAX"));
        out.extend_from_slice(self);
    }
    fn decode(bytes: &mut &[u8]) -> Option<Bytes> {
        let len = usize::from(u8::decode(bytes)?);
        Some(Bytes::copy_from_slice(take(bytes, len)?))
    }
}

const _: () = assert!(PROP_BYTES_MAX <= u8::MAX as usize, "a name's length is one byte");
const _: () = assert!(HOOKS_MAX <= u8::MAX as usize, "a list's length is one byte");

impl<V: Value> Value for Option<V> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }
    fn decode(bytes: &mut &[u8]) -> Option<Option<V>> {
        Some(if bool::decode(bytes)? { Some(V::decode(bytes)?) } else { None })
    }
}

impl Value for ModFun {
    fn encode(&self, out: &mut Vec<u8>) {
        self.module.encode(out);
        self.function.encode(out);
    }
    fn decode(bytes: &mut &[u8]) -> Option<ModFun> {
        Some(ModFun { module: Bytes::decode(bytes)?, function: Bytes::decode(bytes)? })
    }
}

impl Value for Vec<Hook> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::try_from(self.len()).expect("hooks are checked against HOOKS_MAX"));
        for hook in self {
            match hook {
                Hook::Erlang(fun) => {
                    out.push(1);
                    fun.encode(out);
                }
                Hook::Named(name) => {
                    out.push(2);
                    name.encode(out);
                }
            }
        }
    }
    fn decode(bytes: &mut &[u8]) -> Option<Vec<Hook>> {
        let count = usize::from(u8::decode(bytes)?);
        if count > HOOKS_MAX {
            return None;
        }
        let hook = |bytes: &mut &[u8]| match u8::decode(bytes)? {
            1 => Some(Hook::Erlang(ModFun::decode(bytes)?)),
            2 => Some(Hook::Named(Bytes::decode(bytes)?)),
            _ => None,
        };
        (0..count).map(|_| hook(bytes)).collect()
    }
}

/// A count for a number; words are one byte each.
impl Value for Quorum {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Quorum::Exactly(count) => {
                out.push(0);
                count.encode(out);
            }
            Quorum::One => out.push(1),
            Quorum::Quorum => out.push(2),
            Quorum::All => out.push(3),
            Quorum::Default => unreachable!("a property is never `default`"),
        }
    }
    fn decode(bytes: &mut &[u8]) -> Option<Quorum> {
        Some(match u8::decode(bytes)? {
            0 => Quorum::Exactly(u32::decode(bytes)?),
            1 => Quorum::One,
            2 => Quorum::Quorum,
            3 => Quorum::All,
            _ => return None,
        })
    }
}

impl Value for SyncOnWrite {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            SyncOnWrite::Backend => 0,
            SyncOnWrite::One => 1,
            SyncOnWrite::All => 2,
        });
    }
    fn decode(bytes: &mut &[u8]) -> Option<SyncOnWrite> {
        Some(match u8::decode(bytes)? {
            0 => SyncOnWrite::Backend,
            1 => SyncOnWrite::One,
            2 => SyncOnWrite::All,
            _ => return None,
        })
    }
}

impl Value for Repl {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Repl::False => 0,
            Repl::Realtime => 1,
            Repl::Fullsync => 2,
            Repl::True => 3,
        });
    }
    fn decode(bytes: &mut &[u8]) -> Option<Repl> {
        Some(match u8::decode(bytes)? {
            0 => Repl::False,
            1 => Repl::Realtime,
            2 => Repl::Fullsync,
            3 => Repl::True,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    fn sealed(body: &[u8]) -> Vec<u8> {
        let mut bytes = body.to_vec();
        bytes.extend_from_slice(&crc32c(body).to_le_bytes());
        bytes
    }

    fn busy() -> BucketProps {
        // As an older program has stored it: a backend and search cannot be set any more.
        let older = BucketProps {
            backend: Some(Bytes::from_static(b"multi")),
            search: Some(true),
            ..BucketProps::default()
        };
        older
            .with(&[
                Prop::NVal(5),
                Prop::AllowMult(true),
                Prop::Precommit(vec![
                    Hook::Named(Bytes::from_static(b"js")),
                    Hook::Erlang(ModFun::fixed("m", "f")),
                ]),
                Prop::R(Quorum::One),
                Prop::W(Quorum::Exactly(4)),
                Prop::Repl(Repl::Realtime),
                Prop::SyncOnWrite(SyncOnWrite::All),
                Prop::Ttl(0x0102_0304),
            ])
            .unwrap()
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(BucketProps::default().encode(), [1, 0, 0xA5, 0xEF, 0xC3, 0xE2]);
        let expected = sealed(
            b"\x01\x0A\x01\x05\0\0\0\x02\x01\x04\x02\x02\x02js\x01\x01m\x01f\x0F\x01\x10\0\x04\0\0\0\
              \x16\x01\x05multi\x17\x01\x01\x18\x01\x41\x02\x44\x04\x03\x02\x01",
        );
        assert_eq!(busy().encode(), expected);
        assert_eq!(BucketProps::decode(&expected), Ok(busy()));
    }

    #[test]
    fn only_what_the_encoder_writes_is_read() {
        for body in [
            &b"\x01"[..],                // no count
            b"\x01\x01",                 // fewer properties than counted
            b"\x01\0\0",                 // more bytes than counted
            b"\x01\x01\x02\x02",         // a bool of two
            b"\x01\x02\x02\x01\x02\0",   // the same tag twice
            b"\x01\x02\x03\x01\x02\x01", // tags that descend
            b"\x01\x01\x05\x01",         // no such tag
            b"\x01\x01\x0F\x04",         // no such quorum
            b"\x01\x01\x16\x01\x05mul",  // a name cut short
            b"\x01\x01\x04\xFF",         // too many hooks
            b"\x01\x01\x01\x41\0\0\0",   // more replicas than there may be
        ] {
            assert_eq!(BucketProps::decode(&sealed(body)), Err(DecodeError::Malformed), "{body:?}");
        }
        assert_eq!(BucketProps::decode(&sealed(b"\x02\0")), Err(DecodeError::Version(2)));
        assert_eq!(BucketProps::decode(b"\x01\0\0\0\0\0"), Err(DecodeError::Checksum));
        assert_eq!(BucketProps::decode(b"abc"), Err(DecodeError::Checksum));
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut rng = SplitMix64::new(1);
        let good = busy().encode();
        for _ in 0..10_000 {
            let mut body = good[..good.len() - CRC_LEN].to_vec();
            for _ in 0..=rng.below(3) {
                let at = usize::try_from(rng.below(body.len() as u64)).unwrap();
                body[at] = rng.next_u64().to_le_bytes()[0];
            }
            if let Ok(props) = BucketProps::decode(&sealed(&body)) {
                assert_eq!(BucketProps::decode(&props.encode()), Ok(props));
            }
        }
    }
}
