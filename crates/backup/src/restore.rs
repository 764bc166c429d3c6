//! Makes a data folder of a backup.
//!
//! 1. Look whether there is room, and whether each manifest can be read.
//! 2. Copy all other files of stores, and compare their checksums. Links would not do: the restored store writes to
//!    some of them, and the backup stays as it is. The caller may leave parts out of the files of the node's
//!    membership, which the node's user alone can read.
//! 3. Write the manifests, that of shard 0 last: before that, no node takes the folder for a whole one. Each store is
//!    another one than that which was backed up, so it has a new incarnation ([`engine::backup::renewed`]).
//!
//! The node that starts with the folder has its old name, and its old part in the cluster. Its cluster finds out that
//! the folder is an older copy, takes its vote, and gives it back (the log of the crate `membership`), and its shards
//! name their writes anew at each start.

use crate::create::store_dir;
use crate::error::Error;
use crate::index::{FileEntry, Index};
use crate::transfer::{Progress, Sum, Transfer, Watch};
use crate::verify::differs;
use base::checksum::crc32c;
use base::disk::{self, DiskOp, OpenMode};
use base::{Disk, Rng};
use bytes::Bytes;
use engine::backup::{FOLDERS, MANIFEST_FILES, renewed};
use engine::manifest;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The folder of a shard's store in the data folder.
pub type ShardDir<'a> = &'a dyn Fn(u16) -> PathBuf;

/// The bytes that a file outside of the stores is restored with, of its name and its bytes in the backup.
pub type Rewrite<'a> = &'a dyn Fn(&str, Bytes) -> Result<Bytes, Error>;

/// A larger file outside of the stores is none of ours: the log and the standing have a state each, within its bounds.
const OTHER_BYTES_MAX: u64 = 1 << 30;

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The backup's index.
    pub index: Index,
    /// Bytes that were written.
    pub bytes: u64,
}

/// Restores the backup in `folder` into the data folder `data`, in which there must be nothing yet: whoever calls this
/// has looked. Blocks. After an error the folder is of no use.
///
/// # Errors
/// [`Error::Damaged`] if a file is not what was backed up, [`Error::NoRoom`], [`Error::Stopped`], and errors of the
/// disk.
pub fn restore(
    disk: &mut dyn Disk,
    folder: &Path,
    (data, shard_dir): (&Path, ShardDir<'_>),
    rng: &mut dyn Rng,
    rewrite: Rewrite<'_>,
    watch: Watch<'_>,
) -> Result<Restored, Error> {
    let index = Index::read(disk, folder)?;
    let manifests = read_manifests(disk, folder, &index)?;
    disk::run(disk, DiskOp::CreateDir { path: data.to_path_buf() })?;
    let (needed, free) = (index.bytes(), disk::space(disk, data).unwrap_or(u64::MAX));
    if needed > free {
        return Err(Error::NoRoom { place: data.display().to_string(), needed, free });
    }
    let mut transfer = Transfer::new(disk, watch);
    transfer.progress = Progress { files: index.files.len() as u64, bytes: needed, ..Progress::default() };
    let mut folders = BTreeSet::from([data.to_path_buf()]);
    for store in &index.stores {
        folders.extend(FOLDERS.map(|name| shard_dir(store.shard).join(name)));
        folders.insert(shard_dir(store.shard));
    }
    for path in &folders {
        disk::run(transfer.disk, DiskOp::CreateDir { path: path.clone() })?;
    }
    for entry in &index.files {
        let Some(to) = place(&index, data, shard_dir, entry) else {
            transfer.file_done(entry.len)?;
            continue;
        };
        let dir = to.parent().unwrap_or(data).to_path_buf();
        if folders.insert(dir.clone()) {
            disk::run(transfer.disk, DiskOp::CreateDir { path: dir })?;
        }
        if is_of_store(&index, entry) {
            let sum = transfer.copy(&folder.join(&entry.name), &to)?;
            check(entry, sum)?;
            transfer.file_done(0)?;
        } else {
            let data = rewrite(&entry.name, read_other(transfer.disk, folder, entry)?)?;
            transfer.progress.copied += data.len() as u64;
            transfer.write(&to, data, OpenMode::CreatePrivate)?;
            transfer.file_done(entry.len)?;
        }
    }
    // The deepest first: a folder's name is durable after what is in it.
    for dir in folders.iter().rev() {
        transfer.sync_dir(dir)?;
    }
    if let Some(parent) = data.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        transfer.sync_dir(parent)?;
    }
    for (shard, state) in manifests.into_iter().rev() {
        let state = renewed(state, rng.next_u64().max(1));
        manifest::write(transfer.disk, &shard_dir(shard), &state)?;
    }
    let bytes = transfer.progress.copied;
    Ok(Restored { index, bytes })
}

/// The stores' manifests, in the order of their shards.
fn read_manifests(
    disk: &mut dyn Disk,
    folder: &Path,
    index: &Index,
) -> Result<Vec<(u16, manifest::ManifestState)>, Error> {
    let mut manifests = Vec::new();
    for store in &index.stores {
        let dir = store_dir(store.shard);
        let found = manifest::find(disk, &folder.join(&dir))?.ok_or_else(|| Error::Damaged {
            file: format!("{dir}/{}", MANIFEST_FILES[0]),
            what: "it is missing".to_owned(),
        })?;
        manifests.push((store.shard, found.state));
    }
    Ok(manifests)
}

/// The bytes of a file outside of the stores.
fn read_other(disk: &mut dyn Disk, folder: &Path, entry: &FileEntry) -> Result<Bytes, Error> {
    let damaged = |what: &str| Error::Damaged { file: entry.name.clone(), what: what.to_owned() };
    let (file, len) = disk::open(disk, &folder.join(&entry.name), OpenMode::Read)?;
    let read = match usize::try_from(len) {
        Ok(here) if len <= OTHER_BYTES_MAX => disk::read(disk, file, 0, here).map_err(Error::from),
        _ => Err(damaged("it is far too long")),
    };
    disk::run(disk, DiskOp::Close { file })?;
    let data = read?;
    check(entry, Sum { len: data.len() as u64, crc: crc32c(&data) })?;
    Ok(data)
}

fn check(entry: &FileEntry, sum: Sum) -> Result<(), Error> {
    match differs(entry, sum) {
        Some(what) => Err(Error::Damaged { file: entry.name.clone(), what }),
        None => Ok(()),
    }
}

fn is_of_store(index: &Index, entry: &FileEntry) -> bool {
    let first = entry.name.split('/').next();
    index.stores.iter().any(|store| Some(&*store_dir(store.shard)) == first)
}

/// Where a file goes; `None` for those that are written anew.
fn place(index: &Index, data: &Path, shard_dir: ShardDir<'_>, entry: &FileEntry) -> Option<PathBuf> {
    let Some((first, rest)) = entry.name.split_once('/') else { return Some(data.join(&entry.name)) };
    let Some(store) = index.stores.iter().find(|store| store_dir(store.shard) == first) else {
        return Some(data.join(&entry.name));
    };
    (!MANIFEST_FILES.contains(&rest)).then(|| shard_dir(store.shard).join(rest))
}
