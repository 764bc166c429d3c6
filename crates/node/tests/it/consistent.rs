//! Consistent bucket types on three nodes: conditions, leaders that end, majorities that are gone, voters that fell
//! behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use kv::{Bucket, DeleteRequest, Error, GetRequest, Prop, PutRequest, Request, Response, Return, TypeChange};
use membership::state::{Founding, StoreBirths};
use node::consistent::agreement::{Agreement, RegisteredProcess};
use node::peer::NodeId;
use node::{Output, PeerMessage, RequestId, StrongReads};
use object::{HeadView, Metadata};
use protocol::peer::VERSION;
use ring::Birth;

use crate::common::cluster::{Cluster, sum, three};

const TYPE: Bytes = Bytes::from_static(b"strong");

/// A time in which a death is noticed and a leader elected.
pub const TAKEOVER: Duration = Duration::from_secs(4);

pub fn bucket() -> Bucket {
    Bucket { bucket_type: TYPE, name: Bytes::from_static(b"b") }
}

pub fn key(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// The agreement of the processes that run.
pub fn agreement(cluster: &Cluster) -> Agreement {
    let stores_of = |birth: Birth| StoreBirths { ring_bits: 4, births: Arc::from([birth]) };
    let node_of = |node: usize| NodeId(u16::try_from(node).unwrap());
    let births = cluster.births.iter().map(|birth| birth.unwrap());
    let stores: BTreeMap<_, _> =
        births.enumerate().map(|(node, birth)| (node_of(node), stores_of(birth))).collect();
    let owners: Arc<[NodeId]> = (0..16).map(|at| node_of(at % cluster.nodes.len())).collect();
    let processes = stores.iter().map(|(&node, stores)| {
        let life = cluster.lives[usize::from(node.0)];
        (node, RegisteredProcess { life, stores: stores.clone() })
    });
    let processes = processes.collect();
    let founding = Founding { number: 0xF00D, epoch: 0, owners, stores: Arc::new(stores) };
    Agreement { foundings: Arc::new([(3, founding)].into()), processes: Arc::new(processes) }
}

/// Publishes the processes that run.
pub fn agree(cluster: &mut Cluster) {
    cluster.run();
    let agreement = Arc::new(agreement(cluster));
    for shard in cluster.nodes.iter_mut().flatten() {
        shard.agree(Arc::clone(&agreement));
    }
    cluster.pass(Duration::from_millis(500));
}

pub fn consistent(data: &tempfile::TempDir) -> Cluster {
    consistent_with(data, StrongReads::Ask, VERSION)
}

/// Three nodes that confirm reads in this way, and speak this version of the protocol.
pub fn consistent_with(data: &tempfile::TempDir, strong_reads: StrongReads, version: u16) -> Cluster {
    let mut cluster = Cluster { births: vec![None; 3], strong_reads, version, ..three(data) };
    for node in 0..3 {
        cluster.stop(node);
        cluster.births[node] = Birth::of(node as u64 + 1);
        cluster.start(node);
    }
    cluster.pass(Duration::from_secs(1));
    agree(&mut cluster);
    let create = TypeChange::Create(vec![Prop::Consistent(true)]);
    cluster.ask(0, Request::ChangeType(TYPE, create)).unwrap();
    cluster.pass(Duration::from_secs(1));
    cluster.ask(0, Request::ChangeType(TYPE, TypeChange::Activate)).unwrap();
    cluster.pass(Duration::from_secs(1));
    cluster
}

/// An answer that may take some time.
fn ask(cluster: &mut Cluster, node: usize, request: Request) -> Result<Response, Error> {
    let id = cluster.begin(node, request);
    answer_of(cluster, id)
}

fn answer_of(cluster: &mut Cluster, id: RequestId) -> Result<Response, Error> {
    for _ in 0..400 {
        if let Some(answer) = cluster.answers.remove(&id) {
            return answer;
        }
        cluster.pass(Duration::from_millis(50));
    }
    panic!("no answer within 20 s");
}

/// Context and value of a key.
pub fn get(cluster: &mut Cluster, node: usize, name: &str) -> Option<(Bytes, String)> {
    match ask(cluster, node, Request::Get(GetRequest::new(bucket(), key(name)))).unwrap() {
        Response::Found(found) => {
            let mut context = Vec::new();
            HeadView::parse(&found.head).unwrap().context().write_client_bytes(&mut context);
            Some((context.into(), String::from_utf8(found.value.unwrap().to_vec()).unwrap()))
        }
        Response::NotFound { .. } => None,
        other => panic!("{other:?}"),
    }
}

fn put_request(name: &str, value: &str, context: Option<Bytes>) -> Request {
    let put = PutRequest::new(bucket(), Some(key(name)), Metadata::default(), key(value));
    Request::put(PutRequest { context, returned: Return::Head, ..put })
}

pub fn put(
    cluster: &mut Cluster,
    node: usize,
    name: &str,
    value: &str,
    context: Option<Bytes>,
) -> Result<(), Error> {
    ask(cluster, node, put_request(name, value, context)).map(drop)
}

pub fn delete(cluster: &mut Cluster, node: usize, name: &str, context: Option<Bytes>) -> Result<(), Error> {
    let delete = DeleteRequest { context, ..DeleteRequest::new(bucket(), key(name)) };
    ask(cluster, node, Request::Delete(delete)).map(drop)
}

/// Whether a node leads a group.
pub fn leads(cluster: &Cluster, node: usize) -> bool {
    let groups = cluster.nodes[node].as_ref().unwrap().status().groups();
    groups.iter().any(|group| group.role == node::GroupRole::Leader)
}

/// Others have led its preferred groups meanwhile, and have not told of that yet.
#[test]
fn a_node_that_has_just_started_asks_who_leads() {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = consistent(&data);
    let names: Vec<String> = (0..24).map(|number| format!("key {number}")).collect();
    names.iter().for_each(|name| put(&mut cluster, 1, name, "old", None).unwrap());
    cluster.kill(0);
    cluster.pass(TAKEOVER);
    for name in &names {
        let (context, _) = get(&mut cluster, 1, name).unwrap();
        put(&mut cluster, 1, name, "new", Some(context)).unwrap();
    }
    cluster.start(0);
    // Links come up.
    cluster.pass(Duration::from_millis(20));
    let agreement = Arc::new(agreement(&cluster));
    cluster.nodes.iter_mut().flatten().for_each(|shard| shard.agree(Arc::clone(&agreement)));

    let requests = names.iter().map(|name| Request::Get(GetRequest::new(bucket(), key(name))));
    let asked: Vec<RequestId> = requests.map(|request| cluster.begin(0, request)).collect();
    cluster.run();
    let answers: Vec<_> = asked.iter().filter_map(|id| cluster.answers.remove(id)).collect();
    assert_eq!(answers.len(), names.len(), "no request waits for time to pass");
    for answer in answers {
        let Ok(Response::Found(found)) = answer else { panic!("{answer:?}") };
        assert_eq!(&found.value.unwrap()[..], b"new");
    }
}

#[test]
fn the_first_voter_of_the_list_leads_a_new_group_at_once() {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = consistent(&data);
    cluster.pass(Duration::from_secs(10));
    for number in 0..30 {
        let request = put_request(&format!("key-{number}"), "1", None);
        cluster.ask(number % 3, request).expect("no time passes until it is answered");
    }
    cluster.pass(Duration::from_secs(30));
    assert!(sum(&cluster, |counters| counters.consistent_groups_begun) > 5, "keys are of many groups");
    assert_eq!(sum(&cluster, |counters| counters.consistent_elections), 0);
    assert_eq!(sum(&cluster, |counters| counters.consistent_hand_overs), 0, "each has its preferred leader");
}

#[test]
fn conditions_are_decided_wherever_a_client_asks() {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = consistent(&data);
    assert_eq!(get(&mut cluster, 0, "k"), None);
    put(&mut cluster, 1, "k", "one", None).unwrap();
    assert_eq!(put(&mut cluster, 2, "k", "two", None), Err(Error::Failed), "it exists");
    let (first, value) = get(&mut cluster, 2, "k").unwrap();
    assert_eq!(value, "one");
    put(&mut cluster, 0, "k", "two", Some(first.clone())).unwrap();
    assert_eq!(put(&mut cluster, 1, "k", "three", Some(first.clone())), Err(Error::Failed), "it has changed");
    for node in 0..3 {
        assert_eq!(get(&mut cluster, node, "k").unwrap().1, "two");
    }

    assert_eq!(delete(&mut cluster, 0, "k", Some(first)), Err(Error::Failed));
    let (second, _) = get(&mut cluster, 1, "k").unwrap();
    delete(&mut cluster, 1, "k", Some(second.clone())).unwrap();
    assert_eq!(get(&mut cluster, 2, "k"), None);
    assert_eq!(put(&mut cluster, 2, "k", "four", Some(second)), Err(Error::Failed), "it is deleted");
    put(&mut cluster, 2, "k", "four", None).unwrap();
    delete(&mut cluster, 0, "k", None).unwrap();
    delete(&mut cluster, 0, "k", None).unwrap();
    assert_eq!(get(&mut cluster, 0, "k"), None);
}

/// Flips a byte of a file below a folder, where this text is.
#[allow(clippy::disallowed_methods, reason = "it does so behind the store's back")]
fn damage_text(folder: &std::path::Path, text: &[u8]) {
    let find = |bytes: &[u8]| bytes.windows(text.len()).position(|window| window == text);
    let files = crate::common::cluster::files_below(folder).into_iter();
    let mut found = files.filter_map(|path| {
        let bytes = std::fs::read(&path).unwrap();
        find(&bytes).map(|at| (path, bytes, at))
    });
    let (path, mut bytes, at) = found.next_back().expect("a file has it");
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_damaged_entry_comes_back_without_a_request() {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = consistent(&data);
    put(&mut cluster, 0, "k", "entry-to-be-damaged", None).unwrap();
    cluster.pass(Duration::from_secs(1));
    (0..3).for_each(|node| cluster.kill(node));
    damage_text(&data.path().join(crate::common::cluster::NAMES[0]), b"entry-to-be-damaged");
    (0..3).for_each(|node| cluster.start(node));
    cluster.pass(Duration::from_secs(1));
    let suspect = |cluster: &Cluster| {
        let groups = cluster.nodes[0].as_ref().unwrap().status().groups();
        groups.iter().filter(|group| group.is_suspect).count()
    };
    agree(&mut cluster);
    cluster.pass(TAKEOVER);
    assert_eq!(suspect(&cluster), 0);
    let status = cluster.nodes[0].as_ref().unwrap().status().groups();
    assert!(status.iter().any(|group| group.has_leader), "the group is in memory, and has a leader");
}

#[test]
fn each_node_may_end_and_all_of_them() {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = consistent(&data);
    let names: Vec<String> = (0..20).map(|at| format!("k{at}")).collect();
    for (at, name) in names.iter().enumerate() {
        put(&mut cluster, at % 3, name, "0", None).unwrap();
    }
    for ended in 0..3 {
        cluster.kill(ended);
        cluster.pass(TAKEOVER);
        let asked = (ended + 1) % 3;
        for name in &names {
            let (context, value) = get(&mut cluster, asked, name).unwrap();
            assert_eq!(value, ended.to_string());
            put(&mut cluster, asked, name, &(ended + 1).to_string(), Some(context)).unwrap();
        }
        cluster.start(ended);
        cluster.pass(Duration::from_secs(1));
        agree(&mut cluster);
        cluster.pass(TAKEOVER);
    }

    for node in 0..3 {
        cluster.kill(node);
    }
    for node in 0..3 {
        cluster.start(node);
    }
    cluster.pass(Duration::from_secs(1));
    agree(&mut cluster);
    for name in &names {
        assert_eq!(get(&mut cluster, 0, name).unwrap().1, "3");
    }
    assert!(cluster.forgot.is_empty());
}

#[test]
fn without_a_majority_nothing_is_answered_and_nothing_is_lost() {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = consistent(&data);
    put(&mut cluster, 0, "k", "one", None).unwrap();
    cluster.kill(1);
    cluster.kill(2);
    cluster.pass(TAKEOVER);
    let read = ask(&mut cluster, 0, Request::Get(GetRequest::new(bucket(), key("k"))));
    assert_eq!(read, Err(Error::Unavailable));
    assert_eq!(put(&mut cluster, 0, "l", "one", None), Err(Error::Unavailable));

    cluster.start(1);
    cluster.pass(Duration::from_secs(1));
    agree(&mut cluster);
    cluster.pass(TAKEOVER);
    assert_eq!(get(&mut cluster, 0, "k").unwrap().1, "one");
    assert_eq!(get(&mut cluster, 1, "l"), None, "it was never applied");
}

#[test]
fn a_voter_that_fell_behind_has_all_when_the_others_are_gone_in_turn() {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = consistent(&data);
    put(&mut cluster, 0, "k", "before", None).unwrap();
    put(&mut cluster, 0, "gone", "before", None).unwrap();
    cluster.kill(2);
    cluster.pass(TAKEOVER);
    let (context, _) = get(&mut cluster, 0, "k").unwrap();
    put(&mut cluster, 0, "k", "after", Some(context)).unwrap();
    delete(&mut cluster, 0, "gone", None).unwrap();
    // A start knows no applied entry, so both have to send a catch-up.
    for node in 0..2 {
        cluster.stop(node);
        cluster.start(node);
        cluster.pass(Duration::from_secs(1));
        agree(&mut cluster);
        cluster.pass(TAKEOVER);
    }
    assert_eq!(get(&mut cluster, 1, "k").unwrap().1, "after");

    cluster.start(2);
    cluster.pass(Duration::from_secs(1));
    agree(&mut cluster);
    cluster.pass(TAKEOVER);
    assert_eq!(get(&mut cluster, 0, "gone"), None);
    let catch_ups: u64 =
        cluster.nodes.iter().flatten().map(|shard| shard.stats().counters.consistent_catch_ups).sum();
    assert!(catch_ups > 0, "the log was not enough");
    cluster.kill(0);
    cluster.pass(TAKEOVER);
    for node in 1..3 {
        assert_eq!(get(&mut cluster, node, "k").unwrap().1, "after");
        assert_eq!(get(&mut cluster, node, "gone"), None);
    }
}

#[test]
fn a_read_leaves_a_silent_leader_for_the_next_one() {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = consistent(&data);
    put(&mut cluster, 0, "k", "one", None).unwrap();
    cluster.pass(TAKEOVER);
    let leader = (0..3).find(|&node| leads(&cluster, node)).unwrap();
    let asked = (leader + 1) % 3;
    cluster.cut(leader);
    let read = cluster.begin(asked, Request::Get(GetRequest::new(bucket(), key("k"))));
    let written = cluster.begin(asked, put_request("l", "one", None));
    // The deadline is a minute.
    let read = answer_of(&mut cluster, read);
    assert!(matches!(read, Ok(Response::Found(_))), "{read:?}");
    cluster.cuts.clear();
    cluster.pass(TAKEOVER);
    let written = answer_of(&mut cluster, written);
    assert!(matches!(written, Ok(_) | Err(Error::Timeout)), "{written:?}");
}

/// A follower with the last entry hears of its leader's loss. Before the group is told, another voter asks for its
/// vote.
#[test]
fn a_lost_leader_is_replaced_though_its_group_has_a_step_before_it_is_told() {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = consistent(&data);
    put(&mut cluster, 0, "k", "one", None).unwrap();
    cluster.pass(TAKEOVER);
    let leader = (0..3).find(|&node| leads(&cluster, node)).unwrap();
    let (follower, behind) = ((leader + 1) % 3, (leader + 2) % 3);
    let (context, _) = get(&mut cluster, leader, "k").unwrap();
    cluster.cut(behind);
    put(&mut cluster, leader, "k", "two", Some(context)).unwrap();

    cluster.kill(leader);
    cluster.cuts.clear();
    let lost = NodeId(u16::try_from(leader).unwrap());
    cluster.nodes[behind].as_mut().unwrap().link(lost, false);
    let asked = message_to(&mut cluster, behind, follower);
    cluster.nodes[follower].as_mut().unwrap().link(lost, false);
    cluster.deliver(behind, follower, &asked);
    cluster.pass(TAKEOVER);
    assert!(leads(&cluster, follower), "no other one can: it lacks the last entry");
}

/// The next message of groups from one node to another, while no other node moves.
fn message_to(cluster: &mut Cluster, from: usize, to: usize) -> PeerMessage {
    let is_it = |output: Output| match output {
        Output::Peer { to: node, message: message @ PeerMessage::Groups { .. } } => {
            (usize::from(node.0) == to).then_some(message)
        }
        _ => None,
    };
    for _ in 0..100 {
        cluster.clock.0.fetch_add(50_000_000, Ordering::Relaxed);
        let shard = cluster.nodes[from].as_mut().unwrap();
        let mut outputs = Vec::new();
        shard.tick();
        shard.turn();
        shard.take_outputs(&mut outputs);
        if let Some(message) = outputs.into_iter().find_map(is_it) {
            return message;
        }
    }
    panic!("no message within five seconds");
}

#[test]
fn a_leader_that_gets_another_birth_is_replaced_though_its_process_goes_on() {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = consistent(&data);
    put(&mut cluster, 0, "k", "one", None).unwrap();
    cluster.pass(TAKEOVER);
    let leader = (0..3).find(|&node| leads(&cluster, node)).unwrap();
    let founded = agreement(&cluster);
    cluster.births[leader] = Birth::of(77);
    cluster.nodes[leader].as_mut().unwrap().keep_birth(Birth::of(77).unwrap());
    cluster.run();
    let published = Arc::new(Agreement { foundings: founded.foundings, ..agreement(&cluster) });
    for shard in cluster.nodes.iter_mut().flatten() {
        shard.agree(Arc::clone(&published));
    }
    cluster.pass(TAKEOVER);
    for node in 0..3 {
        assert_eq!(get(&mut cluster, node, "k").unwrap().1, "one");
    }
}

/// A store forgets, and its process goes on with another birth. A voter that lacks a write asks for its vote, and has
/// not heard of the birth yet.
#[test]
fn a_store_that_forgot_does_not_vote_as_the_voter_before_it() {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = consistent(&data);
    put(&mut cluster, 0, "k", "one", None).unwrap();
    cluster.pass(TAKEOVER);
    let leader = (0..3).find(|&node| leads(&cluster, node)).unwrap();
    let (forgetful, behind) = ((leader + 1) % 3, (leader + 2) % 3);
    let (context, _) = get(&mut cluster, leader, "k").unwrap();
    cluster.cut(behind);
    put(&mut cluster, leader, "k", "two", Some(context)).unwrap();

    let founded = agreement(&cluster);
    cluster.births[forgetful] = Birth::of(77);
    let published = Arc::new(Agreement { foundings: founded.foundings, ..agreement(&cluster) });
    let shard = cluster.nodes[forgetful].as_mut().unwrap();
    shard.keep_birth(Birth::of(77).unwrap());
    cluster.run();
    cluster.nodes[forgetful].as_mut().unwrap().agree(published);
    cluster.run();
    let lost = NodeId(u16::try_from(leader).unwrap());
    cluster.cut(leader);
    for node in [forgetful, behind] {
        cluster.nodes[node].as_mut().unwrap().link(lost, false);
    }
    cluster.cuts.retain(|(from, to)| *from == leader || *to == leader);
    let read = cluster.begin(behind, Request::Get(GetRequest::new(bucket(), key("k"))));
    cluster.pass(TAKEOVER * 2);
    assert!(!leads(&cluster, behind), "the only vote for it is of a store that forgot");
    drop(answer_of(&mut cluster, read));
}

/// Publishes the processes that run, with the founding of before.
pub fn agree_on_births(cluster: &mut Cluster, founded: &Agreement) {
    cluster.run();
    let published = Arc::new(Agreement { foundings: Arc::clone(&founded.foundings), ..agreement(cluster) });
    for shard in cluster.nodes.iter_mut().flatten() {
        shard.agree(Arc::clone(&published));
    }
    cluster.pass(TAKEOVER * 4);
}

#[test]
fn stores_that_are_lost_in_turn_are_replaced_without_a_request() {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = consistent(&data);
    let names: Vec<String> = (0..20).map(|at| format!("k{at}")).collect();
    for (at, name) in names.iter().enumerate() {
        put(&mut cluster, at % 3, name, "one", None).unwrap();
    }
    let founded = agreement(&cluster);
    for lost in 0..3 {
        cluster.kill(lost);
        std::fs::remove_dir_all(cluster.data.join(crate::common::cluster::NAMES[lost])).unwrap();
        cluster.births[lost] = Birth::of(77 + lost as u64);
        cluster.start(lost);
        cluster.pass(Duration::from_secs(1));
        agree_on_births(&mut cluster, &founded);
        let groups = cluster.nodes[lost].as_ref().unwrap().status().groups();
        assert!(!groups.is_empty() && groups.iter().all(|it| it.role != node::GroupRole::Learner));
    }
    let counters = cluster.nodes.iter().flatten().map(|shard| shard.stats().counters);
    assert!(counters.map(|it| it.consistent_replacements_done).sum::<u64>() > 0);
    for name in &names {
        assert_eq!(get(&mut cluster, 1, name).unwrap().1, "one");
    }
    cluster.kill(2);
    cluster.pass(TAKEOVER);
    for name in &names {
        assert_eq!(get(&mut cluster, 0, name).unwrap().1, "one", "the new stores vote");
    }
}
