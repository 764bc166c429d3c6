//! Beginning: a group from its state and the entries that its store kept.

use std::collections::{BTreeMap, BTreeSet};

use base::{Monotonic, Rng};
use raft::{Config, RawNode};

use super::commit_notes::CommitNotes;
use super::entry::Entry;
use super::identity::VoterId;
use super::log::Log;
use super::reads::CONTEXTS;
use super::state::{GroupState, Progress};
use super::{CatchUps, Departure, Group, Outbox, Overlay, Reads, Requests, Timers, UNAPPLIED_BYTES_MAX};

/// Bytes of entries in one message, at most: all that may be unapplied fits, so that a suspect voter is brought up to
/// date by one message that it need not acknowledge in part.
const APPEND_BYTES_MAX: u64 = 2 * UNAPPLIED_BYTES_MAX as u64;

/// Appends under way to one voter, at most.
const IN_FLIGHT_MAX: usize = 256;

/// The voter that a group is of, and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// This voter.
    pub voter: VoterId,
    /// Its place on the group's list, from 0: the first reachable one is to lead.
    pub rank: u32,
    /// Number of the founding.
    pub founding: u64,
}

/// The reason why a group cannot begin from its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The state is of another founding.
    #[error("the state of the group is of founding {found:x}, not of {expected:x}")]
    Founding {
        /// The state's.
        found: u64,
        /// The cluster's.
        expected: u64,
    },
    /// The store was removed from the group.
    #[error("this store was removed from the group")]
    Removed,
    /// Entries are missing, or contradict the state.
    #[error("the entries of the group do not fit its state: {0}")]
    Entries(&'static str),
}

/// All that a store kept of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The state, as the caller wrote it last.
    pub state: GroupState,
    /// The progress, from the engine.
    pub progress: Progress,
    /// Index and term of the entry before the first one of `entries`: the last applied entry, or one before it if the
    /// store gives applied entries, too, which then saves a voter that is a little behind its catch-up.
    pub base: (u64, u64),
    /// All entries behind the base, in the order in which they were written.
    pub entries: Vec<Entry>,
    /// The highest entry that this store may have acknowledged, if one up to it is damaged or missing.
    pub suspect_through: Option<u64>,
    /// The store has dropped the group's keys for a catch-up that has not ended: `Checkpoint::is_incomplete`.
    pub is_incomplete: bool,
}

impl Group {
    /// The group that its store kept. It takes no part before [`super::Input::Registered`].
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(identity: Identity, stored: Stored, rng: Box<dyn Rng>) -> Result<Group, OpenError> {
        let Stored { state, progress, base, entries, suspect_through, is_incomplete } = stored;
        let Progress { applied, commit } = progress;
        let GroupState { founding, epoch, hard, configuration, is_removed, .. } = state;
        if founding != identity.founding {
            return Err(OpenError::Founding { found: founding, expected: identity.founding });
        }
        if is_removed {
            return Err(OpenError::Removed);
        }
        if base.0 == 0 || base.1 == 0 {
            return Err(OpenError::Entries("the base is before the founding"));
        }
        let mut log = Log::new(hard, commit, base, configuration);
        for entry in entries {
            if entry.index <= base.0 || entry.index > log.last().0 + 1 {
                return Err(OpenError::Entries("there is a gap"));
            }
            log.push(entry);
        }

        let (last, last_term) = log.last();
        if last_term > hard.term {
            return Err(OpenError::Entries("one is of a later term"));
        }
        if applied.0 < base.0 || log.term_at(applied.0) != Some(applied.1) {
            return Err(OpenError::Entries("the last applied one is missing"));
        }
        if commit < applied.0 {
            return Err(OpenError::Entries("an applied one is not committed"));
        }
        if commit > last && suspect_through.is_none() {
            return Err(OpenError::Entries("a committed one is missing"));
        }
        log.commit = commit.min(last);
        if let Some(in_force) = log.last_configuration(applied.0).cloned() {
            log.in_force = in_force;
        }
        let mut group = Group::new(identity, log, applied.0, suspect_through, rng);
        (group.epoch, group.is_incomplete) = (epoch, is_incomplete);
        group.on_reconfigured();
        Ok(group)
    }

    fn new(
        identity: Identity,
        log: Log,
        applied: u64,
        suspect_through: Option<u64>,
        mut rng: Box<dyn Rng>,
    ) -> Group {
        let config = Config {
            id: identity.voter.number(),
            applied,
            max_size_per_msg: APPEND_BYTES_MAX,
            max_inflight_msgs: IN_FLIGHT_MAX,
            check_quorum: false,
            pre_vote: true,
            skip_bcast_commit: true,
            batch_append: true,
            ..Config::default()
        };
        let silent = slog::Logger::root(slog::Discard, slog::o!());
        let raw =
            RawNode::new(&config, log, &silent).expect("the log was checked, and the configuration is ours");
        Group {
            identity,
            role: (raw.raft.term, raw.raft.state),
            raw,
            applied,
            outbox: Outbox::default(),
            overlay: Overlay::default(),
            requests: Requests::default(),
            reads: Reads::above(rng.below(CONTEXTS)),
            timers: Timers::default(),
            leasing: None,
            catch_ups: CatchUps::default(),
            installing: None,
            received: None,
            is_incomplete: false,
            is_unreadable: false,
            asked_to_lead: None,
            handed_over_term: 0,
            departure: Departure::default(),
            epoch: 0,
            reapable: 0,
            leads_since: Monotonic(0),
            is_registered: base::planted!(CloneVotesBeforeRegistered),
            has_forgotten: false,
            suspect_through,
            commit_notes: CommitNotes::default(),
            forgetful: BTreeSet::new(),
            listed: BTreeMap::new(),
            is_changing: false,
            is_settled: false,
            rng,
            needs_drain: true,
            out: Vec::new(),
        }
    }

    /// Whether this store may give a candidate its vote. The configuration that gives it one may be in entries that it
    /// does not have yet, so it need not know.
    pub(super) fn may_vote(&self) -> bool {
        self.is_registered
            && !self.has_forgotten
            && self.installing.is_none()
            && (self.suspect_through.is_none() || base::planted!(DamagedProposalVotes))
    }

    /// Whether this voter may become a candidate and lead, as far as it is up to it.
    pub(super) fn may_lead(&self) -> bool {
        self.may_vote() && self.members().has_voter(self.identity.voter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::SplitMix64;

    use crate::group::{Configuration, Payload};

    fn open(
        change: fn(&mut Stored),
        terms: &[u64],
        suspect_through: Option<u64>,
    ) -> Result<Group, OpenError> {
        let voter = VoterId::of_number(7).unwrap();
        let mut state = GroupState::found(1, Configuration::of_voters([voter]));
        state.hard.term = 5;
        let progress = Progress { applied: (2, 2), commit: 3 };
        let entry = |(index, &term)| Entry { index, term, payload: Payload::First };
        let entries = (3..).zip(terms).map(entry).collect();
        let mut stored =
            Stored { state, progress, base: (2, 2), entries, suspect_through, is_incomplete: false };
        change(&mut stored);
        let identity = Identity { voter, rank: 0, founding: 1 };
        Group::open(identity, stored, Box::new(SplitMix64::new(1)))
    }

    fn refused(change: fn(&mut Stored), terms: &[u64]) -> Option<OpenError> {
        open(change, terms, None).err()
    }

    #[test]
    fn a_group_begins_where_its_store_ended() {
        let group = open(|_| {}, &[3, 3], None).ok().unwrap();
        assert_eq!((group.applied(), group.last(), group.term()), (2, (4, 3), 5));
        assert_eq!(group.commit(), 3);
        assert!(!group.is_suspect());
    }

    #[test]
    fn states_and_entries_that_contradict_each_other_are_refused() {
        let other = OpenError::Founding { found: 2, expected: 1 };
        assert_eq!(refused(|it| it.state.founding = 2, &[3]), Some(other));
        assert_eq!(refused(|it| it.state.is_removed = true, &[3]), Some(OpenError::Removed));
        let entries = |error| Some(OpenError::Entries(error));
        assert_eq!(refused(|it| it.base = (5, 1), &[3]), entries("there is a gap"));
        assert_eq!(refused(|_| {}, &[6]), entries("one is of a later term"));
        assert_eq!(refused(|it| it.progress.commit = 1, &[3]), entries("an applied one is not committed"));
        assert_eq!(refused(|it| it.base = (0, 0), &[3]), entries("the base is before the founding"));
        let missing = entries("the last applied one is missing");
        assert_eq!(refused(|it| it.progress.applied = (3, 2), &[3]), missing, "another term");
        assert_eq!(refused(|it| it.progress.applied = (1, 1), &[3]), missing);
        assert_eq!(refused(|it| it.progress = Progress { applied: (5, 3), commit: 5 }, &[3]), missing);
        assert_eq!(refused(|_| {}, &[]), entries("a committed one is missing"));
    }

    #[test]
    fn a_missing_entry_makes_a_group_suspect() {
        let group = open(|_| {}, &[], Some(3)).ok().unwrap();
        assert!(group.is_suspect());
        assert_eq!(group.commit(), 2, "no more than what is here");
    }
}
