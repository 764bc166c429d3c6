//! The bytes of a command: `docs/formats/membership.md`.
//!
//! Invariant: no input makes a decoder panic.

use bytes::{BufMut, BytesMut};
use protocol::peer::{Malformed, Reader, put_bytes, put_varint};
use ring::{NodeId, RingVersion};

use super::bounds::RETIRED_MAX;
use super::command::{Change, Command};
use super::fields::{count, node, option, owners, put_option, put_owners, size, text};
use super::policy_records::{put_changes, read_changes};
use super::sections::{put_stores, stores};

impl Command {
    /// Appends it.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.put_u8(self.tag());
        self.put_fields(out);
    }

    /// Its number, which stands before its fields. 6 was of no command that was ever given.
    fn tag(&self) -> u8 {
        match self {
            Command::Admit { .. } => 1,
            Command::Stage { .. } => 2,
            Command::Clear { .. } => 3,
            Command::Commit { .. } => 4,
            Command::Down { .. } => 5,
            Command::Gone { .. } => 7,
            Command::Started { .. } => 8,
            Command::Retire { .. } => 9,
            Command::Slot { .. } => 10,
            Command::Adopted { .. } => 11,
            Command::Copied { .. } => 12,
            Command::StageRing { .. } => 13,
            Command::PrepareStores => 14,
            Command::RegisterStores { .. } => 15,
            Command::FoundGroups { .. } => 16,
            Command::RaiseEpoch { .. } => 17,
            Command::ChangePolicy { .. } => 18,
        }
    }

    /// Appends its fields.
    fn put_fields(&self, out: &mut BytesMut) {
        match self {
            Command::Admit { expected, name, address, zone, weight } => {
                out.put_u64_le(*expected);
                [name, address, zone].into_iter().for_each(|text| put_bytes(out, text.as_bytes()));
                out.put_u16_le(*weight);
            }
            Command::Stage { expected, node, change } => {
                out.put_u64_le(*expected);
                out.put_u16_le(node.0);
                put_change(out, change);
            }
            Command::StageRing { expected, size } => {
                out.put_u64_le(*expected);
                out.put_u32_le(size.partitions());
            }
            Command::Clear { expected } => out.put_u64_le(*expected),
            Command::Commit { expected, owners } => {
                out.put_u64_le(*expected);
                put_owners(out, owners);
            }
            Command::Down { expected, node } => {
                out.put_u64_le(*expected);
                out.put_u16_le(node.0);
            }
            Command::Gone { node } => out.put_u16_le(node.0),
            Command::Started { node, starts, start, address } => {
                out.put_u16_le(node.0);
                out.put_u32_le(*starts);
                out.put_u64_le(*start);
                put_bytes(out, address.as_bytes());
            }
            Command::Retire { actors } => {
                put_varint(out, actors.len() as u64);
                actors.iter().for_each(|&actor| out.put_u64_le(actor));
            }
            Command::Slot { name, before, value } => {
                put_bytes(out, name);
                put_option(out, before.as_ref());
                put_option(out, value.as_ref());
            }
            Command::Adopted { node, version: RingVersion(version) } => {
                out.put_u16_le(node.0);
                out.put_u64_le(*version);
            }
            Command::Copied { node, target: RingVersion(target) } => {
                out.put_u16_le(node.0);
                out.put_u64_le(*target);
            }
            Command::PrepareStores => {}
            Command::RegisterStores { node, starts, start, stores } => {
                out.put_u16_le(node.0);
                out.put_u32_le(*starts);
                out.put_u64_le(*start);
                put_stores(out, stores);
            }
            Command::FoundGroups { expected, n_val, number } => {
                out.put_u64_le(*expected);
                out.put_u8(*n_val);
                out.put_u64_le(*number);
            }
            Command::RaiseEpoch { n_val, expected } => {
                out.put_u8(*n_val);
                out.put_u16_le(*expected);
            }
            Command::ChangePolicy { expected, changes } => {
                out.put_u64_le(*expected);
                put_changes(out, changes);
            }
        }
    }

    /// Whether its bytes would be read again.
    pub(crate) fn is_readable(&self) -> bool {
        let mut bytes = BytesMut::new();
        self.encode(&mut bytes);
        Command::read(&mut Reader::new(bytes.freeze())).is_ok()
    }

    /// Takes one off the front.
    pub(crate) fn read(fields: &mut Reader) -> Result<Command, Malformed> {
        Ok(match fields.u8()? {
            1 => Command::Admit {
                expected: fields.u64()?,
                name: text(fields)?,
                address: text(fields)?,
                zone: text(fields)?,
                weight: fields.u16()?,
            },
            2 => Command::Stage { expected: fields.u64()?, node: node(fields)?, change: change(fields)? },
            3 => Command::Clear { expected: fields.u64()? },
            4 => Command::Commit { expected: fields.u64()?, owners: owners(fields)? },
            5 => Command::Down { expected: fields.u64()?, node: node(fields)? },
            7 => Command::Gone { node: node(fields)? },
            8 => Command::Started {
                node: node(fields)?,
                starts: fields.u32()?,
                start: fields.u64()?,
                address: text(fields)?,
            },
            9 => {
                let count = count(fields, RETIRED_MAX)?;
                Command::Retire { actors: (0..count).map(|_| fields.u64()).collect::<Result<_, _>>()? }
            }
            10 => Command::Slot { name: fields.bytes()?, before: option(fields)?, value: option(fields)? },
            11 => Command::Adopted { node: node(fields)?, version: RingVersion(fields.u64()?) },
            12 => Command::Copied { node: node(fields)?, target: RingVersion(fields.u64()?) },
            13 => Command::StageRing { expected: fields.u64()?, size: size(fields)? },
            14 => Command::PrepareStores,
            15 => Command::RegisterStores {
                node: node(fields)?,
                starts: fields.u32()?,
                start: fields.u64()?,
                stores: stores(fields)?,
            },
            16 => {
                Command::FoundGroups { expected: fields.u64()?, n_val: fields.u8()?, number: fields.u64()? }
            }
            17 => Command::RaiseEpoch { n_val: fields.u8()?, expected: fields.u16()? },
            18 => Command::ChangePolicy { expected: fields.u64()?, changes: read_changes(fields)? },
            _ => return Err(Malformed("an unknown command")),
        })
    }
}

pub(super) fn put_change(out: &mut BytesMut, change: &Change) {
    let (tag, value) = match *change {
        Change::Join => (0, 0),
        Change::Leave => (1, 0),
        Change::Replace(by) => (2, by.0),
        Change::ForceReplace(by) => (3, by.0),
        Change::ForceRemove => (4, 0),
        Change::Weigh(weight) => (5, weight),
    };
    out.put_u8(tag);
    out.put_u16_le(value);
}

pub(super) fn change(fields: &mut Reader) -> Result<Change, Malformed> {
    let (tag, value) = (fields.u8()?, fields.u16()?);
    Ok(match tag {
        0 => Change::Join,
        1 => Change::Leave,
        2 => Change::Replace(NodeId(value)),
        3 => Change::ForceReplace(NodeId(value)),
        4 => Change::ForceRemove,
        5 => Change::Weigh(value),
        _ => return Err(Malformed("an unknown change")),
    })
}
