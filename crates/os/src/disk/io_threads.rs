//! The threads that wait for the disk, so that a shard's thread does not.
//!
//! One thread writes and some read, so a read never queues behind an fsync. A write with sync costs one
//! wake-up of the writer, the write, the fdatasync, and one wake-up back; there is no timer.

use super::Wake;
use super::files::{Files, io_error};
use super::table::OpenFile;
use crate::workers::Workers;
use base::disk::{Completion, DiskOp, Token};
use base::{DiskError, Full};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How many operations may wait for the writer, and how many for the readers: more than the reads that all
/// connections of a shard can have parked, in about 2 MB.
pub const OPS_MAX: usize = 16_384;

/// An operation on its way to a thread. It holds its file, so a close in between does not hurt it.
struct Task {
    op: DiskOp,
    token: Token,
    file: Option<Arc<OpenFile>>,
}

/// The threads of one handle, and what they have finished.
pub(super) struct IoThreads {
    writer: Workers<Task>,
    readers: Workers<Task>,
    finished: Arc<Finished>,
    /// Operations submitted and not yet polled.
    under_way: usize,
}

impl IoThreads {
    pub(super) fn start(files: &Arc<Files>, readers: usize, wake: Wake) -> io::Result<IoThreads> {
        let finished = Arc::new(Finished::new(wake));
        let start = {
            let (files, finished) = (Arc::clone(files), Arc::clone(&finished));
            move || {
                let (files, finished) = (Arc::clone(&files), Arc::clone(&finished));
                move |Task { op, token, file }: Task| -> Option<Task> {
                    finished.push(Completion { token, result: files.execute(op, file) });
                    None
                }
            }
        };
        let writer = Workers::start("annulet-write", 1, OPS_MAX, start.clone())?;
        let readers = Workers::start("annulet-read", readers, OPS_MAX, start)?;
        Ok(IoThreads { writer, readers, finished, under_way: 0 })
    }

    pub(super) fn submit(&mut self, op: DiskOp, token: Token, file: Option<Arc<OpenFile>>) {
        self.under_way += 1;
        let workers = if is_read(&op) { &self.readers } else { &self.writer };
        if let Err(Full(task)) = workers.push(Task { op, token, file }) {
            let message = format!("more than {OPS_MAX} disk operations (OPS_MAX) are waiting");
            let path = task.file.as_ref().map_or(Path::new(""), |open| open.path());
            self.finished.push(Completion { token, result: Err(io_error(path, message)) });
        }
    }

    /// Ends an operation that could not begin.
    pub(super) fn refuse(&mut self, token: Token, error: DiskError) {
        self.under_way += 1;
        self.finished.push(Completion { token, result: Err(error) });
    }

    pub(super) fn poll(&mut self, completions: &mut Vec<Completion>) {
        if self.finished.some.load(Ordering::Acquire) {
            let before = completions.len();
            self.finished.take(completions);
            self.under_way -= completions.len() - before;
        }
    }

    pub(super) fn wait(&self) {
        assert!(self.under_way > 0, "waiting for a disk that has nothing to do would never end");
        self.finished.wait();
    }
}

/// What the reader threads do: that which changes nothing.
fn is_read(op: &DiskOp) -> bool {
    use base::disk::OpenMode::{Read, Write};
    match op {
        DiskOp::Read { .. } | DiskOp::List { .. } | DiskOp::Space { .. } => true,
        DiskOp::Open { mode, .. } => matches!(mode, Read | Write),
        _ => false,
    }
}

/// Completions on their way back.
struct Finished {
    state: Mutex<FinishedState>,
    /// Whether there are some: changed only under the lock, read without it, so that a poll in vain costs a
    /// nanosecond.
    some: AtomicBool,
    came: Condvar,
    wake: Wake,
}

struct FinishedState {
    completions: Vec<Completion>,
    /// The owner sleeps in `wait`.
    waited_for: bool,
}

impl Finished {
    fn new(wake: Wake) -> Finished {
        let state = FinishedState { completions: Vec::new(), waited_for: false };
        Finished { state: Mutex::new(state), some: AtomicBool::new(false), came: Condvar::new(), wake }
    }

    /// Wakes the owner only for the first: it takes the others along.
    fn push(&self, completion: Completion) {
        let mut state = self.lock();
        state.completions.push(completion);
        let first = state.completions.len() == 1;
        if first {
            self.some.store(true, Ordering::Release);
        }
        let waited_for = std::mem::take(&mut state.waited_for);
        drop(state);
        if waited_for {
            self.came.notify_one();
        }
        if first {
            (self.wake)();
        }
    }

    fn take(&self, completions: &mut Vec<Completion>) {
        let mut state = self.lock();
        completions.append(&mut state.completions);
        self.some.store(false, Ordering::Release);
    }

    fn wait(&self) {
        let mut state = self.lock();
        while state.completions.is_empty() {
            state.waited_for = true;
            state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    // No code that can panic runs under this lock, so poison is no reason to stop.
    fn lock(&self) -> MutexGuard<'_, FinishedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
