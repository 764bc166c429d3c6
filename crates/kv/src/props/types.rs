//! Bucket types: properties that buckets share, under a name that operators give.
//!
//! 1. A type is *created*: every node that can be reached keeps it, and nobody can use it yet. It may be created again,
//!    with other properties.
//! 2. When all nodes can be reached it is *ready*, and may be activated.
//! 3. *Active*, it is there for good: it can be updated, except for what decides how its objects are stored.
//!
//! Invariant: joining what two nodes know of a type ([`StampedType::supersedes`]) takes the active one, and of two
//! alike the later one, so nodes agree in whatever order they hear of changes, and no late creation undoes an
//! activation.
//!
//! The stored form, numbers little-endian (`docs/formats/bucket-props.md`):
//!
//! ```text
//! version u8 = 1 | stamp u64 | active u8 | the properties (version 1) | crc32c u32 of all before
//! ```

use std::sync::Arc;

use base::checksum::crc32c;

use super::codec::DecodeError;
use super::{BucketProps, Prop};

const VERSION: u8 = 1;
const CRC_LEN: usize = 4;

/// The most bucket types: operators make them, a few for each application, and every shard holds all of them.
pub const TYPES_MAX: usize = 1_000;

/// What an operator wants of a bucket type.
#[derive(Clone, Debug, PartialEq)]
pub enum TypeChange {
    /// That it be there, with the defaults of types and these properties.
    Create(Vec<Prop>),
    /// That it have these properties besides.
    Update(Vec<Prop>),
    /// That it can be used.
    Activate,
}

/// What a bucket type was changed to.
#[derive(Clone, Debug, PartialEq)]
pub struct StampedType {
    /// When, in microseconds, but later than any change of the type known before.
    pub stamp: u64,
    /// Whether it can be used.
    pub active: bool,
    /// Its properties.
    pub props: Arc<BucketProps>,
}

impl StampedType {
    /// Whether this holds, rather than `other`.
    pub fn supersedes(&self, other: &StampedType) -> bool {
        let order = |it: &StampedType| (it.active, it.stamp);
        // Two nodes may change a type at the same moment; then any order will do that is the same everywhere.
        order(self).cmp(&order(other)).then_with(|| self.props.encode().cmp(&other.props.encode())).is_gt()
    }

    /// Encodes the change.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.stamp.to_le_bytes());
        out.push(u8::from(self.active));
        out.extend(self.props.encode());
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes what [`StampedType::encode`] wrote.
    ///
    /// # Errors
    /// As for properties alone.
    pub fn decode(bytes: &[u8]) -> Result<StampedType, DecodeError> {
        let (body, crc) = bytes.split_last_chunk::<CRC_LEN>().ok_or(DecodeError::Checksum)?;
        if crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(DecodeError::Checksum);
        }
        let (&version, body) = body.split_first().ok_or(DecodeError::Malformed)?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let Some((stamp, [active @ 0..=1, props @ ..])) = body.split_first_chunk::<8>() else {
            return Err(DecodeError::Malformed);
        };
        let props = Arc::new(BucketProps::decode(props)?);
        Ok(StampedType { stamp: u64::from_le_bytes(*stamp), active: *active == 1, props })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(stamp: u64, active: bool, props: BucketProps) -> StampedType {
        StampedType { stamp, active, props: Arc::new(props) }
    }

    #[test]
    fn golden_bytes() {
        let it = of(0x0102, true, BucketProps::default());
        let inner = [1, 0, 0xA5, 0xEF, 0xC3, 0xE2];
        let body = [&[1, 2, 1, 0, 0, 0, 0, 0, 0, 1], &inner[..]].concat();
        let golden = [&body[..], &[0xD5, 0x23, 0x28, 0x5C]].concat();
        assert_eq!(it.encode(), golden);
        assert_eq!(StampedType::decode(&golden), Ok(it));
    }

    #[test]
    fn damage_is_refused() {
        let bytes = of(9, false, BucketProps::of_new_type()).encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(StampedType::decode(&damaged).is_err(), "{at}");
            assert!(StampedType::decode(&bytes[..at]).is_err(), "{at}");
        }
    }

    #[test]
    fn what_holds_does_not_depend_on_the_order() {
        let props = |n| BucketProps { n_val: n, ..BucketProps::of_new_type() };
        let all = [
            of(1, false, props(1)),
            of(9, false, props(1)),
            of(3, true, props(1)),
            of(3, true, props(2)),
            of(4, true, props(1)),
        ];
        for (at, a) in all.iter().enumerate() {
            for (other, b) in all.iter().enumerate() {
                assert_eq!(a.supersedes(b), at > other, "{a:?} {b:?}");
            }
        }
    }
}
