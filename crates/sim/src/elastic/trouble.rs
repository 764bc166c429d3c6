//! The blows that the world deals while it lives: nodes crash, voters more often than others, links are cut, disks are
//! lost.

use super::{Event, Phase, World};
use crate::fault::Fault;
use crate::seed::{between, duration_between, index_below};
use base::Rng;
use membership::NodeId;
use std::time::Duration;

/// How long links are cut.
const CUT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));
/// Nodes that are cut from all others at a time, one of so many at most.
const CUT_SHARE: u64 = 20;

impl World {
    pub(super) fn on_trouble(&mut self) {
        if self.phase != Phase::Life || self.script.is_some() || self.plan.crashes == 0 {
            return;
        }
        let pause = self.draw(self.plan.trouble_pause_max);
        self.events.after(pause, Event::Trouble);
        let living: Vec<NodeId> =
            self.hosts.iter().filter(|(_, host)| host.process.is_some()).map(|(node, _)| *node).collect();
        // Whatever goes wrong, most are there.
        if living.len() * 3 < self.hosts.values().filter(|host| !host.left).count() * 2 {
            return;
        }
        let any = living[index_below(&mut self.rng, living.len())];
        match self.rng.below(8) {
            0..3 => self.kill(any),
            3 | 4 => {
                let voters = self.membership(any).map(|it| it.log().voters().clone()).unwrap_or_default();
                let voters: Vec<NodeId> = voters.into_iter().filter(|node| living.contains(node)).collect();
                let leader = self.membership(any).and_then(|it| it.log().leader());
                let leader = leader.filter(|node| living.contains(node) && self.rng.chance(1, 2));
                let voter = (!voters.is_empty()).then(|| voters[index_below(&mut self.rng, voters.len())]);
                leader.or(voter).into_iter().for_each(|node| self.kill(node));
            }
            5 | 6 if self.plan.cuts => self.cut(&living),
            7 => self.lose(any),
            _ => {}
        }
    }

    pub(super) fn kill(&mut self, node: NodeId) {
        self.trace.fault(Fault::ProcessKill, format_args!("{node}"));
        self.crash(node);
    }

    /// Some nodes are cut from all others, both ways or one.
    fn cut(&mut self, living: &[NodeId]) {
        if !self.cuts.is_empty() {
            return;
        }
        let most = (living.len() as u64 / CUT_SHARE).max(1);
        let count = between(&mut self.rng, 1, most);
        let alone: Vec<NodeId> =
            (0..count).map(|_| living[index_below(&mut self.rng, living.len())]).collect();
        let is_one_way = self.rng.chance(1, 3);
        let kind = if is_one_way { Fault::OneWay } else { Fault::Partition };
        self.trace.fault(kind, format_args!("{alone:?}"));
        let others: Vec<NodeId> = self.hosts.keys().copied().filter(|node| !alone.contains(node)).collect();
        for (&one, &other) in alone.iter().flat_map(|one| others.iter().map(move |other| (one, other))) {
            self.cuts.insert((one, other));
            self.network.cut(super::place(one), super::place(other));
            if !is_one_way {
                self.network.cut(super::place(other), super::place(one));
            }
        }
        let pause = duration_between(&mut self.rng, CUT.0, CUT.1);
        self.events.after(pause, Event::Mend);
    }

    pub(super) fn mend(&mut self) {
        self.cuts.clear();
        self.network.heal_all();
    }

    /// A node is gone for good, with its disk, if that is planned. Copies outlive one at a time.
    fn lose(&mut self, node: NodeId) {
        let has_gone = self.hosts.values().filter(|host| host.gone).count() as u64;
        let is_member = self
            .newest_state()
            .is_some_and(|state| state.is_settled() && state.members().contains_key(&node));
        if has_gone < self.plan.losses && is_member {
            self.lose_for_good(node);
        }
    }

    pub(super) fn lose_for_good(&mut self, node: NodeId) {
        self.trace.fault(Fault::GoneForGood, format_args!("{node}"));
        self.deaths += 1;
        self.end_process(node);
        self.hosts.get_mut(&node).expect("it was there").gone = true;
    }
}
