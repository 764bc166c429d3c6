use super::*;
use serde_json::{Value, json};

/// The number of the voter that the store of this birth is at a node.
fn voter(node: u16, birth: u64) -> String {
    format!("{:016x}", u64::from(node) << 48 | birth)
}

/// The survey of a node of three, with a copy of each of two groups. The last entries of the first one are given.
fn survey(node: u16, held: bool, last: (u64, u64)) -> Value {
    let voters = [0, 1, 2].map(|node| voter(node, 7));
    let copy = |prefix: u16, last: (u64, u64)| {
        json!({
            "n_val": 3, "prefix": prefix, "rank": node, "epoch": 0, "last": last, "voters": voters, "outgoing": [],
            "fault": null,
        })
    };
    json!({
        "survey": "0a", "cluster": "c", "here": format!("n{node}@h"), "node": node, "held": held, "registered": !held,
        "births": if held { vec![] } else { vec!["000000000007"] }, "prefixes": 2,
        "foundings": [{ "n_val": 3, "number": "f", "epoch": 0, "nodes": ["n0@h", "n1@h", "n2@h"], "copies": 3 }],
        "copies": [copy(0, last), copy(1, (1, 1))],
    })
}

fn read(surveys: &[Value]) -> Vec<Survey> {
    surveys.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect()
}

fn plan(surveys: &[Value], without: &[&str]) -> Result<Plan, String> {
    let without: Vec<String> = without.iter().map(|it| (*it).to_owned()).collect();
    Plan::of(&read(surveys), &without).map_err(|failure| failure.text)
}

fn told(plan: &Plan) -> String {
    let mut out = Vec::new();
    plan.tell(&mut out).ok().unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn each_group_goes_on_from_its_best_copy() {
    let all = [survey(0, true, (5, 2)), survey(1, true, (6, 2)), survey(2, true, (6, 2))];
    let plan = plan(&all, &[]).unwrap();
    let of = |name: &str| plan.chosen[name].clone();
    assert_eq!(of("n0@h"), [(3, vec![1])].into(), "copies without an entry are equal: the first of the list");
    assert_eq!(of("n1@h"), [(3, vec![0])].into());
    assert_eq!(of("n2@h"), BTreeMap::new(), "it is released without a group");
    let expected = [
        "2 groups, 6 copies found",
        "3 nodes held back: n0@h, n1@h, n2@h",
        "2 groups can be recovered",
        "1 group of these without an entry on any node",
        "1 group of these with copies that differ: the best one is taken",
    ];
    assert_eq!(told(&plan).lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_node_that_is_away_is_given_up_by_name() {
    let two = [survey(0, true, (5, 2)), survey(1, true, (6, 2))];
    let error = plan(&two, &[]).unwrap_err();
    assert!(error.starts_with("not surveyed: 1 of 3 nodes: n2@h. Add their HTTP ports"), "{error}");
    assert_eq!(plan(&two, &["n2@h"]).unwrap().counts.lacking, 0, "two of three have all writes");
    let one = plan(&two[..1], &["n1@h", "n2@h"]).unwrap();
    assert_eq!((one.counts.recoverable, one.counts.lacking), (2, 2));
    assert_eq!(plan(&two, &["n1@h", "n2@h"]).unwrap_err(), "n1@h has answered: it cannot be left out");
    assert_eq!(plan(&two, &["n9@h", "n2@h"]).unwrap_err(), "n9@h is no node with groups");
    assert_eq!(plan(&[two[0].clone(), two[0].clone()], &[]).unwrap_err(), "n0@h was named twice");
    let mut other = two[1].clone();
    other["cluster"] = "d".into();
    assert_eq!(plan(&[two[0].clone(), other], &[]).unwrap_err(), "n0@h and n1@h are of different clusters");
    assert!(plan(&[], &[]).is_err());
}

#[test]
fn groups_with_a_majority_are_kept_and_those_with_a_voter_left_are_refused() {
    let one =
        plan(&[survey(0, true, (5, 2)), survey(1, false, (6, 2)), survey(2, false, (6, 2))], &[]).unwrap();
    assert_eq!((one.counts.kept, one.counts.recoverable), (2, 0));
    assert_eq!(one.chosen, [("n0@h".to_owned(), BTreeMap::new())].into(), "it is released");
    let two =
        plan(&[survey(0, true, (5, 2)), survey(1, true, (6, 2)), survey(2, false, (6, 2))], &[]).unwrap();
    assert_eq!(two.refused.len(), 2);
    assert_eq!(two.refused[0], "n_val 3 prefix 0: refused: a node that was not restored still has a vote");
    let none = plan(&[0, 1, 2].map(|node| survey(node, false, (5, 2))), &[]).unwrap();
    assert!(none.is_idle());
    assert!(told(&none).contains("0 nodes held back: none\n2 groups kept"), "{}", told(&none));
}

#[test]
fn copies_that_cannot_be_used_are_counted() {
    let mut all = [survey(0, true, (9, 2)), survey(1, true, (6, 2)), survey(2, true, (6, 2))];
    all[0]["copies"][0]["fault"] = "catch-up".into();
    let plan_of_all = plan(&all, &[]).unwrap();
    assert_eq!(plan_of_all.chosen["n1@h"], [(3, vec![0])].into());
    assert_eq!((plan_of_all.counts.faulty, plan_of_all.counts.lacking), (1, 0));
    all[0]["copies"][0]["fault"] = "newer than this program".into();
    assert_eq!(plan(&all, &[]).unwrap_err(), "node 0 answers with an unknown copy of a group");
}
