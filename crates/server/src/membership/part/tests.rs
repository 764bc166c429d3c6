//! A node's part, answering operators.
#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;
use crate::config::{Cluster, Config, Member};
use crate::error::Error;
use crate::membership::mark::SecurityMark;
use crate::membership::policy::PolicyCommand;
use crate::membership::ready::Speaks;
use crate::membership::requests::Request;
use crate::membership::{
    Admitted, Answered, Entering, Newcomer, backed_up_files, has_groups, queue, without_users,
};
use crate::peer::Tls;
use ::membership::ClusterId;
use ::membership::state::Command;
use node::http::ClusterPage;
use node::layout::Owner;
use node::{Epoch, Layout};
use os::Address;
use ring::RingSize;
use serde_json::json;
use std::collections::BTreeSet;
use tokio::sync::oneshot;

mod alone;
mod consistent;
mod mark;
mod policy;

fn part(data: &Path, names: &[&str], life: u64) -> Part {
    let layout = Layout::new(1, RingSize::new(16).unwrap());
    let is_alone = names.len() == 1;
    let config = Config { data: data.to_path_buf(), name: names[0].to_owned(), ..Config::default() };
    let entering = Entering { config: &config, owner: None, layout };
    let entered = if is_alone {
        entering.alone()
    } else {
        let (address, members) = ("127.0.0.1:1000".parse().unwrap(), members(names));
        entering.member(&cluster(members, Vec::new()), address, &tls(names[0]))
    };
    Part::open(entered.unwrap(), data, life, &queue(1).0, &policies()).unwrap()
}

fn policies() -> Arc<Policies> {
    Arc::new(Policies::new())
}

fn members(names: &[&str]) -> Vec<Member> {
    let address = |at: u16| std::net::SocketAddr::from(([127, 0, 0, 1], 1000 + at));
    let member = |(at, name): (u16, &&str)| Member { name: (*name).to_owned(), address: address(at).into() };
    (0..).zip(names).map(member).collect()
}

fn cluster(members: Vec<Member>, join: Vec<Address>) -> Cluster {
    let listen: Address = "127.0.0.1:1000".parse().unwrap();
    let file = std::path::PathBuf::new;
    Cluster {
        members,
        join,
        listen: listen.clone(),
        listen_option: "peer_listen",
        address: Some(listen),
        listed: None,
        ca: file(),
        cert: file(),
        key: file(),
    }
}

fn tls(node: &str) -> Tls {
    crate::peer::test_tls(node)
}

fn entered(
    config: &Config,
    owner: Option<&Owner>,
    members: Vec<Member>,
    join: Vec<Address>,
) -> Result<Entered, Error> {
    let layout = Layout::new(1, RingSize::new(16).unwrap());
    let here = "127.0.0.1:1000".parse().unwrap();
    Entering { config, owner, layout }.member(&cluster(members, join), here, &tls(&config.name))
}

fn refused(result: Result<Entered, Error>) -> String {
    result.map(drop).unwrap_err().to_string()
}

/// Takes a request, as a node does whose log is kept.
fn request(part: &mut Part, request: Request, now: Monotonic) -> Option<Input> {
    part.requests.ask(request, &part.membership, true, now)
}

/// The next steps of requests.
fn proposals(part: &mut Part, speaks: Speaks<'_>, now: Monotonic) -> Vec<Input> {
    let as_of = part.as_of();
    part.requests.advance(&part.membership, as_of, speaks, now)
}

fn ask(part: &mut Part, page: ClusterPage, body: &serde_json::Value) -> Answered {
    let (answer, mut answered) = oneshot::channel();
    let mailboxes = Mailboxes::new(1);
    let body = Bytes::from(body.to_string());
    part.step(Input::Tick, None, &mailboxes, None).unwrap();
    let now = part.clock.now();
    if let Some(input) = request(part, Request::Page { page, body, answer }, now) {
        part.step(input, None, &mailboxes, None).unwrap();
    }
    answered.try_recv().unwrap()
}

#[test]
fn a_node_alone_leads_itself() {
    let data = tempfile::tempdir().unwrap();
    let mut part = part(data.path(), &["a@h"], 1);
    let shown = ask(&mut part, ClusterPage::Show, &json!({}));
    assert_eq!(shown.status, 200);
    assert_eq!((&shown.body["leader"], &shown.body["here"]), (&json!("a@h"), &json!("a@h")));
    assert_eq!(shown.body["members"][0]["partitions"], 16);
}

#[test]
fn operators_are_told_what_is_wrong() {
    let data = tempfile::tempdir().unwrap();
    let mut part = part(data.path(), &["a@h"], 1);
    let status = |part: &mut Part, page, body| ask(part, page, &body).status;
    assert_eq!(status(&mut part, ClusterPage::Commit, json!({})), 409);
    assert_eq!(status(&mut part, ClusterPage::Join, json!({ "node": "127.0.0.1:1" })), 409);
    assert_eq!(status(&mut part, ClusterPage::Down, json!({})), 400);
    assert_eq!(status(&mut part, ClusterPage::Down, json!({ "node": "b@h" })), 404);
    assert_eq!(status(&mut part, ClusterPage::Stage, json!({ "node": "a@h", "change": "dance" })), 400);
    assert_eq!(status(&mut part, ClusterPage::Stage, json!({ "node": "a@h", "change": "replace" })), 400);
    assert_eq!(status(&mut part, ClusterPage::Stage, json!({ "node": "a@h", "change": "leave" })), 409);
    let weigh = json!({ "node": "a@h", "change": "weigh", "weight": 50 });
    assert_eq!(status(&mut part, ClusterPage::Stage, weigh), 200);
    let shown = ask(&mut part, ClusterPage::Show, &json!({}));
    assert_eq!(shown.body["staged"], json!([{ "node": "a@h", "change": "weigh", "weight": 50 }]));
    let plan = ask(&mut part, ClusterPage::Plan, &json!({}));
    assert_eq!((plan.status, &plan.body["moved"]), (200, &json!(0)));
    assert_eq!(status(&mut part, ClusterPage::Clear, json!({})), 200);
}

#[test]
fn a_member_of_a_cluster_comes_back_as_it_was() {
    let data = tempfile::tempdir().unwrap();
    let names = ["a@h", "b@h", "c@h"];
    let mut first = part(data.path(), &names, 1);
    let shown = ask(&mut first, ClusterPage::Show, &json!({}));
    assert_eq!(shown.body["voters"], json!(names));
    assert_eq!(shown.body["leader"], json!(null));
    assert_eq!(shown.body["members"][2]["partitions"], 5);
    drop(first);
    // A start that ended before it took part does not count.
    let mut second = part(data.path(), &names, 2);
    assert_eq!(second.identity().starts, 1);
    second.set_starts(1).unwrap();
    drop(second);
    let mut again = part(data.path(), &names, 2);
    assert_eq!(again.identity().starts, 2);
    assert_eq!(ask(&mut again, ClusterPage::Show, &json!({})).body["cluster"], shown.body["cluster"]);
    drop(again);
    // Another list of members does not make another cluster of it.
    let config = Config { data: data.path().to_path_buf(), name: "a@h".to_owned(), ..Config::default() };
    let entered = entered(&config, None, members(&["a@h", "b@h"]), Vec::new()).unwrap();
    assert!(!entered.is_new && entered.standing.state.members().len() == 3);
    assert_eq!(
        Part::open(entered, data.path(), 3, &queue(1).0, &policies()).unwrap().state().members().len(),
        3
    );
}

#[test]
fn a_folder_is_of_one_node_of_one_cluster() {
    let data = tempfile::tempdir().unwrap();
    let config = Config { data: data.path().to_path_buf(), name: "a@h".to_owned(), ..Config::default() };
    let both = || members(&["a@h", "b@h"]);
    let first = entered(&config, None, both(), Vec::new()).unwrap();
    let owner = first.owner();
    let number = first.standing.cluster();
    Part::open(first, data.path(), 1, &queue(1).0, &policies()).unwrap();
    let other = Config { name: "b@h".to_owned(), ..config.clone() };
    let text = refused(entered(&other, None, both(), Vec::new()));
    assert!(text.contains("is of a@h of the cluster") && text.contains("is to be of b@h"), "{text}");
    let foreign = Owner::Member { cluster: 1, node: NodeId(0) };
    let text = refused(entered(&config, Some(&foreign), both(), Vec::new()));
    assert!(text.contains("node 0 of the cluster 0000000000000001, but"), "{text}");
    let layout = Layout::new(1, RingSize::default());
    let alone = Entering { config: &config, owner: Some(&owner), layout };
    let text = refused(alone.alone());
    assert!(text.contains("but this node is to be of a node alone"), "{text}");
    // With the flag of a newcomer it goes on as what it is.
    let contact = vec!["127.0.0.1:9".parse().unwrap()];
    assert_eq!(
        entered(&config, Some(&owner), Vec::new(), contact.clone()).unwrap().standing.cluster(),
        number
    );
    std::fs::remove_file(data.path().join("membership/log")).unwrap();
    let entered_again = entered(&config, Some(&owner), both(), Vec::new()).unwrap();
    let reopened = Part::open(entered_again, data.path(), 2, &queue(1).0, &policies());
    assert!(reopened.map(drop).unwrap_err().to_string().contains("its log is lost"));
    // The folder is gone as a whole: the list comes to the same node, the address of a member does not.
    std::fs::remove_dir_all(data.path().join("membership")).unwrap();
    let text = refused(entered(&config, Some(&owner), Vec::new(), contact.clone()));
    assert!(text.contains("its folder membership is lost"), "{text}");
    let text = refused(entered(&config, Some(&Owner::Alone), Vec::new(), contact));
    assert!(text.contains("with an empty data folder"), "{text}");
    assert!(entered(&config, Some(&owner), both(), Vec::new()).is_ok());
}

#[test]
fn who_founds_alone_draws_the_number_of_the_cluster() {
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let data = tempfile::tempdir().unwrap();
        let config = Config { data: data.path().to_path_buf(), name: "a@h".to_owned(), ..Config::default() };
        // Also where there is data of a node alone.
        let first = entered(&config, Some(&Owner::Alone), members(&["a@h"]), Vec::new()).unwrap();
        numbers.push(first.standing.cluster());
        Part::open(first, data.path(), 1, &queue(1).0, &policies()).unwrap();
        let again = entered(&config, Some(&Owner::Alone), members(&["a@h"]), Vec::new()).unwrap();
        assert!(numbers.contains(&again.standing.cluster()) && !again.is_new);
    }
    assert_ne!(numbers[0], numbers[1]);
}

#[test]
fn folders_of_older_programs_are_those_of_founders() {
    let data = tempfile::tempdir().unwrap();
    let config = Config { data: data.path().to_path_buf(), name: "b@h".to_owned(), ..Config::default() };
    let owner = Owner::Founder("a@h,b@h".to_owned());
    let list = members(&["a@h", "b@h"]);
    let fresh = entered(&config, None, list.clone(), Vec::new()).unwrap();
    let (number, node) = (fresh.standing.cluster(), fresh.standing.node);
    drop(fresh);
    let text = refused(entered(&config, Some(&owner), members(&["b@h", "c@h"]), Vec::new()));
    assert!(text.contains("of the cluster a@h,b@h, but this node is to be of the cluster b@h,c@h"), "{text}");
    let found = entered(&config, Some(&owner), list, Vec::new()).unwrap();
    assert_eq!((found.standing.cluster(), found.standing.node), (number, node));
    assert_ne!(number, ClusterId(0));
    assert!(found.is_new);
}

fn newcomer(name: &str, address: &str) -> Newcomer {
    Newcomer { name: name.to_owned(), address: address.to_owned(), zone: "z".to_owned(), weight: 100 }
}

/// Has the start of this process noted, which is a change of the state.
fn register(part: &mut Part, mailboxes: &Mailboxes) {
    while part.state().members()[&part.node()].starts == 0 {
        part.step(Input::Tick, None, mailboxes, None).unwrap();
    }
}

/// What a newcomer is told at once.
fn admitted(part: &mut Part, newcomer: Newcomer) -> Admitted {
    let (answer, mut answered) = oneshot::channel();
    let mailboxes = Mailboxes::new(1);
    register(part, &mailboxes);
    let now = part.clock.now();
    assert!(request(part, Request::Newcomer { newcomer, answer }, now).is_none());
    part.advance(&mailboxes, None).unwrap();
    answered.try_recv().unwrap()
}

#[test]
fn newcomers_are_told_who_they_are_as_often_as_they_ask() {
    let data = tempfile::tempdir().unwrap();
    let mut part = part(data.path(), &["a@h"], 1);
    let standing = admitted(&mut part, newcomer("b@h", "127.0.0.1:2")).unwrap();
    assert_eq!((standing.node, standing.cluster()), (NodeId(1), part.state().cluster()));
    assert_eq!((&*standing.record().address, &*standing.record().member.zone), ("127.0.0.1:2", "z"));
    assert_eq!(standing.as_of, part.as_of());
    assert_eq!(admitted(&mut part, newcomer("b@h", "127.0.0.1:2")).unwrap().node, NodeId(1));
    assert_eq!(admitted(&mut part, newcomer("c@h", "127.0.0.1:3")).unwrap().node, NodeId(2));
    let text = admitted(&mut part, newcomer("b@h", "127.0.0.1:9")).unwrap_err();
    assert!(text.contains("b@h waits to join from 127.0.0.1:2, not 127.0.0.1:9"), "{text}");
    let text = admitted(&mut part, newcomer("a@h", "127.0.0.1:9")).unwrap_err();
    assert!(text.contains("a@h is the name of a member, which is valid"), "{text}");
    let long = "z".repeat(300);
    let text = admitted(&mut part, Newcomer { zone: long, ..newcomer("d@h", "127.0.0.1:4") }).unwrap_err();
    assert!(text.contains("longer than 255 bytes"), "{text}");
}

#[test]
fn who_is_refused_as_no_member_believes_it_of_those_who_know_as_much() {
    let data = tempfile::tempdir().unwrap();
    let part = part(data.path(), &["a@h", "b@h"], 1);
    let AsOf { epoch, commit } = part.as_of();
    assert!(!part.is_removed(AsOf { epoch, commit: commit - 1 }));
    assert!(part.is_removed(AsOf { epoch, commit: commit + 1 }));
    assert!(part.is_removed(AsOf { epoch: epoch + 1, commit: 0 }));
}

#[test]
fn shards_go_by_what_is_agreed_on_and_their_reports_carry_a_plan_out() {
    let data = tempfile::tempdir().unwrap();
    let mut part = part(data.path(), &["a@h"], 1);
    let board = Arc::clone(&part.board);
    let mailboxes = Mailboxes::new(1);
    register(&mut part, &mailboxes);
    let admit = Command::Admit {
        expected: part.state().version(),
        name: "b@h".into(),
        address: "127.0.0.1:2".into(),
        zone: String::new(),
        weight: 100,
    };
    part.step(Input::Propose { token: 1, command: admit }, None, &mailboxes, None).unwrap();
    let topology = |mailboxes: &Mailboxes| {
        let mut mail = Vec::new();
        mailboxes.of(ShardId(0)).take(&mut mail);
        mail.into_iter().rev().find_map(|it| match it {
            Mail::Topology(topology) => Some(topology),
            _ => None,
        })
    };
    let told = topology(&mailboxes).unwrap();
    assert_eq!((told.members.count(), told.is_at_rest()), (2, true));
    part.advance(&mailboxes, None).unwrap();
    assert!(!part.state().has_adopted(NodeId(0)), "no shard has said so");
    board.adopted(ShardId(0), told.epoch, BTreeSet::from([3]));
    part.advance(&mailboxes, None).unwrap();
    assert!(part.state().has_adopted(NodeId(0)));
    assert_eq!(part.publisher.next_timer(part.clock.now()), None, "nothing is due any more");

    // The other node reports, too; its shards are not here.
    let b = |command| Input::Propose { token: 2, command };
    let adopted = |part: &Part| Command::Adopted { node: NodeId(1), version: part.state().ring_version() };
    part.step(b(adopted(&part)), None, &mailboxes, None).unwrap();
    assert_eq!(ask(&mut part, ClusterPage::Commit, &json!({})).status, 200);
    part.publish(&mailboxes).unwrap();
    let shown = ask(&mut part, ClusterPage::Transfers, &json!({}));
    assert_eq!(shown.body["change"]["step"], "copying");
    assert_eq!(shown.body["change"]["to_copy"], json!(["a@h", "b@h"]));
    let (version, target) = (part.state().ring_version(), part.state().published().target.unwrap().version());
    board.adopted(ShardId(0), Epoch(version.0), BTreeSet::from([3]));
    board.copied(ShardId(0), target);
    part.advance(&mailboxes, None).unwrap();
    part.step(b(Command::Copied { node: NodeId(1), target }), None, &mailboxes, None).unwrap();
    part.step(b(adopted(&part)), None, &mailboxes, None).unwrap();
    let told = topology(&mailboxes).unwrap();
    assert!(told.before.is_some() && told.ring.owners().contains(&NodeId(1)), "{told:?}");
}

#[test]
fn a_lost_majority_is_given_up_with_the_word_for_it() {
    let data = tempfile::tempdir().unwrap();
    let mut part = part(data.path(), &["a@h", "b@h", "c@h"], 1);
    let page = ClusterPage::Recover;
    let look = |part: &mut Part| {
        let (answer, mut answered) = oneshot::channel();
        let (body, now) = (Bytes::new(), part.clock.now());
        assert!(request(part, Request::Page { page, body, answer }, now).is_none());
        answered.try_recv().unwrap().body
    };
    let shown = look(&mut part);
    assert_eq!((&shown["lost"], &shown["voters"][2]["reachable"]), (&json!(true), &json!(false)));
    assert_eq!(ask(&mut part, page, &json!({ "word": "yes" })).status, 409);
    assert_eq!(ask(&mut part, page, &json!({})).status, 400);
    assert_eq!(ask(&mut part, page, &json!({ "word": shown["word"] })).status, 200);
    register(&mut part, &Mailboxes::new(1));
    let agreed = ask(&mut part, ClusterPage::Show, &json!({})).body;
    assert_eq!((&agreed["leader"], &agreed["epoch"]), (&json!("a@h"), &json!(2)));
    assert_eq!(look(&mut part)["lost"], false);
    assert_eq!(ask(&mut part, page, &json!({ "word": shown["word"] })).status, 409);
}
