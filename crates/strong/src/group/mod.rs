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
mod facts;
mod guard;
mod hand_over;
mod identity;
mod input;
mod lacking;
mod leasing;
mod log;
mod members;
mod message;
mod open;
mod outbox;
mod output;
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

use base::{Monotonic, Rng};
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
pub use self::input::{Condition, Input, Proposal};
use self::leasing::Leasing;
pub use self::leasing::StrongReads;
use self::log::Log;
pub(crate) use self::message::kind;
pub use self::message::{MESSAGE_VERSION, Message};
pub use self::open::{Identity, OpenError, Stored};
use self::outbox::Outbox;
pub use self::output::{Answer, Batch, Cause, Install, Output};
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
