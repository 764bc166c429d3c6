//! The search for an order of one key's operations.
//!
//! A read that fits the state is placed at once. Of operations that may be left out and have the same effect, the first
//! one is placed first. A state is not searched from if one that is as good was (`Memo`).
//!
//! Invariants: `placed` holds the operations with events out of the list; `placements` undoes them, last first.

use base::{FastMap, FastSet};

use super::{Action, Operation, Outcome, STATES_SHOWN_MAX, Value, Verdict, Violation};

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
    let mut search = Search::of(history);
    // Operations that may be left out are placed only where the others alone find no order.
    let mut places_optional = false;
    search.place_reads();
    while search.events.open_returns > 0 {
        let event = search.events.list[search.at];
        if event.is_return && !places_optional {
            (search.at, places_optional) = (search.events.first(), true);
            continue;
        }
        if event.is_return {
            // Its operation should have been placed before: undo the last placement and try the next one.
            match search.undo() {
                Some(was_optional) => places_optional = was_optional,
                None => return Verdict::Violation(search.stuck.explain(history, &search.events)),
            }
            continue;
        }

        let is_tried = event.end.is_none() == places_optional && search.facts.is_next(&event, &search.placed);
        let after = history[event.operation].apply(search.state).filter(|_| is_tried);
        if after.is_some_and(|after| search.place(after)) {
            if search.memo.sets > states_max {
                return Verdict::Unknown;
            }
            places_optional = false;
            search.place_reads();
        } else {
            search.at = event.next;
        }
    }
    Verdict::Linearizable
}

/// A search under way.
struct Search<'a> {
    history: &'a [Operation],
    facts: Facts,
    events: Events,
    placed: Set,
    placements: Vec<Placement>,
    memo: Memo,
    state: Option<Value>,
    /// The position among the events.
    at: usize,
    stuck: Stuck,
}

/// An operation in the order.
struct Placement {
    /// The position of its call.
    call: usize,
    /// The state before it.
    before: Option<Value>,
    /// It is a read that fits the state: nothing is gained if it is placed later.
    is_forced: bool,
}

impl<'a> Search<'a> {
    fn of(history: &'a [Operation]) -> Search<'a> {
        let events = Events::of(history);
        Search {
            history,
            facts: Facts::of(history),
            at: events.first(),
            events,
            placed: vec![0; history.len().div_ceil(64)].into(),
            placements: Vec::new(),
            memo: Memo::default(),
            state: None,
            stuck: Stuck::default(),
        }
    }

    /// Places the operation here, unless a search from no better a state is done; whether it is placed.
    fn place(&mut self, after: Option<Value>) -> bool {
        let operation = self.events.list[self.at].operation;
        flip(&mut self.placed, operation);
        if !self.memo.insert(&self.placed, self.facts.seen(after), &self.facts.optional) {
            flip(&mut self.placed, operation);
            return false;
        }
        self.take(self.at, false);
        self.state = after;
        true
    }

    /// Places all reads that fit the state, and goes to the first event left.
    fn place_reads(&mut self) {
        let mut at = self.events.first();
        while self.events.open_returns > 0 && !self.events.list[at].is_return {
            let Event { operation, next, .. } = self.events.list[at];
            let read = self.history[operation];
            let fits = read.is_read() && read.apply(self.state).is_some();
            at = match fits {
                true => {
                    flip(&mut self.placed, operation);
                    self.take(at, true);
                    // Its return may have been the first one.
                    self.events.first()
                }
                false => next,
            };
        }
        self.at = self.events.first();
    }

    fn take(&mut self, call: usize, is_forced: bool) {
        self.placements.push(Placement { call, before: self.state, is_forced });
        self.events.remove(call);
    }

    /// Undoes the last placement that had alternatives, and those behind it; whether it was of an operation that may be
    /// left out. None if there is none.
    fn undo(&mut self) -> Option<bool> {
        self.stuck.note(self.at, self.state);
        loop {
            let Placement { call, before, is_forced } = self.placements.pop()?;
            self.events.restore(call);
            flip(&mut self.placed, self.events.list[call].operation);
            self.state = before;
            if !is_forced {
                let Event { next, end, .. } = self.events.list[call];
                self.at = next;
                return Some(end.is_none());
            }
        }
    }
}

/// Facts about operations that save searches.
struct Facts {
    /// Values that some operation tells from others.
    told: FastSet<Value>,
    /// The operation before this one that has the same effect, where both may be left out.
    twins: Vec<Option<usize>>,
    /// All operations that may be left out.
    optional: Set,
}

impl Facts {
    fn of(history: &[Operation]) -> Facts {
        let told = history.iter().flat_map(|operation| {
            let expected = match operation.action {
                Action::Cas { expected, .. } | Action::DeleteIf { expected } => Some(expected),
                _ => None,
            };
            let read = if let Outcome::Read(value) = operation.outcome { value } else { None };
            expected.into_iter().chain(read)
        });
        let mut facts = Facts {
            told: told.collect(),
            twins: vec![None; history.len()],
            optional: vec![0; history.len().div_ceil(64)].into(),
        };
        let is_optional = |operation: &Operation| operation.is_possible() && !operation.is_definite();
        let mut order: Vec<usize> = (0..history.len()).filter(|at| is_optional(&history[*at])).collect();
        // As events are sorted.
        order.sort_unstable_by_key(|at| (history[*at].call, *at));
        let mut last: FastMap<Action, usize> = FastMap::default();
        for at in order {
            flip(&mut facts.optional, at);
            let effect = facts.effect(history[at].action);
            facts.twins[at] = last.insert(effect, at);
        }
        facts
    }

    /// The value, or one for all that nobody tells from each other.
    fn seen(&self, value: Option<Value>) -> Option<Value> {
        value.map(|value| if self.told.contains(&value) { value } else { UNTOLD })
    }

    /// The action with such values.
    fn effect(&self, action: Action) -> Action {
        let seen = |value| self.seen(Some(value)).unwrap_or(UNTOLD);
        match action {
            Action::Put(value) => Action::Put(seen(value)),
            Action::PutOnce(value) => Action::PutOnce(seen(value)),
            Action::Cas { expected, value } => Action::Cas { expected, value: seen(value) },
            other => other,
        }
    }

    /// Whether no operation before this one would do as well: of two with the same effect the first one is placed.
    fn is_next(&self, event: &Event, placed: &Set) -> bool {
        self.twins[event.operation].is_none_or(|twin| placed[twin / 64] >> (twin % 64) & 1 == 1)
    }
}

/// Stands for all values that no operation tells from each other. A history has fewer values.
const UNTOLD: Value = Value::MAX;

/// States that were searched.
///
/// Of operations that may be left out, those that are not placed are of use later on. So of two states with the same
/// value and the same other operations, the one with fewer of them placed finds all that the other one does.
#[derive(Default)]
struct Memo {
    /// Placed operations that may be left out, by the other ones that are placed and the value.
    known: FastMap<(Set, Option<Value>), Vec<Set>>,
    /// All sets.
    sets: usize,
}

impl Memo {
    /// Adds a state, unless one that is as good is known.
    fn insert(&mut self, placed: &Set, value: Option<Value>, optional: &Set) -> bool {
        let part = |of: fn(u64, u64) -> u64| -> Set {
            placed.iter().zip(optional).map(|(placed, optional)| of(*placed, *optional)).collect()
        };
        let (definite, left_out) = (part(|a, b| a & !b), part(|a, b| a & b));
        let known = self.known.entry((definite, value)).or_default();
        let is_within = |other: &Set| other.iter().zip(&left_out).all(|(other, new)| other & !new == 0);
        if known.iter().any(is_within) {
            return false;
        }
        known.push(left_out);
        self.sets += 1;
        true
    }
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
