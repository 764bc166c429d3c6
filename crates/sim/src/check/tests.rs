//! Each promise of a node alone, broken by hand: a checker that sees nothing would pass every seed.

use super::answers::Causes;
use super::cluster::Checks;
use super::*;
use base::Monotonic;
use bytes::Bytes;
use history::{NEWEST_BUCKET, SIBLINGS_BUCKET};
use kv::response::Found;
use kv::{Bucket, DeleteRequest, Error, GetRequest, Prop, PutRequest, Request, Response};
use object::{Actor, Dot, Object, Policy, Put};
use siblings::{metadata_of, value_of};
use std::collections::BTreeSet;

const KEPT: &str = "acknowledged writes are kept";
const SHOWN: &str = "values once read are kept";
const WRITTEN: &str = "reads return only written values";
const ANSWERED: &str = "each request is answered";

/// A node that says what the test wants.
struct Node {
    checks: Checks,
    id: u64,
    time: u64,
    causes: Causes,
}

pub(super) fn bucket(name: &'static [u8]) -> Bucket {
    Bucket::untyped(Bytes::from_static(name))
}

pub(super) fn key() -> Bytes {
    Bytes::from_static(b"k")
}

/// An object with these values, each the write with the counter beside it.
pub(super) fn object_of(numbers: &[(u64, u64)]) -> Object {
    let add = |existing: Option<Object>, &(number, counter): &(u64, u64)| {
        let put = Put { context: None, metadata: metadata_of(number), value: value_of(number) };
        Some(object::update(existing, put, Dot::new(Actor(7), counter), Policy::AllowMult).unwrap())
    };
    numbers.iter().fold(None, add).unwrap()
}

pub(super) fn found(numbers: &[(u64, u64)]) -> Response {
    let (head, values) = object_of(numbers).into_parts();
    let mut bytes = Vec::new();
    head.encode(&mut bytes);
    Response::Found(Found { head: bytes.into(), value: Some(values), newest_only: false })
}

pub(super) fn context(numbers: &[(u64, u64)]) -> Option<Bytes> {
    Some(object_of(numbers).head().context().encode().into())
}

pub(super) fn nothing() -> Response {
    Response::NotFound { deleted_context: None }
}

pub(super) fn written() -> Response {
    Response::Put { object: None, key: None }
}

impl Default for Node {
    fn default() -> Node {
        Node { checks: Checks::new(1, 0), id: 0, time: 0, causes: Causes::default() }
    }
}

impl Node {
    fn now(&self) -> Monotonic {
        Monotonic(self.time)
    }

    fn ask(&mut self, request: Request) -> u64 {
        self.id += 1;
        self.time += 1;
        let now = self.now();
        self.checks.on_request(self.id, 0, &request, now, Monotonic(self.time + 100));
        self.id
    }

    fn answer(&mut self, id: u64, result: Result<Response, Error>) -> Verdict {
        self.time += 1;
        self.checks.on_answer(id, &result, self.now(), self.causes, |_| vec![0])
    }

    fn put(&mut self, name: &'static [u8], number: u64, context: Option<Bytes>) -> u64 {
        let put = PutRequest::new(bucket(name), Some(key()), metadata_of(number), value_of(number));
        self.ask(Request::put(PutRequest { context, ..put }))
    }

    fn acknowledge(&mut self, name: &'static [u8], number: u64, context: Option<Bytes>) {
        let id = self.put(name, number, context);
        assert_eq!(self.answer(id, Ok(written())), Ok(()));
    }

    fn delete(&mut self, name: &'static [u8], context: Option<Bytes>) {
        let delete = DeleteRequest::new(bucket(name), key());
        let id = self.ask(Request::Delete(DeleteRequest { context, ..delete }));
        assert_eq!(self.answer(id, Ok(Response::Deleted)), Ok(()));
    }

    fn get(&mut self, name: &'static [u8]) -> u64 {
        self.ask(Request::Get(GetRequest::new(bucket(name), key())))
    }

    fn read(&mut self, name: &'static [u8], response: Response) -> Verdict {
        let id = self.get(name);
        self.answer(id, Ok(response))
    }

    fn die(&mut self, lost_after: Option<u64>) {
        self.time += 1;
        self.checks.on_death(0, self.now(), lost_after.map(Monotonic));
    }
}

#[track_caller]
fn assert_seen(verdict: Verdict, checker: &str) {
    let violation = verdict.expect_err("nothing was seen");
    assert_eq!(violation.checker, checker, "{violation}");
}

#[test]
fn a_sibling_that_was_acknowledged_stays_until_a_context_covers_it() {
    let mut node = Node::default();
    node.acknowledge(SIBLINGS_BUCKET, 1, None);
    node.acknowledge(SIBLINGS_BUCKET, 2, None);
    node.read(SIBLINGS_BUCKET, found(&[(1, 1), (2, 2)])).unwrap();
    node.acknowledge(SIBLINGS_BUCKET, 3, context(&[(1, 1)]));
    node.read(SIBLINGS_BUCKET, found(&[(2, 2), (3, 3)])).unwrap();
    assert_seen(node.read(SIBLINGS_BUCKET, found(&[(3, 3)])), KEPT);
    assert_seen(node.read(SIBLINGS_BUCKET, found(&[(1, 1), (2, 2), (3, 3)])), WRITTEN);
    node.die(None);
    assert_seen(node.read(SIBLINGS_BUCKET, nothing()), KEPT);
    node.delete(SIBLINGS_BUCKET, None);
    node.read(SIBLINGS_BUCKET, nothing()).unwrap();
    assert_seen(node.read(SIBLINGS_BUCKET, found(&[(3, 3)])), WRITTEN);
}

#[test]
fn a_write_without_an_answer_is_there_or_not_but_stays_once_it_was_shown() {
    let mut node = Node::default();
    node.put(SIBLINGS_BUCKET, 1, None);
    node.read(SIBLINGS_BUCKET, nothing()).unwrap();
    node.read(SIBLINGS_BUCKET, found(&[(1, 1)])).unwrap();
    node.die(None);
    assert_seen(node.read(SIBLINGS_BUCKET, nothing()), SHOWN);
}

#[test]
fn what_is_not_promised_to_be_durable_may_be_lost_and_what_is_may_not() {
    let mut node = Node::default();
    node.acknowledge(SIBLINGS_BUCKET, 1, None);
    let durable = node.time;
    node.acknowledge(SIBLINGS_BUCKET, 2, None);
    node.die(Some(durable));
    node.read(SIBLINGS_BUCKET, found(&[(1, 1)])).unwrap();
    assert_seen(node.read(SIBLINGS_BUCKET, found(&[(2, 2)])), KEPT);
}

#[test]
fn where_the_last_write_stays_no_older_one_is_shown() {
    let mut node = Node::default();
    node.read(NEWEST_BUCKET, nothing()).unwrap();
    node.acknowledge(NEWEST_BUCKET, 1, None);
    assert_seen(node.read(NEWEST_BUCKET, nothing()), KEPT);
    let slow = node.put(NEWEST_BUCKET, 2, None);
    node.acknowledge(NEWEST_BUCKET, 3, None);
    // The two were concurrent.
    node.read(NEWEST_BUCKET, found(&[(3, 3)])).unwrap();
    node.answer(slow, Ok(written())).unwrap();
    node.read(NEWEST_BUCKET, found(&[(2, 2)])).unwrap();
    assert_seen(node.read(NEWEST_BUCKET, found(&[(1, 1)])), KEPT);
    node.die(None);
    assert_seen(node.read(NEWEST_BUCKET, found(&[(1, 1)])), KEPT);
    node.delete(NEWEST_BUCKET, None);
    node.read(NEWEST_BUCKET, nothing()).unwrap();
    assert_seen(node.read(NEWEST_BUCKET, found(&[(2, 2)])), KEPT);
}

#[test]
fn a_write_that_was_under_way_at_a_death_does_not_come_later() {
    let mut node = Node::default();
    node.put(NEWEST_BUCKET, 1, None);
    node.die(None);
    node.acknowledge(NEWEST_BUCKET, 2, None);
    assert_seen(node.read(NEWEST_BUCKET, found(&[(1, 1)])), KEPT);
    node.put(NEWEST_BUCKET, 3, None);
    node.read(NEWEST_BUCKET, found(&[(3, 3)])).unwrap();
    node.die(None);
    assert_seen(node.read(NEWEST_BUCKET, found(&[(2, 2)])), SHOWN);
}

#[test]
fn half_and_foreign_values_are_seen() {
    let mut node = Node::default();
    node.acknowledge(SIBLINGS_BUCKET, 1, None);
    assert_seen(node.read(SIBLINGS_BUCKET, found(&[(1, 1), (9, 2)])), WRITTEN);
    assert_seen(node.read(SIBLINGS_BUCKET, found(&[(1, 5), (1, 6)])), WRITTEN);
    let Response::Found(whole) = found(&[(1, 1)]) else { unreachable!() };
    let value = whole.value.clone().unwrap();
    let mut spoilt = value.to_vec();
    *spoilt.last_mut().unwrap() ^= 1;
    for bad in [value.slice(1..), spoilt.into(), [&value[..], b"x"].concat().into()] {
        let half = Found { value: Some(bad), ..whole.clone() };
        assert_seen(node.read(SIBLINGS_BUCKET, Response::Found(half)), WRITTEN);
    }
    let refused = node.put(SIBLINGS_BUCKET, 2, None);
    node.answer(refused, Err(Error::Overload)).unwrap();
    assert_seen(node.read(SIBLINGS_BUCKET, found(&[(1, 1), (2, 3)])), WRITTEN);
}

#[test]
fn a_dot_that_is_used_again_is_seen() {
    let mut node = Node::default();
    node.acknowledge(SIBLINGS_BUCKET, 1, None);
    node.read(SIBLINGS_BUCKET, found(&[(1, 1)])).unwrap();
    node.die(Some(0));
    node.acknowledge(SIBLINGS_BUCKET, 2, None);
    assert_seen(node.read(SIBLINGS_BUCKET, found(&[(2, 1)])), "a dot is used once");
}

#[test]
fn answers_come_once_in_time_and_without_errors_that_have_no_cause() {
    let mut node = Node::default();
    let first = node.get(NEWEST_BUCKET);
    node.answer(first, Ok(nothing())).unwrap();
    assert_seen(node.answer(first, Ok(nothing())), ANSWERED);
    let late = node.get(NEWEST_BUCKET);
    node.checks.check_deadlines(0, node.now()).unwrap();
    assert_seen(node.checks.check_deadlines(0, Monotonic(node.time + 1000)), ANSWERED);
    assert_seen(node.answer(late, Err(Error::Timeout)), ANSWERED);
    node.get(NEWEST_BUCKET);
    assert!(!node.checks.is_idle());
    node.die(None);
    assert!(node.checks.is_idle());
    node.checks.check_deadlines(0, Monotonic(node.time + 1000)).unwrap();
    for (error, cause, checker) in [
        (
            Error::Damaged("x".into()),
            Causes { rotten: true, ..Causes::default() },
            "no damage without a cause",
        ),
        (Error::Fenced("x".into()), Causes { disk_failed: true, ..Causes::default() }, ANSWERED),
    ] {
        let id = node.get(NEWEST_BUCKET);
        assert_seen(node.answer(id, Err(error.clone())), checker);
        node.causes = cause;
        let id = node.get(NEWEST_BUCKET);
        node.answer(id, Err(error)).unwrap();
        node.causes = Causes::default();
    }
    let id = node.get(NEWEST_BUCKET);
    assert_seen(node.answer(id, Ok(Response::Deleted)), ANSWERED);
}

/// The network had doubled the request, and a death at durability `none` had taken one of its two dots.
#[test]
fn of_a_write_with_two_dots_both_are_replaced_unless_a_death_may_have_taken_one() {
    for (lost_after, is_kept) in [(None, true), (Some(0), false)] {
        let mut node = Node::default();
        node.acknowledge(SIBLINGS_BUCKET, 1, None);
        node.acknowledge(SIBLINGS_BUCKET, 1, None);
        node.read(SIBLINGS_BUCKET, found(&[(1, 1), (1, 2)])).unwrap();
        node.die(lost_after);
        node.read(SIBLINGS_BUCKET, found(&[(1, 1)])).unwrap();
        node.acknowledge(SIBLINGS_BUCKET, 2, context(&[(1, 1)]));
        let verdict = node.read(SIBLINGS_BUCKET, found(&[(2, 3)]));
        if is_kept { assert_seen(verdict, KEPT) } else { verdict.unwrap() }
    }
}

#[test]
fn properties_stay_once_their_change_was_acknowledged() {
    let mut node = Node::default();
    let props = |number| {
        let props = kv::BucketProps { young_vclock: number, ..Default::default() };
        Ok(Response::Props(std::sync::Arc::new(props)))
    };
    let get = || Request::GetProps(bucket(history::PROPS_BUCKET));
    let set = |number| Request::SetProps(bucket(history::PROPS_BUCKET), vec![Prop::YoungVclock(number)]);
    for number in [1001, 1002] {
        let id = node.ask(set(number));
        node.answer(id, Ok(Response::PropsSet)).unwrap();
        let id = node.ask(get());
        node.answer(id, props(number)).unwrap();
    }
    for (number, time) in [(1001, None), (20, None), (1003, None), (20, Some(0))] {
        if let Some(lost_after) = time {
            node.die(Some(lost_after));
        }
        let id = node.ask(get());
        match time {
            None => assert_seen(node.answer(id, props(number)), KEPT),
            Some(_) => node.answer(id, props(number)).unwrap(),
        }
    }
}

#[test]
fn starts_and_listings() {
    let damage = engine::Damage { file: "f".into(), offset: 1, what: "it" };
    let report = engine::store::OpenReport { damage: vec![damage.clone()], ..Default::default() };
    assert_seen(damage::check_start(&report, false, Causes::default()), "no damage without a cause");
    damage::check_start(&report, false, Causes { rotten: true, ..Causes::default() }).unwrap();
    let report = engine::store::OpenReport { clean: true, replayed: 1, ..Default::default() };
    assert_seen(damage::check_start(&report, true, Causes::default()), "a clean stop leaves nothing to do");
    let error = engine::Error::Damaged(damage);
    let failed = Causes { disk_failed: true, ..Causes::default() };
    assert_seen(damage::check_failed_start(&error, failed), "no damage without a cause");
    let error = engine::Error::Fenced("x".into());
    assert_seen(damage::check_failed_start(&error, Causes::default()), "a node starts");
    damage::check_failed_start(&error, failed).unwrap();

    let found = BTreeSet::from([key()]);
    listing::check(b"b", &found, &[key()]).unwrap();
    for listed in [vec![], vec![key(), key()], vec![key(), Bytes::from_static(b"x")]] {
        assert_seen(listing::check(b"b", &found, &listed), "a listing is complete");
    }
}
