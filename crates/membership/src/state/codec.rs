//! The bytes of a state and of a command: `docs/formats/membership.md`.
//!
//! Invariant: no input makes a decoder panic; what is decoded keeps the state's invariants, or is refused; no memory is
//! taken for a count that the bytes behind it could not fill.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_bytes, put_varint};
use ring::{Member, MemberState, NodeId, RingSize, RingVersion};

use super::State;
use super::bounds::{MEMBERS_MAX, RETIRED_MAX, SLOTS_MAX, STAGED_MAX, TEXT_BYTES_MAX};
use super::command::{Change, Command, Rejected};
use super::policy;
use super::record::{MemberDecision, Record};
use super::sections::{self, Sections};
use super::step::Step;
use crate::ClusterId;

/// The format of a state with sections.
const VERSION_OF_SECTIONS: u8 = 4;

/// The format of a state without: so written, a program before sections reads it.
const VERSION_WITHOUT_SECTIONS: u8 = 3;

/// An earlier one, which is read: a ring did not grow, and keys were ordered by its partitions.
const VERSION_OF_ONE_SIZE: u8 = 2;

/// An earlier one, which is read: a ring had no steps, and partitions moved one by one.
const VERSION_OF_MOVES: u8 = 1;

fn text(fields: &mut Reader) -> Result<String, Malformed> {
    let bytes = fields.bytes()?;
    if bytes.len() > TEXT_BYTES_MAX {
        return Err(Malformed("a text is too long"));
    }
    std::str::from_utf8(&bytes).map(str::to_owned).map_err(|_| Malformed("a text is not UTF-8"))
}

/// A count of things of which each takes a byte or more.
pub(super) fn count(fields: &mut Reader, max: usize) -> Result<usize, Malformed> {
    let count = fields.count()?;
    if count > max { Err(Malformed("too many")) } else { Ok(count) }
}

fn size(fields: &mut Reader) -> Result<RingSize, Malformed> {
    RingSize::new(fields.u32()?).map_err(|_| Malformed("no such ring size"))
}

pub(super) fn node(fields: &mut Reader) -> Result<NodeId, Malformed> {
    fields.u16().map(NodeId)
}

fn put_change(out: &mut BytesMut, change: &Change) {
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

fn change(fields: &mut Reader) -> Result<Change, Malformed> {
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

fn put_nodes(out: &mut BytesMut, nodes: &BTreeSet<NodeId>) {
    put_varint(out, nodes.len() as u64);
    nodes.iter().for_each(|node| out.put_u16_le(node.0));
}

fn nodes(fields: &mut Reader) -> Result<BTreeSet<NodeId>, Malformed> {
    (0..count(fields, MEMBERS_MAX)?).map(|_| node(fields)).collect()
}

/// Owners in runs: (length, owner).
pub(super) fn put_owners(out: &mut BytesMut, owners: &[NodeId]) {
    let runs: Vec<&[NodeId]> = owners.chunk_by(|a, b| a == b).collect();
    put_varint(out, runs.len() as u64);
    for run in runs {
        put_varint(out, run.len() as u64);
        out.put_u16_le(run[0].0);
    }
}

pub(super) fn owners(fields: &mut Reader) -> Result<Vec<NodeId>, Malformed> {
    let max = ring::RING_SIZE_MAX as usize;
    let mut owners = Vec::new();
    for _ in 0..count(fields, max)? {
        let (len, owner) = (count(fields, max - owners.len())?, node(fields)?);
        owners.resize(owners.len() + len, owner);
    }
    Ok(owners)
}

pub(super) fn put_option(out: &mut BytesMut, value: Option<&Bytes>) {
    out.put_u8(value.is_some().into());
    value.into_iter().for_each(|value| put_bytes(out, value));
}

pub(super) fn option(fields: &mut Reader) -> Result<Option<Bytes>, Malformed> {
    Ok(if fields.u8()? == 0 { None } else { Some(fields.bytes()?) })
}

impl Command {
    /// Appends it.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        match self {
            Command::Admit { expected, name, address, zone, weight } => {
                out.put_u8(1);
                out.put_u64_le(*expected);
                [name, address, zone].into_iter().for_each(|text| put_bytes(out, text.as_bytes()));
                out.put_u16_le(*weight);
            }
            Command::Stage { expected, node, change } => {
                out.put_u8(2);
                out.put_u64_le(*expected);
                out.put_u16_le(node.0);
                put_change(out, change);
            }
            Command::StageRing { expected, size } => {
                out.put_u8(13);
                out.put_u64_le(*expected);
                out.put_u32_le(size.partitions());
            }
            Command::Clear { expected } => {
                out.put_u8(3);
                out.put_u64_le(*expected);
            }
            Command::Commit { expected, owners } => {
                out.put_u8(4);
                out.put_u64_le(*expected);
                put_owners(out, owners);
            }
            Command::Down { expected, node } => {
                out.put_u8(5);
                out.put_u64_le(*expected);
                out.put_u16_le(node.0);
            }
            Command::Gone { node } => {
                out.put_u8(7);
                out.put_u16_le(node.0);
            }
            Command::Started { node, starts, start, address } => {
                out.put_u8(8);
                out.put_u16_le(node.0);
                out.put_u32_le(*starts);
                out.put_u64_le(*start);
                put_bytes(out, address.as_bytes());
            }
            Command::Retire { actors } => {
                out.put_u8(9);
                put_varint(out, actors.len() as u64);
                actors.iter().for_each(|&actor| out.put_u64_le(actor));
            }
            Command::Slot { name, before, value } => {
                out.put_u8(10);
                put_bytes(out, name);
                put_option(out, before.as_ref());
                put_option(out, value.as_ref());
            }
            Command::Adopted { node, version: RingVersion(version) } => {
                out.put_u8(11);
                out.put_u16_le(node.0);
                out.put_u64_le(*version);
            }
            Command::Copied { node, target: RingVersion(target) } => {
                out.put_u8(12);
                out.put_u16_le(node.0);
                out.put_u64_le(*target);
            }
            Command::PrepareStores => out.put_u8(14),
            Command::RegisterStores { node, starts, start, stores } => {
                out.put_u8(15);
                out.put_u16_le(node.0);
                out.put_u32_le(*starts);
                out.put_u64_le(*start);
                sections::put_stores(out, stores);
            }
            Command::FoundGroups { expected, n_val, number } => {
                out.put_u8(16);
                out.put_u64_le(*expected);
                out.put_u8(*n_val);
                out.put_u64_le(*number);
            }
            Command::RaiseEpoch { n_val, expected } => {
                out.put_u8(17);
                out.put_u8(*n_val);
                out.put_u16_le(*expected);
            }
            Command::ChangePolicy { expected, changes } => {
                out.put_u8(18);
                out.put_u64_le(*expected);
                policy::put_changes(out, changes);
            }
        }
    }

    /// Whether what is encoded of it would be read again.
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
            // 6 was of no command that was ever given.
            11 => Command::Adopted { node: node(fields)?, version: RingVersion(fields.u64()?) },
            12 => Command::Copied { node: node(fields)?, target: RingVersion(fields.u64()?) },
            13 => Command::StageRing { expected: fields.u64()?, size: size(fields)? },
            14 => Command::PrepareStores,
            15 => Command::RegisterStores {
                node: node(fields)?,
                starts: fields.u32()?,
                start: fields.u64()?,
                stores: sections::stores(fields)?,
            },
            16 => {
                Command::FoundGroups { expected: fields.u64()?, n_val: fields.u8()?, number: fields.u64()? }
            }
            17 => Command::RaiseEpoch { n_val: fields.u8()?, expected: fields.u16()? },
            18 => Command::ChangePolicy { expected: fields.u64()?, changes: policy::read_changes(fields)? },
            _ => return Err(Malformed("an unknown command")),
        })
    }
}

fn state_code(state: MemberState) -> u8 {
    match state {
        MemberState::Joining => 0,
        MemberState::Valid => 1,
        MemberState::Leaving => 2,
        MemberState::Exiting => 3,
        MemberState::Down => 4,
    }
}

fn fate_code(fate: MemberDecision) -> u8 {
    match fate {
        MemberDecision::Stays => 0,
        MemberDecision::Leaves => 1,
        MemberDecision::Forgotten => 2,
    }
}

fn fate(fields: &mut Reader) -> Result<MemberDecision, Malformed> {
    let code = fields.u8()?;
    let fates = [MemberDecision::Stays, MemberDecision::Leaves, MemberDecision::Forgotten];
    fates.into_iter().find(|&fate| fate_code(fate) == code).ok_or(Malformed("an unknown fate"))
}

fn put_step(out: &mut BytesMut, step: &Step) {
    match step {
        Step::AtRest => out.put_u8(0),
        Step::Copying { target, version, copied } => {
            out.put_u8(1);
            put_owners(out, target);
            out.put_u64_le(version.0);
            put_nodes(out, copied);
        }
        Step::Switched { before } => {
            out.put_u8(2);
            put_owners(out, before);
        }
    }
}

fn step(fields: &mut Reader) -> Result<Step, Malformed> {
    Ok(match fields.u8()? {
        0 => Step::AtRest,
        1 => Step::Copying {
            target: owners(fields)?,
            version: RingVersion(fields.u64()?),
            copied: nodes(fields)?,
        },
        2 => Step::Switched { before: owners(fields)? },
        _ => return Err(Malformed("an unknown step")),
    })
}

/// What stood in the place of the step: partitions that were to have another owner. Here they come to be the next ones.
fn owners_after_moves(
    fields: &mut Reader,
    size: RingSize,
    owners: &[NodeId],
) -> Result<Option<Vec<NodeId>>, Malformed> {
    let mut next = owners.to_vec();
    let moves = count(fields, size.all().len())?;
    for _ in 0..moves {
        let partition = usize::try_from(fields.varint()?).ok();
        let owner = partition.and_then(|at| next.get_mut(at));
        *owner.ok_or(Malformed("no such partition"))? = node(fields)?;
    }
    Ok((moves > 0).then_some(next))
}

fn record(fields: &mut Reader, version: u8) -> Result<Record, Malformed> {
    let (id, name, zone) = (node(fields)?, Arc::from(text(fields)?), Arc::from(text(fields)?));
    let (address, weight) = (Arc::from(text(fields)?), fields.u16()?);
    let code = usize::from(fields.u8()?);
    let state = MemberState::ALL.into_iter().find(|&state| usize::from(state_code(state)) == code);
    let state = state.ok_or(Malformed("an unknown state"))?;
    let (starts, start) = (fields.u32()?, fields.u64()?);
    let fate = match (version, state) {
        (VERSION_OF_MOVES, MemberState::Leaving | MemberState::Exiting) => MemberDecision::Leaves,
        (VERSION_OF_MOVES, _) => MemberDecision::Stays,
        _ => fate(fields)?,
    };
    Ok(Record { member: Member { id, name, zone, weight, state }, address, starts, start, fate })
}

impl State {
    /// The bytes of it: the same for equal states.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        let has_sections = sections::are_in(self);
        out.put_u8(if has_sections { VERSION_OF_SECTIONS } else { VERSION_WITHOUT_SECTIONS });
        out.put_u64_le(self.cluster.0);
        out.put_u64_le(self.version);
        out.put_u64_le(self.ring_version.0);
        out.put_u32_le(self.founded.partitions());
        out.put_u32_le(self.prefixes.partitions());
        out.put_u16_le(self.next_id);
        put_varint(&mut out, self.members.len() as u64);
        for record in self.members.values() {
            let member = &record.member;
            out.put_u16_le(member.id.0);
            [&member.name, &member.zone, &record.address]
                .into_iter()
                .for_each(|text| put_bytes(&mut out, text.as_bytes()));
            out.put_u16_le(member.weight);
            out.put_u8(state_code(member.state));
            out.put_u32_le(record.starts);
            out.put_u64_le(record.start);
            out.put_u8(fate_code(record.fate));
        }
        put_owners(&mut out, &self.owners);
        put_step(&mut out, &self.step);
        out.put_u8(self.next.is_some().into());
        self.next.iter().for_each(|next| put_owners(&mut out, next));
        put_nodes(&mut out, &self.adopted);
        put_varint(&mut out, self.staged.len() as u64);
        for (node, change) in &self.staged {
            out.put_u16_le(node.0);
            put_change(&mut out, change);
        }
        // No ring has 0 partitions.
        out.put_u32_le(self.staged_size.map_or(0, RingSize::partitions));
        put_varint(&mut out, self.retired.len() as u64);
        self.retired.iter().for_each(|&actor| out.put_u64_le(actor));
        put_varint(&mut out, self.slots.len() as u64);
        for (name, value) in &self.slots {
            put_bytes(&mut out, name);
            put_bytes(&mut out, value);
        }
        if has_sections {
            sections::put(&mut out, self);
        }
        out.freeze()
    }

    /// The state that `bytes` are.
    ///
    /// # Errors
    /// [`Malformed`], also for a state that could not have come to be.
    pub fn decode(bytes: Bytes) -> Result<State, Malformed> {
        let mut fields = Reader::new(bytes);
        let fields = &mut fields;
        let format = fields.u8()?;
        if !(VERSION_OF_MOVES..=VERSION_OF_SECTIONS).contains(&format) {
            return Err(Malformed("a state of another format"));
        }
        let has_sizes = format > VERSION_OF_ONE_SIZE;
        let (cluster, version, ring_version) =
            (ClusterId(fields.u64()?), fields.u64()?, RingVersion(fields.u64()?));
        let founded = size(fields)?;
        let prefixes = if has_sizes { size(fields)? } else { founded };
        let next_id = fields.u16()?;
        let mut members = BTreeMap::new();
        for _ in 0..count(fields, MEMBERS_MAX)? {
            let record = record(fields, format)?;
            members.insert(record.member.id, record);
        }
        let owners = owners(fields)?;
        let (step, next, adopted) = if format == VERSION_OF_MOVES {
            (Step::AtRest, owners_after_moves(fields, founded, &owners)?, BTreeSet::new())
        } else {
            let step = step(fields)?;
            let next = if fields.u8()? == 0 { None } else { Some(self::owners(fields)?) };
            (step, next, nodes(fields)?)
        };
        let mut staged = BTreeMap::new();
        for _ in 0..count(fields, STAGED_MAX)? {
            staged.insert(node(fields)?, change(fields)?);
        }
        let staged_size = if has_sizes { Some(fields.u32()?).filter(|it| *it > 0) } else { None };
        let staged_size =
            staged_size.map(RingSize::new).transpose().map_err(|_| Malformed("no such ring size"))?;
        let retired_count = count(fields, RETIRED_MAX)?;
        let retired = (0..retired_count).map(|_| fields.u64()).collect::<Result<BTreeSet<u64>, _>>()?;
        let mut slots = BTreeMap::new();
        for _ in 0..count(fields, SLOTS_MAX)? {
            slots.insert(fields.bytes()?, fields.bytes()?);
        }
        let sections = format == VERSION_OF_SECTIONS;
        let Sections { consistent, policy } =
            if sections { sections::read(fields)? } else { Sections::default() };
        fields.end()?;
        let state = State {
            cluster,
            version,
            ring_version,
            founded,
            prefixes,
            next_id,
            members,
            owners,
            step,
            next,
            adopted,
            staged,
            staged_size,
            retired,
            slots,
            consistent,
            policy,
        };
        state.flaw().map_or(Ok(state), |flaw| Err(Malformed(flaw)))
    }
}

impl Rejected {
    /// Its code, from 16 on, and the number in it.
    pub(crate) fn code(&self) -> (u8, u32) {
        use Rejected::*;
        match *self {
            Stale => (16, 0),
            NotMember => (17, 0),
            NameTaken => (18, 0),
            Full => (19, 0),
            State(state) => (20, state_code(state).into()),
            NotJoining => (21, 0),
            NobodyLeft => (22, 0),
            NothingStaged => (23, 0),
            Owners => (24, 0),
            Text => (26, 0),
            Restored { starts } => (27, starts),
            Moving => (28, 0),
            // Both are powers of two.
            Size { has, most } => (29, has.trailing_zeros() << 8 | most.trailing_zeros()),
            Life => (30, 0),
            Unprepared => (31, 0),
            Stores => (32, 0),
            Unregistered(node) => (33, node.0.into()),
            NVal => (34, 0),
            Unfounded => (35, 0),
            Pinned => (36, 0),
            Policy => (37, 0),
        }
    }

    /// The one with this code.
    pub(crate) fn of_code(code: u8, number: u32) -> Option<Self> {
        use Rejected::*;
        Some(match code {
            16 => Stale,
            17 => NotMember,
            18 => NameTaken,
            19 => Full,
            20 => State(MemberState::ALL.into_iter().find(|&state| u32::from(state_code(state)) == number)?),
            21 => NotJoining,
            22 => NobodyLeft,
            23 => NothingStaged,
            24 => Owners,
            26 => Text,
            27 => Restored { starts: number },
            28 => Moving,
            29 if number >> 8 < 32 && number & 0xff < 32 => {
                Size { has: 1 << (number >> 8), most: 1 << (number & 0xff) }
            }
            30 => Life,
            31 => Unprepared,
            32 => Stores,
            33 => Unregistered(NodeId(u16::try_from(number).ok()?)),
            34 => NVal,
            35 => Unfounded,
            36 => Pinned,
            37 => Policy,
            _ => return None,
        })
    }
}
