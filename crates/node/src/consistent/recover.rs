//! Recovery of the groups of a stopped node's store that lost their majority for good.
//!
//! 1. The store's open tells its groups; [`recoveries`] judges each group that the store votes in, and makes the state
//!    that replaces its own. A group without a state has not begun here: it is recovered as it was founded.
//! 2. An operator reads the losses that are possible.
//! 3. [`RecoverableGroup::batch`] is written for each. A crash between two of them leaves some recovered: these have a
//!    majority then, and the next try leaves them as they are.
//!
//! An entry with a configuration that is not applied would bring the old voters back, since the last configuration of a
//! log is in force. So it is replaced by one without contents. Its voters count as the state's do: those that survive
//! are voters from then on ([`GroupState::recover`]).
//!
//! Invariants: a voter is lost only if the cluster has registered another store in its place, so the lost one never
//! takes part again; the applied index, the commit index and the writes of a group stay as they are.
//!
//! Left out: the declaration of the loss, which the metadata log takes; other survivors, each of which is recovered at
//! its own node.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use engine::{Contents, FoundContents, FoundGroup, GroupBatch, GroupNumber, LogPlace, ProposedEntry, Seq};
use membership::state::{Founding, StoreBirths};
use ring::RingSize;
use strong::group::{Configuration, GroupState, Payload, Progress, RecoverError, Survivor, VoterId};

use super::group::GroupKey;
use super::stored_state::{StoredState, entry_of, place_of, put_state, read_state};
use crate::hop::ShardId;
use crate::peer::NodeId;

/// The reason why a group is not recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverGroupError {
    /// The group's own reason.
    #[error(transparent)]
    Group(#[from] RecoverError),
    /// The state or an entry cannot be read.
    #[error("the state of the group in this store is damaged")]
    Damaged,
    /// Entries that the store may have acknowledged are missing.
    #[error("entries of the group are damaged in this store")]
    Suspect,
}

/// The agreement that a recovery goes by: that of the metadata log in the node's folder.
#[derive(Clone, Debug)]
pub struct KnownCluster {
    /// The node.
    pub node: NodeId,
    /// The foundings of groups, by their number of voters.
    pub foundings: BTreeMap<u8, Founding>,
    /// The stores that each member has registered last.
    pub stores: BTreeMap<NodeId, StoreBirths>,
    /// The prefixes by which keys are ordered.
    pub prefixes: RingSize,
}

impl KnownCluster {
    /// The voter that the last registered store of a node is, for the groups of a prefix.
    fn voter_of(&self, node: NodeId, prefix: u16) -> Option<VoterId> {
        let birth = self.stores.get(&node)?.of_prefix(prefix, self.prefixes);
        Some(VoterId { node, birth })
    }

    /// Whether the store of a voter is given up: its node has another one.
    fn is_lost(&self, voter: VoterId, prefix: u16) -> bool {
        self.voter_of(voter.node, prefix) != Some(voter)
    }

    /// The prefixes whose keys a shard of the node holds.
    fn prefixes_of(&self, shard: ShardId) -> impl Iterator<Item = u16> {
        let own = self.stores.get(&self.node);
        let all = (0..self.prefixes.partitions()).filter_map(|prefix| u16::try_from(prefix).ok());
        all.filter(move |prefix| own.is_some_and(|it| it.shard_of_prefix(*prefix, self.prefixes) == shard.0))
    }

    /// The first voters of a group.
    fn first_voters(&self, key: GroupKey) -> BTreeSet<VoterId> {
        let founding = &self.foundings[&key.n_val];
        let voters = founding.voters(key.n_val, key.prefix, self.prefixes);
        voters.into_iter().map(|(node, birth)| VoterId { node, birth }).collect()
    }
}

/// A group that can be recovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoverableGroup {
    group: GroupNumber,
    state: Bytes,
    /// The entries that are to have no contents, and their bytes then.
    emptied: (Vec<LogPlace>, Bytes),
    /// The end of the group's log in this store.
    pub survivor: Survivor,
    /// All survivors: the voters from now on.
    pub voters: BTreeSet<VoterId>,
    /// The epoch that begins.
    pub epoch: u16,
}

impl RecoverableGroup {
    /// The entries of its log that are replaced.
    pub fn entries(&self) -> Vec<ProposedEntry<'_>> {
        let (places, contents) = &self.emptied;
        places.iter().map(|&place| ProposedEntry { place, contents: Contents::Other(contents) }).collect()
    }

    /// The write that recovers it, with its [`RecoverableGroup::entries`].
    pub fn batch<'a>(&'a self, entries: &'a [ProposedEntry<'a>]) -> GroupBatch<'a> {
        let commit = self.survivor.commit;
        GroupBatch { group: self.group, state: Some(&self.state), commit, install: None, entries }
    }

    /// The group as its store's next open finds it, once the batch is written.
    pub(super) fn found_again(&self, mut found: FoundGroup) -> FoundGroup {
        let (places, contents) = &self.emptied;
        for entry in found.entries.iter_mut().filter(|entry| places.contains(&entry.place)) {
            entry.contents = FoundContents::Other(contents.clone());
        }
        found.state = Some(self.state.clone());
        found
    }

    /// Whether this store has an entry of the group.
    pub fn has_entries(&self) -> bool {
        self.survivor.last != Progress::FOUNDED.applied
    }
}

/// The judgement on a group of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The n_val of its types.
    pub n_val: u8,
    /// Its prefix.
    pub prefix: u16,
    /// The group with its next state, or the reason why it stays as it is.
    pub outcome: Result<RecoverableGroup, RecoverGroupError>,
}

/// Judges all groups of a shard's store: those that it was found with, and those that it is a first voter of.
pub fn recoveries(found: Vec<FoundGroup>, shard: ShardId, cluster: &KnownCluster) -> Vec<Recovery> {
    let found = found.into_iter().map(|group| (GroupKey::of_number(group.group), group));
    let mut found: BTreeMap<GroupKey, FoundGroup> = found.collect();
    let mut recoveries = Vec::new();
    for (&n_val, founding) in &cluster.foundings {
        for prefix in cluster.prefixes_of(shard) {
            let key = GroupKey { n_val, prefix };
            let first = cluster.first_voters(key);
            let Some(here) = cluster.voter_of(cluster.node, prefix) else { continue };
            let group = match found.remove(&key) {
                Some(group) => group,
                None if first.contains(&here) => as_founded(key, founding, first),
                None => continue,
            };
            let outcome = recover(group, here, (key, founding), cluster);
            recoveries.push(Recovery { n_val, prefix, outcome });
        }
    }
    recoveries
}

/// A group that has not begun in a store of its first voters.
pub(super) fn as_founded(key: GroupKey, founding: &Founding, first: BTreeSet<VoterId>) -> FoundGroup {
    let state = GroupState::found(founding.number, Configuration::of_voters(first));
    FoundGroup {
        group: key.number(),
        state: Some(put_state(&state, None, Seq(0))),
        applied: place_of(Progress::FOUNDED.applied),
        commit: Progress::FOUNDED.commit,
        entries: Vec::new(),
        suspect_through: None,
    }
}

fn recover(
    found: FoundGroup,
    here: VoterId,
    (key, founding): (GroupKey, &Founding),
    cluster: &KnownCluster,
) -> Result<RecoverableGroup, RecoverGroupError> {
    let bytes = found.state.as_ref().ok_or(RecoverGroupError::Damaged)?;
    let StoredState { state, checkpoint, dropped_at } =
        read_state(bytes).map_err(|_| RecoverGroupError::Damaged)?;
    if state.founding != founding.number {
        return Err(RecoverError::NoSurvivor.into());
    }
    let unapplied: Vec<Configuration> =
        configurations(&found)?.into_iter().map(|(_, configuration)| configuration).collect();
    let known = std::iter::once(&state.configuration).chain(&unapplied);
    let voters = known.flat_map(|it| it.voters.union(&it.outgoing).copied());
    let lost = voters.filter(|voter| cluster.is_lost(*voter, key.prefix)).collect();

    let has_catch_up = checkpoint.as_ref().is_some_and(|it| it.has_changed_keys());
    let next = state.recover(here, &lost, &unapplied, has_catch_up, founding.epoch)?;
    if found.suspect_through.is_some() {
        return Err(RecoverGroupError::Suspect);
    }
    restarted(&found, here, next, dropped_at)
}

/// The unapplied entries of a group that have a configuration.
fn configurations(found: &FoundGroup) -> Result<Vec<(LogPlace, Configuration)>, RecoverGroupError> {
    let mut configurations = Vec::new();
    for entry in &found.entries {
        let read = entry_of(entry.clone()).map_err(|_| RecoverGroupError::Damaged)?;
        if let Payload::Configuration(configuration) = read.payload {
            configurations.push((entry.place, configuration));
        }
    }
    Ok(configurations)
}

/// A group of this store whose state is replaced. Its entries with a configuration have no contents any more.
pub(super) fn restarted(
    found: &FoundGroup,
    here: VoterId,
    next: GroupState,
    dropped_at: Seq,
) -> Result<RecoverableGroup, RecoverGroupError> {
    let emptied = configurations(found)?.into_iter().map(|(place, _)| place).collect();
    let last = found.entries.last().map_or(found.applied, |last| last.place);
    let commit = found.commit.max(found.applied.index);
    Ok(RecoverableGroup {
        group: found.group,
        // A catch-up without an effect ends: its sender may be lost.
        state: put_state(&next, None, dropped_at),
        emptied: (emptied, Payload::First.encode()),
        survivor: Survivor { voter: here, last: (last.index, last.term), commit },
        voters: next.configuration.voters,
        epoch: next.epoch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::FoundEntry;
    use ring::Birth;
    use std::sync::Arc;

    const PREFIX: u16 = 9;

    fn birth(number: u64) -> Birth {
        Birth::of(number).expect("below 2^48")
    }

    fn voter(node: u16, number: u64) -> VoterId {
        VoterId { node: NodeId(node), birth: birth(number) }
    }

    fn stores(number: u64) -> StoreBirths {
        StoreBirths { ring_bits: 3, births: [birth(number)].into() }
    }

    /// Three nodes with a store each, whose births are 7; stores of `lost` have another one. One epoch was begun.
    fn cluster(lost: &[u16]) -> KnownCluster {
        let nodes = [0, 1, 2].map(NodeId);
        let founding = Founding {
            number: 5,
            epoch: 1,
            owners: (0..8).map(|it| nodes[it % 3]).collect(),
            stores: Arc::new(nodes.map(|node| (node, stores(7))).into()),
        };
        let now = nodes.map(|node| (node, stores(if lost.contains(&node.0) { 8 } else { 7 })));
        let prefixes = RingSize::new(16).expect("a power of two");
        KnownCluster { node: NodeId(0), foundings: [(3, founding)].into(), stores: now.into(), prefixes }
    }

    fn found(change: fn(&mut FoundGroup)) -> FoundGroup {
        let configuration = Configuration::of_voters([0, 1, 2].map(|node| voter(node, 7)));
        let mut found = FoundGroup {
            group: GroupKey { n_val: 3, prefix: PREFIX }.number(),
            state: Some(put_state(&GroupState::found(5, configuration), None, Seq(0))),
            applied: LogPlace { index: 4, term: 2 },
            commit: 3,
            entries: vec![entry(&Payload::First)],
            suspect_through: None,
        };
        change(&mut found);
        found
    }

    fn entry(payload: &Payload) -> FoundEntry {
        let contents = FoundContents::Other(payload.encode());
        FoundEntry { place: LogPlace { index: 5, term: 2 }, contents }
    }

    fn judged(lost: &[u16], change: fn(&mut FoundGroup)) -> Result<RecoverableGroup, RecoverGroupError> {
        let judged = recoveries(vec![found(change)], ShardId(0), &cluster(lost));
        let mut of_prefix = judged.into_iter().filter(|it| it.prefix == PREFIX);
        let recovery = of_prefix.next().expect("each group is judged");
        assert_eq!(of_prefix.next(), None, "each group is judged once");
        recovery.outcome
    }

    #[test]
    fn a_survivor_tells_its_log_and_becomes_the_only_voter() {
        let group = judged(&[1, 2], |_| {}).expect("it is recovered");
        assert_eq!(group.survivor, Survivor { voter: voter(0, 7), last: (5, 2), commit: 4 });
        assert_eq!((group.voters.clone(), group.epoch, group.has_entries()), ([voter(0, 7)].into(), 1, true));
        let again = |found: &mut FoundGroup| {
            found.state = judged(&[1, 2], |_| {}).ok().map(|it| it.state);
        };
        assert_eq!(judged(&[1, 2], again), Err(RecoverError::MajorityLives.into()), "a second try");
    }

    #[test]
    fn an_entry_that_changes_learners_has_no_effect() {
        let learner = |it: &mut FoundGroup| {
            let configuration = Configuration::of_voters([0, 1, 2].map(|node| voter(node, 7)));
            it.entries = vec![entry(&Payload::Configuration(configuration.with_learner(voter(1, 8))))];
        };
        let group = judged(&[1, 2], learner).expect("it is recovered");
        let entries = group.entries();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].place, LogPlace { index: 5, term: 2 });
        let Contents::Other(bytes) = entries[0].contents else { panic!("it is no write") };
        assert_eq!(Payload::read(Bytes::copy_from_slice(bytes)), Ok(Payload::First));
        assert_eq!(judged(&[1, 2], |_| {}).map(|it| it.entries().len()), Ok(0));
    }

    #[test]
    fn a_group_whose_voters_change_goes_on_with_the_survivors_of_both_halves() {
        // Node 1 has another store, whose vote comes with the joint configuration.
        fn joint() -> Configuration {
            let next = [voter(0, 7), voter(1, 8), voter(2, 7)];
            let outgoing = [0, 1, 2].map(|node| voter(node, 7)).into();
            Configuration { outgoing, ..Configuration::of_voters(next) }
        }
        let applied = |it: &mut FoundGroup| {
            it.state = Some(put_state(&GroupState::found(5, joint()), None, Seq(0)));
        };
        let unapplied = |it: &mut FoundGroup| it.entries = vec![entry(&Payload::Configuration(joint()))];
        for (change, emptied) in [(applied as fn(&mut FoundGroup), 0), (unapplied, 1)] {
            assert_eq!(
                judged(&[1], change),
                Err(RecoverError::MajorityLives.into()),
                "the new store may go on"
            );

            // The new store is declared lost, too.
            let mut cluster = cluster(&[2]);
            cluster.stores.insert(NodeId(1), stores(9));
            let judged = recoveries(vec![found(change)], ShardId(0), &cluster);
            let outcome = judged.into_iter().find(|it| it.prefix == PREFIX).map(|it| it.outcome);
            let group = outcome.expect("it is judged").expect("it is recovered");
            assert_eq!((group.voters.clone(), group.entries().len()), ([voter(0, 7)].into(), emptied));
        }
    }

    #[test]
    fn groups_that_have_not_begun_here_are_recovered_as_they_were_founded() {
        let judged = recoveries(Vec::new(), ShardId(0), &cluster(&[1, 2]));
        assert_eq!(judged.len(), 16, "all prefixes");
        for it in judged {
            let group = it.outcome.expect("it is recovered");
            assert_eq!((group.survivor.last, group.has_entries()), ((1, 1), false));
            assert_eq!(group.voters, [voter(0, 7)].into());
        }
        let mut cluster = cluster(&[1, 2]);
        cluster.stores.insert(NodeId(0), stores(9));
        assert_eq!(recoveries(Vec::new(), ShardId(0), &cluster), [], "another store than the first one");
    }

    #[test]
    fn groups_that_cannot_be_judged_stay_as_they_are() {
        assert_eq!(judged(&[1], |_| {}), Err(RecoverError::MajorityLives.into()));
        assert_eq!(judged(&[0, 1], |_| {}), Err(RecoverError::NoSurvivor.into()));
        assert_eq!(judged(&[1, 2], |it| it.state = None), Err(RecoverGroupError::Damaged));
        assert_eq!(judged(&[1, 2], |it| it.suspect_through = Some(8)), Err(RecoverGroupError::Suspect));
        let change = |it: &mut FoundGroup| {
            it.entries = vec![entry(&Payload::Configuration(Configuration::of_voters([voter(0, 7)])))];
        };
        assert_eq!(judged(&[1, 2], change), Err(RecoverError::MajorityLives.into()), "it may be committed");
        let founding = |it: &mut FoundGroup| {
            let state = GroupState::found(6, Configuration::of_voters([voter(0, 7)]));
            it.state = Some(put_state(&state, None, Seq(0)));
        };
        assert_eq!(judged(&[1, 2], founding), Err(RecoverError::NoSurvivor.into()), "another founding");
    }
}
