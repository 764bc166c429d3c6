//! Consistent bucket types: the groups of this shard's store, and the requests on their keys.
//!
//! `ConsistentGroups` is a router. Each concern is a component with a state of its own; the groups in memory, lookups
//! and the work that is left are shared by all (`context.rs`).
//!
//! 1. A request on a key of a consistent type waits for a leader of its group (`requests/`). If this store leads, it is
//!    executed here; otherwise the leader's node is asked.
//! 2. A write is planned over the applied version of its key, and proposed; a read is confirmed by a majority and then
//!    looked up (`requests/serve.rs`).
//! 3. A group's outputs are carried out in order: batches go to the journal, committed entries to the ledger
//!    (`journal.rs`), messages into envelopes (`links.rs`), answers to their requests.
//! 4. Reachability of peers follows the liveness of nodes and the agreement (`reach.rs`). Groups of a dead leader stand
//!    for election, those that settled without a voter are woken when it is back, and those with a lost store hear of
//!    the new one, so that their leaders replace the voter (`wakes.rs`).
//! 5. Voters that fell far behind are caught up (`catch_up.rs`, `receive.rs`). Tombstones are reaped (`reaping.rs`).
//! 6. Processes promise each other not to vote against their leaders (`liveness/promises.rs`), and leaders with a
//!    majority's promises serve reads without a round.
//! 7. At a clean stop all groups are handed over, and later those whose preferred voter is another one
//!    (`hand_overs.rs`).
//! 8. Groups at rest leave memory when there are many (`open_groups.rs`, `closed_groups.rs`).
//!
//! * Router: this file, `inputs.rs` (inputs from outside), `open.rs` (the opening of a group).
//! * `agreement.rs`: the cluster's agreement on groups. `voters.rs`: voters by it. `registration.rs`: this store's
//!   part. `birth.rs`: the birth of the store.
//! * `group.rs`: one group with its store's part. `stored_state.rs`: its state in the store. `keys.rs`: its keys.
//! * `report.rs`: reports for operators. * `recover.rs`: recovery of a stopped node's groups. * `adopt.rs`: the copies
//!   of a restored store, and their recovery.
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
mod closed_groups;
mod context;
mod group;
mod hand_overs;
mod incoming_part;
mod inputs;
mod journal;
mod keys;
mod links;
mod lookups;
mod open;
mod open_groups;
mod outgoing_part;
mod pending;
mod proposed_writes;
mod reach;
mod reaping;
mod receive;
pub mod recover;
mod registration;
pub mod report;
mod requests;
mod stored_state;
mod voters;
mod wakes;
mod work;

use std::collections::VecDeque;

use base::Monotonic;
use engine::GroupKeys;
use strong::catch_up::{CatchUpContents, ReceiverInput, ReceiverOutput};
use strong::group::{Input, Output as GroupOutput};
use strong::wake::Urgency;

use self::catch_up::{CatchUps, send_catch_up};
use self::closed_groups::{ClosedGroups, is_stored_whole};
use self::context::SharedParts;
use self::group::GroupKey;
use self::hand_overs::HandOvers;
use self::journal::GroupJournal;
use self::links::GroupLinks;
use self::pending::Pending;
use self::reach::{ReachChange, Reachability};
use self::reaping::Reapings;
use self::receive::take_part;
use self::registration::Registration;
use self::report::GroupsStatus;
use self::requests::GroupRequests;
use self::requests::route::{Route, refuse, route};
use self::wakes::GroupWakes;
use self::work::Todo;
use crate::peer::NodeId;
use crate::shard::env::Env;
use crate::shard::output::Output;

/// Where stores keep the states of groups.
pub const GROUPS: GroupKeys = GroupKeys { state_tag: object::key::TAG_GROUP };

/// All groups of a shard, and the requests on their keys.
pub(crate) struct ConsistentGroups {
    shared: SharedParts,
    closed: ClosedGroups,
    registration: Registration,
    requests: GroupRequests,
    journal: GroupJournal,
    links: GroupLinks,
    reach: Reachability,
    wakes: GroupWakes,
    catch_ups: CatchUps,
    reapings: Reapings,
    hand_overs: HandOvers,
}

impl ConsistentGroups {
    /// Those of a store that was just opened.
    pub fn of(env: &mut Env) -> ConsistentGroups {
        ConsistentGroups {
            shared: SharedParts::default(),
            closed: ClosedGroups::of(env.store.take_groups()),
            registration: Registration::default(),
            requests: GroupRequests::default(),
            journal: GroupJournal::default(),
            links: GroupLinks::default(),
            reach: Reachability::default(),
            wakes: GroupWakes::default(),
            catch_ups: CatchUps::default(),
            reapings: Reapings::default(),
            hand_overs: HandOvers::default(),
        }
    }

    /// Takes all that time and the store have brought. To be called with each turn, after the store's.
    #[inline]
    pub fn take_turn(&mut self, env: &mut Env, now: Monotonic) {
        // Nodes without consistent types pay nothing.
        let is_used = self.registration.is_in_force() || self.len() > 0;
        if is_used || self.registration.birth() != env.birth {
            self.take_turn_of_groups(env, now);
        }
    }

    fn take_turn_of_groups(&mut self, env: &mut Env, now: Monotonic) {
        if self.registration.birth() != env.birth {
            self.on_agreement(env);
        }
        self.shared.groups.begin_turn(env);
        self.take_synced(env, now);
        while let Some(key) = self.shared.groups.take_due(now) {
            self.step(env, key, Input::Tick);
        }
        self.wake(env, now);
        self.catch_ups.tick(&mut self.shared.with(env), now);
        self.reapings.tick(&mut self.shared.with(env), now);
        let SharedParts { groups, work, .. } = &mut self.shared;
        self.hand_overs.give_back(env, groups, &self.reach, work, now);
        self.requests.retry_waiting(env, work, now);
        self.run(env);
        self.requests.look_for_slow(env, &mut self.shared.lookups, now);
        self.links.send_envelopes(env, self.registration.birth(), now);
    }

    /// Does the work that is left, until there is none.
    fn run(&mut self, env: &mut Env) {
        while let Some(todo) = self.shared.work.pop() {
            match todo {
                Todo::Step(key, input) => self.step(env, key, input),
                Todo::Propose { key, index, proposal } => {
                    let token = proposal.token;
                    self.step(env, key, Input::Propose(proposal));
                    self.requests.note_proposed(env, &mut self.shared.groups, key, (index, token));
                }
                Todo::Dispatch(pending) => self.dispatch(env, *pending),
                Todo::Wait(pending) => self.wait(env, *pending),
            }
        }
        if self.shared.groups.are_too_many() {
            self.unload_excess(env);
        }
        env.gauges.consistent = self.len();
        if let Some(next) = self.next_timer() {
            env.deadlines.note(next);
        }
    }

    /// When the next turn has something to do for a timer.
    fn next_timer(&self) -> Option<Monotonic> {
        let groups = &self.shared.groups;
        let timers = [
            groups.next_timer(),
            self.links.next_timer(),
            self.catch_ups.next_timer(groups),
            self.reapings.next_timer(),
            self.wakes.next_timer(),
            self.requests.next_timer(),
        ];
        timers.into_iter().flatten().min()
    }

    /// When a turn has something to do for a deadline or a timer.
    pub fn next_deadline(&self) -> Option<Monotonic> {
        let is_used = self.registration.is_in_force() || self.len() > 0;
        self.next_timer().filter(|_| is_used)
    }

    /// Gives a group an input; it waits while an output of the group waits for the store.
    fn step(&mut self, env: &mut Env, key: GroupKey, input: Input) {
        let Some(held) = self.shared.groups.get_mut(key) else { return };
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
            self.reapings.plan(env, &self.shared.groups, key);
            self.hand_overs.note_change(env.now());
        }
        self.carry_out(env, key, outputs.into());
    }

    /// Carries a group's outputs out, in order, until one has to wait.
    fn carry_out(&mut self, env: &mut Env, key: GroupKey, mut outputs: VecDeque<GroupOutput>) {
        while let Some(output) = outputs.pop_front() {
            match output {
                GroupOutput::Persist(batch) => {
                    self.journal.persist(env, &mut self.shared.groups, key, batch);
                }
                GroupOutput::Send { to, message } => {
                    if let Some(held) = self.shared.groups.get(key) {
                        self.links.send(env, (key, held.id), to, message);
                    }
                }
                GroupOutput::Apply(entries) => {
                    if !self.journal.apply(&mut self.shared.with(env), key, &entries) {
                        let through = entries[entries.len() - 1].index;
                        self.requests.note_unapplied(env, &self.shared.groups, key, through);
                        outputs.push_front(GroupOutput::Apply(entries));
                        return self.shared.groups.hold(key, outputs);
                    }
                    self.reapings.on_applied(&mut self.shared.with(env), key, &entries);
                }
                GroupOutput::Answer { token, answer } => {
                    self.requests.end_served(&mut self.shared.with(env), token, answer);
                }
                GroupOutput::CatchUpWanted { voter } => {
                    self.catch_ups.begin(&mut self.shared.with(env), key, voter);
                }
                GroupOutput::CatchUpEnded { voter } => {
                    self.catch_ups.end(&mut self.shared.groups, key, voter);
                }
                GroupOutput::Forgot => env.out.push(Output::Forgot),
                GroupOutput::Malformed { .. } => env.counters.consistent_malformed += 1,
            }
        }
        self.follow(env, key);
    }

    /// Goes on with a group whose output had to wait.
    fn resume(&mut self, env: &mut Env, key: GroupKey) {
        let Some(held) = self.shared.groups.get_mut(key) else { return };
        let outputs = std::mem::take(&mut held.outputs);
        self.carry_out(env, key, outputs);
        while let Some(held) = self.shared.groups.get_mut(key).filter(|held| !held.is_held())
            && let Some(input) = held.inputs.pop_front()
        {
            self.step(env, key, input);
        }
    }

    /// Follows a group's state after a step: its timer, memory, marks, and the requests that wait for its leader.
    fn follow(&mut self, env: &mut Env, key: GroupKey) {
        self.shared.groups.follow(key);
        // The receiving end hears how far entries are applied.
        let receives = self.shared.groups.get(key).filter(|held| held.checkpoint.is_some());
        if let Some(index) = receives.map(|held| held.group.applied()) {
            self.receive(env, key, ReceiverInput::Applied { index });
        }

        let Some(held) = self.shared.groups.get(key) else { return };
        self.wakes.mark_if_settled(key, held);
        let is_waited_for = self.requests.wait_for(key) || self.wakes.is_leaderless(key);
        if is_waited_for && self.reach.reaches_leader(env, key, held) {
            self.wakes.on_leader(key);
            self.requests.look_for_leader(key, &mut self.shared.work);
        }
    }

    /// Gives the receiving end of a group an input.
    fn receive(&mut self, env: &mut Env, key: GroupKey, input: ReceiverInput) {
        let Some(held) = self.shared.groups.get_mut(key) else { return };
        let mut outputs = Vec::new();
        held.receiver.step(input, &mut outputs);
        self.carry_out_received(env, key, outputs);
    }

    /// Carries the outputs of a receiving end out.
    fn carry_out_received(&mut self, env: &mut Env, key: GroupKey, outputs: Vec<ReceiverOutput>) {
        for output in outputs {
            match output {
                ReceiverOutput::Receiving { is_incomplete } => {
                    self.step(env, key, Input::Receiving { is_incomplete });
                }
                ReceiverOutput::Write { drops, items, checkpoint } => {
                    let cx = &mut self.shared.with(env);
                    self.reapings.note_part(cx, key, &items);
                    if take_part(cx, key, (drops, items), checkpoint) {
                        self.journal.write_part(env, &mut self.shared.groups, key);
                    }
                }
                ReceiverOutput::Received { index, term } => {
                    self.shared.work.step(key, Input::Received { index, term });
                }
                ReceiverOutput::Send(message) => {
                    let held = self.shared.groups.get(key);
                    if let Some((held, sender)) = held.and_then(|held| Some((held, held.sender?))) {
                        send_catch_up(env, (key, held), sender, CatchUpContents::ToSender(message));
                    }
                }
                ReceiverOutput::Forget => {
                    if let Some(held) = self.shared.groups.get_mut(key) {
                        held.checkpoint = None;
                    }
                    self.journal.write_state(env, &mut self.shared.groups, key);
                }
            }
        }
    }

    /// Tells groups of records that are synced, and writes those that the store has refused before.
    fn take_synced(&mut self, env: &mut Env, now: Monotonic) {
        self.journal.write_refused(env, &mut self.shared.groups, now);
        let synced = env.store.synced_jsn();
        while let Some(done) = self.journal.take_synced(synced) {
            let Some((number, through)) = done.batch else {
                self.receive(env, done.key, ReceiverInput::Synced);
                continue;
            };
            self.requests.note_synced(env, &mut self.shared.groups, done.key, through);
            self.shared.work.step(done.key, Input::Persisted { number });
        }
        for key in self.journal.take_unapplied() {
            self.resume(env, key);
        }
        if self.reach.set_stalled(self.journal.is_stalled(env, &self.shared.groups, now)) {
            self.follow_peers(env, &env.peers.all().collect::<Vec<_>>());
        }
    }

    /// Serves a request, asks its leader, or has it wait.
    fn dispatch(&mut self, env: &mut Env, mut pending: Pending) {
        let key = pending.group;
        let was_open = self.shared.groups.has(key);
        let is_open = self.open_in(env, key, None);
        let SharedParts { groups, work, .. } = &mut self.shared;
        let held = groups.get(key).filter(|_| is_open).map(|held| (held, !was_open));
        match route(env, &self.reach, work, held, &mut pending) {
            Route::Serve => self.requests.serve(&mut self.shared.with(env), pending),
            Route::ServeAsFollower => {
                pending.asked += 1;
                self.requests.serve(&mut self.shared.with(env), pending);
            }
            Route::Ask(node) => {
                if let Err(pending) = self.requests.ask(env, node, pending) {
                    self.wait(env, *pending);
                }
            }
            Route::Refuse(leader) => refuse(env, &pending, leader),
            Route::Wait => self.wait(env, pending),
        }
    }

    /// Has a request wait for a leader. Its election comes before those that nobody waits for.
    fn wait(&mut self, env: &mut Env, pending: Pending) {
        let key = pending.group;
        let leader = self.shared.groups.get(key).and_then(|held| held.group.leader());
        if self.requests.wait(env, pending)
            && leader.is_some_and(|leader| !self.reach.reaches(env, key, leader))
        {
            self.wakes.push_leaderless(key, Urgency::Waiting);
        }
    }

    /// Compares the reachability of nodes with that which groups know.
    fn follow_peers(&mut self, env: &mut Env, nodes: &[NodeId]) {
        for &node in nodes {
            let Some(change) = self.reach.follow(env, node) else { continue };
            self.hand_overs.note_change(env.now());
            let SharedParts { groups, work, .. } = &mut self.shared;
            match change {
                ReachChange::Back { is_another } => {
                    self.wakes.on_back(env, (groups, &self.closed), work, node, is_another);
                }
                ReachChange::Away => {
                    self.requests.ask_others(env, work, node);
                    self.wakes.on_away(env, (groups, &self.closed, &self.requests), work, node);
                    let closed = self.registration.is_in_force().then_some(&self.closed);
                    self.wakes.queue_renewed(env, groups, closed, &self.reach, &self.requests);
                }
            }
        }
    }

    /// Wakes groups at their pace.
    fn wake(&mut self, env: &mut Env, now: Monotonic) {
        for key in self.wakes.take_leaderless(now) {
            if !self.open_to_wake(env, key) {
                continue;
            }
            let SharedParts { groups, work, .. } = &mut self.shared;
            let Some(held) = groups.get(key) else { continue };
            for &voter in held.voters.iter().filter(|voter| **voter != held.voter) {
                work.step(key, Input::Reachable { voter, is_up: self.reach.reaches(env, key, voter) });
            }
        }
        for key in self.wakes.take_renewed(now) {
            if self.open_to_wake(env, key) {
                let SharedParts { groups, work, .. } = &mut self.shared;
                self.hand_overs.note_change(now);
                wakes::renew(env, groups, &self.reach, work, key);
            }
        }
        for (key, voter) in self.wakes.take_marked(now) {
            if self.open_to_wake(env, key) {
                let is_up = self.reach.reaches(env, key, voter);
                self.shared.work.step(key, Input::Restarted { voter });
                self.shared.work.step(key, Input::Reachable { voter, is_up });
            }
        }
    }

    /// Opens a group that is woken. A dormant one that has no room now is queued again.
    fn open_to_wake(&mut self, env: &mut Env, key: GroupKey) -> bool {
        let is_open = self.open_in(env, key, None);
        if !is_open && self.closed.record(key).is_some() {
            self.wakes.push_leaderless(key, Urgency::Other);
        }
        is_open
    }

    /// Unloads groups at rest of which the store has all, as long as there are more open ones than the bound. Queues no
    /// work.
    fn unload_excess(&mut self, env: &mut Env) {
        let ConsistentGroups { shared, closed, requests, journal, wakes, reapings, .. } = self;
        let unloaded = shared.groups.unload_excess(|key, held| {
            // A leader whose voters have not settled has work to do. A follower reaps nothing by itself.
            let has_duty =
                held.group.leads() && (!wakes.are_settled(key, held) || reapings.has_deletion(key));
            let has_work = !held.is_idle() || requests.wait_for(key) || journal.has_record_of(key);
            let record = held.group.dormant().filter(|_| !has_duty && !has_work);
            let record = record.filter(|_| is_stored_whole(env, key, held));
            record.map(|record| closed.add_record(key, record)).is_some()
        });
        env.counters.consistent_unloads += unloaded as u64;
    }

    /// Bounds the open groups beyond which those at rest are unloaded.
    pub fn bound_open_groups(&mut self, most: usize) {
        self.shared.groups.bound(most);
    }

    /// Requests under way.
    pub fn len(&self) -> usize {
        self.requests.len() + self.shared.lookups.requests()
    }

    /// The state of the groups, for operators and for a stop.
    pub fn status<'a>(&'a self, env: &'a Env) -> GroupsStatus<'a> {
        GroupsStatus {
            env,
            groups: &self.shared.groups,
            closed: &self.closed,
            reach: &self.reach,
            wakes: &self.wakes,
            hand_overs: &self.hand_overs,
        }
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        assert!(self.shared.work.is_empty(), "work is done before the next input");
        assert_eq!(env.gauges.consistent, self.len(), "all requests are counted");
        let has_groups = !self.shared.groups.is_empty() || self.closed.has_dormant();
        assert!(!has_groups || self.registration.is_in_force(), "groups are of a registered store");
        self.shared.groups.invariants();
        self.shared.lookups.invariants();
        self.reapings.invariants();
    }
}
