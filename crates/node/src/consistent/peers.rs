//! Other nodes, as groups see them: reachable or not, and started anew.
//!
//! A voter can be reached if its node's link is up, and the process behind it is the one that the cluster has
//! registered with the voter's store.
//!
//! * A node that can be reached no more: groups that it led stand for election, at a pace, those with waiting requests
//!   first. All others hear of it at once.
//! * A node that is back: groups that settled without it are woken at a pace, and if its process is another one, all
//!   groups that this store leads with it.
//! * A store with another birth: its groups hear of it at a pace, and their leaders replace the voter. A group that is
//!   not in memory is opened for it by the first node of its list that can be reached and has a vote. So is one that
//!   was recovered without a node's store, when the node has another one.

use std::collections::BTreeSet;

use base::Monotonic;
use strong::group::{Configuration, Input, VoterId};
use strong::wake::Urgency;

use super::group::GroupKey;
use super::links::voter_of;
use super::{ConsistentGroups, Todo};
use crate::liveness::promises;
use crate::peer::NodeId;
use crate::shard::env::Env;

/// The reachability of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// The process that was reached last; zero for none.
    life: u64,
    is_up: bool,
    /// When it could be reached last, or not any more.
    pub(super) since: Monotonic,
}

/// The reachability of a node now.
fn reach_of(env: &Env, node: NodeId) -> Reach {
    let registered = env.agreement.processes.get(&node).map(|process| process.life);
    match env.peers.life_if_up(node) {
        Some(life) if registered == Some(life) => Reach { life, is_up: true, since: env.now() },
        _ => Reach::default(),
    }
}

/// Whether the node of a voter has registered another one.
fn is_lost(env: &Env, key: GroupKey, voter: VoterId) -> bool {
    voter_of(env, voter.node, key.prefix).is_some_and(|it| it != voter)
}

impl ConsistentGroups {
    /// Whether a voter of a group can be reached.
    pub(super) fn reaches(&self, env: &Env, key: GroupKey, voter: VoterId) -> bool {
        voter.node == env.peers.here()
            || !self.is_stalled
                && reach_of(env, voter.node).is_up
                && voter_of(env, voter.node, key.prefix) == Some(voter)
    }

    /// Takes another agreement.
    pub fn on_agreement(&mut self, env: &mut Env) {
        promises::register(env);
        let here = env.agreement.processes.get(&env.peers.here());
        let own = here.filter(|process| process.life == env.peers.life());
        let birth = own.and_then(|process| process.stores.births.get(usize::from(env.knobs.id.0)).copied());
        // States of groups that were left are removed, so this birth takes no part again.
        let is_registered = birth.is_some() && birth == env.birth && birth != self.left_birth;
        if self.is_registered && !is_registered {
            self.leave_groups(env);
        }
        if !self.is_registered && is_registered {
            for (&key, found) in &self.found {
                if !found.entries.is_empty() || found.commit > found.applied.index {
                    self.leaderless.push(key, Urgency::Other);
                }
            }
        }
        (self.is_registered, self.birth) = (is_registered, env.birth);
        self.hand_overs.note_change(env.now());
        self.refresh_peers(env);
        self.queue_renewed(env);
        let waiting = self.waiting.take_all();
        self.todo.extend(waiting.into_iter().map(|it| Todo::Dispatch(Box::new(it))));
        self.run(env);
    }

    /// Ends the part of this store in all groups: it is another voter from now on.
    fn leave_groups(&mut self, env: &mut Env) {
        self.left.extend(std::mem::take(&mut self.groups).into_keys());
        self.left.extend(self.dormant.take_all());
        self.live.clear();
        self.deletions.clear();
        self.left.append(&mut self.refused);
        self.left_birth = self.birth;
        self.timers.clear();
        self.todo.clear();
        self.forget_records();
        // Messages of the voters of before do not leave as those of the next ones.
        self.outgoing = None;
        for served in self.served.take_all() {
            self.end_unknown(env, served);
        }
    }

    /// Compares the reachability of all nodes with that which groups know.
    pub(super) fn refresh_peers(&mut self, env: &mut Env) {
        for node in env.peers.all().collect::<Vec<_>>() {
            self.follow_peer(env, node);
        }
    }

    /// A node can be reached, or cannot any more.
    pub fn on_peer(&mut self, env: &mut Env, node: NodeId) {
        self.follow_peer(env, node);
        self.run(env);
    }

    fn follow_peer(&mut self, env: &mut Env, node: NodeId) {
        let now = match self.is_stalled {
            true => Reach::default(),
            false => reach_of(env, node),
        };
        let before = self.reach.get(&node).copied().unwrap_or_default();
        if now.is_up == before.is_up && (!now.is_up || now.life == before.life) {
            return;
        }
        // The last life stays known while the node is away.
        let life = if now.is_up { now.life } else { before.life };
        self.reach.insert(node, Reach { life, ..now });
        self.hand_overs.note_change(env.now());
        if now.is_up {
            self.on_back(env, node, now.life != before.life);
        } else {
            self.on_away(env, node);
            self.queue_renewed(env);
        }
    }

    /// Queues groups that do not know of a store's birth, and groups that are not in memory with one to be replaced.
    fn queue_renewed(&mut self, env: &Env) {
        for (&key, held) in &self.groups {
            if held.voters.iter().any(|voter| is_lost(env, key, *voter)) {
                let is_waiting = self.waiting.has(key);
                self.renewed.push(key, if is_waiting { Urgency::Waiting } else { Urgency::Recent });
            }
        }
        if !self.is_registered {
            return;
        }
        let prefixes = env.knobs.layout.prefixes.partitions();
        for (&n_val, founding) in env.agreement.foundings.iter() {
            let now = |node: &NodeId| env.agreement.processes.get(node).map(|process| &process.stores);
            if founding.stores.iter().all(|(node, stores)| now(node).is_none_or(|now| now == stores)) {
                continue;
            }
            for prefix in (0..prefixes).filter_map(|prefix| u16::try_from(prefix).ok()) {
                let key = GroupKey { n_val, prefix };
                if env.knobs.layout.shard_of(prefix) == env.knobs.id.0 && self.is_to_open(env, key) {
                    self.renewed.push(key, Urgency::Other);
                }
            }
        }
    }

    /// Whether a group that is not in memory lacks the voter that a node has now, and this node is the one to begin:
    /// its leader, where one is known.
    fn is_to_open(&self, env: &Env, key: GroupKey) -> bool {
        if self.groups.contains_key(&key) {
            return false;
        }
        let known = self.stored_state(env, key).map(|state| state.configuration);
        let first = || Self::first_voters(env, key).map(Configuration::of_voters);
        let Some(known) = known.or_else(first) else { return false };
        let voters = Self::voters(env, key).unwrap_or_default();
        let mut can_begin =
            voters.iter().filter(|voter| known.has_voter(**voter) && self.reaches(env, key, **voter));
        let missing = Self::registered(env, key, &voters).into_iter().any(|voter| !known.has_voter(voter));
        missing
            && match self.dormant.get(key) {
                Some(record) => record.leader() == env.leases.tables.here(),
                None => can_begin.next().is_some_and(|it| it.node == env.peers.here()),
            }
    }

    /// Tells a group which voters its nodes have now.
    fn renew(&mut self, env: &Env, key: GroupKey) {
        let Some(held) = self.groups.get_mut(&key) else { return };
        self.hand_overs.note_change(env.now());
        for voter in &mut held.voters {
            *voter = voter_of(env, voter.node, key.prefix).unwrap_or(*voter);
        }
        let (voters, own) = (held.voters.clone(), held.voter);
        let listed = Self::registered(env, key, &voters);
        self.todo.push_back(Todo::Step(key, Input::Listed { voters: listed }));
        for voter in voters.into_iter().filter(|voter| *voter != own) {
            let is_up = self.reaches(env, key, voter);
            self.todo.push_back(Todo::Step(key, Input::Reachable { voter, is_up }));
        }
    }

    fn on_away(&mut self, env: &Env, node: NodeId) {
        self.ask_others(env, node);
        self.wake_led_by(node, None);
        let dormant: BTreeSet<VoterId> =
            self.dormant_with(env, node).into_iter().map(|(_, voter)| voter).collect();
        dormant.into_iter().for_each(|voter| self.marked.on_away(voter));
        for (&key, held) in &self.groups {
            let Some(&voter) = held.voters.iter().find(|voter| voter.node == node) else { continue };
            self.marked.on_away(voter);
            if held.group.leader() == Some(voter) {
                let urgency = match held.log_bytes {
                    _ if self.waiting.has(key) => Urgency::Waiting,
                    0 => Urgency::Other,
                    _ => Urgency::Recent,
                };
                self.leaderless.push(key, urgency);
            } else {
                self.todo.push_back(Todo::Step(key, Input::Reachable { voter, is_up: false }));
            }
        }
    }

    fn on_back(&mut self, env: &Env, node: NodeId, is_another: bool) {
        let dormant = self.dormant_with(env, node);
        let mut back: BTreeSet<VoterId> = dormant.iter().map(|(_, voter)| *voter).collect();
        for (&key, held) in &self.groups {
            let Some(&voter) = held.voters.iter().find(|voter| voter.node == node) else { continue };
            if voter_of(env, node, key.prefix) != Some(voter) {
                continue;
            }
            back.insert(voter);
            let leads = held.group.leads();
            if leads && is_another {
                self.marked.mark(key, voter);
            }
            if !leads || !self.marked.is_marked(key, voter) {
                if is_another {
                    self.todo.push_back(Todo::Step(key, Input::Restarted { voter }));
                }
                self.todo.push_back(Todo::Step(key, Input::Reachable { voter, is_up: true }));
            }
        }
        if is_another {
            self.wake_led_by(node, env.agreement.processes.get(&node).map(|process| process.life));
            dormant.into_iter().for_each(|(key, voter)| self.marked.mark(key, voter));
        }
        back.into_iter().for_each(|voter| self.marked.on_back(voter));
    }

    /// Wakes groups at their pace.
    pub(super) fn wake(&mut self, env: &mut Env, now: Monotonic) {
        for key in self.leaderless.take(now) {
            if !self.open(env, key) {
                self.wake_later(key);
                continue;
            }
            let held = &self.groups[&key];
            let others = held.voters.iter().copied().filter(|voter| *voter != held.voter);
            for voter in others.collect::<Vec<_>>() {
                let is_up = self.reaches(env, key, voter);
                self.todo.push_back(Todo::Step(key, Input::Reachable { voter, is_up }));
            }
        }
        for key in self.renewed.take(now) {
            if self.open(env, key) {
                self.renew(env, key);
            } else {
                self.wake_later(key);
            }
        }
        for (key, voter) in self.marked.take(now) {
            if !self.open(env, key) {
                self.wake_later(key);
                continue;
            }
            let is_up = self.reaches(env, key, voter);
            self.todo.push_back(Todo::Step(key, Input::Restarted { voter }));
            self.todo.push_back(Todo::Step(key, Input::Reachable { voter, is_up }));
        }
    }

    /// Queues a dormant group again that has no room now.
    fn wake_later(&mut self, key: GroupKey) {
        if self.dormant.get(key).is_some() {
            self.leaderless.push(key, Urgency::Other);
        }
    }

    /// Marks a group that has settled for the voters that were away, and removes the marks of the others.
    pub(super) fn mark_if_settled(&mut self, key: GroupKey) {
        let Some(held) = self.groups.get(&key).filter(|held| held.group.leads()) else { return };
        if !held.group.is_settled() {
            return;
        }
        for &voter in held.voters.iter().filter(|voter| **voter != held.voter) {
            match held.group.reaches(voter) {
                true => self.marked.unmark(key, voter),
                false => self.marked.mark(key, voter),
            }
        }
    }
}
