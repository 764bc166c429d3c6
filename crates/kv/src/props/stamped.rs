//! A change of a bucket's properties, with the time that orders it among others.
//!
//! ```text
//! version u8 = 2 | stamp u64 | present u8 | the properties, if present (version 1) | crc32c u32 of all before
//! ```
//!
//! Version 1, properties alone, is read too: a change with stamp 0.

use base::checksum::crc32c;
use std::sync::Arc;

use super::BucketProps;
use super::codec::DecodeError;

const VERSION: u8 = 2;
const CRC_LEN: usize = 4;

/// What a bucket's properties were changed to.
#[derive(Clone, Debug, PartialEq)]
pub struct StampedProps {
    /// When, in microseconds, but later than any change of the bucket known before.
    pub stamp: u64,
    /// To what; `None` gives it its type's again.
    pub props: Option<Arc<BucketProps>>,
}

impl StampedProps {
    /// Whether this holds, rather than `other`.
    pub fn supersedes(&self, other: &StampedProps) -> bool {
        let encoded = |it: &StampedProps| it.props.as_ref().map(|props| props.encode());
        if base::planted!(TieByArrival) && self.stamp == other.stamp {
            return encoded(self) != encoded(other);
        }
        // As for types: two nodes may change a bucket at the same moment.
        self.stamp.cmp(&other.stamp).then_with(|| encoded(self).cmp(&encoded(other))).is_gt()
    }

    /// Encodes the change.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.stamp.to_le_bytes());
        out.push(u8::from(self.props.is_some()));
        out.extend(self.props.iter().flat_map(|props| props.encode()));
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes what [`StampedProps::encode`] or [`BucketProps::encode`] wrote.
    ///
    /// # Errors
    /// As for properties alone.
    pub fn decode(bytes: &[u8]) -> Result<StampedProps, DecodeError> {
        if bytes.first() != Some(&VERSION) {
            return Ok(StampedProps { stamp: 0, props: Some(Arc::new(BucketProps::decode(bytes)?)) });
        }
        let (body, crc) = bytes.split_last_chunk::<CRC_LEN>().ok_or(DecodeError::Checksum)?;
        if crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(DecodeError::Checksum);
        }
        let Some((stamp, [present, props @ ..])) = body[1..].split_first_chunk::<8>() else {
            return Err(DecodeError::Malformed);
        };
        let props = match (present, props) {
            (0, []) => None,
            (1, props) => Some(Arc::new(BucketProps::decode(props)?)),
            _ => return Err(DecodeError::Malformed),
        };
        Ok(StampedProps { stamp: u64::from_le_bytes(*stamp), props })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::props::Prop;

    #[test]
    fn a_change_is_written_as_it_always_was() {
        let reset = StampedProps { stamp: 0x0102, props: None };
        assert_eq!(reset.encode(), [2, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0x96, 0xD6, 0x30, 0xD4]);
        assert_eq!(StampedProps::decode(&reset.encode()), Ok(reset));
        let props = BucketProps::default().with(&[Prop::AllowMult(true)]).unwrap();
        let change = StampedProps { stamp: 77, props: Some(Arc::new(props)) };
        let inner = [1, 1, 2, 1, 0xEC, 0xC0, 0x4D, 0xE5];
        let bytes = [&[2, 77, 0, 0, 0, 0, 0, 0, 0, 1], &inner[..], &[0xB8, 0x0A, 0x96, 0x88]].concat();
        assert_eq!(change.encode(), bytes);
    }

    #[test]
    fn both_versions_are_read() {
        let props = BucketProps::default().with(&[Prop::AllowMult(true)]).unwrap();
        let old = StampedProps::decode(&props.encode()).unwrap();
        assert_eq!((old.stamp, old.props.as_deref()), (0, Some(&props)));
        let new = StampedProps { stamp: 77, props: Some(Arc::new(props)) };
        assert_eq!(StampedProps::decode(&new.encode()), Ok(new));
    }

    #[test]
    fn damage_is_refused() {
        let bytes = StampedProps { stamp: 9, props: Some(Arc::new(BucketProps::default())) }.encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(StampedProps::decode(&damaged).is_err(), "{at}");
            assert!(StampedProps::decode(&bytes[..at]).is_err(), "{at}");
        }
    }
}
