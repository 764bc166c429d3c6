//! The disk as the pure crates see it: operations go in, completions come out.
//!
//! * [`Disk::submit`] starts an operation and names it by a [`Token`]; [`Disk::poll`] collects what has
//!   finished. Operations of one handle may finish in any order, so a caller that needs an order waits.
//! * [`Disk::try_read`] answers at once from memory or says that it would have to wait: the way in which a
//!   shard's thread reads without ever blocking.
//! * [`run`] submits and waits: for start-up, for tools, and for jobs, whose disks complete at once.
//!
//! What a disk promises, and the simulated disk tests: a write is durable after the sync of its file that
//! began after the write finished; a new, renamed or removed name is durable after the sync of its directory.
//! Nothing else survives a crash for certain; what was not synced may survive in any part, in units of blocks.
//! After a failed write or sync nothing is known of the bytes since the last good sync; but where it was for lack of
//! room ([`DiskErrorKind::is_passing`]), only the operation itself is undone in part, and it may be tried again. A sync
//! never fails for that: where the system says so of one, bytes are lost, and it is any error.

pub use crate::pieces::Pieces;

use bytes::Bytes;
use std::path::{Path, PathBuf};

/// An open file. Valid in every handle of the same disk; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// The caller's name for an operation under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// A file that must not exist yet, to read and write.
    Create,
    /// The same, and the user of the process alone can read it.
    CreatePrivate,
}

/// One operation.
#[derive(Clone, Debug)]
pub enum DiskOp {
    /// Opens a file; answers [`DiskAnswer::Opened`].
    Open {
        /// The file.
        path: PathBuf,
        /// To read, to write, or to make it.
        mode: OpenMode,
    },
    /// Closes a file. Reads under way on it still finish.
    Close {
        /// The file.
        file: FileId,
    },
    /// Writes `data` at `offset`, all of it or an error, then, if `sync`, makes it durable: one operation,
    /// because a group commit needs one wake-up and not two.
    ///
    /// If the file is shorter than `room`, it is first given room to that length, as zeros: the syncs of later writes
    /// up to there have no new length to make durable. That is a wish: where there is not so much room, or the file
    /// system cannot do it, the file grows as without it, and nobody is told.
    Write {
        /// The file.
        file: FileId,
        /// Where the first byte goes.
        offset: u64,
        /// What to write, one piece after the other.
        data: Pieces,
        /// The length for which the file is to have room; 0 for none ahead of need.
        room: u64,
        /// Whether to sync the file's data before completing.
        sync: bool,
    },
    /// Makes everything written to the file durable, its length included.
    Sync {
        /// The file.
        file: FileId,
    },
    /// Reads up to `len` bytes at `offset`; fewer only at the end of the file. Answers [`DiskAnswer::Data`].
    Read {
        /// The file.
        file: FileId,
        /// Where to begin.
        offset: u64,
        /// How many bytes at most.
        len: usize,
    },
    /// Cuts or extends the file to `len` bytes.
    Truncate {
        /// The file.
        file: FileId,
        /// The new length.
        len: u64,
    },
    /// Gives a file another name, replacing what had it.
    Rename {
        /// The old name.
        from: PathBuf,
        /// The new name.
        to: PathBuf,
    },
    /// Gives a file a second name, on the same file system, that must not be taken.
    Link {
        /// The name it has.
        from: PathBuf,
        /// The name it gets too.
        to: PathBuf,
    },
    /// Removes a file.
    Remove {
        /// The file.
        path: PathBuf,
    },
    /// Makes a directory and those above it, as far as they are missing. Existing ones are no error.
    CreateDir {
        /// The directory.
        path: PathBuf,
    },
    /// Makes the names in a directory durable.
    SyncDir {
        /// The directory.
        path: PathBuf,
    },
    /// Lists the files in a directory; answers [`DiskAnswer::Names`] in ascending order.
    List {
        /// The directory.
        path: PathBuf,
    },
    /// Asks how many bytes can still be written to the file system that has this directory; answers
    /// [`DiskAnswer::Space`].
    Space {
        /// The directory.
        path: PathBuf,
    },
    /// Takes the lock of a data folder by locking this file (made if missing) until the disk is dropped.
    /// [`DiskErrorKind::Locked`] when another process has it.
    Lock {
        /// The lock file.
        path: PathBuf,
    },
}

/// What a successful operation answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskAnswer {
    /// It is done.
    Done,
    /// The file is open.
    Opened {
        /// Its handle.
        file: FileId,
        /// Its length in bytes.
        len: u64,
    },
    /// The bytes read.
    Data(Bytes),
    /// The names in a directory, ascending.
    Names(Vec<String>),
    /// How many bytes are free for this process to use.
    Space {
        /// `u64::MAX` where nothing limits them.
        free: u64,
    },
}

/// An operation's end.
#[derive(Clone, Debug)]
pub struct Completion {
    /// Which operation.
    pub token: Token,
    /// How it ended.
    pub result: Result<DiskAnswer, DiskError>,
}

/// Why an operation failed, as far as callers act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskErrorKind {
    /// No such file or directory.
    NotFound,
    /// The file was to be made, and exists.
    Exists,
    /// Another process holds the lock.
    Locked,
    /// No space is left, or none that this user may have.
    NoSpace,
    /// Too many files are open.
    NoHandles,
    /// The file system is mounted to be read only.
    ReadOnly,
    /// Anything else: the device failed, access was refused.
    Io,
}

impl DiskErrorKind {
    /// Whether the same operation may succeed later, and nothing else is in doubt: there was no room for it.
    pub fn is_passing(self) -> bool {
        matches!(self, DiskErrorKind::NoSpace | DiskErrorKind::NoHandles)
    }
}

/// A failed operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct DiskError {
    /// What callers act on.
    pub kind: DiskErrorKind,
    /// The file or directory, as far as it is known.
    pub path: String,
    /// What the system said.
    pub message: String,
}

/// A disk, or one thread's handle to it.
pub trait Disk: Send {
    /// Starts `op`. Its completion will carry `token`.
    fn submit(&mut self, op: DiskOp, token: Token);

    /// Moves what has finished to the end of `completions`.
    fn poll(&mut self, completions: &mut Vec<Completion>);

    /// Blocks until [`Disk::poll`] has something to give. Only for start-up, tools and jobs; a disk on which
    /// operations complete at once has nothing to do here.
    fn wait(&mut self);

    /// Reads into `buf` without waiting and tells how many bytes came: fewer than asked for at the end of the
    /// file or of what is in memory, `None` when nothing could be had without waiting.
    fn try_read(&mut self, file: FileId, offset: u64, buf: &mut [u8]) -> Option<usize>;

    /// Reads up to `len` bytes and waits for them where it has to; fewer come only at the end of the file. No other
    /// operation may be under way on this handle. Who may wait asks for this alone, without a try before.
    fn wait_read(&mut self, file: FileId, offset: u64, len: usize) -> Result<Bytes, DiskError> {
        match run(self, DiskOp::Read { file, offset, len })? {
            DiskAnswer::Data(data) => Ok(data),
            other => unreachable!("a read answered {other:?}"),
        }
    }

    /// Tells that these bytes will be read soon, so that they may be fetched meanwhile. Nothing is promised, and nobody
    /// is told what became of it. It may take as long as an operation that is submitted: for jobs, tools and start-up.
    fn will_read(&mut self, _file: FileId, _offset: u64, _len: usize) {}
}

/// Runs one operation to its end. No other operation may be under way on this handle.
pub fn run<D: Disk + ?Sized>(disk: &mut D, op: DiskOp) -> Result<DiskAnswer, DiskError> {
    const TOKEN: Token = Token(u64::MAX);
    disk.submit(op, TOKEN);
    let mut completions = Vec::with_capacity(1);
    loop {
        disk.poll(&mut completions);
        if let Some(completion) = completions.pop() {
            assert_eq!(completion.token, TOKEN, "an operation of somebody else was under way");
            return completion.result;
        }
        disk.wait();
    }
}

/// Opens a file and tells its length.
pub fn open(disk: &mut dyn Disk, path: &Path, mode: OpenMode) -> Result<(FileId, u64), DiskError> {
    match run(disk, DiskOp::Open { path: path.to_path_buf(), mode })? {
        DiskAnswer::Opened { file, len } => Ok((file, len)),
        other => unreachable!("an open answered {other:?}"),
    }
}

/// Reads up to `len` bytes, as [`Disk::wait_read`] does.
pub fn read(disk: &mut dyn Disk, file: FileId, offset: u64, len: usize) -> Result<Bytes, DiskError> {
    disk.wait_read(file, offset, len)
}

/// Lists a directory, ascending.
pub fn list(disk: &mut dyn Disk, path: &Path) -> Result<Vec<String>, DiskError> {
    match run(disk, DiskOp::List { path: path.to_path_buf() })? {
        DiskAnswer::Names(names) => Ok(names),
        other => unreachable!("a list answered {other:?}"),
    }
}

/// How many bytes can still be written to the file system that has `path`, a directory.
pub fn space(disk: &mut dyn Disk, path: &Path) -> Result<u64, DiskError> {
    match run(disk, DiskOp::Space { path: path.to_path_buf() })? {
        DiskAnswer::Space { free } => Ok(free),
        other => unreachable!("a question for space answered {other:?}"),
    }
}

/// Makes `path` hold exactly `data`, durably and all at once: written under another name, synced, renamed,
/// and the directory synced. A crash leaves either what was there or `data`. A failed write leaves no temporary file.
pub fn replace_file(disk: &mut dyn Disk, path: &Path, data: Bytes) -> Result<(), DiskError> {
    let dir = path.parent().expect("a data file lies in a directory").to_path_buf();
    let temporary = path.with_extension("tmp");
    match run(disk, DiskOp::Remove { path: temporary.clone() }) {
        Ok(_) => {}
        Err(error) if error.kind == DiskErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let (file, _) = open(disk, &temporary, OpenMode::Create)?;
    let written = run(disk, DiskOp::Write { file, offset: 0, data: data.into(), room: 0, sync: true });
    run(disk, DiskOp::Close { file })?;
    if let Err(error) = written {
        // It takes room that its next attempt needs; should it stay, that attempt removes it.
        run(disk, DiskOp::Remove { path: temporary }).ok();
        return Err(error);
    }
    run(disk, DiskOp::Rename { from: temporary, to: path.to_path_buf() })?;
    run(disk, DiskOp::SyncDir { path: dir })?;
    Ok(())
}
