//! Nodes whose wall clocks differ: of two writes the later one is shown, though it got an earlier time from its clock.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::cluster::*;
use bytes::Bytes;
use kv::{Bucket, DeleteRequest, GetRequest, NodeId, Prop, PutRequest, Request, Response, TypeChange};
use object::Metadata;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MINUTE: u64 = 60_000_000;
const HOUR: u64 = 60 * MINUTE;

/// Between two requests of a client: too short for a hint.
const MOMENT: Duration = Duration::from_millis(100);

/// How the time of a version decides in a bucket.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Default,
    LastWriteWins,
    WriteOnce,
}

const KINDS: [Kind; 3] = [Kind::Default, Kind::LastWriteWins, Kind::WriteOnce];

impl Kind {
    fn bucket(self) -> Bucket {
        match self {
            Kind::Default | Kind::LastWriteWins => bucket(),
            Kind::WriteOnce => Bucket::typed(Some(Bytes::from_static(b"once")), Bytes::from_static(b"b")),
        }
    }

    fn put(self, key: &str, value: &str) -> Request {
        let (key, value) = (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value.as_bytes()));
        Request::put(PutRequest::new(self.bucket(), Some(key), Metadata::default(), value))
    }

    fn get(self, key: &str) -> GetRequest {
        GetRequest::new(self.bucket(), Bytes::copy_from_slice(key.as_bytes()))
    }

    fn delete(self, key: &str) -> Request {
        Request::Delete(DeleteRequest::new(self.bucket(), Bytes::copy_from_slice(key.as_bytes())))
    }
}

/// Three nodes, of which the first one's clock is ahead by so many microseconds.
fn ahead_by(data: &tempfile::TempDir, micros: u64, kind: Kind) -> Cluster {
    let mut cluster = three(data);
    match kind {
        Kind::Default => {}
        Kind::LastWriteWins => {
            let set = Request::SetProps(bucket(), vec![Prop::LastWriteWins(true)]);
            assert_eq!(cluster.ask(1, set), Ok(Response::PropsSet));
        }
        Kind::WriteOnce => {
            for change in [TypeChange::Create(vec![Prop::WriteOnce(true)]), TypeChange::Activate] {
                let change = Request::ChangeType(Bytes::from_static(b"once"), change);
                assert_eq!(cluster.ask(1, change), Ok(Response::PropsSet));
            }
        }
    }
    // Beyond the time in which clocks of processes that have just begun are doubtful.
    cluster.clock.0.fetch_add(HOUR * 1000, Ordering::Relaxed);
    cluster.pass(Duration::from_secs(2));
    cluster.ahead[0].store(micros, Ordering::Relaxed);
    cluster
}

fn assert_shown(cluster: &mut Cluster, kind: Kind, key: &str, expected: &[&str]) {
    for node in 0..cluster.nodes.len() {
        let shown = values(cluster.ask(node, Request::Get(kind.get(key))));
        assert_eq!(shown, expected, "{key} of {kind:?} on {node}");
    }
}

/// Sends a write by the first node that the second one does not get, nor a hint of it for now.
fn write_beside(cluster: &mut Cluster, request: Request) {
    cluster.cuts.insert((0, 1));
    assert!(cluster.ask(0, request).is_ok());
    cluster.cuts.clear();
    cluster.pass(MOMENT);
}

/// The time of a version, as a node shows it.
fn time_of(cluster: &mut Cluster, node: usize, key: &str) -> u64 {
    let Ok(Response::Found(found)) = cluster.ask(node, Request::Get(get(key))) else { panic!("no {key}") };
    object::HeadView::parse(&found.head).unwrap().newest_time()
}

#[test]
fn a_later_write_is_shown_however_far_ahead_a_clock_is() {
    for kind in KINDS {
        for ahead in [HOUR, 400 * 24 * HOUR] {
            let data = folder();
            let mut cluster = ahead_by(&data, ahead, kind);
            assert!(cluster.ask(0, kind.put("k", "first")).is_ok());
            assert!(cluster.ask(1, kind.put("k", "second")).is_ok());
            assert_shown(&mut cluster, kind, "k", &["second"]);
            assert!(cluster.ask(0, kind.put("k", "third")).is_ok());
            // Without the memory of the clock that had seen it.
            cluster.kill(2);
            cluster.start(2);
            cluster.pass(Duration::from_secs(2));
            assert!(cluster.ask(2, kind.put("k", "fourth")).is_ok());
            assert_shown(&mut cluster, kind, "k", &["fourth"]);
            // Of what it found, the clocks of the others took nothing.
            let stats = cluster.nodes[1].as_ref().unwrap().stats();
            assert!(stats.times_ahead > 0);
            let now = base::Clock::wall(&*cluster.clock).0;
            assert!(cluster.ask(1, kind.put("other", "now")).is_ok());
            let Ok(Response::Found(found)) = cluster.ask(1, Request::Get(kind.get("other"))) else {
                panic!()
            };
            let time = object::HeadView::parse(&found.head).unwrap().newest_time();
            assert!((now..now + HOUR).contains(&time), "{kind:?}: {time} of {now}");
        }
    }
}

#[test]
fn the_end_of_time_is_no_end_of_writes() {
    for ahead in [u64::MAX, i64::MAX as u64, i64::MAX as u64 - 2 * HOUR] {
        let data = folder();
        let mut cluster = ahead_by(&data, ahead, Kind::Default);
        for (at, value) in ["first", "second", "third", "fourth"].into_iter().enumerate() {
            assert!(cluster.ask(at % 2, Kind::Default.put("k", value)).is_ok());
            assert_shown(&mut cluster, Kind::Default, "k", &[value]);
        }
        assert!(cluster.ask(1, Kind::Default.delete("k")).is_ok());
        assert_shown(&mut cluster, Kind::Default, "k", &[]);
        assert!(cluster.ask(2, Kind::Default.put("k", "again")).is_ok());
        assert_shown(&mut cluster, Kind::Default, "k", &["again"]);
    }
}

#[test]
fn a_coordinator_that_lacks_the_earlier_version_has_seen_its_time() {
    for kind in KINDS {
        let data = folder();
        let mut cluster = ahead_by(&data, 9 * MINUTE, kind);
        assert!(cluster.ask(0, kind.put("seen", "v")).is_ok());
        cluster.pass(MOMENT);
        write_beside(&mut cluster, kind.put("k", "first"));
        assert!(cluster.ask(1, kind.put("k", "second")).is_ok());
        assert_shown(&mut cluster, kind, "k", &["second"]);
        cluster.pass(Duration::from_secs(3));
        assert_shown(&mut cluster, kind, "k", &["second"]);
        // A tombstone is no different.
        assert!(cluster.ask(0, kind.put("gone", "v")).is_ok());
        write_beside(&mut cluster, kind.delete("gone"));
        assert!(cluster.ask(1, kind.put("gone", "again")).is_ok());
        cluster.pass(Duration::from_secs(3));
        assert_shown(&mut cluster, kind, "gone", &["again"]);
        assert_eq!(cluster.nodes[1].as_ref().unwrap().stats().times_ahead, 0, "{kind:?}");
    }
}

#[test]
fn times_are_seen_on_every_way_that_versions_come() {
    type Way = fn(&mut Cluster);
    let hint: Way = |cluster| {
        cluster.kill(1);
        cluster.pass(Duration::from_secs(2));
        cluster.put(0, "seen", "v").unwrap();
        cluster.start(1);
        cluster.pass(Duration::from_secs(3));
    };
    let repair: Way = |cluster| {
        write_beside(cluster, Kind::Default.put("seen", "v"));
        assert_eq!(cluster.values(2, "seen"), ["v"]);
    };
    let read: Way = |cluster| {
        write_beside(cluster, Kind::Default.put("seen", "v"));
        assert_eq!(cluster.values(1, "seen"), ["v"]);
    };
    for (name, way) in [("hint", hint), ("repair", repair), ("read", read)] {
        let data = folder();
        let mut cluster = ahead_by(&data, 9 * MINUTE, Kind::Default);
        way(&mut cluster);
        cluster.put(1, "k", "v").unwrap();
        let (seen, written) = (time_of(&mut cluster, 2, "seen"), time_of(&mut cluster, 2, "k"));
        assert!(written > seen, "{name}: {written} after {seen}");
    }
}

#[test]
fn a_clock_that_goes_back_hides_nothing() {
    for kind in KINDS {
        let data = folder();
        let mut cluster = ahead_by(&data, HOUR, kind);
        cluster.ahead.iter().for_each(|ahead| ahead.store(HOUR, Ordering::Relaxed));
        assert!(cluster.ask(0, kind.put("k", "first")).is_ok());
        cluster.ahead.iter().for_each(|ahead| ahead.store(0, Ordering::Relaxed));
        cluster.pass(MOMENT);
        write_beside(&mut cluster, kind.put("k", "second"));
        assert!(cluster.ask(1, kind.put("k", "third")).is_ok());
        cluster.pass(Duration::from_secs(3));
        assert_shown(&mut cluster, kind, "k", &["third"]);
    }
}

#[test]
fn siblings_stay_as_they_are() {
    let data = folder();
    let mut cluster = ahead_by(&data, HOUR, Kind::Default);
    let set = Request::SetProps(bucket(), vec![Prop::AllowMult(true)]);
    assert_eq!(cluster.ask(1, set), Ok(Response::PropsSet));
    cluster.put(0, "k", "first").unwrap();
    cluster.put(1, "k", "second").unwrap();
    assert_shown(&mut cluster, Kind::Default, "k", &["first", "second"]);
    let context = context_of(&mut cluster, 2, "k");
    let resolved = PutRequest { context: Some(context), ..put("k", "both") };
    cluster.ask(2, Request::put(resolved)).unwrap();
    assert_shown(&mut cluster, Kind::Default, "k", &["both"]);
}

#[test]
fn a_later_change_of_properties_holds() {
    let data = folder();
    let mut cluster = ahead_by(&data, 9 * MINUTE, Kind::Default);
    let set = |name: &'static str, n| {
        Request::SetProps(Bucket::untyped(Bytes::from_static(name.as_bytes())), vec![Prop::NVal(n)])
    };
    assert_eq!(cluster.ask(0, set("other", 2)), Ok(Response::PropsSet));
    cluster.cut(1);
    cluster.pass(Duration::from_secs(3));
    assert_eq!(cluster.ask(0, set("b", 1)), Ok(Response::PropsSet));
    cluster.pass(MOMENT);
    assert_eq!(cluster.ask(1, set("b", 2)), Ok(Response::PropsSet));
    cluster.cuts.clear();
    cluster.pass(Duration::from_secs(5));
    for node in 0..3 {
        let Ok(Response::Props(props)) = cluster.ask(node, Request::GetProps(bucket())) else { panic!() };
        assert_eq!(props.n_val, 2, "on {node}");
    }
}

#[test]
fn a_clock_far_ahead_is_named_now_and_then() {
    let data = folder();
    let mut cluster = ahead_by(&data, HOUR, Kind::Default);
    for key in 0..20 {
        cluster.put(0, &format!("k{key}"), "v").unwrap();
    }
    let node = cluster.nodes[1].as_mut().unwrap();
    let warning = node.control().take_time_ahead().unwrap();
    assert_eq!(warning.writer, Some(NodeId(0)));
    assert!((3599..=3600).contains(&warning.seconds), "{warning:?}");
    assert_eq!((node.control().take_time_ahead(), node.stats().times_ahead), (None, 20));
    cluster.put(0, "k", "v").unwrap();
    assert_eq!(cluster.nodes[1].as_mut().unwrap().control().take_time_ahead(), None);
    cluster.pass(Duration::from_secs(61));
    assert!(cluster.nodes[1].as_mut().unwrap().control().take_time_ahead().is_some());
}
