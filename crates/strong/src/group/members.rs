//! The voters of a group, and their replacement.
//!
//! A store that lost its data is another voter from then on: it has another birth. The caller says which voters the
//! nodes of the group have now ([`super::Input::Listed`]). A voter whose node has another one is *lost*: nothing is
//! heard of it any more. The leader puts the new one in its place, by entries with the whole configuration:
//!
//! 1. The new voter becomes a learner: it gets the log, or a catch-up.
//! 2. When it has caught up, one joint configuration takes it in and drops the lost one.
//! 3. When that is applied, the joint configuration is left.
//!
//! Invariants: the configuration in force at a voter is that of the last entry in its log that has one, committed or
//! not; entries that are replaced take theirs with them. At most one entry with a configuration is not applied at a
//! leader, and none is proposed before the leader's first entry is applied. A new leader goes on with the configuration
//! that it finds. The state with a configuration is handed out before its entry is applied, so a start has the
//! configuration of its applied entries or a later committed one.
//!
//! A configuration in force from its commit on would not do: a leader that commits the end of a joint configuration,
//! and is lost before others hear of it, would leave voters that count on the lost store for ever.
//!
//! Left out: changes of the nodes of a group, and of their number.

use std::collections::BTreeSet;

use raft::Changer;
use raft::eraftpb::{ConfChangeSingle, ConfChangeType};

use super::Group;
use super::configuration::Configuration;
use super::entry::{Entry, Payload};
use super::identity::VoterId;

/// Entries that a learner may lack when it gets its vote: what is on its way in a round trip of a busy group.
const LEARNER_LAG_MAX: u64 = 64;

/// A step of the library from one configuration to another.
#[derive(Debug)]
enum Step {
    /// Leave the joint configuration.
    Leave,
    /// Change one voter, or learners.
    Simple(Vec<ConfChangeSingle>),
    /// Enter a joint configuration.
    Enter(Vec<ConfChangeSingle>),
}

impl Group {
    /// Learns which voters nodes of the group have now.
    pub(super) fn on_listed(&mut self, voters: Vec<VoterId>) {
        for voter in voters {
            self.listed.insert(voter.node, voter);
        }
        self.note_members();
    }

    /// Whether the node of a voter has another one now.
    pub(super) fn is_lost(&self, voter: VoterId) -> bool {
        self.listed.get(&voter.node).is_some_and(|listed| *listed != voter)
    }

    /// Whether a voter may send messages: a member, or the one that a node has now.
    pub(super) fn is_peer(&self, voter: VoterId) -> bool {
        let is_known = self.listed.get(&voter.node).is_some_and(|listed| *listed == voter);
        voter != self.identity.voter && (is_known || self.members().has(voter) && !self.is_lost(voter))
    }

    /// Whether a voter counts as reachable, so that a settled group is settled with it.
    pub fn reaches(&self, voter: VoterId) -> bool {
        self.timers.reaches(voter) && !self.is_lost(voter)
    }

    /// The voters and learners in force.
    pub fn members(&self) -> &Configuration {
        &self.raw.store().in_force
    }

    /// Listed voters without a vote, each with the lost one in its place, if there is one.
    fn replacements(&self) -> impl Iterator<Item = (Option<VoterId>, VoterId)> {
        let voters = &self.members().voters;
        let missing = self.listed.values().filter(|listed| !voters.contains(listed));
        missing.map(|new| (voters.iter().copied().find(|voter| voter.node == new.node), *new))
    }

    /// Notes whether a change is to be looked for in each step.
    fn note_members(&mut self) {
        let Configuration { outgoing, learners, .. } = self.members();
        self.is_changing =
            !outgoing.is_empty() || !learners.is_empty() || self.replacements().next().is_some();
    }

    /// Whether a leader has a configuration to propose.
    pub(super) fn has_change_due(&self) -> bool {
        self.is_changing && self.next_configuration().is_some()
    }

    /// Proposes the next configuration on the way to the listed voters, if one is due; whether it did.
    pub(super) fn change_members(&mut self) -> bool {
        if !self.is_changing || !self.is_ready() || self.has_forgotten || self.is_full(0) {
            return false;
        }
        if self.raw.store().last_configuration(self.applied).is_some() {
            return false;
        }
        let Some(next) = self.next_configuration() else { return false };
        // The library refuses only to a voter that does not lead.
        self.raw.propose(Vec::new(), Payload::Configuration(next).encode().into()).is_ok()
    }

    /// The configuration that follows the present one.
    fn next_configuration(&self) -> Option<Configuration> {
        let Configuration { voters, outgoing, learners } = self.members().clone();
        if !outgoing.is_empty() {
            return Some(Configuration { voters, outgoing: BTreeSet::new(), learners });
        }
        if let Some((lost, new)) = self.replacements().find(|(_, new)| self.has_caught_up(*new)) {
            let (mut incoming, mut learners) = (voters.clone(), learners);
            lost.map(|lost| incoming.remove(&lost));
            incoming.insert(new);
            learners.remove(&new);
            return Some(Configuration { voters: incoming, outgoing: voters, learners });
        }
        let is_wanted =
            |new: &VoterId| learners.contains(new) || self.reaches(*new) && !self.is_forgetful(*new);
        let wanted: BTreeSet<VoterId> = self.replacements().map(|(_, new)| new).filter(is_wanted).collect();
        (wanted != learners).then_some(Configuration { voters, outgoing, learners: wanted })
    }

    /// Whether a learner has all keys, and nearly all entries.
    fn has_caught_up(&self, learner: VoterId) -> bool {
        let is_near = |index: u64| index > 0 && index + LEARNER_LAG_MAX >= self.commit();
        let progress = self.raw.raft.prs().get(learner.number());
        self.members().learners.contains(&learner)
            && self.reaches(learner)
            && !self.is_forgetful(learner)
            && !self.catch_ups.receivers().any(|receiver| receiver == learner)
            && progress.is_some_and(|it| is_near(it.matched) && is_near(it.committed_index))
    }

    /// Hands out the state with the last configuration of entries that are about to be applied.
    pub(super) fn keep_configuration(&mut self, entries: &[Entry]) {
        let log = self.raw.mut_store();
        let last = entries.iter().rev().find_map(|entry| entry.payload.configuration());
        if let Some(configuration) = last.filter(|last| **last != log.configuration) {
            log.configuration.clone_from(configuration);
            let (number, state) = (self.outbox.last(), Some(self.state()));
            self.write(number, state, None, Vec::new());
        }
    }

    /// Puts the last configuration of the log into force, if entries were added or replaced.
    pub(super) fn follow_configuration(&mut self, is_appended: bool, has_configuration: bool) {
        let log = self.raw.store();
        if has_configuration || is_appended && log.in_force != log.configuration {
            let last = log.last_configuration(self.applied).unwrap_or(&log.configuration).clone();
            self.reconfigure(&last);
        }
    }

    fn reconfigure(&mut self, next: &Configuration) {
        let current = self.members().clone();
        if current == *next {
            return;
        }
        let raft = &mut self.raw.raft;
        let index = raft.raft_log.last_index();
        for step in steps(&current, next) {
            let mut changer = Changer::new(raft.prs());
            let changed = match &step {
                Step::Leave => changer.leave_joint(),
                Step::Simple(changes) => changer.simple(changes),
                Step::Enter(changes) => changer.enter_joint(false, changes),
            };
            let (configuration, changes) = changed.expect("the steps lead from each to each configuration");
            raft.mut_prs().apply_conf(configuration, changes, index);
        }
        // Only now, so that nothing is committed in between.
        let in_force = raft.post_conf_change();
        debug_assert_eq!(Configuration::of_conf_state(&in_force).as_ref(), Some(next), "it is in force");
        self.raw.mut_store().in_force = next.clone();
        self.on_reconfigured();
    }

    /// Follows another configuration.
    pub(super) fn on_reconfigured(&mut self) {
        let gone: Vec<VoterId> =
            self.catch_ups.receivers().filter(|voter| !self.members().has(*voter)).collect();
        gone.into_iter().for_each(|voter| self.end_catch_up(voter));
        self.commit_notes.keep(&self.raw.store().in_force);
        self.note_members();
    }
}

/// The steps from one configuration to another.
fn steps(current: &Configuration, next: &Configuration) -> Vec<Step> {
    use ConfChangeType::{AddLearnerNode, AddNode, RemoveNode};
    let is_joint = !next.outgoing.is_empty();
    let base = if is_joint { &next.outgoing } else { &next.voters };
    let mut steps = Vec::new();
    if !current.outgoing.is_empty() {
        steps.push(Step::Leave);
    }
    // One by one, as the library wants it. Those that come are first, so there is always a voter.
    let coming = changes(base.difference(&current.voters), AddNode);
    let going = changes(current.voters.difference(base), RemoveNode);
    steps.extend(coming.into_iter().chain(going).map(|change| Step::Simple(vec![change])));
    let idle = changes(current.learners.iter().filter(|voter| !next.has(**voter)), RemoveNode);
    if !idle.is_empty() {
        steps.push(Step::Simple(idle));
    }

    let mut last = changes(next.learners.difference(&current.learners), AddLearnerNode);
    if is_joint {
        last.extend(changes(next.voters.difference(base), AddNode));
        last.extend(changes(base.difference(&next.voters), RemoveNode));
        steps.push(Step::Enter(last));
    } else if !last.is_empty() {
        steps.push(Step::Simple(last));
    }
    steps
}

fn changes<'a>(voters: impl Iterator<Item = &'a VoterId>, kind: ConfChangeType) -> Vec<ConfChangeSingle> {
    let change = |voter: &VoterId| {
        let mut change = ConfChangeSingle::default();
        change.set_change_type(kind);
        change.node_id = voter.number();
        change
    };
    voters.map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::SplitMix64;
    use base::{Monotonic, Rng};

    use crate::group::{GroupState, Identity, Input, Message, Output, Progress, Stored};

    /// A configuration of some of eight voters.
    fn some(rng: &mut SplitMix64) -> Configuration {
        let mut configuration = Configuration::default();
        for number in 1..9 {
            let voter = VoterId::of_number(number).unwrap();
            match rng.below(6) {
                0 => drop(configuration.voters.insert(voter)),
                1 => drop(configuration.outgoing.insert(voter)),
                2 => {
                    configuration.voters.insert(voter);
                    configuration.outgoing.insert(voter);
                }
                3 => drop(configuration.learners.insert(voter)),
                _ => {}
            }
        }
        if rng.chance(1, 2) {
            configuration.outgoing.clear();
        }
        configuration
    }

    #[test]
    fn each_configuration_is_reached_from_each() {
        let mut rng = SplitMix64::new(1);
        for _ in 0..2_000 {
            let (first, second) = (some(&mut rng), some(&mut rng));
            if first.voters.is_empty() || second.voters.is_empty() {
                continue;
            }
            let stored = Stored {
                state: GroupState::found(1, first.clone()),
                progress: Progress::FOUNDED,
                base: Progress::FOUNDED.applied,
                entries: Vec::new(),
                suspect_through: None,
                is_incomplete: false,
            };
            let identity = Identity { voter: VoterId::of_number(1).unwrap(), rank: 0, founding: 1 };
            let mut group = Group::open(identity, stored, Box::new(SplitMix64::new(1))).ok().unwrap();
            for next in [&second, &second, &first] {
                group.reconfigure(next);
                assert_eq!(group.members(), next);
            }
        }
    }

    /// An entry may name the new voter of a node before the caller has heard of it.
    #[test]
    fn a_voter_that_an_entry_names_is_as_far_as_its_node() {
        let [here, before, after] =
            [(0, 1), (1, 2), (1, 3)].map(|(node, birth)| VoterId::of_number(node << 48 | birth).unwrap());
        let [first, next] = [before, after].map(|other| Configuration::of_voters([here, other]));
        let stored = Stored {
            state: GroupState::found(1, first),
            progress: Progress::FOUNDED,
            base: Progress::FOUNDED.applied,
            entries: Vec::new(),
            suspect_through: None,
            is_incomplete: false,
        };
        let identity = Identity { voter: here, rank: 0, founding: 1 };
        let mut group = Group::open(identity, stored, Box::new(SplitMix64::new(1))).ok().unwrap();
        let reach = |group: &mut Group, voter, is_up| {
            group.step(Input::Reachable { voter, is_up }, Monotonic(0), &mut Vec::new());
        };

        reach(&mut group, before, false);
        group.reconfigure(&next);
        assert!(!group.reaches(after));
        reach(&mut group, after, true);
        assert!(group.reaches(after));
    }

    #[test]
    fn states_of_a_learner_name_it() {
        let [leader, other, learner] = [1, 2, 3].map(|number| VoterId::of_number(number).unwrap());
        let before = Configuration::of_voters([leader, other]);
        let stored = Stored {
            state: GroupState::found(1, before.clone().with_learner(learner)),
            progress: Progress::FOUNDED,
            base: Progress::FOUNDED.applied,
            entries: Vec::new(),
            suspect_through: None,
            is_incomplete: false,
        };
        let identity = Identity { voter: learner, rank: 0, founding: 1 };
        let mut group = Group::open(identity, stored, Box::new(SplitMix64::new(1))).ok().unwrap();
        let now = Monotonic(0);
        let mut out = Vec::new();
        group.step(Input::Registered, now, &mut out);

        let alone = Configuration::of_voters([leader]);
        let payloads = [alone, before.clone(), before.with_learner(learner)].map(Payload::Configuration);
        let entries = (2..).zip(payloads).map(|(index, payload)| Entry { index, term: 2, payload });
        let (commit, entries) = (3, entries.collect());
        let message = Message::Append { term: 2, previous: (1, 1), commit, acknowledged: 0, entries };
        group.step(Input::Message { from: leader, message: message.encode() }, now, &mut out);
        group.step(Input::Persisted { number: u64::MAX >> 1 }, now, &mut out);
        assert_eq!((group.last(), group.applied()), ((4, 2), 3));

        let states = out.into_iter().filter_map(|output| match output {
            Output::Persist(batch) => batch.state,
            _ => None,
        });
        let states: Vec<GroupState> = states.collect();
        assert!(
            states.len() > 1 && states.iter().all(|state| state.configuration.has(learner)),
            "{states:?}"
        );
    }
}
