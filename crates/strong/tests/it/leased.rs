//! Groups with leases: three voters, whose messages arrive at once unless they are cut off.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use base::Monotonic;
use base::rng::SplitMix64;
use bytes::Bytes;
use ring::NodeId;
use strong::group::{
    Birth, Configuration, Group, GroupState, Identity, Input, Message, Output, Progress, Stored, StrongReads,
    VoterId,
};
use strong::promise::{GRANT, PROMISE, Process, SharedTables};

use crate::world::{MILLISECOND, SECOND};

const NODES: usize = 3;

/// A node: its group, and the tables of its process.
struct Node {
    group: Group,
    tables: SharedTables,
}

/// Three nodes with one clock.
struct Trio {
    now: Monotonic,
    nodes: Vec<Node>,
    /// Pairs whose messages are lost: sender and receiver.
    cuts: BTreeSet<(usize, usize)>,
    messages: VecDeque<(usize, usize, Bytes)>,
}

fn voter(node: usize) -> VoterId {
    VoterId { node: NodeId(u16::try_from(node).unwrap()), birth: Birth::of(7 + node as u64).unwrap() }
}

impl Trio {
    /// Three nodes that start now.
    fn start(reads: StrongReads) -> Trio {
        let now = Monotonic(100 * SECOND);
        let nodes = (0..NODES).map(|node| Node::open(node, 1, now, reads)).collect();
        let mut trio = Trio { now, nodes, cuts: BTreeSet::new(), messages: VecDeque::new() };
        (0..NODES).for_each(|node| trio.step(node, Input::Registered));
        trio
    }

    /// Three nodes with a leader that has a lease, as is the first one.
    fn leased() -> Trio {
        let mut trio = Trio::start(StrongReads::Lease);
        trio.run(3 * SECOND);
        trio.ping_all();
        assert_eq!(trio.leaders(), [0]);
        trio
    }

    fn step(&mut self, node: usize, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut out = Vec::new();
            self.nodes[node].group.step(input, self.now, &mut out);
            for output in out {
                match output {
                    Output::Persist(batch) => inputs.push_back(Input::Persisted { number: batch.number }),
                    Output::Send { to, message } => {
                        self.messages.push_back((node, to.node.0.into(), message));
                    }
                    _ => {}
                }
            }
        }
        self.deliver();
    }

    /// Lets all messages arrive, each in an envelope of its own.
    fn deliver(&mut self) {
        while let Some((from, to, message)) = self.messages.pop_front() {
            if self.ping(from, to) {
                let life = self.nodes[from].tables.here().life;
                self.step(to, Input::MessageOf { from: voter(from), life, message });
            }
        }
    }

    /// Sends a block; whether it arrives.
    fn ping(&mut self, from: usize, to: usize) -> bool {
        let (sender, receiver) = (&self.nodes[from].tables, &self.nodes[to].tables);
        let block = sender.block(receiver.here(), self.now, true);
        let arrives = !self.cuts.contains(&(from, to));
        if arrives {
            receiver.hear(sender.here(), &block, self.now);
        }
        arrives
    }

    /// Two rounds of pings between all: one is heard, the other is answered to.
    fn ping_all(&mut self) {
        for (from, to) in [(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)].repeat(3) {
            self.ping(from, to);
        }
    }

    /// Lets time pass.
    fn run(&mut self, nanos: u64) {
        let end = Monotonic(self.now.0 + nanos);
        loop {
            let timers = (0..NODES).filter_map(|node| Some((self.nodes[node].group.next_timer()?, node)));
            let Some((at, node)) = timers.min().filter(|(at, _)| *at <= end) else { break };
            self.now = self.now.max(at);
            self.step(node, Input::Tick);
        }
        self.now = end;
    }

    fn leaders(&self) -> Vec<usize> {
        (0..NODES).filter(|node| self.nodes[*node].group.leads()).collect()
    }

    fn serves(&mut self, node: usize) -> bool {
        let now = self.now;
        self.nodes[node].group.serves_read(now, || now)
    }

    /// Cuts a node from the others, which hear of it at once.
    fn cut_off(&mut self, node: usize) {
        for other in (0..NODES).filter(|other| *other != node) {
            self.cuts.extend([(node, other), (other, node)]);
            self.step(other, Input::Reachable { voter: voter(node), is_up: false });
        }
    }

    fn heal(&mut self, node: usize) {
        self.cuts.clear();
        for other in (0..NODES).filter(|other| *other != node) {
            self.step(other, Input::Reachable { voter: voter(node), is_up: true });
        }
    }
}

impl Node {
    fn open(node: usize, life: u64, now: Monotonic, reads: StrongReads) -> Node {
        let state = GroupState::found(1, Configuration::of_voters((0..NODES).map(voter)));
        let (progress, rank) = (Progress::FOUNDED, u32::try_from(node).unwrap());
        let base = progress.applied;
        let stored =
            Stored { state, progress, base, entries: vec![], suspect_through: None, is_incomplete: false };
        let identity = Identity { voter: voter(node), rank, founding: 1 };
        let mut group = Group::open(identity, stored, Box::new(SplitMix64::new(node as u64))).unwrap();
        let tables = SharedTables::new(Process { node: voter(node).node, life }, now);
        group.use_leases(tables.clone(), reads);
        Node { group, tables }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

#[test]
fn nobody_is_elected_before_the_promises_of_earlier_lives_end() {
    let mut trio = Trio::start(StrongReads::Lease);
    trio.run(nanos(PROMISE) - 1);
    assert!(trio.leaders().is_empty());
    trio.run(SECOND);
    assert_eq!(trio.leaders(), [0]);
}

#[test]
fn a_lease_lapses_and_is_renewed_by_pings() {
    let mut trio = Trio::leased();
    assert!(trio.serves(0) && !trio.serves(1));
    trio.run(nanos(GRANT) - 1);
    assert!(trio.serves(0));
    trio.run(1);
    assert!(!trio.serves(0));
    trio.ping_all();
    assert!(trio.serves(0), "the answers in this term still count");
    trio.run(20 * SECOND);
    assert!(!trio.serves(0), "at rest");
    trio.ping_all();
    assert!(trio.serves(0));
}

#[test]
fn a_leader_that_asks_serves_no_read() {
    let mut trio = Trio::start(StrongReads::Ask);
    trio.run(3 * SECOND);
    trio.ping_all();
    assert_eq!(trio.leaders(), [0]);
    assert!(!trio.serves(0));
}

#[test]
fn a_lease_ends_before_another_leader_and_does_not_revive() {
    let mut trio = Trio::leased();
    trio.cut_off(0);
    let mut is_led = false;
    for _ in 0..300 {
        trio.run(10 * MILLISECOND);
        is_led |= trio.leaders().len() > 1;
        assert!(!(is_led && trio.serves(0)), "two leaders serve");
    }
    assert!(is_led, "another one leads");
    trio.cuts.clear();
    trio.ping_all();
    assert!(trio.nodes[0].group.leads() && !trio.serves(0), "it has not heard of the other one");
    let other = trio.leaders()[1];
    assert!(trio.serves(other));
    trio.heal(0);
    trio.run(5 * SECOND);
    assert_eq!(trio.leaders().len(), 1);
}

#[test]
fn votes_against_a_lease_are_refused_without_their_term() {
    let mut trio = Trio::leased();
    let term = trio.nodes[0].group.term();
    for (is_pre, to) in [(true, 0), (false, 0), (true, 1), (false, 1)] {
        let request = Message::VoteRequest {
            term: term + 5,
            last: (9, term),
            commit: (1, 1),
            is_pre,
            is_transfer: false,
        };
        let input = Input::MessageOf { from: voter(2), life: 1, message: request.encode() };
        let mut out = Vec::new();
        trio.nodes[to].group.step(input, trio.now, &mut out);
        let Some(Output::Send { message, .. }) = out.first() else { panic!("no answer: {out:?}") };
        let refused = Message::read(message.clone()).unwrap();
        assert!(matches!(refused, Message::Refused { node: NodeId(0), life: 1, .. }), "{refused:?}");
        assert_eq!(trio.nodes[to].group.term(), term);
    }
    assert!(trio.serves(0));
}

#[test]
fn a_marked_vote_passes_a_promise() {
    let mut trio = Trio::leased();
    let (term, last) = (trio.nodes[0].group.term(), trio.nodes[1].group.last());
    let timeout_now = Message::TimeoutNow { term };
    trio.step(1, Input::MessageOf { from: voter(0), life: 1, message: timeout_now.encode() });
    trio.run(SECOND);
    assert_eq!((trio.leaders(), trio.nodes[2].group.term()), (vec![1], term + 1), "{last:?}");
    assert!(!trio.serves(0));
}
