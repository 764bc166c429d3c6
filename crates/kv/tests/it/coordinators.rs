//! What each coordinator asks of the store, in order, and what it answers.

use crate::common::Step::{ReadHead, ReadValue, Write};
use crate::common::{Node, context, delete, get, put, values};
use bytes::Bytes;
use kv::need::Need;
use kv::props::Hook;
use kv::{BucketProps, Conditions, Error, Found, Quorum, Response, Return, Tags};
use object::{Actor, Context, Dot, HeadView, Link, Metadata};

fn some(values: &[&str]) -> Vec<Option<String>> {
    values.iter().map(|value| Some((*value).to_string())).collect()
}

fn found(response: Result<Response, Error>) -> Found {
    match response {
        Ok(Response::Found(found)) => found,
        other => panic!("{other:?} instead of an object"),
    }
}

fn written(response: Result<Response, Error>) -> Option<Found> {
    match response {
        Ok(Response::Put { object, .. }) => object,
        other => panic!("{other:?} instead of a write"),
    }
}

#[test]
fn a_get_reads_once_and_a_head_reads_no_value() {
    let mut node = Node::new(BucketProps::default());
    written(node.put(put("k", "v")));
    assert_eq!(node.steps, [ReadHead, Write]);

    assert_eq!(values(&found(node.get(get("k")))), some(&["v"]));
    assert_eq!(node.steps, [ReadValue]);

    let mut head = get("k");
    head.head = true;
    assert_eq!(found(node.get(head)).value, None);
    assert_eq!(node.steps, [ReadHead]);

    assert_eq!(node.get(get("other")), Ok(Response::NotFound { deleted_context: None }));
    assert_eq!(node.steps, [ReadValue]);
}

#[test]
fn a_conditional_get_reads_the_value_only_if_it_changed() {
    let mut node = Node::new(BucketProps::default());
    written(node.put(put("k", "old")));
    let mut request = get("k");
    request.if_modified = node.siblings("k").0;
    assert_eq!(node.get(request.clone()), Ok(Response::Unchanged));
    assert_eq!(node.steps, [ReadHead]);

    written(node.put(put("k", "new")));
    assert_eq!(values(&found(node.get(request.clone()))), some(&["new"]));
    assert_eq!(node.steps, [ReadHead, ReadValue]);
    node.inline = true;
    assert_eq!(values(&found(node.get(request.clone()))), some(&["new"]));
    assert_eq!(node.steps, [ReadHead], "a value that came along is not read again");

    request.if_modified = Some(Bytes::from_static(b"junk"));
    assert_eq!(node.get(request), Err(Error::BadContext));
    assert!(node.steps.is_empty());
}

#[test]
fn blind_writes_become_siblings_whose_values_are_read_when_they_stay() {
    let mut node = Node::with_siblings();
    for value in ["a", "b"] {
        written(node.put(put("k", value)));
    }
    assert_eq!(node.steps, [ReadHead, ReadValue, Write]);
    let (seen, both) = node.siblings("k");
    assert_eq!(both, some(&["a", "b"]));

    let mut resolving = put("k", "ab");
    resolving.context = seen;
    resolving.returned = Return::Body;
    let returned = written(node.put(resolving.clone())).unwrap();
    assert_eq!(values(&returned), some(&["ab"]));
    assert_eq!(node.steps, [ReadHead, Write], "nobody stays, so no value is read");
    assert_eq!(node.siblings("k"), (Some(context(&returned)), some(&["ab"])));

    // The same context again: it covers a and b, not what replaced them.
    node.inline = true;
    assert_eq!(values(&written(node.put(resolving)).unwrap()), some(&["ab", "ab"]));
    assert_eq!(node.steps, [ReadHead, Write], "a value that came along is not read again");
}

#[test]
fn without_allow_mult_the_last_write_is_there_alone() {
    let mut node = Node::new(BucketProps::default());
    written(node.put(put("k", "a")));
    let mut second = put("k", "b");
    second.returned = Return::Body;
    assert_eq!(values(&written(node.put(second)).unwrap()), some(&["b"]));
    assert_eq!(node.steps, [ReadHead, Write]);
    assert_eq!(node.siblings("k").1, some(&["b"]));
}

#[test]
fn last_write_wins_reads_nothing_without_a_condition() {
    let mut node = Node::new(BucketProps { last_write_wins: true, ..BucketProps::default() });
    for value in ["a", "b"] {
        let mut request = put("k", value);
        request.returned = Return::Body;
        assert_eq!(values(&written(node.put(request)).unwrap()), some(&[value]));
        assert_eq!(node.steps, [Write]);
    }
    let mut conditional = put("k", "c");
    conditional.if_none_match = true;
    assert_eq!(node.put(conditional), Err(Error::MatchFound));
    assert_eq!(node.steps, [ReadHead]);
    assert_eq!(node.siblings("k").1, some(&["b"]));
}

#[test]
fn what_is_returned_is_what_was_asked_for() {
    let mut node = Node::with_siblings();
    assert_eq!(written(node.put(put("k", "a"))), None);
    let mut request = put("k", "b");
    request.returned = Return::Head;
    let returned = written(node.put(request)).unwrap();
    assert_eq!(returned.value, None);
    assert_eq!(Some(context(&returned)), node.siblings("k").0);
}

#[test]
fn a_bucket_that_stops_showing_siblings_shows_the_newest() {
    let mut node = Node::with_siblings();
    written(node.put(put("k", "a")));
    written(node.put(put("k", "b")));
    node.props.allow_mult = false;
    assert_eq!(node.siblings("k").1, some(&["b"]));
    node.props.allow_mult = true;
    assert_eq!(node.siblings("k").1, some(&["a", "b"]));
}

#[test]
fn conditions_hold_against_what_is_stored() {
    let mut node = Node::with_siblings();
    let if_none_match = |value| {
        let mut request = put("k", value);
        request.if_none_match = true;
        request
    };
    let if_not_modified = |value, context: Option<Bytes>| {
        let mut request = put("k", value);
        (request.if_not_modified, request.context) = (true, context);
        request
    };
    assert_eq!(node.put(if_not_modified("x", None)), Err(Error::NotFoundCondition));
    written(node.put(if_none_match("a")));
    assert_eq!(node.put(if_none_match("b")), Err(Error::MatchFound));
    assert_eq!(node.steps, [ReadHead]);

    let seen = node.siblings("k").0;
    assert_eq!(node.put(if_not_modified("b", None)), Err(Error::Modified));
    written(node.put(if_not_modified("b", seen.clone())));
    assert_eq!(node.put(if_not_modified("c", seen)), Err(Error::Modified));

    assert_eq!(node.delete(delete("k")), Ok(Response::Deleted));
    let tombstone = node.siblings("k").0;
    assert_eq!(node.put(if_not_modified("d", tombstone)), Err(Error::NotFoundCondition));
    written(node.put(if_none_match("d")));
    assert!(node.siblings("k").1.contains(&Some("d".into())), "a tombstone counts as absent");
}

#[test]
fn a_precommit_hook_fails_every_write() {
    let hook = Hook::Named(Bytes::from_static(b"js"));
    let failed = Err(Error::Precommit(r#"{invalid_hook_def,{struct,[{<<"name">>,<<"js">>}]}}"#.into()));
    for (write_once, last_write_wins) in [(false, false), (false, true), (true, false)] {
        let mut node = Node::with_siblings();
        (node.props.write_once, node.props.last_write_wins) = (write_once, last_write_wins);
        written(node.put(put("k", "a")));
        node.props.precommit = vec![hook.clone()];
        node.props.postcommit = vec![hook.clone()];
        assert_eq!(node.put(put("k", "b")), failed);
        assert_eq!(node.put(put("new", "b")), failed);
        let mut conditional = put("k", "b");
        conditional.if_none_match = true;
        if !write_once {
            assert_eq!(node.put(conditional), Err(Error::MatchFound), "conditions come first, as in Riak");
        }
        assert_eq!(node.delete(delete("k")), failed);
        assert_eq!(node.delete(delete("absent")), Ok(Response::Deleted), "nothing is written");
        assert_eq!(node.siblings("k").1, some(&["a"]));
        assert_eq!(node.siblings("new").1, some(&[]));
        // A hook behind a write does not stop it.
        node.props.precommit = Vec::new();
        written(node.put(put("new", "b")));
        assert_eq!(node.siblings("new").1, some(&["b"]));
    }
}

#[test]
fn tags_and_times_are_conditions_too() {
    let mut node = Node::with_siblings();
    let put_if = |value, conditions: Conditions| {
        let mut request = put("k", value);
        request.conditions = Some(Box::new(conditions));
        request
    };
    let if_match = |tags| Conditions { if_match: Some(tags), ..Conditions::default() };
    let etag = |node: &mut Node| {
        let Ok(Response::Found(found)) = node.get(get("k")) else { panic!("there is an object") };
        let head = HeadView::parse(&found.head).unwrap();
        Tags::Named(vec![Bytes::copy_from_slice(head.etag().as_ref())])
    };
    assert_eq!(node.put(put_if("x", if_match(Tags::Any))), Err(Error::Modified));
    let none = Conditions { if_none_match: Some(Tags::Any), ..Conditions::default() };
    written(node.put(put_if("a", none.clone())));
    assert_eq!(node.put(put_if("b", none)), Err(Error::Modified));
    assert_eq!(node.steps, [ReadHead]);

    let seen = etag(&mut node);
    written(node.put(put_if("b", if_match(seen.clone()))));
    assert_eq!(node.put(put_if("c", if_match(seen))), Err(Error::Modified));
    let both = etag(&mut node);
    written(node.put(put_if("c", if_match(both))));

    let unmodified = |time| Conditions { if_unmodified_since: Some(time), ..Conditions::default() };
    assert_eq!(node.put(put_if("d", unmodified(0))), Err(Error::Modified));
    written(node.put(put_if("d", unmodified(u64::MAX))));
    assert_eq!(node.delete(delete("k")), Ok(Response::Deleted));
    assert_eq!(node.put(put_if("e", if_match(Tags::Any))), Err(Error::Modified), "a tombstone is absent");
}

#[test]
fn a_delete_leaves_what_the_client_had_not_seen() {
    let mut node = Node::with_siblings();
    assert_eq!(node.delete(delete("k")), Ok(Response::Deleted));
    assert_eq!(node.steps, [ReadHead], "there is nothing to delete");

    written(node.put(put("k", "a")));
    let seen = node.siblings("k").0;
    written(node.put(put("k", "b")));
    let mut stale = delete("k");
    stale.context = seen;
    assert_eq!(node.delete(stale), Ok(Response::Deleted));
    assert_eq!(node.steps, [ReadHead, ReadValue, Write]);
    assert_eq!(node.siblings("k").1, [None, Some("b".into())], "a tombstone beside what was not seen");

    assert_eq!(node.delete(delete("k")), Ok(Response::Deleted));
    assert_eq!(node.steps, [ReadHead, Write]);
    let (deleted_context, none) = node.siblings("k");
    assert!(deleted_context.is_some() && none.is_empty());
    assert_eq!(node.get(get("k")), Ok(Response::NotFound { deleted_context: None }));
    assert_eq!(node.delete(delete("k")), Ok(Response::Deleted));
    assert_eq!(node.steps, [ReadHead], "it is deleted already");
}

#[test]
fn blind_put_replaces_what_is_absent_to_readers() {
    let mut node = Node::with_siblings();
    written(node.put(put("k", "a")));
    let seen = node.siblings("k").0;
    // Two tombstones beside each other: the second delete goes by a context from before.
    for context in [None, seen.clone()] {
        let mut request = delete("k");
        request.context = context;
        assert_eq!(node.delete(request), Ok(Response::Deleted));
    }
    assert!(node.siblings("k").1.is_empty());
    written(node.put(put("k", "b")));
    assert_eq!(node.steps, [ReadHead, Write]);
    assert_eq!(node.siblings("k").1, some(&["b"]));

    // Beside a live sibling the tombstone stays, and so does it for a client that had seen something else.
    let mut stale = delete("k");
    stale.context = seen.clone();
    assert_eq!(node.delete(stale), Ok(Response::Deleted));
    written(node.put(put("k", "c")));
    assert_eq!(node.siblings("k").1, [None, Some("b".into()), Some("c".into())]);
    assert_eq!(node.delete(delete("k")), Ok(Response::Deleted));
    let mut stale = put("k", "d");
    stale.context = seen;
    written(node.put(stale));
    assert_eq!(node.siblings("k").1, [None, Some("d".into())]);
}

#[test]
fn an_as_is_write_keeps_the_context_it_came_with() {
    let elsewhere: Context = [Dot::new(Actor(1), 5), Dot::new(Actor(2), 9)].into_iter().collect();
    let as_is = |value, context: &Context| {
        let mut request = put("k", value);
        (request.asis, request.context) = (true, Some(Bytes::from(context.encode())));
        request
    };
    let mut node = Node::with_siblings();
    written(node.put(as_is("copy", &elsewhere)));
    assert_eq!(node.siblings("k"), (Some(Bytes::from(elsewhere.encode())), some(&["copy"])));

    // A version that the stored one has replaced changes nothing; one that replaces it does.
    let older: Context = [Dot::new(Actor(1), 4)].into_iter().collect();
    written(node.put(as_is("older", &older)));
    assert_eq!(node.siblings("k"), (Some(Bytes::from(elsewhere.encode())), some(&["copy"])));
    let mut newer = elsewhere;
    newer.add(Dot::new(Actor(2), 12));
    written(node.put(as_is("newer", &newer)));
    assert_eq!(node.siblings("k"), (Some(Bytes::from(newer.encode())), some(&["newer"])));

    let concurrent: Context = [Dot::new(Actor(3), 1)].into_iter().collect();
    written(node.put(as_is("beside", &concurrent)));
    assert_eq!(node.steps, [ReadHead, ReadValue, Write]);
    assert_eq!(node.siblings("k").1, some(&["beside", "newer"]));

    let before = node.siblings("k");
    let forged: Context = [Dot::new(crate::common::ACTOR, u64::MAX)].into_iter().collect();
    assert_eq!(node.put(as_is("forged", &forged)), Err(Error::BadContext));
    let mut plain = put("k", "forged");
    plain.context = Some(Bytes::from(forged.encode()));
    assert_eq!(node.put(plain), Err(Error::BadContext));
    assert_eq!(node.siblings("k"), before);

    let mut without = put("other", "v");
    without.asis = true;
    written(node.put(without));
    assert_eq!(node.siblings("other").1, some(&["v"]), "without a context it is an ordinary write");
}

#[test]
fn siblings_are_capped_and_a_resolving_write_is_not() {
    let mut node = Node::with_siblings();
    node.limits.siblings_max = 3;
    for value in ["a", "b", "c"] {
        written(node.put(put("k", value)));
    }
    let before = node.siblings("k");
    assert_eq!(node.put(put("k", "d")), Err(Error::TooManySiblings { got: 4, limit: 3 }));
    assert_eq!(node.steps, [ReadHead]);
    assert_eq!(node.siblings("k"), before);
    let mut resolving = put("k", "e");
    resolving.context = before.0;
    written(node.put(resolving));
    assert_eq!(node.siblings("k").1, some(&["e"]));
}

#[test]
fn what_cannot_be_met_or_is_too_large_reads_and_writes_nothing() {
    let mut node = Node::with_siblings();
    node.limits.value_bytes_max = 4;
    let refused = |node: &mut Node, request| {
        let error = node.put(request).unwrap_err();
        assert!(node.steps.is_empty());
        error
    };
    let mut request = put("k", "v");
    request.w = Quorum::Exactly(4);
    assert_eq!(refused(&mut node, request), Error::NValViolation(3));
    let mut request = put("k", "v");
    request.node_confirms = Quorum::Exactly(2);
    let unmet = Error::Unsatisfied { need: Need::NodeConfirms, want: 2, got: 1 };
    assert_eq!(refused(&mut node, request), unmet);
    let mut request = put("k", "v");
    request.context = Some(Bytes::from_static(b"junk"));
    assert_eq!(refused(&mut node, request), Error::BadContext);
    let too_large = Error::TooLarge { what: "value", len: 5, limit: 4 };
    assert_eq!(refused(&mut node, put("k", "large")), too_large);
    let mut request = put("k", "v");
    let (field, value) = (Bytes::from_static(b"n_int"), Bytes::from_static(b"abc"));
    request.metadata.indexes = vec![object::IndexEntry { field, value }];
    let text = r#"{precommit_fail,[{field_parsing_failed,{<<"n_int">>,<<"abc">>}}]}"#;
    assert_eq!(refused(&mut node, request).to_string(), text);

    let mut request = get("k");
    request.n_val = Some(9);
    assert_eq!(node.get(request), Err(Error::NValViolation(9)));
    let mut request = delete("k");
    request.rw = Quorum::Exactly(4);
    assert_eq!(node.delete(request), Err(Error::NValViolation(3)));
    assert!(node.steps.is_empty());
    assert_eq!(node.counter, 0, "no dot was taken");
}

#[test]
fn an_object_is_held_against_the_limits_as_a_whole() {
    let mut node = Node::with_siblings();
    node.limits.object_bytes_max = 5;
    written(node.put(put("k", "abc")));
    assert_eq!(node.put(put("k", "abc")), Err(Error::TooLarge { what: "object", len: 6, limit: 5 }));
    assert_eq!(node.siblings("k").1, some(&["abc"]));
}

#[test]
fn a_failing_store_is_told_as_it_failed() {
    let mut node = Node::with_siblings();
    written(node.put(put("k", "v")));
    let damaged = || Error::Damaged("journal/1 at 64".into());
    node.fail_read = Some(damaged());
    assert_eq!(node.get(get("k")), Err(damaged()));
    node.fail_read = Some(damaged());
    assert_eq!(node.put(put("k", "w")), Err(damaged()));
    assert_eq!(node.steps, [ReadHead], "damage is not overwritten as if nothing were there");
    node.fail_read = Some(damaged());
    assert_eq!(node.delete(delete("k")), Err(damaged()));
    let fenced = || Error::Fenced("no space".into());
    node.fail_write = Some(fenced());
    assert_eq!(node.put(put("k", "w")), Err(fenced()));
    node.fail_write = Some(fenced());
    assert_eq!(node.delete(delete("k")), Err(fenced()));
}

#[test]
fn damage_that_passed_the_store_is_found() {
    let mut node = Node::with_siblings();
    written(node.put(put("k", "value")));
    let good = node.objects[&b"k"[..]].clone();
    let damaged = |response| matches!(response, Err(Error::Damaged(_)));

    node.objects.insert(Bytes::from("k"), (good.0.clone(), Bytes::from("short")));
    assert!(!damaged(node.get(get("k"))), "the length is right");
    node.objects.insert(Bytes::from("k"), (good.0, Bytes::from("shor")));
    assert!(damaged(node.get(get("k"))));
    assert!(damaged(node.put(put("k", "w"))), "a sibling that stays is damaged");
    node.objects.insert(Bytes::from("k"), (Bytes::from("no head"), good.1));
    assert!(damaged(node.get(get("k"))));
    assert!(damaged(node.put(put("k", "w"))));
    assert!(damaged(node.delete(delete("k"))));
}

#[test]
fn metadata_is_stored_with_the_time_of_the_coordinator() {
    let mut node = Node::with_siblings();
    let own = Bytes::from_static;
    let mut request = put("k", "v");
    request.metadata = Metadata {
        content_type: Some(own(b"text/plain")),
        links: vec![Link { bucket: own(b"lb"), key: own(b"lk"), tag: own(b"t") }],
        user_meta: vec![(own(b"a"), Some(own(b"b"))), (own(b"c"), None)],
        last_modified: 5,
        deleted: true,
        ..Metadata::default()
    };
    let sent = request.metadata.clone();
    written(node.put(request));
    let stored = object::Head::decode(&found(node.get(get("k"))).head).unwrap();
    let expected = Metadata { last_modified: 1_000_001, deleted: false, ..sent };
    assert_eq!(stored.siblings()[0].metadata, expected);
}

#[test]
fn a_key_is_invented_once_and_told() {
    let mut node = Node::with_siblings();
    let mut rng = base::rng::SplitMix64::new(1);
    let mut request = put("", "v");
    request.key = None;
    request.invent_key(&mut rng);
    let key = request.key.clone().unwrap();
    assert!(key.len() == 27 && key.iter().all(u8::is_ascii_alphanumeric));
    request.invent_key(&mut rng);
    assert_eq!(request.key, Some(key.clone()), "a key that is there stays");
    assert_eq!(node.put(request), Ok(Response::Put { object: None, key: Some(key) }));
    assert_eq!(node.put(put("k", "v")), Ok(Response::Put { object: None, key: None }));
}
