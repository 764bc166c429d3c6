//! Consistent bucket types: the groups of this shard's store, and the requests on their keys.
//!
//! 1. A request on a key of a consistent type waits for a leader of its group (`dispatch.rs`). If this store leads, it
//!    is served here; otherwise the leader's node is asked (`forward.rs`).
//! 2. A served write is planned over the applied version of its key, and proposed; a served read is confirmed by a
//!    majority and then looked up (`serve.rs`).
//! 3. A group's outputs are carried out in order: batches go to the journal, committed entries to the ledger
//!    (`journal.rs`), messages into envelopes (`links.rs`), answers to their requests.
//! 4. Reachability of peers follows the liveness of nodes and the agreement (`peers.rs`): groups of a dead leader stand
//!    for election, those that settled without a voter are woken when it is back, and those with a lost store hear of
//!    the new one, so that their leaders replace the voter.
//! 5. Voters that fell far behind are caught up (`catch_up.rs`), and tombstones are reaped (`reaping.rs`).
//! 6. Processes promise each other not to vote against their leaders (`liveness/promises.rs`), and leaders with a
//!    majority's promises serve reads without a round (`serve.rs`).
//! 7. At a clean stop all groups are handed over, and later those whose preferred voter is another one (`leaders.rs`).
//! 8. Groups at rest leave memory when there are many (`dormant.rs`).
//!
//! * `agreement.rs`: the cluster's agreement on groups. * `birth.rs`: the birth of the store. * `group.rs`: one group
//!   with its store's part. * `open.rs`: its opening. * `stored_state.rs`: its state in the store.
//! * `report.rs`: reports for operators. * `recover.rs`: recovery of a stopped node's groups. * `adopt.rs`: the copies
//!   of a restored store, and their recovery. * `slow.rs`: slow requests.
//!
//! Invariants: a group takes part only while the cluster has registered this process with this store's birth. Outputs
//! of a group take effect in their order. Each request is answered once.
//!
//! Left out: consensus itself (crate `strong`), records (`engine`), foundings and registrations (`membership` and the
//! shell).

pub mod adopt;
pub mod agreement;
pub mod birth;
mod catch_up;
mod dispatch;
mod dormant;
mod forward;
mod group;
mod incoming_part;
mod journal;
mod leaders;
mod links;
mod open;
mod outgoing_part;
mod peers;
mod reaping;
pub mod recover;
pub mod report;
mod serve;
mod slow;
mod stored_state;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{FastMap, Monotonic};
use engine::{FoundGroup, GroupKeys};
use ring::Birth;
use strong::dormant::{DormantGroups, LiveGroups};
use strong::envelope::Outgoing;
use strong::forward::ForwardWindow;
use strong::group::{Answer, Input, Output as GroupOutput, WINDOW_BYTES_MAX, Window};
use strong::wake::{MarkedGroups, WakeQueue};

use self::dispatch::Waiting;
use self::forward::Asked;
use self::group::{GroupKey, HeldGroup};
use self::journal::Journal;
use self::peers::Reach;
use self::serve::Served;
use crate::frontdoor::slow::SlowLooks;
use crate::peer::NodeId;
use crate::shard::env::Env;
use crate::shard::output::Output;

/// Where stores keep the states of groups.
pub const GROUPS: GroupKeys = GroupKeys { state_tag: object::key::TAG_GROUP };

/// Groups in memory at once: some 64 MiB of them. No other one is loaded beyond it.
const GROUPS_MAX: usize = 37_000;

/// Live groups beyond which those at rest are unloaded: room is left for a second of wakes.
const LIVE_MAX: usize = GROUPS_MAX - strong::wake::WAKES_PER_SECOND;

/// Work that the step of a group has left, in the order in which it came.
enum Todo {
    /// A group is to take an input.
    Step(GroupKey, Input),
    /// A request is to find its leader.
    Dispatch(Box<dispatch::Pending>),
}

/// All groups of a shard, and the requests on their keys.
pub(crate) struct ConsistentGroups {
    groups: FastMap<GroupKey, HeldGroup>,
    /// The order in which live groups are looked at for unloading.
    live: LiveGroups<GroupKey>,
    /// Live groups beyond which those at rest are unloaded.
    live_max: usize,
    dormant: DormantGroups<GroupKey>,
    /// Groups as the store's open found them, until they take part.
    found: BTreeMap<GroupKey, FoundGroup>,
    waiting: Waiting,
    served: Served,
    asked: Asked,
    /// When requests are looked at, to find those that have come to be slow.
    looks: SlowLooks,
    journal: Journal,
    /// Writes that other nodes have passed on.
    window: ForwardWindow,
    /// Log entries in memory.
    memory: Window<GroupKey>,
    /// Messages of this turn.
    outgoing: Option<Outgoing>,
    /// The reachability of other nodes.
    reach: BTreeMap<NodeId, Reach>,
    marked: MarkedGroups<GroupKey>,
    leaderless: WakeQueue<GroupKey>,
    /// Groups with another voter than they know, or with one to be replaced.
    renewed: WakeQueue<GroupKey>,
    /// Groups whose states are of an earlier birth of the store.
    left: BTreeSet<GroupKey>,
    /// The birth under which groups were left last.
    left_birth: Option<Birth>,
    /// Groups whose states contradict their entries: they stay closed for this birth.
    refused: BTreeSet<GroupKey>,
    timers: BTreeSet<(Monotonic, GroupKey)>,
    todo: VecDeque<Todo>,
    scans: BTreeMap<engine::fold::ScanId, catch_up::Scan>,
    transfers: catch_up::Transfers,
    deletions: reaping::Deletions,
    /// The process is registered with the store's birth.
    is_registered: bool,
    /// The birth that `is_registered` was decided for.
    birth: Option<Birth>,
    hand_overs: leaders::HandOvers,
    /// The reading of the lease clock when this turn began.
    turn_began: Monotonic,
    /// The oldest batch has waited too long for its sync, or the store takes no writes.
    is_stalled: bool,
}

impl ConsistentGroups {
    /// Those of a store that was just opened.
    pub fn of(env: &mut Env) -> ConsistentGroups {
        let found = env.store.take_groups();
        let found = found.into_iter().map(|group| (GroupKey::of_number(group.group), group)).collect();
        ConsistentGroups {
            groups: FastMap::default(),
            live: LiveGroups::default(),
            live_max: LIVE_MAX,
            dormant: DormantGroups::default(),
            found,
            waiting: Waiting::default(),
            served: Served::default(),
            asked: Asked::default(),
            looks: SlowLooks::default(),
            journal: Journal::default(),
            window: ForwardWindow::default(),
            memory: Window::new(WINDOW_BYTES_MAX),
            outgoing: None,
            reach: BTreeMap::new(),
            marked: MarkedGroups::default(),
            leaderless: WakeQueue::default(),
            renewed: WakeQueue::default(),
            left: BTreeSet::new(),
            left_birth: None,
            refused: BTreeSet::new(),
            timers: BTreeSet::new(),
            todo: VecDeque::new(),
            scans: BTreeMap::new(),
            transfers: catch_up::Transfers::default(),
            deletions: reaping::Deletions::default(),
            is_registered: false,
            birth: None,
            hand_overs: leaders::HandOvers::default(),
            turn_began: Monotonic(0),
            is_stalled: false,
        }
    }

    /// Takes all that time and the store have brought. To be called with each turn, after the store's.
    #[inline]
    pub fn take_turn(&mut self, env: &mut Env, now: Monotonic) {
        // Nodes without consistent types pay nothing.
        if !self.is_unused() || self.birth != env.birth {
            self.take_turn_of_groups(env, now);
        }
    }

    /// Whether there is no group and no request.
    #[inline]
    fn is_unused(&self) -> bool {
        !self.is_registered && self.len() == 0
    }

    fn take_turn_of_groups(&mut self, env: &mut Env, now: Monotonic) {
        if self.birth != env.birth {
            self.on_agreement(env);
        }
        // Groups close promises by a reading that is at most a turn old.
        self.turn_began = env.clock.lease();
        env.leases.tables.advance(self.turn_began);
        self.take_synced(env, now);
        self.tick_groups(env, now);
        self.wake(env, now);
        self.tick_catch_ups(env, now);
        self.tick_reapings(env, now);
        self.give_back(env, now);
        self.retry_waiting(env, now);
        self.run(env);
        self.look_for_slow(env, now);
        self.send_envelopes(env, now);
    }

    /// Takes a step of each group with work, until none is left.
    fn run(&mut self, env: &mut Env) {
        while let Some(todo) = self.todo.pop_front() {
            match todo {
                Todo::Step(key, input) => self.step(env, key, input),
                Todo::Dispatch(pending) => self.dispatch(env, *pending),
            }
        }
        if self.groups.len() > self.live_max {
            self.unload_excess(env);
        }
        env.gauges.consistent = self.len();
        if let Some(next) = self.next_timer() {
            env.deadlines.note(next);
        }
    }

    /// When the next turn has something to do for a timer.
    pub fn next_timer(&self) -> Option<Monotonic> {
        let groups = self.timers.first().map(|(at, _)| *at);
        let notes = self.outgoing.as_ref().and_then(Outgoing::next_timer);
        let wakes = [self.marked.next_timer(), self.leaderless.next_timer(), self.renewed.next_timer()];
        let requests = [self.waiting.next_timer(), self.asked.next_deadline(), self.looks.next()];
        groups
            .into_iter()
            .chain(notes)
            .chain(self.catch_up_timer())
            .chain(self.deletions.next_timer())
            .chain(wakes.into_iter().chain(requests).flatten())
            .min()
    }

    /// Gives a group an input; it waits while an output of the group waits for the store.
    fn step(&mut self, env: &mut Env, key: GroupKey, input: Input) {
        let Some(held) = self.groups.get_mut(&key) else { return };
        held.was_used = true;
        if held.is_held() {
            held.inputs.push_back(input);
            return;
        }
        let mut outputs = Vec::new();
        let (has_led, was_new) = (held.group.leads(), held.group.is_new());
        held.group.step(input, env.now(), &mut outputs);
        if !has_led && held.group.leads() {
            match held.group.is_handed_over() {
                _ if was_new => env.counters.consistent_groups_begun += 1,
                true => env.counters.consistent_hand_overs += 1,
                false => env.counters.consistent_elections += 1,
            }
            self.plan_reaping(env, key);
            self.hand_overs.note_change(env.now());
        }
        self.carry_out(env, key, outputs.into());
    }

    /// Carries a group's outputs out, in order, until one has to wait.
    fn carry_out(&mut self, env: &mut Env, key: GroupKey, mut outputs: VecDeque<GroupOutput>) {
        while let Some(output) = outputs.pop_front() {
            match output {
                GroupOutput::Persist(batch) => self.persist(env, key, batch),
                GroupOutput::Send { to, message } => self.send(env, key, to, message),
                GroupOutput::Apply(entries) => {
                    if !self.apply(env, key, &entries) {
                        self.note_unapplied(env, key, entries[entries.len() - 1].index);
                        outputs.push_front(GroupOutput::Apply(entries));
                        let held = self.groups.get_mut(&key).expect("it is carried out");
                        held.outputs = outputs;
                        return;
                    }
                }
                GroupOutput::Answer { token, answer } => self.on_answer(env, token, answer),
                GroupOutput::CatchUpWanted { voter } => self.begin_catch_up(env, key, voter),
                GroupOutput::CatchUpEnded { voter } => self.end_catch_up(key, voter),
                GroupOutput::Forgot => env.out.push(Output::Forgot),
                GroupOutput::Malformed { .. } => env.counters.consistent_malformed += 1,
            }
        }
        self.follow(env, key);
    }

    /// Goes on with a group whose output had to wait.
    fn resume(&mut self, env: &mut Env, key: GroupKey) {
        let Some(held) = self.groups.get_mut(&key) else { return };
        let outputs = std::mem::take(&mut held.outputs);
        self.carry_out(env, key, outputs);
        while let Some(held) = self.groups.get_mut(&key).filter(|held| !held.is_held())
            && let Some(input) = held.inputs.pop_front()
        {
            self.step(env, key, input);
        }
    }

    /// Follows a group's state after a step: its timer, memory, marks, and the requests that wait for its leader.
    fn follow(&mut self, env: &mut Env, key: GroupKey) {
        let Some(held) = self.groups.get_mut(&key) else { return };
        let timer = held.group.next_timer();
        if timer != held.timer {
            held.timer.take().map(|at| self.timers.remove(&(at, key)));
            timer.map(|at| self.timers.insert((at, key)));
            held.timer = timer;
        }

        let bytes = held.group.log_bytes();
        if bytes != std::mem::replace(&mut held.log_bytes, bytes) {
            self.memory.note(key, bytes);
            for (other, keeps) in self.memory.over() {
                if let Some(other) = self.groups.get_mut(&other) {
                    other.group.trim(keeps);
                    other.log_bytes = other.group.log_bytes();
                }
            }
        }

        self.follow_receiver(env, key);
        self.mark_if_settled(key);
        let is_waited_for = self.waiting.has(key) || self.leaderless.has(key);
        if is_waited_for && self.has_reached_leader(env, key) {
            self.leaderless.remove(key);
            self.todo.extend(self.waiting.take(key).into_iter().map(|it| Todo::Dispatch(Box::new(it))));
        }
    }

    /// Whether requests of a group have somewhere to go. A group that waits to be told of its leader's loss still takes
    /// it for reached.
    fn has_reached_leader(&self, env: &Env, key: GroupKey) -> bool {
        let Some(held) = self.groups.get(&key) else { return false };
        held.has_leader() && held.group.leader().is_some_and(|leader| self.reaches(env, key, leader))
    }

    /// Lets the groups take their time.
    fn tick_groups(&mut self, env: &mut Env, now: Monotonic) {
        while let Some(&(at, key)) = self.timers.first()
            && at <= now
        {
            self.timers.remove(&(at, key));
            if let Some(held) = self.groups.get_mut(&key) {
                held.timer = None;
                if held.is_held() {
                    continue;
                }
            }
            self.step(env, key, Input::Tick);
        }
    }

    /// Requests under way.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.served.len() + self.asked.len()
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        assert!(self.todo.is_empty(), "work is done before the next input");
        assert_eq!(env.gauges.consistent, self.len(), "all requests are counted");
        assert!(self.groups.len() <= GROUPS_MAX, "groups are bounded");
        let has_groups = !self.groups.is_empty() || !self.dormant.is_empty();
        assert!(!has_groups || self.is_registered, "groups are of a registered store");
        self.deletions.invariants();
    }

    /// Gives an answer of a group to its request.
    fn on_answer(&mut self, env: &mut Env, token: u64, answer: Answer) {
        if let Some(request) = self.served.take(token) {
            self.end_served(env, request, answer);
        }
    }

    /// Handles an answer of the store to a lookup, if a request or a group of a consistent type waits for it.
    pub fn on_lookup(
        &mut self,
        env: &mut Env,
        id: engine::store::LookupId,
        answer: Result<Option<engine::Found>, engine::Error>,
    ) -> Option<Result<Option<engine::Found>, engine::Error>> {
        if self.served.has_no_lookups() {
            return Some(answer);
        }
        let Some(lookup) = self.served.take_lookup(id) else { return Some(answer) };
        self.on_found(env, lookup, answer);
        self.run(env);
        None
    }
}
