//! What detectors send each other: an envelope that says which cluster, which node and which process speaks, around
//! what the failure detector has to say, or around a refusal.
//!
//! Described in `docs/formats/membership.md`. The first [`HEADER_LEN`] bytes, the checksum and the refusals are the
//! same in every version of the format, so that a refusal can be read by whoever it is for.
//!
//! Invariant: no input makes [`Datagram::read`] panic, and it allocates nothing.

use base::checksum::crc32c;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader};
use ring::NodeId;

use super::refusal::Refusal;
use crate::ClusterId;

/// The format written, and the only one read.
pub const VERSION: u8 = 1;

/// A datagram's bytes, at most: one Ethernet frame, so that the loss of one packet loses one datagram.
pub const DATAGRAM_BYTES_MAX: usize = 1_400;

/// What stands before a body: magic, version, kind, cluster, node, start, generation.
pub(super) const HEADER_LEN: usize = 32;

/// The checksum behind a body.
pub(super) const CRC_LEN: usize = 4;

const MAGIC: [u8; 4] = *b"ANMD";
const PROBE: u8 = 1;
const REFUSAL: u8 = 2;

/// A process of a node, as it introduces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speaker {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its node.
    pub node: NodeId,
    /// Its process: drawn at random at each start, so that two processes with one data folder differ.
    pub start: u64,
    /// Orders the identities of a node: the higher one is the later one.
    pub generation: u64,
}

/// Bytes that are no datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// The first bytes are not those of an Annulet node's datagram.
    #[error("not a datagram of a failure detector")]
    Magic,
    /// More than [`DATAGRAM_BYTES_MAX`], or too few to be one.
    #[error("a datagram of {0} bytes")]
    Length(usize),
    /// The bytes are not those that were sent.
    #[error("a datagram fails its checksum")]
    Checksum,
    /// The checksum is right and the bytes still make no sense.
    #[error("malformed datagram: {0}")]
    Malformed(#[from] Malformed),
}

/// What a datagram says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Something for the failure detector.
    Probe(Bytes),
    /// A datagram of the receiver was refused.
    Refused(Refusal),
    /// Something that only another version of the format can read.
    OfVersion(u8),
}

/// One datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Datagram {
    pub(super) from: Speaker,
    pub(super) body: Body,
}

impl Datagram {
    /// The bytes of it.
    pub(super) fn encode(from: &Speaker, body: &Body) -> Bytes {
        let (version, kind) = match body {
            Body::Probe(_) => (VERSION, PROBE),
            Body::Refused(_) => (VERSION, REFUSAL),
            Body::OfVersion(version) => (*version, PROBE),
        };
        let mut out = BytesMut::with_capacity(HEADER_LEN + 64);
        out.put_slice(&MAGIC);
        out.put_u8(version);
        out.put_u8(kind);
        out.put_u64_le(from.cluster.0);
        out.put_u16_le(from.node.0);
        out.put_u64_le(from.start);
        out.put_u64_le(from.generation);
        match body {
            Body::Probe(bytes) => out.put_slice(bytes),
            Body::Refused(refusal) => put_refusal(&mut out, refusal),
            Body::OfVersion(_) => {}
        }
        let crc = crc32c(&out);
        out.put_u32_le(crc);
        out.freeze()
    }

    /// The datagram that `bytes` are.
    pub(super) fn read(mut bytes: Bytes) -> Result<Datagram, DatagramError> {
        let len = bytes.len();
        if !(HEADER_LEN + CRC_LEN..=DATAGRAM_BYTES_MAX).contains(&len) {
            return Err(DatagramError::Length(len));
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(DatagramError::Magic);
        }
        let mut crc = bytes.split_off(len - CRC_LEN);
        if crc32c(&bytes) != crc.get_u32_le() {
            return Err(DatagramError::Checksum);
        }
        bytes.advance(MAGIC.len());
        let mut fields = Reader::new(bytes);
        let (version, kind) = (fields.u8()?, fields.u8()?);
        let from = Speaker {
            cluster: ClusterId(fields.u64()?),
            node: NodeId(fields.u16()?),
            start: fields.u64()?,
            generation: fields.u64()?,
        };
        let body = match kind {
            REFUSAL => Body::Refused(refusal(&mut fields)?),
            _ if version != VERSION => Body::OfVersion(version),
            PROBE => Body::Probe(fields.rest()),
            _ => return Err(Malformed("neither probe nor refusal").into()),
        };
        Ok(Datagram { from, body })
    }
}

fn put_refusal(out: &mut BytesMut, refusal: &Refusal) {
    let (code, first, second) = match *refusal {
        Refusal::Version { ours, theirs } => (1, u64::from(ours), u64::from(theirs)),
        Refusal::Cluster { ours, theirs } => (2, ours.0, theirs.0),
        Refusal::NotMember { node } => (3, u64::from(node.0), 0),
        Refusal::Copy { original } => (4, original, 0),
        Refusal::Superseded { start, generation } => (5, start, generation),
    };
    out.put_u8(code);
    out.put_u64_le(first);
    out.put_u64_le(second);
}

fn refusal(fields: &mut Reader) -> Result<Refusal, Malformed> {
    let (code, first, second) = (fields.u8()?, fields.u64()?, fields.u64()?);
    let version = |number| u8::try_from(number).map_err(|_| Malformed("a version has one byte"));
    Ok(match code {
        1 => Refusal::Version { ours: version(first)?, theirs: version(second)? },
        2 => Refusal::Cluster { ours: ClusterId(first), theirs: ClusterId(second) },
        3 => Refusal::NotMember {
            node: NodeId(u16::try_from(first).map_err(|_| Malformed("a node has two bytes"))?),
        },
        4 => Refusal::Copy { original: first },
        5 => Refusal::Superseded { start: first, generation: second },
        _ => return Err(Malformed("an unknown refusal")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn speaker() -> Speaker {
        let start = 0x1112_1314_1516_1718;
        Speaker { cluster: ClusterId(0x0102_0304_0506_0708), node: NodeId(9), start, generation: 5 << 20 }
    }

    #[test]
    fn golden_bytes() {
        let bytes = Datagram::encode(&speaker(), &Body::Refused(Refusal::NotMember { node: NodeId(9) }));
        let fields = b"ANMD\x01\x02\x08\x07\x06\x05\x04\x03\x02\x01\x09\0\x18\x17\x16\x15\x14\x13\x12\x11\0\0\x50\0\0\0\0\0\
            \x03\x09\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(bytes[..bytes.len() - CRC_LEN], *fields);
        // Computed bit by bit by another program.
        assert_eq!(bytes[bytes.len() - CRC_LEN..], GOLDEN_CRC.to_le_bytes());
    }

    const GOLDEN_CRC: u32 = 0xD87B_1016;

    #[test]
    fn what_is_written_is_read() {
        let refusals = [
            Refusal::Version { ours: 1, theirs: 2 },
            Refusal::Cluster { ours: ClusterId(1), theirs: ClusterId(2) },
            Refusal::NotMember { node: NodeId(700) },
            Refusal::Copy { original: 8 },
            Refusal::Superseded { start: 8, generation: u64::MAX },
        ];
        let bodies = refusals.map(Body::Refused).into_iter();
        for body in bodies.chain([Body::Probe(Bytes::from_static(b"probe")), Body::OfVersion(2)]) {
            let bytes = Datagram::encode(&speaker(), &body);
            assert_eq!(Datagram::read(bytes), Ok(Datagram { from: speaker(), body }));
        }
    }

    #[test]
    fn every_damaged_byte_is_found() {
        let good = Datagram::encode(&speaker(), &Body::Probe(Bytes::from_static(b"probe")));
        for at in 0..good.len() {
            let mut bad = BytesMut::from(&good[..]);
            bad[at] ^= 4;
            assert!(Datagram::read(bad.freeze()).is_err(), "byte {at}");
            assert!(Datagram::read(good.slice(..at)).is_err(), "{at} bytes");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_make_no_panic(version: u8, kind: u8, tail in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut bytes = BytesMut::from(&MAGIC[..]);
            bytes.put_slice(&[version, kind]);
            bytes.put_slice(&tail);
            let crc = crc32c(&bytes);
            bytes.put_u32_le(crc);
            prop_assert_eq!(Datagram::read(bytes.freeze()).is_err_and(|e| e == DatagramError::Checksum), false);
        }
    }
}
