//! A model of promises and leases, for a search through all of its states.
//!
//! The tables, guards and leases are those of the crate. The model is the world around them:
//!
//! * Process A leads each group in term 1. Process B is the second voter. The third voter, C, votes for each candidate
//!   and promises nothing, so B's vote decides each election, and B's promise each lease.
//! * True time goes on in ticks of half a promise. Each clock has its own rate, 5 % slow or fast.
//! * A message is never removed from the network: it is delivered now, late, twice, after later ones, or never. So a
//!   cut of one way or of both is a sequence of steps as well.
//! * B may start anew, A may ask C to lead or release a group, or stop.
//!
//! Logs are left out: the property is of elections alone. Decision 105 derives linearizable reads from it.

use std::collections::BTreeSet;

use base::Monotonic;
use ring::NodeId;
use strong::promise::{
    Ballot, Block, ECHO_AGE_MAX, Grants, Lease, PROMISE, Process, Promises, VoteGuard, reading_of_read,
};

use super::search::Model;

/// True time of a tick, in milliseconds.
const TICK: u64 = 500;

/// The reading of each clock at the first state, in milliseconds: B's process has started long before.
const FIRST: u64 = 5_000;

const NODE_A: NodeId = NodeId(1);
const NODE_B: NodeId = NodeId(2);
const A: Process = Process { node: NODE_A, life: 1 };
const C: Process = Process { node: NodeId(3), life: 1 };

/// The voter that decides; the leader's own vote is given.
const VOTER_B: u8 = 2;
const VOTERS: &[(&[u8], bool)] = &[(&[VOTER_B, 3], true)];

/// The steps that are possible at most. Each one is a small number: the search visits all their orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Ticks of true time.
    pub ticks: u8,
    /// Messages that A sends on its own.
    pub beats: u8,
    /// Messages that B sends on its own.
    pub pings: u8,
    /// Answers of B to messages of A.
    pub answers: u8,
    /// Elections that C wins.
    pub elections: u8,
    /// Heartbeats of C as a leader.
    pub followed: u8,
    /// Candidacies of A.
    pub candidacies: u8,
    /// Terms without a leader that B hears of.
    pub terms: u8,
    /// Times that A gives a lease up: it asks C to lead, releases a group, or stops.
    pub hand_overs: u8,
    /// Starts of B.
    pub starts: u8,
}

/// A message between processes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Frame {
    from: Process,
    to: Process,
    block: Block,
    message: Option<Message>,
}

/// A message of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Message {
    /// The leader's sign of life.
    Beat { group: usize, term: u64 },
    /// Its answer, with the number of the voter's promise.
    Answer { group: usize, term: u64, number: u64 },
    /// The leader has given its lease up.
    Release { group: usize, term: u64 },
}

/// A step.
#[derive(Clone, Debug)]
pub enum Action {
    /// True time goes on.
    Tick,
    /// A sends a heartbeat of a group, or a message of none.
    Beat(Option<usize>),
    /// B sends a message of no group.
    Ping,
    /// A message arrives: its place in the network.
    Deliver(usize),
    /// C asks for B's vote, and has it if the guard permits.
    Elect(usize),
    /// C asks for B's vote because A has asked it to; the term.
    ElectMarked(usize, u64),
    /// B takes a heartbeat of C.
    Follow(usize),
    /// A asks for B's vote, and has it if the guard permits.
    Campaign(usize),
    /// B hears of a higher term.
    HigherTerm(usize),
    /// A asks C to lead.
    HandOver(usize),
    /// A tells B that it gives the lease of a group up.
    Release(usize),
    /// A stops: it gives up all leases.
    Stop,
    /// B starts anew.
    Start,
}

/// A group as A has it: it leads in a term.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Leader {
    term: u64,
    lease: Lease<u8>,
}

/// A group as B has it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Follower {
    term: u64,
    guard: VoteGuard,
}

/// A state of the model.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct State {
    budget: Budget,
    /// Rates of the clocks of A and B, in percent of true time.
    rates: (u64, u64),
    /// True time since the first state, in milliseconds.
    time: u64,
    network: BTreeSet<Frame>,
    a: (Promises, Grants),
    /// A has given up all leases.
    is_stopped: bool,
    /// The reading of the clock in A's present turn.
    turn: Monotonic,
    leaders: Vec<Leader>,
    b: Process,
    promises: Promises,
    grants_b: Grants,
    followers: Vec<Follower>,
    /// B as A knows it.
    known_b: Process,
    /// Terms in which A has asked C to lead.
    marked: BTreeSet<(usize, u64)>,
    /// The last term that C has won in each group.
    elected: Vec<u64>,
}

impl State {
    /// A leads all groups in term 1. Neither process has heard the other.
    pub fn new(groups: usize, rates: (u64, u64), budget: Budget) -> State {
        let b = Process { node: NODE_B, life: 1 };
        let mut lease = Lease::new();
        lease.lead(1);
        let start = Promises::new(Monotonic(0));
        State {
            budget,
            rates,
            time: 0,
            network: BTreeSet::new(),
            a: (start.clone(), Grants::default()),
            is_stopped: false,
            turn: reading(0, rates.0),
            leaders: vec![Leader { term: 1, lease }; groups],
            b,
            promises: start,
            grants_b: Grants::default(),
            followers: vec![Follower { term: 1, guard: VoteGuard::default() }; groups],
            known_b: b,
            marked: BTreeSet::new(),
            elected: vec![0; groups],
        }
    }

    /// Groups in which A has a lease now.
    pub fn leases(&self) -> usize {
        (0..self.leaders.len()).filter(|group| self.has_lease(*group)).count()
    }

    /// Whether C leads a group.
    pub fn is_elected(&self) -> bool {
        self.elected.iter().any(|term| *term > 0)
    }

    /// Whether B has closed a promise and made another one.
    pub fn has_second_promise(&self) -> bool {
        self.promises.number(A).is_some_and(|number| number > 1)
    }

    fn now_a(&self) -> Monotonic {
        reading(self.time, self.rates.0)
    }

    fn now_b(&self) -> Monotonic {
        reading(self.time, self.rates.1)
    }

    fn has_lease(&self, group: usize) -> bool {
        let mut lease = self.leaders[group].lease.clone();
        !self.is_stopped && lease.holds(reading_of_read(self.turn, || self.now_a()), &self.a.1, VOTERS)
    }

    /// A begins a turn, and looks for its leases.
    fn turn(&mut self) {
        self.turn = self.now_a();
        for leader in &mut self.leaders {
            leader.lease.holds(self.turn, &self.a.1, VOTERS);
        }
    }

    /// Whether a step is one of A.
    fn is_of_a(&self, action: &Action) -> bool {
        match *action {
            Action::Deliver(place) => self.network.iter().nth(place).is_some_and(|frame| frame.to == A),
            Action::Beat(_)
            | Action::Campaign(_)
            | Action::HandOver(_)
            | Action::Release(_)
            | Action::Stop => true,
            _ => false,
        }
    }

    fn send_a(&mut self, message: Option<Message>) {
        if self.known_b != self.b {
            return;
        }
        let (echo, promise) = self.a.0.told(self.known_b);
        let is_released = self.is_stopped;
        let block = Block { stamp: self.now_a(), echo, promise, asks: !is_released, is_released };
        self.network.insert(Frame { from: A, to: self.known_b, block, message });
    }

    fn send_b(&mut self, message: Option<Message>) {
        let (echo, promise) = self.promises.told(A);
        let block = Block { stamp: self.now_b(), echo, promise, asks: true, is_released: false };
        self.network.insert(Frame { from: self.b, to: A, block, message });
    }

    fn deliver(&mut self, place: usize) {
        let frame = self.network.iter().nth(place).expect("it is in the network").clone();
        if frame.to == A { self.deliver_to_a(frame) } else { self.deliver_to_b(frame) }
    }

    fn deliver_to_a(&mut self, frame: Frame) {
        let now = self.now_a();
        // Lives of B only grow in this model, and A learns of one by its first message.
        self.known_b = self.known_b.max(frame.from);
        self.a.0.hear(frame.from, &frame.block, now);
        self.a.1.hear(frame.from, &frame.block, now);
        if let Some(Message::Answer { group, term, number }) = frame.message {
            self.leaders[group].lease.on_answer(VOTER_B, frame.from, number, term);
        }
    }

    fn deliver_to_b(&mut self, frame: Frame) {
        if frame.to != self.b {
            return;
        }
        let now = self.now_b();
        self.promises.hear(A, &frame.block, now);
        self.grants_b.hear(A, &frame.block, now);
        match frame.message {
            Some(Message::Beat { group, term }) if term >= self.followers[group].term => {
                let follower = &mut self.followers[group];
                follower.term = term;
                follower.guard.follow(A, term);
                if self.budget.answers > 0 {
                    self.budget.answers -= 1;
                    let number = self.promises.number(A);
                    self.send_b(number.map(|number| Message::Answer { group, term, number }));
                }
            }
            Some(Message::Release { group, term }) => self.followers[group].guard.release(A, term),
            _ => {}
        }
    }

    /// B votes for C, if it may.
    fn elect(&mut self, group: usize, ballot: Ballot, term: u64) {
        let now = self.now_b();
        let follower = &mut self.followers[group];
        if term > follower.term && follower.guard.permit(ballot, C, &mut self.promises, now).is_ok() {
            follower.term = term;
            follower.guard.on_higher_term();
            self.elected[group] = term;
        }
    }

    fn campaign(&mut self, group: usize) {
        let now = self.now_b();
        let follower = &mut self.followers[group];
        let term = follower.term.max(self.leaders[group].term) + 1;
        if follower.guard.permit(Ballot::Vote, A, &mut self.promises, now).is_ok() {
            follower.term = term;
            follower.guard.on_higher_term();
            let leader = &mut self.leaders[group];
            leader.term = term;
            leader.lease.lead(term);
        }
    }

    fn higher_term(&mut self, group: usize) {
        let follower = &mut self.followers[group];
        follower.term += 1;
        follower.guard.on_higher_term();
    }

    fn give_up(&mut self, group: usize) -> u64 {
        let leader = &mut self.leaders[group];
        leader.lease.give_up();
        leader.term
    }

    fn start_b(&mut self) {
        self.b.life += 1;
        self.promises = Promises::new(self.now_b());
        self.grants_b = Grants::default();
        let b = self.b;
        // A life that is over takes no message.
        self.network.retain(|frame| frame.to == A || frame.to == b);
        for follower in &mut self.followers {
            // The term is on the disk, the leader is not.
            follower.guard = VoteGuard::default();
        }
    }

    /// The budget of a step.
    fn budget_of(&mut self, action: &Action) -> Option<&mut u8> {
        let budget = &mut self.budget;
        Some(match action {
            Action::Tick => &mut budget.ticks,
            Action::Beat(_) => &mut budget.beats,
            Action::Ping => &mut budget.pings,
            Action::Elect(_) => &mut budget.elections,
            Action::Follow(_) => &mut budget.followed,
            Action::Campaign(_) => &mut budget.candidacies,
            Action::HigherTerm(_) => &mut budget.terms,
            Action::HandOver(_) | Action::Release(_) | Action::Stop => &mut budget.hand_overs,
            Action::Start => &mut budget.starts,
            Action::Deliver(_) | Action::ElectMarked(..) => return None,
        })
    }
}

impl Model for State {
    type Action = Action;

    fn actions(&self) -> Vec<Action> {
        let groups = 0..self.leaders.len();
        let mut all: Vec<Action> = vec![Action::Tick, Action::Beat(None), Action::Ping, Action::Start];
        all.push(Action::Stop);
        for group in groups {
            all.extend([
                Action::Beat(Some(group)),
                Action::Follow(group),
                Action::Campaign(group),
                Action::HigherTerm(group),
                Action::HandOver(group),
                Action::Release(group),
            ]);
        }
        // Groups are alike, so the first one is the first to elect.
        let electing = if self.is_elected() { 0..self.leaders.len() } else { 0..1 };
        all.extend(electing.map(Action::Elect));
        let mut probe = self.clone();
        all.retain(|action| probe.budget_of(action).is_some_and(|left| *left > 0));
        all.extend(self.marked.iter().map(|(group, term)| Action::ElectMarked(*group, *term)));
        all.extend((0..self.network.len()).map(Action::Deliver));
        all
    }

    fn step(&mut self, action: &Action) {
        if let Some(left) = self.budget_of(action) {
            *left -= 1;
        }
        let is_of_a = self.is_of_a(action);
        match *action {
            Action::Tick => self.time += TICK,
            Action::Beat(group) => {
                self.send_a(group.map(|group| Message::Beat { group, term: self.leaders[group].term }));
            }
            Action::Ping => self.send_b(None),
            Action::Deliver(place) => self.deliver(place),
            Action::Elect(group) => self.elect(group, Ballot::Vote, self.followers[group].term + 1),
            Action::ElectMarked(group, term) => self.elect(group, Ballot::Transfer, term),
            Action::Follow(group) => {
                let term = self.elected[group];
                if term > 0 && term >= self.followers[group].term {
                    self.followers[group].term = term;
                    self.followers[group].guard.follow(C, term);
                }
            }
            Action::Campaign(group) => self.campaign(group),
            Action::HigherTerm(group) => self.higher_term(group),
            Action::HandOver(group) => {
                let term = self.give_up(group);
                self.marked.insert((group, term + 1));
            }
            Action::Release(group) => {
                let term = self.give_up(group);
                self.send_a(Some(Message::Release { group, term }));
            }
            Action::Stop => {
                self.is_stopped = true;
                self.send_a(None);
            }
            Action::Start => self.start_b(),
        }
        if is_of_a {
            self.turn();
        }
    }

    fn violation(&self) -> Option<String> {
        for group in 0..self.leaders.len() {
            if self.elected[group] > self.leaders[group].term && self.has_lease(group) {
                return Some(format!("A has a lease in group {group}, and C leads it"));
            }
        }
        // The promise outlives a one-way cut by the age of an echo and its own time, at most.
        let heard = self.a.0.told(self.b).0.unwrap_or_default();
        let is_deaf = self.now_b().since(heard) > ECHO_AGE_MAX + PROMISE;
        (is_deaf && self.promises.left(A, self.now_b()).is_some())
            .then(|| "B's promise stands, and A does not hear B".to_owned())
    }
}

/// The reading of a clock.
fn reading(time: u64, rate: u64) -> Monotonic {
    Monotonic((FIRST + time) * rate * 10_000)
}
