//! Sections: the part of a state of version 4 behind the fields of version 3. `docs/formats/membership.md`.
//!
//! A section is a tag and bytes, and is there only if it has something. A state without one is written as version 3, so
//! that the program before reads it. A program that meets a tag that it does not know refuses the state: a later
//! program adds a section, and the version stays.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use protocol::peer::{Malformed, Reader, put_bytes, put_varint};
use ring::Birth;

use super::State;
use super::births::{Registration, StoreBirths};
use super::bounds::{FOUNDED_N_VAL_MAX, MEMBERS_MAX, STORES_MAX};
use super::fields::{count, node, owners, put_owners};
use super::founding::{Consistent, Founding};
use super::policy_records::PolicyRecords;

/// Registrations of stores, and foundings.
const CONSISTENT: u8 = 1;

/// Records of the security policy.
const POLICY: u8 = 2;

/// The sections of a state.
#[derive(Debug, Default)]
pub(super) struct Sections {
    pub(super) consistent: Option<Consistent>,
    pub(super) policy: Option<Arc<PolicyRecords>>,
}

/// Whether a state has a section.
pub(super) fn are_in(state: &State) -> bool {
    state.consistent.is_some() || state.policy.is_some()
}

/// Appends the sections of a state, in the order of their tags.
pub(super) fn put(out: &mut BytesMut, state: &State) {
    put_varint(out, u64::from(state.consistent.is_some()) + u64::from(state.policy.is_some()));
    if let Some(consistent) = &state.consistent {
        let mut section = BytesMut::new();
        put_consistent(&mut section, consistent);
        out.put_u8(CONSISTENT);
        put_bytes(out, &section);
    }
    if let Some(policy) = &state.policy {
        let mut section = BytesMut::new();
        policy.put(&mut section);
        out.put_u8(POLICY);
        put_bytes(out, &section);
    }
}

/// Takes the sections off the front: one at least, each once.
pub(super) fn read(fields: &mut Reader) -> Result<Sections, Malformed> {
    let mut sections = Sections::default();
    let mut last = 0;
    for _ in 0..count(fields, usize::from(u8::MAX))? {
        let (tag, mut section) = (fields.u8()?, Reader::new(fields.bytes()?));
        if tag <= last {
            return Err(Malformed("sections out of order"));
        }
        match tag {
            CONSISTENT => sections.consistent = Some(consistent(&mut section)?),
            POLICY => sections.policy = Some(Arc::new(PolicyRecords::read(&mut section)?)),
            _ => return Err(Malformed("a state of a newer program")),
        }
        section.end()?;
        last = tag;
    }
    if last == 0 { Err(Malformed("no section")) } else { Ok(sections) }
}

fn put_consistent(out: &mut BytesMut, consistent: &Consistent) {
    put_varint(out, consistent.registrations.len() as u64);
    for (node, Registration { starts, start, stores }) in &consistent.registrations {
        out.put_u16_le(node.0);
        out.put_u32_le(*starts);
        out.put_u64_le(*start);
        put_stores(out, stores);
    }
    put_varint(out, consistent.foundings.len() as u64);
    for (n_val, Founding { number, epoch, owners, stores }) in &consistent.foundings {
        out.put_u8(*n_val);
        out.put_u64_le(*number);
        out.put_u16_le(*epoch);
        put_owners(out, owners);
        put_varint(out, stores.len() as u64);
        for (node, stores) in &**stores {
            out.put_u16_le(node.0);
            put_stores(out, stores);
        }
    }
}

fn consistent(fields: &mut Reader) -> Result<Consistent, Malformed> {
    let mut registrations = BTreeMap::new();
    for _ in 0..count(fields, MEMBERS_MAX)? {
        let (node, starts, start) = (node(fields)?, fields.u32()?, fields.u64()?);
        registrations.insert(node, Registration { starts, start, stores: stores(fields)? });
    }
    let mut foundings = BTreeMap::new();
    for _ in 0..count(fields, FOUNDED_N_VAL_MAX.into())? {
        let (n_val, number, epoch) = (fields.u8()?, fields.u64()?, fields.u16()?);
        let owners = Arc::from(owners(fields)?);
        let mut stores_of = BTreeMap::new();
        for _ in 0..count(fields, MEMBERS_MAX)? {
            stores_of.insert(node(fields)?, stores(fields)?);
        }
        foundings.insert(n_val, Founding { number, epoch, owners, stores: Arc::new(stores_of) });
    }
    Ok(Consistent { registrations, foundings })
}

/// Appends the births of a node's stores, each in its 48 bits.
pub(super) fn put_stores(out: &mut BytesMut, stores: &StoreBirths) {
    out.put_u8(stores.ring_bits);
    put_varint(out, stores.births.len() as u64);
    stores.births.iter().for_each(|birth| out.put_uint_le(birth.number(), (Birth::BITS / 8) as usize));
}

/// Takes the births of a node's stores off the front.
pub(super) fn stores(fields: &mut Reader) -> Result<StoreBirths, Malformed> {
    let ring_bits = fields.u8()?;
    let count = count(fields, STORES_MAX)?;
    let births = (0..count).map(|_| birth(fields)).collect::<Result<_, _>>()?;
    Ok(StoreBirths { ring_bits, births })
}

fn birth(fields: &mut Reader) -> Result<Birth, Malformed> {
    let (low, high) = (fields.u32()?, fields.u16()?);
    Birth::of(u64::from(high) << 32 | u64::from(low)).ok_or(Malformed("no birth is zero"))
}
