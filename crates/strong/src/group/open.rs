//! Beginning: a group from its state and the entries that its store kept.

use std::collections::BTreeSet;

use base::Rng;
use raft::{Config, RawNode};

use super::entry::Entry;
use super::identity::VoterId;
use super::log::Log;
use super::state::GroupState;
use super::{Group, Outbox, Overlay, Reads, Requests, Timers, UNAPPLIED_BYTES_MAX};

/// Bytes of entries in one message, at most: all that may be unapplied fits, so that a suspect voter is brought up to date
/// by one message that it need not acknowledge in part.
const APPEND_BYTES_MAX: u64 = 2 * UNAPPLIED_BYTES_MAX as u64;

/// Appends under way to one voter, at most.
const IN_FLIGHT_MAX: usize = 256;

/// Of whom and of what a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// This voter.
    pub voter: VoterId,
    /// Its place on the group's list, from 0: the first reachable one is to lead.
    pub rank: u32,
    /// Number of the founding.
    pub founding: u64,
    /// Grows with each recovery by an operator; part of the versions of objects.
    pub epoch: u16,
}

/// The reason why a group cannot begin from what the store holds.
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

impl Group {
    /// The group of a state, and of the entries behind its base in the order in which they were written.
    ///
    /// `suspect_through` is the highest entry that this store may have acknowledged, if one up to it is damaged or
    /// missing. The group takes no part before [`super::Input::Registered`].
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        identity: Identity,
        state: GroupState,
        entries: Vec<Entry>,
        suspect_through: Option<u64>,
        rng: Box<dyn Rng>,
    ) -> Result<Group, OpenError> {
        let GroupState { founding, hard, commit, applied, base, configuration, is_removed, .. } = state;
        if founding != identity.founding {
            return Err(OpenError::Founding { found: founding, expected: identity.founding });
        }
        if is_removed {
            return Err(OpenError::Removed);
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
        if applied > last {
            return Err(OpenError::Entries("an applied one is missing"));
        }
        if commit > last && suspect_through.is_none() {
            return Err(OpenError::Entries("a committed one is missing"));
        }
        log.commit = commit.min(last);
        Ok(Group::new(identity, log, applied, suspect_through, rng))
    }

    fn new(
        identity: Identity,
        log: Log,
        applied: u64,
        suspect_through: Option<u64>,
        rng: Box<dyn Rng>,
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
            reads: Reads::default(),
            timers: Timers::default(),
            is_registered: false,
            has_forgotten: false,
            suspect_through,
            forgetful: BTreeSet::new(),
            rng,
            out: Vec::new(),
        }
    }

    /// Whether this voter may vote, campaign and lead.
    pub(super) fn may_vote(&self) -> bool {
        self.is_registered
            && !self.has_forgotten
            && self.suspect_through.is_none()
            && self.raw.store().configuration.has_voter(self.identity.voter)
    }
}
