//! Reads a backup back: every byte against the index, and then each store as `annulet check` does.

use crate::create::store_dir;
use crate::error::Error;
use crate::index::{FileEntry, Index};
use crate::transfer::{Progress, Sum, Transfer, Watch};
use base::Disk;
use engine::check::{FindingKind, Summary, check_store};
use std::path::Path;

/// A file that is not what the backup was made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its name in the backup.
    pub file: String,
    /// What is wrong.
    pub what: String,
}

/// What a backup came to.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Its index.
    pub index: Index,
    /// What is wrong with it: nothing, if it is sound.
    pub problems: Vec<Problem>,
    /// What the stores came to.
    pub stores: Summary,
}

/// Verifies the backup in `folder`. Blocks. What is wrong with its files is no error, but told in the answer.
///
/// # Errors
/// [`Error::NotBackup`] and [`Error::Damaged`] if there is no index, or it cannot be read; [`Error::Stopped`].
pub fn verify(disk: &mut dyn Disk, folder: &Path, watch: Watch<'_>) -> Result<Verified, Error> {
    let index = Index::read(disk, folder)?;
    let mut transfer = Transfer::new(disk, watch);
    transfer.progress =
        Progress { files: index.files.len() as u64, bytes: index.bytes(), ..Progress::default() };
    let mut problems = Vec::new();
    for entry in &index.files {
        if let Some(what) = wrong(&mut transfer, folder, entry)? {
            problems.push(Problem { file: entry.name.clone(), what });
        }
        transfer.file_done(0)?;
    }
    let mut stores = Summary::default();
    for store in &index.stores {
        let dir = store_dir(store.shard);
        let checked = check_store(transfer.disk, &folder.join(&dir), &mut |finding| {
            if finding.kind == FindingKind::Damage {
                let what = format!("at byte {}: {}", finding.offset, finding.what);
                problems.push(Problem { file: format!("{dir}/{}", finding.file), what });
            }
        });
        match checked {
            Ok(summary) => stores.add(&summary),
            Err(error) => problems.push(Problem { file: dir, what: error.to_string() }),
        }
    }
    Ok(Verified { index, problems, stores })
}

/// What is wrong with a file.
fn wrong(transfer: &mut Transfer<'_>, folder: &Path, entry: &FileEntry) -> Result<Option<String>, Error> {
    match transfer.sum(&folder.join(&entry.name)) {
        Ok(sum) => Ok(differs(entry, sum)),
        Err(Error::Stopped) => Err(Error::Stopped),
        Err(error) if error.is_missing() => Ok(Some("it is missing".to_owned())),
        Err(error) => Ok(Some(error.to_string())),
    }
}

/// How a file differs from what the index tells of it.
pub(crate) fn differs(entry: &FileEntry, sum: Sum) -> Option<String> {
    match (sum.len == entry.len, sum.crc == entry.crc) {
        (true, true) => None,
        (false, _) => Some(format!("it has {} bytes, not {}", sum.len, entry.len)),
        (true, false) => Some("its bytes differ from the backed-up ones: the checksum is wrong".to_owned()),
    }
}
