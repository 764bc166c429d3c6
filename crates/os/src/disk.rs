//! Real files behind [`base::Disk`].
//!
//! A disk is a table of open files shared by its handles; each thread has a handle of its own:
//!
//! * a shard's handle is *threaded*: operations go to I/O threads, and `wake` is called when the first of them
//!   has finished (see `io_threads`);
//! * a handle for start-up, tools and jobs is *blocking*: an operation is over when `submit` returns.
//!
//! A file id is valid in all handles, and never used again. Of the files that are open a bounded number has a handle of
//! the operating system's (see `table`); one that has none is opened again by the next operation on it. A handle
//! remembers the files that it has seen, so that [`Disk::try_read`] takes no lock; it remembers them weakly, so that a
//! closed file is really closed. Dropping a handle finishes what was submitted to it; dropping the last one releases
//! the locks.

mod counters;
mod files;
mod io_threads;
mod table;

use base::disk::{Completion, Disk, DiskAnswer, DiskOp, FileId, Token, run};
use base::{DiskError, FastMap};
use bytes::Bytes;
pub use counters::{DiskCounters, DiskFigures};
pub use files::{FILES_OPEN_MAX, files_max};
use files::{Files, file_id, will_read};
use io_threads::IoThreads;
pub use io_threads::OPS_MAX;
use std::io;
use std::sync::{Arc, Weak};
use table::{OpenFile, not_open};

/// What wakes a shard's thread: cheap, callable from any thread, remembered if the shard is awake.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// A handle remembers at least this many files before it looks for those that were closed: as many as a
/// store usually has open.
const SEEN_MIN: usize = 64;

/// One thread's handle to a disk.
pub struct OsDisk {
    mode: Mode,
    // After the mode, which is dropped first: its threads use the files.
    files: Arc<Files>,
    seen: FastMap<FileId, Weak<OpenFile>>,
    /// The number of remembered files at which the closed ones are forgotten.
    seen_max: usize,
}

enum Mode {
    /// Operations are over when `submit` returns; these wait to be polled.
    Blocking(Vec<Completion>),
    Threaded(IoThreads),
}

impl OsDisk {
    /// A new disk, and a handle whose operations are executed inside `submit`.
    pub fn blocking() -> OsDisk {
        OsDisk::new(Arc::new(Files::new()), Mode::Blocking(Vec::new()))
    }

    /// A new disk, and a handle with one thread that writes and `readers` threads that read. `wake` is called
    /// when there is something to poll where there was nothing.
    pub fn threaded(readers: usize, wake: Wake) -> io::Result<OsDisk> {
        OsDisk::blocking().threaded_handle(readers, wake)
    }

    /// Another handle to the same disk, like [`OsDisk::blocking`].
    pub fn blocking_handle(&self) -> OsDisk {
        self.blocking_handles()()
    }

    /// Makes blocking handles on whichever thread it is called.
    pub fn blocking_handles(&self) -> impl Fn() -> OsDisk + Clone + Send + Sync + 'static {
        let files = Arc::clone(&self.files);
        move || OsDisk::new(Arc::clone(&files), Mode::Blocking(Vec::new()))
    }

    /// Another handle to the same disk, with threads of its own, like [`OsDisk::threaded`].
    pub fn threaded_handle(&self, readers: usize, wake: Wake) -> io::Result<OsDisk> {
        let threads = IoThreads::start(&self.files, readers, wake)?;
        Ok(OsDisk::new(Arc::clone(&self.files), Mode::Threaded(threads)))
    }

    /// What all handles of this disk have done.
    pub fn counters(&self) -> Arc<DiskCounters> {
        Arc::clone(&self.files.counters)
    }

    fn new(files: Arc<Files>, mode: Mode) -> OsDisk {
        OsDisk { mode, files, seen: FastMap::default(), seen_max: SEEN_MIN }
    }

    /// Keeps at most so many handles of the operating system's for files that nobody uses: [`FILES_OPEN_MAX`] unless
    /// this is called. For all handles of this disk.
    pub fn keep_open(&self, files_max: usize) {
        self.files.keep_open(files_max);
    }

    /// How many files have a handle of the operating system's.
    pub fn open_files(&self) -> usize {
        self.files.open_files()
    }

    /// The file, if it is open and need not be opened again.
    fn find(&mut self, id: FileId) -> Option<Arc<OpenFile>> {
        if let Some(open) = self.seen.get(&id).and_then(Weak::upgrade) {
            open.touch();
            return Some(open);
        }
        let open = self.files.get(id)?;
        if self.seen.len() >= self.seen_max {
            self.seen.retain(|_, open| open.strong_count() > 0);
            self.seen_max = SEEN_MIN.max(2 * self.seen.len());
        }
        self.seen.insert(id, Arc::downgrade(&open));
        Some(open)
    }

    /// The file that `op` names by its id; `None` if it names none, and if the file is to be opened again by whoever
    /// may wait.
    fn file_of(&mut self, op: &DiskOp) -> Result<Option<Arc<OpenFile>>, DiskError> {
        let Some(id) = file_id(op) else { return Ok(None) };
        match self.find(id) {
            None if !self.files.knows(id) => Err(not_open(id)),
            found => Ok(found),
        }
    }
}

impl Disk for OsDisk {
    fn submit(&mut self, op: DiskOp, token: Token) {
        let file = self.file_of(&op);
        match (&mut self.mode, file) {
            (Mode::Blocking(finished), file) => {
                let result = file.and_then(|file| self.files.execute(op, file));
                finished.push(Completion { token, result });
            }
            (Mode::Threaded(threads), Ok(file)) => threads.submit(op, token, file),
            (Mode::Threaded(threads), Err(error)) => threads.refuse(token, error),
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        match &mut self.mode {
            Mode::Blocking(finished) => completions.append(finished),
            Mode::Threaded(threads) => threads.poll(completions),
        }
    }

    fn wait(&mut self) {
        match &mut self.mode {
            Mode::Blocking(_) => {}
            Mode::Threaded(threads) => threads.wait(),
        }
    }

    /// Also `None` where the file system cannot do it, and at the end of the file, where a read that waits
    /// tells for certain.
    fn try_read(&mut self, file: FileId, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let open = self.find(file);
        let came = open.and_then(|open| self.files.try_read(&open, offset, buf));
        self.files.counters.count_try(buf.len(), came);
        came
    }

    fn wait_read(&mut self, file: FileId, offset: u64, len: usize) -> Result<Bytes, DiskError> {
        let op = DiskOp::Read { file, offset, len };
        let answer = match self.mode {
            Mode::Blocking(_) => {
                let open = self.file_of(&op)?;
                self.files.execute(op, open)?
            }
            Mode::Threaded(_) => run(self, op)?,
        };
        match answer {
            DiskAnswer::Data(data) => Ok(data),
            other => unreachable!("a read answered {other:?}"),
        }
    }

    fn will_read(&mut self, file: FileId, offset: u64, len: usize) {
        if let Some(open) = self.find(file) {
            will_read(&open, offset, len as u64);
        }
    }
}

#[cfg(test)]
mod tests;
