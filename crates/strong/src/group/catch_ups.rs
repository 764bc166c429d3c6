//! Catch-up as the group sees it, and the reaping of tombstones that it depends on.
//!
//! Leader:
//! 1. The library asks for a snapshot because a voter's next entry is trimmed, or an incomplete voter says so:
//!    [`Output::CatchUpWanted`]. The caller runs a [`crate::catch_up::Sender`].
//! 2. [`super::Input::CatchUpBegun`] names the base: the receiver has, or dropped, all up to it. Nothing above is
//!    reaped.
//! 3. [`super::Input::CaughtUp`]: the receiver has all parts. The library sends the snapshot, which is metadata alone.
//!    It is sent again while the voter answers heartbeats without it; in the end the catch-up begins anew.
//! 4. The voter acknowledges the snapshot's index: [`Output::CatchUpEnded`]. So does a lost leadership, at any time.
//!
//! Receiver: it installs a snapshot only if its store has all parts of exactly that one. An incomplete voter, whose
//! store has dropped the group's keys, serves nothing, and hands the leadership over ([`super::lacking`]).

use std::collections::BTreeMap;
use std::time::Duration;

use base::Monotonic;
use raft::SnapshotStatus;

use super::entry::Payload;
use super::identity::VoterId;
use super::message::Message;
use super::{Answer, Group, Output};

/// Time without an answer after which a snapshot message is sent again: several round trips and syncs.
pub const SNAPSHOT_RETRY: Duration = Duration::from_secs(1);

/// Snapshot messages to one voter, after which the catch-up begins anew: the voter may have dropped the parts since,
/// for an offer of another leader that came late.
pub const SNAPSHOT_TRIES: u32 = 4;

/// Silence after which a voter does not hold reaping up any more; it has to be refilled then.
pub const REAP_SILENCE: Duration = Duration::from_secs(3_600);

/// A catch-up of one voter.
#[derive(Default)]
struct CatchUp {
    /// It broke, and begins anew when the voter is heard.
    is_broken: bool,
    /// The base of the receiver, once it has told it.
    base: Option<u64>,
    /// Index and term of the snapshot that the receiver has.
    snapshot: Option<(u64, u64)>,
    /// When the snapshot message was sent last.
    sent: Option<Monotonic>,
    /// How often it was sent.
    tries: u32,
}

/// Catch-ups under way.
#[derive(Default)]
pub(super) struct CatchUps {
    voters: BTreeMap<VoterId, CatchUp>,
}

impl CatchUps {
    pub(super) fn receivers(&self) -> impl Iterator<Item = VoterId> {
        self.voters.keys().copied()
    }
}

impl Group {
    /// Takes the library's questions for snapshots.
    pub(super) fn want_catch_ups(&mut self) {
        let asked = self.raw.mut_store().take_asked();
        for voter in asked.into_iter().filter_map(VoterId::of_number) {
            self.want_catch_up(voter);
        }
    }

    /// Wants a voter to be caught up, unless that is under way.
    ///
    /// A leader need not have applied the first entry of its term: the voter may have to be caught up before a majority
    /// can have that entry. All reaping by earlier leaders is in its log.
    fn want_catch_up(&mut self, voter: VoterId) {
        if self.leads()
            && !self.is_incomplete
            && !self.is_forgetful(voter)
            && !self.catch_ups.voters.contains_key(&voter)
        {
            self.catch_ups.voters.insert(voter, CatchUp::default());
            self.out.push(Output::CatchUpWanted { voter });
        }
    }

    pub(super) fn on_catch_up_begun(&mut self, voter: VoterId, base: u64) {
        if let Some(catch_up) = self.catch_ups.voters.get_mut(&voter) {
            catch_up.base = Some(base);
        }
    }

    pub(super) fn on_catch_up_broken(&mut self, voter: VoterId) {
        if let Some(catch_up) = self.catch_ups.voters.get_mut(&voter) {
            *catch_up = CatchUp { is_broken: true, ..CatchUp::default() };
        }
    }

    /// Lets the library send the snapshot that a voter has all parts of.
    pub(super) fn on_caught_up(&mut self, voter: VoterId, snapshot: (u64, u64)) {
        let Some(catch_up) = self.catch_ups.voters.get_mut(&voter).filter(|it| it.base.is_some()) else {
            return;
        };
        assert!(snapshot.0 <= self.applied, "a fold shows applied entries");
        catch_up.snapshot = Some(snapshot);
        let number = voter.number();
        let progress = self.raw.raft.mut_prs().get_mut(number);
        let Some(progress) = progress.filter(|progress| progress.matched < snapshot.0) else {
            return self.end_catch_up(voter);
        };
        progress.resume();
        self.raw.mut_store().snapshots.insert(number, snapshot);
        self.raw.raft.send_append(number);
    }

    /// Notes an answer of a voter, before the library hears of it.
    pub(super) fn on_catch_up_answer(&mut self, from: VoterId, message: &Message, now: Monotonic) {
        if !self.leads() {
            return;
        }
        let matched = self.raw.raft.prs().get(from.number()).map_or(0, |progress| progress.matched);
        let Some(catch_up) = self.catch_ups.voters.get_mut(&from) else { return };
        if catch_up.is_broken {
            catch_up.is_broken = false;
            self.out.push(Output::CatchUpWanted { voter: from });
            return;
        }
        let acknowledged = match *message {
            Message::AppendReply { term, index, rejected: None, .. } if term == self.raw.raft.term => index,
            _ => 0,
        };
        if catch_up.snapshot.is_some_and(|(index, _)| matched.max(acknowledged) >= index) {
            return self.end_catch_up(from);
        }
        if matches!(message, Message::HeartbeatReply { .. })
            && catch_up.sent.is_some_and(|sent| now.since(sent) >= SNAPSHOT_RETRY)
        {
            catch_up.sent = None;
            if catch_up.tries >= SNAPSHOT_TRIES {
                *catch_up = CatchUp::default();
                self.raw.mut_store().snapshots.remove(&from.number());
                self.out.push(Output::CatchUpWanted { voter: from });
            }
            self.raw.report_snapshot(from.number(), SnapshotStatus::Failure);
        }
    }

    /// Notes that the snapshot message to a voter is sent.
    pub(super) fn on_snapshot_sent(&mut self, to: VoterId, now: Monotonic) {
        if let Some(catch_up) = self.catch_ups.voters.get_mut(&to) {
            catch_up.sent = Some(now);
            catch_up.tries += 1;
        }
    }

    /// Lets the library probe a voter after a snapshot message that may be lost.
    pub(super) fn on_snapshot_lost(&mut self, voter: VoterId) {
        let leads = self.leads();
        let catch_up = self.catch_ups.voters.get_mut(&voter);
        if leads && catch_up.is_some_and(|it| it.sent.take().is_some()) {
            self.raw.report_snapshot(voter.number(), SnapshotStatus::Failure);
        }
    }

    pub(super) fn end_catch_up(&mut self, voter: VoterId) {
        self.raw.mut_store().snapshots.remove(&voter.number());
        if self.catch_ups.voters.remove(&voter).is_some() {
            self.out.push(Output::CatchUpEnded { voter });
        }
    }

    pub(super) fn end_catch_ups(&mut self) {
        for voter in self.catch_ups.voters.keys().copied().collect::<Vec<_>>() {
            self.end_catch_up(voter);
        }
    }

    /// Notes that a voter's store lacks the group's keys, or cannot read some, and wants them.
    ///
    /// A leader that lacks keys itself lets that voter keep its keys: another one is to lead first.
    pub(super) fn on_incomplete(&mut self, from: VoterId, term: u64) {
        if term == self.term() && self.members().has(from) && !self.lacks_keys() {
            self.want_catch_up(from);
        }
    }

    /// Begins to receive parts here; those of an earlier catch-up count no more.
    pub(super) fn on_receiving(&mut self, is_incomplete: bool) {
        assert!(!self.leads(), "a leader has no leader to receive from");
        self.received = None;
        self.is_incomplete = is_incomplete;
        if is_incomplete {
            self.is_unreadable = false;
            // The log goes on, so the entry of a confirmed read may be applied before the keys are back.
            self.end_reads();
        }
    }

    /// Notes that the store has all parts of a snapshot.
    pub(super) fn on_received(&mut self, snapshot: (u64, u64)) {
        self.received = Some(snapshot);
        self.on_applied_received();
    }

    /// Ends the catch-up here once its snapshot's index is applied.
    pub(super) fn on_applied_received(&mut self) {
        if self.received.take_if(|(index, _)| *index <= self.applied).is_some() {
            self.is_incomplete = false;
        }
    }

    /// Notes that an installed snapshot is synced.
    pub(super) fn on_installed(&mut self) {
        let synced = self.outbox.synced();
        let Some((_, index)) = self.installing.take_if(|(number, _)| *number <= synced) else { return };
        self.applied = index;
        self.raw.advance_apply_to(index);
        self.on_applied_received();
        if !base::planted!(ReadAcrossSnapshot) {
            // A key that was written above the snapshot has an older version than that of the snapshot until its entry
            // is applied. A read that is confirmed from now on waits for that entry; one confirmed before may not.
            self.end_reads();
        }

        // The entries are gone, so nobody knows here whether the snapshot has these writes.
        while let Some((token, _)) = self.requests.first_write(index) {
            self.requests.remove(token);
            self.answer(token, Answer::Timeout);
        }
    }

    /// The highest index through which tombstones may be reaped now, if that is more than before.
    ///
    /// All voters and learners have at least that, but for those that were not heard for `silence`, and so have all
    /// receivers of catch-ups.
    pub fn may_reap_through(&self, silence: Duration, now: Monotonic) -> Option<u64> {
        if !self.is_ready() {
            return None;
        }
        let others = self.members().others(self.identity.voter);
        let counts = |voter: &VoterId| {
            let silent = now.since(self.timers.heard(*voter, self.leads_since));
            !self.is_forgetful(*voter) && !self.is_lost(*voter) && silent < silence
        };
        let committed =
            |voter: VoterId| self.raw.raft.prs().get(voter.number()).map_or(0, |it| it.committed_index);
        let bases = self.catch_ups.voters.values().filter_map(|it| it.base);
        let others = others.filter(counts).map(committed);
        let through = match base::planted!(ReapedTooEarly) {
            true => self.applied,
            false => others.chain(bases).fold(self.applied, u64::min),
        };
        (through > self.reaped()).then_some(through)
    }

    /// Proposes to reap tombstones as far as that was possible when it was asked to last, and is now.
    ///
    /// A voter that lost power may have applied less than it told. It has to be refilled if that is below the reaping,
    /// so reaping stays behind for one interval, in which its progress is synced.
    pub(super) fn reap(&mut self, silence: Duration, now: Monotonic) {
        let possible = self.may_reap_through(silence, now).unwrap_or(0);
        let through = possible.min(std::mem::replace(&mut self.reapable, possible));
        let payload = (through > self.reaped()).then_some(Payload::Reap { through });
        if let Some(payload) = payload.filter(|_| !self.is_full(0)) {
            // The library refuses only to a voter that does not lead.
            drop(self.raw.propose(Vec::new(), payload.encode().to_vec()));
        }
    }
}
