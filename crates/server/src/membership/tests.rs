//! A node's part, answering operators.
#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;
use serde_json::json;

fn part(data: &Path, names: &[&str], life: u64) -> Part {
    let members = Members::new(names.iter().copied(), names[0]).unwrap();
    let addresses = (0..names.len()).map(|at| format!("127.0.0.1:{}", 1000 + at)).collect();
    let ring_size = RingSize::new(16).unwrap();
    Part::open(&Founding { data, members: &members, addresses, ring_size, life }).unwrap()
}

fn ask(part: &mut Part, page: ClusterPage, body: &serde_json::Value) -> Answered {
    let (answer, mut answered) = oneshot::channel();
    let mailboxes = Mailboxes::new(1);
    let body = Bytes::from(body.to_string());
    part.step(Input::Tick, None, &mailboxes).unwrap();
    if let Some(input) = part.operators.ask(page, &body, answer, &part.membership) {
        part.step(input, None, &mailboxes).unwrap();
    }
    answered.try_recv().unwrap()
}

#[test]
fn a_node_alone_leads_itself_and_leaves_nothing_on_the_disk() {
    let data = tempfile::tempdir().unwrap();
    let mut part = part(data.path(), &["a@h"], 1);
    let shown = ask(&mut part, ClusterPage::Show, &json!({}));
    assert_eq!(shown.status, 200);
    assert_eq!((&shown.body["leader"], &shown.body["here"]), (&json!("a@h"), &json!("a@h")));
    assert_eq!(shown.body["members"][0]["partitions"], 16);
    assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 0);
}

#[test]
fn operators_are_told_what_is_wrong() {
    let data = tempfile::tempdir().unwrap();
    let mut part = part(data.path(), &["a@h"], 1);
    let status = |part: &mut Part, page, body| ask(part, page, &body).status;
    assert_eq!(status(&mut part, ClusterPage::Commit, json!({})), 501);
    assert_eq!(status(&mut part, ClusterPage::Join, json!({ "node": "127.0.0.1:1" })), 501);
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
    let mut again = part(data.path(), &names, 2);
    assert_eq!(again.membership.log().identity().starts, 2);
    assert_eq!(ask(&mut again, ClusterPage::Show, &json!({})).body["cluster"], shown.body["cluster"]);
    // Another list of members is another cluster.
    let members = Members::new(["a@h", "b@h"], "a@h").unwrap();
    let ring_size = RingSize::new(16).unwrap();
    let founding =
        Founding { data: data.path(), members: &members, addresses: Vec::new(), ring_size, life: 3 };
    assert!(matches!(Part::open(&founding), Err(FilesError::Invalid(..))));
}
