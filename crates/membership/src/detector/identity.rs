//! A node as the SWIM library knows it, and the bytes in which it speaks of nodes.

use bytes::{Buf, BufMut, TryGetError};
use foca::{Codec, Header, Identity, Member, Message, State};
use ring::NodeId;

use super::datagram::{CRC_LEN, DATAGRAM_BYTES_MAX, HEADER_LEN};

/// One generation of a node, which SWIM declares dead for good. A node that was declared dead by mistake comes back as
/// the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Incarnated {
    pub(super) node: NodeId,
    pub(super) generation: u64,
}

impl Identity for Incarnated {
    type Addr = NodeId;

    fn renew(&self) -> Option<Self> {
        Some(Incarnated { node: self.node, generation: self.generation.checked_add(1)? })
    }

    fn addr(&self) -> NodeId {
        self.node
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.generation > adversary.generation
    }
}

/// Why bytes are nothing that a detector says, or do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    #[error("it ends early")]
    Short,
    #[error("no room is left")]
    Full,
    #[error("an unknown tag {0}")]
    Tag(u8),
}

impl From<TryGetError> for WireError {
    fn from(_: TryGetError) -> WireError {
        WireError::Short
    }
}

const IDENTITY_LEN: usize = 10;
const MEMBER_LEN: usize = IDENTITY_LEN + 3;
/// Two identities, an incarnation, a tag, and the identity and number of the longest message.
const HEADER_LEN_MAX: usize = 3 * IDENTITY_LEN + 4;

const _: () = assert!(
    HEADER_LEN + HEADER_LEN_MAX + MEMBER_LEN + CRC_LEN <= DATAGRAM_BYTES_MAX,
    "a header and a member fit a datagram"
);

const ALIVE: u8 = 0;
const SUSPECT: u8 = 1;
const DOWN: u8 = 2;

/// Fixed little-endian fields; `docs/formats/membership.md`.
pub(super) struct Wire;

fn put_identity(buf: &mut impl BufMut, id: &Incarnated) {
    buf.put_u16_le(id.node.0);
    buf.put_u64_le(id.generation);
}

fn identity(buf: &mut impl Buf) -> Result<Incarnated, WireError> {
    Ok(Incarnated { node: NodeId(buf.try_get_u16_le()?), generation: buf.try_get_u64_le()? })
}

impl Codec<Incarnated> for Wire {
    type Error = WireError;

    fn encode_header(&mut self, header: &Header<Incarnated>, mut buf: impl BufMut) -> Result<(), WireError> {
        if buf.remaining_mut() < HEADER_LEN_MAX {
            return Err(WireError::Full);
        }
        put_identity(&mut buf, &header.src);
        buf.put_u16_le(header.src_incarnation);
        put_identity(&mut buf, &header.dst);
        let (tag, about, number) = match &header.message {
            Message::Ping(number) => (1, None, Some(number)),
            Message::Ack(number) => (2, None, Some(number)),
            Message::PingReq { target, probe_number } => (3, Some(target), Some(probe_number)),
            Message::IndirectPing { origin, probe_number } => (4, Some(origin), Some(probe_number)),
            Message::IndirectAck { target, probe_number } => (5, Some(target), Some(probe_number)),
            Message::ForwardedAck { origin, probe_number } => (6, Some(origin), Some(probe_number)),
            Message::Announce => (7, None, None),
            Message::Feed => (8, None, None),
            Message::Gossip => (9, None, None),
            Message::Broadcast => (10, None, None),
            Message::TurnUndead => (11, None, None),
        };
        buf.put_u8(tag);
        about.into_iter().for_each(|id| put_identity(&mut buf, id));
        number.into_iter().for_each(|&number| buf.put_u8(number));
        Ok(())
    }

    fn decode_header(&mut self, mut buf: impl Buf) -> Result<Header<Incarnated>, WireError> {
        let src = identity(&mut buf)?;
        let src_incarnation = buf.try_get_u16_le()?;
        let dst = identity(&mut buf)?;
        let message = match buf.try_get_u8()? {
            1 => Message::Ping(buf.try_get_u8()?),
            2 => Message::Ack(buf.try_get_u8()?),
            3 => Message::PingReq { target: identity(&mut buf)?, probe_number: buf.try_get_u8()? },
            4 => Message::IndirectPing { origin: identity(&mut buf)?, probe_number: buf.try_get_u8()? },
            5 => Message::IndirectAck { target: identity(&mut buf)?, probe_number: buf.try_get_u8()? },
            6 => Message::ForwardedAck { origin: identity(&mut buf)?, probe_number: buf.try_get_u8()? },
            7 => Message::Announce,
            8 => Message::Feed,
            9 => Message::Gossip,
            10 => Message::Broadcast,
            11 => Message::TurnUndead,
            tag => return Err(WireError::Tag(tag)),
        };
        Ok(Header { src, src_incarnation, dst, message })
    }

    fn encode_member(&mut self, member: &Member<Incarnated>, mut buf: impl BufMut) -> Result<(), WireError> {
        if buf.remaining_mut() < MEMBER_LEN {
            return Err(WireError::Full);
        }
        put_identity(&mut buf, member.id());
        buf.put_u16_le(member.incarnation());
        buf.put_u8(match member.state() {
            State::Alive => ALIVE,
            State::Suspect => SUSPECT,
            State::Down => DOWN,
        });
        Ok(())
    }

    fn decode_member(&mut self, mut buf: impl Buf) -> Result<Member<Incarnated>, WireError> {
        let (id, incarnation) = (identity(&mut buf)?, buf.try_get_u16_le()?);
        let state = match buf.try_get_u8()? {
            ALIVE => State::Alive,
            SUSPECT => State::Suspect,
            DOWN => State::Down,
            tag => return Err(WireError::Tag(tag)),
        };
        Ok(Member::new(id, incarnation, state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;

    fn id(node: u16) -> Incarnated {
        Incarnated { node: NodeId(node), generation: 7 << 20 }
    }

    #[test]
    fn every_message_is_read_as_written() {
        let (target, origin, probe_number) = (id(3), id(4), 200);
        for message in [
            Message::Ping(1),
            Message::Ack(2),
            Message::PingReq { target, probe_number },
            Message::IndirectPing { origin, probe_number },
            Message::IndirectAck { target, probe_number },
            Message::ForwardedAck { origin, probe_number },
            Message::Announce,
            Message::Feed,
            Message::Gossip,
            Message::Broadcast,
            Message::TurnUndead,
        ] {
            let header = Header { src: id(1), src_incarnation: 5, dst: id(2), message };
            let mut buf = BytesMut::new();
            Wire.encode_header(&header, &mut buf).unwrap();
            assert!(buf.len() <= HEADER_LEN_MAX);
            for len in 0..buf.len() {
                assert_eq!(Wire.decode_header(&buf[..len]), Err(WireError::Short));
            }
            assert_eq!(Wire.decode_header(&buf[..]), Ok(header));
        }
    }

    #[test]
    fn a_member_is_read_as_written_and_never_by_half() {
        for state in [State::Alive, State::Suspect, State::Down] {
            let member = Member::new(id(6), 9, state);
            let mut buf = BytesMut::new();
            Wire.encode_member(&member, &mut buf).unwrap();
            assert_eq!(buf.len(), MEMBER_LEN);
            assert_eq!(Wire.decode_member(&buf[..]), Ok(member.clone()));
            let mut little = [0; MEMBER_LEN - 1];
            assert_eq!(Wire.encode_member(&member, &mut little[..]), Err(WireError::Full));
            assert_eq!(little, [0; MEMBER_LEN - 1]);
        }
    }
}
