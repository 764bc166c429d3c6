//! The copies of groups in this shard's store, and the groups that a restored store goes on with alone.
//!
//! A restored store has no birth, so it takes part in no group until an operator has chosen among the copies of all
//! nodes ([`strong::survey`]).
//!
//! 1. [`ShardStatus::copies`] tells the copy of each group: of open groups as they are, of dormant ones as the store
//!    has them, of others as the store's open found them. A group that has not begun here is told as it was founded.
//! 2. [`Shard::adopt`] writes the states of the chosen groups, a piece at each call. Each has the store's next birth
//!    as its only voter, in the epoch of its founding. A store whose memory is full takes the rest once it has flushed.
//! 3. The shell gives the store that birth when all pieces are written. Its entry is behind the states in the journal,
//!    so no crash takes a state and leaves the birth.
//! 4. The leaders of these groups refill the other nodes as after a lost disk. A copy that was not chosen is dropped
//!    when the first message of the leader comes.
//!
//! Invariants: nothing is written before all chosen groups of the shard are judged; a store with a birth adopts
//! nothing; a state of an adoption that did not end names a birth that is never registered.
//!
//! Left out: the fence between two operators, and the time until the next piece, which the shell has.
//!
//! [`ShardStatus::copies`]: crate::ShardStatus::copies
//! [`Shard::adopt`]: crate::Shard::adopt

use std::collections::BTreeMap;

use engine::{FoundGroup, Seq};
use ring::Birth;
use strong::group::{Configuration, Group, Progress, VoterId};
use strong::survey::{CopyFault, GroupCopy};

use super::closed_groups::{ClosedGroup, ClosedGroups};
use super::group::{GroupKey, HeldGroup};
use super::open_groups::OpenGroups;
use super::recover::{RecoverGroupError, RecoverableGroup, as_founded, restarted};
use super::stored_state::{StoredState, read_state};
use super::voters::{first_voters, is_here};
use crate::shard::env::Env;

/// The groups that a call of [`Shard::adopt`] writes at most: a shard does nothing else for about a millisecond.
///
/// [`Shard::adopt`]: crate::Shard::adopt
const PIECE_GROUPS_MAX: usize = 64;

/// The groups that a restored node goes on with, and the births that its stores get with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adoption {
    /// The next birth of each shard's store.
    pub births: Vec<Birth>,
    /// The epoch of each founding, by n_val.
    pub epochs: BTreeMap<u8, u16>,
    /// The groups: n_val and prefix.
    pub groups: Vec<(u8, u16)>,
}

/// The groups of an adoption that are this shard's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdoptedGroups {
    /// Those that are written.
    pub written: usize,
    /// All of them.
    pub all: usize,
}

impl AdoptedGroups {
    /// Whether the store may get the adoption's birth.
    pub fn are_complete(self) -> bool {
        self.written == self.all
    }
}

/// The copy of a group here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyReport {
    /// The n_val of its types.
    pub n_val: u8,
    /// The prefix of its keys.
    pub prefix: u16,
    /// The copy.
    pub copy: GroupCopy,
}

/// The reason why groups are not adopted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdoptError {
    /// The store takes part in groups.
    #[error("the groups of this node are not held back")]
    NotHeld,
    /// The agreement here is of another epoch, or has no such group.
    #[error("n_val {n_val} prefix {prefix}: this node knows of no such group in that epoch")]
    Unknown {
        /// The group's n_val.
        n_val: u8,
        /// Its prefix.
        prefix: u16,
    },
    /// A copy cannot go on.
    #[error("n_val {n_val} prefix {prefix}: {error}")]
    Copy {
        /// The group's n_val.
        n_val: u8,
        /// Its prefix.
        prefix: u16,
        /// The reason.
        error: RecoverGroupError,
    },
    /// The store takes no writes.
    #[error("the store: {0}")]
    Store(engine::Error),
}

/// The copy of each group that this store has, or should have by its founding.
pub(super) fn copies(env: &Env, groups: &OpenGroups, closed: &ClosedGroups) -> Vec<CopyReport> {
    let mut copies = Vec::new();
    let prefixes = env.knobs.layout.prefixes.partitions();
    for &n_val in env.agreement.foundings.keys() {
        for prefix in (0..prefixes).filter_map(|prefix| u16::try_from(prefix).ok()) {
            let key = GroupKey { n_val, prefix };
            if is_here(env, prefix) {
                let copy = copy(env, groups, closed, key);
                copies.extend(copy.map(|copy| CopyReport { n_val, prefix, copy }));
            }
        }
    }
    copies
}

/// The copy of a group; none if this node is not on its list.
fn copy(env: &Env, groups: &OpenGroups, closed: &ClosedGroups, key: GroupKey) -> Option<GroupCopy> {
    let first = first_voters(env, key)?;
    let node = env.peers.here();
    let rank = first.iter().position(|voter| voter.node == node)?;
    let founded = GroupCopy {
        node,
        rank: u32::try_from(rank).expect("a group has a few voters"),
        epoch: 0,
        last: Progress::FOUNDED.applied,
        configuration: Configuration::of_voters(first),
        fault: None,
    };
    let number = env.agreement.foundings.get(&key.n_val)?.number;
    if let Some(held) = groups.get(key) {
        return Some(copy_of_open(held, founded));
    }
    Some(match closed.get(env, key) {
        Some(ClosedGroup::Found(found)) => copy_of_found(found, number, founded),
        Some(ClosedGroup::Unloaded(found)) => copy_of_found(&found, number, founded),
        Some(ClosedGroup::Refused) => damaged(founded),
        None => founded,
    })
}

/// Makes this restored store the only voter of groups that were chosen for it: of the next piece of them, behind those
/// that are written.
pub(super) fn adopt(
    env: &mut Env,
    closed: &mut ClosedGroups,
    adoption: &Adoption,
    written: usize,
) -> Result<AdoptedGroups, AdoptError> {
    let birth = adoption.births.get(usize::from(env.knobs.id.0));
    let voter = VoterId { node: env.peers.here(), birth: *birth.ok_or(AdoptError::NotHeld)? };
    let is_own = |&&(_, prefix): &&(u8, u16)| is_here(env, prefix);
    let groups: Vec<(u8, u16)> = adoption.groups.iter().filter(is_own).copied().collect();
    let judge = |env: &Env, closed: &ClosedGroups, (n_val, prefix)| {
        let epoch = adoption.epochs.get(&n_val).copied();
        judge(env, closed, GroupKey { n_val, prefix }, voter, epoch)
    };

    // One copy that cannot go on leaves all of them as they were.
    if written == 0 {
        groups.iter().try_for_each(|&group| judge(env, closed, group).map(drop))?;
    }

    let mut adopted = AdoptedGroups { written, all: groups.len() };
    for &(n_val, prefix) in groups.iter().skip(written).take(PIECE_GROUPS_MAX) {
        let (found, group) = judge(env, closed, (n_val, prefix))?;
        match env.store.propose(&group.batch(&group.entries())) {
            Ok(_) => {}
            Err(engine::Error::Full { .. }) => break,
            Err(error) => return Err(AdoptError::Store(error)),
        }
        closed.replace_found(GroupKey { n_val, prefix }, group.found_again(found));
        adopted.written += 1;
    }
    Ok(adopted)
}

/// The group of a copy as it goes on, with the copy.
fn judge(
    env: &Env,
    closed: &ClosedGroups,
    key: GroupKey,
    voter: VoterId,
    epoch: Option<u16>,
) -> Result<(FoundGroup, RecoverableGroup), AdoptError> {
    let GroupKey { n_val, prefix } = key;
    let unknown = || AdoptError::Unknown { n_val, prefix };
    let wrong = |error| AdoptError::Copy { n_val, prefix, error };
    let founding = env.agreement.foundings.get(&n_val).filter(|it| Some(it.epoch) == epoch);
    let (founding, first) = founding.zip(first_voters(env, key)).ok_or_else(unknown)?;
    if first.iter().all(|voter| voter.node != env.peers.here()) {
        return Err(unknown());
    }
    let found = closed.found(key).cloned();
    let found = found.unwrap_or_else(|| as_founded(key, founding, first.into_iter().collect()));

    let bytes = found.state.as_ref().ok_or_else(|| wrong(RecoverGroupError::Damaged))?;
    let StoredState { state, checkpoint, .. } =
        read_state(bytes).map_err(|_| wrong(RecoverGroupError::Damaged))?;
    if state.founding != founding.number {
        return Err(unknown());
    }
    if found.suspect_through.is_some() {
        return Err(wrong(RecoverGroupError::Suspect));
    }
    let has_catch_up = checkpoint.as_ref().is_some_and(|it| it.has_changed_keys());
    let next = state.restart_alone(voter, has_catch_up, founding.epoch);
    let next = next.map_err(|error| wrong(error.into()))?;
    // Versions of another life of the store say nothing of this one's losses.
    let group = restarted(&found, voter, next, Seq(0)).map_err(wrong)?;
    Ok((found, group))
}

fn damaged(founded: GroupCopy) -> GroupCopy {
    GroupCopy { configuration: Configuration::default(), fault: Some(CopyFault::Damaged), ..founded }
}

fn copy_of_open(held: &HeldGroup, founded: GroupCopy) -> GroupCopy {
    let group: &Group = &held.group;
    let has_catch_up = held.checkpoint.as_ref().is_some_and(|it| it.has_changed_keys());
    let fault = match () {
        () if group.is_suspect() || group.has_forgotten() => Some(CopyFault::Suspect),
        () if has_catch_up || group.is_incomplete() => Some(CopyFault::CatchUp),
        () => None,
    };
    let (epoch, last, configuration) = (group.epoch(), group.last(), group.members().clone());
    GroupCopy { epoch, last, configuration, fault, ..founded }
}

/// The copy of a group as the store's open found it. A state of another founding is none.
fn copy_of_found(found: &FoundGroup, founding: u64, founded: GroupCopy) -> GroupCopy {
    let Some(stored) = found.state.as_ref().and_then(|bytes| read_state(bytes).ok()) else {
        return damaged(founded);
    };
    let StoredState { state, checkpoint, .. } = stored;
    if state.founding != founding {
        return founded;
    }
    let has_catch_up = checkpoint.as_ref().is_some_and(|it| it.has_changed_keys());
    let fault = match () {
        () if state.is_removed => Some(CopyFault::Removed),
        () if found.suspect_through.is_some() => Some(CopyFault::Suspect),
        () if has_catch_up => Some(CopyFault::CatchUp),
        () => None,
    };
    let place = found.entries.last().map_or(found.applied, |last| last.place);
    let (epoch, last, configuration) = (state.epoch, (place.index, place.term), state.configuration);
    GroupCopy { epoch, last, configuration, fault, ..founded }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use engine::{FoundContents, FoundEntry, LogPlace};
    use strong::catch_up::{Checkpoint, Place};
    use strong::group::{GroupState, Payload};

    use super::super::stored_state::put_state;

    const FOUNDING: u64 = 5;

    fn voter(number: u64) -> VoterId {
        VoterId::of_number(number).expect("it has a birth")
    }

    fn founded() -> GroupCopy {
        let (last, configuration) = (Progress::FOUNDED.applied, Configuration::of_voters([voter(1)]));
        GroupCopy { node: crate::peer::NodeId(0), rank: 2, epoch: 0, last, configuration, fault: None }
    }

    fn state() -> GroupState {
        let joint = Configuration { outgoing: [voter(3)].into(), ..Configuration::of_voters([voter(2)]) };
        GroupState { epoch: 4, ..GroupState::found(FOUNDING, joint) }
    }

    fn copy(state: Option<Bytes>, change: fn(&mut FoundGroup)) -> GroupCopy {
        let contents = FoundContents::Other(Payload::First.encode());
        let mut found = FoundGroup {
            group: GroupKey { n_val: 3, prefix: 9 }.number(),
            state,
            applied: LogPlace { index: 4, term: 2 },
            commit: 4,
            entries: vec![FoundEntry { place: LogPlace { index: 5, term: 3 }, contents }],
            suspect_through: None,
        };
        change(&mut found);
        copy_of_found(&found, FOUNDING, founded())
    }

    #[test]
    fn a_copy_tells_the_end_of_its_log_and_its_voters() {
        let state = state();
        let expected =
            GroupCopy { epoch: 4, last: (5, 3), configuration: state.configuration.clone(), ..founded() };
        assert_eq!(copy(Some(put_state(&state, None, Seq(0))), |_| {}), expected);
        let applied = copy(Some(put_state(&state, None, Seq(0))), |it| it.entries.clear());
        assert_eq!(applied.last, (4, 2));
        let other = GroupState { founding: FOUNDING + 1, ..state };
        assert_eq!(
            copy(Some(put_state(&other, None, Seq(0))), |_| {}),
            founded(),
            "another founding has no copy here"
        );
    }

    #[test]
    fn a_copy_that_cannot_go_on_says_why() {
        let fault = |state: &GroupState, place: Option<Place>, change| {
            let checkpoint = place.map(|place| Checkpoint {
                number: 1,
                base: 1,
                is_incomplete: false,
                place,
                snapshot: (2, 1),
                left_out: 0,
            });
            copy(Some(put_state(state, checkpoint.as_ref(), Seq(0))), change).fault
        };
        let removed = GroupState { is_removed: true, ..state() };
        assert_eq!(fault(&removed, None, |_| {}), Some(CopyFault::Removed));
        assert_eq!(fault(&state(), None, |it| it.suspect_through = Some(9)), Some(CopyFault::Suspect));
        assert_eq!(fault(&state(), Some(Place::End), |_| {}), Some(CopyFault::CatchUp));
        assert_eq!(fault(&state(), Some(Place::Begin), |_| {}), None, "it has changed no key");
        let damaged = copy(None, |_| {});
        assert_eq!((damaged.fault, damaged.configuration.voters.len()), (Some(CopyFault::Damaged), 0));
        assert_eq!(copy(Some(Bytes::from_static(b"\xFF\xFF")), |_| {}).fault, Some(CopyFault::Damaged));
    }
}
