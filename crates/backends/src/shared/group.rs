//! A store with one owner, which many threads write: what comes while it is written is its next batch.
//!
//! 1. A thread that finds nobody writing leads: it writes what it came with, and then, a batch a turn, what has queued
//!    meanwhile.
//! 2. A thread that finds a leader leaves its write in its [`Slot`], in the queue, and waits for the answer.
//! 3. A leader goes on while there is a queue, for [`TURNS_MAX`] turns; then the first of the queue leads.
//!
//! So a lone thread pays for two locks that nobody holds, and many share each turn of the store: one hand-over to the
//! disk, one sync. They are served in the order in which they came, where those who wait for a lock are not.
//!
//! Invariants: a write is answered with what became of it alone, though it was written with others; a queue has at most
//! one write of each thread; there is a leader while there is a queue.

use crate::backend::{Backend, Write};
use crate::error::Error;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Writes of a batch at most, and bytes with which no more are added to one: what a store takes within a millisecond,
/// so that nobody waits much longer for having come with many.
const GROUP_WRITES_MAX: usize = 128;
const GROUP_BYTES_MAX: usize = 1 << 20;

/// Turns of a leader for others: each saves a thread's wake-up, and makes its own caller wait by a turn.
const TURNS_MAX: usize = 8;

/// A store, and the writes that wait for it.
pub(super) struct Owned {
    store: Mutex<Box<dyn Backend>>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<Slot>>,
    is_led: bool,
}

/// Where a thread leaves its write, and gets its answer.
#[derive(Default)]
pub(super) struct Slot {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// `None` of a value is a delete.
    key: Vec<u8>,
    head: Vec<u8>,
    value: Option<Vec<u8>>,
    next: Next,
}

/// What the thread of a slot does next.
#[derive(Default)]
enum Next {
    #[default]
    Wait,
    Lead,
    Return(Result<(), Error>),
}

impl Owned {
    pub(super) fn new(store: Box<dyn Backend>) -> Owned {
        Owned { store: Mutex::new(store), queue: Mutex::default() }
    }

    /// The store, for one who does not write.
    pub(super) fn lock(&self) -> MutexGuard<'_, Box<dyn Backend>> {
        lock(&self.store)
    }

    pub(super) fn into_inner(self) -> Box<dyn Backend> {
        self.store.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes, and returns when that is as safe as the store was told at its opening. `slot` is the calling thread's
    /// own.
    pub(super) fn write(&self, slot: &Arc<Slot>, write: Write<'_>) -> Result<(), Error> {
        let mut queue = lock(&self.queue);
        if !queue.is_led {
            queue.is_led = true;
            drop(queue);
            let mut lead = Lead { owned: self, group: Vec::new() };
            let result = self.lock().write(&[write]);
            lead.serve();
            return result;
        }
        slot.fill(write);
        queue.waiting.push_back(Arc::clone(slot));
        drop(queue);
        if let Some(result) = slot.wait() {
            return result;
        }
        Lead { owned: self, group: Vec::new() }.serve();
        // The first turn was for the first of the queue, which this is.
        slot.wait().expect("whoever leads is served first")
    }

    /// Moves the next batch out of the queue.
    fn take_group(&self, group: &mut Vec<Arc<Slot>>) {
        let mut queue = lock(&self.queue);
        let mut bytes = 0;
        while group.len() < GROUP_WRITES_MAX && bytes < GROUP_BYTES_MAX {
            let Some(slot) = queue.waiting.pop_front() else { break };
            bytes += lock(&slot.state).bytes();
            group.push(slot);
        }
    }
}

/// The turns of a thread that leads; when it goes, another leads, or nobody has to.
struct Lead<'o> {
    owned: &'o Owned,
    /// Those whose writes are under way.
    group: Vec<Arc<Slot>>,
}

impl Lead<'_> {
    /// Writes what has queued, as long as there is something and it has not been long enough.
    fn serve(&mut self) {
        for _ in 0..TURNS_MAX {
            self.owned.take_group(&mut self.group);
            if self.group.is_empty() {
                return;
            }
            self.write_group();
        }
    }

    fn write_group(&mut self) {
        let states: Vec<MutexGuard<'_, State>> = self.group.iter().map(|slot| lock(&slot.state)).collect();
        let writes: Vec<Write<'_>> = states.iter().map(|state| state.write()).collect();
        let mut store = self.owned.lock();
        let together = store.write(&writes);
        let alone: Vec<Result<(), Error>> = match together {
            Ok(()) => writes.iter().map(|_| Ok(())).collect(),
            // Nothing of it was written, or what was is written once more: each hears of its own.
            Err(_) => writes.iter().map(|write| store.write(std::slice::from_ref(write))).collect(),
        };
        drop(store);
        drop(writes);
        drop(states);
        for (slot, result) in self.group.drain(..).zip(alone) {
            slot.tell(Next::Return(result));
        }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        // A thread that has panicked in a store leaves those that it wrote for without an answer.
        for slot in self.group.drain(..) {
            let what = "a write of others that was under way with this one has failed".to_owned();
            slot.tell(Next::Return(Err(Error::Refused(what))));
        }
        let mut queue = lock(&self.owned.queue);
        match queue.waiting.front() {
            Some(first) => first.tell(Next::Lead),
            None => queue.is_led = false,
        }
    }
}

impl Slot {
    fn fill(&self, write: Write<'_>) {
        let mut state = lock(&self.state);
        let State { key, head, value, next } = &mut *state;
        let (new_head, new_value) = match write {
            Write::Put { head, value, .. } => (head, Some(value)),
            Write::Delete { .. } => (&[][..], None),
        };
        key.clear();
        key.extend_from_slice(write.key());
        head.clear();
        head.extend_from_slice(new_head);
        let mut bytes = value.take().unwrap_or_default();
        bytes.clear();
        *value = new_value.map(|new| {
            bytes.extend_from_slice(new);
            bytes
        });
        *next = Next::Wait;
    }

    /// The answer, or `None`: the thread leads.
    fn wait(&self) -> Option<Result<(), Error>> {
        let waits = |state: &mut State| matches!(state.next, Next::Wait);
        let state = self.changed.wait_while(lock(&self.state), waits).unwrap_or_else(PoisonError::into_inner);
        let mut state = state;
        match std::mem::take(&mut state.next) {
            Next::Return(result) => Some(result),
            Next::Lead | Next::Wait => None,
        }
    }

    fn tell(&self, next: Next) {
        lock(&self.state).next = next;
        self.changed.notify_one();
    }
}

impl State {
    fn write(&self) -> Write<'_> {
        match &self.value {
            Some(value) => Write::Put { key: &self.key, head: &self.head, value },
            None => Write::Delete { key: &self.key },
        }
    }

    fn bytes(&self) -> usize {
        self.key.len() + self.head.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

/// A thread that has panicked in a store has left it as it was: stores fail by themselves. Nothing else here is left
/// half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Object, Visit, What};
    use bytes::Bytes;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Tells of each batch by its keys, once it may; refuses one with a key "bad".
    struct Gated {
        gate: Receiver<()>,
        batches: Sender<Vec<Vec<u8>>>,
    }

    impl Backend for Gated {
        fn write(&mut self, batch: &[Write<'_>]) -> Result<(), Error> {
            self.gate.recv().expect("the test opens the gate");
            let keys = batch.iter().map(|write| write.key().to_vec()).collect();
            self.batches.send(keys).expect("the test listens");
            match batch.iter().any(|write| write.key() == b"bad") {
                true => Err(Error::Refused("bad".to_owned())),
                false => Ok(()),
            }
        }

        fn get(&mut self, _key: &[u8]) -> Result<Option<Object>, Error> {
            Ok(None)
        }

        fn head(&mut self, _key: &[u8]) -> Result<Option<Bytes>, Error> {
            Ok(None)
        }

        fn fold(&mut self, _: &[u8], _: &[u8], _: What, _: &mut Visit<'_>) -> Result<(), Error> {
            Ok(())
        }

        fn close(self: Box<Self>) -> Result<(), Error> {
            Ok(())
        }
    }

    struct Bed {
        owned: Owned,
        gate: Sender<()>,
        batches: Receiver<Vec<Vec<u8>>>,
    }

    fn bed() -> Bed {
        let ((gate, opened), (sender, batches)) = (channel(), channel());
        let owned = Owned::new(Box::new(Gated { gate: opened, batches: sender }));
        Bed { owned, gate, batches }
    }

    fn put(owned: &Owned, key: &[u8]) -> Result<(), Error> {
        owned.write(&Arc::default(), Write::Put { key, head: b"head", value: b"value" })
    }

    /// Until so many wait, with somebody who leads.
    fn await_queue(owned: &Owned, len: usize) {
        loop {
            let queue = lock(&owned.queue);
            if queue.is_led && queue.waiting.len() == len {
                return;
            }
            drop(queue);
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_comes_while_a_store_is_written_is_its_next_batch_in_the_order_of_its_coming() {
        let Bed { owned, gate, batches } = bed();
        std::thread::scope(|scope| {
            scope.spawn(|| put(&owned, b"first").unwrap());
            await_queue(&owned, 0);
            for (at, key) in [b"a", b"b", b"c"].into_iter().enumerate() {
                let owned = &owned;
                scope.spawn(move || put(owned, key).unwrap());
                await_queue(owned, at + 1);
            }
            (0..2).for_each(|_| gate.send(()).unwrap());
        });
        assert_eq!(batches.recv().unwrap(), [b"first".to_vec()]);
        assert_eq!(batches.recv().unwrap(), [b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
        assert!(!lock(&owned.queue).is_led);
    }

    #[test]
    fn each_hears_what_became_of_its_own_write() {
        let Bed { owned, gate, batches } = bed();
        std::thread::scope(|scope| {
            scope.spawn(|| put(&owned, b"first").unwrap());
            await_queue(&owned, 0);
            scope.spawn(|| put(&owned, b"good").unwrap());
            await_queue(&owned, 1);
            scope.spawn(|| put(&owned, b"bad").unwrap_err());
            await_queue(&owned, 2);
            (0..4).for_each(|_| gate.send(()).unwrap());
        });
        let lens: Vec<usize> = batches.try_iter().map(|batch| batch.len()).collect();
        assert_eq!(lens, [1, 2, 1, 1]);
    }

    #[test]
    fn a_batch_is_bounded_and_so_are_the_turns_of_a_leader() {
        let Bed { owned, gate, batches } = bed();
        let threads = GROUP_WRITES_MAX * (TURNS_MAX + 1) + 1;
        let slots: Vec<Arc<Slot>> = (0..threads).map(|_| Arc::default()).collect();
        for slot in &slots {
            slot.fill(Write::Delete { key: b"key" });
            lock(&owned.queue).waiting.push_back(Arc::clone(slot));
        }
        lock(&owned.queue).is_led = true;
        (0..TURNS_MAX).for_each(|_| gate.send(()).unwrap());
        Lead { owned: &owned, group: Vec::new() }.serve();
        let lens: Vec<usize> = batches.try_iter().map(|batch| batch.len()).collect();
        assert_eq!(lens, [GROUP_WRITES_MAX; TURNS_MAX]);
        // The first of those that are left leads.
        assert_eq!(lock(&owned.queue).waiting.len(), GROUP_WRITES_MAX + 1);
        assert!(lock(&owned.queue).is_led);
        assert!(matches!(lock(&slots[GROUP_WRITES_MAX * TURNS_MAX].state).next, Next::Lead));
        let answered = |slot: &&Arc<Slot>| matches!(lock(&slot.state).next, Next::Return(Ok(())));
        assert_eq!(slots.iter().filter(answered).count(), GROUP_WRITES_MAX * TURNS_MAX);
    }

    #[test]
    fn many_bytes_are_a_batch_by_themselves() {
        let Bed { owned, gate, batches } = bed();
        let value = vec![0; GROUP_BYTES_MAX];
        for _ in 0..3 {
            let slot: Arc<Slot> = Arc::default();
            slot.fill(Write::Put { key: b"key", head: b"", value: &value });
            lock(&owned.queue).waiting.push_back(slot);
        }
        (0..3).for_each(|_| gate.send(()).unwrap());
        Lead { owned: &owned, group: Vec::new() }.serve();
        assert_eq!(batches.try_iter().map(|batch| batch.len()).collect::<Vec<_>>(), [1, 1, 1]);
    }

    #[test]
    fn those_that_wait_for_a_thread_that_panics_are_told() {
        let (gate, opened) = channel();
        let (sender, _batches) = channel();
        let owned = Owned::new(Box::new(Gated { gate: opened, batches: sender }));
        let slot: Arc<Slot> = Arc::default();
        slot.fill(Write::Delete { key: b"key" });
        lock(&owned.queue).waiting.push_back(Arc::clone(&slot));
        lock(&owned.queue).is_led = true;
        drop(gate);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| Lead { owned: &owned, group: Vec::new() }.serve());
            assert!(thread.join().is_err());
        });
        assert!(matches!(slot.wait(), Some(Err(_))));
        assert!(!lock(&owned.queue).is_led);
    }
}
