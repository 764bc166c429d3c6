//! Lives of groups with leases under random faults: messages late, lost and out of order, one-way cuts, starts, groups
//! that are unloaded and loaded again, and clocks of different rates.
//!
//! Checked after each event: while a leader may serve a read by its lease, nobody leads in a higher term.

use std::collections::{BTreeMap, BTreeSet};

use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use bytes::Bytes;
use ring::NodeId;
use strong::group::{
    Batch, Birth, Configuration, Group, GroupState, Identity, Input, Output, Progress, Stored, StrongReads,
    VoterId,
};
use strong::promise::{Block, Process, SharedTables};

use crate::world::{MILLISECOND, SECOND};

const NODES: usize = 3;

/// True time of one life.
const LIFE: u64 = 20 * SECOND;

enum Event {
    Deliver { from: Process, to: Process, block: Block, message: Option<Bytes> },
    Ping { node: usize },
    Tick,
    Sleep,
    Fault,
}

struct Node {
    process: Process,
    group: Group,
    tables: SharedTables,
    disk: Stored,
    rate: u64,
    up: BTreeSet<usize>,
}

struct Lives {
    /// True time.
    time: u64,
    rng: SplitMix64,
    nodes: Vec<Node>,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    cuts: BTreeSet<(usize, usize)>,
    /// Reads that a lease would serve, and terms that were led.
    served: u64,
    led: BTreeSet<u64>,
    /// Groups that were unloaded, and those of them that led.
    slept: [u64; 2],
}

fn voter(node: usize) -> VoterId {
    VoterId { node: NodeId(u16::try_from(node).unwrap()), birth: Birth::of(7 + node as u64).unwrap() }
}

/// The reading of a clock of a rate in percent.
fn reading(time: u64, rate: u64) -> Monotonic {
    Monotonic((time + 100 * SECOND) / 100 * rate)
}

fn founded() -> Stored {
    let state = GroupState::found(1, Configuration::of_voters((0..NODES).map(voter)));
    let progress = Progress::FOUNDED;
    let base = progress.applied;
    Stored { state, progress, base, entries: vec![], suspect_through: None, is_incomplete: false }
}

fn write(disk: &mut Stored, batch: Batch) {
    disk.state = batch.state.unwrap_or_else(|| disk.state.clone());
    for entry in batch.entries {
        disk.entries.retain(|it| it.index < entry.index);
        disk.entries.push(entry);
    }
}

fn open(node: usize, seed: u64, disk: &Stored, tables: &SharedTables) -> Group {
    let identity = Identity { voter: voter(node), rank: u32::try_from(node).unwrap(), founding: 1 };
    let mut group = Group::open(identity, disk.clone(), Box::new(SplitMix64::new(seed))).unwrap();
    group.use_leases(tables.clone(), StrongReads::Lease);
    group
}

impl Node {
    fn start(node: usize, life: u64, rate: u64, time: u64, disk: Stored) -> Node {
        let process = Process { node: voter(node).node, life };
        let tables = SharedTables::new(process, 0, reading(time, rate));
        let group = open(node, life * 10 + node as u64, &disk, &tables);
        let up = (0..NODES).filter(|other| *other != node).collect();
        Node { process, group, tables, disk, rate, up }
    }
}

impl Lives {
    fn new(seed: u64) -> Lives {
        let mut rng = SplitMix64::new(seed);
        let rates: Vec<u64> = (0..NODES).map(|_| 95 + rng.below(11)).collect();
        let nodes = rates.iter().enumerate().map(|(at, rate)| Node::start(at, 1, *rate, 0, founded()));
        let mut lives = Lives {
            time: 0,
            rng,
            nodes: nodes.collect(),
            events: BTreeMap::new(),
            sequence: 0,
            cuts: BTreeSet::new(),
            served: 0,
            led: BTreeSet::new(),
            slept: [0; 2],
        };
        for node in 0..NODES {
            lives.step(node, Input::Registered);
            lives.after(0, Event::Ping { node });
        }
        lives.after(0, Event::Tick);
        lives.after(0, Event::Sleep);
        lives.after(SECOND, Event::Fault);
        lives
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((self.time + delay, self.sequence), event);
    }

    fn now(&self, node: usize) -> Monotonic {
        reading(self.time, self.nodes[node].rate)
    }

    fn step(&mut self, node: usize, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let (mut out, now) = (Vec::new(), self.now(node));
            self.nodes[node].tables.advance(now);
            self.nodes[node].group.step(input, now, &mut out);
            for output in out {
                match output {
                    Output::Persist(batch) => {
                        inputs.insert(0, Input::Persisted { number: batch.number });
                        write(&mut self.nodes[node].disk, batch);
                    }
                    Output::Apply(entries) => {
                        let last = entries.last().unwrap();
                        self.nodes[node].disk.progress =
                            Progress { applied: (last.index, last.term), commit: last.index };
                    }
                    Output::Send { to, message } => self.send(node, to.node.0.into(), Some(message)),
                    _ => {}
                }
            }
        }
    }

    /// Sends a message with a block: it may be lost, late and doubled.
    fn send(&mut self, from: usize, to: usize, message: Option<Bytes>) {
        let (sender, receiver) = (self.nodes[from].process, self.nodes[to].process);
        let block = self.nodes[from].tables.block(receiver, self.now(from), true);
        let copies = if self.rng.chance(1, 20) { 2 } else { 1 };
        for _ in 0..copies {
            let is_late = self.rng.chance(1, 10);
            let delay = self.rng.below(if is_late { 1_500 } else { 3 } * MILLISECOND);
            if !self.cuts.contains(&(from, to)) && !self.rng.chance(1, 50) {
                let (block, message) = (block.clone(), message.clone());
                self.after(delay, Event::Deliver { from: sender, to: receiver, block, message });
            }
        }
    }

    fn deliver(&mut self, from: Process, to: Process, block: &Block, message: Option<Bytes>) {
        let (sender, node) = (usize::from(from.node.0), usize::from(to.node.0));
        if self.nodes[node].process != to || self.nodes[sender].process != from {
            return;
        }
        self.nodes[node].tables.hear(from, block, self.now(node));
        if let Some(message) = message {
            self.step(node, Input::MessageOf { from: voter(sender), life: from.life, message });
        }
    }

    /// Unloads the group of a node if it is at rest, and loads it again.
    fn sleep(&mut self) {
        let (at, seed) = (self.rng.below(3) as usize, self.rng.next_u64());
        let delay = self.rng.below(400 * MILLISECOND);
        self.after(delay, Event::Sleep);
        let node = &mut self.nodes[at];
        let Some(record) = node.group.dormant() else { return };
        let applied = node.disk.progress.applied;
        assert!(node.group.is_kept(&node.disk.state) && record.last() == applied.0, "the store has it all");
        node.disk.base = applied;
        node.disk.entries.clear();
        self.slept[usize::from(node.group.leads())] += 1;
        node.group = open(at, seed, &node.disk, &node.tables);
        let leader = usize::from(record.leader().node.0);
        let is_same = self.nodes[leader].process == record.leader();
        self.nodes[at].group.wake(&record, is_same.then(|| voter(leader)));
        for other in (0..NODES).filter(|other| *other != at) {
            let is_up = self.nodes[at].up.contains(&other);
            self.step(at, Input::Reachable { voter: voter(other), is_up });
        }
        self.step(at, Input::Registered);
    }

    fn fault(&mut self) {
        let (one, other) = (self.rng.below(3) as usize, self.rng.below(3) as usize);
        match self.rng.below(6) {
            0 => {
                let (life, rate) = (self.nodes[one].process.life + 1, self.nodes[one].rate);
                let disk = self.nodes[one].disk.clone();
                self.nodes[one] = Node::start(one, life, rate, self.time, disk);
                self.step(one, Input::Registered);
                for peer in (0..NODES).filter(|peer| *peer != one) {
                    let process = self.nodes[one].process;
                    self.nodes[peer].tables.register(process, self.now(peer));
                    self.step(peer, Input::Restarted { voter: voter(one) });
                }
            }
            1 | 2 => self.cuts = (0..NODES).flat_map(|it| [(one, it), (it, one)]).collect(),
            3 if one != other => self.cuts = BTreeSet::from([(one, other)]),
            _ => self.cuts.clear(),
        }
        self.reach();
        let delay = self.rng.below(4 * SECOND);
        self.after(delay, Event::Fault);
    }

    /// Tells each node of the others that it hears.
    fn reach(&mut self) {
        for (node, other) in (0..NODES).flat_map(|node| (0..NODES).map(move |other| (node, other))) {
            let is_up = !self.cuts.contains(&(other, node));
            if node != other && is_up != self.nodes[node].up.contains(&other) {
                if is_up {
                    self.nodes[node].up.insert(other);
                } else {
                    self.nodes[node].up.remove(&other);
                }
                self.step(node, Input::Reachable { voter: voter(other), is_up });
            }
        }
    }

    fn check(&mut self) {
        for node in 0..NODES {
            let now = self.now(node);
            let term = self.nodes[node].group.term();
            if self.nodes[node].group.leads() {
                self.led.insert(term);
            }
            if self.nodes[node].group.serves_read(now, || now) {
                self.served += 1;
                let mut others = self.nodes.iter().filter(|it| it.group.leads() && it.group.term() > term);
                assert!(others.next().is_none(), "a lease at node {node}, and another leader");
            }
        }
    }

    fn run(&mut self) {
        while let Some(((time, _), event)) = self.events.pop_first() {
            if time > LIFE {
                return;
            }
            self.time = time;
            match event {
                Event::Deliver { from, to, block, message } => self.deliver(from, to, &block, message),
                Event::Ping { node } => {
                    (0..NODES).filter(|to| *to != node).for_each(|to| self.send(node, to, None));
                    self.after(200 * MILLISECOND, Event::Ping { node });
                }
                Event::Tick => {
                    (0..NODES).for_each(|node| self.step(node, Input::Tick));
                    self.after(5 * MILLISECOND, Event::Tick);
                }
                Event::Sleep => self.sleep(),
                Event::Fault => self.fault(),
            }
            self.check();
        }
    }
}

#[test]
fn no_two_leaders_may_serve_in_random_lives() {
    let lives = std::env::var("STRONG_LEASES").map_or(40, |lives| lives.parse().unwrap());
    let (mut served, mut led, mut slept) = (0, 0, [0; 2]);
    for seed in 0..lives {
        let mut life = Lives::new(seed);
        life.run();
        served += life.served;
        led += life.led.len();
        slept = [0, 1].map(|role: usize| slept[role] + life.slept[role]);
    }
    println!("{served} states with a lease, {led} terms led, {slept:?} followers and leaders slept");
    assert!(served > 1_000 * lives && led as u64 > lives, "{served} states with a lease, {led} terms led");
    assert!(slept.iter().all(|count| *count > 2 * lives), "{slept:?} followers and leaders slept");
}

#[cfg(feature = "planted")]
#[test]
fn planted_dormant_forgot_leader() {
    use base::planted::{Planted, plant};
    use std::panic::catch_unwind;

    plant(Some(Planted::DormantForgotLeader));
    let shown = (0..200).find(|seed| catch_unwind(|| Lives::new(*seed).run()).is_err());
    plant(None);
    assert!(shown.is_some(), "no life shows it");
    println!("DormantForgotLeader: {shown:?}");
}
