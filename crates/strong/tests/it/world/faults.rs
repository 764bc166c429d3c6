//! Faults of a world, drawn from its seed.

use base::{Monotonic, Rng};

use strong::group::{Configuration, VoterId};

use super::{Event, Limits, MILLISECOND, SECOND, World};

/// Faults that a world has.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub lost_of_thousand: u64,
    pub late_of_thousand: u64,
    /// Mean time between two faults; none without.
    pub every: Option<u64>,
    /// Whether disks are lost, too.
    pub loses_disks: bool,
    /// Whether the nodes of lost disks come back, with stores that are other voters.
    pub replaces_disks: bool,
    /// Whether keys are damaged, too.
    pub damages_keys: bool,
}

impl World {
    /// Begins with faults.
    pub fn with_faults(mut self, faults: Faults) -> World {
        self.faults = faults;
        self.after(SECOND, Event::Fault);
        self
    }

    pub(super) fn fault(&mut self) {
        let Some(every) = self.faults.every else { return };
        let next = self.rng.below(2 * every);
        self.after(next, Event::Fault);
        let count = self.nodes.len();
        let leader = self.leader().filter(|_| self.rng.chance(1, 2));
        let node = leader.unwrap_or(self.below(count));
        let short = if self.rng.chance(1, 2) { 100 * MILLISECOND } else { 4 * SECOND };
        match self.rng.below(12) {
            0 | 1 => {
                self.crash(node);
                let down = self.rng.below(short);
                self.after(down, Event::Start { node });
            }
            2 if self.rng.chance(1, 2) => {
                for node in 0..count {
                    self.crash(node);
                    let down = self.rng.below(short);
                    self.after(down, Event::Start { node });
                }
            }
            3 | 4 => {
                let pause = self.rng.below(short);
                self.pause(node, pause);
            }
            5..=7 => {
                let other = self.below(count);
                self.cut((node, other), short);
            }
            8 | 9 => {
                for other in 0..count {
                    self.cut((node, other), short);
                    self.cut((other, node), short);
                }
            }
            11 if self.faults.damages_keys && self.may_lose(node) => self.damage(node),
            10 if self.faults.loses_disks => {
                if self.may_lose(node) && self.rng.chance(1, 2) {
                    self.lose_disk(node);
                    self.nodes[node].is_gone &= !self.faults.replaces_disks;
                    let down = self.rng.below(short);
                    self.after(down, Event::Start { node });
                }
            }
            _ => {
                // An election in which voters start anew.
                for other in 0..count {
                    self.cut((node, other), 4 * SECOND);
                    self.cut((other, node), 4 * SECOND);
                    let restart = 1_200 * MILLISECOND + self.rng.below(500 * MILLISECOND);
                    if other != node && self.rng.chance(1, 2) {
                        self.after(restart, Event::Restart { node: other });
                    }
                }
            }
        }
    }

    /// Whether each half of the newest applied configuration keeps a majority without the disk of a node.
    fn may_lose(&self, node: usize) -> bool {
        let newest = self.entries.values().rev().find_map(|entry| entry.payload.configuration());
        let Configuration { voters, outgoing, .. } = newest.unwrap_or(&self.configuration);
        let is_kept = |voter: &&VoterId| {
            let of = usize::from(voter.node.0);
            of != node && self.voter(of) == **voter && self.has_keys(of)
        };
        [voters, outgoing]
            .iter()
            .all(|half| half.is_empty() || half.iter().filter(is_kept).count() > half.len() / 2)
    }

    /// Whether a node has all keys that it should have, and can read them.
    fn has_keys(&self, node: usize) -> bool {
        let it = &self.nodes[node];
        let is_incomplete = match &it.group {
            Some(group) => group.is_incomplete(),
            None => self.replay(node).stored.is_incomplete,
        };
        !it.is_gone && it.damaged.is_empty() && !is_incomplete
    }

    /// Damages a key of a node's table.
    pub fn damage(&mut self, node: usize) {
        let count = self.nodes[node].table.len();
        if count > 0 {
            let at = self.below(count);
            let it = &mut self.nodes[node];
            it.damaged.extend(it.table.keys().nth(at).cloned());
            self.count("damage");
        }
    }

    pub fn pause(&mut self, node: usize, nanos: u64) {
        // Events wait for the end of a pause, in order; another pause does not bring it forward.
        let it = &mut self.nodes[node];
        it.paused_until = it.paused_until.max(Monotonic(self.now.0 + nanos));
    }

    /// Begins with bounds on logs, and the reaping of tombstones.
    pub fn with_limits(mut self, limits: Limits) -> World {
        self.limits = limits;
        self.after(SECOND, Event::Reap);
        self
    }

    /// Ends all faults but pauses under way, and starts all nodes that are down.
    pub fn heal(&mut self) {
        self.faults = Faults::default();
        self.cuts.clear();
        for node in 0..self.nodes.len() {
            self.start(node);
        }
    }
}
