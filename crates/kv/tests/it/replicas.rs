//! Coordinators among several replicas, answer by answer: what is enough, which value is asked of whom, what is
//! repaired, and who gets a hint.
#![allow(clippy::unwrap_used, reason = "these are tests; clippy knows only functions marked as such")]

use base::Wall;
use bytes::Bytes;
use kv::need::Need;
use kv::reap::GRAVE_TIME;
use kv::{
    Action, Answer, Ask, Bucket, BucketProps, Delete, DeleteRequest, Error, Event, Get, GetRequest,
    Graveyard, Hint, Limits, Merge, Next, NodeId, Placement, Put, PutRequest, Quorum, ReadStrategy, Reason,
    Response, Roles, Spares, StepContext, Stored, VersionClock, Want,
};
use object::{Actor, Context, Dot, Head, Metadata, Object, Policy};

const B: NodeId = NodeId(1);
const C: NodeId = NodeId(2);
const D: NodeId = NodeId(3);

/// What a coordinator is stepped with, but for the event.
struct Bench {
    props: BucketProps,
    placement: Placement,
    form: ReadStrategy,
    counter: u64,
    graveyard: Graveyard,
    clock: VersionClock,
}

fn role(primaries: u8) -> Roles {
    Roles { vnodes: 1, primaries }
}

/// The parts of nodes, with nobody to stand in.
fn placement<const N: usize>(here: Option<Roles>, others: [(NodeId, Roles); N]) -> Placement {
    Placement { here, others: others.into_iter().collect(), ..Placement::default() }
}

/// This node and two others, and one that may stand in.
fn bench() -> Bench {
    let mut placement = placement(Some(role(1)), [(B, role(1)), (C, role(1))]);
    placement.spares.push(D);
    let props = BucketProps { allow_mult: true, ..BucketProps::default() };
    Bench {
        props,
        placement,
        form: ReadStrategy::LocalValue,
        counter: 100,
        graveyard: Graveyard::new(GRAVE_TIME),
        clock: VersionClock::default(),
    }
}

impl Bench {
    fn step(&mut self, step: impl FnOnce(&mut StepContext<'_>) -> Next) -> (Vec<Action>, Next) {
        let mut out = Vec::new();
        let mut next_dot = |_| {
            self.counter += 1;
            Ok(Dot::new(Actor(1), self.counter))
        };
        let (placement, key) = (self.placement.clone(), Bytes::from_static(b"k"));
        let mut ctx = StepContext {
            here: NodeId(0),
            wall: Wall(5_000_000),
            clock: &mut self.clock,
            asker: None,
            next_dot: &mut next_dot,
            place: &|_, _| placement.clone(),
            grave: self.graveyard.plot(&key),
            may_replace_entries: false,
            form: self.form,
            props: &self.props,
            limits: &Limits::default(),
            out: &mut out,
        };
        let next = step(&mut ctx);
        (out, next)
    }
}

/// A version: one sibling per dot, each with a value of that many bytes named after it.
fn version(context: &[(u64, u64)], siblings: &[(u64, u64, &str)]) -> Stored {
    let mut object: Option<Object> = None;
    for &(actor, counter, value) in siblings {
        let put = object::Put {
            context: None,
            metadata: Metadata { last_modified: counter, ..Metadata::default() },
            value: Bytes::copy_from_slice(value.as_bytes()),
        };
        let new = object::update(None, put, Dot::new(Actor(actor), counter), Policy::AllowMult).unwrap();
        object = Some(object.map_or(new.clone(), |object| object::merge(&object, &new).unwrap()));
    }
    let seen: Context = context.iter().map(|&(actor, counter)| Dot::new(Actor(actor), counter)).collect();
    let object = object.unwrap();
    // What the context has seen beyond the siblings: a version that replaced others.
    let (dot, last) = (siblings[siblings.len() - 1], object.head().siblings().len() - 1);
    let object = match seen.is_empty() {
        true => object,
        false => {
            let put = object::Put {
                context: Some(seen),
                metadata: object.head().siblings()[last].metadata.clone(),
                value: object.value(last),
            };
            object::update(None, put, Dot::new(Actor(dot.0), dot.1), Policy::AllowMult).unwrap()
        }
    };
    let (head, value) = object.into_parts();
    let mut bytes = Vec::new();
    head.encode(&mut bytes);
    Stored { head: bytes.into(), value: Some(value) }
}

fn head_of(stored: &Stored) -> Stored {
    Stored { value: None, ..stored.clone() }
}

fn bucket() -> Bucket {
    Bucket::untyped(Bytes::from_static(b"b"))
}

fn get() -> GetRequest {
    GetRequest::new(bucket(), Bytes::from_static(b"k"))
}

fn put() -> PutRequest {
    let value = Bytes::from_static(b"new");
    PutRequest::new(bucket(), Some(Bytes::from_static(b"k")), Metadata::default(), value)
}

fn read(stored: Option<&Stored>) -> Event {
    Event::Read(Ok(stored.cloned()))
}

fn answer(from: NodeId, stored: Option<&Stored>) -> Event {
    Event::Answer { from, result: Ok(Answer::Read(stored.cloned())) }
}

fn merged(from: NodeId) -> Event {
    Event::Answer { from, result: Ok(Answer::Merged) }
}

fn failed(from: NodeId) -> Event {
    Event::Answer { from, result: Err(Error::Unreachable) }
}

/// Actions in short.
fn shown(actions: &[Action]) -> Vec<String> {
    let want = |want: &Want| if *want == Want::Head { "head" } else { "value" };
    let of = |nodes: &[NodeId]| nodes.iter().map(|node| node.0.to_string()).collect::<String>();
    let shown = |action: &Action| match action {
        Action::Read { want: it, .. } => format!("read {}", want(it)),
        Action::Ask { to, ask: Ask::Read { want: it } } => format!("ask {to} {}", want(it)),
        Action::Ask { to, ask: Ask::Merge { reason, hints, .. } } => match hints.is_empty() {
            true => format!("{reason:?} {to}"),
            false => format!("{reason:?} {to} for {}", of(hints)),
        },
        Action::Write { hints, .. } => format!("write for {}", of(hints)),
        Action::Hint { nodes, .. } => format!("hint for {}", of(nodes)),
        Action::MergeHere { hints, .. } if !hints.is_empty() => format!("stand in here for {}", of(hints)),
        Action::MergeHere { heal, .. } => format!("{} here", if *heal { "heal" } else { "repair" }),
        Action::Reply(Ok(Response::Found(found))) => {
            format!("found {:?}", String::from_utf8_lossy(found.value.as_deref().unwrap_or(b"-")))
        }
        Action::Reply(Ok(Response::NotFound { .. })) => "notfound".to_owned(),
        Action::Reply(Ok(_)) => "ok".to_owned(),
        Action::Reply(Err(error)) => format!("error {error}"),
        Action::Answer(result) => format!("answer {}", result.is_ok()),
        other => format!("{other:?}"),
    };
    actions.iter().map(shown).collect()
}

/// Steps a read with each event, and holds what it does against what is expected.
fn run_get(bench: &mut Bench, request: GetRequest, script: &[(Event, &[&str], Next)]) {
    let mut coordinator = Get::new(request);
    for (event, expected, next) in script {
        let (actions, came) = bench.step(|ctx| coordinator.step(event.clone(), ctx));
        assert_eq!(
            (shown(&actions), came),
            (expected.iter().map(|s| s.to_string()).collect(), *next),
            "{event:?}"
        );
    }
}

fn run_put(bench: &mut Bench, request: PutRequest, script: &[(Event, &[&str], Next)]) {
    let mut coordinator = Put::new(Box::new(request));
    for (event, expected, next) in script {
        let (actions, came) = bench.step(|ctx| coordinator.step(event.clone(), ctx));
        assert_eq!(
            (shown(&actions), came),
            (expected.iter().map(|s| s.to_string()).collect(), *next),
            "{event:?}"
        );
    }
}

use Next::{Over, Wait};

#[test]
fn equal_heads_and_the_local_value_are_an_answer() {
    let stored = version(&[], &[(1, 1, "one")]);
    run_get(
        &mut bench(),
        get(),
        &[
            (Event::Start, &["read value", "ask 1 head", "ask 2 head"], Wait),
            (read(Some(&stored)), &[], Wait),
            (answer(B, Some(&head_of(&stored))), &["found \"one\""], Wait),
            (answer(B, Some(&head_of(&stored))), &[], Wait),
            (answer(C, Some(&head_of(&stored))), &[], Over),
        ],
    );
}

#[test]
fn a_newer_head_elsewhere_has_its_value_fetched_and_the_rest_repaired() {
    let old = version(&[], &[(1, 1, "old")]);
    let new = version(&[(1, 1)], &[(2, 7, "new")]);
    run_get(
        &mut bench(),
        get(),
        &[
            (Event::Start, &["read value", "ask 1 head", "ask 2 head"], Wait),
            (read(Some(&old)), &[], Wait),
            (answer(B, Some(&head_of(&new))), &["ask 1 value"], Wait),
            (answer(C, None), &[], Wait),
            (answer(B, Some(&new)), &["found \"new\"", "repair here", "Repair 2"], Over),
        ],
    );
}

#[test]
fn concurrent_heads_are_joined_and_everybody_gets_both() {
    let (left, right) = (version(&[], &[(1, 1, "left")]), version(&[], &[(2, 1, "right")]));
    run_get(
        &mut bench(),
        GetRequest { r: Quorum::All, ..get() },
        &[
            (Event::Start, &["read value", "ask 1 head", "ask 2 head"], Wait),
            (read(Some(&left)), &[], Wait),
            (answer(B, Some(&head_of(&right))), &[], Wait),
            (answer(C, Some(&head_of(&right))), &["ask 1 value"], Wait),
            (answer(B, Some(&right)), &["found \"leftright\"", "repair here", "Repair 1", "Repair 2"], Over),
        ],
    );
}

#[test]
fn a_value_that_is_damaged_comes_from_the_next_and_is_healed() {
    let stored = version(&[], &[(1, 1, "one")]);
    let damaged = Error::Damaged("a bad block".into());
    let mut bench = bench();
    bench.form = ReadStrategy::Heads;
    let bad = Event::Answer { from: B, result: Err(damaged.clone()) };
    run_get(
        &mut bench,
        get(),
        &[
            (Event::Start, &["read head", "ask 1 head", "ask 2 head"], Wait),
            (answer(B, Some(&head_of(&stored))), &[], Wait),
            (answer(C, Some(&head_of(&stored))), &["ask 1 value"], Wait),
            (bad, &["ask 2 value"], Wait),
            (read(Some(&head_of(&stored))), &[], Wait),
            (answer(C, Some(&stored)), &["found \"one\"", "Heal 1"], Over),
        ],
    );
    let mut local = self::bench();
    run_get(
        &mut local,
        get(),
        &[
            (Event::Start, &["read value", "ask 1 head", "ask 2 head"], Wait),
            (Event::Read(Err(damaged)), &[], Wait),
            (answer(B, Some(&head_of(&stored))), &[], Wait),
            (answer(C, Some(&head_of(&stored))), &["ask 1 value"], Wait),
            (answer(B, Some(&stored)), &["found \"one\"", "heal here"], Over),
        ],
    );
}

#[test]
fn absence_counts_as_the_request_says() {
    let stored = version(&[], &[(1, 1, "one")]);
    let start: (Event, &[&str], Next) = (Event::Start, &["read value", "ask 1 head", "ask 2 head"], Wait);
    run_get(
        &mut bench(),
        get(),
        &[
            start.clone(),
            (read(None), &[], Wait),
            (answer(B, None), &["notfound"], Wait),
            (answer(C, None), &[], Over),
        ],
    );
    let strict = GetRequest { notfound_ok: Some(false), ..get() };
    run_get(
        &mut bench(),
        strict.clone(),
        &[
            start.clone(),
            (read(None), &[], Wait),
            (answer(B, Some(&head_of(&stored))), &[], Wait),
            (answer(C, Some(&head_of(&stored))), &["ask 1 value"], Wait),
            (answer(B, Some(&stored)), &["found \"one\"", "repair here"], Over),
        ],
    );
    run_get(
        &mut bench(),
        GetRequest { r: Quorum::One, basic_quorum: Some(true), ..strict.clone() },
        &[start.clone(), (read(None), &[], Wait), (answer(B, None), &["notfound"], Wait)],
    );
    run_get(
        &mut bench(),
        GetRequest { r: Quorum::One, ..strict.clone() },
        &[
            start.clone(),
            (read(None), &[], Wait),
            (answer(B, None), &[], Wait),
            (answer(C, None), &["notfound"], Over),
        ],
    );
    // Somebody has it, or cannot say: that too few have it is no proof that there is nothing.
    run_get(
        &mut bench(),
        strict.clone(),
        &[
            start.clone(),
            (read(None), &[], Wait),
            (answer(B, Some(&head_of(&stored))), &[], Wait),
            (answer(C, None), &["error r is not met: 2 wanted, 1 got", "ask 1 value"], Wait),
            (answer(B, Some(&stored)), &["repair here", "Repair 2"], Over),
        ],
    );
    run_get(
        &mut bench(),
        strict.clone(),
        &[
            start.clone(),
            (read(None), &[], Wait),
            (failed(B), &["error r is not met: 2 wanted, 0 got"], Wait),
            (answer(C, None), &[], Over),
        ],
    );
    run_get(
        &mut bench(),
        GetRequest { pr: Quorum::All, ..strict },
        &[
            start,
            (answer(B, Some(&head_of(&stored))), &[], Wait),
            (read(None), &["error pr is not met: 3 wanted, 1 got"], Wait),
            (answer(C, Some(&head_of(&stored))), &["ask 1 value"], Wait),
            (answer(B, Some(&stored)), &["repair here"], Over),
        ],
    );
}

#[test]
fn too_few_replies_are_told_by_the_need_that_fails() {
    let stored = version(&[], &[(1, 1, "one")]);
    run_get(
        &mut bench(),
        GetRequest { r: Quorum::All, ..get() },
        &[
            (Event::Start, &["read value", "ask 1 head", "ask 2 head"], Wait),
            (read(Some(&stored)), &[], Wait),
            (failed(C), &["error r is not met: 3 wanted, 1 got"], Wait),
            (Event::Late, &[], Over),
        ],
    );
    run_get(
        &mut bench(),
        get(),
        &[
            (Event::Start, &["read value", "ask 1 head", "ask 2 head"], Wait),
            (Event::Late, &[], Wait),
            (read(Some(&stored)), &[], Wait),
            (Event::Expired, &["error timeout"], Over),
        ],
    );
    let mut cut_off = bench();
    cut_off.placement.others.clear();
    run_get(&mut cut_off, get(), &[(Event::Start, &["error 1 vnodes can be reached, 2 are needed"], Over)]);
}

#[test]
fn a_write_goes_everywhere_at_once_and_late_ones_get_hints() {
    run_put(
        &mut bench(),
        put(),
        &[
            (Event::Start, &["read head"], Wait),
            (read(None), &["write for ", "Write 1", "Write 2"], Wait),
            (merged(B), &[], Wait),
            (merged(B), &[], Wait),
            (Event::Written(Ok(())), &["ok"], Wait),
            (Event::Late, &["hint for 2"], Over),
        ],
    );
}

#[test]
fn a_replica_that_fails_is_stood_in_for() {
    run_put(
        &mut bench(),
        PutRequest { w: Quorum::All, ..put() },
        &[
            (Event::Start, &["read head"], Wait),
            (read(None), &["write for ", "Write 1", "Write 2"], Wait),
            (Event::Written(Ok(())), &[], Wait),
            (failed(B), &["Write 3 for 1"], Wait),
            (merged(C), &[], Wait),
            (failed(D), &["hint for 1", "error w is not met: 3 wanted, 2 got"], Over),
        ],
    );
    run_put(
        &mut bench(),
        PutRequest { w: Quorum::All, pw: Quorum::All, ..put() },
        &[
            (Event::Start, &["read head"], Wait),
            (read(None), &["write for ", "Write 1", "Write 2"], Wait),
            (failed(B), &["Write 3 for 1", "error pw is not met: 3 wanted, 0 got"], Wait),
            (Event::Expired, &["hint for 21"], Over),
        ],
    );
}

#[test]
fn a_fallback_is_no_primary_and_two_vnodes_of_a_node_are_one_copy() {
    let mut bench = bench();
    bench.placement = placement(bench.placement.here, [(B, Roles { vnodes: 2, primaries: 1 })]);
    bench.placement.hints.push(Hint { keeper: Some(B), absent: C });
    bench.placement.spares.push(D);
    let mut refused = |request: PutRequest| {
        let mut coordinator = Put::new(Box::new(request));
        let (actions, next) = bench.step(|ctx| coordinator.step(Event::Start, ctx));
        assert_eq!(next, if shown(&actions) == ["read head"] { Wait } else { Over });
        match actions.into_iter().next() {
            Some(Action::Reply(Err(Error::Unsatisfied { need, want, got }))) => Some((need, want, got)),
            _ => None,
        }
    };
    assert_eq!(refused(PutRequest { w: Quorum::All, ..put() }), None);
    assert_eq!(refused(PutRequest { pw: Quorum::All, ..put() }), Some((Need::Pw, 3, 2)));
    let nodes = PutRequest { node_confirms: Quorum::Exactly(3), ..put() };
    assert_eq!(refused(nodes), Some((Need::NodeConfirms, 3, 2)));
}

#[test]
fn a_delete_without_a_context_covers_what_a_quorum_has() {
    let (left, right) = (version(&[], &[(1, 1, "left")]), version(&[], &[(2, 1, "right")]));
    let mut coordinator = Delete::new(DeleteRequest::new(bucket(), Bytes::from_static(b"k")));
    let mut bench = bench();
    let mut step = |event| bench.step(|ctx| coordinator.step(event, ctx));
    assert_eq!(shown(&step(Event::Start).0), ["read head", "ask 1 head", "ask 2 head"]);
    assert!(step(read(Some(&head_of(&left)))).0.is_empty());
    assert_eq!(shown(&step(answer(B, Some(&head_of(&right)))).0), ["read head"]);
    let (actions, _) = step(read(Some(&head_of(&left))));
    assert_eq!(shown(&actions), ["write for ", "Write 1", "Write 2"]);
    let Action::Write { head, .. } = &actions[0] else { panic!("it writes first") };
    let head = Head::decode(head).unwrap();
    assert!(head.is_tombstone() && head.context().covers(Dot::new(Actor(2), 1)));
}

#[test]
fn a_replica_joins_and_never_goes_back() {
    let old = version(&[], &[(1, 1, "old")]);
    let new = version(&[(1, 1)], &[(2, 7, "new")]);
    let other = version(&[], &[(3, 1, "other")]);
    let mut bench = bench();
    let mut merge = |sent: &Stored, reason, has: Option<&Stored>, hints: Vec<NodeId>| {
        let mut coordinator = Merge::new(sent.head.clone(), sent.value.clone().unwrap(), hints, reason);
        let (mut done, mut event) = (Vec::new(), Event::Start);
        loop {
            let (actions, next) = bench.step(|ctx| coordinator.step(event, ctx));
            done.extend(shown(&actions));
            if next == Over {
                return done.join(", ");
            }
            event = match &actions[..] {
                [Action::Read { want: Want::Head, .. }] => read(has.map(head_of).as_ref()),
                [Action::Read { want: Want::Value, .. }] => read(has),
                [Action::Hint { confirm: true, .. }] => Event::Written(Ok(())),
                [Action::Write { value, .. }] => {
                    done.push(String::from_utf8_lossy(value).into_owned());
                    Event::Written(Ok(()))
                }
                other => panic!("{other:?}"),
            };
        }
    };
    let (write, repair) = (Reason::Write, Reason::Repair);
    assert_eq!(merge(&new, write, None, vec![]), "read head, write for , new, answer true");
    assert_eq!(merge(&new, write, Some(&old), vec![]), "read head, write for , new, answer true");
    assert_eq!(merge(&old, repair, Some(&new), vec![]), "read head, answer true");
    assert_eq!(merge(&old, repair, Some(&old), vec![C]), "read head, hint for 2, answer true");
    assert_eq!(merge(&old, Reason::Heal, Some(&old), vec![]), "read head, write for , old, answer true");
    let joined = "read head, read value, write for , newother, answer true";
    assert_eq!(merge(&other, repair, Some(&new), vec![]), joined);
}

#[test]
fn a_delete_with_a_context_is_done_even_where_nothing_is_seen() {
    let seen = version(&[], &[(2, 5, "elsewhere")]);
    let mut context = Vec::new();
    object::HeadView::parse(&seen.head).unwrap().context().write_client_bytes(&mut context);
    let request = DeleteRequest {
        context: Some(context.into()),
        r: Quorum::One,
        w: Quorum::One,
        ..DeleteRequest::new(bucket(), Bytes::from_static(b"k"))
    };
    let mut cut_off = bench();
    cut_off.placement.others.clear();
    cut_off.placement.spares = Spares::default();
    let mut coordinator = Delete::new(DeleteRequest { dw: Quorum::One, rw: Quorum::One, ..request });
    let mut step = |event| cut_off.step(|ctx| coordinator.step(event, ctx));
    assert_eq!(shown(&step(Event::Start).0), ["read head"]);
    let (actions, _) = step(read(None));
    let [Action::Write { head, .. }] = &actions[..] else { panic!("{actions:?}") };
    assert!(Head::decode(head).unwrap().context().covers(Dot::new(Actor(2), 5)));
}

#[test]
fn a_value_is_asked_of_one_replica_at_a_time() {
    let stored = version(&[], &[(1, 1, "one")]);
    let mut bench = bench();
    bench.form = ReadStrategy::Heads;
    run_get(
        &mut bench,
        get(),
        &[
            (Event::Start, &["read head", "ask 1 head", "ask 2 head"], Wait),
            (read(Some(&head_of(&stored))), &[], Wait),
            (answer(C, Some(&head_of(&stored))), &["ask 2 value"], Wait),
            (answer(B, Some(&head_of(&stored))), &[], Wait),
            (answer(C, Some(&stored)), &["found \"one\""], Over),
        ],
    );
}

#[test]
fn what_is_written_once_is_sent_before_anything_is_read() {
    let mut once = bench();
    once.props = BucketProps { write_once: true, ..BucketProps::of_new_type() };
    let older = version(&[], &[(0, 1, "older")]);
    run_put(
        &mut once,
        put(),
        &[
            (Event::Start, &["Write 1", "Write 2", "read head"], Wait),
            (read(Some(&older)), &["write for "], Wait),
            (merged(B), &[], Wait),
            (Event::Written(Ok(())), &["ok"], Wait),
            (merged(C), &[], Over),
        ],
    );
    // A disk that takes long keeps nobody waiting, nor is the version forgotten here.
    run_put(
        &mut once,
        put(),
        &[
            (Event::Start, &["Write 1", "Write 2", "read head"], Wait),
            (merged(B), &[], Wait),
            (merged(C), &["ok"], Wait),
            (Event::Late, &["repair here"], Over),
        ],
    );
    // A node that is no replica has no copy to keep a hint about: one that has confirmed keeps it.
    once.placement = placement(None, [(B, role(1)), (C, role(1))]);
    run_put(
        &mut once,
        put(),
        &[
            (Event::Start, &["Write 1", "Write 2"], Wait),
            (merged(B), &[], Wait),
            (failed(C), &["Write 1 for 2", "error w is not met: 2 wanted, 1 got"], Wait),
            (merged(B), &[], Over),
        ],
    );
}

/// A full disk is named where a quorum is not met.
const NO_ROOM: &str = "error w is not met: 2 wanted, 1 got; 1 without room on the disk";

#[test]
fn what_a_coordinator_cannot_keep_is_kept_by_one_that_has_it() {
    let exhausted = || Event::Written(Err(Error::Exhausted("no room".to_owned())));
    // It stands in for 3, and its disk turns out to be full.
    let mut fallback = bench();
    fallback.props = BucketProps { last_write_wins: true, ..BucketProps::default() };
    fallback.placement = placement(Some(role(0)), [(B, role(1)), (C, role(1))]);
    fallback.placement.hints.push(Hint { keeper: None, absent: NodeId(3) });
    run_put(
        &mut fallback,
        put(),
        &[
            (Event::Start, &["write for 3", "Write 1", "Write 2"], Wait),
            (exhausted(), &[], Wait),
            (merged(C), &["Write 2 for 3"], Wait),
            (merged(B), &["ok"], Wait),
            (failed(C), &[], Wait),
            (Event::Late, &["Write 1 for 3"], Wait),
            (merged(B), &[], Over),
        ],
    );
    // Who was asked may be away by then: the other that has it is asked next.
    let mut coordinator = bench();
    coordinator.props = BucketProps { last_write_wins: true, ..BucketProps::default() };
    coordinator.placement = placement(None, [(B, role(1)), (C, role(1)), (NodeId(3), role(1))]);
    run_put(
        &mut coordinator,
        put(),
        &[
            (Event::Start, &["Write 1", "Write 2", "Write 3"], Wait),
            (merged(B), &[], Wait),
            (merged(C), &["ok"], Wait),
            (failed(NodeId(3)), &["Write 1 for 3"], Wait),
            (Event::Late, &["Write 2 for 3"], Wait),
            (merged(C), &[], Over),
        ],
    );
    // All that have it are silent: it takes it itself, and stands in.
    run_put(
        &mut coordinator,
        put(),
        &[
            (Event::Start, &["Write 1", "Write 2", "Write 3"], Wait),
            (merged(B), &[], Wait),
            (merged(C), &["ok"], Wait),
            (failed(NodeId(3)), &["Write 1 for 3"], Wait),
            (Event::Late, &["Write 2 for 3"], Wait),
            (Event::Late, &["Write 1 for 3"], Wait),
            (Event::Late, &["Write 2 for 3"], Wait),
            (Event::Late, &["Write 1 for 3", "stand in here for 3"], Over),
        ],
    );
    // A primary is brought home what its own disk had no room for; what others lack, too.
    let mut primary = bench();
    primary.placement.spares = Spares::default();
    primary.props = BucketProps { last_write_wins: true, ..BucketProps::default() };
    run_put(
        &mut primary,
        put(),
        &[
            (Event::Start, &["write for ", "Write 1", "Write 2"], Wait),
            (merged(B), &[], Wait),
            (exhausted(), &["Write 1 for 0"], Wait),
            (merged(B), &[], Wait),
            (failed(C), &["Write 1 for 2", NO_ROOM], Wait),
            (merged(B), &[], Over),
        ],
    );
}

/// A version of that time, with a sibling of another store.
fn at(time: u64) -> Stored {
    version(&[], &[(9, time, "earlier")])
}

/// The time of the version that is sent to a replica.
fn time_sent(actions: &[Action]) -> Option<u64> {
    actions.iter().find_map(|action| match action {
        Action::Ask { ask: Ask::Merge { head, .. }, .. } => Some(Head::decode(head).unwrap().newest_time()),
        _ => None,
    })
}

/// What a write asks for once it has read this here.
fn write_over(bench: &mut Bench, stored: Option<&Stored>) -> Vec<Action> {
    let mut write = Put::new(Box::new(put()));
    let (actions, _) = bench.step(|ctx| write.step(Event::Start, ctx));
    assert_eq!(shown(&actions), ["read head"], "{:?}", bench.props);
    bench.step(|ctx| write.step(read(stored), ctx)).0
}

#[test]
fn a_write_is_later_than_what_is_in_hand_and_what_was_seen() {
    let hour = 3_600_000_000;
    let props = BucketProps::default();
    for (props, is_doubtful) in [
        (props.clone(), false),
        (BucketProps { last_write_wins: true, ..props.clone() }, true),
        (BucketProps { write_once: true, ..props }, true),
    ] {
        let mut bench = Bench { props, ..bench() };
        if is_doubtful {
            bench.clock.see(2 * hour, Wall(5_000_000), None);
        }
        let earlier = at(2 * hour);
        assert_eq!(time_sent(&write_over(&mut bench, Some(&earlier))), Some(2 * hour + 1));
        // Of another key it has nothing in hand, but it has seen the second of these times.
        assert_eq!(time_sent(&write_over(&mut bench, None)), Some(5_000_000));
        bench.clock.see(6_000_000, Wall(5_000_000), None);
        assert_eq!(time_sent(&write_over(&mut bench, None)), Some(6_000_001));
    }
}

#[test]
fn an_end_is_reckoned_from_the_time_of_its_version() {
    let mut bench = bench();
    bench.props = BucketProps { ttl: 60, ..BucketProps::default() };
    bench.clock.see(65_000_000, Wall(5_000_000), None);
    let ends = write_over(&mut bench, None).iter().find_map(|action| match action {
        Action::Ask { ask: Ask::Merge { head, .. }, .. } => object::HeadView::expiry_of(head),
        _ => None,
    });
    assert_eq!(ends, Some(125_000), "no other node is done with it at once");
}
