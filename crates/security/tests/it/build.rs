//! Records and policies from short words.

use std::net::IpAddr;

use security::{
    Change, Credential, Grant, Group, Method, Name, Options, Permission, Permissions, Policy, Resource, Role,
    Slot, Slots, Source, SourceUser, User, normal_net,
};

pub fn name(text: &str) -> Name {
    Name::create(text.as_bytes()).expect("a name of the test")
}

/// A user with a password.
pub fn user(text: &str, groups: &[&str]) -> Slot {
    let credential = Some(Credential::Argon2id("verifier".into()));
    let groups = groups.iter().map(|group| name(group)).collect();
    Slot::User(User { name: name(text), credential, groups, options: Options::new() })
}

pub fn group(text: &str, groups: &[&str]) -> Slot {
    let groups = groups.iter().map(|group| name(group)).collect();
    Slot::Group(Group { name: name(text), groups, options: Options::new() })
}

/// A source for a user, or for `all`.
pub fn source(user: &str, net: &str, method: Method) -> Slot {
    let user = if user == "all" { SourceUser::All } else { SourceUser::User(name(user)) };
    Slot::Source(Source {
        user,
        net: normal_net(net.parse().expect("a network of the test")),
        method,
        options: Options::new(),
    })
}

/// The role of `user/u`, `group/g` or `all`.
pub fn role(text: &str) -> Role {
    match text.split_once('/') {
        Some(("user", user)) => Role::User(name(user)),
        Some(("group", group)) => Role::Group(name(group)),
        _ => Role::All,
    }
}

pub fn grant(to: &str, resource: Resource, permissions: &[Permission]) -> Slot {
    let permissions: Permissions = permissions.iter().copied().collect();
    Slot::Grant(Grant { role: role(to), resource, permissions })
}

pub fn bucket(bucket_type: &str, bucket: &str) -> Resource {
    Resource::Bucket(bucket_type.to_owned().into(), bucket.to_owned().into())
}

pub fn slots(slots: impl IntoIterator<Item = Slot>) -> Slots {
    let mut all = Slots::default();
    let changes: Vec<_> = slots.into_iter().map(Change::Put).collect();
    all.apply(&changes).expect("a small policy");
    all
}

pub fn policy(records: impl IntoIterator<Item = Slot>) -> Policy {
    Policy::compile(&slots(records), 1)
}

pub fn address(text: &str) -> IpAddr {
    text.parse().expect("an address of the test")
}
