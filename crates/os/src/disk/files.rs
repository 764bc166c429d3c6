//! The operations, on files of a table that all handles of a disk share.

use super::counters::DiskCounters;
use super::table::{OpenFile, Table, not_open};
use base::disk::{DiskAnswer, DiskOp, FileId, OpenMode, Pieces};
use base::{DiskError, DiskErrorKind};
use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, retry_on_intr};
use rustix::process::{Resource, getrlimit};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Handles that a disk keeps for files that nobody uses, unless it is told otherwise: a quarter of what a process
/// usually may have.
pub const FILES_OPEN_MAX: usize = 256;

/// Bounds of what [`files_max`] says: fewer would be opened again by every other read, more are no faster.
const FILES_OPEN_BOUNDS: (usize, usize) = (16, 65_536);

/// What the system is asked to fetch at once: of more it fetches but the beginning, as much as it would read ahead by
/// itself, which is so much by default.
const AHEAD_BYTES: usize = 128 << 10;

/// Permissions of a file that the user of the process alone reads and writes.
const PRIVATE: u32 = 0o600;

/// Handles for each of so many disks of this process: half of what it may have is left for sockets and for files in
/// use.
pub fn files_max(disks: usize) -> usize {
    let (least, most) = FILES_OPEN_BOUNDS;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    (limit / 2 / disks.max(1)).clamp(least, most)
}

/// The open files of a disk.
#[derive(Debug)]
pub(super) struct Files {
    table: RwLock<Table>,
    /// Lock files that this disk holds; the locks go with it.
    locks: Mutex<Vec<File>>,
    /// Cleared by the first file system that cannot read without waiting, so that the others are not asked.
    reads_without_waiting: AtomicBool,
    pub(super) counters: Arc<DiskCounters>,
}

impl Files {
    pub(super) fn new() -> Files {
        Files {
            table: RwLock::new(Table::new(FILES_OPEN_MAX)),
            locks: Mutex::default(),
            reads_without_waiting: AtomicBool::new(true),
            counters: Arc::default(),
        }
    }

    /// The file with this id, if it has a handle.
    pub(super) fn get(&self, id: FileId) -> Option<Arc<OpenFile>> {
        self.read_table().get(id)
    }

    /// Whether a file has this id.
    pub(super) fn knows(&self, id: FileId) -> bool {
        self.read_table().knows(id)
    }

    /// Keeps so many handles from now on, as far as that many are not in use.
    pub(super) fn keep_open(&self, open_max: usize) {
        self.table().keep_open(open_max);
    }

    /// How many files have a handle.
    pub(super) fn open_files(&self) -> usize {
        self.read_table().open_files()
    }

    fn table(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an operation to its end. `file` is the file of an operation that names one by its id, if it has a handle.
    pub(super) fn execute(&self, op: DiskOp, file: Option<Arc<OpenFile>>) -> Result<DiskAnswer, DiskError> {
        let file = match (file, file_id(&op)) {
            (None, Some(id)) if !matches!(op, DiskOp::Close { .. }) => Some(self.reopen(id)?),
            (file, _) => file,
        };
        let done = |path: &Path, result: io::Result<()>| match result {
            Ok(()) => Ok(DiskAnswer::Done),
            Err(error) => Err(disk_error(path, &error)),
        };
        match (op, file) {
            (DiskOp::Write { offset, data, room, sync, .. }, Some(open)) => {
                make_room(&open, offset, room);
                done(&open.path, self.write(&open, offset, &data, sync))
            }
            (DiskOp::Sync { .. }, Some(open)) => done(&open.path, self.sync(&open)),
            (DiskOp::Read { offset, len, .. }, Some(open)) => {
                let data =
                    self.read(&open.file, offset, len).map_err(|error| disk_error(&open.path, &error))?;
                Ok(DiskAnswer::Data(data))
            }
            (DiskOp::Truncate { len, .. }, Some(open)) => {
                open.change();
                done(&open.path, open.file.set_len(len))
            }
            (DiskOp::Close { file }, _) => self.close(file),
            (DiskOp::Open { path, mode }, _) => self.open(path, mode),
            (DiskOp::Rename { from, to }, _) => self.rename(&from, &to),
            (DiskOp::Link { from, to }, _) => done(&to, fs::hard_link(&from, &to)),
            (DiskOp::Remove { path }, _) => {
                self.table().unname(&path)?;
                done(&path, fs::remove_file(&path))
            }
            (DiskOp::CreateDir { path }, _) => done(&path, fs::create_dir_all(&path)),
            (DiskOp::SyncDir { path }, _) => done(&path, File::open(&path).and_then(|dir| dir.sync_all())),
            (DiskOp::List { path }, _) => match list(&path) {
                Ok(names) => Ok(DiskAnswer::Names(names)),
                Err(error) => Err(disk_error(&path, &error)),
            },
            (DiskOp::Space { path }, _) => match rustix::fs::statvfs(&path) {
                Ok(at) => Ok(DiskAnswer::Space { free: at.f_bavail.saturating_mul(at.f_frsize) }),
                Err(error) => Err(disk_error(&path, &error.into())),
            },
            (DiskOp::Lock { path }, _) => self.lock(path),
            (op, None) => unreachable!("{op:?} came without its file"),
        }
    }

    /// Reads what is in memory. `None`: nothing is, or this is the end of the file, or only a read that waits
    /// can tell; an error is left for that read to find.
    pub(super) fn try_read(&self, open: &OpenFile, offset: u64, buf: &mut [u8]) -> Option<usize> {
        if !self.reads_without_waiting.load(Relaxed) {
            return None;
        }
        let read = || preadv2(&open.file, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT);
        match retry_on_intr(read) {
            Ok(0) => None,
            Ok(came) => Some(came),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.reads_without_waiting.store(false, Relaxed);
                None
            }
            Err(_) => None,
        }
    }

    #[cfg(test)]
    pub(super) fn forbid_tries(&self) {
        self.reads_without_waiting.store(false, Relaxed);
    }

    fn open(&self, path: PathBuf, mode: OpenMode) -> Result<DiskAnswer, DiskError> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => &mut options,
            OpenMode::Write => options.write(true),
            OpenMode::Create => options.write(true).create_new(true),
            OpenMode::CreatePrivate => options.write(true).create_new(true).mode(PRIVATE),
        };
        let failed = |error: io::Error| disk_error(&path, &error);
        let file = options.open(&path).map_err(failed)?;
        let (id, len) = self.table().insert(path.clone(), file, mode).map_err(failed)?;
        Ok(DiskAnswer::Opened { file: id, len })
    }

    fn reopen(&self, id: FileId) -> Result<Arc<OpenFile>, DiskError> {
        let opener = self.read_table().opener(id)?;
        let file = opener();
        self.counters.count_reopened();
        self.table().reopened(id, file)
    }

    fn close(&self, id: FileId) -> Result<DiskAnswer, DiskError> {
        let removed = self.table().remove(id);
        // The file itself closes here or after the last read under way on it, never under the table's lock:
        // closing a removed file frees its blocks, which takes time.
        removed.map(|_| DiskAnswer::Done).ok_or_else(|| not_open(id))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<DiskAnswer, DiskError> {
        let mut table = self.table();
        table.unname(to)?;
        fs::rename(from, to).map_err(|error| disk_error(from, &error))?;
        table.rename(from, to);
        Ok(DiskAnswer::Done)
    }

    fn write(&self, open: &OpenFile, offset: u64, data: &Pieces, sync: bool) -> io::Result<()> {
        open.change();
        let mut at = offset;
        for piece in data.iter() {
            open.file.write_all_at(piece, at)?;
            self.counters.count_write(piece.len());
            at += piece.len() as u64;
        }
        if sync { self.sync(open) } else { Ok(()) }
    }

    /// `fdatasync`, which makes the length durable too; only the file's times may be lost. One that finds no space for
    /// what was written has lost it, and may not look like a write that can be tried again.
    fn sync(&self, open: &OpenFile) -> io::Result<()> {
        self.counters.count_sync();
        open.sync(File::sync_data).map_err(|error| match kind_of(&error).is_passing() {
            true => io::Error::other(format!("written data was lost by a sync: {error}")),
            false => error,
        })
    }

    fn read(&self, file: &File, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut data = Vec::new();
        data.try_reserve_exact(len)?;
        let result = fill(file, offset, len, &mut data);
        self.counters.count_read(if result.is_ok() { data.len() } else { 0 });
        result.map(|()| Bytes::from(data))
    }

    fn lock(&self, path: PathBuf) -> Result<DiskAnswer, DiskError> {
        // Where nothing can be written a lock is taken by reading: then a check can be made.
        let made = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let opened = made.or_else(|error| match kind_of(&error) {
            DiskErrorKind::ReadOnly => File::open(&path),
            _ => Err(error),
        });
        let file = opened.map_err(|error| disk_error(&path, &error))?;
        match file.try_lock() {
            Ok(()) => {
                self.locks.lock().unwrap_or_else(PoisonError::into_inner).push(file);
                Ok(DiskAnswer::Done)
            }
            Err(TryLockError::WouldBlock) => {
                let message = "it is locked: another process uses this data folder".to_owned();
                Err(DiskError { kind: DiskErrorKind::Locked, path: path.display().to_string(), message })
            }
            Err(TryLockError::Error(error)) => Err(disk_error(&path, &error)),
        }
    }
}

/// Allocates what the file lacks to be `room` bytes long, from `offset` on; nothing is changed of what it has. Whether
/// it worked is of no concern: what there is no room for, the write behind this one says itself.
fn make_room(open: &OpenFile, offset: u64, room: u64) {
    if room > offset {
        open.change();
        fallocate(&open.file, FallocateFlags::empty(), offset, room - offset).ok();
    }
}

/// Has the system fetch these bytes. What it cannot do, or fails to, the read will find out.
pub(super) fn will_read(open: &OpenFile, offset: u64, len: u64) {
    let end = offset.saturating_add(len);
    for at in (offset..end).step_by(AHEAD_BYTES) {
        let piece = NonZeroU64::new((end - at).min(AHEAD_BYTES as u64));
        fadvise(&open.file, at, piece, Advice::WillNeed).ok();
    }
}

/// The file that an operation names by its id.
pub(super) fn file_id(op: &DiskOp) -> Option<FileId> {
    match op {
        DiskOp::Close { file }
        | DiskOp::Write { file, .. }
        | DiskOp::Sync { file }
        | DiskOp::Read { file, .. }
        | DiskOp::Truncate { file, .. } => Some(*file),
        _ => None,
    }
}

/// Reads until `data` holds `len` bytes or the file ends.
fn fill(file: &File, offset: u64, len: usize, data: &mut Vec<u8>) -> io::Result<()> {
    while data.len() < len {
        let at = offset.checked_add(data.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
        if retry_on_intr(|| pread(file, spare_capacity(data), at))? == 0 {
            break;
        }
    }
    // The allocator may have given more room than was asked for.
    data.truncate(len);
    Ok(())
}

/// The names of the files in a directory. Names that are not UTF-8 are none of ours and are left out.
fn list(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_file()
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// An error of the kind [`DiskErrorKind::Io`].
pub(super) fn io_error(path: &Path, message: impl Into<String>) -> DiskError {
    DiskError { kind: DiskErrorKind::Io, path: path.display().to_string(), message: message.into() }
}

pub(super) fn disk_error(path: &Path, error: &io::Error) -> DiskError {
    DiskError { kind: kind_of(error), ..io_error(path, error.to_string()) }
}

fn kind_of(error: &io::Error) -> DiskErrorKind {
    match error.kind() {
        io::ErrorKind::NotFound => DiskErrorKind::NotFound,
        io::ErrorKind::AlreadyExists => DiskErrorKind::Exists,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskErrorKind::NoSpace,
        io::ErrorKind::ReadOnlyFilesystem => DiskErrorKind::ReadOnly,
        _ => match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE) => DiskErrorKind::NoHandles,
            _ => DiskErrorKind::Io,
        },
    }
}
