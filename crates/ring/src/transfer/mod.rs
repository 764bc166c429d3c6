//! Transfers: from the ring there is to the ring that was claimed, without ever having too few copies.
//!
//! A partition's keys are held by the nodes of its preference list, once each ([`Ring::preflist`]). So a change of owners asks
//! for copies: of each partition to each node that is on its list in the target and does not have it yet. Owners are
//! switched, one partition or a few at a time, when every node that the new lists name has what they say it has.
//!
//! 1. [`Transfers::plan`] finds the copies that are needed.
//! 2. [`Transfers::start`] says which may begin: no node sends, and none receives, more than its limit at once.
//! 3. [`Transfers::on_copied`] and [`Transfers::on_failed`] take in what became of them.
//! 4. [`Transfers::switch`] switches what can be; the caller publishes [`Transfers::owners`] as the next ring.
//! 5. [`Transfers::droppable`] names the copies that no list asks for any longer.
//!
//! Invariants: every node on the preference list of a partition has its keys, under every ring that is published; so
//! there are never fewer copies than n, or than nodes. A copy is counted once, however often it is reported. Nothing is
//! dropped that the ring of the moment or the target asks for.
//!
//! To resume, plan again from the ring that it began with, report the copies that are known to be done, let it
//! [`catch_up`](Transfers::catch_up) with the ring that was published last, and report what was dropped: it is the same plan.
//! Without that knowledge, plan from the ring that was published last: some copies are then made again. A new target while
//! transfers run is a new plan in the same way.
//!
//! Left out: how keys travel, and how long that takes; writes meanwhile, which the holders of the moment pass on to those
//! they are sending to.
//!
//! Riak hands over vnodes in this way, with a limit on each node; its lists may name a node twice on the way, ours cannot.

mod copies;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use base::Monotonic;

use crate::error::Error;
use crate::node_id::NodeId;
use crate::nodes::NodeSet;
use crate::partition::Partition;
use crate::ring::Ring;
use copies::Copies;

/// Transfers that a node sends, and that it receives, at a time, if nothing else is said: as in Riak.
pub const TRANSFERS_DEFAULT: u32 = 2;
/// How long a transfer that failed once waits; twice as long each further time.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest it waits: a node that comes back is not to wait for minutes.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Of a receiver's waiting transfers, how many are looked at for one whose sender is free. Those it could get from
/// somewhere wait for a moment only, since each sender is looked for again whenever a transfer ends.
const LOOKED_AT_MAX: usize = 64;

/// How many transfers a node takes part in at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// As a sender.
    pub sent_max: u32,
    /// As a receiver.
    pub received_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { sent_max: TRANSFERS_DEFAULT, received_max: TRANSFERS_DEFAULT }
    }
}

/// A copy of one partition's keys to one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Whose keys.
    pub partition: Partition,
    /// Who sends them.
    pub from: NodeId,
    /// Who gets them.
    pub to: NodeId,
}

/// How far a transfer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It has not begun, or has failed so often and is tried again at that time.
    Waiting {
        /// How often it has failed.
        failures: u32,
        /// When it may begin.
        at: Option<Monotonic>,
    },
    /// It is under way.
    Running {
        /// Who sends.
        from: NodeId,
        /// Since when.
        since: Monotonic,
        /// How often it had failed before.
        failures: u32,
    },
}

/// How far all are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Transfers that wait.
    pub waiting: usize,
    /// Transfers under way.
    pub running: usize,
    /// Transfers that are done.
    pub copied: usize,
    /// Partitions whose owner is yet to be switched.
    pub unswitched: usize,
}

/// The way from one ring to another.
#[derive(Debug, Clone)]
pub struct Transfers {
    copies: Copies,
    target: Ring,
    limits: Limits,
    /// Partitions whose owner is yet to be switched.
    unswitched: BTreeSet<Partition>,
    /// Partitions whose list may be switched further than when that was last tried.
    touched: BTreeSet<Partition>,
    /// What is needed and not there, by partition and receiver.
    open: BTreeMap<(Partition, NodeId), Stage>,
    /// What waits, by receiver, in the order in which it is looked at.
    waiting: BTreeMap<NodeId, VecDeque<Partition>>,
    sending: BTreeMap<NodeId, u32>,
    receiving: BTreeMap<NodeId, u32>,
    copied: usize,
}

impl Transfers {
    /// The transfers from the ring that is published to `target`. `n_val` is the largest of any bucket.
    ///
    /// # Errors
    /// [`Error::Sizes`] if the rings are not of one size: a ring is split before its owners change, and
    /// merged after.
    pub fn plan(current: &Ring, target: &Ring, n_val: usize, limits: Limits) -> Result<Transfers, Error> {
        if current.size() != target.size() {
            return Err(Error::Sizes(current.size().partitions(), target.size().partitions()));
        }
        let moves = |partition: &Partition| current.owner(*partition) != target.owner(*partition);
        let copies = Copies::of(current, n_val);
        let mut open = BTreeMap::new();
        let mut waiting: BTreeMap<NodeId, VecDeque<Partition>> = BTreeMap::new();
        for partition in current.size().all() {
            for entry in target.preflist(partition, n_val) {
                let needed = !copies.has(partition, entry.node);
                let stage = Stage::Waiting { failures: 0, at: None };
                if needed && open.insert((partition, entry.node), stage).is_none() {
                    waiting.entry(entry.node).or_default().push_back(partition);
                }
            }
        }
        let (sending, receiving) = (BTreeMap::new(), BTreeMap::new());
        let unswitched: BTreeSet<Partition> = current.size().all().filter(moves).collect();
        let (touched, target) = (unswitched.clone(), target.clone());
        Ok(Transfers {
            copies,
            target,
            limits,
            unswitched,
            touched,
            open,
            waiting,
            sending,
            receiving,
            copied: 0,
        })
    }

    /// Begins as many transfers as may run now, and names them. Nodes that are `down` neither send nor receive.
    pub fn start(&mut self, now: Monotonic, down: &NodeSet) -> Vec<Transfer> {
        let mut begun = Vec::new();
        let receivers: Vec<NodeId> = self.waiting.keys().copied().filter(|to| !down.contains(*to)).collect();
        for to in receivers {
            while count(&self.receiving, to) < self.limits.received_max {
                let Some(transfer) = self.next_for(to, now, down) else { break };
                *self.receiving.entry(to).or_default() += 1;
                *self.sending.entry(transfer.from).or_default() += 1;
                begun.push(transfer);
            }
        }
        begun
    }

    /// The next transfer to this node whose sender is free.
    fn next_for(&mut self, to: NodeId, now: Monotonic, down: &NodeSet) -> Option<Transfer> {
        let queue = self.waiting.get(&to)?;
        let found = queue.iter().take(LOOKED_AT_MAX).enumerate().find_map(|(at, &partition)| {
            let Stage::Waiting { failures, at: when } = self.open[&(partition, to)] else {
                unreachable!("what is queued waits")
            };
            let from = self.sender(partition, down).filter(|_| when.is_none_or(|when| when <= now))?;
            Some((at, Transfer { partition, from, to }, failures))
        });
        let queue = self.waiting.get_mut(&to)?;
        let Some((at, transfer, failures)) = found else {
            // Others are looked at the next time.
            let looked_at = queue.len().min(LOOKED_AT_MAX);
            queue.rotate_left(looked_at);
            return None;
        };
        queue.remove(at);
        let stage = Stage::Running { from: transfer.from, since: now, failures };
        self.open.insert((transfer.partition, to), stage);
        Some(transfer)
    }

    /// Who is to send this partition: the least busy of those that have it; of these one that is to give it up anyway.
    fn sender(&self, partition: Partition, down: &NodeSet) -> Option<NodeId> {
        let free =
            |node: &NodeId| !down.contains(*node) && count(&self.sending, *node) < self.limits.sent_max;
        let holders = self.copies.holders(partition).iter().copied().filter(free);
        let key = |node: NodeId| (count(&self.sending, node), self.is_wanted(partition, node), node);
        holders.min_by_key(|&node| key(node))
    }

    fn is_wanted(&self, partition: Partition, node: NodeId) -> bool {
        self.target.preflist(partition, self.copies.n_val()).any(|entry| entry.node == node)
    }

    /// A node has got all keys of a partition, durably. Says whether that was needed and not yet known.
    pub fn on_copied(&mut self, partition: Partition, to: NodeId) -> bool {
        let Some(stage) = self.open.remove(&(partition, to)) else { return false };
        self.end(partition, to, stage);
        self.copies.add(partition, to);
        self.touched.insert(partition);
        self.copied += 1;
        true
    }

    /// A transfer has failed; it is tried again after a while. Says whether it was under way.
    pub fn on_failed(&mut self, partition: Partition, to: NodeId, now: Monotonic) -> bool {
        let Some(&stage @ Stage::Running { failures, .. }) = self.open.get(&(partition, to)) else {
            return false;
        };
        self.end(partition, to, stage);
        let wait = RETRY_FIRST.saturating_mul(1 << failures.min(16)).min(RETRY_MAX);
        let stage = Stage::Waiting { failures: failures.saturating_add(1), at: Some(now + wait) };
        self.open.insert((partition, to), stage);
        self.waiting.entry(to).or_default().push_back(partition);
        true
    }

    /// A node can no longer be reached: what it sends and receives has failed.
    pub fn on_down(&mut self, node: NodeId, now: Monotonic) {
        let fails = |to: NodeId, stage: &Stage| match stage {
            Stage::Running { from, .. } => to == node || *from == node,
            Stage::Waiting { .. } => false,
        };
        let lost: Vec<(Partition, NodeId)> =
            self.open.iter().filter(|((_, to), stage)| fails(*to, stage)).map(|(key, _)| *key).collect();
        for (partition, to) in lost {
            self.on_failed(partition, to, now);
        }
    }

    /// Takes a transfer out of the counts or the queue.
    fn end(&mut self, partition: Partition, to: NodeId, stage: Stage) {
        match stage {
            Stage::Running { from, .. } => {
                *self.sending.get_mut(&from).expect("it was counted") -= 1;
                *self.receiving.get_mut(&to).expect("it was counted") -= 1;
            }
            Stage::Waiting { .. } => {
                let queue = self.waiting.get_mut(&to).expect("what waits is queued");
                queue.retain(|waiting| *waiting != partition);
            }
        }
    }

    /// Gives partitions to their new owners where all that the new lists name have what they should, and says which. Then
    /// [`Transfers::owners`] is to be published.
    pub fn switch(&mut self) -> Vec<Partition> {
        let mut switched = Vec::new();
        while let Some(touched) = self.touched.pop_first() {
            for partition in self.unswitched_from(touched) {
                let owner = self.target.owner(partition);
                if self.copies.switch(&[(partition, owner)]) {
                    self.unswitched.remove(&partition);
                    switched.push(partition);
                    // It may have made room for others before it, and among these.
                    let back = u32::try_from(self.copies.n_val()).expect("n is small");
                    self.touched.insert(self.target.after(partition, back.wrapping_neg()));
                    self.touched.insert(partition);
                }
            }
        }
        let candidates = std::mem::take(&mut self.unswitched);
        if self.open.is_empty() && !candidates.is_empty() {
            // One by one each would name a node too early; together they are the target, and all is copied.
            let rest: Vec<(Partition, NodeId)> =
                candidates.iter().map(|&partition| (partition, self.target.owner(partition))).collect();
            assert!(self.copies.switch(&rest), "every copy that the target names was made");
            switched.extend(candidates);
        } else {
            self.unswitched = candidates;
        }
        switched
    }

    /// Switches what a ring has switched that was published before. Says whether that can be so: every partition has its old or
    /// its new owner in it, and what its lists ask for has been reported. If not, nothing has changed.
    pub fn catch_up(&mut self, published: &Ring) -> bool {
        if published.size() != self.target.size() {
            return false;
        }
        let is_switched =
            |partition: &Partition| published.owner(*partition) != self.copies.owner(*partition);
        let switched: Vec<(Partition, NodeId)> = published
            .size()
            .all()
            .filter(is_switched)
            .map(|partition| (partition, published.owner(partition)))
            .collect();
        let is_known = switched.iter().all(|(partition, owner)| self.target.owner(*partition) == *owner)
            && (switched.is_empty() || self.copies.switch(&switched));
        if is_known {
            switched.iter().for_each(|(partition, _)| {
                self.unswitched.remove(partition);
            });
        }
        is_known
    }

    /// The unswitched partitions clockwise from there that a list from there is likely to reach. Those further on, where
    /// nodes own long stretches, are switched at the end.
    fn unswitched_from(&self, start: Partition) -> Vec<Partition> {
        let (behind, ahead) = (self.unswitched.range(start..), self.unswitched.range(..start));
        behind.chain(ahead).take(2 * self.copies.n_val()).copied().collect()
    }

    /// The copies that neither the ring of the moment nor the target asks for, and that nobody is sent. Once the ring of the
    /// moment is published, and those told who may still read by the ring before, they can be removed.
    pub fn droppable(&self) -> Vec<(Partition, NodeId)> {
        let all = self.target.size().all();
        let held = all.flat_map(|at| self.copies.holders(at).iter().map(move |&node| (at, node)));
        held.filter(|&(partition, node)| self.is_droppable(partition, node)).collect()
    }

    fn is_droppable(&self, partition: Partition, node: NodeId) -> bool {
        let mut open = self.open.range((partition, NodeId(0))..=(partition, NodeId(u16::MAX)));
        let sends = |stage: &Stage| matches!(stage, Stage::Running { from, .. } if *from == node);
        self.copies.is_surplus(partition, node)
            && !self.is_wanted(partition, node)
            && !open.any(|(_, stage)| sends(stage))
    }

    /// A copy is no longer there, or no longer to be counted on. Says whether it was droppable; if it was not,
    /// the plan has lost what it rests on, and nothing has changed.
    pub fn on_dropped(&mut self, partition: Partition, node: NodeId) -> bool {
        self.is_droppable(partition, node) && self.copies.remove(partition, node)
    }

    /// Changes the limits. What is under way goes on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Whether a node has all keys of a partition, so that it may be asked for them.
    ///
    /// # Panics
    /// If the ring has no such partition.
    pub fn has(&self, partition: Partition, node: NodeId) -> bool {
        self.copies.has(partition, node)
    }

    /// The owners of the moment, by partition.
    pub fn owners(&self) -> &[NodeId] {
        self.copies.owners()
    }

    /// The transfers that are not done, by partition and receiver.
    pub fn open(&self) -> impl Iterator<Item = (Partition, NodeId, Stage)> + '_ {
        self.open.iter().map(|(&(partition, to), &stage)| (partition, to, stage))
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let waiting = self.waiting.values().map(VecDeque::len).sum();
        let running = self.open.len() - waiting;
        Progress { waiting, running, copied: self.copied, unswitched: self.unswitched.len() }
    }

    /// Whether the target is reached.
    pub fn is_done(&self) -> bool {
        self.open.is_empty() && self.unswitched.is_empty()
    }
}

fn count(counts: &BTreeMap<NodeId, u32>, node: NodeId) -> u32 {
    counts.get(&node).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
