//! The bytes of a state: `docs/formats/membership.md`.
//!
//! Invariant: no input makes a decoder panic; a decoded state keeps its invariants, or is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_bytes, put_varint};
use ring::{Member, MemberState, NodeId, RingSize, RingVersion};

use super::State;
use super::bounds::{MEMBERS_MAX, RETIRED_MAX, SLOTS_MAX, STAGED_MAX};
use super::command_codec::{change, put_change};
use super::fields::{count, node, nodes, owners, put_nodes, put_owners, size, state_code, text};
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
