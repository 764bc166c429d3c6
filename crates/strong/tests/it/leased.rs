//! Groups with leases: three voters, whose messages arrive at once unless they are cut off.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use base::Monotonic;
use base::rng::SplitMix64;
use bytes::Bytes;
use ring::NodeId;
use strong::dormant::{self, DormantGroup};
use strong::group::{
    Birth, Condition, Configuration, Group, GroupState, Identity, Input, LEAVE_PAUSE, Message, Output,
    PREFERENCE_PAUSE, Progress, Proposal, RANK_DELAY, Stored, StrongReads, VoterId, Write,
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
    /// A node whose disk does not answer.
    stalled: Option<usize>,
    /// A node whose store was replaced while its process went on.
    replaced: Option<usize>,
    /// A node that has no room for the group, which is dormant there.
    dormant: Option<usize>,
}

fn voter(node: usize) -> VoterId {
    VoterId { node: NodeId(u16::try_from(node).unwrap()), birth: Birth::of(7 + node as u64).unwrap() }
}

impl Trio {
    /// Three nodes that start now.
    fn start(reads: StrongReads) -> Trio {
        let now = Monotonic(100 * SECOND);
        let tables = |node| SharedTables::new(Process { node: voter(node).node, life: 1 }, 0, now);
        let nodes = (0..NODES).map(|node| Node::open(voter(node), tables(node), reads)).collect();
        let (cuts, messages) = (BTreeSet::new(), VecDeque::new());
        let mut trio = Trio { now, nodes, cuts, messages, stalled: None, replaced: None, dormant: None };
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
            self.nodes[node].tables.advance(self.now);
            self.nodes[node].group.step(input, self.now, &mut out);
            for output in out {
                match output {
                    Output::Persist(_) if self.stalled == Some(node) => {}
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
            if !self.ping(from, to) {
                continue;
            }
            if self.dormant == Some(to) {
                let answer = dormant::answer(self.nodes[to].tables.here(), message);
                self.messages.extend(answer.map(|answer| (to, from, answer)));
            } else {
                let life = self.nodes[from].tables.here().life;
                self.step(to, Input::MessageOf { from: self.voter(from), life, message });
            }
        }
    }

    /// The voter that a node is now.
    fn voter(&self, node: usize) -> VoterId {
        let birth = if self.replaced == Some(node) { 70 } else { 7 } + node as u64;
        VoterId { birth: Birth::of(birth).unwrap(), ..voter(node) }
    }

    /// Replaces the store of a node, whose process goes on.
    fn replace_store(&mut self, node: usize, reads: StrongReads) {
        let tables = self.nodes[node].tables.clone();
        self.replaced = Some(node);
        self.nodes[node] = Node::open(self.voter(node), tables, reads);
        let listed: Vec<VoterId> = (0..NODES).map(|node| self.voter(node)).collect();
        self.step(node, Input::Registered);
        (0..NODES).for_each(|node| self.step(node, Input::Listed { voters: listed.clone() }));
    }

    /// Unloads the group of a node, which is at rest.
    fn unload(&mut self, node: usize) -> DormantGroup {
        let record = self.nodes[node].group.dormant().expect("it is at rest");
        self.dormant = Some(node);
        record
    }

    /// Loads the group of a node again.
    fn load(&mut self, node: usize, record: &DormantGroup) {
        let Node { group, tables } = &self.nodes[node];
        let (state, applied) = (group.state(), group.applied_entry().unwrap());
        let progress = Progress { applied, commit: applied.0 };
        let stored = Stored { state, progress, base: applied, ..Node::founded() };
        let mut loaded = Node::of(stored, self.voter(node), tables.clone(), StrongReads::Lease);
        loaded.group.wake(record, Some(self.voter(record.leader().node.0.into())));
        (self.nodes[node], self.dormant) = (loaded, None);
        self.step(node, Input::Registered);
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
            let live = (0..NODES).filter(|node| self.dormant != Some(*node));
            let timers = live.filter_map(|node| Some((self.nodes[node].group.next_timer()?, node)));
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
    fn founded() -> Stored {
        let state = GroupState::found(1, Configuration::of_voters((0..NODES).map(self::voter)));
        let progress = Progress::FOUNDED;
        let base = progress.applied;
        Stored { state, progress, base, entries: vec![], suspect_through: None, is_incomplete: false }
    }

    fn open(voter: VoterId, tables: SharedTables, reads: StrongReads) -> Node {
        Node::of(Node::founded(), voter, tables, reads)
    }

    fn of(stored: Stored, voter: VoterId, tables: SharedTables, reads: StrongReads) -> Node {
        let rank = u32::from(voter.node.0);
        let identity = Identity { voter, rank, founding: 1 };
        let mut group = Group::open(identity, stored, Box::new(SplitMix64::new(rank.into()))).unwrap();
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

#[test]
fn a_leader_that_leaves_hands_over_at_once_and_does_not_come_back() {
    let mut trio = Trio::leased();
    let term = trio.nodes[0].group.term();
    trio.step(0, Input::Leave);
    assert_eq!((trio.leaders(), trio.nodes[0].group.is_leaving()), (vec![1], true), "the first able voter");
    assert_eq!(trio.nodes[1].group.term(), term + 1);
    assert!(trio.nodes[1].group.is_handed_over());
    assert!(!trio.serves(0));
    trio.ping_all();
    trio.run(10 * MILLISECOND);
    assert!(trio.serves(1));

    trio.cut_off(1);
    trio.step(1, Input::Reachable { voter: voter(0), is_up: false });
    trio.step(1, Input::Reachable { voter: voter(2), is_up: false });
    trio.run(5 * SECOND);
    assert!(trio.nodes[2].group.leads() && !trio.nodes[0].group.leads(), "another one stands for election");
    assert!(!trio.nodes[2].group.is_handed_over(), "nobody asked it to");
}

/// A leader that leaves, and whose question to another one is lost, at the end of its pause.
fn leaving_alone() -> Trio {
    let mut trio = Trio::leased();
    trio.step(0, Input::Reachable { voter: voter(2), is_up: false });
    trio.cuts.extend([(0, 1), (1, 0)]);
    trio.step(0, Input::Leave);
    assert!(trio.nodes[0].group.leads() && !trio.nodes[0].group.can_serve(), "its question is lost");
    trio.run(nanos(LEAVE_PAUSE));
    trio
}

#[test]
fn a_leader_that_leaves_alone_waits_and_then_serves_on() {
    let mut trio = leaving_alone();
    assert!(trio.nodes[0].group.can_serve(), "by questions: its lease is given up");
    trio.cuts.clear();
    trio.ping_all();
    assert!(!trio.serves(0));
}

#[cfg(feature = "planted")]
#[test]
fn planted_transfer_never_aborted() {
    use base::planted::{Planted, plant};

    plant(Some(Planted::TransferNeverAborted));
    let mut trio = leaving_alone();
    trio.run(60 * SECOND);
    plant(None);
    assert!(trio.nodes[0].group.leads() && !trio.nodes[0].group.can_serve(), "nothing else ends the pause");
}

#[test]
fn a_preferred_voter_is_asked_if_it_has_all() {
    let mut trio = Trio::leased();
    trio.step(2, Input::HandOver { voter: voter(1) });
    assert_eq!(trio.leaders(), [0], "only a leader can");
    trio.step(0, Input::Reachable { voter: voter(2), is_up: false });
    trio.step(0, Input::HandOver { voter: voter(2) });
    assert_eq!(trio.leaders(), [0], "it cannot be reached");
    assert!(trio.serves(0), "nothing was given up");
    trio.step(0, Input::Reachable { voter: voter(2), is_up: true });
    trio.step(0, Input::HandOver { voter: voter(2) });
    assert_eq!(trio.leaders(), [2]);
    assert!(trio.nodes[2].group.is_handed_over());
    assert!(!trio.serves(0));
}

#[test]
fn a_leader_that_prefers_another_one_takes_no_requests_for_a_while() {
    let mut trio = Trio::leased();
    trio.cuts.insert((0, 1));
    trio.step(0, Input::HandOver { voter: voter(1) });
    let leader = |trio: &Trio| (trio.nodes[0].group.leads(), trio.nodes[0].group.can_serve());
    assert_eq!(leader(&trio), (true, false), "the question is lost");
    trio.run(nanos(PREFERENCE_PAUSE) - MILLISECOND);
    assert_eq!(leader(&trio), (true, false));
    trio.run(2 * MILLISECOND);
    assert_eq!(leader(&trio), (true, true), "it goes on to lead");
}

#[test]
fn a_wanted_group_stands_for_election_at_once() {
    let mut trio = Trio::start(StrongReads::Ask);
    trio.step(1, Input::Wanted);
    assert_eq!(trio.leaders(), [], "this process may have promised not to vote before its start");
    trio.now = trio.now + Duration::from_secs(10);
    trio.nodes[1] = Node::open(voter(1), trio.nodes[1].tables.clone(), StrongReads::Ask);
    trio.step(1, Input::Registered);
    assert_eq!(trio.leaders(), [], "it waits for its place on the list");
    trio.step(1, Input::Wanted);
    assert_eq!(trio.leaders(), [1]);
}

/// A leader with a stalled disk, whose write the others have committed.
fn behind() -> Trio {
    let mut trio = Trio::leased();
    trio.stalled = Some(0);
    let write = Write { key: Bytes::from_static(b"k"), object: Some(Bytes::from_static(b"v")) };
    let deadline = trio.now + Duration::from_secs(60);
    let (condition, head, version) = (Condition::None, None, None);
    trio.step(0, Input::Propose(Proposal { token: 1, condition, write, head, version, deadline }));
    trio.run(300 * MILLISECOND);
    let [leader, follower] = [0, 1].map(|node| &trio.nodes[node].group);
    assert!(leader.applied() < leader.commit() && leader.commit() == follower.applied());
    trio
}

#[test]
fn a_leader_serves_no_read_by_its_lease_before_it_has_applied_all_that_is_committed() {
    let mut trio = behind();
    assert!(!trio.serves(0), "a follower may have shown the write");
}

#[cfg(feature = "planted")]
#[test]
fn planted_lease_behind_commit() {
    use base::planted::{Planted, plant};

    let mut trio = behind();
    plant(Some(Planted::LeaseBehindCommit));
    let serves = trio.serves(0);
    plant(None);
    assert!(serves, "nothing else keeps it from that");
}

#[test]
fn a_leader_that_has_resigned_refuses_no_votes() {
    let mut trio = Trio::leased();
    trio.cut_off(2);
    for other in [1, 2] {
        trio.step(0, Input::Reachable { voter: voter(other), is_up: false });
    }
    trio.run(SECOND);
    trio.step(0, Input::Reachable { voter: voter(1), is_up: true });
    assert!(!trio.nodes[0].group.leads(), "the other one needs its vote");
    trio.run(2 * SECOND);
    trio.ping_all();
    assert!(trio.leaders().len() == 1 && trio.serves(trio.leaders()[0]));
}

#[test]
fn a_follower_that_hears_late_of_an_earlier_start_follows_on() {
    let mut trio = Trio::leased();
    let leader = trio.nodes[0].tables.here();
    trio.nodes[1].tables.register(leader, trio.now);
    trio.step(1, Input::Restarted { voter: voter(0) });
    assert_eq!(trio.nodes[1].group.leader(), Some(voter(0)), "that process has led this term");

    // Nothing says so of the process of the other follower, which asks that leader to release its promise.
    let term = trio.nodes[0].group.term();
    trio.step(2, Input::Restarted { voter: voter(0) });
    trio.run(3 * SECOND);
    assert_eq!(trio.nodes[2].group.leader(), Some(voter(0)));
    assert_eq!((trio.leaders(), trio.nodes[0].group.term()), (vec![0], term), "no election was needed");
}

/// Three voters without a leader: the second one has led after the first, and has asked the third to lead, whose
/// election failed. The others follow the second one, whose disk does not answer any more.
fn without_leader() -> Trio {
    let mut trio = Trio::leased();
    let term = trio.nodes[0].group.term();
    let timeout_now = |from: usize, term| {
        let message = Message::TimeoutNow { term }.encode();
        Input::MessageOf { from: voter(from), life: 1, message }
    };
    trio.step(1, timeout_now(0, term));
    assert_eq!(trio.leaders(), [1]);
    trio.ping_all();

    trio.cuts.extend([(1, 2), (2, 0)]);
    trio.step(2, timeout_now(1, term + 1));
    assert_eq!((trio.leaders(), trio.nodes[1].group.term()), (vec![], term + 2));
    trio.cuts.clear();
    trio.stalled = Some(1);
    trio
}

/// Lets time pass in which traffic of other groups renews all promises.
fn run_with_traffic(trio: &mut Trio) {
    for _ in 0..20 {
        trio.run(250 * MILLISECOND);
        trio.ping_all();
    }
}

#[test]
fn a_voter_that_follows_a_leader_of_the_past_is_released() {
    let mut trio = without_leader();
    run_with_traffic(&mut trio);
    assert_eq!(trio.leaders().len(), 1);
    assert!(trio.serves(trio.leaders()[0]));
}

#[test]
fn a_voter_that_follows_a_replaced_store_of_a_process_is_released() {
    let mut trio = Trio::leased();
    trio.replace_store(0, StrongReads::Lease);
    run_with_traffic(&mut trio);
    let leaders = trio.leaders();
    assert!(leaders.len() == 1 && leaders[0] != 0, "{leaders:?}");
    assert!(trio.serves(leaders[0]));
}

#[test]
fn the_first_voter_on_the_list_is_elected_however_long_the_promises_stand() {
    for left in [1, 30, 60, 90, 120, 150, 200, 300, 500, 900] {
        let mut trio = Trio::leased();
        trio.run(nanos(PROMISE) - left * MILLISECOND);
        trio.cut_off(0);
        trio.run(left * MILLISECOND + 2 * nanos(RANK_DELAY));
        let leads = [1, 2].map(|node: usize| trio.nodes[node].group.leads());
        assert_eq!(leads, [true, false], "{left} ms are left");
    }
}

#[test]
fn a_sleeping_leader_that_is_asked_leads_again_at_once() {
    let mut trio = Trio::leased();
    let (before, term) = (trio.now, trio.nodes[0].group.term());
    let record = trio.unload(0);
    trio.load(0, &record);
    trio.step(0, Input::Tick);
    assert_eq!(
        (trio.leaders(), trio.now),
        (vec![0], before),
        "its followers vote for the process they follow"
    );
    assert_eq!(trio.nodes[0].group.term(), term + 1);
    assert!(trio.serves(0), "the promises between the processes stand");
}

#[test]
fn a_sleeping_leader_that_is_asked_while_its_process_stops_resigns() {
    let mut trio = Trio::leased();
    let record = trio.unload(0);
    trio.load(0, &record);
    trio.step(0, Input::Leave);
    trio.run(2 * nanos(RANK_DELAY));
    assert_eq!(trio.leaders(), [1], "nobody waits for the end of a promise");
    trio.run(nanos(PROMISE));
    assert!(!trio.nodes[0].group.leads(), "it leaves");
}

#[test]
fn a_loaded_follower_keeps_its_promise() {
    let mut trio = Trio::leased();
    let record = trio.unload(2);
    trio.load(2, &record);
    assert_eq!(trio.nodes[2].group.next_timer(), None, "it follows again");
    trio.step(1, Input::Reachable { voter: voter(0), is_up: false });
    trio.run(nanos(GRANT) - 1);
    assert!(trio.leaders() == [0] && trio.serves(0), "nobody votes against the lease");
}

/// A leader sleeps and has no room, and another voter takes it for dead. Traffic of other groups renews all promises.
fn without_room() -> Trio {
    let mut trio = Trio::leased();
    trio.unload(0);
    trio.step(1, Input::Reachable { voter: voter(0), is_up: false });
    run_with_traffic(&mut trio);
    trio
}

#[test]
fn a_sleeping_leader_without_room_releases_its_followers() {
    let trio = without_room();
    assert!(trio.nodes[1..].iter().any(|node| node.group.leads()));
}

#[cfg(feature = "planted")]
#[test]
fn planted_sleeping_leader_blocks() {
    use base::planted::{Planted, plant};

    plant(Some(Planted::SleepingLeaderBlocks));
    let trio = without_room();
    plant(None);
    assert!(!trio.nodes[1..].iter().any(|node| node.group.leads()), "nobody ever votes again");
}

#[cfg(feature = "planted")]
#[test]
fn planted_past_leader_followed() {
    use base::planted::{Planted, plant};

    let mut trio = without_leader();
    plant(Some(Planted::PastLeaderFollowed));
    run_with_traffic(&mut trio);
    plant(None);
    assert_eq!(trio.leaders(), [], "nobody ever votes again");
}
