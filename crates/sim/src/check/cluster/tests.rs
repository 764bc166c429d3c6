//! Each promise, broken by hand: a checker that sees nothing would pass every seed.

use super::*;
use crate::check::history::{LAST_WRITE_BUCKET, NEWEST_BUCKET, SIBLINGS_BUCKET};
use crate::check::siblings::{metadata_of, value_of};
use crate::check::tests::{bucket, context, found, key, nothing, object_of, written};
use kv::index::{Rows, Terms};
use kv::replica::NodeId;
use kv::{DeleteRequest, GetRequest, IndexRequest, PutRequest, Quorum};
use node::{AskId, Load};
use object::{Actor, Dot, Object, Policy, Put};

const LOST: &str = "no acknowledged write is lost";
const DELETED: &str = "no delete is undone";
const EXACT: &str = "siblings are exact";
const QUORUMS: &str = "quorums are met";
const KEPT: &str = "a replica keeps the writes that it acknowledged";
const ANSWERED: &str = "each request is answered";
const READ: &str = "a read of all replicas shows all";

/// A cluster that says what the test wants.
struct Cluster {
    checks: Checks,
    id: u64,
    time: u64,
}

fn cluster() -> Cluster {
    Cluster { checks: Checks::new(4, 0), id: 0, time: 0 }
}

fn name(name: &'static [u8]) -> KeyName {
    KeyName::of(&bucket(name), &key())
}

fn ledger_key(name: &'static [u8]) -> Bytes {
    let mut bytes = Vec::new();
    object::key::encode_object_key(0, kv::bucket::DEFAULT_TYPE, name, &key(), &mut bytes);
    bytes.into()
}

fn head_of(object: &Object) -> Bytes {
    let mut head = Vec::new();
    object.head().encode(&mut head);
    head.into()
}

fn broken_by(verdict: Verdict) -> &'static str {
    verdict.expect_err("a broken promise").checker
}

impl Cluster {
    fn ask(&mut self, request: Request) -> u64 {
        self.id += 1;
        self.time += 1;
        let now = Monotonic(self.time);
        self.checks.on_request(self.id, 0, &request, now, now + Duration::from_secs(1));
        self.id
    }

    fn answer(&mut self, id: u64, result: Result<Response, Error>) -> Verdict {
        self.time += 1;
        let now = Monotonic(self.time);
        self.checks.on_answer(id, &result, now, Causes::default(), |_| vec![0, 1, 2])
    }

    fn put(&mut self, name: &'static [u8], number: u64, context: Option<Bytes>) -> u64 {
        let put = PutRequest::new(bucket(name), Some(key()), metadata_of(number), value_of(number));
        self.ask(Request::put(PutRequest { context, ..put }))
    }

    fn written(&mut self, name: &'static [u8], number: u64, context: Option<Bytes>) {
        let id = self.put(name, number, context);
        self.answer(id, Ok(written())).unwrap();
    }

    fn deleted(&mut self, name: &'static [u8], context: Option<Bytes>) {
        let delete = DeleteRequest::new(bucket(name), key());
        let id = self.ask(Request::Delete(DeleteRequest { context, ..delete }));
        self.answer(id, Ok(Response::Deleted)).unwrap();
    }

    /// An erase, whose fold has told of `numbers` at `told`, deletes the key with whatever it asks for.
    fn erased(&mut self, (context, told): (Option<Bytes>, u64), asks: Option<Bytes>) {
        let delete = DeleteRequest::new(bucket(SIBLINGS_BUCKET), key());
        let id = self.ask(Request::Delete(DeleteRequest { context: asks, ..delete }));
        self.checks.on_erase(id, (&context.expect("something"), Monotonic(told)));
        self.answer(id, Ok(Response::Deleted)).unwrap();
    }

    fn shown(&mut self, name: &'static [u8], numbers: &[(u64, u64)]) -> Verdict {
        let id = self.ask(Request::Get(GetRequest::new(bucket(name), key())));
        self.answer(id, Ok(found(numbers)))
    }

    /// What all replicas have come to agree on.
    fn end(&mut self, at: &'static [u8], numbers: &[(u64, u64)]) -> Verdict {
        let object = object_of(numbers);
        let found =
            Found { head: head_of(&object), value: Some(object.values().clone()), newest_only: false };
        self.checks.check_end(&name(at), Some(&found), object.head().context())
    }

    fn end_empty(&mut self, at: &'static [u8], seen: &[(u64, u64)]) -> Verdict {
        self.checks.check_end(&name(at), None, object_of(seen).head().context())
    }

    /// Node 0 sends node `to` a version, which says that it has it if `merged`.
    fn sent(&mut self, to: NodeAt, (number, counter): (u64, u64), merged: bool) -> Verdict {
        let object = object_of(&[(number, counter)]);
        let (head, value) = (head_of(&object), object.values().clone());
        self.id += 1;
        let id = AskId(self.id);
        let ask = Ask::Merge { head, value, hints: Vec::<NodeId>::new(), reason: Reason::Write };
        let question = PeerMessage::Ask { id, ttl_ms: 1, life: 0, key: ledger_key(SIBLINGS_BUCKET), ask };
        self.checks.on_message(0, to, &question)?;
        let answer = PeerMessage::Answer { id, result: Ok(Answer::Merged), load: Load::default() };
        if merged { self.checks.on_message(to, 0, &answer) } else { Ok(()) }
    }

    /// Node 0 has node 1 remove what was reaped.
    fn removed(&mut self, tombstone: &Bytes) {
        self.id += 1;
        let ask = Ask::Reap { round: Round::Remove, tombstone: tombstone.clone() };
        let (id, key) = (AskId(self.id), ledger_key(SIBLINGS_BUCKET));
        self.checks.on_message(0, 1, &PeerMessage::Ask { id, ttl_ms: 1, life: 7, key, ask }).unwrap();
    }
}

#[test]
fn an_acknowledged_write_is_there_in_the_end() {
    let mut cluster = cluster();
    cluster.written(SIBLINGS_BUCKET, 1001, None);
    cluster.written(SIBLINGS_BUCKET, 1002, None);
    let tried = cluster.put(SIBLINGS_BUCKET, 1003, None);
    cluster.answer(tried, Err(Error::Timeout)).unwrap();
    let both = [(1001, 1), (1002, 2)];
    assert_eq!(cluster.end(SIBLINGS_BUCKET, &both), Ok(()));
    assert_eq!(cluster.end(SIBLINGS_BUCKET, &[both[0], both[1], (1003, 3)]), Ok(()));
    assert_eq!(broken_by(cluster.end(SIBLINGS_BUCKET, &[both[0], (1003, 3)])), LOST);
    assert_eq!(broken_by(cluster.end_empty(SIBLINGS_BUCKET, &both)), LOST);
}

#[test]
fn a_write_may_be_replaced_by_one_that_has_seen_it() {
    let mut cluster = cluster();
    cluster.written(SIBLINGS_BUCKET, 1001, None);
    cluster.shown(SIBLINGS_BUCKET, &[(1001, 1)]).unwrap();
    let tried = cluster.put(SIBLINGS_BUCKET, 1002, context(&[(1001, 1)]));
    cluster.answer(tried, Err(Error::Timeout)).unwrap();
    assert_eq!(cluster.end(SIBLINGS_BUCKET, &[(1002, 2)]), Ok(()));
    assert_eq!(cluster.end(SIBLINGS_BUCKET, &[(1001, 1)]), Ok(()), "it may have failed");
    cluster.written(SIBLINGS_BUCKET, 1003, context(&[(1001, 1)]));
    assert_eq!(broken_by(cluster.end(SIBLINGS_BUCKET, &[(1001, 1)])), EXACT);
}

#[test]
fn without_siblings_a_write_is_at_least_remembered() {
    let mut cluster = cluster();
    cluster.written(NEWEST_BUCKET, 1001, None);
    cluster.written(NEWEST_BUCKET, 1002, None);
    cluster.shown(NEWEST_BUCKET, &[(1002, 2)]).unwrap();
    assert_eq!(cluster.end(NEWEST_BUCKET, &[(1002, 2)]), Ok(()), "the first may have lost");
    assert_eq!(broken_by(cluster.end(NEWEST_BUCKET, &[(1001, 1)])), LOST, "it does not know the second");
    assert_eq!(broken_by(cluster.end_empty(NEWEST_BUCKET, &[(1002, 2)])), LOST);
    cluster.deleted(NEWEST_BUCKET, None);
    assert_eq!(cluster.end_empty(NEWEST_BUCKET, &[(1002, 2)]), Ok(()));
}

#[test]
fn the_last_write_may_not_be_one_that_was_replaced() {
    let mut cluster = cluster();
    cluster.written(LAST_WRITE_BUCKET, 1001, None);
    cluster.shown(LAST_WRITE_BUCKET, &[(1001, 1)]).unwrap();
    cluster.written(LAST_WRITE_BUCKET, 1002, context(&[(1001, 1)]));
    assert_eq!(broken_by(cluster.end(LAST_WRITE_BUCKET, &[(1001, 1)])), EXACT);
    cluster.shown(LAST_WRITE_BUCKET, &[(1002, 2)]).unwrap();
    cluster.written(LAST_WRITE_BUCKET, 1003, None);
    cluster.shown(LAST_WRITE_BUCKET, &[(1003, 3)]).unwrap();
    assert_eq!(cluster.end(LAST_WRITE_BUCKET, &[(1001, 1)]), Ok(()), "the third may have lost to it");
}

#[test]
fn a_delete_is_for_ever() {
    let mut cluster = cluster();
    cluster.written(SIBLINGS_BUCKET, 1001, None);
    cluster.shown(SIBLINGS_BUCKET, &[(1001, 1)]).unwrap();
    cluster.deleted(SIBLINGS_BUCKET, context(&[(1001, 1)]));
    assert_eq!(cluster.end_empty(SIBLINGS_BUCKET, &[(1001, 1)]), Ok(()));
    assert_eq!(broken_by(cluster.end(SIBLINGS_BUCKET, &[(1001, 1)])), DELETED);
}

#[test]
fn an_erase_takes_what_its_fold_has_told_and_nothing_else() {
    let mut cluster = cluster();
    cluster.written(SIBLINGS_BUCKET, 1001, None);
    cluster.shown(SIBLINGS_BUCKET, &[(1001, 1)]).unwrap();
    let told = (context(&[(1001, 1)]), cluster.time);
    cluster.written(SIBLINGS_BUCKET, 1002, None);
    cluster.shown(SIBLINGS_BUCKET, &[(1001, 1), (1002, 2)]).unwrap();
    // It asks for more than it has been told.
    cluster.erased(told, None);
    assert_eq!(cluster.end(SIBLINGS_BUCKET, &[(1002, 2)]), Ok(()));
    assert_eq!(broken_by(cluster.end(SIBLINGS_BUCKET, &[(1001, 1), (1002, 2)])), DELETED);
    assert_eq!(broken_by(cluster.end_empty(SIBLINGS_BUCKET, &[(1001, 1), (1002, 2)])), LOST);
}

#[test]
fn an_erase_may_take_what_only_its_fold_has_seen() {
    let mut cluster = cluster();
    cluster.written(SIBLINGS_BUCKET, 1001, None);
    let told = cluster.time + 1;
    cluster.time += 1;
    cluster.written(SIBLINGS_BUCKET, 1002, None);
    cluster.erased((context(&[(1001, 1)]), told), context(&[(1001, 1)]));
    assert_eq!(cluster.end(SIBLINGS_BUCKET, &[(1002, 2)]), Ok(()));
    assert_eq!(broken_by(cluster.end_empty(SIBLINGS_BUCKET, &[(1001, 1)])), LOST, "1002 was written later");
}

#[test]
fn what_is_shown_was_written_once_and_was_not_replaced_by_what_is_beside_it() {
    let mut cluster = cluster();
    assert_eq!(broken_by(cluster.shown(SIBLINGS_BUCKET, &[(1001, 1)])), EXACT, "never written");
    cluster.put(SIBLINGS_BUCKET, 1001, None);
    cluster.shown(SIBLINGS_BUCKET, &[(1001, 1)]).unwrap();
    assert_eq!(
        broken_by(cluster.shown(SIBLINGS_BUCKET, &[(1001, 1), (1001, 2)])),
        EXACT,
        "a hint applied twice"
    );
    cluster.put(SIBLINGS_BUCKET, 1002, context(&[(1001, 1)]));
    assert_eq!(broken_by(cluster.shown(SIBLINGS_BUCKET, &[(1001, 1), (1002, 3)])), EXACT, "a false sibling");
}

#[test]
fn what_only_one_node_has_may_be_lost_with_it() {
    let mut cluster = cluster();
    cluster.written(SIBLINGS_BUCKET, 1001, None);
    let put = PutRequest::new(bucket(SIBLINGS_BUCKET), Some(key()), metadata_of(1002), value_of(1002));
    let safe = cluster.ask(Request::put(PutRequest { node_confirms: Quorum::Exactly(2), ..put }));
    cluster.sent(1, (1002, 2), true).unwrap();
    cluster.answer(safe, Ok(written())).unwrap();
    let under_way = cluster.put(SIBLINGS_BUCKET, 1003, None);
    cluster.checks.on_loss(3, Monotonic(cluster.time));
    cluster.answer(under_way, Ok(written())).unwrap();
    assert_eq!(cluster.checks.acknowledged(), 1);
    assert_eq!(cluster.end(SIBLINGS_BUCKET, &[(1002, 2)]), Ok(()));
    assert_eq!(broken_by(cluster.end(SIBLINGS_BUCKET, &[(1001, 1)])), LOST);
}

#[test]
fn quorums_are_of_primaries_and_nodes() {
    let ask = |primaries: u32, nodes: u32| {
        let mut cluster = cluster();
        let put = PutRequest::new(bucket(SIBLINGS_BUCKET), Some(key()), metadata_of(1001), value_of(1001));
        let (pw, node_confirms) = (Quorum::Exactly(primaries), Quorum::Exactly(nodes));
        let id = cluster.ask(Request::put(PutRequest { pw, node_confirms, ..put }));
        (cluster, id)
    };
    let (mut cluster, id) = ask(2, 0);
    cluster.sent(3, (1001, 1), true).unwrap();
    cluster.sent(1, (1001, 1), false).unwrap();
    assert_eq!(broken_by(cluster.answer(id, Ok(written()))), QUORUMS, "node 3 is no primary");
    let (mut cluster, id) = ask(2, 0);
    cluster.sent(1, (1001, 1), true).unwrap();
    assert_eq!(cluster.answer(id, Ok(written())), Ok(()));
    let (mut cluster, id) = ask(0, 2);
    assert_eq!(broken_by(cluster.answer(id, Ok(written()))), QUORUMS, "only the coordinator has it");
    let (mut cluster, id) = ask(0, 2);
    cluster.put(SIBLINGS_BUCKET, 1002, None);
    cluster.sent(1, (1001, 1), false).unwrap();
    cluster.sent(1, (1002, 2), true).unwrap();
    assert_eq!(cluster.answer(id, Ok(written())), Ok(()), "another has what came after it");
}

#[test]
fn a_replica_keeps_what_it_acknowledged() {
    let mut cluster = cluster();
    cluster.put(SIBLINGS_BUCKET, 1001, None);
    cluster.sent(1, (1001, 5), true).unwrap();
    let name = name(SIBLINGS_BUCKET);
    assert_eq!(cluster.checks.promised(2, &name), None);
    let promised = cluster.checks.promised(1, &name).unwrap();
    let has = head_of(&object_of(&[(1001, 5)]));
    let older = head_of(&object_of(&[(1001, 4)]));
    let check = |cluster: &Cluster, has| cluster.checks.check_promise(1, &name, &promised, has);
    assert_eq!(check(&cluster, Some(&has)), Ok(()));
    assert_eq!(broken_by(check(&cluster, Some(&older))), KEPT);
    assert_eq!(broken_by(check(&cluster, None)), KEPT);
    cluster.removed(&has);
    assert_eq!(check(&cluster, None), Ok(()), "it may be reaped");
    cluster.checks.on_loss(1, Monotonic(cluster.time));
    assert_eq!(cluster.checks.promised(1, &name), None);
}

#[test]
fn what_a_primary_missed_comes_home_if_its_coordinator_lives() {
    let mut cluster = cluster();
    let id = cluster.put(SIBLINGS_BUCKET, 1001, None);
    cluster.sent(1, (1001, 5), true).unwrap();
    cluster.answer(id, Ok(written())).unwrap();
    let name = name(SIBLINGS_BUCKET);
    let has = head_of(&object_of(&[(1001, 5)]));
    assert_eq!(cluster.checks.check_home(2, &name, Some(&has)), Ok(()));
    assert_eq!(broken_by(cluster.checks.check_home(2, &name, None)), "missed writes reach their replicas");
    cluster.checks.on_death(1, Monotonic(cluster.time), None);
    assert!(cluster.checks.check_home(2, &name, None).is_err());
    cluster.checks.on_death(0, Monotonic(cluster.time), None);
    assert_eq!(cluster.checks.check_home(2, &name, None), Ok(()), "its coordinator has died");
}

#[test]
fn a_read_of_two_primaries_shows_what_two_primaries_have() {
    let two = Quorum::Exactly(2);
    let mut cluster = cluster();
    let put = PutRequest::new(bucket(SIBLINGS_BUCKET), Some(key()), metadata_of(1001), value_of(1001));
    let id = cluster.ask(Request::put(PutRequest { pw: two, dw: two, ..put }));
    cluster.sent(1, (1001, 5), true).unwrap();
    let get = GetRequest { pr: two, ..GetRequest::new(bucket(SIBLINGS_BUCKET), key()) };
    let early = cluster.ask(Request::Get(get.clone()));
    cluster.answer(id, Ok(written())).unwrap();
    assert_eq!(cluster.answer(early, Ok(nothing())), Ok(()), "it began before");
    let mut read = |answer: Response| {
        let id = cluster.ask(Request::Get(get.clone()));
        cluster.answer(id, Ok(answer))
    };
    assert_eq!(read(found(&[(1001, 5)])), Ok(()));
    assert_eq!(broken_by(read(nothing())), "strict quorums meet");
    let later = Response::NotFound { deleted_context: context(&[(1001, 6)]) };
    assert_eq!(read(later), Ok(()), "it was deleted");
    let one = GetRequest { pr: Quorum::One, ..get.clone() };
    let id = cluster.ask(Request::Get(one));
    assert_eq!(cluster.answer(id, Ok(nothing())), Ok(()));
}

#[test]
fn a_dot_is_one_write_for_ever_on_the_wire_too() {
    let mut cluster = cluster();
    cluster.put(SIBLINGS_BUCKET, 1001, None);
    cluster.put(SIBLINGS_BUCKET, 1002, None);
    cluster.sent(1, (1001, 7), false).unwrap();
    assert_eq!(broken_by(cluster.sent(2, (1002, 7), false)), "a dot is used once");
}

#[test]
fn answers_come_once_in_time_and_for_a_cause() {
    let mut cluster = cluster();
    let id = cluster.put(SIBLINGS_BUCKET, 1001, None);
    cluster.answer(id, Ok(written())).unwrap();
    assert_eq!(broken_by(cluster.answer(id, Ok(written()))), ANSWERED);
    let id = cluster.put(SIBLINGS_BUCKET, 1002, None);
    assert_eq!(broken_by(cluster.answer(id, Err(Error::BadContext))), ANSWERED);
    cluster.put(SIBLINGS_BUCKET, 1003, None);
    let late = Monotonic(0) + Duration::from_secs(2);
    assert_eq!(broken_by(cluster.checks.check_deadlines(0, late)), ANSWERED);
    cluster.checks.on_resume(0, late);
    assert_eq!(cluster.checks.check_deadlines(0, late), Ok(()));
    cluster.checks.on_death(0, Monotonic(cluster.time), None);
    assert!(cluster.checks.is_idle());
    let id = cluster.ask(Request::Get(GetRequest::new(bucket(SIBLINGS_BUCKET), key())));
    assert_eq!(cluster.answer(id, Ok(nothing())), Ok(()));
}

#[test]
fn replicas_are_equal_and_a_read_shows_all_of_them() {
    let (one, two) = (object_of(&[(1001, 1)]), object_of(&[(1001, 1), (1002, 2)]));
    let (checks, name, nothing) = (cluster().checks, name(SIBLINGS_BUCKET), Context::new());
    let mut copies = Copies::default();
    copies.insert(0, Some(head_of(&one)));
    assert!(checks.are_done(&name, &copies, &nothing));
    assert!(!checks.are_done(&name, &copies, two.head().context()));
    copies.insert(1, Some(head_of(&two)));
    assert!(!checks.are_done(&name, &copies, &nothing));
    assert_eq!(checks.check_read(&name, &copies, two.head().context()), Ok(()));
    assert_eq!(broken_by(checks.check_read(&name, &copies, one.head().context())), READ);
    assert_eq!(copies.differ(&name).checker, "replicas become equal");
}

#[test]
fn what_was_reaped_is_no_difference() {
    let (one, two) = (object_of(&[(1001, 1)]), object_of(&[(1001, 1), (1002, 2)]));
    let mut cluster = cluster();
    let name = name(SIBLINGS_BUCKET);
    let copies = |head| {
        let mut copies = Copies::default();
        copies.insert(0, Some(head));
        copies.insert(1, None);
        copies
    };
    let (reaped, other) = (copies(head_of(&one)), copies(head_of(&two)));
    assert!(!cluster.checks.are_done(&name, &reaped, &Context::new()));
    cluster.removed(&head_of(&one));
    assert_eq!(cluster.checks.reaps(), 1);
    assert!(cluster.checks.are_done(&name, &reaped, one.head().context()));
    assert!(!cluster.checks.are_done(&name, &other, &Context::new()), "only exactly that");
    assert!(!cluster.checks.are_done(&name, &reaped, two.head().context()), "nor what came later");
    assert_eq!(cluster.checks.check_read(&name, &reaped, &Context::new()), Ok(()));
    assert_eq!(broken_by(cluster.checks.check_read(&name, &other, &Context::new())), READ);
}

#[test]
fn a_shard_that_holds_much_or_holds_something_for_ever_is_seen() {
    let stats = |work| node::ShardStats { work, ..node::ShardStats::default() };
    assert_eq!(check_bounds(0, 0, &stats(10), false, None), Ok(()));
    assert!(check_bounds(0, 0, &stats(10_000), false, None).is_err());
    assert!(check_bounds(0, 0, &stats(1), true, None).is_err());
    assert_eq!(check_bounds(0, 0, &stats(0), true, None), Ok(()));
}

#[test]
fn a_version_shows_the_newest_only_where_the_bucket_does() {
    let add = |object, number, counter, micros| {
        let metadata = object::Metadata { last_modified: micros, ..metadata_of(number) };
        let put = Put { context: None, metadata, value: value_of(number) };
        Some(object::update(object, put, Dot::new(Actor(7), counter), Policy::AllowMult).unwrap())
    };
    let object = add(add(None, 1001, 1, 9), 1002, 2, 8).unwrap();
    let found = Found { head: head_of(&object), value: Some(object.values().clone()), newest_only: true };
    let shown = newest(Some(&found), read(&name(NEWEST_BUCKET), &found).unwrap());
    assert_eq!(shown.numbers.len(), 1);
}

/// Of terms -3, of nothing and 7: see `entries_of`.
const MINUS_THREE: u64 = 1006;
const SEVEN: u64 = 1003;
const NO_ENTRY: u64 = 1002;
const SEARCHED: &str = "an index query is whole";

fn numbers_between(first: &'static str, last: &'static str) -> IndexRequest {
    let text = |text: &'static str| Bytes::from_static(text.as_bytes());
    let request =
        IndexRequest::new(bucket(SIBLINGS_BUCKET), text("n_int"), Terms::Range(text(first), text(last)));
    IndexRequest { return_terms: true, ..request }
}

impl Cluster {
    fn search(&mut self, request: &IndexRequest) {
        self.time += 1;
        self.checks.on_search(request, Monotonic(self.time), |_| vec![0, 1, 2]);
    }

    /// A page of rows of the one key, and where to go on.
    fn told(&mut self, terms: &[&'static str], goes_on: bool) -> Verdict {
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        let rows = terms.iter().map(|term| (Some(text(term)), key())).collect();
        let continuation = goes_on.then(|| text("on"));
        self.checks.on_rows(&Rows { rows, continuation, done: true })
    }

    fn sent_to_all(&mut self, number: u64, counter: u64) {
        (0..3).for_each(|to| self.sent(to, (number, counter), true).unwrap());
    }
}

#[test]
fn a_query_tells_what_was_written_and_asked_for_in_order_and_once() {
    let mut cluster = cluster();
    cluster.written(SIBLINGS_BUCKET, MINUS_THREE, None);
    cluster.written(SIBLINGS_BUCKET, SEVEN, None);
    cluster.written(SIBLINGS_BUCKET, NO_ENTRY, None);
    let request = numbers_between("-3", "7");
    cluster.search(&request);
    cluster.told(&["-3", "7"], false).unwrap();
    assert_eq!(cluster.checks.on_searched().unwrap().1.len(), 2);
    for terms in [&["7", "-3"][..], &["7", "7"], &["0"], &["-3", "7", "1000"]] {
        cluster.search(&request);
        assert_eq!(broken_by(cluster.told(terms, false)), SEARCHED, "{terms:?}");
    }
    cluster.search(&numbers_between("0", "7"));
    assert_eq!(broken_by(cluster.told(&["-3"], false)), SEARCHED, "is not in the query");
    let paged = IndexRequest { max_results: Some(1), ..request };
    for (terms, goes_on) in [(&["-3", "7"][..], false), (&["-3"], false), (&[], true)] {
        cluster.search(&paged);
        assert_eq!(broken_by(cluster.told(terms, goes_on)), SEARCHED, "{terms:?}");
    }
    cluster.search(&paged);
    cluster.told(&["7"], true).unwrap();
    assert_eq!(broken_by(cluster.told(&["-3"], true)), SEARCHED, "it goes on before where it was");
}

#[test]
fn a_query_tells_what_all_primaries_have_and_not_what_they_have_replaced() {
    let mut cluster = cluster();
    cluster.written(SIBLINGS_BUCKET, SEVEN, None);
    cluster.sent(1, (SEVEN, 1), true).unwrap();
    let request = numbers_between("-40", "1000");
    cluster.search(&request);
    cluster.told(&[], false).unwrap();
    cluster.checks.on_searched().expect("not all primaries have it");
    cluster.sent_to_all(SEVEN, 1);
    cluster.search(&request);
    cluster.told(&[], false).unwrap();
    assert_eq!(cluster.checks.on_searched().unwrap_err().checker, SEARCHED);
    // What somebody tries to replace may be there or not, until all have what has replaced it.
    cluster.search(&request);
    cluster.written(SIBLINGS_BUCKET, MINUS_THREE, context(&[(SEVEN, 1)]));
    cluster.told(&[], false).unwrap();
    cluster.checks.on_searched().unwrap();
    cluster.search(&request);
    cluster.told(&["-3", "7"], false).unwrap();
    cluster.sent_to_all(MINUS_THREE, 2);
    cluster.search(&request);
    assert_eq!(broken_by(cluster.told(&["-3", "7"], false)), SEARCHED);
    cluster.search(&request);
    cluster.checks.on_loss(1, Monotonic(cluster.time + 1));
    cluster.told(&["-3", "7"], false).expect("a disk that is not what it was");
}

#[test]
fn a_query_need_not_tell_what_has_ended() {
    let mut cluster = cluster();
    cluster.written(SIBLINGS_BUCKET, SEVEN, None);
    cluster.sent_to_all(SEVEN, 1);
    cluster.time += 1;
    cluster.checks.on_end(&bucket(SIBLINGS_BUCKET).name, Monotonic(cluster.time), 1);
    cluster.written(SIBLINGS_BUCKET, MINUS_THREE, None);
    // Its context covers what the same node wrote before.
    cluster.sent_to_all(MINUS_THREE, 2);
    cluster.search(&numbers_between("-40", "1000"));
    cluster.told(&["-3"], false).unwrap();
    cluster.checks.on_searched().unwrap();
}
