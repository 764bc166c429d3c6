//! Stories of decisions, one rule each.

use security::{
    Attribute, Credential, EFFECTIVE_GROUPS_MAX, Explanation, GROUP_DEPTH_MAX, Login, Method, Mode, Needs,
    Offer, Permission, Policy, Refusal, Resource, Slot, Slots, Target, common_name,
};

use crate::build::{address, bucket, grant, group, name, policy, role, slots, source, user};

const GET: Permission = Permission::Get;

fn may(policy: &Policy, user: &str, bucket_type: &str, bucket: &str) -> bool {
    let user = policy.user(user.as_bytes()).expect("a user of the test");
    policy.may(user, GET, Target::Bucket(bucket_type.as_bytes(), bucket.as_bytes()))
}

#[test]
pub fn a_grant_covers_its_resource_and_no_other() {
    let policy = policy([
        user("one", &[]),
        user("two", &[]),
        user("three", &[]),
        grant("user/one", bucket("t", "bucket"), &[GET]),
        grant("user/two", Resource::Type("t".into()), &[GET]),
        grant("user/three", Resource::Any, &[GET]),
    ]);
    assert!(may(&policy, "one", "t", "bucket"));
    assert!(!may(&policy, "one", "t", "bucket2") && !may(&policy, "one", "t", "bucke"));
    assert!(!may(&policy, "one", "t2", "bucket"));
    assert!(may(&policy, "two", "t", "x") && !may(&policy, "two", "t2", "x"));
    assert!(may(&policy, "three", "t2", "x"));

    let on = |user: &str, target| policy.may(policy.user(user.as_bytes()).unwrap(), GET, target);
    assert!(!on("one", Target::Type(b"t")) && !on("one", Target::Any));
    assert!(on("two", Target::Type(b"t")) && !on("two", Target::Any));
    assert!(on("three", Target::Any));
    let three = policy.user(b"three").unwrap();
    assert!(!policy.may(three, Permission::Put, Target::Any));
}

#[test]
pub fn a_cycle_of_groups_is_harmless() {
    let policy = policy([
        user("u", &["a"]),
        group("a", &["b"]),
        group("b", &["c", "b"]),
        group("c", &["a"]),
        grant("group/c", Resource::Any, &[GET]),
    ]);
    assert!(may(&policy, "u", "t", "b"));
}

#[test]
fn groups_end_at_their_depth_and_number() {
    let chain = (1..=GROUP_DEPTH_MAX + 1).map(|at| group(&format!("g{at}"), &[&format!("g{}", at + 1)]));
    let grants = |at: usize, type_name: &'static str| {
        grant(&format!("group/g{at}"), Resource::Type(type_name.into()), &[GET])
    };
    let last = [grants(GROUP_DEPTH_MAX, "near"), grants(GROUP_DEPTH_MAX + 1, "far"), user("u", &["g1"])];
    let deep = policy(chain.chain(last));
    assert!(may(&deep, "u", "near", "b") && !may(&deep, "u", "far", "b"));

    let many: Vec<String> = (0..=EFFECTIVE_GROUPS_MAX).map(|at| format!("m{at:03}")).collect();
    let hubs: Vec<Vec<&str>> =
        many.chunks(60).map(|part| part.iter().map(String::as_str).collect()).collect();
    let names: Vec<String> = (0..hubs.len()).map(|at| format!("hub{at}")).collect();
    let mut records: Vec<Slot> = many.iter().map(|name| group(name, &[])).collect();
    records.extend(names.iter().zip(&hubs).map(|(name, hub)| group(name, hub)));
    records.extend(
        many.iter().map(|name| grant(&format!("group/{name}"), Resource::Type(name.clone().into()), &[GET])),
    );
    records.push(user("u", &names.iter().map(String::as_str).collect::<Vec<_>>()));
    let wide = policy(records);
    let granted = many.iter().filter(|name| may(&wide, "u", name, "b")).count();
    assert_eq!(granted, EFFECTIVE_GROUPS_MAX - hubs.len());
}

#[test]
fn a_missing_record_gives_nothing() {
    let records = [
        user("u", &["gone"]),
        grant("group/gone", Resource::Any, &[GET]),
        grant("user/gone", Resource::Any, &[GET]),
        source("gone", "0.0.0.0/0", Method::Trust),
    ];
    let policy = policy(records);
    assert!(!may(&policy, "u", "t", "b"));
    assert_eq!(policy.user(b"gone"), None);
    assert_eq!(policy.user(b"U"), None, "compared as it is");
    let gone = policy.login(b"gone", address("1.2.3.4"), Offer::default());
    assert_eq!(gone, Login::Refused(Refusal::UnknownUser));
}

#[test]
fn an_empty_policy_lets_nobody_in() {
    let policy = Policy::compile(&Slots::default(), 7);
    assert_eq!((policy.version(), policy.user(b"u")), (7, None));
    assert_eq!(policy.settings().mode, Mode::Off);
}

#[test]
#[should_panic(expected = "the policy of its version")]
fn a_user_of_another_version_is_our_mistake() {
    let records = slots([user("u", &[])]);
    let user = Policy::compile(&records, 1).user(b"u").unwrap();
    Policy::compile(&records, 2).may(user, GET, Target::Any);
}

/// The method by which a user logs in from an address.
fn method(policy: &Policy, user: &str, from: &str) -> Option<Method> {
    policy.source(user.as_bytes(), address(from)).map(|source| source.method)
}

#[test]
pub fn the_longest_prefix_decides_and_a_user_stands_before_all() {
    let policy = policy([
        user("u", &[]),
        user("v", &[]),
        source("all", "10.0.0.0/8", Method::Trust),
        source("u", "10.0.0.0/8", Method::Password),
        source("all", "10.1.0.0/16", Method::Certificate),
        source("u", "10.1.1.0/24", Method::Trust),
    ]);
    assert_eq!(method(&policy, "u", "10.9.9.9"), Some(Method::Password));
    assert_eq!(method(&policy, "v", "10.9.9.9"), Some(Method::Trust));
    assert_eq!(method(&policy, "u", "10.1.9.9"), Some(Method::Certificate));
    assert_eq!(method(&policy, "u", "10.1.1.9"), Some(Method::Trust));
    assert_eq!(method(&policy, "v", "10.1.1.9"), Some(Method::Certificate));
    assert_eq!(method(&policy, "u", "::ffff:10.1.1.9"), Some(Method::Trust));
    assert_eq!(method(&policy, "u", "11.0.0.1"), None);
}

#[test]
pub fn an_ipv4_network_has_no_peer_of_ipv6() {
    let policy = policy([user("u", &[]), source("all", "0.0.0.0/0", Method::Trust)]);
    assert_eq!(method(&policy, "u", "::ffff:10.0.0.1"), Some(Method::Trust));
    assert_eq!(method(&policy, "u", "2001:db8::1"), None);
}

#[test]
pub fn an_empty_password_is_refused_without_a_hash() {
    let policy = policy([user("u", &[]), source("all", "0.0.0.0/0", Method::Password)]);
    let login = |password| policy.login(b"u", address("1.2.3.4"), Offer { password, certificate: None });
    assert_eq!(login(Some(b"")), Login::Refused(Refusal::EmptyPassword));
    assert_eq!(login(None), Login::Refused(Refusal::EmptyPassword));
    let verifier = Credential::Argon2id("verifier".into());
    assert_eq!(login(Some(b"x:y")), Login::Verify(policy.user(b"u").unwrap(), &verifier));
}

#[test]
fn each_method_asks_for_its_proof() {
    let mut without = user("none", &[]);
    if let Slot::User(user) = &mut without {
        user.credential = None;
    }
    let policy = policy([
        user("u", &[]),
        without,
        source("all", "10.0.0.0/8", Method::Trust),
        source("all", "11.0.0.0/8", Method::Certificate),
        source("all", "12.0.0.0/8", Method::Password),
    ]);
    let (password, certificate) = (Some(&b"secret"[..]), Some(&b"u"[..]));
    let login = |user: &str, from, offer| policy.login(user.as_bytes(), address(from), offer);
    let nothing = Offer::default();
    let u = policy.user(b"u").unwrap();
    assert_eq!(login("u", "10.0.0.1", nothing), Login::Accepted(u));
    assert_eq!(login("u", "11.0.0.1", Offer { certificate, password: None }), Login::Accepted(u));
    let wrong = Login::Refused(Refusal::WrongCertificate);
    assert_eq!(login("none", "11.0.0.1", Offer { certificate, password }), wrong);
    assert_eq!(login("u", "11.0.0.1", Offer { certificate: None, password }), wrong);
    let no_credential = Login::Refused(Refusal::NoCredential);
    assert_eq!(login("none", "12.0.0.1", Offer { certificate, password }), no_credential);
    assert_eq!(login("u", "13.0.0.1", Offer { certificate, password }), Login::Refused(Refusal::NoSource));
}

#[test]
pub fn only_the_common_name_names_a_user() {
    let organization = Attribute { oid: &[0x55, 0x04, 0x0A], value: b"admin" };
    let alice = Attribute { oid: &[0x55, 0x04, 0x03], value: b"alice" };
    assert_eq!(common_name([organization, alice]), Some(&b"alice"[..]));
    assert_eq!(common_name([organization]), None);
}

#[test]
fn a_decision_is_explained() {
    let policy = policy([
        user("u", &["g"]),
        group("g", &[]),
        grant("user/u", bucket("t", "b"), &[GET]),
        grant("group/g", Resource::Type("t".into()), &[GET]),
        grant("all", Resource::Any, &[Permission::Put]),
    ]);
    let u = policy.user(b"u").unwrap();
    let explain = |permission, target| policy.explain(u, permission, target);
    let granted = |to, resource, permission| Explanation::Granted { role: role(to), resource, permission };
    let b = Target::Bucket(b"t", b"b");
    assert_eq!(explain(GET, b), granted("group/g", Resource::Type("t".into()), GET));
    assert_eq!(explain(Permission::Put, b), granted("all", Resource::Any, Permission::Put));
    assert_eq!(explain(GET, b).to_string(), "'riak_kv.get' by the grant to group/g on t");
    for (target, text) in
        [(Target::Any, "any"), (Target::Type(b"x"), "x"), (Target::Bucket(b"x", b"y"), "x/y")]
    {
        let text = format!("Permission denied: User 'u' does not have 'riak_kv.get' on {text}");
        assert_eq!(explain(GET, target).to_string(), text);
    }
    assert_eq!(policy.name(u), &name("u"));
}

#[test]
fn all_needs_of_a_request_have_to_be_met() {
    let policy = policy([user("u", &[]), grant("user/u", bucket("t", "b"), &[Permission::Put])]);
    let u = policy.user(b"u").unwrap();
    let put = Needs::of([Permission::Put], Target::Bucket(b"t", b"b"));
    for met in [Needs::Nothing, Needs::Login, put, put.and_if(false, GET)] {
        assert_eq!(policy.missing(u, met), None);
    }
    let missing = policy.missing(u, put.and_if(true, GET)).unwrap();
    assert_eq!(missing.to_string(), "Permission denied: User 'u' does not have 'riak_kv.get' on t/b");
}
