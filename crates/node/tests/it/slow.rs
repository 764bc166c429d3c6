//! The log of slow requests: lines while a request waits and at its end, with the nodes that it waits for.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::cluster::*;
use kv::{Error, GetRequest, PutRequest, Quorum, Request, Response};
use node::SlowLine;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const THRESHOLD: Duration = Duration::from_millis(100);

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Lets time pass without a tick, if the shard of `node` wakes by then.
fn wait(cluster: &mut Cluster, node: usize, time: Duration) {
    let wakes = cluster.nodes[node].as_ref().unwrap().next_deadline();
    let now = base::Clock::now(&*cluster.clock);
    assert!(wakes.is_some_and(|at| at.since(now) <= time), "the shard wakes within {time:?}");
    cluster.clock.0.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
    cluster.run();
}

fn from_all(key: &str, value: &str) -> Request {
    Request::put(PutRequest { w: Quorum::All, ..put(key, value) })
}

/// Lines since the last call, all of the first node.
fn lines(cluster: &mut Cluster) -> Vec<Arc<SlowLine>> {
    let lines = std::mem::take(&mut cluster.slow_lines);
    lines
        .into_iter()
        .map(|(node, line)| (node == 0).then_some(line).expect("others wait for nobody"))
        .collect()
}

/// Lines of a node since the last call.
fn lines_of(cluster: &mut Cluster, node: usize) -> Vec<Arc<SlowLine>> {
    let lines = std::mem::take(&mut cluster.slow_lines);
    lines.into_iter().filter(|(from, _)| *from == node).map(|(_, line)| line).collect()
}

/// What a line says of the other nodes, on its own.
fn waits_of(line: &SlowLine) -> Vec<(String, Duration, bool)> {
    waits(line).into_iter().map(|(node, time, waits)| (node.to_owned(), time, waits)).collect()
}

/// What a line says of the other nodes.
fn waits(line: &SlowLine) -> Vec<(&str, Duration, bool)> {
    let mut waits: Vec<_> =
        line.replicas.iter().map(|replica| (&*replica.node, replica.time, replica.waits)).collect();
    waits.sort_unstable();
    waits
}

/// A write to all three nodes, of which the last is silent for 300 ms. Returns whether a line named it before the
/// answer.
fn names_the_silent_node() -> bool {
    let data = folder();
    let mut cluster = three(&data);
    cluster.slow.set_threshold(Some(THRESHOLD));
    assert_eq!(cluster.ask(0, from_all("k", "fast")), Ok(put_ok()));
    assert_eq!(lines(&mut cluster), []);

    cluster.pause(2);
    let id = cluster.begin(0, from_all("k", "slow"));
    wait(&mut cluster, 0, THRESHOLD);
    let first = lines(&mut cluster);
    assert_eq!(cluster.answers.get(&id), None);
    wait_on(&mut cluster, millis(200));
    assert_eq!(lines(&mut cluster), [], "one line while it waits");
    cluster.resume();
    assert_eq!(cluster.answers.remove(&id), Some(Ok(put_ok())));

    let last = lines(&mut cluster);
    assert_eq!(last.len(), 1, "and one at its end");
    assert_eq!((last[0].waits, last[0].time, last[0].error.clone()), (false, millis(300), None));
    assert_eq!(waits(&last[0]), [("b@h", Duration::ZERO, false), ("c@h", millis(300), false)]);
    for line in first.iter().chain(&last) {
        let sum: Duration = line.stages.iter().sum();
        assert!(sum.abs_diff(line.time) * 20 <= line.time, "stages sum to the whole: {line:?}");
        assert_eq!((line.op.name(), &*line.bucket_type, &*line.bucket), ("put", "default", "b"));
        assert_eq!((line.siblings, line.bytes), (Some(1), 4));
    }
    assert_eq!(cluster.nodes[0].as_ref().unwrap().stats().counters.slow, 1);
    match &first[..] {
        [] => false,
        [first] => {
            assert_eq!((first.waits, first.time), (true, THRESHOLD));
            assert_eq!(waits(first), [("b@h", Duration::ZERO, false), ("c@h", THRESHOLD, true)]);
            true
        }
        more => panic!("{more:?}"),
    }
}

fn put_ok() -> Response {
    Response::Put { object: None, key: None }
}

fn wait_on(cluster: &mut Cluster, time: Duration) {
    cluster.clock.0.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
    cluster.run();
}

#[test]
fn the_first_line_names_the_silent_node_before_the_answer() {
    assert!(names_the_silent_node());
}

#[cfg(feature = "planted")]
#[test]
fn a_planted_slow_line_only_at_the_end_is_seen() {
    base::planted::plant(Some(base::planted::Planted::SlowLineAtTheEnd));
    assert!(!names_the_silent_node());
    base::planted::plant(None);
}

#[test]
fn a_write_that_was_passed_on_names_the_node_that_hangs() {
    let data = folder();
    let mut cluster = Cluster::new(data.path(), 5, kv::ReadStrategy::LocalValue);
    cluster.slow.set_threshold(Some(THRESHOLD));
    let keys = (0..50).map(|number| format!("k{number}"));
    let key = keys.into_iter().find(|key| {
        cluster.put(0, key, "v").unwrap();
        cluster.passed_on.is_some()
    });
    let (key, (to, _)) = (key.unwrap(), cluster.passed_on.unwrap());
    assert_eq!(lines(&mut cluster), []);

    cluster.pause(to);
    let id = cluster.begin(0, Request::put(put(&key, "slow")));
    wait(&mut cluster, 0, THRESHOLD);
    assert_eq!(cluster.answers.get(&id), None);
    wait_on(&mut cluster, millis(50));
    cluster.resume();
    assert_eq!(cluster.answers.remove(&id), Some(Ok(put_ok())));
    let told: Vec<_> = lines_of(&mut cluster, 0).iter().map(|line| (line.waits, waits_of(line))).collect();
    let hangs = |ms, waits| vec![(NAMES[to].to_owned(), millis(ms), waits)];
    assert_eq!(told, [(true, hangs(100, true)), (false, hangs(150, false))]);
    let count = |node: usize| cluster.nodes[node].as_ref().unwrap().stats().counters.slow;
    assert_eq!(count(0), 0, "the node that coordinates it counts");
}

#[test]
fn a_slow_error_is_told_and_fast_requests_are_not() {
    let data = folder();
    let mut cluster = three(&data);
    cluster.slow.set_threshold(Some(THRESHOLD));
    cluster.put(0, "k", "v").unwrap();
    cluster.pause(1);
    let timeout = Some(150);
    let id = cluster.begin(0, Request::Get(GetRequest { r: Quorum::All, timeout, ..get("k") }));
    wait(&mut cluster, 0, millis(150));
    assert_eq!(cluster.answers.remove(&id), Some(Err(Error::Timeout)));
    let told = lines(&mut cluster);
    assert_eq!(told.iter().map(|line| line.waits).collect::<Vec<_>>(), [false]);
    assert_eq!(told[0].error, Some(Error::Timeout.to_string()));
    assert_eq!(waits(&told[0])[0], ("b@h", millis(150), true));
}

#[test]
fn a_log_that_is_off_has_no_lines_until_it_is_on() {
    let data = folder();
    let mut cluster = three(&data);
    cluster.pause(2);
    let id = cluster.begin(0, from_all("k", "v"));
    wait_on(&mut cluster, millis(300));
    assert_eq!(lines(&mut cluster), []);
    cluster.slow.set_threshold(Some(THRESHOLD));
    cluster.resume();
    assert_eq!(cluster.answers.remove(&id), Some(Ok(put_ok())));
    let told = lines(&mut cluster);
    assert_eq!(told.iter().map(|line| (line.waits, line.time)).collect::<Vec<_>>(), [(false, millis(300))]);
}

#[test]
fn many_slow_requests_are_a_few_lines_and_a_count() {
    let data = folder();
    let mut cluster = three(&data);
    cluster.slow.set_threshold(Some(THRESHOLD));
    cluster.pause(2);
    let ids: Vec<_> = (0..50).map(|number| cluster.begin(0, from_all(&format!("k{number}"), "v"))).collect();
    wait(&mut cluster, 0, THRESHOLD);
    assert_eq!(lines(&mut cluster).len(), node::shard::LINES_PER_SECOND);
    wait_on(&mut cluster, millis(200));
    cluster.resume();
    assert!(ids.iter().all(|id| cluster.answers.remove(id) == Some(Ok(put_ok()))));
    assert_eq!(lines(&mut cluster), []);
    assert_eq!(cluster.slow.read().1, 50, "each end was left out");
    assert_eq!(cluster.nodes[0].as_ref().unwrap().stats().counters.slow, 50);
}

/// A listing that takes its pages from all nodes.
fn list() -> Request {
    Request::ListKeys(kv::ListKeysRequest { bucket: bucket(), timeout: None })
}

#[test]
fn a_listing_names_the_node_whose_page_is_late() {
    let data = folder();
    let mut cluster = Cluster::new(data.path(), 5, kv::ReadStrategy::LocalValue);
    cluster.fill(&bucket(), (0..200).map(|number| format!("k{number}")));
    cluster.slow.set_threshold(Some(THRESHOLD));
    cluster.ask(0, list()).unwrap();
    assert_eq!(lines(&mut cluster), [], "a fast listing has no line");

    let asked = |cluster: &mut Cluster, node: usize| {
        cluster.pause(node);
        let id = cluster.begin(0, list());
        (!cluster.answers.contains_key(&id)).then_some(id)
    };
    let (late, id) = (1..5)
        .find_map(|node| {
            asked(&mut cluster, node).map(|id| (node, id)).or_else(|| (cluster.resume(), None).1)
        })
        .expect("the listing covers another node");
    wait(&mut cluster, 0, THRESHOLD);
    let first = lines_of(&mut cluster, 0);
    wait_on(&mut cluster, millis(50));
    cluster.resume();
    assert!(cluster.answers.remove(&id).unwrap().is_ok());
    let last = lines_of(&mut cluster, 0);

    let told: Vec<_> = first.iter().chain(&last).map(|line| (line.waits, line.time)).collect();
    assert_eq!(told, [(true, millis(100)), (false, millis(150))]);
    assert_eq!(waits_of(&first[0])[0], (NAMES[late].to_owned(), millis(100), true));
    assert!(waits_of(&last[0]).contains(&(NAMES[late].to_owned(), millis(150), false)));
    for line in first.iter().chain(&last) {
        let sum: Duration = line.stages.iter().sum();
        assert!(sum.abs_diff(line.time) * 20 <= line.time, "stages sum to the whole: {line:?}");
        assert_eq!((line.op.name(), &*line.bucket, line.key.as_deref()), ("list", "b", None));
    }
    assert_eq!(cluster.nodes[0].as_ref().unwrap().stats().counters.slow, 1);
}

#[test]
fn a_client_that_takes_its_time_makes_no_listing_slow() {
    let data = folder();
    let mut cluster = three(&data);
    cluster.fill(&bucket(), (0..5_000).map(|number| format!("{number:0>200}")));
    cluster.slow.set_threshold(Some(THRESHOLD));
    cluster.reads = false;
    let id = cluster.begin(0, list());
    let mut parts = 0;
    while let Some((node, taken)) = cluster.taken.pop() {
        wait_on(&mut cluster, millis(500));
        cluster.nodes[node].as_mut().unwrap().proceed(taken);
        cluster.run();
        parts += 1;
    }
    assert!(parts > 1 && cluster.answers.remove(&id).unwrap().is_ok());
    assert_eq!(lines(&mut cluster), []);
}
