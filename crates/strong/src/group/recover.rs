//! Recovery by an operator of a group that lost its majority for good.
//!
//! The survivors become all voters of the group, in another epoch. Writes that none of them has are lost, even if
//! they were acknowledged; the report names the last entry of each survivor. Versions of the new epoch are above all
//! versions of earlier ones, so a context of a lost write matches no later one. It may match an entry that a survivor
//! has not applied: that one has the lost write's index, and keeps its epoch.
//!
//! 1. The operator declares members lost: the cluster never registers their stores again, and begins an epoch.
//! 2. Each survivor's store is asked for its report.
//! 3. On each survivor, [`GroupState::recover`] makes the state that replaces the stored one. It is the same for all
//!    but for term and vote. The survivor with the newest log wins the next election, as always.
//!
//! A change of voters may have been under way. Then a survivor knows several configurations: that of its state, and
//! those of entries that it has not applied. All survivors of all of them are voters. Other survivors may know fewer of
//! the configurations, and so fewer voters. Their majorities meet if the sets differ by one voter at most.
//!
//! Needs: a lost member takes no part before it has another birth; all survivors are recovered with the same ones
//! lost; promises of the time before have ended.
//!
//! After a restore from backups all stores have other births. [`GroupState::restart_alone`] makes the state of the one
//! copy that was chosen ([`crate::survey`]): its store is the only voter, and the others are refilled by it.

use std::collections::BTreeSet;

use super::configuration::Configuration;
use super::entry::NUMBER_MAX;
use super::identity::VoterId;
use super::state::{GroupState, HardState};

/// A survivor's part of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// The survivor.
    pub voter: VoterId,
    /// Index and term of the last entry of its log. Later entries are lost if no other survivor has them.
    pub last: (u64, u64),
    /// An index up to which entries are committed.
    pub commit: u64,
}

/// The reason why a group is not recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// A majority is not declared lost.
    #[error("a majority of the group's voters is not declared lost")]
    MajorityLives,
    /// This store is no voter that survives.
    #[error("this store is no surviving voter of the group")]
    NoSurvivor,
    /// Members change, and survivors may know voters that differ by more than one.
    #[error("the members of the group are changing: its survivors may know different voters")]
    Changing,
    /// The store lacks keys, or has some of a time that no log leads to.
    #[error("this store is in the middle of a catch-up")]
    CatchUp,
    /// The epoch of the founding has not been raised since the group was founded or recovered.
    #[error("no loss was declared since the group was founded or recovered last")]
    Undeclared,
    /// There are no more terms.
    #[error("the group cannot be recovered again")]
    Exhausted,
}

impl GroupState {
    /// The state of a survivor after the loss of voters. `epoch` is that of the group's founding by now, and
    /// `unapplied` has the configurations of entries that are not applied, in order.
    ///
    /// The group has lost its majority if each configuration's new voters have. While the new voters of a joint one
    /// have a majority, others may have left it, and go on.
    ///
    /// `has_catch_up` says whether the store has a record of a catch-up that has changed keys:
    /// [`crate::catch_up::Checkpoint::has_changed_keys`].
    ///
    /// # Errors
    /// [`RecoverError`].
    pub fn recover(
        &self,
        here: VoterId,
        lost: &BTreeSet<VoterId>,
        unapplied: &[Configuration],
        has_catch_up: bool,
        epoch: u16,
    ) -> Result<GroupState, RecoverError> {
        let known = || std::iter::once(&self.configuration).chain(unapplied);
        let halves = known().flat_map(|it| [&it.voters, &it.outgoing]);
        let halves: Vec<BTreeSet<VoterId>> =
            halves.map(|half| half.difference(lost).copied().collect()).collect();
        let survivors: BTreeSet<VoterId> = halves.iter().flatten().copied().collect();
        if self.is_removed || !survivors.contains(&here) {
            return Err(RecoverError::NoSurvivor);
        }
        let lives = |it: &Configuration| it.voters.difference(lost).count() > it.voters.len() / 2;
        if known().any(lives) && !base::planted!(RecoveredWhileVoterLives) {
            return Err(RecoverError::MajorityLives);
        }
        if has_catch_up {
            return Err(RecoverError::CatchUp);
        }
        // A half without survivors is the only one that nobody can know.
        if halves.iter().any(|half| !half.is_empty() && survivors.len() > half.len() + 1) {
            return Err(RecoverError::Changing);
        }

        self.in_epoch(epoch, survivors)
    }

    /// The state of a copy whose store is the only voter from now on. `here` is that store, with the
    /// birth after the restore.
    ///
    /// The configuration may be a joint one: the voters of both halves are nodes whose copies were compared.
    ///
    /// # Errors
    /// [`RecoverError`].
    pub fn restart_alone(
        &self,
        here: VoterId,
        has_catch_up: bool,
        epoch: u16,
    ) -> Result<GroupState, RecoverError> {
        if self.is_removed {
            return Err(RecoverError::NoSurvivor);
        }
        if has_catch_up {
            return Err(RecoverError::CatchUp);
        }
        self.in_epoch(epoch, [here].into())
    }

    /// The state in another epoch, with other voters.
    fn in_epoch(&self, epoch: u16, voters: BTreeSet<VoterId>) -> Result<GroupState, RecoverError> {
        if epoch <= self.epoch {
            return Err(RecoverError::Undeclared);
        }
        let term = self.hard.term + 1;
        if term >= NUMBER_MAX {
            return Err(RecoverError::Exhausted);
        }
        // No vote was given in a term that was not known here.
        let hard = HardState { term, vote: None, ..self.hard };
        let configuration = Configuration::of_voters(voters);
        let epoch = if base::planted!(EpochKept) { self.epoch } else { epoch };
        Ok(GroupState { epoch, hard, leader: None, configuration, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters(numbers: &[u64]) -> BTreeSet<VoterId> {
        numbers.iter().map(|number| VoterId::of_number(*number).unwrap()).collect()
    }

    fn recover(lost: &[u64], change: fn(&mut GroupState)) -> Result<GroupState, RecoverError> {
        let mut state = GroupState::found(1, Configuration::of_voters(voters(&[1, 2, 3, 4, 5])));
        state.hard = HardState { term: 7, vote: VoterId::of_number(3), reaped: 4 };
        change(&mut state);
        state.recover(VoterId::of_number(1).unwrap(), &voters(lost), &[], false, 4)
    }

    #[test]
    fn survivors_are_all_voters_of_the_epoch_of_the_founding() {
        let recovered = recover(&[3, 4, 5], |_| {}).unwrap();
        assert_eq!(recovered.configuration, Configuration::of_voters(voters(&[1, 2])));
        assert_eq!((recovered.epoch, recovered.founding), (4, 1));
        assert_eq!(recovered.hard, HardState { term: 8, vote: None, reaped: 4 });
        let again =
            |epoch| recovered.recover(VoterId::of_number(1).unwrap(), &voters(&[2]), &[], false, epoch);
        assert_eq!(again(4), Err(RecoverError::Undeclared));
        let again = again(5).unwrap();
        assert_eq!((again.epoch, again.configuration.voters), (5, voters(&[1])));
    }

    #[test]
    fn groups_that_live_or_cannot_be_judged_are_refused() {
        let error = |lost: &[u64], change| recover(lost, change).unwrap_err();
        assert_eq!(error(&[4, 5], |_| {}), RecoverError::MajorityLives);
        assert_eq!(error(&[1, 3, 4], |_| {}), RecoverError::NoSurvivor);
        assert_eq!(error(&[3, 4, 5], |state| state.is_removed = true), RecoverError::NoSurvivor);
        assert_eq!(error(&[3, 4, 5], |state| state.epoch = 4), RecoverError::Undeclared);
        assert_eq!(error(&[3, 4, 5], |state| state.hard.term = NUMBER_MAX - 1), RecoverError::Exhausted);
        let state = GroupState::found(1, Configuration::of_voters(voters(&[1, 2])));
        let here = VoterId::of_number(1).unwrap();
        assert_eq!(state.recover(here, &voters(&[2]), &[], true, 1), Err(RecoverError::CatchUp));
    }

    /// Voters from this one's recovery, where `stale` were replaced by `new`, and `lost` are lost, too.
    fn recover_joint(new: &[u64], stale: &[u64], lost: &[u64]) -> Result<BTreeSet<VoterId>, RecoverError> {
        let old = voters(&[1, 2, 3, 4, 5, 6, 7]);
        let next: BTreeSet<VoterId> = old.difference(&voters(stale)).copied().chain(voters(new)).collect();
        let here = VoterId::of_number(1).unwrap();
        let lost = voters(&[stale, lost].concat());
        let joint = Configuration { outgoing: old.clone(), ..Configuration::of_voters(next.clone()) };
        let recovered = |state: Configuration, unapplied: &[Configuration]| {
            let recovered = GroupState::found(1, state).recover(here, &lost, unapplied, false, 1);
            recovered.map(|it| {
                assert_eq!(it.configuration, Configuration::of_voters(it.configuration.voters.clone()));
                it.configuration.voters
            })
        };

        let of_old = Configuration::of_voters(old);
        let all = recovered(joint.clone(), &[]);
        let unapplied = recovered(of_old.clone(), std::slice::from_ref(&joint));
        assert_eq!(unapplied, all, "whether or not it is applied");
        assert_eq!(recovered(joint, &[Configuration::of_voters(next.clone())]), all, "or left");
        // Other survivors know one half alone. Each of their majorities has a voter of each of the others'.
        let halves = [recovered(of_old, &[]), recovered(Configuration::of_voters(next), &[])];
        for (other, all) in halves.iter().filter_map(|it| it.as_ref().ok().zip(all.as_ref().ok())) {
            assert!(other.is_subset(all) && all.len() - other.len() <= 1, "{other:?} {all:?}");
        }
        all
    }

    #[test]
    fn survivors_of_both_halves_of_a_joint_configuration_are_voters() {
        assert_eq!(recover_joint(&[17], &[7], &[2, 3, 4, 5]), Ok(voters(&[1, 6, 17])));
        assert_eq!(recover_joint(&[17], &[7], &[2, 3, 4, 17]), Ok(voters(&[1, 5, 6])));
        assert_eq!(recover_joint(&[16, 17], &[6, 7], &[2, 3, 4, 16]), Ok(voters(&[1, 5, 17])));
    }

    #[test]
    fn joint_configurations_that_live_or_whose_survivors_may_differ_are_refused() {
        let lives = Err(RecoverError::MajorityLives);
        assert_eq!(recover_joint(&[17], &[7], &[2, 3, 4]), lives, "the new voters may go on alone");
        // One voter that knows the old half alone would go on, and so would the two new ones.
        assert_eq!(recover_joint(&[16, 17], &[6, 7], &[2, 3, 4, 5]), Err(RecoverError::Changing));
    }

    #[test]
    fn a_restored_copy_goes_on_alone_also_from_a_joint_configuration() {
        let here = VoterId::of_number(9).unwrap();
        let mut state = GroupState::found(1, Configuration::of_voters(voters(&[1, 2, 3])));
        state.configuration.outgoing = voters(&[1, 2, 4]);
        state.hard.term = 7;
        let alone = state.restart_alone(here, false, 1).unwrap();
        assert_eq!((alone.configuration, alone.epoch), (Configuration::of_voters([here]), 1));
        assert_eq!((alone.hard.term, alone.hard.vote), (8, None));
        assert_eq!(state.restart_alone(here, true, 1), Err(RecoverError::CatchUp));
        assert_eq!(state.restart_alone(here, false, 0), Err(RecoverError::Undeclared));
        state.is_removed = true;
        assert_eq!(state.restart_alone(here, false, 1), Err(RecoverError::NoSurvivor));
    }
}
