//! One group: the voters of one prefix, which keep one order of its writes.
//!
//! The consensus is TiKV's Raft library, driven without its ticks and with asynchronous writes. Around it stands all
//! that a consistent bucket type needs beside:
//!
//! 1. A write is decided by the leader when it proposes: its condition is compared with the newest proposed version of
//!    its key (`overlay.rs`). The entry is handed out to be written, sent at once, committed by a majority's syncs,
//!    and handed out again to be applied. Then the client is answered.
//! 2. A read is confirmed by a majority (`reads.rs`, `confirm.rs`), and served when the confirmed entry is applied, by
//!    the leader or by a follower. A condition that does not hold is a read as well.
//! 3. A message that says something about the disk waits until that is synced (`outbox.rs`).
//! 4. Nothing of a peer reaches the library that its own checks answer with a panic, and a voter that finds out that
//!    it forgot takes no part any more (`guard.rs`).
//! 5. A voter that needs a trimmed entry is caught up by the caller; the group says when, and installs the result
//!    (`catch_ups.rs`).
//! 6. A leader that a majority has promised not to vote against serves reads without a round (`leasing.rs`).
//! 7. A settled group has no timer and sends nothing (`timers.rs`). A leader tells others that entries are committed
//!    with its next entries, or a little later (`commit_notes.rs`).
//! 8. A leader that leaves, or is not the preferred one, asks another voter to lead (`hand_over.rs`).
//! 9. A store that lost its data is replaced as a voter (`members.rs`).
//! 10. A voter with damaged entries calls for a leader, which brings them back (`suspect.rs`).
//! 11. A group at rest may be unloaded, and loaded again (`sleep.rs`).
//!
//! Invariants: a term has one leader; a committed entry is never changed; no condition is decided and no read is
//! served before the leader's first entry is applied; an answer is `Unavailable` only if the request was not applied
//! and never will be. The same inputs at the same times with the same random numbers give the same outputs.
//!
//! Left out: the journal and the tables, which are the caller's; changes of a group's nodes.

mod catch_ups;
mod commit_notes;
mod configuration;
mod confirm;
mod drive;
mod entry;
mod guard;
mod hand_over;
mod identity;
mod lacking;
mod leasing;
mod log;
mod members;
mod message;
mod open;
mod outbox;
mod overlay;
mod reads;
mod recover;
mod requests;
mod serve;
mod sleep;
mod state;
mod suspect;
mod timers;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{Monotonic, Rng};
use bytes::Bytes;
use protocol::peer::Malformed;
use raft::{RawNode, StateRole};
use ring::NodeId;

use self::catch_ups::CatchUps;
pub use self::catch_ups::{REAP_SILENCE, SNAPSHOT_RETRY, SNAPSHOT_TRIES};
pub use self::commit_notes::COMMIT_NOTE_AFTER;
use self::commit_notes::CommitNotes;
pub use self::configuration::{Configuration, VOTERS_MAX};
pub use self::entry::{Entry, NUMBER_MAX, Payload, Version, Write};
use self::hand_over::Departure;
pub use self::hand_over::{HAND_OVER_RETRY, LEAVE_PAUSE, PREFERENCE_PAUSE};
pub use self::identity::{Birth, VoterId};
use self::leasing::Leasing;
pub use self::leasing::StrongReads;
use self::log::Log;
pub(crate) use self::message::kind;
pub use self::message::{MESSAGE_VERSION, Message};
pub use self::open::{Identity, OpenError, Stored};
use self::outbox::Outbox;
use self::overlay::Overlay;
pub use self::reads::READ_RETRY_AFTER;
use self::reads::Reads;
pub use self::recover::{RecoverError, Survivor};
use self::requests::Requests;
pub use self::state::{GroupState, HardState, Progress, STATE_VERSION};
use self::timers::Timers;
pub use self::timers::{ELECTION_RETRY, HEARTBEAT_EVERY, HEARTBEAT_EVERY_MAX, RANK_DELAY};
pub use self::window::{WINDOW_BYTES_MAX, Window};

/// Entries of a group that are not applied yet, at most: enough for a round trip and a sync of a busy key range.
pub const UNAPPLIED_ENTRIES_MAX: u64 = 256;

/// Bytes of a group's entries that are not applied yet, at most. One entry is always taken, however large.
pub const UNAPPLIED_BYTES_MAX: usize = 1 << 20;

/// Requests of a group that wait at once: writes are bounded by their entries, reads by this.
pub const REQUESTS_MAX: usize = 4_096;

/// The condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    None,
    /// The key is absent or deleted.
    Absent,
    /// The key has that version.
    Is(Version),
}

/// A write that a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Names the request in its answer.
    pub token: u64,
    /// Its condition.
    pub condition: Condition,
    /// The write.
    pub write: Write,
    /// The version of the key in the caller's tables, in which all that this group handed out to be applied is
    /// applied; none if the key is absent or a tombstone.
    pub head: Option<Version>,
    /// The version that the object carries, if the caller has put one into it: [`Group::next_version`] of this step.
    pub version: Option<Version>,
    /// The end of the client's wait.
    pub deadline: Monotonic,
}

/// An event for a group.
#[derive(Clone, Debug)]
pub enum Input {
    /// A peer's message has come.
    Message {
        /// The peer, as the link knows it.
        from: VoterId,
        /// The message.
        message: Bytes,
    },
    /// A peer's message has come in an envelope of a life of its process. A group with leases needs the life.
    MessageOf {
        /// The peer, as the link knows it.
        from: VoterId,
        /// The life of its process.
        life: u64,
        /// The message.
        message: Bytes,
    },
    /// All batches up to a number are synced.
    Persisted {
        /// The number of the last one.
        number: u64,
    },
    /// A client wants to write.
    Propose(Proposal),
    /// A client wants to read.
    Read {
        /// Names the request in its answer.
        token: u64,
        /// The end of the client's wait.
        deadline: Monotonic,
    },
    /// The cluster has registered this start of the process: the store may vote, acknowledge and lead.
    Registered,
    /// A request waits for a leader of a group that was opened here just now, and this voter is the first of its list
    /// that can be reached: it stands for election without a delay.
    Wanted,
    /// The voters that nodes of the group have now, as the cluster has registered them. Those of other nodes stay.
    Listed {
        /// The voters, at most one of a node.
        voters: Vec<VoterId>,
    },
    /// A peer's process can be reached, or cannot any more.
    Reachable {
        /// The peer.
        voter: VoterId,
        /// Whether it can.
        is_up: bool,
    },
    /// A peer's process has started anew: it leads nothing that it led before.
    Restarted {
        /// The peer.
        voter: VoterId,
    },
    /// A leader's catch-up of a voter has begun; the receiver has all up to a base, or has dropped it.
    CatchUpBegun {
        /// The receiver.
        voter: VoterId,
        /// An index up to which it has all, or this leader's applied one if it is refilled.
        base: u64,
    },
    /// A leader's catch-up of a voter broke; it begins anew when the voter is heard.
    CatchUpBroken {
        /// The receiver.
        voter: VoterId,
    },
    /// A voter has all parts of a leader's catch-up.
    CaughtUp {
        /// The receiver.
        voter: VoterId,
        /// The last entry that was applied when the first part was folded.
        index: u64,
        /// Its term.
        term: u64,
    },
    /// A catch-up begins here, before its first part is written; earlier ones count no more.
    Receiving {
        /// The store drops the group's keys, so this voter serves nothing until it has all parts.
        is_incomplete: bool,
    },
    /// The store here has all parts of a catch-up, synced.
    Received {
        /// The last entry of the snapshot.
        index: u64,
        /// Its term.
        term: u64,
    },
    /// The store cannot read keys that are applied: they are damaged, and other voters may have them.
    Unreadable,
    /// The process stops: a leader asks another voter to lead, and this voter does not stand for election any more.
    Leave,
    /// A leader is to ask a voter to lead, if that has all and nothing is under way.
    HandOver {
        /// The voter that is to lead.
        voter: VoterId,
    },
    /// A leader is to reap tombstones, as far as [`Group::may_reap_through`] said at the last one and says now. Come
    /// some minutes after the last one.
    Reap {
        /// The silence after which a voter does not hold reaping up any more: [`REAP_SILENCE`].
        silence: Duration,
    },
    /// Time has passed; due at [`Group::next_timer`].
    Tick,
}

/// A snapshot of which the store has all parts: all up to its index is applied, and no entry before is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Install {
    /// The last entry of the snapshot.
    pub index: u64,
    /// Its term.
    pub term: u64,
}

/// Records to be written together: all of a batch, or after a crash a part of its last entries is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its number, for [`Input::Persisted`].
    pub number: u64,
    /// The state, to be written before the entries.
    pub state: Option<GroupState>,
    /// An index up to which entries are known to be committed; below all entries of the batch, because others may stand
    /// at their places after a crash.
    pub commit: u64,
    /// A snapshot to be noted as applied, in place of all entries; there is a state with it.
    pub install: Option<Install>,
    /// Entries. One of another term than the one at its index replaces that one and all above.
    pub entries: Vec<Entry>,
}

/// Something that a group wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Write to the journal.
    Persist(Batch),
    /// Send to a peer, as best as one can.
    Send {
        /// The peer.
        to: VoterId,
        /// The message.
        message: Bytes,
    },
    /// Apply entries to the tables, before the outputs that follow. A version never replaces an equal or a newer one.
    Apply(Vec<Entry>),
    /// The end of a request.
    Answer {
        /// The request.
        token: u64,
        /// Its answer.
        answer: Answer,
    },
    /// A voter needs entries that are not here any more, or lacks the group's keys. A sender that there is for it is
    /// dropped: it begins anew.
    CatchUpWanted {
        /// The voter.
        voter: VoterId,
    },
    /// A catch-up that was wanted is over: it has succeeded, or has to be given up.
    CatchUpEnded {
        /// The voter.
        voter: VoterId,
    },
    /// This store lost entries that it had acknowledged: it takes no part any more, and needs a new birth.
    Forgot,
    /// A peer sent bytes that are no message.
    Malformed {
        /// The peer.
        from: VoterId,
        /// The fault in them.
        error: Malformed,
    },
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The write is applied.
    Written(Version),
    /// The tables, as they are now, may be read.
    Readable,
    /// The condition did not hold.
    Failed,
    /// The request was not applied, and never will be.
    Unavailable(Cause),
    /// The write may be applied at any time, or never.
    Timeout,
}

/// Why a request was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// Another voter leads, or none.
    #[error("this node does not lead the group")]
    NotLeader {
        /// The leader, as far as it is known.
        leader: Option<VoterId>,
    },
    /// The leader has not applied the first entry of its term yet.
    #[error("the leader of the group is not ready yet")]
    NotReady,
    /// Too much of the group is not applied yet.
    #[error("too many requests of the group are under way")]
    Overload,
    /// The request's time was over before it was proposed or confirmed.
    #[error("no majority of the group has confirmed the request in time")]
    Expired,
    /// The leader lost its leadership before it could confirm the request, or another leader replaced the write.
    #[error("the leader of the group has changed")]
    LeaderChanged,
}

/// One group at one voter.
pub struct Group {
    identity: Identity,
    /// Recoveries so far.
    epoch: u16,
    raw: RawNode<Log>,
    /// The library's term and role that were followed last.
    role: (u64, StateRole),
    /// The last entry that was handed out to be applied.
    applied: u64,
    outbox: Outbox,
    overlay: Overlay,
    requests: Requests,
    reads: Reads,
    timers: Timers,
    /// None without leases.
    leasing: Option<Leasing>,
    catch_ups: CatchUps,
    /// A snapshot that is being installed: the number of its batch, and its index.
    installing: Option<(u64, u64)>,
    /// Index and term of a snapshot that the store has all parts of, and that is not applied.
    received: Option<(u64, u64)>,
    /// The store has dropped the group's keys, and does not have all parts of a snapshot yet.
    is_incomplete: bool,
    /// The store cannot read keys of the group.
    is_unreadable: bool,
    /// The voter that was asked last to lead in place of this one, and when the next one is.
    asked_to_lead: Option<(VoterId, Monotonic)>,
    /// The departure of this voter, whose process stops.
    departure: Departure,
    /// The term for which this voter stood for election because a leader asked it to; zero: none.
    handed_over_term: u64,
    /// The index through which tombstones could be reaped when that was asked last.
    reapable: u64,
    /// When this voter began to lead.
    leads_since: Monotonic,
    /// The cluster knows this start of the process.
    is_registered: bool,
    /// This store lost entries that it had acknowledged.
    has_forgotten: bool,
    /// The highest entry that this store may have acknowledged, while one up to it is damaged or missing.
    suspect_through: Option<u64>,
    commit_notes: CommitNotes,
    /// Peers that said that they forgot.
    forgetful: BTreeSet<VoterId>,
    /// The voter that each node has now, as far as that was told.
    listed: BTreeMap<NodeId, VoterId>,
    /// The configuration is not that of the listed voters alone.
    is_changing: bool,
    /// [`Group::settles`] at the end of the last step.
    is_settled: bool,
    rng: Box<dyn Rng>,
    /// The input of this step may have changed the library's state.
    needs_drain: bool,
    out: Vec<Output>,
}

impl Group {
    /// Takes an input at `now`, and appends its outputs to `out`, in order.
    pub fn step(&mut self, input: Input, now: Monotonic, out: &mut Vec<Output>) {
        let before = self.progress();
        self.needs_drain = true;
        match input {
            Input::Message { from, message } => self.on_message(from, None, message, now),
            Input::MessageOf { from, life, message } => self.on_message(from, Some(life), message, now),
            Input::Persisted { number } => self.on_persisted(number, now),
            Input::Propose(proposal) => self.propose(proposal, now),
            Input::Read { token, deadline } => self.read(token, deadline, now),
            Input::Registered => self.is_registered = true,
            Input::Wanted => self.on_wanted(now),
            Input::Listed { voters } => self.on_listed(voters),
            Input::Reachable { voter, is_up } => self.on_reachable(voter, is_up),
            Input::Restarted { voter } => self.on_restarted(voter),
            Input::CatchUpBegun { voter, base } => self.on_catch_up_begun(voter, base),
            Input::CatchUpBroken { voter } => self.on_catch_up_broken(voter),
            Input::CaughtUp { voter, index, term } => self.on_caught_up(voter, (index, term)),
            Input::Receiving { is_incomplete } => self.on_receiving(is_incomplete),
            Input::Received { index, term } => self.on_received((index, term)),
            Input::Unreadable => self.on_unreadable(),
            Input::Leave => self.on_leave(now),
            Input::HandOver { voter } => self.prefer(voter, now),
            Input::Reap { silence } => self.reap(silence, now),
            Input::Tick => {}
        }
        if self.needs_drain {
            self.drain(now);
        }
        self.expire(now);
        let is_due = self.on_time(now);
        if self.change_members() || is_due {
            self.drain(now);
        }
        self.hand_over(now);
        self.ask_again(now);
        self.confirm_reads(now);
        self.serve();
        self.set_timers(now);
        out.append(&mut self.out);
        self.invariants(before);
    }

    /// When the next [`Input::Tick`] is due; none for a group at rest.
    pub fn next_timer(&self) -> Option<Monotonic> {
        let requests = [self.requests.next_deadline(), self.reads.next_retry(), self.next_hand_over()];
        let notes = self.commit_notes.next();
        self.timers.next().into_iter().chain(notes).chain(requests.into_iter().flatten()).min()
    }

    /// Whether this voter leads.
    pub fn leads(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    /// Whether it leads, has applied the first entry of its term, and was not refilled half-way: it decides conditions
    /// and serves reads.
    pub fn is_ready(&self) -> bool {
        self.leads() && self.raw.raft.apply_to_current_term() && !self.is_incomplete
    }

    /// Whether a request may be served here: this voter is ready, and a majority can be reached as far as it knows.
    pub fn can_serve(&self) -> bool {
        self.is_ready() && self.reaches_majority() && !self.is_pausing()
    }

    /// Whether all voters that can be reached have all that this leader has, and no write is under way.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The same in the middle of a step.
    fn settles(&self) -> bool {
        let last = self.raw.store().last().0;
        let has_all = |voter: VoterId| {
            let progress = self.raw.raft.prs().get(voter.number());
            !self.timers.is_restarted(voter)
                && progress.is_some_and(|it| {
                    it.matched == last && (it.committed_index == last || base::planted!(CommitNoteLost))
                })
        };
        let mut reached = self.members().others(self.identity.voter);
        self.is_ready()
            && self.applied == last
            && !self.requests.has_writes()
            && !self.outbox.has_writes()
            && self.catch_ups.receivers().all(|voter| !self.reaches(voter))
            && self.reaches_majority()
            && !self.has_change_due()
            && reached.all(|voter| !self.reaches(voter) || self.is_forgetful(voter) || has_all(voter))
    }

    /// The leader, as far as this voter knows.
    pub fn leader(&self) -> Option<VoterId> {
        VoterId::of_number(self.raw.raft.leader_id).filter(|_| !self.timers.is_leaderless(self.term()))
    }

    /// The version that a write gets if it is proposed now; none on a voter that does not lead.
    pub fn next_version(&self) -> Option<Version> {
        let next = self.last().0 + 1;
        (self.leads() && next < NUMBER_MAX).then(|| self.version(next))
    }

    /// Recoveries by an operator so far; part of versions.
    pub fn epoch(&self) -> u16 {
        self.epoch
    }

    /// The present term.
    pub fn term(&self) -> u64 {
        self.raw.raft.term
    }

    /// The last entry that was handed out to be applied.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Index and term of the last entry that was handed out to be applied; none while a snapshot is installed.
    pub fn applied_entry(&self) -> Option<(u64, u64)> {
        Some((self.applied, self.raw.store().term_at(self.applied)?))
    }

    /// The highest index through which an entry that was here reaps tombstones, applied or not.
    pub fn reaped(&self) -> u64 {
        self.raw.store().hard.reaped
    }

    /// Whether the store has dropped the group's keys, and does not have all parts of a catch-up yet.
    pub fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// The last entry that is known to be committed.
    pub fn commit(&self) -> u64 {
        self.raw.raft.raft_log.committed
    }

    /// Bytes of the log in memory.
    pub fn log_bytes(&self) -> usize {
        self.raw.store().bytes()
    }

    /// Drops the oldest applied entries from memory until at most `bytes` of the log are left there.
    ///
    /// A voter that needs a dropped entry needs catch-up.
    pub fn trim(&mut self, bytes: usize) {
        let applied = self.applied;
        self.raw.mut_store().trim(applied, bytes);
    }

    /// Whether the group has no entry, as far as this voter knows: it never had a leader.
    pub fn is_new(&self) -> bool {
        self.last().0 == Progress::FOUNDED.applied.0
    }

    /// Index and term of the last entry.
    pub fn last(&self) -> (u64, u64) {
        self.raw.store().last()
    }

    /// Whether this store lost entries that it had acknowledged, and takes no part any more.
    pub fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }

    /// Whether an entry that this store may have acknowledged is damaged or missing.
    pub fn is_suspect(&self) -> bool {
        self.suspect_through.is_some()
    }

    /// The facts of this voter for an operator before a recovery.
    pub fn survivor(&self) -> Survivor {
        Survivor { voter: self.identity.voter, last: self.last(), commit: self.commit() }
    }

    /// The state as it is to be stored.
    ///
    /// It names this voter in any case: a state that does not is one of an earlier birth of the store, and is dropped.
    /// A learner has applied configurations from before it was added.
    pub fn state(&self) -> GroupState {
        let log = self.raw.store();
        GroupState {
            founding: self.identity.founding,
            epoch: self.epoch,
            hard: log.hard,
            leader: self.leader(),
            configuration: log.configuration.clone().with_learner(self.identity.voter),
            is_removed: false,
        }
    }

    fn is_forgetful(&self, voter: VoterId) -> bool {
        self.forgetful.contains(&voter)
    }

    fn answer(&mut self, token: u64, answer: Answer) {
        self.out.push(Output::Answer { token, answer });
    }

    /// Term, committed and applied index: none of them falls.
    fn progress(&self) -> [u64; 3] {
        [self.term(), self.commit(), self.applied]
    }

    /// Relations that hold after each step; `before` is the progress before it.
    fn invariants(&self, before: [u64; 3]) {
        let (raft, log) = (&self.raw.raft, self.raw.store());
        debug_assert!(
            before.iter().zip(self.progress()).all(|(before, now)| *before <= now),
            "progress grows"
        );
        debug_assert!(self.applied <= raft.raft_log.committed, "applied entries are committed");
        debug_assert_eq!(
            raft.raft_log.applied, self.applied,
            "the library and the group have applied the same"
        );
        debug_assert_eq!(raft.term, log.hard.term, "a term is handed out in the step that brings it");
        debug_assert_eq!(raft.raft_log.last_index(), log.last().0, "entries are handed out in their step");
        debug_assert_eq!(self.role, (raft.term, raft.state), "a role is followed in the step that brings it");
        debug_assert!(self.out.is_empty(), "outputs are handed out");
        log.invariants();
        self.outbox.invariants();
        self.overlay.invariants(self.applied);
        self.requests.invariants();
        self.reads.invariants(self.applied);
    }
}
