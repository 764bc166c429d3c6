//! The rounds of a reaping, answer by answer; and what a grave does to what comes after.
#![allow(clippy::unwrap_used, reason = "these are tests; clippy knows only functions marked as such")]

use base::{Monotonic, Wall};
use bytes::Bytes;
use kv::reap::{Cleared, GRAVE_BYTES_MAX, Part, Reap, Round};
use kv::{
    Action, Answer, Ask, Bucket, BucketProps, Delete, DeleteRequest, Error, Event, Get, GetRequest,
    Graveyard, Limits, Merge, Next, NodeId, Placement, Put, PutRequest, ReadStrategy, Reason, Response,
    Roles, StepContext, Stored, VersionClock,
};
use object::{Actor, Context, Dot, Head, HeadView, Metadata, Object, Policy};
use std::time::Duration;

const B: NodeId = NodeId(1);
const C: NodeId = NodeId(2);
const KEEP: Duration = Duration::from_secs(10);

struct Bench {
    props: BucketProps,
    placement: Placement,
    graveyard: Graveyard,
    clock: VersionClock,
    key: Bytes,
    counter: u64,
}

fn role() -> Roles {
    Roles { vnodes: 1, primaries: 1 }
}

/// This node and two others, all primaries.
fn bench() -> Bench {
    let others = [(B, role()), (C, role())].into_iter().collect();
    Bench {
        props: BucketProps { allow_mult: true, ..BucketProps::default() },
        placement: Placement { here: Some(role()), others, ..Placement::default() },
        graveyard: Graveyard::new(KEEP),
        clock: VersionClock::default(),
        key: Bytes::from_static(b"k"),
        counter: 100,
    }
}

impl Bench {
    fn step(&mut self, step: impl FnOnce(&mut StepContext<'_>) -> Next) -> (Vec<Action>, Next) {
        let mut out = Vec::new();
        let mut next_dot = |_| {
            self.counter += 1;
            Ok(Dot::new(Actor(1), self.counter))
        };
        let placement = self.placement.clone();
        let mut ctx = StepContext {
            here: NodeId(0),
            wall: Wall(5),
            clock: &mut self.clock,
            asker: None,
            next_dot: &mut next_dot,
            place: &|_, _| placement.clone(),
            grave: self.graveyard.plot(&self.key),
            may_replace_entries: false,
            form: ReadStrategy::LocalValue,
            props: &self.props,
            limits: &Limits::default(),
            out: &mut out,
        };
        let next = step(&mut ctx);
        (out, next)
    }

    /// This node's part in a round, with what the store says to each read, in order.
    fn part(
        &mut self,
        round: Round,
        tombstone: &Stored,
        is_primary: bool,
        reads: &[Option<&Stored>],
    ) -> bool {
        let mut part = Part::new(round, tombstone.head.clone(), is_primary, vec![B, C]);
        let mut reads = reads.iter();
        let mut event = Event::Start;
        loop {
            let (mut out, next) = self.step(|ctx| part.step(event, ctx));
            assert_eq!(out.len(), 1, "one thing after the other");
            event = match out.remove(0) {
                Action::Read { .. } | Action::ReadHint { .. } => read(*reads.next().unwrap()),
                Action::Settle | Action::Remove | Action::Write { .. } => Event::Written(Ok(())),
                Action::Answer(Ok(Answer::Reaping { round: of, agrees })) => {
                    assert_eq!((of, next, reads.next()), (round, Next::Over, None));
                    return agrees;
                }
                other => panic!("it was told to {other:?}"),
            };
        }
    }

    /// Has this node promise, and with `reaped` remove, the tombstone.
    fn bury(&mut self, tombstone: &Stored, reaped: bool) {
        assert!(self.part(Round::Promise, tombstone, true, &[Some(tombstone), None, None]));
        if reaped {
            assert!(self.part(Round::Remove, tombstone, true, &[Some(tombstone)]));
        }
    }

    fn awake(&mut self, time: Duration) {
        let start = Monotonic(1_000_000_000);
        self.graveyard.tick(start);
        let seconds = time.as_secs();
        (1..=seconds).for_each(|second| self.graveyard.tick(start + Duration::from_secs(second)));
    }

    fn merge(&mut self, sent: &Stored, stored: Option<&Stored>) -> Vec<Action> {
        let value = sent.value.clone().unwrap();
        let mut merge = Merge::new(sent.head.clone(), value, Vec::new(), Reason::Repair);
        drop(self.step(|ctx| merge.step(Event::Start, ctx)));
        self.step(|ctx| merge.step(read(stored), ctx)).0
    }
}

fn read(stored: Option<&Stored>) -> Event {
    Event::Read(Ok(stored.cloned()))
}

fn said(from: NodeId, round: Round, agrees: bool) -> Event {
    Event::Answer { from, result: Ok(Answer::Reaping { round, agrees }) }
}

fn version(seen: &[(u64, u64)], dot: (u64, u64), value: Option<&str>) -> Stored {
    let context: Context = seen.iter().map(|&(actor, counter)| Dot::new(Actor(actor), counter)).collect();
    let metadata = Metadata { deleted: value.is_none(), last_modified: dot.1, ..Metadata::default() };
    let value = Bytes::copy_from_slice(value.unwrap_or_default().as_bytes());
    let put = object::Put { context: Some(context), metadata, value };
    stored(object::update(None, put, Dot::new(Actor(dot.0), dot.1), Policy::AllowMult).unwrap())
}

fn stored(object: Object) -> Stored {
    let (head, value) = object.into_parts();
    let mut bytes = Vec::new();
    head.encode(&mut bytes);
    Stored { head: bytes.into(), value: Some(value) }
}

fn old() -> Stored {
    version(&[], (7, 1), Some("old"))
}

/// What has deleted [`old`].
fn tombstone() -> Stored {
    version(&[(7, 1)], (8, 2), None)
}

/// What was written beside both.
fn other() -> Stored {
    version(&[], (9, 3), Some("other"))
}

fn bucket() -> Bucket {
    Bucket::untyped(Bytes::from_static(b"b"))
}

fn asked(actions: &[Action]) -> Vec<(NodeId, Round)> {
    let round = |action: &Action| match action {
        Action::Ask { to, ask: Ask::Reap { round, .. } } => Some((*to, *round)),
        _ => None,
    };
    actions.iter().filter_map(round).collect()
}

#[test]
fn all_promise_confirm_and_remove() {
    let mut bench = bench();
    let mut reap = Reap::new(tombstone().head, true, vec![B, C]);
    let mut told = |bench: &mut Bench, event| bench.step(|ctx| reap.step(event, ctx));
    drop(told(&mut bench, Event::Start));
    drop(told(&mut bench, read(Some(&tombstone()))));
    drop(told(&mut bench, read(None)));
    let (out, _) = told(&mut bench, read(None));
    assert!(matches!(out[..], [Action::Settle]), "no hint for either: {out:?}");
    let (out, _) = told(&mut bench, Event::Written(Ok(())));
    assert_eq!(asked(&out), [(B, Round::Promise), (C, Round::Promise)]);
    for round in [Round::Promise, Round::Confirm] {
        let (out, _) = told(&mut bench, said(B, round, true));
        assert!(out.is_empty());
        assert!(told(&mut bench, said(B, round, true)).0.is_empty(), "an answer counts once");
        let (out, _) = told(&mut bench, said(C, round, true));
        assert_eq!(asked(&out).len(), 2);
        if round == Round::Promise {
            let late = told(&mut bench, said(B, Round::Promise, true));
            assert!(late.0.is_empty(), "nor for another round");
        }
    }
    let (out, _) = told(&mut bench, read(Some(&tombstone())));
    assert!(matches!(out[..], [Action::Remove]));
    assert_eq!(told(&mut bench, Event::Written(Ok(()))).1, Next::Wait);
    assert_eq!(told(&mut bench, said(B, Round::Remove, true)).1, Next::Wait);
    assert_eq!(told(&mut bench, Event::Late).1, Next::Over, "the last one may take its time");
    assert!(reap.is_agreed());
}

#[test]
fn whoever_refuses_fails_or_is_silent_ends_it() {
    let unreachable = || Event::Answer { from: C, result: Err(Error::Unreachable) };
    for round in [Round::Promise, Round::Confirm] {
        for end in [said(C, round, false), unreachable(), Event::Expired] {
            let mut bench = bench();
            let mut reap = Reap::new(tombstone().head, true, vec![B, C]);
            let start =
                [Event::Start, read(Some(&tombstone())), read(None), read(None), Event::Written(Ok(()))];
            let mut events = Vec::from(start);
            if round == Round::Confirm {
                events.extend([said(B, Round::Promise, true), said(C, Round::Promise, true)]);
            }
            events.push(said(B, round, true));
            for event in events {
                assert_eq!(bench.step(|ctx| reap.step(event, ctx)).1, Next::Wait);
            }
            let (out, next) = bench.step(|ctx| reap.step(end, ctx));
            assert!(out.is_empty() && next == Next::Over && !reap.is_agreed());
        }
    }
}

#[test]
fn a_node_alone_removes_what_is_only_a_tombstone() {
    for (has, goes) in [(Some(tombstone()), true), (Some(other()), false)] {
        let mut bench = bench();
        let mut reap = Reap::new(tombstone().head, true, Vec::new());
        drop(bench.step(|ctx| reap.step(Event::Start, ctx)));
        let (out, next) = bench.step(|ctx| reap.step(read(has.as_ref()), ctx));
        assert_eq!((matches!(out[..], [Action::Remove]), next == Next::Wait), (goes, goes));
        assert_eq!(reap.is_agreed(), goes);
        assert!(bench.graveyard.is_empty(), "nobody sends it anything");
    }
}

#[test]
fn a_promise_is_about_what_is_here() {
    let hint = Stored { head: Bytes::new(), value: None };
    let newer = version(&[(7, 1), (8, 2)], (9, 3), Some("new"));
    let promise =
        |is_primary, reads: &[Option<&Stored>]| bench().part(Round::Promise, &tombstone(), is_primary, reads);
    let has = tombstone();
    assert!(promise(true, &[Some(&has), None, None]));
    assert!(!promise(true, &[Some(&has), None, Some(&hint)]), "a hint would bring something");
    assert!(!promise(true, &[None]), "a primary lacks it");
    assert!(!promise(true, &[Some(&old())]));
    assert!(!promise(true, &[Some(&newer)]));
    assert!(promise(false, &[None, None, None]), "nothing is needed elsewhere");
    assert!(promise(false, &[Some(&old()), None, None]), "and what is covered is replaced");
    assert!(!promise(false, &[Some(&old()), Some(&hint)]));
    assert!(!promise(false, &[Some(&other())]));
    // What is no tombstone stays, and its context is folded.
    assert!(bench().part(Round::Promise, &old(), true, &[Some(&old()), None, None]));
    assert!(bench().part(Round::Promise, &old(), true, &[Some(&newer), None, None]));
    assert!(!bench().part(Round::Promise, &newer, true, &[Some(&old())]), "it is behind");
}

#[test]
fn who_has_not_promised_confirms_and_removes_nothing() {
    let mut bench = bench();
    assert!(!bench.part(Round::Confirm, &tombstone(), true, &[]));
    assert!(!bench.part(Round::Remove, &tombstone(), true, &[Some(&tombstone())]));
    bench.bury(&tombstone(), false);
    assert!(bench.part(Round::Confirm, &tombstone(), true, &[]));
    assert!(!bench.part(Round::Remove, &tombstone(), true, &[Some(&other())]), "something came");
    assert!(bench.part(Round::Remove, &tombstone(), true, &[None]));
    assert!(bench.part(Round::Promise, &tombstone(), true, &[None, None, None]), "it has reaped it");
}

#[test]
fn what_comes_late_is_dropped_and_what_is_new_is_not() {
    let mut bench = bench();
    bench.bury(&tombstone(), true);
    for late in [old(), tombstone()] {
        let out = bench.merge(&late, None);
        assert!(matches!(out[..], [Action::Answer(Ok(Answer::Merged))]), "{out:?}");
    }
    let out = bench.merge(&other(), None);
    assert!(matches!(&out[..], [Action::Write { head, .. }] if *head == other().head), "{out:?}");
}

#[test]
fn before_it_is_reaped_nothing_is_dropped() {
    let mut bench = bench();
    bench.bury(&tombstone(), false);
    let out = bench.merge(&old(), None);
    assert!(matches!(&out[..], [Action::Write { head, .. }] if *head == tombstone().head), "{out:?}");
}

#[test]
fn what_is_sent_is_no_older_than_the_grave() {
    let mut bench = bench();
    bench.bury(&tombstone(), true);
    let sent = |version: Stored| match bench
        .graveyard
        .clear(&bench.key, &version.head, &version.value.unwrap())
        .unwrap()
    {
        Cleared::Same => None,
        Cleared::Instead(head, value) => Some((head, value)),
        Cleared::Nothing => panic!("a tombstone joins"),
    };
    assert_eq!(sent(old()), Some((tombstone().head, Bytes::new())));
    assert_eq!((sent(tombstone()), sent(other())), (None, None));
    let both = object::merge(
        &Object::new(Head::decode(&old().head).unwrap(), old().value.unwrap()).unwrap(),
        &Object::new(Head::decode(&other().head).unwrap(), other().value.unwrap()).unwrap(),
    );
    let (_, value) = sent(stored(both.unwrap())).unwrap();
    assert_eq!(value, "other");
}

#[test]
fn a_new_write_has_seen_the_grave() {
    let mut bench = bench();
    bench.bury(&tombstone(), true);
    let put = PutRequest::new(bucket(), Some(bench.key.clone()), Metadata::default(), "new".into());
    let mut put = Put::new(Box::new(put));
    drop(bench.step(|ctx| put.step(Event::Start, ctx)));
    let (out, _) = bench.step(|ctx| put.step(read(None), ctx));
    let head = out.iter().find_map(|action| match action {
        Action::Write { head, .. } => Some(head.clone()),
        _ => None,
    });
    let head = Head::decode(&head.unwrap()).unwrap();
    assert!(head.context().covers(Dot::new(Actor(8), 2)), "{head:?}");
    assert_eq!(head.siblings().len(), 1);
}

#[test]
fn a_read_shows_nothing_that_the_grave_has_deleted() {
    let mut bench = bench();
    bench.bury(&tombstone(), true);
    let mut get = Get::new(GetRequest::new(bucket(), bench.key.clone()));
    let answer = |from, stored: Option<Stored>| Event::Answer { from, result: Ok(Answer::Read(stored)) };
    drop(bench.step(|ctx| get.step(Event::Start, ctx)));
    drop(bench.step(|ctx| get.step(read(None), ctx)));
    let (out, _) = bench.step(|ctx| get.step(answer(B, Some(old())), ctx));
    assert!(matches!(out[..], [Action::Reply(Ok(Response::NotFound { .. }))]), "{out:?}");
    let (out, _) = bench.step(|ctx| get.step(answer(C, None), ctx));
    let repaired: Vec<NodeId> = out
        .iter()
        .filter_map(|action| match action {
            Action::Ask { to, ask: Ask::Merge { head, .. } } if *head == tombstone().head => Some(*to),
            _ => None,
        })
        .collect();
    assert_eq!((repaired, out.len()), (vec![B], 1), "who has nothing is left alone: {out:?}");
}

/// A primary whose disk was lost after others had promised has no grave, and refuses what it does not have. Were it
/// taken for one that has reaped, the tombstone would neither come back to it nor ever go.
#[test]
fn who_has_lost_a_promised_tombstone_is_sent_it() {
    for reaped in [false, true] {
        let mut bench = bench();
        bench.bury(&tombstone(), reaped);
        let mut get = Get::new(GetRequest::new(bucket(), bench.key.clone()));
        let answer = |from, stored: Option<Stored>| Event::Answer { from, result: Ok(Answer::Read(stored)) };
        drop(bench.step(|ctx| get.step(Event::Start, ctx)));
        drop(bench.step(|ctx| get.step(read(Some(&tombstone())), ctx)));
        drop(bench.step(|ctx| get.step(answer(B, Some(tombstone())), ctx)));
        let (out, _) = bench.step(|ctx| get.step(answer(C, None), ctx));
        let is_sent = |action: &Action| match action {
            Action::Ask { to: C, ask: Ask::Merge { head, .. } } => *head == tombstone().head,
            _ => false,
        };
        assert_eq!(out.iter().any(is_sent), !reaped, "{out:?}");
    }
}

#[test]
fn a_tombstone_that_all_have_is_proposed() {
    let proposes = |out: &[Action]| out.iter().any(|action| matches!(action, Action::Propose { .. }));
    let head = |from, stored: &Stored| Event::Answer { from, result: Ok(Answer::Read(Some(stored.clone()))) };
    for (last, expected) in [(tombstone(), true), (version(&[(7, 1)], (9, 3), None), false)] {
        let mut bench = bench();
        let mut get = Get::new(GetRequest::new(bucket(), bench.key.clone()));
        drop(bench.step(|ctx| get.step(Event::Start, ctx)));
        drop(bench.step(|ctx| get.step(read(Some(&tombstone())), ctx)));
        assert!(!proposes(&bench.step(|ctx| get.step(head(B, &tombstone()), ctx)).0));
        assert_eq!(proposes(&bench.step(|ctx| get.step(head(C, &last), ctx)).0), expected);
    }
    for (last, expected) in [(Ok(Answer::Merged), true), (Err(Error::Overload), false)] {
        let mut bench = bench();
        let context = Head::decode(&old().head).unwrap().context().encode();
        let request = DeleteRequest {
            context: Some(context.into()),
            ..DeleteRequest::new(bucket(), bench.key.clone())
        };
        let mut delete = Delete::new(request);
        drop(bench.step(|ctx| delete.step(Event::Start, ctx)));
        let (out, _) = bench.step(|ctx| delete.step(read(Some(&old())), ctx));
        let written = out.iter().find_map(|action| match action {
            Action::Write { head, .. } => Some(head.clone()),
            _ => None,
        });
        assert!(HeadView::parse(&written.unwrap()).unwrap().is_tombstone());
        drop(bench.step(|ctx| delete.step(Event::Written(Ok(())), ctx)));
        let merged = Event::Answer { from: B, result: Ok(Answer::Merged) };
        assert!(!proposes(&bench.step(|ctx| delete.step(merged, ctx)).0));
        let last = Event::Answer { from: C, result: last };
        assert_eq!(proposes(&bench.step(|ctx| delete.step(last, ctx)).0), expected);
    }
}

#[test]
fn graves_last_while_the_process_is_awake_and_while_there_is_work() {
    let mut bench = bench();
    bench.bury(&tombstone(), true);
    bench.graveyard.tick(Monotonic(0));
    bench.graveyard.tick(Monotonic(0) + Duration::from_secs(3600));
    assert!(!bench.graveyard.has_due(), "a pause is not time awake");
    bench.awake(KEEP);
    assert!(bench.graveyard.has_due());
    bench.graveyard.expire(|_| true);
    assert_eq!((bench.graveyard.len(), bench.graveyard.has_due()), (1, false));
    bench.awake(KEEP + Duration::from_secs(1));
    bench.graveyard.expire(|_| false);
    assert!(bench.graveyard.is_empty());
}

#[test]
fn a_promise_made_again_lasts_from_then_and_another_one_must_have_seen_it() {
    let mut bench = bench();
    bench.bury(&tombstone(), true);
    bench.awake(KEEP);
    bench.bury(&tombstone(), false);
    bench.graveyard.expire(|_| false);
    assert_eq!(bench.graveyard.len(), 1);
    let stranger = version(&[], (9, 3), None);
    assert!(!bench.part(Round::Promise, &stranger, true, &[Some(&stranger), None, None]));
    let later = version(&[(7, 1), (8, 2)], (9, 3), None);
    assert!(bench.part(Round::Promise, &later, true, &[Some(&later), None, None]));
    assert!(!bench.part(Round::Confirm, &tombstone(), true, &[]));
    bench.awake(KEEP + Duration::from_secs(1));
    bench.graveyard.expire(|_| false);
    assert!(bench.graveyard.is_empty());
}

#[test]
fn beyond_the_bound_nothing_is_promised() {
    let mut bench = bench();
    let keys_max = GRAVE_BYTES_MAX / KEY_BYTES - 1;
    for number in 0..keys_max {
        bench.key = key(number);
        bench.bury(&tombstone(), false);
    }
    bench.key = key(keys_max);
    assert!(!bench.part(Round::Promise, &tombstone(), true, &[Some(&tombstone()), None, None]));
    assert_eq!(bench.graveyard.len(), keys_max);
    bench.awake(KEEP + Duration::from_secs(1));
    bench.graveyard.expire(|_| false);
    bench.bury(&tombstone(), false);
}

const KEY_BYTES: usize = 1 << 20;

fn key(number: usize) -> Bytes {
    let number = u8::try_from(number).unwrap();
    Bytes::from(vec![number; KEY_BYTES])
}
