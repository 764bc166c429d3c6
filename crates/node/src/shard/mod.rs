//! One shard: its loop, and where each kind of work is found.
//!
//! 1. [`Shard::request`], [`Shard::hop`] and [`Shard::peer`] take what clients, other shards and other nodes send. Work
//!    that needs neither disk nor other nodes is done at once; what must wait is parked.
//! 2. [`Shard::turn`] answers what is past its deadline and ends the turn: it hands writes to the disk, takes what the
//!    disk and jobs have done, and takes parked work up again. It comes at [`Shard::next_deadline`] at the latest.
//! 3. [`Shard::tick`], a few times a second, asks who is there, and sees to hints and tombstones.
//!
//! Invariants
//! * Each request is answered exactly once; a listing is answered in parts, the last one marked.
//! * What a client is told of a version rests on versions that may be acknowledged: at durability `sync`, on
//!   nothing that a crash could lose.
//! * Of two writes of one key the second begins after the first is applied.
//! * Whatever other nodes do, or do not do, costs this shard bounded memory and its clients their deadline at most.

pub(crate) mod awaiting;
pub(crate) mod counters;
pub(crate) mod deadlines;
pub(crate) mod effect;
pub(crate) mod env;
pub(crate) mod gauges;
pub(crate) mod knobs;
pub(crate) mod output;
pub(crate) mod reply_to;
pub(crate) mod store_error;

pub use crate::anti_entropy::status::TreesStatus;
pub use crate::frontdoor::admission::{PASS_MAX, STAY_MAX, WAIT_MAX};
pub use crate::frontdoor::latency::{Histogram, TimesRead};
pub use crate::frontdoor::pacing::HELD_MAX;
pub use crate::handoff::losses::CopyLoss;
pub use crate::handoff::receiver::TransferStatus;
pub use crate::hop::RequestId;
pub use crate::liveness::peers::SILENCE_MAX;
pub use crate::request::execute::LOOKUPS_BUSY;
pub use counters::ShardCounters;
pub use knobs::{OVERLOAD_WORK_MIN, Reaping, Rebuilding, ShardConfig, TIMEOUT_DEFAULT, Turns, WORK_MAX};
pub use output::Output;

use crate::anti_entropy::AntiEntropy;
use crate::coverage::Coverage;
use crate::frontdoor::Frontdoor;
use crate::frontdoor::admission::AdmittedRequest;
use crate::frontdoor::latency::Latency;
use crate::handoff::{Handoff, TasksUnderWay};
use crate::hop::Hop;
use crate::liveness::peers::Peers;
use crate::metadata::resets::ResetMemory;
use crate::metadata::spread::PropsChanges;
use crate::peer::NodeId;
use crate::reap::context_folds::ContextFolds;
use crate::reap::reaper::Reaper;
use crate::reap::sweeper::Sweeper;
use crate::request::actors::Actors;
use crate::request::hint_writer::UnkeptHints;
use crate::request::replica::Forwards;
use crate::request::task::{Coordinator, TaskTable};
use crate::store::Store;
use crate::topology::{Budget, Topology};
use awaiting::{Awaiting, Waiter};
use base::Monotonic;
use base::spawn::Outcome;
use deadlines::Deadlines;
use effect::Effect;
use engine::backup::StoreFiles;
use engine::fold::JournalCheck;
use engine::store::{Event as StoreEvent, StoreStats};
use env::{Activity, Env};
use gauges::Gauges;
use knobs::Knobs;
use kv::{BucketTable, Error, Graveyard, PreflistEntry, Request, Response, TimeAhead, VersionClock};
use object::Actor;
use reply_to::ReplyTo;
use ring::Partition;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store_error::store_error;

/// What a shard is doing, for operators.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShardStats {
    /// Its counters.
    pub counters: ShardCounters,
    /// Its store.
    pub store: StoreStats,
    /// Requests under way.
    pub work: usize,
    /// Bytes of values that they hold.
    pub work_bytes: usize,
    /// Other nodes that can be reached.
    pub peers_up: usize,
    /// Partitions of the ring that it goes by.
    pub partitions: u32,
    /// Tombstones that are remembered since they were reaped, or nearly.
    pub graves: usize,
    /// Times of versions that were too far ahead of this node's clock for the shard's to follow.
    pub times_ahead: u64,
    /// Writes that are held back, as the store asks for.
    pub writes_held: usize,
    /// How long writes were made to wait for one another, in all.
    pub paced: Duration,
    /// Partitions whose trees are yet to be made, or made anew; none of a node alone.
    pub trees_due: usize,
    /// Bytes of memory that trees take.
    pub tree_bytes: usize,
    /// Keys in them.
    pub tree_keys: u64,
    /// Resets of bucket properties that are remembered.
    pub resets: usize,
}

/// A shard.
pub struct Shard {
    pub(crate) env: Env,
    pub(crate) handoff: Handoff,
    pub(crate) unkept_hints: UnkeptHints,
    pub(crate) objects: TaskTable,
    pub(crate) coverage: Coverage,
    pub(crate) changes: PropsChanges,
    pub(crate) resets: ResetMemory,
    pub(crate) forwards: Forwards,
    pub(crate) reaper: Reaper,
    pub(crate) sweeper: Sweeper,
    pub(crate) graveyard: Graveyard,
    pub(crate) folds: ContextFolds,
    pub(crate) anti_entropy: AntiEntropy,
    /// Whose events the writes of this process are.
    pub(crate) actors: Actors,
    pub(crate) frontdoor: Frontdoor,
    pub(crate) latency: Latency,
    events: Vec<StoreEvent>,
}

impl Shard {
    /// A shard over its open store. `table` has the properties that shard 0 keeps ([`Shard::read_props`]).
    pub fn new(config: ShardConfig, store: impl Into<Store>, table: BucketTable) -> Shard {
        let store = store.into();
        let ShardConfig { id, layout, members, ring, limits, clock, mut rng, read_form, .. } = config;
        let ShardConfig { life, reaping, anti_entropy, rebuilding, gathered, .. } = config;
        let anti_entropy = anti_entropy.filter(|_| store.has_snapshots());
        let knobs = Knobs { id, layout, limits, read_form, reaping, anti_entropy, rebuilding, gathered };

        let now = clock.now();
        let peers = Peers::new(&members, life, now);
        // Only a node alone can know that its disk is no copy, restored or started elsewhere: nobody else has
        // its actor's events.
        let is_alone = peers.is_alone();
        let actor = match is_alone || base::planted!(DotReusedAfterRestore) {
            true => Actor(store.incarnation()),
            false => Actor(rng.next_u64()),
        };
        let mut version_clock = VersionClock::starting(clock.wall());
        version_clock.see(table.newest_stamp(), clock.wall(), None);
        // Unlike those of an earlier process, and with room for the shard beside it.
        let last_id = rng.next_u64() >> 16;

        let env = Env {
            knobs,
            clock,
            rng,
            topology: Topology::at_rest(members, ring),
            peers,
            props: table,
            store,
            awaiting: Awaiting::default(),
            deadlines: Deadlines::default(),
            version_clock,
            activity: Activity::default(),
            gauges: Gauges::default(),
            counters: ShardCounters::default(),
            effects: VecDeque::new(),
            out: Vec::new(),
            last_id,
        };
        let mut shard = Shard {
            env,
            handoff: Handoff::default(),
            unkept_hints: UnkeptHints::default(),
            forwards: Forwards::default(),
            frontdoor: Frontdoor::default(),
            latency: Latency::default(),
            reaper: Reaper::default(),
            sweeper: Sweeper::starting(now),
            anti_entropy: AntiEntropy::default(),
            folds: ContextFolds::default(),
            graveyard: Graveyard::new(reaping.grave),
            actors: Actors::new(actor, is_alone),
            objects: TaskTable::default(),
            coverage: Coverage::default(),
            changes: PropsChanges::default(),
            resets: ResetMemory::default(),
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
        self.expire_objects(now);
        self.coverage.expire(&mut self.env, now);
        self.expire_changes(now);
        self.expire_forwards(now);
        self.begin_reaps(now);
        // A request that is past its deadline and still there waits for the disk: a note of it would wake the shard in
        // vain.
        let parked = self.objects.deadlines().chain(self.coverage.deadlines());
        let parked = parked.chain(self.changes.deadlines()).chain(self.forwards.deadlines());
        let earliest = parked.chain(self.reaper.next_due()).filter(|deadline| *deadline > now).min();
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
        let AdmittedRequest { id, request, deadline } = request;
        self.accept(ReplyTo::Client(id), request, deadline);
    }

    /// Begins writes and requests that have waited for their turn.
    fn admit(&mut self) {
        self.frontdoor.pacer.begin_turn(&self.env);
        while let Some(write) = self.frontdoor.pacer.next_ready(&mut self.env) {
            self.begin_object(write);
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
        self.ping_all();
    }

    /// Whether nobody waits for a shard that was told to stop, or will ask it anything.
    pub fn is_drained(&self) -> bool {
        self.frontdoor.stop.is_drained(&self.env, self.objects.have_clients())
    }

    /// Takes a message of another shard.
    pub fn hop(&mut self, message: Hop) {
        match message {
            Hop::Request { from, id, request, deadline } => {
                self.accept(ReplyTo::Shard(from, id), *request, deadline)
            }
            Hop::Answer { id, result } => self.env.reply(ReplyTo::Client(id), *result),
            Hop::AskPage { from, question, ask } => {
                self.coverage.on_shard_asks_page(&mut self.env, from, question, &ask)
            }
            Hop::Page { question, page } => self.coverage.on_page(&mut self.env, question, page),
            Hop::AskRows { from, question, ask } => {
                self.coverage.on_shard_asks_rows(&mut self.env, from, question, &ask)
            }
            Hop::Rows { question, page } => self.coverage.on_rows(&mut self.env, question, page),
            Hop::Props { from, change, props } => self.on_props(from, change, props),
            Hop::ForgetResets { resets } => self.on_forget_resets(&resets),
            Hop::PropsInForce { change } => self.on_in_force(change),
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
                StoreEvent::Lookup(id, answer) => self.on_lookup(id, answer),
                StoreEvent::Scan(id, page) => {
                    let page = self.coverage.on_scan(&mut self.env, id, page);
                    let page = page.or_else(|page| {
                        let tasks = self.tasks_under_way();
                        self.handoff.on_scan(&mut self.env, id, page, tasks)
                    });
                    // A page without an owner is of a transfer or a round that has ended since.
                    drop(page.or_else(|page| self.on_sweep_scan(id, page)));
                }
                StoreEvent::Fold(id, end) => self.anti_entropy.on_fold(&mut self.env, id, end),
                StoreEvent::Closed(result) => self.env.out.push(Output::Closed(result)),
            }
            self.drain();
        }
        self.events = events;
        self.take_acknowledged();
        self.refuse_unsent();
        self.admit();
        self.drain();
        self.handoff.outbound.take_turn_sending(&mut self.env);
        self.anti_entropy.make_trees(&mut self.env, now);
        self.go_on_reaping(now);
        self.go_on_sweeping(now);
        self.anti_entropy.take_turn(&mut self.env, now);
        self.drain();
        self.anti_entropy.keep_trees(&mut self.env);
        // What was taken up again may have written: that need not wait for another wake-up.
        if self.env.store.wants_turn() {
            self.env.store.turn(now, &mut self.events);
        }
        if cfg!(debug_assertions) {
            self.invariants();
        }
    }

    /// Asks other nodes again, and lets the store do what is due. To be called a few times a second,
    /// with a turn after it; less often while [`Shard::is_quiet`].
    pub fn tick(&mut self) {
        let now = self.env.now();
        self.env.version_clock.tick(self.env.clock.wall(), now);
        self.env.store.tick();
        if self.env.store.is_maintaining() {
            self.env.peers.note_used();
        }
        self.expire(now);
        self.coverage.tick(&mut self.env, now);
        self.tick_props(now);
        self.tick_resets(now);
        let has_tasks = self.objects.have_clients();
        self.frontdoor.stop.tick(&self.env, has_tasks, now);
        self.tick_peers(now);
        self.anti_entropy.tick_heals(&mut self.env);
        self.unkept_hints.tick(&mut self.env);
        self.handoff.hints.tick(&mut self.env, now);
        self.tick_reaps(now);
        self.tick_sweeps(now);
        self.tick_folds(now);
        let tasks = self.tasks_under_way();
        self.handoff.tick(&mut self.env, tasks, now);
        self.anti_entropy.tick(&mut self.env, now);
        self.drain();
    }

    /// Takes what the store's background work has found damaged since the last call, for the log.
    pub fn take_damage(&mut self) -> Vec<engine::Damage> {
        self.env.store.take_damage()
    }

    /// Takes, now and then, what was seen of a clock that is far ahead, for the log.
    pub fn take_time_ahead(&mut self) -> Option<TimeAhead> {
        self.env.version_clock.take_warning(self.env.now())
    }

    /// A member's name; the number of one that is forgotten.
    pub fn name_of(&self, node: NodeId) -> String {
        let members = &self.env.topology.members;
        if members.has(node) { members.name(node).to_string() } else { node.to_string() }
    }

    /// Takes what senders of copies said since the last call that they have lost, for the log.
    pub fn take_copy_losses(&mut self) -> Vec<CopyLoss> {
        self.handoff.inbound.take_losses()
    }

    /// Lets a listing go on whose last part has been sent.
    pub fn proceed(&mut self, id: RequestId) {
        self.coverage.proceed(&mut self.env, id);
        self.drain();
    }

    /// Moves what is to be sent to the end of `outputs`.
    #[inline]
    pub fn take_outputs(&mut self, outputs: &mut Vec<Output>) {
        outputs.append(&mut self.env.out);
    }

    /// Whether there is something to take.
    pub fn has_outputs(&self) -> bool {
        !self.env.out.is_empty()
    }

    /// Asks the store for the files that make it up ([`engine::Store::begin_backup`]); `asked` is told them, or why
    /// not.
    pub fn begin_backup(&mut self, asked: Outcome<Result<StoreFiles, engine::Error>>) {
        if let Err(error) = self.env.store.begin_backup(asked.clone()) {
            asked.set(Err(error));
        }
    }

    /// Begins a compaction of all waste of the store ([`engine::Store::reclaim`]).
    ///
    /// # Errors
    /// If the store takes no writes any more, or is of another backend.
    pub fn reclaim(&mut self) -> Result<(), engine::Error> {
        self.env.peers.note_used();
        self.env.store.reclaim()
    }

    /// The state of the last compaction.
    pub fn reclaimed(&self) -> engine::store::Reclaimed {
        self.env.store.reclaimed()
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
            || self.sweeper.has_more()
            || self.has_unsent()
    }

    /// Whether requests are under way.
    pub fn is_idle(&self) -> bool {
        self.env.gauges.requests() == 0
    }

    /// Why the store takes no more writes, if a write has failed.
    pub fn fenced(&self) -> Option<engine::Error> {
        self.env.store.fenced()
    }

    /// Why the store takes no writes for now, or at all.
    pub fn refuses_writes(&self) -> Option<engine::Error> {
        self.env.store.refuses_writes()
    }

    /// Other nodes that it reaches.
    pub fn reached(&self) -> BTreeSet<NodeId> {
        self.env.peers.up().collect()
    }

    /// What it is doing.
    pub fn stats(&self) -> ShardStats {
        let (tree_bytes, tree_keys) = self.anti_entropy.sizes();
        ShardStats {
            counters: self.env.counters,
            store: self.env.store.stats(),
            work: self.env.gauges.requests(),
            work_bytes: self.env.gauges.bytes(),
            peers_up: self.env.peers.up().count(),
            partitions: self.env.topology.ring.size().partitions(),
            graves: self.graveyard.len(),
            times_ahead: self.env.version_clock.refused(),
            writes_held: self.env.gauges.held,
            paced: self.frontdoor.pacer.owed,
            trees_due: self.anti_entropy.due(),
            tree_bytes,
            tree_keys,
            resets: self.env.props.resets(),
        }
    }

    /// How it stands with the trees of each partition that this shard compares; of none where nothing is compared.
    pub fn trees(&self) -> Vec<TreesStatus> {
        self.anti_entropy.statuses(&self.env)
    }

    /// Has the trees of a partition made anew, or of all that it has: as soon as it can be. Tells how many that are.
    pub fn rebuild_trees(&mut self, partition: Option<Partition>, check: JournalCheck) -> usize {
        self.anti_entropy.rebuild(&self.env, partition, check)
    }

    /// Has the trees of a partition, or of all that this shard has, compared with all others that have them: now, and
    /// not in the next round. Trees that wait to be compared go with them. Tells how many partitions that are: none
    /// while partitions move.
    pub fn compare_trees(&mut self, partition: Option<Partition>) -> usize {
        self.anti_entropy.compare(&self.env, partition)
    }

    /// How long clients' gets and puts take, from when they are begun to their answers.
    pub fn times(&mut self) -> (TimesRead, TimesRead) {
        let now = self.env.now();
        self.latency.read(now)
    }

    pub(crate) fn accept(&mut self, reply_to: ReplyTo, request: Request, deadline: Monotonic) {
        self.env.peers.note_used();
        if self.env.gauges.requests() >= WORK_MAX
            || self.env.gauges.bytes() >= self.env.knobs.limits.work_bytes_max
        {
            self.env.counters.refused += 1;
            return self.env.reply(reply_to, Err(Error::Overload));
        }
        match request {
            Request::Get(get) => self.start_object(reply_to, Coordinator::get(get), deadline),
            Request::Put(mut put) => {
                put.invent_key(&mut *self.env.rng);
                self.start_object(reply_to, Coordinator::put(put), deadline);
            }
            Request::Delete(delete) => self.start_object(reply_to, Coordinator::delete(delete), deadline),
            Request::ListKeys(list) => self.coverage.list_keys(&mut self.env, reply_to, list, deadline),
            Request::Index(request) => self.coverage.search(&mut self.env, reply_to, *request, deadline),
            Request::Query(request) => self.coverage.query(&mut self.env, reply_to, *request, deadline),
            Request::ListBuckets(list) => self.coverage.list_buckets(&mut self.env, reply_to, list, deadline),
            Request::Fold(request) => self.coverage.fold(&mut self.env, reply_to, *request, deadline),
            Request::SetProps(bucket, changes) => self.set_props(reply_to, bucket, Some(changes), deadline),
            Request::ResetProps(bucket) => self.set_props(reply_to, bucket, None, deadline),
            Request::ChangeType(name, change) => self.change_type(reply_to, name, change, deadline),
            other => {
                let answer = self.answer_at_once(other);
                self.env.reply(reply_to, answer);
            }
        }
    }

    fn answer_at_once(&self, request: Request) -> Result<Response, Error> {
        match request {
            Request::GetProps(bucket) => {
                self.env.knobs.limits.check_bucket(&bucket)?;
                self.env.props.get(&bucket).map(|props| Response::Props(Arc::clone(props)))
            }
            Request::GetTypeProps(name) => {
                self.env.props.of_type(&name).map(|props| Response::Props(Arc::clone(props)))
            }
            Request::ListMembers => Ok(Response::Members(self.members())),
            Request::ListTypes => Ok(Response::Types(self.env.props.types(self.env.peers.all_up()))),
            Request::GetPreflist(bucket, key) => {
                self.env.knobs.limits.check_names(&bucket, &key)?;
                let n_val = usize::try_from(self.env.props.get(&bucket)?.n_val).unwrap_or(usize::MAX);
                let list =
                    self.env.topology.ring.preflist_of_key(&bucket.bucket_type, &bucket.name, &key, n_val);
                let entry = |place: ring::PreflistEntry| PreflistEntry {
                    partition: place.partition.0,
                    node: Arc::clone(self.env.topology.members.name(place.node)),
                    primary: place.primary,
                };
                Ok(Response::Preflist(list.map(entry).collect()))
            }
            other => unreachable!("{other:?} is not answered from memory"),
        }
    }

    fn members(&self) -> Vec<kv::Member> {
        let members = &self.env.topology.members;
        let member = |node| {
            let here = node == members.here();
            kv::Member { name: Arc::clone(members.name(node)), here, up: here || self.env.peers.is_up(node) }
        };
        members.all().map(member).collect()
    }

    /// Tells the owners of writes that may now be acknowledged; all of it, once the store cannot tell when more
    /// will be.
    pub(crate) fn take_acknowledged(&mut self) {
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
                Waiter::Task(id) => self.on_acknowledged(id, seq, result),
                Waiter::Transfer(node) => self.handoff.inbound.on_checkpoint(&mut self.env, node, result),
                Waiter::Props(id) => self.on_props_written(id, result),
            }
        }
    }

    /// Takes members and owners as they were published last. Those that are not later than the known ones are ignored.
    ///
    /// # Panics
    /// If a ring has more partitions than keys have prefixes, or an owner that is no member.
    pub fn topology(&mut self, topology: Topology) {
        if topology.epoch <= self.env.topology.epoch && !base::planted!(StaleRingAccepted) {
            return;
        }
        let rings = topology.before.iter().chain([&topology.ring]).chain(&topology.target);
        for ring in rings {
            assert!(ring.size() <= self.env.knobs.layout.prefixes, "a partition is a range of keys");
            assert!(ring.owning().iter().all(|node| topology.members.has(node)), "an owner is a member");
        }

        let was_alone = self.env.peers.is_alone();
        let left = self.env.peers.change(&topology.members);
        if was_alone && !self.env.peers.is_alone() {
            // From now on somebody else may have events of the store's actor: those of a copy of its disk.
            self.actors = Actors::new(Actor(self.env.rng.next_u64()), false);
        }
        left.into_iter().for_each(|node| self.env.raise(Effect::QuestionsLost(node)));

        let tasks = self.tasks_under_way();
        self.handoff.on_topology(&mut self.env, topology, tasks);
        self.anti_entropy.look_at_partitions(&mut self.env);
        self.drain();
    }

    fn tasks_under_way(&self) -> TasksUnderWay {
        TasksUnderWay { oldest_epoch: self.objects.oldest(), oldest: self.objects.oldest_name() }
    }

    /// Whether partitions may move, as far as this shard has been told.
    pub fn is_changing(&self) -> bool {
        !self.env.topology.is_at_rest()
    }

    /// The numbers of replicas that buckets have, as far as this shard knows.
    pub fn n_vals(&self) -> BTreeSet<u32> {
        self.env.props.n_vals()
    }

    /// How much transfers may take from now on.
    pub fn budget(&mut self, budget: Budget) {
        self.env.topology.budget = budget;
    }

    /// Whether this shard has dropped all that this node is not to have: nothing moves, no hint is kept of it, and
    /// nothing is left to be looked for. A node that owns nothing may go then.
    pub fn has_given_all(&self) -> bool {
        self.handoff.has_given_all(&self.env)
    }

    /// Whether this node is to have nothing, and nothing is left here that others may lack, nor any request: it may go.
    pub fn is_vacated(&self) -> bool {
        self.handoff.orphans.is_vacated(&self.env) && self.is_idle()
    }

    /// Nodes that this shard keeps hints for which hold up its drops, as of its last look. They go home when
    /// these can be reached.
    pub fn kept_for(&self) -> Vec<NodeId> {
        self.handoff.orphans.kept_for()
    }

    /// How far inbound transfers are.
    pub fn transfers(&self) -> Vec<TransferStatus> {
        self.handoff.inbound.transfers(&self.env)
    }

    /// Checks relations that hold after each input.
    fn invariants(&self) {
        debug_assert!(self.env.effects.is_empty(), "effects are drained before the next input");
        self.frontdoor.invariants(&self.env);
        self.coverage.invariants(&self.env);
        self.handoff.invariants(&self.env);
        self.anti_entropy.invariants(&self.env);
    }

    /// Gives effects to their receivers until none is left.
    #[inline]
    pub(crate) fn drain(&mut self) {
        while let Some(effect) = self.env.effects.pop_front() {
            self.route(effect);
        }
    }

    fn route(&mut self, effect: Effect) {
        match effect {
            Effect::Start(task) => self.start_work(*task),
            Effect::CancelTransfer(transfer) => self.cancel_transfer(transfer),
            Effect::HintDelivered(node) => self.handoff.hints.on_delivered(&mut self.env, node),
            Effect::KeyTransferred { transfer, key, result } => {
                self.handoff.outbound.on_carried(&mut self.env, transfer, &key, result)
            }
            Effect::Reaped { key, is_agreed } => self.on_reaped(&key, is_agreed),
            Effect::ContextFolded { key, is_agreed } => self.on_folded(&key, is_agreed),
            Effect::KeyRead => self.anti_entropy.on_key_read(),
            Effect::KeyRepaired => self.anti_entropy.on_key_repaired(),
            Effect::TombstoneRead => self.on_swept(),
            Effect::HintsKept { prefix, nodes } => self.handoff.on_hints_kept(&mut self.env, prefix, &nodes),
            Effect::BringHints(node) => self.handoff.hints.bring(&mut self.env, node),
            Effect::ProposeReap { key, tombstone } => self.propose_reap(&key, tombstone),
            Effect::ProposeContextFold { key } => self.propose_fold(&key),
            Effect::HeadChanged(change) => self.anti_entropy.on_head_changed(&mut self.env, &change),
            Effect::PeerUp { node, compares_props } => {
                self.handoff.hints.bring(&mut self.env, node);
                self.bring_props(node, compares_props);
            }
            Effect::PeerDown(node) => self.end_telling(node),
            Effect::QuestionsLost(node) => {
                self.fail_tasks(node);
                self.fail_forwards(node);
                self.fail_props(node);
                self.coverage.fail(&mut self.env, node);
                self.anti_entropy.fail(&mut self.env, node);
            }
            Effect::PropsKnown { node, sums } => self.on_known_props(node, sums),
            Effect::RangesDropped => self.actors.forget_all(),
        }
    }
}
