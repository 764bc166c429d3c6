//! Voters of one group, each with a journal, on a network that loses, doubles, delays and cuts, and their clients.
//!
//! A journal is a list of records. A crash keeps those that are synced and some of the others, in order; a start plays
//! them again. Nodes ping each other on the same network, and hold a peer for down after a while of silence. Clients
//! send one request at a time; each request and its answer is an operation of a history.
//!
//! Tables are caught up by parts of a few keys; groups trim their logs to a window of a few entries in some lives.
//!
//! Checked after each step: one leader of each term, and one applied entry at each index.

mod catch_up;
mod clients;
mod faults;
mod network;
mod node;

use std::collections::{BTreeMap, BTreeSet};

use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use bytes::Bytes;
use ring::NodeId;
use strong::catch_up::{ReceiverInput, Sender};
use strong::group::{Birth, Condition, Configuration, Entry, Group, Input, Output, VoterId};
use strong::linearizability::{Action, Operation, Outcome};

use self::catch_up::Fold;
pub use self::catch_up::Limits;
use self::clients::{Client, Pending};
pub use self::faults::Faults;
use self::network::Wire;
pub use self::node::Node;

pub const MILLISECOND: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLISECOND;

/// The number of the groups' founding.
const FOUNDING: u64 = 0xF00D;

#[derive(Clone)]
enum Event {
    Deliver { from: VoterId, life: u64, sent: Monotonic, to: VoterId, wire: Wire },
    Synced { node: usize, life: u64, number: u64, records: usize },
    PartSynced { node: usize, life: u64, records: usize },
    Fold { node: usize, life: u64, fold: Fold },
    Reap,
    Wake { node: usize, life: u64 },
    Expire { token: u64 },
    Ping { node: usize, life: u64 },
    Register { node: usize, life: u64 },
    Agree { node: usize, life: u64 },
    Start { node: usize },
    Restart { node: usize },
    Join { pair: (usize, usize) },
    Think { client: usize },
    Request { node: usize, token: u64 },
    Fault,
}

pub struct World {
    pub now: Monotonic,
    pub nodes: Vec<Node>,
    pub faults: Faults,
    pub limits: Limits,
    pub cuts: BTreeSet<(usize, usize)>,
    /// A pair with messages on their way until a test lets them arrive.
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
    /// Tokens of requests that were passed on, by their tokens at the leader.
    forwarded: BTreeMap<u64, u64>,
    token: u64,
    value: u64,
    /// Numbers calls and returns.
    instant: u64,
    entries: BTreeMap<u64, Entry>,
    leaders: BTreeMap<u64, VoterId>,
    /// That of the founding.
    configuration: Configuration,
    /// The voters that the cluster has registered last, by node.
    registered: Vec<VoterId>,
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
        let registered: Vec<VoterId> =
            births.iter().enumerate().map(|(node, birth)| voter(node, *birth)).collect();
        let configuration = Configuration::of_voters(registered.iter().copied());
        let mut world = World {
            now: Monotonic(SECOND),
            nodes: births.into_iter().map(|birth| Node::new(birth, &registered)).collect(),
            faults: Faults::default(),
            limits: Limits::default(),
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
            forwarded: BTreeMap::new(),
            token: 0,
            value: 0,
            instant: 0,
            entries: BTreeMap::new(),
            leaders: BTreeMap::new(),
            configuration,
            registered,
            has_clients: true,
        };
        (0..nodes).for_each(|node| world.start(node));
        (0..clients).for_each(|client| world.after(0, Event::Think { client }));
        world
    }

    /// A world with one client, which sends requests of a test.
    pub fn quiet(seed: u64, nodes: usize) -> World {
        let mut world = World::new(seed, nodes, 1);
        world.has_clients = false;
        world
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
            let senders = node.senders.values().filter_map(Sender::next_timer);
            let timer = senders.chain(node.group.as_ref()?.next_timer()).min()?;
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
            self.tick_senders(node);
            self.step(node, Input::Tick);
        }
        true
    }

    fn on_event(&mut self, event: Event) {
        let node = match event {
            Event::Deliver { to, .. } => Some(to.node.0.into()),
            Event::Synced { node, .. }
            | Event::PartSynced { node, .. }
            | Event::Fold { node, .. }
            | Event::Wake { node, .. }
            | Event::Ping { node, .. }
            | Event::Register { node, .. }
            | Event::Agree { node, .. }
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
            Event::PartSynced { node, life, records } => {
                if self.nodes[node].life == life {
                    self.nodes[node].synced = records;
                    self.receive(node, ReceiverInput::Synced);
                }
            }
            Event::Fold { node, life, fold } => {
                if self.nodes[node].life == life {
                    self.fold(node, fold);
                }
            }
            Event::Reap => self.reap(),
            Event::Wake { node, life } => {
                if self.nodes[node].life == life {
                    self.on_wake(node);
                }
            }
            Event::Expire { token } => self.on_expired(token),
            Event::Ping { node, life } => self.ping(node, life),
            Event::Register { node, life } => {
                if self.nodes[node].life == life {
                    self.register(node);
                }
            }
            Event::Agree { node, life } => {
                if self.nodes[node].life == life {
                    self.agree(node);
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

    pub fn step(&mut self, node: usize, input: Input) {
        let mut out = Vec::new();
        let Some(group) = &mut self.nodes[node].group else { return };
        group.step(input, self.now, &mut out);
        for output in out {
            match output {
                Output::Persist(batch) => self.persist(node, batch),
                Output::Send { to, message } => {
                    if self.known(node, to.node.0.into()) == to {
                        self.send(node, to.node.0.into(), Wire::Message(message));
                    }
                }
                Output::Apply(entries) => self.apply(node, entries),
                Output::Answer { token, answer } => self.on_answer(node, token, answer),
                Output::CatchUpWanted { voter } => self.begin_catch_up(node, voter.node.0.into()),
                Output::CatchUpEnded { voter } => {
                    if self.known(node, voter.node.0.into()) == voter {
                        self.nodes[node].senders.remove(&voter.node.0.into());
                    }
                }
                Output::Forgot => self.nodes[node].forgot = true,
                Output::Malformed { error, .. } => panic!("{error}"),
            }
        }
        let Some(group) = &mut self.nodes[node].group else { return };
        if let Some(window) = self.limits.window {
            group.trim(window);
        }
        let index = group.applied();
        self.receive(node, ReceiverInput::Applied { index });
        self.mark(node);
        let Some(group) = self.nodes[node].group.as_ref().filter(|group| group.leads()) else { return };
        let (term, voter) = (group.term(), self.voter(node));
        let leader = *self.leaders.entry(term).or_insert(voter);
        assert_eq!(leader, voter, "two leaders of term {term}");
    }

    /// The node that leads once its group is settled.
    pub fn settle(&mut self) -> usize {
        let is_settled =
            |world: &World| world.leader().is_some_and(|leader| world.group(leader).is_settled());
        assert!(self.run_until(20 * SECOND, is_settled), "the group does not settle: {}", self.describe());
        self.leader().unwrap()
    }

    pub fn describe(&self) -> String {
        let of_node = |node: &Node| {
            let Some(group) = &node.group else { return "down".to_owned() };
            let (role, term) = (if group.leads() { "leads" } else { "follows" }, group.term());
            let (applied, commit, last) = (group.applied(), group.commit(), group.last());
            let (senders, receiver) = (&node.senders, &node.receiver);
            let flags = (group.is_incomplete(), group.has_forgotten(), group.is_suspect(), node.is_gone);
            let members = group.members();
            format!(
                "{role} {term} {applied} {commit} {last:?} {flags:?} {senders:?} {receiver:?} {members:?}"
            )
        };
        self.nodes.iter().map(of_node).collect::<Vec<_>>().join("\n")
    }

    /// Whether the group's voters are the registered ones, as its leader has it.
    pub fn is_whole(&self) -> bool {
        let voters = Configuration::of_voters(self.registered.iter().copied());
        self.leader().is_some_and(|leader| self.group(leader).state().configuration == voters)
    }

    /// Ends a life: all faults are over, the group settles, and each key is read once more.
    pub fn end(&mut self) {
        self.heal();
        // Pauses and late messages end.
        self.run(6 * SECOND);
        self.stop_clients();
        // A read that meets damage has the keys brought from another node.
        let is_read = (0..self.nodes.len()).any(|_| {
            self.settle();
            self.read_all()
        });
        assert!(is_read, "a settled group answers: {}", self.describe());
        self.settle();
        let is_gone = self.nodes.iter().any(|node| node.is_gone || node.forgot);
        assert!(is_gone || self.is_whole(), "each registered store has its vote: {}", self.describe());
        self.check_tables();
    }

    /// Reads all keys at the leader; whether each was answered. Otherwise time passes, in which another node may lead.
    fn read_all(&mut self) -> bool {
        let leader = self.leader().expect("the group is settled");
        let keys: Vec<Bytes> = self.histories.keys().cloned().collect();
        let mut is_read =
            |key| matches!(self.ask(leader, key, Action::Get, Condition::None), Outcome::Read(_));
        let all = keys.into_iter().all(&mut is_read);
        if !all {
            self.run(5 * SECOND);
        }
        all
    }

    /// Checks that all nodes have the same tables.
    pub fn check_tables(&self) {
        let leader = self.leader().unwrap();
        for node in 0..self.nodes.len() {
            let it = &self.nodes[node];
            if it.group.as_ref().is_some_and(|group| !group.has_forgotten()) {
                let (here, there) = (it.live(), self.nodes[leader].live());
                assert_eq!(here, there, "tables of nodes {node} and {leader}");
                assert!(!self.group(node).is_incomplete(), "node {node} is caught up");
            }
        }
    }
}
