//! The identity of this node in its cluster: its number, and the agreed state when it got it.
//! `docs/formats/membership.md`.
//!
//! A node that joins is told it by a member; one that founds tells it to itself. It is written before the node does
//! anything in its name, and never changes: from then on the log knows better who the members are.

use ::membership::ClusterId;
use ::membership::state::{Record, State};
use base::checksum::crc32c;
use bytes::Bytes;
use protocol::peer::{Malformed, Reader};
use ring::NodeId;

const MAGIC: &[u8; 4] = b"ANMN";
const VERSION: u8 = 1;

/// Its bytes, at most: a state of as many members, partitions and slots as there can be.
pub const STANDING_BYTES_MAX: usize = ::membership::log::MESSAGE_BYTES_MAX;

/// A place in what a cluster decided: of two nodes, the one with the later knows more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AsOf {
    /// The epoch of the log.
    pub epoch: u32,
    /// Its last committed entry; 0 before there is a log.
    pub commit: u64,
}

/// Which node of which cluster this is.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Its number.
    pub node: NodeId,
    /// When it got it; the default if it founded the cluster.
    pub as_of: AsOf,
    /// What all agreed on then. This node is a member.
    pub state: State,
}

impl Standing {
    /// Its cluster.
    pub fn cluster(&self) -> ClusterId {
        self.state.cluster()
    }

    /// What is known of it as a member.
    pub fn record(&self) -> &Record {
        &self.state.members()[&self.node]
    }

    /// Whether it was one of those that founded the cluster.
    pub fn founded(&self) -> bool {
        self.as_of == AsOf::default()
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = [&MAGIC[..], &[VERSION]].concat();
        out.extend(self.node.0.to_le_bytes());
        out.extend(self.as_of.epoch.to_le_bytes());
        out.extend(self.as_of.commit.to_le_bytes());
        out.extend(self.state.encode());
        let crc = crc32c(&out);
        out.extend(crc.to_le_bytes());
        out
    }

    /// What [`Standing::encode`] wrote.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &Bytes) -> Result<Standing, Malformed> {
        let (summed, crc) = bytes.split_last_chunk::<4>().ok_or(Malformed("it ends early"))?;
        if crc32c(summed) != u32::from_le_bytes(*crc) {
            return Err(Malformed("it fails its checksum"));
        }
        let mut fields = Reader::new(bytes.slice(..summed.len()));
        let magic = [fields.u8()?, fields.u8()?, fields.u8()?, fields.u8()?];
        match (magic == *MAGIC, fields.u8()?) {
            (true, VERSION) => {}
            (true, _) => return Err(Malformed("of a format that is not read here")),
            (false, _) => return Err(Malformed("not a node's standing")),
        }
        let node = NodeId(fields.u16()?);
        let as_of = AsOf { epoch: fields.u32()?, commit: fields.u64()? };
        let state = State::decode(fields.rest())?;
        if !state.members().contains_key(&node) {
            return Err(Malformed("the node is no member"));
        }
        Ok(Standing { node, as_of, state })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;
    use ring::RingSize;

    fn standing() -> Standing {
        let nodes = [("a@h", "h:1", ""), ("b@h", "h:2", "")];
        let state =
            State::found_by(ClusterId(7), (RingSize::new(8).unwrap(), RingSize::new(128).unwrap()), nodes)
                .unwrap();
        Standing { node: NodeId(1), as_of: AsOf { epoch: 1, commit: 9 }, state }
    }

    #[test]
    fn what_is_written_is_read_and_what_is_damaged_is_not() {
        let bytes = Bytes::from(standing().encode());
        assert_eq!(bytes[..19], *b"ANMN\x01\x01\0\x01\0\0\0\x09\0\0\0\0\0\0\0");
        assert_eq!(Standing::decode(&bytes), Ok(standing()));
        for at in 0..bytes.len() {
            let mut bad = bytes.to_vec();
            bad[at] ^= 1;
            assert!(Standing::decode(&bad.into()).is_err(), "byte {at}");
            assert!(Standing::decode(&bytes.slice(..at)).is_err(), "{at} bytes");
        }
        let stranger = Standing { node: NodeId(2), ..standing() };
        assert_eq!(Standing::decode(&stranger.encode().into()), Err(Malformed("the node is no member")));
    }

    #[test]
    fn random_fields_make_no_panic() {
        let mut rng = SplitMix64::new(3);
        let good = standing().encode();
        for _ in 0..20_000 {
            let mut bad = good[..good.len() - 4].to_vec();
            for _ in 0..=rng.below(3) {
                let at = usize::try_from(rng.below(bad.len() as u64)).unwrap();
                bad[at] = u8::try_from(rng.below(256)).unwrap();
            }
            let crc = crc32c(&bad);
            bad.extend(crc.to_le_bytes());
            drop(Standing::decode(&bad.into()));
        }
    }
}
