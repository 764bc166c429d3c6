//! Threads behind one bounded queue: what I/O threads and job threads have in common.
//!
//! * A wake-up is paid only when a thread sleeps: `push` to busy workers is a lock and a copy.
//! * What a worker took it may put back at the end of the queue; that is how jobs take turns. What is urgent goes
//!   before all that is not, and behind what came before it.
//! * Closing lets the queue run empty, abandoning empties it; dropping closes, and joins the threads.
//! * A panic in a worker ends the process. A dead worker would leave its queue unanswered for ever, and a store
//!   must survive being killed anyway.

use base::Full;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Threads that work off one queue.
#[derive(Debug)]
pub(crate) struct Workers<T> {
    queue: Arc<WorkQueue<T>>,
    threads: Vec<JoinHandle<()>>,
}

impl<T: Send + 'static> Workers<T> {
    /// Starts `count` threads. Each calls `start` once and then what it returned with item after item; an item
    /// that is returned goes to the end of the queue.
    pub(crate) fn start<S, F>(name: &str, count: usize, items_max: usize, start: S) -> io::Result<Workers<T>>
    where
        S: Fn() -> F + Clone + Send + 'static,
        F: FnMut(T) -> Option<T>,
    {
        assert!(count > 0 && items_max > 0, "workers need a thread and a queue");
        // Made before the threads, so that those already started end if one cannot be.
        let mut workers =
            Workers { queue: Arc::new(WorkQueue::new(items_max)), threads: Vec::with_capacity(count) };
        for number in 0..count {
            let (queue, start) = (Arc::clone(&workers.queue), start.clone());
            let thread = thread::Builder::new().name(format!("{name}-{number}")).spawn(move || {
                let _guard = AbortOnPanic;
                let mut work = start();
                while let Some(item) = queue.pop() {
                    if let Some(unfinished) = work(item) {
                        queue.put_back(unfinished);
                    }
                }
            })?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }
}

impl<T> Workers<T> {
    /// Appends `item` and wakes a sleeping worker, or gives the item back when the queue is full.
    pub(crate) fn push(&self, item: T) -> Result<(), Full<T>> {
        self.queue.push(item, |state| &mut state.items)
    }

    /// The same, before all that are queued but those that were put there in this way.
    pub(crate) fn push_urgent(&self, item: T) -> Result<(), Full<T>> {
        self.queue.push(item, |state| &mut state.urgent)
    }

    /// Drops what is queued, and what workers would put back.
    pub(crate) fn abandon(&self) {
        self.queue.abandon();
    }
}

impl<T> Drop for Workers<T> {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // A worker's panic ends the process, so there is no error to look at.
            drop(thread.join());
        }
    }
}

struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

#[derive(Debug)]
struct WorkQueue<T> {
    items_max: usize,
    state: Mutex<State<T>>,
    pushed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// What goes before `items`.
    urgent: VecDeque<T>,
    items: VecDeque<T>,
    /// Workers asleep that nobody has woken yet.
    sleeping: usize,
    /// No more items come, except those put back.
    closed: bool,
    /// Nothing is put back any more.
    abandoned: bool,
}

impl<T> WorkQueue<T> {
    fn new(items_max: usize) -> WorkQueue<T> {
        let state = State {
            urgent: VecDeque::new(),
            items: VecDeque::new(),
            sleeping: 0,
            closed: false,
            abandoned: false,
        };
        WorkQueue { items_max, state: Mutex::new(state), pushed: Condvar::new() }
    }

    fn push(&self, item: T, queue: fn(&mut State<T>) -> &mut VecDeque<T>) -> Result<(), Full<T>> {
        let mut state = self.lock();
        if state.urgent.len() + state.items.len() >= self.items_max {
            return Err(Full(item));
        }
        queue(&mut state).push_back(item);
        let wakes = state.sleeping > 0;
        if wakes {
            state.sleeping -= 1;
        }
        drop(state);
        if wakes {
            self.pushed.notify_one();
        }
        Ok(())
    }

    /// Whoever puts back comes to fetch next, so nobody is woken; and the queue held the item before, so its
    /// bound is exceeded by one item a worker at most.
    fn put_back(&self, item: T) {
        let mut state = self.lock();
        if !state.abandoned {
            state.items.push_back(item);
        }
    }

    /// The oldest item, of the urgent ones if there are any; waits for one. `None` when the queue is closed and empty.
    fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(item) = state.urgent.pop_front().or_else(|| state.items.pop_front()) {
                return Some(item);
            }
            if state.closed {
                return None;
            }
            // Whoever wakes takes one off the count. A worker that wakes of itself leaves the count too high,
            // which costs a wake-up too many; too low, which would lose one, it never gets.
            state.sleeping += 1;
            state = self.pushed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.pushed.notify_all();
    }

    fn abandon(&self) {
        let mut state = self.lock();
        state.abandoned = true;
        let (urgent, items) = (std::mem::take(&mut state.urgent), std::mem::take(&mut state.items));
        drop(state);
        drop((urgent, items));
    }

    // No code that can panic runs under this lock, so poison is no reason to stop.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_urgent_goes_first_and_counts_with_the_rest() {
        let queue = WorkQueue::new(4);
        for number in [1, 2] {
            queue.push(number, |state| &mut state.items).unwrap();
            queue.push(10 * number, |state| &mut state.urgent).unwrap();
        }
        assert!(matches!(queue.push(3, |state| &mut state.items), Err(Full(3))));
        assert!(matches!(queue.push(30, |state| &mut state.urgent), Err(Full(30))));
        let first: Vec<_> = (0..3).map(|_| queue.pop()).collect();
        assert_eq!(first, [Some(10), Some(20), Some(1)]);
        queue.push(30, |state| &mut state.urgent).unwrap();
        queue.abandon();
        queue.close();
        assert_eq!(queue.pop(), None, "neither is left");
    }
}
