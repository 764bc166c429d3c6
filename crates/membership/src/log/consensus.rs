//! The voters' consensus: TiKV's Raft library, driven in step with the log.
//!
//! 1. Something happens: a message, a tick, a proposal. The library is told, and then drained: [`Log::drain`] writes
//!    what it wants durable, applies what it says is committed, and sends what it says.
//! 2. What is learnt without it (committed entries from anybody, a snapshot, another epoch) goes into the store, and
//!    the library begins anew from there ([`Log::restart_consensus`]): to the others that is a crash and a start, which
//!    it outlives.
//! 3. Its choices by chance are ours: after each change of its role or term the time to the next election is drawn
//!    anew.
//!
//! Invariants: the library is drained at the end of each step, and a step's writes stand before what it sends; no
//! message of a peer reaches it that its own checks answer with a panic.

use base::Monotonic;
use raft::eraftpb::{self, MessageType};
use raft::{Ready, StateRole};
use ring::NodeId;

use super::entry::Payload;
use super::file::Record;
use super::library::{self, id_of, node_of};
use super::message::{Failed, Message};
use super::raw_node::raw_node;
use super::ticks::{ELECTION_TICKS, HEARTBEAT_TICKS, LEADER_SILENCE_MAX, TICK, draw_election_ticks};
use super::voter_manager::VoterManager;
use super::{Log, Output};
use crate::state::{Command, State};

impl Log {
    pub(super) fn leads(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    /// Whether this node may vote and lead.
    pub(super) fn takes_part(&self) -> bool {
        let may_vote = self.restored.is_none() && !self.is_held() && !self.is_contradicted();
        may_vote && self.voters().contains(&self.identity.node)
    }

    /// Whether it is the only one that has a part in the consensus.
    fn is_alone(&self) -> bool {
        let conf = &self.store().conf;
        conf.voters.len() == 1 && conf.learners.is_empty() && conf.voters.contains(&self.identity.node)
    }

    /// Whether the library's time has to pass: it has no work for who does not vote, or leads nobody but itself.
    pub(super) fn needs_ticks(&self) -> bool {
        self.takes_part() && !(self.is_alone() && self.leads())
    }

    /// Whether a leader told this node of itself lately, or is given the time to after a start: what a voter lacks it
    /// gets from the leader, who notices then if it had acknowledged that.
    pub(super) fn hears_leader(&self, now: Monotonic) -> bool {
        let has_part = self.takes_part() || self.raw.raft.leader_id != 0;
        has_part && now.since(self.leader_heard) < LEADER_SILENCE_MAX
    }

    /// How many of the next ticks nothing comes of, unless a message comes before.
    fn empty_ticks(&self) -> usize {
        let raft = &self.raw.raft;
        let next = match raft.state {
            _ if self.is_alone() => 0,
            StateRole::Leader => {
                let to_heartbeat = HEARTBEAT_TICKS.saturating_sub(raft.heartbeat_elapsed());
                to_heartbeat.min(ELECTION_TICKS.saturating_sub(raft.election_elapsed))
            }
            _ => raft.randomized_election_timeout().saturating_sub(raft.election_elapsed),
        };
        next.saturating_sub(1)
    }

    /// When a tick is due that something comes of.
    pub(super) fn next_tick(&self) -> Option<Monotonic> {
        let empty = u32::try_from(self.empty_ticks()).unwrap_or(u32::MAX);
        self.needs_ticks().then(|| self.tick_at + TICK * empty)
    }

    /// Lets the ticks pass that were slept through because nothing comes of them.
    pub(super) fn pass_ticks(&mut self, now: Monotonic) {
        while now >= self.tick_at && self.needs_ticks() && self.empty_ticks() > 0 {
            self.raw.tick();
            self.tick_at = self.tick_at + TICK;
        }
    }

    pub(super) fn tick(&mut self, now: Monotonic) {
        self.tick_at = now + TICK;
        if self.is_alone() {
            // Nobody else could lead; an error says that it does already.
            drop(self.raw.campaign());
        } else {
            self.raw.tick();
        }
        self.drain(now);
    }

    /// Begins the library anew from what the store holds.
    pub(super) fn restart_consensus(&mut self, now: Monotonic) {
        let store = std::mem::take(self.raw.mut_store());
        self.raw = raw_node(self.identity.node, store, self.commit);
        self.care = None;
        self.draw_timeout();
        if self.is_alone() {
            self.tick_at = now;
        }
        self.drain(now);
    }

    fn draw_timeout(&mut self) {
        self.election_ticks = draw_election_ticks(&mut *self.rng);
        self.raw.raft.set_randomized_election_timeout(self.election_ticks);
    }

    /// Appends a command as a leader does; its index and term, if the library takes it.
    pub(super) fn append(&mut self, command: &Command) -> Option<(u64, u64)> {
        self.raw.propose(Vec::new(), library::data_of(command)).ok()?;
        let raft = &mut self.raw.raft;
        let place = (raft.raft_log.last_index(), raft.term);
        self.has_proposed = true;
        Some(place)
    }

    /// Takes a voter's message.
    pub(super) fn on_consensus(&mut self, from: NodeId, mut message: eraftpb::Message, now: Monotonic) {
        let is_leaders = library::is_leaders(&message);
        if is_leaders && self.is_held() {
            self.on_leader_of_held(from, message.commit, now);
        }
        if self.restored.is_some() || self.is_held() {
            if is_leaders && self.restored.is_some() {
                self.sends.push((from, Message::Forgot));
            }
            return;
        }
        if is_leaders && self.contradicts_message(&message) {
            self.contradict(from, true, now);
        }
        if self.is_contradicted()
            || !self.is_sane(&message)
            || self.care.as_ref().is_some_and(|care| care.is_lost(from))
        {
            return;
        }
        let last = self.raw.raft.raft_log.last_index();
        let term = self.raw.raft.term;
        if message.get_msg_type() == MessageType::MsgHeartbeat
            && message.term >= term
            && message.commit > last
        {
            // A leader tells a voter no more than what that has acknowledged: this disk is another than it was.
            self.restored = Some(message.commit);
            self.restart_consensus(now);
            return self.sends.push((from, Message::Forgot));
        }
        if is_leaders && message.term >= term {
            self.leader_heard = now;
        }
        if let Some(care) = &mut self.care {
            care.hear(from, now);
        }
        (message.from, message.to) = (id_of(from), id_of(self.identity.node));
        // An error says that an answer comes of who is not a voter any more.
        drop(self.raw.step(message));
        self.drain(now);
        self.admit_voter(now);
    }

    /// What the library believes of its messages, and a peer could send otherwise.
    fn is_sane(&self, message: &eraftpb::Message) -> bool {
        match message.get_msg_type() {
            MessageType::MsgAppendResponse => {
                message.reject || message.index <= self.raw.raft.raft_log.last_index()
            }
            MessageType::MsgSnapshot => {
                let snapshot = library::snapshot_from(message.get_snapshot());
                self.state_of(&snapshot).is_some()
            }
            _ => true,
        }
    }

    /// Does what the library wants done, until it wants nothing more.
    pub(super) fn drain(&mut self, now: Monotonic) {
        if std::mem::take(&mut self.has_proposed) && base::planted!(CommittedEntryLost) {
            let last = self.raw.raft.raft_log.last_index();
            self.raw.raft.raft_log.commit_to(last);
        }
        let versions = |state: &State| (state.version(), state.ring_version(), state.policy_version());
        let seen = |log: &Log| log.state.as_ref().map(versions);
        let (commit, before) = (self.commit, seen(self));
        self.follow_role(now);
        while self.raw.has_ready() {
            let mut ready = self.raw.ready();
            self.send_all(ready.take_messages());
            self.persist(&mut ready, now);
            self.send_all(ready.take_persisted_messages());
            self.apply_all(&ready.take_committed_entries(), now);
            let mut light = self.raw.advance_append(ready);
            if let Some(commit) = light.commit_index() {
                self.raw.mut_store().commit = commit;
            }
            self.send_all(light.take_messages());
            self.apply_all(&light.take_committed_entries(), now);
            self.raw.advance_apply();
            self.follow_role(now);
        }
        if self.commit > commit {
            Record::Commit(self.commit).put(&mut self.records);
            let is_seen = seen(self) != before;
            if std::mem::take(&mut self.has_news) || is_seen {
                self.told.push(Output::Changed);
            }
            self.tell(is_seen, now);
        }
        if self.leads() && !self.voters().contains(&self.identity.node) {
            // It has led its own removal to the end, and the library leaves the rest to us.
            self.restart_consensus(now);
        }
    }

    /// What another role or term entails.
    fn follow_role(&mut self, now: Monotonic) {
        let (term, role) = (self.raw.raft.term, self.raw.raft.state);
        if self.role != (term, role) {
            self.role = (term, role);
            self.election_ticks = draw_election_ticks(&mut *self.rng);
            self.care = self.leads().then(|| VoterManager::new(&self.store().conf, now));
        }
        // The library draws by itself when it likes; ours is what counts.
        self.raw.raft.set_randomized_election_timeout(self.election_ticks);
    }

    /// Relations between the log and the library, which hold once it is drained.
    pub(super) fn consensus_invariants(&self) {
        let (raft, store) = (&self.raw.raft, self.store());
        debug_assert_eq!(self.commit, store.commit, "committed entries are applied");
        debug_assert_eq!(raft.raft_log.committed, store.commit, "the library and the store commit the same");
        debug_assert_eq!(raft.raft_log.applied, self.commit, "the library and the log have applied the same");
        debug_assert_eq!(
            raft.raft_log.persisted,
            store.last().0,
            "the library counts stored entries as written"
        );
        debug_assert!(raft.term <= store.term, "a term is written before its messages are sent");
        debug_assert_eq!(self.role, (raft.term, raft.state), "a role is followed in the step that brings it");
        debug_assert_eq!(
            raft.randomized_election_timeout(),
            self.election_ticks,
            "the library waits for the ticks that were drawn"
        );
        debug_assert!(!self.leads() || self.takes_part(), "a leader votes, and its folder is no older copy");
        debug_assert_eq!(self.care.is_some(), self.leads(), "a leader alone cares for the voters");
        if let Some(care) = &self.care {
            care.invariants(&store.conf);
        }
    }

    fn send_all(&mut self, messages: Vec<eraftpb::Message>) {
        for message in messages.into_iter().filter(library::is_sent) {
            if let Some(to) = node_of(message.to) {
                self.sends.push((to, Message::Consensus(message.into())));
            }
        }
    }

    fn persist(&mut self, ready: &mut Ready, now: Monotonic) {
        if !ready.snapshot().is_empty() {
            let snapshot = library::snapshot_from(ready.snapshot());
            let state = self.state_of(&snapshot).expect("looked at when it came");
            self.raw.mut_store().install(snapshot);
            self.installed(state, now);
        }
        // The term first: a torn write must not leave an entry of a later one.
        if let Some(hard) = ready.hs() {
            let voted = node_of(hard.vote);
            let store = self.raw.mut_store();
            store.commit = hard.commit;
            if (store.term, store.voted) != (hard.term, voted) {
                (store.term, store.voted) = (hard.term, voted);
                self.put_hard();
            }
        }
        for entry in ready.take_entries() {
            let entry = library::entry_from(&entry);
            Record::Entry(entry.clone()).put(&mut self.records);
            self.raw.mut_store().push(entry);
        }
    }

    fn apply_all(&mut self, entries: &[eraftpb::Entry], now: Monotonic) {
        for entry in entries {
            debug_assert_eq!(
                self.store().term_at(entry.index),
                Some(entry.term),
                "the library commits an entry of the store"
            );
            self.apply(entry.index, now);
        }
    }

    fn apply(&mut self, index: u64, now: Monotonic) {
        let entry = self.store().entry(index).expect("what is committed here is written here").clone();
        debug_assert_eq!((self.commit + 1, entry.index), (index, index), "entries are applied in order");
        self.commit = index;
        let outcome = match (&entry.payload, &mut self.state) {
            (Payload::Command(command), Some(state)) => {
                let applied = state.apply(command).map_err(Failed::Rejected);
                self.has_news |= applied.is_ok() && !command.is_report();
                applied
            }
            (Payload::Voters(change), _) => {
                // What the library refuses changes nothing, at any node.
                if let Ok(conf) = self.raw.apply_conf_change(&library::change_of(*change)) {
                    let conf = library::conf_of(&conf);
                    if let Some(care) = &mut self.care {
                        care.follow(&conf, now);
                    }
                    self.raw.mut_store().conf = conf;
                }
                Ok(())
            }
            _ => Ok(()),
        };
        // Who waits for an entry of another term at this place has lost it.
        while let Some((place, waiter)) = self.waiters.take_up_to(index) {
            let is_it = place == (entry.index, entry.term);
            self.answer(waiter, if is_it { outcome } else { Err(Failed::Unknown) });
        }
    }
}
