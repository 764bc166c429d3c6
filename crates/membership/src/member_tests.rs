//! Whole nodes, detector and log together.

use std::collections::BTreeMap;

use super::*;
use crate::ClusterId;
use crate::log::{Identity, voters};
use crate::state::{Change, State};
use base::Rng;
use base::rng::SplitMix64;
use ring::{MemberState, RingSize, TARGET_N_DEFAULT};

const SECOND: u64 = 1_000_000_000;
const CLUSTER: ClusterId = ClusterId(0xC1);

struct Node {
    id: NodeId,
    part: Option<Membership>,
    disk: Bytes,
    starts: u32,
    stopped: Option<Stop>,
}

struct World {
    now: Monotonic,
    nodes: Vec<Node>,
    flying: BTreeMap<(Monotonic, u64), (usize, usize, Bytes)>,
    sequence: u64,
    answers: BTreeMap<u64, Outcome>,
    rng: SplitMix64,
    /// Whether an answer goes to the first node of the sender's number, as it does where that is known by its address.
    by_address: bool,
}

impl World {
    fn new(seed: u64, nodes: u16) -> World {
        let (now, rng) = (Monotonic(SECOND), SplitMix64::new(seed));
        let (flying, answers) = (BTreeMap::new(), BTreeMap::new());
        let mut world =
            World { now, nodes: Vec::new(), flying, sequence: 0, answers, rng, by_address: false };
        let state = State::found(CLUSTER, RingSize::new(64).unwrap(), "n0@h", "h:0", "z0").unwrap();
        let at = world.add(NodeId(0));
        world.start(at, |identity, _, rng, now| Log::found(identity, state, rng, now));
        world.run(2);
        for id in 1..nodes {
            world.admit(NodeId(id));
        }
        if nodes > 1 {
            world.carry_out();
        }
        world.run(90);
        world
    }

    fn add(&mut self, id: NodeId) -> usize {
        self.nodes.push(Node { id, part: None, disk: Bytes::new(), starts: 0, stopped: None });
        self.nodes.len() - 1
    }

    fn start(&mut self, at: usize, log: impl FnOnce(Identity, &Bytes, Box<dyn Rng>, Monotonic) -> Log) {
        let mut rng = || Box::new(SplitMix64::new(self.rng.next_u64()));
        let (first, second) = (rng(), rng());
        let start = self.rng.next_u64();
        let node = &mut self.nodes[at];
        node.starts += 1;
        let (id, starts, address) = (node.id, node.starts, format!("h:{}", node.id));
        let identity = Identity { cluster: CLUSTER, node: id, starts, start, address };
        let detector = Detector::new(CLUSTER, id, starts, start, first, self.now);
        let log = log(identity, &node.disk, second, self.now);
        node.part = Some(Membership::new(detector, log));
        self.step(at, at, Input::Tick);
    }

    fn restart(&mut self, at: usize) {
        self.start(at, |identity, disk, rng, now| Log::open(identity, disk, rng, now).unwrap().0);
    }

    fn part(&self, at: usize) -> &Membership {
        self.nodes[at].part.as_ref().unwrap()
    }

    fn leader(&self) -> usize {
        let leads = |at: &usize| {
            let node = &self.nodes[*at];
            node.part.as_ref().is_some_and(|part| part.log().leader() == Some(node.id))
        };
        (0..self.nodes.len()).find(leads).expect("a leader")
    }

    fn step(&mut self, at: usize, from: usize, input: Input) {
        let mut out = Vec::new();
        let Some(part) = &mut self.nodes[at].part else { return };
        part.step(input, self.now, &mut out);
        for output in out {
            let node = &mut self.nodes[at];
            match output {
                Output::Write(Write::Append(bytes)) => {
                    node.disk = [&node.disk[..], &bytes[..]].concat().into()
                }
                Output::Write(Write::Replace(bytes)) => node.disk = bytes,
                Output::Send { to, message } => {
                    let to = (0..self.nodes.len()).find(|&other| self.nodes[other].id == to);
                    to.into_iter().for_each(|to| self.send(at, to, message.clone()));
                }
                Output::Reply(message) => {
                    let is_same = |other: &Node| other.id == self.nodes[from].id;
                    let known = self.nodes.iter().position(is_same).filter(|_| self.by_address);
                    self.send(at, known.unwrap_or(from), message);
                }
                Output::Answer { token, outcome } => drop(self.answers.insert(token, outcome)),
                Output::Starts(starts) => node.starts = starts,
                Output::Stop(stop) => (node.stopped, node.part) = (Some(stop), None),
                Output::Changed | Output::Up(_) | Output::Down(_) | Output::Note(_) => {}
                Output::Alarm(text) => panic!("{text}"),
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, message: Bytes) {
        self.sequence += 1;
        let at = Monotonic(self.now.0 + 100_000 + self.rng.below(5_000_000));
        self.flying.insert((at, self.sequence), (from, to, message));
    }

    fn run(&mut self, seconds: u64) {
        let end = Monotonic(self.now.0 + seconds * SECOND);
        loop {
            let timer = |at: usize| Some((self.nodes[at].part.as_ref()?.next_timer().max(self.now), at));
            let timer = (0..self.nodes.len()).filter_map(timer).min();
            let arrival = self.flying.first_key_value().map(|(&(at, _), _)| at);
            let next = timer.map(|timer| timer.0).into_iter().chain(arrival).min();
            let Some(next) = next.filter(|&next| next <= end) else { break };
            self.now = next;
            if arrival == Some(next) {
                let (_, (from, to, message)) = self.flying.pop_first().unwrap();
                self.step(to, from, Input::Message(message));
            } else if let Some((_, at)) = timer {
                self.step(at, at, Input::Tick);
            }
        }
        self.now = end;
    }

    fn propose(&mut self, make: impl FnOnce(&State) -> Command) -> Outcome {
        let leader = self.leader();
        let command = make(self.part(leader).state().unwrap());
        let token = self.answers.len() as u64;
        self.step(leader, leader, Input::Propose { token, command });
        self.run(5);
        self.answers[&token]
    }

    fn admit(&mut self, id: NodeId) {
        let (name, address, zone) = (format!("n{id}@h"), format!("h:{id}"), format!("z{}", id.0 % 3));
        let admit =
            |state: &State| Command::Admit { expected: state.version(), name, address, zone, weight: 100 };
        assert_eq!(self.propose(admit), Ok(()));
        let contact = self.nodes[self.leader()].id;
        let at = self.add(id);
        self.start(at, |identity, _, rng, now| Log::join(identity, rng, now));
        self.step(at, at, Input::Join { contact });
    }

    fn stage(&mut self, node: NodeId, change: Change) {
        assert_eq!(self.propose(|state| Command::Stage { expected: state.version(), node, change }), Ok(()));
    }

    fn carry_out(&mut self) {
        assert_eq!(self.propose(|state| state.plan(TARGET_N_DEFAULT).unwrap().command()), Ok(()));
        while let Some(report) = self.part(self.leader()).state().unwrap().due().first().cloned() {
            assert_eq!(self.propose(|_| report), Ok(()));
        }
    }
}

#[test]
fn nodes_meet_agree_and_see_each_other() {
    let world = World::new(1, 5);
    let state = world.part(0).state().unwrap();
    for at in 0..5 {
        assert_eq!(world.part(at).state(), Some(state));
        assert_eq!(world.part(at).detector().up().len(), 4);
    }
    assert!(state.is_settled());
    assert!(state.members().values().all(|it| it.member.state == MemberState::Valid && it.starts == 1));
    assert_eq!(world.part(0).log().voters().len(), 3);
    assert_eq!(world.part(0).address(NodeId(3)).as_deref(), Some("h:3"));
}

#[test]
fn a_dead_voter_is_found_and_replaced() {
    let mut world = World::new(2, 5);
    let leader = world.leader();
    world.nodes[leader].part = None;
    world.run(40);
    let next = world.leader();
    assert!(!world.part(next).detector().up().contains(&NodeId(u16::try_from(leader).unwrap())));
    world.run(voters::VOTER_DOWN_MAX.as_secs() + 60);
    let log = world.part(world.leader()).log();
    assert_eq!(log.voters().len(), 3);
    assert!(!log.voters().contains(&world.nodes[leader].id));
    world.restart(leader);
    world.run(40);
    let state = world.part(next).state().unwrap();
    assert_eq!(world.part(leader).state(), Some(state));
    assert_eq!(state.members()[&world.nodes[leader].id].starts, 2);
}

#[test]
fn a_copy_stops_and_its_original_goes_on() {
    let mut world = World::new(3, 4);
    let original = (world.leader() + 1) % 4;
    let copy = world.add(world.nodes[original].id);
    (world.nodes[copy].disk, world.nodes[copy].starts) = (world.nodes[original].disk.clone(), 7);
    world.restart(copy);
    world.run(60);
    assert_eq!(world.nodes[copy].stopped, Some(Stop::Copy));
    assert_eq!(world.nodes[original].stopped, None);
    world.run(60);
    let state = world.part(world.leader()).state().unwrap();
    assert_eq!(world.part(original).state(), Some(state));
}

#[test]
fn what_is_said_to_a_copy_does_not_end_its_original() {
    let mut world = World::new(3, 4);
    world.by_address = true;
    let original = (world.leader() + 1) % 4;
    let copy = world.add(world.nodes[original].id);
    (world.nodes[copy].disk, world.nodes[copy].starts) = (world.nodes[original].disk.clone(), 7);
    world.restart(copy);
    world.run(60);
    assert_eq!(world.nodes[original].stopped, None);
    world.nodes[copy].part = None;
    world.run(90);
    let state = world.part(world.leader()).state().unwrap();
    assert_eq!(world.part(original).state(), Some(state));
    assert!(world.part(world.leader()).detector().up().contains(&world.nodes[original].id));
}

#[test]
fn who_is_removed_stops() {
    let mut world = World::new(4, 5);
    let removed = (world.leader() + 1) % 5;
    let id = world.nodes[removed].id;
    world.stage(id, Change::ForceRemove);
    world.carry_out();
    world.run(120);
    assert_eq!(world.nodes[removed].stopped, Some(Stop::Removed));
    let state = world.part(world.leader()).state().unwrap();
    assert!(!state.members().contains_key(&id) && !state.owners().contains(&id));
    assert!((0..5).filter(|at| *at != removed).all(|at| world.nodes[at].stopped.is_none()));
}

#[test]
fn a_newcomer_is_not_sent_away_by_who_has_not_heard_of_it() {
    let mut world = World::new(5, 4);
    let behind = (0..4).find(|&at| at != world.leader()).unwrap();
    let contact = world.nodes[behind].id;
    // It hears nothing of the admission.
    let asleep = world.nodes[behind].part.take();
    world.admit(NodeId(4));
    world.nodes[behind].part = asleep;
    let newcomer = world.add(NodeId(5));
    world.nodes[newcomer].id = NodeId(4);
    world.start(newcomer, |identity, _, rng, now| Log::join(identity, rng, now));
    world.step(newcomer, newcomer, Input::Join { contact });
    while let Some((_, (from, to, message))) = world.flying.pop_first() {
        if [from, to] == [newcomer, behind] || [from, to] == [behind, newcomer] {
            world.step(to, from, Input::Message(message));
        }
    }
    assert_eq!((world.nodes[newcomer].stopped, world.part(newcomer).state()), (None, None));
}
