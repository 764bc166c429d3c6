//! An exhaustive search through the states of a model.
//!
//! Each state that can be reached is visited once: states are told apart by 128 bits of two hashes. The actions of a
//! model take from budgets, so the search ends without a bound on its depth.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};

use base::FastSet;

/// A model: states and the steps between them.
pub trait Model: Clone + Hash {
    /// A step.
    type Action: Clone + Debug;

    /// Steps that are possible.
    fn actions(&self) -> Vec<Self::Action>;

    /// Takes a step.
    fn step(&mut self, action: &Self::Action);

    /// The property that the state violates.
    fn violation(&self) -> Option<String>;
}

/// The end of a search.
pub struct Found<A> {
    /// States visited.
    pub states: usize,
    /// The steps to a state that violates a property, and the property.
    pub violation: Option<(Vec<A>, String)>,
    /// The longest sequence of steps.
    pub depth: usize,
}

/// A state on the path of the search.
struct Visit<M: Model> {
    state: M,
    /// Steps that are not taken yet.
    actions: Vec<M::Action>,
    /// The step to it; none for the first state.
    action: Option<M::Action>,
}

/// Visits all states behind one, or all before the first violation; `seen` is shown each of them.
pub fn search<M: Model>(first: M, mut seen: impl FnMut(&M)) -> Found<M::Action> {
    let mut visited = FastSet::default();
    visited.insert(fingerprint(&first));
    seen(&first);
    let actions = first.actions();
    let mut path = vec![Visit { state: first, actions, action: None }];
    let mut depth = 0;

    while let Some(visit) = path.last_mut() {
        let Some(action) = visit.actions.pop() else {
            path.pop();
            continue;
        };
        let mut next = visit.state.clone();
        next.step(&action);
        if !visited.insert(fingerprint(&next)) {
            continue;
        }
        seen(&next);
        if let Some(violation) = next.violation() {
            let steps = path.into_iter().filter_map(|visit| visit.action).chain([action]).collect();
            return Found { states: visited.len(), violation: Some((steps, violation)), depth };
        }
        let actions = next.actions();
        path.push(Visit { state: next, actions, action: Some(action) });
        depth = depth.max(path.len());
    }
    Found { states: visited.len(), violation: None, depth }
}

fn fingerprint(state: &impl Hash) -> (u64, u64) {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    let one = hasher.finish();
    hasher.write_u8(1);
    (one, hasher.finish())
}
