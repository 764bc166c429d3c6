//! Groups as their nodes report them, and the last checks: histories, and replicas that are equal.

use super::World;
use super::clients::TYPE;
use super::plan::Loss;
use crate::check::{Verdict, Violation};
use crate::show;
use bytes::Bytes;
use node::GroupReport;
use object::key;
use std::collections::BTreeMap;

impl World {
    /// The reports of all nodes on a group.
    pub(super) fn reports(&mut self, prefix: u16) -> BTreeMap<usize, GroupReport> {
        (0..self.hosts.len()).filter_map(|at| Some((at, self.report(prefix, at)?))).collect()
    }

    /// The report of one node on a group.
    pub(super) fn report(&mut self, prefix: u16, at: usize) -> Option<GroupReport> {
        let host = &mut self.hosts[at];
        (0..host.shards()).rev().find_map(|shard| {
            let shard = host.machine.shard(shard)?;
            shard.status().groups().into_iter().find(|report| report.prefix == prefix)
        })
    }

    /// Whether each group has a leader that has told all to all present voters.
    pub(super) fn are_settled(&mut self) -> bool {
        self.groups.clone().into_iter().all(|prefix| self.is_settled(prefix).unwrap_or(false))
    }

    /// Whether each group with a leader is settled. Without requests, groups may have none.
    pub(super) fn are_led_settled(&mut self) -> bool {
        self.groups.clone().into_iter().all(|prefix| self.is_settled(prefix).unwrap_or(true))
    }

    /// Whether a group's leader has told all to all present voters, if there is one.
    pub(super) fn is_settled(&mut self, prefix: u16) -> Option<bool> {
        let present = self.registry.present_voters(prefix);
        let reports = self.reports(prefix);
        let leader = reports.values().filter(|it| it.role == node::GroupRole::Leader);
        let leader = leader.max_by_key(|it| it.term)?;
        let is_there = |at: &usize| {
            reports.get(at).is_some_and(|it| {
                let votes = it.role != node::GroupRole::Learner;
                it.applied == leader.last && votes && !it.is_suspect && !it.is_incomplete && !it.has_forgotten
            })
        };
        Some(leader.is_settled && present.iter().filter(|at| !self.hosts[**at].gone).all(is_there))
    }

    /// Whether a recovered group has got all its voters back. One that settled without a voter that was not registered
    /// would lose its majority with the next disk.
    pub(super) fn is_refilled(&mut self, prefix: u16) -> bool {
        let voters = self.registry.voters(prefix);
        self.registry.present_voters(prefix) == voters && self.is_settled(prefix) == Some(true)
    }

    pub(super) fn describe(&mut self) -> String {
        let mut lines = vec![String::new()];
        for at in 0..self.hosts.len() {
            let host = &self.hosts[at];
            let is_registered = host.life().is_some_and(|life| self.registry.has(at, life));
            lines.push(format!(
                "n{at}: runs {} serves {} gone {} hurt {} registered {is_registered} heard {} of {}",
                host.machine.process.is_some(),
                host.serves(),
                host.gone,
                host.is_hurt,
                host.heard,
                self.registry.version(),
            ));
        }
        for prefix in self.groups.clone() {
            let (voters, live) = (self.registry.voters(prefix), self.registry.live_voters(prefix));
            lines.push(format!("group of {prefix}: voters {voters:?}, live {live:?}"));
            lines.extend(self.reports(prefix).into_iter().map(|(at, report)| format!("  n{at} {report:?}")));
        }
        lines.join("\n    ")
    }

    pub(super) fn check_all(&mut self) -> Verdict {
        let terms: BTreeMap<u16, u64> = self.leaders.keys().copied().collect();
        self.tally.elections = terms.values().sum();
        self.check_histories()?;
        self.check_replicas()
    }

    /// Compares the heads of all present voters of each group.
    fn check_replicas(&mut self) -> Verdict {
        const EQUAL: &str = "replicas are equal";
        let ranges: Vec<key::KeyRange> =
            self.groups.iter().map(|prefix| key::objects_of_type(*prefix, &TYPE)).collect();
        let mut stored = Vec::new();
        for host in &self.hosts {
            let heads = match host.gone {
                true => BTreeMap::new(),
                false => match host.machine.stored(&ranges) {
                    Ok(heads) => heads,
                    Err(_) if host.is_hurt => BTreeMap::new(),
                    Err(error) => return Err(Violation::new(EQUAL, error.to_string())),
                },
            };
            stored.push(heads);
        }
        for (prefix, range) in self.groups.iter().zip(&ranges) {
            let of_group = |at: &usize| {
                let heads =
                    stored[*at].iter().filter(|(key, _)| **key >= range.start[..] && **key < range.end[..]);
                heads.collect::<BTreeMap<_, _>>()
            };
            let present = self.registry.present_voters(*prefix);
            let is_damaged = |at: &usize| self.hosts[*at].is_hurt && self.plan.loss == Some(Loss::Flipped);
            let present: Vec<usize> =
                present.into_iter().filter(|at| !self.hosts[*at].gone && !is_damaged(at)).collect();
            let Some(first) = present.first() else { continue };
            let heads = of_group(first);
            if let Some(other) = present.iter().find(|at| of_group(at) != heads) {
                let shown = |heads: BTreeMap<&Bytes, &Bytes>| {
                    let one = |(key, head): (&Bytes, &Bytes)| {
                        format!("{} {}", key.escape_ascii(), show::head(head))
                    };
                    heads.into_iter().map(one).collect::<Vec<_>>()
                };
                let (one, two) = (shown(heads.clone()), shown(of_group(other)));
                let what = format!("the group of prefix {prefix}: n{first} has {one:?}, n{other} {two:?}");
                return Err(Violation::new(EQUAL, what));
            }
        }
        Ok(())
    }
}
