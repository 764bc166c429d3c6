//! The replicated log of what a cluster agrees on: one order of commands, so one [`State`] at all nodes.
//!
//! Follows Ongaro, *Consensus: Bridging Theory and Practice* (2014): leaders elected by majority of a few voters (§3.4, with the
//! pre-vote of §9.6 and the check of the quorum of §6.2), entries replicated and committed (§3.5, §3.6), changes of the voters
//! one at a time (§4.1, with the correction that a leader first commits an entry of its own term), snapshots (§5). Around that:
//!
//! 1. Only 1, 3 or 5 members vote. The leader chooses them by zone and replaces one that is gone ([`voters`]).
//! 2. Everybody else hears what the newest committed entry is, from any member, and pulls the difference from it. Who has
//!    all of it sends one short message in [`POLL_EVERY`].
//! 3. An epoch names the history. Where a majority of the voters is lost, [`Input::Recover`] begins the next epoch with what
//!    one survivor has. Members of an earlier epoch take it over as a whole.
//! 4. Another cluster, another format, a second epoch of one number, and a data folder that is older than the cluster knows are
//!    refused, and both sides hear why ([`Refusal`]). A voter that lost what it had acknowledged loses its vote.
//!
//! Invariants: an output is acted on only when the writes before it are durable; a term has one leader; a committed entry is
//! never changed within an epoch; `commit` only grows; the state is that of the committed entries.
//!
//! Left out: links, files and timers, which are the user's: [`Log::step`] takes what happens and says what is to be done. A copy
//! of a folder that runs beside its original, with the same count of starts, is the failure detector's to find.

mod elect;
mod entry;
mod file;
mod message;
mod persist;
mod proposal;
mod pull;
mod recover;
mod refusal;
mod replicate;
mod seam;
#[cfg(test)]
mod tests;
pub mod voters;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use base::{Monotonic, Rng};
use bytes::{Bytes, BytesMut};
use protocol::peer::Malformed;
use ring::NodeId;

pub use self::entry::{Entry, Epoch, Payload, Snapshot};
use self::file::Record;
pub use self::file::{FILE_VERSION, FileError, Write};
use self::message::Message;
pub use self::message::{Envelope, Failed, MESSAGE_BYTES_MAX, Outcome, VERSION};
pub use self::proposal::PROPOSAL_MAX;
use self::proposal::Waiter;
pub use self::refusal::Refusal;
use self::replicate::Leader;
pub use self::seam::ReplicatedLog;
use crate::ClusterId;
use crate::state::{Command, State};

/// How often a leader speaks to the voters.
pub const HEARTBEAT_EVERY: Duration = Duration::from_millis(500);

/// A voter that hears of no leader for this long, and up to as much again, stands for election: several heartbeats, so that one
/// lost or late elects nobody.
pub const ELECTION_AFTER: Duration = Duration::from_secs(2);

/// How often a member asks another, chosen at random, whether there is news.
pub const POLL_EVERY: Duration = Duration::from_secs(5);

/// Members told at once that there is news; they tell others.
const TOLD_AT_ONCE: usize = 3;

/// What happens to a log.
#[derive(Clone, Debug)]
pub enum Input {
    /// A message has come.
    Message(Bytes),
    /// These nodes can be reached, as far as the failure detector knows.
    Reachable(BTreeSet<NodeId>),
    /// Somebody wants a change; [`Output::Answer`] comes with the same token.
    Propose {
        /// Names the proposal in its answer.
        token: u64,
        /// The change.
        command: Command,
    },
    /// This node is a member of a cluster whose log it does not have: it asks another for it.
    Join {
        /// Whom it asks.
        contact: NodeId,
    },
    /// An operator says that the majority of the voters is lost for good, and that the cluster goes on with what is here.
    Recover {
        /// [`Log::safety_word`], as the operator read it.
        word: String,
    },
    /// Time has passed; due at [`Log::next_timer`].
    Tick,
}

/// What a log wants done or known. In order: what follows a write waits until it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Write to the log's file. If that fails, the log must not be used any more.
    Write(Write),
    /// Send to a node, as best as one can.
    Send {
        /// Whom.
        to: NodeId,
        /// What.
        message: Bytes,
    },
    /// Send to where the message came from.
    Reply(Bytes),
    /// A proposal's end.
    Answer {
        /// The proposal.
        token: u64,
        /// What became of it.
        outcome: Outcome,
    },
    /// The state is another: look at [`Log::state`].
    Changed,
    /// The data folder counts as started this often from now on.
    Starts(u32),
    /// Somebody was refused here.
    Refused {
        /// Who.
        from: Envelope,
        /// Why.
        refusal: Refusal,
    },
    /// Somebody refuses this node.
    Told {
        /// Who.
        by: Envelope,
        /// Why.
        refusal: Refusal,
    },
    /// What came makes no sense.
    Junk(Malformed),
}

/// Who a log is, and how it is reached.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its node.
    pub node: NodeId,
    /// How often its data folder was started, this time included.
    pub starts: u32,
    /// This process: drawn at random at each start, so that copies of a folder differ.
    pub start: u64,
    /// Where other nodes reach it.
    pub address: String,
}

enum Role {
    Follower,
    /// Stands for election, or asks whether it could win one (`pre`).
    Candidate {
        pre: bool,
        votes: BTreeSet<NodeId>,
    },
    Leader(Leader),
}

/// A node's copy of the log, and its part in making it.
pub struct Log {
    identity: Identity,
    epoch: Epoch,
    term: u64,
    voted: Option<NodeId>,
    base: Snapshot,
    /// Without a gap up to the last; they may begin before the base's end.
    entries: VecDeque<Entry>,
    commit: u64,
    /// After the committed entries; none before there is a history.
    state: Option<State>,
    /// Set when the folder was found to be an older copy: it takes no part until it has seen itself without a vote, at this
    /// committed entry or later.
    restored: Option<u64>,
    role: Role,
    leader: Option<NodeId>,
    leader_heard: Monotonic,
    /// When a leader speaks next, or another stands for election.
    deadline: Monotonic,
    poll_at: Monotonic,
    up: BTreeSet<NodeId>,
    down_since: BTreeMap<NodeId, Monotonic>,
    /// By index and term of the entry that they wait for.
    waiting: BTreeMap<(u64, u64), Waiter>,
    /// Proposals passed on: who waits, and until when.
    asked: BTreeMap<u64, (Waiter, Monotonic)>,
    next_id: u64,
    rng: Box<dyn Rng>,
    /// Records that this step made.
    records: BytesMut,
    replace: bool,
    sends: Vec<(NodeId, Message)>,
    told: Vec<Output>,
}

impl Log {
    /// The log of a new cluster, whose only member is here. Its first outputs found the file.
    ///
    /// # Panics
    /// If the state is not of this cluster, or has other members.
    pub fn found(identity: Identity, state: State, rng: Box<dyn Rng>, now: Monotonic) -> Log {
        assert!(
            state.cluster() == identity.cluster && state.members().keys().eq([&identity.node]),
            "a new cluster's"
        );
        let mut log = Log::empty(identity, rng, now);
        log.epoch = Epoch { number: 1, nonce: log.rng.next_u64() };
        let voters = BTreeSet::from([log.identity.node]);
        log.base = Snapshot { index: 1, term: 1, voters, state: state.encode() };
        (log.term, log.commit, log.state) = (1, 1, Some(state));
        // Nobody else could lead.
        log.deadline = now;
        log.replace = true;
        log
    }

    /// The log of a node that joins, without a history yet.
    pub fn join(identity: Identity, rng: Box<dyn Rng>, now: Monotonic) -> Log {
        let mut log = Log::empty(identity, rng, now);
        log.replace = true;
        log
    }

    fn empty(identity: Identity, rng: Box<dyn Rng>, now: Monotonic) -> Log {
        let mut log = Log {
            identity,
            epoch: Epoch::NONE,
            term: 0,
            voted: None,
            base: Snapshot::none(),
            entries: VecDeque::new(),
            commit: 0,
            state: None,
            restored: None,
            role: Role::Follower,
            leader: None,
            leader_heard: now,
            deadline: now,
            poll_at: now,
            up: BTreeSet::new(),
            down_since: BTreeMap::new(),
            waiting: BTreeMap::new(),
            asked: BTreeMap::new(),
            next_id: 0,
            rng,
            records: BytesMut::new(),
            replace: false,
            sends: Vec::new(),
            told: Vec::new(),
        };
        log.wait_for_leader(now);
        log
    }

    /// The state of the committed entries; none before this node has a history.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Who this is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The history that this node follows.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The last committed entry.
    pub fn commit(&self) -> u64 {
        self.commit
    }

    /// Index and term of the last entry: of several survivors, the one with the highest term, then index, knows most.
    pub fn last(&self) -> (u64, u64) {
        match self.entries.back().filter(|last| last.index > self.base.index) {
            Some(last) => (last.index, last.term),
            None => (self.base.index, self.base.term),
        }
    }

    /// The present term.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// The leader, as far as this node knows.
    pub fn leader(&self) -> Option<NodeId> {
        match &self.role {
            Role::Leader(_) => Some(self.identity.node),
            _ => self.leader,
        }
    }

    /// Who votes, by the last entry, committed or not.
    pub fn voters(&self) -> &BTreeSet<NodeId> {
        self.voters_at(u64::MAX)
    }

    /// Committed entries that are kept, in order.
    pub fn committed(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.index <= self.commit)
    }

    /// When the next [`Input::Tick`] is due.
    pub fn next_timer(&self) -> Monotonic {
        let proposals = self.asked.values().map(|(_, until)| *until);
        proposals.chain([self.deadline, self.poll_at]).min().expect("there are two at least")
    }

    /// Takes note of `input` at `now`, and of the time that has passed.
    pub fn step(&mut self, input: Input, now: Monotonic, out: &mut Vec<Output>) {
        match input {
            Input::Message(bytes) => self.on_bytes(bytes, now),
            Input::Reachable(up) => self.on_reachable(up, now),
            Input::Propose { token, command } => self.propose(Waiter::Here(token), command, now),
            Input::Join { contact } => self.sends.push((contact, Message::Pull { commit: self.commit })),
            Input::Recover { word } => self.recover(&word, now),
            Input::Tick => {}
        }
        self.on_time(now);
        self.compact();
        self.flush(out);
    }

    fn on_time(&mut self, now: Monotonic) {
        if now >= self.deadline {
            match self.role {
                Role::Leader(_) => self.heartbeat(now),
                _ => self.stand(now),
            }
        }
        if now >= self.poll_at {
            self.poll(now);
        }
        while let Some((&id, &(waiter, _))) = self.asked.iter().find(|(_, (_, until))| now >= *until) {
            self.asked.remove(&id);
            self.answer(waiter, Err(Failed::Unknown));
        }
    }

    fn on_reachable(&mut self, up: BTreeSet<NodeId>, now: Monotonic) {
        let members = self.state.iter().flat_map(|state| state.members().keys().copied());
        let down = members.filter(|node| !up.contains(node) && *node != self.identity.node);
        let since = |node| (node, self.down_since.get(&node).copied().unwrap_or(now));
        self.down_since = down.map(since).collect();
        self.up = up;
    }

    fn on_bytes(&mut self, bytes: Bytes, now: Monotonic) {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return self.told.push(Output::Junk(Malformed("a message is too long")));
        }
        match Message::read(bytes) {
            Err(malformed) => self.told.push(Output::Junk(malformed)),
            Ok((from, Err(theirs))) => self.refuse(from, Refusal::Version { ours: VERSION, theirs }),
            Ok((from, Ok(Message::Refused(refusal)))) => self.on_refused(from, refusal),
            Ok((from, Ok(message))) => match self.admit(&from, &message) {
                Err(refusal) => self.refuse(from, refusal),
                Ok(()) if from.epoch.number < self.epoch.number => self.on_earlier_epoch(from.from, &message),
                Ok(()) if from.epoch.number > self.epoch.number => self.on_later_epoch(&from, message, now),
                Ok(()) => self.on_message(from.from, message, now),
            },
        }
    }

    fn on_message(&mut self, from: NodeId, message: Message, now: Monotonic) {
        match message {
            Message::Vote { pre, term, last_index, last_term } => {
                self.on_vote(from, pre, term, (last_term, last_index), now);
            }
            Message::Voted { pre, term, granted } => self.on_voted(from, pre, term, granted, now),
            Message::Append(append) => self.on_append(from, append, now),
            Message::Appended { term, round, agreed, prev_index: _, index } => {
                self.on_appended(from, term, round, agreed, index, now);
            }
            Message::Snapshot { term, round, snapshot } => self.on_snapshot(from, term, round, snapshot, now),
            Message::Have { commit } => self.on_have(from, commit),
            Message::Pull { commit } => self.on_pull(from, commit),
            Message::News { commit, entries } => self.on_news(from, commit, entries, now),
            Message::Propose { id, command } => self.propose(Waiter::Node { node: from, id }, command, now),
            Message::Proposed { id, outcome } => {
                if let Some((waiter, _)) = self.asked.remove(&id) {
                    self.answer(waiter, outcome);
                }
            }
            Message::Refused(_) => unreachable!("taken out before"),
        }
    }

    /// Appends an entry of the present term, and returns its index.
    fn append(&mut self, payload: Payload) -> u64 {
        let entry = Entry { index: self.last().0 + 1, term: self.term, payload };
        let index = entry.index;
        self.push(entry);
        index
    }

    fn push(&mut self, entry: Entry) {
        assert_eq!(entry.index, self.last().0 + 1, "entries have no gap");
        let record = Record::Entry(entry.clone());
        record.put(&mut self.records);
        self.entries.push_back(entry);
    }

    fn entry(&self, index: u64) -> Option<&Entry> {
        let first = self.entries.front()?.index;
        self.entries.get(usize::try_from(index.checked_sub(first)?).ok()?)
    }

    /// The term of an entry, if it is still known.
    fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.base.index {
            Some(self.base.term)
        } else {
            self.entry(index).map(|entry| entry.term)
        }
    }

    fn voters_at(&self, index: u64) -> &BTreeSet<NodeId> {
        let in_force =
            self.entries.iter().rev().filter(|entry| entry.index <= index && entry.index > self.base.index);
        let last = in_force.filter_map(|entry| match &entry.payload {
            Payload::Voters(voters) => Some(voters),
            _ => None,
        });
        last.into_iter().next().unwrap_or(&self.base.voters)
    }

    /// Applies the entries up to `commit`, which are committed.
    fn advance(&mut self, commit: u64, now: Monotonic) {
        assert!(commit <= self.last().0, "only what is here is committed");
        if commit <= self.commit {
            return;
        }
        let before = self.state.as_ref().map(State::version);
        while self.commit < commit {
            self.commit += 1;
            let entry = self.entry(self.commit).expect("entries after the base have no gap").clone();
            let outcome = match (&entry.payload, &mut self.state) {
                (Payload::Command(command), Some(state)) => state.apply(command).map_err(Failed::Rejected),
                _ => Ok(()),
            };
            // Who waits for an entry of another term at this place has lost it.
            while let Some((&(index, term), _)) =
                self.waiting.first_key_value().filter(|((at, _), _)| *at <= entry.index)
            {
                let waiter = self.waiting.remove(&(index, term)).expect("it is the first");
                let is_it = (index, term) == (entry.index, entry.term);
                self.answer(waiter, if is_it { outcome } else { Err(Failed::Unknown) });
            }
        }
        Record::Commit(commit).put(&mut self.records);
        if self.state.as_ref().map(State::version) != before {
            self.told.push(Output::Changed);
        }
        self.tell_some();
        self.after_commit(now);
    }

    /// Gives out what the step came to: writes first.
    fn flush(&mut self, out: &mut Vec<Output>) {
        let records = self.records.split().freeze();
        if std::mem::take(&mut self.replace) {
            out.push(Output::Write(Write::Replace(self.whole_file())));
        } else if !records.is_empty() {
            out.push(Output::Write(Write::Append(records)));
        }
        let envelope = self.envelope();
        for (to, message) in std::mem::take(&mut self.sends) {
            if to != self.identity.node {
                out.push(Output::Send { to, message: message.encode(&envelope) });
            }
        }
        out.append(&mut self.told);
    }

    fn envelope(&self) -> Envelope {
        let Identity { cluster, node, starts, start, .. } = self.identity;
        Envelope { cluster, epoch: self.epoch, from: node, starts, start }
    }
}
