//! Writes and merges of one key, one story each.

use bytes::Bytes;
use object::{
    ACTORS_MAX, Actor, Context, Dot, Error, Head, Metadata, Object, Pick, Policy, Put, merge, plan_merge,
    plan_update, update,
};

const A: Actor = Actor(1);
const B: Actor = Actor(2);

fn put(context: Option<&Context>, value: &'static str, last_modified: u64) -> Put {
    let metadata = Metadata { last_modified, ..Metadata::default() };
    Put { context: context.cloned(), metadata, value: Bytes::from_static(value.as_bytes()) }
}

fn write(existing: Option<&Object>, put: Put, actor: Actor, counter: u64, policy: Policy) -> Object {
    update(existing.cloned(), put, Dot::new(actor, counter), policy).expect("a plain write")
}

/// All siblings' values, sorted; a tombstone is `-`.
fn values(object: &Object) -> Vec<String> {
    let siblings = object.head().siblings().iter().enumerate();
    let mut values: Vec<String> = siblings
        .map(|(at, sibling)| match sibling.metadata.deleted {
            true => "-".to_string(),
            false => String::from_utf8_lossy(&object.value(at)).into_owned(),
        })
        .collect();
    values.sort();
    values
}

#[test]
fn blind_writers_make_siblings_and_one_who_read_them_all_makes_one() {
    let one = write(None, put(None, "one", 1), A, 1, Policy::AllowMult);
    let two = write(Some(&one), put(None, "two", 2), A, 4, Policy::AllowMult);
    let three = write(Some(&two), put(None, "three", 3), A, 9, Policy::AllowMult);
    assert_eq!(values(&three), ["one", "three", "two"]);
    let merged = write(Some(&three), put(Some(three.head().context()), "all", 4), A, 10, Policy::AllowMult);
    assert_eq!(values(&merged), ["all"]);
    assert_eq!(merged.head().context().entries(), [(A, 10)]);
}

#[test]
fn interleaved_readers_do_not_explode_siblings() {
    // Two clients take turns, each writing with what it got back from its own last put.
    let mut object = write(None, put(None, "0", 0), A, 1, Policy::AllowMult);
    let mut seen = [object.head().context().clone(), object.head().context().clone()];
    for turn in 0..20 {
        let client = turn % 2;
        object =
            write(Some(&object), put(Some(&seen[client]), "x", 1), A, 2 + turn as u64, Policy::AllowMult);
        seen[client] = object.head().context().clone();
        assert!(object.head().siblings().len() <= 2, "turn {turn}");
    }
}

#[test]
fn an_overwrite_by_a_reader_needs_no_old_value() {
    let old = write(None, put(None, "old", 1), A, 1, Policy::AllowMult);
    let seen = old.head().context();
    for (policy, context) in [
        (Policy::AllowMult, Some(seen)),
        (Policy::Newest, Some(seen)),
        (Policy::Newest, None),
        (Policy::LastWriteWins, None),
    ] {
        let plan = plan_update(Some(old.head()), &put(context, "new", 2), Dot::new(A, 2), policy).unwrap();
        assert!(plan.kept().is_empty(), "{policy:?}");
        assert_eq!(plan.sibling_count(), 1);
    }
    let blind =
        plan_update(Some(old.head()), &put(None, "new", 2), Dot::new(A, 2), Policy::AllowMult).unwrap();
    assert_eq!((blind.kept(), blind.sibling_count()), (&[0][..], 2));
}

#[test]
fn the_newest_stays_between_stores_and_the_later_within_one() {
    let old = write(None, put(None, "old", 100), A, 1, Policy::Newest);
    // The clock went back, but this store knows which write is later.
    let new = write(Some(&old), put(None, "new", 50), A, 2, Policy::Newest);
    assert_eq!(values(&new), ["new"]);
    // Another store's write that is older by its clock is not shown, and lies beside until a newer one comes.
    let older = write(Some(&new), put(None, "older", 48), B, 7, Policy::Newest);
    let older = write(Some(&older), put(None, "later", 49), B, 8, Policy::Newest);
    assert_eq!(values(&older), ["later", "new"]);
    assert_eq!(older.head().siblings()[older.head().newest()].dot, Dot::new(A, 2));
    assert_eq!(values(&write(Some(&older), put(None, "newest", 51), B, 9, Policy::Newest)), ["newest"]);
    // With a context there is nothing to compare.
    let seen = new.head().context();
    assert_eq!(values(&write(Some(&new), put(Some(seen), "won", 1), B, 7, Policy::Newest)), ["won"]);
}

/// Where clocks differ, "newest" and "came after" can go round in a circle. No replica may drop what another keeps for
/// having dropped what that one keeps: they would exchange the two for ever.
#[test]
fn replicas_agree_when_a_clock_goes_back_between_writes() {
    let c = Actor(3);
    let at_a = write(None, put(None, "a", 1), A, 1, Policy::Newest);
    let at_b = write(None, put(None, "b", 3), B, 1, Policy::Newest);
    let both = merge(&at_a, &at_b).unwrap();
    // B's clock has gone back: its own write came later than "b", and is older than "a".
    let left = write(Some(&both), put(None, "b again", 0), B, 2, Policy::Newest);
    // At a third store "b" is the newest.
    let right = write(Some(&both), put(None, "c", 0), c, 1, Policy::Newest);

    let joined = merge(&left, &right).unwrap();
    assert_eq!(values(&joined), ["a", "b again", "c"]);
    assert_eq!(joined.head().siblings()[joined.head().newest()].dot, Dot::new(A, 1));
    for one in [&left, &right, &at_a, &at_b] {
        assert_eq!(merge(one, &joined).as_ref(), Ok(&joined));
    }
}

#[test]
fn the_last_write_wins_unread() {
    let old = write(None, put(None, "old", 100), A, 1, Policy::LastWriteWins);
    let new = write(None, put(None, "new", 1), A, 2, Policy::LastWriteWins);
    assert_eq!(values(&new), ["new"]);
    assert!(new.head().context().covers(old.head().siblings()[0].dot));
    assert_eq!(merge(&old, &new), Ok(new));
}

#[test]
fn a_delete_is_a_tombstone_over_what_was_seen() {
    let one = write(None, put(None, "one", 1), A, 1, Policy::AllowMult);
    let two = write(Some(&one), put(None, "two", 2), A, 2, Policy::AllowMult);
    let blind = Put::delete(Some(two.head()), None, 3);
    let gone = write(Some(&two), blind, A, 3, Policy::AllowMult);
    assert_eq!(values(&gone), ["-"]);
    assert!(gone.head().is_tombstone() && gone.values().is_empty());

    let stale = Put::delete(Some(two.head()), Some(one.head().context().clone()), 3);
    let half = write(Some(&two), stale, A, 3, Policy::AllowMult);
    assert_eq!(values(&half), ["-", "two"]);
    assert!(!half.head().is_tombstone());

    let again = write(Some(&gone), put(Some(gone.head().context()), "back", 4), A, 4, Policy::AllowMult);
    assert_eq!(values(&again), ["back"]);
    let stale = put(Some(one.head().context()), "stale", 4);
    assert_eq!(values(&write(Some(&gone), stale, A, 4, Policy::AllowMult)), ["-", "stale"]);
}

#[test]
fn blind_put_replaces_tombstones_alone() {
    let old = write(None, put(None, "old", 1), A, 1, Policy::AllowMult);
    let delete = |at: &Object, time| Put::delete(Some(at.head()), None, time);
    let gone = write(Some(&old), delete(&old, 2), A, 2, Policy::AllowMult);
    let gone_elsewhere = write(Some(&old), delete(&old, 9), B, 1, Policy::AllowMult);
    let both = merge(&gone, &gone_elsewhere).unwrap();
    assert_eq!(values(&both), ["-", "-"]);

    // Also where the tombstones are newer by their clock.
    for policy in [Policy::AllowMult, Policy::Newest, Policy::LastWriteWins] {
        for tombstones in [&gone, &both] {
            let new = write(Some(tombstones), put(None, "new", 3), A, 3, policy);
            assert_eq!(values(&new), ["new"], "{policy:?}");
            assert_eq!(merge(&new, tombstones).unwrap(), new);
        }
    }

    // A tombstone that this store had not seen, and a value that another store accepted meanwhile, stay.
    let new = write(Some(&gone), put(None, "new", 3), A, 3, Policy::AllowMult);
    assert_eq!(values(&merge(&new, &both).unwrap()), ["-", "new"]);
    let meanwhile = write(Some(&old), put(None, "meanwhile", 3), B, 1, Policy::AllowMult);
    assert_eq!(values(&merge(&new, &meanwhile).unwrap()), ["meanwhile", "new"]);
    let with_live = merge(&gone, &meanwhile).unwrap();
    assert_eq!(values(&with_live), ["-", "meanwhile"]);
    let beside = write(Some(&with_live), put(None, "new", 3), A, 3, Policy::AllowMult);
    assert_eq!(values(&beside), ["-", "meanwhile", "new"]);
}

#[test]
fn a_stale_replica_does_not_bring_back_what_was_overwritten() {
    let old = write(None, put(None, "old", 9), A, 1, Policy::AllowMult);
    let new = write(Some(&old), put(Some(old.head().context()), "new", 1), B, 1, Policy::AllowMult);
    assert_eq!(merge(&old, &new), Ok(new.clone()));
    let plan = plan_merge(new.head(), old.head()).unwrap();
    assert_eq!((plan.picks(), plan.head()), (&[Pick::Left(0)][..], new.head()));
}

#[test]
fn concurrent_writes_of_two_stores_are_siblings() {
    let base = write(None, put(None, "base", 1), A, 1, Policy::AllowMult);
    let left = write(Some(&base), put(Some(base.head().context()), "left", 2), A, 2, Policy::AllowMult);
    let right = write(Some(&base), put(Some(base.head().context()), "right", 2), B, 1, Policy::AllowMult);
    let both = merge(&left, &right).unwrap();
    assert_eq!(values(&both), ["left", "right"]);
    assert_eq!(merge(&right, &left), Ok(both.clone()));
    assert!(both.head().is_unmodified(both.head().context()));
    assert!(!both.head().is_unmodified(left.head().context()));
}

#[test]
fn objects_that_replaced_each_other_lose_nothing() {
    // No history leads here; a forged context stands in for a disk that was copied.
    let seen = |actor, counter| Some([Dot::new(actor, counter)].into_iter().collect::<Context>());
    let left = write(None, put(seen(B, 5).as_ref(), "left", 1), A, 1, Policy::AllowMult);
    let right = write(None, put(seen(A, 5).as_ref(), "right", 1), B, 1, Policy::AllowMult);
    assert_eq!(values(&merge(&left, &right).unwrap()), ["left", "right"]);
    assert_eq!(merge(&left, &right), merge(&right, &left));
}

#[test]
fn a_context_from_the_future_is_refused() {
    let forged: Context = [Dot::new(A, u64::MAX)].into_iter().collect();
    let dot = Dot::new(A, 7);
    for policy in [Policy::AllowMult, Policy::Newest, Policy::LastWriteWins] {
        assert_eq!(update(None, put(Some(&forged), "v", 1), dot, policy), Err(Error::DotCovered(dot)));
    }
}

#[test]
fn too_many_actors_are_refused() {
    let full: Context = (10..10 + ACTORS_MAX as u64).map(|actor| Dot::new(Actor(actor), 1)).collect();
    assert_eq!(Context::decode(&full.encode()), Ok(full.clone()));
    let result = update(None, put(Some(&full), "v", 1), Dot::new(A, 1), Policy::AllowMult);
    assert_eq!(result, Err(Error::TooManyActors));
    let ok = write(None, put(Some(&full), "v", 1), Actor(10), 2, Policy::AllowMult);
    let other = write(None, put(None, "v", 1), A, 1, Policy::AllowMult);
    assert_eq!(merge(&ok, &other), Err(Error::TooManyActors));
}

#[test]
fn stored_values_must_fit_their_head() {
    let object = write(None, put(None, "value", 1), A, 1, Policy::AllowMult);
    let (head, values) = object.clone().into_parts();
    let mut bytes = Vec::new();
    head.encode(&mut bytes);
    assert_eq!(Object::new(Head::decode(&bytes).unwrap(), values.clone()), Ok(object));
    assert!(matches!(Object::new(head, values.slice(1..)), Err(Error::Head(_))));
}
