//! A node that stops: others hear of it before, and nobody waits for it.

use crate::common::cluster::*;
use kv::{NodeId, ReadStrategy, Request};
use node::{AskId, Load, Output, PeerMessage};
use std::time::Duration;

fn five(data: &tempfile::TempDir) -> Cluster {
    Cluster::new(data.path(), 5, ReadStrategy::LocalValue)
}

fn is_drained(cluster: &Cluster, node: usize) -> bool {
    cluster.nodes[node].as_ref().unwrap().is_drained()
}

fn peers_up(cluster: &Cluster, node: usize) -> usize {
    cluster.nodes[node].as_ref().unwrap().stats().peers_up
}

fn begin_stop(cluster: &mut Cluster, node: usize) {
    cluster.nodes[node].as_mut().unwrap().begin_stop();
    cluster.run();
}

/// It ends without a word, and nobody is told that links are down: whoever asked it something would wait.
#[test]
fn nobody_asks_a_node_that_stops() {
    let data = folder();
    let mut cluster = five(&data);
    begin_stop(&mut cluster, 1);
    cluster.kill(1);
    for key in (0..12).map(|key| format!("k{key}")) {
        for node in [0, 2, 3, 4] {
            cluster.put(node, &key, "v").unwrap();
        }
        assert!(cluster.values(0, &key).iter().all(|value| value == "v"), "{key}");
    }
    // Another process of it is one like any other.
    cluster.start(1);
    cluster.pass(Duration::from_secs(3));
    assert_eq!([0, 1, 2].map(|node| peers_up(&cluster, node)), [4; 3]);
    assert!((0..12).any(|key| !cluster.has(1, &format!("k{key}")).is_empty()), "it gets what it missed");
    assert!(cluster.idle());
}

/// It says that it stops, and not which process it is.
#[test]
fn a_late_answer_of_the_process_before_says_nothing_of_the_next() {
    let data = folder();
    let mut cluster = five(&data);
    cluster.kill(1);
    cluster.start(1);
    cluster.pass(Duration::from_secs(3));
    assert_eq!(peers_up(&cluster, 0), 4);
    let late = PeerMessage::Answer { id: AskId(0), result: Ok(kv::Answer::Merged), load: Load::STOPPING };
    cluster.deliver(1, 0, &late);
    cluster.pass(Duration::from_secs(3));
    assert_eq!(peers_up(&cluster, 0), 4);
}

#[test]
fn what_comes_meanwhile_is_done_and_puts_the_end_off() {
    let data = folder();
    let mut cluster = five(&data);
    assert!(!is_drained(&cluster, 1));
    begin_stop(&mut cluster, 1);
    cluster.pass(Duration::from_millis(400));
    assert!(!is_drained(&cluster, 1), "others may not have heard of it");
    cluster.put(1, "k", "v").unwrap();
    cluster.pass(Duration::from_millis(400));
    assert!(!is_drained(&cluster, 1), "a client has asked");
    cluster.pass(Duration::from_millis(200));
    assert!(is_drained(&cluster, 1));
    assert_eq!(cluster.values(0, "k"), ["v"]);
}

/// It may wait for a processor, and pass a request on before it reads what it was told.
#[test]
fn who_has_not_heard_is_waited_for_while_it_can_be_reached() {
    let data = folder();
    let mut cluster = five(&data);
    cluster.cut(2);
    begin_stop(&mut cluster, 1);
    cluster.pass(Duration::from_millis(1_000));
    assert!(!is_drained(&cluster, 1), "node 2 has not heard");
    cluster.cuts.clear();
    cluster.pass(Duration::from_millis(400));
    assert!(!is_drained(&cluster, 1), "what it has sent before may be on its way");
    cluster.pass(Duration::from_millis(500));
    assert!(is_drained(&cluster, 1));

    let data = folder();
    let mut cluster = five(&data);
    cluster.cut(2);
    begin_stop(&mut cluster, 1);
    cluster.pass(Duration::from_millis(3_000));
    assert!(is_drained(&cluster, 1), "node 2 cannot be reached any more");
}

/// Others find out sooner that it is there than it finds out that they are.
#[test]
fn who_was_just_started_waits_for_all() {
    let data = folder();
    let mut cluster = five(&data);
    cluster.kill(1);
    cluster.start(1);
    cluster.nodes[1].as_mut().unwrap().begin_stop();
    assert!(!is_drained(&cluster, 1), "it has not asked anybody yet");
    cluster.pass(Duration::from_millis(400));
    assert!(!is_drained(&cluster, 1), "what others have sent before may be on its way");
    cluster.pass(Duration::from_millis(1_500));
    assert!(is_drained(&cluster, 1));
}

/// Such an answer was under way when the stop began, and tells nothing of who has heard of it.
#[test]
fn an_answer_to_what_was_asked_before_is_no_sign_of_having_heard() {
    let data = folder();
    let mut cluster = five(&data);
    let asked = PeerMessage::Ping { id: AskId(0), life: 0, load: Load(0), props: None, promise: None };
    cluster.deliver(1, 2, &asked);
    let mut outputs = Vec::new();
    cluster.nodes[2].as_mut().unwrap().take_outputs(&mut outputs);
    let answer = outputs.into_iter().find_map(|output| match output {
        Output::Peer { to: NodeId(1), message: message @ PeerMessage::Pong { .. } } => Some(message),
        _ => None,
    });
    cluster.cut(2);
    begin_stop(&mut cluster, 1);
    cluster.pass(Duration::from_millis(300));
    cluster.deliver(2, 1, &answer.expect("a pong"));
    cluster.pass(Duration::from_millis(900));
    assert!(!is_drained(&cluster, 1), "node 2 has not heard");
}

#[test]
fn who_reaches_nobody_has_nobody_to_tell() {
    let data = folder();
    let mut cluster = five(&data);
    [0, 2, 3, 4].into_iter().for_each(|node| cluster.kill(node));
    cluster.pass(Duration::from_secs(2));
    begin_stop(&mut cluster, 1);
    assert!(is_drained(&cluster, 1));
}

/// The link to the node that was to coordinate went down before the write was sent.
#[test]
fn a_write_that_could_not_be_sent_is_coordinated_by_another() {
    let data = folder();
    let mut cluster = five(&data);
    let key = (0..12).map(|key| format!("k{key}")).find(|key| {
        cluster.passed_on = None;
        cluster.put(0, key, "1").unwrap();
        cluster.passed_on.is_some()
    });
    let key = key.expect("node 0 does not hold everything");
    cluster.pass(Duration::from_millis(100));
    let request = Request::put(put(&key, "2"));
    cluster.cut(0);
    let asked = cluster.begin(0, request.clone());
    let (first, id) = cluster.passed_on.unwrap();
    cluster.cuts.clear();
    let returned = PeerMessage::Forward { id, ttl_ms: 1_000, request: Box::new(request) };
    let shard = cluster.nodes[0].as_mut().unwrap();
    shard.bounce(NodeId(u16::try_from(first).unwrap()), returned);
    cluster.run();
    assert!(cluster.answers.remove(&asked).expect("it is answered").is_ok());
    assert_ne!(cluster.passed_on.unwrap().0, first);
    assert_eq!(cluster.values(0, &key), ["2"]);
    assert!(cluster.idle());
}
