//! Logs of a whole cluster on a network that loses, delays and cuts, with disks that tear, from one seed.
//!
//! What is checked after every step of every node: one history of committed entries, one ring of each version, one
//! leader of each term, and rings that only get newer.

use super::*;
use crate::state::{Change, Command, Rejected};
use base::rng::SplitMix64;
use ring::{MemberState, RingSize};

mod restored;
mod scenarios;
mod without_users;

const SECOND: u64 = 1_000_000_000;
const CLUSTER: ClusterId = ClusterId(0xC1);

struct Node {
    id: NodeId,
    log: Option<Log>,
    disk: Bytes,
    starts: u32,
    /// The count that an older copy was told, until it has seen itself without a vote.
    raised_starts: Option<u32>,
    /// The last committed entry that was compared, and its epoch.
    checked: (u32, u64),
    ring: u64,
    /// What it was seen to know when it last said that this has changed.
    seen: Option<State>,
    told: Vec<Refusal>,
    refused: Vec<Refusal>,
    /// The nodes with other committed entries, as it has told.
    contradicted_by: Vec<NodeId>,
}

struct World {
    now: Monotonic,
    nodes: Vec<Node>,
    flying: BTreeMap<(Monotonic, u64), (usize, usize, Bytes)>,
    sequence: u64,
    cuts: BTreeSet<(usize, usize)>,
    lost_of_thousand: u64,
    /// One in so many writes is torn, and its node dies.
    torn_one_in: u64,
    rng: SplitMix64,
    history: BTreeMap<(Epoch, u64), Entry>,
    rings: BTreeMap<u64, (Vec<ring::Member>, Vec<NodeId>)>,
    leaders: BTreeMap<(Epoch, u64), NodeId>,
    answers: BTreeMap<u64, Outcome>,
    slots: BTreeMap<u64, Bytes>,
    token: u64,
    messages: u64,
}

fn name(id: NodeId) -> String {
    format!("n{id}@h")
}

impl World {
    fn empty(seed: u64) -> World {
        World {
            now: Monotonic(SECOND),
            nodes: Vec::new(),
            flying: BTreeMap::new(),
            sequence: 0,
            cuts: BTreeSet::new(),
            lost_of_thousand: 0,
            torn_one_in: 0,
            rng: SplitMix64::new(seed),
            history: BTreeMap::new(),
            rings: BTreeMap::new(),
            leaders: BTreeMap::new(),
            answers: BTreeMap::new(),
            slots: BTreeMap::new(),
            token: 0,
            messages: 0,
        }
    }

    /// A cluster of one.
    fn new(seed: u64) -> World {
        let mut world = World::empty(seed);
        let state = State::found(CLUSTER, RingSize::new(16).unwrap(), &name(NodeId(0)), "h:0", "z0").unwrap();
        let at = world.add(NodeId(0));
        let log = Log::found(world.identity(at), state, world.rng(), world.now);
        world.nodes[at].log = Some(log);
        world.step(at, at, Input::Tick);
        world
    }

    /// A cluster of `nodes`, all valid, settled.
    fn of(seed: u64, nodes: u16) -> World {
        let mut world = World::new(seed);
        world.run(2);
        for _ in 1..nodes {
            world.admit();
        }
        if nodes > 1 {
            world.commit_staged();
        }
        world.run(60);
        world.finish_moves();
        world.run(20);
        world.assert_settled("at first");
        world
    }

    fn rng(&mut self) -> Box<dyn Rng> {
        Box::new(SplitMix64::new(self.rng.next_u64()))
    }

    fn add(&mut self, id: NodeId) -> usize {
        let (disk, told, refused) = (Bytes::new(), Vec::new(), Vec::new());
        self.nodes.push(Node {
            id,
            log: None,
            disk,
            starts: 1,
            raised_starts: None,
            checked: (0, 0),
            seen: None,
            ring: 0,
            told,
            refused,
            contradicted_by: Vec::new(),
        });
        self.nodes.len() - 1
    }

    fn identity(&mut self, at: usize) -> Identity {
        let (node, starts) = (self.nodes[at].id, self.nodes[at].starts);
        Identity { cluster: CLUSTER, node, starts, start: self.rng.next_u64(), address: format!("h:{node}") }
    }

    fn log(&self, at: usize) -> &Log {
        self.nodes[at].log.as_ref().unwrap()
    }

    fn state(&self, at: usize) -> &State {
        self.log(at).state().unwrap()
    }

    fn live(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&at| self.nodes[at].log.is_some()).collect()
    }

    fn leader(&self) -> Option<usize> {
        let leads = |at: &usize| self.log(*at).leader() == Some(self.nodes[*at].id);
        self.live()
            .into_iter()
            .filter(leads)
            .max_by_key(|&at| (self.log(at).epoch().number, self.log(at).term()))
    }

    fn kill(&mut self, at: usize) {
        self.nodes[at].log = None;
    }

    fn start(&mut self, at: usize) {
        if self.nodes[at].log.is_some() || self.nodes[at].disk.is_empty() {
            return;
        }
        self.nodes[at].starts += 1;
        self.nodes[at].raised_starts = None;
        let identity = self.identity(at);
        let rng = self.rng();
        let (log, sound) = Log::open(identity, &self.nodes[at].disk, rng, self.now).unwrap();
        let disk = self.nodes[at].disk.slice(..sound);
        self.nodes[at].disk = disk;
        self.nodes[at].log = Some(log);
        self.nodes[at].checked = (0, 0);
        self.nodes[at].seen = None;
    }

    fn step(&mut self, at: usize, from: usize, input: Input) {
        let mut out = Vec::new();
        let node = &mut self.nodes[at];
        let Some(log) = &mut node.log else { return };
        log.step(input, self.now, &mut out);
        let seen = log.state().map(State::without_reports);
        if node.seen.is_some() && !out.contains(&Output::Changed) {
            assert_eq!(node.seen, seen, "node {} does not say that the state is another", node.id);
        }
        node.seen = seen;
        for output in out {
            let node = &mut self.nodes[at];
            match output {
                Output::Write(write) => {
                    let torn = self.torn_one_in > 0 && self.rng.chance(1, self.torn_one_in);
                    match write {
                        Write::Append(bytes) => {
                            let written = if torn {
                                self.rng.below(bytes.len() as u64 + 1)
                            } else {
                                bytes.len() as u64
                            };
                            let written = usize::try_from(written).unwrap();
                            node.disk = [&node.disk[..], &bytes[..written]].concat().into();
                        }
                        Write::Replace(bytes) if !torn => node.disk = bytes,
                        Write::Replace(_) => {}
                    }
                    if torn {
                        return self.kill(at);
                    }
                }
                Output::Send { to, message } => {
                    let to = (0..self.nodes.len()).rfind(|&other| self.nodes[other].id == to);
                    to.into_iter().for_each(|to| self.send(at, to, message.clone()));
                }
                Output::Reply(message) => self.send(at, from, message),
                Output::Answer { token, outcome } => drop(self.answers.insert(token, outcome)),
                Output::Starts(starts) => node.raised_starts = Some(starts),
                Output::Refused { refusal, .. } => node.refused.push(refusal),
                Output::Told { refusal, .. } => node.told.push(refusal),
                Output::Contradicted { by } => node.contradicted_by.push(by),
                Output::Changed => {}
                Output::Junk(junk) => panic!("{junk}"),
            }
        }
        let node = &mut self.nodes[at];
        let is_over = node.log.as_ref().is_some_and(|log| !log.is_older_copy());
        node.starts = node.raised_starts.take_if(|_| is_over).unwrap_or(node.starts);
        self.check(at);
    }

    fn check(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(log) = &node.log else { return };
        let (epoch, commit) = (log.epoch(), log.commit());
        let after = if node.checked.0 == epoch.number { node.checked.1 } else { 0 };
        for entry in log.committed().filter(|entry| entry.index > after) {
            // Entries of the epoch before stand in the file until it is replaced; they are compared there.
            let known = self.history.entry((epoch, entry.index)).or_insert_with(|| entry.clone());
            assert_eq!(known, entry, "two histories: node {} at entry {}", node.id, entry.index);
        }
        node.checked = (epoch.number, commit);
        if let Some(state) = log.state() {
            let ring = state.ring_version().0;
            assert!(ring >= node.ring, "node {} took ring {ring} after {}", node.id, node.ring);
            if ring > node.ring {
                let part =
                    (state.members().values().map(|it| it.member.clone()).collect(), state.owners().to_vec());
                let known = self.rings.entry(ring).or_insert_with(|| part.clone());
                assert_eq!(*known, part, "two rings of version {ring}");
            }
            node.ring = ring;
        }
        if log.leader() == Some(node.id) {
            let leader = *self.leaders.entry((epoch, log.term())).or_insert(node.id);
            assert_eq!(leader, node.id, "two leaders of term {}", log.term());
        }
    }

    fn send(&mut self, from: usize, to: usize, message: Bytes) {
        self.messages += 1;
        if self.cuts.contains(&(from, to)) || self.rng.chance(self.lost_of_thousand, 1_000) {
            return;
        }
        for _ in 0..if self.rng.chance(1, 30) { 2 } else { 1 } {
            self.sequence += 1;
            // Now and then something is very late.
            let late = if self.rng.chance(1, 200) { self.rng.below(10 * SECOND) } else { 0 };
            let at = Monotonic(self.now.0 + 100_000 + self.rng.below(20_000_000) + late);
            self.flying.insert((at, self.sequence), (from, to, message.clone()));
        }
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            for at in self.live() {
                let up =
                    self.live().into_iter().filter(|&other| other != at && !self.cuts.contains(&(at, other)));
                let up: BTreeSet<NodeId> = up.map(|other| self.nodes[other].id).collect();
                for other in 0..self.nodes.len() {
                    let node = self.nodes[other].id;
                    if other != at && self.log(at).up.contains(&node) != up.contains(&node) {
                        self.step(at, at, Input::Reachable { node, is_up: up.contains(&node) });
                    }
                }
            }
            self.ask_again();
            self.run_until(Monotonic(self.now.0 + SECOND));
        }
    }

    /// Who has joined and lacks a history asks again, whoever leads.
    fn ask_again(&mut self) {
        let Some(contact) = self.leader().map(|at| self.nodes[at].id) else { return };
        for at in self.live() {
            if self.log(at).state().is_none() && self.nodes[at].id != contact {
                self.step(at, at, Input::Join { contact });
            }
        }
    }

    fn run_until(&mut self, end: Monotonic) {
        loop {
            let timers = self.live().into_iter().map(|at| (self.log(at).next_timer().max(self.now), at));
            let timer = timers.min();
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

    fn propose_at(&mut self, at: usize, command: Command) -> u64 {
        self.token += 1;
        let token = self.token;
        if let Command::Slot { name, .. } = &command {
            self.slots.insert(token, name.clone());
        }
        self.step(at, at, Input::Propose { token, command });
        token
    }

    /// Proposes at the leader and waits for the answer.
    fn propose(&mut self, make: impl FnOnce(&State) -> Command) -> Outcome {
        let leader = self.leader().expect("a leader");
        let command = make(self.state(leader));
        let token = self.propose_at(leader, command);
        for _ in 0..15 {
            if let Some(outcome) = self.answers.get(&token) {
                return *outcome;
            }
            self.run(1);
        }
        Err(Failed::Unknown)
    }

    fn admit(&mut self) -> usize {
        let id = NodeId(u16::try_from(self.nodes.len()).unwrap());
        let zone = format!("z{}", id.0 % 3);
        let (name, address) = (name(id), format!("h:{id}"));
        let admit =
            |state: &State| Command::Admit { expected: state.version(), name, address, zone, weight: 100 };
        assert_eq!(self.propose(admit), Ok(()));
        self.join(id)
    }

    /// Starts a node that was admitted.
    fn join(&mut self, id: NodeId) -> usize {
        let at = self.add(id);
        let (identity, rng) = (self.identity(at), self.rng());
        self.nodes[at].log = Some(Log::join(identity, rng, self.now));
        let contact = self.leader().map_or(NodeId(0), |at| self.nodes[at].id);
        self.step(at, at, Input::Join { contact });
        at
    }

    fn commit_staged(&mut self) {
        let outcome =
            self.propose(|state| Command::Commit { expected: state.version(), owners: claim(state) });
        assert_eq!(outcome, Ok(()));
    }

    /// Everybody reports, until nothing moves.
    fn finish_moves(&mut self) {
        let leader = self.leader().expect("a leader");
        while !self.state(leader).is_settled() {
            for report in self.state(leader).due() {
                assert_eq!(self.propose(|_| report), Ok(()));
            }
        }
    }

    fn assert_settled(&mut self, context: &str) {
        let leader = self.leader().unwrap_or_else(|| panic!("{context}: nobody leads"));
        let state = self.state(leader).clone();
        for at in self.live() {
            let id = self.nodes[at].id;
            if state.members().contains_key(&id) {
                assert_eq!(self.log(at).state(), Some(&state), "{context}: node {id}");
            }
        }
        let voters = self.log(leader).voters();
        let valid = state.members().values().filter(|it| it.member.state == MemberState::Valid).count();
        assert_eq!(voters.len(), voters::wanted(valid), "{context}: {voters:?} of {valid} vote");
    }

    fn assert_acknowledged_is_there(&self, context: &str) {
        let state = self.state(self.leader().expect("a leader"));
        for (token, name) in &self.slots {
            if self.answers.get(token) == Some(&Ok(())) {
                assert!(state.slot(name).is_some(), "{context}: an acknowledged change is lost: {name:?}");
            }
        }
    }
}

/// The owners of a plan; none if there can be no plan.
fn claim(state: &State) -> Vec<NodeId> {
    state.plan(ring::TARGET_N_DEFAULT).map(|plan| plan.owners).unwrap_or_default()
}
