//! The choice among the copies of all groups, of the surveys of all nodes.
//!
//! Invariant: a plan is made only if each node that holds groups has answered, or is given up.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use node::survey::{Choice, CopyFault, GroupCopy, Stores, choose};
use node::{Configuration, VoterId};
use ring::NodeId;
use serde::Deserialize;

use crate::failure::{FAILED, Failure};
use crate::plural::{count, len};

/// The answer of a node to a survey.
#[derive(Clone, Deserialize)]
pub(super) struct Survey {
    pub(super) survey: String,
    pub(super) cluster: String,
    /// Its name.
    pub(super) here: String,
    pub(super) node: u16,
    /// Whether it holds its groups back, since it was restored.
    pub(super) held: bool,
    pub(super) registered: bool,
    /// The births of its registered stores, in hexadecimal digits.
    births: BTreeSet<String>,
    prefixes: usize,
    foundings: Vec<Founding>,
    copies: Vec<CopyShown>,
}

/// The founding of the groups of an n_val.
#[derive(Clone, Deserialize)]
struct Founding {
    n_val: u8,
    number: String,
    epoch: u16,
    /// The names of its nodes.
    nodes: Vec<String>,
    /// The number of nodes of each group.
    copies: usize,
}

/// A copy of a group.
#[derive(Clone, Deserialize)]
struct CopyShown {
    n_val: u8,
    prefix: u16,
    rank: u32,
    epoch: u16,
    last: (u64, u64),
    voters: Vec<String>,
    outgoing: Vec<String>,
    fault: Option<String>,
}

impl Survey {
    /// The epochs of the foundings, by n_val.
    pub(super) fn epochs(&self) -> BTreeMap<u8, u16> {
        self.foundings.iter().map(|it| (it.n_val, it.epoch)).collect()
    }

    /// The names of nodes that hold groups.
    fn holders(&self) -> BTreeSet<&str> {
        self.foundings.iter().flat_map(|it| it.nodes.iter().map(String::as_str)).collect()
    }

    /// The foundings apart from their epochs.
    fn founded(&self) -> Vec<(u8, &str)> {
        self.foundings.iter().map(|it| (it.n_val, &*it.number)).collect()
    }
}

impl CopyShown {
    fn read(&self, node: NodeId) -> Result<GroupCopy, Failure> {
        let voters = |numbers: &[String]| -> Option<BTreeSet<VoterId>> {
            numbers.iter().map(|it| VoterId::of_number(u64::from_str_radix(it, 16).ok()?)).collect()
        };
        let unknown = || Failure::new(FAILED, format!("node {node} answers with an unknown copy of a group"));
        let fault = match &self.fault {
            None => None,
            Some(name) => Some(CopyFault::named(name).ok_or_else(unknown)?),
        };
        let halves = voters(&self.voters).zip(voters(&self.outgoing)).ok_or_else(unknown)?;
        let (voters, outgoing) = halves;
        let configuration = Configuration { voters, outgoing, learners: BTreeSet::new() };
        let (rank, epoch, last) = (self.rank, self.epoch, self.last);
        Ok(GroupCopy { node, rank, epoch, last, configuration, fault })
    }
}

/// All nodes that have answered.
struct Answered<'a>(BTreeMap<NodeId, &'a Survey>);

impl Stores for Answered<'_> {
    fn is_held(&self, node: NodeId) -> bool {
        self.0.get(&node).is_some_and(|it| it.held)
    }

    fn votes(&self, voter: VoterId) -> bool {
        let birth = format!("{:012x}", voter.birth.number());
        self.0.get(&voter.node).is_some_and(|it| it.registered && !it.held && it.births.contains(&birth))
    }
}

/// The numbers of groups by their outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) copies: usize,
    /// Groups with a majority of voters that were not restored.
    pub(super) kept: usize,
    pub(super) recoverable: usize,
    /// Of these, those without an entry in any copy.
    pub(super) empty: usize,
    /// Of these, those whose copies end at different entries.
    pub(super) differing: usize,
    /// Of these, those whose usable copies may lack acknowledged writes.
    pub(super) lacking: usize,
    /// Groups with a copy that cannot be used.
    pub(super) faulty: usize,
    /// Groups of which no node that has answered has a copy.
    pub(super) without_copy: usize,
}

/// The groups of one node, by n_val.
pub(super) type ChosenGroups = BTreeMap<u8, Vec<u16>>;

/// The choice of all groups.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) counts: Counts,
    /// The chosen groups of each node that holds its groups back; each is in it.
    pub(super) chosen: BTreeMap<String, ChosenGroups>,
    /// Groups that stay as they are, with the reason.
    pub(super) refused: Vec<String>,
}

impl Plan {
    /// The plan for nodes that have answered, without those that are given up.
    pub(super) fn of(surveys: &[Survey], without: &[String]) -> Result<Plan, Failure> {
        check(surveys, without)?;
        let nodes = Answered(surveys.iter().map(|it| (NodeId(it.node), it)).collect());
        let mut groups: BTreeMap<(u8, u16), Vec<GroupCopy>> = BTreeMap::new();
        for survey in surveys {
            for copy in &survey.copies {
                let read = copy.read(NodeId(survey.node))?;
                groups.entry((copy.n_val, copy.prefix)).or_default().push(read);
            }
        }

        let held = surveys.iter().filter(|it| it.held).map(|it| (it.here.clone(), BTreeMap::new()));
        let mut plan = Plan { counts: Counts::default(), chosen: held.collect(), refused: Vec::new() };
        for founding in surveys.iter().take(1).flat_map(|it| &it.foundings) {
            let there = groups.keys().filter(|(n_val, _)| *n_val == founding.n_val).count();
            plan.counts.without_copy += surveys[0].prefixes.saturating_sub(there);
            for (&(n_val, prefix), copies) in groups.iter().filter(|((n_val, _), _)| *n_val == founding.n_val)
            {
                let choice = choose(copies, founding.copies, &nodes);
                plan.note((n_val, prefix), copies, choice, &nodes);
            }
        }
        Ok(plan)
    }

    fn note(
        &mut self,
        (n_val, prefix): (u8, u16),
        copies: &[GroupCopy],
        choice: Choice,
        nodes: &Answered<'_>,
    ) {
        let counts = &mut self.counts;
        counts.copies += copies.len();
        counts.faulty += usize::from(copies.iter().any(|copy| copy.fault.is_some()));
        match choice {
            Choice::Lives => counts.kept += 1,
            Choice::Refused(why) => {
                self.refused.push(format!("n_val {n_val} prefix {prefix}: refused: {why}"))
            }
            Choice::Copy(chosen) => {
                counts.recoverable += 1;
                counts.empty += usize::from(chosen.is_empty);
                counts.differing += usize::from(chosen.differs);
                counts.lacking += usize::from(chosen.may_lack_writes);
                let name = nodes.0[&chosen.node].here.clone();
                self.chosen.entry(name).or_default().entry(n_val).or_default().push(prefix);
            }
        }
    }

    /// Whether there is nothing to do: no node holds its groups back.
    pub(super) fn is_idle(&self) -> bool {
        self.chosen.is_empty()
    }

    /// Shows it.
    pub(super) fn tell(&self, out: &mut impl Write) -> Result<(), Failure> {
        for line in &self.refused {
            writeln!(out, "{line}")?;
        }
        let Counts { copies, kept, recoverable, empty, differing, lacking, faulty, without_copy } =
            self.counts;
        let groups = kept + recoverable + self.refused.len();
        writeln!(out, "{}, {} found", len(groups, "group"), copies_of(copies))?;
        writeln!(out, "{} held back: {}", len(self.chosen.len(), "node"), self.held_names())?;
        let lines = [
            (kept, "kept: a majority of the voters was not restored"),
            (recoverable, "can be recovered"),
            (empty, "of these without an entry on any node"),
            (differing, "of these with copies that differ: the best one is taken"),
            (lacking, "of these with too few copies: acknowledged writes may be lost"),
            (faulty, "with a copy that is damaged or incomplete"),
            (without_copy, "without a copy on any of these nodes: they stay unavailable"),
            (self.refused.len(), "refused"),
        ];
        for (number, text) in lines.into_iter().filter(|(number, _)| *number > 0) {
            writeln!(out, "{} {text}", len(number, "group"))?;
        }
        Ok(())
    }

    fn held_names(&self) -> String {
        if self.chosen.is_empty() {
            return "none".to_owned();
        }
        self.chosen.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

fn copies_of(number: usize) -> String {
    if number == 1 { "1 copy".to_owned() } else { format!("{number} copies") }
}

/// Refuses surveys that do not make up the whole cluster.
fn check(surveys: &[Survey], without: &[String]) -> Result<(), Failure> {
    let Some(first) = surveys.first() else { return Err(Failure::new(FAILED, "no node was named")) };
    let failed = |text: String| Err(Failure::new(FAILED, text));
    if first.foundings.is_empty() {
        return failed("there are no consistent bucket types: nothing to recover".to_owned());
    }
    let mut names = BTreeSet::new();
    for it in surveys {
        if (&it.cluster, it.founded()) != (&first.cluster, first.founded()) {
            return failed(format!("{} and {} are of different clusters", first.here, it.here));
        }
        if !names.insert(&*it.here) {
            return failed(format!("{} was named twice", it.here));
        }
    }
    let holders = first.holders();
    for name in without {
        if names.contains(&**name) {
            return failed(format!("{name} has answered: it cannot be left out"));
        }
        if !holders.contains(&**name) {
            return failed(format!("{name} is no node with groups"));
        }
    }
    let is_missing = |name: &&&str| !names.contains(**name) && !without.iter().any(|it| it == **name);
    let missing: Vec<&str> = holders.iter().filter(is_missing).copied().collect();
    if !missing.is_empty() {
        return failed(format!(
            "not surveyed: {} of {}: {}. Add their HTTP ports to --node, or give their copies up with --without",
            missing.len(),
            count(holders.len() as u64, "node"),
            missing.join(", ")
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
