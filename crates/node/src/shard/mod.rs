//! One shard: a router of inputs and effects to the components that own the state.
//!
//! 1. [`Shard::request`], [`Shard::hop`] and [`Shard::peer`] (`peer_messages.rs`) take inputs of clients, other shards
//!    and other nodes. Work that needs neither disk nor other nodes is done at once; other work is parked. Members,
//!    owners and agreements come from the control plane (`control_plane.rs`).
//! 2. [`Shard::turn`] answers requests past their deadline and ends the turn: it hands writes to the disk, takes the
//!    results of disk and jobs, and resumes parked work. It comes at [`Shard::next_deadline`] at the latest.
//! 3. [`Shard::tick`], a few times a second, pings other nodes, and has each component do its periodic work.
//! 4. A component's wish to another one is an `Effect`. Effects are given to their receivers, first in, first out,
//!    until none is left; then the next input comes.
//!
//! Invariants
//! * Each request is answered exactly once; a listing is answered in parts, the last one marked.
//! * An answer rests on versions that may be acknowledged: at durability `sync`, on none that a crash could lose.
//! * Of two writes of one key the second begins after the first is applied.
//! * Other nodes, whether they answer or not, cost this shard bounded memory and its clients their deadline at most.

pub(crate) mod awaiting;
pub(crate) mod control;
mod control_plane;
pub(crate) mod counters;
pub(crate) mod deadlines;
pub(crate) mod effect;
pub(crate) mod env;
pub(crate) mod gauges;
pub(crate) mod knobs;
pub(crate) mod output;
pub(crate) mod owners;
mod peer_messages;
pub(crate) mod reply_to;
pub(crate) mod status;
pub(crate) mod store_error;

pub use crate::anti_entropy::status::TreesStatus;
pub use crate::frontdoor::admission::{PASS_MAX, STAY_MAX, WAIT_MAX};
pub use crate::frontdoor::latency::{Histogram, LatencyRead, TimesRead};
pub use crate::frontdoor::pacing::HELD_MAX;
pub use crate::frontdoor::slow::{
    LINES_KEPT, LINES_PER_SECOND, ReplicaWait, STAGES, SlowKeys, SlowLine, SlowLog, SlowOp, SlowRequests,
    SlowStage,
};
pub use crate::handoff::losses::CopyLoss;
pub use crate::handoff::receiver::TransferStatus;
pub use crate::hop::RequestId;
pub use crate::liveness::peers::SILENCE_MAX;
pub use crate::request::execute::LOOKUPS_BUSY;
pub use control::ShardControl;
pub use counters::ShardCounters;
pub use knobs::{OVERLOAD_WORK_MIN, Reaping, Rebuilding, ShardConfig, TIMEOUT_DEFAULT, Turns, WORK_MAX};
pub use output::Output;
pub use status::{ShardStats, ShardStatus};

use crate::anti_entropy::AntiEntropy;
use crate::consistent::ConsistentGroups;
use crate::consistent::birth::BirthKeeper;
use crate::coverage::Coverage;
use crate::frontdoor::Frontdoor;
use crate::frontdoor::admission::AdmittedRequest;
use crate::handoff::Handoff;
use crate::hop::{Hop, RequestTimes};
use crate::liveness::{self, promises};
use crate::metadata::Metadata;
use crate::peer::NodeId;
use crate::reap::TombstoneReaper;
use crate::request::actors::Actors;
use crate::request::at_once::answer_at_once;
use crate::request::execute::Requests;
use crate::request::place::{self, Place};
use crate::request::task::Coordinator;
use crate::store::Store;
use awaiting::Waiter;
use base::Monotonic;
use deadlines::Deadlines;
use effect::Effect;
use engine::fold::{ScanId, ScanPage};
use engine::store::Event as StoreEvent;
use env::Env;
use kv::{BucketTable, Error, Request};
use owners::ScanOwner;
use reply_to::ReplyTo;
use store_error::store_error;

/// A shard.
pub struct Shard {
    env: Env,
    handoff: Handoff,
    requests: Requests,
    coverage: Coverage,
    metadata: Metadata,
    reap: TombstoneReaper,
    anti_entropy: AntiEntropy,
    frontdoor: Frontdoor,
    birth: BirthKeeper,
    pub(crate) consistent: ConsistentGroups,
    events: Vec<StoreEvent>,
}

impl Shard {
    /// A shard over its open store. `table` has the properties that shard 0 keeps ([`crate::read_props`]).
    pub fn new(config: ShardConfig, store: impl Into<Store>, table: BucketTable) -> Shard {
        let reaping = config.reaping;
        let mut env = Env::new(config, store.into(), table);
        let actors = Actors::of(&mut env);
        let consistent = ConsistentGroups::of(&mut env);
        let now = env.now();
        let mut shard = Shard {
            env,
            handoff: Handoff::default(),
            frontdoor: Frontdoor::default(),
            reap: TombstoneReaper::starting(now),
            anti_entropy: AntiEntropy::default(),
            requests: Requests::new(actors, reaping.grave),
            coverage: Coverage::default(),
            metadata: Metadata::default(),
            birth: BirthKeeper::default(),
            consistent,
            events: Vec::new(),
        };
        shard.anti_entropy.begin(&mut shard.env);
        shard
    }

    /// When the next turn has something to do for a deadline or a delay; `None` if nothing waits for one. A turn may
    /// come later, which delays answers of requests that have timed out.
    #[inline]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.env.deadlines.earliest()
    }

    /// Expires requests past their deadline, if there may be any.
    #[inline]
    fn expire_if_due(&mut self, now: Monotonic) {
        if self.env.deadlines.are_due(now) {
            self.expire(now);
        }
    }

    /// Answers every request past its deadline, and begins work that was delayed until now.
    fn expire(&mut self, now: Monotonic) {
        self.env.deadlines = Deadlines::default();
        self.requests.expire(&mut self.env, now);
        self.coverage.expire(&mut self.env, now);
        self.metadata.expire(&mut self.env, now);
        self.frontdoor.forwards.expire(&mut self.env, now);
        self.consistent.expire(&mut self.env, now);
        self.reap.begin_due(&mut self.env, now);
        // A request that is past its deadline and still there waits for the disk: a note of it would wake the shard in
        // vain.
        let parked = self.requests.tasks().deadlines().chain(self.coverage.deadlines());
        let parked = parked.chain(self.metadata.deadlines()).chain(self.frontdoor.forwards.deadlines());
        let parked = parked.chain(self.consistent.next_deadline()).chain(self.requests.next_look());
        let parked = parked.chain(self.frontdoor.forwards.next_look()).chain(self.coverage.next_look());
        let earliest = parked.chain(self.reap.next_due()).filter(|deadline| *deadline > now).min();
        if let Some(earliest) = earliest {
            self.env.deadlines.note(earliest);
        }
    }

    /// Takes a client's request. `id` must not be that of another request under way.
    pub fn request(&mut self, id: RequestId, request: Request) {
        if let Some(request) = self.frontdoor.admission.offer(&mut self.env, id, request) {
            self.begin(request);
        }
        self.drain();
    }

    fn begin(&mut self, request: AdmittedRequest) {
        let AdmittedRequest { id, request, times } = request;
        self.accept(ReplyTo::Client(id), request, times);
    }

    /// Begins writes and requests that have waited for their turn.
    fn admit(&mut self) {
        self.frontdoor.pacer.begin_turn(&self.env);
        while let Some(write) = self.frontdoor.pacer.next_ready(&mut self.env) {
            self.requests.begin(&mut self.env, write);
        }
        let began = self.env.now();
        while let Some(request) = self.frontdoor.admission.next(&mut self.env, began) {
            self.begin(request);
        }
        self.frontdoor.admission.refuse_late(&mut self.env);
        self.frontdoor.admission.end_turn(&self.env);
    }

    /// Whether requests wait to be begun, or keys of transfers for their turn: a turn should come within some
    /// milliseconds, to refuse those that it comes too late for.
    pub fn has_waiting(&self) -> bool {
        self.env.gauges.queued() > 0 || self.handoff.outbound.are_waiting()
    }

    /// Whether the next turn can begin some of those that wait.
    pub fn can_begin(&self) -> bool {
        self.frontdoor.admission.can_begin(&self.env)
    }

    /// Forgets a client's request whose client is gone. A write that has begun goes on.
    pub fn forget(&mut self, id: RequestId) {
        self.frontdoor.forget(&mut self.env, id);
        self.coverage.forget(&mut self.env, id);
    }

    /// Tells other nodes that this one is about to stop. It goes on serving until it is closed.
    pub fn begin_stop(&mut self) {
        self.frontdoor.stop.begin(&mut self.env);
        self.consistent.begin_leave(&mut self.env);
        let metadata = &self.metadata;
        liveness::ping_all(&mut self.env, &|env| metadata.known(env));
    }

    /// Whether nobody waits for a shard that was told to stop, or will ask it anything.
    pub fn is_drained(&self) -> bool {
        let has_clients = self.requests.tasks().have_clients()
            || self.consistent.len() > 0
            || self.consistent.status(&self.env).has_to_hand_over();
        self.frontdoor.stop.is_drained(&self.env, has_clients)
    }

    /// Takes a message of another shard.
    pub fn hop(&mut self, message: Hop) {
        match message {
            Hop::Request { from, id, request, times } => {
                self.accept(ReplyTo::Shard(from, id), *request, times)
            }
            Hop::Answer { id, result } => self.env.reply(ReplyTo::Client(id), *result),
            Hop::AskPage { from, question, ask } => {
                self.coverage.on_shard_asks(&mut self.env, from, question, &ask)
            }
            Hop::Page { question, page } => self.coverage.on_page(&mut self.env, question, page),
            Hop::Props { from, change, props } => self.metadata.on_props(&mut self.env, from, change, props),
            Hop::ForgetResets { resets } => self.metadata.on_forget_resets(&mut self.env, &resets),
            Hop::PropsInForce { change } => self.metadata.on_in_force(&mut self.env, change),
        }
        self.drain();
    }

    /// Ends a turn. To be called when new input is in, and whenever the disk or a job has woken the shard.
    pub fn turn(&mut self) {
        let now = self.env.now();
        self.expire_if_due(now);
        self.drain();
        let mut events = std::mem::take(&mut self.events);
        self.env.store.turn(now, &mut events);
        for event in events.drain(..) {
            match event {
                StoreEvent::Lookup(id, answer) => {
                    if let Some(answer) = self.consistent.on_lookup(&mut self.env, id, answer) {
                        self.requests.on_lookup(&mut self.env, id, answer);
                    }
                }
                StoreEvent::Scan(id, page) => self.on_scan(id, page),
                StoreEvent::Fold(id, end) => self.anti_entropy.on_fold(&mut self.env, id, end),
                StoreEvent::Closed(result) => self.env.out.push(Output::Closed(result)),
            }
            self.drain();
        }
        self.events = events;
        self.take_acknowledged();
        self.birth.take_turn(&mut self.env);
        self.consistent.take_turn(&mut self.env, now);
        self.requests.refuse_unsent(&mut self.env);
        self.admit();
        self.drain();
        self.handoff.outbound.take_turn_sending(&mut self.env);
        self.anti_entropy.make_trees(&mut self.env, now);
        self.reap.take_turn(&mut self.env, now);
        self.anti_entropy.take_turn(&mut self.env, now);
        self.drain();
        self.anti_entropy.keep_trees(&mut self.env);
        // Resumed work may have written: those writes need not wait for another wake-up.
        if self.env.store.wants_turn() {
            self.env.store.turn(now, &mut self.events);
        }
        self.env.forget_recent();
        if cfg!(debug_assertions) {
            self.invariants();
        }
    }

    /// Gives a page of a scan to its owner.
    fn on_scan(&mut self, id: ScanId, page: Result<ScanPage, engine::Error>) {
        let env = &mut self.env;
        let Some(owner) = env.scan_owners.take(id) else { unreachable!("{id:?} was begun by a component") };
        match owner {
            ScanOwner::KeyPage | ScanOwner::IndexPage => self.coverage.on_scan(env, owner, id, page),
            ScanOwner::Sweep => self.reap.on_scan(env, id, page),
            ScanOwner::OutboundTransfer => self.handoff.outbound.on_scan(env, id, page),
            ScanOwner::InboundCheckpoints => self.handoff.inbound.on_checkpoints(env, id, page),
            ScanOwner::HintRound => self.handoff.hints.on_scan(env, id, page),
            ScanOwner::ConsistentGroups => self.consistent.on_scan(env, id, page),
            ScanOwner::OrphanedRanges => {
                let oldest = self.requests.tasks().oldest_name();
                self.handoff.orphans.on_scan(env, id, page, oldest);
            }
        }
    }

    /// Asks other nodes again, and lets the store do what is due. To be called a few times a second,
    /// with a turn after it; less often while [`Shard::is_quiet`].
    pub fn tick(&mut self) {
        let now = self.env.now();
        self.env.version_clock.tick(self.env.clock.wall(), now);
        self.env.store.tick();
        self.birth.tick(&mut self.env);
        if self.env.store.is_maintaining() {
            self.env.peers.note_used();
        }
        self.expire(now);
        self.coverage.tick(&mut self.env, now);
        self.metadata.tick(&mut self.env, now);
        let has_tasks = self.requests.tasks().have_clients() || self.consistent.len() > 0;
        self.frontdoor.stop.tick(&self.env, has_tasks, now);
        let metadata = &self.metadata;
        liveness::tick(&mut self.env, &|env| metadata.known(env), now);
        promises::tick(&self.env);
        self.anti_entropy.tick_heals(&mut self.env);
        self.handoff.hints.tick(&mut self.env, now);
        self.requests.tick(&mut self.env, now);
        self.reap.tick(&mut self.env, now);
        let oldest_task = self.requests.tasks().oldest();
        self.handoff.tick(&mut self.env, oldest_task, now);
        self.anti_entropy.tick(&mut self.env, now);
        self.drain();
    }

    /// Lets a listing go on whose last part has been sent.
    pub fn proceed(&mut self, id: RequestId) {
        self.coverage.proceed(&mut self.env, id);
        self.drain();
    }

    /// Moves messages and replies to the end of `outputs`.
    #[inline]
    pub fn take_outputs(&mut self, outputs: &mut Vec<Output>) {
        outputs.append(&mut self.env.out);
    }

    /// Ends the clean stop: nothing may be requested any more; turns go on until [`Output::Closed`].
    pub fn begin_close(&mut self) {
        self.env.store.begin_close();
    }

    /// Whether a turn has something to do at once: writes wait for it to end, something was read, or requests wait to
    /// be begun.
    #[inline]
    pub fn wants_turn(&self) -> bool {
        self.env.store.wants_turn() || self.has_more()
    }

    /// Whether a turn has left something for the next one, for which nobody will wake the shard: something that was
    /// read, or requests that can be begun. It should come as soon as the input that has arrived meanwhile is in.
    #[inline]
    pub fn has_more(&self) -> bool {
        !self.events.is_empty()
            || self.frontdoor.admission.can_begin(&self.env)
            || self.reap.has_more()
            || self.requests.has_unsent()
    }

    /// Whether requests are under way.
    pub fn is_idle(&self) -> bool {
        self.env.gauges.requests() == 0
    }

    /// Its counters and gauges.
    pub fn stats(&self) -> ShardStats {
        self.status().stats()
    }

    /// The commands of operators and the control plane.
    pub fn control(&mut self) -> ShardControl<'_> {
        ShardControl::new(self)
    }

    /// Its state, for operators and the control plane.
    pub fn status(&self) -> ShardStatus<'_> {
        ShardStatus::new(self)
    }

    /// Takes a request that was admitted, or that another shard or node has passed on.
    fn accept(&mut self, reply_to: ReplyTo, request: Request, times: RequestTimes) {
        self.env.peers.note_used();
        if self.env.gauges.requests() >= WORK_MAX
            || self.env.gauges.bytes() >= self.env.knobs.limits.work_bytes_max
        {
            self.env.counters.refused += 1;
            return self.env.reply(reply_to, Err(Error::Overload));
        }
        match request {
            Request::Get(get) => self.start_object(reply_to, Coordinator::get(get), times, None),
            Request::Put(mut put) => {
                put.invent_key(&mut *self.env.rng);
                self.start_object(reply_to, Coordinator::put(put), times, None);
            }
            Request::Delete(delete) => self.start_object(reply_to, Coordinator::delete(delete), times, None),
            Request::ListKeys(_)
            | Request::ListBuckets(_)
            | Request::Fold(_)
            | Request::Index(_)
            | Request::Query(_) => self.coverage.begin(&mut self.env, reply_to, request, times),
            Request::SetProps(bucket, changes) => {
                self.metadata.set_props(&mut self.env, reply_to, bucket, Some(changes), times)
            }
            Request::ResetProps(bucket) => {
                self.metadata.set_props(&mut self.env, reply_to, bucket, None, times)
            }
            Request::ChangeType(name, change) => {
                self.metadata.change_type(&mut self.env, reply_to, name, change, times)
            }
            other => {
                let answer = answer_at_once(&self.env, other);
                self.env.reply(reply_to, answer);
            }
        }
    }

    /// Begins a client's request, here or wherever it belongs; not at the node that it `avoids`.
    fn start_object(
        &mut self,
        reply_to: ReplyTo,
        coordinator: Coordinator,
        times: RequestTimes,
        avoids: Option<NodeId>,
    ) {
        match place::find(&self.env, reply_to, coordinator, times, avoids) {
            Place::Here(ready) => {
                if let Some(ready) = self.frontdoor.pacer.hold(ready, &mut self.env) {
                    self.requests.begin(&mut self.env, ready);
                }
            }
            Place::Leader(ready) => self.consistent.begin(&mut self.env, ready),
            Place::Shard(shard, coordinator) => {
                self.env.forward_to_shard(shard, reply_to, coordinator.into_request(), times);
            }
            Place::Node(node, coordinator) => {
                let request = coordinator.into_request();
                self.frontdoor.forwards.forward(&mut self.env, node, reply_to, request, times, avoids);
            }
            Place::Refused(error) => self.env.reply(reply_to, Err(error)),
        }
    }

    /// Tells the owners of writes that may now be acknowledged; all of it, once the store cannot tell when more
    /// will be.
    fn take_acknowledged(&mut self) {
        if self.env.awaiting.is_empty() {
            return;
        }
        let acknowledged = self.env.store.acknowledged();
        let held_up = self.env.store.held_up();
        while let Some(seq) = self.env.awaiting.first() {
            let result = match &held_up {
                _ if seq <= acknowledged => Ok(()),
                Some(error) => Err(store_error(error.clone())),
                None => return,
            };
            let Some((_, waiter)) = self.env.awaiting.pop_first() else { return };
            match waiter {
                Waiter::Task(id) => self.requests.on_acknowledged(&mut self.env, id, seq, result),
                Waiter::Transfer(node) => self.handoff.inbound.on_checkpoint(&self.env, node, seq, result),
                Waiter::Props(id) => self.metadata.on_written(&mut self.env, id, result),
            }
        }
    }

    /// Checks relations that hold after each input, of each component. A build with debug assertions does so after each
    /// turn; the simulator does so too.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn invariants(&self) {
        assert!(self.env.effects.is_empty(), "effects are drained before the next input");
        self.env.invariants();
        self.env.peers.invariants();
        self.frontdoor.invariants(&self.env);
        self.requests.invariants(&self.env);
        self.coverage.invariants(&self.env);
        self.metadata.invariants(&self.env);
        self.birth.invariants(&self.env);
        self.consistent.invariants(&self.env);
        self.handoff.invariants(&self.env);
        self.anti_entropy.invariants(&self.env);
        self.reap.invariants(&self.env);
    }

    /// Gives effects to their receivers until none is left.
    #[inline]
    fn drain(&mut self) {
        while let Some(effect) = self.env.effects.pop_front() {
            self.route(effect);
        }
    }

    fn route(&mut self, effect: Effect) {
        match effect {
            Effect::Start(task) => self.requests.start(&mut self.env, *task),
            Effect::CancelTransfer(transfer) => self.requests.cancel_transfer(&mut self.env, transfer),
            Effect::HintDelivered(node) => self.handoff.hints.on_delivered(&mut self.env, node),
            Effect::KeyTransferred { transfer, key, result } => {
                self.handoff.outbound.on_carried(&mut self.env, transfer, &key, result)
            }
            Effect::Reaped { key, is_agreed } => self.reap.on_reaped(&mut self.env, &key, is_agreed),
            Effect::ContextFolded { key, is_agreed } => self.reap.on_folded(&mut self.env, &key, is_agreed),
            Effect::KeyRead => self.anti_entropy.on_key_read(),
            Effect::KeyRepaired => self.anti_entropy.on_key_repaired(),
            Effect::TombstoneRead => self.reap.on_swept(),
            Effect::HintsKept { prefix, nodes } => self.handoff.on_hints_kept(&mut self.env, prefix, &nodes),
            Effect::BringHints(node) => self.handoff.hints.bring(&mut self.env, node),
            Effect::ProposeReap { key, tombstone } => self.reap.propose(&mut self.env, &key, tombstone),
            Effect::ProposeContextFold { key } => self.reap.propose_fold(&mut self.env, &key),
            Effect::HeadChanged(change) => self.anti_entropy.on_head_changed(&mut self.env, &change),
            Effect::PeerUp { node, compares_props } => {
                self.handoff.hints.bring(&mut self.env, node);
                self.metadata.on_up(&mut self.env, node, compares_props);
                self.consistent.on_peer(&mut self.env, node);
            }
            Effect::PeerDown(node) => {
                self.metadata.on_down(node);
                self.consistent.on_peer(&mut self.env, node);
            }
            Effect::QuestionsLost(node) => {
                self.requests.fail(&mut self.env, node);
                self.frontdoor.forwards.fail(&mut self.env, node);
                self.metadata.fail(&mut self.env, node);
                self.coverage.fail(&mut self.env, node);
                self.anti_entropy.fail(&mut self.env, node);
                self.consistent.on_questions_lost(&mut self.env, node);
            }
            Effect::PropsKnown { node, sums } => self.metadata.on_known(&mut self.env, node, sums),
            Effect::RangesDropped => self.requests.on_ranges_dropped(),
        }
    }
}
