//! The policy, compiled from its records: immutable, with a version.
//!
//! 1. [`Policy::compile`] finds the groups of each user, merges their grants into one table, and sorts sources.
//! 2. [`Policy::login`] decides on a login; the hash of a password is verified by the caller.
//! 3. [`Policy::may`] decides on a permission, and [`Policy::explain`] says why.
//!
//! Invariants: a permission is there only by a grant to the user, to a group of the user that exists, or to all, on the
//! target or on the type or the whole that it is in. Compilation ends for all records, with memory in proportion to
//! their bytes, but for the groups of users, which [`EFFECTIVE_GROUPS_MAX`] bounds, and the merged tables, which
//! [`MERGED_NAMES_MAX`] bounds. Users of the same groups share both.
//!
//! A [`UserId`] is of one version. The caller compares [`Policy::version`] before each request, and looks the user up
//! by name in a newer policy; a user that is gone has no permission.

mod explain;
mod grants;
mod groups;
mod login;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::grants::Grants;
use crate::credential::Credential;
use crate::limits::Limits;
use crate::name::Name;
use crate::permission::{Permission, Permissions};
use crate::slot::{Group, Resource, Role, Settings, Slot, Target, User};
use crate::slots::Slots;
use crate::source::{Source, SourceUser};

pub use self::explain::Explanation;
pub use self::groups::{EFFECTIVE_GROUPS_MAX, GROUP_DEPTH_MAX};
pub(crate) use self::groups::{effective_groups, is_within_bounds};
pub use self::login::{Login, Offer, Refusal};

/// Names of types and buckets in the merged tables of all sets of groups: some 5 MiB at most, about what records have.
/// Beyond that, a check goes through the grants of each group.
pub const MERGED_NAMES_MAX: usize = 1 << 16;

/// A user in a policy of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserId {
    place: u32,
    version: u64,
}

/// Users, sources and grants, ready for decisions.
#[derive(Debug)]
pub struct Policy {
    version: u64,
    settings: Settings,
    users: Vec<Compiled>,
    places: BTreeMap<Name, u32>,
    /// The grants of roles that have some, and behind them the merged tables.
    grants: Vec<Grants>,
    /// The names of these roles, in the same order.
    role_names: Vec<Role>,
    /// Sources for all users, in the order in which they decide.
    sources_for_all: Vec<Source>,
}

/// A user.
#[derive(Debug)]
struct Compiled {
    name: Name,
    credential: Option<Credential>,
    /// The user's own sources, in the order in which they decide.
    sources: Vec<Source>,
    /// The user's own grants.
    own: Option<u32>,
    /// Grants by groups, and to all.
    shared: Arc<Shared>,
    /// Permissions on everything, by any role.
    any: Permissions,
    limits: Option<Box<Limits>>,
}

/// The roles of users in the same groups, the nearest first; at the end `all`.
#[derive(Debug)]
struct Shared {
    /// The groups, the nearest first.
    groups: Vec<Name>,
    any: Permissions,
    roles: Vec<u32>,
    /// The place of the table of all roles, if they are several and the tables have room.
    merged: Option<u32>,
}

impl Policy {
    /// Compiles records. The version is of the log: a later policy has a higher one.
    pub fn compile(slots: &Slots, version: u64) -> Policy {
        let mut parts = Parts::default();
        for slot in slots.iter() {
            parts.push(slot);
        }
        parts.compile(version)
    }

    /// Its version.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The settings of the cluster.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The user of a name, compared as it is.
    pub fn user(&self, name: &[u8]) -> Option<UserId> {
        self.places.get(name).map(|&place| UserId { place, version: self.version })
    }

    /// The name of a user of this policy.
    pub fn name(&self, user: UserId) -> &Name {
        &self.at(user).name
    }

    /// The limits of a user of this policy; `None` without one.
    #[inline]
    pub fn limits(&self, user: UserId) -> Option<&Limits> {
        self.at(user).limits.as_deref()
    }

    /// The groups of a user of this policy, the nearest first.
    pub fn groups(&self, user: UserId) -> &[Name] {
        &self.at(user).shared.groups
    }

    /// Whether a user of this policy has a permission on a target.
    #[inline]
    pub fn may(&self, user: UserId, permission: Permission, target: Target<'_>) -> bool {
        self.without_grant(user, permission.into(), target).is_empty()
    }

    /// Those of `needed` that a user of this policy has not on a target.
    #[inline]
    pub(crate) fn without_grant(&self, user: UserId, needed: Permissions, target: Target<'_>) -> Permissions {
        let user = self.at(user);
        let needed = needed.without(user.any);
        if needed.is_empty() {
            return needed;
        }
        let (bucket_type, bucket) = match target {
            Target::Any => return needed,
            Target::Type(bucket_type) => (bucket_type, None),
            Target::Bucket(bucket_type, bucket) => (bucket_type, Some(bucket)),
        };
        let on = |place: u32| self.grants[place as usize].on(bucket_type, bucket);
        let own = user.own.map_or(Permissions::NONE, on);
        user.shared.tables().iter().fold(needed.without(own), |needed, &place| needed.without(on(place)))
    }

    fn at(&self, user: UserId) -> &Compiled {
        assert_eq!(user.version, self.version, "a user is asked for in the policy of its version");
        &self.users[user.place as usize]
    }

    /// The roles of a user that have grants, the nearest first.
    fn roles(&self, user: UserId) -> impl Iterator<Item = u32> {
        self.at(user).roles()
    }

    /// Permissions of a role on exactly this resource.
    fn granted(&self, role: u32, resource: &Resource) -> Permissions {
        let grants = &self.grants[role as usize];
        match resource {
            Resource::Any => grants.any,
            Resource::Type(bucket_type) => grants.on_type(bucket_type),
            Resource::Bucket(bucket_type, bucket) => grants.on_bucket(bucket_type, bucket),
        }
    }
}

impl Shared {
    /// The places of tables that have the permissions of all roles together.
    #[inline]
    fn tables(&self) -> &[u32] {
        self.merged.as_ref().map_or(&self.roles, std::slice::from_ref)
    }
}

impl Compiled {
    fn roles(&self) -> impl Iterator<Item = u32> {
        self.own.into_iter().chain(self.shared.roles.iter().copied())
    }
}

/// Records by kind, on their way into a policy.
#[derive(Default)]
struct Parts<'a> {
    settings: Settings,
    users: Vec<&'a User>,
    groups: BTreeMap<&'a Name, &'a Group>,
    sources: BTreeMap<&'a Name, Vec<Source>>,
    sources_for_all: Vec<Source>,
    grants: Vec<Grants>,
    role_names: Vec<Role>,
    /// Names in merged tables.
    merged_names: usize,
}

impl<'a> Parts<'a> {
    /// Takes a record; those of one role come in a row, as records are sorted.
    fn push(&mut self, slot: &'a Slot) {
        match slot {
            Slot::Settings(settings) => self.settings = settings.clone(),
            Slot::User(user) => self.users.push(user),
            Slot::Group(group) => {
                self.groups.insert(&group.name, group);
            }
            Slot::Source(source) => match &source.user {
                SourceUser::All => self.sources_for_all.push(source.clone()),
                SourceUser::User(name) => self.sources.entry(name).or_default().push(source.clone()),
            },
            Slot::Grant(grant) => {
                if self.role_names.last() != Some(&grant.role) {
                    self.role_names.push(grant.role.clone());
                    self.grants.push(Grants::default());
                }
                let grants = self.grants.last_mut().expect("one was pushed with the role's name");
                grants.push(&grant.resource, grant.permissions);
            }
        }
    }

    fn compile(mut self, version: u64) -> Policy {
        login::sort(&mut self.sources_for_all);
        let mut shared = BTreeMap::new();
        let (mut users, mut places) = (Vec::with_capacity(self.users.len()), BTreeMap::new());
        for user in std::mem::take(&mut self.users) {
            let shared = shared.entry(&user.groups).or_insert_with(|| Arc::new(self.shared(&user.groups)));
            let shared = Arc::clone(shared);
            places.insert(user.name.clone(), users.len() as u32);
            let mut sources = self.sources.remove(&user.name).unwrap_or_default();
            login::sort(&mut sources);
            let own = self.role(&Role::User(user.name.clone()));
            let any = own.map_or(Permissions::NONE, |own| self.grants[own as usize].any).with(shared.any);
            let (name, credential) = (user.name.clone(), user.credential.clone());
            let limits = Limits::of(&user.options);
            users.push(Compiled { name, credential, sources, own, shared, any, limits });
        }
        let Parts { settings, sources_for_all, grants, role_names, .. } = self;
        Policy { version, settings, users, places, grants, role_names, sources_for_all }
    }

    /// The roles of users in `groups`.
    fn shared(&mut self, groups: &'a BTreeSet<Name>) -> Shared {
        let groups: Vec<Name> = groups::effective(groups, &self.groups).into_iter().cloned().collect();
        let names = groups.iter().cloned().map(Role::Group);
        let roles: Vec<u32> = names.chain([Role::All]).filter_map(|role| self.role(&role)).collect();
        let any = roles.iter().fold(Permissions::NONE, |any, &role| any.with(self.grants[role as usize].any));
        let merged = self.merge(&roles);
        Shared { groups, any, roles, merged }
    }

    /// The place of the table of several roles; `None` for a single one, and without room.
    fn merge(&mut self, roles: &[u32]) -> Option<u32> {
        let tables = || roles.iter().map(|&role| &self.grants[role as usize]);
        let names: usize = tables().map(Grants::names).sum();
        if roles.len() < 2 || self.merged_names + names > MERGED_NAMES_MAX {
            return None;
        }
        let merged = Grants::merged(tables());
        self.merged_names += merged.names();
        self.grants.push(merged);
        Some((self.grants.len() - 1) as u32)
    }

    /// The place of a role's grants, if it has some.
    fn role(&self, role: &Role) -> Option<u32> {
        self.role_names.binary_search(role).ok().map(|place| place as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Grant, Options};

    fn name(text: &str) -> Name {
        Name::create(text.as_bytes()).expect("a name of the test")
    }

    fn bucket(number: usize) -> String {
        format!("b{number}")
    }

    /// Groups with a grant on each of so many buckets: `even` on those with an even number, `odd` on the others, and
    /// `none`. Users `a` and `b` are in `even` and `odd`, `c` is in all, `d` is in `even` alone.
    fn compiled(buckets: usize) -> Policy {
        let groups = ["even", "odd", "none"];
        let users = [("a", &groups[..2]), ("b", &groups[..2]), ("c", &groups), ("d", &groups[..1])];
        let mut records: Vec<Slot> = Vec::new();
        for group in groups {
            let group = Group { name: name(group), groups: BTreeSet::new(), options: Options::new() };
            records.push(Slot::Group(group));
        }
        for (user, groups) in users {
            let groups = groups.iter().map(|group| name(group)).collect();
            records.push(Slot::User(User {
                name: name(user),
                credential: None,
                groups,
                options: Options::new(),
            }));
        }
        let grant = |role: &str, resource| {
            let permissions = Permission::Get.into();
            Slot::Grant(Grant { role: Role::Group(name(role)), resource, permissions })
        };
        records.push(grant("none", Resource::Type("other".into())));
        records
            .extend((0..buckets).map(|number| {
                grant(groups[number % 2], Resource::Bucket("t".into(), bucket(number).into()))
            }));
        let mut slots = Slots::default();
        slots.apply(&records.into_iter().map(Change::Put).collect::<Vec<_>>()).expect("less than the bound");
        Policy::compile(&slots, 1)
    }

    #[test]
    fn merged_tables_are_bounded_and_decide_as_the_groups_do() {
        for (buckets, is_c_merged) in [(100, true), (MERGED_NAMES_MAX / 2 + 9, false)] {
            let policy = compiled(buckets);
            let user = |name: &str| policy.user(name.as_bytes()).expect("a user of the test");
            let is_merged = |name| policy.at(user(name)).shared.merged.is_some();
            assert_eq!(["a", "b", "c", "d"].map(is_merged), [true, true, is_c_merged, false]);
            assert_eq!(policy.grants.len(), policy.role_names.len() + if is_c_merged { 2 } else { 1 });

            for number in (0..buckets + 2).step_by(buckets / 50 + 1) {
                let name = bucket(number);
                let of_number = Target::Bucket(b"t", name.as_bytes());
                let may = |name| policy.may(user(name), Permission::Get, of_number);
                let (is_there, is_even) = (number < buckets, number % 2 == 0);
                assert_eq!(["a", "c", "d"].map(may), [is_there, is_there, is_there && is_even], "{number}");
            }
            let on_other = |name| policy.may(user(name), Permission::Get, Target::Type(b"other"));
            assert_eq!(["a", "c", "d"].map(on_other), [false, true, false]);
        }
    }
}
