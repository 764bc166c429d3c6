//! The search for an order of one key's operations.
//!
//! Invariants: `placed` holds the operations with events out of the list; `placements` undoes them, last first.

use base::FastSet;

use super::{Operation, STATES_SHOWN_MAX, Value, Verdict, Violation};

/// A call or a return in the list of events.
#[derive(Clone, Copy)]
struct Event {
    /// Number of the operation.
    operation: usize,
    /// Position of the operation's return; none for a timeout, and for a return itself.
    end: Option<usize>,
    is_return: bool,
    previous: usize,
    next: usize,
}

/// Set of operations, a bit each.
type Set = Box<[u64]>;

/// Searches for an order that explains the outcomes of all operations, which are on one key.
///
/// `states_max` bounds the number of states that are remembered.
pub fn check(history: &[Operation], states_max: usize) -> Verdict {
    let mut events = Events::of(history);
    let mut placed: Set = vec![0; history.len().div_ceil(64)].into();
    let mut placements: Vec<(usize, Option<Value>)> = Vec::new();
    let mut memo: FastSet<(Set, Option<Value>)> = FastSet::default();
    let mut state = None;
    let mut stuck = Stuck::default();

    // Operations that may be left out are placed only where the others alone find no order.
    let (mut at, mut places_optional) = (events.first(), false);
    while events.open_returns > 0 {
        let event = events.list[at];
        if event.is_return && !places_optional {
            (at, places_optional) = (events.first(), true);
            continue;
        }
        if event.is_return {
            // Its operation should have been placed before: undo the last placement and try the next one.
            stuck.note(at, state);
            let Some((call, before)) = placements.pop() else {
                return Verdict::Violation(stuck.explain(history, &events));
            };
            events.restore(call);
            flip(&mut placed, events.list[call].operation);
            state = before;
            (at, places_optional) = (events.list[call].next, events.list[call].end.is_none());
            continue;
        }

        let is_tried = event.end.is_none() == places_optional;
        let after = history[event.operation].apply(state).filter(|_| is_tried);
        if let Some(after) = after {
            flip(&mut placed, event.operation);
            if memo.insert((placed.clone(), after)) {
                if memo.len() > states_max {
                    return Verdict::Unknown;
                }
                placements.push((at, state));
                state = after;
                events.remove(at);
                (at, places_optional) = (events.first(), false);
                continue;
            }
            flip(&mut placed, event.operation);
        }
        at = event.next;
    }
    Verdict::Linearizable
}

fn flip(set: &mut Set, operation: usize) {
    set[operation / 64] ^= 1 << (operation % 64);
}

/// Events in order of time, as a list from which operations are taken and put back.
struct Events {
    /// The first element is the head of the list and no event.
    list: Vec<Event>,
    /// Returns in the list.
    open_returns: usize,
}

impl Events {
    fn of(history: &[Operation]) -> Events {
        let mut times: Vec<(u64, bool, usize)> = Vec::new();
        for (number, operation) in history.iter().enumerate() {
            if operation.is_possible() {
                times.push((operation.call, false, number));
            }
            if operation.is_definite() {
                assert!(operation.call <= operation.end, "an operation returns after its call");
                times.push((operation.end, true, number));
            }
        }
        times.sort_unstable();

        let count = times.len() + 1;
        let head = Event { operation: 0, end: None, is_return: true, previous: count - 1, next: 1 % count };
        let mut list = vec![head];
        let mut calls = vec![0; history.len()];
        for (at, (_, is_return, operation)) in (1..).zip(times) {
            if is_return {
                let call: usize = calls[operation];
                list[call].end = Some(at);
            } else {
                calls[operation] = at;
            }
            let next = (at + 1) % count;
            list.push(Event { operation, end: None, is_return, previous: at - 1, next });
        }
        let open_returns = list.iter().skip(1).filter(|event| event.is_return).count();
        Events { list, open_returns }
    }

    fn first(&self) -> usize {
        self.list[0].next
    }

    /// Takes an operation's events out of the list.
    fn remove(&mut self, call: usize) {
        self.unlink(call);
        if let Some(end) = self.list[call].end {
            self.unlink(end);
            self.open_returns -= 1;
        }
    }

    /// Puts the operation that was taken out last back.
    fn restore(&mut self, call: usize) {
        if let Some(end) = self.list[call].end {
            self.link(end);
            self.open_returns += 1;
        }
        self.link(call);
    }

    fn unlink(&mut self, at: usize) {
        let Event { previous, next, .. } = self.list[at];
        self.list[previous].next = next;
        self.list[next].previous = previous;
    }

    fn link(&mut self, at: usize) {
        let Event { previous, next, .. } = self.list[at];
        self.list[previous].next = at;
        self.list[next].previous = at;
    }
}

/// The latest return that the search could not pass.
#[derive(Default)]
struct Stuck {
    /// Its position among the events.
    at: usize,
    /// States before it.
    states: Vec<Option<Value>>,
}

impl Stuck {
    fn note(&mut self, at: usize, state: Option<Value>) {
        if at > self.at {
            self.at = at;
            self.states.clear();
        }
        if at == self.at && self.states.len() < STATES_SHOWN_MAX && !self.states.contains(&state) {
            self.states.push(state);
        }
    }

    fn explain(self, history: &[Operation], events: &Events) -> Violation {
        let operation = events.list[self.at].operation;
        let Operation { call, end, .. } = history[operation];
        let overlaps = |other: &Operation| {
            other.is_possible() && other.call <= end && (!other.is_definite() || other.end >= call)
        };
        let concurrent = history.iter().enumerate();
        let concurrent = concurrent.filter(|(number, other)| *number != operation && overlaps(other));
        let concurrent = concurrent.map(|(number, _)| number).collect();
        Violation { operation, window: (call, end), concurrent, states: self.states }
    }
}
