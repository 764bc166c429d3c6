//! Messages of a catch-up, as the body of a frame between two shards (`docs/formats/strong.md`).
//!
//! Invariant: no input makes [`CatchUpMessage::read`] panic, or take memory that the bytes do not back.

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_bytes, put_varint};

use super::receiver::Place;
use super::{Item, ToReceiver, ToSender};
use crate::endpoint::Endpoint;
use crate::envelope::GroupId;
use crate::group::Version;

/// The version of the encoding that is written, and the only one read.
pub const CATCH_UP_VERSION: u8 = 1;

/// The contents of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatchUpContents {
    /// From the sender of the catch-up.
    ToReceiver(ToReceiver),
    /// From its receiver.
    ToSender(ToSender),
}

/// A message between the two ends of a catch-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatchUpMessage {
    /// The shard that sends the message.
    pub from: Endpoint,
    /// The shard that it is for.
    pub to: Endpoint,
    /// The group.
    pub group: GroupId,
    /// The contents.
    pub contents: CatchUpContents,
}

/// Kinds of contents.
mod kind {
    pub(super) const OFFER: u8 = 0;
    pub(super) const PART: u8 = 1;
    pub(super) const READY: u8 = 2;
    pub(super) const KEPT: u8 = 3;
    pub(super) const REFUSED: u8 = 4;
}

impl CatchUpMessage {
    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(CATCH_UP_VERSION);
        for Endpoint { life, shard } in [self.from, self.to] {
            out.put_u64_le(life);
            out.put_u16_le(shard);
        }
        out.put_u8(self.group.n_val);
        out.put_u64_le(self.group.founding);
        out.put_u16_le(self.group.prefix);
        match &self.contents {
            CatchUpContents::ToReceiver(message) => put_to_receiver(&mut out, message),
            CatchUpContents::ToSender(message) => put_to_sender(&mut out, message),
        }
        out.freeze()
    }

    /// The message in bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(bytes: Bytes) -> Result<CatchUpMessage, Malformed> {
        let mut fields = Reader::new(bytes);
        let fields = &mut fields;
        if fields.u8()? != CATCH_UP_VERSION {
            return Err(Malformed("an unknown version of a message of a catch-up"));
        }
        let from = Endpoint { life: fields.u64()?, shard: fields.u16()? };
        let to = Endpoint { life: fields.u64()?, shard: fields.u16()? };
        let group = GroupId { n_val: fields.u8()?, founding: fields.u64()?, prefix: fields.u16()? };
        let contents = read_contents(fields)?;
        fields.end()?;
        Ok(CatchUpMessage { from, to, group, contents })
    }
}

fn put_to_receiver(out: &mut BytesMut, message: &ToReceiver) {
    match message {
        ToReceiver::Offer { number, attempt, reaped } => {
            out.put_u8(kind::OFFER);
            out.put_u64_le(*number);
            put_varint(out, *attempt);
            put_varint(out, *reaped);
        }
        ToReceiver::Part { number, snapshot, after, items, through } => {
            out.put_u8(kind::PART);
            out.put_u64_le(*number);
            put_varint(out, snapshot.0);
            put_varint(out, snapshot.1);
            after.put(out);
            through.put(out);
            put_varint(out, items.len() as u64);
            for Item { key, version, object } in items {
                put_bytes(out, key);
                out.put_u64_le(version.0);
                out.put_u8(object.is_some().into());
                if let Some(object) = object {
                    put_bytes(out, object);
                }
            }
        }
    }
}

fn put_to_sender(out: &mut BytesMut, message: &ToSender) {
    match message {
        ToSender::Ready { number, attempt, base, place } => {
            out.put_u8(kind::READY);
            out.put_u64_le(*number);
            put_varint(out, *attempt);
            put_varint(out, *base);
            place.put(out);
        }
        ToSender::Kept { number, place } => {
            out.put_u8(kind::KEPT);
            out.put_u64_le(*number);
            place.put(out);
        }
        ToSender::Refused { number } => {
            out.put_u8(kind::REFUSED);
            out.put_u64_le(*number);
        }
    }
}

fn read_contents(fields: &mut Reader) -> Result<CatchUpContents, Malformed> {
    let (kind, number) = (fields.u8()?, fields.u64()?);
    Ok(match kind {
        kind::OFFER => {
            let (attempt, reaped) = (fields.varint()?, fields.varint()?);
            CatchUpContents::ToReceiver(ToReceiver::Offer { number, attempt, reaped })
        }
        kind::PART => CatchUpContents::ToReceiver(read_part(number, fields)?),
        kind::READY => {
            let (attempt, base) = (fields.varint()?, fields.varint()?);
            let place = Place::read(fields)?;
            CatchUpContents::ToSender(ToSender::Ready { number, attempt, base, place })
        }
        kind::KEPT => CatchUpContents::ToSender(ToSender::Kept { number, place: Place::read(fields)? }),
        kind::REFUSED => CatchUpContents::ToSender(ToSender::Refused { number }),
        _ => return Err(Malformed("an unknown message of a catch-up")),
    })
}

/// Reads a part. Its keys ascend behind its place, and it goes through the last one.
fn read_part(number: u64, fields: &mut Reader) -> Result<ToReceiver, Malformed> {
    let snapshot = (fields.varint()?, fields.varint()?);
    let (after, through) = (Place::read(fields)?, Place::read(fields)?);
    let count = fields.count()?;
    let mut items: Vec<Item> = Vec::new();
    for _ in 0..count {
        let (key, version) = (fields.bytes()?, Version(fields.u64()?));
        let object = match fields.u8()? {
            0 => None,
            1 => Some(fields.bytes()?),
            _ => return Err(Malformed("a flag is neither 0 nor 1")),
        };
        items.push(Item { key, version, object });
    }

    let first_after = match &after {
        Place::Begin => None,
        Place::Key(key) => Some(key),
        Place::End => return Err(Malformed("a part behind the last one")),
    };
    let keys: Vec<&Bytes> = first_after.into_iter().chain(items.iter().map(|item| &item.key)).collect();
    let ends_well = match &through {
        Place::Begin => false,
        Place::Key(key) => items.last().is_some_and(|last| last.key == *key),
        Place::End => true,
    };
    if !keys.is_sorted_by(|a, b| a < b) || !ends_well {
        return Err(Malformed("keys of a part are not in order"));
    }
    Ok(ToReceiver::Part { number, snapshot, after, items, through })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    fn message(contents: CatchUpContents) -> CatchUpMessage {
        CatchUpMessage {
            from: Endpoint { life: 1, shard: 2 },
            to: Endpoint { life: 3, shard: 4 },
            group: GroupId { n_val: 5, founding: 6, prefix: 7 },
            contents,
        }
    }

    fn key(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn messages() -> Vec<CatchUpMessage> {
        let items = vec![
            Item { key: key("b"), version: Version(300), object: Some(key("object")) },
            Item { key: key("c"), version: Version(301), object: None },
        ];
        let part = ToReceiver::Part {
            number: 8,
            snapshot: (310, 2),
            after: Place::Key(key("a")),
            items,
            through: Place::Key(key("c")),
        };
        let last = ToReceiver::Part {
            number: 8,
            snapshot: (310, 2),
            after: Place::Key(key("c")),
            items: vec![],
            through: Place::End,
        };
        let to_receiver = [ToReceiver::Offer { number: 8, attempt: 300, reaped: 9 }, part, last];
        let to_sender = [
            ToSender::Ready { number: 8, attempt: 1, base: 2, place: Place::Begin },
            ToSender::Kept { number: 8, place: Place::End },
            ToSender::Refused { number: 8 },
        ];
        let to_receiver = to_receiver.map(CatchUpContents::ToReceiver).into_iter();
        to_receiver.chain(to_sender.map(CatchUpContents::ToSender)).map(message).collect()
    }

    #[test]
    fn golden_bytes() {
        let ends: &[u8] = b"\x01\x01\0\0\0\0\0\0\0\x02\0\x03\0\0\0\0\0\0\0\x04\0\x05\x06\0\0\0\0\0\0\0\x07\0";
        let contents: [&[u8]; 6] = [
            b"\0\x08\0\0\0\0\0\0\0\xAC\x02\x09",
            b"\x01\x08\0\0\0\0\0\0\0\xB6\x02\x02\x01\x01a\x01\x01c\x02\
              \x01b\x2C\x01\0\0\0\0\0\0\x01\x06object\x01c\x2D\x01\0\0\0\0\0\0\0",
            b"\x01\x08\0\0\0\0\0\0\0\xB6\x02\x02\x01\x01c\x02\0",
            b"\x02\x08\0\0\0\0\0\0\0\x01\x02\0",
            b"\x03\x08\0\0\0\0\0\0\0\x02",
            b"\x04\x08\0\0\0\0\0\0\0",
        ];
        for (message, contents) in messages().iter().zip(contents) {
            assert_eq!(message.encode(), [ends, contents].concat(), "{message:?}");
        }
    }

    #[test]
    fn encoded_messages_are_read_and_parts_of_them_are_not() {
        for message in messages() {
            let bytes = message.encode();
            for length in 0..bytes.len() {
                assert!(CatchUpMessage::read(bytes.slice(..length)).is_err(), "{length} bytes");
            }
            assert_eq!(CatchUpMessage::read(bytes), Ok(message));
        }
    }

    #[test]
    fn parts_out_of_order_are_refused() {
        let refused = |after: Place, keys: &[&'static str], through: Place| {
            let item = |it: &&'static str| Item { key: key(it), version: Version(1), object: None };
            let items = keys.iter().map(item).collect();
            let part = ToReceiver::Part { number: 1, snapshot: (2, 1), after, items, through };
            CatchUpMessage::read(message(CatchUpContents::ToReceiver(part)).encode()).is_err()
        };
        assert!(!refused(Place::Begin, &["a", "b"], Place::End));
        assert!(refused(Place::Begin, &["b", "a"], Place::End));
        assert!(refused(Place::Key(key("b")), &["b"], Place::End));
        assert!(refused(Place::End, &[], Place::End));
        assert!(refused(Place::Begin, &["a"], Place::Key(key("b"))));
        assert!(refused(Place::Begin, &[], Place::Begin));
    }

    #[test]
    fn random_bytes_make_no_panic() {
        let mut rng = SplitMix64::new(3);
        for good in messages().iter().map(CatchUpMessage::encode) {
            for _ in 0..10_000 {
                let mut bad = good.to_vec();
                for _ in 0..=rng.below(4) {
                    let at = usize::try_from(rng.below(bad.len() as u64)).unwrap();
                    bad[at] = u8::try_from(rng.below(256)).unwrap();
                }
                if let Ok(message) = CatchUpMessage::read(bad.into()) {
                    assert_eq!(CatchUpMessage::read(message.encode()), Ok(message));
                }
            }
        }
    }
}
