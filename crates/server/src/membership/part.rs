//! This node's part in its cluster's agreement: a router between the crate `membership` and the components that follow
//! what is agreed on.
//!
//! 1. An event comes from the queue, or a timer is due. It goes to one component, or into the machine of the crate
//!    `membership` ([`Part::step`]).
//! 2. The machine's outputs are carried out in order: writes, words to other nodes, ends of proposals, changes.
//! 3. Before the next event each component takes the steps that are due ([`Part::advance`]); what they propose goes
//!    into the machine again.
//!
//! Invariants: it writes before it sends. No component reads or writes a field of another.
//!
//! Left out: the way of a node to its standing (`entry.rs`).

#[cfg(test)]
mod tests;

use super::alone;
use super::board::Board;
use super::consistent::ConsistentGroups;
use super::contacts::Contacts;
use super::copy::{CopyRefusal, CopyWatch, Own};
use super::end::End;
use super::enforced_policy::EnforcedPolicy;
use super::entry::Entered;
use super::files::FilesError;
use super::handle::{Event, Handle, Inbox};
use super::health_monitor::HealthMonitor;
use super::n_vals::Replicas;
use super::publisher::Publisher;
use super::requests::Requests;
use super::standing::{AsOf, Standing};
use super::storage::Storage;
use crate::mailbox::{Mail, Mailboxes};
use crate::peer::{Peers, Roster};
use crate::security::Policies;
use ::membership::detector::Detector;
use ::membership::log::{Identity, Outcome};
use ::membership::state::State;
use ::membership::{Input, Membership, Output, Stop};
use base::{Clock, Monotonic};
use bytes::Bytes;
use node::{FoundBirth, PeerMessage, ShardId};
use os::{OsClock, OsRng};
use ring::NodeId;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// Without an event the thread looks at least so often whether it is to end.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Names proposals in their answers, which nobody waits for: the state tells.
const UNHEARD: u64 = u64::MAX;

/// The shard whose links carry the words: every node has it.
const CARRIER: ShardId = ShardId(0);

/// The node's part, with its files.
pub struct Part {
    membership: Membership,
    storage: Storage,
    /// Which node this is, as of when it became it.
    standing: Standing,
    /// Where shards and this thread put things down for each other.
    board: Arc<Board>,
    contacts: Contacts,
    requests: Requests,
    publisher: Publisher,
    groups: ConsistentGroups,
    replicas: Replicas,
    health: HealthMonitor,
    copies: CopyWatch,
    /// The count of starts of a folder that was found to be an older copy, until it is written.
    raised_starts: Option<u32>,
    clock: OsClock,
}

impl Part {
    /// Opens the files, and remembers the standing. `life` is this process; `handle` reaches its thread to be. The
    /// security policy of the log on the disk is in `policies` afterwards: before any door is open.
    ///
    /// # Errors
    /// [`FilesError`]; `Invalid` if the log is not this node's, or damaged or lost.
    pub(crate) fn open(
        entered: Entered,
        data: &Path,
        life: u64,
        handle: &Handle,
        policies: &Arc<Policies>,
    ) -> Result<Part, FilesError> {
        let Entered { files, is_alone, standing, is_new, address } = entered;
        let (clock, board) = (OsClock::new(), handle.board());
        let now = clock.now();

        let mut storage = Storage::new(files, is_alone);
        let starts = storage.next_start(&standing)?;
        let (cluster, node) = (standing.cluster(), standing.node);
        let identity = Identity { cluster, node, starts, start: life, address };
        let log = storage.open_log(identity, (&standing, is_new), data, now)?;
        let detector = Detector::new(cluster, node, starts, life, Box::new(OsRng::new()), now);
        let membership = Membership::new(detector, log);

        let state = membership.state().unwrap_or(&standing.state);
        let publisher = Publisher::new(node, state, Arc::clone(board));
        let policy = EnforcedPolicy::find(data, policies);
        let mut part = Part {
            membership,
            storage,
            standing,
            board: Arc::clone(board),
            contacts: Contacts::new(now),
            requests: Requests::new(Arc::clone(board), policy),
            publisher,
            groups: ConsistentGroups::new(Vec::new(), 0),
            replicas: Replicas::default(),
            health: HealthMonitor::new(now),
            copies: CopyWatch::default(),
            raised_starts: None,
            clock,
        };

        if is_new && !is_alone {
            part.remember(now)?;
        }
        if !base::planted!(SecurityOffAfterRestart) {
            part.follow_policy()?;
        }
        Ok(part)
    }

    /// Notes the findings of each store's open; none for a node without births. The nodes find a
    /// shard by so many bits of a prefix.
    pub fn set_births(&mut self, found: Vec<FoundBirth>, ring_bits: u8) {
        self.groups = ConsistentGroups::new(found, ring_bits);
    }

    /// Writes the log, and then the standing: with that the node is there.
    fn remember(&mut self, now: Monotonic) -> Result<(), FilesError> {
        let mut out = Vec::new();
        // Nobody hears yet what is said here, and it is said again.
        self.membership.step(Input::Tick, now, &mut out);
        self.storage.remember(&out, &self.standing)
    }

    /// The agreed state, as far as it has come here.
    pub fn state(&self) -> &State {
        self.membership.state().unwrap_or(&self.standing.state)
    }

    /// The identity of this node, and its addresses.
    pub fn identity(&self) -> &Identity {
        self.membership.log().identity()
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.standing.node
    }

    /// Whom links lead to; `None` if this node is not a member any more.
    pub fn roster(&self) -> Option<Roster> {
        Roster::of(self.node(), self.state(), self.as_of())
    }

    fn as_of(&self) -> AsOf {
        let log = self.membership.log();
        let as_of = AsOf { epoch: log.epoch().number, commit: log.commit() };
        log.state().map_or(self.standing.as_of, |_| as_of)
    }

    /// Runs until it is told to stop, or cannot go on; says why. Links are those of `peers`; a node alone has none.
    pub fn run(mut self, inbox: &Inbox, mailboxes: &Mailboxes, peers: Option<&Peers>) -> Result<(), End> {
        self.publish(mailboxes)?;
        self.set_starts(self.identity().starts)?;
        self.step(Input::Tick, None, mailboxes, peers)?;
        loop {
            self.advance(mailboxes, peers)?;
            match inbox.next(self.wait()) {
                Ok(Event::Word { from, bytes }) => {
                    self.step(Input::Message(bytes), Some(from), mailboxes, peers)?;
                }
                Ok(Event::Asked(request)) => {
                    let (is_kept, now) = (self.storage.is_kept(), self.clock.now());
                    if let Some(input) = self.requests.ask(request, &self.membership, is_kept, now) {
                        self.step(input, None, mailboxes, peers)?;
                    }
                }
                Ok(Event::Groups(question)) => self.groups.answer(question, &self.membership),
                Ok(Event::NotMember(as_of)) if self.is_removed(as_of) => return Err(self.no_member()),
                Ok(Event::NotMember(_)) => {}
                Ok(Event::Copy(refusal)) if self.is_copy(refusal, peers) => return Err(Stop::Copy.into()),
                Ok(Event::Copy(_)) => {}
                // A cluster of several has the others to tell which one is right.
                Ok(Event::KnownElsewhere { .. }) if self.state().members().len() > 1 => {}
                Ok(Event::KnownElsewhere { by, cluster }) => {
                    return Err(End::founded_twice(&self.standing, &by, cluster));
                }
                Ok(Event::Admitted { node, life }) => {
                    self.step(Input::Admitted { node, start: life }, None, mailboxes, peers)?;
                }
                Ok(Event::Reported) => self.health.look_soon(),
                Err(RecvTimeoutError::Timeout) => self.step(Input::Tick, None, mailboxes, peers)?,
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// How long nothing is due.
    fn wait(&self) -> Duration {
        let now = self.clock.now();
        let timers = [
            Some(self.membership.next_timer()),
            self.contacts.next_timer(&self.membership),
            self.requests.next_timer(),
            self.publisher.next_timer(now),
            self.replicas.next_timer(),
            self.groups.next_timer(),
            self.health.next_timer(),
        ];
        let next = timers.into_iter().flatten().min().unwrap_or_default();
        Duration::from_nanos(next.0.saturating_sub(now.0)).min(WAIT_MAX)
    }

    /// Has each component take the steps that are due.
    fn advance(&mut self, mailboxes: &Mailboxes, peers: Option<&Peers>) -> Result<(), End> {
        let now = self.clock.now();
        if let Some(input) = self.contacts.advance(&self.membership, &self.standing, now) {
            self.step(input, None, mailboxes, peers)?;
        }
        self.look_at_health(now);
        if let Some(input) = self.replicas.advance(&self.membership, &self.board, now) {
            self.step(input, None, mailboxes, peers)?;
        }
        // A step that is reported counts for what copies are made for then.
        while self.replicas.are_covered()
            && let Some(report) = self.publisher.advance(&self.membership, now)
        {
            self.step(report, None, mailboxes, peers)?;
        }
        loop {
            // A proposal may be decided at once.
            let (as_of, speaks) = (self.as_of(), |node| peers.and_then(|peers| peers.version_of(node)));
            let mut inputs = self.requests.advance(&self.membership, as_of, &speaks, now);
            let registration = self.groups.advance(&self.membership, &self.board, mailboxes, now);
            inputs.extend(registration.map(|command| Input::Propose { token: UNHEARD, command }));
            if inputs.is_empty() {
                return Ok(self.write_raised_starts()?);
            }
            for input in inputs {
                self.step(input, None, mailboxes, peers)?;
            }
        }
    }

    /// The folder was found to be an older copy, and this is its start of that number.
    fn on_older_copy(&mut self, starts: u32) {
        self.groups.renew_births();
        self.raised_starts = Some(starts);
    }

    /// Writes the count of starts of an older copy once nothing rests on what the folder has lost. If this process ends
    /// before, the next one is told again.
    fn write_raised_starts(&mut self) -> Result<(), String> {
        let is_over = !self.membership.log().is_older_copy()
            && self.groups.are_births_renewed(self.state(), &self.board);
        match self.raised_starts.take_if(|_| is_over) {
            Some(starts) => self.set_starts(starts),
            None => Ok(()),
        }
    }

    fn look_at_health(&mut self, now: Monotonic) {
        if self.health.is_due(now) || self.groups.is_look_due(now) {
            self.groups.look(&self.membership, &self.board, now);
            let state = self.membership.state().unwrap_or(&self.standing.state);
            self.health.look(&self.membership, state, &self.board, now);
        }
        self.health.tell_stuck(&self.membership, &self.board, now);
    }

    /// Has the doors go by the security policy that is agreed on.
    fn follow_policy(&mut self) -> Result<(), FilesError> {
        self.requests.follow_policy(self.membership.state().unwrap_or(&self.standing.state))
    }

    /// Has the doors and the shards go by what is agreed on.
    fn publish(&mut self, mailboxes: &Mailboxes) -> Result<(), End> {
        self.follow_policy().map_err(|error| error.to_string())?;
        if let Some(state) = self.membership.state() {
            self.groups.publish(state, self.membership.log().identity(), mailboxes);
        }
        let state = self.membership.state().unwrap_or(&self.standing.state);
        if self.publisher.publish(state, mailboxes) { Ok(()) } else { Err(self.no_member()) }
    }

    /// Why a node ends that is no member any more.
    fn no_member(&self) -> End {
        End::no_member(self.publisher.has_gone())
    }

    /// Whether this process ends, since a member says that it runs on a copy.
    fn is_copy(&mut self, refusal: CopyRefusal, peers: Option<&Peers>) -> bool {
        let registered = self.state().members().get(&self.node()).map(|record| record.start);
        let own = Own {
            as_of: self.as_of(),
            is_registered: registered == Some(self.identity().start),
            serves: peers.is_some_and(Peers::may_serve),
        };
        self.copies.ends(refusal, own, self.clock.now())
    }

    /// Whether this node is no member any more, if somebody says so who knows so much: one that knows less may not have
    /// heard of its admission.
    fn is_removed(&self, as_of: AsOf) -> bool {
        let ours = self.as_of();
        as_of > ours || as_of == ours && self.membership.state().is_some()
    }

    /// Puts an input into the machine, and carries out what comes of it. An answer to a word goes to `from`.
    fn step(
        &mut self,
        input: Input,
        from: Option<NodeId>,
        mailboxes: &Mailboxes,
        peers: Option<&Peers>,
    ) -> Result<(), End> {
        let now: Monotonic = self.clock.now();
        let mut out = Vec::new();
        self.membership.step(input, now, &mut out);

        let mut mail = Vec::new();
        for output in out {
            match output {
                Output::Write(write) => self.storage.write(&write, self.is_log_needed())?,
                Output::Starts(starts) => self.on_older_copy(starts),
                Output::Send { to, message } => mail.push(word(to, message)),
                Output::Reply(message) => mail.extend(from.map(|to| word(to, message))),
                Output::Answer { token, outcome } => self.end_proposal(token, outcome, now)?,
                Output::Changed => {
                    self.health.look_soon();
                    if let (Some(peers), Some(roster)) = (peers, self.roster()) {
                        peers.follow(roster);
                    }
                    self.publish(mailboxes)?;
                }
                Output::Up(node) => {
                    self.health.look_soon();
                    tracing::info!(peer = %self.name(node), "reachable");
                }
                Output::Down(node) => {
                    self.health.look_soon();
                    tracing::info!(peer = %self.name(node), "not reachable");
                    mailboxes.put_all(|| Mail::Doubt(node));
                }
                Output::Note(text) => tracing::info!("membership: {text}"),
                Output::Alarm(text) => tracing::error!("membership: {text}"),
                Output::Stop(Stop::Removed) => return Err(self.no_member()),
                Output::Stop(stop) => return Err(stop.into()),
            }
        }
        if !mail.is_empty() {
            mailboxes.of(CARRIER).put(&mut mail);
        }
        Ok(())
    }

    /// Gives a proposal's end to the request that it was made for.
    fn end_proposal(&mut self, token: u64, outcome: Outcome, now: Monotonic) -> Result<(), End> {
        if self.requests.end(token, outcome, &self.membership, now) {
            self.follow_policy().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Sets the count of starts.
    fn set_starts(&mut self, starts: u32) -> Result<(), String> {
        self.storage.set_starts(starts, self.is_log_needed())
    }

    /// Whether something rests on the log of a node alone.
    fn is_log_needed(&self) -> bool {
        alone::is_needed(self.state())
    }

    fn name(&self, node: NodeId) -> String {
        let record = self.membership.state().and_then(|state| state.members().get(&node));
        record.map_or_else(|| node.to_string(), |record| record.member.name.to_string())
    }
}

fn word(to: NodeId, bytes: Bytes) -> Mail {
    Mail::Send { from: CARRIER, to, message: PeerMessage::Membership { bytes } }
}
