//! The way of other threads to the membership's thread: a queue of events, and the board of the shards.
//!
//! 1. A caller puts an event into the queue. A question has a channel for its answer.
//! 2. Shards put their progress down on the [`Board`], and wake the thread by an event.
//!
//! Invariants: no shard waits for the thread. An event that does not fit is lost, as on a network; a caller of a
//! question is told so.
//!
//! Left out: the events' effects, which [`Part`](super::Part) has.

use super::admission::{Admitted, Newcomer};
use super::board::Board;
use super::consistent::GroupQuestion;
use super::copy::CopyRefusal;
use super::operator::Answered;
use super::policy::PolicyCommand;
use super::reach::Reach;
use super::requests::Request;
use super::standing::AsOf;
use crate::verdict::NodeState;
use ::membership::ClusterId;
use bytes::Bytes;
use node::http::ClusterPage;
use node::{Adoption, Epoch, Shard, ShardId};
use ring::{Birth, NodeId, RingVersion};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// Events that wait for the thread: some seconds of a large cluster's probes. Events beyond are lost, and asked
/// again.
const EVENTS_MAX: usize = 1024;

/// An event for the thread.
pub(super) enum Event {
    /// A word of another node.
    Word { from: NodeId, bytes: Bytes },
    /// A caller wants something of the log.
    Asked(Request),
    /// An operator asks about this node's consistent groups.
    Groups(GroupQuestion),
    /// A member does not let this node in, which is none as of then.
    NotMember(AsOf),
    /// A member says that this process runs on a copy of a data folder.
    Copy(CopyRefusal),
    /// A member of another cluster takes this node for a member of its own.
    KnownElsewhere { by: String, cluster: ClusterId },
    /// A process of a member was let in for which there was no connection before: those before it have ended.
    Admitted { node: NodeId, life: u64 },
    /// A shard has put something down.
    Reported,
    /// The node stops.
    Stop,
}

/// How the other threads reach the thread.
#[derive(Clone)]
pub struct Handle {
    events: SyncSender<Event>,
    board: Arc<Board>,
}

/// The thread's end of its queue.
pub struct Inbox(Receiver<Event>);

/// A queue to the thread, which may be filled before the thread is there, from so many shards.
pub fn queue(shards: u16) -> (Handle, Inbox) {
    let (events, receiver) = sync_channel(EVENTS_MAX);
    (Handle { events, board: Arc::new(Board::new(shards)) }, Inbox(receiver))
}

impl Inbox {
    /// The next event. Blocks, at most for `wait`.
    pub(super) fn next(&self, wait: Duration) -> Result<Event, RecvTimeoutError> {
        self.0.recv_timeout(wait)
    }
}

impl Handle {
    /// Where shards put their progress down.
    pub(super) fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Passes a word of another node on, unless too much waits.
    pub fn word(&self, from: NodeId, bytes: Bytes) {
        self.events.try_send(Event::Word { from, bytes }).ok();
    }

    /// A shard goes by an epoch, and knows of these numbers of replicas.
    pub fn adopted(&self, shard: ShardId, epoch: Epoch, n_vals: BTreeSet<u32>) {
        self.board.adopted(shard, epoch, n_vals);
        self.reported();
    }

    /// A shard has all for a target.
    pub fn copied(&self, shard: ShardId, target: RingVersion) {
        self.board.copied(shard, target);
        self.reported();
    }

    /// The birth of a shard's store is durable.
    pub fn birth_kept(&self, shard: ShardId, birth: Birth) {
        self.board.birth_kept(shard, birth);
        self.reported();
    }

    /// The store of a shard with this birth lacks entries that it has acknowledged.
    pub fn forgot(&self, shard: ShardId, birth: Option<Birth>) {
        self.board.forgot(shard, birth);
        self.reported();
    }

    /// A thread that has so much to do that there is no place in its queue looks by itself.
    fn reported(&self) {
        self.events.try_send(Event::Reported).ok();
    }

    /// Notes the largest number of replicas of any bucket or type, for a question about the ring that follows.
    pub fn note_n_val_max(&self, n_val: u32) {
        self.board.note_n_val_max(n_val);
    }

    /// Notes the visible state of a shard, now and then.
    pub fn look(&self, id: ShardId, shard: &Shard) {
        if self.board.look(id, shard) {
            self.reported();
        }
    }

    /// Whom this node reaches; `None` until that was looked at for the first time.
    pub fn reach(&self) -> Option<Reach> {
        self.board.reach()
    }

    /// The facts about the node's health that are known here.
    pub(crate) fn state(&self) -> NodeState {
        NodeState {
            is_leaving: self.is_leaving(),
            reach: self.reach(),
            groups: self.board.groups(),
            refused_writes: self.board.refused_writes(),
            ..NodeState::default()
        }
    }

    /// Whether this node is about to leave its cluster.
    pub fn is_leaving(&self) -> bool {
        self.board.is_leaving()
    }

    /// Answers an operator.
    pub async fn ask(&self, page: ClusterPage, body: Bytes) -> Answered {
        self.answer(|answer| Event::Asked(Request::Page { page, body, answer })).await
    }

    /// Answers an operator: the foundings of groups and the registrations of stores.
    pub async fn agreed_on_groups(&self) -> Answered {
        self.answer(|answer| Event::Groups(GroupQuestion::Show { answer })).await
    }

    /// Answers an operator: this node's part in the agreement on groups, as a survey of their copies needs it.
    pub async fn survey(&self) -> Answered {
        self.answer(|answer| Event::Groups(GroupQuestion::Survey { answer })).await
    }

    /// Checks the groups that an operator has chosen for this restored node. They come with the number of the survey.
    ///
    /// # Errors
    /// The answer for the operator.
    pub async fn begin_release(&self, body: Bytes) -> Result<(u64, Adoption), Answered> {
        let (answer, answered) = oneshot::channel();
        if self.events.try_send(Event::Groups(GroupQuestion::Release { body, answer })).is_err() {
            return Err(too_many());
        }
        answered.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Ends the hold of a restored node whose shards have adopted these groups.
    pub async fn end_release(&self, survey: u64, adoption: Arc<Adoption>) -> Answered {
        self.answer(|answer| Event::Groups(GroupQuestion::Adopted { survey, adoption, answer })).await
    }

    /// Has the groups of consistent bucket types with this number of replicas founded, unless they are. Answers 200, or
    /// why not; within [`FOUNDING_MAX`](super::founding::FOUNDING_MAX).
    pub async fn found(&self, n_val: u32) -> Answered {
        self.answer(|answer| Event::Asked(Request::Found { n_val, answer })).await
    }

    /// Answers an operator's command about security, and makes its change. The policy in force here has it then.
    pub(crate) async fn change_policy(&self, asked: PolicyCommand) -> Answered {
        self.answer(|answer| Event::Asked(Request::Policy { asked: Box::new(asked), answer })).await
    }

    /// Has the node itself make a change of the policy, which needs no hash. Does not wait for its answer, which is
    /// dropped if too much waits.
    pub(crate) fn propose_policy(&self, command: ::security::Command) -> oneshot::Receiver<Answered> {
        let (answer, answered) = oneshot::channel();
        let asked = Box::new(PolicyCommand { command, credential: None });
        self.events.try_send(Event::Asked(Request::Policy { asked, answer })).ok();
        answered
    }

    /// Admits a newcomer, or says why not; within [`ADMISSION_MAX`](super::ADMISSION_MAX).
    pub async fn admit(&self, newcomer: Newcomer) -> Admitted {
        let (answer, answered) = oneshot::channel();
        if self.events.try_send(Event::Asked(Request::Newcomer { newcomer, answer })).is_err() {
            return Err("too much waits at this node: try again".to_owned());
        }
        answered.await.unwrap_or_else(|_| Err("the node is stopping".to_owned()))
    }

    /// Takes note that a member did not let this node in.
    pub fn not_member(&self, as_of: AsOf) {
        self.events.try_send(Event::NotMember(as_of)).ok();
    }

    /// Takes note that a member refuses this process as a copy.
    pub fn refused_as_copy(&self, refusal: CopyRefusal) {
        self.events.try_send(Event::Copy(refusal)).ok();
    }

    /// Takes note that a member of another cluster takes this node for a member of its own.
    pub fn known_elsewhere(&self, by: String, cluster: ClusterId) {
        self.events.try_send(Event::KnownElsewhere { by, cluster }).ok();
    }

    /// Takes note of the process that speaks for a member from now on.
    pub fn admitted(&self, node: NodeId, life: u64) {
        self.events.try_send(Event::Admitted { node, life }).ok();
    }

    /// Ends the thread, when it has done all that was asked before. One that has ended needs no word.
    pub fn stop(&self) {
        self.events.send(Event::Stop).ok();
    }

    /// Puts a question to the thread, and waits for its answer.
    async fn answer(&self, question: impl FnOnce(oneshot::Sender<Answered>) -> Event) -> Answered {
        let (answer, answered) = oneshot::channel();
        if self.events.try_send(question(answer)).is_err() {
            return too_many();
        }
        answered.await.unwrap_or_else(|_| stopping())
    }
}

fn too_many() -> Answered {
    Answered::wrong(503, "too many questions wait")
}

fn stopping() -> Answered {
    Answered::wrong(503, "the node is stopping")
}
