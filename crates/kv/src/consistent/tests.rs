use super::version::{NEVER, stored};
use super::*;
use crate::bucket::Bucket;
use crate::condition::{Conditions, Tags, Validators};
use crate::limits::Limits;
use crate::props::{BucketProps, Hook};
use crate::request::{DeleteRequest, GetRequest, PutRequest, Return};
use crate::response::{Found, Response};
use base::Wall;
use bytes::Bytes;
use object::{Actor, Context, Dot, Head, HeadView, IndexEntry, Metadata, Object, Policy};
use proptest::prelude::*;
use strong::group::{Condition, Version};

const AT: Wall = Wall(1_800_000_000_000_000);

fn bucket() -> Bucket {
    Bucket { bucket_type: Bytes::from_static(b"c"), name: Bytes::from_static(b"b") }
}

fn props() -> BucketProps {
    BucketProps { consistent: true, ..BucketProps::of_new_type() }
}

fn put(value: &'static str) -> PutRequest {
    let metadata = Metadata { content_type: Some(Bytes::from_static(b"text/plain")), ..Metadata::default() };
    PutRequest::new(bucket(), Some(Bytes::from_static(b"k")), metadata, Bytes::from_static(value.as_bytes()))
}

fn get() -> GetRequest {
    GetRequest::new(bucket(), Bytes::from_static(b"k"))
}

fn context(entries: &[(Actor, u64)]) -> Bytes {
    let dots = entries.iter().map(|&(actor, counter)| Dot::new(actor, counter));
    dots.collect::<Context>().encode().into()
}

fn seen(version: Version) -> Option<Bytes> {
    Some(context(&[(ACTOR, version.0)]))
}

fn plan(request: PutRequest) -> Result<Plan, Error> {
    Plan::put(request, &props(), &Limits::default())
}

fn object_of(value: &'static str, version: Version) -> (Bytes, Bytes) {
    plan(put(value)).unwrap().object(version, AT)
}

fn client_context(head: &[u8]) -> Bytes {
    HeadView::parse(head).unwrap().context().to_context().encode().into()
}

#[test]
fn golden_bytes() {
    let version = Version::new(1, 7);
    let (head, value) = object_of("v", version);
    assert_eq!(value, "v");
    // Version 1, no flags, one sibling; the context: one entry.
    let dot = b"\x01\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x87\x80\x80\x80\x80\x80\x40";
    let sibling = b"\x02\0\0\x80\x80\xE2\xC4\xF2\xA2\x99\x03\x01\x0Atext/plain";
    assert_eq!(head, [&b"\x01\0\x01\x10"[..], dot, sibling].concat());
    let deleted = [&b"\x01\x01\x01\x10"[..], dot, b"\x01\0\0\0\0"].concat();
    assert_eq!(tombstone(version), deleted);
    assert_eq!(join_object(b"head", b"value")[..], *b"\x04headvalue");
    assert_eq!(join_object(&[7; 200], b"")[..2], [0xC8, 0x01]);
}

#[test]
fn a_plan_says_what_its_object_is() {
    let plan = plan(put("v")).unwrap();
    assert!(!plan.is_deletion());
    let version = Version::new(0, 12);
    let (head, value) = plan.object(version, AT);
    let parsed = Head::decode(&head).unwrap();
    assert_eq!(parsed.siblings().len(), 1);
    assert_eq!(parsed.siblings()[0].dot, Dot::new(ACTOR, 12));
    assert_eq!((parsed.newest_time(), parsed.is_tombstone()), (AT.0, false));
    assert_eq!(version_of(&head), Ok(Some(version)));
    assert_eq!(Current::of(Some(&head), 0), Ok(Current { version: Some(version) }));
    assert_eq!(plan.object(version, AT), (head, value), "as often as it is asked for");

    let plan = Plan::delete(DeleteRequest::new(bucket(), Bytes::from_static(b"k")), &props()).unwrap();
    assert!(plan.is_deletion());
    let (head, value) = plan.object(version, AT);
    assert_eq!(
        (head.clone(), value.len()),
        (tombstone(version), 0),
        "replicas make the same without the leader"
    );
    assert_eq!(version_of(&head), Ok(None));
    assert_eq!(Current::of(None, 0), Ok(Current::default()));
}

#[test]
fn the_higher_version_is_the_join() {
    let of = |(head, value): (Bytes, Bytes)| Object::new(Head::decode(&head).unwrap(), value).unwrap();
    let versions = [Version::new(0, 3), Version::new(0, 5), Version::new(1, 1)];
    let mut ascending: Vec<Object> = Vec::new();
    for version in versions {
        ascending.push(of(object_of("v", version)));
        let later = Version(version.0 + 1);
        ascending.push(of((tombstone(later), Bytes::new())));
    }
    for (at, one) in ascending.iter().enumerate() {
        for other in &ascending[..=at] {
            assert_eq!(object::merge(one, other).as_ref(), Ok(one));
            assert_eq!(object::merge(other, one).as_ref(), Ok(one));
        }
    }
}

#[test]
fn a_head_of_another_shape_is_damage() {
    let encoded = |context: &[(Actor, u64)], dot: Dot, metadata: Metadata| {
        let context = context.iter().map(|&(actor, counter)| Dot::new(actor, counter)).collect();
        let put = object::Put { context: Some(context), metadata, value: Bytes::new() };
        let object = object::update(None, put, dot, Policy::AllowMult).unwrap();
        let mut bytes = Vec::new();
        object.head().encode(&mut bytes);
        bytes
    };
    let (plain, ending) = (Metadata::default(), Metadata { expires_ms: Some(5), ..Metadata::default() });
    let ours = Dot::new(ACTOR, 9);
    assert_eq!(version_of(&encoded(&[], ours, plain.clone())), Ok(Some(Version(9))));
    for head in [
        encoded(&[], Dot::new(Actor(7), 9), plain.clone()),
        encoded(&[(Actor(7), 1)], ours, plain),
        encoded(&[], ours, ending),
        Vec::new(),
        b"\x01junk".to_vec(),
    ] {
        assert!(matches!(version_of(&head), Err(Error::Damaged(_))), "{}", head.escape_ascii());
    }
    let two = object::update(
        Some(object::update(None, object_put("a"), ours, Policy::AllowMult).unwrap()),
        object_put("b"),
        Dot::new(ACTOR, 10),
        Policy::AllowMult,
    );
    let mut head = Vec::new();
    two.unwrap().head().encode(&mut head);
    assert!(matches!(version_of(&head), Err(Error::Damaged(_))), "two siblings");
}

fn object_put(value: &'static str) -> object::Put {
    object::Put { context: None, metadata: Metadata::default(), value: Bytes::from_static(value.as_bytes()) }
}

#[test]
fn the_condition_of_a_put_is_all_that_the_client_asks_for() {
    let version = Version::new(2, 5);
    let of = |request: PutRequest| plan(request).map(|plan| plan.condition());
    let blind = || put("v");
    let based = || PutRequest { context: seen(version), ..put("v") };
    assert_eq!(of(blind()), Ok(Condition::Absent));
    assert_eq!(of(PutRequest { context: Some(Bytes::new()), ..blind() }), Ok(Condition::Absent));
    assert_eq!(of(based()), Ok(Condition::Is(version)));

    for request in [
        PutRequest { if_none_match: true, ..blind() },
        PutRequest { if_not_modified: true, asis: true, ..blind() },
    ] {
        assert_eq!(of(request), Ok(Condition::Absent));
    }
    assert_eq!(of(PutRequest { if_not_modified: true, asis: true, ..based() }), Ok(Condition::Is(version)));
    assert_eq!(of(PutRequest { if_none_match: true, ..based() }), Ok(Condition::Is(NEVER)));

    let foreign = [
        context(&[(Actor(7), 5)]),
        context(&[(Actor(7), 5), (ACTOR, 5)]),
        context(&[(Actor::WRITE_ONCE, 5)]),
        context(&[]),
    ];
    for context in foreign {
        assert_eq!(of(PutRequest { context: Some(context), ..blind() }), Ok(Condition::Is(NEVER)));
    }
    let junk = Some(Bytes::from_static(b"junk"));
    assert_eq!(of(PutRequest { context: junk, ..blind() }), Err(Error::BadContext));
}

#[test]
fn standard_conditions_that_need_no_look_are_kept_and_others_refused() {
    let version = Version(5);
    let none = Conditions::default;
    let tag = || Some(Tags::Named(vec![Bytes::from_static(b"x")]));
    let any = || Some(Tags::Any);
    let of = |context: Option<Bytes>, conditions: Conditions| {
        plan(PutRequest { context, conditions: Some(Box::new(conditions)), ..put("v") })
            .map(|plan| plan.condition())
    };
    for nothing_more in [
        Conditions { if_none_match: tag(), ..none() },
        Conditions { if_none_match: any(), ..none() },
        Conditions { if_unmodified_since: Some(7), ..none() },
    ] {
        assert_eq!(of(None, nothing_more), Ok(Condition::Absent));
    }
    let is_there = || Conditions { if_match: any(), ..none() };
    assert_eq!(of(None, is_there()), Ok(Condition::Is(NEVER)));
    assert_eq!(of(seen(version), is_there()), Ok(Condition::Is(version)));
    let is_not = Conditions { if_none_match: any(), ..none() };
    assert_eq!(of(seen(version), is_not), Ok(Condition::Is(NEVER)));
    for (context, conditions) in [
        (None, Conditions { if_match: tag(), ..none() }),
        (seen(version), Conditions { if_match: tag(), ..none() }),
        (seen(version), Conditions { if_none_match: tag(), ..none() }),
        (seen(version), Conditions { if_unmodified_since: Some(7), ..none() }),
        (seen(version), Conditions { if_unmodified_since: Some(7), ..is_there() }),
    ] {
        let told = of(context, conditions.clone());
        assert!(matches!(told, Err(Error::NotInConsistentTypes(_))), "{conditions:?}: {told:?}");
    }
}

#[test]
fn the_condition_of_a_put_decides_as_all_that_is_asked_for_would() {
    let version = Version(5);
    let (head, _) = object_of("v", version);
    let validators = Validators::of(&HeadView::parse(&head).unwrap(), false);
    let its_tag = Bytes::copy_from_slice(validators.etag.as_ref());
    let tags = [
        None,
        Some(Tags::Any),
        Some(Tags::Named(Vec::new())),
        Some(Tags::Named(vec![its_tag])),
        Some(Tags::Named(vec![Bytes::from_static(b"x")])),
    ];
    let times = [None, Some(validators.last_modified - 1), Some(validators.last_modified)];
    let mut all = Vec::new();
    for if_match in &tags {
        for if_none_match in &tags {
            all.extend(times.map(|if_unmodified_since| Conditions {
                if_match: if_match.clone(),
                if_none_match: if_none_match.clone(),
                if_modified_since: None,
                if_unmodified_since,
            }));
        }
    }
    let states = [(None, None), (Some(version), Some(validators)), (Some(Version(6)), Some(validators))];
    let (mut decided, mut refused) = (0, 0);
    for (context, base) in [(None, Condition::Absent), (seen(version), Condition::Is(version))] {
        for conditions in &all {
            let (context, boxed) = (context.clone(), Some(Box::new(conditions.clone())));
            let Ok(plan) = plan(PutRequest { context, conditions: boxed, ..put("v") }) else {
                refused += 1;
                continue;
            };
            decided += 1;
            for (stored, object) in states {
                let is_wanted = holds(base, stored) && conditions.check(object).is_ok();
                assert_eq!(holds(plan.condition(), stored), is_wanted, "{base:?} {conditions:?} {stored:?}");
            }
        }
    }
    assert!(decided >= 20 && refused >= 20, "{decided} {refused}");
}

fn holds(condition: Condition, stored: Option<Version>) -> bool {
    match condition {
        Condition::None => true,
        Condition::Absent => stored.is_none(),
        Condition::Is(version) => stored == Some(version),
    }
}

#[test]
fn a_delete_asks_for_what_was_seen_or_for_nothing() {
    let of = |context| {
        let request = DeleteRequest { context, ..DeleteRequest::new(bucket(), Bytes::from_static(b"k")) };
        Plan::delete(request, &props()).map(|plan| plan.condition())
    };
    assert_eq!(of(None), Ok(Condition::None));
    assert_eq!(of(seen(Version(3))), Ok(Condition::Is(Version(3))));
    assert_eq!(of(Some(context(&[(Actor(3), 3)]))), Ok(Condition::Is(NEVER)));
    assert_eq!(of(Some(Bytes::from_static(b"junk"))), Err(Error::BadContext));
}

#[test]
fn what_consistent_types_do_not_take_is_refused() {
    let entry = IndexEntry { field: Bytes::from_static(b"f_bin"), value: Bytes::from_static(b"x") };
    let mut indexed = put("v");
    indexed.metadata.indexes.push(entry);
    let text = "index terms are not supported in consistent bucket types";
    assert_eq!(plan(indexed).map_err(|error| error.to_string()).unwrap_err(), text);

    let small = Limits { value_bytes_max: 3, ..Limits::default() };
    let large = Plan::put(put("four"), &props(), &small);
    assert!(matches!(large, Err(Error::TooLarge { what: "value", len: 4, limit: 3 })), "{large:?}");
    let unnamed = PutRequest { key: Some(Bytes::new()), ..put("v") };
    assert!(matches!(plan(unnamed), Err(Error::EmptyName(_))));
    let unnamed = DeleteRequest::new(bucket(), Bytes::new());
    assert!(matches!(Plan::delete(unnamed, &props()), Err(Error::EmptyName(_))));
    let unnamed = GetRequest { key: Bytes::new(), ..get() };
    assert!(matches!(check_get(&unnamed, &Limits::default()), Err(Error::EmptyName(_))));
    assert_eq!(check_get(&get(), &Limits::default()), Ok(()));

    let hooked = BucketProps { precommit: vec![Hook::Named(Bytes::from_static(b"h"))], ..props() };
    assert!(matches!(Plan::put(put("v"), &hooked, &Limits::default()), Err(Error::Precommit(_))));
}

#[test]
fn a_write_answers_as_much_as_was_asked_for() {
    let version = Version(9);
    let answer = |request: PutRequest| {
        let plan = plan(request).unwrap();
        let (head, value) = plan.object(version, AT);
        (plan.response(&head, &value), head)
    };
    let (told, _) = answer(put("v"));
    assert_eq!(told, Response::Put { object: None, key: None });
    let (told, head) = answer(PutRequest { returned: Return::Head, ..put("v") });
    let found = Found { head, value: None, newest_only: false };
    assert_eq!(told, Response::Put { object: Some(found), key: None });
    let (told, head) = answer(PutRequest { returned: Return::Body, key_invented: true, ..put("v") });
    let found = Found { head, value: Some(Bytes::from_static(b"v")), newest_only: false };
    assert_eq!(told, Response::Put { object: Some(found), key: Some(Bytes::from_static(b"k")) });

    let plan = Plan::delete(DeleteRequest::new(bucket(), Bytes::from_static(b"k")), &props()).unwrap();
    let (head, value) = plan.object(version, AT);
    assert_eq!(plan.response(&head, &value), Response::Deleted);
}

/// The response in the first epoch.
fn get_response_of_0(request: &GetRequest, found: Option<(Bytes, Bytes)>) -> Result<Response, Error> {
    get_response(request, found, 0)
}

/// A recovery may have lost a write whose version another one has now.
#[test]
fn an_epoch_names_the_versions_of_earlier_ones_anew() {
    let (old, new) = (Version::new(0, 9), Version::new(2, 9));
    let (head, value) = object_of("v", old);
    let read = |request: &GetRequest| get_response(request, Some((head.clone(), value.clone())), 2);
    let shown = Found { head: object_of("v", new).0, value: Some(value.clone()), newest_only: false };
    assert_eq!(read(&get()), Ok(Response::Found(shown.clone())));
    let if_modified = |version| GetRequest { if_modified: seen(version), ..get() };
    assert_eq!(read(&if_modified(old)), Ok(Response::Found(shown)), "a context of the time before");
    assert_eq!(read(&if_modified(new)), Ok(Response::Unchanged));
    assert_eq!(Current::of(Some(&head), 2), Ok(Current { version: Some(new) }));
    assert_eq!(stored_version(&head), Ok(old), "stores keep it");
}

#[test]
fn a_read_tells_of_the_object_and_of_no_tombstone() {
    let version = Version(9);
    let (head, value) = object_of("v", version);
    let stored = || Some((head.clone(), value.clone()));
    let found = |value| Ok(Response::Found(Found { head: head.clone(), value, newest_only: false }));
    assert_eq!(get_response_of_0(&get(), stored()), found(Some(value.clone())));
    let only_head = GetRequest { head: true, ..get() };
    assert_eq!(get_response_of_0(&only_head, stored()), found(None));
    let if_modified = |version| GetRequest { if_modified: seen(version), ..get() };
    assert_eq!(get_response_of_0(&if_modified(version), stored()), Ok(Response::Unchanged));
    for other in [Version(8), Version(10)] {
        assert_eq!(get_response_of_0(&if_modified(other), stored()), found(Some(value.clone())));
    }

    let absent = Ok(Response::NotFound { deleted_context: None });
    let asked = GetRequest { deleted_context: true, ..if_modified(version) };
    assert_eq!(get_response_of_0(&asked, None), absent);
    assert_eq!(get_response_of_0(&asked, Some((tombstone(version), Bytes::new()))), absent);

    let cut = Some((head.clone(), Bytes::new()));
    assert!(matches!(get_response_of_0(&get(), cut), Err(Error::Damaged(_))));
    let junk = Some((Bytes::from_static(b"junk"), Bytes::new()));
    assert!(matches!(get_response_of_0(&get(), junk), Err(Error::Damaged(_))));
}

#[test]
fn errors_are_of_three_classes() {
    use strong::group::{Answer, Cause};
    assert_eq!(error_of(Answer::Written(Version(1))), None);
    assert_eq!(error_of(Answer::Readable), None);
    assert_eq!(error_of(Answer::Failed), Some(Error::Failed));
    assert_eq!(error_of(Answer::Timeout), Some(Error::Timeout));
    let causes = [
        Cause::NotLeader { leader: None },
        Cause::NotReady,
        Cause::Overload,
        Cause::Expired,
        Cause::LeaderChanged,
    ];
    for cause in causes {
        assert_eq!(error_of(Answer::Unavailable(cause)), Some(Error::Unavailable));
    }
}

#[test]
fn only_joined_objects_are_split() {
    for bytes in [&b""[..], b"\x05head", b"\x80", b"\x80\x00head", b"\x80\x80\x80\x01", b"\xFF\xFF\xFF\xFF"] {
        let split = split_object(&Bytes::from_static(bytes));
        assert!(matches!(split, Err(Error::Damaged(_))), "{}", bytes.escape_ascii());
    }
}

proptest! {
    #[test]
    fn heads_values_and_versions_round_trip(
        epoch in any::<u16>(),
        index in 1u64..1 << 48,
        wall in any::<u64>(),
        content_type in prop::option::of(prop::collection::vec(any::<u8>(), 0..20)),
        value in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let version = Version::new(epoch, index);
        let metadata = Metadata { content_type: content_type.map(Bytes::from), ..Metadata::default() };
        let request = PutRequest::new(bucket(), Some(Bytes::from_static(b"k")), metadata.clone(), value.clone().into());
        let (head, stored_value) = plan(request).unwrap().object(version, Wall(wall));
        let (split_head, split_value) = split_object(&join_object(&head, &stored_value)).unwrap();
        prop_assert_eq!((&split_head, &split_value), (&head, &stored_value));
        prop_assert_eq!(&split_value[..], &value[..]);
        prop_assert_eq!(version_of(&head), Ok(Some(version)));
        let whole = Metadata { last_modified: wall, ..metadata };
        let parsed = Head::decode(&head).unwrap();
        prop_assert_eq!(&parsed.siblings()[0].metadata, &whole);

        let again = PutRequest { context: Some(client_context(&head)), ..put("v") };
        prop_assert_eq!(plan(again).unwrap().condition(), Condition::Is(version));
        prop_assert_eq!(version_of(&tombstone(version)), Ok(None));
        prop_assert_eq!(stored(version, whole, value.into()), (head, stored_value));
    }

    #[test]
    fn splitting_and_joining_are_inverse(object in prop::collection::vec(any::<u8>(), 0..64)) {
        let object = Bytes::from(object);
        if let Ok((head, value)) = split_object(&object) {
            prop_assert_eq!(join_object(&head, &value), object);
        }
    }

    #[test]
    fn random_heads_never_panic(head in prop::collection::vec(any::<u8>(), 0..64)) {
        let is_value = version_of(&head).is_ok_and(|version| version.is_some());
        let only_head = GetRequest { head: true, ..get() };
        let told = get_response_of_0(&only_head, Some((head.into(), Bytes::new())));
        prop_assert_eq!(is_value, !matches!(told, Err(_) | Ok(Response::NotFound { .. })));
    }
}
