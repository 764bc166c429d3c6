//! The policy against a model that goes through all records for each question.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use security::{
    Explanation, Grant, Method, Name, Permission, Permissions, Policy, Resource, Role, Slot, SlotKey, Slots,
    Source, SourceUser, Target, normal_address,
};

use crate::build::{address, grant, group, name, role, slots, source, user};

const USERS: [&str; 3] = ["u", "v", "w"];
const GROUPS: [&str; 4] = ["f", "g", "h", "i"];
const ROLES: [&str; 8] = ["user/u", "user/v", "user/w", "group/f", "group/g", "group/h", "group/i", "all"];
/// Names of which some begin with others.
const NAMES: [&str; 3] = ["t", "t2", "t22"];
const PERMISSIONS: [Permission; 3] = [Permission::Get, Permission::Put, Permission::Admin];
const NETS: [&str; 7] =
    ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "::/0", "::ffff:10.1.0.0/112", "2001:db8::/32", "10.1.1.1/32"];
const ADDRESSES: [&str; 6] = ["10.1.1.1", "10.2.2.2", "::ffff:10.1.2.2", "2001:db8::1", "11.1.1.1", "::1"];

fn any_resource() -> impl Strategy<Value = Resource> {
    let name = || prop::sample::select(&NAMES[..]);
    prop_oneof![
        1 => Just(Resource::Any),
        2 => name().prop_map(|name| Resource::Type(name.into())),
        3 => (name(), name()).prop_map(|(one, other)| Resource::Bucket(one.into(), other.into())),
    ]
}

fn any_slot() -> impl Strategy<Value = Slot> {
    let groups = || prop::sample::subsequence(&GROUPS[..], 0..3);
    let methods = [Method::Trust, Method::Password, Method::Certificate];
    let source_users = prop::sample::select(vec!["u", "v", "all"]);
    prop_oneof![
        (prop::sample::select(&USERS[..]), groups()).prop_map(|(name, groups)| user(name, &groups)),
        (prop::sample::select(&GROUPS[..]), groups()).prop_map(|(name, groups)| group(name, &groups)),
        (source_users, prop::sample::select(&NETS[..]), prop::sample::select(methods.to_vec()))
            .prop_map(|(user, net, method)| source(user, net, method)),
        (prop::sample::select(&ROLES[..]), any_resource(), prop::sample::subsequence(&PERMISSIONS[..], 1..3))
            .prop_map(|(to, resource, permissions)| grant(to, resource, &permissions)),
    ]
}

/// Whether a user is in a group, by fewer steps than there are groups.
fn is_member(slots: &Slots, groups: &BTreeSet<Name>, wanted: &Name, steps: usize) -> bool {
    steps > 0
        && groups.iter().any(|name| match slots.get(&SlotKey::Group(name.clone())) {
            Some(Slot::Group(group)) => name == wanted || is_member(slots, &group.groups, wanted, steps - 1),
            _ => false,
        })
}

fn covers(resource: &Resource, target: Target<'_>) -> bool {
    match (resource, target) {
        (Resource::Any, _) => true,
        (Resource::Type(granted), Target::Type(asked) | Target::Bucket(asked, _)) => granted == asked,
        (Resource::Bucket(of, granted), Target::Bucket(bucket_type, asked)) => {
            of == bucket_type && granted == asked
        }
        _ => false,
    }
}

/// The permissions of a user on a target.
fn permissions(slots: &Slots, user: &str, target: Target<'_>) -> Permissions {
    let Some(Slot::User(user)) = slots.get(&SlotKey::User(name(user))) else { return Permissions::NONE };
    let has = |role: &Role| match role {
        Role::All => true,
        Role::User(name) => *name == user.name,
        Role::Group(name) => is_member(slots, &user.groups, name, GROUPS.len()),
    };
    let permissions = slots.iter().filter_map(|slot| match slot {
        Slot::Grant(Grant { role, resource, permissions }) if has(role) && covers(resource, target) => {
            Some(*permissions)
        }
        _ => None,
    });
    permissions.fold(Permissions::NONE, Permissions::with)
}

/// The source that decides.
fn source_of(slots: &Slots, user: &str, from: IpAddr) -> Option<Source> {
    slots.get(&SlotKey::User(name(user)))?;
    let own = SourceUser::User(name(user));
    let sources = slots.iter().filter_map(|slot| match slot {
        Slot::Source(source) if source.user == own || source.user == SourceUser::All => Some(source),
        _ => None,
    });
    let matching = sources.filter(|source| source.net.contains(&normal_address(from)));
    matching.max_by_key(|source| (source.net.prefix_len(), source.user == own)).cloned()
}

fn check_user(policy: &Policy, slots: &Slots, user: &str, targets: &[Target<'_>]) {
    let Some(id) = policy.user(user.as_bytes()) else {
        assert_eq!(slots.get(&SlotKey::User(name(user))), None);
        return;
    };
    for &target in targets {
        let expected = permissions(slots, user, target);
        for permission in PERMISSIONS {
            let may = policy.may(id, permission, target);
            assert_eq!(may, expected.has(permission), "{user} {permission} {target:?}");
            match policy.explain(id, permission, target) {
                Explanation::Missing { .. } => assert!(!may),
                Explanation::Granted { role, resource, .. } => {
                    assert!(may && covers(&resource, target));
                    let found = slots.get(&SlotKey::Grant(role, resource));
                    assert!(matches!(found, Some(Slot::Grant(grant)) if grant.permissions.has(permission)));
                }
            }
        }
    }
    for from in ADDRESSES {
        let expected = source_of(slots, user, address(from));
        assert_eq!(policy.source(user.as_bytes(), address(from)), expected.as_ref(), "{user} {from}");
    }
}

fn check(records: Vec<Slot>) {
    let slots = slots(records);
    let policy = Policy::compile(&slots, 1);
    let mut targets = vec![Target::Any];
    for bucket_type in NAMES {
        targets.push(Target::Type(bucket_type.as_bytes()));
        targets.extend(NAMES.map(|bucket| Target::Bucket(bucket_type.as_bytes(), bucket.as_bytes())));
    }
    for user in USERS {
        check_user(&policy, &slots, user, &targets);
    }
}

proptest! {
    #[test]
    fn the_policy_decides_as_the_model(records in vec(any_slot(), 0..40)) {
        check(records);
    }

    #[test]
    fn a_record_is_read_as_it_was_written(slot in any_slot()) {
        prop_assert_eq!(Slot::read(slot.encode()), Ok(slot.clone()));
        prop_assert_eq!(SlotKey::read(slot.key().encode()), Ok(slot.key()));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(mut bytes in vec(any::<u8>(), 0..64), kind in 0..6u8) {
        bytes.splice(0..0, [1, kind]);
        if let Ok(slot) = Slot::read(bytes.into()) {
            prop_assert_eq!(Slot::read(slot.encode()), Ok(slot));
        }
    }
}

#[test]
fn roles_of_the_model_are_roles() {
    assert_eq!(ROLES.map(role).iter().collect::<BTreeSet<_>>().len(), ROLES.len());
}
