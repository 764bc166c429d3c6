//! Records of the policy. The cluster's log holds them, each under its key, and changes them together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use ipnet::IpNet;

use crate::credential::Credential;
use crate::name::Name;
use crate::permission::Permissions;
use crate::source::{Source, SourceUser};

/// Groups that a user or a group is in directly. More are no help to a reader, and each costs a check some time.
pub const MEMBERSHIPS_MAX: usize = 64;

/// Bytes of the name of a bucket type or a bucket in a grant, so that a few grants do not fill the policy. A bucket
/// with a longer name has the grants of its type.
pub const RESOURCE_NAME_BYTES_MAX: usize = 4 << 10;

/// Options of a user, a group or a source.
pub const OPTIONS_MAX: usize = 16;

/// Bytes of an option's name, and of its value.
pub const OPTION_BYTES_MAX: usize = 1 << 10;

/// Options that Riak keeps and shows, by name. Those of a user may be limits (`limits`); no other one has a meaning.
pub type Options = BTreeMap<Bytes, Bytes>;

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: Name,
    /// The verifier of the password; without it no password is right.
    pub credential: Option<Credential>,
    /// Groups, at most [`MEMBERSHIPS_MAX`].
    pub groups: BTreeSet<Name>,
    /// Other options.
    pub options: Options,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name.
    pub name: Name,
    /// Groups whose grants its members have too, at most [`MEMBERSHIPS_MAX`].
    pub groups: BTreeSet<Name>,
    /// Other options.
    pub options: Options,
}

/// The receiver of a grant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A user.
    User(Name),
    /// The members of a group.
    Group(Name),
    /// All users.
    All,
}

/// The things that a grant is for. The order is that of names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Everything.
    Any,
    /// A bucket type, and all buckets of it.
    Type(Bytes),
    /// One bucket: its type and its name.
    Bucket(Bytes, Bytes),
}

/// The target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// Nothing that has a name, or everything: only a grant on any covers it.
    Any,
    /// A bucket type.
    Type(&'a [u8]),
    /// A bucket: its type and its name.
    Bucket(&'a [u8], &'a [u8]),
}

/// Permissions of a role on a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The receiver.
    pub role: Role,
    /// The things.
    pub resource: Resource,
    /// The permissions; never none, since such a record does not exist.
    pub permissions: Permissions,
}

/// How far security is in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// No client is asked for a login.
    #[default]
    Off,
    /// All clients are let in. A login that is offered is verified, and each request that [`Mode::On`] would refuse is
    /// counted.
    Permissive,
    /// Clients log in, and have the permissions that were granted.
    On,
}

/// Settings of the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How far security is in force.
    pub mode: Mode,
    /// The ciphers that an operator asked for; empty for those of the program.
    pub ciphers: Bytes,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The settings.
    Settings(Settings),
    /// A user.
    User(User),
    /// A group.
    Group(Group),
    /// A source.
    Source(Source),
    /// A grant.
    Grant(Grant),
}

/// The name of a record: two records with the same are one, and the later one holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlotKey {
    /// The settings.
    Settings,
    /// A user.
    User(Name),
    /// A group.
    Group(Name),
    /// A source.
    Source(SourceUser, IpNet),
    /// A grant.
    Grant(Role, Resource),
}

impl Slot {
    /// Its name.
    pub fn key(&self) -> SlotKey {
        match self {
            Slot::Settings(_) => SlotKey::Settings,
            Slot::User(user) => SlotKey::User(user.name.clone()),
            Slot::Group(group) => SlotKey::Group(group.name.clone()),
            Slot::Source(source) => SlotKey::Source(source.user.clone(), source.net),
            Slot::Grant(grant) => SlotKey::Grant(grant.role.clone(), grant.resource.clone()),
        }
    }
}

impl Resource {
    /// The resource as a request names it.
    pub fn target(&self) -> Target<'_> {
        match self {
            Resource::Any => Target::Any,
            Resource::Type(bucket_type) => Target::Type(bucket_type),
            Resource::Bucket(bucket_type, bucket) => Target::Bucket(bucket_type, bucket),
        }
    }
}

impl Target<'_> {
    /// The resource of this target alone.
    pub fn resource(self) -> Resource {
        let copy = Bytes::copy_from_slice;
        match self {
            Target::Any => Resource::Any,
            Target::Type(bucket_type) => Resource::Type(copy(bucket_type)),
            Target::Bucket(bucket_type, bucket) => Resource::Bucket(copy(bucket_type), copy(bucket)),
        }
    }
}

/// As in Riak's texts: `any`, `T`, `T/B`.
impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Any => f.write_str("any"),
            Target::Type(bucket_type) => f.write_str(&String::from_utf8_lossy(bucket_type)),
            Target::Bucket(bucket_type, bucket) => {
                let (bucket_type, bucket) =
                    (String::from_utf8_lossy(bucket_type), String::from_utf8_lossy(bucket));
                write!(f, "{bucket_type}/{bucket}")
            }
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::User(name) => write!(f, "user/{name}"),
            Role::Group(name) => write!(f, "group/{name}"),
            Role::All => f.write_str("all"),
        }
    }
}
