//! Elections beside replaced voters, under every order of a bounded number of steps: assumption L4 of decision 105.
//!
//! A model of terms, logs and configurations: a configuration is in force from the append of its entry on. Stores crash
//! and lose messages by doing nothing. A voter counts for a lease as long as its term is the leader's, which is more
//! than promises allow.
//!
//! Checked in each state: once a leader of a higher term is elected, no leader that has applied the first entry of its
//! term has a majority of each half of its configuration under its term.
//!
//! Left out: promises (`model.rs`), learners, which have no vote, and snapshots.

use base::FastSet;

/// Stores: three voters at first, and others that take their places.
const STORES: usize = 5;

/// Sets of stores, a bit for each.
type Set = u8;

/// Voters, and the outgoing half of a joint configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Configuration {
    voters: Set,
    outgoing: Set,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Entry {
    term: u8,
    /// None for the first entry of a term.
    configuration: Option<Configuration>,
}

#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Store {
    term: u8,
    log: Vec<Entry>,
}

/// A leadership. It lasts while its store has no higher term.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Leader {
    store: usize,
    term: u8,
    /// Entries that each store has acknowledged to it.
    acknowledged: [usize; STORES],
    /// Entries that it knows to be committed.
    committed: usize,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    stores: [Store; STORES],
    leaders: Vec<Leader>,
    elections: u8,
    changes: u8,
}

/// The way from one set of voters to the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// A joint configuration between them.
    Joint,
    /// One step.
    OneStep,
}

fn is_majority(set: Set, of: Set) -> bool {
    2 * (set & of).count_ones() > of.count_ones()
}

impl Configuration {
    fn is_majority(self, set: Set) -> bool {
        is_majority(set, self.voters) && (self.outgoing == 0 || is_majority(set, self.outgoing))
    }

    /// Configurations that may follow: a voter is replaced, or the joint configuration is left.
    fn next(self, rule: Rule, stores: usize) -> Vec<Configuration> {
        if self.outgoing != 0 {
            return vec![Configuration { outgoing: 0, ..self }];
        }
        let bits = |is: bool| (0..stores).map(|it| 1 << it).filter(move |bit| (self.voters & bit != 0) == is);
        let replaced = bits(true).flat_map(|out| bits(false).map(move |new| (out, new)));
        let follows = |(out, new): (Set, Set)| Configuration {
            voters: self.voters & !out | new,
            outgoing: if rule == Rule::Joint { self.voters } else { 0 },
        };
        replaced.map(follows).collect()
    }
}

impl Store {
    fn in_force(&self) -> Configuration {
        self.log.iter().rev().find_map(|entry| entry.configuration).expect("the first entry has one")
    }

    fn last(&self) -> (u8, usize) {
        (self.log.last().map_or(0, |entry| entry.term), self.log.len())
    }
}

impl State {
    /// Three voters that have applied their founding.
    fn founded(elections: u8, changes: u8) -> State {
        let configuration = Some(Configuration { voters: 0b111, outgoing: 0 });
        let founded = Store { term: 0, log: vec![Entry { term: 0, configuration }] };
        let mut stores: [Store; STORES] = Default::default();
        stores.iter_mut().for_each(|store| *store = founded.clone());
        State { stores, leaders: Vec::new(), elections, changes }
    }

    fn leads(&self, leader: &Leader) -> bool {
        self.stores[leader.store].term == leader.term
    }

    /// Whether a leader has applied the first entry of its term.
    fn is_ready(&self, leader: &Leader) -> bool {
        self.stores[leader.store].log[..leader.committed].iter().any(|entry| entry.term == leader.term)
    }

    /// A leader that may have a lease below another leader's term.
    fn violates(&self) -> bool {
        let highest = self.leaders.iter().map(|leader| leader.term).max().unwrap_or(0);
        self.leaders.iter().any(|leader| {
            let of_term = (0..STORES).filter(|it| self.stores[*it].term == leader.term);
            let set = of_term.fold(0, |set, it| set | 1 << it);
            let may_serve = leader.term < highest && self.leads(leader) && self.is_ready(leader);
            may_serve && self.stores[leader.store].in_force().is_majority(set)
        })
    }

    fn next(&self, rule: Rule, stores: usize) -> Vec<State> {
        let mut next = Vec::new();
        if self.elections > 0 {
            (0..stores).for_each(|candidate| self.elect(candidate, stores, &mut next));
        }
        for (at, leader) in self.leaders.iter().enumerate() {
            next.extend(self.commit(at));
            if self.leads(leader) {
                let others = (0..stores).filter(|it| *it != leader.store);
                others.for_each(|follower| self.replicate(at, follower, &mut next));
                self.change(at, rule, stores, &mut next);
            }
        }
        next
    }

    /// A store is elected in the next terms, by each set of voters that makes a majority.
    fn elect(&self, candidate: usize, stores: usize, next: &mut Vec<State>) {
        let term = self.stores.iter().map(|store| store.term).max().unwrap_or(0) + 1;
        let asks = &self.stores[candidate];
        let willing = (0..stores).filter(|it| self.stores[*it].last() <= asks.last());
        let willing = willing.fold(0, |set, it| set | 1 << it);
        // A voter that is in no half of the configuration changes nothing.
        let counted = asks.in_force().voters | asks.in_force().outgoing;
        for set in 0..1u8 << stores {
            let is_elected = asks.in_force().is_majority(set) && set & 1 << candidate != 0;
            if !is_elected || set & !(willing & counted) != 0 {
                continue;
            }
            let mut state = self.clone();
            state.elections -= 1;
            (0..stores).filter(|it| set & 1 << it != 0).for_each(|it| state.stores[it].term = term);
            let store = &mut state.stores[candidate];
            store.log.push(Entry { term, configuration: None });
            let mut acknowledged = [0; STORES];
            acknowledged[candidate] = store.log.len();
            state.leaders.push(Leader { store: candidate, term, acknowledged, committed: 0 });
            next.push(state);
        }
    }

    /// A leader's log, or the beginning of it, comes to a follower, which acknowledges it.
    fn replicate(&self, at: usize, follower: usize, next: &mut Vec<State>) {
        let leader = &self.leaders[at];
        if self.stores[follower].term > leader.term {
            return;
        }
        let log = &self.stores[leader.store].log;
        for len in leader.acknowledged[follower] + 1..=log.len() {
            let mut state = self.clone();
            let store = &mut state.stores[follower];
            store.term = leader.term;
            if !store.log.starts_with(&log[..len]) {
                store.log = log[..len].to_vec();
            }
            state.leaders[at].acknowledged[follower] = len;
            next.push(state);
        }
    }

    /// A leader commits all that a majority has acknowledged, up to an entry of its term. Acknowledgments may be late.
    fn commit(&self, at: usize) -> Option<State> {
        let leader = &self.leaders[at];
        let store = self.leads(leader).then(|| &self.stores[leader.store])?;
        let is_committed = |len: &usize| {
            let has = (0..STORES).filter(|it| leader.acknowledged[*it] >= *len);
            let set = has.fold(0, |set, it| set | 1 << it);
            store.log[len - 1].term == leader.term && store.in_force().is_majority(set)
        };
        let through = (leader.committed + 1..=store.log.len()).rev().find(is_committed)?;
        let mut state = self.clone();
        state.leaders[at].committed = through;
        Some(state)
    }

    /// A leader whose last configuration is committed proposes another one.
    fn change(&self, at: usize, rule: Rule, stores: usize, next: &mut Vec<State>) {
        let leader = &self.leaders[at];
        let log = &self.stores[leader.store].log;
        let is_pending = log[leader.committed..].iter().any(|entry| entry.configuration.is_some());
        if self.changes == 0 || is_pending || !self.is_ready(leader) {
            return;
        }
        for configuration in self.stores[leader.store].in_force().next(rule, stores) {
            let mut state = self.clone();
            state.changes -= 1;
            let log = &mut state.stores[leader.store].log;
            log.push(Entry { term: leader.term, configuration: Some(configuration) });
            state.leaders[at].acknowledged[leader.store] = log.len();
            next.push(state);
        }
    }
}

/// All states of a search: their number, those in which a joint configuration is in force at a leader, and the first
/// one that violates.
fn search(rule: Rule, stores: usize, elections: u8, changes: u8) -> (usize, usize, Option<State>) {
    let (mut seen, mut joint) = (FastSet::default(), 0);
    let mut open = vec![State::founded(elections, changes)];
    while let Some(state) = open.pop() {
        if !seen.insert(state.clone()) {
            continue;
        }
        if state.violates() {
            return (seen.len(), joint, Some(state));
        }
        let is_joint = |it: &Leader| state.stores[it.store].in_force().outgoing != 0;
        joint += usize::from(state.leaders.iter().any(is_joint));
        open.extend(state.next(rule, stores));
    }
    (seen.len(), joint, None)
}

#[test]
fn elections_overlap_while_voters_are_replaced() {
    let more = std::env::var("STRONG_ELECTIONS").map_or(0, |more| more.parse().unwrap());
    let changes = 1 + more;
    let (states, joint, violation) = search(Rule::Joint, 4, 2, changes);
    println!("{changes} changes: {states} states, {joint} with a joint configuration at a leader");
    assert!(violation.is_none(), "no majority is left under the term of an earlier leader");
    assert!(joint > 1_000, "voters are replaced");
}

#[test]
fn voters_that_change_in_one_step_are_a_violation() {
    let (states, _, violation) = search(Rule::OneStep, 4, 2, 1);
    println!("{states} states");
    assert!(violation.is_some(), "two majorities without a common store");
}
