use super::*;
use crate::{
    Change, Credential, GROUP_DEPTH_MAX, Name, Permission, Permissions, Policy, Resource, Role, Slot,
    SlotKey, Slots, Target,
};

/// Carries a command out; the text of its error.
fn run(slots: &mut Slots, line: &str) -> Result<Vec<Change>, String> {
    let words: Vec<&str> = line.split(' ').collect();
    let command = Command::parse(&words).map_err(|error| error.to_string())?;
    let credential = command.password().map(|_| Credential::Argon2id("hash".into()));
    let changes = command.plan(slots, credential).map_err(|error| error.to_string())?;
    slots.apply(&changes).map_err(|error| error.to_string())?;
    Ok(changes)
}

fn all(lines: &[&str]) -> Slots {
    let mut slots = Slots::default();
    for line in lines {
        run(&mut slots, line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    slots
}

fn error(slots: &mut Slots, line: &str) -> String {
    let before = slots.clone();
    let error = run(slots, line).expect_err(line);
    assert_eq!(*slots, before, "{line}");
    error
}

#[test]
fn a_policy_is_made_of_commands() {
    let slots = all(&[
        "add-group admins",
        "add-user Alice password=secret groups=admins note=x",
        "add-source all 127.0.0.1/32 trust",
        "add-source alice 10.1.2.3/8 password",
        "grant riak_kv.get,riak_kv.put on any to admins",
        "grant riak_kv.delete on t b to alice",
        "ciphers AES",
        "enable",
    ]);
    let policy = Policy::compile(&slots, 1);
    let alice = policy.user(b"alice").unwrap();
    assert_eq!(policy.settings().mode, Mode::On);
    assert!(policy.may(alice, Permission::Put, Target::Any));
    assert!(policy.may(alice, Permission::Delete, Target::Bucket(b"t", b"b")));
    assert!(!policy.may(alice, Permission::Delete, Target::Type(b"t")));
    assert_eq!(policy.source(b"alice", "10.9.9.9".parse().unwrap()).unwrap().method, Method::Password);
}

#[test]
fn texts_of_errors() {
    let mut slots = all(&["add-user u", "add-group g"]);
    for (line, text) in [
        ("add-user u", "This name is already in use"),
        ("add-group G", "This name is already in use"),
        ("add-user ALL", "This name is reserved for system use"),
        ("add-user v ops_per_s=0", "ops_per_s is a number of at least 1, or unlimited"),
        ("alter-user u bytes_per_s/t=1k", "bytes_per_s/t is a number of at least 1, or unlimited"),
        ("alter-group g ops_per_s=5", "ops_per_s is an option of users alone"),
        ("add-user a=b", "Illegal character(s) in name"),
        ("add-user v x", "Invalid option x, options are of the form key=value"),
        ("add-user v groups=none", "Group not recognized: none"),
        ("add-user v password=", "A password must not be empty"),
        ("alter-user v a=b", "User not recognized: v"),
        ("del-user g", "User not recognized: g"),
        ("del-group u", "Group not recognized: u"),
        ("grant riak_kv.fly on any to u", "Permission not recognized: riak_kv.fly"),
        ("grant riak_kv.get on any to u,v,w", "Name(s) not recognized: v,w"),
        ("add-source v 10.0.0.0/8 trust", "Name(s) not recognized: v"),
        ("add-source u 10.0.0.0/40 trust", "Invalid CIDR: 10.0.0.0/40"),
        ("add-source u 10.0.0.0/8 pam", "Source not recognized: pam"),
    ] {
        assert_eq!(error(&mut slots, line), text, "{line}");
    }
    assert!(error(&mut slots, "grant riak_kv.get on any x to u").starts_with("Usage: security grant"));
    assert!(error(&mut slots, "fly").starts_with("Usage: security add-user"));
}

#[test]
fn a_name_of_a_user_and_a_group_needs_a_prefix() {
    let name = || Name::create(b"x").unwrap();
    let mut slots = all(&["add-user x", "add-group x"]);
    let ambiguous = "Ambiguous names need to be prefixed with 'user/' or 'group/': x";
    assert_eq!(error(&mut slots, "grant riak_kv.get on any to x"), ambiguous);
    run(&mut slots, "grant riak_kv.get on any to group/x").unwrap();
    let key = |role| SlotKey::Grant(role, Resource::Any);
    assert!(slots.get(&key(Role::Group(name()))).is_some());
    assert!(slots.get(&key(Role::User(name()))).is_none());
}

#[test]
fn grants_add_up_and_end_with_the_last_permission() {
    let mut slots = all(&["add-user u", "grant riak_kv.get on t to u", "grant riak_kv.put on t to user/u"]);
    let key = SlotKey::Grant(Role::User(Name::create(b"u").unwrap()), Resource::Type("t".into()));
    let both: Permissions = [Permission::Get, Permission::Put].into_iter().collect();
    assert!(matches!(slots.get(&key), Some(Slot::Grant(grant)) if grant.permissions == both));
    assert_eq!(run(&mut slots, "grant riak_kv.get on t to u"), Ok(vec![]), "it has it");
    run(&mut slots, "revoke riak_kv.get,riak_kv.put on t from u").unwrap();
    assert_eq!(slots.get(&key), None);
}

#[test]
fn what_is_removed_leaves_nothing_behind() {
    let mut slots = all(&[
        "add-group g",
        "add-group h groups=g",
        "add-user u groups=g,h",
        "add-source u 10.0.0.0/8 trust",
        "grant riak_kv.get on any to u",
        "grant riak_kv.get on t b to g",
    ]);
    run(&mut slots, "del-group G").unwrap();
    let policy = Policy::compile(&slots, 1);
    assert!(policy.user(b"u").is_some());
    for slot in slots.iter() {
        let groups = match slot {
            Slot::User(user) => &user.groups,
            Slot::Group(group) => &group.groups,
            _ => continue,
        };
        assert!(!groups.contains(&Name::create(b"g").unwrap()), "{slot:?}");
    }
    run(&mut slots, "del-user u").unwrap();
    run(&mut slots, "del-group h").unwrap();
    assert_eq!(slots, Slots::default());
}

#[test]
fn groups_in_a_circle_or_too_deep_are_refused() {
    let mut slots = all(&["add-group g", "add-group h groups=g"]);
    assert_eq!(error(&mut slots, "alter-group g groups=h"), "Group g would be in itself");
    assert_eq!(error(&mut slots, "alter-group g groups=g"), "Group g would be in itself");

    let mut deep = all(&["add-group g1"]);
    for depth in 2..=GROUP_DEPTH_MAX {
        run(&mut deep, &format!("add-group g{depth} groups=g{}", depth - 1)).unwrap();
    }
    run(&mut deep, &format!("add-user u groups=g{GROUP_DEPTH_MAX}")).unwrap();
    run(&mut deep, "add-group g0").unwrap();
    let too_deep = "Groups are nested too deep, or too many count for one user";
    assert_eq!(error(&mut deep, "alter-group g1 groups=g0"), too_deep);
}

#[test]
fn no_password_is_shown() {
    let command = Command::parse(&["add-user", "u", "password=secret"]).unwrap();
    assert_eq!(command.password(), Some(&b"secret"[..]));
    assert!(!format!("{command:?}").contains("secret"));
}

#[test]
fn a_password_may_stand_beside_the_words() {
    let parse = |line: &str| Command::parse(&line.split(' ').collect::<Vec<_>>()).unwrap();
    let mut command = parse("add-user ann");
    assert_eq!(command.set_password("".into()), Err(CommandError::EmptyPassword));
    command.set_password("secret".into()).unwrap();
    assert_eq!(command.password(), Some(&b"secret"[..]));
    assert!(matches!(command.set_password("other".into()), Err(CommandError::Usage(_))), "two passwords");
    let mut grant = parse("grant riak_kv.get on any to all");
    assert!(matches!(grant.set_password("secret".into()), Err(CommandError::Usage(_))));
}

#[test]
fn an_imported_hash_is_replaced_unless_it_was_changed() {
    const IMPORTED: &str =
        "password_hash=pbkdf2-hmac-sha1:65536:73616c74:4b007901b765489abead49d926f721d065a429c1";
    let credential = |slots: &Slots| match slots.get(&SlotKey::User(Name::create(b"ann").unwrap())) {
        Some(Slot::User(user)) => user.credential.clone().unwrap(),
        _ => panic!("no user"),
    };
    let mut slots = all(&[&format!("add-user ann {IMPORTED} note=x")]);
    let before = credential(&slots);
    assert!(matches!(before, Credential::RiakPbkdf2 { rounds: 65_536, .. }));
    let after = Credential::Argon2id("new".into());
    let rehash = Command::Rehash { user: Name::create(b"ann").unwrap(), before, after };
    let changes = rehash.plan(&slots, None).unwrap();
    let mut replaced = slots.clone();
    replaced.apply(&changes).unwrap();
    assert_eq!(credential(&replaced), Credential::Argon2id("new".into()));

    run(&mut slots, "alter-user ann password=other").unwrap();
    assert_eq!(rehash.plan(&slots, None), Ok(Vec::new()), "the new password stays");
    run(&mut slots, "del-user ann").unwrap();
    assert_eq!(rehash.plan(&slots, None), Ok(Vec::new()));
    for line in [format!("add-user bob {IMPORTED} password=p"), "add-user bob password_hash=x".to_owned()] {
        assert!(error(&mut slots, &line).starts_with("A password_hash is pbkdf2-hmac-sha1:"));
    }
}
