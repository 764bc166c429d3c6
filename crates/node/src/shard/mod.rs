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

mod actors;
mod admission;
mod checkpoints;
mod context_folds;
mod copies;
mod deadlines;
mod exchanges;
mod folds;
mod gathered;
mod gifts;
mod heal;
mod hints;
mod listing;
mod losses;
mod moves;
mod notes;
mod object;
mod pace;
mod pages;
mod parts;
mod peers;
mod props;
mod reap;
mod rebuilds;
mod replica;
mod resets;
mod rows;
mod search;
mod share;
mod stop;
mod strays;
mod sweep;
mod telling;
mod times;
mod trees;
mod walk;
mod work;

pub use crate::hop::RequestId;
pub use admission::{OVERLOAD_WORK_MIN, PASS_MAX, STAY_MAX, WAIT_MAX};
pub use copies::TransferStatus;
pub use losses::CopyLoss;
pub use notes::TreesStatus;
pub use object::LOOKUPS_BUSY;
pub use pace::HELD_MAX;
pub use reap::Reaping;
pub use rebuilds::{Rebuilding, Turns};
pub use times::{Histogram, TimesRead};

use crate::hop::{Hop, ShardId};
use crate::layout::Layout;
use crate::members::Members;
use crate::peer::{AskId, NodeId, PeerMessage};
use crate::store::Store;
use crate::topology::{Epoch, Topology};
use ::object::Actor;
use actors::Actors;
use admission::Admission;
use base::spawn::Outcome;
use base::{Budget, Clock, Monotonic, Rng};
use context_folds::ContextFolds;
use deadlines::Deadlines;
use engine::Seq;
use engine::backup::StoreFiles;
use engine::store::{Event as StoreEvent, StoreStats};
use exchanges::Exchanges;
use heal::Heals;
use hints::Hints;
use kv::{
    BucketTable, Error, Graveyard, Limits, PreflistEntry, ReadForm, Request, Response, TimeAhead,
    VersionClock,
};
use listing::Listings;
use moves::Moves;
use pace::Pacer;
use peers::Peers;
use props::PropsChanges;
use reap::Reaper;
use replica::Forwards;
use resets::ResetMemory;
use ring::{Ring, RingVersion};
use search::Searches;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use stop::Stopping;
use sweep::Sweeper;
use times::Times;
use trees::Trees;
use work::{Coordinator, Objects};

/// Requests that one shard works on at a time. Each holds its names, and values within [`Limits::work_bytes_max`];
/// beyond it a request is refused at once.
pub const WORK_MAX: usize = 16_384;

/// How long a client waits that does not say: Riak's default.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

/// What a shard is told once.
pub struct ShardConfig {
    /// Which shard it is.
    pub id: ShardId,
    /// How the node's keys are laid out.
    pub layout: Layout,
    /// The nodes of the cluster, and which of them this is.
    pub members: Arc<Members>,
    /// Who owns what.
    pub ring: Arc<Ring>,
    /// The limits in force.
    pub limits: Limits,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub rng: Box<dyn Rng>,
    /// How reads ask their replicas while this node is not too busy.
    pub read_form: ReadForm,
    /// The process, for other nodes: one random number, not 0, for all its shards.
    pub life: u64,
    /// What becomes of tombstones.
    pub reaping: Reaping,
    /// How often all that this node holds is compared with what others hold; `None` for never. Without a use where the store has no
    /// snapshots.
    pub anti_entropy: Option<Duration>,
    /// When the hashes for that are made anew from what is stored.
    pub rebuilding: Rebuilding,
    /// Memory for answers in one piece while they are gathered.
    pub gathered: Arc<Budget>,
}

/// What a shard has for others.
#[derive(Debug)]
pub enum Output {
    /// An answer for a client.
    Reply {
        /// The request.
        to: RequestId,
        /// The answer.
        result: Result<Response, Error>,
        /// Whether further answers follow, once the shell has called [`Shard::proceed`].
        more: bool,
    },
    /// A message for another shard.
    Hop {
        /// Which.
        to: ShardId,
        /// The message.
        message: Hop,
    },
    /// A message for another node. If it cannot be sent, [`Shard::bounce`] takes it back.
    Peer {
        /// Which.
        to: NodeId,
        /// The message.
        message: PeerMessage,
    },
    /// For the control plane: this shard goes by that epoch, and none of its requests by an older one any more.
    Adopted(Epoch),
    /// For the control plane: this shard has, durably, all that the target of this version asks it to have. Told again
    /// after a restart, once it is known again.
    Copied(RingVersion),
    /// The clean stop is complete, or failed.
    Closed(Result<(), engine::Error>),
}

/// Whose request a piece of work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A client of this shard's.
    Here(RequestId),
    /// A client of another shard's.
    There(ShardId, RequestId),
    /// A client of another node's, which passed its request on.
    Forwarded(NodeId, AskId),
    /// Another node, which asks this replica.
    Replica(NodeId, AskId),
    /// Other work of this shard, which waits until its write is passed on.
    Passed(u64),
    /// An exchange with another node, which has found that the key differs.
    Exchange,
    /// A sweep, which has found a tombstone.
    Sweep,
    /// Nobody waits.
    Nobody,
}

/// Counters of a shard, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardCounters {
    /// Reads begun.
    pub gets: u64,
    /// Writes begun.
    pub puts: u64,
    /// Deletes begun.
    pub deletes: u64,
    /// Requests passed on to another shard.
    pub hops: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Requests refused because too much was under way.
    pub refused: u64,
    /// Requests passed on to another node.
    pub forwards: u64,
    /// Reads for other nodes.
    pub replica_reads: u64,
    /// Writes, repairs and handoffs from other nodes.
    pub replica_writes: u64,
    /// Versions sent to replicas that a read found to be behind.
    pub repairs: u64,
    /// Repairs of this node's own copies that failed.
    pub repairs_failed: u64,
    /// Keys whose values the scrub has found damaged, and that were read so that other replicas heal them.
    pub heals: u64,
    /// Those of them that no replica had whole.
    pub heals_failed: u64,
    /// Hints kept.
    pub hints: u64,
    /// Hints that could not be kept: the store takes no writes.
    pub hints_lost: u64,
    /// Versions sent to the primaries that they were kept for.
    pub handoffs: u64,
    /// Hints that are home.
    pub hints_home: u64,
    /// Rounds through the hints of a peer.
    pub hint_rounds: u64,
    /// Messages to other nodes that could not be sent.
    pub bounced: u64,
    /// Tombstones that a delete or a read here has proposed to reap.
    pub reaps_proposed: u64,
    /// Those that were dropped, as too many waited.
    pub reaps_dropped: u64,
    /// Those that were not reaped: some node is away, has a hint or something else, or does not want it.
    pub reaps_refused: u64,
    /// Those that were reaped.
    pub reaps: u64,
    /// Those that a sweep has found, or that were refused, and that were read so that they are proposed.
    pub reaps_swept: u64,
    /// Keys whose contexts were folded, as this node proposed.
    pub folds: u64,
    /// Proposals that came to nothing: some member is away, has a hint or something older, or the partition moves.
    pub folds_refused: u64,
    /// Exchanges with other nodes about trees that differed, begun here.
    pub exchanges: u64,
    /// Those that came to no end: somebody did not answer, or could not be read.
    pub exchanges_failed: u64,
    /// Keys that they found to differ, and that were read so that their replicas are repaired.
    pub exchange_keys: u64,
    /// Partitions whose trees were made from their heads.
    pub trees_made: u64,
    /// Keys that were gone through for that, and the microseconds that it took.
    pub rebuild_keys: u64,
    /// See `rebuild_keys`.
    pub rebuild_micros: u64,
    /// Those whose values were found missing or damaged, and that were read so that other replicas heal them.
    pub rebuild_damaged: u64,
    /// Partitions whose trees an earlier process has left.
    pub trees_kept: u64,
    /// Trees that did not say what the store has, where nothing is known to be lost or damaged: the tree was not kept.
    pub trees_wrong: u64,
}

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
    config: ShardConfig,
    moves: Moves,
    store: Store,
    table: BucketTable,
    objects: Objects,
    listings: Listings,
    searches: Searches,
    changes: PropsChanges,
    resets: ResetMemory,
    deadlines: Deadlines,
    peers: Peers,
    forwards: Forwards,
    heals: Heals,
    hints: Hints,
    reaper: Reaper,
    sweeper: Sweeper,
    graveyard: Graveyard,
    folds: ContextFolds,
    trees: Trees,
    exchanges: Exchanges,
    /// Whose events the writes of this process are.
    actors: Actors,
    /// What times they get.
    version_clock: VersionClock,
    /// Work that waits until its version may be acknowledged.
    awaiting: BTreeSet<(Seq, Waiter)>,
    last_work: u64,
    admission: Admission,
    pacer: Pacer,
    counters: ShardCounters,
    /// Of gets and of puts.
    times: (Times, Times),
    /// Since it was told to stop.
    stopping: Option<Stopping>,
    events: Vec<StoreEvent>,
    outputs: Vec<Output>,
}

/// Who waits for a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Waiter {
    Object(u64),
    /// A checkpoint of what is copied from there.
    Copy(NodeId),
    Props(u64),
}

impl Shard {
    /// A shard over its open store. `table` has the properties that shard 0 keeps ([`Shard::read_props`]).
    pub fn new(mut config: ShardConfig, store: impl Into<Store>, table: BucketTable) -> Shard {
        let store = store.into();
        if !store.has_snapshots() {
            config.anti_entropy = None;
        }
        let peers = Peers::new(&config.members, config.life, config.clock.now());
        // Only a node alone can know that its disk is no copy, restored or started elsewhere: nobody else has
        // its actor's events.
        let is_alone = peers.is_alone();
        let actor = match is_alone || base::planted!(DotReusedAfterRestore) {
            true => Actor(store.incarnation()),
            false => Actor(config.rng.next_u64()),
        };
        let mut version_clock = VersionClock::starting(config.clock.wall());
        version_clock.see(table.newest_stamp(), config.clock.wall(), None);
        let topology = Topology::at_rest(Arc::clone(&config.members), Arc::clone(&config.ring));
        let mut shard = Shard {
            moves: Moves::new(topology),
            // Unlike those of an earlier process, and with room for the shard beside it.
            last_work: config.rng.next_u64() >> 16,
            peers,
            forwards: Forwards::default(),
            admission: Admission::default(),
            pacer: Pacer::default(),
            heals: Heals::default(),
            hints: Hints::default(),
            reaper: Reaper::default(),
            sweeper: Sweeper::starting(config.clock.now()),
            trees: Trees::default(),
            exchanges: Exchanges::default(),
            folds: ContextFolds::default(),
            graveyard: Graveyard::new(config.reaping.grave),
            actors: Actors::new(actor, is_alone),
            version_clock,
            config,
            store,
            table,
            objects: Objects::default(),
            listings: Listings::default(),
            searches: Searches::default(),
            changes: PropsChanges::default(),
            resets: ResetMemory::default(),
            deadlines: Deadlines::default(),
            awaiting: BTreeSet::new(),
            counters: ShardCounters::default(),
            times: Default::default(),
            stopping: None,
            events: Vec::new(),
            outputs: Vec::new(),
        };
        shard.take_kept_trees();
        shard
    }

    /// Takes a message of another shard.
    pub fn hop(&mut self, message: Hop) {
        match message {
            Hop::Request { from, id, request, deadline } => {
                self.accept(Origin::There(from, id), *request, deadline)
            }
            Hop::Answer { id, result } => self.reply(Origin::Here(id), *result),
            Hop::AskPage { from, question, ask } => self.on_shard_asks_page(from, question, &ask),
            Hop::Page { question, page } => self.on_page(question, page),
            Hop::AskRows { from, question, ask } => self.on_shard_asks_rows(from, question, &ask),
            Hop::Rows { question, page } => self.on_rows(question, page),
            Hop::Props { from, change, props } => self.on_props(from, change, props),
            Hop::ForgetResets { resets } => self.on_forget_resets(&resets),
            Hop::PropsInForce { change } => self.on_in_force(change),
        }
    }

    /// Ends a turn. To be called when new input is in, and whenever the disk or a job has woken the shard.
    pub fn turn(&mut self) {
        let now = self.config.clock.now();
        self.expire_if_due(now);
        let mut events = std::mem::take(&mut self.events);
        self.store.turn(now, &mut events);
        for event in events.drain(..) {
            match event {
                StoreEvent::Lookup(id, answer) => self.on_lookup(id, answer),
                StoreEvent::Scan(id, page) => {
                    let page = self.on_rows_scan(id, page).or_else(|page| self.on_hints(id, page));
                    let page = page.or_else(|page| self.on_sweep_scan(id, page));
                    if let Err(page) = page.or_else(|page| self.on_move_scan(id, page)) {
                        self.on_scan(id, page);
                    }
                }
                StoreEvent::Fold(id, end) => {
                    if let Err(end) = self.on_trees_fold(id, end) {
                        self.on_keys_fold(id, end);
                    }
                }
                StoreEvent::Closed(result) => self.outputs.push(Output::Closed(result)),
            }
        }
        self.events = events;
        self.take_acknowledged();
        self.refuse_unsent();
        self.admit();
        self.take_turns_giving();
        self.make_trees(now);
        self.go_on_reaping(now);
        self.go_on_sweeping(now);
        self.take_turn_exchanging(now);
        self.keep_trees();
        // What was taken up again may have written: that need not wait for another wake-up.
        if self.store.wants_turn() {
            self.store.turn(now, &mut self.events);
        }
    }

    /// Asks other nodes again, and lets the store do what is due. To be called a few times a second,
    /// with a turn after it; less often while [`Shard::is_quiet`].
    pub fn tick(&mut self) {
        let now = self.config.clock.now();
        self.version_clock.tick(self.config.clock.wall(), now);
        self.store.tick();
        if self.store.is_maintaining() {
            self.is_used();
        }
        self.expire(now);
        self.tick_listings(now);
        self.tick_searches(now);
        self.tick_props(now);
        self.tick_resets(now);
        self.tick_stop(now);
        self.tick_peers(now);
        self.tick_heals();
        self.rebuild_lost();
        self.tick_hints(now);
        self.tick_reaps(now);
        self.tick_sweeps(now);
        self.tick_folds(now);
        self.tick_moves(now);
        self.look_at_trees();
        self.look_at_timers(now);
        self.tick_exchanges(now);
    }

    /// Takes what the store's background work has found damaged since the last call, for the log.
    pub fn take_damage(&mut self) -> Vec<engine::Damage> {
        self.store.take_damage()
    }

    /// Takes, now and then, what was seen of a clock that is far ahead, for the log.
    pub fn take_time_ahead(&mut self) -> Option<TimeAhead> {
        self.version_clock.take_warning(self.config.clock.now())
    }

    /// A member's name; the number of one that is forgotten.
    pub fn name_of(&self, node: NodeId) -> String {
        let members = &self.config.members;
        if members.has(node) { members.name(node).to_string() } else { node.to_string() }
    }

    /// Takes what senders of copies said since the last call that they have lost, for the log.
    pub fn take_copy_losses(&mut self) -> Vec<CopyLoss> {
        self.moves.copies.losses.take_told()
    }

    /// Lets a listing go on whose last part has been sent.
    pub fn proceed(&mut self, id: RequestId) {
        self.go_on_listing(id);
        self.go_on_searching(id);
    }

    /// Moves what is to be sent to the end of `outputs`.
    #[inline]
    pub fn take_outputs(&mut self, outputs: &mut Vec<Output>) {
        outputs.append(&mut self.outputs);
    }

    /// Whether there is something to take.
    pub fn has_outputs(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// Asks the store for the files that make it up ([`engine::Store::begin_backup`]); `asked` is told them, or why not.
    pub fn begin_backup(&mut self, asked: Outcome<Result<StoreFiles, engine::Error>>) {
        if let Err(error) = self.store.begin_backup(asked.clone()) {
            asked.set(Err(error));
        }
    }

    /// Begins a compaction of all waste of the store ([`engine::Store::reclaim`]).
    ///
    /// # Errors
    /// If the store takes no writes any more, or is of another backend.
    pub fn reclaim(&mut self) -> Result<(), engine::Error> {
        self.is_used();
        self.store.reclaim()
    }

    /// The state of the last compaction.
    pub fn reclaimed(&self) -> engine::store::Reclaimed {
        self.store.reclaimed()
    }

    /// Ends the clean stop: nothing may be requested any more; turns go on until [`Output::Closed`].
    pub fn begin_close(&mut self) {
        self.store.begin_close();
    }

    /// Whether a turn has something to do at once: writes wait for it to end, something was read, or requests wait to be begun.
    #[inline]
    pub fn wants_turn(&self) -> bool {
        self.store.wants_turn() || self.has_more()
    }

    /// Whether a turn has left something for the next one, for which nobody will wake the shard: something that was read, or requests that
    /// can be begun. It should come as soon as what has arrived meanwhile is in.
    #[inline]
    pub fn has_more(&self) -> bool {
        !self.events.is_empty() || self.can_begin() || self.sweeper.has_more() || self.has_unsent()
    }

    /// Whether requests are under way.
    pub fn is_idle(&self) -> bool {
        self.work() == 0
    }

    /// Why the store takes no more writes, if a write has failed.
    pub fn fenced(&self) -> Option<engine::Error> {
        self.store.fenced()
    }

    /// Why the store takes no writes for now, or at all.
    pub fn refuses_writes(&self) -> Option<engine::Error> {
        self.store.refuses_writes()
    }

    /// Other nodes that it reaches.
    pub fn reached(&self) -> BTreeSet<NodeId> {
        self.peers.up().collect()
    }

    /// What it is doing.
    pub fn stats(&self) -> ShardStats {
        let (tree_bytes, tree_keys) = self.trees.sizes();
        ShardStats {
            counters: self.counters,
            store: self.store.stats(),
            work: self.work(),
            work_bytes: self.work_bytes(),
            peers_up: self.peers.up().count(),
            partitions: self.config.ring.size().partitions(),
            graves: self.graveyard.len(),
            times_ahead: self.version_clock.refused(),
            writes_held: self.pacer.len(),
            paced: self.pacer.owed,
            trees_due: self.trees.due(),
            tree_bytes,
            tree_keys,
            resets: self.table.resets(),
        }
    }

    /// How long clients' gets and puts take, from when they are begun to their answers.
    pub fn times(&mut self) -> (TimesRead, TimesRead) {
        let now = self.config.clock.now();
        (self.times.0.read(now), self.times.1.read(now))
    }

    fn work(&self) -> usize {
        let begun = self.objects.len()
            + self.listings.len()
            + self.searches.len()
            + self.changes.len()
            + self.forwards.len();
        begun + self.admission.len() + self.pacer.len()
    }

    fn work_bytes(&self) -> usize {
        self.objects.bytes() + self.admission.bytes() + self.pacer.bytes()
    }

    fn accept(&mut self, origin: Origin, request: Request, deadline: Monotonic) {
        self.is_used();
        if self.work() >= WORK_MAX || self.work_bytes() >= self.config.limits.work_bytes_max {
            self.counters.refused += 1;
            return self.reply(origin, Err(Error::Overload));
        }
        match request {
            Request::Get(get) => self.start_object(origin, Coordinator::get(get), deadline),
            Request::Put(mut put) => {
                put.invent_key(&mut *self.config.rng);
                self.start_object(origin, Coordinator::put(put), deadline);
            }
            Request::Delete(delete) => self.start_object(origin, Coordinator::delete(delete), deadline),
            Request::ListKeys(list) => self.list_keys(origin, list, deadline),
            Request::Index(request) => self.search(origin, *request, deadline),
            Request::Query(request) => self.query(origin, *request, deadline),
            Request::ListBuckets(list) => self.list_buckets(origin, list, deadline),
            Request::Fold(request) => self.fold(origin, *request, deadline),
            Request::SetProps(bucket, changes) => self.set_props(origin, bucket, Some(changes), deadline),
            Request::ResetProps(bucket) => self.set_props(origin, bucket, None, deadline),
            Request::ChangeType(name, change) => self.change_type(origin, name, change, deadline),
            other => {
                let answer = self.answer_at_once(other);
                self.reply(origin, answer);
            }
        }
    }

    fn answer_at_once(&self, request: Request) -> Result<Response, Error> {
        match request {
            Request::GetProps(bucket) => {
                self.config.limits.check_bucket(&bucket)?;
                self.table.get(&bucket).map(|props| Response::Props(Arc::clone(props)))
            }
            Request::GetTypeProps(name) => {
                self.table.of_type(&name).map(|props| Response::Props(Arc::clone(props)))
            }
            Request::ListMembers => Ok(Response::Members(self.members())),
            Request::ListTypes => Ok(Response::Types(self.table.types(self.peers.all_up()))),
            Request::GetPreflist(bucket, key) => {
                self.config.limits.check_names(&bucket, &key)?;
                let n_val = usize::try_from(self.table.get(&bucket)?.n_val).unwrap_or(usize::MAX);
                let list = self.config.ring.preflist_of_key(&bucket.bucket_type, &bucket.name, &key, n_val);
                let entry = |place: ring::PreflistEntry| PreflistEntry {
                    partition: place.partition.0,
                    node: Arc::clone(self.config.members.name(place.node)),
                    primary: place.primary,
                };
                Ok(Response::Preflist(list.map(entry).collect()))
            }
            other => unreachable!("{other:?} is not answered from memory"),
        }
    }

    fn members(&self) -> Vec<kv::Member> {
        let members = &self.config.members;
        let member = |node| {
            let here = node == members.here();
            kv::Member { name: Arc::clone(members.name(node)), here, up: here || self.peers.is_up(node) }
        };
        members.all().map(member).collect()
    }

    /// The prefix of a key, and the shard that holds it.
    fn place(&self, bucket: &kv::Bucket, key: &[u8]) -> (u16, ShardId) {
        let prefix = self.config.layout.prefix(bucket, key);
        (prefix, ShardId(self.config.layout.shard_of(prefix)))
    }

    /// Where on the ring the keys with this prefix begin.
    fn position(&self, prefix: u16) -> ring::Position {
        self.config.layout.position(prefix)
    }

    fn reply(&mut self, origin: Origin, result: Result<Response, Error>) {
        self.counters.errors += u64::from(result.is_err());
        self.outputs.push(match origin {
            Origin::Here(to) => Output::Reply { to, result, more: false },
            Origin::There(to, id) => {
                Output::Hop { to, message: Hop::Answer { id, result: Box::new(result) } }
            }
            Origin::Forwarded(to, id) => return self.forwarded(to, id, result),
            Origin::Replica(..) | Origin::Passed(_) | Origin::Exchange | Origin::Sweep | Origin::Nobody => {
                unreachable!("it answers in another way")
            }
        });
    }

    fn forward(&mut self, to: ShardId, origin: Origin, request: Request, deadline: Monotonic) {
        let Origin::Here(id) = origin else { unreachable!("what comes from elsewhere is where it belongs") };
        self.counters.hops += 1;
        let message = Hop::Request { from: self.config.id, id, request: Box::new(request), deadline };
        self.outputs.push(Output::Hop { to, message });
    }

    /// Takes up what waited for versions that may now be acknowledged; all of it, once the store cannot tell when more will be.
    fn take_acknowledged(&mut self) {
        if self.awaiting.is_empty() {
            return;
        }
        let acknowledged = self.store.acknowledged();
        let held_up = self.store.held_up();
        while let Some(&(seq, waiter)) = self.awaiting.first() {
            let result = match &held_up {
                _ if seq <= acknowledged => Ok(()),
                Some(error) => Err(store_error(error.clone())),
                None => return,
            };
            self.awaiting.pop_first();
            match waiter {
                Waiter::Object(id) => self.on_acknowledged(id, seq, result),
                Waiter::Copy(node) => self.on_checkpoint(node, result),
                Waiter::Props(id) => self.on_props_written(id, result),
            }
        }
    }

    fn next_work(&mut self) -> u64 {
        self.last_work += 1;
        self.last_work
    }
}

/// What a client is told of a store's error.
fn store_error(error: engine::Error) -> Error {
    match error {
        engine::Error::Damaged(damage) => Error::Damaged(damage.to_string()),
        engine::Error::Fenced(cause) => {
            Error::Fenced(format!("the store takes no writes since a failed one: {cause}"))
        }
        error @ engine::Error::Exhausted(_) => Error::Exhausted(error.to_string()),
        engine::Error::Full { .. } => Error::Overload,
        engine::Error::TooLarge { what, len, limit } => Error::TooLarge { what, len, limit },
        other => Error::Store(other.to_string()),
    }
}
