//! The bytes of records (`docs/formats/security.md`).
//!
//! A record is its version, its name and its content, and nothing after. The bytes of a name are the same in each
//! version, since they are the key of the record in the cluster's log.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::{BufMut, Bytes, BytesMut};
use ipnet::IpNet;
use protocol::peer::{Malformed, Reader, put_bytes, put_varint};

use crate::Error;
use crate::credential::{Credential, PBKDF2_ROUNDS_MAX, VERIFIER_BYTES_MAX};
use crate::name::Name;
use crate::permission::Permissions;
use crate::slot::*;
use crate::source::{Method, Source, SourceUser, normal_net};

/// The version of records that is written, and the only one read.
pub const SLOT_VERSION: u8 = 1;

/// Room for most records.
const SLOT_BYTES: usize = 128;

mod kind {
    pub const SETTINGS: u8 = 0;
    pub const USER: u8 = 1;
    pub const GROUP: u8 = 2;
    pub const SOURCE: u8 = 3;
    pub const GRANT: u8 = 4;
}

impl Slot {
    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(SLOT_BYTES);
        let out = &mut bytes;
        out.put_u8(SLOT_VERSION);
        put_key(out, &self.key());
        match self {
            Slot::Settings(settings) => {
                out.put_u8(mode_byte(settings.mode));
                put_bytes(out, &settings.ciphers);
            }
            Slot::User(user) => {
                put_credential(out, user.credential.as_ref());
                put_groups(out, &user.groups);
                put_options(out, &user.options);
            }
            Slot::Group(group) => {
                put_groups(out, &group.groups);
                put_options(out, &group.options);
            }
            Slot::Source(source) => {
                out.put_u8(match source.method {
                    Method::Trust => 0,
                    Method::Password => 1,
                    Method::Certificate => 2,
                });
                put_options(out, &source.options);
            }
            Slot::Grant(grant) => out.put_u64_le(grant.permissions.0),
        }
        bytes.freeze()
    }

    /// The record in bytes.
    ///
    /// # Errors
    /// [`Error::Version`] for one of a newer program, [`Error::Malformed`].
    pub fn read(bytes: Bytes) -> Result<Slot, Error> {
        let mut fields = Reader::new(bytes);
        let version = fields.u8()?;
        if version != SLOT_VERSION {
            return Err(Error::Version(version));
        }
        let key = read_key(&mut fields)?;
        let slot = read_content(&mut fields, key)?;
        fields.end()?;
        Ok(slot)
    }
}

impl SlotKey {
    /// Its bytes: the key of the record in the cluster's log.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(SLOT_BYTES);
        put_key(&mut out, self);
        out.freeze()
    }

    /// The name in bytes.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub fn read(bytes: Bytes) -> Result<SlotKey, Error> {
        let mut fields = Reader::new(bytes);
        let key = read_key(&mut fields)?;
        fields.end()?;
        Ok(key)
    }
}

fn put_key(out: &mut BytesMut, key: &SlotKey) {
    match key {
        SlotKey::Settings => out.put_u8(kind::SETTINGS),
        SlotKey::User(name) => {
            out.put_u8(kind::USER);
            put_bytes(out, name.as_bytes());
        }
        SlotKey::Group(name) => {
            out.put_u8(kind::GROUP);
            put_bytes(out, name.as_bytes());
        }
        SlotKey::Source(user, net) => {
            out.put_u8(kind::SOURCE);
            put_source_user(out, user);
            put_net(out, net);
        }
        SlotKey::Grant(role, resource) => {
            out.put_u8(kind::GRANT);
            put_role(out, role);
            put_resource(out, resource);
        }
    }
}

fn read_key(fields: &mut Reader) -> Result<SlotKey, Malformed> {
    Ok(match fields.u8()? {
        kind::SETTINGS => SlotKey::Settings,
        kind::USER => SlotKey::User(read_name(fields)?),
        kind::GROUP => SlotKey::Group(read_name(fields)?),
        kind::SOURCE => SlotKey::Source(read_source_user(fields)?, read_net(fields)?),
        kind::GRANT => SlotKey::Grant(read_role(fields)?, read_resource(fields)?),
        _ => return Err(Malformed("an unknown kind of record")),
    })
}

fn mode_byte(mode: Mode) -> u8 {
    match mode {
        Mode::Off => 0,
        Mode::On => 1,
        Mode::Permissive => 2,
    }
}

fn read_content(fields: &mut Reader, key: SlotKey) -> Result<Slot, Malformed> {
    Ok(match key {
        SlotKey::Settings => {
            let mode = match fields.u8()? {
                0 => Mode::Off,
                1 => Mode::On,
                2 => Mode::Permissive,
                _ => return Err(Malformed("an unknown mode of security")),
            };
            Slot::Settings(Settings { mode, ciphers: read_bytes(fields, OPTION_BYTES_MAX)? })
        }
        SlotKey::User(name) => {
            let credential = read_credential(fields)?;
            let (groups, options) = (read_groups(fields)?, read_options(fields)?);
            Slot::User(User { name, credential, groups, options })
        }
        SlotKey::Group(name) => {
            Slot::Group(Group { name, groups: read_groups(fields)?, options: read_options(fields)? })
        }
        SlotKey::Source(user, net) => {
            let method = match fields.u8()? {
                0 => Method::Trust,
                1 => Method::Password,
                2 => Method::Certificate,
                _ => return Err(Malformed("an unknown method of a source")),
            };
            Slot::Source(Source { user, net, method, options: read_options(fields)? })
        }
        SlotKey::Grant(role, resource) => match Permissions(fields.u64()?) {
            Permissions::NONE => return Err(Malformed("a grant of nothing")),
            permissions => Slot::Grant(Grant { role, resource, permissions }),
        },
    })
}

fn put_source_user(out: &mut BytesMut, user: &SourceUser) {
    match user {
        SourceUser::All => out.put_u8(0),
        SourceUser::User(name) => {
            out.put_u8(1);
            put_bytes(out, name.as_bytes());
        }
    }
}

fn read_source_user(fields: &mut Reader) -> Result<SourceUser, Malformed> {
    match fields.u8()? {
        0 => Ok(SourceUser::All),
        1 => Ok(SourceUser::User(read_name(fields)?)),
        _ => Err(Malformed("a source for nobody")),
    }
}

fn put_net(out: &mut BytesMut, net: &IpNet) {
    match net.addr() {
        IpAddr::V4(address) => {
            out.put_u8(4);
            out.put_u8(net.prefix_len());
            out.put_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.put_u8(6);
            out.put_u8(net.prefix_len());
            out.put_slice(&address.octets());
        }
    }
}

fn read_net(fields: &mut Reader) -> Result<IpNet, Malformed> {
    let (family, prefix) = (fields.u8()?, fields.u8()?);
    let address: IpAddr = match family {
        4 => Ipv4Addr::from(octets(fields)?).into(),
        6 => Ipv6Addr::from(octets::<16>(fields)?).into(),
        _ => return Err(Malformed("an unknown family of addresses")),
    };
    let net = IpNet::new(address, prefix).map_err(|_| Malformed("a prefix longer than its address"))?;
    // Else two records would be of one network.
    if net == normal_net(net) { Ok(net) } else { Err(Malformed("a network that is not normal")) }
}

fn octets<const N: usize>(fields: &mut Reader) -> Result<[u8; N], Malformed> {
    let mut octets = [0; N];
    for octet in &mut octets {
        *octet = fields.u8()?;
    }
    Ok(octets)
}

fn put_role(out: &mut BytesMut, role: &Role) {
    match role {
        Role::All => out.put_u8(0),
        Role::User(name) => {
            out.put_u8(1);
            put_bytes(out, name.as_bytes());
        }
        Role::Group(name) => {
            out.put_u8(2);
            put_bytes(out, name.as_bytes());
        }
    }
}

fn read_role(fields: &mut Reader) -> Result<Role, Malformed> {
    match fields.u8()? {
        0 => Ok(Role::All),
        1 => Ok(Role::User(read_name(fields)?)),
        2 => Ok(Role::Group(read_name(fields)?)),
        _ => Err(Malformed("a grant to nobody")),
    }
}

fn put_resource(out: &mut BytesMut, resource: &Resource) {
    match resource {
        Resource::Any => out.put_u8(0),
        Resource::Type(bucket_type) => {
            out.put_u8(1);
            put_bytes(out, bucket_type);
        }
        Resource::Bucket(bucket_type, bucket) => {
            out.put_u8(2);
            put_bytes(out, bucket_type);
            put_bytes(out, bucket);
        }
    }
}

fn read_resource(fields: &mut Reader) -> Result<Resource, Malformed> {
    let resource_name = |fields: &mut Reader| {
        let name = read_bytes(fields, RESOURCE_NAME_BYTES_MAX)?;
        if name.is_empty() { Err(Malformed("an empty name in a grant")) } else { Ok(name) }
    };
    match fields.u8()? {
        0 => Ok(Resource::Any),
        1 => Ok(Resource::Type(resource_name(fields)?)),
        2 => Ok(Resource::Bucket(resource_name(fields)?, resource_name(fields)?)),
        _ => Err(Malformed("a grant on an unknown thing")),
    }
}

fn put_credential(out: &mut BytesMut, credential: Option<&Credential>) {
    match credential {
        None => out.put_u8(0),
        Some(Credential::Argon2id(verifier)) => {
            out.put_u8(1);
            put_bytes(out, verifier);
        }
        Some(Credential::RiakPbkdf2 { rounds, salt, hash }) => {
            out.put_u8(2);
            put_varint(out, (*rounds).into());
            put_bytes(out, salt);
            put_bytes(out, hash);
        }
    }
}

fn read_credential(fields: &mut Reader) -> Result<Option<Credential>, Malformed> {
    let verifier = |fields: &mut Reader| {
        let bytes = read_bytes(fields, VERIFIER_BYTES_MAX)?;
        // An empty one could be taken for the verifier of any password.
        if bytes.is_empty() { Err(Malformed("an empty verifier")) } else { Ok(bytes) }
    };
    match fields.u8()? {
        0 => Ok(None),
        1 => Ok(Some(Credential::Argon2id(verifier(fields)?))),
        2 => {
            let rounds = u32::try_from(fields.varint()?).unwrap_or(u32::MAX);
            if !(1..=PBKDF2_ROUNDS_MAX).contains(&rounds) {
                return Err(Malformed("rounds of a hash out of bounds"));
            }
            let (salt, hash) = (read_bytes(fields, VERIFIER_BYTES_MAX)?, verifier(fields)?);
            Ok(Some(Credential::RiakPbkdf2 { rounds, salt, hash }))
        }
        _ => Err(Malformed("an unknown kind of credential")),
    }
}

fn put_groups(out: &mut BytesMut, groups: &BTreeSet<Name>) {
    put_varint(out, groups.len() as u64);
    for group in groups {
        put_bytes(out, group.as_bytes());
    }
}

fn read_groups(fields: &mut Reader) -> Result<BTreeSet<Name>, Malformed> {
    let count = read_count(fields, MEMBERSHIPS_MAX)?;
    let mut groups = BTreeSet::new();
    for _ in 0..count {
        let group = read_name(fields)?;
        if groups.last().is_some_and(|last| *last >= group) {
            return Err(Malformed("groups out of order"));
        }
        groups.insert(group);
    }
    Ok(groups)
}

fn put_options(out: &mut BytesMut, options: &Options) {
    put_varint(out, options.len() as u64);
    for (name, value) in options {
        put_bytes(out, name);
        put_bytes(out, value);
    }
}

fn read_options(fields: &mut Reader) -> Result<Options, Malformed> {
    let count = read_count(fields, OPTIONS_MAX)?;
    let mut options = Options::new();
    for _ in 0..count {
        let name = read_bytes(fields, OPTION_BYTES_MAX)?;
        if options.last_key_value().is_some_and(|(last, _)| *last >= name) {
            return Err(Malformed("options out of order"));
        }
        options.insert(name, read_bytes(fields, OPTION_BYTES_MAX)?);
    }
    Ok(options)
}

fn read_count(fields: &mut Reader, max: usize) -> Result<usize, Malformed> {
    let count = fields.count()?;
    if count > max { Err(Malformed("too many of them")) } else { Ok(count) }
}

fn read_name(fields: &mut Reader) -> Result<Name, Malformed> {
    Name::check(fields.bytes()?).map_err(|_| Malformed("no name of a user or a group"))
}

fn read_bytes(fields: &mut Reader, max: usize) -> Result<Bytes, Malformed> {
    let bytes = fields.bytes()?;
    if bytes.len() > max { Err(Malformed("bytes beyond their bound")) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests;
