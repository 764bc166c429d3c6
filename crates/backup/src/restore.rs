//! Makes a data folder of a backup.
//!
//! 1. Look whether there is room, and whether each manifest can be read.
//! 2. Copy all other files, and compare their checksums. Links would not do: the store that is made writes to some of them, and a backup is
//!    to outlive what is made of it.
//! 3. Write the manifests, that of shard 0 last: before that, no node takes the folder for a whole one. Each store is another one than that
//!    which was backed up, so it has a new incarnation ([`engine::backup::renewed`]).
//!
//! The node that starts with the folder has its old name, and its old part in the cluster. Its cluster finds out that
//! the folder is an older copy, takes its vote, and gives it back (the log of the crate `membership`), and its shards
//! name their writes anew at each start.

use crate::create::store_dir;
use crate::error::Error;
use crate::index::{FileEntry, Index};
use crate::transfer::{Progress, Transfer, Watch};
use crate::verify::differs;
use base::disk::{self, DiskOp};
use base::{Disk, Rng};
use engine::backup::{FOLDERS, MANIFEST_FILES, renewed};
use engine::manifest;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The folder of a shard's store in the data folder.
pub type ShardDir<'a> = &'a dyn Fn(u16) -> PathBuf;

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The backup's index.
    pub index: Index,
    /// Bytes that were written.
    pub bytes: u64,
}

/// Restores the backup in `folder` into the data folder `data`, in which there must be nothing yet: whoever calls this has
/// looked. Blocks. After an error the folder is of no use.
///
/// # Errors
/// [`Error::Damaged`] if a file is not what was backed up, [`Error::NoRoom`], [`Error::Stopped`], and errors of the disk.
pub fn restore(
    disk: &mut dyn Disk,
    folder: &Path,
    (data, shard_dir): (&Path, ShardDir<'_>),
    rng: &mut dyn Rng,
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
        let sum = transfer.copy(&folder.join(&entry.name), &to)?;
        if let Some(what) = differs(entry, sum) {
            return Err(Error::Damaged { file: entry.name.clone(), what });
        }
        transfer.file_done(0)?;
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

/// Where a file goes; `None` for those that are written anew.
fn place(index: &Index, data: &Path, shard_dir: ShardDir<'_>, entry: &FileEntry) -> Option<PathBuf> {
    let (first, rest) = entry.name.split_once('/')?;
    let Some(store) = index.stores.iter().find(|store| store_dir(store.shard) == first) else {
        return Some(data.join(&entry.name));
    };
    (!MANIFEST_FILES.contains(&rest)).then(|| shard_dir(store.shard).join(rest))
}
