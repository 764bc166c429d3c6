//! This node's part in what its cluster agrees on: the crate `membership`, on a thread of its own.
//!
//! 1. The members and the ring's size of the configuration found the cluster: every node founds the same state for itself
//!    (`docs/decisions/0027-the-metadata-log-on-a-library.md`).
//! 2. The thread takes words of other nodes, questions of operators, and time; it writes before it sends.
//! 3. Its words travel on the links of the shards, as messages that only shells understand.
//!
//! Invariants: the thread never waits for a shard, and a shard never waits for it: what does not fit into its queue is lost,
//! as on a network. When it cannot write, the node ends.
//!
//! Left out: handing the agreed ring to the shards. Members and owners of the data are those of the configuration, which are
//! also those of the state, since nothing can be committed here yet.
//!
//! * `files.rs`: what is on the disk. * `operator.rs`: operators' questions and their answers.

mod files;
mod operator;
#[cfg(test)]
mod tests;

pub use files::FilesError;
pub use operator::Answered;

use crate::mailbox::{Mail, Mailboxes};
use ::membership::detector::Detector;
use ::membership::log::{Identity, Log};
use ::membership::state::State;
use ::membership::{ClusterId, Input, Membership, Output};
use base::{Clock, Monotonic, Rng};
use bytes::Bytes;
use files::Files;
use node::http::ClusterPage;
use node::{Members, PeerMessage, ShardId};
use operator::Operators;
use os::{OsClock, OsRng};
use protocol::peer::cluster_fingerprint;
use ring::{NodeId, RingSize};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// Events that wait for the thread: some seconds of a large cluster's probes. What comes beyond is lost, and asked again.
const EVENTS_MAX: usize = 1024;

/// Without an event the thread looks at least so often whether it is to end.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The shard whose links carry the words: every node has it.
const CARRIER: ShardId = ShardId(0);

/// What comes to the thread.
enum Event {
    /// A word of another node.
    Word { from: NodeId, bytes: Bytes },
    /// An operator's question.
    Asked { page: ClusterPage, body: Bytes, answer: oneshot::Sender<Answered> },
    /// The node stops.
    Stop,
}

/// How the other threads reach the thread.
#[derive(Clone)]
pub struct Handle(SyncSender<Event>);

/// The thread's end of its queue.
pub struct Inbox(Receiver<Event>);

/// A queue to the thread, which may be filled before the thread is there.
pub fn queue() -> (Handle, Inbox) {
    let (sender, receiver) = sync_channel(EVENTS_MAX);
    (Handle(sender), Inbox(receiver))
}

impl Handle {
    /// Passes a word of another node on, unless too much waits.
    pub fn word(&self, from: NodeId, bytes: Bytes) {
        self.0.try_send(Event::Word { from, bytes }).ok();
    }

    /// Answers an operator.
    pub async fn ask(&self, page: ClusterPage, body: Bytes) -> Answered {
        let (answer, answered) = oneshot::channel();
        if self.0.try_send(Event::Asked { page, body, answer }).is_err() {
            return Answered::wrong(503, "too many questions wait");
        }
        answered.await.unwrap_or_else(|_| Answered::wrong(503, "the node is stopping"))
    }

    /// Ends the thread, when it has done what was asked before. One that has ended needs no word.
    pub fn stop(&self) {
        self.0.send(Event::Stop).ok();
    }
}

/// What a node is founded with.
pub struct Founding<'a> {
    /// The data folder.
    pub data: &'a Path,
    /// All nodes of the cluster, and which of them this is.
    pub members: &'a Members,
    /// Where each is reached by the others, in the order of their numbers; empty for a node alone.
    pub addresses: Vec<String>,
    /// The ring's size.
    pub ring_size: RingSize,
    /// This process.
    pub life: u64,
}

/// The node's part, with its files.
pub struct Part {
    membership: Membership,
    /// `None` for a node alone, which has nobody to agree with: its part begins anew with each start.
    files: Option<Files>,
    operators: Operators,
    clock: OsClock,
}

impl Part {
    /// Opens the files, or founds the cluster.
    ///
    /// # Errors
    /// [`FilesError`]; `Invalid` if the log is not this node's, or damaged.
    pub fn open(founding: &Founding<'_>) -> Result<Part, FilesError> {
        let members = founding.members;
        let names: Vec<&str> = members.all().map(|node| &**members.name(node)).collect();
        let address = |at: usize| founding.addresses.get(at).map_or("", |address| &**address);
        let cluster = ClusterId(cluster_fingerprint(founding.ring_size.partitions(), names.iter().copied()));
        let mut files = (members.count() > 1).then(|| Files::open(founding.data)).transpose()?;
        let starts = files.as_mut().map_or(Ok(1), Files::count_start)?;
        let here = members.here();
        let identity = Identity {
            cluster,
            node: here,
            starts,
            start: founding.life,
            address: address(usize::from(here.0)).to_owned(),
        };
        let clock = OsClock::new();
        let now = clock.now();
        let rng = || Box::new(OsRng::new()) as Box<dyn Rng>;
        let log = match files.as_ref().map_or(Ok(None), Files::read_log)? {
            Some(bytes) => {
                let (log, sound) = Log::open(identity, &bytes, rng(), now)
                    .map_err(|cause| FilesError::Invalid(founding.data.to_path_buf(), cause.to_string()))?;
                files.as_mut().expect("it was read from them").keep(sound)?;
                log
            }
            None => {
                let nodes = names.iter().enumerate().map(|(at, name)| (*name, address(at), ""));
                let state = State::found_by(cluster, founding.ring_size, nodes).map_err(|cause| {
                    FilesError::Invalid(
                        founding.data.to_path_buf(),
                        format!("cannot found a cluster: {cause}"),
                    )
                })?;
                Log::found(identity, state, rng(), now)
            }
        };
        let detector = Detector::new(cluster, here, starts, founding.life, rng(), now);
        let membership = Membership::new(detector, log);
        Ok(Part { membership, files, operators: Operators::default(), clock })
    }

    /// Runs until it is told to stop, or cannot go on; says why.
    pub fn run(mut self, inbox: &Inbox, mailboxes: &Arc<Mailboxes>) -> Result<(), String> {
        self.step(Input::Tick, None, mailboxes)?;
        loop {
            let now = self.clock.now();
            let wait = Duration::from_nanos(self.membership.next_timer().0.saturating_sub(now.0));
            match inbox.0.recv_timeout(wait.min(WAIT_MAX)) {
                Ok(Event::Word { from, bytes }) => self.step(Input::Message(bytes), Some(from), mailboxes)?,
                Ok(Event::Asked { page, body, answer }) => {
                    if let Some(input) = self.operators.ask(page, &body, answer, &self.membership) {
                        self.step(input, None, mailboxes)?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.step(Input::Tick, None, mailboxes)?,
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    fn step(&mut self, input: Input, from: Option<NodeId>, mailboxes: &Mailboxes) -> Result<(), String> {
        let now: Monotonic = self.clock.now();
        let mut out = Vec::new();
        self.membership.step(input, now, &mut out);
        let mut mail = Vec::new();
        for output in out {
            match output {
                Output::Write(write) => self.write(|files| files.write(&write))?,
                Output::Starts(starts) => self.write(|files| files.set_starts(starts))?,
                Output::Send { to, message } => mail.push(word(to, message)),
                Output::Reply(message) => mail.extend(from.map(|to| word(to, message))),
                Output::Answer { token, outcome } => self.operators.answer(token, outcome, &self.membership),
                Output::Changed => tracing::debug!("the cluster's state has changed"),
                Output::Up(node) => tracing::info!(peer = %self.name(node), "reachable"),
                Output::Down(node) => tracing::info!(peer = %self.name(node), "not reachable"),
                Output::Note(text) => tracing::info!("membership: {text}"),
                Output::Stop(stop) => return Err(stop.to_string()),
            }
        }
        if !mail.is_empty() {
            mailboxes.of(CARRIER).put(&mut mail);
        }
        Ok(())
    }

    fn write(&mut self, write: impl FnOnce(&mut Files) -> Result<(), FilesError>) -> Result<(), String> {
        self.files.as_mut().map_or(Ok(()), write).map_err(|error| error.to_string())
    }

    fn name(&self, node: NodeId) -> String {
        let record = self.membership.state().and_then(|state| state.members().get(&node));
        record.map_or_else(|| node.to_string(), |record| record.member.name.to_string())
    }
}

fn word(to: NodeId, bytes: Bytes) -> Mail {
    Mail::Send { from: CARRIER, to, message: PeerMessage::Membership { bytes } }
}
