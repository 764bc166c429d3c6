//! The files that a disk knows, and which of them have a handle of the operating system's.
//!
//! A file is known from its opening to its closing, and so long its id is good; it has a handle only while that is of
//! use. Beyond a bound those that nobody has used for longest are let go of, and opened again by whoever asks next: a
//! store of many terabytes has more segments and tables than a process may have handles.
//!
//! Invariants:
//! * a file with bytes that were not synced keeps its handle, so that the error of a write is told by the sync behind
//!   it; so does one that somebody is using, and one whose name is gone;
//! * what is opened again is the file that it was, by its inode: anything else in its place is an error.
//!
//! The bound is kept by the clock algorithm (Corbató, 1968): a use sets a flag, and whoever looks for one to let go of
//! clears it and goes on to the next.

use super::files::{disk_error, io_error};
use base::disk::{FileId, OpenMode};
use base::{DiskError, FastMap};
use rustix::fs::{Advice, fadvise};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A file with a handle, and its name for messages.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// Whether it was used since the table looked last.
    used: AtomicBool,
    /// Changes that were begun, and as many of them as a sync has made durable.
    changes: AtomicU64,
    synced: AtomicU64,
}

impl OpenFile {
    /// The kernel is told to bring what is read and nothing else. By itself it takes a read beside pages that it has
    /// for one of a sequence, and where half of a file is in memory that is any read: it brought half as many pages
    /// again, for nothing, and pushed others out. Who reads in order asks for much at once.
    fn new(file: File, path: PathBuf) -> Arc<OpenFile> {
        // Where it cannot be told, reads cost more and are right.
        fadvise(&file, 0, None, Advice::Random).ok();
        let (used, changes, synced) = (AtomicBool::new(true), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(OpenFile { file, path, used, changes, synced })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps its handle for a while.
    #[inline]
    pub(super) fn touch(&self) {
        // Read first: most are set, and a line that is only read stays in the caches of all processors.
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
    }

    /// A change begins.
    pub(super) fn change(&self) {
        self.changes.fetch_add(1, Relaxed);
    }

    /// Makes all changes durable that were over by now. `sync` does it.
    pub(super) fn sync(&self, sync: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        let changes = self.changes.load(Relaxed);
        sync(&self.file)?;
        self.synced.fetch_max(changes, Relaxed);
        Ok(())
    }

    fn is_clean(&self) -> bool {
        self.changes.load(Relaxed) == self.synced.load(Relaxed)
    }
}

/// A file that was opened and not closed.
#[derive(Debug)]
struct Known {
    path: PathBuf,
    writes: bool,
    /// Device and inode.
    inode: (u64, u64),
    /// Its name is gone, or was taken over.
    nameless: bool,
    open: Option<Arc<OpenFile>>,
}

impl Known {
    fn is_idle(&self) -> bool {
        let idle = |open: &Arc<OpenFile>| Arc::strong_count(open) == 1 && open.is_clean();
        !self.nameless && self.open.as_ref().is_some_and(idle)
    }
}

/// All that are known.
#[derive(Debug)]
pub(super) struct Table {
    known: FastMap<FileId, Known>,
    /// The next file's id.
    next: u32,
    /// Those with a handle, in the order in which they are looked at; some that have none any more.
    clock: VecDeque<FileId>,
    open: usize,
    open_max: usize,
}

impl Table {
    pub(super) fn new(open_max: usize) -> Table {
        Table { known: FastMap::default(), next: 0, clock: VecDeque::new(), open: 0, open_max }
    }

    pub(super) fn keep_open(&mut self, open_max: usize) {
        self.open_max = open_max;
    }

    /// How many have a handle.
    pub(super) fn open_files(&self) -> usize {
        self.open
    }

    /// Whether this id is known.
    pub(super) fn knows(&self, id: FileId) -> bool {
        self.known.contains_key(&id)
    }

    /// The file, if it has a handle.
    pub(super) fn get(&self, id: FileId) -> Option<Arc<OpenFile>> {
        self.known.get(&id)?.open.clone()
    }

    /// Opens a file, and tells its id and its length.
    pub(super) fn insert(&mut self, path: PathBuf, file: File, mode: OpenMode) -> io::Result<(FileId, u64)> {
        let at = file.metadata()?;
        let id = FileId(self.next);
        self.next = self.next.checked_add(1).expect("a process does not open four billion files");
        let open = OpenFile::new(file, path.clone());
        let writes = !matches!(mode, OpenMode::Read);
        let inode = (at.dev(), at.ino());
        self.known.insert(id, Known { path, writes, inode, nameless: false, open: Some(open) });
        self.opened(id);
        Ok((id, at.len()))
    }

    /// What opens a file again that has no handle. It waits for the disk, so it is to be called without the table's
    /// lock.
    pub(super) fn opener(&self, id: FileId) -> Result<impl FnOnce() -> io::Result<File> + use<>, DiskError> {
        let Some(known) = self.known.get(&id) else { return Err(not_open(id)) };
        let (path, writes, inode) = (known.path.clone(), known.writes, known.inode);
        Ok(move || {
            let file = OpenOptions::new().read(true).write(writes).open(path)?;
            let at = file.metadata()?;
            match (at.dev(), at.ino()) == inode {
                true => Ok(file),
                false => Err(io::Error::other("another file stands in its place")),
            }
        })
    }

    /// Takes the file that [`Table::opener`] has opened, unless somebody else was faster.
    pub(super) fn reopened(
        &mut self,
        id: FileId,
        file: io::Result<File>,
    ) -> Result<Arc<OpenFile>, DiskError> {
        let Some(known) = self.known.get_mut(&id) else { return Err(not_open(id)) };
        if let Some(open) = &known.open {
            return Ok(Arc::clone(open));
        }
        let file = file.map_err(|error| disk_error(&known.path, &error))?;
        let open = OpenFile::new(file, known.path.clone());
        known.open = Some(Arc::clone(&open));
        self.opened(id);
        Ok(open)
    }

    /// Forgets a file. Its handle closes with the last share of what is returned.
    pub(super) fn remove(&mut self, id: FileId) -> Option<Option<Arc<OpenFile>>> {
        let known = self.known.remove(&id)?;
        self.open -= usize::from(known.open.is_some());
        Some(known.open)
    }

    /// A name is about to go: whoever has the file open keeps it.
    pub(super) fn unname(&mut self, path: &Path) -> Result<(), DiskError> {
        let named = self.known.iter().filter(|(_, known)| known.path == path && !known.nameless);
        let ids: Vec<FileId> = named.map(|(&id, _)| id).collect();
        for id in ids {
            if self.get(id).is_none() {
                let file = self.opener(id)?();
                self.reopened(id, file)?;
            }
            self.known.get_mut(&id).expect("it was found").nameless = true;
        }
        Ok(())
    }

    /// A file has another name now.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        for known in self.known.values_mut().filter(|known| known.path == from && !known.nameless) {
            known.path = to.to_path_buf();
        }
    }

    fn opened(&mut self, id: FileId) {
        self.open += 1;
        self.clock.push_back(id);
        // Twice around: the first time may do no more than clear flags.
        for _ in 0..2 * self.clock.len() {
            if self.open <= self.open_max {
                break;
            }
            let Some(at) = self.clock.pop_front() else { break };
            let Some(known) = self.known.get_mut(&at).filter(|known| known.open.is_some()) else { continue };
            let was_used = known.open.as_ref().is_some_and(|open| open.used.swap(false, Relaxed));
            if was_used || at == id || !known.is_idle() {
                self.clock.push_back(at);
                continue;
            }
            known.open = None;
            self.open -= 1;
        }
        // Of those that were closed there are as many at most as of the others.
        if self.clock.len() > 2 * self.open.max(self.open_max) {
            self.clock.retain(|id| self.known.get(id).is_some_and(|known| known.open.is_some()));
        }
    }
}

/// An operation names a file that was closed, or never opened.
pub(super) fn not_open(id: FileId) -> DiskError {
    io_error(Path::new(""), format!("file {} is not open", id.0))
}
