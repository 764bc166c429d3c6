//! Bucket types in a cluster: created, activated and changed on any node, known on all; and keys written once.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::cluster::*;
use base::Clock;
use bytes::Bytes;
use kv::NodeId;
use kv::{
    Bucket, DeleteRequest, Error, GetRequest, Prop, PutRequest, Quorum, ReadStrategy, Request, Response,
    TypeChange, TypeStatus,
};
use membership::state::{Founding, StoreBirths};
use node::{Agreement, AskId, Load, PeerMessage};
use object::Metadata;
use ring::Birth;
use std::sync::Arc;
use std::time::Duration;

const T: Bytes = Bytes::from_static(b"t");

fn change(cluster: &mut Cluster, node: usize, change: TypeChange) -> Result<Response, Error> {
    cluster.ask(node, Request::ChangeType(T, change))
}

fn status(cluster: &mut Cluster, node: usize) -> Option<TypeStatus> {
    let Ok(Response::Types(types)) = cluster.ask(node, Request::ListTypes) else { panic!("no list") };
    assert_eq!(types[0].0, "default");
    types.into_iter().find(|(name, ..)| *name == T).map(|(_, status, _)| status)
}

fn props(cluster: &mut Cluster, node: usize) -> Result<(u32, bool, bool), Error> {
    match cluster.ask(node, Request::GetTypeProps(T))? {
        Response::Props(props) => Ok((props.n_val, props.allow_mult, props.write_once)),
        other => panic!("{other:?}"),
    }
}

fn typed(key: &str) -> (Bucket, Bytes) {
    (Bucket::typed(Some(T), Bytes::from_static(b"b")), Bytes::copy_from_slice(key.as_bytes()))
}

fn put_typed(key: &str, value: &str) -> PutRequest {
    let (bucket, key) = typed(key);
    PutRequest::new(bucket, Some(key), Metadata::default(), Bytes::copy_from_slice(value.as_bytes()))
}

fn get_typed(cluster: &mut Cluster, node: usize, key: &str) -> Vec<String> {
    let (bucket, key) = typed(key);
    values(cluster.ask(node, Request::Get(GetRequest::new(bucket, key))))
}

fn activated(cluster: &mut Cluster, props: Vec<Prop>) {
    assert_eq!(change(cluster, 0, TypeChange::Create(props)), Ok(Response::PropsSet));
    assert_eq!(change(cluster, 1, TypeChange::Activate), Ok(Response::PropsSet));
}

#[test]
fn a_consistent_type_is_activated_when_its_groups_are_founded() {
    let data = folder();
    let mut cluster = three(&data);
    let create = TypeChange::Create(vec![Prop::Consistent(true), Prop::NVal(3)]);
    assert_eq!(change(&mut cluster, 0, create), Ok(Response::PropsSet));
    let wanted = |cluster: &Cluster| cluster.nodes[1].as_ref().unwrap().status().inactive_consistent(&T);
    assert_eq!(wanted(&cluster), Some(3));
    let not_ready = Err(Error::TypeStatus(TypeStatus::Created));
    assert_eq!(change(&mut cluster, 1, TypeChange::Activate), not_ready);

    let founding = Founding {
        number: 1,
        epoch: 0,
        owners: [NodeId(0); 16].into(),
        stores: Arc::new(
            [(NodeId(0), StoreBirths { ring_bits: 4, births: [Birth::of(1).unwrap()].into() })].into(),
        ),
    };
    let found = |cluster: &mut Cluster, n_val: u8| {
        let foundings = Arc::new([(n_val, founding.clone())].into());
        let agreement = Arc::new(Agreement { foundings, ..Agreement::default() });
        cluster.nodes[1].as_mut().unwrap().agree(agreement);
    };
    found(&mut cluster, 5);
    assert_eq!(change(&mut cluster, 1, TypeChange::Activate), not_ready, "of another number of replicas");
    found(&mut cluster, 3);
    assert_eq!(change(&mut cluster, 1, TypeChange::Activate), Ok(Response::PropsSet));
    assert_eq!(wanted(&cluster), None, "it is active");
    let updated = TypeChange::Update(vec![Prop::AllowMult(false)]);
    assert_eq!(change(&mut cluster, 0, updated), Ok(Response::PropsSet), "no founding is needed any more");
}

#[test]
fn a_type_is_activated_when_all_nodes_can_be_reached() {
    let data = folder();
    let mut cluster = three(&data);
    assert_eq!(change(&mut cluster, 1, TypeChange::Activate), Err(Error::NoType(T)));
    cluster.kill(2);
    cluster.pass(Duration::from_secs(2));
    let create = TypeChange::Create(vec![Prop::NVal(2)]);
    assert_eq!(change(&mut cluster, 0, create), Ok(Response::PropsSet));
    assert_eq!(status(&mut cluster, 1), Some(TypeStatus::Created));
    let not_ready = Err(Error::TypeStatus(TypeStatus::Created));
    assert_eq!(change(&mut cluster, 1, TypeChange::Activate), not_ready);
    assert_eq!(cluster.ask(0, Request::put(put_typed("k", "v"))), Err(Error::NoType(T)));
    cluster.start(2);
    cluster.pass(Duration::from_secs(1));
    assert_eq!(status(&mut cluster, 2), Some(TypeStatus::Ready), "it was told");
    assert_eq!(props(&mut cluster, 2), Err(Error::NoType(T)), "not active");
    assert_eq!(change(&mut cluster, 2, TypeChange::Activate), Ok(Response::PropsSet));
    for node in 0..3 {
        assert_eq!(status(&mut cluster, node), Some(TypeStatus::Active));
        assert_eq!(props(&mut cluster, node), Ok((2, true, false)));
        cluster.ask(node, Request::put(put_typed(&format!("k{node}"), "v"))).unwrap();
        assert_eq!(get_typed(&mut cluster, 2 - node, &format!("k{node}")), ["v"]);
    }
    let again = change(&mut cluster, 0, TypeChange::Create(Vec::new()));
    assert_eq!(again, Err(Error::TypeStatus(TypeStatus::Active)));
    assert!(cluster.idle());
}

#[test]
fn a_type_is_there_after_a_start_and_changes_reach_who_was_away() {
    let data = folder();
    let mut cluster = three(&data);
    activated(&mut cluster, Vec::new());
    cluster.kill(1);
    cluster.pass(Duration::from_secs(2));
    let update = TypeChange::Update(vec![Prop::AllowMult(false)]);
    assert_eq!(change(&mut cluster, 0, update), Ok(Response::PropsSet));
    cluster.start(1);
    cluster.pass(Duration::from_secs(1));
    (0..3).for_each(|node| assert_eq!(props(&mut cluster, node), Ok((3, false, false))));
    for node in 0..3 {
        cluster.kill(node);
    }
    (0..3).for_each(|node| cluster.start(node));
    cluster.pass(Duration::from_secs(1));
    (0..3).for_each(|node| assert_eq!(props(&mut cluster, node), Ok((3, false, false))));
}

#[test]
fn a_node_that_has_forgotten_a_type_is_no_reason_to_say_that_there_is_none() {
    let data = folder();
    let mut cluster = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    activated(&mut cluster, Vec::new());
    let mut passed_on = 0;
    for at in 0..20 {
        cluster.cut(0);
        let id = cluster.begin(0, Request::put(put_typed(&format!("k{at}"), "v")));
        if let Some((to, ask)) = cluster.passed_on.take() {
            passed_on += 1;
            let result = Box::new(Err(Error::NoType(T)));
            cluster.deliver(to, 0, &PeerMessage::Forwarded { id: ask, result });
            cluster.run();
            assert_eq!(cluster.answers.remove(&id), Some(Err(Error::Unreachable)));
        }
        cluster.cuts.clear();
        cluster.pass(Duration::from_secs(4));
    }
    assert!(passed_on > 0);
}

#[test]
fn what_is_written_once_takes_one_round_from_any_node() {
    let data = folder();
    let mut cluster = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    activated(&mut cluster, vec![Prop::WriteOnce(true)]);
    for at in 0..20 {
        let key = format!("k{at}");
        cluster.ask(at % 5, Request::put(put_typed(&key, &long("v")))).unwrap();
        let mut asked = cluster.asked.clone();
        asked.retain(|kind| !kind.is_empty());
        assert!((2..=3).contains(&asked.len()) && asked.iter().all(|kind| *kind == "write"), "{asked:?}");
        (0..5).for_each(|node| assert_eq!(get_typed(&mut cluster, node, &key), [long("v")]));
    }
    assert!(cluster.idle());
}

#[test]
fn writes_of_one_key_at_once_are_settled_alike_everywhere() {
    let data = folder();
    let mut cluster = three(&data);
    activated(&mut cluster, vec![Prop::WriteOnce(true)]);
    for at in 0..10 {
        let key = format!("k{at}");
        for node in 0..3 {
            let others = (0..3).filter(|&other| other != node);
            let cut: Vec<_> = others.flat_map(|other| [(node, other), (other, node)]).collect();
            // Each has its own write first, and hears of the others' when they are done.
            cluster.cuts.extend(cut.clone());
            let value = format!("{node}");
            let (w, dw) = (Quorum::One, Quorum::One);
            cluster.ask(node, Request::put(PutRequest { w, dw, ..put_typed(&key, &value) })).unwrap();
            cluster.cuts.clear();
        }
        cluster.pass(Duration::from_secs(4));
        let first = get_typed(&mut cluster, 0, &key);
        assert_eq!(first.len(), 1, "no siblings are shown");
        (0..3).for_each(|node| assert_eq!(get_typed(&mut cluster, node, &key), first));
    }
    assert!(cluster.idle());
}

#[test]
fn what_was_deleted_can_be_written_once_more() {
    let data = folder();
    let mut cluster = three(&data);
    activated(&mut cluster, vec![Prop::WriteOnce(true)]);
    cluster.ask(0, Request::put(put_typed("k", "first"))).unwrap();
    let only_new = || PutRequest { if_none_match: true, ..put_typed("k", "no") };
    assert_eq!(cluster.ask(1, Request::put(only_new())), Err(Error::MatchFound));
    cluster.pass(Duration::from_secs(1));
    let (bucket, key) = typed("k");
    assert_eq!(cluster.ask(1, Request::Delete(DeleteRequest::new(bucket, key))), Ok(Response::Deleted));
    assert!(get_typed(&mut cluster, 2, "k").is_empty());
    cluster.pass(Duration::from_secs(1));
    cluster.ask(2, Request::put(only_new())).unwrap();
    (0..3).for_each(|node| assert_eq!(get_typed(&mut cluster, node, "k"), ["no"]));
    assert!(cluster.idle());
}

#[test]
fn what_is_written_once_reaches_a_node_that_was_away() {
    let data = folder();
    let mut cluster = Cluster::new(data.path(), 5, ReadStrategy::LocalValue);
    activated(&mut cluster, vec![Prop::WriteOnce(true)]);
    cluster.cut(3);
    let keys: Vec<String> = (0..20).map(|at| format!("k{at}")).collect();
    for (at, key) in keys.iter().enumerate() {
        let node = [0, 1, 2, 4][at % 4];
        cluster.ask(node, Request::put(put_typed(key, "v"))).unwrap();
    }
    cluster.pass(Duration::from_secs(4));
    cluster.cuts.clear();
    cluster.pass(Duration::from_secs(4));
    for key in &keys {
        (0..5).for_each(|node| assert_eq!(get_typed(&mut cluster, node, key), ["v"]));
    }
    let stats: Vec<_> = cluster.nodes.iter().flatten().map(|shard| shard.stats().counters).collect();
    let sum = |part: fn(&node::shard::ShardCounters) -> u64| stats.iter().map(part).sum::<u64>();
    assert!(sum(|counters| counters.hints) > 0);
    assert_eq!(sum(|counters| counters.hints), sum(|counters| counters.hints_home));
    assert!(cluster.idle());
}

#[test]
fn a_node_that_stood_in_keeps_what_it_may_yet_have_to_bring() {
    let data = folder();
    let mut cluster = Cluster::new(data.path(), 4, ReadStrategy::LocalValue);
    activated(&mut cluster, vec![Prop::WriteOnce(true)]);
    let held = |cluster: &mut Cluster, node: usize, key: &str| {
        let (bucket, key) = typed(key);
        !cluster.holds(node, GetRequest::new(bucket, key)).is_empty()
    };
    cluster.ask(0, Request::put(put_typed("k", "early"))).unwrap();
    let stands_in = (0..4).find(|&node| !held(&mut cluster, node, "k")).unwrap();
    let [away, silent] = [(stands_in + 1) % 4, (stands_in + 2) % 4];
    cluster.kill(away);
    cluster.pass(Duration::from_secs(2));
    // One primary is known to be away; another has just fallen silent, and is waited for.
    cluster.cut(silent);
    cluster.ask(stands_in, Request::put(put_typed("k", "later"))).unwrap();
    // The first comes back and is brought what it has missed, before the second is given up.
    cluster.start(away);
    cluster.pass(Duration::from_millis(300));
    cluster.pass(Duration::from_secs(2));
    cluster.cuts.clear();
    cluster.pass(Duration::from_secs(4));
    let (bucket, key) = typed("k");
    let brought = GetRequest::new(bucket, key);
    assert_eq!(cluster.holds(away, brought.clone()), ["later"]);
    assert_eq!(cluster.holds(silent, brought), ["later"], "it was given up, and a hint kept for it");
    assert!(!held(&mut cluster, stands_in, "k"), "which is home");
    assert!(cluster.idle());
}

#[test]
fn a_change_that_is_lost_on_its_way_is_told_again() {
    let data = folder();
    let mut cluster = Cluster::new(data.path(), 3, ReadStrategy::LocalValue);
    cluster.cuts.insert((0, 1));
    let id = cluster.begin(0, Request::SetProps(bucket(), vec![Prop::AllowMult(true)]));
    cluster.pass(Duration::from_millis(500));
    assert!(!cluster.answers.contains_key(&id), "one node has not heard of it");
    cluster.cuts.clear();
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.answers.remove(&id), Some(Ok(Response::PropsSet)));
    let props = cluster.ask(1, Request::GetProps(bucket()));
    assert!(matches!(props, Ok(Response::Props(props)) if props.allow_mult));
    assert!(cluster.idle());
}

#[test]
fn a_node_that_comes_up_is_told_until_it_has_heard() {
    let data = folder();
    let mut cluster = Cluster::new(data.path(), 3, ReadStrategy::LocalValue);
    cluster.kill(1);
    cluster.pass(Duration::from_secs(3));
    assert_eq!(
        cluster.ask(0, Request::SetProps(bucket(), vec![Prop::AllowMult(true)])),
        Ok(Response::PropsSet)
    );
    let life = 100 + cluster.clock.now().0;
    cluster.start(1);
    // It is seen to be up, with a program that does not compare, and whatever the others say to it then is lost.
    cluster.cuts.extend([(0, 1), (2, 1)]);
    for node in [0, 2] {
        let shard = cluster.nodes[node].as_mut().unwrap();
        shard.peer(
            NodeId(1),
            PeerMessage::Pong { id: AskId(0), life, load: Load(0), props: None, promise: None },
        );
    }
    cluster.run();
    cluster.cuts.clear();
    cluster.pass(Duration::from_millis(1200));
    let props = cluster.ask(1, Request::GetProps(bucket()));
    assert!(matches!(props, Ok(Response::Props(props)) if props.allow_mult));
}
