//! The fields that the bytes of states, commands and records have in common.
//!
//! Invariant: no memory is taken for a count that the bytes behind it could not fill.

use std::collections::BTreeSet;

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_bytes, put_varint};
use ring::{MemberState, NodeId, RingSize};

use super::bounds::{MEMBERS_MAX, TEXT_BYTES_MAX};

pub(super) fn text(fields: &mut Reader) -> Result<String, Malformed> {
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

pub(super) fn size(fields: &mut Reader) -> Result<RingSize, Malformed> {
    RingSize::new(fields.u32()?).map_err(|_| Malformed("no such ring size"))
}

pub(super) fn node(fields: &mut Reader) -> Result<NodeId, Malformed> {
    fields.u16().map(NodeId)
}

pub(super) fn put_nodes(out: &mut BytesMut, nodes: &BTreeSet<NodeId>) {
    put_varint(out, nodes.len() as u64);
    nodes.iter().for_each(|node| out.put_u16_le(node.0));
}

pub(super) fn nodes(fields: &mut Reader) -> Result<BTreeSet<NodeId>, Malformed> {
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

/// The code of a member's state.
pub(super) fn state_code(state: MemberState) -> u8 {
    match state {
        MemberState::Joining => 0,
        MemberState::Valid => 1,
        MemberState::Leaving => 2,
        MemberState::Exiting => 3,
        MemberState::Down => 4,
    }
}
