//! Makes a backup.
//!
//! 1. Look at all files: how long they are, and which of them the newest earlier backup of the same store has.
//! 2. Begin the folder. The file that becomes its index is made first, so that no two are written to one folder.
//! 3. Link what the earlier backup has; link or copy the rest, and read what was linked for its checksum. Where a link
//!    is not to be had, as on another file system, the rest is copied.
//! 4. Write each store's manifest, and sync the folders.
//! 5. Write the index, and give it its name.
//!
//! A crash before the last step leaves a folder without an index, which is no backup. It can be removed.

use crate::error::Error;
use crate::index::{FileEntry, INDEX_FILE, Index, StoreEntry};
use crate::transfer::{Progress, Sum, Transfer, Watch, tail};
use base::Disk;
use base::checksum::crc32c;
use base::disk::{self, DiskErrorKind, DiskOp, OpenMode};
use bytes::Bytes;
use engine::backup::{FOLDERS, JOURNAL_IS_WHOLE, MANIFEST_FILES, StoreFiles};
use std::path::{Path, PathBuf};

/// What the index is called until the backup is whole.
const UNFINISHED_FILE: &str = "BACKUP.unfinished";

/// Earlier backups that are looked at, of those whose names are last: one a day for two months.
const EARLIER_MAX: usize = 64;

/// How a backup comes by its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By hard links, and copies where there can be none. It shares blocks with the store, and so the fate of the disk.
    Link,
    /// By copies, but for what an earlier backup in the same folder has.
    Copy,
}

/// A shard's store.
pub struct Part {
    /// The shard.
    pub shard: u16,
    /// What it is made up of.
    pub files: StoreFiles,
}

/// A backup to be made.
pub struct Create {
    /// The folder of backups.
    pub dest: PathBuf,
    /// The backup's own folder in it ([`check_name`](crate::check_name)).
    pub name: String,
    /// Folders beside it that may be earlier backups.
    pub beside: Vec<String>,
    /// How.
    pub how: How,
    /// The node's name.
    pub node: String,
    /// The cluster that it is a member of, as text.
    pub cluster: Option<String>,
    /// The program, and its version.
    pub program: String,
    /// Now, in milliseconds since 1970.
    pub now_ms: u64,
    /// The node's stores, in the order of their shards.
    pub parts: Vec<Part>,
    /// Its part in the cluster: small files, with their names relative to the data folder.
    pub others: Vec<(String, Bytes)>,
    /// Free bytes that copies leave on their file system, for whoever else writes there.
    pub spare_bytes: u64,
}

/// A backup that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its folder.
    pub folder: PathBuf,
    /// Its index.
    pub index: Index,
    /// The earlier backup whose files it shares.
    pub earlier: Option<String>,
    /// Bytes that were copied.
    pub copied: u64,
    /// Bytes of files that share their blocks with the store.
    pub linked: u64,
    /// Bytes of files that the earlier backup has.
    pub kept: u64,
}

/// Makes it. Blocks.
///
/// # Errors
/// [`Error::Taken`] if there is something of that name, [`Error::NoRoom`], [`Error::Stopped`], and errors of the disk.
/// What was begun is then no backup, and may be removed.
pub fn create(disk: &mut dyn Disk, request: &Create, watch: Watch<'_>) -> Result<Created, Error> {
    let earlier = find_earlier(disk, request);
    let planned = survey(disk, request, earlier.as_ref().map(|(_, index)| index))?;
    let folder = request.dest.join(&request.name);
    let unfinished = begin(disk, &folder)?;
    let mut making = Making {
        transfer: Transfer::new(disk, watch),
        folder: &folder,
        earlier: earlier.as_ref().map(|(name, _)| request.dest.join(name)),
        how: request.how,
        spare_bytes: request.spare_bytes,
        files: Vec::new(),
        linked: 0,
        kept: 0,
    };
    making.transfer.progress = Progress {
        files: planned.len() as u64,
        bytes: planned.iter().map(|file| file.len).sum(),
        ..Progress::default()
    };
    making.check_room(&planned)?;
    for part in &request.parts {
        making.make_folders(&store_dir(part.shard))?;
    }
    for (at, file) in planned.iter().enumerate() {
        making.take(file, &planned[at..])?;
    }
    for part in &request.parts {
        making.finish_store(part)?;
    }
    making.write_others(&request.others)?;
    let Making { transfer, mut files, linked, kept, .. } = making;
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let index = Index {
        node: request.node.clone(),
        cluster: request.cluster.clone(),
        program: request.program.clone(),
        created_ms: request.now_ms,
        stores: request.parts.iter().map(store_entry).collect(),
        files,
    };
    let copied = transfer.progress.copied;
    finish(transfer.disk, &request.dest, &folder, unfinished, &index)?;
    let earlier = earlier.map(|(name, _)| name);
    Ok(Created { folder, index, earlier, copied, linked, kept })
}

/// The folder of a shard's store in a backup. Not that of a data folder: no node is to be started with it by mistake.
pub(crate) fn store_dir(shard: u16) -> String {
    format!("store-{shard:03}")
}

fn store_entry(part: &Part) -> StoreEntry {
    let manifest = part.files.manifest();
    StoreEntry { shard: part.shard, incarnation: incarnation(part), last_seq: manifest.last_seq.0 }
}

fn incarnation(part: &Part) -> String {
    format!("{:016x}", part.files.manifest().incarnation)
}

/// A file that the backup is to have.
struct Planned {
    /// Its name in the backup.
    name: String,
    from: PathBuf,
    is_fixed: bool,
    len: u64,
    tail_crc: u32,
    /// Its checksum, if the earlier backup has it.
    known: Option<u32>,
}

/// The newest of the backups beside it that has some of the same stores. One that cannot be read is none.
fn find_earlier(disk: &mut dyn Disk, request: &Create) -> Option<(String, Index)> {
    let mut names: Vec<&String> = request.beside.iter().filter(|name| **name != request.name).collect();
    names.sort_unstable_by(|a, b| b.cmp(a));
    let is_same = |index: &Index| {
        request.parts.iter().any(|part| index.incarnation(part.shard) == Some(&*incarnation(part)))
    };
    names
        .into_iter()
        .take(EARLIER_MAX)
        .filter_map(|name| Some((name.clone(), Index::read(disk, &request.dest.join(name)).ok()?)))
        .filter(|(_, index)| is_same(index))
        .max_by_key(|(_, index)| index.created_ms)
}

fn survey(disk: &mut dyn Disk, request: &Create, earlier: Option<&Index>) -> Result<Vec<Planned>, Error> {
    let mut planned = Vec::new();
    for part in &request.parts {
        let is_same = earlier.is_some_and(|index| index.incarnation(part.shard) == Some(&*incarnation(part)));
        for file in part.files.files() {
            let (name, from) =
                (format!("{}/{}", store_dir(part.shard), file.name), part.files.dir().join(&file.name));
            let Some((len, tail_crc)) = tail(disk, &from)? else {
                return Err(Error::Damaged {
                    file: from.display().to_string(),
                    what: "it is missing".to_owned(),
                });
            };
            let known = earlier
                .filter(|_| is_same && file.is_fixed)
                .and_then(|index| index.find(&name))
                .filter(|entry| (entry.len, entry.tail_crc) == (len, tail_crc))
                .map(|entry| entry.crc);
            planned.push(Planned { name, from, is_fixed: file.is_fixed, len, tail_crc, known });
        }
    }
    Ok(planned)
}

/// Makes the folder, and the file that becomes the index.
fn begin(disk: &mut dyn Disk, folder: &Path) -> Result<disk::FileId, Error> {
    disk::run(disk, DiskOp::CreateDir { path: folder.to_path_buf() })?;
    let taken = |what: &str| Err(Error::Taken(format!("{}: {what}", folder.display())));
    match &disk::list(disk, folder)?[..] {
        [] => {}
        names if names.iter().any(|name| name == INDEX_FILE) => {
            return taken("there is a backup of that name");
        }
        names if names.iter().any(|name| name == UNFINISHED_FILE) => {
            return taken("an unfinished or running backup has that name");
        }
        _ => return taken("the folder is not empty"),
    }
    match disk::open(disk, &folder.join(UNFINISHED_FILE), OpenMode::Create) {
        Ok((file, _)) => Ok(file),
        Err(error) if error.kind == DiskErrorKind::Exists => taken("a backup of that name is being made"),
        Err(error) => Err(error.into()),
    }
}

fn finish(
    disk: &mut dyn Disk,
    dest: &Path,
    folder: &Path,
    unfinished: disk::FileId,
    index: &Index,
) -> Result<(), Error> {
    let data = Bytes::from(index.encode());
    disk::run(disk, DiskOp::Write { file: unfinished, offset: 0, data: data.into(), room: 0, sync: true })?;
    disk::run(disk, DiskOp::Close { file: unfinished })?;
    disk::run(disk, DiskOp::SyncDir { path: dest.to_path_buf() })?;
    disk::run(disk, DiskOp::SyncDir { path: folder.to_path_buf() })?;
    disk::run(disk, DiskOp::Rename { from: folder.join(UNFINISHED_FILE), to: folder.join(INDEX_FILE) })?;
    disk::run(disk, DiskOp::SyncDir { path: folder.to_path_buf() })?;
    Ok(())
}

/// A backup that is being made.
struct Making<'a> {
    transfer: Transfer<'a>,
    folder: &'a Path,
    earlier: Option<PathBuf>,
    how: How,
    spare_bytes: u64,
    files: Vec<FileEntry>,
    linked: u64,
    kept: u64,
}

impl Making<'_> {
    fn make_folders(&mut self, store: &str) -> Result<(), Error> {
        for name in FOLDERS {
            let path = self.folder.join(store).join(name);
            disk::run(self.transfer.disk, DiskOp::CreateDir { path })?;
        }
        Ok(())
    }

    /// Whether there is room for these, if they are to be copied.
    fn check_room(&mut self, files: &[Planned]) -> Result<(), Error> {
        let is_copied = |file: &&Planned| file.known.is_none() && (self.how == How::Copy || !file.is_fixed);
        let needed: u64 = files.iter().filter(is_copied).map(|file| file.len).sum();
        // A disk that cannot tell is taken for one with room.
        let free = disk::space(self.transfer.disk, self.folder).unwrap_or(u64::MAX);
        match needed > 0 && needed.saturating_add(self.spare_bytes) > free {
            true => Err(Error::NoRoom { place: self.folder.display().to_string(), needed, free }),
            false => Ok(()),
        }
    }

    /// Links or copies a file; `left` are this one and those that come after it.
    fn take(&mut self, file: &Planned, left: &[Planned]) -> Result<(), Error> {
        let to = self.folder.join(&file.name);
        let from_earlier = file.known.zip(self.earlier.as_ref().map(|folder| folder.join(&file.name)));
        if let Some((crc, earlier)) = from_earlier
            && self.link(&earlier, &to)?
        {
            self.kept += file.len;
            return self.taken(file, crc, file.len);
        }
        if self.how == How::Link && file.is_fixed {
            if self.link(&file.from, &to)? {
                self.linked += file.len;
                let Sum { len, crc } = self.transfer.sum(&to)?;
                self.check_len(file, len)?;
                return self.taken(file, crc, 0);
            }
            self.how = How::Copy;
            self.check_room(left)?;
        }
        let Sum { len, crc } = self.transfer.copy(&file.from, &to)?;
        self.check_len(file, len)?;
        self.taken(file, crc, 0)
    }

    /// Links a file, if the file system can.
    fn link(&mut self, from: &Path, to: &Path) -> Result<bool, Error> {
        let op = DiskOp::Link { from: from.to_path_buf(), to: to.to_path_buf() };
        match disk::run(self.transfer.disk, op) {
            Ok(_) => Ok(true),
            Err(error) if error.kind == DiskErrorKind::Io || error.kind == DiskErrorKind::NotFound => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn check_len(&self, file: &Planned, len: u64) -> Result<(), Error> {
        match len == file.len {
            true => Ok(()),
            false => {
                let what = format!("it had {} bytes, and {len} when it was read", file.len);
                Err(Error::Damaged { file: file.from.display().to_string(), what })
            }
        }
    }

    fn taken(&mut self, file: &Planned, crc: u32, uncounted: u64) -> Result<(), Error> {
        let Planned { name, len, tail_crc, .. } = file;
        self.files.push(FileEntry { name: name.clone(), len: *len, crc, tail_crc: *tail_crc });
        self.transfer.file_done(uncounted)
    }

    /// Writes what a store has beside its large files, and makes their names durable.
    fn finish_store(&mut self, part: &Part) -> Result<(), Error> {
        let store = store_dir(part.shard);
        let manifest = Bytes::from(part.files.manifest().encode()?);
        for name in MANIFEST_FILES {
            self.write(&format!("{store}/{name}"), manifest.clone(), OpenMode::Create)?;
        }
        // It goes before the journal lets go of a value: while it is there, it was there when the backup was begun.
        let whole = part.files.dir().join(JOURNAL_IS_WHOLE);
        if tail(self.transfer.disk, &whole)?.is_some() {
            self.write(
                &format!("{store}/{JOURNAL_IS_WHOLE}"),
                Bytes::from_static(b"No value is in tables alone.\n"),
                OpenMode::Create,
            )?;
        }
        let folder = self.folder.join(store);
        for name in FOLDERS {
            self.transfer.sync_dir(&folder.join(name))?;
        }
        self.transfer.sync_dir(&folder)
    }

    fn write_others(&mut self, others: &[(String, Bytes)]) -> Result<(), Error> {
        for (name, data) in others {
            let path = self.folder.join(name);
            let dir = path.parent().unwrap_or(self.folder).to_path_buf();
            disk::run(self.transfer.disk, DiskOp::CreateDir { path: dir.clone() })?;
            // They have verifiers of passwords.
            self.write(name, data.clone(), OpenMode::CreatePrivate)?;
            self.transfer.sync_dir(&dir)?;
        }
        Ok(())
    }

    fn write(&mut self, name: &str, data: Bytes, mode: OpenMode) -> Result<(), Error> {
        let tail_crc = crc32c(&data[data.len().saturating_sub(4 << 10)..]);
        let Sum { len, crc } = self.transfer.write(&self.folder.join(name), data, mode)?;
        self.files.push(FileEntry { name: name.to_owned(), len, crc, tail_crc });
        Ok(())
    }
}
