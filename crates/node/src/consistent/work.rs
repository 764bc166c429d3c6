//! Work that the steps of groups and requests leave, in its order.

use std::collections::VecDeque;

use strong::group::{Input, Proposal};

use super::group::GroupKey;
use super::pending::Pending;

/// A piece of work.
pub(super) enum Todo {
    /// A group is to take an input.
    Step(GroupKey, Input),
    /// A group is to take a write, whose entry may get this index.
    Propose { key: GroupKey, index: u64, proposal: Proposal },
    /// A request is to find its leader.
    Dispatch(Box<Pending>),
    /// A request is to wait for a leader.
    Wait(Box<Pending>),
}

/// Work that is left, the next piece first.
#[derive(Default)]
pub(super) struct GroupWork {
    queue: VecDeque<Todo>,
}

impl GroupWork {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes the next piece.
    pub fn pop(&mut self) -> Option<Todo> {
        self.queue.pop_front()
    }

    /// A group is to take an input, when all is done that is queued now.
    pub fn step(&mut self, key: GroupKey, input: Input) {
        self.queue.push_back(Todo::Step(key, input));
    }

    /// A request is to find its leader, when all is done that is queued now.
    pub fn dispatch(&mut self, pending: Pending) {
        self.queue.push_back(Todo::Dispatch(Box::new(pending)));
    }

    /// Something is to be done next: nothing else may come between it and this step.
    pub fn do_next(&mut self, todo: Todo) {
        self.queue.push_front(todo);
    }

    /// Has a group get its keys from another voter if one of them cannot be read.
    pub fn note_damage<T>(&mut self, key: GroupKey, found: &Result<T, engine::Error>) {
        // Other errors pass.
        if matches!(found, Err(engine::Error::Damaged(_))) {
            self.step(key, Input::Unreadable);
        }
    }

    /// Drops the steps of a group that is left.
    pub fn forget(&mut self, key: GroupKey) {
        self.queue.retain(|todo| !matches!(todo, Todo::Step(other, _) if *other == key));
    }
}
