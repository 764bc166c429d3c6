//! This node's part in its cluster's agreement: the crate `membership`, on a thread of its own.
//!
//! 1. A node has a standing, which is the number of a member: it founds the cluster with others, each for itself
//!    (`docs/decisions/0027`), or is admitted by its members (`docs/decisions/0035`).
//! 2. The thread takes words of other nodes, questions of operators, and time; it writes before it sends.
//! 3. Its words travel on the links of the shards, as messages that only shells understand. Links follow the members that it
//!    knows of.
//! 4. Shards go by what is agreed on, and what they report goes into the log.
//!
//! Invariants: the thread never waits for a shard, and a shard never waits for it: what does not fit into its queue is lost,
//! as on a network. When it cannot write, the node ends, unless it is alone and nothing rests on its log.
//!
//! * `entry.rs`: the way of a node to its standing. `standing.rs`: the standing. `alone.rs`: the log of a node without
//!   one.
//! * `admission.rs`: newcomers at the door.
//! * `births.rs`: the births of this node's stores. `agreement.rs`: the agreement that shards get.
//!   `founding.rs`: the activation of a consistent bucket type. `loss.rs`: stores that are declared lost.
//!   `restored.rs`: the groups of a restored node. `caught_up.rs`: the groups' progress since the start.
//!   `strong.rs`: all of that for operators. `stopped.rs`: the membership of a node that does not run.
//! * `policy.rs`: commands about security. `mark.rs`: the mark of a folder that security is on.
//!   `ready.rs`: members of older programs.
//! * `publisher.rs`: what shards go by, and their reports. `board.rs`: where shards put these down. `limits.rs`: what copies may take.
//!   `n_vals.rs`: what they are made for.
//! * `reach.rs`: whether a majority is reached. `refusals.rs`: stores that take no writes, for the log.
//! * `watch.rs`: what does not go on, for the log. `files.rs`: what is on
//!   the disk; `without_users.rs`: these in a restore without users.
//! * `operator.rs`: operators' questions and their answers.

mod admission;
mod agreement;
mod alone;
mod births;
mod board;
mod caught_up;
mod copy;
mod entry;
mod files;
mod founding;
mod limits;
mod loss;
mod mark;
mod n_vals;
mod operator;
mod policy;
mod publisher;
mod reach;
mod ready;
mod refusals;
mod restored;
mod standing;
mod stopped;
mod strong;
#[cfg(test)]
mod tests;
mod watch;
mod without_users;

pub use admission::{ADMISSION_MAX, Admitted, Newcomer};
pub(crate) use caught_up::GroupProgress;
pub use copy::CopyRefusal;
pub use entry::{Entered, Entering};
pub use files::{FilesError, backed_up_files, has_groups};
pub use operator::Answered;
pub(crate) use policy::PolicyCommand;
pub(crate) use publisher::topology;
pub use reach::Reach;
#[cfg(test)]
pub use reach::Reached;
pub use standing::{AsOf, STANDING_BYTES_MAX, Standing};
pub use stopped::StoppedNode;
pub use without_users::without_users;

use crate::mailbox::{Mail, Mailboxes};
use crate::peer::{Peers, Roster};
use crate::security::{Policies, PolicyFollower};
use crate::verdict::NodeState;
use ::membership::ClusterId;
use ::membership::detector::Detector;
use ::membership::log::{Identity, Log};
use ::membership::state::State;
use ::membership::{Input, Membership, Output, Stop};
use ::security::Mode;
use admission::Admissions;
use agreement::AgreementPublisher;
use base::{Clock, Monotonic, Rng};
use births::{BirthSteps, Births};
use board::Board;
use bytes::Bytes;
use caught_up::GroupWatch;
use copy::{CopyWatch, Own};
use files::Files;
use founding::{Foundings, Wanted};
use loss::Loss;
use mark::SecurityMark;
use n_vals::Replicas;
use node::http::ClusterPage;
use node::{Adoption, Epoch, FoundBirth, PeerMessage, Shard, ShardId};
use operator::Operators;
use os::{OsClock, OsRng};
use policy::PolicyChanges;
use publisher::Publisher;
use reach::{MajorityLog, Said};
use refusals::{RefusalLog, WritesSaid};
use restored::Restored;
use ring::{Birth, NodeId, RingVersion};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;
use watch::Watch;

/// Events that wait for the thread: some seconds of a large cluster's probes. What comes beyond is lost, and asked again.
const EVENTS_MAX: usize = 1024;

/// Without an event the thread looks at least so often whether it is to end.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// How often a newcomer asks the next member for what all agree on, until it has it.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// How often it is counted who is reached while nothing is known to have changed.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Names proposals in their answers, which nobody waits for: the state tells.
const UNHEARD: u64 = u64::MAX;

/// The shard whose links carry the words: every node has it.
const CARRIER: ShardId = ShardId(0);

/// What comes to the thread.
enum Event {
    /// A word of another node.
    Word { from: NodeId, bytes: Bytes },
    /// An operator's question.
    Asked { page: ClusterPage, body: Bytes, answer: oneshot::Sender<Answered> },
    /// A node wants to become a member.
    Newcomer { newcomer: Newcomer, answer: oneshot::Sender<Admitted> },
    /// A member does not let this node in, which is none as of then.
    NotMember(AsOf),
    /// A member says that this process runs on a copy of a data folder.
    Copy(CopyRefusal),
    /// A member of another cluster takes this node for a member of its own.
    KnownElsewhere { by: String, cluster: ClusterId },
    /// A process of a member was let in for which there was no connection before: those before it have ended.
    Admitted { node: NodeId, life: u64 },
    /// An operator asks for the agreement on consistent groups.
    Groups { answer: oneshot::Sender<Answered> },
    /// An operator surveys the copies of groups at this node.
    Survey { answer: oneshot::Sender<Answered> },
    /// An operator has chosen groups that this restored node goes on with.
    Release { body: Bytes, answer: oneshot::Sender<Result<(u64, Adoption), Answered>> },
    /// The shards have adopted the groups of that survey.
    Adopted { survey: u64, adoption: Arc<Adoption>, answer: oneshot::Sender<Answered> },
    /// Groups of consistent bucket types are wanted, of so many voters.
    Found { n_val: u32, answer: oneshot::Sender<Answered> },
    /// An operator has a command about security.
    Policy { asked: Box<PolicyCommand>, answer: oneshot::Sender<Answered> },
    /// A shard has put something down.
    Reported,
    /// The node stops.
    Stop,
}

/// Why the thread ends by itself, and the node with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The node has left its cluster, as it was told to.
    Left,
    /// It cannot go on.
    Lost(String),
}

impl From<String> for End {
    fn from(why: String) -> End {
        End::Lost(why)
    }
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

impl Handle {
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

    /// Notes what can be seen of a shard, now and then.
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
        self.board.is_leaving.load(Ordering::Relaxed)
    }

    /// Answers an operator.
    pub async fn ask(&self, page: ClusterPage, body: Bytes) -> Answered {
        let (answer, answered) = oneshot::channel();
        if self.events.try_send(Event::Asked { page, body, answer }).is_err() {
            return Answered::wrong(503, "too many questions wait");
        }
        answered.await.unwrap_or_else(|_| Answered::wrong(503, "the node is stopping"))
    }

    /// Answers an operator: the foundings of groups and the registrations of stores.
    pub async fn agreed_on_groups(&self) -> Answered {
        let (answer, answered) = oneshot::channel();
        if self.events.try_send(Event::Groups { answer }).is_err() {
            return Answered::wrong(503, "too many questions wait");
        }
        answered.await.unwrap_or_else(|_| Answered::wrong(503, "the node is stopping"))
    }

    /// Answers an operator: this node's part in the agreement on groups, as a survey of their copies needs it.
    pub async fn survey(&self) -> Answered {
        let (answer, answered) = oneshot::channel();
        if self.events.try_send(Event::Survey { answer }).is_err() {
            return Answered::wrong(503, "too many questions wait");
        }
        answered.await.unwrap_or_else(|_| Answered::wrong(503, "the node is stopping"))
    }

    /// Checks the groups that an operator has chosen for this restored node. They come with the number of the survey.
    ///
    /// # Errors
    /// The answer for the operator.
    pub async fn begin_release(&self, body: Bytes) -> Result<(u64, Adoption), Answered> {
        let (answer, answered) = oneshot::channel();
        if self.events.try_send(Event::Release { body, answer }).is_err() {
            return Err(Answered::wrong(503, "too many questions wait"));
        }
        answered.await.unwrap_or_else(|_| Err(Answered::wrong(503, "the node is stopping")))
    }

    /// Ends the hold of a restored node whose shards have adopted these groups.
    pub async fn end_release(&self, survey: u64, adoption: Arc<Adoption>) -> Answered {
        let (answer, answered) = oneshot::channel();
        if self.events.try_send(Event::Adopted { survey, adoption, answer }).is_err() {
            return Answered::wrong(503, "too many questions wait");
        }
        answered.await.unwrap_or_else(|_| Answered::wrong(503, "the node is stopping"))
    }

    /// Has the groups of consistent bucket types with this number of replicas founded, unless they are. Answers 200, or
    /// why not; within [`FOUNDING_MAX`](founding::FOUNDING_MAX).
    pub async fn found(&self, n_val: u32) -> Answered {
        let (answer, answered) = oneshot::channel();
        if self.events.try_send(Event::Found { n_val, answer }).is_err() {
            return Answered::wrong(503, "too many questions wait");
        }
        answered.await.unwrap_or_else(|_| Answered::wrong(503, "the node is stopping"))
    }

    /// Answers an operator's command about security, and makes its change. The policy in force here has it then.
    pub(crate) async fn change_policy(&self, asked: PolicyCommand) -> Answered {
        let (answer, answered) = oneshot::channel();
        if self.events.try_send(Event::Policy { asked: Box::new(asked), answer }).is_err() {
            return Answered::wrong(503, "too many questions wait");
        }
        answered.await.unwrap_or_else(|_| Answered::wrong(503, "the node is stopping"))
    }

    /// Has the node itself make a change of the policy, which needs no hash. Does not wait for its answer, which is
    /// dropped if too much waits.
    pub(crate) fn propose_policy(&self, command: ::security::Command) -> oneshot::Receiver<Answered> {
        let (answer, answered) = oneshot::channel();
        let asked = Box::new(PolicyCommand { command, credential: None });
        self.events.try_send(Event::Policy { asked, answer }).ok();
        answered
    }

    /// Admits a newcomer, or says why not; within [`ADMISSION_MAX`].
    pub async fn admit(&self, newcomer: Newcomer) -> Admitted {
        let (answer, answered) = oneshot::channel();
        if self.events.try_send(Event::Newcomer { newcomer, answer }).is_err() {
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

    /// Ends the thread, when it has done what was asked before. One that has ended needs no word.
    pub fn stop(&self) {
        self.events.send(Event::Stop).ok();
    }
}

/// The node's part, with its files.
pub struct Part {
    membership: Membership,
    /// `None` for a node alone that cannot write them: its part begins anew with the next start.
    files: Option<Files>,
    /// Whether this node has nobody to agree with.
    is_alone: bool,
    /// Which node this is, as of when it became it.
    standing: Standing,
    operators: Operators,
    admissions: Admissions,
    publisher: Publisher,
    births: Births,
    restored: Restored,
    groups: GroupWatch,
    agreement: AgreementPublisher,
    policy: PolicyChanges,
    mark: SecurityMark,
    foundings: Foundings,
    replicas: Replicas,
    watch: Watch,
    majority: MajorityLog,
    refusals: RefusalLog,
    copies: CopyWatch,
    /// When it is counted again who is reached.
    count_at: Monotonic,
    /// Whom this newcomer has asked last for what all agree on, and when it asks the next.
    asked: (Option<NodeId>, Monotonic),
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
        let Entered { mut files, is_alone, standing, is_new, address } = entered;
        // The thread writes it before anybody hears of this start. One that fails before does not count: otherwise an
        // older copy of a folder would pass for the next start after enough failures.
        let starts = match &files {
            Some(files) if is_alone => files.next_start()?.max(standing.record().starts.saturating_add(1)),
            Some(files) => files.next_start()?,
            None => 1,
        };
        let (cluster, node) = (standing.cluster(), standing.node);
        let identity = Identity { cluster, node, starts, start: life, address };
        let clock = OsClock::new();
        let now = clock.now();
        let rng = || Box::new(OsRng::new()) as Box<dyn Rng>;
        let invalid = |what: String| FilesError::Invalid(data.to_path_buf(), what);
        let log = match files.as_ref().map_or(Ok(None), Files::read_log)? {
            Some(bytes) => {
                let (log, sound) =
                    Log::open(identity, &bytes, rng(), now).map_err(|cause| invalid(cause.to_string()))?;
                files.as_mut().expect("it was read from them").keep(sound)?;
                log
            }
            None if !is_new && files.is_some() => return Err(invalid("its log is lost".to_owned())),
            None if standing.founded() => Log::found(identity, standing.state.clone(), rng(), now),
            None => Log::join(identity, rng(), now),
        };
        let detector = Detector::new(cluster, node, starts, life, rng(), now);
        let membership = Membership::new(detector, log);
        let board = || Arc::clone(&handle.board);
        let (operators, admissions) = (Operators::new(board()), Admissions::default());
        let publisher = Publisher::new(node, membership.state().unwrap_or(&standing.state), board());
        let mark = SecurityMark::find(data);
        let (replicas, watch, asked) = (Replicas::default(), Watch::default(), (None, now));
        let mut part = Part {
            membership,
            files,
            is_alone,
            standing,
            operators,
            admissions,
            publisher,
            births: Births::new(Vec::new(), 0, rng()),
            restored: Restored::default(),
            groups: GroupWatch::default(),
            agreement: AgreementPublisher::default(),
            policy: PolicyChanges::new(PolicyFollower::new(
                Arc::clone(policies),
                mark.is_set(),
                mark.enabled_at(),
            )),
            mark,
            foundings: Foundings::new(rng()),
            replicas,
            watch,
            majority: MajorityLog::new(now),
            refusals: RefusalLog::default(),
            copies: CopyWatch::default(),
            count_at: now,
            asked,
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
        self.births = Births::new(found, ring_bits, Box::new(OsRng::new()));
    }

    /// The number of stores with births.
    #[cfg(test)]
    fn births_count(&self) -> usize {
        self.births.count()
    }

    /// Writes the log, and then the standing: with that the node is there.
    fn remember(&mut self, now: Monotonic) -> Result<(), FilesError> {
        let mut out = Vec::new();
        // Nobody hears yet what is said here, and it is said again.
        self.membership.step(Input::Tick, now, &mut out);
        let Some(files) = &mut self.files else { return Ok(()) };
        for output in &out {
            if let Output::Write(write) = output {
                files.write(write)?;
            }
        }
        files.write_standing(&self.standing)
    }

    /// What all agree on, as far as it has come here.
    pub fn state(&self) -> &State {
        self.membership.state().unwrap_or(&self.standing.state)
    }

    /// Who this is, and how it is reached.
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
        let starts = self.identity().starts;
        self.write(|files| files.set_starts(starts))?;
        self.step(Input::Tick, None, mailboxes, peers)?;
        loop {
            self.advance(mailboxes, peers)?;
            match inbox.0.recv_timeout(self.wait()) {
                Ok(Event::Word { from, bytes }) => {
                    self.step(Input::Message(bytes), Some(from), mailboxes, peers)?;
                }
                Ok(Event::Asked { page: ClusterPage::DeclareLost, body, answer }) => {
                    self.declare_lost(&body, answer);
                }
                Ok(Event::Asked { page, body, answer }) => {
                    if let Some(input) = self.operators.ask(page, &body, answer, &self.membership) {
                        self.step(input, None, mailboxes, peers)?;
                    }
                }
                Ok(Event::Newcomer { newcomer, answer }) => {
                    self.admissions.ask(newcomer, answer, self.clock.now());
                }
                // The caller may have gone.
                Ok(Event::Groups { answer }) => {
                    drop(answer.send(strong::show(&self.membership, &self.births)));
                }
                Ok(Event::Survey { answer }) => {
                    let rng = &mut OsRng::new();
                    drop(answer.send(self.restored.survey(&self.membership, &self.births, rng)));
                }
                Ok(Event::Release { body, answer }) => {
                    drop(answer.send(self.restored.begin(&body, &self.membership, &mut self.births)));
                }
                Ok(Event::Adopted { survey, adoption, answer }) => {
                    let (membership, births) = (&self.membership, &mut self.births);
                    drop(answer.send(self.restored.end(survey, &adoption, membership, births)));
                }
                Ok(Event::Found { answer, .. } | Event::Policy { answer, .. }) if self.files.is_none() => {
                    let why = "this node does not keep its metadata log: see its log for the reason";
                    // The caller may have gone.
                    answer.send(Answered::wrong(409, why)).ok();
                }
                Ok(Event::Found { n_val, answer }) => {
                    self.foundings.ask(Wanted::Groups(n_val), answer, self.clock.now());
                }
                Ok(Event::Policy { asked, answer }) => self.policy.ask(*asked, answer, self.clock.now()),
                Ok(Event::NotMember(as_of)) if self.is_removed(as_of) => {
                    return Err(self.removed());
                }
                Ok(Event::NotMember(_)) => {}
                Ok(Event::Copy(refusal)) if self.is_copy(refusal, peers) => {
                    return Err(Stop::Copy.to_string().into());
                }
                Ok(Event::Copy(_)) => {}
                Ok(Event::KnownElsewhere { by, cluster }) => self.check_founding(&by, cluster)?,
                Ok(Event::Admitted { node, life }) => {
                    self.step(Input::Admitted { node, start: life }, None, mailboxes, peers)?;
                }
                Ok(Event::Reported) => self.count_at = Monotonic::default(),
                Err(RecvTimeoutError::Timeout) => self.step(Input::Tick, None, mailboxes, peers)?,
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Takes an operator's word that stores are lost.
    fn declare_lost(&mut self, body: &Bytes, answer: oneshot::Sender<Answered>) {
        match Loss::of(body, &self.membership) {
            Ok(loss) => self.foundings.ask(Wanted::Loss(loss), answer, self.clock.now()),
            // The caller may have gone.
            Err(answered) => drop(answer.send(answered)),
        }
    }

    /// How long nothing is due.
    fn wait(&self) -> Duration {
        let now = self.clock.now();
        let asks = self.membership.state().is_none().then_some(self.asked.1);
        let timers = [
            Some(self.membership.next_timer()),
            asks,
            self.admissions.next_timer(),
            self.publisher.next_timer(now),
            self.replicas.next_timer(),
            self.births.next_timer(),
            self.foundings.next_timer(),
            self.policy.next_timer(),
            self.majority.next_timer(),
            self.groups.next_timer(),
        ];
        let next = timers.into_iter().flatten().min().unwrap_or_default();
        Duration::from_nanos(next.0.saturating_sub(now.0)).min(WAIT_MAX)
    }

    /// Sees to newcomers, to what this node lacks as one, and to what its shards have reported.
    fn advance(&mut self, mailboxes: &Mailboxes, peers: Option<&Peers>) -> Result<(), End> {
        let now = self.clock.now();
        if self.membership.state().is_none() && now >= self.asked.1 {
            let contact = entry::contact_after(&self.standing, self.asked.0);
            self.asked = (contact, now + ASK_EVERY);
            if let Some(contact) = contact {
                self.step(Input::Join { contact }, None, mailboxes, peers)?;
            }
        }
        self.count_reached(now);
        for said in self.watch.look(&self.membership, self.operators.board(), now) {
            tracing::warn!("{said}");
        }
        if let Some(input) = self.replicas.advance(&self.membership, self.operators.board(), now) {
            self.step(input, None, mailboxes, peers)?;
        }
        // A step that is reported counts for what copies are made for then.
        while self.replicas.are_covered()
            && let Some(report) = self.publisher.advance(&self.membership, now)
        {
            self.step(report, None, mailboxes, peers)?;
        }
        loop {
            // What is proposed may be decided at once.
            let mut inputs = self.admissions.advance(&self.membership, self.as_of(), now);
            let speaks = |node| peers.and_then(|peers| peers.version_of(node));
            inputs.extend(self.foundings.advance(&self.membership, &speaks, now));
            inputs.extend(self.policy.advance(&self.membership, &speaks, now));
            inputs.extend(self.see_to_births(mailboxes, now));
            if inputs.is_empty() {
                return Ok(());
            }
            for input in inputs {
                self.step(input, None, mailboxes, peers)?;
            }
        }
    }

    /// Gives stores their births, and says what is to be proposed for them.
    fn see_to_births(&mut self, mailboxes: &Mailboxes, now: Monotonic) -> Option<Input> {
        let state = self.membership.state()?;
        let own = self.membership.log().identity();
        if let Some(text) = self.restored.warning(self.births.are_held(state)) {
            tracing::warn!("{text}");
        }
        let BirthSteps { given, proposed } = self.births.advance(state, own, self.operators.board(), now);
        for (shard, birth) in given {
            mailboxes.of(shard).put(&mut vec![Mail::KeepBirth(birth)]);
        }
        proposed.map(|command| Input::Propose { token: UNHEARD, command })
    }

    /// Counts who is reached, and logs a majority that is lost or regained, and writes that are refused or taken again.
    fn count_reached(&mut self, now: Monotonic) {
        let timers = [self.majority.next_timer(), self.groups.next_timer()];
        if now < self.count_at && timers.into_iter().flatten().all(|at| now < at) {
            return;
        }
        self.count_at = now + COUNT_EVERY;
        let reach = Reach::look(&self.membership, self.state(), self.operators.board());
        match self.majority.look(&reach, now) {
            Some(Said::Lost(text)) => tracing::warn!("{text}"),
            Some(Said::Regained) => tracing::info!("a majority of the members and voters is reached again"),
            None => {}
        }
        match self.refusals.look(&self.operators.board().refused_writes(), now) {
            Some(WritesSaid::Refused(why)) => tracing::warn!("the store takes no writes: {why}"),
            Some(WritesSaid::Taken) => tracing::info!("the store takes writes again"),
            None => {}
        }
        if let Some(state) = self.membership.state() {
            let (own, board) = (self.membership.log().identity(), self.operators.board());
            board.set_groups(self.groups.look(state, own, &self.births, board.groups_behind(), now));
        }
        self.operators.board().set_reach(reach);
    }

    /// Has the doors go by the security policy that is agreed on, and marks the data folder. A caller of a change is
    /// answered afterwards.
    fn follow_policy(&mut self) -> Result<(), FilesError> {
        let follower = &mut self.policy.follower;
        let state = self.membership.state().unwrap_or(&self.standing.state);
        follower.follow(state);
        match (follower.logged_mode(), follower.enabled_at()) {
            (Some(Mode::Off | Mode::Permissive), _) => self.mark.clear(),
            (_, Some(enabled_at)) => self.mark.set(enabled_at),
            (_, None) => Ok(()),
        }
    }

    /// Has the shards go by what is agreed on.
    fn publish(&mut self, mailboxes: &Mailboxes) -> Result<(), End> {
        self.follow_policy().map_err(|error| error.to_string())?;
        if let Some(state) = self.membership.state() {
            self.agreement.publish(state, self.membership.log().identity(), mailboxes);
        }
        let state = self.membership.state().unwrap_or(&self.standing.state);
        if self.publisher.publish(state, mailboxes) { Ok(()) } else { Err(self.removed()) }
    }

    /// Why a node ends that is no member any more.
    fn removed(&self) -> End {
        if self.publisher.has_gone() { End::Left } else { End::Lost(Stop::Removed.to_string()) }
    }

    /// Ends a node that founded a cluster alone though it is a member of another: its folder was emptied. A cluster of
    /// several has the others to tell which one is right.
    fn check_founding(&self, by: &str, cluster: ClusterId) -> Result<(), End> {
        if self.state().members().len() > 1 {
            return Ok(());
        }
        let name = &self.standing.record().member.name;
        Err(End::Lost(format!(
            "{by} is of the cluster {cluster}, which has {name} as a member: this data folder has founded another \
             cluster, {}. If the folder of {name} was emptied, restore it. Else have {name} removed there by `annulet \
             admin cluster force-remove {name}` and a commit, empty this folder, and start with --join",
            self.standing.cluster()
        )))
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

    /// Whether this node is no member any more, if somebody says so who knows so much: one that knows less may not have heard of
    /// its admission.
    fn is_removed(&self, as_of: AsOf) -> bool {
        let ours = self.as_of();
        as_of > ours || as_of == ours && self.membership.state().is_some()
    }

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
                Output::Write(write) => self.write(|files| files.write(&write))?,
                Output::Starts(starts) => {
                    self.births.renew();
                    self.write(|files| files.set_starts(starts))?;
                }
                Output::Send { to, message } => mail.push(word(to, message)),
                Output::Reply(message) => mail.extend(from.map(|to| word(to, message))),
                Output::Answer { token, outcome } => {
                    if self.policy.answer(token, outcome, now) {
                        // The mark may count no longer.
                        self.follow_policy().map_err(|error| error.to_string())?;
                        continue;
                    }
                    let is_answered = self.foundings.answer(token, outcome, now)
                        || self.admissions.answer(token, outcome, now);
                    if !is_answered {
                        self.operators.answer(token, outcome, &self.membership);
                    }
                }
                Output::Changed => {
                    self.count_at = now;
                    if let (Some(peers), Some(roster)) = (peers, self.roster()) {
                        peers.follow(roster);
                    }
                    self.publish(mailboxes)?;
                }
                Output::Up(node) => {
                    self.count_at = now;
                    tracing::info!(peer = %self.name(node), "reachable");
                }
                Output::Down(node) => {
                    self.count_at = now;
                    tracing::info!(peer = %self.name(node), "not reachable");
                    mailboxes.put_all(|| Mail::Doubt(node));
                }
                Output::Note(text) => tracing::info!("membership: {text}"),
                Output::Stop(Stop::Removed) => return Err(self.removed()),
                Output::Stop(stop) => return Err(stop.to_string().into()),
            }
        }
        if !mail.is_empty() {
            mailboxes.of(CARRIER).put(&mut mail);
        }
        Ok(())
    }

    fn write(&mut self, write: impl FnOnce(&mut Files) -> Result<(), FilesError>) -> Result<(), String> {
        let Some(files) = &mut self.files else { return self.go_on_without("the metadata log is not kept") };
        match write(files) {
            Ok(()) => Ok(()),
            Err(error) => self.go_on_without(&error.to_string()),
        }
    }

    /// Goes on without files, as a node alone does while nothing rests on them.
    fn go_on_without(&mut self, why: &str) -> Result<(), String> {
        if !self.is_alone || alone::is_needed(self.state()) {
            return Err(why.to_owned());
        }
        if self.files.take().is_some() {
            tracing::warn!("this node does not keep its metadata log: {why}");
        }
        Ok(())
    }

    fn name(&self, node: NodeId) -> String {
        let record = self.membership.state().and_then(|state| state.members().get(&node));
        record.map_or_else(|| node.to_string(), |record| record.member.name.to_string())
    }
}

fn word(to: NodeId, bytes: Bytes) -> Mail {
    Mail::Send { from: CARRIER, to, message: PeerMessage::Membership { bytes } }
}
