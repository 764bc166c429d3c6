//! `annulet admin strong recover`: the groups of a stopped node that lost their majority for good.
//!
//! 1. The folder is locked. The metadata log in it names the members, and the stores that were declared lost.
//! 2. Each shard's store is opened as a start would open it, and its groups are judged.
//! 3. Each group with entries that can be recovered has a line with the entries of this store.
//! 4. With `--accept-loss`, the states of these groups are replaced. Without it, no group changes.
//!
//! Invariant: nothing is written before all shards of the folder are judged.
//!
//! With `--all` it is another command, for nodes that were restored and run (`restored/mod.rs`).
//!
//! Left out: a node that runs, the declaration of the loss (`declare-lost`), and other survivors: each is recovered at
//! its own node.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use engine::{Embedded, Machine};
use node::layout::shard_dir;
use node::{
    KnownCluster, RecoverError, RecoverGroupError, RecoverableGroup, Recovery, ShardId, read_birth,
    recoveries,
};
use os::{OsClock, OsDisk, OsRng};
use ring::{Birth, NodeId};
use server::StoppedNode;

use super::restored;
use crate::failure::{self, FAILED, Failure, UNUSABLE};
use crate::plural::count;
use crate::repair;
use crate::report::Report;

/// Arguments of `recover`.
#[derive(clap::Args)]
pub struct Args {
    /// Data folder of a stopped node that survived.
    #[arg(long, value_hint = ValueHint::DirPath, value_name = "DIR", required_unless_present = "all")]
    data: Option<PathBuf>,
    /// Recover the groups of nodes that were restored from backups and run: the best copy of each group goes on.
    #[arg(long, conflicts_with = "data")]
    all: bool,
    #[command(flatten)]
    nodes: restored::Nodes,
    /// Recover the groups: acknowledged writes that no survivor or backup has are lost. This cannot be undone.
    #[arg(long)]
    accept_loss: bool,
}

/// The numbers of groups by their outcomes.
#[derive(Default)]
struct Counts {
    recoverable: u64,
    /// Of these, those without an entry in this store.
    empty: u64,
    /// Groups with a living majority.
    kept: u64,
    /// Groups in which this store has no vote.
    without_vote: u64,
    refused: u64,
}

/// Shows the losses that are possible, and recovers the groups if they are accepted.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.data {
        Some(data) => of_stopped(data, args.accept_loss),
        None => restored::run(&args.nodes, args.accept_loss),
    }
}

fn of_stopped(data: &Path, is_accepted: bool) -> Result<(), Failure> {
    failure::check_links(data)?;
    let unusable = |text: &str| Failure::new(UNUSABLE, format!("{}: {text}", data.display()));
    let stopped = StoppedNode::open(data).map_err(|error| Failure::new(UNUSABLE, error.to_string()))?;
    let stopped = stopped.ok_or_else(|| unusable("no metadata log of a node is here"))?;
    let cluster = stopped.known_cluster();
    if cluster.foundings.is_empty() || stopped.births().is_empty() {
        return Err(unusable("there are no consistent bucket types: nothing to recover"));
    }

    let open = |(shard, registered): (u16, &Birth)| Judged::open(data, shard, *registered, &cluster);
    let judged = (0..).zip(stopped.births()).map(open).collect::<Result<Vec<Judged>, Failure>>()?;
    let mut out = Report::of_stdout();
    let (mut counts, names) = (Counts::default(), stopped.names());
    for store in &judged {
        store.tell(&mut out, &names, &mut counts)?;
    }
    for store in judged {
        store.finish(is_accepted)?;
    }
    counts.tell(&mut out, is_accepted)?;
    if counts.refused > 0 { Err(Failure::new(FAILED, "")) } else { Ok(()) }
}

impl Counts {
    /// Notes an outcome.
    fn note(&mut self, outcome: &Result<RecoverableGroup, RecoverGroupError>) {
        match outcome {
            Ok(group) => {
                self.recoverable += 1;
                self.empty += u64::from(!group.has_entries());
            }
            Err(RecoverGroupError::Group(RecoverError::MajorityLives)) => self.kept += 1,
            Err(RecoverGroupError::Group(RecoverError::NoSurvivor)) => self.without_vote += 1,
            Err(_) => self.refused += 1,
        }
    }

    fn tell(&self, out: &mut impl Write, is_accepted: bool) -> Result<(), Failure> {
        let some =
            |number: u64, text: &str| (number > 0).then(|| format!("{} {text}", count(number, "group")));
        let lines = [
            some(self.kept, "kept: a majority of the voters is not declared lost"),
            some(self.without_vote, "skipped: this node has no vote"),
            some(self.refused, "refused"),
        ];
        for line in lines.into_iter().flatten() {
            writeln!(out, "{line}")?;
        }
        let (groups, empty) = (count(self.recoverable, "group"), self.empty);
        match is_accepted {
            _ if self.recoverable == 0 => writeln!(out, "no group can be recovered; nothing was changed")?,
            true => writeln!(out, "{groups} recovered, {empty} of them without an entry here")?,
            false => writeln!(
                out,
                "{groups} can be recovered, {empty} of them without an entry here; nothing was changed: \
                 --accept-loss recovers them"
            )?,
        }
        Ok(())
    }
}

/// The store of a shard with the judgements on its groups.
struct Judged {
    store: Embedded,
    folder: PathBuf,
    recoveries: Vec<Recovery>,
}

impl Judged {
    /// Opens a store that goes on as the registered voter at the next start, and judges its groups.
    fn open(data: &Path, shard: u16, registered: Birth, cluster: &KnownCluster) -> Result<Judged, Failure> {
        let folder = shard_dir(data, shard);
        let unusable = |text: &str| Failure::new(UNUSABLE, format!("{}: {text}", folder.display()));
        if !folder.is_dir() {
            return Err(unusable("the shard's folder is missing"));
        }
        let disks = OsDisk::blocking().blocking_handles();
        let mut disk = disks();
        let machine = Machine::new(disks, OsClock::new(), OsRng::new());
        let opened = Embedded::open(&folder, repair::options_of(&folder), machine);
        let mut store = opened.map_err(|error| unusable(&error.to_string()))?;
        let birth = read_birth(store.store(), &mut disk, cluster.node)
            .map_err(|error| unusable(&error.to_string()))?;
        if birth.stored != Some(registered) || !birth.is_complete {
            return Err(unusable(
                "this store is no survivor: it lost data, was declared lost, was restored, or is a copy of an \
                 earlier time",
            ));
        }
        let recoveries = recoveries(store.store().take_groups(), ShardId(shard), cluster);
        Ok(Judged { store, folder, recoveries })
    }

    /// Shows the entries of each group in this store, or the reason of the refusal.
    fn tell(
        &self,
        out: &mut impl Write,
        names: &BTreeMap<NodeId, String>,
        counts: &mut Counts,
    ) -> Result<(), Failure> {
        for Recovery { n_val, prefix, outcome } in &self.recoveries {
            counts.note(outcome);
            match outcome {
                Ok(group) if group.has_entries() => {
                    writeln!(out, "n_val {n_val} prefix {prefix}: {}", described(group, names))?;
                }
                Ok(_)
                | Err(RecoverGroupError::Group(RecoverError::MajorityLives | RecoverError::NoSurvivor)) => {}
                Err(reason) => writeln!(out, "n_val {n_val} prefix {prefix}: refused: {reason}")?,
            }
        }
        Ok(())
    }

    /// Recovers the groups if `is_accepted`, and closes the store.
    fn finish(mut self, is_accepted: bool) -> Result<(), Failure> {
        let failed =
            |error: engine::Error| Failure::new(FAILED, format!("{}: {error}", self.folder.display()));
        if is_accepted {
            let groups = self.recoveries.iter().filter_map(|it| it.outcome.as_ref().ok());
            let groups: Vec<_> = groups.map(|group| (group, group.entries())).collect();
            let batches: Vec<_> = groups.iter().map(|(group, entries)| group.batch(entries)).collect();
            self.store.propose_all(&batches).map_err(failed)?;
        }
        self.store.close().map_err(failed)
    }
}

fn described(group: &RecoverableGroup, names: &BTreeMap<NodeId, String>) -> String {
    let survivor = group.survivor;
    let name = |node: &NodeId| names.get(node).map_or("a former member", |name| name);
    let voters: Vec<&str> = group.voters.iter().map(|voter| name(&voter.node)).collect();
    format!(
        "last entry {} of term {}, committed up to {}; voters {}; epoch {}",
        survivor.last.0,
        survivor.last.1,
        survivor.commit,
        voters.join(", "),
        group.epoch
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_counted_by_their_outcomes() {
        let mut counts = Counts::default();
        let of_group = |error: RecoverError| Err(RecoverGroupError::Group(error));
        counts.note(&of_group(RecoverError::MajorityLives));
        counts.note(&of_group(RecoverError::NoSurvivor));
        counts.note(&of_group(RecoverError::Changing));
        counts.note(&Err(RecoverGroupError::Damaged));
        let mut out = Vec::new();
        counts.tell(&mut out, true).ok().unwrap();
        let expected = "1 group kept: a majority of the voters is not declared lost\n1 group skipped: this node has no \
                        vote\n2 groups refused\nno group can be recovered; nothing was changed\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
