//! From a command to changes of records.

use std::collections::BTreeSet;

use bytes::Bytes;
use ipnet::IpNet;

use super::{Command, CommandError, Settable};
use crate::credential::Credential;
use crate::limits;
use crate::name::Name;
use crate::permission::Permissions;
use crate::policy::is_within_bounds;
use crate::slot::{
    Grant, Group, MEMBERSHIPS_MAX, OPTIONS_MAX, Options, Resource, Role, Settings, Slot, SlotKey, User,
};
use crate::slots::{Change, Slots};
use crate::source::{Method, Source, SourceUser};

type Planned = Result<Vec<Change>, CommandError>;

impl Command {
    /// The changes that the command makes of these records; none for one that shows something.
    ///
    /// `credential` is the hash of [`Command::password`], and none without a password.
    ///
    /// # Errors
    /// [`CommandError`].
    ///
    /// # Panics
    /// If there is a password without a credential, or the reverse: the caller hashes each password that it is given.
    pub fn plan(&self, slots: &Slots, credential: Option<Credential>) -> Planned {
        assert_eq!(self.password().is_some(), credential.is_some(), "a password is hashed before the plan");
        match self {
            Command::AddUser(name, set) => {
                let name = new_name(slots, name, SlotKey::User)?;
                let (groups, options) = Default::default();
                set_user(slots, User { name, credential: None, groups, options }, set, credential)
            }
            Command::AlterUser(name, set) => set_user(slots, user(slots, name)?.clone(), set, credential),
            Command::DelUser(name) => {
                let name = user(slots, name)?.name.clone();
                Ok(removed(slots, &SlotKey::User(name.clone()), &Role::User(name.clone()), Some(&name)))
            }
            Command::AddGroup(name, set) => {
                let name = new_name(slots, name, SlotKey::Group)?;
                let (groups, options) = Default::default();
                set_group(slots, Group { name, groups, options }, set)
            }
            Command::AlterGroup(name, set) => set_group(slots, group(slots, name)?.clone(), set),
            Command::DelGroup(name) => Ok(without_group(slots, &group(slots, name)?.name)),
            Command::AddSource(users, net, method, options) => {
                add_source(slots, users, *net, *method, options)
            }
            Command::DelSource(users, net) => {
                let keys = source_users(slots, users)?.into_iter().map(|user| SlotKey::Source(user, *net));
                Ok(keys.map(Change::Remove).collect())
            }
            Command::Grant(permissions, resource, names) => {
                change_grants(slots, names, resource, |before| before.with(*permissions))
            }
            Command::Revoke(permissions, resource, names) => {
                change_grants(slots, names, resource, |before| before.without(*permissions))
            }
            Command::Print(_) | Command::AcceptOlderLog => Ok(Vec::new()),
            Command::SetCiphers(ciphers) => Ok(set(slots, |settings| settings.ciphers = ciphers.clone())),
            Command::SetMode(mode) => Ok(set(slots, |settings| settings.mode = *mode)),
            Command::Rehash { user, before, after } => Ok(rehash(slots, user, before, after)),
        }
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// The record of a user, whose name counts in lower case.
pub(super) fn user<'a>(slots: &'a Slots, name: &Bytes) -> Result<&'a User, CommandError> {
    let found = Name::create(name).ok().and_then(|name| slots.get(&SlotKey::User(name)));
    match found {
        Some(Slot::User(user)) => Ok(user),
        _ => Err(CommandError::User(text(name))),
    }
}

pub(super) fn group<'a>(slots: &'a Slots, name: &Bytes) -> Result<&'a Group, CommandError> {
    let found = Name::create(name).ok().and_then(|name| slots.get(&SlotKey::Group(name)));
    match found {
        Some(Slot::Group(group)) => Ok(group),
        _ => Err(CommandError::Group(text(name))),
    }
}

/// The name of a user or a group that is made. A user and a group may have the same name, as in Riak.
fn new_name(slots: &Slots, name: &Bytes, key: fn(Name) -> SlotKey) -> Result<Name, CommandError> {
    let name = Name::create(name)?;
    if slots.get(&key(name.clone())).is_some() { Err(CommandError::InUse) } else { Ok(name) }
}

fn set_user(slots: &Slots, mut user: User, set: &Settable, credential: Option<Credential>) -> Planned {
    if let Some((name, _)) = set.options.iter().find(|(name, value)| !limits::check(name, value)) {
        return Err(CommandError::Limit(text(name)));
    }
    if let Some(groups) = &set.groups {
        user.groups = groups_of(slots, groups)?;
        if !is_within_bounds(slots, &user.groups) {
            return Err(CommandError::TooManyGroups);
        }
    }
    user.credential = credential.or_else(|| set.imported.clone()).or(user.credential);
    merge(&mut user.options, &set.options)?;
    Ok(vec![Change::Put(Slot::User(user))])
}

fn rehash(slots: &Slots, name: &Name, before: &Credential, after: &Credential) -> Vec<Change> {
    match slots.get(&SlotKey::User(name.clone())) {
        Some(Slot::User(user)) if user.credential.as_ref() == Some(before) => {
            vec![Change::Put(Slot::User(User { credential: Some(after.clone()), ..user.clone() }))]
        }
        _ => Vec::new(),
    }
}

fn set_group(slots: &Slots, mut group: Group, set: &Settable) -> Planned {
    if let Some(name) = set.options.keys().find(|name| limits::is_limit(name)) {
        return Err(CommandError::LimitOfGroup(text(name)));
    }
    if let Some(groups) = &set.groups {
        group.groups = groups_of(slots, groups)?;
        if reaches(slots, &group.groups, &group.name) {
            return Err(CommandError::Cycle(group.name.to_string()));
        }
    }
    merge(&mut group.options, &set.options)?;
    let changes = vec![Change::Put(Slot::Group(group))];
    // Only for members of the group can it become too much.
    let mut after = slots.clone();
    let is_applied = after.apply(&changes).is_ok();
    let is_within = after.iter().all(|slot| match slot {
        Slot::User(user) => is_within_bounds(&after, &user.groups),
        Slot::Group(group) => is_within_bounds(&after, &group.groups),
        _ => true,
    });
    // A policy that is too large is refused where the changes are applied.
    if is_applied && !is_within { Err(CommandError::TooManyGroups) } else { Ok(changes) }
}

fn merge(options: &mut Options, set: &Options) -> Result<(), CommandError> {
    options.extend(set.iter().map(|(name, value)| (name.clone(), value.clone())));
    if options.len() > OPTIONS_MAX { Err(CommandError::Options) } else { Ok(()) }
}

/// Names of groups that exist.
fn groups_of(slots: &Slots, names: &[Bytes]) -> Result<BTreeSet<Name>, CommandError> {
    let groups: BTreeSet<Name> =
        names.iter().map(|name| Ok(group(slots, name)?.name.clone())).collect::<Result<_, CommandError>>()?;
    if groups.len() > MEMBERSHIPS_MAX { Err(CommandError::Memberships) } else { Ok(groups) }
}

/// Whether a group is among `from`, or those that these are in.
fn reaches(slots: &Slots, from: &BTreeSet<Name>, wanted: &Name) -> bool {
    let mut seen = BTreeSet::new();
    let mut open: Vec<Name> = from.iter().cloned().collect();
    while let Some(name) = open.pop() {
        if name == *wanted {
            return true;
        }
        if let Some(Slot::Group(group)) = slots.get(&SlotKey::Group(name.clone()))
            && seen.insert(name)
        {
            open.extend(group.groups.iter().cloned());
        }
    }
    false
}

/// The removal of a user or a group, with the grants, and with the sources of a user.
fn removed(slots: &Slots, key: &SlotKey, role: &Role, user: Option<&Name>) -> Vec<Change> {
    let goes = |key: &SlotKey| match key {
        SlotKey::Grant(of, _) => of == role,
        SlotKey::Source(SourceUser::User(of), _) => Some(of) == user,
        _ => false,
    };
    let others = slots.iter().map(Slot::key).filter(goes);
    [key.clone()].into_iter().chain(others).map(Change::Remove).collect()
}

fn without_group(slots: &Slots, name: &Name) -> Vec<Change> {
    let mut changes = removed(slots, &SlotKey::Group(name.clone()), &Role::Group(name.clone()), None);
    for slot in slots.iter() {
        let mut slot = slot.clone();
        let was_in = match &mut slot {
            Slot::User(user) => user.groups.remove(name),
            // Its own record goes, even if it is in itself.
            Slot::Group(group) => group.name != *name && group.groups.remove(name),
            _ => false,
        };
        if was_in {
            changes.push(Change::Put(slot));
        }
    }
    changes
}

fn is_all(names: &[Bytes]) -> bool {
    matches!(names, [name] if name == "all")
}

/// The users of a source.
fn source_users(slots: &Slots, names: &[Bytes]) -> Result<Vec<SourceUser>, CommandError> {
    if is_all(names) {
        return Ok(vec![SourceUser::All]);
    }
    let unknown: Vec<_> =
        names.iter().filter(|name| user(slots, name).is_err()).map(|name| text(name)).collect();
    if !unknown.is_empty() || names.is_empty() {
        return Err(CommandError::Names(unknown.join(",")));
    }
    names.iter().map(|name| Ok(SourceUser::User(user(slots, name)?.name.clone()))).collect()
}

fn add_source(slots: &Slots, names: &[Bytes], net: IpNet, method: Method, options: &Options) -> Planned {
    let source = |user| Slot::Source(Source { user, net, method, options: options.clone() });
    Ok(source_users(slots, names)?.into_iter().map(source).map(Change::Put).collect())
}

/// The roles of names: users and groups, with `user/` or `group/` in front where a name is of both.
pub(super) fn roles(slots: &Slots, names: &[Bytes]) -> Result<BTreeSet<Role>, CommandError> {
    if is_all(names) {
        return Ok(BTreeSet::from([Role::All]));
    }
    let (mut roles, mut unknown, mut ambiguous) = (BTreeSet::new(), Vec::new(), Vec::new());
    for name in names {
        let user_of = |name: &Bytes| user(slots, name).ok().map(|user| Role::User(user.name.clone()));
        let group_of = |name: &Bytes| group(slots, name).ok().map(|group| Role::Group(group.name.clone()));
        let with_prefix = match (name.strip_prefix(b"user/"), name.strip_prefix(b"group/")) {
            (Some(rest), _) => user_of(&name.slice_ref(rest)),
            (_, Some(rest)) => group_of(&name.slice_ref(rest)),
            _ => None,
        };
        match (with_prefix.or_else(|| user_of(name)), group_of(name)) {
            (Some(Role::User(_)), Some(_)) => ambiguous.push(text(name)),
            (Some(role), _) | (None, Some(role)) => {
                roles.insert(role);
            }
            (None, None) => unknown.push(text(name)),
        }
    }
    if !unknown.is_empty() || names.is_empty() {
        return Err(CommandError::Names(unknown.join(",")));
    }
    if ambiguous.is_empty() { Ok(roles) } else { Err(CommandError::Ambiguous(ambiguous.join(","))) }
}

fn change_grants(
    slots: &Slots,
    names: &[Bytes],
    resource: &Resource,
    change: impl Fn(Permissions) -> Permissions,
) -> Planned {
    let mut changes = Vec::new();
    for role in roles(slots, names)? {
        let key = SlotKey::Grant(role.clone(), resource.clone());
        let before = match slots.get(&key) {
            Some(Slot::Grant(grant)) => grant.permissions,
            _ => Permissions::NONE,
        };
        let permissions = change(before);
        if permissions == before {
            continue;
        }
        // A grant of nothing does not exist.
        changes.push(if permissions.is_empty() {
            Change::Remove(key)
        } else {
            Change::Put(Slot::Grant(Grant { role, resource: resource.clone(), permissions }))
        });
    }
    Ok(changes)
}

fn set(slots: &Slots, change: impl FnOnce(&mut Settings)) -> Vec<Change> {
    let mut settings = match slots.get(&SlotKey::Settings) {
        Some(Slot::Settings(settings)) => settings.clone(),
        _ => Settings::default(),
    };
    change(&mut settings);
    vec![Change::Put(Slot::Settings(settings))]
}
