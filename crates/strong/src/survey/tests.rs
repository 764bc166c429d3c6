//! The choice among copies: by hand, and against a model of a replicated log.

use super::*;
use base::Rng;
use base::rng::SplitMix64;
use ring::Birth;
use std::collections::BTreeSet;

/// Nodes below `held` are restored, the others are as they were.
struct Restored {
    held: u16,
}

fn voter(node: u16) -> VoterId {
    VoterId { node: NodeId(node), birth: Birth::of(u64::from(node) + 1).unwrap() }
}

impl Stores for Restored {
    fn is_held(&self, node: NodeId) -> bool {
        node.0 < self.held
    }

    fn votes(&self, voter: VoterId) -> bool {
        voter.node.0 >= self.held
    }
}

/// A copy at a node of three.
fn copy(node: u16, epoch: u16, term: u64, index: u64) -> GroupCopy {
    let configuration = Configuration::of_voters((0..3).map(voter));
    GroupCopy {
        node: NodeId(node),
        rank: node.into(),
        epoch,
        last: (index, term),
        configuration,
        fault: None,
    }
}

fn chosen(copies: &[GroupCopy]) -> Chosen {
    match choose(copies, 3, &Restored { held: 3 }) {
        Choice::Copy(chosen) => chosen,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_best_copy_is_of_the_highest_epoch_then_term_then_index() {
    let best = |copies: &[(u16, u64, u64)]| {
        let copies = (0..).zip(copies).map(|(node, &(epoch, term, index))| copy(node, epoch, term, index));
        chosen(&copies.collect::<Vec<_>>()).node.0
    };
    assert_eq!(best(&[(0, 2, 9), (0, 3, 5), (0, 3, 4)]), 1, "the last term comes before the length");
    assert_eq!(best(&[(0, 3, 4), (0, 3, 5), (0, 3, 6)]), 2);
    assert_eq!(best(&[(1, 2, 4), (0, 9, 9), (0, 9, 9)]), 0, "a later epoch has later writes");
    assert_eq!(best(&[(0, 3, 4), (0, 3, 4), (0, 3, 4)]), 0, "the first on the list");
}

#[test]
fn a_choice_tells_differences_and_possible_losses() {
    let well = Chosen { node: NodeId(0), is_empty: false, differs: false, may_lack_writes: false };
    let copies = [0, 1, 2].map(|node| copy(node, 0, 2, 5));
    assert_eq!(chosen(&copies), well);
    assert_eq!(chosen(&copies[..2]), well, "two of three have every acknowledged write");
    assert_eq!(chosen(&copies[..1]), Chosen { may_lack_writes: true, ..well });
    assert!(chosen(&[copies[0].clone(), copy(1, 0, 2, 4)]).differs);
    let empty = [0, 1, 2].map(|node| copy(node, 0, 1, 1));
    assert_eq!(chosen(&empty), Chosen { is_empty: true, ..well });
    let mut damaged = copies;
    damaged[0].fault = Some(CopyFault::CatchUp);
    assert_eq!(chosen(&damaged).node, NodeId(1));
    damaged[1].fault = Some(CopyFault::Suspect);
    assert_eq!(chosen(&damaged), Chosen { node: NodeId(2), may_lack_writes: true, ..well });
}

#[test]
fn groups_that_live_or_have_a_voter_left_are_not_touched() {
    let copies = [0, 1, 2].map(|node| copy(node, 0, 2, 5));
    let of = |copies: &[GroupCopy], held| choose(copies, 3, &Restored { held });
    assert_eq!(of(&copies, 1), Choice::Lives, "two of three were not restored");
    assert_eq!(of(&copies, 2), Choice::Refused(Refusal::VoterLeft(NodeId(2))));
    assert_eq!(of(&[], 3), Choice::Refused(Refusal::NoCopy));
    let mut damaged = copies.clone();
    damaged.iter_mut().for_each(|it| it.fault = Some(CopyFault::Damaged));
    assert_eq!(of(&damaged, 3), Choice::Refused(Refusal::NoCopy));

    // The old half of a joint configuration has lost its majority with the first node.
    let mut joint = copies.clone();
    let lost = VoterId { node: NodeId(0), birth: Birth::of(99).unwrap() };
    joint.iter_mut().for_each(|it| it.configuration.outgoing = [voter(0), lost].into());
    assert_eq!(of(&joint, 1), Choice::Refused(Refusal::VoterLeft(NodeId(1))));
    assert!(matches!(of(&joint, 3), Choice::Copy(_)));

    // The third node was not restored, and has no vote any more.
    let mut elsewhere = copies;
    elsewhere.iter_mut().for_each(|it| it.configuration = Configuration::of_voters([voter(0)]));
    assert!(matches!(of(&elsewhere, 2), Choice::Copy(_)));
    elsewhere[2].last = (6, 2);
    assert_eq!(of(&elsewhere, 2), Choice::Refused(Refusal::BetterElsewhere(NodeId(2))));
}

#[test]
fn faults_have_names() {
    for fault in CopyFault::ALL {
        assert_eq!(CopyFault::named(&fault.to_string()), Some(fault));
    }
    assert_eq!(CopyFault::named("fine"), None);
}

/// A replicated log by the rules of Raft, without messages: an election and an append each reach some nodes.
struct Model {
    logs: Vec<Vec<u64>>,
    /// The highest term that each node has voted in or heard of.
    terms: Vec<u64>,
    /// The leader with its term.
    leader: Option<(usize, u64)>,
    /// Entries (index, term) in the order in which they were acknowledged.
    acknowledged: Vec<(usize, u64)>,
}

impl Model {
    fn of(nodes: usize) -> Model {
        Model { logs: vec![vec![1]; nodes], terms: vec![1; nodes], leader: None, acknowledged: Vec::new() }
    }

    fn some(&self, rng: &mut SplitMix64) -> Vec<usize> {
        (0..self.logs.len()).filter(|_| rng.chance(1, 2)).collect()
    }

    fn is_majority(&self, nodes: &BTreeSet<usize>) -> bool {
        nodes.len() > self.logs.len() / 2
    }

    fn elect(&mut self, rng: &mut SplitMix64) {
        let candidate = usize::try_from(rng.below(self.logs.len() as u64)).unwrap();
        let term = self.terms[candidate] + 1;
        let order = |log: &[u64]| (*log.last().unwrap(), log.len());
        let own = order(&self.logs[candidate]);
        let mut votes = BTreeSet::from([candidate]);
        self.terms[candidate] = term;
        for node in self.some(rng) {
            if node != candidate && self.terms[node] < term {
                self.terms[node] = term;
                if order(&self.logs[node]) <= own {
                    votes.insert(node);
                }
            }
        }
        if self.is_majority(&votes) {
            self.leader = Some((candidate, term));
            // Its first entry.
            self.logs[candidate].push(term);
        }
    }

    /// The leader proposes an entry, and sends its log, or the beginning of it, to some.
    fn append(&mut self, rng: &mut SplitMix64) {
        let Some((leader, term)) = self.leader.filter(|(leader, term)| self.terms[*leader] == *term) else {
            return;
        };
        if rng.chance(1, 2) {
            self.logs[leader].push(term);
        }
        let log = self.logs[leader].clone();
        let mut has_all = BTreeSet::from([leader]);
        for node in self.some(rng) {
            if node == leader || self.terms[node] > term {
                continue;
            }
            self.terms[node] = term;
            let sent = 1 + usize::try_from(rng.below(log.len() as u64)).unwrap();
            let is_there = self.logs[node].len() >= sent && self.logs[node][..sent] == log[..sent];
            if !is_there {
                self.logs[node] = log[..sent].to_vec();
            }
            if self.logs[node].len() >= log.len() && self.logs[node][..log.len()] == log[..] {
                has_all.insert(node);
            }
        }
        if self.is_majority(&has_all) {
            // An entry of the leader's term, with all below it.
            self.acknowledged.push((log.len(), term));
        }
    }

    fn step(&mut self, rng: &mut SplitMix64) {
        if rng.chance(1, 5) { self.elect(rng) } else { self.append(rng) }
    }

    /// The copy that a backup of this node has now.
    fn backup(&self, node: usize) -> (GroupCopy, Vec<u64>) {
        let log = self.logs[node].clone();
        let last = (log.len() as u64, *log.last().unwrap());
        let number = u16::try_from(node).unwrap();
        let configuration =
            Configuration::of_voters((0..self.logs.len()).map(|it| voter(u16::try_from(it).unwrap())));
        let node = NodeId(number);
        (GroupCopy { node, rank: number.into(), epoch: 0, last, configuration, fault: None }, log)
    }
}

#[test]
fn the_chosen_copy_has_all_that_was_acknowledged_before_the_first_backup() {
    let (mut checked, mut differed) = (0, 0);
    for seed in 0..4_000 {
        let rng = &mut SplitMix64::new(seed);
        let nodes = [1, 2, 3, 5][usize::try_from(rng.below(4)).unwrap()];
        let mut model = Model::of(nodes);
        for _ in 0..rng.below(60) {
            model.step(rng);
        }
        let acknowledged = model.acknowledged.clone();

        // The nodes are backed up at different times; some backups are lost.
        let mut order: Vec<usize> = (0..nodes).collect();
        for at in (1..nodes).rev() {
            order.swap(at, usize::try_from(rng.below(at as u64 + 1)).unwrap());
        }
        let mut backups = Vec::new();
        for node in order {
            if rng.chance(4, 5) {
                backups.push(model.backup(node));
            }
            for _ in 0..rng.below(20) {
                model.step(rng);
            }
        }
        let copies: Vec<GroupCopy> = backups.iter().map(|(copy, _)| copy.clone()).collect();
        let held = u16::try_from(nodes).unwrap();
        let Choice::Copy(chosen) = choose(&copies, nodes, &Restored { held }) else { continue };
        differed += u32::from(chosen.differs);
        if chosen.may_lack_writes {
            continue;
        }
        let (_, log) = backups.iter().find(|(copy, _)| copy.node == chosen.node).unwrap();
        for (index, term) in acknowledged {
            checked += 1;
            assert_eq!(log.get(index - 1), Some(&term), "seed {seed}: entry {index}");
        }
    }
    assert!(checked > 5_000 && differed > 500, "{checked} entries, {differed} choices");
}
