//! The hold of a log that was restored from a backup: it takes no part before it has compared with all members.
//!
//! The backups of a cluster are of different moments. Voters with older ones would commit other entries in the place of
//! those that a later one has as committed.
//!
//! 1. [`Log::restored`] marks the file. The mark outlives starts.
//! 2. A held log neither votes nor stands nor appends. It asks all members how much is committed there, and pulls
//!    the entries that it lacks. An entry that it pulls may name other members: these count.
//! 3. When no member has told of more than is committed here, and no leader was heard in the meantime, the hold ends.
//! 4. A leader that was held itself has compared with this log. This log follows it as soon as it has compared, too.
//! 5. Any other leader is of a cluster that has gone on. There this log is an older copy. It has the leader count it
//!    out, and the hold ends when that is known here.
//! 6. An operator ends the wait for members that never come ([`Input::Recover`](super::Input::Recover)).
//!
//! Invariants: a log whose hold ends by step 3 has all entries that the backup of a member has as committed; entries
//! that are not known to be committed go with the hold, so no term of the time before the restore comes again with
//! other entries.
//!
//! Left out: members that are down or exiting, and do not vote, are not waited for. A member that was admitted after
//! the backups of all others is not known to them. If its log contradicts theirs, `contradiction.rs` tells.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::Monotonic;
use base::rng::SplitMix64;
use bytes::Bytes;
use ring::{MemberState, NodeId};

use super::file::{self, FileError};
use super::message::Message;
use super::ticks::{LEADER_SILENCE_MAX, TICK};
use super::{Identity, Log, Output};

/// Interval of a held log's questions, and of its looks at the answers.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Members asked at once: a cluster of a thousand is asked within some 16 s, by few messages of each node.
const ASKED_AT_ONCE: usize = 64;

const _: () = assert!(ASK_EVERY.as_nanos() < LEADER_SILENCE_MAX.as_nanos(), "a lost question is asked again");

/// The commit of a question: a log without a history asks nobody, so no member has committed this.
const QUESTION: u64 = 0;

/// A held log's knowledge of the others.
#[derive(Debug)]
pub(super) struct Hold {
    /// The last entry that each member has told to be committed.
    heard: BTreeMap<NodeId, u64>,
    /// Members whose logs were held while this process ran: they have asked.
    held_too: BTreeSet<NodeId>,
    /// The last member that was asked.
    asked: Option<NodeId>,
    /// When the answers are looked at next.
    look_at: Monotonic,
    /// Since when no member is known to have more.
    complete_since: Option<Monotonic>,
    /// Whether an operator began another epoch meanwhile, which this log has taken over.
    has_taken_epoch: bool,
}

impl Hold {
    pub(super) fn new(now: Monotonic) -> Hold {
        let (heard, held_too) = (BTreeMap::new(), BTreeSet::new());
        Hold { heard, held_too, asked: None, look_at: now, complete_since: None, has_taken_epoch: false }
    }

    /// Whether a member has told of its last committed entry, and that it is at most this one.
    fn has_no_more(&self, member: NodeId, commit: u64) -> bool {
        self.heard.get(&member).is_some_and(|heard| *heard <= commit)
    }

    /// Forgets the commits of an earlier epoch, which count no more.
    pub(super) fn begin_epoch(&mut self) {
        self.heard.clear();
        self.complete_since = None;
        self.has_taken_epoch = true;
    }

    /// The members to ask next, of these.
    fn next_asked(&mut self, members: &BTreeSet<NodeId>) -> Vec<NodeId> {
        let later = members.iter().filter(|node| Some(**node) > self.asked);
        let earlier = members.iter().filter(|node| Some(**node) <= self.asked);
        let asked: Vec<NodeId> = later.chain(earlier).take(ASKED_AT_ONCE).copied().collect();
        self.asked = asked.last().copied().or(self.asked);
        asked
    }
}

impl Log {
    /// The file of the log in `bytes`, marked as restored. That of a node alone has nobody to compare with, and stays
    /// as it is, as does one without a history.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn restored(bytes: &Bytes) -> Result<Bytes, FileError> {
        let (cluster, node) = file::owner(bytes)?;
        let identity = Identity { cluster, node, starts: 1, start: 1, address: String::new() };
        // Nothing is drawn from it that is in the file.
        let rng = Box::new(SplitMix64::new(0));
        let (mut log, _) = Log::open(identity, bytes, rng, Monotonic(0))?;
        if log.state.as_ref().is_none_or(|state| state.members().len() < 2) {
            return Ok(bytes.clone());
        }
        log.hold = Some(Hold::new(Monotonic(0)));
        Ok(log.whole_file())
    }

    /// Whether this log was restored, and has not been compared with those of all members yet.
    pub fn is_held(&self) -> bool {
        self.hold.is_some() && !base::planted!(RestoredLogVotes)
    }

    /// The members that this log waits for while it is held: they were not heard, or have more. None if the cluster has
    /// gone on without it.
    pub fn awaited(&self) -> Vec<NodeId> {
        let waits = self.is_held() && self.restored.is_none();
        let Some(hold) = self.hold.as_ref().filter(|_| waits) else { return Vec::new() };
        let members = self.compared_with().into_iter();
        members.filter(|member| !hold.has_no_more(*member, self.commit)).collect()
    }

    /// The other members and voters whose logs may have entries that are to be kept.
    fn compared_with(&self) -> BTreeSet<NodeId> {
        let here = self.identity.node;
        let members = self.state.as_ref().map(|state| state.members().iter()).into_iter().flatten();
        let stays = members
            .filter(|(_, record)| !matches!(record.member.state, MemberState::Down | MemberState::Exiting));
        let stays = stays.map(|(&node, _)| node);
        stays.chain(self.voters().iter().copied()).filter(|node| *node != here).collect()
    }

    /// When a held log asks next.
    pub(super) fn hold_timer(&self) -> Option<Monotonic> {
        self.hold.as_ref().filter(|_| self.is_held()).map(|hold| hold.look_at)
    }

    /// Takes note of the last entry that a member has committed.
    pub(super) fn hear_commit(&mut self, from: NodeId, commit: u64) {
        let Some(hold) = &mut self.hold else { return };
        if commit == QUESTION {
            hold.held_too.insert(from);
        } else {
            let heard = hold.heard.entry(from).or_default();
            *heard = commit.max(*heard);
        }
    }

    /// Looks at the answers: ends the hold, or asks on.
    pub(super) fn look_at_hold(&mut self, now: Monotonic) {
        let (members, commit) = (self.compared_with(), self.commit);
        let is_older_copy = self.restored.is_some();
        let Some(hold) = &mut self.hold else { return };
        hold.look_at = now + ASK_EVERY;

        let is_complete = !is_older_copy && members.iter().all(|member| hold.has_no_more(*member, commit));
        hold.complete_since = is_complete.then(|| hold.complete_since.unwrap_or(now));
        if hold.complete_since.is_some_and(|since| now.since(since) >= LEADER_SILENCE_MAX) {
            return self.go_on(now);
        }

        let reached: BTreeSet<NodeId> = members.intersection(&self.up).copied().collect();
        for node in hold.next_asked(&reached) {
            self.sends.push((node, Message::Have { commit: QUESTION }));
        }
        // A pull or its answer may have been lost.
        let ahead = hold.heard.iter().filter(|(node, heard)| **heard > commit && reached.contains(node));
        if let Some((&node, _)) = ahead.max_by_key(|(_, heard)| **heard) {
            self.sends.push((node, Message::Pull { commit }));
        }
    }

    /// Reacts to a leader's message at a held log, with its committed entry. A leader whose log was held beside this
    /// one is followed once this log has compared, or if an operator has ended the wait. With any other the cluster has
    /// gone on, and this log is an older copy.
    pub(super) fn on_leader_of_held(&mut self, leader: NodeId, commit: u64, now: Monotonic) {
        let hold = self.hold.as_ref();
        let was_held = hold.is_some_and(|hold| hold.held_too.contains(&leader));
        let is_over = hold.is_some_and(|hold| hold.has_taken_epoch) || self.awaited().is_empty();
        if self.restored.is_none() && was_held {
            if is_over {
                self.go_on(now);
            }
            return;
        }
        let since = self.restored.unwrap_or_default();
        self.restored = Some(since.max(commit).max(self.commit));
    }

    /// Ends the hold of a log that has compared. The newest entries may know of other and later starts of this folder
    /// than the backup: the others would take this process for one of an older copy.
    fn go_on(&mut self, now: Monotonic) {
        let own = self.state.as_ref().and_then(|state| state.members().get(&self.identity.node));
        let known = own.map_or(0, |record| record.starts);
        if known >= self.identity.starts && !self.is_last_start(self.identity.starts) {
            self.identity.starts = known.saturating_add(1);
            self.told.push(Output::Starts(self.identity.starts));
        }
        self.end_hold(now);
    }

    /// Ends the hold. Entries go that are not known to be committed.
    pub(super) fn end_hold(&mut self, now: Monotonic) {
        if self.hold.take().is_none() {
            return;
        }
        let commit = self.commit;
        self.raw.mut_store().entries.retain(|entry| entry.index <= commit);
        self.replace = true;
        // No time has passed for the library.
        (self.leader_heard, self.tick_at) = (now, now + TICK);
        self.restart_consensus(now);
    }
}
