//! Other nodes, as groups see them: reachable or not, and started anew.
//!
//! A voter can be reached if its node's link is up, and the process behind it is the one that the cluster has
//! registered with the voter's store.
//!
//! * A node that can be reached no more: groups that it led stand for election, at a pace, those with waiting requests
//!   first. All others hear of it at once.
//! * A node that is back: groups that settled without it are woken at a pace, and if its process is another one, all
//!   groups that this store leads with it.

use base::Monotonic;
use strong::group::{Input, VoterId};
use strong::wake::Urgency;

use super::group::GroupKey;
use super::links::voter_of;
use super::{ConsistentGroups, Todo};
use crate::peer::NodeId;
use crate::shard::env::Env;

/// The reachability of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// The process that was reached last; zero for none.
    life: u64,
    is_up: bool,
}

/// The reachability of a node now.
fn reach_of(env: &Env, node: NodeId) -> Reach {
    let registered = env.agreement.processes.get(&node).map(|process| process.life);
    match env.peers.life_if_up(node) {
        Some(life) if registered == Some(life) => Reach { life, is_up: true },
        _ => Reach::default(),
    }
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
        let here = env.agreement.processes.get(&env.peers.here());
        let own = here.filter(|process| process.life == env.peers.life());
        let birth = own.and_then(|process| process.stores.births.get(usize::from(env.knobs.id.0)).copied());
        let is_registered = birth.is_some() && birth == env.birth;
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
        self.refresh_peers(env);
        self.leave_lost_voters(env);
        let waiting = self.waiting.take_all();
        self.todo.extend(waiting.into_iter().map(|it| Todo::Dispatch(Box::new(it))));
        self.run(env);
    }

    /// Ends the part of this store in all groups: it is another voter from now on.
    fn leave_groups(&mut self, env: &mut Env) {
        self.groups.clear();
        self.timers.clear();
        self.todo.clear();
        self.forget_records();
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
        if now.is_up {
            self.on_back(env, node, now.life != before.life);
        } else {
            self.on_away(node);
        }
    }

    /// Has groups do without voters that are lost: their nodes can be reached, with another birth of the store.
    fn leave_lost_voters(&mut self, env: &Env) {
        for (&key, held) in &self.groups {
            for &voter in held.voters.iter().filter(|voter| held.group.reaches(**voter)) {
                if voter_of(env, voter.node, key.prefix).is_none_or(|it| it == voter) {
                    continue;
                }
                if held.group.leader() == Some(voter) {
                    self.leaderless.push(key, Urgency::Recent);
                } else {
                    self.todo.push_back(Todo::Step(key, Input::Reachable { voter, is_up: false }));
                }
            }
        }
    }

    fn on_away(&mut self, node: NodeId) {
        self.ask_others(node);
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
        let mut back = std::collections::BTreeSet::new();
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
        back.into_iter().for_each(|voter| self.marked.on_back(voter));
    }

    /// Wakes groups at their pace.
    pub(super) fn wake(&mut self, env: &mut Env, now: Monotonic) {
        for key in self.leaderless.take(now) {
            if !self.open(env, key) {
                continue;
            }
            let held = &self.groups[&key];
            let others = held.voters.iter().copied().filter(|voter| *voter != held.voter);
            for voter in others.collect::<Vec<_>>() {
                let is_up = self.reaches(env, key, voter);
                self.todo.push_back(Todo::Step(key, Input::Reachable { voter, is_up }));
            }
        }
        for (key, voter) in self.marked.take(now) {
            let is_up = self.reaches(env, key, voter);
            self.todo.push_back(Todo::Step(key, Input::Restarted { voter }));
            self.todo.push_back(Todo::Step(key, Input::Reachable { voter, is_up }));
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
