//! Voters of one group, each with a journal, on a network that loses, doubles, delays and cuts, and their clients.
//!
//! A journal is a list of records. A crash keeps those that are synced and some of the others, in order; a start plays
//! them again. Nodes ping each other on the same network, and hold a peer for down after a while of silence. Clients send
//! one request at a time; each request and its answer is an operation of a history.
//!
//! Checked after each step: one leader of each term, and one entry at each index of what is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use bytes::Bytes;
use ring::NodeId;
use strong::group::{
    Answer, Batch, Birth, Cause, Condition, Configuration, Entry, Group, GroupState, Identity, Input, Output,
    Proposal, Version, VoterId, Write,
};
use strong::linearizability::{Action, Operation, Outcome, STATES_MAX, Verdict, check};

pub const MILLISECOND: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLISECOND;

const FOUNDING: u64 = 0xF00D;

/// Interval of pings between nodes.
const PING_EVERY: u64 = 200 * MILLISECOND;

/// Silence after which a peer counts as down.
const SILENT_AFTER: Duration = Duration::from_millis(1_200);

/// Age up to which a message is a sign of life.
const FRESH: Duration = Duration::from_secs(1);

/// A record of a node's journal.
#[derive(Clone)]
enum Record {
    Batch(Batch),
    /// All entries up to an index are applied.
    Applied(u64),
}

/// The value of a key and its version.
type Held = (Version, u64);

/// What a journal says.
struct Replayed {
    state: GroupState,
    entries: Vec<Entry>,
    table: BTreeMap<Bytes, Held>,
}

pub struct Node {
    /// The birth that the cluster has registered.
    birth: Birth,
    pub group: Option<Group>,
    /// Number of this start of the process.
    life: u64,
    pub table: BTreeMap<Bytes, Held>,
    disk: Vec<Record>,
    /// Records that are synced.
    synced: usize,
    last_sync: Monotonic,
    paused_until: Monotonic,
    /// When each peer was heard, and its life.
    heard: BTreeMap<usize, (Monotonic, u64)>,
    up: BTreeSet<usize>,
    /// It lost its disk, and is another voter now, which no group knows.
    pub is_gone: bool,
    /// Its group said that it forgot.
    pub forgot: bool,
}

#[derive(Clone)]
enum Wire {
    Ping,
    Message(Bytes),
}

#[derive(Clone)]
enum Event {
    Deliver { from: usize, life: u64, sent: Monotonic, to: usize, wire: Wire },
    Synced { node: usize, life: u64, number: u64, records: usize },
    Ping { node: usize, life: u64 },
    Register { node: usize, life: u64 },
    Start { node: usize },
    Restart { node: usize },
    Join { pair: (usize, usize) },
    Think { client: usize },
    Request { node: usize, token: u64 },
    Fault,
}

/// A request that waits for its answer.
struct Pending {
    client: usize,
    key: Bytes,
    operation: Operation,
    condition: Condition,
    node: usize,
}

#[derive(Default)]
struct Client {
    /// The node that it asks.
    node: usize,
    /// What it has seen of each key.
    seen: BTreeMap<Bytes, Held>,
}

/// Faults that a world has.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub lost_of_thousand: u64,
    pub late_of_thousand: u64,
    /// Mean time between two faults; none without.
    pub every: Option<u64>,
    /// Whether disks are lost, too.
    pub loses_disks: bool,
}

pub struct World {
    pub now: Monotonic,
    pub nodes: Vec<Node>,
    pub faults: Faults,
    pub cuts: BTreeSet<(usize, usize)>,
    /// A pair whose messages are on their way until a test lets them arrive.
    pub slow: Option<(usize, usize)>,
    delayed: Vec<Event>,
    pub histories: BTreeMap<Bytes, Vec<Operation>>,
    /// Outcomes of requests, counted.
    pub counts: BTreeMap<&'static str, u64>,
    pub sent: u64,
    events: BTreeMap<(Monotonic, u64), Event>,
    sequence: u64,
    rng: SplitMix64,
    clients: Vec<Client>,
    pending: BTreeMap<u64, Pending>,
    token: u64,
    value: u64,
    /// Numbers calls and returns.
    instant: u64,
    entries: BTreeMap<u64, Entry>,
    leaders: BTreeMap<u64, usize>,
    configuration: Configuration,
    has_clients: bool,
}

pub fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number}"))
}

fn voter(node: usize, birth: Birth) -> VoterId {
    VoterId { node: NodeId(u16::try_from(node).unwrap()), birth }
}

impl World {
    pub fn new(seed: u64, nodes: usize, clients: usize) -> World {
        let mut rng = SplitMix64::new(seed);
        let births: Vec<Birth> = (0..nodes).map(|_| Birth::draw(&mut rng)).collect();
        let voters = births.iter().enumerate().map(|(node, birth)| voter(node, *birth));
        let configuration = Configuration::of_voters(voters);
        let node = |birth| Node {
            birth,
            group: None,
            life: 0,
            table: BTreeMap::new(),
            disk: Vec::new(),
            synced: 0,
            last_sync: Monotonic(0),
            paused_until: Monotonic(0),
            heard: BTreeMap::new(),
            up: BTreeSet::new(),
            is_gone: false,
            forgot: false,
        };
        let mut world = World {
            now: Monotonic(SECOND),
            nodes: births.into_iter().map(node).collect(),
            faults: Faults::default(),
            cuts: BTreeSet::new(),
            slow: None,
            delayed: Vec::new(),
            histories: BTreeMap::new(),
            counts: BTreeMap::new(),
            sent: 0,
            events: BTreeMap::new(),
            sequence: 0,
            rng,
            clients: (0..clients).map(|_| Client::default()).collect(),
            pending: BTreeMap::new(),
            token: 0,
            value: 0,
            instant: 0,
            entries: BTreeMap::new(),
            leaders: BTreeMap::new(),
            configuration,
            has_clients: true,
        };
        (0..nodes).for_each(|node| world.start(node));
        (0..clients).for_each(|client| world.after(0, Event::Think { client }));
        world
    }

    /// A world whose only client asks what a test tells it to.
    pub fn quiet(seed: u64, nodes: usize) -> World {
        let mut world = World::new(seed, nodes, 1);
        world.has_clients = false;
        world
    }

    /// Begins with faults.
    pub fn with_faults(mut self, faults: Faults) -> World {
        self.faults = faults;
        self.after(SECOND, Event::Fault);
        self
    }

    pub fn voter(&self, node: usize) -> VoterId {
        voter(node, self.nodes[node].birth)
    }

    pub fn group(&self, node: usize) -> &Group {
        self.nodes[node].group.as_ref().unwrap()
    }

    /// The node that leads in the highest term.
    pub fn leader(&self) -> Option<usize> {
        let leads = |node: &usize| self.nodes[*node].group.as_ref().is_some_and(Group::leads);
        (0..self.nodes.len()).filter(leads).max_by_key(|&node| self.group(node).term())
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.below(bound as u64)).unwrap()
    }

    fn after(&mut self, nanos: u64, event: Event) {
        self.at(Monotonic(self.now.0 + nanos), event);
    }

    fn at(&mut self, at: Monotonic, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }

    /// Lets time pass.
    pub fn run(&mut self, nanos: u64) {
        let end = Monotonic(self.now.0 + nanos);
        while self.advance(end) {}
    }

    /// Lets time pass until a condition holds, which is looked at after each event; whether it came to hold.
    pub fn run_until(&mut self, nanos: u64, holds: impl Fn(&World) -> bool) -> bool {
        let end = Monotonic(self.now.0 + nanos);
        while !holds(self) && self.advance(end) {}
        holds(self)
    }

    /// Lets the next event before `end` happen; false if there is none.
    fn advance(&mut self, end: Monotonic) -> bool {
        let timer = |(number, node): (usize, &Node)| {
            let timer = node.group.as_ref()?.next_timer()?;
            Some((timer.max(self.now).max(node.paused_until), number))
        };
        let timer = self.nodes.iter().enumerate().filter_map(timer).min();
        let event = self.events.first_key_value().map(|(&(at, _), _)| at);
        let next = timer.map(|(at, _)| at).into_iter().chain(event).min();
        let Some(next) = next.filter(|next| *next <= end) else {
            self.now = end;
            return false;
        };
        self.now = next.max(self.now);
        if event == Some(next) {
            let (_, event) = self.events.pop_first().unwrap();
            self.on_event(event);
        } else if let Some((_, node)) = timer {
            self.step(node, Input::Tick);
        }
        true
    }

    fn on_event(&mut self, event: Event) {
        let node = match event {
            Event::Deliver { to, .. } => Some(to),
            Event::Synced { node, .. }
            | Event::Ping { node, .. }
            | Event::Register { node, .. }
            | Event::Request { node, .. } => Some(node),
            _ => None,
        };
        let paused_until = node.map_or(Monotonic(0), |node| self.nodes[node].paused_until);
        if paused_until > self.now {
            return self.at(paused_until, event);
        }
        match event {
            Event::Deliver { from, life, sent, to, wire } => self.on_delivered((from, life), sent, to, wire),
            Event::Synced { node, life, number, records } => {
                if self.nodes[node].life == life {
                    self.nodes[node].synced = records;
                    self.step(node, Input::Persisted { number });
                }
            }
            Event::Ping { node, life } => self.ping(node, life),
            Event::Register { node, life } => {
                if self.nodes[node].life == life {
                    self.step(node, Input::Registered);
                }
            }
            Event::Start { node } => self.start(node),
            Event::Restart { node } => {
                self.crash(node);
                self.start(node);
            }
            Event::Join { pair } => {
                self.cuts.remove(&pair);
            }
            Event::Think { client } => self.think(client),
            Event::Request { node, token } => self.on_request(node, token),
            Event::Fault => self.fault(),
        }
    }

    fn send(&mut self, from: usize, to: usize, wire: Wire) {
        self.sent += 1;
        if self.cuts.contains(&(from, to)) || self.rng.chance(self.faults.lost_of_thousand, 1_000) {
            return;
        }
        let (life, sent) = (self.nodes[from].life, self.now);
        if self.slow == Some((from, to)) {
            return self.delayed.push(Event::Deliver { from, life, sent, to, wire });
        }
        for _ in 0..if self.rng.chance(1, 20) { 2 } else { 1 } {
            let is_late = self.rng.chance(self.faults.late_of_thousand, 1_000);
            let late = if is_late { self.rng.below(4 * SECOND) } else { 0 };
            let delay = MILLISECOND / 10 + self.rng.below(5 * MILLISECOND) + late;
            self.after(delay, Event::Deliver { from, life, sent, to, wire: wire.clone() });
        }
    }

    fn on_delivered(&mut self, (from, life): (usize, u64), sent: Monotonic, to: usize, wire: Wire) {
        if self.nodes[to].group.is_none() {
            return;
        }
        let known = self.nodes[to].heard.get(&from).map_or(0, |(_, life)| *life);
        // A node knows how old a message is by the echo of its own pings; an old one is no sign of life.
        let is_fresh = self.now.since(sent) < FRESH;
        if life >= known && (is_fresh || life > known) {
            self.nodes[to].heard.insert(from, (self.now, life));
        }
        let voter = self.voter(from);
        if life > known && known > 0 {
            self.step(to, Input::Restarted { voter });
        }
        if is_fresh && self.nodes[to].up.insert(from) {
            self.step(to, Input::Reachable { voter, is_up: true });
        }
        if let Wire::Message(message) = wire {
            self.step(to, Input::Message { from: voter, message });
        }
    }

    fn ping(&mut self, node: usize, life: u64) {
        if self.nodes[node].life != life || self.nodes[node].group.is_none() {
            return;
        }
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            let heard = self.nodes[node].heard.get(&other).map_or(Monotonic(0), |(at, _)| *at);
            if self.now.since(heard) > SILENT_AFTER && self.nodes[node].up.remove(&other) {
                let voter = self.voter(other);
                self.step(node, Input::Reachable { voter, is_up: false });
            }
            self.send(node, other, Wire::Ping);
        }
        self.after(PING_EVERY, Event::Ping { node, life });
    }

    fn replay(&self, node: usize) -> Replayed {
        let mut state = GroupState::found(FOUNDING, self.configuration.clone());
        let (mut entries, mut table) = (BTreeMap::new(), BTreeMap::new());
        for record in &self.nodes[node].disk {
            match record {
                Record::Batch(batch) => {
                    state.hard = batch.hard.unwrap_or(state.hard);
                    for entry in &batch.entries {
                        let is_other = |known: &Entry| known.term != entry.term;
                        if entries.get(&entry.index).is_some_and(is_other) {
                            entries.split_off(&entry.index);
                        }
                        entries.insert(entry.index, entry.clone());
                    }
                }
                Record::Applied(through) => {
                    for (_, entry) in entries.range(state.applied + 1..=*through) {
                        apply(&mut table, entry);
                    }
                    (state.applied, state.commit) = (*through, *through);
                }
            }
        }
        Replayed { state, entries: entries.into_values().collect(), table }
    }

    /// Starts a node that is down.
    pub fn start(&mut self, node: usize) {
        if self.nodes[node].group.is_some() || self.nodes[node].is_gone {
            return;
        }
        let Replayed { state, entries, table } = self.replay(node);
        self.open(node, state, entries, table, None);
    }

    /// Starts a node of which entries from an index on are damaged.
    pub fn start_damaged(&mut self, node: usize, from: u64) {
        let Replayed { state, mut entries, table } = self.replay(node);
        let through = entries.last().unwrap().index;
        assert!(state.applied < from && from <= through, "an entry that is not applied");
        entries.retain(|entry| entry.index < from);
        self.open(node, state, entries, table, Some(through));
    }

    fn open(
        &mut self,
        node: usize,
        state: GroupState,
        entries: Vec<Entry>,
        table: BTreeMap<Bytes, Held>,
        suspect_through: Option<u64>,
    ) {
        let rank = u32::try_from(node).unwrap();
        let identity = Identity { voter: self.voter(node), rank, founding: FOUNDING, epoch: 0 };
        let rng = Box::new(SplitMix64::new(self.rng.next_u64()));
        let group = Group::open(identity, state, entries, suspect_through, rng).unwrap();
        let others = (0..self.nodes.len()).filter(|other| *other != node);
        let it = &mut self.nodes[node];
        it.life += 1;
        (it.group, it.table, it.up) = (Some(group), table, others.clone().collect());
        it.heard = others.map(|other| (other, (self.now, 0))).collect();
        let life = it.life;
        let (ping, register) = (self.rng.below(PING_EVERY), self.rng.below(200 * MILLISECOND));
        self.after(ping, Event::Ping { node, life });
        self.after(register, Event::Register { node, life });
    }

    /// Ends a node's process; of its records that are not synced, the first few stay.
    pub fn crash(&mut self, node: usize) {
        if self.nodes[node].group.take().is_none() {
            return;
        }
        let unsynced = self.nodes[node].disk.len() - self.nodes[node].synced;
        let kept = self.nodes[node].synced + self.below(unsynced + 1);
        let it = &mut self.nodes[node];
        it.disk.truncate(kept);
        it.synced = kept;
        it.paused_until = Monotonic(0);
        it.life += 1;
        let lost: Vec<u64> =
            self.pending.iter().filter(|(_, it)| it.node == node).map(|(&it, _)| it).collect();
        for token in lost {
            let outcome = match self.pending[&token].operation.action {
                Action::Get => Outcome::Unavailable,
                _ => Outcome::Timeout,
            };
            self.finish(token, outcome);
        }
    }

    /// Ends a node's process, and empties its disk.
    pub fn lose_disk(&mut self, node: usize) {
        self.crash(node);
        let registered = self.nodes[node].birth;
        let birth = Birth::at_start(None, Some(registered), true, &mut self.rng);
        let it = &mut self.nodes[node];
        (it.disk, it.synced) = (Vec::new(), 0);
        it.is_gone = birth != registered;
    }

    /// Ends a node's process, and puts the first records of its journal in the place of all.
    pub fn roll_back(&mut self, node: usize, records: usize) {
        self.crash(node);
        let it = &mut self.nodes[node];
        it.disk.truncate(records);
        it.synced = it.disk.len();
    }

    pub fn records(&self, node: usize) -> usize {
        self.nodes[node].disk.len()
    }

    pub fn pause(&mut self, node: usize, nanos: u64) {
        self.nodes[node].paused_until = Monotonic(self.now.0 + nanos);
    }

    /// Cuts a node off in both directions.
    pub fn isolate(&mut self, node: usize) {
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.cuts.extend([(node, other), (other, node)]);
        }
    }

    fn fault(&mut self) {
        let Some(every) = self.faults.every else { return };
        let next = self.rng.below(2 * every);
        self.after(next, Event::Fault);
        let count = self.nodes.len();
        let leader = self.leader().filter(|_| self.rng.chance(1, 2));
        let node = leader.unwrap_or(self.below(count));
        let short = if self.rng.chance(1, 2) { 100 * MILLISECOND } else { 4 * SECOND };
        match self.rng.below(12) {
            0 | 1 => {
                self.crash(node);
                let down = self.rng.below(short);
                self.after(down, Event::Start { node });
            }
            2 if self.rng.chance(1, 2) => {
                for node in 0..count {
                    self.crash(node);
                    let down = self.rng.below(short);
                    self.after(down, Event::Start { node });
                }
            }
            3 | 4 => {
                let pause = self.rng.below(short);
                self.pause(node, pause);
            }
            5..=7 => {
                let other = self.below(count);
                self.cut((node, other), short);
            }
            8 | 9 => {
                for other in 0..count {
                    self.cut((node, other), short);
                    self.cut((other, node), short);
                }
            }
            10 if self.faults.loses_disks => {
                let lost = self.nodes.iter().filter(|node| node.is_gone).count();
                if lost < (count - 1) / 2 && self.rng.chance(1, 2) {
                    self.lose_disk(node);
                    let down = self.rng.below(short);
                    self.after(down, Event::Start { node });
                }
            }
            _ => {
                // An election in which voters start anew.
                for other in 0..count {
                    self.cut((node, other), 4 * SECOND);
                    self.cut((other, node), 4 * SECOND);
                    let restart = 1_200 * MILLISECOND + self.rng.below(500 * MILLISECOND);
                    if other != node && self.rng.chance(1, 2) {
                        self.after(restart, Event::Restart { node: other });
                    }
                }
            }
        }
    }

    fn cut(&mut self, pair: (usize, usize), at_most: u64) {
        if pair.0 != pair.1 && self.cuts.insert(pair) {
            let until = self.rng.below(at_most);
            self.after(until, Event::Join { pair });
        }
    }

    /// Lets the messages of the slow pair arrive.
    pub fn arrive(&mut self) {
        self.slow = None;
        for event in std::mem::take(&mut self.delayed) {
            self.after(0, event);
        }
    }

    /// Ends all faults but pauses under way, and starts all nodes that are down.
    pub fn heal(&mut self) {
        self.faults = Faults::default();
        self.cuts.clear();
        for node in 0..self.nodes.len() {
            self.start(node);
        }
    }

    pub fn step(&mut self, node: usize, input: Input) {
        let mut out = Vec::new();
        let Some(group) = &mut self.nodes[node].group else { return };
        group.step(input, self.now, &mut out);
        for output in out {
            match output {
                Output::Persist(batch) => self.persist(node, batch),
                Output::Send { to, message } => {
                    assert_eq!(to, self.voter(usize::from(to.node.0)), "a voter of the group");
                    self.send(node, to.node.0.into(), Wire::Message(message));
                }
                Output::Apply(entries) => self.apply(node, entries),
                Output::Answer { token, answer } => self.on_answer(node, token, answer),
                Output::Forgot => self.nodes[node].forgot = true,
                Output::Malformed { error, .. } => panic!("{error}"),
            }
        }
        let Some(group) = self.nodes[node].group.as_ref().filter(|group| group.leads()) else { return };
        let leader = *self.leaders.entry(group.term()).or_insert(node);
        assert_eq!(leader, node, "two leaders of term {}", group.term());
    }

    fn persist(&mut self, node: usize, batch: Batch) {
        let slow = if self.rng.chance(1, 50) { self.rng.below(300 * MILLISECOND) } else { 0 };
        let done = Monotonic(self.now.0 + MILLISECOND / 10 + self.rng.below(3 * MILLISECOND) + slow);
        let it = &mut self.nodes[node];
        let (number, life) = (batch.number, it.life);
        it.disk.push(Record::Batch(batch));
        it.last_sync = Monotonic(it.last_sync.0 + 1).max(done);
        let (records, at) = (it.disk.len(), it.last_sync);
        self.at(at, Event::Synced { node, life, number, records });
    }

    fn apply(&mut self, node: usize, entries: Vec<Entry>) {
        let through = entries.last().unwrap().index;
        for entry in entries {
            let known = self.entries.entry(entry.index).or_insert_with(|| entry.clone());
            assert_eq!(*known, entry, "two entries {} at node {node}", entry.index);
            apply(&mut self.nodes[node].table, &entry);
        }
        self.nodes[node].disk.push(Record::Applied(through));
    }

    fn instant(&mut self) -> u64 {
        self.instant += 1;
        self.instant
    }

    /// A client chooses its next request.
    fn think(&mut self, client: usize) {
        if !self.has_clients {
            return;
        }
        let key = key(self.rng.below(2));
        if self.rng.chance(1, 10) {
            self.clients[client].node = self.below(self.nodes.len());
        }
        self.value += 1;
        let value = self.value;
        let seen = self.clients[client].seen.get(&key).copied();
        let (action, condition) = match (self.rng.below(16), seen) {
            (0, _) => (Action::Put(value), Condition::None),
            (1, _) => (Action::Delete, Condition::None),
            (2 | 3, _) => (Action::PutOnce(value), Condition::Absent),
            (4, Some((version, expected))) => (Action::DeleteIf { expected }, Condition::Is(version)),
            (5..=10, Some((version, expected))) => (Action::Cas { expected, value }, Condition::Is(version)),
            _ => (Action::Get, Condition::None),
        };
        self.request(client, key, action, condition);
    }

    /// Sends a request to the node that a client asks; its token.
    pub fn request(&mut self, client: usize, key: Bytes, action: Action, condition: Condition) -> u64 {
        self.token += 1;
        let (token, node) = (self.token, self.clients[client].node);
        let operation = Operation { call: self.instant(), end: 0, action, outcome: Outcome::Timeout };
        self.pending.insert(token, Pending { client, key, operation, condition, node });
        let delay = self.rng.below(MILLISECOND);
        self.after(delay, Event::Request { node, token });
        token
    }

    /// Lets a client ask a node.
    pub fn turn_to(&mut self, client: usize, node: usize) {
        self.clients[client].node = node;
    }

    fn on_request(&mut self, node: usize, token: u64) {
        let Some(pending) = self.pending.get(&token) else { return };
        let Pending { key, operation: Operation { action, .. }, condition, .. } = pending;
        let (key, action, condition) = (key.clone(), *action, *condition);
        if self.nodes[node].group.is_none() {
            return self.finish(token, Outcome::Unavailable);
        }
        let deadline = Monotonic(self.now.0 + SECOND / 5 + self.rng.below(2 * SECOND));
        let object = match action {
            Action::Get => return self.step(node, Input::Read { token, deadline }),
            Action::Put(value) | Action::PutOnce(value) | Action::Cas { value, .. } => {
                Some(Bytes::copy_from_slice(&value.to_le_bytes()))
            }
            Action::Delete | Action::DeleteIf { .. } => None,
        };
        let head = self.nodes[node].table.get(&key).map(|(version, _)| *version);
        let write = Write { key, object };
        self.step(node, Input::Propose(Proposal { token, condition, write, head, deadline }));
    }

    fn on_answer(&mut self, node: usize, token: u64, answer: Answer) {
        let pending = &self.pending[&token];
        let (client, key, action) = (pending.client, pending.key.clone(), pending.operation.action);
        let held = self.nodes[node].table.get(&key).copied();
        let seen = &mut self.clients[client].seen;
        let outcome = match answer {
            Answer::Readable => {
                match held {
                    Some(held) => seen.insert(key, held),
                    None => seen.remove(&key),
                };
                Outcome::Read(held.map(|(_, value)| value))
            }
            Answer::Written(version) => {
                match action {
                    Action::Put(value) | Action::PutOnce(value) | Action::Cas { value, .. } => {
                        seen.insert(key, (version, value))
                    }
                    _ => seen.remove(&key),
                };
                Outcome::Done
            }
            Answer::Failed => {
                // It looks again, now and then.
                if self.rng.chance(1, 2) {
                    seen.remove(&key);
                }
                Outcome::Failed
            }
            Answer::Unavailable(cause) => {
                let leader = match cause {
                    Cause::NotLeader { leader } => leader.map(|leader| leader.node.0.into()),
                    Cause::Expired => None,
                    _ => Some(node),
                };
                self.turn(client, leader);
                Outcome::Unavailable
            }
            Answer::Timeout => {
                self.turn(client, None);
                Outcome::Timeout
            }
        };
        self.finish(token, outcome);
    }

    /// Lets a client ask another node, or stay where it is.
    fn turn(&mut self, client: usize, to: Option<usize>) {
        if let Some(node) = to {
            self.clients[client].node = node;
        } else if self.rng.chance(1, 2) {
            self.clients[client].node = self.below(self.nodes.len());
        }
    }

    /// Notes the end of a request; its client thinks about the next one.
    fn finish(&mut self, token: u64, outcome: Outcome) {
        let Pending { client, key, mut operation, .. } = self.pending.remove(&token).unwrap();
        (operation.end, operation.outcome) = (self.instant(), outcome);
        let count = match outcome {
            Outcome::Read(_) => "read",
            Outcome::Done => "done",
            Outcome::Failed => "failed",
            Outcome::Unavailable => "unavailable",
            Outcome::Timeout => "timeout",
        };
        *self.counts.entry(count).or_default() += 1;
        self.histories.entry(key).or_default().push(operation);
        let pause = self.rng.below(100 * MILLISECOND) + MILLISECOND;
        self.after(pause, Event::Think { client });
    }

    /// Sends a request, and waits for its outcome.
    pub fn ask(&mut self, node: usize, key: Bytes, action: Action, condition: Condition) -> Outcome {
        self.turn_to(0, node);
        let token = self.request(0, key.clone(), action, condition);
        assert!(self.run_until(5 * SECOND, |world| !world.pending.contains_key(&token)), "no answer");
        self.histories[&key].last().unwrap().outcome
    }

    /// Ends all requests of clients.
    pub fn stop_clients(&mut self) {
        self.has_clients = false;
        assert!(self.run_until(10 * SECOND, |world| world.pending.is_empty()), "a request has no answer");
    }

    /// The node that leads once its group is settled.
    pub fn settle(&mut self) -> usize {
        let is_settled =
            |world: &World| world.leader().is_some_and(|leader| world.group(leader).is_settled());
        assert!(self.run_until(20 * SECOND, is_settled), "the group does not settle");
        self.leader().unwrap()
    }

    /// Ends a life: all faults are over, the group settles, and each key is read once more.
    pub fn end(&mut self) {
        self.heal();
        // Pauses and late messages end.
        self.run(6 * SECOND);
        self.stop_clients();
        let leader = self.settle();
        for key in self.histories.keys().cloned().collect::<Vec<_>>() {
            let read = self.ask(leader, key, Action::Get, Condition::None);
            assert!(matches!(read, Outcome::Read(_)), "a settled group answers: {read:?}");
        }
        for node in 0..self.nodes.len() {
            let it = &self.nodes[node];
            if it.group.as_ref().is_some_and(|group| !group.has_forgotten()) {
                assert_eq!(it.table, self.nodes[leader].table, "tables of nodes {node} and {leader}");
            }
        }
    }

    /// The verdict over all keys; the worst.
    pub fn verdict(&self) -> Verdict {
        let mut worst = Verdict::Linearizable;
        for history in self.histories.values() {
            match check(history, STATES_MAX) {
                Verdict::Linearizable => {}
                Verdict::Unknown => worst = Verdict::Unknown,
                violation => return violation,
            }
        }
        worst
    }
}

fn apply(table: &mut BTreeMap<Bytes, Held>, entry: &Entry) {
    let Some(write) = &entry.write else { return };
    match &write.object {
        Some(object) => {
            let value = u64::from_le_bytes(object[..].try_into().unwrap());
            table.insert(write.key.clone(), (Version::new(0, entry.index), value));
        }
        None => {
            table.remove(&write.key);
        }
    }
}
