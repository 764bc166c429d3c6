//! Three nodes of one shard each, driven by hand: what is written on one is read on all, through cuts, silence and
//! starts. Every message passes through its frame.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::cluster::*;
use bytes::Bytes;
use kv::need::Need;
use kv::{Error, GetRequest, Prop, PutRequest, Quorum, ReadStrategy, Request, Response};
use node::shard::{LOOKUPS_BUSY, OVERLOAD_WORK_MIN, PASS_MAX, STAY_MAX, WAIT_MAX};
use node::{Output, RequestId, Shard};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn what_is_written_on_one_node_is_read_on_all() {
    let data = folder();
    let mut cluster = three(&data);
    for key in 0..20 {
        let (key, value) = (format!("k{key}"), long("v"));
        cluster.put(key.len() % 3, &key, &value).unwrap();
        for node in 0..3 {
            assert_eq!(cluster.values(node, &key), std::slice::from_ref(&value));
            assert_eq!(cluster.has(node, &key), std::slice::from_ref(&value), "{key} on {node}");
        }
    }
    assert!(cluster.values(1, "nothing").is_empty());
    assert!(cluster.idle(), "nothing lingers");
}

#[test]
fn each_form_asks_what_it_says() {
    for (form, expected) in [
        (ReadStrategy::LocalValue, vec!["head", "head"]),
        (ReadStrategy::Heads, vec!["head", "head"]),
        (ReadStrategy::Values, vec!["value", "value"]),
    ] {
        let data = folder();
        let mut cluster = Cluster::new(data.path(), 3, form);
        cluster.put(0, "k", &long("v")).unwrap();
        assert_eq!(cluster.values(0, "k"), [long("v")]);
        let mut asked = cluster.asked.clone();
        asked.retain(|kind| !kind.is_empty());
        // By heads, the value comes from another node: this one is asked only if it is not busy.
        assert_eq!(asked[..2], expected, "{form:?}");
        let head = GetRequest { head: true, ..get("k") };
        assert!(
            matches!(cluster.ask(1, Request::Get(head)), Ok(Response::Found(found)) if found.value.is_none())
        );
    }
}

#[test]
fn a_node_whose_disk_is_behind_leaves_values_to_others() {
    const KEYS: u64 = 80;
    let data = folder();
    let mut cluster = three(&data);
    for key in 0..KEYS {
        cluster.put(0, &format!("k{key}"), &long("v")).unwrap();
    }
    let hold = Arc::clone(&cluster.holds[0]);
    hold.on.store(true, Ordering::Relaxed);
    for key in 0..KEYS {
        let shard = cluster.nodes[0].as_mut().unwrap();
        shard.request(RequestId(1_000_000 + key), Request::Get(get(&format!("k{key}"))));
    }
    cluster.run();
    assert_eq!(
        hold.waiting.load(Ordering::Relaxed),
        LOOKUPS_BUSY,
        "whoever comes later does not ask the disk"
    );
    assert_eq!(cluster.answers.len(), KEYS as usize, "and nobody waits for it");
    assert!(cluster.answers.values().all(|answer| matches!(answer, Ok(Response::Found(_)))));

    // What the disk was asked is done with, and the next value is read here again.
    hold.on.store(false, Ordering::Relaxed);
    cluster.run();
    assert!(cluster.idle());
    cluster.asked.clear();
    assert_eq!(cluster.values(0, "k0"), [long("v")]);
    assert!(!cluster.asked.contains(&"value"));
}

#[test]
fn a_node_that_was_away_gets_what_it_missed() {
    let data = folder();
    let mut cluster = three(&data);
    cluster.put(0, "k", &long("1")).unwrap();
    cluster.kill(2);
    cluster.pass(Duration::from_secs(2));
    let context = context_of(&mut cluster, 0, "k");
    let update = PutRequest { context: Some(context), ..put("k", &long("2")) };
    cluster.ask(0, Request::put(update)).unwrap();
    cluster.put(1, "new", &long("3")).unwrap();
    cluster.start(2);
    cluster.pass(Duration::from_secs(3));
    assert_eq!(cluster.has(2, "k"), [long("2")]);
    assert_eq!(cluster.has(2, "new"), [long("3")]);
    let stats: Vec<_> = cluster.nodes.iter().flatten().map(|shard| shard.stats().counters).collect();
    let sum = |part: fn(&node::shard::ShardCounters) -> u64| stats.iter().map(part).sum::<u64>();
    assert!(sum(|counters| counters.hints) >= 2);
    assert_eq!(sum(|counters| counters.hints), sum(|counters| counters.hints_home));
    assert!(cluster.idle());
    // When all is home nobody looks for more.
    let rounds = |cluster: &Cluster| -> u64 {
        cluster.nodes.iter().flatten().map(|shard| shard.stats().counters.hint_rounds).sum()
    };
    let before = rounds(&cluster);
    assert!(before > 0);
    cluster.pass(Duration::from_secs(10));
    assert_eq!(rounds(&cluster), before);
}

#[test]
fn a_silent_node_leaves_hints_before_it_counts_as_down() {
    let data = folder();
    let mut cluster = three(&data);
    cluster.cut(2);
    cluster.put(0, "k", &long("1")).unwrap();
    cluster.pass(Duration::from_millis(700));
    assert!(cluster.nodes[0].as_ref().unwrap().stats().counters.hints > 0);
    cluster.pass(Duration::from_secs(2));
    cluster.cuts.clear();
    cluster.pass(Duration::from_secs(3));
    assert_eq!(cluster.has(2, "k"), [long("1")]);
    assert!(cluster.idle());
}

#[test]
fn properties_that_cannot_be_kept_are_not_in_force_unless_others_keep_them() {
    let data = folder();
    let mut cluster = three(&data);
    let allows = |cluster: &mut Cluster, node: usize| match cluster.ask(node, Request::GetProps(bucket())) {
        Ok(Response::Props(props)) => (props.allow_mult, props.n_val),
        other => panic!("{other:?}"),
    };
    cluster.holds[0].fails.store(true, Ordering::Relaxed);
    for change in [Prop::AllowMult(true), Prop::NVal(2)] {
        let refused = cluster.ask(0, Request::SetProps(bucket(), vec![change]));
        assert!(matches!(refused, Err(Error::Fenced(_))), "{refused:?}");
        assert_eq!(allows(&mut cluster, 0), (false, 3));
    }
    let set = Request::SetProps(bucket(), vec![Prop::AllowMult(true)]);
    assert_eq!(cluster.ask(1, set), Ok(Response::PropsSet));
    for node in 0..3 {
        assert_eq!(allows(&mut cluster, node), (true, 3), "on {node}");
    }
}

#[test]
fn quorums_count_primaries_and_those_who_stand_in() {
    let data = folder();
    let mut cluster = three(&data);
    cluster.kill(2);
    cluster.pass(Duration::from_secs(2));
    let all = PutRequest { w: Quorum::All, ..put("k", "v") };
    cluster.ask(0, Request::put(all.clone())).unwrap();
    let primaries = PutRequest { pw: Quorum::All, ..all.clone() };
    let unsatisfied = |need, want, got| Err(Error::Unsatisfied { need, want, got });
    assert_eq!(cluster.ask(0, Request::put(primaries)), unsatisfied(Need::Pw, 3, 2));
    let nodes = PutRequest { node_confirms: Quorum::Exactly(3), ..all.clone() };
    assert_eq!(cluster.ask(0, Request::put(nodes)), unsatisfied(Need::NodeConfirms, 3, 2));
    let strict = PutRequest { sloppy_quorum: Some(false), ..all };
    let insufficient = Err(Error::InsufficientVnodes { have: 2, need: 3 });
    assert_eq!(cluster.ask(0, Request::put(strict)), insufficient);
    let read = GetRequest { pr: Quorum::All, ..get("k") };
    assert_eq!(cluster.ask(1, Request::Get(read)), unsatisfied(Need::Pr, 3, 2));
    let read = GetRequest { r: Quorum::All, sloppy_quorum: Some(false), ..get("k") };
    assert_eq!(cluster.ask(1, Request::Get(read)), insufficient);
    assert_eq!(cluster.values(1, "k"), ["v"]);
}

#[test]
fn a_write_that_cannot_be_confirmed_ends_at_its_deadline() {
    let data = folder();
    let mut cluster = three(&data);
    (0..3).for_each(|node| cluster.cut(node));
    let request = PutRequest { timeout: Some(200), ..put("k", "v") };
    let id = cluster.begin(0, Request::put(request));
    assert_eq!(cluster.answers.remove(&id), None);
    cluster.pass(Duration::from_millis(250));
    assert_eq!(cluster.answers.remove(&id), Some(Err(Error::Timeout)));
    cluster.cuts.clear();
    cluster.pass(Duration::from_secs(4));
    assert_eq!(cluster.has(1, "k"), ["v"], "it was written nevertheless, and its hints are home");
    assert!(cluster.idle());
}

#[test]
fn writes_on_both_sides_of_a_cut_are_siblings_everywhere() {
    let data = folder();
    let mut cluster = three(&data);
    let props = Request::SetProps(bucket(), vec![Prop::AllowMult(true)]);
    assert_eq!(cluster.ask(1, props), Ok(Response::PropsSet));
    cluster.put(0, "k", "base").unwrap();
    let context = context_of(&mut cluster, 1, "k");
    cluster.cut(2);
    cluster.pass(Duration::from_secs(2));
    let on = |value: &str| {
        Request::put(PutRequest { context: Some(context.clone()), w: Quorum::One, ..put("k", value) })
    };
    cluster.ask(0, on("left")).unwrap();
    cluster.ask(2, on("right")).unwrap();
    cluster.cuts.clear();
    cluster.pass(Duration::from_secs(4));
    for node in 0..3 {
        assert_eq!(cluster.has(node, "k"), ["left", "right"], "on {node}");
    }
    assert!(cluster.idle());
}

#[test]
fn a_read_repairs_what_it_finds_behind() {
    let data = folder();
    let mut cluster = three(&data);
    cluster.put(0, "k", &long("1")).unwrap();
    // A disk that was lost: neither the key nor hints about it.
    cluster.kill(1);
    std::fs::remove_dir_all(cluster.data.join(NAMES[1])).unwrap();
    cluster.start(1);
    cluster.pass(Duration::from_secs(3));
    assert!(cluster.has(1, "k").is_empty());
    assert_eq!(cluster.values(0, "k"), [long("1")]);
    assert!(cluster.asked.contains(&"repair"), "{:?}", cluster.asked);
    assert_eq!(cluster.has(1, "k"), [long("1")]);
    cluster.values(2, "k");
    assert!(!cluster.asked.contains(&"repair"), "what is equal is left alone");
    assert!(cluster.idle());
}

/// Nobody reads the key: the scrub finds its value damaged, and the others heal it.
#[test]
#[allow(clippy::disallowed_methods, reason = "it damages the store's files behind its back")]
fn what_a_scrub_finds_damaged_is_healed() {
    let data = folder();
    let mut cluster = three(&data);
    cluster.put(0, "k", &long("v")).unwrap();
    // Only what no start would replay is scrubbed: what came before the last clean stop but one.
    for _ in 0..2 {
        cluster.stop(1);
        cluster.start(1);
        cluster.pass(Duration::from_millis(300));
    }
    cluster.stop(1);
    let mut damaged = 0;
    for file in files_below(&cluster.data.join(NAMES[1])) {
        if file.file_name().unwrap() == "SCRUB" {
            // Without this note a pass begins now, and not in a week.
            std::fs::remove_file(file).unwrap();
            continue;
        }
        let mut bytes = std::fs::read(&file).unwrap();
        if let Some(at) = bytes.windows(100).position(|bytes| bytes == [b'v'; 100]) {
            bytes[at + 50] ^= 1;
            std::fs::write(&file, bytes).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1, "the value stands once");
    cluster.start(1);
    for _ in 0..20 {
        cluster.pass(Duration::from_secs(1));
    }
    let counters = cluster.nodes[1].as_ref().unwrap().stats().counters;
    assert_eq!((counters.heals, counters.heals_failed), (1, 0));
    assert_eq!(cluster.has(1, "k"), [long("v")]);
    assert!(cluster.idle());
}

#[test]
fn a_delete_reaches_everybody() {
    let data = folder();
    let mut cluster = three(&data);
    cluster.put(0, "k", "v").unwrap();
    cluster.kill(2);
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.ask(1, Request::Delete(delete("k"))), Ok(Response::Deleted));
    cluster.start(2);
    cluster.pass(Duration::from_secs(3));
    for node in 0..3 {
        assert!(cluster.values(node, "k").is_empty());
        assert!(cluster.has(node, "k").is_empty(), "on {node}");
    }
    assert_eq!(cluster.ask(1, Request::Delete(delete("nothing"))), Ok(Response::Deleted));
    assert!(cluster.idle());
}

#[test]
fn conditions_are_held_against_a_quorum() {
    let data = folder();
    let mut cluster = three(&data);
    cluster.put(0, "k", "1").unwrap();
    let none = PutRequest { if_none_match: true, ..put("k", "2") };
    assert_eq!(cluster.ask(1, Request::put(none.clone())), Err(Error::MatchFound));
    let fresh = PutRequest { key: Some(Bytes::from_static(b"fresh")), ..none };
    assert!(cluster.ask(2, Request::put(fresh)).is_ok());
    let context = context_of(&mut cluster, 2, "k");
    let unmodified = PutRequest { if_not_modified: true, context: Some(context), ..put("k", "3") };
    assert!(cluster.ask(1, Request::put(unmodified.clone())).is_ok());
    assert_eq!(cluster.ask(0, Request::put(unmodified)), Err(Error::Modified));
    assert_eq!(cluster.values(0, "k"), ["3"]);
}

#[test]
fn a_node_outside_the_list_passes_writes_on() {
    let data = folder();
    let mut cluster = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    for key in 0..12 {
        let key = format!("k{key}");
        for node in 0..5 {
            let value = format!("{node}");
            let put = match node {
                0 => put(&key, &value),
                _ => PutRequest { context: Some(context_of(&mut cluster, node, &key)), ..put(&key, &value) },
            };
            cluster.ask(node, Request::put(put)).unwrap();
            assert_eq!(cluster.values((node + 2) % 5, &key), [value]);
        }
    }
    let forwards: u64 = cluster.nodes.iter().flatten().map(|shard| shard.stats().counters.forwards).sum();
    assert!(forwards > 10, "{forwards}");
    assert!(cluster.idle());
}

#[test]
fn a_fallback_keeps_nothing_once_it_is_home() {
    let data = folder();
    let mut cluster = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    cluster.kill(1);
    cluster.pass(Duration::from_secs(2));
    let keys: Vec<String> = (0..12).map(|key| format!("k{key}")).collect();
    for key in &keys {
        cluster.put(0, key, &long("v")).unwrap();
    }
    cluster.start(1);
    cluster.pass(Duration::from_secs(4));
    for key in &keys {
        let copies = (0..5).filter(|&node| !cluster.has(node, key).is_empty()).count();
        assert_eq!(copies, 3, "{key}");
        assert_eq!(cluster.values(4, key), [long("v")]);
    }
    assert!(cluster.idle());
}

#[test]
fn properties_are_known_on_all_nodes_and_by_those_who_were_away() {
    let data = folder();
    let mut cluster = three(&data);
    let allow_mult = |cluster: &mut Cluster, node| match cluster.ask(node, Request::GetProps(bucket())) {
        Ok(Response::Props(props)) => props.allow_mult,
        other => panic!("{other:?}"),
    };
    cluster.kill(2);
    cluster.pass(Duration::from_secs(2));
    let set = Request::SetProps(bucket(), vec![Prop::AllowMult(true)]);
    assert_eq!(cluster.ask(0, set), Ok(Response::PropsSet));
    assert!(allow_mult(&mut cluster, 1));
    cluster.start(2);
    cluster.pass(Duration::from_secs(1));
    assert!(allow_mult(&mut cluster, 2));
    assert_eq!(cluster.ask(2, Request::ResetProps(bucket())), Ok(Response::PropsReset));
    (0..3).for_each(|node| assert!(!allow_mult(&mut cluster, node)));
    cluster.kill(0);
    cluster.start(0);
    assert!(!allow_mult(&mut cluster, 0), "also after a start");
}

/// Answers of one shard, `overload` told from others.
fn refused(shard: &mut Shard) -> Vec<u64> {
    let mut outputs = Vec::new();
    shard.take_outputs(&mut outputs);
    let refused = |output| match output {
        Output::Reply { to, result: Err(Error::Overload), .. } => Some(to.0),
        _ => None,
    };
    outputs.into_iter().filter_map(refused).collect()
}

#[test]
fn a_shard_that_cannot_keep_up_refuses_what_has_waited_for_too_long() {
    let data = folder();
    let mut cluster = three(&data);
    // Writes that are over are no load.
    for key in 0..300 {
        cluster.put(0, &format!("k{key}"), "v").unwrap();
    }
    let clock = Arc::clone(&cluster.clock);
    let shard = cluster.nodes[0].as_mut().unwrap();
    let ask = |shard: &mut Shard, number: u64| {
        shard.request(RequestId(1_000_000 + number), Request::put(put("k", "v")));
    };
    let begun = |shard: &Shard| shard.stats().counters.puts - 300;
    let most = 200;
    (0..most).for_each(|number| ask(shard, number));
    assert_eq!(begun(shard), most, "many at once are no overload");

    clock.0.fetch_add(u64::try_from(PASS_MAX.as_nanos()).unwrap(), Ordering::Relaxed);
    (most..most + 100).for_each(|number| ask(shard, number));
    assert_eq!((begun(shard), shard.has_waiting()), (most, true), "the pass takes nothing more");
    shard.forget(RequestId(1_000_000 + most + 1));

    // From now on a turn has time to begin but a few, and then there is room for no more.
    clock.1.store(u64::try_from(PASS_MAX.as_nanos()).unwrap() / 16, Ordering::Relaxed);
    shard.turn();
    assert!((1..=16).contains(&(begun(shard) - most)), "a turn begins what it has time for");
    let mut overloaded = refused(shard);
    while shard.has_waiting() {
        shard.turn();
        overloaded.extend(refused(shard));
    }
    clock.1.store(0, Ordering::Relaxed);
    assert_eq!(
        begun(shard) - most + overloaded.len() as u64,
        99,
        "each is begun or refused, but for the one that is gone"
    );
    assert_eq!(shard.stats().counters.refused, overloaded.len() as u64);
    let first = 1_000_000 + most + (begun(shard) - most) + 1;
    assert!(overloaded.iter().copied().eq(first..1_000_000 + most + 100), "those that came last, in order");
}

#[test]
fn what_comes_while_others_have_waited_is_refused_at_once() {
    let data = folder();
    let mut cluster = three(&data);
    let clock = Arc::clone(&cluster.clock);
    let shard = cluster.nodes[0].as_mut().unwrap();
    let ask = |shard: &mut Shard, number: u64| {
        shard.request(RequestId(1_000_000 + number), Request::put(put("k", "v")));
    };
    (0..200).for_each(|number| ask(shard, number));
    clock.0.fetch_add(u64::try_from(PASS_MAX.as_nanos()).unwrap(), Ordering::Relaxed);
    (200..210).for_each(|number| ask(shard, number));
    assert!(shard.has_waiting() && refused(shard).is_empty());
    clock.0.fetch_add(u64::try_from(WAIT_MAX.as_nanos()).unwrap(), Ordering::Relaxed);
    ask(shard, 210);
    assert_eq!(refused(shard), [1_000_210], "without a turn");
    shard.turn();
    assert!(!shard.has_waiting() && refused(shard).is_empty(), "those that waited are begun");
    assert_eq!(shard.stats().counters.puts, 210);
}

#[test]
fn what_would_wait_for_too_long_at_the_pace_of_the_last_passes_is_refused_at_once() {
    let data = folder();
    let mut cluster = three(&data);
    let clock = Arc::clone(&cluster.clock);
    let pass = |by: Duration| {
        clock.0.fetch_add(u64::try_from(by.as_nanos()).unwrap(), Ordering::Relaxed);
    };
    let shard = cluster.nodes[0].as_mut().unwrap();
    let mut number = 0;
    let mut ask = |shard: &mut Shard, count: u64| {
        for _ in 0..count {
            number += 1;
            shard.request(RequestId(1_000_000 + number), Request::put(put("k", "v")));
        }
    };
    // Of each pass, the first hundred are begun and ten wait, which the turn begins.
    for _ in 0..3 {
        ask(shard, 100);
        pass(PASS_MAX);
        ask(shard, 10);
        assert!(shard.has_waiting() && refused(shard).is_empty());
        shard.turn();
        assert!(!shard.has_waiting());
    }
    // So 110 are begun in the time that a pass may take.
    ask(shard, 1);
    pass(PASS_MAX);
    let fit = WAIT_MAX.as_nanos() * 110 / PASS_MAX.as_nanos();
    ask(shard, 2 * u64::try_from(fit).unwrap());
    let refused_at_once = refused(shard).len();
    assert!(refused_at_once.abs_diff(usize::try_from(fit).unwrap()) <= 40, "{refused_at_once} of {fit}");
    // A pass in which nothing waits ends the backlog.
    shard.turn();
    shard.turn();
    ask(shard, 1);
    shard.turn();
    ask(shard, 1);
    pass(PASS_MAX);
    ask(shard, 2 * u64::try_from(fit).unwrap());
    assert!(shard.has_waiting() && refused(shard).is_empty(), "its pace is no longer known");
}

#[test]
fn passes_that_take_long_leave_room_for_fewer() {
    const BEGUN: u64 = 400;
    let data = folder();
    let mut cluster = three(&data);
    let clock = Arc::clone(&cluster.clock);
    let shard = cluster.nodes[0].as_mut().unwrap();
    let ask = |shard: &mut Shard, number: u64| {
        shard.request(RequestId(1_000_000 + number), Request::put(put("k", "v")));
    };
    (0..BEGUN).for_each(|number| ask(shard, number));
    clock.0.fetch_add(u64::try_from(2 * PASS_MAX.as_nanos()).unwrap(), Ordering::Relaxed);
    shard.turn();
    assert!(!shard.has_waiting());
    // What is under way is more than there is room for now, so the next waits for an answer, and no turn helps.
    ask(shard, BEGUN);
    shard.turn();
    assert!(shard.has_waiting() && !shard.can_begin());
    assert_eq!(shard.stats().counters.puts, BEGUN);
    cluster.run();
    assert_eq!(cluster.answers.len() as u64, BEGUN + 1, "which the others' answers are");
    assert!(cluster.idle());
}

#[test]
fn few_requests_are_never_refused_however_long_they_wait() {
    let data = folder();
    let mut cluster = three(&data);
    let clock = Arc::clone(&cluster.clock);
    let shard = cluster.nodes[0].as_mut().unwrap();
    let ask = |shard: &mut Shard, number: u64| {
        shard.request(RequestId(1_000_000 + number), Request::put(put("k", "v")));
    };
    ask(shard, 0);
    clock.0.fetch_add(u64::try_from(PASS_MAX.as_nanos()).unwrap(), Ordering::Relaxed);
    (1..OVERLOAD_WORK_MIN as u64).for_each(|number| ask(shard, number));
    assert!(shard.has_waiting());
    clock.0.fetch_add(u64::try_from(10 * STAY_MAX.as_nanos()).unwrap(), Ordering::Relaxed);
    shard.turn();
    assert!(!shard.has_waiting() && refused(shard).is_empty());
    assert_eq!(shard.stats().counters.puts, OVERLOAD_WORK_MIN as u64);
}
