//! The replicated log of a cluster: one order of commands, so one [`State`] at all nodes.
//!
//! The consensus is TiKV's Raft (`consensus.rs`): leaders elected by a majority of a few voters, with pre-vote and a
//! check of the quorum, entries replicated and committed, changes of the voters one at a time, snapshots. Around it
//! stands what a cluster's metadata needs beside:
//!
//! 1. Only 1, 3 or 5 members vote. The leader chooses them by zone and replaces one that is gone ([`voters`],
//!    `voter_changes.rs`).
//! 2. All other members hear of the newest committed entry, from any member, and pull the difference from it. A member
//!    that has all entries sends one short message in [`POLL_EVERY`].
//! 3. An epoch names the history. Where a majority of the voters is lost, [`Input::Recover`] begins the next epoch with
//!    the entries of one survivor. Members of an earlier epoch take it over as a whole. A restore without users begins
//!    another history of the same epoch ([`Log::without_users`]).
//! 4. Another cluster, another format, a second epoch of one number, and a data folder that is older than the cluster
//!    knows are refused, and both sides hear why ([`Refusal`]). A voter that lost entries that it had acknowledged
//!    loses its vote.
//! 5. A log that was restored from a backup takes no part before it has compared with all members (`hold.rs`).
//!    Committed entries of others that contradict those here are not taken (`contradiction.rs`).
//!
//! Invariants: an output is acted on only when the writes before it are durable; a term has one leader; a committed
//! entry is never changed within an epoch; `commit` only grows within an epoch; the state is that of the committed
//! entries; the same inputs at the same times with the same random numbers give the same outputs.
//!
//! Left out: links, files and timers, which are the user's: [`Log::step`] takes what happens and says what is to be
//! done. A copy of a folder that runs beside its original, with the same count of starts, is the failure detector's to
//! find.

mod admission;
mod consensus;
mod contradiction;
mod entry;
mod facts;
mod file;
mod hold;
mod input;
mod library;
mod message;
mod output;
mod persist;
mod proposal;
mod pull;
mod raw_node;
mod recover;
mod refusal;
mod registration;
mod store;
#[cfg(test)]
mod tests;
mod ticks;
mod voter_changes;
mod voter_manager;
pub mod voters;
mod waiters;
mod without_users;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{Monotonic, Rng};
use bytes::{Bytes, BytesMut};
use protocol::peer::Malformed;
use raft::{RawNode, StateRole};
use ring::NodeId;

use self::contradiction::Contradictions;
pub use self::entry::{Conf, Entry, Epoch, Payload, Snapshot, VoterChange};
pub use self::file::{FILE_VERSION, FileError, Write};
use self::hold::Hold;
pub use self::input::Input;
use self::message::Message;
pub use self::message::{Envelope, Failed, MESSAGE_BYTES_MAX, Outcome, VERSION};
pub use self::output::Output;
pub use self::proposal::PROPOSAL_MAX;
pub use self::refusal::Refusal;
use self::store::Store;
pub use self::ticks::{ELECTION_AFTER, HEARTBEAT_EVERY};
use self::voter_manager::VoterManager;
pub use self::voters::Step as VoterStep;
use self::waiters::{Waiter, Waiters};
use crate::ClusterId;
use crate::state::State;

/// How often a member asks another, chosen at random, whether there is news.
pub const POLL_EVERY: Duration = Duration::from_secs(5);

/// Members told at once that there is news; they tell others.
const TOLD_AT_ONCE: usize = 3;

/// News that people do not wait for, and shards do not go by, is told this often at most: members' reports and starts.
/// Each member makes some, and all members tell each of it on.
const TELL_EVERY: Duration = Duration::from_millis(200);

const _: () = assert!(TELL_EVERY.as_nanos() < POLL_EVERY.as_nanos(), "news is told before others ask for it");

/// The name of a log, and its address.
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

/// A node's copy of the log, and its part in making it.
pub struct Log {
    identity: Identity,
    epoch: Epoch,
    /// The library, with the store in it.
    raw: RawNode<Store>,
    /// The library's term and role when the random time to an election was drawn.
    role: (u64, StateRole),
    election_ticks: usize,
    /// Something was proposed since the library was drained.
    has_proposed: bool,
    /// Something was applied since then that is no report.
    has_news: bool,
    /// A leader's.
    care: Option<VoterManager>,
    /// The last entry that was applied: all that are known to be committed are.
    commit: u64,
    /// After the committed entries; none before there is a history.
    state: Option<State>,
    /// Set when the folder was found to be an older copy: it takes no part until it has seen itself without a vote, at
    /// this committed entry or later.
    restored: Option<u64>,
    /// Set while a log that was restored from a backup has not been compared with those of all members.
    hold: Option<Hold>,
    contradictions: Contradictions,
    leader_heard: Monotonic,
    /// When the library's time passes next.
    tick_at: Monotonic,
    poll_at: Monotonic,
    /// When this start is registered, or once more, while it is not.
    register_at: Monotonic,
    /// When others were told last that there is news, and whether there is more since.
    told_at: Option<Monotonic>,
    has_untold: bool,
    up: BTreeSet<NodeId>,
    down_since: BTreeMap<NodeId, Monotonic>,
    waiters: Waiters,
    rng: Box<dyn Rng>,
    /// Records that this step made.
    records: BytesMut,
    replace: bool,
    sends: Vec<(NodeId, Message)>,
    told: Vec<Output>,
}

impl Log {
    /// The log of a new cluster. Its first outputs found the file. Where the state has several members, each founds the
    /// same log: the same first members vote, and the epoch's nonce is the cluster's number. A member that founds it
    /// again, with an empty folder, is one that forgot.
    ///
    /// # Panics
    /// If the state is not of this cluster, or this node is no member.
    pub fn found(identity: Identity, state: State, rng: Box<dyn Rng>, now: Monotonic) -> Log {
        assert!(
            state.cluster() == identity.cluster && state.members().contains_key(&identity.node),
            "a new cluster's"
        );
        let members = state.members().keys().copied();
        let voters = members.take(voters::wanted(state.members().len())).collect();
        let conf = Conf { voters, ..Conf::default() };
        let mut store = Store::default();
        store.install(Snapshot { index: 1, term: 1, conf, state: state.encode() });
        let mut log = Log::of(identity, store, rng, now);
        log.epoch = Epoch { number: 1, nonce: log.identity.cluster.0 };
        log.state = Some(state);
        log.replace = true;
        log
    }

    /// The log of a node that joins, without a history yet.
    pub fn join(identity: Identity, rng: Box<dyn Rng>, now: Monotonic) -> Log {
        let mut log = Log::of(identity, Store::default(), rng, now);
        log.replace = true;
        log
    }

    /// The log over a store, with nothing applied that is not in its base.
    fn of(identity: Identity, store: Store, mut rng: Box<dyn Rng>, now: Monotonic) -> Log {
        let commit = store.base.index;
        let raw = raw_node::raw_node(identity.node, store, commit);
        let election_ticks = ticks::draw_election_ticks(&mut *rng);
        Log {
            identity,
            epoch: Epoch::NONE,
            role: (raw.raft.term, raw.raft.state),
            raw,
            election_ticks,
            has_proposed: false,
            has_news: false,
            care: None,
            commit,
            state: None,
            restored: None,
            hold: None,
            contradictions: Contradictions::default(),
            leader_heard: now,
            tick_at: now,
            poll_at: now,
            register_at: now,
            told_at: None,
            has_untold: false,
            up: BTreeSet::new(),
            down_since: BTreeMap::new(),
            waiters: Waiters::default(),
            rng,
            records: BytesMut::new(),
            replace: false,
            sends: Vec::new(),
            told: Vec::new(),
        }
    }

    fn store(&self) -> &Store {
        self.raw.store()
    }

    /// Takes note of `input` at `now`, and of the time that has passed.
    pub fn step(&mut self, input: Input, now: Monotonic, out: &mut Vec<Output>) {
        let before = self.progress();
        self.pass_ticks(now);
        match input {
            Input::Message(bytes) => self.on_bytes(bytes, now),
            Input::Reachable { node, is_up } => self.on_reachable(node, is_up, now),
            Input::Propose { token, command } => self.propose(Waiter::Here(token), command, now),
            Input::Join { contact } => self.sends.push((contact, Message::Pull { commit: self.commit })),
            Input::Recover { word } => self.recover(&word, now),
            Input::Tick => {}
        }
        self.drain(now);
        self.on_time(now);
        // Proposals that came due with the time.
        self.drain(now);
        self.compact();
        self.flush(out);
        self.invariants(before, now);
    }

    /// Epoch, committed index and term.
    fn progress(&self) -> (u32, u64, u64) {
        (self.epoch.number, self.commit, self.term())
    }

    /// Relations that hold after each step; `before` is the progress before the step.
    fn invariants(&self, before: (u32, u64, u64), now: Monotonic) {
        let (epoch, commit, term) = before;
        debug_assert!(
            (self.epoch.number, self.commit) >= (epoch, commit),
            "the committed index does not fall within an epoch"
        );
        debug_assert!(self.term() >= term, "terms do not fall");
        debug_assert!(
            self.up.iter().all(|node| !self.down_since.contains_key(node)),
            "a reached node is not down"
        );
        debug_assert!(
            self.waiters.first().is_none_or(|(index, _)| index > self.commit),
            "waiters wait for entries that are not applied"
        );
        debug_assert!(
            self.tells_at().into_iter().chain(self.waiters.next_timer()).all(|at| at > now),
            "due news is told, and waits end in time"
        );
        debug_assert!(
            self.care.as_ref().map_or(self.poll_at, |care| care.next_timer().min(self.poll_at)) > now,
            "due polls and looks at the voters are made"
        );
        debug_assert!(self.hold_timer().is_none_or(|at| at > now), "a held log looks at the answers in time");
        self.waiters.invariants();
        self.store().invariants();
        self.consensus_invariants();
    }

    fn on_time(&mut self, now: Monotonic) {
        if now >= self.tick_at && self.needs_ticks() {
            self.tick(now);
        }
        if self.care.as_ref().is_some_and(|care| now >= care.next_timer()) {
            self.care(now);
        }
        if now >= self.poll_at {
            self.poll(now);
        }
        if self.hold_timer().is_some_and(|at| now >= at) {
            self.look_at_hold(now);
        }
        if self.registers_at().is_some_and(|at| now >= at) {
            self.register(now);
        }
        if self.tells_at().is_some_and(|at| now >= at) {
            self.tell_some(now);
        }
        while let Some(waiter) = self.waiters.expire(now) {
            self.answer(waiter, Err(Failed::Unknown));
        }
    }

    fn on_reachable(&mut self, node: NodeId, is_up: bool, now: Monotonic) {
        if is_up {
            self.up.insert(node);
            self.down_since.remove(&node);
        } else {
            self.up.remove(&node);
            self.down_since.entry(node).or_insert(now);
        }
    }

    fn on_bytes(&mut self, bytes: Bytes, now: Monotonic) {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return self.told.push(Output::Junk(Malformed("a message is too long")));
        }
        match Message::read(bytes) {
            Err(malformed) => self.told.push(Output::Junk(malformed)),
            Ok((from, Err(theirs))) => self.refuse(from, Refusal::Version { ours: VERSION, theirs }),
            Ok((from, Ok(Message::Refused(refusal)))) => self.on_refused(from, refusal, now),
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
            Message::Consensus(message) => self.on_consensus(from, *message, now),
            Message::Forgot => {
                self.count_out(from);
                if let Some(care) = &mut self.care {
                    care.look_now(now);
                }
            }
            Message::Snapshot(snapshot) => self.on_snapshot(from, snapshot, now),
            Message::Have { commit } => self.on_have(from, commit, now),
            Message::Pull { commit } => self.on_pull(from, commit),
            Message::News { commit, entries } => self.on_news(from, commit, entries, now),
            Message::Propose { id, command } => self.propose(Waiter::Node { node: from, id }, command, now),
            Message::Proposed { id, outcome } => {
                if let Some(waiter) = self.waiters.answered(id) {
                    self.answer(waiter, outcome);
                }
            }
            Message::Refused(_) => unreachable!("taken out before"),
        }
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
