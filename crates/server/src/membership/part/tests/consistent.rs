//! What consistent bucket types need of a node's part: births, registration, publication, founding.

use super::*;
use crate::membership::consistent::GroupQuestion;
use ::membership::state::StoreBirths;
use node::{Agreement, FoundBirth};
use ring::Birth;

/// A part and the shards of its node, which keep what they are given.
struct Node {
    part: Part,
    mailboxes: Mailboxes,
    /// The births that shards were given, in order.
    given: Vec<(u16, Birth)>,
    /// What shard 0 was told last.
    agreement: Option<Arc<Agreement>>,
}

impl Node {
    fn start(data: &Path, life: u64, found: Vec<FoundBirth>) -> Node {
        let shards = u16::try_from(found.len().max(1)).unwrap();
        let config = Config { data: data.to_path_buf(), name: "a@h".to_owned(), ..Config::default() };
        let layout = Layout::new(shards, RingSize::new(16).unwrap());
        let entered = Entering { config: &config, owner: None, layout }.alone().unwrap();
        let mut part = Part::open(entered, data, life, &queue(shards).0, &policies()).unwrap();
        part.set_births(found, 4);
        let mailboxes = Mailboxes::new(shards);
        part.publish(&mailboxes).unwrap();
        let mut node = Node { part, mailboxes, given: Vec::new(), agreement: None };
        while node.part.state().members()[&NodeId(0)].start != life {
            node.part.step(Input::Tick, None, &node.mailboxes, None).unwrap();
        }
        node
    }

    /// Lets the part and the shards do what is to be done.
    fn settle(&mut self) {
        for _ in 0..8 {
            self.part.advance(&self.mailboxes, None).unwrap();
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        let board = Arc::clone(&self.part.board);
        for shard in (0..).map(ShardId).take(self.part.groups.births_count()) {
            let mut mail = Vec::new();
            self.mailboxes.of(shard).take(&mut mail);
            for mail in mail {
                match mail {
                    Mail::KeepBirth(birth) => {
                        self.given.push((shard.0, birth));
                        board.birth_kept(shard, birth);
                    }
                    Mail::Agreement(agreement) if shard.0 == 0 => self.agreement = Some(agreement),
                    _ => {}
                }
            }
        }
    }

    /// Has groups founded, as the activation of a type does.
    fn found(&mut self, n_val: u32) -> Option<Answered> {
        let (answer, mut answered) = oneshot::channel();
        let now = self.part.clock.now();
        assert!(request(&mut self.part, Request::Found { n_val, answer }, now).is_none());
        self.settle();
        answered.try_recv().ok()
    }

    fn births(&self) -> Vec<Birth> {
        let registration = self.part.state().registration(NodeId(0)).unwrap();
        registration.stores.births.to_vec()
    }
}

fn nothing_stored(shards: usize) -> Vec<FoundBirth> {
    vec![FoundBirth { stored: None, is_complete: true, is_restored: false, only_voter: None }; shards]
}

fn stored(births: &[Birth]) -> Vec<FoundBirth> {
    births
        .iter()
        .map(|&birth| FoundBirth {
            stored: Some(birth),
            is_complete: true,
            is_restored: false,
            only_voter: None,
        })
        .collect()
}

#[test]
fn the_folder_of_an_older_copy_counts_its_start_when_its_stores_keep_new_births() {
    let data = tempfile::tempdir().unwrap();
    let mut first = Node::start(data.path(), 5, nothing_stored(2));
    while first.found(3).is_none() {}
    let births = first.births();
    drop(first);

    let mut older = Node::start(data.path(), 6, stored(&births));
    older.settle();
    older.part.on_older_copy(70);
    older.part.advance(&older.mailboxes, None).unwrap();
    let next_start = |node: &Node| node.part.storage.next_start(&node.part.standing).unwrap();
    assert!(next_start(&older) < 70, "a process that ends now is told again");
    older.settle();
    assert_eq!(next_start(&older), 71);
    assert!(older.births().iter().all(|birth| !births.contains(birth)));
}

#[test]
fn a_node_alone_founds_groups_and_goes_on_with_its_births() {
    let data = tempfile::tempdir().unwrap();
    let mut first = Node::start(data.path(), 5, nothing_stored(2));
    first.settle();
    assert_eq!(
        (&first.given[..], first.agreement.is_none()),
        (&[][..], true),
        "no consistent type is wanted"
    );
    let mut answered = first.found(3);
    // The first look is before the registration, and the next one a moment later.
    while answered.is_none() {
        answered = first.found(3);
    }
    assert_eq!(answered.unwrap().status, 200);
    let births = first.births();
    assert_eq!(first.given, [(0, births[0]), (1, births[1])]);
    let told = first.agreement.clone().unwrap();
    assert_eq!(told.processes[&NodeId(0)].life, 5);
    let voters = told.foundings[&3].voters(3, 0, RingSize::new(16).unwrap());
    assert_eq!(voters, [(NodeId(0), births[0])]);
    assert_eq!(first.found(3).unwrap().status, 200, "they are founded");
    drop(first);

    let mut second = Node::start(data.path(), 6, stored(&births));
    second.settle();
    assert_eq!(
        (second.births(), second.agreement.clone().unwrap()),
        (births.clone(), {
            let stores = StoreBirths { ring_bits: 4, births: births.clone().into() };
            let process = node::RegisteredProcess { life: 6, stores };
            Arc::new(Agreement {
                processes: Arc::new([(NodeId(0), process)].into()),
                ..Agreement::clone(&told)
            })
        })
    );
    drop(second);

    let mut third = Node::start(data.path(), 7, vec![stored(&births)[0], nothing_stored(1)[0]]);
    third.settle();
    assert_eq!(third.births()[0], births[0]);
    assert_ne!(third.births()[1], births[1], "its store was lost");
    third.part.board.forgot(ShardId(0), Some(births[0]));
    third.settle();
    assert_ne!(third.births()[0], births[0], "it found out that it forgot");
    let now = third.agreement.unwrap();
    assert_eq!(now.foundings, told.foundings, "the first voters stay the ones that were");
}

#[test]
fn groups_are_not_founded_where_they_cannot_be() {
    let data = tempfile::tempdir().unwrap();
    let mut node = Node::start(data.path(), 5, nothing_stored(1));
    for n_val in [0, 8, 300] {
        let answered = node.found(n_val).unwrap();
        assert_eq!(answered.status, 409);
        let text = answered.body["error"].as_str().unwrap().to_owned();
        assert!(text.contains("n_val from 1 to 7"), "{text}");
    }
    assert!(!node.part.state().registers_stores(), "nothing was proposed");
    let admit = Command::Admit {
        expected: node.part.state().version(),
        name: "b@h".into(),
        address: "127.0.0.1:2".into(),
        zone: String::new(),
        weight: 100,
    };
    node.part.step(Input::Propose { token: 1, command: admit }, None, &node.mailboxes, None).unwrap();
    let answered = node.found(3).unwrap();
    assert_eq!(answered.status, 409, "what is published is not adopted yet: {}", answered.body);
}

#[test]
fn partitions_of_groups_stay() {
    let data = tempfile::tempdir().unwrap();
    let mut node = Node::start(data.path(), 5, nothing_stored(1));
    while node.found(1).is_none() {}
    let pinned = |answered: Answered| {
        assert_eq!(answered.status, 409);
        let text = answered.body["error"].as_str().unwrap().to_owned();
        assert!(text.contains("partitions do not move while there are consistent bucket types"), "{text}");
    };
    pinned(ask(&mut node.part, ClusterPage::ResizeRing, &json!({ "partitions": 32 })));
    let adopt = |node: &mut Node| {
        let version = node.part.state().ring_version();
        for id in [0, 1].map(NodeId) {
            let command = Command::Adopted { node: id, version };
            node.part.step(Input::Propose { token: 2, command }, None, &node.mailboxes, None).unwrap();
        }
    };
    let admit = Command::Admit {
        expected: node.part.state().version(),
        name: "b@h".into(),
        address: "127.0.0.1:2".into(),
        zone: String::new(),
        weight: 100,
    };
    node.part.step(Input::Propose { token: 1, command: admit }, None, &node.mailboxes, None).unwrap();
    adopt(&mut node);
    let plan = ask(&mut node.part, ClusterPage::Plan, &json!({}));
    let warning = "partitions do not move while there are consistent bucket types: a commit is refused";
    assert_eq!((plan.status, &plan.body["warnings"][0]), (200, &json!(warning)));
    pinned(ask(&mut node.part, ClusterPage::Commit, &json!({})));
    assert_eq!(ask(&mut node.part, ClusterPage::Clear, &json!({})).status, 200);
    assert!(has_groups(data.path()).unwrap(), "a backup with its log has groups");
    assert!(!has_groups(tempfile::tempdir().unwrap().path()).unwrap());
}

fn shown(node: &mut Node) -> serde_json::Value {
    let (answer, mut answered) = oneshot::channel();
    node.part.groups.answer(GroupQuestion::Show { answer }, &node.part.membership);
    answered.try_recv().unwrap().body
}

#[test]
fn operators_see_foundings_and_registrations() {
    let data = tempfile::tempdir().unwrap();
    let mut node = Node::start(data.path(), 0xAB, nothing_stored(2));
    assert_eq!(shown(&mut node)["registers"], false);
    while node.found(3).is_none() {}
    let shown = shown(&mut node);
    let births: Vec<String> = node.births().iter().map(|birth| format!("{:012x}", birth.number())).collect();
    let member =
        json!({ "name": "a@h", "registered": true, "process": "00000000000000ab", "births": births });
    assert_eq!((&shown["registers"], &shown["members"]), (&json!(true), &json!([member])));
    let founding = &shown["foundings"][0];
    assert_eq!((&founding["n_val"], &founding["partitions"]), (&json!(3), &json!(16)));
    assert_eq!(founding["nodes"], json!(["a@h"]));
}
